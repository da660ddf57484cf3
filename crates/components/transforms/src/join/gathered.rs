//! The columns of a table, gathered from pieces of its file.
//!
//! A file is read in pieces, of which only the needed columns are kept, so that a wide file needs little
//! memory. The type of a JSON column may differ from piece to piece. It becomes the one that holds all values
//! as what they are, as within a batch of messages: see `thalweg_codec::columns`.
//!
//! The texts of a column are copied into one buffer under a lease. Messages have views of it: it counts once,
//! also after the table was replaced, until the last of them has left.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BinaryViewArray, RecordBatch, RecordBatchOptions, cast::AsArray, new_null_array,
};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, Field, Schema, TimeUnit};
use arrow_select::concat::concat;
use thalweg_codec::columns::{FieldType, fit, is_json_field, is_number_field, number_field};
use thalweg_record::{Budget, ViewBuilder};

use super::unusable::Unusable;
use crate::kept::Kept;

/// Texts of at most this many bytes are in the view itself.
const INLINE: usize = 12;

/// A part of the rows, with its columns by name.
struct Piece {
    rows: usize,
    columns: HashMap<String, Column>,
}

/// A column with its type.
type Column = (Field, ArrayRef);

/// The columns of a table so far.
pub(super) struct Gathered<'t> {
    path: &'t Path,
    /// The columns to keep. None if these are all.
    needed: Option<HashSet<&'t str>>,
    /// The names of all columns, in the order in which they came.
    names: Vec<String>,
    known: HashSet<String>,
    pieces: Vec<Piece>,
    rows: usize,
    /// The bytes of the pieces, and of the file while it is in memory.
    bytes: usize,
    file: usize,
    most: usize,
    kept: Kept,
}

impl<'t> Gathered<'t> {
    /// Gathers columns in at most `most` bytes.
    pub(super) fn new(path: &'t Path, needed: Option<HashSet<&'t str>>, most: usize, kept: Kept) -> Self {
        Self {
            path,
            needed,
            names: Vec::new(),
            known: HashSet::new(),
            pieces: Vec::new(),
            rows: 0,
            bytes: 0,
            file: 0,
            most,
            kept,
        }
    }

    /// Counts the bytes of the file, which are in memory until the table is complete.
    pub(super) fn count_file(&mut self, bytes: usize) {
        self.file = bytes;
        self.kept.set(self.file + self.bytes);
    }

    /// True if a column is kept.
    fn needs(&self, column: &str) -> bool {
        self.needed.as_ref().is_none_or(|needed| needed.contains(column))
    }

    /// Returns the names of all columns, also of those that are not kept.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Adds the next rows.
    pub(super) fn add(&mut self, rows: &RecordBatch) -> Result<(), Unusable> {
        let mut piece = Piece { rows: rows.num_rows(), columns: HashMap::new() };
        for (field, column) in rows.schema_ref().fields().iter().zip(rows.columns()) {
            if self.known.insert(field.name().clone()) {
                self.names.push(field.name().clone());
            }
            if self.needs(field.name()) {
                let needed = self.bytes.saturating_add(copied_bytes(column));
                if needed > self.most {
                    return Err(Unusable::too_large(self.path, needed, self.most));
                }
                let column = owned(field, column).map_err(|error| self.broken(&error))?;
                self.bytes += column.1.get_array_memory_size();
                piece.columns.insert(field.name().clone(), column);
            }
        }
        self.rows += piece.rows;
        self.pieces.push(piece);
        self.kept.set(self.file + self.bytes);
        if self.bytes > self.most || u32::try_from(self.rows).is_err() {
            return Err(Unusable::too_large(self.path, self.bytes, self.most));
        }
        Ok(())
    }

    /// Returns the rows of the table, and what they count as until they have leases of their own.
    pub(super) fn finish(mut self, budget: &Budget) -> Result<(RecordBatch, Kept), Unusable> {
        self.count_file(0);
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for name in std::mem::take(&mut self.names) {
            if !self.needs(&name) {
                continue;
            }
            let (field, column) = self.column(&name, budget).map_err(|error| self.broken(&error))?;
            fields.push(field);
            columns.push(column);
        }
        let rows = batch(fields, columns, self.rows).map_err(|error| self.broken(&error))?;
        Ok((rows, self.kept))
    }

    /// Takes a column out of all pieces.
    fn column(&mut self, name: &str, budget: &Budget) -> Result<Column, ArrowError> {
        let parts = self.pieces.iter_mut().map(|piece| (piece.rows, piece.columns.remove(name)));
        let (field, parts) = unified(name, parts.collect())?;
        Ok((field, joined(&parts, budget)?))
    }

    /// Arrow's own error: none is known.
    fn broken(&self, error: &ArrowError) -> Unusable {
        Unusable::at(self.path, "its columns do not fit together", &error.to_string())
    }
}

fn batch(fields: Vec<Field>, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, ArrowError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
}

/// Returns the number of bytes that views need in memory of their own. Many may be of the same bytes.
fn copied_bytes(column: &ArrayRef) -> usize {
    let of = |lengths: &mut dyn Iterator<Item = u32>| {
        let long = lengths.map(|length| length as usize).filter(|length| *length > INLINE);
        column.len() * size_of::<u128>() + long.sum::<usize>()
    };
    match column.data_type() {
        DataType::Utf8View => of(&mut column.as_string_view().lengths()),
        DataType::BinaryView => of(&mut column.as_binary_view().lengths()),
        _ => 0,
    }
}

/// Returns a column of a piece in a type that messages have, in memory of its own.
fn owned(field: &Field, column: &ArrayRef) -> Result<Column, ArrowError> {
    let (field, column) = usual(field, column)?;
    let column: ArrayRef = match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()),
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        _ => column,
    };
    Ok((field, column))
}

/// Returns a column of any Arrow type in one that messages have.
fn usual(field: &Field, column: &ArrayRef) -> Result<Column, ArrowError> {
    let name = field.name();
    let to = match column.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_) => DataType::BinaryView,
        DataType::Int8 | DataType::Int16 | DataType::Int32 => DataType::Int64,
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 => DataType::Int64,
        DataType::UInt64 => {
            // Larger numbers than integers have here stay what they are.
            let whole = cast(column, &DataType::Int64)?;
            let fits = whole.null_count() == column.null_count();
            return Ok(if fits { (FieldType::Int.field(name), whole) } else { unchanged(field, column) });
        }
        DataType::Timestamp(..) => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        DataType::Dictionary(_, values) => {
            let plain = cast(column, values)?;
            return usual(&Field::new(name, (**values).clone(), true), &plain);
        }
        nested if nested.is_nested() => {
            let json = FieldType::Json.field(name);
            let texts = fit(field, column, &json)?.column;
            return Ok((json, texts));
        }
        _ => return Ok(unchanged(field, column)),
    };
    let column = if *column.data_type() == to { column.clone() } else { cast(column, &to)? };
    Ok((Field::new(name, to, true).with_metadata(field.metadata().clone()), column))
}

/// Returns a column as it is. It may be NULL in other messages.
fn unchanged(field: &Field, column: &ArrayRef) -> Column {
    (field.clone().with_nullable(true), column.clone())
}

/// Returns the parts of a column in one type.
fn unified(name: &str, parts: Vec<(usize, Option<Column>)>) -> Result<(Field, Vec<ArrayRef>), ArrowError> {
    let has_value = |column: &ArrayRef| column.null_count() < column.len();
    let filled: Vec<&Field> = parts
        .iter()
        .filter_map(|(_, part)| part.as_ref())
        .filter(|(_, column)| has_value(column))
        .map(|(field, _)| field)
        .collect();
    let any = parts.iter().find_map(|(_, part)| part.as_ref()).map(|(field, _)| field);
    let first = filled.first().copied().or(any).cloned();
    let first = first.unwrap_or_else(|| FieldType::Text.field(name));
    let is_whole = |field: &&Field| field.data_type() == &DataType::Int64 || is_number_field(field);
    let wanted = if filled.iter().all(|field| is_same(field, &first)) {
        vec![first]
    } else if filled.iter().all(is_whole) {
        vec![number_field(name), FieldType::Json.field(name)]
    } else {
        vec![FieldType::Json.field(name)]
    };
    for field in &wanted {
        if let Some(columns) = fitted(&parts, field)? {
            return Ok((field.clone(), columns));
        }
    }
    Err(ArrowError::CastError(format!("the column `{name}` has values of several types")))
}

/// True if two fields have values of one type.
fn is_same(one: &Field, other: &Field) -> bool {
    one.data_type() == other.data_type()
        && is_json_field(one) == is_json_field(other)
        && is_number_field(one) == is_number_field(other)
}

/// Returns the parts of a column in this type. None if a value does not fit it.
fn fitted(parts: &[(usize, Option<Column>)], wanted: &Field) -> Result<Option<Vec<ArrayRef>>, ArrowError> {
    let mut columns = Vec::with_capacity(parts.len());
    for (rows, part) in parts {
        let Some((field, column)) = part.as_ref().filter(|(_, column)| column.null_count() < column.len())
        else {
            columns.push(new_null_array(wanted.data_type(), *rows));
            continue;
        };
        let fitted = fit(field, column, wanted)?;
        if !fitted.misfits.is_empty() {
            return Ok(None);
        }
        columns.push(fitted.column);
    }
    Ok(Some(columns))
}

/// Returns the parts of a column as one.
fn joined(parts: &[ArrayRef], budget: &Budget) -> Result<ArrayRef, ArrowError> {
    let Some(first) = parts.first() else { return Ok(new_null_array(&DataType::Utf8View, 0)) };
    match first.data_type() {
        DataType::Utf8View => {
            let parts = parts.iter().map(|part| part.as_string_view().clone().to_binary_view());
            Ok(Arc::new(packed(&parts.collect::<Vec<_>>(), budget).to_string_view()?))
        }
        DataType::BinaryView => {
            let parts = parts.iter().map(|part| part.as_binary_view().clone());
            Ok(Arc::new(packed(&parts.collect::<Vec<_>>(), budget)))
        }
        _ => concat(&parts.iter().map(|part| part.as_ref()).collect::<Vec<&dyn Array>>()),
    }
}

/// Returns the parts of a column as one, whose bytes are in a buffer with a lease.
fn packed(parts: &[BinaryViewArray], budget: &Budget) -> BinaryViewArray {
    let values = || parts.iter().flat_map(|part| part.iter());
    let is_long = |value: &&[u8]| value.len() > INLINE;
    let length = values().flatten().filter(is_long).map(<[u8]>::len).sum();
    let mut bytes = Vec::with_capacity(length);
    values().flatten().filter(is_long).for_each(|value| bytes.extend_from_slice(value));
    let buffer = budget.claim(length).freeze(bytes);
    let rows = parts.iter().map(|part| part.len()).sum();
    let mut builder = ViewBuilder::over(std::slice::from_ref(&buffer), rows);
    let mut at = 0;
    for value in values() {
        match value {
            None => builder.push_null(),
            Some(value) if is_long(&value) => {
                // A view reaches 4 GiB: what follows is copied once more.
                if !builder.push_range(0, at, value.len()) {
                    builder.push(value);
                }
                at += value.len();
            }
            Some(value) => builder.push(value),
        }
    }
    builder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Float64Array, Int64Array, StringViewArray};
    use serde_json::json;
    use thalweg_engine::testing::rows;

    fn gathered(pieces: Vec<(Field, ArrayRef)>) -> (Field, RecordBatch) {
        let budget = Budget::new(64 << 20);
        let mut gathered = Gathered::new(Path::new("t"), None, 1 << 20, Kept::new(&budget.share()));
        for (field, column) in pieces {
            let rows = column.len();
            gathered.add(&batch(vec![field], vec![column], rows).unwrap()).unwrap();
        }
        let (rows, _) = gathered.finish(&budget).unwrap();
        (rows.schema().field(0).clone(), rows)
    }

    fn ints() -> Column {
        (FieldType::Int.field("x"), Arc::new(Int64Array::from(vec![Some(1), None])))
    }

    fn texts(values: &[&str]) -> Column {
        (FieldType::Text.field("x"), Arc::new(StringViewArray::from_iter_values(values)))
    }

    #[test]
    fn values_of_several_pieces_keep_their_types() {
        let (field, found) = gathered(vec![ints(), texts(&["a text of more than twelve bytes", ""])]);
        assert_eq!(field, FieldType::Json.field("x"));
        let texts: Vec<_> = found.column(0).as_string_view().iter().collect();
        assert_eq!(texts, [Some("1"), None, Some("\"a text of more than twelve bytes\""), Some("\"\"")]);
        let numbers: ArrayRef = Arc::new(Float64Array::from(vec![1.5]));
        let (field, found) = gathered(vec![ints(), (number_field("x"), numbers)]);
        assert_eq!(field, number_field("x"));
        assert_eq!(rows(&found), [json!({"x": 1.0}), json!({}), json!({"x": 1.5})]);
        let nulls: ArrayRef = new_null_array(&DataType::Utf8View, 2);
        let (field, _) = gathered(vec![(FieldType::Text.field("x"), nulls), ints()]);
        assert_eq!(field, FieldType::Int.field("x"));
    }

    #[test]
    fn texts_count_until_the_last_view_of_them_is_gone() {
        let budget = Budget::new(64 << 20);
        let mut gathered = Gathered::new(Path::new("t"), None, 1 << 20, Kept::new(&budget.share()));
        let (field, column) = texts(&[&"x".repeat(1000), &"y".repeat(1000)]);
        gathered.add(&batch(vec![field], vec![column], 2).unwrap()).unwrap();
        let (rows, kept) = gathered.finish(&budget).unwrap();
        drop(kept);
        let view = rows.column(0).slice(1, 1);
        drop(rows);
        assert_eq!(budget.used(), 2000);
        assert_eq!(view.as_string_view().value(0), "y".repeat(1000));
        drop(view);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn views_of_the_same_text_count_as_often_as_they_are_copied() {
        let budget = Budget::new(64 << 20);
        let mut gathered = Gathered::new(Path::new("t"), None, 1 << 20, Kept::new(&budget.share()));
        let (field, column) = texts(&[&"x".repeat(1 << 19)]);
        let same = arrow_select::take::take(&column, &arrow_array::UInt32Array::from(vec![0; 1000]), None);
        let refused = gathered.add(&batch(vec![field], vec![same.unwrap()], 1000).unwrap()).unwrap_err();
        assert!(refused.to_string().contains("needs 501 MiB or more"), "{refused}");
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_table_beyond_its_limit_is_refused_with_its_size() {
        let budget = Budget::new(64 << 20);
        let needed = Some(HashSet::from(["x"]));
        let mut gathered = Gathered::new(Path::new("t.csv"), needed, 1 << 20, Kept::new(&budget.share()));
        let (field, column) = texts(&[&"x".repeat(3 << 20)]);
        let other = (field.clone().with_name("other"), column.clone());
        gathered.add(&batch(vec![other.0], vec![other.1], 1).unwrap()).unwrap();
        let refused = gathered.add(&batch(vec![field], vec![column], 1).unwrap()).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the table `t.csv` needs 4 MiB or more in memory, and may take 1.0 MiB: a quarter of `memory`. \
             Set `memory: 20MiB` or more, or choose fewer `columns`."
        );
    }
}

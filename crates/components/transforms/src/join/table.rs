//! A table in memory: its columns, and the index of its keys.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BinaryViewArray, RecordBatch, UInt32Array, new_null_array};
use arrow_schema::{ArrowError, DataType, Field, FieldRef};
use arrow_select::take::take;
use thalweg_codec::columns::shortened;

use super::comparable;
use super::index::{Duplicates, Index, Twice};
use super::on::Keys;
use super::points::{self, Kind};
use super::unusable::Unusable;
use crate::kept::Kept;

/// A table that messages look their keys up in.
pub(super) struct Table {
    /// The fields that messages get.
    fields: Vec<FieldRef>,
    columns: Vec<ArrayRef>,
    index: Index,
    /// The values that are compared with networks or ranges.
    kind: Option<Kind>,
    /// Counts the table, without the texts, whose buffers have leases.
    _kept: Kept,
}

/// The parts of a table.
pub(super) struct Parts<'t> {
    pub(super) path: &'t Path,
    pub(super) rows: RecordBatch,
    pub(super) keys: &'t Keys,
    /// The columns that messages get, with the names of the fields and the types of missing columns.
    pub(super) chosen: Vec<(String, Field)>,
    pub(super) duplicates: Duplicates,
    /// The maximum number of bytes.
    pub(super) most: usize,
}

impl Table {
    /// Creates a table. All columns that are compared exist.
    pub(super) fn new(parts: Parts<'_>, mut kept: Kept) -> Result<Self, Unusable> {
        let Parts { path, rows, keys, chosen, duplicates, most } = parts;
        // The columns of a file may take far less: a column of true and false, a bit for each row.
        let each = keys.equal.len() * size_of::<u128>() + Index::least_bytes(keys.within.is_some());
        let least = rows.num_rows().saturating_mul(each);
        if least > most {
            return Err(Unusable::too_large(path, least, most));
        }
        let equal = keys.equal.iter().map(|(_, column)| key(path, &rows, column));
        let equal = equal.collect::<Result<Vec<_>, _>>()?;
        let compared = keys.equal.iter().zip(&equal);
        let keys_bytes = compared.map(|((_, column), key)| key_bytes(&rows, column, key)).sum::<usize>();
        let found = keys.within.as_ref().map(|(_, within)| points::spans(path, &rows, within)).transpose()?;
        let kind = found.as_ref().map(|(kind, _)| *kind);
        let index = match found {
            Some((_, spans)) => Index::of_spans(equal, &spans, duplicates),
            None => Index::of_rows(equal, rows.num_rows(), duplicates),
        };
        let index = index.map_err(|twice| repeated(path, &rows, keys, &twice))?;
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for (column, field) in chosen {
            let found = rows.schema_ref().column_with_name(&column);
            let (field, values) = match found {
                Some((place, known)) => (known.clone().with_name(field.name()), rows.column(place).clone()),
                None => {
                    let nulls = new_null_array(field.data_type(), rows.num_rows());
                    (field, nulls)
                }
            };
            fields.push(Arc::new(field));
            columns.push(values);
        }
        let own = keys_bytes + index.bytes() + columns.iter().map(own_bytes).sum::<usize>();
        let texts = columns.iter().map(|column| column.get_array_memory_size()).sum::<usize>();
        if keys_bytes + index.bytes() + texts > most {
            return Err(Unusable::too_large(path, keys_bytes + index.bytes() + texts, most));
        }
        kept.set(own);
        Ok(Self { fields, columns, index, kind, _kept: kept })
    }

    /// Returns the fields that messages get.
    pub(super) fn fields(&self) -> &[FieldRef] {
        &self.fields
    }

    /// Returns what is compared with networks or ranges.
    pub(super) fn kind(&self) -> Option<Kind> {
        self.kind
    }

    /// Returns the row of a message: see [`Index::find`].
    #[inline]
    pub(super) fn find(&self, keys: &[BinaryViewArray], message: usize, point: Option<u128>) -> Option<u32> {
        self.index.find(keys, message, point)
    }

    /// Returns the columns of these rows, NULL for none.
    pub(super) fn taken(&self, rows: &UInt32Array) -> Result<Vec<ArrayRef>, ArrowError> {
        self.columns.iter().map(|column| take(column, rows, None)).collect()
    }
}

/// Returns the values of a column that is compared. Only a table without rows may lack it.
fn key(path: &Path, rows: &RecordBatch, column: &str) -> Result<BinaryViewArray, Unusable> {
    let Some((place, field)) = rows.schema_ref().column_with_name(column) else {
        return Ok(BinaryViewArray::new_null(rows.num_rows()));
    };
    comparable::of_column(field, rows.column(place)).ok_or_else(|| {
        let message =
            format!("the column `{column}` of `{}` has values that cannot be compared.", path.display());
        Unusable::new("on", message)
    })
}

/// The bytes of the values of a column that are compared. Texts are those of the column.
fn key_bytes(rows: &RecordBatch, column: &str, key: &BinaryViewArray) -> usize {
    match rows.column_by_name(column) {
        Some(column) if is_view(column) => own_bytes(column),
        _ => key.get_array_memory_size(),
    }
}

/// The bytes of a column, without texts whose buffers have leases of their own.
fn own_bytes(column: &ArrayRef) -> usize {
    match is_view(column) {
        true => column.len() * (size_of::<u128>() + 1),
        false => column.get_array_memory_size(),
    }
}

fn is_view(column: &ArrayRef) -> bool {
    matches!(column.data_type(), DataType::Utf8View | DataType::BinaryView)
}

/// The error of a key that two rows have. Rows count from 1, without a header.
fn repeated(path: &Path, rows: &RecordBatch, keys: &Keys, twice: &Twice) -> Unusable {
    let names: Vec<String> = keys.columns().iter().map(|column| format!("`{column}`")).collect();
    let what = if keys.within.is_some() { "match the same values of" } else { "are equal in" };
    let message = format!(
        "the rows {} and {} of `{}` {what} {}.",
        twice.first as usize + 1,
        twice.second as usize + 1,
        path.display(),
        names.join(" and ")
    );
    let values = keys.equal.iter().filter_map(|(_, column)| {
        let found = key(path, rows, column).ok()?;
        let row = twice.first as usize;
        let text = found.is_valid(row).then(|| String::from_utf8_lossy(found.value(row)).into_owned())?;
        Some(format!("`{}`", shortened(&text)))
    });
    let values: Vec<String> = values.collect();
    let place = if values.is_empty() { String::new() } else { format!(" ({})", values.join(", ")) };
    let help = format!("Remove one of them{place}, or say `duplicates: first` or `duplicates: last`.");
    Unusable::new("table", message).help(help)
}

//! The common part of all text parsers: builds typed columns from pieces of text.
//!
//! A parser finds pieces of a message and assigns each piece to a column. Text is not copied: the column
//! holds views of the parsed bytes. Values of other types are parsed immediately. A message that cannot be
//! parsed is recorded with its reason and filled with NULLs, so that the common path is a plain append. Rows
//! are removed from the columns only if a message failed.

mod fit;
mod layout;
mod numbers;
mod rows;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, BooleanBuilder, Float64Builder, Int64Builder, TimestampMicrosecondBuilder,
};
use arrow_array::{ArrayRef, new_null_array};
use arrow_buffer::Buffer;
use arrow_schema::{ArrowError, DataType, Field, TimeUnit};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::Mistake;
use thalweg_record::{Batch, Outputs, TextBuilder};

pub use fit::{Fitted, fit, is_json_field, noun};
pub use layout::{Before, Layout, reject_all};
pub(crate) use numbers::is_exact;
pub use numbers::{is_number_field, is_whole, number_field};
pub use rows::{ByteParser, RowParser, parse_required, parse_rows};

use crate::timestamps::{TimeFormat, TimeParser};

/// The type of a field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FieldType {
    /// Text, unchanged.
    #[default]
    Text,
    /// A 64-bit integer.
    Int,
    /// A 64-bit floating-point number.
    Float,
    /// True or false: `true`, `yes`, `on`, `t`, `y`, `1`, and their opposites, in any case.
    Bool,
    /// A point in time: RFC 3339 or ISO 8601, also with slashes in the date, the common log format, the form
    /// of `ctime`, RFC 2822, or a number since 1970. The size of a number tells its unit: seconds,
    /// milliseconds, microseconds or nanoseconds. A time without a time zone is UTC.
    Timestamp,
    /// JSON, kept as text.
    Json,
}

impl FieldType {
    /// Returns the Arrow type of the column.
    pub fn data_type(self) -> DataType {
        match self {
            FieldType::Text | FieldType::Json => DataType::Utf8View,
            FieldType::Int => DataType::Int64,
            FieldType::Float => DataType::Float64,
            FieldType::Bool => DataType::Boolean,
            FieldType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        }
    }

    /// Returns a nullable Arrow field of this type with this name.
    pub fn field(self, name: &str) -> Field {
        let field = Field::new(name, self.data_type(), true);
        match self {
            FieldType::Json => field.with_metadata(
                [("ARROW:extension:name".to_owned(), "arrow.json".to_owned())].into_iter().collect(),
            ),
            _ => field,
        }
    }

    /// Returns the name of the type as it is used in a sentence.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            FieldType::Text => "text",
            FieldType::Int => "a whole number of 64 bits",
            FieldType::Float => "a number",
            FieldType::Bool => "true or false",
            FieldType::Timestamp => "a time",
            FieldType::Json => "JSON",
        }
    }
}

/// The error of a text that cannot be converted to the column's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Misfit(FieldType);

impl Misfit {
    /// Returns the reason for rejecting the message. `name` is the field, `piece` the text.
    pub fn reason(self, name: &str, piece: &str) -> String {
        format!("the field `{name}` is not {}: `{}`", self.0.noun(), shortened(piece))
    }
}

/// Returns the first 60 characters of a text, for use in a sentence.
pub fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Builds one column from pieces of text.
#[derive(Debug)]
pub enum ColumnBuilder {
    /// Text.
    Text(TextBuilder),
    /// JSON, stored as text.
    Json(TextBuilder),
    /// 64-bit integers.
    Int(Int64Builder),
    /// 64-bit floating-point numbers.
    Float(Float64Builder),
    /// Booleans.
    Bool(BooleanBuilder),
    /// Points in time, in microseconds since 1970 (UTC).
    Timestamp(TimestampMicrosecondBuilder, Box<TimeParser>),
}

impl ColumnBuilder {
    /// Creates a builder for a column of about `rows` values. `base` holds the buffers that most texts are
    /// slices of.
    pub fn new(kind: FieldType, base: &[Buffer], rows: usize) -> Self {
        match kind {
            FieldType::Text => Self::Text(TextBuilder::over(base, rows)),
            FieldType::Json => Self::Json(TextBuilder::over(base, rows)),
            FieldType::Int => Self::Int(Int64Builder::with_capacity(rows)),
            FieldType::Float => Self::Float(Float64Builder::with_capacity(rows)),
            FieldType::Bool => Self::Bool(BooleanBuilder::with_capacity(rows)),
            FieldType::Timestamp => Self::Timestamp(
                TimestampMicrosecondBuilder::with_capacity(rows).with_timezone("UTC"),
                Box::new(TimeParser::new(TimeFormat::Auto, 0)),
            ),
        }
    }

    /// True if it has no value so far.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of values so far.
    pub fn len(&self) -> usize {
        match self {
            Self::Text(builder) | Self::Json(builder) => builder.len(),
            Self::Int(builder) => builder.len(),
            Self::Float(builder) => builder.len(),
            Self::Bool(builder) => builder.len(),
            Self::Timestamp(builder, _) => builder.len(),
        }
    }

    /// Parses a text and appends the value.
    ///
    /// # Errors
    /// If the text does not fit the type. Nothing is appended then.
    #[inline]
    pub fn push(&mut self, piece: &str) -> Result<(), Misfit> {
        match self {
            Self::Text(builder) => builder.push(piece),
            Self::Int(builder) => match piece.trim_ascii().parse() {
                Ok(value) => builder.append_value(value),
                Err(_) => return Err(Misfit(FieldType::Int)),
            },
            Self::Float(builder) => match piece.trim_ascii().parse() {
                Ok(value) => builder.append_value(value),
                Err(_) => return Err(Misfit(FieldType::Float)),
            },
            Self::Bool(builder) => match truth(piece.trim_ascii()) {
                Some(value) => builder.append_value(value),
                None => return Err(Misfit(FieldType::Bool)),
            },
            Self::Timestamp(builder, parser) => match parser.parse(piece.trim_ascii()) {
                Some(value) => builder.append_value(value),
                None => return Err(Misfit(FieldType::Timestamp)),
            },
            Self::Json(builder) => match serde_json::from_str::<serde::de::IgnoredAny>(piece) {
                Ok(_) => builder.push(piece),
                Err(_) => return Err(Misfit(FieldType::Json)),
            },
        }
        Ok(())
    }

    /// Appends a NULL.
    #[inline]
    pub fn push_null(&mut self) {
        match self {
            Self::Text(builder) | Self::Json(builder) => builder.push_null(),
            Self::Int(builder) => builder.append_null(),
            Self::Float(builder) => builder.append_null(),
            Self::Bool(builder) => builder.append_null(),
            Self::Timestamp(builder, _) => builder.append_null(),
        }
    }

    /// Appends NULLs until there are this many values.
    #[inline]
    fn fill(&mut self, rows: usize) {
        for _ in self.len()..rows {
            self.push_null();
        }
    }

    /// Returns the column.
    pub fn finish(self) -> ArrayRef {
        match self {
            Self::Text(builder) | Self::Json(builder) => Arc::new(builder.finish()),
            Self::Int(mut builder) => Arc::new(builder.finish()),
            Self::Float(mut builder) => Arc::new(builder.finish()),
            Self::Bool(mut builder) => Arc::new(builder.finish()),
            Self::Timestamp(mut builder, _) => Arc::new(builder.finish()),
        }
    }
}

/// Parses a boolean: `true`, `yes`, `on`, `t`, `y`, `1`, and their opposites, in any case.
pub(crate) fn truth(text: &str) -> Option<bool> {
    let is_one_of = |words: [&str; 6]| words.iter().any(|word| word.eq_ignore_ascii_case(text));
    if is_one_of(["true", "1", "yes", "on", "t", "y"]) {
        Some(true)
    } else if is_one_of(["false", "0", "no", "off", "f", "n"]) {
        Some(false)
    } else {
        None
    }
}

/// The options of a parser: the types of fields by name, and the texts that mean NULL.
#[derive(Debug, Clone)]
pub struct Typing {
    types: BTreeMap<String, FieldType>,
    nulls: Vec<Box<str>>,
    nulls_in_text: bool,
}

impl Typing {
    /// Creates the typing from the options `types` and `null_values`. With `null_values`, exactly these texts
    /// are NULL in all columns. Without it, `-` and the empty text are NULL in all columns that are neither
    /// text nor JSON.
    pub fn new(types: &BTreeMap<String, FieldType>, null_values: Option<&[String]>) -> Self {
        let nulls = match null_values {
            Some(values) => values.iter().map(|value| value.as_str().into()).collect(),
            None => vec!["-".into(), "".into()],
        };
        Self {
            types: types.clone(),
            nulls,
            nulls_in_text: null_values.is_some_and(|values| !values.is_empty()),
        }
    }

    /// Returns the type of the field of this name.
    pub fn kind(&self, name: &str) -> FieldType {
        self.types.get(name).copied().unwrap_or_default()
    }
}

/// Returns a mistake for each field in `types` that does not exist.
pub fn unknown_types<'a>(
    types: &BTreeMap<String, FieldType>,
    known: impl Iterator<Item = &'a str> + Clone,
) -> impl Iterator<Item = Mistake> {
    types.keys().filter(move |name| !known.clone().any(|known| known == name.as_str())).map(|name| {
        Mistake::new("types", format!("`{name}` is given a type, but there is no field of that name."))
    })
}

#[derive(Debug)]
struct Column {
    name: Box<str>,
    kind: FieldType,
    may_be_null: bool,
    /// The number of batches since the last one with a value.
    idle: u32,
}

/// The number of batches without a value after which a column counts as idle.
const IDLE: u32 = 16;

/// Builds the columns that a parser adds to a batch. One value serves all batches.
///
/// The cost of a message is that of its values, however many columns there are: NULLs are added to a column
/// only before its next value, and columns without any value share one array.
#[derive(Debug)]
pub struct Columns {
    typing: Typing,
    columns: Vec<Column>,
    /// The builder of each column. None if it has no value so far.
    builders: Vec<Option<ColumnBuilder>>,
    /// The number of messages that are complete. Columns with fewer values are NULL in the rest.
    complete: usize,
    base: Vec<Buffer>,
    rows: usize,
    failed: Vec<(u32, String)>,
    layout: Layout,
}

impl Columns {
    /// Creates columns with these names.
    pub fn new(typing: Typing, names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let mut columns = Self {
            typing,
            columns: Vec::new(),
            builders: Vec::new(),
            complete: 0,
            base: Vec::new(),
            rows: 0,
            failed: Vec::new(),
            layout: Layout::default(),
        };
        for name in names {
            columns.add(name.as_ref());
        }
        columns
    }

    /// Returns the number of columns.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// True if there are no columns.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Returns the name of a column.
    pub fn name(&self, column: usize) -> Option<&str> {
        self.columns.get(column).map(|column| &*column.name)
    }

    /// Adds a column and returns its number. The column is NULL in the messages so far.
    pub fn add(&mut self, name: &str) -> usize {
        let kind = self.typing.kind(name);
        let may_be_null = self.typing.nulls_in_text || !matches!(kind, FieldType::Text | FieldType::Json);
        self.columns.push(Column { name: name.into(), kind, may_be_null, idle: 0 });
        self.layout.add(Arc::new(kind.field(name)));
        self.builders.push(None);
        self.columns.len() - 1
    }

    /// Forgets the columns that had no value in the last batches, if they are more than the others. Returns
    /// true if it did, which changes the numbers of the others. Not to be called within a batch.
    pub fn forget_idle(&mut self) -> bool {
        let is_idle = |column: &Column| column.idle >= IDLE;
        let forgets = 2 * self.columns.iter().filter(|column| is_idle(column)).count() > self.columns.len();
        if forgets {
            self.columns.retain(|column| !is_idle(column));
            let fields = self.columns.iter().map(|column| Arc::new(column.kind.field(&column.name)));
            self.layout = Layout::new(fields.collect());
        }
        forgets
    }

    /// Starts a batch of `rows` messages. `base` holds the buffers with their bytes.
    pub fn begin(&mut self, base: &[Buffer], rows: usize) {
        self.base = base.to_vec();
        self.rows = rows;
        self.complete = 0;
        self.failed.clear();
        self.builders.clear();
        self.builders.resize_with(self.columns.len(), || None);
    }

    /// Parses a text and appends the value to a column, in the message that comes next. A column without a
    /// value is NULL in this message.
    ///
    /// # Errors
    /// The reason for rejecting the message.
    #[inline]
    pub fn push(&mut self, column: usize, piece: &str) -> Result<(), String> {
        let (Some(about), Some(builder)) = (self.columns.get(column), self.builders.get_mut(column)) else {
            return Err(format!("there is no column {column}"));
        };
        if about.may_be_null && self.typing.nulls.iter().any(|null| **null == *piece) {
            return Ok(());
        }
        let builder = builder.get_or_insert_with(|| ColumnBuilder::new(about.kind, &self.base, self.rows));
        builder.fill(self.complete);
        builder.push(piece).map_err(|misfit| misfit.reason(&about.name, piece))
    }

    /// Parses a text, if there is one, and appends the value to a column, as [`push`](Self::push) does.
    ///
    /// # Errors
    /// The reason for rejecting the message.
    #[inline]
    pub fn push_if_any(&mut self, column: usize, piece: Option<&str>) -> Result<(), String> {
        piece.map_or(Ok(()), |piece| self.push(column, piece))
    }

    /// Records that the message in this row cannot be parsed. Rows must come in ascending order.
    pub fn fail(&mut self, row: usize, reason: String) {
        self.failed.push((row as u32, reason));
    }

    /// Ends the message in this row. Columns without a value for it are NULL.
    #[inline]
    pub fn end(&mut self, row: usize) {
        self.complete = row + 1;
    }

    /// Adds the columns to the batch that they were parsed from. Returns the batch, and the rows and reasons
    /// of the failed messages. The new columns are NULL in these rows.
    pub fn give(&mut self, batch: Batch) -> Result<(Batch, Vec<(u32, String)>), ArrowError> {
        let columns = self.built();
        Ok((self.layout.extend(batch, columns)?, std::mem::take(&mut self.failed)))
    }

    /// Adds the columns to the batch that they were parsed from. Rejects the failed messages and sends the
    /// rest.
    pub fn finish(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), ArrowError> {
        let columns = self.built();
        self.layout.give(batch, columns, std::mem::take(&mut self.failed), out)
    }

    /// Returns the finished columns. Those of one type without any value share one array.
    fn built(&mut self) -> Vec<ArrayRef> {
        self.base.clear();
        let rows = self.rows;
        let mut nulls: BTreeMap<&'static str, ArrayRef> = BTreeMap::new();
        let builders = self.builders.drain(..).zip(&mut self.columns);
        let column = |(builder, column): (Option<ColumnBuilder>, &mut Column)| match builder {
            Some(mut builder) => {
                column.idle = 0;
                builder.fill(rows);
                builder.finish()
            }
            None => {
                column.idle = column.idle.saturating_add(1);
                let kind = column.kind;
                let array = || new_null_array(&kind.data_type(), rows);
                nulls.entry(kind.noun()).or_insert_with(array).clone()
            }
        };
        builders.map(column).collect()
    }
}

/// Returns the reason for rejecting a message that lacks the field to read.
pub fn missing(field: &str) -> String {
    format!("there is no field `{field}`")
}

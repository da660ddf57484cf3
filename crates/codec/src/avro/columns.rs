//! Builds columns from data.

use std::sync::Arc;

use arrow_array::builder::{
    BooleanBuilder, Date32Builder, Decimal128Builder, Decimal256Builder, Float32Builder, Float64Builder,
    Int64Builder, Time32MillisecondBuilder, Time64MicrosecondBuilder,
};
use arrow_array::types::{
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{ArrayRef, BinaryViewArray, Int64Array, new_null_array};
use arrow_buffer::{Buffer, NullBufferBuilder};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, TimeUnit};
use thalweg_record::{LONGEST_TEXT, PayloadWriter, TextBuilder, ViewBuilder};

use super::cursor::{Cursor, Fault};
use super::logical::{Decimal, date, duration, time, uuid};
use super::nested::{self, Growth};
use super::schema::{Node, Schema};
use crate::columns::{FieldType, shortened};

/// Builds the columns of data of one schema. One value serves all batches.
pub struct DatumColumns {
    schema: Arc<Schema>,
    columns: Vec<Column>,
    fields: Vec<FieldRef>,
    /// The maximum size of the JSON text of one datum, in bytes.
    most: usize,
    /// The bytes that the columns hold beside the values themselves and views of the messages.
    written: usize,
}

impl DatumColumns {
    /// Creates the columns of a schema.
    pub fn new(schema: Arc<Schema>) -> Self {
        let columns: Vec<Column> =
            schema.columns().into_iter().map(|(name, node)| Column::new(name, node, &schema)).collect();
        let field = |column: &Column| Arc::new(field(&column.name, schema.node(column.node)));
        let fields = columns.iter().map(field).collect();
        Self { columns, fields, schema, most: LONGEST_TEXT, written: 0 }
    }

    /// Limits the JSON text of one datum to this size, in bytes.
    #[must_use]
    pub fn within(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    /// Returns the schema.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Returns the fields of the columns.
    pub fn fields(&self) -> &[FieldRef] {
        &self.fields
    }

    /// Starts a batch of about `rows` data, most of which are slices of the buffers in `base`.
    pub fn begin(&mut self, base: &[Buffer], rows: usize) {
        self.written = 0;
        for column in &mut self.columns {
            column.builder = Builder::new(self.schema.node(column.node), base, rows);
        }
    }

    /// Reads the datum at the start of `bytes`, adds a row, and returns the size of the datum in bytes.
    ///
    /// # Errors
    /// The reason for rejecting the datum. The row has any values then.
    pub fn read(&mut self, bytes: &[u8]) -> Result<usize, String> {
        let mut cursor = Cursor::new(bytes);
        let mut growth = Growth { written: 0, most: self.most };
        let mut columns = self.columns.iter_mut();
        while let Some(column) = columns.next() {
            match column.read(&self.schema, &mut cursor, growth) {
                Ok(written) => growth.written += written,
                Err(fault) => {
                    column.builder.push_null();
                    columns.for_each(|column| column.builder.push_null());
                    let (name, at) = (shortened(&column.name), cursor.at());
                    return Err(format!("is not a datum of the schema: {fault} (in `{name}`, at byte {at})"));
                }
            }
        }
        self.written += growth.written;
        Ok(cursor.at())
    }

    /// Adds a row without values.
    pub fn skip(&mut self) {
        self.columns.iter_mut().for_each(|column| column.builder.push_null());
    }

    /// Returns the bytes that the rows so far take beside the values themselves and views of the messages.
    pub fn written(&self) -> usize {
        self.written
    }

    /// Returns the finished columns.
    ///
    /// # Errors
    /// If Arrow cannot build a column.
    pub fn finish(&mut self) -> Result<Vec<ArrayRef>, ArrowError> {
        let builders = self.columns.iter_mut();
        builders.map(|column| std::mem::replace(&mut column.builder, Builder::Null(0)).finish()).collect()
    }
}

/// A column.
struct Column {
    name: Box<str>,
    /// The index of the type of its values.
    node: usize,
    /// The branch that means NULL, if the type is a union of a type and null.
    null: Option<i64>,
    builder: Builder,
}

impl Column {
    fn new(name: Box<str>, node: usize, schema: &Schema) -> Self {
        let is_null = |node: usize| *schema.node(node) == Node::Null;
        let (node, null) = match schema.node(node) {
            Node::Union(branches) => match **branches {
                [first, second] if is_null(first) => (second, Some(0)),
                [first, second] if is_null(second) => (first, Some(1)),
                _ => (node, None),
            },
            _ => (node, None),
        };
        Self { name, node, null, builder: Builder::Null(0) }
    }

    /// Reads a value. Returns the bytes that it takes beside the value itself. Adds nothing after an error.
    fn read(&mut self, schema: &Schema, cursor: &mut Cursor<'_>, growth: Growth) -> Result<usize, Fault> {
        // Symbols of enums are copied, and a few bytes may stand for many long ones.
        if !growth.allows(0, cursor.at()) {
            return Err(Fault::Large);
        }
        if let Some(null) = self.null {
            match cursor.long()? {
                branch if branch == null => {
                    self.builder.push_null();
                    return Ok(0);
                }
                branch if branch == 1 - null => {}
                branch => return Err(Fault::Branch(branch)),
            }
        }
        let node = schema.node(self.node);
        match &mut self.builder {
            Builder::Json { text, present } => {
                let before = text.buffer().len();
                if let Err(fault) = nested::write(schema, self.node, cursor, growth, text.buffer()) {
                    text.abandon();
                    return Err(fault);
                }
                let written = text.buffer().len() - before;
                // A union of several types may hold null.
                if text.buffer().ends_with(b"null") && written == 4 {
                    text.abandon();
                    push_null_text(text, present);
                    return Ok(0);
                }
                text.end();
                present.append_non_null();
                Ok(written)
            }
            builder => builder.read(node, cursor),
        }
    }
}

/// The values of a column.
enum Builder {
    /// The number of rows.
    Null(usize),
    Bool(BooleanBuilder),
    /// Numbers of 32 and of 64 bits.
    Int(Int64Builder),
    Float(Float32Builder),
    Double(Float64Builder),
    Text(TextBuilder),
    Bytes(ViewBuilder),
    Json {
        text: PayloadWriter,
        present: NullBufferBuilder,
    },
    Decimal(Decimal128Builder, Decimal),
    LargeDecimal(Decimal256Builder, Decimal),
    Date(Date32Builder),
    TimeMillis(Time32MillisecondBuilder),
    TimeMicros(Time64MicrosecondBuilder),
    Timestamp(Int64Builder, TimeUnit, Option<&'static str>),
}

/// Returns the time zone of a timestamp.
fn zone(is_local: bool) -> Option<&'static str> {
    (!is_local).then_some("UTC")
}

/// Returns the field of a column of this type.
fn field(name: &str, node: &Node) -> Field {
    let data_type = match node {
        Node::Null | Node::String | Node::Enum(_) | Node::Uuid | Node::Duration => DataType::Utf8View,
        Node::Boolean => DataType::Boolean,
        Node::Int | Node::Long => DataType::Int64,
        Node::Float => DataType::Float32,
        Node::Double => DataType::Float64,
        Node::Bytes | Node::Fixed(_) => DataType::BinaryView,
        Node::Decimal(decimal) => decimal_type(*decimal),
        Node::Date => DataType::Date32,
        Node::TimeMillis => DataType::Time32(TimeUnit::Millisecond),
        Node::TimeMicros => DataType::Time64(TimeUnit::Microsecond),
        Node::Timestamp { unit, is_local } => DataType::Timestamp(*unit, zone(*is_local).map(Into::into)),
        Node::Array(_) | Node::Map(_) | Node::Union(_) | Node::Record(_) => {
            return FieldType::Json.field(name);
        }
    };
    Field::new(name, data_type, true)
}

fn decimal_type(decimal: Decimal) -> DataType {
    match decimal.is_small() {
        true => DataType::Decimal128(decimal.precision, decimal.scale),
        false => DataType::Decimal256(decimal.precision, decimal.scale),
    }
}

impl Builder {
    fn new(node: &Node, base: &[Buffer], rows: usize) -> Self {
        match node {
            Node::Null => Self::Null(0),
            Node::Boolean => Self::Bool(BooleanBuilder::with_capacity(rows)),
            Node::Int | Node::Long => Self::Int(Int64Builder::with_capacity(rows)),
            Node::Float => Self::Float(Float32Builder::with_capacity(rows)),
            Node::Double => Self::Double(Float64Builder::with_capacity(rows)),
            Node::String => Self::Text(TextBuilder::over(base, rows)),
            Node::Enum(_) | Node::Uuid | Node::Duration => Self::Text(TextBuilder::over(&[], rows)),
            Node::Bytes | Node::Fixed(_) => Self::Bytes(ViewBuilder::over(base, rows)),
            Node::Decimal(decimal) if decimal.is_small() => Self::Decimal(
                Decimal128Builder::with_capacity(rows).with_data_type(decimal_type(*decimal)),
                *decimal,
            ),
            Node::Decimal(decimal) => Self::LargeDecimal(
                Decimal256Builder::with_capacity(rows).with_data_type(decimal_type(*decimal)),
                *decimal,
            ),
            Node::Date => Self::Date(Date32Builder::with_capacity(rows)),
            Node::TimeMillis => Self::TimeMillis(Time32MillisecondBuilder::with_capacity(rows)),
            Node::TimeMicros => Self::TimeMicros(Time64MicrosecondBuilder::with_capacity(rows)),
            Node::Timestamp { unit, is_local } => {
                Self::Timestamp(Int64Builder::with_capacity(rows), *unit, zone(*is_local))
            }
            Node::Array(_) | Node::Map(_) | Node::Union(_) | Node::Record(_) => Self::Json {
                text: PayloadWriter::with_capacity(0, rows),
                present: NullBufferBuilder::new(rows),
            },
        }
    }

    /// Reads a value of a type that is not nested, as [`Column::read`] does.
    fn read(&mut self, node: &Node, cursor: &mut Cursor<'_>) -> Result<usize, Fault> {
        match (self, node) {
            (Self::Bool(builder), _) => builder.append_value(cursor.boolean()?),
            (Self::Int(builder), Node::Int) => builder.append_value(cursor.int()?.into()),
            (Self::Int(builder), _) => builder.append_value(cursor.long()?),
            (Self::Float(builder), _) => builder.append_value(cursor.float()?),
            (Self::Double(builder), _) => builder.append_value(cursor.double()?),
            (Self::Text(builder), Node::String) => builder.push(cursor.text()?),
            (Self::Text(builder), Node::Enum(symbols)) => {
                return Ok(push_copy(builder, cursor.symbol(symbols)?));
            }
            (Self::Text(builder), Node::Uuid) => return Ok(push_copy(builder, &uuid(cursor)?)),
            (Self::Text(builder), _) => return Ok(push_copy(builder, &duration(cursor)?)),
            (Self::Bytes(builder), Node::Fixed(size)) => builder.push(cursor.take(*size)?),
            (Self::Bytes(builder), _) => builder.push(cursor.bytes()?),
            (Self::Decimal(builder, decimal), _) => builder.append_value(decimal.small(cursor)?),
            (Self::LargeDecimal(builder, decimal), _) => builder.append_value(decimal.large(cursor)?),
            (Self::Date(builder), _) => builder.append_value(date(cursor)?.0),
            (Self::TimeMillis(builder), _) => {
                let value = cursor.int()?;
                time(value.into(), 1_000)?;
                builder.append_value(value);
            }
            (Self::TimeMicros(builder), _) => {
                let value = cursor.long()?;
                time(value, 1_000_000)?;
                builder.append_value(value);
            }
            (Self::Timestamp(builder, ..), _) => builder.append_value(cursor.long()?),
            (Self::Null(rows), _) => *rows += 1,
            (Self::Json { text, present }, _) => push_null_text(text, present),
        }
        Ok(0)
    }

    fn push_null(&mut self) {
        match self {
            Self::Null(rows) => *rows += 1,
            Self::Bool(builder) => builder.append_null(),
            Self::Int(builder) | Self::Timestamp(builder, ..) => builder.append_null(),
            Self::Float(builder) => builder.append_null(),
            Self::Double(builder) => builder.append_null(),
            Self::Text(builder) => builder.push_null(),
            Self::Bytes(builder) => builder.push_null(),
            Self::Json { text, present } => push_null_text(text, present),
            Self::Decimal(builder, _) => builder.append_null(),
            Self::LargeDecimal(builder, _) => builder.append_null(),
            Self::Date(builder) => builder.append_null(),
            Self::TimeMillis(builder) => builder.append_null(),
            Self::TimeMicros(builder) => builder.append_null(),
        }
    }

    fn finish(self) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Self::Null(rows) => new_null_array(&DataType::Utf8View, rows),
            Self::Bool(mut builder) => Arc::new(builder.finish()),
            Self::Int(mut builder) => Arc::new(builder.finish()),
            Self::Float(mut builder) => Arc::new(builder.finish()),
            Self::Double(mut builder) => Arc::new(builder.finish()),
            Self::Text(builder) => Arc::new(builder.finish()),
            Self::Bytes(builder) => Arc::new(builder.finish()),
            Self::Json { text, mut present } => {
                let (views, buffers, _) = text.finish().into_parts();
                let text = BinaryViewArray::try_new(views, buffers, present.finish())?;
                Arc::new(text.to_string_view()?)
            }
            Self::Decimal(mut builder, _) => Arc::new(builder.finish()),
            Self::LargeDecimal(mut builder, _) => Arc::new(builder.finish()),
            Self::Date(mut builder) => Arc::new(builder.finish()),
            Self::TimeMillis(mut builder) => Arc::new(builder.finish()),
            Self::TimeMicros(mut builder) => Arc::new(builder.finish()),
            Self::Timestamp(mut builder, unit, zone) => timestamps(&builder.finish(), unit, zone),
        })
    }
}

/// Adds a NULL to a column of JSON.
fn push_null_text(text: &mut PayloadWriter, present: &mut NullBufferBuilder) {
    text.end();
    present.append_null();
}

/// Adds a text that is not part of a message. Returns its size in bytes.
fn push_copy(builder: &mut TextBuilder, text: &str) -> usize {
    builder.push(text);
    text.len()
}

fn timestamps(values: &Int64Array, unit: TimeUnit, zone: Option<&'static str>) -> ArrayRef {
    match unit {
        TimeUnit::Second => {
            Arc::new(values.reinterpret_cast::<TimestampSecondType>().with_timezone_opt(zone))
        }
        TimeUnit::Millisecond => {
            Arc::new(values.reinterpret_cast::<TimestampMillisecondType>().with_timezone_opt(zone))
        }
        TimeUnit::Microsecond => {
            Arc::new(values.reinterpret_cast::<TimestampMicrosecondType>().with_timezone_opt(zone))
        }
        TimeUnit::Nanosecond => {
            Arc::new(values.reinterpret_cast::<TimestampNanosecondType>().with_timezone_opt(zone))
        }
    }
}

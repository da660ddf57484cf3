//! Builds the column of a field.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{
    ArrayBuilder, BooleanBuilder, Float32Builder, Float64Builder, Int64Builder, TimestampMicrosecondBuilder,
    UInt64Builder,
};
use arrow_buffer::Buffer;
use arrow_schema::{DataType, Field};
use thalweg_record::{TextBuilder, ViewBuilder};

use super::defaults::Missing;
use super::kind::Scalar;
use super::schema::Schema;

/// A column that is being filled.
#[derive(Debug)]
pub(super) enum Builder {
    Int(Int64Builder),
    UInt(UInt64Builder),
    Float(Float32Builder),
    Double(Float64Builder),
    Bool(BooleanBuilder),
    /// Text, and JSON as text.
    Text(TextBuilder),
    Bytes(ViewBuilder),
    Time(TimestampMicrosecondBuilder),
}

impl Builder {
    /// Creates the builder of a field for this many values. `base` holds the buffers of the messages.
    pub(super) fn new(field: &Field, base: &[Buffer], rows: usize) -> Self {
        match field.data_type() {
            DataType::Int64 => Self::Int(Int64Builder::with_capacity(rows)),
            DataType::UInt64 => Self::UInt(UInt64Builder::with_capacity(rows)),
            DataType::Float32 => Self::Float(Float32Builder::with_capacity(rows)),
            DataType::Float64 => Self::Double(Float64Builder::with_capacity(rows)),
            DataType::Boolean => Self::Bool(BooleanBuilder::with_capacity(rows)),
            DataType::BinaryView => Self::Bytes(ViewBuilder::over(base, rows)),
            DataType::Timestamp(..) => {
                Self::Time(TimestampMicrosecondBuilder::with_capacity(rows).with_timezone("UTC"))
            }
            _ => Self::Text(TextBuilder::over(base, rows)),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Int(builder) => builder.len(),
            Self::UInt(builder) => builder.len(),
            Self::Float(builder) => builder.len(),
            Self::Double(builder) => builder.len(),
            Self::Bool(builder) => builder.len(),
            Self::Text(builder) => builder.len(),
            Self::Bytes(builder) => builder.len(),
            Self::Time(builder) => builder.len(),
        }
    }

    /// Appends NULLs until there are this many values.
    #[inline]
    pub(super) fn fill(&mut self, rows: usize) {
        for _ in self.len()..rows {
            self.push_null();
        }
    }

    pub(super) fn push_null(&mut self) {
        match self {
            Self::Int(builder) => builder.append_null(),
            Self::UInt(builder) => builder.append_null(),
            Self::Float(builder) => builder.append_null(),
            Self::Double(builder) => builder.append_null(),
            Self::Bool(builder) => builder.append_null(),
            Self::Text(builder) => builder.push_null(),
            Self::Bytes(builder) => builder.push_null(),
            Self::Time(builder) => builder.append_null(),
        }
    }

    /// Appends a value. One of another type than the column is NULL, which does not happen.
    #[inline]
    pub(super) fn push(&mut self, schema: &Schema, value: Scalar<'_>) {
        match (self, value) {
            (Self::Int(builder), Scalar::Int(value)) => builder.append_value(value),
            (Self::UInt(builder), Scalar::UInt(value)) => builder.append_value(value),
            (Self::Float(builder), Scalar::Float(value)) => builder.append_value(value),
            (Self::Double(builder), Scalar::Double(value) | Scalar::JsonNumber(value)) => {
                builder.append_value(value);
            }
            (Self::Bool(builder), Scalar::Bool(value)) => builder.append_value(value),
            (Self::Text(builder), Scalar::Text(text)) => builder.push(text),
            (Self::Text(builder), Scalar::Enum(index, value)) => match schema.name_of(index, value) {
                Some(name) => builder.push(name),
                None => builder.push(itoa::Buffer::new().format(value)),
            },
            (Self::Bytes(builder), Scalar::Bytes(bytes)) => builder.push(bytes),
            (builder, _) => builder.push_null(),
        }
    }

    /// Appends a value that a message lacks.
    #[inline]
    pub(super) fn push_missing(&mut self, value: &Missing) {
        match (self, value) {
            (Self::Int(builder), Missing::Int(value)) => builder.append_value(*value),
            (Self::UInt(builder), Missing::UInt(value)) => builder.append_value(*value),
            (Self::Float(builder), Missing::Float(value)) => builder.append_value(*value),
            (Self::Double(builder), Missing::Double(value)) => builder.append_value(*value),
            (Self::Bool(builder), Missing::Bool(value)) => builder.append_value(*value),
            (Self::Text(builder), Missing::Text(text)) => builder.push(text),
            (Self::Text(builder), Missing::Json(json)) => builder.push(json),
            (Self::Bytes(builder), Missing::Bytes(bytes)) => builder.push(bytes),
            (builder, _) => builder.push_null(),
        }
    }

    /// Appends the default value of the type, which an empty wrapper has.
    pub(super) fn push_zero(&mut self) {
        match self {
            Self::Int(builder) => builder.append_value(0),
            Self::UInt(builder) => builder.append_value(0),
            Self::Float(builder) => builder.append_value(0.0),
            Self::Double(builder) => builder.append_value(0.0),
            Self::Bool(builder) => builder.append_value(false),
            Self::Text(builder) => builder.push(""),
            Self::Bytes(builder) => builder.push(b""),
            Self::Time(builder) => builder.append_value(0),
        }
    }

    /// Appends a time in microseconds since 1970.
    pub(super) fn push_time(&mut self, time: i64) {
        match self {
            Self::Time(builder) => builder.append_value(time),
            builder => builder.push_null(),
        }
    }

    /// Appends JSON.
    pub(super) fn push_json(&mut self, json: &str) {
        match self {
            Self::Text(builder) => builder.push(json),
            builder => builder.push_null(),
        }
    }

    pub(super) fn finish(self) -> ArrayRef {
        match self {
            Self::Int(mut builder) => Arc::new(builder.finish()),
            Self::UInt(mut builder) => Arc::new(builder.finish()),
            Self::Float(mut builder) => Arc::new(builder.finish()),
            Self::Double(mut builder) => Arc::new(builder.finish()),
            Self::Bool(mut builder) => Arc::new(builder.finish()),
            Self::Text(builder) => Arc::new(builder.finish()),
            Self::Bytes(builder) => Arc::new(builder.finish()),
            Self::Time(mut builder) => Arc::new(builder.finish()),
        }
    }
}

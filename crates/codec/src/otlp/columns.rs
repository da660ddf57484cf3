//! Builds the columns of records.
//!
//! Many records have one resource, scope and metric. Their values are written once in a batch, and the
//! columns hold them again without a copy.

use std::sync::Arc;

use arrow_array::types::{Float64Type, Int64Type, TimestampNanosecondType, UInt64Type};
use arrow_array::{ArrayRef, ArrowPrimitiveType, BooleanArray, PrimitiveArray};
use arrow_buffer::{Buffer, NullBufferBuilder, ScalarBuffer};
use arrow_schema::{DataType, Field};
use thalweg_record::TextBuilder;

/// A column that is being filled.
#[derive(Debug)]
pub(super) enum Column {
    Text(TextBuilder),
    Int(Numbers<Int64Type>),
    UInt(Numbers<UInt64Type>),
    Double(Numbers<Float64Type>),
    /// Nanoseconds since 1970.
    Time(Numbers<TimestampNanosecondType>),
    Bool(Vec<Option<bool>>),
}

/// Numbers that are being collected.
#[derive(Debug)]
pub(super) struct Numbers<T: ArrowPrimitiveType> {
    values: Vec<T::Native>,
    nulls: NullBufferBuilder,
}

impl<T: ArrowPrimitiveType> Numbers<T> {
    fn new(rows: usize) -> Self {
        Self { values: Vec::with_capacity(rows), nulls: NullBufferBuilder::new(rows) }
    }

    fn push(&mut self, value: T::Native) {
        self.values.push(value);
        self.nulls.append_non_null();
    }

    fn push_null(&mut self) {
        self.values.push(T::Native::default());
        self.nulls.append_null();
    }

    fn push_again(&mut self) {
        match self.values.last().copied() {
            Some(last) if self.nulls.is_valid(self.values.len() - 1) => self.push(last),
            _ => self.push_null(),
        }
    }

    fn finish(mut self) -> PrimitiveArray<T> {
        PrimitiveArray::new(ScalarBuffer::from(self.values), self.nulls.finish())
    }
}

impl Column {
    /// Creates the column of a field for about this many values. `base` holds the request.
    pub(super) fn new(field: &Field, base: &Buffer, rows: usize) -> Self {
        match field.data_type() {
            DataType::Int64 => Self::Int(Numbers::new(rows)),
            DataType::UInt64 => Self::UInt(Numbers::new(rows)),
            DataType::Float64 => Self::Double(Numbers::new(rows)),
            DataType::Timestamp(..) => Self::Time(Numbers::new(rows)),
            DataType::Boolean => Self::Bool(Vec::with_capacity(rows)),
            _ => Self::Text(TextBuilder::over(std::slice::from_ref(base), rows)),
        }
    }

    /// Returns the number of values.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Int(numbers) => numbers.values.len(),
            Self::UInt(numbers) => numbers.values.len(),
            Self::Double(numbers) => numbers.values.len(),
            Self::Time(numbers) => numbers.values.len(),
            Self::Bool(values) => values.len(),
        }
    }

    pub(super) fn push_null(&mut self) {
        match self {
            Self::Text(text) => text.push_null(),
            Self::Int(numbers) => numbers.push_null(),
            Self::UInt(numbers) => numbers.push_null(),
            Self::Double(numbers) => numbers.push_null(),
            Self::Time(numbers) => numbers.push_null(),
            Self::Bool(values) => values.push(None),
        }
    }

    /// Appends the last value again.
    pub(super) fn push_again(&mut self) {
        match self {
            Self::Text(text) => text.push_again(),
            Self::Int(numbers) => numbers.push_again(),
            Self::UInt(numbers) => numbers.push_again(),
            Self::Double(numbers) => numbers.push_again(),
            Self::Time(numbers) => numbers.push_again(),
            Self::Bool(values) => values.push(values.last().copied().flatten()),
        }
    }

    /// Appends a text. In a column of another type it is NULL, which does not happen.
    pub(super) fn push_text(&mut self, value: &str) {
        match self {
            Self::Text(text) => text.push(value),
            other => other.push_null(),
        }
    }

    /// Appends an integer, or NULL if it does not fit the column.
    pub(super) fn push_integer(&mut self, value: i128) {
        match (self, i64::try_from(value), u64::try_from(value)) {
            (Self::Int(numbers), Ok(value), _) => numbers.push(value),
            (Self::Time(numbers), Ok(value), _) => numbers.push(value),
            (Self::UInt(numbers), _, Ok(value)) => numbers.push(value),
            (Self::Bool(values), ..) => values.push(Some(value != 0)),
            (other, ..) => other.push_null(),
        }
    }

    /// Appends a number with a point.
    pub(super) fn push_double(&mut self, value: f64) {
        match self {
            Self::Double(numbers) => numbers.push(value),
            other => other.push_null(),
        }
    }

    pub(super) fn finish(self) -> ArrayRef {
        match self {
            Self::Text(text) => Arc::new(text.finish()),
            Self::Int(numbers) => Arc::new(numbers.finish()),
            Self::UInt(numbers) => Arc::new(numbers.finish()),
            Self::Double(numbers) => Arc::new(numbers.finish()),
            Self::Time(numbers) => Arc::new(numbers.finish().with_timezone("UTC")),
            Self::Bool(values) => Arc::new(BooleanArray::from(values)),
        }
    }
}

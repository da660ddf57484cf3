//! The second pass: converts one column at a time, with the kinds of all its values known.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, StringViewArray, TimestampMicrosecondArray,
    new_null_array,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use thalweg_record::TextBuilder;

use super::Nulls;
use super::convert::*;
use super::scan::Kind;
use super::spans::{Kinds, Span};
use super::walk::Walk;
use crate::columns::{FieldType, is_exact, is_whole, truth};
use crate::json::write_text;
use crate::timestamps::TimeParser;
use crate::values::write_float;

/// A field, and the spans of its values in the records of a batch.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) forced: Option<FieldType>,
    /// The type of the column in the previous batch.
    pub(super) last: FieldType,
    /// True if the column held whole and other numbers: see [`number_field`](crate::columns::number_field).
    pub(super) is_number: bool,
    /// The number of batches since a record had this member.
    pub(super) unused: u32,
    pub(super) spans: Vec<Span>,
    /// The parser of its times, if their unit is known.
    pub(super) times: Option<Box<TimeParser>>,
}

impl Walk {
    /// Returns the columns of a batch. `texts` are its valid payloads.
    pub(super) fn columns(&mut self, texts: &[&str], base: &[Buffer]) -> Vec<ArrayRef> {
        let (decoded, times, explicit) = (&mut self.unescaped, &mut self.times, self.nulls);
        // Columns without a value share one array for each type.
        let mut empty: Vec<(FieldType, ArrayRef)> = Vec::new();
        let columns = self.columns.iter_mut().map(|column| {
            column.unused = if column.spans.is_empty() { column.unused + 1 } else { 0 };
            if !column.spans.is_empty() {
                let mut own = column.times.take();
                let times = own.as_deref_mut().unwrap_or(&mut *times);
                let array = column.build(texts, base, decoded, times, explicit);
                column.times = own;
                return array;
            }
            if let Some((_, array)) = empty.iter().find(|(kind, _)| *kind == column.last) {
                return array.clone();
            }
            let array = new_null_array(&column.last.data_type(), texts.len());
            empty.push((column.last, array.clone()));
            array
        });
        columns.collect()
    }
}

/// If a type is forced, values of other kinds may have been accepted. They are parsed from the text between
/// their quotes.
impl Column {
    #[inline]
    pub(super) fn set(&mut self, row: usize, span: Span) {
        if self.spans.len() == row {
            self.spans.push(span);
        } else if let Some(earlier) = self.spans.get_mut(row) {
            *earlier = span;
        } else {
            self.spans.resize(row, Span::MISSING);
            self.spans.push(span);
        }
    }

    fn build(
        &mut self,
        texts: &[&str],
        base: &[Buffer],
        decoded: &mut String,
        times: &mut TimeParser,
        explicit: Nulls,
    ) -> ArrayRef {
        self.spans.resize(texts.len(), Span::MISSING);
        let kinds = Kinds::of(&self.spans);
        let keeps_null = explicit == Nulls::Keep && self.forced.is_none() && kinds.has(Kinds::EXPLICIT);
        (self.last, self.is_number) = match self.forced {
            Some(forced) => (forced, false),
            None if keeps_null => (FieldType::Json, false),
            None => self.decide(kinds, texts),
        };
        let present = |row: usize| self.spans.get(row).is_some_and(|span| !span.is_null());
        let present = || NullBuffer::new(BooleanBuffer::collect_bool(texts.len(), present));
        let nulls = kinds.has(Kinds::NULLS).then(present);
        match self.last {
            FieldType::Int => Arc::new(Int64Array::new(self.ints(kinds, texts, decoded), nulls)),
            FieldType::Float => Arc::new(Float64Array::new(self.floats(texts, decoded), nulls)),
            FieldType::Bool => Arc::new(BooleanArray::new(self.bools(texts, decoded), nulls)),
            FieldType::Timestamp => {
                let times = TimestampMicrosecondArray::new(self.times(texts, decoded, times), nulls);
                Arc::new(times.with_timezone("UTC"))
            }
            FieldType::Text => Arc::new(self.texts(texts, base, decoded)),
            FieldType::Json => Arc::new(self.json(texts, base, decoded, keeps_null)),
        }
    }

    /// Returns the values with their tokens.
    fn values<'a>(&'a self, texts: &'a [&'a str]) -> impl Iterator<Item = (Span, &'a str)> {
        self.spans.iter().zip(texts).map(|(span, text)| (*span, span.token(text)))
    }

    fn ints(&self, kinds: Kinds, texts: &[&str], decoded: &mut String) -> ScalarBuffer<i64> {
        let values = self.values(texts);
        let numbers: Vec<i64> = if kinds.within(Kinds(Kinds::NULLS.0 | 1 << Kind::Int as u32)) {
            values.map(|(span, token)| if span.is_null() { 0 } else { short_int(token.as_bytes()) }).collect()
        } else {
            values.map(|(span, token)| to_int(bare(span.kind(), token, decoded)).unwrap_or(0)).collect()
        };
        numbers.into()
    }

    fn floats(&self, texts: &[&str], decoded: &mut String) -> ScalarBuffer<f64> {
        let number = |(span, token): (Span, &str)| match span.kind() {
            Kind::Missing | Kind::Null => 0.0,
            Kind::Int | Kind::LongInt | Kind::Float => float(token),
            kind => to_float(bare(kind, token, decoded)).unwrap_or(0.0),
        };
        self.values(texts).map(number).collect::<Vec<f64>>().into()
    }

    fn bools(&self, texts: &[&str], decoded: &mut String) -> BooleanBuffer {
        BooleanBuffer::collect_bool(texts.len(), |row| {
            let (Some(span), Some(text)) = (self.spans.get(row), texts.get(row)) else { return false };
            truth(bare(span.kind(), span.token(text), decoded)) == Some(true)
        })
    }

    fn times(&self, texts: &[&str], decoded: &mut String, times: &mut TimeParser) -> ScalarBuffer<i64> {
        let time = |(span, token): (Span, &str)| match span.is_null() {
            true => 0,
            false => to_time(bare(span.kind(), token, decoded), times).unwrap_or(0),
        };
        self.values(texts).map(time).collect::<Vec<i64>>().into()
    }

    fn texts(&self, texts: &[&str], base: &[Buffer], decoded: &mut String) -> StringViewArray {
        let mut builder = TextBuilder::over(base, texts.len());
        for (span, token) in self.values(texts) {
            match span.kind() {
                Kind::Missing | Kind::Null => builder.push_null(),
                Kind::Text => builder.push(text_of(token, false, decoded)),
                Kind::EscapedText => builder.push(text_of(token, true, decoded)),
                _ => builder.push(token),
            }
        }
        builder.finish()
    }

    /// Returns the values as JSON. If the values decided the type, each is written as it would be in a column
    /// of its own type.
    fn json(
        &self,
        texts: &[&str],
        base: &[Buffer],
        decoded: &mut String,
        keeps_null: bool,
    ) -> StringViewArray {
        let mut builder = TextBuilder::over(base, texts.len());
        let mut written = Vec::new();
        for (span, token) in self.values(texts) {
            written.clear();
            match span.kind() {
                Kind::Null if keeps_null => builder.push(token),
                Kind::Missing | Kind::Null => builder.push_null(),
                Kind::Float if self.forced.is_none() => {
                    write_float(float(token), &mut written);
                    builder.push(std::str::from_utf8(&written).unwrap_or(token));
                }
                Kind::EscapedText if self.forced.is_none() => {
                    write_text(text_of(token, true, decoded), &mut written);
                    builder.push(std::str::from_utf8(&written).unwrap_or(token));
                }
                _ => builder.push(token),
            }
        }
        builder.finish()
    }

    /// Returns the type that holds all values of the batch as what they are, and true if it is that of whole
    /// and other numbers.
    fn decide(&self, kinds: Kinds, texts: &[&str]) -> (FieldType, bool) {
        let present = kinds.without(Kinds::NULLS);
        let all = |wanted: Kinds, fits: fn(&str) -> bool| {
            let mut values = self.values(texts).filter(|(span, _)| Kinds::of(&[*span]).within(wanted));
            values.all(|(_, token)| fits(token))
        };
        let are_exact = || all(Kinds::INTS, |token| token.parse().is_ok_and(is_exact));
        let are_broken = || all(Kinds::FLOATS, |token| !is_whole(float(token)));
        if present == Kinds(0) {
            (self.last, self.is_number)
        } else if present.within(Kinds::INTS) {
            // A column of floating-point numbers keeps its type if all values of this batch happen to be
            // whole. Its field tells that whole values are integers.
            match self.last {
                FieldType::Float if are_exact() => (FieldType::Float, true),
                _ if present == Kinds(1 << Kind::Int as u32) => (FieldType::Int, false),
                _ if all(Kinds::INTS, |token| token.parse::<i64>().is_ok()) => (FieldType::Int, false),
                _ => (FieldType::Json, false),
            }
        } else if present.within(Kinds::NUMBERS) {
            if !present.has(Kinds::INTS) {
                (FieldType::Float, self.is_number && are_broken())
            } else if are_exact() && are_broken() {
                (FieldType::Float, true)
            } else {
                // `1` and `1.0` are different values, and only their text tells.
                (FieldType::Json, false)
            }
        } else if present.within(Kinds::BOOLS) {
            (FieldType::Bool, false)
        } else if present.within(Kinds::TEXTS) {
            (FieldType::Text, false)
        } else {
            (FieldType::Json, false)
        }
    }
}

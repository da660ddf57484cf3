//! Parsers whose messages have the shape of a JSON object: nested values, values of several types, and names
//! that are not known in advance.
//!
//! Each message is written as a JSON object, and [`JsonColumns`] makes columns of it, as for `parse_json`.
//! The rejected alternative builds columns of the values directly. It would repeat how a column of mixed
//! values gets its type, and how a batch with many fields leaves in pieces.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use arrow_array::{Array, BinaryViewArray, cast::AsArray};
use arrow_select::filter::filter;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::columns::{FieldType, missing, reject_all};
use thalweg_codec::json_columns::{JsonColumns, LONGEST, Nulls, Wanted};
use thalweg_codec::keys::bytes_of;
use thalweg_engine::{Context, Error, Outputs, Transform};
use thalweg_record::{Batch, PayloadWriter, all_but};

/// The field to parse, and the fields that result.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct ObjectOptions {
    /// The types that fields must have: `{port: int}`. A message with a value that does not fit its type
    /// leaves by the `errors` output.
    pub(crate) types: BTreeMap<String, FieldType>,
    /// The maximum number of different fields in a batch. A message with further fields leaves by the
    /// `errors` output. The default is 1024.
    #[schemars(range(min = 1, max = 65_536))]
    pub(crate) max_fields: usize,
    /// The field to parse. The default is the payload.
    pub(crate) field: String,
}

impl Default for ObjectOptions {
    fn default() -> Self {
        Self { types: BTreeMap::new(), max_fields: 1024, field: crate::payload() }
    }
}

impl ObjectOptions {
    /// Returns the fields to make: all members of an object, of these types unless the options give others.
    pub(crate) fn wanted<'a>(&self, usual: impl IntoIterator<Item = (&'a str, FieldType)>) -> Wanted {
        let usual = usual.into_iter().map(|(name, kind)| (name.to_owned(), kind));
        let given = self.types.iter().map(|(name, kind)| (name.clone(), *kind));
        Wanted {
            fields: None,
            types: usual.chain(given).collect(),
            flatten: false,
            prefix: String::new(),
            nulls: Nulls::Omit,
            max_fields: self.max_fields,
        }
    }

    /// Creates the parser of the messages of a syntax.
    pub(crate) fn parser<S: ObjectSyntax + 'static>(
        &self,
        syntax: S,
        wanted: Wanted,
        context: &Context,
    ) -> Box<dyn Transform> {
        Box::new(ObjectParser {
            syntax,
            columns: JsonColumns::new(wanted).within(context.memory.budget().limit()).with_units(S::UNITS),
            field: self.field.clone(),
            row_bytes: 0,
            waiting: VecDeque::new(),
        })
    }
}

/// Implements `TransformConfig` for a configuration whose `options` are [`ObjectOptions`]. Its method
/// `syntax` returns the [`ObjectSyntax`], and the fields to make.
macro_rules! object_transform {
    ($config:ty) => {
        impl thalweg_engine::TransformConfig for $config {
            fn fields(&self) -> Vec<String> {
                vec![self.options.field.clone()]
            }

            fn fields_after(&self, before: thalweg_engine::KnownFields) -> thalweg_engine::KnownFields {
                before.with_others()
            }

            fn build(
                &self,
                context: &thalweg_engine::Context,
            ) -> Result<Box<dyn thalweg_engine::Transform>, thalweg_engine::Error> {
                let (syntax, wanted) = self.syntax();
                Ok(self.options.parser(syntax, wanted, context))
            }
        }
    };
}
pub(crate) use object_transform;

/// Reads one message.
pub(crate) trait ObjectSyntax: Send {
    /// The times that are numbers of a known unit: the field, and the number of units per second. The size of
    /// any other number tells its unit.
    const UNITS: &'static [(&'static str, i64)] = &[];

    /// Writes a message as a JSON object. Writes the same for the same message.
    ///
    /// # Errors
    /// The reason for rejecting the message. Anything written before is dropped.
    fn write(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), String>;
}

struct ObjectParser<S> {
    syntax: S,
    columns: JsonColumns,
    field: String,
    /// The size of an object in the previous batch, in bytes.
    row_bytes: usize,
    /// Messages that have no columns yet, with their objects. With many fields, columns take far more memory
    /// than the text, so they leave in pieces.
    waiting: VecDeque<(Batch, BinaryViewArray)>,
}

/// Returns the objects of these messages, with an empty one for each that fails. Also returns the rows that
/// fail, with the reasons.
fn objects<S: ObjectSyntax>(
    syntax: &mut S,
    input: &BinaryViewArray,
    field: &str,
    row_bytes: usize,
) -> (BinaryViewArray, Vec<(u32, String)>) {
    let mut failed = Vec::new();
    let mut written = PayloadWriter::with_capacity(row_bytes * input.len(), input.len());
    for row in 0..input.len() {
        let result = match input.is_null(row) {
            true => Err(missing(field)),
            false => write(syntax, input.value(row), written.buffer(), LONGEST),
        };
        if let Err(reason) = result {
            written.abandon();
            failed.push((row as u32, reason));
        }
        written.end();
    }
    (written.finish(), failed)
}

/// Writes a message as an object.
///
/// # Errors
/// The reason for rejecting the message, also if one of both has `most` bytes. In JSON, a byte may take six.
fn write<S: ObjectSyntax>(
    syntax: &mut S,
    message: &[u8],
    out: &mut Vec<u8>,
    most: usize,
) -> Result<(), String> {
    let start = out.len();
    if message.len() < most {
        syntax.write(message, out)?;
    }
    match message.len().max(out.len() - start) < most {
        true => Ok(()),
        false => Err(format!("is longer than {most} bytes")),
    }
}

impl<S: ObjectSyntax> Transform for ObjectParser<S> {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let Some(input) = bytes_of(&batch, &self.field) else {
            return Ok(reject_all(batch, &missing(&self.field), out)?);
        };
        let (mut objects, failed) = objects(&mut self.syntax, &input, &self.field, self.row_bytes);
        let bytes: usize = objects.data_buffers().iter().map(|buffer| buffer.len()).sum();
        self.row_bytes = bytes / objects.len().max(1) + 1;
        if !failed.is_empty() {
            let keep = all_but(objects.len(), failed.iter().map(|(row, _)| *row));
            objects = filter(&objects, &keep)?.as_binary_view().clone();
        }
        if let Some(rest) = out.reject(batch, failed)? {
            self.waiting.push_back((rest, objects));
        }
        self.resume(out)
    }

    fn resume(&mut self, out: &mut Outputs) -> Result<(), Error> {
        if let Some((batch, objects)) = self.waiting.pop_front() {
            let first = Cell::new(Some(objects.clone()));
            let (syntax, field) = (RefCell::new(&mut self.syntax), &self.field);
            // The messages that are left of a batch are read a second time: it is unknown which these are.
            let read = |batch: &Batch| {
                let again =
                    || Some(self::objects(*syntax.borrow_mut(), &bytes_of(batch, field)?, field, 0).0);
                first.take().or_else(again)
            };
            let parsed = self.columns.parse(batch, out, read)?;
            out.send(parsed.batch);
            if let Some(rest) = parsed.rest {
                let objects = objects.slice(objects.len() - rest.rows(), rest.rows());
                self.waiting.push_front((rest, objects));
            }
        }
        if !self.waiting.is_empty() {
            out.hold(Duration::ZERO);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sixfold;

    impl ObjectSyntax for Sixfold {
        fn write(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
            out.extend(message.repeat(6));
            Ok(())
        }
    }

    /// An object of 4 GiB was a panic.
    #[test]
    fn a_message_and_an_object_that_are_too_long_are_rejected() {
        let mut out = b"before".to_vec();
        assert_eq!(write(&mut Sixfold, b"abc", &mut out, 19), Ok(()));
        assert_eq!(out.len(), 6 + 18);
        let too_long = Err("is longer than 18 bytes".to_owned());
        assert_eq!(write(&mut Sixfold, b"abc", &mut out, 18), too_long);
        let held = out.len();
        assert_eq!(write(&mut Sixfold, &[b'a'; 18], &mut out, 18), too_long);
        assert_eq!(out.len(), held);
    }
}

//! The input and the target of a transform: a field or the payload, as bytes.
//!
//! Many transforms change one column. Their common part is here: the options that name the columns, reading a
//! column as bytes without a copy, and replacing another by the result. A message without the field stays
//! unchanged: it keeps its value in the target column. In the common case all messages have the field, and
//! the result is moved as a whole.
//!
//! See docs/decisions/028-one-column-transforms-share-a-target.md.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BinaryViewArray, BooleanArray, StringViewArray, cast::AsArray};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::{ArrowError, DataType, Field};
use arrow_select::zip::zip;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_record::{Batch, Outputs, PAYLOAD, PayloadWriter, TextBuilder, ViewBuilder};

use crate::columns::{Before, FieldType, Layout, is_json_field};
use crate::keys::{as_bytes, bytes_of, present};

/// The field that a transform reads.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Input {
    /// The field to read. The default is the payload. A message without the field stays unchanged.
    pub field: String,
    /// True if messages whose field is empty stay unchanged as well. The default is `false`.
    pub skip_empty: bool,
}

impl Default for Input {
    fn default() -> Self {
        Self { field: PAYLOAD.to_owned(), skip_empty: false }
    }
}

impl Input {
    /// Returns the column as bytes, with NULL for messages that stay unchanged. `None` if all messages stay
    /// unchanged.
    pub fn read(&self, batch: &Batch) -> Option<BinaryViewArray> {
        let column = bytes_of(batch, &self.field)?;
        if !self.skip_empty || column.views().iter().all(|&view| view as u32 != 0) {
            return Some(column);
        }
        let (views, buffers, nulls) = column.into_parts();
        let filled = BooleanBuffer::collect_bool(views.len(), |row| views[row] as u32 != 0);
        let nulls = NullBuffer::union(nulls.as_ref(), Some(&NullBuffer::new(filled)));
        BinaryViewArray::try_new(views, buffers, nulls).ok()
    }
}

/// The field that a transform reads, and the target of its result.
///
/// It repeats the options of [`Input`] because serde cannot reject unknown options in a flattened struct
/// within a flattened struct.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Target {
    /// The field to read. The default is the payload. A message without the field stays unchanged.
    field: String,
    /// The target of the result: a field, or `payload`. By default the result replaces the field that was
    /// read.
    into: Option<String>,
    /// True if messages whose field is empty stay unchanged as well. The default is `false`.
    skip_empty: bool,
}

impl Default for Target {
    fn default() -> Self {
        Self { field: PAYLOAD.to_owned(), into: None, skip_empty: false }
    }
}

impl Target {
    /// Returns the field to read.
    pub fn input(&self) -> Input {
        Input { field: self.field.clone(), skip_empty: self.skip_empty }
    }

    /// Returns the name of the target of the result.
    pub fn output(&self) -> &str {
        self.into.as_deref().unwrap_or(&self.field)
    }

    /// Returns the field of this name as both input and target.
    pub fn field(name: &str) -> Self {
        Self { field: name.to_owned(), ..Self::default() }
    }

    /// Creates an editor for results of this type, which is text or JSON.
    pub fn editor(&self, kind: FieldType) -> Editor {
        Editor { input: self.input(), slot: Slot::new(self.output(), kind), row_bytes: 0 }
    }
}

/// The target of results: a field of a certain type, or the payload.
#[derive(Debug)]
pub struct Slot {
    into: String,
    layout: Layout,
}

impl Slot {
    /// Creates a slot with this name.
    pub fn new(into: &str, kind: FieldType) -> Self {
        Self { into: into.to_owned(), layout: Layout::new(vec![Arc::new(kind.field(into))]) }
    }

    /// Replaces the target column by the result, in which NULL means that the message stays unchanged. Sends
    /// the batch. Rejects the messages in `failed`, which must be in ascending order. Also rejects messages
    /// whose result is not UTF-8, if the target is a field.
    ///
    /// # Errors
    /// If Arrow cannot build the new batch.
    pub fn put(
        &mut self,
        batch: Batch,
        result: BinaryViewArray,
        failed: Vec<(u32, String)>,
        out: &mut Outputs,
    ) -> Result<(), ArrowError> {
        let rest = self.give(batch, result, failed, out)?;
        out.send(rest);
        Ok(())
    }

    /// Like [`put`](Self::put), but returns the batch instead of sending it.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub fn give(
        &mut self,
        batch: Batch,
        result: BinaryViewArray,
        failed: Vec<(u32, String)>,
        out: &mut Outputs,
    ) -> Result<Option<Batch>, ArrowError> {
        let before = Before::of(&batch);
        if self.into == PAYLOAD {
            let kept = filled(&result, batch.payload())?;
            let payload = kept.map_or(result, |kept| kept.as_binary_view().clone());
            let batch = batch.with_payload(present(payload))?;
            return before.reject(batch, failed, out);
        }
        let (text, failed) = match result.clone().to_string_view() {
            Ok(text) => (text, failed),
            Err(_) => self.only_text(&result, failed),
        };
        let kept = match batch.fields().column_by_name(&self.into).filter(|_| text.null_count() > 0) {
            Some(column) => match as_bytes(column).map(BinaryViewArray::to_string_view) {
                Some(Ok(column)) => filled(&text, &column)?,
                _ => None,
            },
            None => None,
        };
        let column = kept.unwrap_or_else(|| Arc::new(text));
        let batch = self.layout.extend(batch, vec![column])?;
        before.reject(batch, failed, out)
    }

    /// Returns the values that are UTF-8. Adds the other rows to the failed ones.
    fn only_text(
        &self,
        result: &BinaryViewArray,
        mut failed: Vec<(u32, String)>,
    ) -> (StringViewArray, Vec<(u32, String)>) {
        let mut builder = TextBuilder::over(result.data_buffers(), result.len());
        for (row, value) in result.iter().enumerate() {
            match value.map(std::str::from_utf8) {
                Some(Ok(text)) => builder.push(text),
                Some(Err(error)) => {
                    let at = error.valid_up_to();
                    failed
                        .push((row as u32, format!("the field `{}` is not UTF-8, at byte {at}", self.into)));
                    builder.push_null();
                }
                None => builder.push_null(),
            }
        }
        failed.sort_by_key(|(row, _)| *row);
        (builder.finish(), failed)
    }
}

/// Returns the result with its NULLs replaced by the former values. `None` if the result has no NULLs.
fn filled(result: &dyn Array, before: &dyn Array) -> Result<Option<ArrayRef>, ArrowError> {
    let Some(present) = result.nulls().filter(|nulls| nulls.null_count() > 0) else { return Ok(None) };
    let present = BooleanArray::new(present.inner().clone(), None);
    Ok(Some(zip(&present, &result, &before)?))
}

/// The result of editing a value.
pub enum Edit<'a> {
    /// A part of the value, which is not copied.
    Piece(&'a [u8]),
    /// The contents of the buffer.
    Written,
    /// The message stays unchanged.
    Keep,
}

/// Changes the values of one column one by one.
#[derive(Debug)]
pub struct Editor {
    input: Input,
    slot: Slot,
    /// The bytes per message in the previous batch, as an estimate.
    row_bytes: usize,
}

impl Editor {
    /// Sets the target of each message that has the field to the bytes that `write` appends. Rejects the
    /// message if `write` returns a reason. Sends the batch.
    ///
    /// # Errors
    /// If Arrow cannot build the new batch.
    pub fn write(
        &mut self,
        batch: Batch,
        out: &mut Outputs,
        mut write: impl FnMut(&[u8], &mut Vec<u8>) -> Result<(), String>,
    ) -> Result<(), ArrowError> {
        let Some(input) = self.input.read(&batch) else {
            out.send(batch);
            return Ok(());
        };
        let rows = input.len();
        let mut failed = Vec::new();
        let mut written = PayloadWriter::with_capacity(self.row_bytes.max(16).saturating_mul(rows), rows);
        for row in 0..rows {
            if input.is_valid(row)
                && let Err(reason) = write(input.value(row), written.buffer())
            {
                written.abandon();
                failed.push((row as u32, reason));
            }
            written.end();
        }
        let mut result = written.finish();
        let bytes: usize = result.data_buffers().iter().map(|buffer| buffer.len()).sum();
        self.row_bytes = bytes / rows.max(1) + 1;
        if let Some(nulls) = input.nulls().filter(|nulls| nulls.null_count() > 0) {
            let (views, buffers, _) = result.into_parts();
            result = BinaryViewArray::try_new(views, buffers, Some(nulls.clone()))?;
        }
        self.slot.put(batch, result, failed, out)
    }

    /// Sets the target of each message that has the field to the result of `edit`. The buffer is empty at
    /// each call. Rejects the message if `edit` returns a reason. Sends the batch.
    ///
    /// # Errors
    /// If Arrow cannot build the new batch.
    pub fn edit(
        &mut self,
        batch: Batch,
        out: &mut Outputs,
        edit: impl for<'a> FnMut(&'a [u8], &mut Vec<u8>) -> Result<Edit<'a>, String>,
    ) -> Result<(), ArrowError> {
        let rest = self.edited(batch, out, edit)?;
        out.send(rest);
        Ok(())
    }

    /// Like [`edit`](Self::edit), but returns the batch instead of sending it.
    ///
    /// # Errors
    /// As for [`edit`](Self::edit).
    pub fn edited(
        &mut self,
        batch: Batch,
        out: &mut Outputs,
        mut edit: impl for<'a> FnMut(&'a [u8], &mut Vec<u8>) -> Result<Edit<'a>, String>,
    ) -> Result<Option<Batch>, ArrowError> {
        let Some(input) = self.input.read(&batch) else { return Ok(Some(batch)) };
        let mut failed = Vec::new();
        let mut buffer = Vec::new();
        let mut result = ViewBuilder::over(input.data_buffers(), input.len());
        for row in 0..input.len() {
            if input.is_null(row) {
                result.push_null();
                continue;
            }
            match edit(input.value(row), &mut buffer) {
                Ok(Edit::Piece(piece)) => result.push(piece),
                Ok(Edit::Written) => result.push(&buffer),
                Ok(Edit::Keep) => result.push_null(),
                Err(reason) => {
                    result.push_null();
                    failed.push((row as u32, reason));
                }
            }
            buffer.clear();
        }
        self.slot.give(batch, result.finish(), failed, out)
    }
}

/// A column whose values are read as text.
pub(crate) enum Texts {
    /// A column of text.
    Text(StringViewArray),
    /// A column of bytes, which must be checked.
    Bytes(BinaryViewArray),
}

impl Texts {
    /// Returns the column to read. `None` if the batch does not have it.
    pub(crate) fn of(batch: &Batch, input: &Input) -> Option<Self> {
        let fields = batch.fields();
        let found = batch.field(&input.field);
        // A JSON text is read without its quotes.
        let is_text = |field: &Field| *field.data_type() == DataType::Utf8View && !is_json_field(field);
        match found.filter(|(_, field)| is_text(field) && !input.skip_empty).map(|(at, _)| fields.column(at))
        {
            Some(column) => Some(Self::Text(column.as_string_view().clone())),
            None => Some(Self::Bytes(input.read(batch)?)),
        }
    }

    /// Returns the buffers that hold the values.
    pub(crate) fn buffers(&self) -> &[arrow_buffer::Buffer] {
        match self {
            Self::Text(column) => column.data_buffers(),
            Self::Bytes(column) => column.data_buffers(),
        }
    }

    /// Returns the text of a message. `None` if the message stays unchanged.
    ///
    /// # Errors
    /// The reason for rejecting the message, if its value is not UTF-8.
    #[inline]
    pub(crate) fn get(&self, row: usize) -> Result<Option<&str>, String> {
        match self {
            Self::Text(column) => Ok(column.is_valid(row).then(|| column.value(row))),
            Self::Bytes(column) if column.is_null(row) => Ok(None),
            Self::Bytes(column) => match simdutf8::basic::from_utf8(column.value(row)) {
                Ok(text) => Ok(Some(text)),
                Err(_) => Err(crate::not_utf8(column.value(row))),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use thalweg_record::Output;
    use thalweg_record::testing::batch;

    use crate::testing::with_text;

    /// Applies an editor that puts brackets around each value. Returns the (payload, fields) pairs, and the
    /// number of rejected messages.
    fn bracketed(target: Target, batch: Batch) -> (Vec<(String, String)>, usize) {
        let mut out = Outputs::new("test".into());
        let mut editor = target.editor(FieldType::Text);
        editor
            .write(batch, &mut out, |value, out| {
                if value == b"bad" {
                    return Err("is bad".to_owned());
                }
                out.extend([b"[", value, b"]"].concat());
                Ok(())
            })
            .unwrap();
        let (mut good, mut bad) = (Vec::new(), 0);
        for (output, batch) in out.take() {
            if output == Output::Errors {
                bad += batch.rows();
                continue;
            }
            let rows = thalweg_record::testing::rows(batch.fields());
            let payloads = thalweg_record::testing::payloads(&batch);
            good.extend(payloads.into_iter().zip(rows.iter().map(ToString::to_string)));
        }
        (good, bad)
    }

    fn target(yaml: &str) -> Target {
        thalweg_config::testing::options(yaml)
    }

    fn example() -> Batch {
        with_text(
            &["p", "q", "r", "s"],
            &[
                ("a", &[Some("1"), None, Some(""), Some("bad")]),
                ("b", &[Some("x"), Some("y"), Some("z"), None]),
            ],
        )
    }

    #[test]
    fn a_result_goes_into_its_place_and_who_has_nothing_is_left_alone() {
        let pairs = |pairs: &[(&str, serde_json::Value)]| -> Vec<(String, String)> {
            pairs.iter().map(|(payload, row)| ((*payload).to_owned(), row.to_string())).collect()
        };
        let (given, rejected) = bracketed(target("field: a"), example());
        assert_eq!(rejected, 1);
        assert_eq!(
            given,
            pairs(&[
                ("p", json!({"a": "[1]", "b": "x"})),
                ("q", json!({"b": "y"})),
                ("r", json!({"a": "[]", "b": "z"}))
            ])
        );
        let (given, _) = bracketed(target("{field: a, into: b, skip_empty: true}"), example());
        assert_eq!(
            given,
            pairs(&[
                ("p", json!({"a": "1", "b": "[1]"})),
                ("q", json!({"b": "y"})),
                ("r", json!({"a": "", "b": "z"}))
            ])
        );
        let (given, _) = bracketed(target("{field: a, into: payload, skip_empty: true}"), example());
        let payloads: Vec<&str> = given.iter().map(|(payload, _)| payload.as_str()).collect();
        assert_eq!(payloads, ["[1]", "q", "r"]);
        let (given, _) = bracketed(target("{into: new}"), example());
        assert_eq!(given[3], ("s".to_owned(), json!({"a": "bad", "new": "[s]"}).to_string()).clone());
        let (given, _) = bracketed(target("{field: nothing}"), example());
        assert_eq!(given.len(), 4);
    }

    #[test]
    fn a_field_holds_only_text() {
        let given = |yaml| bracketed(target(yaml), batch([&b"\xff"[..], b"fine"]));
        let (good, bad) = given("into: a");
        assert_eq!((good.len(), bad), (1, 1));
        assert_eq!(given("{}").1, 0);
    }
}

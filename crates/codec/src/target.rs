//! What a transform reads and where its result goes: a field or the payload, as bytes.
//!
//! Many transforms do one thing to one column. What they have in common is here: the options that name the columns,
//! reading one as bytes without a copy, and putting a result into another. A message that does not have the field
//! is left alone: it keeps what is in the place of the result. The common case, in which all have it, is a move of
//! a column.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BinaryViewArray, BooleanArray, StringViewArray, cast::AsArray};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::{ArrowError, DataType};
use arrow_select::zip::zip;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_record::Outputs;
use thalweg_record::{Batch, PAYLOAD, PayloadWriter, TextBuilder, ViewBuilder};

use crate::columns::{Before, FieldType, Layout};
use crate::keys::{as_bytes, bytes_of, present};

/// What is read.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Input {
    /// The field to read; by default the payload. A message without it is left alone.
    pub field: String,
    /// Whether messages whose field is empty are left alone as well. The default is `false`.
    pub skip_empty: bool,
}

impl Default for Input {
    fn default() -> Self {
        Self { field: PAYLOAD.to_owned(), skip_empty: false }
    }
}

impl Input {
    /// The column as bytes, NULL for messages to be left alone. `None` if that is all of them.
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

/// What is read, and where the result goes.
///
/// It has the options of [`Input`] itself: serde loses sight of unknown options where what it flattens is flattened again.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Target {
    /// The field to read; by default the payload. A message without it is left alone.
    field: String,
    /// Where the result goes: a field, or `payload`. By default it replaces what was read.
    into: Option<String>,
    /// Whether messages whose field is empty are left alone as well. The default is `false`.
    skip_empty: bool,
}

impl Default for Target {
    fn default() -> Self {
        Self { field: PAYLOAD.to_owned(), into: None, skip_empty: false }
    }
}

impl Target {
    /// What is read.
    pub fn input(&self) -> Input {
        Input { field: self.field.clone(), skip_empty: self.skip_empty }
    }

    /// The name of where the result goes.
    pub fn place(&self) -> &str {
        self.into.as_deref().unwrap_or(&self.field)
    }

    /// Ready to run, for results of this type (text or JSON).
    pub fn editor(&self, kind: FieldType) -> Editor {
        Editor { input: self.input(), slot: Slot::new(self.place(), kind), row_bytes: 0 }
    }
}

/// Where results go: a field of a certain type, or the payload.
#[derive(Debug)]
pub struct Slot {
    into: String,
    layout: Layout,
}

impl Slot {
    /// The place of this name.
    pub fn new(into: &str, kind: FieldType) -> Self {
        Self { into: into.to_owned(), layout: Layout::new(vec![Arc::new(kind.field(into))]) }
    }

    /// Puts a result there: for each message its value, or NULL to leave it alone. Rejects the messages that failed
    /// (in ascending order), and those whose value would have to be text and is not. Sends on the others.
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

    /// As [`put`](Self::put), but gives the others back.
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

    /// The values that are text; the others are among the failed.
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

/// The result, where it is NULL what was there before; `None` if it is nowhere NULL.
fn filled(result: &dyn Array, before: &dyn Array) -> Result<Option<ArrayRef>, ArrowError> {
    let Some(present) = result.nulls().filter(|nulls| nulls.null_count() > 0) else { return Ok(None) };
    let present = BooleanArray::new(present.inner().clone(), None);
    Ok(Some(zip(&present, &result, &before)?))
}

/// What becomes of a value.
pub enum Edit<'a> {
    /// This piece of it, which is not copied.
    Piece(&'a [u8]),
    /// What was written into the buffer.
    Written,
    /// The message is left alone.
    Keep,
}

/// Changes one column a value at a time.
#[derive(Debug)]
pub struct Editor {
    input: Input,
    slot: Slot,
    /// The bytes for a message in the batch before.
    row_bytes: usize,
}

impl Editor {
    /// Gives each message that has the field what `write` appends. A reason for which it cannot rejects the message.
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

    /// Gives each message that has the field what `edit` says; the buffer is empty before. A reason for which
    /// it cannot rejects the message.
    pub fn edit(
        &mut self,
        batch: Batch,
        out: &mut Outputs,
        mut edit: impl for<'a> FnMut(&'a [u8], &mut Vec<u8>) -> Result<Edit<'a>, String>,
    ) -> Result<(), ArrowError> {
        let Some(input) = self.input.read(&batch) else {
            out.send(batch);
            return Ok(());
        };
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
        self.slot.put(batch, result.finish(), failed, out)
    }
}

/// A column of which the values are wanted as text.
pub enum Texts {
    /// It is text.
    Text(StringViewArray),
    /// It is bytes that have to be looked at.
    Bytes(BinaryViewArray),
}

impl Texts {
    /// The column that was read.
    pub fn of(batch: &Batch, input: &Input) -> Option<Self> {
        let column = batch.fields().column_by_name(&input.field);
        match column.filter(|column| *column.data_type() == DataType::Utf8View && !input.skip_empty) {
            Some(column) => Some(Self::Text(column.as_string_view().clone())),
            None => Some(Self::Bytes(input.read(batch)?)),
        }
    }

    /// The buffers that the values are in.
    pub fn buffers(&self) -> &[arrow_buffer::Buffer] {
        match self {
            Self::Text(column) => column.data_buffers(),
            Self::Bytes(column) => column.data_buffers(),
        }
    }

    /// The text of a message; none if it is to be left alone.
    ///
    /// # Errors
    /// The reason, if it is not text.
    #[inline]
    pub fn get(&self, row: usize) -> Result<Option<&str>, String> {
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

    /// What an editor that puts brackets around everything makes of a batch: (payload, fields) and the rejected.
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

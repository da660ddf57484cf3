//! Splits one message into several.
//!
//! The parts are views of the original message's memory, and they share its ack: the source's ack is settled
//! when every part is. The first parts leave after the whole message was checked, so a message that is
//! malformed in its middle has no parts at all. A message with many parts is split in steps: the offsets and
//! views of all parts would take far more memory than a message of short ones.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{Array, BinaryViewArray};
use memchr::memmem::Finder;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Component, Context, Error, Mistake, Outputs, Transform, TransformConfig};
use thalweg_record::{Batch, PAYLOAD, TextBuilder, ViewBuilder};

use thalweg_codec::columns::{FieldType, Layout, missing, reject_all};
use thalweg_codec::json_columns::{Element, elements, elements_after};
use thalweg_codec::keys::bytes_of;
use thalweg_stream::pieces::Pieces;

/// Splits one message into several.
///
/// Give either `delimiter: ","`, for the parts of a text, or `json_array: true`, for the elements of a JSON
/// array, which may be nested 127 levels deep. Each part becomes the payload of its own message, which has
/// the fields of the original. Elements keep their JSON text, except that texts lose their quotes and
/// escapes. The original message is acknowledged when all its parts are. A message without parts is filtered.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Split {
    /// The text between the parts.
    delimiter: Option<String>,
    /// True to split the elements of a JSON array. The default is `false`, but `true` with a `field` and
    /// without a `delimiter`.
    json_array: bool,
    /// The field to split. The default is the payload.
    field: Option<String>,
    /// The field that receives the parts. By default they become the payload.
    into: Option<String>,
    /// True to make messages of empty parts between delimiters too. The default is `false`.
    keep_empty: bool,
}

impl Component for Split {
    const NAME: &'static str = "split";
    const EXAMPLE: &'static str = r#"
sources:
  lists: { generate: { message: '[{"n": 1}, {"n": 2}]', count: 2 } }
pipelines:
  main:
    from: lists
    transforms:
      - split: { json_array: true }
    to: screen
sinks:
  screen: { stdout: {} }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mistake = |option, message: &str, help: &str| vec![Mistake::new(option, message).help(help)];
        match &self.delimiter {
            Some(delimiter) if delimiter.is_empty() => {
                mistake("delimiter", "The delimiter is empty.", "Write the text between the parts.")
            }
            Some(_) if self.json_array => mistake(
                "json_array",
                "A message cannot be split both at a `delimiter` and as a `json_array`.",
                "Leave out one of them.",
            ),
            None if !self.json_array && self.field.is_none() => mistake(
                "",
                "`split` has neither `delimiter` nor `json_array`.",
                "Give one of them: `delimiter: \",\"` or `json_array: true`.",
            ),
            _ => Vec::new(),
        }
    }
}

impl TransformConfig for Split {
    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error> {
        let delimiter = self.delimiter.as_ref();
        Ok(Box::new(Splitter {
            cutter: Cutter {
                delimiter: delimiter.map(|delimiter| Finder::new(delimiter.as_bytes()).into_owned()),
                keep_empty: self.keep_empty,
                parts: Vec::new(),
                decoded: String::new(),
                element: String::new(),
            },
            field: self.field.clone().unwrap_or_else(|| PAYLOAD.to_owned()),
            into: self
                .into
                .as_deref()
                .filter(|into| *into != PAYLOAD)
                .map(|into| Layout::new(vec![Arc::new(FieldType::Text.field(into))])),
            uncut: VecDeque::new(),
            pieces: Pieces::new(LARGEST * context.batch_bytes),
        }))
    }
}

/// The maximum size of the texts of a piece, as a multiple of the size of a batch.
const LARGEST: usize = 8;

/// The maximum number of parts of a message that are made in one step. No further message is split in a step
/// that has as many: thousands of messages may share a text that has thousands of parts.
const MANY_PARTS: usize = 1 << 14;

struct Splitter {
    cutter: Cutter,
    field: String,
    into: Option<Layout>,
    /// Messages that are not split yet.
    uncut: VecDeque<Uncut>,
    /// The parts of a message share its fields. They leave in pieces, because the next transforms may copy
    /// these fields for each part.
    pieces: Pieces,
}

/// Messages that are not split yet. The parts of the first one before the offset `from` are made.
struct Uncut {
    batch: Batch,
    from: usize,
}

/// Finds the parts of messages.
struct Cutter {
    delimiter: Option<Finder<'static>>,
    keep_empty: bool,
    /// Parts of the present message.
    parts: Vec<Piece>,
    /// Their decoded texts.
    decoded: String,
    /// The decoded text of one element.
    element: String,
}

/// The offsets of a part: in the message, or in the decoded text.
#[derive(Clone, Copy)]
enum Piece {
    Raw(usize, usize),
    Decoded(usize, usize),
}

impl Cutter {
    /// Collects the parts of a message from an offset on. Returns the offset of the others, if there are more
    /// than [`MANY_PARTS`].
    fn cut(&mut self, value: &[u8], from: usize) -> Result<Option<usize>, String> {
        self.parts.clear();
        self.decoded.clear();
        match &self.delimiter {
            Some(finder) => Ok(cut_text(finder, self.keep_empty, value, from, &mut self.parts)),
            None => self.cut_array(value, from),
        }
    }

    /// The whole array is checked before its first elements leave.
    fn cut_array(&mut self, value: &[u8], from: usize) -> Result<Option<usize>, String> {
        let (mut end, mut rest) = (from, None);
        let mut found = |element: Element| {
            if self.parts.len() == MANY_PARTS {
                rest = Some(end);
                return ControlFlow::Break(());
            }
            end = element.end();
            self.add(value, element);
            ControlFlow::Continue(())
        };
        if from > 0 {
            elements_after(value, from, found);
        } else {
            let text = simdutf8::basic::from_utf8(value).map_err(|_| thalweg_codec::not_utf8(value))?;
            elements(text, |element| {
                let _ = found(element);
            })?;
        }
        Ok(rest)
    }

    fn add(&mut self, array: &[u8], element: Element) {
        self.parts.push(match element.plain() {
            Some(range) => Piece::Raw(range.start, range.end),
            None => {
                let begin = self.decoded.len();
                self.decoded.push_str(element.decode(array, &mut self.element));
                Piece::Decoded(begin, self.decoded.len())
            }
        });
    }

    fn part<'a>(&'a self, value: &'a [u8], part: Piece) -> &'a [u8] {
        let part = match part {
            Piece::Raw(start, end) => value.get(start..end),
            Piece::Decoded(start, end) => self.decoded.as_bytes().get(start..end),
        };
        part.unwrap_or_default()
    }
}

/// Collects the parts of a text, as [`Cutter::cut`] does.
fn cut_text(
    finder: &Finder,
    keep_empty: bool,
    value: &[u8],
    from: usize,
    parts: &mut Vec<Piece>,
) -> Option<usize> {
    let mut start = from;
    let delimiters = finder.find_iter(value.get(from..).unwrap_or_default()).map(|at| from + at);
    for end in delimiters.chain([value.len()]) {
        if end > start || keep_empty {
            if parts.len() == MANY_PARTS {
                return Some(start);
            }
            parts.push(Piece::Raw(start, end));
        }
        start = end + finder.needle().len();
    }
    None
}

impl Splitter {
    /// Splits the first messages, or a part of the first one.
    fn split(&mut self, uncut: Uncut, out: &mut Outputs) -> Result<(), Error> {
        let Uncut { batch, from } = uncut;
        let Some(input) = bytes_of(&batch, &self.field) else {
            return Ok(reject_all(batch, &missing(&self.field), out)?);
        };
        let mut made = Made::new(&input, self.into.is_some());
        let mut failed: Vec<(u32, String)> = Vec::new();
        let mut rows = Vec::with_capacity(input.len());
        let (mut row, mut from) = (0, from);
        let mut rest = None;
        while row < input.len() && rest.is_none() && rows.len() < MANY_PARTS {
            match self.cut(&input, row, std::mem::take(&mut from)) {
                Ok(others) => {
                    rest = others;
                    for &part in &self.cutter.parts {
                        made.push(self.cutter.part(input.value(row), part));
                        // The rows are counted without the failed rows, which are removed first.
                        rows.push((row - failed.len()) as u32);
                    }
                }
                Err(reason) => failed.push((row as u32, reason)),
            }
            row += 1;
        }
        let batch = self.keep_from(row, rest, batch);
        match out.reject(batch, failed)? {
            Some(rest) => self.expand(rest, made, rows),
            None => Ok(()),
        }
    }

    /// Collects the parts of the message in a row, as [`Cutter::cut`] does.
    fn cut(&mut self, input: &BinaryViewArray, row: usize, from: usize) -> Result<Option<usize>, String> {
        if input.is_null(row) {
            return Err(missing(&self.field));
        }
        let value = input.value(row);
        if from == 0 && self.into.is_some() && simdutf8::basic::from_utf8(value).is_err() {
            return Err(thalweg_codec::not_utf8(value));
        }
        self.cutter.cut(value, from)
    }

    /// Keeps the messages from this row on for later, and the one before it if it has further parts, from
    /// `rest` on. Returns those before the row.
    fn keep_from(&mut self, row: usize, rest: Option<usize>, batch: Batch) -> Batch {
        let (rows, first) = (batch.rows(), row - usize::from(rest.is_some()));
        if first == rows {
            return batch;
        }
        let later = batch.share().slice(first, rows - first);
        self.uncut.push_front(Uncut { batch: later, from: rest.unwrap_or(0) });
        batch.slice(0, row)
    }

    /// Makes messages of parts. `rows` has the row of the original for each.
    fn expand(&mut self, originals: Batch, made: Made, rows: Vec<u32>) -> Result<(), Error> {
        match made {
            Made::Payloads(builder) => {
                let parts = originals.expand(builder.finish(), rows)?;
                parts.into_iter().for_each(|parts| self.pieces.push(parts));
            }
            Made::Texts(builder) => {
                let indices = arrow_array::UInt32Array::from(rows.clone());
                let payload = arrow_select::take::take(originals.payload(), &indices, None)?;
                let payload = arrow_array::cast::AsArray::as_binary_view(&payload).clone();
                if let (Some(batch), Some(into)) = (originals.expand(payload, rows)?, &mut self.into) {
                    self.pieces.push(into.extend(batch, vec![Arc::new(builder.finish())])?);
                }
            }
        }
        Ok(())
    }
}

impl Transform for Splitter {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        self.uncut.push_back(Uncut { batch, from: 0 });
        self.resume(out)
    }

    fn resume(&mut self, out: &mut Outputs) -> Result<(), Error> {
        if self.pieces.is_empty()
            && let Some(uncut) = self.uncut.pop_front()
        {
            self.split(uncut, out)?;
        }
        if let Some(piece) = self.pieces.next_of_texts() {
            out.send(piece);
        }
        if !self.pieces.is_empty() || !self.uncut.is_empty() {
            out.hold(Duration::ZERO);
        }
        Ok(())
    }
}

/// The parts of all messages.
enum Made {
    Payloads(ViewBuilder),
    Texts(TextBuilder),
}

impl Made {
    fn new(input: &BinaryViewArray, is_text: bool) -> Self {
        match is_text {
            true => Self::Texts(TextBuilder::over(input.data_buffers(), input.len())),
            false => Self::Payloads(ViewBuilder::over(input.data_buffers(), input.len())),
        }
    }

    fn push(&mut self, part: &[u8]) {
        match self {
            Self::Payloads(builder) => builder.push(part),
            // The message and the delimiter are UTF-8, so every part is.
            Self::Texts(builder) => match std::str::from_utf8(part) {
                Ok(part) => builder.push(part),
                Err(_) => builder.push(&String::from_utf8_lossy(part)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    use serde_json::json;
    use thalweg_engine::{Output, testing};
    use thalweg_record::{Ack, Outcome};

    use crate::testing::with_text;

    fn split(yaml: &str, lines: &[&str]) -> testing::Given {
        testing::apply::<Split>(yaml, [testing::batch(lines)])
    }

    #[test]
    fn it_conforms() {
        let lines = ["a,b", "", ",", "[1, 2]", "[", "[]"];
        for yaml in ["delimiter: ','", "json_array: true", "{delimiter: ',', into: part}"] {
            testing::transform_conforms::<Split>(yaml, &lines);
        }
    }

    #[test]
    fn the_parts_of_a_message_with_a_large_field_leave_in_pieces() {
        let context = testing::context();
        let mut split = testing::options::<Split>("{ delimiter: ',', into: part }").build(&context).unwrap();
        let line = "a,".repeat(100_000);
        let mut out = Outputs::new("test".into());
        split.apply(testing::batch([&line]), &mut out).unwrap();
        let (mut largest, mut rows) = (0, 0);
        loop {
            let sizes: Vec<usize> = out.take().iter().map(|(_, batch)| batch.rows()).collect();
            largest = largest.max(sizes.iter().copied().max().unwrap_or(0));
            rows += sizes.iter().sum::<usize>();
            if out.take_held().is_none() {
                break;
            }
            split.resume(&mut out).unwrap();
        }
        // The whole message, and one byte of the part.
        assert_eq!((rows, largest), (100_000, LARGEST * context.batch_bytes / (line.len() + 1)));
    }

    #[test]
    fn messages_that_share_a_text_with_many_parts_are_split_one_after_the_other() {
        const PARTS: usize = MANY_PARTS / 4;
        let mut split =
            testing::options::<Split>("{ delimiter: ',', into: part }").build(&testing::context()).unwrap();
        let line = "a,".repeat(PARTS);
        let mut out = Outputs::new("test".into());
        split.apply(testing::batch((0..10).map(|_| line.as_str())), &mut out).unwrap();
        let mut rows = 0;
        loop {
            rows += out.take().iter().map(|(_, batch)| batch.rows()).sum::<usize>();
            if out.take_held().is_none() {
                break;
            }
            split.resume(&mut out).unwrap();
            let made = out.take();
            assert!(made.iter().all(|(_, batch)| batch.rows() <= MANY_PARTS + PARTS));
            rows += made.iter().map(|(_, batch)| batch.rows()).sum::<usize>();
        }
        assert_eq!(rows, 10 * PARTS);
    }

    #[test]
    fn a_message_with_many_parts_is_split_in_steps() {
        let numbers: Vec<String> = (0..3 * MANY_PARTS).map(|number| number.to_string()).collect();
        let texts: Vec<String> = numbers.iter().map(|number| format!(r#""\t{number}""#)).collect();
        let tabs: Vec<String> = numbers.iter().map(|number| format!("\t{number}")).collect();
        let (empty, array) = (numbers.join(",,"), format!("[{}]", texts.join(" , ")));
        for (yaml, line, expected) in [
            ("delimiter: ','", numbers.join(",") + ",", &numbers),
            ("delimiter: ','", empty, &numbers),
            ("json_array: true", format!("[{}]", numbers.join(", ")), &numbers),
            ("json_array: true", array, &tabs),
        ] {
            let mut split = testing::options::<Split>(yaml).build(&testing::context()).unwrap();
            let mut out = Outputs::new("test".into());
            split.apply(testing::batch([line.as_str(), "[1]"]), &mut out).unwrap();
            let (mut parts, mut steps) = (Vec::new(), 0);
            loop {
                for (output, batch) in out.take() {
                    assert!(output == Output::Main && batch.rows() <= MANY_PARTS);
                    parts.extend(testing::payloads(&batch));
                    batch.settle(Outcome::Delivered);
                }
                steps += 1;
                if out.take_held().is_none() {
                    break;
                }
                split.resume(&mut out).unwrap();
            }
            let last = if yaml.starts_with('d') { "[1]" } else { "1" };
            assert_eq!((parts.pop().as_deref(), steps), (Some(last), 4), "{yaml}");
            assert!(parts == *expected, "{yaml}");
        }
    }

    #[test]
    fn a_text_is_split_at_each_delimiter() {
        assert_eq!(
            split("delimiter: ', '", &["a, b,c", "", "d, , e, "]).payloads(Output::Main),
            ["a", "b,c", "d", "e"]
        );
        let given = split("{delimiter: ',', keep_empty: true}", &["a,,b", "", ","]);
        assert_eq!(given.payloads(Output::Main), ["a", "", "b", "", "", ""]);
        let given = testing::apply::<Split>("delimiter: ','", [testing::batch([b"\xff,a"])]);
        assert_eq!(given.payloads(Output::Main), ["\u{fffd}", "a"]);
    }

    #[test]
    fn elements_of_an_array_are_given_as_they_stand_and_texts_without_quotes() {
        let given = split(
            "json_array: true",
            &[r#" [ {"a": [1, "]"]} , 2, null, "tést", "a \"b\"\n", "" , [3 ,4]] "#, "[]", " [ ] ", "[true]"],
        );
        assert_eq!(
            given.payloads(Output::Main),
            [r#"{"a": [1, "]"]}"#, "2", "null", "tést", "a \"b\"\n", "", "[3 ,4]", "true"]
        );
        assert!(given.errors().is_empty());
    }

    #[test]
    fn what_is_no_array_is_rejected_whole() {
        let lines =
            ["", "1", "{}", "[1, 2", "[1, ]", "[1, x]", "[1] x]", "[1, 2", "[[1]", "]", "[", "[1]]", "[[]"];
        let given = split("json_array: true", &lines);
        assert_eq!(given.payloads(Output::Errors), lines);
        assert_eq!(given.payloads(Output::Main), [""; 0]);
        assert_eq!(given.errors()[0].1, "is not a JSON array: expected `[` at byte 0");
        let deep = format!("[{},1]", "[".repeat(20_000) + &"]".repeat(20_000));
        let given = split("json_array: true", &[&deep]);
        assert_eq!(given.errors()[0].1, "is not a JSON array: nested too deep at byte 127");
    }

    #[test]
    fn fields_are_repeated_and_parts_can_become_a_field() {
        let batch = || {
            with_text(
                &["x", "y", "z"],
                &[("list", &[Some("[1, \"b\"]"), None, Some("[2]")]), ("f", &[Some("1"); 3])],
            )
        };
        let given = testing::apply::<Split>("field: list", [batch()]);
        assert_eq!(given.payloads(Output::Main), ["1", "b", "2"]);
        assert_eq!(given.main()[1], json!({"list": "[1, \"b\"]", "f": "1"}));
        assert_eq!(given.errors(), [("y".to_owned(), "there is no field `list`".to_owned())]);
        let given = testing::apply::<Split>("{field: list, into: list}", [batch()]);
        assert_eq!(given.payloads(Output::Main), ["x", "x", "z"]);
        assert_eq!(
            given.main(),
            [json!({"list": "1", "f": "1"}), json!({"list": "b", "f": "1"}), json!({"list": "2", "f": "1"})]
        );
    }

    #[test]
    fn the_message_is_acknowledged_when_all_its_parts_are() {
        let settled: Arc<Mutex<Vec<Outcome>>> = Arc::default();
        let note = settled.clone();
        let ack = Ack::new("test".into(), move |settlement| note.lock().unwrap().push(settlement.outcome));
        let plain = testing::batch(["[1, 2]"]);
        let batch = Batch::new(plain.payload().clone(), plain.meta().clone(), ack);
        let given = testing::apply::<Split>("json_array: true", [batch]);
        assert!(settled.lock().unwrap().is_empty());
        for batch in given.outputs.into_values().flatten() {
            assert_eq!(batch.rows(), 2);
            batch.settle(Outcome::Delivered);
        }
        assert_eq!(settled.lock().unwrap().len(), 1);
    }

    #[test]
    fn where_to_split_must_be_said_once() {
        let message = |yaml: &str| testing::options::<Split>(yaml).check()[0].message.clone();
        assert_eq!(message("{}"), "`split` has neither `delimiter` nor `json_array`.");
        assert_eq!(message("delimiter: ''"), "The delimiter is empty.");
        assert_eq!(
            message("{delimiter: x, json_array: true}"),
            "A message cannot be split both at a `delimiter` and as a `json_array`."
        );
    }
}

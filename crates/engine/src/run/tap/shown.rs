//! The copy of a message or file that a tap shows.

use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow_array::{Array, ArrayRef, TimestampMicrosecondArray};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::DataType;
use serde::Serialize;
use serde_json::{Map, Number, Value};
use thalweg_record::{Batch, ERROR_REASON, File};

use crate::parcel::Files;
use crate::run::edges::Port;

/// The memory of a message, or of a field, beside its texts.
const BESIDE: usize = 256;
const OF_FIELD: usize = 96;
/// The bytes that each field counts for beside its name and its text: there may be thousands of empty ones.
const LEAST: usize = 8;
/// The key in `fields` that says how many are left out.
const MORE: &str = "…";

/// A message or file that passed.
#[derive(Debug, Clone, Serialize)]
pub struct Tapped {
    /// The component that it left, or the sink that receives it.
    pub edge: String,
    /// The output by which it left: `main`, `errors` or a label; or `input` of a sink.
    pub output: String,
    /// When it passed, as in RFC 3339.
    pub time: String,
    /// The payload, with U+FFFD in place of bytes that are not UTF-8. None of a file.
    pub payload: Option<String>,
    /// True if there is more of the payload.
    pub payload_is_cut: bool,
    /// The fields. Long values end where all of them together have the most bytes; then `…` has the number of
    /// those that are left out. Of a file: `path` and `size`.
    pub fields: Map<String, Value>,
    /// Why it was rejected, if it was.
    pub reason: Option<String>,
    /// True if this is a file.
    pub files: bool,
}

impl Tapped {
    fn at(port: &Port) -> Self {
        Self {
            edge: port.component.to_string(),
            output: port.output.to_string(),
            time: now(),
            payload: None,
            payload_is_cut: false,
            fields: Map::new(),
            reason: None,
            files: false,
        }
    }

    /// Returns about the bytes of memory that it takes.
    pub(super) fn memory(&self) -> usize {
        let fields = self
            .fields
            .iter()
            .map(|(name, value)| OF_FIELD + name.len() + value.as_str().map_or(0, str::len));
        let texts = [&self.payload, &self.reason].into_iter().flatten().map(String::len);
        BESIDE + self.edge.len() + self.output.len() + texts.sum::<usize>() + fields.sum::<usize>()
    }
}

/// Content of an edge that can be shown.
pub(crate) trait Tappable {
    /// The number of messages or files.
    fn count(&self) -> usize;

    /// Copies the one at this place, as it passes a port. The payload has at most `most` bytes, and so have
    /// all fields together.
    fn shown(&self, at: usize, port: &Port, most: usize) -> Tapped;
}

impl Tappable for Batch {
    fn count(&self) -> usize {
        self.rows()
    }

    fn shown(&self, at: usize, port: &Port, most: usize) -> Tapped {
        let (payload, payload_is_cut) = text_of(self.payload().value(at), most);
        let mut tapped = Tapped { payload: Some(payload), payload_is_cut, ..Tapped::at(port) };
        let mut fields = Fields { shown: Map::new(), left: most, left_out: 0 };
        for (field, column) in self.fields().schema_ref().fields().iter().zip(self.fields().columns()) {
            if port.rejects() && field.name() == ERROR_REASON {
                // Reasons are short already.
                tapped.reason = Some(text_at(column, at, usize::MAX));
            } else {
                fields.add(field.name(), column, at);
            }
        }
        tapped.fields = fields.end();
        tapped
    }
}

impl Tappable for File {
    fn count(&self) -> usize {
        1
    }

    fn shown(&self, _: usize, port: &Port, most: usize) -> Tapped {
        let mut path = Cut::new(most);
        // Cut if it ends with an error.
        let _ = write!(path, "{self}");
        let fields = [("path", Value::from(path.text)), ("size", self.size().into())];
        let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let reason = self.problem().map(|problem| problem.reason.clone());
        Tapped { fields, reason, files: true, ..Tapped::at(port) }
    }
}

impl Tappable for Files {
    fn count(&self) -> usize {
        self.len()
    }

    fn shown(&self, at: usize, port: &Port, most: usize) -> Tapped {
        match self.get(at) {
            Some(file) => file.shown(0, port, most),
            None => Tapped::at(port),
        }
    }
}

/// The fields of a message, as far as there is room for them.
struct Fields {
    shown: Map<String, Value>,
    left: usize,
    left_out: usize,
}

impl Fields {
    fn add(&mut self, name: &str, column: &ArrayRef, row: usize) {
        // The names may come from outside, as in JSON.
        let Some(left) = self.left.checked_sub(name.len() + LEAST) else {
            self.left_out += 1;
            return;
        };
        let value = value_at(column, row, left);
        self.left = left.saturating_sub(value.as_str().map_or(LEAST, str::len));
        self.shown.insert(name.to_owned(), value);
    }

    fn end(mut self) -> Map<String, Value> {
        if self.left_out > 0 {
            self.shown.insert(MORE.to_owned(), self.left_out.into());
        }
        self.shown
    }
}

/// Returns a value of a column: a number, a truth value, NULL, or a text of at most `most` bytes.
fn value_at(column: &ArrayRef, row: usize, most: usize) -> Value {
    if column.is_null(row) {
        return Value::Null;
    }
    // Numbers are short. Without its end, a number would be another one.
    let whole = || text_at(column, row, usize::MAX);
    match column.data_type() {
        DataType::Boolean => Value::from(whole() == "true"),
        kind if kind.is_integer() || kind.is_floating() => {
            let text = whole();
            // JSON has no number for NaN.
            text.parse::<Number>().map_or_else(|_| Value::from(text), Value::Number)
        }
        _ => Value::from(text_at(column, row, most)),
    }
}

fn text_at(column: &ArrayRef, row: usize, most: usize) -> String {
    let mut text = Cut::new(most);
    let options = FormatOptions::default();
    if let Ok(formatter) = ArrayFormatter::try_new(column, &options) {
        // Cut if it ends with an error.
        let _ = write!(text, "{}", formatter.value(row));
    }
    text.text
}

/// Returns bytes as text, and whether there is more of them.
fn text_of(bytes: &[u8], most: usize) -> (String, bool) {
    let mut head = bytes.get(..most).unwrap_or(bytes);
    let is_cut = head.len() < bytes.len();
    if is_cut
        && let Some(last) = head.utf8_chunks().last()
        && std::str::from_utf8(last.invalid()).is_err_and(|error| error.error_len().is_none())
    {
        // The end cuts a character in two.
        head = head.get(..head.len() - last.invalid().len()).unwrap_or_default();
    }
    let mut text = Cut::new(most);
    let whole = text.write_str(&String::from_utf8_lossy(head)).is_ok();
    (text.text, is_cut || !whole)
}

/// A text that ends with an error where it has the most bytes, so that a large value is not written out.
struct Cut {
    text: String,
    most: usize,
}

impl Cut {
    fn new(most: usize) -> Self {
        Self { text: String::new(), most }
    }
}

impl Write for Cut {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        let left = self.most.saturating_sub(self.text.len());
        if piece.len() <= left {
            self.text.push_str(piece);
            return Ok(());
        }
        self.text.push_str(piece.get(..piece.floor_char_boundary(left)).unwrap_or_default());
        self.most = self.text.len();
        Err(fmt::Error)
    }
}

/// The present time as text, as in RFC 3339.
fn now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let time_us = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
    let time: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![time_us]).with_timezone("UTC"));
    text_at(&time, 0, usize::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_text_is_a_prefix_of_the_whole_one_and_never_longer_than_allowed(
            bytes in prop_oneof![prop::collection::vec(any::<u8>(), 0..40), ".{0,20}".prop_map(String::into_bytes)],
            most in 0..50_usize,
        ) {
            let whole = String::from_utf8_lossy(&bytes).into_owned();
            let (text, is_cut) = text_of(&bytes, most);
            prop_assert!(text.len() <= most);
            prop_assert!(whole.starts_with(&text), "{:?} of {:?}", text, whole);
            prop_assert_eq!(is_cut, text.len() < whole.len());
        }
    }

    #[test]
    fn a_character_is_not_cut_in_two() {
        assert_eq!(text_of("añb".as_bytes(), 2), ("a".to_owned(), true));
        assert_eq!(text_of("añb".as_bytes(), 3), ("añ".to_owned(), true));
        assert_eq!(text_of(b"a\xff", 4), ("a\u{fffd}".to_owned(), false));
    }

    #[test]
    fn the_time_has_a_date_and_a_zone() {
        let now = now();
        assert!(now.len() >= "2000-01-01T00:00:00Z".len() && now.ends_with('Z'), "{now}");
    }
}

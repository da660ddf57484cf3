//! Cuts the body of an answer into messages.

use std::ops::{ControlFlow, Range};

use arrow_buffer::Buffer;
use thalweg_codec::charset::Charset;
use thalweg_codec::framing::{KEPT, MAX_ROWS};
use thalweg_codec::json_columns::{Element, elements, elements_after};
use thalweg_codec::not_utf8;
use thalweg_codec::stream_framing::StreamFraming;
use thalweg_config::ByteSize;
use thalweg_record::Share;
use thalweg_stream::cut::too_long;

use crate::json_path::JsonPath;
use crate::net::{Cut, cuts_of};

/// How bodies are cut.
pub(super) struct Content {
    pub(super) framing: Option<StreamFraming>,
    pub(super) array: Option<JsonPath>,
    pub(super) charset: Charset,
    pub(super) limit: ByteSize,
    /// The account of the source.
    pub(super) share: Share,
}

/// The messages of a body, some at a time.
pub(super) type Messages = Box<dyn Iterator<Item = Cut> + Send>;

impl Content {
    /// Cuts a body into messages. An empty one has none.
    ///
    /// # Errors
    /// The reason if the body does not have the array.
    pub(super) fn cuts(&self, body: &Buffer) -> Result<Messages, String> {
        if body.is_empty() {
            return Ok(Box::new(std::iter::empty()));
        }
        let Some(path) = &self.array else {
            return Ok(cuts_of(body.clone(), self.framing.as_ref(), self.charset, self.limit));
        };
        Ok(Box::new(Elements::new(body.clone(), path, self.limit, self.share.clone())?))
    }
}

/// The elements of an array. At most [`MAX_ROWS`] are held at once: the ranges of very short elements take
/// far more memory than their text.
struct Elements {
    body: Buffer,
    /// Where the array is.
    array: Range<usize>,
    /// The elements that come first, until they are taken.
    first: Vec<Element>,
    /// The end of the last element that was taken.
    end: Option<usize>,
    limit: ByteSize,
    share: Share,
}

impl Elements {
    /// Finds the array. All of it is checked before its first elements are taken.
    fn new(body: Buffer, path: &JsonPath, limit: ByteSize, share: Share) -> Result<Self, String> {
        let text = std::str::from_utf8(&body).map_err(|_| not_utf8(&body))?;
        let array = path.find(text).map_err(|reason| match text.trim_start().starts_with('[') {
            true => format!(
                "is an array, and not an object with one: write `array_field: \".\"` in place of `{path}`"
            ),
            false => reason,
        })?;
        let array = array.ok_or_else(|| format!("has no `{path}` (`array_field`)"))?;
        let mut first = Vec::new();
        let json = text.get(array.clone()).unwrap_or_default();
        if json != "null" {
            elements(json, |element| {
                if first.len() < MAX_ROWS {
                    first.push(element);
                }
            })
            .map_err(|reason| format!("has no array at `{path}`: it {reason}"))?;
        }
        Ok(Self { body, array, first, end: None, limit, share })
    }

    /// Returns the next elements.
    fn some(&mut self) -> Vec<Element> {
        let mut found = std::mem::take(&mut self.first);
        if let (Some(end), true) = (self.end, found.is_empty()) {
            let array = self.body.get(self.array.clone()).unwrap_or_default();
            elements_after(array, end, |element| {
                found.push(element);
                if found.len() < MAX_ROWS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
        }
        self.end = found.last().map(|last| last.end());
        found
    }

    /// Returns a buffer with the texts of elements, and their ranges in it: the body, unless a text has
    /// escapes.
    fn texts(&self, found: &[Element]) -> (Buffer, Vec<Range<usize>>) {
        let start = self.array.start;
        let plain: Option<Vec<_>> = found.iter().map(|element| element.plain()).collect();
        if let Some(ranges) = plain {
            let moved = ranges.into_iter().map(|range| start + range.start..start + range.end);
            return (self.body.clone(), moved.collect());
        }
        let array = self.body.get(self.array.clone()).unwrap_or_default();
        let (mut bytes, mut ranges, mut decoded) = (Vec::new(), Vec::new(), String::new());
        for element in found {
            let begin = bytes.len();
            match element.plain() {
                Some(range) => bytes.extend_from_slice(array.get(range).unwrap_or_default()),
                None => bytes.extend_from_slice(element.decode(array, &mut decoded).as_bytes()),
            }
            ranges.push(begin..bytes.len());
        }
        (self.share.claim(bytes.capacity()).freeze(bytes), ranges)
    }
}

impl Iterator for Elements {
    type Item = Cut;

    fn next(&mut self) -> Option<Cut> {
        let found = self.some();
        if found.is_empty() {
            return None;
        }
        let (buffer, ranges) = self.texts(&found);
        let mut cut = Cut::of(buffer);
        for range in ranges {
            if range.len() <= self.limit.as_usize() {
                cut.messages.push(range);
            } else {
                let kept = KEPT.min(self.limit.as_usize());
                cut.rejected.push((range.start..range.start + kept, too_long(self.limit, kept).into()));
            }
        }
        Some(cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;
    use thalweg_record::Budget;

    fn content(array: Option<&str>, limit: &str) -> Content {
        Content {
            framing: None,
            array: array.map(|path| JsonPath::try_from(path.to_owned()).unwrap()),
            charset: Charset::default(),
            limit: limit.parse().unwrap(),
            share: Budget::new(1 << 20).share(),
        }
    }

    fn texts(content: &Content, body: &str) -> Result<Vec<String>, String> {
        let cuts = content.cuts(&Buffer::from_vec(body.as_bytes().to_vec()))?;
        let text =
            |cut: &Cut, range: &Range<usize>| String::from_utf8(cut.buffer[range.clone()].to_vec()).unwrap();
        Ok(cuts
            .flat_map(|cut| cut.messages.iter().map(|range| text(&cut, range)).collect::<Vec<_>>())
            .collect())
    }

    #[test]
    fn a_body_is_a_message_and_an_empty_one_none() {
        let whole = content(None, "1MiB");
        assert_eq!(texts(&whole, "a\nb").unwrap(), ["a\nb"]);
        assert_eq!(texts(&whole, "").unwrap(), [""; 0]);
        assert_eq!(texts(&content(Some("a"), "1MiB"), "").unwrap(), [""; 0]);
    }

    #[test]
    fn elements_are_messages_and_texts_lose_their_quotes() {
        let items = content(Some("d.items"), "1MiB");
        let found = texts(&items, "{\"d\": {\"items\": [{\"a\": 1}, \"x\", 2]}}").unwrap();
        assert_eq!(found, ["{\"a\": 1}", "x", "2"]);
        assert_eq!(texts(&items, "{\"d\": {\"items\": [\"a\\nb\", 7]}}").unwrap(), ["a\nb", "7"]);
        assert_eq!(texts(&items, "{\"d\": {\"items\": null}}").unwrap(), [""; 0]);
        assert_eq!(texts(&items, "{\"d\": {}}").unwrap_err(), "has no `d.items` (`array_field`)");
        let reason = "has no array at `d.items`: it is not a JSON array: expected `[` at byte 0";
        assert_eq!(texts(&items, "{\"d\": {\"items\": 1}}").unwrap_err(), reason);
        assert_eq!(texts(&content(Some("."), "1MiB"), " [1, [2]] ").unwrap(), ["1", "[2]"]);
    }

    #[test]
    fn an_element_that_is_too_large_is_rejected() {
        let body = Buffer::from_vec(b"[1, \"12345\", 2]".to_vec());
        let cuts: Vec<Cut> = content(Some("."), "4").cuts(&body).unwrap().collect();
        assert_eq!((cuts.len(), cuts[0].messages.len(), cuts[0].rejected.len()), (1, 2, 1));
        let (range, reason) = &cuts[0].rejected[0];
        assert_eq!(&cuts[0].buffer[range.clone()], b"1234");
        assert!(reason.starts_with("is longer than `max_message_bytes`"), "{reason}");
    }

    proptest! {
        #[test]
        fn all_elements_come_once_also_if_they_are_many(count in 0..3 * MAX_ROWS, escaped in any::<bool>()) {
            let values: Vec<Value> = (0..count)
                .map(|number| if escaped && number % 1000 == 7 { Value::from("a\"b") } else { Value::from(number) })
                .collect();
            let found = texts(&content(Some("."), "1MiB"), &serde_json::to_string(&values).unwrap()).unwrap();
            let expected: Vec<String> = values
                .iter()
                .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
                .collect();
            prop_assert_eq!(found, expected);
        }
    }
}

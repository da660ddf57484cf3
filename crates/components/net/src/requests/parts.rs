//! Messages as parts of a body.
//!
//! The parts of many messages lie in one buffer, one behind the other, so that nothing is allocated for each
//! message.

use std::ops::Range;

use thalweg_record::Batch;

/// Messages as parts of a body, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parts {
    bytes: Vec<u8>,
    /// Where each part ends.
    ends: Vec<usize>,
}

impl Parts {
    /// The number of parts.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes of all parts together.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the bytes of a part.
    pub fn get(&self, number: usize) -> &[u8] {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[number]]
    }

    /// Returns the parts in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|number| self.get(number))
    }

    /// Adds a part.
    pub fn push(&mut self, part: &[u8]) {
        self.bytes.extend_from_slice(part);
        self.ends.push(self.bytes.len());
    }

    /// Adds the parts of another.
    pub(crate) fn append(&mut self, other: &Self) {
        let before = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.ends.extend(other.ends.iter().map(|end| before + end));
    }

    /// Returns the parts of a range of numbers.
    pub(crate) fn slice(&self, numbers: Range<usize>) -> Self {
        let mut slice = Self::default();
        numbers.for_each(|number| slice.push(self.get(number)));
        slice
    }
}

/// Writes the messages of a system as parts of a body.
pub trait Encode: Send {
    /// Begins a batch. A batch that is encoded again is not begun again.
    fn begin(&mut self, batch: &Batch) {
        let _ = batch;
    }

    /// Writes the messages of these rows.
    fn encode(&mut self, batch: &Batch, rows: &[usize], into: &mut Encoded);
}

/// The messages of a batch as parts, with their rows.
#[derive(Debug, Default)]
pub struct Encoded {
    parts: Parts,
    rows: Vec<usize>,
    rejected: Vec<(usize, String)>,
    /// The numbers of parts before which a piece ends, ascending.
    divisions: Vec<usize>,
}

impl Encoded {
    /// Returns the buffer that the part of a message is appended to, before [`end`](Self::end) or
    /// [`reject`](Self::reject).
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.parts.bytes
    }

    /// Ends the part of a message.
    pub fn end(&mut self, row: usize) {
        self.parts.ends.push(self.parts.bytes.len());
        self.rows.push(row);
    }

    /// Drops what was written since the last part, because the message of this row cannot be sent.
    pub fn reject(&mut self, row: usize, reason: impl Into<String>) {
        self.parts.bytes.truncate(self.parts.ends.last().copied().unwrap_or(0));
        self.rejected.push((row, reason.into()));
    }

    /// Ends a piece here: the parts that follow go to another place than those before. The rows need not
    /// ascend.
    pub fn divide(&mut self) {
        self.divisions.push(self.parts.len());
    }

    /// Takes the rows that cannot be sent, with the reasons.
    pub(crate) fn take_rejected(&mut self) -> Vec<(usize, String)> {
        std::mem::take(&mut self.rejected)
    }

    /// The bytes of all parts.
    pub(crate) fn len(&self) -> usize {
        self.parts.bytes.len()
    }

    /// Returns the parts.
    #[cfg(test)]
    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Cuts all parts into pieces of at most this many bytes and messages, and returns what each piece has of
    /// these rows, which ascend. A larger message is a piece of its own.
    ///
    /// A piece that is sent again has the same messages as before, whatever became of its neighbours. A
    /// server that recognises a repeated request needs that.
    pub(crate) fn cut(&self, rows: &[usize], most_bytes: usize, most: usize) -> Vec<(Vec<usize>, Parts)> {
        let mut pieces: Vec<(Vec<usize>, Parts)> = Vec::new();
        // Of the last piece, with the rows that are left out.
        let (mut bytes, mut count) = (0, 0);
        for (number, row) in self.rows.iter().enumerate() {
            let part = self.parts.get(number);
            let is_divided = self.divisions.binary_search(&number).is_ok();
            if count == 0 || count >= most || bytes + part.len() > most_bytes || is_divided {
                pieces.push((Vec::new(), Parts::default()));
                (bytes, count) = (0, 0);
            }
            (bytes, count) = (bytes + part.len(), count + 1);
            if let Some((known, parts)) = pieces.last_mut()
                && rows.binary_search(row).is_ok()
            {
                known.push(*row);
                parts.push(part);
            }
        }
        pieces.retain(|(rows, _)| !rows.is_empty());
        pieces
    }
}

/// Appends a payload as one line: a document in JSON may have line feeds between its members, which are the
/// same as spaces. In a body of lines, a line feed would let a message write lines of its own.
pub(crate) fn one_line(payload: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(payload);
    for byte in &mut out[start..] {
        if matches!(*byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(parts: &[&str]) -> Encoded {
        let mut encoded = Encoded::default();
        for (row, part) in parts.iter().enumerate() {
            encoded.buffer().extend_from_slice(part.as_bytes());
            encoded.end(row);
        }
        encoded
    }

    #[test]
    fn a_rejected_message_leaves_nothing_in_the_body() {
        let mut made = encoded(&["one", "two"]);
        made.buffer().extend_from_slice(b"half");
        made.reject(2, "no");
        made.buffer().extend_from_slice(b"four");
        made.end(3);
        assert_eq!(made.parts().bytes(), b"onetwofour");
        assert_eq!((made.take_rejected(), made.rows), (vec![(2, "no".to_owned())], vec![0, 1, 3]));
    }

    #[test]
    fn pieces_end_before_the_limit_and_a_larger_message_is_alone() {
        let made = encoded(&["aa", "bb", "cccccc", "d", "e", "f"]);
        let cut = |bytes, most| -> Vec<String> {
            let pieces = made.cut(&[0, 1, 2, 3, 4, 5], bytes, most);
            pieces.iter().map(|(_, parts)| String::from_utf8_lossy(parts.bytes()).into_owned()).collect()
        };
        assert_eq!(cut(4, 10), ["aabb", "cccccc", "def"]);
        assert_eq!(cut(100, 2), ["aabb", "ccccccd", "ef"]);
        let rest = made.cut(&[1, 3], 100, 100);
        assert_eq!((rest[0].0.clone(), rest[0].1.bytes()), (vec![1, 3], &b"bbd"[..]));
    }

    #[test]
    fn a_piece_ends_at_a_division() {
        let mut made = Encoded::default();
        for (row, part) in [(1, "a"), (3, "b"), (0, "c")] {
            if row == 0 {
                made.divide();
                made.divide();
            }
            made.buffer().extend_from_slice(part.as_bytes());
            made.end(row);
        }
        let rows: Vec<Vec<usize>> = made.cut(&[0, 1, 2, 3], 9, 9).into_iter().map(|(rows, _)| rows).collect();
        assert_eq!(rows, [vec![1, 3], vec![0]]);
    }

    #[test]
    fn a_piece_is_the_same_when_its_neighbours_are_done() {
        let made = encoded(&["aaa", "bbbb", "c", "dd"]);
        assert_eq!(made.cut(&[0, 1, 2, 3], 4, 9).len(), 3);
        let rows: Vec<Vec<usize>> = made.cut(&[0, 2], 4, 9).into_iter().map(|(rows, _)| rows).collect();
        assert_eq!(rows, [[0], [2]]);
    }

    #[test]
    fn a_payload_is_one_line() {
        let mut line = b"x".to_vec();
        one_line(b"{\r\n\"a\":1}\n", &mut line);
        assert_eq!(line, b"x{  \"a\":1} ");
    }

    proptest! {
        #[test]
        fn parts_stay_as_they_were_when_they_are_joined_and_divided(texts in prop::collection::vec("[a-c]{0,4}", 1..12), at in 0..12usize) {
            let of = |texts: &[String]| {
                let mut parts = Parts::default();
                texts.iter().for_each(|text| parts.push(text.as_bytes()));
                parts
            };
            let (one, other) = texts.split_at(at.min(texts.len()));
            let mut joined = of(one);
            joined.append(&of(other));
            prop_assert_eq!(&joined, &of(&texts));
            let middle = joined.len() / 2;
            let mut first = joined.slice(0..middle);
            first.append(&joined.slice(middle..joined.len()));
            prop_assert_eq!(first, joined);
        }
    }
}

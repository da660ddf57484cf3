//! Finds the entries in a stream.
//!
//! A line feed in a value is no end of a field, so each field is read to know where the next begins. The
//! fields of an entry that is too long are read as well, and dropped one by one.

use memchr::memchr;

use super::LENGTH;
use crate::framing::{After, KEPT, Piece};

/// Finds entries.
#[derive(Debug)]
pub struct Entries {
    limit: usize,
    /// The index in the buffer at which the incomplete entry begins. Of an entry that is too long: its next
    /// field.
    start: usize,
    /// The index at which the next field begins.
    at: usize,
    /// The index up to which there is no line feed after `at`.
    searched: usize,
    /// The index at which the field at `at` ends, if its length was read. Its name may be long, and is not
    /// searched again while its value arrives.
    end: Option<u64>,
    lost: Lost,
}

/// The part of an entry that is too long which is dropped next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    Nothing,
    /// Its other fields.
    Fields,
    /// The rest of a line, and the other fields.
    Line,
    /// This number of bytes, and the other fields.
    Bytes(u64),
}

/// The next field in the buffer, or the end of an entry.
enum Next {
    /// More bytes are needed.
    Unknown,
    /// The entry ends with this empty line.
    Empty,
    /// A field that ends before this index, which may be beyond the buffer.
    Field(u64),
    /// The beginning of a line that is too long for an entry.
    Line,
}

impl Entries {
    /// Starts at the beginning of an entry. `limit` is the maximum size of an entry, in bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, start: 0, at: 0, searched: 0, end: None, lost: Lost::Nothing }
    }

    /// Returns the next entry, without the empty line after it, or `None` if the buffer has no complete one.
    /// `bytes` is the whole buffer. It must only grow until [`advance`](Self::advance) is called.
    ///
    /// # Errors
    /// The reason why the rest of the stream cannot be used.
    pub fn next(&mut self, bytes: &[u8], after: After) -> Result<Option<Piece>, String> {
        loop {
            if !self.skip(bytes) {
                return Ok(None);
            }
            let next = self.field(bytes);
            match next {
                Next::Unknown => return self.incomplete(bytes, after),
                Next::Empty => {
                    let range = self.start..self.at.saturating_sub(1).max(self.start);
                    let is_entry = self.lost == Lost::Nothing && !range.is_empty();
                    self.begin(self.at + 1);
                    self.lost = Lost::Nothing;
                    if is_entry {
                        return Ok(Some(Piece { range, too_long: false }));
                    }
                }
                Next::Field(end) if self.lost == Lost::Nothing && self.fits(end) => {
                    let Some(end) = usize::try_from(end).ok().filter(|end| *end <= bytes.len()) else {
                        return self.incomplete(bytes, after);
                    };
                    if bytes.get(end - 1) != Some(&b'\n') {
                        return Err("has a field whose length is wrong".to_owned());
                    }
                    (self.at, self.searched, self.end) = (end, end, None);
                }
                _ if self.lost == Lost::Nothing => return self.too_long(bytes, after),
                Next::Line => self.lost = Lost::Line,
                Next::Field(end) => self.lost = Lost::Bytes(end - self.at as u64),
            }
        }
    }

    /// True if the entry is not too long with a field that ends before `end`. The last line feed does not
    /// count.
    fn fits(&self, end: u64) -> bool {
        end - self.start as u64 <= self.limit as u64 + 1
    }

    /// Returns the index in the buffer at which the incomplete entry begins.
    pub fn begun(&self) -> usize {
        self.start
    }

    /// Drops the bytes before the incomplete entry, and returns their number. From then on, the buffer must
    /// begin with that entry.
    pub fn advance(&mut self) -> usize {
        let done = std::mem::take(&mut self.start);
        self.at -= done;
        self.searched -= done;
        self.end = self.end.map(|end| end - done as u64);
        done
    }

    /// Begins an entry, or the next field of one that is dropped.
    fn begin(&mut self, at: usize) {
        (self.start, self.at, self.searched, self.end) = (at, at, at, None);
    }

    /// Skips what is dropped of a field. Returns false if more bytes are needed.
    fn skip(&mut self, bytes: &[u8]) -> bool {
        let rest = bytes.get(self.at..).unwrap_or_default();
        let (skipped, is_done) = match self.lost {
            Lost::Nothing | Lost::Fields => return true,
            Lost::Line => match memchr(b'\n', rest) {
                Some(end) => (end + 1, true),
                None => (rest.len(), false),
            },
            Lost::Bytes(left) => {
                let skipped = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                self.lost = Lost::Bytes(left - skipped as u64);
                (skipped, skipped as u64 == left)
            }
        };
        self.begin(self.at + skipped);
        if is_done {
            self.lost = Lost::Fields;
        }
        is_done
    }

    /// Finds the next field.
    fn field(&mut self, bytes: &[u8]) -> Next {
        if let Some(end) = self.end {
            return Next::Field(end);
        }
        let Some(end) = memchr(b'\n', bytes.get(self.searched..).unwrap_or_default()) else {
            self.searched = bytes.len();
            return if bytes.len() - self.at > self.limit { Next::Line } else { Next::Unknown };
        };
        let end = self.searched + end;
        self.searched = end;
        let line = bytes.get(self.at..end).unwrap_or_default();
        if line.is_empty() {
            return Next::Empty;
        }
        // A line that is too long for an entry is no name.
        if line.len() > self.limit || line.contains(&b'=') {
            return Next::Field(end as u64 + 1);
        }
        match bytes.get(end + 1..).and_then(|rest| rest.first_chunk::<LENGTH>()) {
            Some(length) => {
                // With the line feed after the value.
                let value = u64::from_le_bytes(*length).saturating_add(1);
                let end = value.saturating_add((end + 1 + LENGTH) as u64);
                self.end = Some(end);
                Next::Field(end)
            }
            None => Next::Unknown,
        }
    }

    /// Returns the first bytes of an entry that is too long, whose next field is dropped.
    fn too_long(&mut self, bytes: &[u8], after: After) -> Result<Option<Piece>, String> {
        let range = self.start..self.start + KEPT.min(self.limit);
        if range.end > bytes.len() {
            return self.incomplete(bytes, after);
        }
        self.lost = Lost::Fields;
        self.begin(self.at);
        Ok(Some(Piece { range, too_long: true }))
    }

    /// Waits for more bytes, unless there are none.
    fn incomplete(&mut self, bytes: &[u8], after: After) -> Result<Option<Piece>, String> {
        if after != After::End || self.lost != Lost::Nothing || self.start >= bytes.len() {
            return Ok(None);
        }
        if self.at < bytes.len() {
            return Err("is cut off: the stream ended within it".to_owned());
        }
        // The last entry of a stream may have no empty line after it.
        let range = self.start..self.at - 1;
        self.begin(self.at);
        Ok(Some(Piece { range, too_long: false }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use thalweg_config::ByteSize;
    use thalweg_config::testing::options;

    use crate::stream_framing::StreamFraming;
    use crate::testing::cut_texts;

    fn cut(limit: usize, input: &[u8], size: usize) -> (Vec<String>, Option<String>) {
        let framing: StreamFraming = options("by: journal");
        cut_texts(framing.begin(ByteSize(limit as u64), false), limit, input, size)
    }

    /// Cuts the input in pieces of every size. The result must always be the same.
    fn all(limit: usize, input: &[u8]) -> (Vec<String>, Option<String>) {
        let whole = cut(limit, input, input.len());
        for chunk in 1..input.len() {
            assert_eq!(cut(limit, input, chunk), whole, "in pieces of {chunk}");
        }
        whole
    }

    #[test]
    fn an_entry_ends_with_an_empty_line_that_is_in_no_value() {
        let (found, wrong) = all(100, b"\nA=1\nB=2\n\nM\n\x04\0\0\0\0\0\0\0a\n\nb\nC=\n\n\nD=3\n");
        assert_eq!(found, ["A=1\nB=2", "M\n\u{4}\0\0\0\0\0\0\0a\n\nb\nC=", "D=3"]);
        assert_eq!(wrong, None);
        assert_eq!(all(100, b""), (vec![], None));
    }

    #[test]
    fn an_entry_that_is_too_long_is_passed_over_with_all_its_fields() {
        let long = "x".repeat(50);
        for input in [
            "A=1234567\nB=2\n\nC=1\n\n".to_owned(),
            format!("A=1234567\nB={long}\nD=4\n\nC=1\n\n"),
            format!("A=1234567{long}\nM\n\x02\0\0\0\0\0\0\0\n\n\n\nC=1\n\n"),
            format!("A=1234567\nM\n\x32\0\0\0\0\0\0\0{long}\nM\n\x02\0\0\0\0\0\0\0\n\n\n\nC=1\n\n"),
        ] {
            let (found, wrong) = all(9, input.as_bytes());
            assert_eq!((found, wrong), (vec!["A=1234567…".to_owned(), "C=1".to_owned()], None), "{input:?}");
        }
        assert_eq!(all(9, b"A=1234567\n\n").0, ["A=1234567"]);
    }

    /// The name was searched again for each byte of the value.
    #[test]
    fn a_value_that_arrives_slowly_after_a_long_name_is_read_in_linear_time() {
        const SIZE: usize = 2 << 20;
        let (name, value) = ("M".repeat(SIZE), "x".repeat(SIZE));
        let mut input = format!("{name}\n").into_bytes();
        input.extend_from_slice(&(SIZE as u64).to_le_bytes());
        input.extend_from_slice(format!("{value}\n\nA=1\n\n").as_bytes());
        let (found, wrong) = cut(2 * SIZE + 100, &input, 1);
        assert_eq!((found.len(), found[1].as_str(), wrong), (2, "A=1", None));
        assert!(found[0].starts_with(&name) && found[0].ends_with(&value));
    }

    #[test]
    fn what_cannot_be_understood_ends_the_stream_with_a_reason() {
        for (input, reason) in [
            (&b"A=1\nB"[..], "is cut off: the stream ended within it"),
            (b"M\n\x09\0\0\0\0\0\0\0abc\n", "is cut off: the stream ended within it"),
            (b"M\n\x02\0\0\0\0\0\0\0abc\n\n", "has a field whose length is wrong"),
        ] {
            assert_eq!(all(100, input), (vec![], Some(reason.to_owned())));
        }
    }

    proptest! {
        #[test]
        fn entries_that_are_written_are_found(
            entries in prop::collection::vec(prop::collection::vec(("[A-Z]{1,3}", "[a-z=\n]{0,8}"), 1..4), 0..6),
            chunk in 1..40usize,
        ) {
            let field = |(name, value): &(String, String)| match value.contains('\n') {
                false => format!("{name}={value}\n"),
                true => format!("{name}\n{}\0\0\0\0\0\0\0{value}\n", char::from(value.len() as u8)),
            };
            let texts: Vec<String> = entries.iter().map(|fields| fields.iter().map(field).collect()).collect();
            let input: String = texts.iter().map(|text| format!("{text}\n")).collect();
            let expected: Vec<String> = texts.iter().map(|text| text[..text.len() - 1].to_owned()).collect();
            prop_assert_eq!(cut(100, input.as_bytes(), chunk), (expected, None));
        }

        #[test]
        fn any_bytes_in_any_pieces_give_the_same_and_no_panic(
            input in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'='), 0..6u8, any::<u8>()], 0..80),
            chunk in 1..20usize, limit in 1..20usize,
        ) {
            prop_assert_eq!(cut(limit, &input, chunk), cut(limit, &input, input.len()));
        }
    }
}

//! The header of an object, read before a run, so that a mistake in the name of a column is found at once.

use std::io::{Cursor, Read};

use thalweg_codec::charset::Charset;
use thalweg_codec::csv::{RecordPosition, Records, names};
use thalweg_codec::decompress::Decoder;
use thalweg_store::Object;

use super::Csv;

/// The number of bytes that are read at the beginning of an object, and after decompression.
const MOST: usize = 64 << 10;

impl Csv {
    /// Sets the character between values.
    #[must_use]
    pub fn with_delimiter(mut self, delimiter: String) -> Self {
        self.options.delimiter = delimiter;
        self
    }

    /// Sets the character set. An unknown one is a mistake of the configuration, and is ignored here.
    #[must_use]
    pub fn with_charset(mut self, name: &str) -> Self {
        self.charset = Charset::try_from(name.to_owned()).unwrap_or_default();
        self
    }

    /// Returns the names of the columns of an object, if its first 64 KiB tell them. A failure is not an
    /// error here: the run reports it.
    pub async fn columns_of(&self, object: &Object) -> Option<Vec<String>> {
        if !self.columns.is_empty() {
            return Some(self.columns.to_vec());
        }
        let mut head = vec![0; usize::try_from(object.size()).unwrap_or(MOST).min(MOST)];
        object.read(0, &mut head).await.ok()?;
        self.columns_in(head, object.size() <= MOST as u64)
    }

    /// Returns the names of the columns in the header at the beginning of `head`. `is_all`: nothing follows.
    fn columns_in(&self, mut head: Vec<u8>, mut is_all: bool) -> Option<Vec<String>> {
        if let Some(format) = self.compression.of(head.get(..4).unwrap_or(&head)).flatten() {
            let mut text = Vec::new();
            // The data breaks off where the head does, which is an error.
            let read = Decoder::new(format, Cursor::new(head)).take(MOST as u64).read_to_end(&mut text);
            is_all &= read.is_ok() && text.len() < MOST;
            head = text;
        }
        let dialect = self.options.dialect(&self.quote);
        let (_, charset) = self.charset.after_mark(&head, is_all)?;
        let records = Records::new(dialect, self.max_message_bytes, RecordPosition::default());
        let mut records = records.reading(charset);
        let searched = records.searched(&head, is_all);
        let record = records.next(&searched, is_all).filter(|record| record.fault.is_none())?;
        let mut header = Vec::new();
        charset.decode_onto(head.get(records.in_buffer(&record.range))?, &mut header).ok()?;
        names(dialect, &header, self.max_columns.max(1), &mut String::new()).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_header_is_read_if_it_is_complete() {
        let csv = Csv::default().with_delimiter(";".to_owned());
        let columns = |head: &[u8], is_all| csv.columns_in(head.to_vec(), is_all);
        let expected = Some(vec!["a".to_owned(), "b c".to_owned()]);
        assert_eq!(columns(b"a;\"b c\"\n1;2\n", false), expected);
        assert_eq!(columns(b"a;b c", true), expected);
        assert_eq!(columns(b"a;b c", false), None);
        assert_eq!(columns(b"", true), None);
        let csv = Csv::default().with_charset("utf-16");
        assert_eq!(csv.columns_in(b"\xfe\xff\0a\0,\0b\0\n".to_vec(), false).unwrap(), ["a", "b"]);
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packed.write_all(b"a;b c\n").unwrap();
        packed.write_all(&vec![b'1'; 100_000]).unwrap();
        let packed = packed.finish().unwrap();
        assert_eq!(columns(&packed, true), expected);
    }
}

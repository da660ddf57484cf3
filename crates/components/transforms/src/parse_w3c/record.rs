//! The values of a line.

use arrow_array::{Array, BinaryViewArray};
use memchr::memchr;
use thalweg_codec::columns::{Columns, FieldType, missing};
use thalweg_codec::csv::Dialect;

use crate::quoted::hexadecimal;
use crate::text_parser::push;

/// Returns the types of the fields that are known.
pub(super) fn types(is_cloudfront: bool) -> impl Iterator<Item = (&'static str, FieldType)> {
    let numbers = [
        "sc-status",
        "sc-substatus",
        "sc-win32-status",
        "sc-bytes",
        "cs-bytes",
        "bytes",
        "s-port",
        "c-port",
        "sc-content-len",
        "sc-range-start",
        "sc-range-end",
    ];
    // IIS counts milliseconds, CloudFront writes seconds with a fraction.
    let taken = if is_cloudfront { FieldType::Float } else { FieldType::Int };
    let others =
        [("time", FieldType::Timestamp), ("time-taken", taken), ("time-to-first-byte", FieldType::Float)];
    numbers.into_iter().map(|name| (name, FieldType::Int)).chain(others)
}

/// Reads the values of lines.
pub(super) struct Records {
    dialect: Dialect,
    is_encoded: bool,
    /// A value with doubled quotes.
    unquoted: String,
    /// A value without escapes.
    decoded: Vec<u8>,
    date: String,
    time: String,
}

impl Records {
    pub(super) fn new(is_cloudfront: bool) -> Self {
        let (delimiter, quote) = if is_cloudfront { (b'\t', None) } else { (b' ', Some(b'"')) };
        Self {
            dialect: Dialect { delimiter, quote, trim: false, flexible: false },
            is_encoded: is_cloudfront,
            unquoted: String::new(),
            decoded: Vec::new(),
            date: String::new(),
            time: String::new(),
        }
    }

    /// Parses the lines of a batch into the columns. `field` is the name of the input column.
    pub(super) fn read(&mut self, input: &BinaryViewArray, field: &str, columns: &mut Columns) {
        let find = |name: &str| (0..columns.len()).find(|&column| columns.name(column) == Some(name));
        let clock = find("date").zip(find("time"));
        columns.begin(input.data_buffers(), input.len());
        for row in 0..input.len() {
            let parsed = match input.is_null(row) {
                true => Err(missing(field)),
                false => self.line(input.value(row), clock, columns),
            };
            if let Err(reason) = parsed {
                columns.fail(row, reason);
            }
            columns.end(row);
        }
    }

    /// Parses a line. `clock` is the numbers of the columns of date and time.
    fn line(
        &mut self,
        line: &[u8],
        clock: Option<(usize, usize)>,
        columns: &mut Columns,
    ) -> Result<(), String> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let text = simdutf8::basic::from_utf8(line).map_err(|_| thalweg_codec::not_utf8(line))?;
        let Self { dialect, is_encoded, unquoted, decoded, date, time } = self;
        let expected = columns.len();
        let mut misfit = None;
        let count = dialect.split(text, unquoted, |column, piece| {
            if column >= expected || misfit.is_some() {
                return;
            }
            let piece = if *is_encoded { percent_decoded(piece, decoded) } else { piece };
            if clock.is_some_and(|(date, _)| date == column) {
                piece.clone_into(date);
            }
            if clock.is_some_and(|(_, time)| time == column) {
                return piece.clone_into(time);
            }
            misfit = push(columns, column, piece).err();
        })?;
        if count != expected {
            let s = if count == 1 { "" } else { "s" };
            return Err(format!("has {count} value{s} for {expected} fields"));
        }
        misfit.map_or(Ok(()), Err)?;
        if let Some((_, column)) = clock
            && date != "-"
            && time != "-"
        {
            date.push('T');
            date.push_str(time);
            columns.push(column, date)?;
        }
        Ok(())
    }
}

/// Returns a text whose bytes may be written as `%20`. A text whose bytes are not UTF-8 then is unchanged.
fn percent_decoded<'a>(text: &'a str, decoded: &'a mut Vec<u8>) -> &'a str {
    let bytes = text.as_bytes();
    let Some(mut next) = memchr(b'%', bytes) else { return text };
    decoded.clear();
    let mut start = 0;
    while next < bytes.len() {
        decoded.extend_from_slice(bytes.get(start..next).unwrap_or_default());
        start = match hexadecimal(bytes, next + 1) {
            Some(byte) => {
                decoded.push(byte);
                next + 3
            }
            None => {
                decoded.push(b'%');
                next + 1
            }
        };
        let rest = bytes.get(start..).unwrap_or_default();
        next = start + memchr(b'%', rest).unwrap_or(rest.len());
    }
    decoded.extend_from_slice(bytes.get(start..).unwrap_or_default());
    std::str::from_utf8(decoded).unwrap_or(text)
}

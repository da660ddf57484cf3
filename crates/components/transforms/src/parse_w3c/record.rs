//! The values of a line.

use arrow_array::{Array, BinaryViewArray};
use memchr::{memchr, memchr2};
use thalweg_codec::columns::{Columns, FieldType, missing};
use thalweg_codec::csv::Dialect;

use crate::quoted::hexadecimal;
use crate::text_parser::push;

/// Returns the types of the fields that are known.
pub(super) fn types() -> impl Iterator<Item = (&'static str, FieldType)> {
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
    // IIS counts milliseconds. Others write seconds with a fraction, as the specification says.
    let others = [
        ("time", FieldType::Timestamp),
        ("time-taken", FieldType::Float),
        ("time-to-first-byte", FieldType::Float),
    ];
    numbers.into_iter().map(|name| (name, FieldType::Int)).chain(others)
}

/// The fields that CloudFront copies from URLs. Their escapes are those of the client: of `a=1%26b`, nothing
/// but `a` is a key.
const URLS: [&str; 2] = ["cs-uri-query", "cs(Referer)"];

/// Reads the values of lines.
pub(super) struct Records {
    dialect: Dialect,
    is_cloudfront: bool,
    /// For each column: true if its values are decoded.
    is_encoded: Vec<bool>,
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
            is_cloudfront,
            is_encoded: Vec::new(),
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
        let is_encoded = |column| columns.name(column).is_some_and(|name| !URLS.contains(&name));
        self.is_encoded = (0..columns.len()).map(|column| self.is_cloudfront && is_encoded(column)).collect();
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

    /// Returns the syntax of a line. Values are separated by what comes first, a space or a tab: the first
    /// value is mostly a date. IIS quotes nothing, so quotes count only if they lead to the right number of
    /// values, or if the line without them does not have it either.
    fn dialect(&mut self, text: &str, expected: usize) -> Dialect {
        let bytes = text.as_bytes();
        if self.is_cloudfront {
            return self.dialect;
        }
        let first = memchr2(b' ', b'\t', bytes).and_then(|at| bytes.get(at));
        let quoted = Dialect { delimiter: *first.unwrap_or(&b' '), ..self.dialect };
        if memchr(b'"', bytes).is_none() {
            return quoted;
        }
        let plain = Dialect { quote: None, ..quoted };
        let mut fits = |dialect: Dialect| dialect.split(text, &mut self.unquoted, |_, _| {}) == Ok(expected);
        if !fits(quoted) && fits(plain) { plain } else { quoted }
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
        let expected = columns.len();
        let dialect = self.dialect(text, expected);
        let Self { is_encoded, unquoted, decoded, date, time, .. } = self;
        let mut misfit = None;
        let count = dialect.split(text, unquoted, |column, piece| {
            if column >= expected || misfit.is_some() {
                return;
            }
            let is_encoded = is_encoded.get(column) == Some(&true);
            let piece = if is_encoded { percent_decoded(piece, decoded) } else { piece };
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

//! The rows of tables that are text: CSV and JSON Lines.
//!
//! The parsers of `parse_csv` and `parse_json` make columns of the rows, as they do of messages. A row that
//! cannot be parsed makes the table unusable. To leave it out was rejected: its messages would silently not
//! find it.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{RecordBatch, UInt64Array};
use arrow_buffer::Buffer;
use arrow_schema::ArrowError;
use memchr::memchr;
use thalweg_codec::columns::{Columns, FieldType, Typing, unknown_types};
use thalweg_codec::csv::{Dialect, Fault, Record, RecordPosition, Records, names};
use thalweg_codec::framing::DEFAULT_LIMIT;
use thalweg_codec::json_columns::{JsonColumns, Nulls, Wanted};
use thalweg_record::{Ack, Batch, ERROR_REASON, Meta, Output, Outputs, PAYLOAD, ViewBuilder};

use super::unusable::Unusable;

/// The maximum number of columns of a table.
const MOST_COLUMNS: usize = 4096;
/// The maximum number of rows in a piece, and of its values.
const ROWS: usize = 1 << 16;
const VALUES: usize = 1 << 20;

/// Reads a text in pieces.
pub(super) struct Text<'t> {
    pub(super) path: &'t Path,
    pub(super) bytes: Buffer,
    pub(super) types: &'t BTreeMap<String, FieldType>,
}

/// Receives the rows of a piece.
type Each<'e> = dyn FnMut(&RecordBatch) -> Result<(), Unusable> + 'e;

impl Text<'_> {
    /// Reads comma-separated values, whose first record names the columns.
    pub(super) fn csv(
        &self,
        delimiter: u8,
        null_values: Option<&[String]>,
        each: &mut Each<'_>,
    ) -> Result<(), Unusable> {
        let dialect = Dialect { delimiter, quote: Some(b'"'), trim: false, flexible: false };
        let mut records = Records::new(dialect, DEFAULT_LIMIT, RecordPosition::default());
        let mut scratch = String::new();
        let names = self.names(dialect, &mut records)?;
        if let Some(mistake) = unknown_types(self.types, names.iter().map(String::as_str)).next() {
            return Err(Unusable::new("types", mistake.message));
        }
        let mut columns = Columns::new(Typing::new(self.types, null_values), &names);
        let most = (VALUES / names.len().max(1)).clamp(1, ROWS);
        let mut out = Outputs::new("table".into());
        loop {
            let mut piece = Piece::new(self, most);
            while piece.rows() < most
                && let Some(record) = records.next(&self.bytes, true)
            {
                self.faultless(&record)?;
                piece.push(record.range.start, record.range.len(), record.line)?;
            }
            let is_last = piece.rows() < most;
            let batch = piece.finish().map_err(|error| self.broken(&error))?;
            let input = batch.payload().clone();
            dialect.rows(&input, PAYLOAD, &mut columns, &mut scratch);
            columns.finish(batch, &mut out).map_err(|error| self.broken(&error))?;
            self.give(&mut out, each)?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// Returns the names of the columns, from the first record.
    fn names(&self, dialect: Dialect, records: &mut Records) -> Result<Vec<String>, Unusable> {
        let Some(record) = records.next(&self.bytes, true) else {
            return Err(self.at(1, "there is no header, which names the columns"));
        };
        self.faultless(&record)?;
        let header = self.bytes.get(record.range).unwrap_or_default();
        let mut scratch = String::new();
        let text = std::str::from_utf8(header).unwrap_or_default();
        if let Ok(found) = dialect.split(text, &mut scratch, |_, _| {})
            && found > MOST_COLUMNS
        {
            return Err(
                self.at(record.line, &format!("the header has {found} columns, more than {MOST_COLUMNS}"))
            );
        }
        names(dialect, header, MOST_COLUMNS, &mut scratch)
            .map_err(|reason| self.at(record.line, &format!("the header cannot be used: {reason}")))
    }

    fn faultless(&self, record: &Record) -> Result<(), Unusable> {
        let reason = match record.fault {
            None => return Ok(()),
            Some(Fault::TooLong) => "the record has more than 1 MiB, or a quote that is not closed",
            Some(Fault::NotClosed) => "a quote is not closed",
        };
        Err(self.at(record.line, reason))
    }

    /// Reads JSON objects, one in each line. `needed` are the members to read, or all.
    pub(super) fn json_lines(
        &self,
        needed: Option<HashSet<String>>,
        memory: usize,
        each: &mut Each<'_>,
    ) -> Result<(), Unusable> {
        let wanted = Wanted {
            fields: needed,
            types: self.types.clone(),
            flatten: false,
            prefix: String::new(),
            nulls: Nulls::Omit,
            max_fields: MOST_COLUMNS,
        };
        let mut parser = JsonColumns::new(wanted).within(memory);
        let mut out = Outputs::new("table".into());
        let (mut at, mut line) = (if self.bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 }, 0);
        while at < self.bytes.len() {
            let mut piece = Piece::new(self, ROWS);
            if line == 0 && self.is_array() {
                return Err(self.at(1, "it begins a JSON array").help("Write one object in each line."));
            }
            while piece.rows() < ROWS
                && let Some(rest) = self.bytes.get(at..).filter(|rest| !rest.is_empty())
            {
                let length = memchr(b'\n', rest).unwrap_or(rest.len());
                line += 1;
                if !rest.get(..length).unwrap_or_default().trim_ascii().is_empty() {
                    piece.push(at, length, line)?;
                }
                at += length + 1;
            }
            let mut rest = Some(piece.finish().map_err(|error| self.broken(&error))?);
            while let Some(batch) = rest.filter(|batch| batch.rows() > 0) {
                let parsed = parser.parse(batch, &mut out, |batch| Some(batch.payload().clone()));
                let parsed = parsed.map_err(|error| self.broken(&error))?;
                out.send(parsed.batch);
                self.give(&mut out, each)?;
                rest = parsed.rest;
            }
        }
        Ok(())
    }

    /// True if the text is not lines, but one array: a row is an object.
    fn is_array(&self) -> bool {
        let text = self.bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&self.bytes);
        text.trim_ascii_start().starts_with(b"[")
    }

    /// Passes on the rows that a parser made. Fails if it rejected one.
    fn give(&self, out: &mut Outputs, each: &mut Each<'_>) -> Result<(), Unusable> {
        for (output, batch) in out.take() {
            if output == Output::Main {
                each(batch.fields())?;
                continue;
            }
            let reasons = batch.column(ERROR_REASON);
            let reason = reasons.as_ref().and_then(|reasons| reasons.as_string_opt::<i32>());
            let reason = reason.and_then(|reasons| reasons.iter().next().flatten());
            let line = batch.positions().and_then(|lines| lines.values().first().copied());
            return Err(self.at(line.unwrap_or_default(), reason.unwrap_or("it cannot be parsed")));
        }
        Ok(())
    }

    fn at(&self, line: u64, reason: &str) -> Unusable {
        Unusable::at(self.path, &format!("line {line}"), reason)
    }

    /// Arrow's own error: none is known.
    fn broken(&self, error: &ArrowError) -> Unusable {
        Unusable::at(self.path, "its rows do not fit together", &error.to_string())
    }
}

/// Rows of a text that are parsed together.
struct Piece<'t> {
    text: &'t Text<'t>,
    rows: ViewBuilder,
    lines: Vec<u64>,
}

impl<'t> Piece<'t> {
    fn new(text: &'t Text<'t>, most: usize) -> Self {
        let rows = ViewBuilder::over(std::slice::from_ref(&text.bytes), most.min(1024));
        Self { text, rows, lines: Vec::new() }
    }

    fn rows(&self) -> usize {
        self.lines.len()
    }

    fn push(&mut self, start: usize, length: usize, line: u64) -> Result<(), Unusable> {
        if !self.rows.push_range(0, start, length) {
            return Err(self.text.at(line, "the file has more than 4 GiB; make a Parquet file of it"));
        }
        self.lines.push(line);
        Ok(())
    }

    fn finish(self) -> Result<Batch, ArrowError> {
        let meta = Meta { source: "table".into(), path: None, sequence: None, time_us: 0, number: 0 };
        Batch::new(self.rows.finish(), Arc::new(meta), Ack::noop())
            .with_positions(UInt64Array::from(self.lines))
    }
}

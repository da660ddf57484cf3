//! Reads the records of files of comma-separated values as messages with fields.
//!
//! The transform `parse_csv` parses messages that are records already. They come from sources that end a
//! message at each line feed. This file reader sees the whole file, so a record may contain line feeds within
//! quotes. It also knows where each file begins, so headers need not be assigned by path and position.
//!
//! See docs/decisions/020-file-readers-checkpoint-within-a-file.md.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{BinaryViewArray, UInt64Array};
use arrow_buffer::Buffer;
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_config::{ByteSize, List};
use thalweg_engine::{
    Checkpoint, Component, Context, Error, FileError, FileReader, FileReaderConfig, Mistake, Reading,
    Received, SourceOutput,
};
use thalweg_record::{Ack, Batch, File, Meta, PAYLOAD, ViewBuilder, all_but};

use crate::plain::Plain;
use thalweg_codec::charset::Charset;
use thalweg_codec::columns::{Columns, shortened};
use thalweg_codec::csv::{CsvOptions, Dialect, Fault, Record, RecordPosition, Records, names};
use thalweg_codec::decompress::Compression;
use thalweg_codec::framing::{DEFAULT_LIMIT, check_limit};
use thalweg_stream::arenas::Arenas;

#[cfg(feature = "stores")]
mod header;
#[cfg(test)]
mod tests;

/// Reads files of comma-separated values. Each record becomes a message with fields.
///
/// The first record of each file names the columns, unless `columns` does. A value in quotes may contain line
/// feeds. The payload is the record as it is in the file. Compressed files (gzip, zstd) are recognised. Empty
/// lines are skipped.
///
/// A malformed record leaves by the `errors` output, with its line number, and reading continues after it. A
/// record is malformed if it has too few or too many values, a value that does not fit its type, or a quote
/// that is not closed.
///
/// A file is acknowledged when all its messages are. A file goes to the dead letters if its header cannot be
/// read, or if it cannot be read to its end.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Csv {
    /// The names of the columns, in order. By default the first record of each file names them.
    columns: List<String>,
    /// True if the first record of each file is a header, which does not become a message. The default is
    /// `true` without `columns`, and `false` with them. With both, the header is skipped and `columns` gives
    /// the names.
    header: Option<bool>,
    /// The maximum number of columns in a header. A file with more goes to the dead letters. The default is
    /// 4096.
    #[schemars(range(min = 1))]
    max_columns: usize,
    /// The character around values that contain the delimiter or a line feed: one ASCII character, or empty
    /// for none. Within quotes, two of it are the character itself. The default is `"`.
    quote: String,
    #[serde(flatten)]
    options: CsvOptions,
    /// How the files are compressed: `auto` (the default) detects it from the first bytes of each file.
    compression: Compression,
    /// The character set of the files, such as `latin1` (as `windows-1252`), `utf-16` or `shift_jis`. The
    /// order of the bytes of `utf-16` is that of the byte order mark, and little-endian without one;
    /// `utf-16le` and `utf-16be` name it. Messages are in UTF-8: a record that is not valid leaves by the
    /// `errors` output. `max_message_bytes` is the size before. The default is `utf-8`, which is passed on as
    /// it is. A byte order mark at the start is removed.
    charset: Charset,
    /// The maximum size of a record, at most 1 GiB. The default is 1 MiB. Of a longer record, the first line
    /// leaves by the `errors` output (at most 4 KiB of it, if the line is too long as well). Reading
    /// continues at the next line.
    max_message_bytes: ByteSize,
}

impl Default for Csv {
    fn default() -> Self {
        Self {
            columns: List::default(),
            header: None,
            max_columns: 4096,
            quote: "\"".to_owned(),
            options: CsvOptions::default(),
            compression: Compression::Auto,
            charset: Charset::default(),
            max_message_bytes: DEFAULT_LIMIT,
        }
    }
}

impl Component for Csv {
    const NAME: &'static str = "csv";
    const EXAMPLE: &'static str = r#"
sources:
  tables: { files: { path: "tables/**/*.csv*" } }
pipelines:
  main:
    from: tables
    transforms:
      - csv: { types: { age: int, height: float } }
    to: all
sinks:
  all: { file: { path: out/all.jsonl, encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.options.mistakes(&self.columns, &self.quote);
        if self.columns.is_empty() && self.header == Some(false) {
            let help =
                "List them in `columns`, or leave `header` out if the first record of each file names them.";
            mistakes.push(Mistake::new("header", "The columns have no names.").help(help));
        }
        mistakes.extend(check_limit(self.max_message_bytes));
        mistakes
    }
}

impl FileReaderConfig for Csv {
    fn build(&self, context: &Context) -> Result<Box<dyn FileReader>, Error> {
        Ok(Box::new(Table {
            dialect: self.options.dialect(&self.quote),
            arenas: Arenas::new(context.batch_bytes),
            columns: Columns::new(self.options.typing(), &self.columns),
            names: self.columns.to_vec(),
            awaits_header: false,
            charset: self.charset,
            scratch: String::new(),
            lines: Vec::new(),
            keeps_checkpoints: false,
            memory: context.memory.budget().limit(),
            values: LARGEST * context.batch_bytes / VALUE,
            unsaved: 0,
            config: self.clone(),
        }))
    }
}

/// The offset in a partly read file, as a checkpoint: a later run resumes there.
#[derive(Serialize, Deserialize)]
struct Saved {
    #[serde(flatten)]
    position: RecordPosition,
    columns: Vec<String>,
    /// True if a byte order mark tells that the units of `utf-16` begin with their high byte.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    big_endian: bool,
}

/// Reads files, one after the other.
struct Table {
    config: Csv,
    dialect: Dialect,
    arenas: Arenas,
    /// The columns of the current file, and their names. Files with the same header share them.
    columns: Columns,
    names: Vec<String>,
    /// True if the next record is the header.
    awaits_header: bool,
    /// The character set of the current file, in the order of bytes that its byte order mark tells.
    charset: Charset,
    scratch: String,
    /// The line number at which each record of a batch begins.
    lines: Vec<u64>,
    /// True if the offsets in the current file are saved as checkpoints.
    keeps_checkpoints: bool,
    /// The whole budget, in bytes.
    memory: usize,
    /// The maximum number of values in a batch: rows times columns.
    values: usize,
    /// The number of records since the last checkpoint.
    unsaved: usize,
}

/// The maximum size of the columns of a batch, as a multiple of the size of a batch, and the size of a value
/// in them. A short record takes a place in every column.
const LARGEST: usize = 8;
const VALUE: usize = 16;

/// The maximum number of records in a batch. With its columns, a batch is several times as large as its
/// records in the file, and several batches are always in flight. Four times as many records used a tenth
/// more memory and saved no time.
const ROWS: usize = 4096;

/// With this many bytes of text that had to be decoded, a batch is complete. They count on the budget only
/// when the batch is sent.
const DECODED: usize = 256 << 10;

/// Records out of a buffer.
struct Taken {
    payload: ViewBuilder,
    positions: Vec<u64>,
    /// The record after these, if it cannot be used, and the reason.
    faulty: Option<(Record, String)>,
    /// True if the buffer may contain more records.
    is_full: bool,
    /// Where to resume after these records.
    next: RecordPosition,
}

impl Taken {
    fn over(buffer: &Buffer, next: RecordPosition) -> Self {
        Self {
            payload: ViewBuilder::over(std::slice::from_ref(buffer), 64),
            positions: Vec::with_capacity(64),
            faulty: None,
            is_full: true,
            next,
        }
    }
}

#[async_trait]
impl FileReader for Table {
    async fn unpack(&mut self, file: &mut File, out: &mut SourceOutput) -> Result<(), FileError> {
        let saved = out.saved_in_file().and_then(|saved| serde_json::from_value::<Saved>(saved).ok());
        self.keeps_checkpoints = out.keeps_checkpoints();
        let from = saved.as_ref().map_or_else(RecordPosition::default, |saved| saved.position);
        let mut plain = Plain::open(file, self.config.compression, from.offset, self.memory, out)?;
        self.charset = self.config.charset.ordered(saved.as_ref().is_some_and(|saved| saved.big_endian));
        match saved {
            Some(saved) => {
                self.awaits_header = false;
                self.name_columns(saved.columns);
            }
            None => self.awaits_header = self.config.header.unwrap_or(self.config.columns.is_empty()),
        }
        let mut records = (from.offset > 0).then(|| self.records(from));
        loop {
            let buffer = plain.more(&mut self.arenas, out).await;
            let records = match &mut records {
                Some(records) => records,
                None => match self.charset.after_mark(&buffer, plain.is_end()) {
                    Some((_, charset)) => {
                        self.charset = charset;
                        records.insert(self.records(from))
                    }
                    None => {
                        plain.check()?;
                        plain.carry(&buffer);
                        continue;
                    }
                },
            };
            self.send(&buffer, plain.is_end(), records, out).await?;
            plain.check()?;
            if plain.is_end() {
                return Ok(());
            }
            let done = records.advance();
            plain.carry(buffer.get(done..).unwrap_or_default());
        }
    }
}

impl Table {
    /// Finds the records of the current file from a position on.
    fn records(&self, from: RecordPosition) -> Records {
        Records::new(self.dialect, self.config.max_message_bytes, from).reading(self.charset)
    }

    /// Sends the records in a buffer, in batches.
    async fn send(
        &mut self,
        buffer: &Buffer,
        is_end: bool,
        records: &mut Records,
        out: &mut SourceOutput,
    ) -> Result<(), FileError> {
        let searched = records.searched(buffer, is_end);
        let _claimed = matches!(searched, Cow::Owned(_)).then(|| out.claim(searched.len()));
        loop {
            let Taken { payload, positions, faulty, is_full, next } =
                self.take(buffer, &searched, is_end, records)?;
            if !positions.is_empty() {
                self.unsaved += positions.len();
                // A checkpoint has the names of all columns, so it is not made for each batch of few records.
                let is_due = self.unsaved >= ROWS || !is_full;
                let checkpoint = if is_due { self.checkpoint(next) } else { None };
                self.unsaved = if is_due { 0 } else { self.unsaved };
                let reading = Reading { checkpoint, ..reading(payload, positions) };
                self.parse(reading, out).await?;
            }
            match faulty {
                Some((record, cause)) => {
                    let position = records.offset_of(record.range.start);
                    let mut copy = ViewBuilder::over(&[], 1);
                    copy.push(raw(buffer, records.in_buffer(&record.range)));
                    let reason = format!("line {}: {cause}; reading continues at the next line", record.line);
                    let checkpoint = self.checkpoint(records.position());
                    out.reject(Reading { checkpoint, ..reading(copy, vec![position]) }, &reason).await?;
                }
                None if is_full => {}
                None => return Ok(()),
            }
        }
    }

    /// Takes the records of a batch out of a buffer, in UTF-8.
    fn take(
        &mut self,
        buffer: &Buffer,
        searched: &[u8],
        is_end: bool,
        records: &mut Records,
    ) -> Result<Taken, FileError> {
        self.lines.clear();
        let mut taken = Taken::over(buffer, records.position());
        let mut decoded = 0;
        while taken.positions.len() < self.most_rows() && decoded < DECODED {
            let Some(record) = records.next(searched, is_end) else {
                taken.is_full = false;
                break;
            };
            let text = raw(buffer, records.in_buffer(&record.range));
            if std::mem::take(&mut self.awaits_header) {
                self.learn(text, record.fault)?;
                continue;
            }
            if let Some(fault) = record.fault {
                taken.faulty = Some((record, self.explain(fault)));
                break;
            }
            match self.charset.push(text, &mut taken.payload) {
                Ok(true) => decoded += text.len(),
                Ok(false) => {}
                Err(reason) => {
                    taken.faulty = Some((record, reason));
                    break;
                }
            }
            taken.next = records.position();
            taken.positions.push(records.offset_of(record.range.start));
            self.lines.push(record.line);
        }
        Ok(taken)
    }

    /// Returns the maximum number of records in a batch with the present columns.
    fn most_rows(&self) -> usize {
        (self.values / self.columns.len().max(1)).clamp(1, ROWS)
    }

    /// Takes the names of the columns from a header, unless `columns` gives them.
    fn learn(&mut self, header: &[u8], fault: Option<Fault>) -> Result<(), FileError> {
        if !self.config.columns.is_empty() {
            return Ok(());
        }
        let mut decoded = Vec::new();
        let text = match self.charset.as_utf8(header) {
            Some(text) => text,
            None => {
                let wrong = |reason| FileError::rejected(format!("the header {reason}"));
                self.charset.decode_onto(header, &mut decoded).map_err(wrong)?;
                &decoded
            }
        };
        let names = match fault {
            Some(fault) => Err(self.explain(fault)),
            None => names(self.dialect, text, self.config.max_columns.max(1), &mut self.scratch),
        };
        let names = names.map_err(|reason| {
            FileError::rejected(format!("the header could not be read: {}", shortened(&reason)))
        })?;
        self.name_columns(names);
        Ok(())
    }

    /// Uses these names for the columns from here on.
    fn name_columns(&mut self, names: Vec<String>) {
        if names != self.names {
            self.columns = Columns::new(self.config.options.typing(), &names);
            self.names = names;
        }
    }

    /// Returns the checkpoint for a position, or `None` if no checkpoints are saved.
    fn checkpoint(&self, position: RecordPosition) -> Option<Checkpoint> {
        let big_endian = self.charset.is_marked() && self.charset.is_big_endian();
        let saved = Saved { position, columns: self.names.clone(), big_endian };
        serde_json::to_value(saved).ok().filter(|_| self.keeps_checkpoints).map(Checkpoint::in_file)
    }

    fn explain(&self, fault: Fault) -> String {
        let limit = self.config.max_message_bytes;
        match fault {
            Fault::NotClosed => "a quote is not closed".to_owned(),
            Fault::TooLong => format!(
                "the record is longer than `max_message_bytes` ({limit}), or a quote in it is not closed"
            ),
        }
    }

    /// Sends the records of a batch with their fields. Rejects the records that could not be parsed.
    async fn parse(&mut self, reading: Reading, out: &mut SourceOutput) -> Result<(), Error> {
        let Reading { payload, positions, checkpoint, .. } = reading;
        self.dialect.rows(&payload, PAYLOAD, &mut self.columns, &mut self.scratch);
        let batch = match positions {
            Some(positions) => nobodys(payload).with_positions(positions)?,
            None => nobodys(payload),
        };
        let (batch, failed) = self.columns.give(batch)?;
        if failed.is_empty() {
            return out.send(received(&batch, checkpoint)).await;
        }
        let (rows, reasons): (Vec<u32>, Vec<String>) = failed.into_iter().unzip();
        let line = |row: u32| self.lines.get(row as usize).copied().unwrap_or_default();
        let reasons =
            rows.iter().zip(reasons).map(|(&row, reason)| format!("line {}: {reason}", line(row))).collect();
        let wrong = copied(&batch, &rows);
        let keep = all_but(batch.rows(), rows);
        let Some(rest) = batch.filter(&keep)? else {
            return out.reject_each(Reading { checkpoint, ..wrong }, reasons).await;
        };
        // The rejected records first: what has no checkpoint belongs to the next one.
        out.reject_each(wrong, reasons).await?;
        out.send(received(&rest, checkpoint)).await
    }
}

/// Returns the bytes of a record. The last character of a file may be incomplete.
fn raw(buffer: &Buffer, range: Range<usize>) -> &[u8] {
    buffer.get(range.start..range.end.min(buffer.len())).unwrap_or_default()
}

/// Returns records without fields.
fn reading(payload: ViewBuilder, positions: Vec<u64>) -> Reading {
    Reading {
        payload: payload.finish(),
        path: None,
        positions: Some(UInt64Array::from(positions)),
        checkpoint: None,
    }
}

/// Returns a batch without an ack: the file output acknowledges its records.
fn nobodys(payload: BinaryViewArray) -> Batch {
    let meta = Meta { source: "".into(), path: None, time_us: 0, sequence: None, number: 0 };
    Batch::new(payload, Arc::new(meta), Ack::noop())
}

/// Returns the records of a batch with their fields.
fn received(batch: &Batch, checkpoint: Option<Checkpoint>) -> Received {
    let positions = batch.positions().cloned();
    let reading = Reading { payload: batch.payload().clone(), path: None, positions, checkpoint };
    Received { reading, fields: Some(batch.fields().clone()) }
}

/// Returns copies of some records, without fields. Views would keep the whole buffer in memory.
fn copied(batch: &Batch, rows: &[u32]) -> Reading {
    let mut payload = ViewBuilder::over(&[], rows.len());
    rows.iter().for_each(|&row| payload.push(batch.payload().value(row as usize)));
    let offsets = batch.positions().map(|positions| positions.values());
    let position =
        |&row: &u32| offsets.and_then(|offsets| offsets.get(row as usize)).copied().unwrap_or_default();
    reading(payload, rows.iter().map(position).collect())
}

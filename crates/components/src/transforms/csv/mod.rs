//! Files of comma-separated values as messages with fields.
//!
//! The transform `parse_csv` is for messages that are records already, and these come from sources that end a message at
//! each line feed. Whoever reads the file knows of the quotes around a line feed, so here a record may have some; and
//! that each file has a header of its own needs no telling apart by path and position.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{BinaryViewArray, UInt64Array};
use arrow_buffer::Buffer;
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_config::ByteSize;
use thalweg_engine::{
    Checkpoint, Context, Error, FileError, FileOutput, FileReader, FileReaderConfig, Mistake, Reading,
    Received,
};
use thalweg_record::{Ack, Batch, File, Meta, PAYLOAD, ViewBuilder, all_but};

use crate::shared::arenas::Arenas;
use crate::shared::columns::{Columns, FieldType, Typing, shortened};
use crate::shared::csv::{self, Dialect, Fault, RecordPosition, Records, names};
use crate::shared::decompress::Compression;
use crate::shared::framing::{DEFAULT_LIMIT, check_limit};
use crate::shared::plain::Plain;

#[cfg(test)]
mod tests;

/// Turns each file of comma-separated values into its records, each a message with fields.
///
/// The columns are named by the first record of each file, or by `columns`. A value in quotes may hold line feeds. The
/// payload is the record as it stands in the file. A record with too few or too many values, with one that is not of its
/// type or with a quote that is not closed leaves by the `errors` output with the number of its line, and the others go
/// on. Empty lines are passed over. Compressed files (gzip, zstd) are recognised.
///
/// A file is acknowledged when all its messages are. One whose header cannot be read, or that cannot be read to its
/// end, goes to the dead letters.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Csv {
    /// The names of the columns, in order. By default the first record of each file gives them.
    columns: Vec<String>,
    /// Whether the first record of each file is a header. It is no message. By default it is one where there are no
    /// `columns`; with both, it is passed over, and `columns` are the names.
    header: Option<bool>,
    /// The most columns that a header may have. A file with more goes to the dead letters.
    #[schemars(range(min = 1))]
    max_columns: usize,
    /// What stands between values: one ASCII character.
    delimiter: String,
    /// What stands around values that contain the delimiter or a line feed; doubled it means itself. One ASCII character,
    /// or empty for none.
    quote: String,
    /// The types of columns that are not text: `{age: int, height: float}`. A text that does not fit its type
    /// leaves by the `errors` output.
    types: BTreeMap<String, FieldType>,
    /// Texts that mean that there is no value. Without this option `-` and the empty text do, in columns with a
    /// type other than text.
    null_values: Option<Vec<String>>,
    /// Whether white space around values is removed.
    trim: bool,
    /// Whether values that are missing at the end are NULL, and those that are too many ignored.
    flexible: bool,
    /// How the files are compressed: as their first bytes tell (`auto`), or all in the same way.
    compression: Compression,
    /// The longest that a record may be, at most 1 GiB. Of a longer one the first line leaves by the `errors` output (4 KiB of
    /// it, if that is too long as well), and reading goes on at the next line.
    max_message_bytes: ByteSize,
}

impl Default for Csv {
    fn default() -> Self {
        Self {
            columns: Vec::new(),
            header: None,
            max_columns: 4096,
            delimiter: ",".to_owned(),
            quote: "\"".to_owned(),
            types: BTreeMap::new(),
            null_values: None,
            trim: false,
            flexible: false,
            compression: Compression::Auto,
            max_message_bytes: DEFAULT_LIMIT,
        }
    }
}

impl FileReaderConfig for Csv {
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
        let mut mistakes = csv::mistakes(&self.columns, &self.delimiter, &self.quote, &self.types);
        if self.columns.is_empty() && self.header == Some(false) {
            let help = "List them in `columns`, or leave `header` out if the first record of each file does.";
            mistakes.push(Mistake::new("header", "The columns have no names.").help(help));
        }
        mistakes.extend(check_limit(self.max_message_bytes));
        mistakes
    }

    fn build(&self, context: &Context) -> Result<Box<dyn FileReader>, Error> {
        Ok(Box::new(Table {
            dialect: Dialect::new(&self.delimiter, &self.quote, self.trim, self.flexible),
            arenas: Arenas::new(context.batch_bytes),
            columns: Columns::new(Typing::new(&self.types, self.null_values.as_deref()), &self.columns),
            names: self.columns.clone(),
            awaits_header: false,
            scratch: String::new(),
            lines: Vec::new(),
            keeps_places: false,
            memory: context.memory.budget().limit(),
            config: self.clone(),
        }))
    }
}

/// What a later run must know to go on in the middle of a file.
#[derive(Serialize, Deserialize)]
struct Saved {
    #[serde(flatten)]
    place: RecordPosition,
    columns: Vec<String>,
}

/// Reads files, one after the other.
struct Table {
    config: Csv,
    dialect: Dialect,
    arenas: Arenas,
    /// The columns of the file at hand, and their names. Files of the same header share them.
    columns: Columns,
    names: Vec<String>,
    /// Whether the next record is the header.
    awaits_header: bool,
    scratch: String,
    /// The lines on which the records of a batch begin.
    lines: Vec<u64>,
    /// Whether it is kept how far the file at hand was read.
    keeps_places: bool,
    /// The whole budget, in bytes.
    memory: usize,
}

/// How many records a batch has at most. With its columns it is several times as long as in the file, and there are always some on
/// their way: with four times as many, a run took a tenth more memory and no less time.
const ROWS: usize = 4096;

#[async_trait]
impl FileReader for Table {
    async fn unpack(&mut self, file: &mut File, out: &mut FileOutput) -> Result<(), FileError> {
        let saved = out.saved_in_file().and_then(|saved| serde_json::from_value::<Saved>(saved).ok());
        self.keeps_places = out.keeps_checkpoints();
        let from = saved.as_ref().map_or_else(RecordPosition::default, |saved| saved.place);
        let mut plain = Plain::open(file, self.config.compression, from.offset, self.memory)?;
        let mut records = Records::new(self.dialect, self.config.max_message_bytes, from);
        match saved {
            Some(saved) => {
                self.awaits_header = false;
                self.name_columns(saved.columns);
            }
            None => self.awaits_header = self.config.header.unwrap_or(self.config.columns.is_empty()),
        }
        loop {
            let buffer = plain.more(&mut self.arenas, out).await;
            self.send(&buffer, plain.is_end(), &mut records, out).await?;
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
    /// Sends the records in a buffer, in batches.
    async fn send(
        &mut self,
        buffer: &Buffer,
        is_end: bool,
        records: &mut Records,
        out: &mut FileOutput,
    ) -> Result<(), FileError> {
        loop {
            self.lines.clear();
            let mut payload = ViewBuilder::over(std::slice::from_ref(buffer), 64);
            let mut positions = Vec::with_capacity(64);
            let mut faulty = None;
            let mut is_full = true;
            let mut place = records.place();
            while positions.len() < ROWS {
                let Some(record) = records.next(buffer, is_end) else {
                    is_full = false;
                    break;
                };
                let text = buffer.get(record.range.clone()).unwrap_or_default();
                if std::mem::take(&mut self.awaits_header) {
                    self.learn(text, record.fault)?;
                    continue;
                }
                if let Some(fault) = record.fault {
                    faulty = Some((record, fault));
                    break;
                }
                place = records.place();
                positions.push(records.position(record.range.start));
                self.lines.push(record.line);
                payload.push(text);
            }
            if !positions.is_empty() {
                let reading = Reading { checkpoint: self.checkpoint(place), ..reading(payload, positions) };
                self.parse(reading, out).await?;
            }
            match faulty {
                Some((record, fault)) => {
                    let position = records.position(record.range.start);
                    let mut copy = ViewBuilder::over(&[], 1);
                    copy.push(buffer.get(record.range).unwrap_or_default());
                    let reason = format!("line {}: {}", record.line, self.explain(fault));
                    let checkpoint = self.checkpoint(records.place());
                    out.reject(Reading { checkpoint, ..reading(copy, vec![position]) }, &reason).await?;
                }
                None if is_full => {}
                None => return Ok(()),
            }
        }
    }

    /// Takes the names of the columns from a header, unless they are given.
    fn learn(&mut self, header: &[u8], fault: Option<Fault>) -> Result<(), FileError> {
        if !self.config.columns.is_empty() {
            return Ok(());
        }
        let names = match fault {
            Some(fault) => Err(self.explain(fault)),
            None => names(self.dialect, header, self.config.max_columns.max(1), &mut self.scratch),
        };
        let names = names.map_err(|reason| {
            FileError::rejected(format!("the header could not be read: {}", shortened(&reason)))
        })?;
        self.name_columns(names);
        Ok(())
    }

    /// From here on, the columns have these names.
    fn name_columns(&mut self, names: Vec<String>) {
        if names != self.names {
            let typing = Typing::new(&self.config.types, self.config.null_values.as_deref());
            self.columns = Columns::new(typing, &names);
            self.names = names;
        }
    }

    /// What to remember for a place, if anything.
    fn checkpoint(&self, place: RecordPosition) -> Option<Checkpoint> {
        let saved = Saved { place, columns: self.names.clone() };
        serde_json::to_value(saved).ok().filter(|_| self.keeps_places).map(Checkpoint::in_file)
    }

    fn explain(&self, fault: Fault) -> String {
        let limit = self.config.max_message_bytes;
        match fault {
            Fault::NotClosed => "a quote is not closed; reading goes on at the next line".to_owned(),
            Fault::TooLong => format!(
                "the record is longer than `max_message_bytes` ({limit}), or a quote in it is not closed; reading goes on \
                 at the next line"
            ),
        }
    }

    /// Sends the records of a batch with their fields, and rejects those that do not have them.
    async fn parse(&mut self, reading: Reading, out: &mut FileOutput) -> Result<(), Error> {
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
        // The others belong to the same place.
        let rest = batch.filter(&keep)?;
        let (checkpoint, of_wrong) = if rest.is_some() { (checkpoint, None) } else { (None, checkpoint) };
        if let Some(batch) = rest {
            out.send(received(&batch, checkpoint)).await?;
        }
        out.reject_each(Reading { checkpoint: of_wrong, ..wrong }, reasons).await
    }
}

/// Records without fields.
fn reading(payload: ViewBuilder, positions: Vec<u64>) -> Reading {
    Reading {
        payload: payload.finish(),
        path: None,
        positions: Some(UInt64Array::from(positions)),
        checkpoint: None,
    }
}

/// A batch that is put together here, and whose acknowledgement is the intake's business.
fn nobodys(payload: BinaryViewArray) -> Batch {
    let meta = Meta { source: "".into(), path: None, time_us: 0 };
    Batch::new(payload, Arc::new(meta), Ack::noop())
}

/// The records of a batch with their fields.
fn received(batch: &Batch, checkpoint: Option<Checkpoint>) -> Received {
    let positions = batch.positions().cloned();
    let reading = Reading { payload: batch.payload().clone(), path: None, positions, checkpoint };
    Received { reading, fields: Some(batch.fields().clone()) }
}

/// Some records without fields, as copies: the buffer is not to be kept for their sake.
fn copied(batch: &Batch, rows: &[u32]) -> Reading {
    let mut payload = ViewBuilder::over(&[], rows.len());
    rows.iter().for_each(|&row| payload.push(batch.payload().value(row as usize)));
    let places = batch.positions().map(|positions| positions.values());
    let position =
        |&row: &u32| places.and_then(|places| places.get(row as usize)).copied().unwrap_or_default();
    reading(payload, rows.iter().map(position).collect())
}

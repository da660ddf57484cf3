//! Reads the records of Avro's object container files as messages with fields.
//!
//! A container is a header with the schema, and blocks. A block is read as a whole, because it may be
//! compressed and its records can only be found one after the other. Its records leave in batches, of which
//! the last has a checkpoint: a later run resumes at the next block. It reads the header again, so a
//! checkpoint does not hold the schema.
//!
//! `thalweg_codec::avro` reads the bytes. The transform `parse_avro` parses messages that are single data.
//!
//! See docs/decisions/020-file-readers-checkpoint-within-a-file.md and
//! docs/decisions/085-avro-is-decoded-by-our-own.md.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_buffer::Buffer;
use arrow_schema::{Schema, SchemaRef};
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_codec::avro::DatumColumns;
use thalweg_codec::avro::container::{Header, check_count};
use thalweg_codec::decompress::Compression;
use thalweg_config::ByteSize;
use thalweg_engine::{
    Checkpoint, Component, Context, Error, FileError, FileReader, FileReaderConfig, Mistake, Reading,
    Received, SourceOutput,
};
use thalweg_record::{File, ViewBuilder};
use thalweg_stream::arenas::Arenas;

use crate::plain::Plain;

#[cfg(test)]
mod tests;

/// The maximum number of records in a batch, as in `csv`.
const ROWS: usize = 4096;

/// The maximum size of the columns of a batch, as a multiple of the size of a batch, and the size of a value
/// in them.
const LARGEST: usize = 8;
const VALUE: usize = 16;

/// The size that a block may have in any memory, in bytes.
const LEAST_BLOCK: usize = 1 << 20;

/// The maximum size of the payload of a rejected block, in bytes: its first bytes.
const SHOWN: usize = 4 << 10;

/// Reads files of Apache Avro (object container files, `.avro`). Each record becomes a message with fields.
///
/// The schema is in the file. The types of the fields are those of `parse_avro`: nested values are JSON text.
/// The payload is the record in Avro's binary encoding. Blocks may be compressed with `deflate`, `snappy` or
/// `zstandard`.
///
/// If a record is malformed, the rest of its block leaves by the `errors` output as one message, because the
/// next record cannot be found. Reading continues at the next block. A file goes to the dead letters if it is
/// not a container, is damaged or truncated, or has a compression that is not supported.
///
/// A file is acknowledged when all its messages are. A later run continues at the block that it was stopped
/// in.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Avro {
    /// The maximum size of a block, both as it is in the file and decompressed, at most 1 GiB. A file with a
    /// larger block goes to the dead letters. A block also has at most a quarter of `memory`, or 1 MiB. The
    /// default is 16 MiB.
    max_block_bytes: ByteSize,
}

impl Default for Avro {
    fn default() -> Self {
        Self { max_block_bytes: ByteSize(16 << 20) }
    }
}

impl Component for Avro {
    const NAME: &'static str = "avro";
    const EXAMPLE: &'static str = r#"
sources:
  readings: { files: { path: "readings/**/*.avro" } }
pipelines:
  main: { from: readings, transforms: [avro: {}], to: all }
sinks:
  all: { file: { path: out/all.jsonl, encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        match self.max_block_bytes.0 {
            1..=0x4000_0000 => Vec::new(),
            _ => {
                let message = "`max_block_bytes` must be at least 1 byte and at most 1 GiB.";
                vec![Mistake::new("max_block_bytes", message)]
            }
        }
    }
}

impl FileReaderConfig for Avro {
    fn build(&self, context: &Context) -> Result<Box<dyn FileReader>, Error> {
        let memory = context.memory.budget().limit();
        let wanted = usize::try_from(self.max_block_bytes.0).unwrap_or(usize::MAX);
        Ok(Box::new(Containers {
            arenas: Arenas::new(context.batch_bytes),
            memory,
            block: wanted.min((memory / 4).max(LEAST_BLOCK)),
            batch: LARGEST * context.batch_bytes,
            text: context.memory.budget().longest_text(),
        }))
    }
}

/// The next block of a partly read file, as a checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Saved {
    /// Its position in the file, decompressed if the file as a whole is compressed.
    offset: u64,
    /// The number of records before it.
    records: u64,
}

/// Reads files, one after the other.
struct Containers {
    arenas: Arenas,
    /// The whole budget, in bytes.
    memory: usize,
    /// The maximum size of a block, in bytes.
    block: usize,
    /// The maximum size of the columns of a batch, in bytes.
    batch: usize,
    /// The maximum size of the nested values of a record, in bytes.
    text: usize,
}

#[async_trait]
impl FileReader for Containers {
    async fn unpack(&mut self, file: &mut File, out: &mut SourceOutput) -> Result<(), FileError> {
        let saved = out.saved_in_file().and_then(|saved| serde_json::from_value(saved).ok());
        self.read(file, saved, out).await
    }
}

impl Containers {
    /// Sends the records of a file, from the saved block on.
    async fn read(
        &mut self,
        file: &File,
        saved: Option<Saved>,
        out: &mut SourceOutput,
    ) -> Result<(), FileError> {
        let mut plain = Plain::open(file, Compression::Auto, 0, self.memory, out)?;
        let mut container: Option<Container> = None;
        loop {
            let buffer = plain.more(&mut self.arenas, out).await;
            let mut used = 0;
            if container.is_none()
                && let Some(header) = Header::parse(&buffer).map_err(FileError::rejected)?
            {
                used = header.size;
                let mut opened = self.open(header, out.keeps_checkpoints());
                if let Some(saved) = saved.filter(|saved| saved.offset > opened.next.offset) {
                    plain = Plain::open(file, Compression::Auto, saved.offset, self.memory, out)?;
                    opened.next = saved;
                    container = Some(opened);
                    continue;
                }
                container = Some(opened);
            }
            if let Some(container) = &mut container {
                used += container.blocks(&buffer.slice(used), out).await?;
            }
            plain.check()?;
            let rest = buffer.get(used..).unwrap_or_default();
            if plain.is_end() {
                return ended(container.as_ref(), rest);
            }
            plain.carry(rest);
        }
    }

    fn open(&self, header: Header, keeps_checkpoints: bool) -> Container {
        let columns = DatumColumns::new(header.schema.clone()).within(self.text);
        let fields = columns.fields().to_vec();
        Container {
            rows: (self.batch / (VALUE * fields.len().max(1))).clamp(1, ROWS),
            batch: self.batch,
            block: self.block,
            next: Saved { offset: header.size as u64, records: 0 },
            schema: Arc::new(Schema::new(fields)),
            columns,
            header,
            keeps_checkpoints,
        }
    }
}

/// Checks that a file ends after its header and whole blocks.
fn ended(container: Option<&Container>, rest: &[u8]) -> Result<(), FileError> {
    match container {
        Some(_) if rest.is_empty() => Ok(()),
        Some(container) => Err(FileError::rejected(format!(
            "the file is truncated: it ends within the block at byte {}. The messages before that were sent.",
            container.next.offset
        ))),
        None if rest.is_empty() => Err(FileError::rejected("the file is not an Avro container: it is empty")),
        None => Err(FileError::rejected("the file is truncated: it ends within its header")),
    }
}

/// A file whose header was read.
struct Container {
    header: Header,
    columns: DatumColumns,
    schema: SchemaRef,
    /// The maximum number of records in a batch.
    rows: usize,
    /// The size of nested values in bytes after which a batch ends, and the maximum size of a block.
    batch: usize,
    block: usize,
    /// The next block.
    next: Saved,
    keeps_checkpoints: bool,
}

/// The records of a block that are still to be read.
struct Rest<'a> {
    data: &'a Buffer,
    /// The position of the next record.
    at: usize,
    /// The number of records.
    count: u64,
    /// The block that follows.
    after: Saved,
}

impl Container {
    /// Sends the records of all complete blocks in a buffer. Returns the size of these blocks, in bytes.
    async fn blocks(&mut self, buffer: &Buffer, out: &mut SourceOutput) -> Result<usize, FileError> {
        let mut used = 0;
        loop {
            let bytes = buffer.get(used..).unwrap_or_default();
            let found = self.header.block(bytes, self.block).map_err(|reason| self.damaged(&reason))?;
            let Some(block) = found else { return Ok(used) };
            let raw = bytes.get(block.data.clone()).unwrap_or_default();
            let unpacked = self.header.codec.decompress(raw, self.block);
            let data = match unpacked.map_err(|reason| self.damaged(&reason))? {
                Some(data) => out.share().claim(data.capacity()).freeze(data),
                None => buffer.slice_with_length(used + block.data.start, block.data.len()),
            };
            check_count(block.count, data.len()).map_err(|reason| self.damaged(&reason))?;
            let after = Saved {
                offset: self.next.offset.saturating_add(block.size as u64),
                records: self.next.records.saturating_add(block.count),
            };
            self.records(Rest { data: &data, at: 0, count: block.count, after }, out).await?;
            self.next = after;
            used += block.size;
        }
    }

    /// Rejects the file because of the next block.
    fn damaged(&self, reason: &str) -> FileError {
        FileError::rejected(format!(
            "the block at byte {} cannot be read: {reason}. The messages before that were sent.",
            self.next.offset
        ))
    }

    /// Sends the records of a block, in batches.
    async fn records(&mut self, mut rest: Rest<'_>, out: &mut SourceOutput) -> Result<(), Error> {
        while rest.count > 0 {
            let (received, fault) = self.batch(&mut rest)?;
            if let Some(received) = received {
                out.send(received).await?;
            }
            if let Some(reason) = fault {
                return self.reject(&rest, &reason, out).await;
            }
        }
        if rest.at < rest.data.len() {
            let left = rest.data.len() - rest.at;
            return self.reject(&rest, &format!("{left} bytes follow the last record"), out).await;
        }
        Ok(())
    }

    /// Reads the records of a batch. Also returns why the record after them cannot be read.
    fn batch(&mut self, rest: &mut Rest<'_>) -> Result<(Option<Received>, Option<String>), Error> {
        let most = self.rows.min(usize::try_from(rest.count).unwrap_or(usize::MAX));
        let base = std::slice::from_ref(rest.data);
        self.columns.begin(base, most);
        let mut payload = ViewBuilder::over(base, most);
        let first = rest.after.records - rest.count;
        let mut fault = None;
        while payload.len() < most && (payload.is_empty() || self.columns.written() < self.batch) {
            match self.columns.read(rest.data.get(rest.at..).unwrap_or_default()) {
                Ok(size) => {
                    payload.push_range(0, rest.at, size);
                    rest.at += size;
                    rest.count -= 1;
                }
                Err(reason) => {
                    fault = Some(reason);
                    break;
                }
            }
        }
        let rows = payload.len();
        // A record that cannot be read has left a row.
        let columns = self.columns.finish()?.into_iter().map(|column| column.slice(0, rows)).collect();
        if rows == 0 {
            return Ok((None, fault));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let fields = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
        let is_whole = rest.count == 0 && rest.at == rest.data.len();
        let checkpoint = if is_whole { self.checkpoint(rest.after) } else { None };
        let positions = Some(UInt64Array::from_iter_values(first..first + rows as u64));
        let reading = Reading { payload: payload.finish(), path: None, positions, checkpoint };
        Ok((Some(Received { reading, fields: Some(fields) }), fault))
    }

    /// Rejects the rest of a block as one message.
    async fn reject(&self, rest: &Rest<'_>, reason: &str, out: &mut SourceOutput) -> Result<(), Error> {
        let record = rest.after.records - rest.count;
        let bytes = rest.data.get(rest.at..).unwrap_or_default();
        let mut payload = ViewBuilder::over(&[], 1);
        // A copy: a view would keep the whole block in memory.
        payload.push(bytes.get(..SHOWN).unwrap_or(bytes));
        let reason = format!(
            "record {record}, in the block at byte {}: {reason}; {} records of the block are skipped, and reading \
             continues at the next block",
            self.next.offset, rest.count
        );
        let positions = Some(UInt64Array::from(vec![record]));
        let checkpoint = self.checkpoint(rest.after);
        let reading = Reading { payload: payload.finish(), path: None, positions, checkpoint };
        out.reject(reading, &reason).await
    }

    /// Returns the checkpoint for a block, or `None` if no checkpoints are saved.
    fn checkpoint(&self, next: Saved) -> Option<Checkpoint> {
        serde_json::to_value(next).ok().filter(|_| self.keeps_checkpoints).map(Checkpoint::in_file)
    }
}

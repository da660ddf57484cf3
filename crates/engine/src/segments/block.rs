//! Converts a batch into bytes, and back.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, cast::AsArray, types::UInt64Type};
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::root_as_message;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use thalweg_record::{Batch, Meta};

use crate::Reading;

/// The keys of the metadata of the whole batch.
const SOURCE: &str = "thalweg.source";
const PATH: &str = "thalweg.path";
const SEQUENCE: &str = "thalweg.sequence";
const TIME: &str = "thalweg.time_us";
const POSITIONS: &str = "thalweg.positions";
const NUMBER: &str = "thalweg.number";
const OWN: [&str; 6] = [SOURCE, PATH, SEQUENCE, TIME, POSITIONS, NUMBER];

/// Appends a batch to a buffer.
pub(super) fn encode(batch: &Batch, to: &mut Vec<u8>) -> Result<(), ArrowError> {
    let meta = batch.meta();
    let mut known = HashMap::from([
        (SOURCE.to_owned(), meta.source.to_string()),
        (TIME.to_owned(), meta.time_us.to_string()),
    ]);
    known.extend(meta.path.as_ref().map(|path| (PATH.to_owned(), path.to_string())));
    known.extend(meta.sequence.as_ref().map(|sequence| (SEQUENCE.to_owned(), sequence.to_string())));
    if batch.fields().num_columns() == 0 {
        // It says whether the messages are records.
        known.extend(batch.fields().schema_ref().metadata().clone());
    }
    if meta.number > 0 {
        known.insert(NUMBER.to_owned(), meta.number.to_string());
    }
    let mut fields = vec![Arc::new(Field::new("payload", DataType::BinaryView, false))];
    // Views are written together with all of the buffers that they point into, and other columns share these
    // buffers. `gc` copies the used bytes only.
    let mut columns: Vec<ArrayRef> = vec![Arc::new(batch.payload().gc())];
    if let Some(positions) = batch.positions() {
        known.insert(POSITIONS.to_owned(), String::new());
        fields.push(Arc::new(Field::new("position", DataType::UInt64, false)));
        columns.push(Arc::new(positions.clone()));
    }
    fields.extend(batch.fields().schema().fields().iter().cloned());
    columns.extend(batch.fields().columns().iter().map(|column| match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()) as ArrayRef,
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()) as ArrayRef,
        _ => column.clone(),
    }));
    let schema = Arc::new(Schema::new_with_metadata(fields, known));
    let options = RecordBatchOptions::new().with_row_count(Some(batch.rows()));
    let whole = RecordBatch::try_new_with_options(schema.clone(), columns, &options)?;
    let mut writer = StreamWriter::try_new(to, &schema)?;
    writer.write(&whole)?;
    writer.finish()
}

/// Returns a batch as bytes, from which [`from_bytes`] makes the same messages.
///
/// # Errors
/// If its columns cannot be written.
pub fn to_bytes(batch: &Batch) -> Result<Vec<u8>, ArrowError> {
    let mut bytes = Vec::new();
    encode(batch, &mut bytes)?;
    Ok(bytes)
}

/// Returns the messages of bytes that [`to_bytes`] made, without copying: their columns point into the bytes.
///
/// # Errors
/// If the bytes are no batch.
pub fn from_bytes(bytes: Vec<u8>) -> Result<Messages, ArrowError> {
    Messages::decode(Buffer::from_vec(bytes))
}

/// True if a stream consists of messages that are not compressed, as [`encode`] writes them. A compressed
/// buffer says how long it will be, and Arrow allocates that before it decompresses.
fn is_plain(mut bytes: &[u8]) -> bool {
    while let Some([255, 255, 255, 255, length @ ..]) = bytes.first_chunk::<8>() {
        let length = u32::from_le_bytes(*length) as usize;
        if length == 0 {
            break;
        }
        let Some(Ok(message)) = bytes.get(8..8 + length).map(root_as_message) else { return false };
        let dictionary = message.header_as_dictionary_batch().and_then(|dictionary| dictionary.data());
        let batches = [message.header_as_record_batch(), dictionary];
        if batches.into_iter().flatten().any(|batch| batch.compression().is_some()) {
            return false;
        }
        let Ok(body) = usize::try_from(message.bodyLength()) else { return false };
        let Some(rest) = (8 + length).checked_add(body).and_then(|end| bytes.get(end..)) else {
            return false;
        };
        bytes = rest;
    }
    // The end of the stream, with or without its mark.
    bytes.is_empty() || bytes.starts_with(&[255, 255, 255, 255, 0, 0, 0, 0])
}

/// The messages of a block.
#[derive(Debug, Clone)]
pub struct Messages {
    /// Their origin.
    pub meta: Meta,
    whole: RecordBatch,
    has_positions: bool,
}

impl Messages {
    /// Reads a batch without copying: its columns point into the buffer.
    pub(super) fn decode(mut bytes: Buffer) -> Result<Self, ArrowError> {
        if !is_plain(&bytes) {
            return Err(ArrowError::IpcError("it is no Arrow stream, or a compressed one".to_owned()));
        }
        let mut decoder = StreamDecoder::new();
        // Arrow asserts what the stream says about itself. The checksum of a block does not tell who wrote
        // it.
        let decoded = catch_unwind(AssertUnwindSafe(|| decoder.decode(&mut bytes)));
        let whole =
            decoded.unwrap_or_else(|_| Err(ArrowError::IpcError("it contradicts itself".to_owned())))?;
        let whole = whole.ok_or_else(|| ArrowError::IpcError("it holds no messages".to_owned()))?;
        let schema = whole.schema();
        let known = schema.metadata();
        let meta = Meta {
            source: known.get(SOURCE).map(String::as_str).unwrap_or_default().into(),
            path: known.get(PATH).map(|path| path.as_str().into()),
            sequence: known.get(SEQUENCE).map(|sequence| sequence.as_str().into()),
            time_us: known.get(TIME).and_then(|time| time.parse().ok()).unwrap_or_default(),
            number: known.get(NUMBER).and_then(|number| number.parse().ok()).unwrap_or_default(),
        };
        let has_positions = known.contains_key(POSITIONS);
        let is_right =
            whole.columns().first().is_some_and(|payload| {
                *payload.data_type() == DataType::BinaryView && payload.null_count() == 0
            }) && (!has_positions
                || whole.columns().get(1).is_some_and(|column| *column.data_type() == DataType::UInt64));
        if !is_right {
            return Err(ArrowError::IpcError("its columns are not those of messages".to_owned()));
        }
        Ok(Self { meta, whole, has_positions })
    }

    /// Returns the number of messages.
    pub fn rows(&self) -> usize {
        self.whole.num_rows()
    }

    /// Returns a range of the messages: their payloads and metadata, and their fields.
    ///
    /// # Errors
    /// If the columns do not fit together.
    pub fn part(&self, from: usize, count: usize) -> Result<(Reading, RecordBatch), ArrowError> {
        let part = self.whole.slice(from, count);
        let own = 1 + usize::from(self.has_positions);
        let reading = Reading {
            payload: part.column(0).as_binary_view().clone(),
            path: None,
            positions: self.has_positions.then(|| part.column(1).as_primitive::<UInt64Type>().clone()),
            checkpoint: None,
        };
        let fields: Vec<_> = part.schema_ref().fields().iter().skip(own).cloned().collect();
        let columns = part.columns().iter().skip(own).cloned().collect();
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let mut known = HashMap::new();
        if fields.is_empty() {
            known.clone_from(part.schema_ref().metadata());
            known.retain(|key, _| !OWN.contains(&key.as_str()));
        }
        let schema = Arc::new(Schema::new_with_metadata(fields, known));
        Ok((reading, RecordBatch::try_new_with_options(schema, columns, &options)?))
    }
}

//! Several sorted inputs as one.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, DataType};
use arrow_select::interleave::interleave;
use hashbrown::HashMap;
use thalweg_engine::Error;
use thalweg_record::{Ack, Batch};

use super::chunk::{Keys, Piece, Sorted};
use super::run::Reader;

/// The most messages of a batch.
const ROWS: usize = 8192;

/// Sorted messages.
pub(super) enum Input {
    Memory(Sorted),
    File(Reader),
}

impl Input {
    /// Returns the next message: its piece, its row there, and its key.
    fn current(&self) -> Option<(&Arc<Piece>, u32, &[u8])> {
        match self {
            Input::Memory(sorted) => sorted.current(),
            Input::File(reader) => reader.current(),
        }
    }

    fn advance(&mut self) -> Result<(), Error> {
        match self {
            Input::Memory(sorted) => {
                sorted.advance();
                Ok(())
            }
            Input::File(reader) => reader.advance(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Input::Memory(sorted) => sorted.bytes(),
            Input::File(reader) => reader.bytes(),
        }
    }
}

/// The messages of several inputs in their order. Of messages with equal keys, those of earlier inputs come
/// first.
pub(super) struct Merge {
    inputs: Vec<Input>,
    /// The size of a batch in bytes.
    size: usize,
}

impl Merge {
    /// Merges inputs into batches of this size in bytes.
    pub(super) fn new(inputs: Vec<Input>, size: usize) -> Self {
        Self { inputs, size }
    }

    /// The memory of the inputs, and of two batches.
    pub(super) fn bytes(&self) -> usize {
        self.inputs.iter().map(Input::bytes).sum::<usize>() + 2 * self.size
    }

    /// Returns the number of the input with the lowest key, and the first of these.
    fn lowest(&self) -> Option<usize> {
        let keys = self.inputs.iter().enumerate();
        let keys = keys.filter_map(|(at, input)| input.current().map(|(.., key)| (key, at)));
        keys.min().map(|(_, at)| at)
    }

    /// Returns the next messages and their keys, or None at the end.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(super) fn next(&mut self) -> Result<Option<(Batch, Keys)>, Error> {
        let mut gathered = Gathered::default();
        while let Some(at) = self.lowest() {
            let Some(input) = self.inputs.get_mut(at) else { break };
            let Some((piece, row, key)) = input.current() else { break };
            if !gathered.add(piece, row, key, self.size) {
                break;
            }
            input.advance()?;
            if input.current().is_none() {
                // Its memory, or its file. The order of the others stays.
                drop(self.inputs.remove(at));
            }
        }
        Ok(gathered.finish()?)
    }
}

/// Messages of several pieces that become one batch.
#[derive(Default)]
struct Gathered {
    pieces: Vec<Arc<Piece>>,
    /// The place of each piece, by its address.
    places: HashMap<usize, usize>,
    /// The piece and the row of each message.
    rows: Vec<(usize, usize)>,
    keys: Keys,
    bytes: usize,
}

impl Gathered {
    /// Adds a message, unless it does not fit to the others or they have `most` bytes.
    fn add(&mut self, piece: &Arc<Piece>, row: u32, key: &[u8], most: usize) -> bool {
        let bytes = piece.row_bytes(row) + key.len();
        let is_full = self.bytes + bytes > most || self.rows.len() >= ROWS;
        if is_full && !self.rows.is_empty() {
            return false;
        }
        let address = Arc::as_ptr(piece).addr();
        let place = match self.places.get(&address) {
            Some(place) => *place,
            None if self.pieces.first().is_some_and(|first| !first.is_like(piece)) => return false,
            None => {
                self.pieces.push(piece.clone());
                self.places.insert(address, self.pieces.len() - 1);
                self.pieces.len() - 1
            }
        };
        self.rows.push((place, row as usize));
        self.keys.push(key);
        self.bytes += bytes;
        true
    }

    fn finish(self) -> Result<Option<(Batch, Keys)>, ArrowError> {
        let Some(first) = self.pieces.first() else { return Ok(None) };
        let gathered = |of: &dyn Fn(&Batch) -> Option<ArrayRef>| {
            let columns: Option<Vec<ArrayRef>> = self.pieces.iter().map(|piece| of(&piece.batch)).collect();
            let columns = columns.unwrap_or_default();
            let columns: Vec<&dyn Array> = columns.iter().map(|column| &**column).collect();
            interleave(&columns, &self.rows).map(own)
        };
        let payload = gathered(&|batch| Some(Arc::new(batch.payload().clone())))?;
        let schema = first.batch.fields().schema();
        let columns = (0..schema.fields().len())
            .map(|at| gathered(&|batch| batch.fields().columns().get(at).cloned()))
            .collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows.len()));
        let fields = RecordBatch::try_new_with_options(schema, columns, &options)?;
        let batch = Batch::new(payload.as_binary_view().clone(), first.batch.meta().clone(), Ack::noop());
        Ok(Some((batch.with_fields(fields)?, self.keys)))
    }
}

/// Copies the bytes that views refer to, so that they keep no other memory.
fn own(column: ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()) as ArrayRef,
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        _ => column,
    }
}

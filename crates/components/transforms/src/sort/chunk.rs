//! Messages in memory, and their keys.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_schema::DataType;
use thalweg_engine::Error;
use thalweg_engine::segments::{from_bytes, to_bytes};
use thalweg_record::{Ack, Batch, Meta};

use super::order::{self, Direction};
use crate::scalar::Column;

/// Messages that came together, without their acks.
pub(super) struct Piece {
    pub(super) batch: Batch,
    /// The bytes of a message beside its texts.
    plain: usize,
    /// The bytes of the texts of all messages.
    texts: usize,
}

/// The bytes of the payload of a message, and of its fields that are text. An average would be wrong where
/// messages of one size are neighbours in the order: a batch of them could have any size.
fn texts(batch: &Batch, row: usize) -> usize {
    // A view begins with the length, in its lowest 32 bits.
    let length = |views: &[u128]| views.get(row).map_or(0, |view| *view as u32 as usize);
    let fields = batch.fields().columns().iter().map(|column| match column.data_type() {
        DataType::Utf8View => length(column.as_string_view().views()),
        DataType::BinaryView => length(column.as_binary_view().views()),
        _ => 0,
    });
    length(batch.payload().views()) + fields.sum::<usize>()
}

fn all_texts(batch: &Batch) -> usize {
    (0..batch.rows()).map(|row| texts(batch, row)).sum()
}

/// Copies the messages of a batch, without their positions: a sink that knows messages by them needs them in
/// order.
pub(super) fn copied(batch: &Batch) -> Result<Vec<u8>, Error> {
    let meta = Meta { sequence: None, ..(**batch.meta()).clone() };
    let plain = Batch::new(batch.payload().clone(), Arc::new(meta), Ack::noop());
    let mut bytes = to_bytes(&plain.with_fields(batch.fields().clone())?)?;
    // They are kept.
    bytes.shrink_to_fit();
    Ok(bytes)
}

impl Piece {
    /// Returns the messages that were [copied].
    pub(super) fn of(bytes: Vec<u8>) -> Result<Self, Error> {
        let size = bytes.len();
        let messages = from_bytes(bytes)?;
        let (reading, fields) = messages.part(0, messages.rows())?;
        let batch = Batch::new(reading.payload, Arc::new(messages.meta), Ack::noop()).with_fields(fields)?;
        let texts = all_texts(&batch);
        Ok(Self { plain: size.saturating_sub(texts).div_ceil(batch.rows().max(1)), texts, batch })
    }

    /// Returns the first half of the messages, and the others.
    pub(super) fn halves(self) -> impl DoubleEndedIterator<Item = Self> {
        let Self { batch, plain, .. } = self;
        let half = batch.rows() / 2;
        let (first, rest) = batch.split_at(half);
        let halves = [Some(first), rest].into_iter().flatten();
        halves.map(move |batch| Self { texts: all_texts(&batch), batch, plain })
    }

    /// The bytes of a message.
    pub(super) fn row_bytes(&self, row: u32) -> usize {
        self.plain + texts(&self.batch, row as usize)
    }

    /// The memory of the messages.
    pub(super) fn bytes(&self) -> usize {
        /// The column itself, its field, and the owners of both.
        const COLUMN: usize = 512;
        self.plain * self.batch.rows() + self.texts + COLUMN * (self.batch.fields().num_columns() + 1)
    }

    /// True if the messages may leave in one batch with those of another piece.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let (own, others) = (self.batch.meta(), other.batch.meta());
        self.batch.fields().schema_ref() == other.batch.fields().schema_ref()
            && own.source == others.source
            && own.path == others.path
    }
}

/// The keys of messages.
#[derive(Default)]
pub(super) struct Keys {
    bytes: Vec<u8>,
    /// The end of each key.
    ends: Vec<usize>,
}

impl Keys {
    /// Returns the key of a message.
    pub(super) fn get(&self, row: usize) -> &[u8] {
        let start = row.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.ends.get(row).and_then(|end| self.bytes.get(start..*end)).unwrap_or_default()
    }

    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Adds a key.
    pub(super) fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    fn push_values(&mut self, columns: &[Column], directions: &[Direction], row: usize) {
        for (column, direction) in columns.iter().zip(directions) {
            order::write(column.view(row), *direction, &mut self.bytes);
        }
        self.ends.push(self.bytes.len());
    }

    /// The memory of all keys.
    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<usize>()
    }

    /// The bytes of all keys.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The ends of all keys.
    pub(super) fn ends(&self) -> &[usize] {
        &self.ends
    }

    /// Returns keys with these bytes and ends. None if they do not fit together.
    pub(super) fn of(bytes: Vec<u8>, ends: Vec<usize>) -> Option<Self> {
        let is_right = ends.is_sorted() && ends.last().is_none_or(|last| *last == bytes.len());
        is_right.then_some(Self { bytes, ends })
    }
}

/// The messages that are in memory.
#[derive(Default)]
pub(super) struct Chunk {
    pieces: Vec<Arc<Piece>>,
    /// The piece of each message, and its row there.
    rows: Vec<(u32, u32)>,
    keys: Keys,
    /// The memory of the pieces.
    bytes: usize,
}

impl Chunk {
    /// Adds messages with these values.
    pub(super) fn add(&mut self, piece: Piece, columns: &[Column], directions: &[Direction]) {
        let number = self.pieces.len() as u32;
        for row in 0..piece.batch.rows() {
            self.rows.push((number, row as u32));
            self.keys.push_values(columns, directions, row);
        }
        self.bytes += piece.bytes();
        self.pieces.push(Arc::new(piece));
    }

    /// True if it has no messages.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The memory of its messages.
    pub(super) fn bytes(&self) -> usize {
        // The numbers of messages are there twice while they are sorted.
        let order = 2 * self.rows.len() * size_of::<u32>();
        self.bytes + self.keys.memory() + self.rows.capacity() * size_of::<(u32, u32)>() + order
    }

    /// Returns its messages in their order.
    pub(super) fn sorted(self) -> Sorted {
        let mut order: Vec<u32> = (0..self.rows.len() as u32).collect();
        order.sort_by(|one, other| self.keys.get(*one as usize).cmp(self.keys.get(*other as usize)));
        Sorted { chunk: self, order, at: 0 }
    }
}

/// A chunk in its order, from one of its messages on.
pub(super) struct Sorted {
    chunk: Chunk,
    /// The numbers of its messages.
    order: Vec<u32>,
    at: usize,
}

impl Sorted {
    /// Returns the next message: its piece, its row there, and its key.
    pub(super) fn current(&self) -> Option<(&Arc<Piece>, u32, &[u8])> {
        let number = *self.order.get(self.at)? as usize;
        let (piece, row) = *self.chunk.rows.get(number)?;
        Some((self.chunk.pieces.get(piece as usize)?, row, self.chunk.keys.get(number)))
    }

    /// Goes on to the message after it.
    pub(super) fn advance(&mut self) {
        self.at += 1;
    }

    /// The memory of all messages.
    pub(super) fn bytes(&self) -> usize {
        self.chunk.bytes()
    }
}

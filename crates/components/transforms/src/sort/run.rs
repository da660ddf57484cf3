//! Sorted messages in a temporary file.
//!
//! A run is written once and read once, from its beginning, block by block. A block has the keys of its
//! messages and the messages as an Arrow stream, each with its length in front.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use thalweg_engine::segments::to_bytes;
use thalweg_engine::{Error, Temporaries};
use thalweg_record::{Batch, Temporary};

use super::chunk::{Keys, Piece};
use super::merge::Merge;

/// The head of a block: the number of messages, the bytes of their keys, and those of the messages.
const HEAD: usize = 3 * size_of::<u64>();

/// Sorted messages in a temporary file.
pub(super) struct Run {
    file: File,
    /// Removes the file at the end.
    _path: Arc<Temporary>,
    length: u64,
    /// How many generations of smaller runs it was merged from.
    pub(super) level: u32,
}

/// The error of a file that cannot be written or read.
fn unusable(error: &io::Error) -> Error {
    Error::permanent(format!(
        "the messages that do not fit into memory cannot be kept in a file: {error}; make room in the folder for \
         temporary files, choose another one with `temporary`, or give more `memory`"
    ))
}

impl Run {
    /// Writes all messages of a merge.
    pub(super) fn write(temporary: &Temporaries, level: u32, mut merge: Merge) -> Result<Self, Error> {
        let (file, path) = temporary.create(".sorted").map_err(|error| unusable(&error))?;
        let mut writer = BufWriter::new(&file);
        let mut length = 0;
        while let Some((batch, keys)) = merge.next()? {
            length += write_block(&mut writer, &batch, &keys)?;
        }
        writer.flush().map_err(|error| unusable(&error))?;
        drop(writer);
        Ok(Self { file, _path: path, length, level })
    }

    /// Returns the numbers in the head of the block at a place.
    fn head(&self, at: u64) -> io::Result<[usize; 3]> {
        let mut head = [0; HEAD];
        self.file.read_exact_at(&mut head, at)?;
        let (numbers, _) = head.as_chunks::<8>();
        let mut found = [0; 3];
        for (number, bytes) in found.iter_mut().zip(numbers) {
            *number = usize::try_from(u64::from_le_bytes(*bytes)).unwrap_or(usize::MAX);
        }
        Ok(found)
    }

    /// Reads the block at a place. Returns it, and the place of the next one.
    fn block(&self, at: u64) -> Result<(Block, u64), Error> {
        let read = || -> io::Result<(Option<Keys>, Vec<u8>, u64)> {
            let [rows, keys, body] = self.head(at)?;
            let ends = rows.saturating_mul(size_of::<u64>());
            let sizes = ends.saturating_add(keys).saturating_add(body) as u64;
            let start = at + HEAD as u64;
            if sizes > self.length.saturating_sub(start) {
                return Err(io::Error::other("another program has changed it"));
            }
            let part = |from: usize, size: usize| {
                let mut bytes = vec![0; size];
                self.file.read_exact_at(&mut bytes, start + from as u64).map(|()| bytes)
            };
            let numbers = part(0, ends)?;
            let numbers = numbers.as_chunks::<8>().0.iter();
            let numbers = numbers.map(|end| usize::try_from(u64::from_le_bytes(*end)).unwrap_or(usize::MAX));
            let keys_of = Keys::of(part(ends, keys)?, numbers.collect());
            Ok((keys_of, part(ends + keys, body)?, start + sizes))
        };
        let (keys, body, next) = read().map_err(|error| unusable(&error))?;
        let piece = Piece::of(body)?;
        let fit = |keys: &Keys| keys.len() > 0 && keys.len() == piece.batch.rows();
        let Some(keys) = keys.filter(fit) else {
            return Err(unusable(&io::Error::other("another program has changed it")));
        };
        Ok((Block { piece: Arc::new(piece), keys }, next))
    }
}

fn write_block(writer: &mut impl Write, batch: &Batch, keys: &Keys) -> Result<u64, Error> {
    let body = to_bytes(batch)?;
    let mut head = Vec::with_capacity(HEAD + keys.len() * size_of::<u64>());
    for number in [keys.len(), keys.bytes().len(), body.len()].iter().chain(keys.ends()) {
        head.extend((*number as u64).to_le_bytes());
    }
    let parts = [head.as_slice(), keys.bytes(), body.as_slice()];
    let written = parts.iter().try_for_each(|part| writer.write_all(part));
    written.map_err(|error| unusable(&error))?;
    Ok(parts.iter().map(|part| part.len() as u64).sum())
}

/// Messages of a run that are in memory.
struct Block {
    piece: Arc<Piece>,
    keys: Keys,
}

/// Reads the messages of a run.
pub(super) struct Reader {
    run: Run,
    /// The place of the next block.
    next: u64,
    block: Option<Block>,
    row: usize,
}

impl Reader {
    /// Begins to read a run.
    pub(super) fn new(run: Run) -> Result<Self, Error> {
        let mut reader = Self { run, next: 0, block: None, row: 0 };
        reader.load()?;
        Ok(reader)
    }

    fn load(&mut self) -> Result<(), Error> {
        self.row = 0;
        // The former block goes first.
        self.block = None;
        if self.next < self.run.length {
            let (block, next) = self.run.block(self.next)?;
            self.block = Some(block);
            self.next = next;
        }
        Ok(())
    }

    /// Returns the next message: its piece, its row there, and its key.
    pub(super) fn current(&self) -> Option<(&Arc<Piece>, u32, &[u8])> {
        let Block { piece, keys } = self.block.as_ref()?;
        Some((piece, self.row as u32, keys.get(self.row)))
    }

    /// Goes on to the message after it.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(super) fn advance(&mut self) -> Result<(), Error> {
        self.row += 1;
        match &self.block {
            Some(block) if self.row < block.keys.len() => Ok(()),
            _ => self.load(),
        }
    }

    /// The memory of the messages that it has read.
    pub(super) fn bytes(&self) -> usize {
        self.block.as_ref().map_or(0, |block| block.piece.bytes() + block.keys.memory())
    }
}

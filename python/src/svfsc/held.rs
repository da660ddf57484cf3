//! The operations on a file that both classes share, with the behaviour of `svfsc`.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use thalweg_sparse::{Clock, Counters, Error, Options, Overlap, Span, SparseFile};

use super::touches::Touches;
use crate::fresh::{LONG, bytes_with};
use crate::heap::give_back;

/// The options of a file, under the names of `svfsc`.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    pub overwrite_on_exit: bool,
    pub compare_for_diff: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { overwrite_on_exit: false, compare_for_diff: true }
    }
}

/// From this number of dropped bytes on, the memory is given back to the system at once, for a tenth of the
/// time of dropping them. The allocator would keep it while anything behind it in memory is in use.
const MUCH: u64 = 32 << 20;

/// Why a read failed.
pub enum Unread {
    /// The result does not fit into memory.
    Memory,
    /// Bytes are missing; the message of `svfsc`.
    Missing(String),
}

/// A file with the order in which its blocks were used.
pub struct Held {
    pub file: SparseFile,
    pub config: Config,
    touches: Touches,
    punted: (u64, u64),
    /// Reads of zero bytes, which the sparse file does not count.
    empty_reads: u64,
}

impl Held {
    pub fn new(id: &str, modified: f64, config: Config) -> Self {
        let options = Options {
            overlap: if config.compare_for_diff { Overlap::Agree } else { Overlap::KeepFirst },
            wipe: config.overwrite_on_exit,
            clock: Clock::Coarse,
            ..Options::default()
        };
        let file = SparseFile::with_options(id, modified, options);
        Self { file, config, touches: Touches::default(), punted: (0, 0), empty_reads: 0 }
    }

    #[inline]
    fn note(&mut self, position: u64) {
        self.touches.note(position);
        if self.touches.is_long() {
            self.touches.settle(&self.file.blocks());
        }
    }

    /// # Errors
    /// The message of `svfsc`, without the name of the function.
    #[inline]
    pub fn write(&mut self, position: u64, bytes: &[u8]) -> Result<(), String> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.file.write(position, bytes).map_err(|error| match error {
            Error::Differs { position, held, given } => {
                let shown = |byte: u8| char::from_u32(u32::from(byte)).filter(char::is_ascii).unwrap_or('\u{fffd}');
                format!(
                    "SparseVirtualFile::write(): Difference at position {position} '{}' != '{}' Ordinal {} != {}",
                    shown(given),
                    shown(held),
                    given.cast_signed(),
                    held.cast_signed()
                )
            }
            other => format!("SparseVirtualFile::write(): {other}"),
        })?;
        self.note(position);
        Ok(())
    }

    /// Passes the bytes of a range to `with`, if they are held in one piece. That counts as a read.
    #[inline]
    pub fn look<T>(
        &mut self,
        position: u64,
        length: u64,
        with: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Option<T> {
        let made = self.file.look(position, usize::try_from(length).ok()?, with)??;
        self.note(position);
        Some(made)
    }

    /// Keeps the interpreter lock, as `svfsc` does: only the copying takes long.
    #[inline]
    pub fn read<'py>(
        &mut self,
        py: Python<'py>,
        position: u64,
        length: u64,
    ) -> Result<Bound<'py, PyBytes>, Unread> {
        let size = usize::try_from(length).map_err(|_| Unread::Memory)?;
        if size > LONG && isize::try_from(size).is_ok() && !self.file.has(position, length) {
            return Err(Unread::Missing(self.missing(position, length)));
        }
        let read =
            bytes_with(py, size, |bytes| self.file.read(position, bytes)).map_err(|_| Unread::Memory)?;
        let Ok(bytes) = read else { return Err(Unread::Missing(self.missing(position, length))) };
        // A read of zero bytes is also possible at the end of a block.
        let at_end = length == 0 && self.file.block_at(position).is_none();
        self.empty_reads += u64::from(length == 0);
        self.note(position - u64::from(at_end));
        Ok(bytes)
    }

    /// Returns the message of why a range cannot be read.
    pub fn missing(&self, position: u64, length: u64) -> String {
        const WHERE: &str = "SparseVirtualFile::read():";
        if self.file.is_empty() {
            return format!("{WHERE} Sparse virtual file is empty.");
        }
        let Some(block) = self.block_before(position) else {
            let first = self.block_after(position);
            return format!("{WHERE} Requested file position {position} precedes first block at {first}");
        };
        let end = position.wrapping_add(length);
        format!(
            "{WHERE} Requested position {position} length {length} (end {end}) overruns block that starts at {} \
             has size {} (end {}). Offset into block is {} overrun is {} bytes",
            block.position,
            block.length,
            block.end(),
            position - block.position,
            end.wrapping_sub(block.end())
        )
    }

    /// Returns the last block that starts at or before a position. The search range grows, so that near
    /// blocks are found without looking at all blocks.
    pub fn block_before(&self, position: u64) -> Option<Span> {
        if let Some(block) = self.file.block_at(position) {
            return Some(block);
        }
        let mut range: u64 = 1 << 16;
        loop {
            let from = position.saturating_sub(range);
            match self.file.need(from, position - from, 0).last() {
                Some(gap) if gap.end() == position && gap.position > from => {
                    return self.file.block_at(gap.position - 1);
                }
                Some(gap) if gap.end() == position && from == 0 => return None,
                Some(gap) if gap.end() == position => range = range.saturating_mul(64),
                _ => return self.file.block_at(position.checked_sub(1)?),
            }
        }
    }

    /// Returns the start of the first block after a position. The position itself is not in a block.
    fn block_after(&self, position: u64) -> u64 {
        let mut range: u64 = 1 << 16;
        loop {
            let length = range.min(u64::MAX - position);
            match self.file.need(position, length, 0).first() {
                Some(gap) if gap.length < length => return gap.end(),
                _ if range == u64::MAX => return u64::MAX,
                _ => range = range.saturating_mul(64),
            }
        }
    }

    /// # Errors
    /// The message of `svfsc`, without the name of the function.
    pub fn erase(&mut self, position: u64) -> Result<(), String> {
        self.file.erase_block(position).map_err(|_| {
            format!("SparseVirtualFile::erase(): Non-existent file position {position} at start of block.")
        })?;
        if self.file.is_empty() {
            // As with `svfsc`, an empty file takes as much memory as a new one.
            self.touches.forget();
            self.file.release_tables();
        }
        Ok(())
    }

    pub fn clear(&mut self) {
        self.file.clear();
        self.touches = Touches::default();
        self.punted = (0, 0);
        self.empty_reads = 0;
    }

    pub fn next_touch(&self) -> u64 {
        self.touches.next()
    }

    /// Returns for each block the number of its last use and its start, least recent first.
    pub fn touches(&mut self) -> Vec<(u64, u64)> {
        let settled = self.touches.settle(&self.file.blocks());
        let mut list: Vec<_> = settled.iter().map(|(position, number)| (*number, *position)).collect();
        list.sort_unstable();
        list
    }

    /// Drops the least recently used block while `bound` bytes or more are held. The last block always stays.
    pub fn punt(&mut self, bound: u64) -> u64 {
        let mut oldest = self.touches.oldest(&self.file, bound);
        if let [block] = oldest[..] {
            // Cheaper for a single block.
            let erased = self.file.erase(block.position, block.length);
            self.punted = (self.punted.0 + 1, self.punted.1 + erased);
            return erased;
        }
        oldest.sort_unstable();
        let erased = self.file.erase_blocks(&oldest);
        self.touches.dropped(&oldest);
        if erased >= MUCH {
            give_back();
        }
        self.punted = (self.punted.0 + oldest.len() as u64, self.punted.1 + erased);
        erased
    }

    /// Returns the memory that the file uses, in bytes, after it has freed what is reserved for later writes.
    pub fn heap(&self) -> usize {
        self.file.compact();
        self.file.heap_bytes() + self.touches.heap()
    }

    /// Returns the counters, with those of [`punt`](Self::punt).
    pub fn counters(&self) -> Counters {
        let (blocks_evicted, bytes_evicted) = self.punted;
        let counters = self.file.counters();
        Counters { reads: counters.reads + self.empty_reads, blocks_evicted, bytes_evicted, ..counters }
    }
}

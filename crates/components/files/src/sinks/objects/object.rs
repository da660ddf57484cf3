//! The object that is being written, and the part of it that is being collected.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};
use std::time::Instant;

use bytes::Bytes;
use thalweg_record::{Arena, Budget};
use thalweg_store::{Body, StoreError, Upload, UploadedPart};
use thalweg_stream::table::Table;
use tokio::task::JoinSet;

use super::parts::held;
use super::tail::Tail;

/// The sizes in bytes of the memory that copied bytes are collected in, piece by piece. A piece is as large
/// as those before it together: many objects with few bytes take little memory.
const PIECES: std::ops::RangeInclusive<usize> = 4 << 10..=256 << 10;

/// The object that is being written.
pub(super) struct Object {
    pub(super) number: u64,
    /// Its number among those of all names, if messages decide the names.
    pub(super) id: Option<u64>,
    pub(super) upload: Option<Upload>,
    /// The table, if the object is one.
    pub(super) table: Option<Table>,
    /// Bytes that the table returned and that are not part of `gathered` yet.
    pub(super) undrained: Bytes,
    /// The bytes collected for the next part.
    pub(super) gathered: Gathered,
    /// The total size of the parts sent, in bytes.
    pub(super) offset: u64,
    pub(super) next: u32,
    pub(super) sending: JoinSet<Outcome>,
    /// Parts that could not be sent.
    pub(super) unsent: Vec<Unsent>,
    pub(super) done: BTreeMap<u32, UploadedPart>,
    /// The bytes of the next part, or of one that was sent, that the journal has.
    pub(super) tail: Option<Tail>,
    /// True if the number was chosen for good: an existing object of this number is this sink's.
    pub(super) is_claimed: bool,
    /// For each batch that is not durable, the number of its last part. In the order of the batches.
    pub(super) batches: VecDeque<u32>,
    pub(super) is_new: bool,
    /// True if its table is finished: nothing can be added, and it is still to be completed.
    pub(super) is_ended: bool,
    /// True if the journal knows that a checkpoint covers some of its messages.
    pub(super) is_noted: bool,
    pub(super) since: Instant,
}

/// A part that is being collected.
#[derive(Default)]
pub(super) struct Gathered {
    /// The beginning of the part: buffers that are sent without a copy.
    pub(super) body: Body,
    /// The rest of the part, which was copied.
    pub(super) copied: Option<Copied>,
}

pub(super) struct Copied {
    pub(super) arena: Arena,
    pub(super) filled: usize,
}

impl Gathered {
    pub(super) fn len(&self) -> usize {
        self.body.len() + self.copied.as_ref().map_or(0, |copied| copied.filled)
    }

    /// Returns the memory in use, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.body.len() + self.copied.as_ref().map_or(0, |copied| copied.arena.len())
    }

    /// Returns the bytes after the first `from` ones.
    pub(super) fn after(&self, mut from: usize) -> impl Iterator<Item = &[u8]> {
        let copied = self.copied.as_ref().and_then(|copied| copied.arena.get(..copied.filled));
        self.body.pieces().iter().map(|piece| &**piece).chain(copied).filter_map(move |piece| {
            let skipped = from.min(piece.len());
            from -= skipped;
            piece.get(skipped..).filter(|rest| !rest.is_empty())
        })
    }

    /// Returns the whole part as a body. Only whole pieces can be added from then on.
    pub(super) fn body(&mut self) -> &mut Body {
        if let Some(Copied { arena, filled }) = self.copied.take() {
            self.body.push(held(arena.freeze().slice_with_length(0, filled)));
        }
        &mut self.body
    }
}

/// Copies bytes to the end of a part. Memory is claimed as the part grows: a part that is claimed as a whole
/// may be more than the memory, and would keep the sources from reading what fills it.
pub(super) struct Copying<'a> {
    pub(super) gathered: &'a mut Gathered,
    pub(super) budget: &'a Budget,
}

impl Write for Copying<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let is_full = |copied: &Copied| copied.filled >= copied.arena.len();
        if self.gathered.copied.as_ref().is_none_or(is_full) {
            let size = self.gathered.body().len().clamp(*PIECES.start(), *PIECES.end());
            self.gathered.copied = Some(Copied { arena: self.budget.claim_arena(size), filled: 0 });
        }
        let Some(copied) = &mut self.gathered.copied else { return Ok(0) };
        let mut free = copied.arena.get_mut(copied.filled..).unwrap_or_default();
        let written = free.write(bytes)?;
        copied.filled += written;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns bytes from a table, counted against the budget from now on.
pub(super) fn paid(budget: &Budget, bytes: Vec<u8>) -> Bytes {
    if bytes.is_empty() { Bytes::new() } else { held(budget.claim(bytes.len()).freeze(bytes)) }
}

/// A part that could not be sent.
pub(super) struct Unsent {
    pub(super) number: u32,
    pub(super) offset: u64,
    pub(super) body: Body,
}

pub(super) type Outcome = Result<UploadedPart, (Unsent, StoreError)>;

impl Object {
    pub(super) fn new(number: u64) -> Self {
        Self {
            number,
            id: None,
            upload: None,
            table: None,
            undrained: Bytes::new(),
            gathered: Gathered::default(),
            offset: 0,
            next: 1,
            sending: JoinSet::new(),
            unsent: Vec::new(),
            done: BTreeMap::new(),
            tail: None,
            is_claimed: false,
            batches: VecDeque::new(),
            is_new: true,
            is_ended: false,
            is_noted: false,
            since: Instant::now(),
        }
    }

    /// Returns the number that tells it from all other objects of the sink.
    pub(super) fn id(&self) -> u64 {
        self.id.unwrap_or(self.number)
    }

    /// Returns the number of finished parts, from the first one on without a gap.
    pub(super) fn whole(&self) -> u32 {
        (1..).take_while(|number| self.done.contains_key(number)).last().unwrap_or(0)
    }
}

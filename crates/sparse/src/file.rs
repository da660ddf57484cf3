use crate::clock::Clock;
use crate::directory::Directory;
use crate::pool::{Member, Pool};
use crate::touches::Touches;
use crate::{Counters, Error, Merge, Span, span};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

/// What a write does where bytes are held already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overlap {
    /// They must be the same, or nothing is written and the error names the first that differs. The bytes of a file do
    /// not change while it is read, so a difference is a mistake or a changed origin; comparing is cheap.
    #[default]
    Agree,
    /// The new bytes replace them.
    Replace,
    /// They stay, and only what is missing is written.
    Keep,
    /// Those of the block that the write begins in stay; those of later blocks are replaced. (This is what `svfsc` does
    /// when it is told not to compare, and here for its sake.)
    KeepFirst,
}

/// How a file is kept.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// What [`SparseFile::write`] does where bytes are held already.
    pub overlap: Overlap,
    /// Whether memory is overwritten with zeroes before it is given back: when the file is dropped or bytes
    /// are erased, and when data moves to a larger place.
    pub wipe: bool,
    /// How exactly the times of the last read and write are noted.
    pub clock: Clock,
    /// The limit that the file is under together with others.
    pub pool: Option<Pool>,
    /// Whether the order in which blocks are used is noted, for [`SparseFile::touches`] and
    /// [`SparseFile::evict_blocks`]. It takes about fifty bytes a block, and reads and writes wait for one another then.
    /// With a pool it is ignored, since a pool lets go of ranges, not of blocks.
    pub touches: bool,
}

/// Those bytes of a file that were written to it, in memory.
///
/// Bytes that touch form one *block*, however many writes they came by. All methods take `&self`: threads share
/// it (in an [`Arc`]), readers do not wait for one another, and writers only where they write near each other. A
/// write is seen whole or not at all; one that fails has changed nothing.
///
/// Positions go up to 2^64 - 2.
///
/// ```
/// use thalweg_sparse::{SparseFile, Span};
///
/// let file = SparseFile::new("https://example.org/large.tif", 1_700_000_000.0);
/// file.write(0, b"II*\0")?;
/// file.write(100, b"tags")?;
///
/// // What is missing of the first 104 bytes, in requests of at least 32 bytes?
/// assert_eq!(file.need(0, 104, 0), [Span::new(4, 96)]);
/// assert_eq!(file.need(98, 4, 32), [Span::new(98, 32)]);
///
/// let mut tags = [0; 4];
/// file.read(100, &mut tags)?;
/// assert_eq!(&tags, b"tags");
/// assert_eq!(file.blocks(), [Span::new(0, 4), Span::new(100, 4)]);
/// # Ok::<(), thalweg_sparse::Error>(())
/// ```
pub struct SparseFile {
    id: Box<str>,
    modified: f64,
    options: Options,
    directory: Arc<Directory>,
    touches: Option<Mutex<Touches>>,
}

impl std::fmt::Debug for SparseFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SparseFile({:?}, {} bytes held)", self.id, self.bytes())
    }
}

impl SparseFile {
    /// An empty one. `id` names the origin; `modified` says when that was last changed, as a number that means
    /// something to the caller (seconds since 1970, usually).
    pub fn new(id: impl Into<Box<str>>, modified: f64) -> Self {
        Self::with_options(id, modified, Options::default())
    }

    /// An empty one that is kept as `options` say.
    pub fn with_options(id: impl Into<Box<str>>, modified: f64, options: Options) -> Self {
        let member = options.pool.as_ref().map(Member::new);
        let directory = Arc::new(Directory::new(options.wipe, options.clock, member));
        if let Some(member) = directory.member() {
            member.join(Arc::downgrade(&directory));
        }
        let touches = (options.touches && options.pool.is_none()).then(Mutex::default);
        Self { id: id.into(), modified, options, directory, touches }
    }

    /// The name of the origin.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// When the origin was last changed.
    pub fn modified(&self) -> f64 {
        self.modified
    }

    /// Whether that is exactly the time given.
    pub fn is_modified_at(&self, time: f64) -> bool {
        self.modified == time
    }

    /// How it is kept.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Writes `bytes` at `position`. Where bytes are held already, [`Options::overlap`] says what happens. No
    /// bytes are no write.
    ///
    /// # Errors
    /// [`Error::Differs`] if that is to agree and does not; [`Error::TooFar`].
    pub fn write(&self, position: u64, bytes: &[u8]) -> Result<(), Error> {
        self.write_with(position, bytes, self.options.overlap)
    }

    /// Writes `bytes` at `position`; `overlap` says what happens where bytes are held already.
    ///
    /// # Errors
    /// [`Error::Differs`] with [`Overlap::Agree`]; [`Error::TooFar`].
    pub fn write_with(&self, position: u64, bytes: &[u8], overlap: Overlap) -> Result<(), Error> {
        if bytes.is_empty() {
            return Ok(());
        }
        let end = end_of(position, bytes.len())?;
        let Some(touches) = &self.touches else {
            return self.directory.write(position, bytes, overlap);
        };
        let mut touches = touches.lock();
        let joins = position > 0 && self.directory.has(Span::new(position - 1, 1))
            || self.directory.has(Span::new(position, 1));
        self.directory.write(position, bytes, overlap)?;
        let start = if joins { touches.start(position) } else { position };
        touches.touch(start, end);
        Ok(())
    }

    /// Fills `into` with the bytes from `position` on. Nothing is read by halves: `into` is left in an undefined state
    /// when not all are held.
    ///
    /// # Errors
    /// [`Error::Missing`] if not all of them are held; [`Error::TooFar`].
    #[inline]
    pub fn read(&self, position: u64, into: &mut [u8]) -> Result<(), Error> {
        end_of(position, into.len())?;
        if into.is_empty() {
            let missing = Span::new(position, 0);
            return if self.has(position, 0) {
                Ok(())
            } else {
                Err(Error::Missing { wanted: missing, missing })
            };
        }
        let Some(touches) = &self.touches else {
            return self.directory.read(position, into);
        };
        let mut touches = touches.lock();
        self.directory.read(position, into)?;
        let start = touches.start(position);
        touches.touch(start, start);
        Ok(())
    }

    /// The `length` bytes from `position` on.
    ///
    /// # Errors
    /// [`Error::Missing`] if not all of them are held; [`Error::TooFar`].
    pub fn read_to_vec(&self, position: u64, length: usize) -> Result<Vec<u8>, Error> {
        // Asked first, so that a wrong length does not allocate.
        if !self.has(position, length as u64) {
            end_of(position, length)?;
            let wanted = Span::new(position, length as u64);
            let missing = self.need(position, wanted.length, 0).first().copied().unwrap_or(wanted);
            return Err(Error::Missing { wanted, missing });
        }
        let mut bytes = vec![0; length];
        self.read(position, &mut bytes)?;
        Ok(bytes)
    }

    /// Whether all the `length` bytes from `position` on are held. No bytes are held where they would touch a block.
    pub fn has(&self, position: u64, length: u64) -> bool {
        if position.checked_add(length).is_none() {
            return false;
        }
        if length > 0 {
            return self.directory.has(Span::new(position, length));
        }
        self.directory.has(Span::new(position, 1))
            || position.checked_sub(1).is_some_and(|before| self.directory.has(Span::new(before, 1)))
    }

    /// What is to be fetched so that the `length` bytes from `position` on are held: the parts that are missing, in
    /// order. If `greedy` is more than `length`, each is made at least `greedy` long, since a short request costs no less than
    /// a longer one; what touches or overlaps then is one. Those may go over what is held and over the end of the file.
    pub fn need(&self, position: u64, length: u64, greedy: u64) -> Vec<Span> {
        let mut missing = Vec::new();
        self.directory.need(Span::new(position, length), &mut missing);
        if greedy > length {
            span::lengthen(&mut missing, greedy);
        }
        missing
    }

    /// What is to be fetched so that all of `spans` are held: the parts that are missing, in order, each at
    /// least `greedy` long; those that touch or overlap are one.
    pub fn need_many(&self, spans: &[Span], greedy: u64) -> Vec<Span> {
        let mut missing = self.missing(spans);
        span::lengthen(&mut missing, greedy);
        missing
    }

    /// The requests to make so that all of `spans` are held: the parts that are missing, those that are near one
    /// another merged, long ones divided.
    ///
    /// ```
    /// # use thalweg_sparse::{Merge, SparseFile, Span};
    /// let file = SparseFile::new("file", 0.0);
    /// file.write(100, &[0; 50])?;
    /// let merge = Merge { gap: 64, longest: 1000 };
    /// assert_eq!(file.plan(&[Span::new(0, 160), Span::new(400, 1500)], merge),
    ///     [Span::new(0, 160), Span::new(400, 1000), Span::new(1400, 500)]);
    /// # Ok::<(), thalweg_sparse::Error>(())
    /// ```
    pub fn plan(&self, spans: &[Span], how: Merge) -> Vec<Span> {
        let mut missing = self.missing(spans);
        span::lengthen(&mut missing, 0);
        span::merge(&missing, how)
    }

    /// The missing parts of each, in the order of the spans' positions.
    fn missing(&self, spans: &[Span]) -> Vec<Span> {
        let mut sorted;
        let spans = if spans.is_sorted() {
            spans
        } else {
            sorted = spans.to_vec();
            sorted.sort_unstable();
            &sorted
        };
        let mut missing = Vec::new();
        spans.iter().for_each(|span| self.directory.need(*span, &mut missing));
        missing
    }

    /// The blocks that are held, in order. While others write, each 64 KiB of positions are shown as they were at
    /// some moment.
    pub fn blocks(&self) -> Vec<Span> {
        self.directory.blocks()
    }

    /// How many blocks are held.
    pub fn count_blocks(&self) -> u64 {
        match &self.touches {
            Some(touches) => touches.lock().blocks() as u64,
            None => self.directory.count_blocks(),
        }
    }

    /// The block that the byte at `position` is in, if it is held.
    pub fn block_at(&self, position: u64) -> Option<Span> {
        self.directory.block_at(position)
    }

    /// How many bytes are held.
    pub fn bytes(&self) -> u64 {
        self.directory.held()
    }

    /// Whether no byte is held.
    pub fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// The position after the last byte that is held; 0 if none is.
    pub fn end(&self) -> u64 {
        self.directory.end()
    }

    /// The memory that it takes, in bytes, itself included. What the allocator adds is not known here.
    pub fn heap_bytes(&self) -> usize {
        let touches = self.touches.as_ref().map_or(0, |touches| touches.lock().blocks() * 56);
        size_of::<Self>() + self.id.len() + self.directory.heap() + touches
    }

    /// Lets go of what is held of the `length` bytes from `position` on, and says how many bytes that was.
    pub fn erase(&self, position: u64, length: u64) -> u64 {
        let span = Span::new(position, length);
        let touches = self.lock_touches();
        let behind = touches.is_some() && length > 0 && self.has(span.end().saturating_sub(1), 2);
        let erased = self.directory.erase(span);
        if let Some(mut touches) = touches {
            touches.erased(span.position, span.end(), behind);
        }
        erased
    }

    /// Lets go of the block that starts at `position`, and says how long it was.
    ///
    /// # Errors
    /// [`Error::NotABlock`] if none starts there.
    pub fn erase_block(&self, position: u64) -> Result<u64, Error> {
        let mut touches = self.lock_touches();
        let erased = self.directory.erase_block(position)?;
        if let Some(touches) = &mut touches {
            touches.forget(position);
        }
        Ok(erased)
    }

    /// Lets go of everything, and counts from zero. What it is a copy of and how it is kept stay.
    pub fn clear(&self) {
        let mut touches = self.lock_touches();
        self.directory.clear();
        if let Some(touches) = &mut touches {
            touches.clear();
        }
    }

    /// Gives back the memory that is kept for blocks to grow.
    pub fn compact(&self) {
        self.directory.compact();
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        self.directory.counters()
    }

    /// Keeps what is held of the `length` bytes from `position` on, and what comes to be held there, from being evicted
    /// until the pin is dropped. (As do the other bytes of the 64 KiB that they are in.)
    #[must_use = "when the pin is dropped, the range is no longer pinned"]
    pub fn pin(&self, position: u64, length: u64) -> Pin {
        let number = self.directory.pin(Span::new(position, length));
        Pin { directory: self.directory.clone(), number }
    }

    /// The number that the next use of a block will have, with [`Options::touches`].
    pub fn next_touch(&self) -> u64 {
        self.lock_touches().map_or(0, |touches| touches.next())
    }

    /// For each block the number of its last use and where it starts, the least recent first, with
    /// [`Options::touches`].
    pub fn touches(&self) -> Vec<(u64, u64)> {
        self.lock_touches().map_or_else(Vec::new, |touches| touches.list())
    }

    /// While `bound` bytes or more are held, lets go of the block that was used least recently, but never of the last one;
    /// says how many bytes went. Only with [`Options::touches`].
    pub fn evict_blocks(&self, bound: u64) -> u64 {
        let Some(mut touches) = self.lock_touches() else { return 0 };
        let before = self.bytes();
        let (mut held, mut blocks) = (before, 0);
        while held >= bound && touches.blocks() > 1 {
            let Some(start) = touches.least_recent() else { break };
            held -= self.directory.erase_block(start).unwrap_or(0);
            touches.forget(start);
            blocks += 1;
        }
        self.directory.note_evicted(blocks, before - held);
        before - held
    }

    fn lock_touches(&self) -> Option<MutexGuard<'_, Touches>> {
        self.touches.as_ref().map(Mutex::lock)
    }
}

/// Keeps a range of a file from being evicted, while it lives.
pub struct Pin {
    directory: Arc<Directory>,
    number: u64,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.directory.unpin(self.number);
    }
}

#[inline]
fn end_of(position: u64, length: usize) -> Result<u64, Error> {
    let length = length as u64;
    position.checked_add(length).ok_or(Error::TooFar { position, length })
}

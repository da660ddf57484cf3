use crate::clock::Clock;
use crate::directory::Directory;
use crate::pool::{Member, Pool};
use crate::touches::Touches;
use crate::{Counters, Error, Merge, Span, span};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

/// How a write treats bytes that are held already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overlap {
    /// The bytes must be equal. If not, nothing is written, and the error names the first difference. The
    /// bytes of a file do not change while it is read, so a difference is a mistake or a changed origin. The
    /// comparison is cheap.
    #[default]
    Agree,
    /// The new bytes replace the held ones.
    Replace,
    /// The held bytes stay, and only missing ones are written.
    Keep,
    /// The bytes of the block in which the write begins stay; those of later blocks are replaced. (`svfsc`
    /// does this when its comparison is off, and this variant exists for compatibility with it.)
    KeepFirst,
}

/// How a file is kept.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// How [`SparseFile::write`] treats bytes that are held already.
    pub overlap: Overlap,
    /// Overwrite memory with zeros before it is freed: when the file is dropped, when bytes are erased, and
    /// when data moves to a larger place.
    pub wipe: bool,
    /// How exactly the times of the last read and write are recorded.
    pub clock: Clock,
    /// The memory limit that the file shares with other files.
    pub pool: Option<Pool>,
    /// Record the order in which blocks are used, for [`SparseFile::touches`] and
    /// [`SparseFile::evict_blocks`]. It costs about fifty bytes per block, and makes reads and writes wait
    /// for one another. It is ignored with a pool, because a pool evicts ranges, not blocks.
    pub touches: bool,
}

/// The bytes of a file that were written so far, in memory.
///
/// Adjacent bytes form one *block*, however many writes they came from. All methods take `&self`, so that
/// threads can share the file in an [`Arc`]. Readers do not wait for one another, and writers only for writes
/// nearby. A write is visible as a whole or not at all; a failed write changes nothing.
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
    /// Creates an empty file. `id` names the origin. `modified` is the time of the origin's last change, as a
    /// number that means something to the caller (usually seconds since 1970).
    pub fn new(id: impl Into<Box<str>>, modified: f64) -> Self {
        Self::with_options(id, modified, Options::default())
    }

    /// Creates an empty file with `options`.
    pub fn with_options(id: impl Into<Box<str>>, modified: f64, options: Options) -> Self {
        let member = options.pool.as_ref().map(Member::new);
        let directory = Arc::new(Directory::new(options.wipe, options.clock, member));
        if let Some(member) = directory.member() {
            member.join(Arc::downgrade(&directory));
        }
        let touches = (options.touches && options.pool.is_none()).then(Mutex::default);
        Self { id: id.into(), modified, options, directory, touches }
    }

    /// Returns the name of the origin.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns when the origin was last changed.
    pub fn modified(&self) -> f64 {
        self.modified
    }

    /// True if the origin was last changed exactly at `time`.
    pub fn is_modified_at(&self, time: f64) -> bool {
        self.modified == time
    }

    /// Returns the options of the file.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Writes `bytes` at `position`. [`Options::overlap`] decides about bytes that are held already. An empty
    /// write does nothing.
    ///
    /// # Errors
    /// [`Error::Differs`] if the bytes must agree with the held ones and do not; [`Error::TooFar`].
    pub fn write(&self, position: u64, bytes: &[u8]) -> Result<(), Error> {
        self.write_with(position, bytes, self.options.overlap)
    }

    /// Writes `bytes` at `position`; `overlap` decides about bytes that are held already.
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

    /// Fills `into` with the bytes from `position` on. After an error the content of `into` is undefined.
    ///
    /// # Errors
    /// [`Error::Missing`] if not all of the bytes are held; [`Error::TooFar`].
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
        self.noted(position, |directory| directory.read(position, into))
    }

    /// Reads from a position, and records the use of the block there.
    #[inline]
    fn noted(&self, position: u64, read: impl FnOnce(&Directory) -> Result<(), Error>) -> Result<(), Error> {
        let Some(touches) = &self.touches else { return read(&self.directory) };
        let mut touches = touches.lock();
        read(&self.directory)?;
        let start = touches.start(position);
        touches.touch(start, start);
        Ok(())
    }

    /// Passes the `length` bytes from `position` on to `with`, without a copy, and counts that as a read. The
    /// bytes near them cannot be written meanwhile. Returns `None` without calling `with` if not all of them
    /// are held, if they are in more than one chunk of 64 KiB, or with [`Options::touches`].
    #[inline]
    pub fn look<T>(&self, position: u64, length: usize, with: impl FnOnce(&[u8]) -> T) -> Option<T> {
        if self.touches.is_some() || length == 0 {
            return None;
        }
        self.directory.look(position, length, with)
    }

    /// Returns the `length` bytes from `position` on.
    ///
    /// # Errors
    /// [`Error::Missing`] if not all of the bytes are held; [`Error::TooFar`].
    pub fn read_to_vec(&self, position: u64, length: usize) -> Result<Vec<u8>, Error> {
        // Checked first, so that a wrong length does not allocate.
        if !self.has(position, length as u64) {
            end_of(position, length)?;
            let wanted = Span::new(position, length as u64);
            let missing = self.need(position, wanted.length, 0).first().copied().unwrap_or(wanted);
            return Err(Error::Missing { wanted, missing });
        }
        let mut bytes = Vec::with_capacity(length);
        if length > 0 {
            let append = |_, piece: &[u8]| bytes.extend_from_slice(piece);
            self.noted(position, |directory| directory.read_pieces(position, length, append))?;
        }
        Ok(bytes)
    }

    /// True if all `length` bytes from `position` on are held. An empty range counts as held if it touches a
    /// block.
    pub fn has(&self, position: u64, length: u64) -> bool {
        if position.checked_add(length).is_none() {
            return false;
        }
        if length > 0 {
            return self.directory.has(Span::new(position, length));
        }
        // No byte is held at the last position, and no range of one byte begins there.
        position < u64::MAX && self.directory.has(Span::new(position, 1))
            || position.checked_sub(1).is_some_and(|before| self.directory.has(Span::new(before, 1)))
    }

    /// Returns the ranges to fetch so that the `length` bytes from `position` on are held: the missing parts,
    /// in order. If `greedy` is more than `length`, each range becomes at least `greedy` long, because a
    /// short request costs no less than a longer one. Ranges that then touch or overlap are joined. They may
    /// include held bytes, and extend beyond the end of the file.
    pub fn need(&self, position: u64, length: u64, greedy: u64) -> Vec<Span> {
        let mut missing = Vec::new();
        self.directory.need(Span::new(position, length), &mut missing);
        if greedy > length {
            span::lengthen(&mut missing, greedy);
        }
        missing
    }

    /// Passes the missing parts of `span` to `visit`, in order. `visit` must not use the file.
    #[inline]
    pub fn each_missing(&self, span: Span, visit: impl FnMut(Span)) {
        self.directory.each_missing(span, visit);
    }

    /// Returns the ranges to fetch so that all of `spans` are held: the missing parts, in order, each at
    /// least `greedy` long. Ranges that touch or overlap are joined.
    pub fn need_many(&self, spans: &[Span], greedy: u64) -> Vec<Span> {
        let mut missing = self.missing(spans);
        span::lengthen(&mut missing, greedy);
        missing
    }

    /// Returns the requests to make so that all of `spans` are held: the missing parts, with near ones merged
    /// and long ones split.
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

    /// Returns the missing parts of each span, in the order of the spans' positions.
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

    /// Returns the held blocks, in order. While other threads write, each chunk of 64 KiB is shown as of some
    /// moment.
    pub fn blocks(&self) -> Vec<Span> {
        self.directory.blocks()
    }

    /// Returns how many blocks are held.
    pub fn count_blocks(&self) -> u64 {
        match &self.touches {
            Some(touches) => touches.lock().blocks() as u64,
            None => self.directory.count_blocks(),
        }
    }

    /// Returns the block that contains the byte at `position`, if that byte is held.
    pub fn block_at(&self, position: u64) -> Option<Span> {
        self.directory.block_at(position)
    }

    /// Returns how many bytes are held.
    pub fn bytes(&self) -> u64 {
        self.directory.held()
    }

    /// True if no byte is held.
    pub fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// Returns the position after the last held byte; 0 if none is held.
    pub fn end(&self) -> u64 {
        self.directory.end()
    }

    /// Returns the memory that the file takes, in bytes, itself included. The overhead of the allocator is
    /// not known here.
    pub fn heap_bytes(&self) -> usize {
        let touches = self.touches.as_ref().map_or(0, |touches| touches.lock().blocks() * 56);
        size_of::<Self>() + self.id.len() + self.directory.heap() + touches
    }

    /// Erases what is held of the `length` bytes from `position` on. Returns how many bytes were erased.
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

    /// Erases the block that starts at `position`. Returns its length.
    ///
    /// # Errors
    /// [`Error::NotABlock`] if no block starts there.
    pub fn erase_block(&self, position: u64) -> Result<u64, Error> {
        let mut touches = self.lock_touches();
        let erased = self.directory.erase_block(position)?;
        if let Some(touches) = &mut touches {
            touches.forget(position);
        }
        Ok(erased)
    }

    /// Erases several blocks, as [`SparseFile::blocks`] returns them: sorted and without overlap. Returns how
    /// many bytes were erased. This costs much less than erasing them one by one.
    pub fn erase_blocks(&self, blocks: &[Span]) -> u64 {
        let touches = self.lock_touches();
        let erased = self.directory.erase_blocks(blocks);
        if let Some(mut touches) = touches {
            blocks.iter().for_each(|block| touches.forget(block.position));
        }
        erased
    }

    /// Frees the tables of an empty file: it then takes no more memory than a new one. The counters stay.
    /// Does nothing while a pin exists, or with a pool.
    pub fn release_tables(&mut self) {
        if let Some(directory) = Arc::get_mut(&mut self.directory) {
            directory.undivide();
        }
    }

    /// Erases everything and resets the counters. The id, the time and the options stay.
    pub fn clear(&self) {
        let mut touches = self.lock_touches();
        self.directory.clear();
        if let Some(touches) = &mut touches {
            touches.clear();
        }
    }

    /// Frees the memory that is reserved for blocks to grow.
    pub fn compact(&self) {
        self.directory.compact();
    }

    /// Returns the counters of reads, writes and erased blocks.
    pub fn counters(&self) -> Counters {
        self.directory.counters()
    }

    /// Protects the held bytes of a range from eviction, and those written to it later, until the pin is
    /// dropped. It covers the `length` bytes from `position` on, and the rest of the 64 KiB chunks that they
    /// are in.
    #[must_use = "when the pin is dropped, the range is no longer pinned"]
    pub fn pin(&self, position: u64, length: u64) -> Pin {
        let number = self.directory.pin(Span::new(position, length));
        Pin { directory: self.directory.clone(), number }
    }

    /// Returns the number that the next use of a block gets, with [`Options::touches`].
    pub fn next_touch(&self) -> u64 {
        self.lock_touches().map_or(0, |touches| touches.next())
    }

    /// Returns for each block the number of its last use and its start, the least recent first, with
    /// [`Options::touches`].
    pub fn touches(&self) -> Vec<(u64, u64)> {
        self.lock_touches().map_or_else(Vec::new, |touches| touches.list())
    }

    /// Erases the least recently used block while `bound` bytes or more are held, but never the last block.
    /// Returns how many bytes were erased. Only with [`Options::touches`].
    pub fn evict_blocks(&self, bound: u64) -> u64 {
        let Some(mut touches) = self.lock_touches() else { return 0 };
        let mut held = self.bytes();
        let mut blocks = Vec::new();
        while held >= bound && touches.blocks() > 1 {
            let Some(start) = touches.least_recent() else { break };
            touches.forget(start);
            if let Some(block) = self.directory.block_at(start) {
                held -= block.length.min(held);
                blocks.push(block);
            }
        }
        blocks.sort_unstable();
        let erased = self.directory.erase_blocks(&blocks);
        self.directory.note_evicted(blocks.len() as u64, erased);
        erased
    }

    fn lock_touches(&self) -> Option<MutexGuard<'_, Touches>> {
        self.touches.as_ref().map(Mutex::lock)
    }
}

/// Protects a range of a file from eviction while it lives.
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

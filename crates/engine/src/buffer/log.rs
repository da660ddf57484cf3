//! The segments of one buffer, with their writer and their reader in one process.
//!
//! The reader follows the writer into the segment that is being written, as far as a block is complete. It
//! need not be synced: a process that is killed leaves it to the system, and after a loss of power the block
//! may be missing, but then its input was not acknowledged and comes again.
//!
//! No run appends to a segment of a former one. A saved position of the reader may be beyond the end that a
//! segment has after a loss of power, and would skip what was appended there.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use thalweg_record::Batch;
use thalweg_runtime::private::create_private;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::segments::read::{Segment, dispose, list};
use crate::segments::write::{Bounds, Refusal, Writer, encode};
use crate::segments::{FINISHED, OPEN, path_of};
use crate::settings::WhenBufferFull;
use crate::{Error, io_error};

/// A buffer has about this many segments when it is full.
const SEGMENTS: u64 = 8;
/// But no segment is smaller or larger than this.
const SEGMENT_BYTES: [u64; 2] = [64 << 10, 64 << 20];
/// A segment ends at this age, so that its space is freed although little is written.
const SEGMENT_AGE: Duration = Duration::from_mins(1);

/// The space of all buffers of a process.
pub(crate) struct Total {
    limit: u64,
    used: AtomicU64,
    /// Notified when a buffer has freed space.
    freed: Notify,
}

impl Total {
    pub(crate) fn new(limit: Option<u64>) -> Arc<Self> {
        let limit = limit.unwrap_or(u64::MAX);
        Arc::new(Self { limit, used: AtomicU64::new(0), freed: Notify::new() })
    }

    /// Takes space, if there is enough.
    fn take(&self, bytes: u64) -> bool {
        let taken = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.limit);
        self.used.fetch_update(Relaxed, Relaxed, taken).is_ok()
    }

    fn give(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Relaxed);
        self.freed.notify_waiters();
    }
}

/// The limits of a buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// The maximum size of all segments together.
    pub(super) bytes: u64,
    pub(super) when_full: WhenBufferFull,
    /// How long the reader sends on after the request to stop.
    pub(super) linger: Duration,
}

/// The segments of one buffer.
pub(super) struct Log {
    folder: PathBuf,
    limits: Limits,
    total: Arc<Total>,
    end: Mutex<End>,
    state: Mutex<State>,
    /// Notified when a block was appended, or the writer has ended.
    appended: Notify,
    /// True if something was appended that is not synced.
    is_dirty: AtomicBool,
    dropped: AtomicU64,
}

/// The end that is appended to.
struct End {
    writer: Writer,
    /// The memory of a block.
    block: Vec<u8>,
}

#[derive(Default)]
struct State {
    /// The segments, the oldest first.
    segments: VecDeque<Held>,
    /// The space that they take, and that of a block that is being appended.
    bytes: u64,
    /// The number of the last segment that the reader has begun.
    begun: u32,
    /// The messages that the reader has not sent.
    unread: u64,
    /// True if nothing will be appended any more.
    has_ended: bool,
}

/// A segment.
struct Held {
    number: u32,
    bytes: u64,
    rows: u64,
    since: SystemTime,
    is_finished: bool,
}

/// Another run in this process may open the buffer again, and counts its space then.
impl Drop for Log {
    fn drop(&mut self) {
        self.total.give(self.state.get_mut().bytes);
    }
}

impl Log {
    /// Opens a folder with the segments that former runs left. An incomplete block at the end of one is cut
    /// off: it was not acknowledged.
    pub(super) fn open(folder: PathBuf, limits: Limits, total: Arc<Total>) -> Result<Self, Error> {
        create_private(&folder)
            .and_then(|()| sync_parents(&folder))
            .map_err(|error| io_error("create", &folder, &error))?;
        let failed = |error: io::Error| io_error("read", &folder, &error);
        let found = list(&folder).map_err(failed)?;
        if found.is_written {
            let shown = folder.display();
            return Err(Error::permanent(format!("another process writes to the buffer in `{shown}`")));
        }
        let mut state = State::default();
        for number in found.finished {
            let held = measured(&folder, number).map_err(failed)?;
            state.bytes += held.bytes;
            state.unread += held.rows;
            state.segments.push_back(held);
        }
        total.used.fetch_add(state.bytes, Relaxed);
        let [least, most] = SEGMENT_BYTES;
        let mut writer = Writer::new(Bounds {
            folder: folder.clone(),
            file_bytes: (limits.bytes / SEGMENTS).clamp(least, most),
            file_age: SEGMENT_AGE,
            bytes: None,
            fsync: true,
        });
        writer.open()?;
        let end = Mutex::new(End { writer, block: Vec::new() });
        Ok(Self {
            folder,
            limits,
            total,
            end,
            state: Mutex::new(state),
            appended: Notify::new(),
            is_dirty: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
        })
    }

    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    /// The space that the segments take, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }

    /// The number of messages that the reader has not sent.
    pub(super) fn unread(&self) -> u64 {
        self.state.lock().unread
    }

    /// The age in seconds of the oldest segment with messages that the reader has not sent.
    pub(super) fn oldest_seconds(&self) -> u64 {
        let state = self.state.lock();
        let mut waiting = state.segments.iter().filter(|held| held.number >= state.begun);
        let oldest = waiting.next().filter(|_| state.unread > 0);
        oldest.and_then(|held| held.since.elapsed().ok()).unwrap_or_default().as_secs()
    }

    /// The number of messages that were dropped because the buffer was full.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    pub(super) fn note_dropped(&self, rows: u64) {
        self.dropped.fetch_add(rows, Relaxed);
    }
}

/// For the writer.
impl Log {
    /// Ready when a buffer has freed space after this call, if it is polled or enabled before.
    pub(super) fn freed(&self) -> Notified<'_> {
        self.total.freed.notified()
    }

    /// Appends a batch, completely or not at all. If the buffer is full and drops the oldest messages, drops
    /// whole segments until there is room.
    pub(super) fn append(&self, batch: &Batch) -> Result<(), Refusal> {
        let mut end = self.end.lock();
        let End { writer, block } = &mut *end;
        writer.look_at_clock().map_err(Refusal::Failed)?;
        encode(batch, block).map_err(Refusal::Failed)?;
        let reserved = block.len() as u64 + Segment::first();
        if reserved > self.limits.bytes || reserved > self.total.limit {
            return Err(Refusal::TooLarge);
        }
        while !self.reserve(reserved) {
            let drops = self.limits.when_full == WhenBufferFull::DropOldest;
            if !drops || !self.drop_oldest().map_err(Refusal::Failed)? {
                return Err(Refusal::Full);
            }
        }
        let appended = writer.append_block(block, batch.rows());
        let position = writer.position().filter(|_| appended.is_ok());
        let taken = match position {
            Some((number, length)) => self.note_appended(number, length, batch.rows() as u64),
            None => 0,
        };
        self.release(reserved.saturating_sub(taken));
        self.is_dirty.store(true, Relaxed);
        self.appended.notify_one();
        appended
    }

    /// True if something was appended that is not synced.
    pub(super) fn is_dirty(&self) -> bool {
        self.is_dirty.load(Relaxed)
    }

    /// Makes what was appended durable.
    pub(super) fn sync(&self) -> Result<(), Error> {
        self.end.lock().writer.sync()?;
        self.is_dirty.store(false, Relaxed);
        Ok(())
    }

    /// Makes what was appended durable, and ends the buffer for this run.
    pub(super) fn finish(&self) -> Result<(), Error> {
        self.end.lock().writer.finish_segment()?;
        self.is_dirty.store(false, Relaxed);
        if let Some(last) = self.state.lock().segments.back_mut() {
            last.is_finished = true;
        }
        self.end();
        Ok(())
    }

    /// Ends the buffer for this run: nothing will be appended any more.
    pub(super) fn end(&self) {
        self.state.lock().has_ended = true;
        self.appended.notify_one();
    }

    fn reserve(&self, bytes: u64) -> bool {
        let mut state = self.state.lock();
        let fits = state.bytes.saturating_add(bytes) <= self.limits.bytes && self.total.take(bytes);
        if fits {
            state.bytes += bytes;
        }
        fits
    }

    fn release(&self, bytes: u64) {
        if bytes > 0 {
            self.state.lock().bytes -= bytes;
            self.total.give(bytes);
        }
    }

    /// Notes the new length of a segment. Returns by how much it grew.
    fn note_appended(&self, number: u32, length: u64, rows: u64) -> u64 {
        let mut state = self.state.lock();
        if state.segments.back().is_none_or(|last| last.number != number) {
            if let Some(former) = state.segments.back_mut() {
                former.is_finished = true;
            }
            let since = SystemTime::now();
            state.segments.push_back(Held { number, bytes: 0, rows: 0, since, is_finished: false });
        }
        state.unread += rows;
        let Some(last) = state.segments.back_mut() else { return 0 };
        last.rows += rows;
        length - std::mem::replace(&mut last.bytes, length)
    }

    /// Drops the oldest segment that the reader has not begun. Returns false if there is none.
    fn drop_oldest(&self) -> Result<bool, Error> {
        let mut state = self.state.lock();
        let begun = state.begun;
        let mut segments = state.segments.iter();
        let at = segments.position(|held| held.number > begun && held.is_finished);
        let Some(held) = at.and_then(|at| state.segments.remove(at)) else { return Ok(false) };
        state.unread -= held.rows;
        drop(state);
        self.note_dropped(held.rows);
        self.delete(held.number, false)?;
        self.release(held.bytes);
        Ok(true)
    }
}

/// For the reader.
impl Log {
    /// Waits until a block was appended since the last wait, or the writer has ended.
    pub(super) async fn appended(&self) {
        self.appended.notified().await;
    }

    /// True if nothing will be appended any more.
    pub(super) fn has_ended(&self) -> bool {
        self.state.lock().has_ended
    }

    /// True if there is a segment with this number.
    pub(super) fn has(&self, number: u32) -> bool {
        self.state.lock().segments.iter().any(|held| held.number == number)
    }

    /// Opens the next segment, at the offset that `saved` returns for its partition. Returns None if there is
    /// none.
    pub(super) fn begin_next(&self, saved: impl Fn(&str) -> Option<u64>) -> Result<Option<Segment>, Error> {
        let (before, number, length) = {
            let mut state = self.state.lock();
            let begun = state.begun;
            let mut waiting = state.segments.iter().filter(|held| held.number > begun);
            let Some((number, length)) = waiting.next().map(|held| (held.number, held.bytes)) else {
                return Ok(None);
            };
            state.begun = number;
            (begun, number, length)
        };
        match self.opened(number, length, saved) {
            Ok(segment) => Ok(Some(segment)),
            Err(error) => {
                self.state.lock().begun = before;
                Err(io_error("read", path_of(&self.folder, number, FINISHED), &error))
            }
        }
    }

    fn opened(&self, number: u32, length: u64, saved: impl Fn(&str) -> Option<u64>) -> io::Result<Segment> {
        let mut segment = Segment::open_growing(&self.folder, number, length)?;
        if let Some(offset) = saved(&segment.partition()) {
            let rows = segment.skip_to(offset)?;
            self.note_read(rows);
        }
        Ok(segment)
    }

    /// Returns the length of a segment, and true if it grows no more.
    pub(super) fn extent(&self, number: u32) -> (u64, bool) {
        let state = self.state.lock();
        let held = state.segments.iter().find(|held| held.number == number);
        held.map_or((0, true), |held| (held.bytes, held.is_finished || state.has_ended))
    }

    /// Notes that the reader has sent messages, or that a former run had delivered them.
    pub(super) fn note_read(&self, rows: u64) {
        let mut state = self.state.lock();
        state.unread = state.unread.saturating_sub(rows);
    }

    /// Removes a segment whose messages are all delivered. A damaged one is renamed and kept.
    pub(super) fn remove(&self, number: u32, is_damaged: bool) -> Result<(), Error> {
        self.delete(number, is_damaged)?;
        let mut state = self.state.lock();
        let at = state.segments.iter().position(|held| held.number == number);
        let removed = at.and_then(|at| state.segments.remove(at));
        drop(state);
        self.release(removed.map_or(0, |held| held.bytes));
        Ok(())
    }

    fn delete(&self, number: u32, is_damaged: bool) -> Result<(), Error> {
        // A writer that could not finish a segment leaves it under the other name.
        for kind in [FINISHED, OPEN] {
            let path = path_of(&self.folder, number, kind);
            dispose(&path, is_damaged).map_err(|error| io_error("remove", &path, &error))?;
        }
        Ok(())
    }
}

/// Measures a segment that a former run left.
fn measured(folder: &Path, number: u32) -> io::Result<Held> {
    let mut segment = Segment::open(folder, number)?;
    let found = fs::metadata(segment.path())?;
    let since = found.created().or_else(|_| found.modified()).unwrap_or_else(|_| SystemTime::now());
    let rows = segment.skip_to(u64::MAX)?;
    Ok(Held { number, bytes: found.len(), rows, since, is_finished: true })
}

/// Makes the names of a folder and of the folder that it is in durable.
fn sync_parents(folder: &Path) -> io::Result<()> {
    folder.ancestors().skip(1).take(2).try_for_each(|parent| File::open(parent)?.sync_all())
}

//! Reads remote content ahead: slices are fetched in parallel and returned in order.
//!
//! A slice is requested only after the budget has granted its memory. The reader gets the slices one by one,
//! each with the unused end of the previous one in front. A row that a slice edge cuts is therefore whole in
//! the next slice. Each arena has some free bytes before its slice, so that only the rest of a row is copied.
//!
//! (Rejected: cutting each slice into rows on its own. Whether a line feed ends a row of CSV depends on all
//! quotes before it. Besides, finding the rows is a small part of reading them.)
//!
//! See docs/decisions/032-slices-arrive-in-parallel-and-are-cut-in-order.md.

use std::io;
use std::sync::Arc;

use arrow_buffer::Buffer;
use bytes::Bytes;
use thalweg_record::{Arena, ReadRanges, Share};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use thalweg_engine::SourceOutput;

/// The free bytes before a slice. The unused rest is one incomplete row, which is seldom longer.
const FRONT: usize = 16 << 10;
/// All slices in flight use at most this fraction of the memory by default: 1/4. The batches made from them
/// need the rest.
const SHARE: usize = 4;
/// The default number of slices to request at the same time. The limit of the source may be lower. With
/// little memory there are few large slices instead of many small ones: each request costs a server about a
/// millisecond of CPU. That was a tenth of the total in a copy with slices of 2 MiB.
const AT_ONCE: std::ops::RangeInclusive<usize> = 4..=8;
/// The bounds of the default slice size in bytes.
const SLICE: std::ops::RangeInclusive<usize> = 64 << 10..=8 << 20;

/// A slice that is being fetched.
struct Coming {
    fetching: JoinHandle<io::Result<Arena>>,
    length: usize,
    permit: Permit,
    /// Counts against the number of slices in flight. It is released when the reader takes the slice.
    _slot: OwnedSemaphorePermit,
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.fetching.abort();
    }
}

/// Permission to keep a slice in memory, if there is a limit.
type Permit = Option<OwnedSemaphorePermit>;

/// Memory with a permit of the window. The last slice of the memory releases the permit.
struct Bounded(Buffer, #[allow(dead_code)] OwnedSemaphorePermit);

impl AsRef<[u8]> for Bounded {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Fetches slices before the reader needs them.
pub struct Ahead {
    ranges: Arc<dyn ReadRanges>,
    slice: usize,
    at_once: usize,
    /// The maximum number of slices in memory, if there is a limit.
    window: Option<usize>,
    /// The end of the last slice that was returned, in bytes.
    given: u64,
    length: u64,
    asking: Option<Asking>,
}

/// The task that requests slices while the reader processes earlier ones. A request at the time of need would
/// come too late.
struct Asking {
    task: JoinHandle<()>,
    coming: UnboundedReceiver<Coming>,
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Ahead {
    /// Creates a reader from the position `from` to the end. `budget` is the memory of the whole process, in
    /// bytes.
    pub fn new(ranges: Arc<dyn ReadRanges>, from: u64, budget: usize) -> Self {
        let pace = ranges.pace();
        let share = budget / SHARE;
        let slice = pace
            .slice
            .unwrap_or_else(|| (share / AT_ONCE.start()).clamp(*SLICE.start(), *SLICE.end()))
            .max(1);
        let at_once = || (share / slice).clamp(*AT_ONCE.start(), *AT_ONCE.end());
        Self {
            slice,
            at_once: pace.at_once.unwrap_or_else(at_once).clamp(1, Semaphore::MAX_PERMITS),
            window: pace.window.map(|window| window.clamp(1, Semaphore::MAX_PERMITS)),
            given: from,
            length: ranges.length(),
            asking: None,
            ranges,
        }
    }

    /// True if everything was returned.
    pub fn is_end(&self) -> bool {
        self.given >= self.length
    }

    /// Waits for the next slice, and returns it with `carry` in front.
    ///
    /// # Errors
    /// If the slice cannot be fetched.
    pub async fn more(&mut self, carry: &[u8], out: &SourceOutput) -> io::Result<Buffer> {
        if self.is_end() {
            return Ok(Buffer::from(carry));
        }
        let asking = match &mut self.asking {
            Some(asking) => asking,
            None => {
                let asking = self.ask(out.share().clone());
                self.asking.insert(asking)
            }
        };
        let ended = || io::Error::other("the task that reads ahead has ended");
        let mut coming = asking.coming.recv().await.ok_or_else(ended)?;
        let arena = (&mut coming.fetching).await.map_err(io::Error::other)??;
        self.given += coming.length as u64;
        Ok(joined(carry, arena, coming.permit.take(), coming.length, out))
    }

    fn ask(&self, memory: Share) -> Asking {
        let (found, coming) = unbounded_channel();
        let slots = Arc::new(Semaphore::new(self.at_once));
        let window = self.window.map(|window| Arc::new(Semaphore::new(window)));
        let (ranges, slice, length, mut next) = (self.ranges.clone(), self.slice, self.length, self.given);
        let task = tokio::spawn(async move {
            while next < length
                && let Some(slot) = permit(Some(&slots)).await
            {
                let permit = permit(window.as_ref()).await;
                let length = usize::try_from(length - next).unwrap_or(usize::MAX).min(slice);
                let arena = memory.arena(FRONT + length).await;
                let fetching = tokio::spawn(fetched(ranges.clone(), next, arena, length));
                next += length as u64;
                if found.send(Coming { fetching, length, permit, _slot: slot }).is_err() {
                    return;
                }
            }
        });
        Asking { task, coming }
    }
}

async fn fetched(
    ranges: Arc<dyn ReadRanges>,
    position: u64,
    mut arena: Arena,
    length: usize,
) -> io::Result<Arena> {
    let into = arena.get_mut(FRONT..FRONT + length).ok_or(io::ErrorKind::OutOfMemory)?;
    ranges.fetch(position, into).await?;
    Ok(arena)
}

async fn permit(window: Option<&Arc<Semaphore>>) -> Permit {
    window?.clone().acquire_owned().await.ok()
}

/// Returns a slice with `carry` in front.
fn joined(carry: &[u8], mut arena: Arena, permit: Permit, length: usize, out: &SourceOutput) -> Buffer {
    let start = FRONT.checked_sub(carry.len());
    if let Some((start, front)) = start.and_then(|start| Some((start, arena.get_mut(start..FRONT)?))) {
        front.copy_from_slice(carry);
        let whole = arena.freeze();
        let whole = match permit {
            // The permit covers the whole arena, because the budget identifies memory by its start.
            Some(permit) => Buffer::from(Bytes::from_owner(Bounded(whole, permit))),
            None => whole,
        };
        return whole.slice_with_length(start, carry.len() + length);
    }
    // Claims memory without waiting: the slices that were read ahead may be what fills the budget.
    let lease = out.claim(carry.len() + length);
    let mut memory = Vec::with_capacity(carry.len() + length);
    memory.extend_from_slice(carry);
    memory.extend_from_slice(arena.get(FRONT..FRONT + length).unwrap_or_default());
    lease.freeze(memory)
}

#[cfg(test)]
pub(crate) mod testing {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::*;
    use thalweg_record::{Content, Fetching, File, Origin, Pace};

    /// Bytes that arrive in parts, after varying delays.
    #[derive(Debug)]
    pub(crate) struct Slow {
        bytes: Vec<u8>,
        /// The length that is announced, in bytes. Slices beyond `bytes` cannot be fetched.
        length: u64,
        pace: Pace,
        asked: AtomicU64,
    }

    impl ReadRanges for Slow {
        fn length(&self) -> u64 {
            self.length
        }

        fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
            let rest = self.bytes.get(position as usize..).unwrap_or_default();
            let length = rest.len().min(into.len());
            into[..length].copy_from_slice(&rest[..length]);
            Ok(length)
        }

        fn fetch<'a>(&'a self, position: u64, into: &'a mut [u8]) -> Fetching<'a> {
            let turn = self.asked.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                for _ in 0..turn * 7 % 5 {
                    tokio::task::yield_now().await;
                }
                tokio::time::sleep(Duration::from_micros(turn % 3)).await;
                match self.read_at(position, into)? == into.len() {
                    true => Ok(()),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                }
            })
        }

        fn streams(&self) -> bool {
            true
        }

        fn pace(&self) -> Pace {
            self.pace
        }
    }

    /// Returns a file that is read in slices of `slice` bytes, `at_once` at a time.
    pub(crate) fn sliced(name: &str, bytes: &[u8], slice: usize, at_once: usize) -> File {
        bounded(name, bytes, slice, at_once, None)
    }

    /// Like [`sliced`], with at most `window` slices in memory.
    pub(crate) fn bounded(
        name: &str,
        bytes: &[u8],
        slice: usize,
        at_once: usize,
        window: Option<usize>,
    ) -> File {
        file(name, bytes, bytes.len() as u64, Pace { slice: Some(slice), at_once: Some(at_once), window })
    }

    /// Returns a file of `length` bytes, read in slices of `slice` bytes. Slices beyond `bytes` cannot be
    /// fetched.
    pub(crate) fn unfetchable_after(name: &str, bytes: &[u8], length: u64, slice: usize) -> File {
        file(name, bytes, length, Pace { slice: Some(slice), at_once: Some(1), window: None })
    }

    fn file(name: &str, bytes: &[u8], length: u64, pace: Pace) -> File {
        let slow = Slow { bytes: bytes.to_vec(), length, pace, asked: AtomicU64::new(0) };
        let origin = Origin::new("in".into(), name.into(), length);
        File::new(origin, Content::Ranges(Arc::new(slow)))
    }
}

#[cfg(test)]
mod tests {
    use super::testing::bounded;
    use super::*;
    use proptest::prelude::*;
    use thalweg_engine::testing::file_output;
    use thalweg_record::{Budget, Content};

    proptest! {
        #[test]
        fn all_comes_in_its_order_with_what_was_left_before_it(
            (slices, slice) in (0..60usize, prop_oneof![1..50usize, 300..900usize]),
            (more, at_once) in (0..50usize, 1..6usize),
            from in 0..100u64,
            window in prop::option::of(0..3usize),
            left in prop::collection::vec(0..40_000usize, 1..6),
            memory in prop_oneof![Just(1 << 10), Just(1 << 20)],
        ) {
            let length = slices * slice + more;
            let bytes: Vec<u8> = (0..length).map(|at| (at * 31 % 251) as u8).collect();
            let from = from.min(length as u64);
            let file = bounded("x", &bytes, slice, at_once, window.map(|more| at_once + more));
            let Content::Ranges(ranges) = file.content().clone() else { unreachable!() };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let budget = Budget::new(memory);
            let (out, _main, _errors) = file_output(&budget, 1 << 10, &file);
            let came = runtime.block_on(async {
                let mut ahead = Ahead::new(ranges, from, memory);
                let (mut came, mut carry, mut left) = (Vec::new(), Vec::new(), left.iter().cycle());
                while !ahead.is_end() {
                    let more = ahead.more(&carry, &out).await.unwrap();
                    assert!(more.starts_with(&carry) && more.len() - carry.len() <= slice);
                    let keep = (*left.next().unwrap()).min(more.len());
                    let (done, rest) = more.split_at(more.len() - keep);
                    came.extend_from_slice(done);
                    carry = rest.to_vec();
                }
                came.extend_from_slice(&carry);
                came
            });
            prop_assert_eq!(&came[..], &bytes[from as usize..]);
            prop_assert_eq!(budget.used(), 0);
        }
    }

    #[tokio::test]
    async fn there_may_be_as_many_at_once_as_anybody_says() {
        let file = bounded("x", &[7; 100], 10, usize::MAX, Some(usize::MAX));
        let Content::Ranges(ranges) = file.content().clone() else { unreachable!() };
        let budget = Budget::new(1 << 20);
        let (out, _main, _errors) = file_output(&budget, 1 << 10, &file);
        assert_eq!(Ahead::new(ranges, 0, 1 << 20).more(&[], &out).await.unwrap().len(), 10);
    }

    #[tokio::test]
    async fn a_part_that_cannot_be_had_is_told_and_memory_is_given_back() {
        let file = bounded("x", &[7; 100], 10, 4, Some(5));
        let Content::Ranges(ranges) = file.content().clone() else { unreachable!() };
        let budget = Budget::new(1 << 20);
        let (out, _main, _errors) = file_output(&budget, 1 << 10, &file);
        let mut ahead = Ahead::new(ranges, 0, 1 << 20);
        ahead.length = 105;
        for _ in 0..10 {
            assert_eq!(ahead.more(&[], &out).await.unwrap().len(), 10);
        }
        assert_eq!(ahead.more(&[], &out).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        drop(ahead);
        tokio::task::yield_now().await;
        assert_eq!(budget.used(), 0);
    }
}

//! Something that is fetched in parts, read as a whole: its slices come at the same time, and are given in their order.
//!
//! A slice is only asked for when the budget has given its memory. Who reads it is given the slices one after the other, each with
//! what was left of those before it put in front: a row that an edge has cut is whole there. For that, each slice has some
//! free bytes before it, so that nothing but the rest of a row is copied. (Slices that are cut into rows each by itself were
//! rejected: whether a line feed ends a row of comma-separated values depends on all the quotes before it. Finding the rows
//! is a small part of reading them.)

use std::io;
use std::sync::Arc;

use arrow_buffer::Buffer;
use bytes::Bytes;
use thalweg_record::{Arena, ReadRanges, Share};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use super::taker::Taker;

/// The free bytes before a slice. What is left over is seldom more: a row.
const FRONT: usize = 16 << 10;
/// What all slices on their way take of the memory where nothing is said: what is made of them needs the rest.
const SHARE: usize = 4;
/// How many slices are asked for at the same time where nothing is said; the limit of their source may be lower. With little
/// memory there are few large ones rather than many small ones: each costs a server about a millisecond of its core,
/// which was a tenth of all in a copy by slices of 2 MiB.
const AT_ONCE: std::ops::RangeInclusive<usize> = 4..=8;
/// The bounds of what a slice has where nothing is said.
const SLICE: std::ops::RangeInclusive<usize> = 64 << 10..=8 << 20;

/// A slice on its way.
struct Coming {
    fetching: JoinHandle<io::Result<Arena>>,
    length: usize,
    permit: Permit,
    /// Its place among those that may be on their way at once.
    _slot: OwnedSemaphorePermit,
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.fetching.abort();
    }
}

/// What it takes to hold a slice, if there is a bound.
type Permit = Option<OwnedSemaphorePermit>;

/// Memory of which there may only be so much: the permit goes with the last slice of it.
struct Bounded(Buffer, #[allow(dead_code)] OwnedSemaphorePermit);

impl AsRef<[u8]> for Bounded {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Reads ahead.
pub struct Ahead {
    ranges: Arc<dyn ReadRanges>,
    slice: usize,
    at_once: usize,
    /// How many slices may be held somewhere, if there is a bound.
    window: Option<usize>,
    /// How far it was given.
    given: u64,
    length: u64,
    asking: Option<Asking>,
}

/// What asks for slices, while whoever reads works on those that came: it would be too late when the next one is wanted.
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
    /// Reads from a position to the end. `budget` is the memory of the whole process, in bytes.
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

    /// Whether all was given.
    pub fn is_end(&self) -> bool {
        self.given >= self.length
    }

    /// The next slice, with `carry` before it. Waits until it is there.
    ///
    /// # Errors
    /// If it cannot be had.
    pub async fn more(&mut self, carry: &[u8], out: &impl Taker) -> io::Result<Buffer> {
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
        let ended = || io::Error::other("what reads ahead has ended");
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

/// A slice with what was left over before it.
fn joined(carry: &[u8], mut arena: Arena, permit: Permit, length: usize, out: &impl Taker) -> Buffer {
    let start = FRONT.checked_sub(carry.len());
    if let Some((start, front)) = start.and_then(|start| Some((start, arena.get_mut(start..FRONT)?))) {
        front.copy_from_slice(carry);
        let whole = arena.freeze();
        let whole = match permit {
            // As a whole: it is counted by where it begins.
            Some(permit) => Buffer::from(Bytes::from_owner(Bounded(whole, permit))),
            None => whole,
        };
        return whole.slice_with_length(start, carry.len() + length);
    }
    // Without waiting for room: it may be what is read ahead that fills it.
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

    /// Bytes that come in parts, each after another time.
    #[derive(Debug)]
    pub(crate) struct Slow {
        bytes: Vec<u8>,
        pace: Pace,
        asked: AtomicU64,
    }

    impl ReadRanges for Slow {
        fn length(&self) -> u64 {
            self.bytes.len() as u64
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

    /// A file whose bytes come in slices of so many bytes, so many at once.
    pub(crate) fn sliced(name: &str, bytes: &[u8], slice: usize, at_once: usize) -> File {
        bounded(name, bytes, slice, at_once, None)
    }

    /// The same, of which so many slices may be held.
    pub(crate) fn bounded(
        name: &str,
        bytes: &[u8],
        slice: usize,
        at_once: usize,
        window: Option<usize>,
    ) -> File {
        let pace = Pace { slice: Some(slice), at_once: Some(at_once), window };
        let slow = Slow { bytes: bytes.to_vec(), pace, asked: AtomicU64::new(0) };
        let origin = Origin::new("in".into(), name.into(), bytes.len() as u64);
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

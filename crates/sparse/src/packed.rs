//! A chunk that holds few bytes: their data back to back in the order of position, and a list of the runs
//! they form.
//!
//! A run is 32 bits: its start in the chunk, and the end of its data in the packed data, which is the start
//! of the next run's data. The length of a run is therefore a difference. Two runs that become adjacent are
//! joined by deleting an entry. Moving all later runs by some bytes is one addition per word, which the
//! compiler does eight at a time.
//!
//! Blocks are often erased in the order of position, when the least recently used ones make room. Bytes
//! erased at the front therefore stay in the data as an unused head, until it is half of the data.
//!
//! A separate offset for each run was rejected, although data could then stay in the order of arrival. Each
//! run would need half as much memory again, and garbage would have to be collected. Bytes would be moved
//! anyway when two runs are read as one.

use crate::chunk::CHUNK;
use std::sync::atomic::{AtomicUsize, Ordering};
use zeroize::Zeroize;

#[derive(Debug, Default)]
pub(crate) struct Packed {
    runs: Vec<u32>,
    data: Vec<u8>,
    /// How many bytes at the front of the data belong to no run.
    head: u32,
    /// How many bytes writes between runs have moved.
    moved: u32,
}

/// The number of runs in a group. The search compares the last run of each group to find the group to count
/// in.
const EIGHT: usize = 8;
/// The size in bytes below which capacity is simply doubled: the waste is small, and an estimate costs more
/// than it saves.
const LITTLE: usize = 1024;
/// Spare capacity is freed if it exceeds this fraction (one part in `KEPT`) of the length.
const KEPT: usize = 128;

const fn run(start: u32, data_end: usize) -> u32 {
    start << 16 | data_end as u32
}

/// Returns how many runs of a sorted list start at or before `at`. The start is the upper half of the word.
#[inline]
pub(crate) fn starting_by(runs: &[u32], at: u32) -> usize {
    if at >= CHUNK {
        return runs.len();
    }
    let most = at << 16 | 0xFFFF;
    // Halves the list until few runs are left. Each halving step depends on the previous one; counting does
    // not. The rest is therefore counted: first the groups of eight that end at or before `at`, then within
    // the next group.
    let (mut first, mut rest) = (0, runs);
    while rest.len() > 64 {
        let half = rest.len() / 2;
        if rest[half] <= most {
            first += half;
            rest = &rest[half..];
        } else {
            rest = &rest[..half];
        }
    }
    let Some(last) = rest.last_chunk::<EIGHT>() else {
        return first + rest.iter().filter(|run| **run <= most).count();
    };
    let skip = EIGHT * rest.as_chunks::<EIGHT>().0.iter().filter(|eight| eight[EIGHT - 1] <= most).count();
    match rest.get(skip..).and_then(|rest| rest.first_chunk::<EIGHT>()) {
        Some(eight) => first + skip + up_to(eight, most),
        // Fewer than eight runs follow the skipped groups: the last eight runs of the list include them.
        None => first + rest.len() - EIGHT + up_to(last, most),
    }
}

/// Where a thread's previous search in a file ended, if that is known.
pub(crate) type Near<'a> = Option<&'a AtomicUsize>;

/// As [`starting_by`], for a thread that proceeds forwards: the result is often that of its previous search,
/// or one more. Any value of `near` is correct, since the chunk may be another one.
#[inline]
pub(crate) fn starting_near(runs: &[u32], at: u32, near: Near<'_>) -> usize {
    let Some(near) = near else { return starting_by(runs, at) };
    let before = near.load(Ordering::Relaxed);
    let starts_by = |run: &u32| run >> 16 <= at;
    for count in [before, before.wrapping_add(1)] {
        let (last, next) = (runs.get(count.wrapping_sub(1)), runs.get(count));
        if last.is_some_and(starts_by) && !next.is_some_and(starts_by) {
            near.store(count, Ordering::Relaxed);
            return count;
        }
    }
    let found = starting_by(runs, at);
    near.store(found, Ordering::Relaxed);
    found
}

#[inline]
fn up_to(runs: &[u32; EIGHT], most: u32) -> usize {
    runs.iter().map(|run| u32::from(*run <= most)).sum::<u32>() as usize
}

impl Packed {
    pub fn with_capacity(bytes: usize) -> Self {
        Self { runs: Vec::with_capacity(4), data: Vec::with_capacity(bytes.max(16)), head: 0, moved: 0 }
    }

    /// Returns an empty chunk that will have about this many bytes in this many runs.
    pub fn with_room(data: usize, runs: usize) -> Self {
        Self { runs: Vec::with_capacity(runs), data: Vec::with_capacity(data), head: 0, moved: 0 }
    }

    #[inline]
    fn start(&self, at: usize) -> u32 {
        self.runs[at] >> 16
    }

    /// Returns the offset at which the data of the run begins.
    #[inline]
    fn data_start(&self, at: usize) -> usize {
        if at == 0 { self.head as usize } else { self.data_end(at - 1) }
    }

    #[inline]
    fn data_end(&self, at: usize) -> usize {
        (self.runs[at] & 0xFFFF) as usize
    }

    #[inline]
    fn end(&self, at: usize) -> u32 {
        self.start(at) + (self.data_end(at) - self.data_start(at)) as u32
    }

    /// Returns the position after the last byte.
    #[inline]
    fn last_end(&self) -> u32 {
        self.runs.len().checked_sub(1).map_or(0, |last| self.end(last))
    }

    pub fn held(&self) -> usize {
        self.data.len() - self.head as usize
    }

    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Returns how many bytes were moved by writes between runs.
    pub fn moved(&self) -> u32 {
        self.moved
    }

    pub fn heap(&self) -> usize {
        self.data.capacity() + self.runs.capacity() * 4
    }

    /// Returns how many bytes of memory a write of `bytes` bytes may add.
    pub fn growth(&self, bytes: usize) -> usize {
        let data = roomy(self.data.len() + bytes, self.data.capacity());
        let runs = roomy(self.runs.len() + 1, self.runs.capacity());
        data + runs * 4 - self.heap()
    }

    /// Returns the start and end of the run that holds `at`.
    pub fn run_at(&self, at: u32) -> Option<(u32, u32)> {
        let last = starting_by(&self.runs, at).checked_sub(1)?;
        (self.end(last) > at).then(|| (self.start(last), self.end(last)))
    }

    /// Returns the `length` bytes from `from` on, if all are held.
    #[inline]
    pub fn get(&self, from: u32, length: usize, near: Near<'_>) -> Option<&[u8]> {
        let at = starting_near(&self.runs, from, near).checked_sub(1)?;
        let begin = self.data_start(at) + (from - self.start(at)) as usize;
        if begin + length > self.data_end(at) {
            return None;
        }
        self.data.get(begin..begin + length)
    }

    /// Passes the held parts of `from..to` to `visit`, in order, until `visit` returns false: their starts,
    /// their ends, and the offsets of their data.
    #[inline]
    pub fn each(
        &self,
        from: u32,
        to: u32,
        near: Near<'_>,
        visit: &mut impl FnMut(u32, u32, usize) -> bool,
    ) -> bool {
        let first = starting_near(&self.runs, from, near).saturating_sub(1);
        let mut begin = self.data_start(first);
        for run in self.runs.get(first..).unwrap_or_default() {
            let (start, data_end) = (run >> 16, (run & 0xFFFF) as usize);
            if start >= to {
                break;
            }
            let end = start + (data_end - begin) as u32;
            let skip = from.saturating_sub(start);
            if end > from && !visit(start + skip, end.min(to), begin + skip as usize) {
                return false;
            }
            begin = data_end;
        }
        true
    }

    /// Passes the bytes of the held parts of `from..to` to `visit`, in order, until `visit` returns false.
    #[inline]
    pub fn visit<'a>(&'a self, from: u32, to: u32, visit: &mut impl FnMut(u32, &'a [u8]) -> bool) -> bool {
        self.each(from, to, None, &mut |start, end, begin| {
            visit(start, &self.data[begin..begin + (end - start) as usize])
        })
    }

    /// True if the data, with its head, has no room for `bytes` more bytes: the end of a run has 16 bits.
    #[inline]
    fn is_long(&self, bytes: usize) -> bool {
        self.head > 0 && self.data.len() + bytes > u16::MAX as usize
    }

    /// Moves the data over its unused head.
    #[cold]
    fn close_head(&mut self, wipe: bool) {
        let head = std::mem::take(&mut self.head);
        let length = self.data.len() - head as usize;
        self.data.copy_within(head as usize.., 0);
        if wipe {
            self.data[length..].zeroize();
        }
        self.data.truncate(length);
        self.runs.iter_mut().for_each(|run| *run -= head);
    }

    /// Writes `bytes` at `from` if no run ends after `from` and the capacity suffices. Returns true if it
    /// did.
    #[inline]
    pub fn append(&mut self, from: u32, bytes: &[u8]) -> bool {
        let Some(last) = self.runs.len().checked_sub(1) else { return false };
        let end = self.end(last);
        if from < end || self.data.capacity() - self.data.len() < bytes.len() || self.is_long(bytes.len()) {
            return false;
        }
        if from == end {
            self.runs[last] += bytes.len() as u32;
        } else if self.runs.len() < self.runs.capacity() {
            self.runs.push(run(from, self.data.len() + bytes.len()));
        } else {
            return false;
        }
        self.data.extend_from_slice(bytes);
        true
    }

    /// Writes `bytes` at `from`, and replaces bytes that are held there.
    #[inline]
    pub fn write(&mut self, from: u32, bytes: &[u8], wipe: bool) {
        if self.head > 0 && self.data.capacity() - self.data.len() < bytes.len() || self.is_long(bytes.len())
        {
            self.close_head(wipe);
        }
        self.reserve(from, bytes.len(), wipe);
        if self.runs.is_empty() {
            self.data.clear();
            self.head = 0;
            self.data.extend_from_slice(bytes);
            self.runs.push(run(from, bytes.len()));
        } else if !self.append(from, bytes) {
            self.write_between(from, bytes);
        }
    }

    fn write_between(&mut self, from: u32, bytes: &[u8]) {
        let to = from + bytes.len() as u32;
        let mut first = starting_by(&self.runs, from);
        if first > 0 && self.end(first - 1) >= from {
            first -= 1;
        }
        let after = starting_by(&self.runs, to);
        if first == after {
            let begin = self.data_start(first);
            self.open(begin, bytes.len());
            self.data[begin..begin + bytes.len()].copy_from_slice(bytes);
            self.runs.insert(first, run(from, begin + bytes.len()));
            self.runs[first + 1..].iter_mut().for_each(|run| *run += bytes.len() as u32);
            return;
        }
        // The runs from `first` up to `after` become one. Their bytes before `from` and after `to` stay.
        let start = self.start(first);
        let begin = self.data_start(first) + from.saturating_sub(start) as usize;
        let end = self.data_end(after - 1) - self.end(after - 1).saturating_sub(to) as usize;
        let more = bytes.len() - (end - begin);
        self.open(end, more);
        self.data[begin..begin + bytes.len()].copy_from_slice(bytes);
        self.runs[first] = run(start.min(from), self.data_end(after - 1) + more);
        self.runs.drain(first + 1..after);
        self.runs[first + 1..].iter_mut().for_each(|run| *run += more as u32);
    }

    /// Moves the data from `at` on by `more` bytes.
    fn open(&mut self, at: usize, more: usize) {
        let length = self.data.len();
        self.data.resize(length + more, 0);
        self.data.copy_within(at..length, at + more);
        self.moved = self.moved.saturating_add((length - at) as u32);
    }

    /// Erases the bytes of `from..to`.
    pub fn remove(&mut self, from: u32, to: u32, wipe: bool) {
        let mut first = starting_by(&self.runs, from);
        if first > 0 && self.end(first - 1) > from {
            first -= 1;
        }
        let after = if to == 0 { 0 } else { starting_by(&self.runs, to - 1) };
        if first >= after {
            return;
        }
        let (start, last_end) = (self.start(first), self.end(after - 1));
        let begin = self.data_start(first) + from.saturating_sub(start) as usize;
        let end = self.data_end(after - 1) - last_end.saturating_sub(to) as usize;
        if begin == self.head as usize {
            return self.remove_front(to, after, end, wipe);
        }
        let less = end - begin;
        let rest = self.data_end(after - 1) - less;
        self.data.copy_within(end.., begin);
        let length = self.data.len() - less;
        if wipe {
            self.data[length..].zeroize();
        }
        self.data.truncate(length);
        let before = (start < from).then(|| run(start, begin));
        let behind = (last_end > to).then(|| run(to, rest));
        let kept = before.is_some() as usize + behind.is_some() as usize;
        self.runs.splice(first..after, before.into_iter().chain(behind));
        self.runs[first + kept..].iter_mut().for_each(|run| *run -= less as u32);
        self.trim_if_sparse(wipe);
    }

    /// Erases the bytes of the first `after` runs before `to`, whose data ends at `end`.
    fn remove_front(&mut self, to: u32, after: usize, end: usize, wipe: bool) {
        if wipe {
            self.data[self.head as usize..end].zeroize();
        }
        let last = self.runs[after - 1];
        let is_split = self.end(after - 1) > to;
        self.head = end as u32;
        if is_split {
            self.runs[after - 1] = run(to, (last & 0xFFFF) as usize);
        }
        self.runs.drain(..after - usize::from(is_split));
        if end > self.data.len() / 2 {
            self.close_head(wipe);
            self.trim_if_sparse(wipe);
        }
    }

    fn trim_if_sparse(&mut self, wipe: bool) {
        if self.heap() > 4 * (self.data.len() + self.runs.len() * 4) + 64 {
            self.trim(wipe);
        }
    }

    /// Erases the bytes of `ranges`, which are sorted and do not overlap, and compacts what is left once.
    pub fn remove_several(&mut self, ranges: &[(u32, u32)], wipe: bool) {
        let runs = std::mem::take(&mut self.runs);
        let mut begin = std::mem::take(&mut self.head) as usize;
        let placed = runs.iter().map(|run| {
            let (start, data_end) = (run >> 16, (run & 0xFFFF) as usize);
            let placed = (start, start + (data_end - begin) as u32, begin);
            begin = data_end;
            placed
        });
        let mut length = 0;
        let (kept, data) = (&mut self.runs, &mut self.data);
        outside(placed, ranges, |from, to, (start, begin)| {
            let begin = begin + (from - start) as usize;
            let end = begin + (to - from) as usize;
            data.copy_within(begin..end, length);
            length += end - begin;
            kept.push(run(from, length));
        });
        if wipe {
            self.data[length..].zeroize();
        }
        self.data.truncate(length);
        self.trim(wipe);
    }

    fn reserve(&mut self, from: u32, bytes: usize, wipe: bool) {
        let (length, runs) = (self.data.len() + bytes, self.runs.len() + 1);
        let mut data_room = roomy(length, self.data.capacity());
        let mut runs_room = roomy(runs, self.runs.capacity());
        if length > LITTLE && (data_room > self.data.capacity() || runs_room > self.runs.capacity()) {
            (data_room, runs_room) = self.enough(from, (length, runs), (data_room, runs_room));
        }
        if data_room > self.data.capacity() {
            move_to(&mut self.data, data_room, wipe);
        }
        if runs_room > self.runs.capacity() {
            self.runs.reserve_exact(runs_room - self.runs.len());
        }
    }

    /// Reduces the doubled capacities (`most`) of data and runs to what the chunk will need if it is written
    /// from the front and continues from `from` as before.
    fn enough(&self, from: u32, least: (usize, usize), most: (usize, usize)) -> (usize, usize) {
        let first = match self.runs.first() {
            Some(run) if from >= self.last_end() => run >> 16,
            _ => return most,
        };
        let (data, runs) = (self.data.len(), self.runs.len());
        let more = (runs * (CHUNK - from) as usize).div_ceil((from - first) as usize);
        let of = |expected: usize, least: usize, most: usize| most.min(expected.max(least + least / 8));
        (of(data + (data * more).div_ceil(runs), least.0, most.0), of(runs + more, least.1, most.1))
    }

    /// Frees spare capacity, if it is worth the copy.
    pub fn trim(&mut self, wipe: bool) {
        if self.head > 0 {
            self.close_head(wipe);
        }
        let (length, capacity) = (self.data.len(), self.data.capacity());
        if capacity - length > length / KEPT {
            move_to(&mut self.data, length, wipe);
        }
        if self.runs.capacity() - self.runs.len() > self.runs.len() / KEPT {
            // A fresh vector: some allocators leave a shrunk one in place, at its old size.
            let mut runs = Vec::with_capacity(self.runs.len());
            runs.extend_from_slice(&self.runs);
            self.runs = runs;
        }
    }

    pub fn wipe(&mut self) {
        self.data.zeroize();
    }
}

/// Passes the parts of the sorted `runs` that are outside of the sorted `ranges` to `keep`, in order, with
/// the start and the mark of their run.
pub(crate) fn outside<T: Copy>(
    runs: impl Iterator<Item = (u32, u32, T)>,
    ranges: &[(u32, u32)],
    mut keep: impl FnMut(u32, u32, (u32, T)),
) {
    let mut rest = ranges;
    for (start, end, mark) in runs {
        let mut at = start;
        while let [(from, to), behind @ ..] = rest
            && *from < end
        {
            if *from > at {
                keep(at, *from, (start, mark));
            }
            at = at.max(*to);
            if *to > end {
                // The range continues in a later run.
                break;
            }
            rest = behind;
        }
        if at < end {
            keep(at, end, (start, mark));
        }
    }
}

/// Returns the largest capacity for `length` bytes. It doubles when it is exceeded, because each growth
/// copies the data.
fn roomy(length: usize, capacity: usize) -> usize {
    if length <= capacity { capacity } else { length.next_power_of_two() }
}

fn move_to(data: &mut Vec<u8>, capacity: usize, wipe: bool) {
    let mut moved = Vec::with_capacity(capacity);
    moved.extend_from_slice(data);
    if wipe {
        data.zeroize();
    }
    *data = moved;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_outside_of_the_ranges_is_kept_also_where_a_range_ends_in_a_later_run() {
        let runs = [(0, 10), (20, 30), (40, 50)];
        let left = |ranges: &[(u32, u32)]| {
            let mut kept = Vec::new();
            let marked = runs.iter().map(|(start, end)| (*start, *end, ()));
            outside(marked, ranges, |from, to, _| kept.push((from, to)));
            kept
        };
        assert_eq!(left(&[]), runs);
        assert_eq!(left(&[(20, 30)]), [(0, 10), (40, 50)]);
        assert_eq!(left(&[(2, 4), (6, 10), (25, 45)]), [(0, 2), (4, 6), (20, 25), (45, 50)]);
        assert_eq!(left(&[(10, 20), (30, 40)]), runs);
        assert_eq!(left(&[(0, 60)]), []);
    }

    #[test]
    fn the_runs_that_start_by_a_position_are_found_however_many_there_are() {
        for count in (0..140).chain([1000, 9000]) {
            let runs: Vec<u32> = (0..count).map(|at| run(at * 7 + 3, at as usize + 1)).collect();
            for at in (0..count * 7 + 20).chain([CHUNK - 1, CHUNK]) {
                let expected = runs.iter().filter(|run| **run >> 16 <= at).count();
                assert_eq!(starting_by(&runs, at), expected, "{at} of {count}");
                let nears =
                    [0, 1, expected.saturating_sub(1), expected, expected + 1, runs.len(), usize::MAX];
                for before in nears {
                    let near = AtomicUsize::new(before);
                    let found = starting_near(&runs, at, Some(&near));
                    assert_eq!(
                        (found, near.into_inner()),
                        (expected, expected),
                        "{at} of {count} near {before}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_is_written_evenly_from_the_front_leaves_no_room_unused() {
        let mut packed = Packed::with_capacity(256);
        for at in (0..CHUNK - 256).step_by(800) {
            packed.write(at, &[1; 256], false);
        }
        assert_eq!(packed.heap(), packed.held() + packed.runs() * 4);
        // When the estimate is wrong, because the rest is denser, the capacity still suffices.
        let mut packed = Packed::with_capacity(256);
        for at in (0..60_000).step_by(2000).chain((60_000..CHUNK - 100).step_by(101)) {
            packed.write(at, &[1; 100], false);
        }
        assert_eq!(packed.runs(), 30 + 54);
        assert!(packed.heap() < (packed.held() + packed.runs() * 4) * 9 / 8, "{}", packed.heap());
    }
}

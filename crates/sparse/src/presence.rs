//! Which bytes of a page are present: a list of runs while there are few, one bit per byte when there are
//! many, and nothing when all bytes are present.

use crate::chunk::CHUNK;
use crate::packed::{Near, outside, starting_by, starting_near};

const WORDS: usize = CHUNK as usize / 64;
/// With more runs than this, bits need less memory.
const MOST_RUNS: usize = WORDS * 2;

#[derive(Debug)]
pub(crate) enum Presence {
    /// Sorted and not touching: the first byte is in the upper half of the word, the last byte in the lower
    /// half.
    Runs(Vec<u32>),
    /// One bit per byte, the lowest of each word first.
    Bits(Box<[u64]>),
    All,
}

const fn run(start: u32, end: u32) -> u32 {
    start << 16 | (end - 1)
}

const fn end(run: u32) -> u32 {
    (run & 0xFFFF) + 1
}

impl Presence {
    pub fn with_capacity(runs: usize) -> Self {
        if runs > MOST_RUNS { Self::bits(&[]) } else { Presence::Runs(Vec::with_capacity(runs)) }
    }

    fn bits(runs: &[u32]) -> Self {
        let mut bits = vec![0; WORDS].into_boxed_slice();
        for run in runs {
            set(&mut bits, run >> 16, end(*run));
        }
        Presence::Bits(bits)
    }

    pub fn heap(&self) -> usize {
        match self {
            Presence::Runs(runs) => runs.capacity() * 4,
            Presence::Bits(_) => WORDS * 8,
            Presence::All => 0,
        }
    }

    /// Returns how many bytes of memory another run may add.
    pub fn growth(&self) -> usize {
        match self {
            Presence::Runs(runs) if runs.len() == runs.capacity() => (runs.len() * 4).max(16),
            _ => 0,
        }
    }

    /// True if all of `from..to` is present.
    #[inline]
    pub fn covers(&self, from: u32, to: u32, near: Near<'_>) -> bool {
        match self {
            Presence::All => true,
            Presence::Runs(runs) => match starting_near(runs, from, near) {
                0 => false,
                after => end(runs[after - 1]) >= to,
            },
            Presence::Bits(bits) => next(bits, from, to, false) == to,
        }
    }

    /// Returns the run that contains `at`.
    pub fn run_at(&self, at: u32) -> Option<(u32, u32)> {
        match self {
            Presence::All => Some((0, CHUNK)),
            Presence::Runs(runs) => {
                let run = runs[starting_by(runs, at).checked_sub(1)?];
                (end(run) > at).then(|| (run >> 16, end(run)))
            }
            Presence::Bits(bits) => {
                if next(bits, at, at + 1, true) > at {
                    return None;
                }
                Some((run_start(bits, at), next(bits, at, CHUNK, false)))
            }
        }
    }

    /// Passes the runs in `from..to`, cut to that range, to `visit` until `visit` returns false.
    #[inline]
    pub fn visit(
        &self,
        from: u32,
        to: u32,
        near: Near<'_>,
        visit: &mut impl FnMut(u32, u32) -> bool,
    ) -> bool {
        match self {
            Presence::All => visit(from, to),
            Presence::Runs(runs) => {
                let first = starting_near(runs, from, near).saturating_sub(1);
                for run in runs.get(first..).unwrap_or_default() {
                    if run >> 16 >= to {
                        break;
                    }
                    let (start, end) = ((run >> 16).max(from), end(*run).min(to));
                    if start < end && !visit(start, end) {
                        return false;
                    }
                }
                true
            }
            Presence::Bits(bits) => {
                let mut at = from;
                loop {
                    let start = next(bits, at, to, true);
                    if start >= to {
                        return true;
                    }
                    at = next(bits, start, to, false);
                    if !visit(start, at) {
                        return false;
                    }
                }
            }
        }
    }

    pub fn runs(&self) -> usize {
        match self {
            Presence::All => 1,
            Presence::Runs(runs) => runs.len(),
            Presence::Bits(bits) => {
                let mut before = 0;
                let mut starts = 0;
                for word in bits {
                    starts += (word & !(word << 1 | before)).count_ones();
                    before = word >> 63;
                }
                starts as usize
            }
        }
    }

    /// Adds `from..to`, and returns how many bytes of it are new.
    #[inline]
    pub fn add(&mut self, from: u32, to: u32) -> u32 {
        match self {
            Presence::All => 0,
            Presence::Bits(bits) => set(bits, from, to),
            Presence::Runs(runs) => {
                let mut first = starting_by(runs, from);
                if first > 0 && end(runs[first - 1]) >= from {
                    first -= 1;
                }
                let after = starting_by(runs, to);
                if first == after {
                    runs.insert(first, run(from, to));
                    if runs.len() > MOST_RUNS {
                        *self = Self::bits(runs);
                    }
                    return to - from;
                }
                let (start, last) = ((runs[first] >> 16).min(from), end(runs[after - 1]).max(to));
                let held: u32 = runs[first..after].iter().map(|run| end(*run) - (run >> 16)).sum();
                runs[first] = run(start, last);
                runs.drain(first + 1..after);
                last - start - held
            }
        }
    }

    /// Adds `from..to` if it is after the last run, or none of its bits is set, and no memory is needed.
    /// Returns true if it did.
    #[inline]
    pub fn add_free(&mut self, from: u32, to: u32) -> bool {
        match self {
            Presence::All => false,
            Presence::Bits(bits) => {
                let free = next(bits, from, to, true) == to;
                if free {
                    set(bits, from, to);
                }
                free
            }
            Presence::Runs(runs) => {
                let room = runs.len() < runs.capacity() && runs.len() < MOST_RUNS;
                match runs.last_mut() {
                    Some(last) if from == end(*last) => *last += to - from,
                    Some(last) if from > end(*last) && room => runs.push(run(from, to)),
                    _ => return false,
                }
                true
            }
        }
    }

    /// Removes `from..to`.
    pub fn remove(&mut self, from: u32, to: u32) {
        match self {
            Presence::All => {
                *self = Presence::Runs(vec![run(0, CHUNK)]);
                self.remove(from, to);
            }
            Presence::Bits(bits) => words(from, to, |at, mask| bits[at] &= !mask),
            Presence::Runs(runs) => {
                let mut first = starting_by(runs, from);
                if first > 0 && end(runs[first - 1]) > from {
                    first -= 1;
                }
                let after = if to == 0 { 0 } else { starting_by(runs, to - 1) };
                if first >= after {
                    return;
                }
                let (start, last) = (runs[first] >> 16, end(runs[after - 1]));
                let before = (start < from).then(|| run(start, from));
                let behind = (last > to).then(|| run(to, last));
                runs.splice(first..after, before.into_iter().chain(behind));
                if runs.len() > MOST_RUNS {
                    *self = Self::bits(runs);
                }
            }
        }
    }

    /// Removes `ranges`, which are sorted and do not overlap.
    pub fn remove_several(&mut self, ranges: &[(u32, u32)]) {
        let runs = match self {
            Presence::Bits(bits) => {
                ranges.iter().for_each(|(from, to)| words(*from, *to, |at, mask| bits[at] &= !mask));
                return;
            }
            Presence::All => vec![run(0, CHUNK)],
            Presence::Runs(runs) => std::mem::take(runs),
        };
        let mut kept = Vec::with_capacity(runs.len());
        let placed = runs.iter().map(|run| (run >> 16, end(*run), ()));
        outside(placed, ranges, |from, to, _| kept.push(run(from, to)));
        *self = if kept.len() > MOST_RUNS { Self::bits(&kept) } else { Presence::Runs(kept) };
    }

    /// Returns how many bytes are present.
    pub fn held(&self) -> u32 {
        match self {
            Presence::All => CHUNK,
            Presence::Runs(runs) => runs.iter().map(|run| end(*run) - (run >> 16)).sum(),
            Presence::Bits(bits) => bits.iter().map(|word| word.count_ones()).sum(),
        }
    }

    /// Returns to a list if it is smaller, and cuts the capacity of a list to its length.
    pub fn trim(&mut self) {
        let fewer = self.runs();
        let worth = match self {
            Presence::Runs(runs) => runs.capacity() - fewer > fewer / 32,
            Presence::Bits(_) => fewer <= MOST_RUNS / 2,
            Presence::All => false,
        };
        if worth {
            let mut runs = Vec::with_capacity(fewer);
            self.visit(0, CHUNK, None, &mut |start, end| {
                runs.push(run(start, end));
                true
            });
            *self = Presence::Runs(runs);
        }
    }
}

/// Passes the index of each word that has bits of `from..to` to `each`, with a mask of those bits.
#[inline]
fn words(from: u32, to: u32, mut each: impl FnMut(usize, u64)) {
    let mut at = from;
    while at < to {
        let end = to.min((at | 63) + 1);
        let mask = (u64::MAX >> (64 - (end - at))) << (at & 63);
        each(at as usize / 64, mask);
        at = end;
    }
}

/// Sets the bits of `from..to`, and returns how many were clear before.
#[inline]
fn set(bits: &mut [u64], from: u32, to: u32) -> u32 {
    let mut new = 0;
    words(from, to, |at, mask| {
        new += (mask & !bits[at]).count_ones();
        bits[at] |= mask;
    });
    new
}

/// Returns the first position in `from..to` whose bit is `wanted`, or `to`.
#[inline]
fn next(bits: &[u64], from: u32, to: u32, wanted: bool) -> u32 {
    let mut at = from;
    while at < to {
        let word = bits[at as usize / 64];
        let word = (if wanted { word } else { !word }) >> (at & 63);
        if word != 0 {
            return to.min(at + word.trailing_zeros());
        }
        at = (at | 63) + 1;
    }
    to
}

/// Returns the start of the run that ends with the set bit `at`.
fn run_start(bits: &[u64], at: u32) -> u32 {
    let mut at = at;
    loop {
        // The clear bits up to and including `at`, moved to the top.
        let clear = !bits[at as usize / 64] << (63 - (at & 63));
        if clear != 0 {
            return at + 1 - clear.leading_zeros();
        }
        let Some(before) = (at & !63).checked_sub(1) else { return 0 };
        at = before;
    }
}

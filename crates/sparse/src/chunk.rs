//! One chunk of a file: 64 KiB of positions, of which any bytes may be held.
//!
//! While it holds little it is packed; when that takes three quarters of a page, it becomes a page, where every
//! byte is in its place. Moving within a packed chunk (a write between two runs moves what is behind it) is
//! bounded by those 48 KiB, and so is the memory by one and a half times what packing would need.

use crate::packed::Packed;
use crate::page::{PAGE, Page};
use crate::presence::Presence;
use std::sync::atomic::AtomicU64;
use zeroize::Zeroize;

/// How many positions a chunk has.
pub(crate) const CHUNK: u32 = PAGE as u32;
/// With more than this, four bytes a run included, it is a page.
const MOST_PACKED: usize = CHUNK as usize / 4 * 3;
/// With less than this a page is packed again. Far from the other limit, so that a chunk does not go to and fro.
const LEAST_PAGED: usize = CHUNK as usize / 4;

#[derive(Debug)]
enum Body {
    Packed(Packed),
    Page(Presence, Page),
}

/// See the module. `used` and `listed` belong to the pool, if there is one.
#[derive(Debug)]
pub(crate) struct Chunk {
    body: Body,
    held: u32,
    /// When it was last used, in ticks of the pool.
    pub used: AtomicU64,
    /// The tick under which the pool has it in its list.
    pub listed: u64,
}

/// Two bytes that should be equal and are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Difference {
    pub at: u32,
    pub held: u8,
    pub given: u8,
}

impl Chunk {
    /// A chunk that is about to be written for the first time, with `bytes` bytes.
    pub fn for_first(bytes: usize) -> Self {
        let body = if bytes + 4 > MOST_PACKED {
            Body::Page(Presence::with_capacity(1), Page::new())
        } else {
            Body::Packed(Packed::with_capacity(bytes))
        };
        Self { body, held: 0, used: AtomicU64::new(0), listed: 0 }
    }

    /// The memory of such a chunk.
    pub fn first_heap(bytes: usize) -> usize {
        let body = if bytes + 4 > MOST_PACKED { CHUNK as usize + 4 } else { bytes.max(16) + 16 };
        size_of::<Self>() + body
    }

    /// How many bytes it holds.
    pub fn held(&self) -> u32 {
        self.held
    }

    /// The memory that it takes, its page included.
    pub fn heap(&self) -> usize {
        size_of::<Self>()
            + match &self.body {
                Body::Packed(packed) => packed.heap(),
                Body::Page(presence, _) => presence.heap() + PAGE,
            }
    }

    /// How much more it may take after a write of `bytes` bytes.
    pub fn growth(&self, bytes: usize) -> usize {
        match &self.body {
            // What it takes as a page, on top of what it takes now: both are there for a moment.
            Body::Packed(packed) if must_be_page(packed, bytes) => {
                CHUNK as usize + (16 + packed.runs() * 8).min(CHUNK as usize / 8)
            }
            Body::Packed(packed) => packed.growth(bytes),
            Body::Page(presence, _) => presence.growth(),
        }
    }

    /// Whether it has no byte.
    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    pub fn runs(&self) -> usize {
        match &self.body {
            Body::Packed(packed) => packed.runs(),
            Body::Page(presence, _) => presence.runs(),
        }
    }

    /// The run that `at` is in, as its start and end.
    pub fn run_at(&self, at: u32) -> Option<(u32, u32)> {
        match &self.body {
            Body::Packed(packed) => packed.run_at(at),
            Body::Page(presence, _) => presence.run_at(at),
        }
    }

    /// The `length` bytes from `from` on, if all are held.
    #[inline]
    pub fn get(&self, from: u32, length: usize) -> Option<&[u8]> {
        match &self.body {
            Body::Packed(packed) => packed.get(from, length),
            Body::Page(presence, page) => {
                let held = presence.covers(from, from + length as u32);
                if held { page.get(from as usize..from as usize + length) } else { None }
            }
        }
    }

    /// Shows the parts of `from..to` that are held, in order, until `visit` says false.
    #[inline]
    pub fn visit<'a>(&'a self, from: u32, to: u32, visit: &mut impl FnMut(u32, &'a [u8]) -> bool) -> bool {
        match &self.body {
            Body::Packed(packed) => packed.visit(from, to, visit),
            Body::Page(presence, page) => {
                presence.visit(from, to, &mut |start, end| visit(start, &page[start as usize..end as usize]))
            }
        }
    }

    /// The first of `bytes` at `from` that is not what is held there.
    #[inline]
    pub fn difference(&self, from: u32, bytes: &[u8]) -> Option<Difference> {
        let mut found = None;
        self.visit(from, from + bytes.len() as u32, &mut |start, held| {
            let skip = (start - from) as usize;
            let given = &bytes[skip..skip + held.len()];
            if held != given {
                let at = held.iter().zip(given).position(|(held, given)| held != given);
                found = at.map(|at| Difference { at: start + at as u32, held: held[at], given: given[at] });
            }
            found.is_none()
        });
        found
    }

    /// Writes `bytes` at `from` if nothing is held there and no memory is needed for it, which is what most
    /// writes find. Returns whether it did.
    #[inline]
    pub fn write_free(&mut self, from: u32, bytes: &[u8]) -> bool {
        let length = bytes.len() as u32;
        let done = match &mut self.body {
            Body::Packed(packed) => !must_be_page(packed, bytes.len()) && packed.append(from, bytes),
            Body::Page(presence, page) => {
                let done = self.held + length < CHUNK && presence.add_free(from, from + length);
                if done {
                    page[from as usize..][..bytes.len()].copy_from_slice(bytes);
                }
                done
            }
        };
        self.held += if done { length } else { 0 };
        done
    }

    /// Writes `bytes` at `from`, over what is held there.
    #[inline]
    pub fn write(&mut self, from: u32, bytes: &[u8], wipe: bool) {
        if let Body::Packed(packed) = &mut self.body {
            if !must_be_page(packed, bytes.len()) {
                packed.write(from, bytes, wipe);
                self.held = packed.held() as u32;
                return;
            }
            self.become_page(wipe);
        }
        self.write_page(from, bytes);
    }

    fn write_page(&mut self, from: u32, bytes: &[u8]) {
        let Body::Page(presence, page) = &mut self.body else { return };
        let to = from + bytes.len() as u32;
        page[from as usize..to as usize].copy_from_slice(bytes);
        self.held += presence.add(from, to);
        if self.held == CHUNK {
            *presence = Presence::All;
        }
    }

    fn become_page(&mut self, wipe: bool) {
        let Body::Packed(packed) = &mut self.body else { return };
        let mut presence = Presence::with_capacity(packed.runs() + packed.runs() / 4);
        let mut page = Page::new();
        packed.visit(0, CHUNK, &mut |start, bytes| {
            let end = start as usize + bytes.len();
            page[start as usize..end].copy_from_slice(bytes);
            presence.add(start, end as u32);
            true
        });
        if wipe {
            packed.wipe();
        }
        self.body = Body::Page(presence, page);
    }

    /// Lets go of what is held of `from..to`, and says how many bytes that was.
    pub fn remove(&mut self, from: u32, to: u32, wipe: bool) -> u32 {
        let before = self.held;
        match &mut self.body {
            Body::Packed(packed) => {
                packed.remove(from, to, wipe);
                self.held = packed.held() as u32;
            }
            Body::Page(presence, page) => {
                let mut less = 0;
                presence.visit(from, to, &mut |start, end| {
                    less += end - start;
                    true
                });
                presence.remove(from, to);
                if wipe {
                    page[from as usize..to as usize].zeroize();
                }
                self.held -= less;
                if (self.held as usize) < LEAST_PAGED
                    && self.held as usize + presence.runs() * 4 < LEAST_PAGED
                {
                    self.become_packed(wipe);
                }
            }
        }
        before - self.held
    }

    fn become_packed(&mut self, wipe: bool) {
        let mut packed = Packed::with_capacity(self.held as usize);
        self.visit(0, CHUNK, &mut |start, bytes| {
            packed.write(start, bytes, wipe);
            true
        });
        if wipe {
            self.wipe();
        }
        self.body = Body::Packed(packed);
    }

    /// Gives back memory that was kept for more.
    pub fn trim(&mut self, wipe: bool) {
        match &mut self.body {
            Body::Packed(packed) => packed.trim(wipe),
            Body::Page(presence, _) => presence.trim(),
        }
    }

    /// Overwrites the data with zeroes, in a way that is not optimised away.
    pub fn wipe(&mut self) {
        match &mut self.body {
            Body::Packed(packed) => packed.wipe(),
            Body::Page(_, page) => page.zeroize(),
        }
    }
}

fn must_be_page(packed: &Packed, bytes: usize) -> bool {
    packed.held() + bytes + (packed.runs() + 1) * 4 > MOST_PACKED
}

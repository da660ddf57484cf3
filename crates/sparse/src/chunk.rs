//! One chunk of a file: 64 KiB of positions, of which any bytes may be held.
//!
//! A chunk is packed while it holds little. When the packed form needs fifteen sixteenths of a page, the
//! chunk becomes a page with every byte in its place. Within a packed chunk, a write between two runs moves
//! the bytes behind it; 60 KiB bound that move. A chunk that is at least half full becomes a page as soon as
//! such writes have moved as much as the change of form copies. Three quarters of a page were the limit
//! before: moves were shorter by a fifth, and blocks of 1 KiB that are 340 bytes apart took a third more
//! memory.

use crate::packed::{Near, Packed};
use crate::page::{PAGE, Page};
use crate::presence::Presence;
use std::sync::atomic::AtomicU64;
use zeroize::Zeroize;

/// How many positions a chunk has.
pub(crate) const CHUNK: u32 = PAGE as u32;
/// The size in bytes, with four bytes per run, above which a chunk becomes a page.
const MOST_PACKED: usize = CHUNK as usize / 16 * 15;
/// A chunk whose packed form needs this many bytes becomes a page when writes between its runs have moved as
/// many bytes as a page has. From then on they move nothing. A page is at most twice as large.
const MOST_STIRRED: usize = CHUNK as usize / 2;
/// The size in bytes below which a page is packed again. It is far from the other limit, so that a chunk does
/// not change its form again and again.
const LEAST_PAGED: usize = CHUNK as usize / 4;

#[derive(Debug)]
enum Body {
    Packed(Packed),
    Page(Presence, Page),
}

/// How near to the edge of a chunk, in bytes, a writer that goes on in the next chunk writes.
pub(crate) const NEAR: u32 = 4096;

/// The memory of a chunk that was written from its front to its end.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Room {
    Packed { data: usize, runs: usize },
    Page { runs: usize },
}

/// See the module. `used` and `listed` belong to the pool, if there is one.
#[derive(Debug)]
pub(crate) struct Chunk {
    body: Body,
    held: u32,
    /// The pool's tick of the last use.
    pub used: AtomicU64,
    /// The tick under which the pool's list contains the chunk.
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
    /// Creates a chunk for a first write of `bytes` bytes.
    pub fn for_first(bytes: usize) -> Self {
        let body = if bytes + 4 > MOST_PACKED {
            // A chunk that is written as a whole needs no list of runs.
            Body::Page(Presence::with_capacity(usize::from(bytes < PAGE)), Page::new())
        } else {
            Body::Packed(Packed::with_capacity(bytes))
        };
        Self { body, held: 0, used: AtomicU64::new(0), listed: 0 }
    }

    /// Creates a chunk for a first write of `bytes` bytes, to be continued.
    pub fn with_room(room: Room, bytes: usize) -> Self {
        let body = match room {
            Room::Packed { data, runs } if bytes + 4 <= MOST_PACKED => {
                Body::Packed(Packed::with_room(data.max(bytes), runs.max(1)))
            }
            Room::Packed { runs, .. } | Room::Page { runs } => {
                Body::Page(Presence::with_capacity(runs.max(1)), Page::new())
            }
        };
        Self { body, held: 0, used: AtomicU64::new(0), listed: 0 }
    }

    /// Returns the room that the chunk takes, if it is held up to about its end.
    pub fn room(&self) -> Option<Room> {
        if self.visit(CHUNK - NEAR, CHUNK, &mut |_, _| false) {
            return None;
        }
        Some(match &self.body {
            Body::Packed(packed) => Room::Packed { data: packed.held(), runs: packed.runs() },
            Body::Page(presence, _) => Room::Page { runs: presence.runs() },
        })
    }

    /// Returns the memory of a chunk that [`Chunk::for_first`] creates, in bytes.
    pub fn first_heap(bytes: usize) -> usize {
        let body = if bytes + 4 > MOST_PACKED { CHUNK as usize + 4 } else { bytes.max(16) + 16 };
        size_of::<Self>() + body
    }

    pub fn held(&self) -> u32 {
        self.held
    }

    /// Returns the memory that the chunk takes, in bytes, its page included.
    pub fn heap(&self) -> usize {
        size_of::<Self>()
            + match &self.body {
                Body::Packed(packed) => packed.heap(),
                Body::Page(presence, _) => presence.heap() + PAGE,
            }
    }

    /// Returns how many more bytes of memory the chunk may take for a write of `bytes` bytes.
    pub fn growth(&self, bytes: usize) -> usize {
        match &self.body {
            // The memory as a page, in addition to the present memory: both exist for a moment.
            Body::Packed(packed) if becomes_page(packed, bytes) => {
                CHUNK as usize + (16 + packed.runs() * 8).min(CHUNK as usize / 8)
            }
            Body::Packed(packed) => packed.growth(bytes),
            Body::Page(presence, _) => presence.growth(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    pub fn runs(&self) -> usize {
        match &self.body {
            Body::Packed(packed) => packed.runs(),
            Body::Page(presence, _) => presence.runs(),
        }
    }

    /// Returns the start and end of the run that contains `at`.
    pub fn run_at(&self, at: u32) -> Option<(u32, u32)> {
        match &self.body {
            Body::Packed(packed) => packed.run_at(at),
            Body::Page(presence, _) => presence.run_at(at),
        }
    }

    /// Returns the `length` bytes from `from` on, if all are held.
    #[inline]
    pub fn get(&self, from: u32, length: usize, near: Near<'_>) -> Option<&[u8]> {
        match &self.body {
            Body::Packed(packed) => packed.get(from, length, near),
            Body::Page(presence, page) => {
                let held = presence.covers(from, from + length as u32, near);
                if held { page.get(from as usize..from as usize + length) } else { None }
            }
        }
    }

    /// Passes the starts and ends of the held parts of `from..to` to `visit`, in order, until `visit` returns
    /// false.
    #[inline]
    pub fn each(&self, from: u32, to: u32, near: Near<'_>, visit: &mut impl FnMut(u32, u32) -> bool) -> bool {
        match &self.body {
            Body::Packed(packed) => packed.each(from, to, near, &mut |start, end, _| visit(start, end)),
            Body::Page(presence, _) => presence.visit(from, to, near, visit),
        }
    }

    /// Passes the bytes of the held parts of `from..to` to `visit`, in order, until `visit` returns false.
    #[inline]
    pub fn visit<'a>(&'a self, from: u32, to: u32, visit: &mut impl FnMut(u32, &'a [u8]) -> bool) -> bool {
        match &self.body {
            Body::Packed(packed) => packed.visit(from, to, visit),
            Body::Page(presence, page) => presence
                .visit(from, to, None, &mut |start, end| visit(start, &page[start as usize..end as usize])),
        }
    }

    /// Returns the first of `bytes` at `from` that differs from the byte held there.
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

    /// Writes `bytes` at `from` if nothing is held there and the write needs no memory, which is the most
    /// frequent case. Returns true if it did.
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

    /// Writes `bytes` at `from`, and replaces bytes that are held there.
    #[inline]
    pub fn write(&mut self, from: u32, bytes: &[u8], wipe: bool) {
        if let Body::Packed(packed) = &mut self.body {
            if !becomes_page(packed, bytes.len()) {
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
        self.held = if bytes.len() == PAGE { CHUNK } else { self.held + presence.add(from, to) };
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

    /// Erases the bytes of `from..to`. Returns how many bytes were erased.
    pub fn remove(&mut self, from: u32, to: u32, wipe: bool) -> u32 {
        let before = self.held;
        match &mut self.body {
            Body::Packed(packed) => {
                packed.remove(from, to, wipe);
                self.held = packed.held() as u32;
            }
            Body::Page(presence, page) => {
                let mut less = 0;
                presence.visit(from, to, None, &mut |start, end| {
                    less += end - start;
                    true
                });
                presence.remove(from, to);
                if wipe {
                    page[from as usize..to as usize].zeroize();
                }
                self.held -= less;
                self.pack_if_small(wipe);
            }
        }
        before - self.held
    }

    /// Erases the bytes of `ranges`, which are sorted and do not overlap. Returns how many bytes were erased.
    ///
    /// The chunk is compacted once, however many ranges there are.
    pub fn remove_several(&mut self, ranges: &[(u32, u32)], wipe: bool) -> u32 {
        let before = self.held;
        match &mut self.body {
            Body::Packed(packed) => {
                packed.remove_several(ranges, wipe);
                self.held = packed.held() as u32;
            }
            Body::Page(presence, page) => {
                presence.remove_several(ranges);
                if wipe {
                    ranges.iter().for_each(|(from, to)| page[*from as usize..*to as usize].zeroize());
                }
                self.held = presence.held();
                self.pack_if_small(wipe);
            }
        }
        before - self.held
    }

    /// Packs a page that holds little.
    fn pack_if_small(&mut self, wipe: bool) {
        let Body::Page(presence, _) = &self.body else { return };
        let held = self.held as usize;
        if held < LEAST_PAGED && held + presence.runs() * 4 < LEAST_PAGED {
            self.become_packed(wipe);
        }
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

    /// Frees spare capacity.
    pub fn trim(&mut self, wipe: bool) {
        match &mut self.body {
            Body::Packed(packed) => packed.trim(wipe),
            Body::Page(presence, _) => {
                presence.trim();
                self.pack_if_small(wipe);
            }
        }
    }

    /// Overwrites the data with zeros in a way that the compiler does not optimise away.
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

/// True if a write that is not at the end of a chunk makes it a page.
fn becomes_page(packed: &Packed, bytes: usize) -> bool {
    let size = packed.held() + packed.runs() * 4;
    must_be_page(packed, bytes) || packed.moved() >= CHUNK && size >= MOST_STIRRED
}

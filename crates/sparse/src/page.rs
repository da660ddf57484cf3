//! The memory of full chunks, mapped directly from the system and returned directly to it.
//!
//! An allocator keeps freed memory: glibc forever if something behind it is still in use, mimalloc until
//! other memory is requested. A cache that is asked to shrink must shrink at once, so pages are mapped and
//! unmapped. A few are kept for the next chunks. That saves the page faults and the zeroing. A page does not
//! need zeroing, because the chunk's `Presence` knows which bytes are valid.

use memmap2::MmapMut;
use parking_lot::Mutex;
use std::ops::{Deref, DerefMut};

/// The size of a page in bytes: that of a chunk.
pub(crate) const PAGE: usize = 1 << 16;
/// How many idle pages are kept for the next chunks: 2 MiB per process.
const MOST_IDLE: usize = 32;

static IDLE: Mutex<Vec<MmapMut>> = Mutex::new(Vec::new());

#[derive(Debug)]
pub(crate) struct Page(Memory);

#[derive(Debug)]
enum Memory {
    Mapped(Option<MmapMut>),
    /// Used when the system's limit on the number of mappings is reached.
    Allocated(Box<[u8]>),
}

impl Page {
    /// Returns a page with arbitrary content.
    pub fn new() -> Self {
        if let Some(idle) = IDLE.lock().pop() {
            return Self(Memory::Mapped(Some(idle)));
        }
        match MmapMut::map_anon(PAGE) {
            Ok(mapped) => Self(Memory::Mapped(Some(mapped))),
            Err(_) => Self(Memory::Allocated(vec![0; PAGE].into_boxed_slice())),
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if let Memory::Mapped(mapped) = &mut self.0 {
            let mut idle = IDLE.lock();
            if idle.len() < MOST_IDLE {
                idle.extend(mapped.take());
            }
        }
    }
}

impl Deref for Page {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Memory::Mapped(mapped) => mapped.as_deref().unwrap_or_default(),
            Memory::Allocated(memory) => memory,
        }
    }
}

impl DerefMut for Page {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Memory::Mapped(mapped) => mapped.as_deref_mut().unwrap_or_default(),
            Memory::Allocated(memory) => memory,
        }
    }
}

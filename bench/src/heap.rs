//! Counts the heap of each thread, so a table can show the memory of one thing, and on demand the allocations
//! of all threads. The memory comes from the same allocator as in `thalweg`.

use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

struct Counting;

thread_local!(static HELD: Cell<usize> = const { Cell::new(0) });

/// True while the allocations of all threads are counted: other tables must not pay for it.
static COUNTS: AtomicBool = AtomicBool::new(false);
static BYTES: AtomicU64 = AtomicU64::new(0);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// Switches the counting of all threads on or off.
pub fn count(on: bool) {
    COUNTS.store(on, Relaxed);
}

/// Returns the bytes and the number of allocations of all threads while they were counted.
pub fn allocated() -> (u64, u64) {
    (BYTES.load(Relaxed), ALLOCATIONS.load(Relaxed))
}

fn note(bytes: usize) {
    if COUNTS.load(Relaxed) {
        BYTES.fetch_add(bytes as u64, Relaxed);
        ALLOCATIONS.fetch_add(1, Relaxed);
    }
}

/// Returns the bytes that this thread has allocated and not freed.
pub fn held() -> usize {
    HELD.get()
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: all calls are forwarded unchanged; the counting cell has no destructor and does not allocate.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.set(HELD.get().wrapping_add(layout.size()));
        note(layout.size());
        // SAFETY: the caller's obligations are those of the allocator.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        HELD.set(HELD.get().wrapping_add(layout.size()));
        note(layout.size());
        // SAFETY: as above.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        HELD.set(HELD.get().wrapping_add(size).wrapping_sub(layout.size()));
        note(size);
        // SAFETY: as above.
        unsafe { MiMalloc.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.set(HELD.get().wrapping_sub(layout.size()));
        // SAFETY: as above.
        unsafe { MiMalloc.dealloc(memory, layout) }
    }
}

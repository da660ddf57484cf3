//! Measures the memory that a call allocates.
//!
//! The allocator of this crate counts the bytes that are allocated, in the whole process: a parser may use
//! threads. Only one call is measured at a time. Memory that a C library allocates (libwebp, zstd) is not
//! counted.
//!
//! An allocation beyond [`CEILING`] fails, which ends the process and names its size. So an input that asks
//! for terabytes is found before the machine swaps.

#![allow(unsafe_code, reason = "an allocator that counts is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The bytes that the process may have allocated at once.
pub const CEILING: usize = 3 << 30;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The bytes that are allocated, and their maximum since the last measurement began.
static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

/// Counts `bytes` more. Returns false if that is too much.
fn took(bytes: usize) -> bool {
    let live = LIVE.fetch_add(bytes, Relaxed).saturating_add(bytes);
    if live > CEILING {
        gave(bytes);
        return false;
    }
    PEAK.fetch_max(live, Relaxed);
    true
}

fn gave(bytes: usize) {
    LIVE.fetch_sub(bytes, Relaxed);
}

// SAFETY: Every call goes to the system's allocator with the caller's own arguments, so its promises are
// those of `System`. A null pointer, which reports a failure, is allowed by the trait.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !took(layout.size()) {
            return null_mut();
        }
        // SAFETY: The caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !took(layout.size()) {
            return null_mut();
        }
        // SAFETY: The caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        gave(layout.size());
        // SAFETY: The caller keeps the contract of `dealloc`, and every block is one of `System`.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !took(size) {
            return null_mut();
        }
        gave(layout.size());
        // SAFETY: The caller keeps the contract of `realloc`, and every block is one of `System`.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Returns the result of `call`, and the bytes that it had allocated at its peak.
pub fn measured<T>(call: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let result = call();
    (result, PEAK.load(Relaxed).saturating_sub(before))
}

/// Returns the result of `call`.
///
/// # Panics
/// If it had more than `most` bytes allocated at its peak.
#[track_caller]
pub fn bounded<T>(most: usize, call: impl FnOnce() -> T) -> T {
    let (result, peak) = measured(call);
    assert!(peak <= most, "{peak} bytes were allocated at once, and at most {most} are allowed");
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_of_a_call_is_measured_and_bounded() {
        let (_, peak) = measured(|| drop(vec![1u8; 100_000_000]));
        assert!((100_000_000..110_000_000).contains(&peak), "{peak}");
        let refused = std::panic::catch_unwind(|| bounded(1_000_000, || vec![1u8; 50_000_000]));
        assert!(refused.is_err());
    }
}

//! The memory that files take, counted in the allocator. The result is therefore the same on every machine.

#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use thalweg_sparse::{Options, Overlap, SparseFile};

struct Counting;

// Each thread counts its own allocations, because tests run in parallel.
thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    /// How often the secret was found in freed memory, while that is searched.
    static FOUND: Cell<Option<usize>> = const { Cell::new(None) };
}
const SECRET: &[u8] = b"sEcReT";

// SAFETY: every call is passed unchanged to the system's allocator. Memory is only read while it is still
// allocated, and as initialised bytes, because `alloc` zeroes it.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.set(HELD.get().wrapping_add(layout.size()));
        // SAFETY: the caller's obligations are those of the system's allocator.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.set(HELD.get().wrapping_sub(layout.size()));
        if let Some(found) = FOUND.get() {
            // SAFETY: the memory is still ours, has this size, and was zeroed when it was allocated.
            let bytes = unsafe { std::slice::from_raw_parts(memory, layout.size()) };
            let here = bytes.windows(SECRET.len()).filter(|bytes| *bytes == SECRET).count();
            FOUND.set(Some(found + here));
        }
        // SAFETY: the caller's obligations are those of the system's allocator.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn held() -> usize {
    HELD.get()
}

/// Returns the heap in bytes that `count` blocks of `length` bytes take, without what is reserved for later
/// writes. Each block starts `apart` bytes after the one before.
fn heap_of(length: usize, apart: u64, count: u64) -> usize {
    let bytes = vec![1; length];
    let before = held();
    let file = SparseFile::new("file", 0.0);
    (0..count).for_each(|at| file.write(at * apart, &bytes).unwrap());
    assert_eq!(file.count_blocks(), count);
    // Only the last chunk has room for more than it holds.
    let reserved = file.heap_bytes();
    file.compact();
    assert!(reserved <= file.heap_bytes() + (1 << 16) + (1 << 13), "{reserved}, {}", file.heap_bytes());
    // Pages do not come from the allocator; `heap_bytes` includes them.
    let (said, allocated) = (file.heap_bytes(), held() - before);
    assert!(said + 600 + said / 50 > allocated, "it says {said}, and takes {allocated}");
    let heap = said.max(allocated);
    drop(file);
    // The list of idle pages stays, and belongs to no file.
    assert!(held() <= before + 512, "{}", held() - before);
    heap
}

#[test]
fn a_million_bytes_two_apart_take_three_bytes_each() {
    let heap = heap_of(1, 2, 1_000_000);
    assert!(heap <= 3_000_000, "{heap}");
}

#[test]
fn a_million_bytes_far_apart_take_sixteen_bytes_each_beyond_the_data() {
    let heap = heap_of(1, 800, 1_000_000);
    assert!(heap <= 17_000_000, "{heap}");
}

#[test]
fn a_mebibyte_in_blocks_of_256_bytes_takes_three_percent_more() {
    for apart in [257, 800, 1024] {
        let heap = heap_of(256, apart, 4096);
        assert!(heap <= (1 << 20) * 103 / 100, "{apart} apart: {heap}");
    }
}

#[test]
fn however_far_apart_bytes_are_they_take_less_than_a_hash_table_would() {
    for apart in [3, 5, 7, 12, 20, 50, 100, 300, 1500, 5000, 20_000] {
        let heap = heap_of(1, apart, 100_000);
        let chunks = (100_000 * apart as usize) >> 16;
        assert!(heap <= 900_000 + chunks * 350, "{apart} apart: {heap}");
    }
}

#[test]
fn memory_comes_back_when_bytes_are_erased() {
    let file = SparseFile::new("file", 0.0);
    file.write(0, &[1; 10]).unwrap();
    file.write(1 << 20, &[1; 10]).unwrap();
    let before = file.heap_bytes();
    file.write(1 << 17, &vec![1; 500_000]).unwrap();
    assert!(file.heap_bytes() > before + 500_000);
    assert_eq!(file.erase((1 << 17) + 10, 499_980), 499_980);
    assert!(file.heap_bytes() < before + 3000, "{}", file.heap_bytes() - before);
    file.clear();
    assert!(file.heap_bytes() < before);
}

#[test]
fn nothing_of_a_wiped_file_is_left_in_memory_that_is_given_back() {
    let secret = |length: usize| -> Vec<u8> { SECRET.iter().copied().cycle().take(length).collect() };
    for wipe in [true, false] {
        let texts = [secret(6), secret(600), secret(40_000), secret(70_000), secret(200_000)];
        FOUND.set(Some(0));
        let file = SparseFile::with_options("file", 0.0, Options { wipe, ..Options::default() });
        for (at, text) in texts.iter().enumerate() {
            file.write((at as u64) << 20, text).unwrap();
        }
        // Grow step by step, move from packed to page and back, and trim.
        for at in 0..9000 {
            file.write((10 << 20) + at * 7, SECRET).unwrap();
        }
        file.write_with(4 << 20, &texts[1], Overlap::Replace).unwrap();
        file.erase((10 << 20) + 100, 64_000);
        file.erase(2 << 20, 39_000);
        file.compact();
        file.erase_block(1 << 20).unwrap();
        drop(file);
        assert_eq!(FOUND.take().is_some_and(|found| found > 0), !wipe);
        drop(texts);
    }
}

#[test]
fn a_chunk_whose_gaps_are_filled_becomes_a_page_early_and_one_that_holds_little_stays_packed() {
    let fill = |apart: u64, writes: u64| {
        let file = SparseFile::new("file", 0.0);
        for at in (0..65_536).step_by(apart as usize) {
            file.write(at, &[1; 8]).unwrap();
        }
        let before = file.heap_bytes();
        for at in 0..writes {
            file.write(at * apart + 8, &[2; 4]).unwrap();
        }
        (before, file.heap_bytes())
    };
    // 32 KiB in 4,096 runs, and some of the gaps filled in part.
    let (before, after) = fill(16, 100);
    assert!((48 << 10..54 << 10).contains(&before), "{before}");
    assert!((72 << 10..76 << 10).contains(&after), "{after}");
    // 8 KiB in 1,024 runs: all the gaps.
    let (_, after) = fill(64, 1024);
    assert!(after < 34 << 10, "{after}");
}

//! Eviction: a limit on the memory of several files together.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use thalweg_sparse::{Account, Options, Pool, Span, SparseFile, SparseFileSystem};

const CHUNK: u64 = 1 << 16;

fn file_in(pool: &Pool) -> SparseFile {
    SparseFile::with_options("file", 0.0, Options { pool: Some(pool.clone()), ..Options::default() })
}

/// Creates a pool with capacity for `chunks` full chunks.
fn pool_of(chunks: usize) -> Pool {
    Pool::new(chunks * ((1 << 16) + 500))
}

fn write_chunk(file: &SparseFile, chunk: u64) {
    file.write(chunk * CHUNK, &[chunk as u8; CHUNK as usize]).unwrap();
}

fn held_chunks(file: &SparseFile) -> Vec<u64> {
    let blocks = file.blocks();
    blocks.iter().flat_map(|block| block.position / CHUNK..block.end().div_ceil(CHUNK)).collect()
}

#[test]
fn the_range_that_was_used_least_recently_goes_first() {
    let pool = pool_of(4);
    let file = file_in(&pool);
    (0..4).for_each(|chunk| write_chunk(&file, chunk));
    assert_eq!(held_chunks(&file), [0, 1, 2, 3]);
    file.read(5, &mut [0; 5]).unwrap();
    write_chunk(&file, 10);
    assert_eq!(held_chunks(&file), [0, 2, 3, 10]);
    file.write(2 * CHUNK, &[2]).unwrap();
    write_chunk(&file, 11);
    write_chunk(&file, 12);
    assert_eq!(held_chunks(&file), [2, 10, 11, 12]);
    let statistics = pool.statistics();
    assert_eq!((statistics.evicted_ranges, statistics.evicted_bytes), (3, 3 * CHUNK));
    assert_eq!((statistics.ranges, statistics.exceeded), (4, 0));
    let counters = file.counters();
    assert_eq!((counters.blocks_evicted, counters.bytes_evicted), (3, 3 * CHUNK));
}

#[test]
fn files_make_room_for_one_another() {
    let files = SparseFileSystem::new(Options { pool: Some(pool_of(3)), ..Options::default() });
    let (a, b) = (files.insert("a", 0.0).unwrap(), files.insert("b", 0.0).unwrap());
    (0..3).for_each(|chunk| write_chunk(&a, chunk));
    (0..2).for_each(|chunk| write_chunk(&b, chunk));
    assert_eq!((held_chunks(&a), held_chunks(&b)), (vec![2], vec![0, 1]));
    assert_eq!(files.bytes(), 3 * CHUNK);
}

#[test]
fn what_is_pinned_stays_and_goes_when_it_no_longer_is() {
    let pool = pool_of(2);
    let file = file_in(&pool);
    write_chunk(&file, 0);
    let pin = file.pin(CHUNK - 1, 1);
    (1..5).for_each(|chunk| write_chunk(&file, chunk));
    assert_eq!(held_chunks(&file), [0, 4]);
    drop(pin);
    (5..7).for_each(|chunk| write_chunk(&file, chunk));
    assert_eq!(held_chunks(&file), [5, 6]);
    assert_eq!(pool.statistics().exceeded, 0);
}

#[test]
fn when_all_is_pinned_the_limit_is_exceeded_and_that_is_counted() {
    let pool = pool_of(2);
    let file = file_in(&pool);
    let pin = file.pin(0, u64::MAX);
    (0..5).for_each(|chunk| write_chunk(&file, chunk));
    assert_eq!(held_chunks(&file), [0, 1, 2, 3, 4]);
    assert_eq!(pool.statistics().exceeded, 3);
    drop(pin);
    assert!(pool.shrink_to(pool.statistics().limit) > 2 * CHUNK as usize);
    assert_eq!(held_chunks(&file), [3, 4]);
}

#[test]
fn a_file_that_is_dropped_gives_its_memory_back() {
    let pool = pool_of(4);
    let (a, b) = (file_in(&pool), file_in(&pool));
    write_chunk(&a, 0);
    write_chunk(&b, 0);
    b.write(CHUNK * 7, &[1; 100]).unwrap();
    drop(b);
    assert_eq!(pool.statistics().ranges, 1);
    a.clear();
    assert_eq!((pool.statistics().used, pool.statistics().ranges), (0, 0));
}

#[test]
fn a_lower_limit_holds_at_once() {
    let pool = pool_of(8);
    let file = file_in(&pool);
    (0..8).for_each(|chunk| write_chunk(&file, chunk));
    pool.set_limit(3 << 16);
    assert!(pool.statistics().used <= 3 << 16);
    assert_eq!(held_chunks(&file), [6, 7]);
}

struct Counted(Arc<AtomicUsize>);

impl Account for Counted {
    fn take(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back(&self, bytes: usize) {
        assert!(self.0.fetch_sub(bytes, Ordering::Relaxed) >= bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// After any sequence of writes, the limit holds, the account agrees, and the remaining bytes can be
    /// read.
    #[test]
    fn the_limit_holds_whatever_is_written(
        writes in prop::collection::vec((0..3usize, 0..40u64, 0..CHUNK, 1..150_000usize, any::<bool>()), 1..60),
        limit in 400_000..2_000_000usize,
    ) {
        let counted = Arc::new(AtomicUsize::new(0));
        let pool = Pool::with_account(limit, Counted(counted.clone()));
        let files: Vec<SparseFile> = (0..3).map(|_| file_in(&pool)).collect();
        for (file, chunk, offset, length, erase) in writes {
            let (position, bytes) = (chunk * CHUNK + offset, vec![chunk as u8; length]);
            files[file].write_with(position, &bytes, thalweg_sparse::Overlap::Replace).unwrap();
            // All bytes of the last write are present, because the write is smaller than the limit.
            prop_assert!(files[file].has(position, length as u64));
            if erase {
                files[file].erase(position + 1, length as u64 / 2);
            }
            let statistics = pool.statistics();
            prop_assert!(statistics.peak <= limit, "{statistics:?}");
            prop_assert_eq!(statistics.exceeded, 0);
            prop_assert_eq!(statistics.used, counted.load(Ordering::Relaxed));
        }
        files.iter().for_each(SparseFile::clear);
        prop_assert_eq!(pool.statistics().used, 0);
        prop_assert_eq!(pool.statistics().ranges, 0);
    }
}

#[test]
fn blocks_go_in_the_order_of_their_last_use() {
    let file = SparseFile::with_options("file", 0.0, Options { touches: true, ..Options::default() });
    for start in [0u64, 100, 200, 300] {
        file.write(start, &[1; 10]).unwrap();
    }
    file.read(105, &mut [0; 2]).unwrap();
    file.write(10, &[1; 5]).unwrap();
    assert_eq!(file.touches(), [(2, 200), (3, 300), (4, 100), (5, 0)]);
    assert_eq!(file.next_touch(), 6);
    assert_eq!(file.evict_blocks(36), 10);
    assert_eq!(file.blocks(), [Span::new(0, 15), Span::new(100, 10), Span::new(300, 10)].as_slice());
    assert_eq!(file.evict_blocks(0), 20);
    assert_eq!(file.blocks(), [Span::new(0, 15)]);
    let counters = file.counters();
    assert_eq!((counters.blocks_evicted, counters.bytes_evicted, counters.blocks_erased), (3, 30, 3));
}

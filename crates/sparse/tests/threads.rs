//! Threads that share a file. These tests also run under Miri and the thread sanitizer, so they are small.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;
use thalweg_sparse::{Error, Options, Overlap, Pool, SparseFile};

const ROUNDS: u64 = if cfg!(miri) { 30 } else { 2000 };

#[test]
fn threads_that_write_apart_lose_nothing() {
    let file = SparseFile::new("file", 0.0);
    scope(|scope| {
        for thread in 0..4u64 {
            let file = &file;
            scope.spawn(move || {
                for at in 0..ROUNDS {
                    // All threads write to each chunk, and some writes cross its edge.
                    let position = at * 5000 + thread * 1000;
                    file.write(position, &[thread as u8; 700]).unwrap();
                    let mut read = [9; 700];
                    file.read(position, &mut read).unwrap();
                    assert!(read.iter().all(|byte| *byte == thread as u8));
                }
            });
        }
    });
    assert_eq!(file.bytes(), 4 * ROUNDS * 700);
    assert_eq!(file.count_blocks(), 4 * ROUNDS);
    let counters = file.counters();
    assert_eq!((counters.writes, counters.reads), (4 * ROUNDS, 4 * ROUNDS));
    assert_eq!((counters.bytes_written, counters.bytes_read), (4 * ROUNDS * 700, 4 * ROUNDS * 700));
}

#[test]
fn every_read_is_counted_however_many_threads_come_and_go() {
    let file = SparseFile::new("file", 0.0);
    file.write(0, &[1; 10]).unwrap();
    let read = |times: u64, position: u64, length: usize| {
        (0..times).for_each(|_| file.read(position, &mut vec![0; length]).unwrap());
    };
    let mut counted = (0, 0);
    for chunks in [1, 3] {
        file.write(0, &vec![1; chunks << 16]).unwrap();
        for threads in [1, 3, 50] {
            scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        read(ROUNDS, 5, 3);
                        read(3, 0, chunks << 16);
                    });
                }
            });
            counted.0 += threads * (ROUNDS + 3);
            counted.1 += threads * (ROUNDS * 3 + 3 * (chunks << 16) as u64);
            let counters = file.counters();
            assert_eq!((counters.reads, counters.bytes_read), counted, "{chunks} chunks, {threads} threads");
        }
    }
    file.clear();
    assert_eq!((file.counters().reads, file.counters().bytes_read), (0, 0));
    file.write(0, &[1; 10]).unwrap();
    read(2, 0, 10);
    assert_eq!((file.counters().reads, file.counters().bytes_read), (2, 20));
}

#[test]
fn a_write_over_several_chunks_is_seen_whole_or_not_at_all() {
    let length = 150_000;
    let start = 60_000;
    let file = SparseFile::new("file", 0.0);
    file.write(start, &vec![0; length]).unwrap();
    let done = AtomicBool::new(false);
    scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS.min(200) {
                file.write_with(start, &vec![round as u8; length], Overlap::Replace).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let mut read = vec![0; length];
                while !done.load(Ordering::Acquire) {
                    file.read(start, &mut read).unwrap();
                    // Comparing all bytes would take minutes under Miri.
                    assert!(read.iter().step_by(4999).all(|byte| *byte == read[length - 1]));
                }
            });
        }
    });
}

#[test]
fn erasing_writing_and_asking_at_once_ends_in_a_sound_file() {
    let file = SparseFile::new("file", 0.0);
    scope(|scope| {
        for thread in 0..3u64 {
            let file = &file;
            scope.spawn(move || {
                for at in 0..ROUNDS {
                    let position = (at * 7919 + thread * 13) % 40 * 20_000;
                    match (at + thread) % 7 {
                        0..=2 => file.write(position, &vec![7; 30_000]).unwrap(),
                        3 => drop(file.erase(position, 25_000)),
                        4 => match file.read_to_vec(position, 1000) {
                            Ok(bytes) => assert!(bytes.iter().all(|byte| *byte == 7)),
                            Err(error) => assert!(matches!(error, Error::Missing { .. })),
                        },
                        5 => {
                            let blocks = file.blocks();
                            assert!(blocks.windows(2).all(|pair| pair[0].end() < pair[1].position));
                        }
                        _ => {
                            if let Some(block) = file.block_at(position) {
                                let _ = file.erase_block(block.position);
                            }
                        }
                    }
                }
            });
        }
    });
    assert_eq!(file.bytes(), file.blocks().iter().map(|block| block.length).sum::<u64>());
    let erased = file.counters().bytes_erased;
    file.erase(0, u64::MAX);
    assert!(file.is_empty() && file.counters().bytes_erased >= erased);
}

#[test]
fn threads_that_share_a_pool_stay_within_it() {
    let limit = 1 << 20;
    let pool = Pool::new(limit);
    let options = Options { pool: Some(pool.clone()), ..Options::default() };
    let files: Vec<SparseFile> =
        (0..2).map(|_| SparseFile::with_options("file", 0.0, options.clone())).collect();
    scope(|scope| {
        for thread in 0..3u64 {
            let files = &files;
            scope.spawn(move || {
                for at in 0..ROUNDS {
                    let position = at * 30_000;
                    let file = &files[((at + thread) % 2) as usize];
                    file.write(position, &vec![at as u8; 10_000 + thread as usize * 10_000]).unwrap();
                    let _ = file.read_to_vec(at / 2 * 30_000, 100);
                }
            });
        }
    });
    let statistics = pool.statistics();
    assert!(statistics.peak <= limit && statistics.exceeded == 0, "{statistics:?}");
    drop(files);
    assert_eq!((pool.statistics().used, pool.statistics().ranges), (0, 0));
}

//! The rows of all tables of svfsc, as JSON: nanoseconds of CPU of a call, the medians of some rounds.
//!
//! `bench/svfsc/rows.cpp` gives the same rows of svfsc's C++. `python/bench/svfs.py` runs both, measures the
//! Python packages, and prints the tables.

use std::hint::black_box;

use parking_lot::RwLock;
use serde_json::{Map, Value, json};
use thalweg_sparse::{Options, Span, SparseFile};

use super::{MEBIBYTE, Sparse, THREADS, check, file, in_threads, positions, read, wall, write};
use crate::heap;

/// Prints the rows. `quick` measures a small index, few gaps and few blocks.
pub fn print(rounds: usize, quick: bool) {
    let mut rows = Rows { bench: Sparse { rounds }, made: Map::new(), plain: vec![b'x'; MEBIBYTE] };
    rows.transfers();
    rows.needs(if quick { 1000 } else { 23_830 });
    rows.weak_spots(if quick { 1024 } else { 4096 }, if quick { 8192 } else { 131_072 });
    rows.threads();
    rows.memory();
    println!("{}", Value::Object(rows.made));
}

struct Rows {
    bench: Sparse,
    made: Map<String, Value>,
    plain: Vec<u8>,
}

fn sizes() -> impl Iterator<Item = usize> {
    (0..=10).map(|power| 1 << power)
}

fn islands(count: usize, size: usize, apart: usize) -> SparseFile {
    let file = file();
    write(&file, positions(count, apart), &vec![b'x'; size]);
    file
}

impl Rows {
    fn add(&mut self, name: &str, figures: Vec<f64>) {
        self.made.insert(name.to_owned(), json!(figures));
    }

    fn transfers(&mut self) {
        let (bench, plain) = (&self.bench, self.plain.clone());
        let mut into = vec![0; MEBIBYTE];
        let whole = islands(1, 0, MEBIBYTE);
        check(whole.write(0, &plain));
        let [mut apart, mut one, mut out_apart, mut out_one] = [const { Vec::new() }; 4];
        let (mut copy, mut locked, lock) = (Vec::new(), Vec::new(), RwLock::new(()));
        for size in sizes() {
            let count = MEBIBYTE / size;
            let made = islands(count, size, size + 1);
            let into = &mut into[..size];
            apart.push(bench.measure(count, || (), |()| read(&made, positions(count, size + 1), into)));
            one.push(bench.measure(count, || (), |()| read(&whole, positions(count, size), into)));
            let bytes = &plain[..size];
            out_apart.push(bench.measure(count, file, |file| write(file, positions(count, size + 1), bytes)));
            out_one.push(bench.measure(count, file, |file| write(file, positions(count, size), bytes)));
            let mut copies = || {
                for position in positions(count, size) {
                    black_box(&mut *into).copy_from_slice(black_box(&plain[position..position + size]));
                }
            };
            copy.push(bench.measure(count, || (), |()| copies()));
            let mut locked_copies = || {
                for position in positions(count, size) {
                    let _held = lock.read();
                    black_box(&mut *into).copy_from_slice(black_box(&plain[position..position + size]));
                }
            };
            locked.push(bench.measure(count, || (), |()| locked_copies()));
        }
        let read_whole = bench.measure(1, || (), |()| check(whole.read(0, black_box(&mut into))));
        let write_whole = bench.measure(1, file, |file| check(file.write(0, &plain)));
        let copy_whole = bench.measure(1, || (), |()| drop(black_box(plain.clone())));
        for (name, figures) in [
            ("read", apart),
            ("read_one", one),
            ("write", out_apart),
            ("write_one", out_one),
            ("copy", copy),
            ("copy_locked", locked),
            ("read_whole", vec![read_whole]),
            ("write_whole", vec![write_whole]),
            ("copy_whole", vec![copy_whole]),
        ] {
            self.add(name, figures);
        }
    }

    fn needs(&mut self, records: usize) {
        let made = file();
        for record in 0..records {
            let start = 80 + record * 8004;
            check(made.write(start as u64, b"abcd"));
            write(&made, positions(10, 800).map(|at| start + 4 + at), b"abcd");
        }
        let span = 80 + records * 8004;
        let bench = &self.bench;
        let [mut needs, mut each, mut lists] = [const { Vec::new() }; 3];
        for length in (5..15).map(|power| 1 << power) {
            let calls = span.div_ceil(length);
            let wanted = |position: usize| Span::new(position as u64, length as u64);
            let measured = |work: &dyn Fn(usize)| {
                bench.measure(calls, || (), |()| positions(calls, length).for_each(work))
            };
            needs.push(measured(&|position| {
                black_box(&made.need(position as u64, length as u64, 0));
            }));
            each.push(measured(&|position| {
                made.each_missing(wanted(position), |span| {
                    black_box(span);
                });
            }));
            let counts: Vec<usize> =
                positions(calls, length).map(|at| made.need(at as u64, length as u64, 0).len()).collect();
            lists.push(measured(&|position| {
                let mut list = Vec::new();
                (0..counts[position / length]).for_each(|_| list.push(wanted(position)));
                black_box(&list);
            }));
        }
        let blocks = made.blocks();
        let wanted: Vec<Span> = blocks.iter().map(|block| Span::new(block.position, 8)).collect();
        let list = bench.measure(1, || (), |()| drop(black_box(blocks.clone())));
        let has = || blocks.iter().for_each(|block| assert!(black_box(made.has(block.position, 4))));
        let others = [
            ("need_whole", bench.measure(1, || (), |()| drop(black_box(made.need(0, span as u64, 0))))),
            ("need_many", bench.measure(1, || (), |()| drop(black_box(made.need_many(&wanted, 0))))),
            ("has", bench.measure(blocks.len(), || (), |()| has())),
            ("blocks", bench.measure(1, || (), |()| drop(black_box(made.blocks())))),
        ];
        self.add("need", needs);
        self.add("need_each", each);
        self.add("need_list", lists);
        self.add("need_whole_list", vec![list]);
        others.into_iter().for_each(|(name, figure)| self.add(name, vec![figure]));
    }

    fn weak_spots(&mut self, gaps: usize, blocks: usize) {
        let (bench, plain) = (&self.bench, &self.plain);
        let between = positions(gaps, 16).map(|at| at + 8);
        let touched = || {
            let options = Options { touches: true, ..Options::default() };
            let file = SparseFile::with_options("file", 0.0, options);
            write(&file, positions(blocks, 16), &[b'x'; 8]);
            file
        };
        let punt = |bound: usize| {
            bench.measure(1, touched, |file| {
                black_box(file.evict_blocks(bound as u64));
            })
        };
        let prepare = || islands(gaps, 8, 16);
        let figures = vec![
            bench.measure(gaps, prepare, |file| write(file, between.clone(), &plain[..8])),
            bench.measure(gaps, prepare, |file| write(file, between.clone().rev(), &plain[..8])),
            bench.measure(8192, file, |file| write(file, positions(8192, 8).rev(), &plain[..8])),
            bench.measure(1, || islands(2048, 256, 512), |file| check(file.write(0, plain))),
            punt(blocks * 8 / 2),
            punt(blocks * 8),
        ];
        self.add("weak", figures);
    }

    fn threads(&mut self) {
        let count = MEBIBYTE / 8;
        let bench = &self.bench;
        let made = islands(count, 8, 9);
        let [mut joined, mut apart, mut reads] = [const { Vec::new() }; 3];
        for threads in THREADS {
            let writes = |step: usize| {
                let work = |file: &SparseFile| {
                    in_threads(threads, |_| write(file, positions(count, step), &[b'x'; 8]));
                };
                bench.measure_by(wall, 1, file, work)
            };
            joined.push(writes(8));
            apart.push(writes(9));
            let work = |_: &()| in_threads(threads, |_| read(&made, positions(count, 9), &mut [0; 8]));
            reads.push(bench.measure_by(wall, 1, || (), work));
        }
        self.add("threads_one", joined);
        self.add("threads_apart", apart);
        self.add("threads_read", reads);
    }

    fn memory(&mut self) {
        let (mut said, mut taken) = (Vec::new(), Vec::new());
        for size in sizes() {
            let before = heap::held();
            let file = islands(MEBIBYTE / size, size, size + 1);
            file.compact();
            said.push(file.heap_bytes() as f64);
            // Pages do not come from the allocator; `heap_bytes` includes them.
            taken.push(((heap::held() - before).max(file.heap_bytes())) as f64);
        }
        self.add("size_of", said);
        self.add("heap", taken);
    }
}

//! Compares sparse files with svfsc: its own tables, and the weaknesses found in it.
//!
//! svfsc's Python package is measured in the same run if it is installed (`SVFSC_PYTHON`). The C++ figures
//! were measured once on a similar machine (a 3 GHz Xeon, medians of CPU time, its locks compiled in). They
//! are printed in brackets, since other machines differ. Times are CPU time of the thread, except for several
//! threads, which are measured by the wall clock.

use crate::heap;
use serde_json::Value;
use std::hint::black_box;
use std::process::Command;
use std::time::Instant;
use thalweg_sparse::{Clock, Options, Pool, Span, SparseFile};

const MEBIBYTE: usize = 1 << 20;
const SIZES: [usize; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
const THREADS: [usize; 5] = [1, 2, 4, 8, 16];

mod cpp;
mod rows;

/// Prints the named tables, or all tables.
pub fn run(quick: bool, named: &[&str]) {
    if named == ["rows"] {
        rows::print(if quick { 1 } else { 5 }, quick);
        return;
    }
    let wanted = |name: &str| named.is_empty() || named.contains(&name);
    let bench = Sparse { rounds: if quick { 1 } else { 5 } };
    let peer = bench.peer();
    match &peer {
        Some(peer) => {
            println!("svfsc {} in Python, in this run; its C++ measured once, in brackets.", peer["version"])
        }
        None => {
            println!("svfsc is not installed: `make bench` installs it. Its C++ measured once, in brackets.")
        }
    }
    println!("Nanoseconds of CPU a call, medians of {}; `times` is svfsc's time over ours.\n", bench.rounds);
    let peer = peer.unwrap_or_default();
    for (name, table) in Sparse::TABLES {
        if wanted(name) {
            table(&bench, &peer);
        }
    }
}

/// Prints a table, beside the figures of the peer.
type Table = fn(&Sparse, &Value);

struct Sparse {
    rounds: usize,
}

fn file() -> SparseFile {
    SparseFile::new("file", 0.0)
}

fn timed() -> SparseFile {
    SparseFile::with_options("file", 0.0, Options { clock: Clock::Coarse, ..Options::default() })
}

/// Writes `bytes` at each of `positions`.
fn write(file: &SparseFile, positions: impl Iterator<Item = usize>, bytes: &[u8]) {
    for position in positions {
        check(file.write(position as u64, bytes));
    }
}

fn read(file: &SparseFile, positions: impl Iterator<Item = usize>, into: &mut [u8]) {
    for position in positions {
        check(file.read(position as u64, black_box(&mut *into)));
    }
}

fn check(result: Result<(), thalweg_sparse::Error>) {
    if let Err(error) = result {
        eprintln!("bench: {error}");
        std::process::exit(1);
    }
}

/// Returns the positions of `count` blocks whose starts are `apart` bytes from each other.
fn positions(count: usize, apart: usize) -> impl DoubleEndedIterator<Item = usize> + Clone {
    (0..count).map(move |at| at * apart)
}

/// Returns the CPU time of this thread, in nanoseconds.
#[allow(unsafe_code)]
fn cpu() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live value of the right type.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn wall() -> f64 {
    thread_local!(static START: Instant = Instant::now());
    START.with(|start| start.elapsed().as_nanos() as f64)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the peer's figure for a row, if it was measured.
fn said(peer: &Value, name: &str, at: usize) -> Option<f64> {
    peer.get(name)?.get(at)?.as_f64()
}

fn beside(ours: f64, cpp: f64, python: Option<f64>) -> String {
    let python = match python {
        Some(python) => format!("{python:>12.0}{:>8.1}", python / ours),
        None => format!("{:>12}{:>8}", "-", "-"),
    };
    format!("{ours:>10.1}{:>12}{:>8.1}{python}", format!("[{cpp:.0}]"), cpp / ours)
}

fn head(title: &str, unit: &str) {
    println!("{title}");
    println!(
        "  {unit:<12}{:>10}{:>12}{:>8}{:>12}{:>8}{:>12}",
        "ours", "C++", "times", "Python", "times", "limit"
    );
}

impl Sparse {
    const TABLES: [(&'static str, Table); 6] = [
        ("read", Self::reads),
        ("need", Self::needs),
        ("write", Self::writes),
        ("weak-spots", |bench, _| bench.weak_spots()),
        ("threads", Self::threads),
        ("heap", |bench, _| bench.memory()),
    ];

    fn peer(&self) -> Option<Value> {
        let python = std::env::var_os("SVFSC_PYTHON")?;
        let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("svfsc/rows.py");
        let output = Command::new(python).arg(script).arg(self.rounds.to_string()).output().ok()?;
        if !output.status.success() {
            eprintln!("bench: svfsc: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        serde_json::from_slice(&output.stdout).ok()
    }

    /// Returns the median time of a call in nanoseconds, by `clock`. `work` makes `calls` calls with the
    /// value that `prepare` returns.
    fn measure_by<T>(
        &self,
        clock: fn() -> f64,
        calls: usize,
        mut prepare: impl FnMut() -> T,
        mut work: impl FnMut(&T),
    ) -> f64 {
        let once = |_| {
            let given = prepare();
            let start = clock();
            work(&given);
            (clock() - start) / calls as f64
        };
        median((0..self.rounds).map(once).collect())
    }

    fn measure<T>(&self, calls: usize, prepare: impl FnMut() -> T, work: impl FnMut(&T)) -> f64 {
        self.measure_by(cpu, calls, prepare, work)
    }

    fn reads(&self, peer: &Value) {
        let plain = vec![1u8; MEBIBYTE];
        let mut into = vec![0u8; MEBIBYTE];
        let mut copies = [0.0; SIZES.len()];
        head("Read 1 MiB held as blocks of n bytes (1024 apart; Python: one apart)", "bytes");
        for (at, size) in SIZES.into_iter().enumerate() {
            let count = MEBIBYTE / size;
            copies[at] = self.measure(
                count,
                || (),
                |()| {
                    for position in positions(count, size) {
                        black_box(&mut into)[..size]
                            .copy_from_slice(black_box(&plain[position..position + size]));
                    }
                },
            );
            let made = file();
            write(&made, positions(count, 1024), &plain[..size]);
            let ours =
                self.measure(count, || (), |()| read(&made, positions(count, 1024), &mut into[..size]));
            println!(
                "  {size:<12}{}{:>12.1}",
                beside(ours, cpp::READ[at], said(peer, "read", at)),
                copies[at]
            );
        }
        let made = timed();
        write(&made, positions(MEBIBYTE, 1024), &plain[..1]);
        let ours = self.measure(MEBIBYTE, || (), |()| read(&made, positions(MEBIBYTE, 1024), &mut into[..1]));
        println!("  {:<12}{}   the time of each noted, as svfsc does", 1, beside(ours, cpp::READ[0], None));
        println!("  limit: the same pieces copied from one place to another\n");

        head("Read from one block of 1 MiB", "bytes");
        let made = file();
        check(made.write(0, &plain));
        for (at, size) in SIZES.into_iter().enumerate() {
            let count = MEBIBYTE / size;
            let ours =
                self.measure(count, || (), |()| read(&made, positions(count, size), &mut into[..size]));
            println!(
                "  {size:<12}{}{:>12.1}",
                beside(ours, cpp::READ_ONE[at], said(peer, "read_one", at)),
                copies[at]
            );
        }
        // In turn and often, since other programs share the cache.
        let (mut whole, mut copy) = (Vec::new(), Vec::new());
        for _ in 0..self.rounds * 40 {
            whole.push(self.once(|| read(&made, 0..1, &mut into)));
            copy.push(self.once(|| black_box(&mut into).copy_from_slice(black_box(&plain))));
        }
        let (whole, copy) = (median(whole), median(copy));
        let python = peer.get("read_whole").and_then(Value::as_f64);
        println!(
            "  {:<12}{}{copy:>12.0}   {:.0} % of memcpy\n",
            "all, at once",
            beside(whole, cpp::READ_WHOLE, python),
            100.0 * copy / whole
        );
    }

    fn once(&self, work: impl FnOnce()) -> f64 {
        let start = cpu();
        work();
        cpu() - start
    }

    fn needs(&self, peer: &Value) {
        let made = file();
        for record in 0..23831 {
            let start = 80 + record * 8004;
            check(made.write(start as u64, b"abcd"));
            write(&made, positions(10, 800).map(|at| start + 4 + at), b"abcd");
        }
        let span = made.end() as usize;
        head(&format!("Need, over {} blocks in {span} bytes, n bytes a call", made.count_blocks()), "bytes");
        for (at, cpp) in cpp::NEED.into_iter().enumerate() {
            let length = 32 << at;
            let mut ranges = 0;
            let ours = self.measure(
                span.div_ceil(length),
                || (),
                |()| {
                    ranges = positions(span.div_ceil(length), length)
                        .map(|position| made.need(position as u64, length as u64, 0).len())
                        .sum::<usize>();
                },
            );
            println!("  {length:<12}{}   {ranges} ranges", beside(ours, cpp, said(peer, "need", at)));
        }
        let whole = self.measure(1, || (), |()| drop(black_box(made.need(0, span as u64, 0))));
        let python = peer.get("need_whole").and_then(Value::as_f64);
        println!("  {:<12}{}", "all, at once", beside(whole, cpp::NEED_WHOLE, python));
        let blocks: Vec<Span> = made.blocks().iter().map(|block| Span::new(block.position, 8)).collect();
        let many = self.measure(1, || (), |()| drop(black_box(made.need_many(&blocks, 0))));
        println!("  {:<12}{}", "need_many", beside(many, cpp::NEED_MANY, None));
        let has = self.measure(
            blocks.len(),
            || (),
            |()| {
                blocks.iter().for_each(|block| assert!(black_box(made.has(block.position, 4))));
            },
        );
        println!("  {:<12}{}\n", "has", beside(has, cpp::HAS, None));
    }

    fn writes(&self, peer: &Value) {
        let plain = vec![1u8; MEBIBYTE];
        let mut into = vec![0u8; MEBIBYTE];
        for (title, gap, cpp, name) in [
            ("Write 1 MiB in pieces that stay apart", 1, cpp::WRITE, "write"),
            ("Write 1 MiB in pieces that become one block", 0, cpp::WRITE_ONE, "write_one"),
        ] {
            head(title, "bytes");
            for (at, size) in SIZES.into_iter().enumerate() {
                let count = MEBIBYTE / size;
                let all = positions(count, size + gap);
                let ours = self.measure(count, file, |file| write(file, all.clone(), &plain[..size]));
                let copy = self.measure(
                    count,
                    || (),
                    |()| {
                        for position in positions(count, size) {
                            black_box(&mut into)[position..position + size]
                                .copy_from_slice(black_box(&plain[..size]));
                        }
                    },
                );
                println!("  {size:<12}{}{copy:>12.1}", beside(ours, cpp[at], said(peer, name, at)));
                if size == 1 {
                    let ours = self.measure(count, timed, |file| write(file, all.clone(), &plain[..size]));
                    println!(
                        "  {size:<12}{}   the time of each noted, as svfsc does",
                        beside(ours, cpp[at], None)
                    );
                }
            }
            println!();
        }
    }

    fn weak_spots(&self) {
        let plain = vec![1u8; MEBIBYTE];
        println!("Where svfsc is slow");
        println!("  {:<58}{:>10}{:>12}{:>8}", "", "ours", "C++", "times");
        let row = |what: &str, ours: f64, cpp: f64| {
            println!("  {what:<58}{ours:>10.1}{:>12}{:>8.1}", format!("[{cpp:.0}]"), cpp / ours);
        };
        let islands = |count: usize, size: usize, apart: usize| {
            let file = file();
            write(&file, positions(count, apart), &vec![1; size]);
            file
        };
        let gaps = positions(65_536, 16).map(|at| at + 8);
        let prepare = || islands(65_536, 8, 16);
        let ours = self.measure(65_536, prepare, |file| write(file, gaps.clone(), &plain[..8]));
        row("fill 65,536 gaps of 8 bytes, forwards", ours, 142.);
        let ours = self.measure(65_536, prepare, |file| write(file, gaps.clone().rev(), &plain[..8]));
        row("fill 65,536 gaps of 8 bytes, backwards", ours, 878_000.);
        let ours = self.measure(8192, file, |file| write(file, positions(8192, 8).rev(), &plain[..8]));
        row("write 64 KiB backwards, 8 bytes at a time", ours, 44_000.);
        let prepare = || islands(2048, 256, 512);
        let ours = self.measure(1, prepare, |file| check(file.write(0, &plain)));
        row("write 1 MiB over 2,048 blocks of 256 bytes", ours, 1.75e6);
        let drop_every = |file: &SparseFile| {
            for at in 0..131_072u64 {
                drop(file.erase_block(at * 7919 % 131_072 * 16));
            }
        };
        let ours = self.measure(131_072, || islands(131_072, 8, 16), drop_every);
        row("drop one block of 131,072, anywhere", ours, 25.6e6);
        let touched = || {
            let file = SparseFile::with_options("file", 0.0, Options { touches: true, ..Options::default() });
            write(&file, positions(131_072, 16), &[1; 8]);
            file
        };
        let punt = |file: &SparseFile| {
            for left in (1..131_072u64).rev() {
                file.evict_blocks(left * 8 + 1);
            }
        };
        let ours = self.measure(131_071, touched, punt);
        row("drop the least recently used block of 131,072", ours, 25.6e6);
        println!();
    }

    fn threads(&self, peer: &Value) {
        let count = MEBIBYTE / 8;
        println!(
            "8-byte writes and reads by several threads, each of all 131,072: milliseconds of wall time for all"
        );
        println!(
            "  {:<8}{:>8}{:>9}{:>7}{:>10}{:>8}{:>9}{:>7}{:>10}{:>8}{:>9}{:>7}",
            "threads",
            "joined",
            "C++",
            "times",
            "Python",
            "apart",
            "C++",
            "times",
            "Python",
            "reads",
            "C++",
            "times"
        );
        for (at, threads) in THREADS.into_iter().enumerate() {
            let writes = |apart: usize| {
                let work = |file: &SparseFile| {
                    in_threads(threads, |_| write(file, positions(count, apart), &[1; 8]));
                };
                self.measure_by(wall, 1, file, work) / 1e6
            };
            let (joined, apart) = (writes(8), writes(9));
            let made = file();
            write(&made, positions(count, 9), &[1; 8]);
            let work = |_: &()| in_threads(threads, |_| read(&made, positions(count, 9), &mut [0; 8]));
            let reads = self.measure_by(wall, 1, || (), work) / 1e6;
            let python = |column: usize| {
                let value = peer.get("threads").and_then(|rows| rows.get(at)?.get(column)?.as_f64());
                value.map_or_else(|| "-".to_owned(), |value| format!("{:.1}", value / 1e6))
            };
            let cpp = cpp::THREADS[at];
            println!(
                "  {threads:<8}{joined:>8.1}{:>9}{:>7.1}{:>10}{apart:>8.1}{:>9}{:>7.1}{:>10}{reads:>8.1}{:>9}{:>7.1}",
                format!("[{:.0}]", cpp[0]),
                cpp[0] / joined,
                python(0),
                format!("[{:.0}]", cpp[1]),
                cpp[1] / apart,
                python(1),
                format!("[{:.0}]", cpp[2]),
                cpp[2] / reads,
            );
        }
        println!();
        self.scaling();
    }

    /// Runs one thread and two threads in turn, so both see the same changes of the machine's speed.
    fn scaling(&self) {
        println!("Two threads that work apart, each on a half: work done in a time, over that of one thread");
        let row = |what: &str, work: &dyn Fn(usize)| {
            let time = |threads: usize| {
                let start = wall();
                work(threads);
                wall() - start
            };
            let ratios: Vec<f64> = (0..self.rounds * 3).map(|_| time(1) / time(2)).collect();
            let best = ratios.iter().copied().fold(0.0, f64::max);
            println!("  {what:<42}{:>6.2}   best {best:.2}", median(ratios));
        };
        let count = MEBIBYTE / 8;
        for (name, apart) in [("joined", 8), ("apart", 9)] {
            let made = file();
            write(&made, positions(count, apart), &[1; 8]);
            let half = |threads: usize, thread: usize| {
                positions(count, apart).skip(thread * count / threads).take(count / threads)
            };
            row(&format!("write again, blocks {name}"), &|threads| {
                in_threads(threads, |thread| {
                    (0..10).for_each(|_| write(&made, half(threads, thread), &[1; 8]))
                });
            });
            row(&format!("write a new file, blocks {name}"), &|threads| {
                for _ in 0..10 {
                    let made = file();
                    in_threads(threads, |thread| write(&made, half(threads, thread), &[1; 8]));
                }
            });
            row(&format!("read, blocks {name}"), &|threads| {
                in_threads(threads, |thread| {
                    (0..20).for_each(|_| read(&made, half(threads, thread), &mut [0; 8]))
                });
            });
        }
        row("limit: two threads that share nothing", &|threads| {
            let count = 20_000_000 / threads as u64;
            in_threads(threads, |_| assert!((0..count).fold(1, |a, b| black_box(a | b)) > 0));
        });
        println!("  svfsc, writing or reading                   [0.3 to 0.7]\n");
    }

    fn memory(&self) {
        println!("Memory of 1 MiB in blocks that are apart: bytes of heap, and for each byte of data");
        println!(
            "  {:<22}{:>12}{:>8}{:>14}{:>8}{:>14}{:>8}",
            "bytes, apart", "ours", "", "C++ says", "", "C++ takes", ""
        );
        let of = |size: usize, apart: usize| {
            let before = heap::held();
            let file = file();
            write(&file, positions(MEBIBYTE / size, apart), &vec![1; size]);
            // Pages do not come from the allocator; `heap_bytes` includes them.
            (heap::held() - before).max(file.heap_bytes()) as f64
        };
        let over = |bytes: f64| format!("x{:.2}", bytes / MEBIBYTE as f64);
        for (size, says, takes) in cpp::MEMORY {
            for apart in [size + 1, 800, 1024] {
                let ours = of(size, apart);
                let name = format!("{size}, {apart}");
                println!(
                    "  {name:<22}{ours:>12.0}{:>8}{:>14}{:>8}{:>14}{:>8}",
                    over(ours),
                    format!("[{says:.0}]"),
                    over(says),
                    format!("[{takes:.0}]"),
                    over(takes)
                );
            }
        }
        println!();
        self.given_back();
    }

    /// Writes many times more than the limit, with all kinds of blocks, then lowers the limit.
    fn given_back(&self) {
        println!("Memory given back, in MiB resident: a pool of 256 MiB filled, then shrunk to 16 MiB");
        for (what, size, apart) in [
            ("one block", MEBIBYTE, MEBIBYTE),
            ("blocks of 1000 bytes, 1300 apart", 1000, 1300),
            ("blocks of 1000 bytes, 4000 apart", 1000, 4000),
            ("blocks of one byte, 100 apart", 1, 100),
        ] {
            let before = resident();
            let pool = Pool::new(256 << 20);
            let options = Options { pool: Some(pool.clone()), ..Options::default() };
            let file = SparseFile::with_options("file", 0.0, options);
            let bytes = vec![1; size];
            let mut position = 0;
            while pool.statistics().evicted_ranges < 2000 {
                write(&file, positions(1000, apart).map(|at| position + at), &bytes);
                position += 1000 * apart;
            }
            let full = resident() - before;
            pool.shrink_to(16 << 20);
            let at_once = resident() - before;
            // An allocator may return memory that was free for a while on its next request.
            for _ in 0..20 {
                std::thread::sleep(std::time::Duration::from_millis(5));
                black_box((0..100).map(|size| vec![0u8; size * 700]).collect::<Vec<_>>());
            }
            println!(
                "  {what:<34} full {full:>5.0}   shrunk {at_once:>5.0}   a moment later {:>5.0}",
                resident() - before
            );
        }
        println!();
    }
}

fn in_threads(threads: usize, work: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let work = &work;
            scope.spawn(move || work(thread));
        }
    });
}

/// Returns the resident memory of this process, in MiB.
fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok());
    pages.unwrap_or_default() * 4096.0 / MEBIBYTE as f64
}

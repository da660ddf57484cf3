//! Measures the cost of evaluations. A call that does not wait is compared with a plain call. A call that
//! waits is compared with tokio's tasks. Both are compared with Ruby's Concurrently, the origin of the idea.
//! The memory of a million waiting evaluations is measured too.
//!
//! Times are CPU time on one thread, so other load on the machine matters less. Each figure is the median of
//! rounds in which all contenders ran in turn.

use std::future::Future;
use std::hint::black_box;
use std::io::Write;
use std::pin::pin;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use thalweg_runtime::evaluation::{
    Called, ConcurrentProc, Evaluation, Wait, await_readable, await_writable, block_on, wait,
};

use tokio::task::JoinHandle;
use tokio::time::Sleep;

use crate::concurrently;
use crate::heap;
use crate::measure::{self, thread_time};
use crate::report::grouped;

/// The calls that are started before the first one is awaited, in the contenders that work in batches.
const BATCH: usize = 100;
const NEXT_TURN: Duration = Duration::ZERO;
/// A wait that needs a timer, but is over when it is checked.
const TIMER: Duration = Duration::from_nanos(1);
const HELD: usize = 1_000_000;

/// The CPU time of Concurrently in nanoseconds, on Ruby 3.1.2 on a two-core machine (Xeon, 3 GHz).
const RUBY_ELSEWHERE: [(&str, f64); 10] = [
    ("plain", 72.5),
    ("call", 1134.6),
    ("call_nonblock", 942.9),
    ("call_detached", 1800.1),
    ("call_and_forget", 962.0),
    ("call, waits", 8868.0),
    ("call_nonblock, waits", 4121.6),
    ("call_detached, waits", 4085.3),
    ("call_and_forget, waits", 3992.2),
    ("wait", 2752.1),
];

/// The first argument of a process that only holds evaluations; its memory is measured from outside.
pub const HOLD: &str = "hold-evaluations";

struct Contender<'a> {
    name: &'static str,
    /// The name of Ruby's counterpart.
    ruby: Option<&'static str>,
    /// Executes the work the given number of times. Returns the time of it that does not count.
    run: Box<dyn FnMut(usize) -> Duration + 'a>,
}

#[inline(never)]
fn plain(number: u64) -> u64 {
    black_box(number) + 1
}

/// Measures and prints the tables.
pub fn run(quick: bool) -> Result<(), String> {
    let describe = |error: std::io::Error| error.to_string();
    let rounds = if quick { 3 } else { 11 };
    let round = Duration::from_millis(if quick { 5 } else { 50 });
    let on_tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(describe)?;
    let (reader, writer) = pipe()?;

    let mut contenders = not_waiting();
    contenders.extend(waiting(reader, writer));
    contenders.extend(tokios(&on_tokio, reader));
    let figures = measure_in_turn(&mut contenders, rounds, round);

    println!("Evaluations: CPU time on one thread, medians of {rounds} rounds in turn\n");
    let (ruby, is_here) = match concurrently::ruby(rounds, round) {
        Ok(figures) => (figures, true),
        Err(reason) => {
            println!("  Ruby's Concurrently was not run: {reason}");
            println!("  Its figures (*) are those of another machine and time.\n");
            (RUBY_ELSEWHERE.map(|(name, figure)| (name.to_owned(), figure)).to_vec(), false)
        }
    };
    let mark = if is_here { ' ' } else { '*' };
    let ruby = |name: &str| ruby.iter().find(|(known, _)| known == name).map(|(_, figure)| *figure);
    println!(
        "  {:<42}{:>9}{:>15}{:>8}{:>12}{:>9}",
        "", "ns", "executions/s", "× plain", "Ruby, ns", "× plain"
    );
    let plain = figures[0];
    let ruby_plain = ruby("plain").unwrap_or(f64::NAN);
    for (contender, figure) in contenders.iter().zip(&figures) {
        print!("  {:<42}{figure:>9.1}{:>15}{:>8.1}", contender.name, grouped(1e9 / figure), figure / plain);
        match contender.ruby.and_then(ruby) {
            Some(theirs) => println!("{theirs:>11.0}{mark}{:>9.1}", theirs / ruby_plain),
            None => println!(),
        }
    }
    println!();
    memory()
}

/// Returns a pipe that can be read from and written to, for as long as the program runs.
fn pipe() -> Result<(&'static std::io::PipeReader, &'static std::io::PipeWriter), String> {
    let describe = |error: std::io::Error| error.to_string();
    let (reader, mut writer) = std::io::pipe().map_err(describe)?;
    writer.write_all(b"x").map_err(describe)?;
    Ok((&*Box::leak(Box::new(reader)), &*Box::leak(Box::new(writer))))
}

/// Returns the nanoseconds of the contenders that Concurrently has as well, by its names.
///
/// # Errors
/// The system has no descriptors left.
pub fn beside_ruby(rounds: usize, round: Duration) -> Result<Vec<(String, f64)>, String> {
    let (reader, writer) = pipe()?;
    let mut contenders = not_waiting();
    contenders.extend(waiting(reader, writer));
    contenders.retain(|contender| contender.ruby.is_some());
    let figures = measure_in_turn(&mut contenders, rounds, round);
    let names = contenders.iter().filter_map(|contender| contender.ruby.map(str::to_owned));
    Ok(names.zip(figures).collect())
}

fn measure_in_turn(contenders: &mut [Contender], rounds: usize, round: Duration) -> Vec<f64> {
    let counts: Vec<usize> = contenders.iter_mut().map(|contender| calibrate(contender, round)).collect();
    let mut figures = vec![Vec::with_capacity(rounds); contenders.len()];
    for _ in 0..rounds {
        for ((contender, &count), figures) in contenders.iter_mut().zip(&counts).zip(&mut figures) {
            let start = thread_time();
            let excluded = (contender.run)(count);
            figures.push((thread_time() - start - excluded).as_nanos() as f64 / count as f64);
        }
    }
    let median = |mut figures: Vec<f64>| {
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    figures.into_iter().map(median).collect()
}

/// Returns the number of executions that take about one round's time.
fn calibrate(contender: &mut Contender, round: Duration) -> usize {
    let mut count = BATCH;
    loop {
        let start = thread_time();
        let excluded = (contender.run)(count);
        let taken = thread_time() - start - excluded;
        if taken * 2 > round {
            return count;
        }
        count *= 2;
    }
}

fn contender<'a>(name: &'static str, mut run: impl FnMut(usize) + 'a) -> Contender<'a> {
    let run = move |count| {
        run(count);
        Duration::ZERO
    };
    Contender { name, ruby: None, run: Box::new(run) }
}

/// A contender that only schedules calls. They run in batches, and that time does not count.
fn scheduled<'a, T: 'a>(
    name: &'static str,
    start: impl Fn(u64) -> T + 'a,
    mut finish: impl FnMut(&mut Vec<T>) + 'a,
) -> Contender<'a> {
    let run = move |count| {
        let mut excluded = Duration::ZERO;
        in_batches(count, &start, |started| {
            let before = thread_time();
            finish(started);
            excluded += thread_time() - before;
        });
        excluded
    };
    Contender { name, ruby: None, run: Box::new(run) }
}

impl Contender<'_> {
    fn beside(mut self, ruby: &'static str) -> Self {
        self.ruby = Some(ruby);
        self
    }
}

fn each(count: usize, mut work: impl FnMut(u64)) {
    for number in 0..count as u64 {
        work(number);
    }
}

/// Calls in batches: starts all calls of a batch, then finishes all of them.
fn in_batches<T>(count: usize, start: impl Fn(u64) -> T, mut finish: impl FnMut(&mut Vec<T>)) {
    let mut started = Vec::with_capacity(BATCH);
    for _ in 0..count / BATCH {
        started.extend((0..BATCH as u64).map(&start));
        finish(&mut started);
        started.clear();
    }
}

fn finish<T: 'static>(evaluations: &mut Vec<Evaluation<T>>) {
    block_on(async {
        for mut evaluation in evaluations.drain(..) {
            let _ = black_box(evaluation.await_result().await);
        }
    });
}

fn evaluation<T>(called: Called<T>) -> Evaluation<T> {
    match called {
        Called::Waiting(evaluation) => evaluation,
        Called::Concluded(_) => unreachable!("the contenders that use this wait"),
    }
}

/// Runs the given number of turns of the event loop.
fn turns(count: u32) {
    block_on(async {
        for _ in 0..count {
            wait(NEXT_TURN).await;
        }
    });
}

fn not_waiting<'a>() -> Vec<Contender<'a>> {
    let code = ConcurrentProc::new(async |number: u64| plain(number));
    let forgotten = ConcurrentProc::new(async |number: u64| {
        black_box(plain(number));
    });
    let on_tokio = ConcurrentProc::on_tokio(async |number: u64| plain(number));
    let nonblock = move |number| match code.call_nonblock(number) {
        Called::Concluded(sum) => _ = black_box(sum),
        Called::Waiting(_) => unreachable!("the code does not wait"),
    };
    vec![
        contender("plain call, not inlined", |count| {
            each(count, |number| _ = black_box(plain(number)));
        })
        .beside("plain"),
        contender("a bare future, polled", |count| {
            each(count, |number| {
                let future = pin!(async { plain(number) });
                let polled: Poll<u64> = future.poll(&mut Context::from_waker(Waker::noop()));
                let _ = black_box(polled);
            });
        }),
        contender("call, awaited in an evaluation", move |count| {
            block_on(async {
                for number in 0..count as u64 {
                    black_box(code.call(number).await);
                }
            });
        }),
        contender("call, by block_on", move |count| {
            each(count, |number| _ = black_box(block_on(code.call(number))));
        })
        .beside("call"),
        contender("call_nonblock", move |count| each(count, nonblock)).beside("call_nonblock"),
        contender("call_nonblock, for tokio", move |count| {
            each(count, |number| match on_tokio.call_nonblock(number) {
                Called::Concluded(sum) => _ = black_box(sum),
                Called::Waiting(_) => unreachable!("the code does not wait"),
            });
        }),
        scheduled("call_detached, only scheduled", move |number| code.call_detached(number), finish)
            .beside("call_detached, scheduled"),
        scheduled(
            "call_and_forget, only scheduled",
            move |number| forgotten.call_and_forget(number),
            |_| {
                turns(1);
            },
        )
        .beside("call_and_forget, scheduled"),
        contender("call_detached, run, awaited", move |count| {
            in_batches(count, |number| code.call_detached(number), finish);
        })
        .beside("call_detached"),
        contender("call_and_forget, run", move |count| {
            in_batches(count, |number| forgotten.call_and_forget(number), |_| turns(1));
        })
        .beside("call_and_forget"),
    ]
}

fn waiting<'a>(
    reader: &'static std::io::PipeReader,
    writer: &'static std::io::PipeWriter,
) -> Vec<Contender<'a>> {
    let turn = ConcurrentProc::new(async |_: u64| wait(NEXT_TURN).await);
    let timer = ConcurrentProc::new(async |_: u64| wait(TIMER).await);
    let pipe = ConcurrentProc::new(move |_: u64| async move { await_readable(reader).await.is_ok() });
    let forgotten_pipe = ConcurrentProc::new(move |_: u64| async move { await_readable(reader).await });
    vec![
        contender("a turn: wait", |count| {
            block_on(async {
                for _ in 0..count {
                    wait(NEXT_TURN).await;
                }
            });
        })
        .beside("wait"),
        contender("a turn: call", move |count| each(count, |number| block_on(turn.call(number))))
            .beside("call, waits"),
        contender("a turn: call_nonblock, awaited", move |count| {
            in_batches(count, |number| evaluation(turn.call_nonblock(number)), finish);
        })
        .beside("call_nonblock, waits"),
        contender("a turn: call_detached, run, awaited", move |count| {
            in_batches(count, |number| turn.call_detached(number), finish);
        })
        .beside("call_detached, waits"),
        contender("a turn: call_and_forget, run", move |count| {
            in_batches(count, |number| turn.call_and_forget(number), |_| turns(2));
        })
        .beside("call_and_forget, waits"),
        contender("a timer: call", move |count| each(count, |number| block_on(timer.call(number)))),
        contender("a timer: call_nonblock, awaited", move |count| {
            in_batches(count, |number| evaluation(timer.call_nonblock(number)), finish);
        }),
        contender("a timer: call_detached, run, awaited", move |count| {
            in_batches(count, |number| timer.call_detached(number), finish);
        }),
        contender("a timer: call_and_forget, run", move |count| {
            in_batches(count, |number| timer.call_and_forget(number), |_| turns(2));
        }),
        contender("a pipe: call", move |count| {
            each(count, |number| _ = black_box(block_on(pipe.call(number))));
        })
        .beside("call, pipe"),
        contender("a pipe: await_readable", move |count| {
            block_on(async {
                for _ in 0..count {
                    let _ = black_box(await_readable(reader).await);
                }
            });
        })
        .beside("await_readable"),
        contender("a pipe: await_writable", move |count| {
            block_on(async {
                for _ in 0..count {
                    let _ = black_box(await_writable(writer).await);
                }
            });
        })
        .beside("await_writable"),
        contender("a pipe: call_nonblock, awaited", move |count| {
            in_batches(count, |number| evaluation(pipe.call_nonblock(number)), finish);
        }),
        contender("a pipe: call_detached, run, awaited", move |count| {
            in_batches(count, |number| pipe.call_detached(number), finish);
        }),
        contender("a pipe: call_and_forget, run", move |count| {
            in_batches(count, |number| forgotten_pipe.call_and_forget(number), |_| turns(3));
            // The last evaluations may still wait for a check of the descriptor.
            block_on(async { _ = black_box(await_readable(reader).await) });
        }),
    ]
}

fn tokios<'a>(
    runtime: &'a tokio::runtime::Runtime,
    reader: &'static std::io::PipeReader,
) -> Vec<Contender<'a>> {
    let waits = ConcurrentProc::on_tokio(async |_: u64| wait(NEXT_TURN).await);
    vec![
        contender("tokio: spawn, await", |count| {
            runtime.block_on(async {
                for number in 0..count as u64 {
                    let _ = black_box(tokio::spawn(async move { plain(number) }).await);
                }
            });
        }),
        contender("tokio: spawn, await, in batches", |count| {
            runtime.block_on(async {
                let mut tasks = Vec::with_capacity(BATCH);
                for _ in 0..count / BATCH {
                    tasks.extend((0..BATCH as u64).map(|n| tokio::spawn(async move { plain(n) })));
                    for task in tasks.drain(..) {
                        let _ = black_box(task.await);
                    }
                }
            });
        }),
        contender("tokio: spawn, forget, run", |count| {
            runtime.block_on(forgotten(count, async |number| _ = black_box(plain(number))));
        }),
        contender("tokio: spawn, yield, forget, run", |count| {
            runtime.block_on(forgotten(count, async |_| tokio::task::yield_now().await));
        }),
        contender("for tokio: a turn: call_nonblock, awaited", move |count| {
            runtime.block_on(async {
                let mut started = Vec::with_capacity(BATCH);
                for _ in 0..count / BATCH {
                    started.extend((0..BATCH as u64).map(|number| evaluation(waits.call_nonblock(number))));
                    for evaluation in started.drain(..) {
                        let _ = black_box(evaluation.await);
                    }
                }
            });
        }),
        contender("for tokio: a pipe: call", move |count| {
            runtime.block_on(async {
                for _ in 0..count {
                    let _ = black_box(await_readable(reader).await);
                }
            });
        }),
    ]
}

/// Spawns tasks on tokio in batches and runs each batch to its end. One yield would run only some of its
/// tasks.
async fn forgotten<Fut: Future<Output = ()> + Send + 'static>(count: usize, code: impl Fn(u64) -> Fut) {
    static DONE: AtomicUsize = AtomicUsize::new(0);
    for _ in 0..count / BATCH {
        DONE.store(0, Ordering::Relaxed);
        for number in 0..BATCH as u64 {
            let code = code(number);
            tokio::spawn(async move {
                code.await;
                // The runtime has one thread, so a load and a store suffice; an atomic addition takes longer.
                DONE.store(DONE.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            });
        }
        while DONE.load(Ordering::Relaxed) < BATCH {
            tokio::task::yield_now().await;
        }
    }
}

/// Prints the memory of waiting evaluations: the heap bytes and resident bytes of processes that hold them,
/// minus those of a process that holds none. The difference between the two figures is the allocator's
/// overhead; `thalweg` has the same allocator.
fn memory() -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let bytes = |what: &str| {
        let output = Command::new(&program).args([HOLD, what]).output();
        let output = output.map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut figures = text.split_whitespace().map(str::parse::<f64>);
        match (figures.next(), figures.next()) {
            (Some(Ok(resident)), Some(Ok(heap))) => Ok((resident, heap)),
            _ => Err(format!("holding `{what}` printed `{text}`")),
        }
    };
    let nothing = bytes("nothing")?;
    let held = grouped(HELD as f64);
    println!("  {held} waiting at once: bytes of each, with its handle and the state of its code");
    println!("  {:<38}{:>13}{:>14}{:>12}", "", "of the heap", "beside these", "resident");
    for (what, description, own) in HOLDINGS {
        let (resident, heap) = bytes(what)?;
        let (resident, heap) = ((resident - nothing.0) / HELD as f64, (heap - nothing.1) / HELD as f64);
        println!("  {description:<38}{heap:>13.0}{:>14.0}{resident:>12.0}", heap - own as f64);
    }
    println!("  Ruby, measured elsewhere: 13,800 bytes each; 31,744 are the most that it can hold\n");
    Ok(())
}

/// The kinds of evaluations to hold, and for each the bytes of its handle and of its code's state.
const HOLDINGS: [(&str, &str, usize); 4] = [
    ("called", "call_nonblock, for ever", size_of::<Evaluation<()>>()),
    ("timed", "call_nonblock, for a timer", size_of::<Evaluation<()>>() + size_of::<Wait>()),
    ("tokio", "tokio: spawn, for ever", size_of::<JoinHandle<()>>()),
    ("tokio-timed", "tokio: spawn, for a timer", size_of::<JoinHandle<()>>() + size_of::<Sleep>()),
];

/// Holds evaluations of one kind, prints the resident bytes and heap bytes of the process, and returns.
pub fn hold(what: &str) -> Result<(), String> {
    let hour = Duration::from_secs(3600);
    match what {
        "called" => {
            let code = ConcurrentProc::new(|_: ()| std::future::pending::<()>());
            let held: Vec<_> = (0..HELD).map(|_| evaluation(code.call_nonblock(()))).collect();
            turns(2);
            print_bytes()?;
            drop(held);
        }
        "timed" => {
            let code = ConcurrentProc::new(move |_: ()| wait(hour));
            let held: Vec<_> = (0..HELD).map(|_| evaluation(code.call_nonblock(()))).collect();
            turns(2);
            print_bytes()?;
            drop(held);
        }
        "tokio" | "tokio-timed" => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map_err(|error| error.to_string())?.block_on(async {
                let task = |_| match what {
                    "tokio" => tokio::spawn(std::future::pending::<()>()),
                    _ => tokio::spawn(tokio::time::sleep(hour)),
                };
                let held: Vec<_> = (0..HELD).map(task).collect();
                // Enough yields for tokio to poll each task once.
                for _ in 0..HELD {
                    tokio::task::yield_now().await;
                }
                print_bytes()?;
                drop(held);
                Ok::<(), String>(())
            })?;
        }
        _ => print_bytes()?,
    }
    Ok(())
}

fn print_bytes() -> Result<(), String> {
    println!("{} {}", measure::resident().map_err(|error| error.to_string())?, heap::held());
    Ok(())
}

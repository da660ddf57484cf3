//! Runs one target in a process of its own, so that an abort, an overflow of the stack or an endless loop
//! does not hide its input.
//!
//! The child writes each input to a file before it runs it. If the child dies, the file holds the input that
//! killed it.

use std::any::Any;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::{Target, mutate, seeds};

/// The stack of the program's workers, in bytes: see `run/threads.rs` of the engine.
const STACK: usize = 2 << 20;

/// The inputs that a child ran.
#[derive(Debug, Default, Clone, Copy)]
pub struct Count {
    /// The seeds.
    pub seeds: usize,
    /// The inputs, with the seeds.
    pub inputs: u64,
}

/// Replays the seeds of a target, and then mutates them for `time`. Each input is first written to `current`.
///
/// # Errors
/// The message of the first panic. `current` then has its input. Or the reason why nothing could be run.
pub fn run(target: &'static Target, time: Duration, seed: u64, current: &Path) -> Result<Count, String> {
    let seeds = seeds::read(target.name).map_err(|error| format!("its seeds cannot be read: {error}"))?;
    let file = File::create(current).map_err(|error| format!("{}: {error}", current.display()))?;
    on_a_stack_of_the_program(move || {
        let inputs: Vec<Vec<u8>> = seeds.into_iter().map(|(_, seed)| seed).collect();
        let mut count = Count { seeds: inputs.len(), inputs: 0 };
        let mut once = |input: &[u8]| {
            note(&file, input).map_err(|error| format!("the input cannot be noted: {error}"))?;
            count.inputs += 1;
            checked(target, input)
        };
        inputs.iter().try_for_each(|input| once(input))?;
        let (mut random, begun) = (Rng::with_seed(seed), Instant::now());
        while begun.elapsed() < time {
            once(&mutate::mutated(&inputs, target.words, target.longest, &mut random))?;
        }
        Ok(count)
    })
}

/// Runs a target with the content of a file.
///
/// # Errors
/// The message of its panic, or the reason why the file cannot be read.
pub fn repeat(target: &'static Target, path: &Path) -> Result<(), String> {
    let input = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    on_a_stack_of_the_program(move || checked(target, &input))
}

fn checked(target: &Target, input: &[u8]) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| (target.run)(input))).map_err(|panic| message(&*panic))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned()
}

fn note(file: &File, input: &[u8]) -> io::Result<()> {
    file.write_all_at(input, 0)?;
    file.set_len(input.len() as u64)
}

fn on_a_stack_of_the_program<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    // Panics are silent: a parser that contains those of a library would fill the pipe of the standard error,
    // which the test reads at the end. The panic of a target is returned.
    panic::set_hook(Box::new(|_| {}));
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(work);
    let thread = thread.map_err(|error| format!("no thread can be started: {error}"))?;
    thread.join().unwrap_or_else(|panic| Err(message(&*panic)))
}

//! `thalweg-fuzz`: runs fuzz targets without guidance, and repeats inputs.
//!
//! - `thalweg-fuzz list` prints the names of the targets.
//! - `thalweg-fuzz repeat TARGET FILE…` runs a target with the content of each file.
//! - `thalweg-fuzz run TARGET SECONDS SEED FILE` replays the seeds and mutates them. FILE gets each input
//!   before it is run.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use thalweg_fuzz::{Target, child, target, targets};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["list"] => {
            targets::ALL.iter().for_each(|target| println!("{}", target.name));
            Ok(())
        }
        ["repeat", name, ref files @ ..] => {
            known(name).and_then(|target| files.iter().try_for_each(|file| repeat(target, file)))
        }
        ["run", name, seconds, seed, current] => {
            known(name).and_then(|target| run(target, seconds, seed, Path::new(current)))
        }
        _ => Err("usage: thalweg-fuzz list | repeat TARGET FILE… | run TARGET SECONDS SEED FILE".to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn known(name: &str) -> Result<&'static Target, String> {
    target(name).ok_or_else(|| format!("`{name}` is not a target; `thalweg-fuzz list` prints all"))
}

fn repeat(target: &'static Target, file: &str) -> Result<(), String> {
    child::repeat(target, Path::new(file)).map_err(|message| format!("{file}: {message}"))
}

fn run(target: &'static Target, seconds: &str, seed: &str, current: &Path) -> Result<(), String> {
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("`{text}`: {error}"));
    let count = child::run(target, Duration::from_secs(number(seconds)?), number(seed)?, current)?;
    println!("{}: {} seeds, {} inputs", target.name, count.seeds, count.inputs);
    Ok(())
}

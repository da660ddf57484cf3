//! The `thalweg` program: thin. It reads the command line, shows what the engine says, and nothing else.
//!
//! A command is one file in `commands`, with its options, its help and what it does. What a person reads is made in
//! `format`, `paint`, `progress` and `summary`; how a command ends is in `exit`.
//!
//! It is a library so that `python -m thalweg` is the same program, and so that Python can copy; the binary adds its allocator.

mod commands;
mod drive;
mod exit;
mod format;
mod load;
mod log;
mod paint;
mod print;
mod progress;
mod serve;
mod server;
mod service;
mod summary;

use std::ffi::OsString;

use clap::Parser;

pub use commands::copy::embedded::{Copied, CopyProgress, NotCopied, Wish, copy, copy_options};
pub use commands::copy::told::Figures;

/// Does what a command line says, whose first word is the name of the program, and gives the exit code.
pub fn main(line: impl IntoIterator<Item = OsString>) -> u8 {
    match commands::CommandLine::try_parse_from(line) {
        Ok(line) => {
            let json = line.speaks_json();
            exit::report(commands::dispatch(line), json)
        }
        Err(told) => {
            // Nobody may read it, which changes nothing.
            let _ = told.print();
            u8::try_from(told.exit_code()).unwrap_or(exit::WRONG)
        }
    }
}

//! The `thalweg` binary: thin. It reads the command line, shows what the engine says, and nothing else.
//!
//! A command is one file in [`commands`], with its options, its help and what it does. What a person reads is made in
//! [`format`], [`paint`], [`progress`] and [`summary`]; how a command ends is in [`exit`].

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

use std::process::ExitCode;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let line = commands::CommandLine::parse();
    let json = line.speaks_json();
    exit::report(commands::dispatch(line), json)
}

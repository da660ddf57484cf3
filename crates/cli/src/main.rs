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

/// Lets the allocator give memory back to the system after 10 ms. By default it keeps what was freed for a second, which is
/// what passes through the budget in that time: a copy with 64 MiB took 40 MiB more resident, and was no faster.
#[allow(unsafe_code, reason = "an option of a library in C")]
fn give_memory_back_soon() {
    /// `mi_option_purge_delay`, for which the bindings have no name.
    const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
    // SAFETY: options must not be set while other threads look at them, and there are none yet.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, 10) };
}

fn main() -> ExitCode {
    give_memory_back_soon();
    let line = commands::CommandLine::parse();
    let json = line.speaks_json();
    exit::report(commands::dispatch(line), json)
}

//! The program `thalweg`: thin. It parses the command line, and calls `thalweg-frontend` for what runs jobs.
//!
//! A command is one file in `commands`, with its options, its help and what it does. No command names a
//! dialect or a component: those are found in `thalweg-job`.
//!
//! See docs/decisions/050-mimalloc-without-huge-pages.md.

mod commands;

use std::process::ExitCode;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Lets the allocator return memory to the system after 10 ms. By default it keeps freed memory for a second,
/// which is as much as passes through the budget in that time: a copy with 64 MiB took 40 MiB more resident,
/// and was no faster.
#[allow(unsafe_code, reason = "an option of a library in C")]
fn return_memory_soon() {
    /// `mi_option_purge_delay`, for which the bindings have no name.
    const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
    // SAFETY: options must not be set while other threads read them, and there are none yet.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, 10) };
}

fn main() -> ExitCode {
    return_memory_soon();
    ExitCode::from(match commands::CommandLine::try_parse() {
        Ok(line) => {
            let json = line.speaks_json();
            thalweg_frontend::report(commands::dispatch(line), json)
        }
        Err(error) => {
            // The output may have no reader, which changes nothing.
            let _ = error.print();
            u8::try_from(error.exit_code()).unwrap_or(thalweg_frontend::WRONG)
        }
    })
}

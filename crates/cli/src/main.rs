//! The program `thalweg`. It parses the command line and calls `thalweg-frontend`, which runs jobs.
//!
//! Each command is a file in `commands`, with its options and its help. Only `serve` is made for one dialect;
//! all others find it through `thalweg-job`.
//!
//! See docs/decisions/050-mimalloc-without-huge-pages.md.

mod commands;
mod version;

use std::process::ExitCode;

use clap::Parser;
use thalweg_frontend::{Paint, print};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Lets the allocator return memory to the system after 1 ms. The default is one second: as much freed memory
/// stays resident as passes through the budget in that time. A copy with a budget of 64 MiB had 40 MiB more
/// resident memory, and was no faster.
///
/// Memory that another thread freed is returned by the thread that allocated it, which looks for it only when
/// it allocates. So a thread also looks before it waits. Otherwise 300 unfinished messages of 1 MB, with a
/// budget of 32 MiB, took 116 MiB, and 85 stayed resident after them; now they take 88, and 40 stay.
#[allow(unsafe_code, reason = "an option of a library in C")]
fn return_memory_soon() {
    /// `mi_option_purge_delay`, for which the bindings have no name.
    const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
    // SAFETY: options must not be set while other threads read them, and there are none yet.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, 1) };
    // SAFETY: any thread may collect its own memory at any time.
    thalweg_job::set_before_wait(|| unsafe { libmimalloc_sys::mi_collect(false) });
}

/// Lets all threads share one arena of the C library, whose allocator serves little beside itself. Otherwise
/// each thread reserves 64 MiB of addresses for one, and takes four more calls of the system to start.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code, reason = "an option of a library in C")]
fn share_arena() {
    // SAFETY: the function has no requirements. If it does not know the option, nothing changes.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

fn main() -> ExitCode {
    commands::completions::answer();
    return_memory_soon();
    #[cfg(target_env = "gnu")]
    share_arena();
    // Before anything that takes time, so that no signal is lost.
    if let Err(error) = thalweg_job::signals::install() {
        return ExitCode::from(thalweg_frontend::report(Err(error.into()), false));
    }
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    thalweg_job::release_code();
    #[cfg(unix)]
    thalweg_job::raise_descriptor_limit();
    ExitCode::from(match commands::CommandLine::try_parse() {
        Ok(line) => {
            let json = line.speaks_json();
            thalweg_frontend::until_heeded(line.early(), json);
            thalweg_frontend::report(commands::dispatch(line), json)
        }
        Err(error) => {
            if error.use_stderr() {
                // It repeats arguments, which may have characters that a terminal obeys.
                let text = error.render();
                let coloured = Paint::stderr().is_on();
                print::err(&if coloured { text.ansi().to_string() } else { text.to_string() });
            } else {
                // An error is ignored: the output may have no reader.
                let _ = error.print();
            }
            u8::try_from(error.exit_code()).unwrap_or(thalweg_frontend::WRONG)
        }
    })
}

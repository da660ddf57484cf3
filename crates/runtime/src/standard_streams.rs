//! Whether a standard stream was closed when the program started (`thalweg ... >&-`).
//!
//! Before `main`, Rust opens `/dev/null` in place of a standard stream that is closed, so that no other file
//! gets its number. Text that is written there afterwards would be dropped, and input would be empty, without
//! an error. An open `/dev/null` cannot be distinguished from one that the user chose, so the streams are
//! looked at before Rust does.

#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU8, Ordering};

/// The streams that were closed: bit 0 is the input, bit 1 the output, bit 2 the error output.
static CLOSED: AtomicU8 = AtomicU8::new(0);

// SAFETY: the loader calls the functions in this section once, before `main`, as C functions without results.
// `look` depends on nothing that Rust's start prepares: it makes two system calls and stores an integer.
#[used]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    for number in [0, 1, 2] {
        // SAFETY: the descriptor is only asked for its flags. If it is closed, the system says so.
        let stream = unsafe { BorrowedFd::borrow_raw(number) };
        if rustix::io::fcntl_getfd(stream).is_err() {
            CLOSED.fetch_or(1 << number, Ordering::Relaxed);
        }
    }
}

/// True if the stream with this descriptor, 0 to 2, was closed when the program started.
pub fn was_closed(number: u8) -> bool {
    CLOSED.load(Ordering::Relaxed) & (1 << number) != 0
}

/// Checks that the standard input was open when the program started.
///
/// # Errors
/// The reason for a person.
pub fn input() -> Result<(), &'static str> {
    const CLOSED_INPUT: &str = "the standard input was closed when the program started. Redirect it from a file, or from `/dev/null`";
    if was_closed(0) { Err(CLOSED_INPUT) } else { Ok(()) }
}

//! Tests that the servers start, answer and stop, and that a client sees each fault as documented.

#![allow(clippy::unwrap_used)]

mod azure;
mod faults;
mod passing;
mod raw;
mod s3;
mod store;
mod web;

/// Returns bytes that differ from position to position.
fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251) as u8).collect()
}

/// True if there is such a process.
fn is_running(id: u32) -> bool {
    let id = rustix::process::Pid::from_raw(id.cast_signed()).unwrap();
    rustix::process::test_kill_process(id).is_ok()
}

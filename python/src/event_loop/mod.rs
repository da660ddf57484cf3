//! The event loop of evaluations, and their place on the event loops of others.
//!
//! [`EventLoopCore`](core::EventLoopCore) owns the paths that each turn takes: callbacks, timers,
//! descriptors. The Python class over it inherits all that is rare from asyncio's own loop, so transports,
//! TLS, subprocesses and signals are asyncio's. On another loop, a [`Guest`](guest::Guest) has the same
//! queues, and shares one handle of the loop among all evaluations of a turn.
//!
//! A turn runs what was scheduled before it in the order in which it was scheduled, and then what is due in
//! the order of time. A wait of no time is due at once. So code that starts comes before code that waited, as
//! in Ruby's Concurrently.
//!
//! See docs/decisions/080-an-event-loop-of-our-own.md.

mod core;
mod descriptors;
mod guest;
mod handle;
mod job;
mod poller;
mod queues;
mod system;
mod timers;
mod waits;

pub use core::EventLoopCore;
pub use job::{Job, ends_program};
pub use waits::{Sleeper, Wait, wait};

use guest::Guest;
use pyo3::prelude::*;

/// Schedules something for the next turn of an event loop.
///
/// # Errors
/// `RuntimeError` if the loop is closed.
#[inline]
pub fn soon(event_loop: &Bound<'_, PyAny>, job: Job) -> PyResult<()> {
    match event_loop.cast::<EventLoopCore>() {
        Ok(core) => core.get().push(job),
        Err(_) => Guest::push(&Guest::of(event_loop)?, event_loop, job),
    }
}

/// Makes a wait take place on an event loop.
fn arm(wait: &Bound<'_, Wait>, event_loop: &Bound<'_, PyAny>) -> PyResult<()> {
    match event_loop.cast::<EventLoopCore>() {
        Ok(core) => core.get().arm(wait),
        Err(_) => Guest::arm(&Guest::of(event_loop)?, event_loop, wait),
    }
}

/// True if a task of asyncio that waits for a turn can be resumed like any callback: nothing of ours is
/// scheduled on this loop, which is not ours, so there is no order to keep.
fn is_alone(event_loop: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(event_loop.cast::<EventLoopCore>().is_err() && Guest::of(event_loop)?.get().is_idle())
}

/// Removes a wait from the queues of an event loop.
fn disarm(wait: &Bound<'_, Wait>, event_loop: &Bound<'_, PyAny>) {
    match event_loop.cast::<EventLoopCore>() {
        Ok(core) => core.get().disarm(wait),
        Err(_) => {
            if let Ok(guest) = Guest::of(event_loop) {
                guest.get().disarm(wait);
            }
        }
    }
}

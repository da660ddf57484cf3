//! Evaluations.

mod cell;
mod clock;
mod error;
mod event_loop;
mod fastest;
mod handle;
mod home;
mod hook;
mod inbox;
mod proc;
mod readiness;
mod resume;
mod running;
mod storage;
mod sync;
mod timers;
mod tokio_readiness;
mod wait;
mod waker;

pub use clock::VirtualTime;
pub use error::{EvaluationError, TimedOut};
pub use event_loop::block_on;
pub use fastest::await_fastest;
pub use handle::Evaluation;
pub use home::{Here, Home, OnTokio};
pub use hook::{Forgettable, Forgotten, on_forgotten, on_forgotten_anywhere};
pub use proc::{Called, ConcurrentProc, concurrently, concurrently_on_tokio};
pub use readiness::{await_readable, await_writable};
pub use resume::{Resumer, resumption};
pub use wait::{Wait, wait, within};

#[cfg(all(test, not(feature = "loom")))]
mod tests;

//! How it moves: evaluations, channels bounded by bytes, the order of what several copies worked on, and stopping.
//!
//! Stages of a run are tokio tasks. Between two stages stands a [`channel`]; where the stage before it has
//! several copies, a [`Sequencer`] puts back in order what they give. Nothing here waits while it holds
//! something that others need: a push never waits, a stage asks for room *before* it takes its next input.
//!
//! Code that may have to wait is evaluated ([`evaluation`]): it runs in its caller's stack until it really waits. That
//! module stands on nothing else here, and is of use to any program.
//!
//! This crate knows nothing of messages, configuration or components.

mod channel;
pub mod evaluation;
mod sequence;
mod stop;

pub use channel::{Receiver, Sender, Ticket, channel};
pub use sequence::Sequencer;
pub use stop::Stop;

/// Runs code that may block the thread (reading a file, say) so that the runtime's other tasks go on elsewhere.
/// On a runtime of one thread it just runs.
pub fn blocking<T>(work: impl FnOnce() -> T) -> T {
    use tokio::runtime::{Handle, RuntimeFlavor};
    match Handle::try_current() {
        Ok(handle) if handle.runtime_flavor() != RuntimeFlavor::CurrentThread => {
            tokio::task::block_in_place(work)
        }
        _ => work(),
    }
}

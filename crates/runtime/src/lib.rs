//! How it moves: evaluations, stages, channels bounded by bytes, the order of what several copies worked on, how many
//! of them there are, and stopping.
//!
//! Code that may have to wait is an [`evaluation`]: it runs in its caller's stack until it does, and only then is
//! something that is scheduled. That module stands on nothing else here. On it stand the [`Stage`]s of a run: an item
//! is handed over by a call, and goes through the [`channel`] between two stages only where it is not taken at once.
//! Where a stage has several copies, a [`Sequencer`] puts back in order what they give. Nothing here waits while it
//! holds something that others need: a push never waits, a stage asks for room *before* it takes its next input.
//!
//! How many copies a stage has, and how many requests a sink has in flight, is a [`ConcurrencyLimit`], which finds its
//! own value; how it does is in [`limit`].
//!
//! This crate knows nothing of messages, configuration or components.

mod channel;
pub mod evaluation;
pub mod limit;
mod sequence;
mod stage;
mod stop;

pub use channel::{AtOnce, HandOver, Receiver, Sender, Ticket, channel};
pub use limit::ConcurrencyLimit;
pub use sequence::Sequencer;
pub use stage::{HandOvers, Stage, Worker};
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

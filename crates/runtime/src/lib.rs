//! How data moves: evaluations, stages, channels bounded by bytes, the order of the results of parallel
//! workers, the number of workers, and stopping.
//!
//! Code that may have to wait is an [`evaluation`]: it runs on its caller's stack until it first waits, and
//! is scheduled only from then on. That module depends on nothing else here. The [`Stage`]s of a run are
//! built on it. An item is handed over by a call; it goes through the [`channel`] between two stages only if
//! the next stage does not accept it at once. If a stage has several workers, a [`Sequencer`] restores the
//! order of their results. Nothing here waits while it holds something that another task needs: a push never
//! waits, and a stage waits for capacity *before* it takes its next input.
//!
//! A [`ConcurrencyLimit`] decides how many workers a stage has, and how many requests a sink has in flight.
//! It finds its own value; [`limit`] describes how.
//!
//! This crate knows nothing of messages, configuration or components.

mod alarm;
mod at_once;
mod channel;
pub mod descriptors;
pub mod evaluation;
mod failpoint;
pub mod idle;
pub mod lasting;
pub mod limit;
#[cfg(unix)]
pub mod private;
mod sequence;
mod stage;
#[cfg(unix)]
pub mod standard_streams;
mod stop;
mod traffic;

pub use alarm::Alarm;
pub use at_once::{blocking, wait_for};
pub use channel::{AtOnce, HandOver, Receiver, Sender, Taken, Ticket, channel};
pub use failpoint::Failpoint;
pub use limit::ConcurrencyLimit;
pub use sequence::Sequencer;
pub use stage::{HandOvers, Stage, Worker};
pub use stop::Stop;
pub use traffic::{Hold, Pass, Traffic};

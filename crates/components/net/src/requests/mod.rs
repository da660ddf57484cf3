//! Messages sent to a server by HTTP, with an answer for each.
//!
//! All sinks that send requests use this module; they differ in how messages become a body, and in how an
//! answer is read. From the outside to the inside:
//!
//! - `Rounds` follows one batch of the engine: which messages are done, which are sent again, and when the
//!   sink stops trying. A round sends each message that is not done once, in pieces, several at a time.
//! - `Gather` joins the pieces of several batches into one request, while other requests are in flight or
//!   until `max_delay` has passed. The writers of a sink share it, and with it the limit on requests.
//! - [`Request`] sends one body and returns the answer, or why there is none.
//! - [`Service`] is the system: it makes the body, and returns the [`Reading`] of an answer. Some systems
//!   confirm later that what they accepted is safe: [`Service::confirm`] waits for that.
//!
//! A batch is acknowledged when each of its messages is delivered or refused. Only messages that failed for
//! now are sent again. If a round has no success at all, the engine decides how long to wait, and whether the
//! batch takes another route.
//!
//! Another family sends in the same way with a request of its own ([`Store::of`]), which it signs ([`Sign`]).
//!
//! A task that sends, fed by a queue, was rejected: an error has to come back to the engine with its batch,
//! and a queue is a second place that holds messages beyond the budget.
//!
//! See docs/decisions/089-stores-share-one-way-of-sending.md.

mod client;
mod failure;
mod gather;
mod members;
mod moments;
mod options;
mod parts;
mod request;
mod rounds;
mod store;
#[cfg(test)]
pub(crate) mod testing;

pub(crate) use client::{Auth, Compression, Endpoint, header, secret_header};
pub use failure::{Failure, Verdict};
pub use gather::{Reading, Receipt, Service};
pub(crate) use members::Members;
pub(crate) use moments::Moments;
pub use options::StoreOptions;
pub(crate) use parts::one_line;
pub use parts::{Encode, Encoded, Parts};
pub use request::{Answer, Request, Sign};
pub(crate) use rounds::{Piece, Rounds};
pub use store::Shared;
pub use store::Store;
pub(crate) use store::{Check, Target};

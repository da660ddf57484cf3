//! Remote files: ranges are fetched when they are read, and never twice.
//!
//! A [`RemoteFile`] sits between readers and an [`Origin`], which is a file in any store. A read is served
//! from a [`SparseFile`](crate::SparseFile). For missing bytes, the remote file
//!
//! 1. looks into the cache on disk, if there is one;
//! 2. leaves out ranges *under way*: a range that is being fetched belongs to no reader. Every reader that
//!    needs it waits for it, and a reader that stops takes nothing from the others;
//! 3. turns the rest into requests. Near ranges become one request where the gap costs less time than a
//!    request (the *price* of a request is its latency times the bandwidth, both measured all the time). Long
//!    ranges are split so that they arrive in parallel, and short ones are lengthened;
//! 4. fetches each request in a task of its own, within the byte budget and an adaptive limit on concurrency;
//! 5. retries temporary failures, after pauses that double or that the origin asks for. Bytes that arrived
//!    before a connection broke are kept, and only the rest is requested again.
//!
//! Every reply tells the state of the file, by tag or by length and time. It is compared before any byte of
//! the reply is visible ([`Fingerprint`]). If the reply says nothing about the state (a file on a disk), the
//! state is looked up after the bytes have arrived and before they are visible. If the state is the same and
//! the bytes differ, that is noticed as well, as far as requests overlap.
//!
//! # What was rejected
//!
//! - *Stopping a fetch when its readers have gone*: the bytes received so far would be lost, and the next
//!   reader often wants exactly those.
//! - *A fixed gap* (a mebibyte is usual): right for a store far away, but it reads a file on the next machine
//!   as a whole.
//!
//! See docs/decisions/038-a-fetch-belongs-to-no-reader.md.

mod ahead;
mod attempt;
mod costs;
mod error;
mod fetch;
mod file;
mod flights;
mod request;

pub use error::RemoteError;
pub use file::{Advance, Observer, OnChange, RemoteFile, RemoteOptions, RemoteStatistics};
pub use request::{Ending, Purpose, Request};

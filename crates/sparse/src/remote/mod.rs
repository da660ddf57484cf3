//! Remote files: ranges are fetched when they are read, and never twice.
//!
//! A [`RemoteFile`] is between readers and an [`Origin`], which is a file in any store. A read is served from
//! a [`SparseFile`](crate::SparseFile). For missing bytes, the remote file
//!
//! 1. looks into the cache on disk, if there is one;
//! 2. skips ranges that are being fetched already. A fetch belongs to no reader: every reader that needs the
//!    range waits for it, and a reader that stops does not affect the other readers;
//! 3. turns the rest into requests. Near ranges become one request if the gap costs less time than a request.
//!    (The *price* of a request is its latency times the bandwidth. Both are measured all the time.) Long
//!    ranges are split so that they arrive in parallel, and short ones are lengthened;
//! 4. fetches each request in a separate task, within the byte budget and an adaptive limit on concurrency;
//! 5. retries temporary failures, after pauses that double or that the origin asks for. Bytes that arrived
//!    before a connection broke are kept, and only the rest is requested again.
//!
//! Every reply reports the state of the file, by tag or by length and time. The state is compared before any
//! byte of the reply is visible ([`Fingerprint`]). If the reply says nothing about the state (a file on a
//! disk), the state is looked up after the bytes have arrived and before they are visible. Different bytes
//! with the same state are detected as well, where requests overlap.
//!
//! # What was rejected
//!
//! - *Stopping a fetch when its readers have gone*: the bytes received so far would be lost, and the next
//!   reader often wants exactly those.
//! - *A fixed gap* (a mebibyte is usual): right for a distant store, but a file on a nearby machine would be
//!   read as a whole.
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

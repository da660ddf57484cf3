//! Files somewhere else: what is read of them is fetched, and nothing twice.
//!
//! A [`RemoteFile`] stands between readers and an [`Origin`], which is a file in any store. A read is served from a
//! [`SparseFile`](crate::SparseFile); for what that lacks, it
//!
//! 1. looks into the cache on disk, if there is one;
//! 2. leaves out what is *under way* already: a range that is being fetched belongs to no reader, whoever needs it waits for it, and a reader
//!    that goes away takes nothing from the others;
//! 3. makes requests out of the rest: near ranges are one where the gap costs less time than a request (the *price* of a
//!    request is its latency times the bandwidth, both measured all the time), long ones are cut so that they come in
//!    parallel, short ones lengthened;
//! 4. fetches each in a task of its own, within the byte budget and a limit on concurrency that adapts;
//! 5. tries again what is temporary: with pauses that double, or what the origin asks for; bytes that came before a cut are
//!    kept, and only the rest is asked for again.
//!
//! Every reply says which state of the file it is of, by tag or length and time, and that is compared before a
//! byte of it is shown ([`Fingerprint`]). What a reply says nothing about (a file on a disk) is looked up after the
//! bytes and before they are shown. Where all of that is the same and the bytes differ from those held, that is noticed too,
//! as far as requests overlap.
//!
//! # What was rejected
//!
//! - *A fetch that is stopped when its readers have gone*: what came so far would be thrown away, and often enough
//!   the next reader wants just that.
//! - *A fixed gap* (a mebibyte is usual): right for a store far away, it reads a file on the next machine as a whole.

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

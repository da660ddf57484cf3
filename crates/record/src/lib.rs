//! What flows through thalweg, and what it owes.
//!
//! A [`Batch`] is some thousand messages in Arrow form: their payloads in one array of byte views, the
//! fields that parsers found in them as named columns over the same memory, and where they came from.
//! A [`File`] is one whole file: where it came from, and where its bytes are. A [`Parcel`] is either, as it travels on
//! an edge of the graph.
//!
//! Everything that flows owes two things. It owes the memory that it stands on: a [`Lease`] on the
//! process's one [`Budget`], taken before the bytes are read and given back by the last holder. And it
//! owes its source an answer: an [`Ack`] that settles once as delivered, filtered, rejected or failed.
//! Both are tied to ownership, so that neither can be forgotten: a buffer that is dropped returns its
//! bytes, and an acknowledgement that is dropped unsettled is a failure that says where it happened.
//!
//! This crate knows nothing of configuration, components or threads; it does not read or write
//! anything (but a temporary file removes itself).

mod ack;
mod batch;
mod budget;
mod file;
mod outputs;
mod parcel;
pub mod testing;
mod views;

pub use ack::{Ack, Outcome, Settlement};
pub use batch::{Batch, ERROR_COMPONENT, ERROR_REASON, Meta, PAYLOAD, all_but};
pub use budget::{Arena, Budget, Lease, Share};
pub use file::{
    Content, Ending, Fetching, File, Origin, Pace, Problem, ReadRanges, Report, Take, Temporary, Times,
};
pub use outputs::{Output, Outputs, split_rejected};
pub use parcel::Parcel;
pub use views::{PayloadWriter, TextBuilder, ViewBuilder, payload_runs, payload_slices};

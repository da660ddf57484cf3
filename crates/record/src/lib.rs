//! The data that flows through thalweg, with its memory accounting and acknowledgements.
//!
//! A [`Batch`] holds about a thousand messages in Arrow form: their payloads in one array of byte views, and
//! the fields found by parsers as named columns over the same memory. It also records their origin. A
//! [`File`] is one whole file: its origin and where its bytes are stored.
//!
//! All data in flight carries two obligations. The first is to the process-wide [`Budget`]: a [`Lease`] on
//! its memory is taken before the bytes are read and returned by the last holder. The second is to its
//! source: an [`Ack`] settles once as delivered, filtered, rejected or failed. Ownership enforces both. A
//! dropped buffer returns its bytes. An ack dropped before it is settled counts as a failure and names the
//! component that dropped it.
//!
//! This crate knows nothing of configuration, components or threads. It does no I/O, except that a temporary
//! file removes itself.

mod ack;
mod batch;
mod budget;
mod file;
mod file_state;
mod join;
mod name_pattern;
mod outputs;
mod own_change;
mod passage;
pub mod testing;
mod views;

pub use ack::{Ack, AckObserver, DividedOrigins, Outcome, Settlement};
pub use batch::{
    Batch, ERROR_COMPONENT, ERROR_REASON, INTRINSIC, Meta, PAYLOAD, all_but, is_metadata, is_record,
};
pub use budget::{
    Arena, Budget, Gate, Held, Incomplete, LONGEST_TEXT, Lease, Opening, Share, Turn, size_text,
};
pub use file::{
    Content, Ending, Fetching, File, OpenContent, Origin, Pace, Problem, ReadRanges, Report, Take, Temporary,
    Times,
};
pub use file_state::FileState;
pub use join::{Joined, Part};
pub use name_pattern::name_matches;
pub use outputs::{Output, Outputs, split_rejected};
pub use own_change::{OwnChange, OwnChanges};
pub use passage::Passage;
pub use views::{PayloadWriter, TextBuilder, ViewBuilder, is_same_payload, payload_runs, payload_slices};

//! The contents of channels: a batch of messages, or several files.
//!
//! A channel carries one of the two; the plan knows which, by the edge. One channel type for both was
//! rejected: every stage would then have to check at run time what the check of the graph rules out.
//!
//! See docs/decisions/063-channels-have-the-type-of-their-flow.md.

use thalweg_record::{Batch, Budget, File, Outcome};

/// The contents of a channel of files: several small files, or one file that takes long.
pub(crate) type Files = Vec<File>;

/// The operations that channels, counters and sequencers need of their contents.
pub(crate) trait Parcel: Send + Sized + 'static {
    /// The number of messages or files.
    fn items(&self) -> usize;

    /// The bytes of content, in memory or not. Rates are counted in these.
    fn bytes(&self) -> usize;

    /// The size that counts against the limits of channels: about the bytes of memory.
    fn weight(&self) -> usize;

    /// A second parcel over the same content. Both must be settled.
    #[must_use]
    fn share(&self) -> Self;

    /// Counts the content on the budget until it is dropped.
    fn claim(&self, budget: &Budget);

    /// Settles all its messages or files.
    fn settle(self, outcome: Outcome);
}

impl Parcel for Batch {
    fn items(&self) -> usize {
        self.rows()
    }

    fn bytes(&self) -> usize {
        self.payload_bytes()
    }

    fn weight(&self) -> usize {
        self.payload_bytes()
    }

    fn share(&self) -> Self {
        Batch::share(self)
    }

    fn claim(&self, budget: &Budget) {
        Batch::claim(self, budget);
    }

    fn settle(self, outcome: Outcome) {
        Batch::settle(self, outcome);
    }
}

impl Parcel for Files {
    fn items(&self) -> usize {
        self.len()
    }

    fn bytes(&self) -> usize {
        self.iter().map(|file| usize::try_from(file.size()).unwrap_or(usize::MAX)).sum()
    }

    fn weight(&self) -> usize {
        self.iter().map(File::weight).sum()
    }

    fn share(&self) -> Self {
        self.iter().map(File::share).collect()
    }

    /// Does nothing: a file holds the memory that its source reserved for it.
    fn claim(&self, _: &Budget) {}

    fn settle(self, outcome: Outcome) {
        self.into_iter().for_each(|file| file.settle(outcome));
    }
}

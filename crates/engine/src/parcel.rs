//! The contents of channels: a batch of messages, or several files.
//!
//! A channel carries one of the two, as the plan says of the edge that it is. One channel type for both was
//! rejected: every stage then had to refuse, while it runs, what the check of the graph rules out.

use thalweg_record::{Batch, Budget, File, Outcome};

/// The contents of a channel of files: some small ones, or a single one that takes long.
pub(crate) type Files = Vec<File>;

/// The view of channels, counters and sequencing on what they carry.
pub(crate) trait Parcel: Send + Sized + 'static {
    /// The number of messages or files.
    fn items(&self) -> usize;

    /// The bytes of content, wherever they are: what rates are counted in.
    fn bytes(&self) -> usize;

    /// The measure of the limits of channels: about the bytes of memory.
    fn weight(&self) -> usize;

    /// A second parcel over the same content. Both must be settled.
    #[must_use]
    fn share(&self) -> Self;

    /// Counts the content on the budget until it is dropped.
    fn claim(&self, budget: &Budget);

    /// Settles all of it.
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

    /// Files hold what their source reserved for them.
    fn claim(&self, _: &Budget) {}

    fn settle(self, outcome: Outcome) {
        self.into_iter().for_each(|file| file.settle(outcome));
    }
}

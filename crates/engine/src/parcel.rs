//! The contents of channels: a batch of messages, or several files.
//!
//! A channel carries one of the two; the plan knows which, by the edge. One channel type for both was
//! rejected: every stage would then have to check at run time what the check of the graph rules out.
//!
//! See docs/decisions/063-channels-have-the-type-of-their-flow.md.

use thalweg_record::{Batch, Budget, File, Outcome};

/// The contents of a channel of files: several small files, or one file that takes long.
pub(crate) type Files = Vec<File>;

/// Content that several targets can share.
pub(crate) trait Shareable: Sized {
    /// Returns a second handle of the same content. Both must be settled.
    #[must_use]
    fn share(&self) -> Self;

    /// Settles all its messages or files.
    fn settle(self, outcome: Outcome);
}

/// Returns one handle of the content for each of `count` targets. Without targets, the content is settled as
/// filtered.
pub(crate) fn shares<S: Shareable>(content: S, count: usize) -> impl Iterator<Item = S> {
    let mut content = Some(content);
    if count == 0
        && let Some(content) = content.take()
    {
        content.settle(Outcome::Filtered);
    }
    (1..=count).filter_map(move |number| {
        if number == count { content.take() } else { content.as_ref().map(Shareable::share) }
    })
}

/// The bytes of a file's content, in memory or not.
pub(crate) fn bytes_of(file: &File) -> usize {
    usize::try_from(file.size()).unwrap_or(usize::MAX)
}

/// The operations that channels, counters and sequencers need of their contents.
pub(crate) trait Parcel: Shareable + Send + 'static {
    /// The number of messages or files.
    fn items(&self) -> usize;

    /// The bytes of content, in memory or not. Rates are counted in these.
    fn bytes(&self) -> usize;

    /// The size that counts against the limits of channels: about the bytes of memory.
    fn weight(&self) -> usize;

    /// Counts the content on the budget until it is dropped.
    fn claim(&self, budget: &Budget);
}

impl Shareable for Batch {
    fn share(&self) -> Self {
        Batch::share(self)
    }

    fn settle(self, outcome: Outcome) {
        Batch::settle(self, outcome);
    }
}

impl Shareable for File {
    fn share(&self) -> Self {
        File::share(self)
    }

    fn settle(self, outcome: Outcome) {
        File::settle(self, outcome);
    }
}

impl Shareable for Files {
    fn share(&self) -> Self {
        self.iter().map(File::share).collect()
    }

    fn settle(self, outcome: Outcome) {
        self.into_iter().for_each(|file| file.settle(outcome));
    }
}

impl Parcel for Batch {
    fn items(&self) -> usize {
        self.rows()
    }

    fn bytes(&self) -> usize {
        self.payload_bytes()
    }

    /// The payloads, or the columns and views if these are larger: short messages with many fields, or with
    /// the reason why they were rejected, take a hundred times as much as their payloads.
    fn weight(&self) -> usize {
        self.payload_bytes().max(self.columns_bytes())
    }

    fn claim(&self, budget: &Budget) {
        Batch::claim(self, budget);
    }
}

impl Parcel for Files {
    fn items(&self) -> usize {
        self.len()
    }

    fn bytes(&self) -> usize {
        self.iter().map(bytes_of).sum()
    }

    fn weight(&self) -> usize {
        self.iter().map(File::weight).sum()
    }

    /// Does nothing: a file holds the memory that its source reserved for it.
    fn claim(&self, _: &Budget) {}
}

//! The unit of data that travels on an edge of the graph.

use crate::{Ack, Batch, Budget, File, Outcome};

/// Messages or files on an edge. Channels, counters and sequencing are written against `Parcel` and handle
/// both kinds alike.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a parcel is moved a few times a mebibyte; a box would be one more allocation"
)]
pub enum Parcel {
    /// A batch of messages.
    Messages(Batch),
    /// Files: several small ones, or a single one that takes long.
    Files(Vec<File>),
}

impl Parcel {
    /// Returns the number of messages or files.
    pub fn items(&self) -> usize {
        match self {
            Parcel::Messages(batch) => batch.rows(),
            Parcel::Files(files) => files.len(),
        }
    }

    /// Returns the bytes of content, wherever they are stored. Rates are computed from this.
    pub fn bytes(&self) -> usize {
        match self {
            Parcel::Messages(batch) => batch.payload_bytes(),
            Parcel::Files(files) => {
                files.iter().map(|file| usize::try_from(file.size()).unwrap_or(usize::MAX)).sum()
            }
        }
    }

    /// Returns the weight in bytes that counts against the capacity of a channel: roughly the memory in use.
    pub fn weight(&self) -> usize {
        match self {
            Parcel::Messages(batch) => batch.payload_bytes(),
            Parcel::Files(files) => files.iter().map(File::weight).sum(),
        }
    }

    /// Returns a second parcel over the same content. Both must be settled.
    #[must_use]
    pub fn share(&self) -> Self {
        match self {
            Parcel::Messages(batch) => Parcel::Messages(batch.share()),
            Parcel::Files(files) => Parcel::Files(files.iter().map(File::share).collect()),
        }
    }

    /// Counts the memory of a batch against the budget until it is dropped. Files carry their own leases.
    pub fn claim(&self, budget: &Budget) {
        if let Parcel::Messages(batch) = self {
            batch.claim(budget);
        }
    }

    /// Settles all messages or files.
    pub fn settle(self, outcome: Outcome) {
        match self {
            Parcel::Messages(batch) => batch.settle(outcome),
            Parcel::Files(files) => files.into_iter().for_each(|file| file.settle(outcome)),
        }
    }

    /// Returns the acks, to change them.
    pub fn acks_mut(&mut self) -> impl Iterator<Item = &mut Ack> {
        let (batch, files) = match self {
            Parcel::Messages(batch) => (Some(batch.ack_mut()), None),
            Parcel::Files(files) => (None, Some(files.iter_mut().map(File::ack_mut))),
        };
        batch.into_iter().chain(files.into_iter().flatten())
    }
}

impl From<Batch> for Parcel {
    fn from(batch: Batch) -> Self {
        Parcel::Messages(batch)
    }
}

impl From<Vec<File>> for Parcel {
    fn from(files: Vec<File>) -> Self {
        Parcel::Files(files)
    }
}

//! What travels on an edge of the graph.

use crate::Batch;

/// What travels on an edge: messages. Whole files become its second kind when the engine carries them;
/// channels, counters and sequencing are written against `Parcel`, so that they need not know which.
#[derive(Debug)]
pub enum Parcel {
    /// A batch of messages.
    Messages(Batch),
}

impl Parcel {
    /// How many messages it holds.
    pub fn items(&self) -> usize {
        match self {
            Parcel::Messages(batch) => batch.rows(),
        }
    }

    /// The bytes of payload in it: what rates and channel bounds are counted in.
    pub fn bytes(&self) -> usize {
        match self {
            Parcel::Messages(batch) => batch.payload_bytes(),
        }
    }
}

impl From<Batch> for Parcel {
    fn from(batch: Batch) -> Self {
        Parcel::Messages(batch)
    }
}

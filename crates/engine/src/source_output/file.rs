//! The file that a file reader has open.

use std::sync::Arc;

use serde_json::Value;
use thalweg_record::{Ack, File, Meta, Outcome};

use crate::positions::{Checkpoint, Positions};

/// The file that a file reader has open. Its messages carry parts of the file's ack: the file is settled when
/// all of them are.
pub(crate) struct OpenFile {
    /// The ack of the file.
    ack: Ack,
    /// The ack of the last checkpoint: the messages sent since belong to it.
    since_checkpoint: Ack,
    /// How far a run got in each file, if that is kept.
    positions: Option<Arc<Positions>>,
    /// The open file in these positions.
    partition: Option<Arc<str>>,
    /// Where the file came from.
    meta: Arc<Meta>,
}

impl OpenFile {
    /// No file yet.
    pub(crate) fn none(reader: &Arc<str>, positions: Option<Arc<Positions>>) -> Self {
        Self {
            ack: Ack::noop(),
            since_checkpoint: Ack::noop(),
            positions,
            partition: None,
            meta: Arc::new(Meta { source: reader.clone(), path: None, time_us: 0 }),
        }
    }

    /// A file that is open already, for tests: nothing is known of how far it was read.
    pub(crate) fn of_test(reader: &Arc<str>, file: &File) -> Self {
        let meta = Meta { source: reader.clone(), path: Some(file.to_string().into()), time_us: 0 };
        Self { ack: file.ack().split(), meta: Arc::new(meta), ..Self::none(reader, None) }
    }

    /// Opens a file: what is sent from here on is out of it. When all of that is settled, the position in the
    /// file is forgotten. Acks answer in the order in which they were merged, so the source has then recorded
    /// the file as done.
    pub(crate) fn open(&mut self, reader: &Arc<str>, file: &mut File, meta: Meta) {
        self.ack = file.ack().split();
        self.meta = Arc::new(meta);
        let identity = file.origin().identity().filter(|_| self.positions.is_some());
        self.partition = identity.map(|identity| format!("{} {identity}", file.origin().source).into());
        if let (Some(positions), Some(partition)) = (self.positions.clone(), self.partition.clone()) {
            // Each message owes it as well: the file is settled while its last messages are still in flight.
            let forgotten = Ack::new(reader.clone(), move |settlement| {
                if settlement.outcome.is_safe() {
                    positions.forget(&partition);
                }
            });
            file.ack_mut().merge(forgotten.split());
            self.ack.merge(forgotten);
        }
    }

    /// All of the file was sent.
    pub(crate) fn close(&mut self) {
        self.partition = None;
        std::mem::replace(&mut self.since_checkpoint, Ack::noop()).settle(Outcome::Filtered);
        // The rest of the ack stands for the file as such: its messages have parts of their own.
        std::mem::replace(&mut self.ack, Ack::noop()).settle(Outcome::Filtered);
    }

    pub(super) fn meta(&self) -> Arc<Meta> {
        self.meta.clone()
    }

    /// The offset at which to resume in the file.
    pub(super) fn saved(&self) -> Option<Value> {
        self.positions.as_ref()?.saved(self.partition.as_ref()?)
    }

    pub(super) fn keeps_checkpoints(&self) -> bool {
        self.positions.is_some() && self.partition.is_some()
    }

    /// Starts a new checkpoint: batches sent from here on belong to it. Only its offset is used.
    pub(super) fn start_checkpoint(&mut self, checkpoint: Option<Checkpoint>) {
        if let (Some(checkpoint), Some(positions), Some(partition)) =
            (checkpoint, &self.positions, &self.partition)
        {
            let next = positions.expect(Some(Checkpoint { partition: partition.clone(), ..checkpoint }), 0);
            std::mem::replace(&mut self.since_checkpoint, next).settle(Outcome::Filtered);
        }
    }

    /// The ack of the next batch.
    pub(super) fn ack(&self) -> Ack {
        // The checkpoint first: it is to be settled before the file may be.
        let mut ack = self.since_checkpoint.split();
        ack.merge(self.ack.split());
        ack
    }
}

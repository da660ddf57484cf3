//! The file that a file reader has open.

use std::sync::Arc;

use serde_json::Value;
use thalweg_record::{Ack, File, Meta, Outcome};

use crate::positions::Positions;

/// The offset of a file that was read to its end: it stays until the source's position has moved past the
/// file.
const END: &str = "end";

/// The file that a file reader has open. Its messages carry parts of the file's ack: the file is settled when
/// all of them are.
pub(crate) struct OpenFile {
    /// The ack of the file.
    ack: Ack,
    /// How far a run got in each file, if that is kept.
    positions: Option<Arc<Positions>>,
    /// The open file in these positions.
    partition: Option<Arc<str>>,
    /// Where the file came from.
    meta: Arc<Meta>,
    /// True if a later run gets the file again.
    comes_again: bool,
    /// True if a later run could resume before the last batch: the batch before it had an offset, or there is
    /// none.
    resumes_before_last: bool,
    /// True if a later run could resume after the last batch.
    resumes_after_last: bool,
    /// True if a batch was refused because the run is stopping.
    is_left: bool,
}

impl OpenFile {
    /// No file yet.
    pub(crate) fn none(reader: &Arc<str>, positions: Option<Arc<Positions>>) -> Self {
        Self {
            ack: Ack::noop(),
            positions,
            partition: None,
            meta: Arc::new(Meta {
                source: reader.clone(),
                path: None,
                time_us: 0,
                sequence: None,
                number: 0,
            }),
            comes_again: false,
            resumes_before_last: true,
            resumes_after_last: true,
            is_left: false,
        }
    }

    /// A file that is open already, for tests: nothing is known of how far it was read.
    pub(crate) fn of_test(reader: &Arc<str>, file: &File) -> Self {
        let meta = Meta {
            source: reader.clone(),
            path: Some(file.to_string().into()),
            time_us: 0,
            sequence: None,
            number: 0,
        };
        Self { ack: file.ack().split(), meta: Arc::new(meta), ..Self::none(reader, None) }
    }

    /// Opens a file: all messages sent from here on are its. Its offset is deleted when the position of its
    /// source moves past the file. Until then the file would come again: it may be settled long before a
    /// larger one that its source sent earlier.
    pub(crate) fn open(&mut self, file: &File, meta: Meta) {
        self.ack = file.ack().split();
        self.meta = Arc::new(meta);
        let known = file.passage().and_then(|passage| Some((passage, file.origin().identity()?)));
        self.comes_again = known.is_some();
        (self.resumes_before_last, self.resumes_after_last) = (true, true);
        self.is_left = false;
        self.partition = None;
        if let (Some(positions), Some((passage, identity))) = (&self.positions, known) {
            let partition: Arc<str> = format!("{} {identity}", file.origin().source).into();
            let (positions, passed) = (positions.clone(), partition.clone());
            passage.then(move || positions.forget(&passed));
            self.partition = Some(partition);
        }
    }

    /// True if a former run read the open file to its end.
    pub(crate) fn is_read(&self) -> bool {
        self.saved().is_some_and(|saved| saved == END)
    }

    /// True if a run that was asked to stop may leave the open file to a later run, from the last batch on.
    /// If offsets are kept, there must be one before that batch: the later run would send again what no
    /// offset covers.
    pub(crate) fn may_be_left(&self) -> bool {
        self.comes_again && (self.partition.is_none() || self.resumes_before_last)
    }

    /// Leaves the open file to a later run: a batch of it was refused.
    pub(super) fn leave(&mut self) {
        self.is_left = true;
    }

    /// True if the open file was left to a later run.
    pub(crate) fn is_left(&self) -> bool {
        self.is_left
    }

    /// All of the file was sent.
    pub(crate) fn end(&mut self) {
        if let (Some(positions), Some(partition)) = (&self.positions, self.partition.take()) {
            // Before the rest of the ack: the file may be settled with it, and forgotten.
            positions.expect_in(partition, Some(END.into()), 0).0.settle(Outcome::Filtered);
        }
        self.close(Outcome::Filtered);
    }

    /// Settles the rest of the ack. It stands for the file as such: its messages have parts of their own.
    pub(crate) fn close(&mut self, outcome: Outcome) {
        self.partition = None;
        std::mem::replace(&mut self.ack, Ack::noop()).settle(outcome);
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

    /// The ack of the next batch, after which the file is resumed at `offset`. Without one, the batch only
    /// holds the file's position back.
    pub(super) fn ack(&mut self, offset: Option<Value>) -> Ack {
        self.resumes_before_last = std::mem::replace(&mut self.resumes_after_last, offset.is_some());
        let file = self.ack.split();
        let (Some(positions), Some(partition)) = (&self.positions, &self.partition) else { return file };
        // The checkpoint first: it is to be settled before the file may be.
        let (mut ack, _) = positions.expect_in(partition.clone(), offset, 0);
        ack.merge(file);
        ack
    }
}

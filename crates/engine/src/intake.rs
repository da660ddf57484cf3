//! Where what reads messages out of a file puts them.

use std::sync::Arc;

use arrow_array::Array;
use serde_json::Value;
use thalweg_record::{Ack, Arena, Batch, Budget, File, Lease, Meta, Outcome, Parcel, Share};
use thalweg_runtime::{Receiver, Sender, Stop};

use crate::metrics::ComponentMetrics;
use crate::outlet::{Received, give, made_of};
use crate::outlets::part_rejected;
use crate::positions::{Checkpoint, Positions};
use crate::{Error, Role};

/// Where an [`FileReader`](crate::FileReader) puts the messages of a file. They owe what the file owes: it is acknowledged when all of
/// them are.
pub struct FileOutput {
    pub(crate) share: Share,
    pub(crate) batch_bytes: usize,
    pub(crate) stop: Stop,
    pub(crate) metrics: Arc<ComponentMetrics>,
    pub(crate) main: Vec<Sender<Parcel>>,
    pub(crate) errors: Vec<Sender<Parcel>>,
    /// What the file at hand owes.
    pub(crate) ack: Ack,
    /// What the last mark owes: what is sent from there on belongs to it.
    pub(crate) place: Ack,
    /// How far a run got in each file, where that is kept, and the file at hand in it.
    pub(crate) positions: Option<Arc<Positions>>,
    pub(crate) partition: Option<Arc<str>>,
    /// Where it came from.
    pub(crate) meta: Arc<Meta>,
}

impl FileOutput {
    /// The component's name in the configuration.
    pub fn name(&self) -> &Arc<str> {
        &self.metrics.name
    }

    /// About how many bytes a batch should have.
    pub fn batch_bytes(&self) -> usize {
        self.batch_bytes
    }

    /// Waits until the budget has room, and gives memory to read into. Ask before reading.
    pub async fn arena(&self, capacity: usize) -> Arena {
        self.share.arena(capacity).await
    }

    /// Waits until the budget has room for memory that is held in another form.
    pub async fn reserve(&self, bytes: usize) -> Lease {
        self.share.reserve(bytes).await
    }

    /// Whether the run was told to stop. A file that was begun is read to its end nevertheless; one that has no end is not.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_requested()
    }

    /// Where a former run got to in the file at hand, and this one is to go on: the position of a mark.
    pub fn saved(&self) -> Option<Value> {
        self.positions.as_ref()?.saved(self.partition.as_ref()?)
    }

    /// Whether it is kept how far the file at hand was read, so that marks are of use.
    pub fn keeps_places(&self) -> bool {
        self.positions.is_some() && self.partition.is_some()
    }

    /// The share of the budget that [`arena`](Self::arena) is of: for those who wait for memory elsewhere.
    pub fn share(&self) -> &Share {
        &self.share
    }

    /// Claims memory of the budget without waiting: for what is in hand, and must go on.
    pub fn claim(&self, bytes: usize) -> Lease {
        self.share.budget().claim(bytes)
    }

    /// Begins with a file: what is sent from here on is out of it. When all of that is settled, how far the file was read is
    /// forgotten: after its source has noted that it is done with it, since acknowledgements answer in the order in which
    /// they were taken on.
    pub(crate) fn begin(&mut self, file: &mut File, meta: Meta) {
        self.ack = file.ack().split();
        self.meta = Arc::new(meta);
        let identity = file.origin().identity().filter(|_| self.positions.is_some());
        self.partition = identity.map(|identity| format!("{} {identity}", file.origin().source).into());
        if let (Some(positions), Some(partition)) = (self.positions.clone(), self.partition.clone()) {
            // Each message owes it as well: the file is settled while its last messages are still on their way.
            let forgotten = Ack::new(self.metrics.name.clone(), move |settlement| {
                if settlement.outcome.is_safe() {
                    positions.forget(&partition);
                }
            });
            file.ack_mut().merge(forgotten.split());
            self.ack.merge(forgotten);
        }
    }

    /// All of the file was sent.
    pub(crate) fn end(&mut self) {
        self.partition = None;
        std::mem::replace(&mut self.place, Ack::noop()).settle(Outcome::Filtered);
        // What is left of it is the file as such, whose messages have their own parts.
        std::mem::replace(&mut self.ack, Ack::noop()).settle(Outcome::Filtered);
    }

    /// Sends messages on. Waits until there is room for them. With a mark (of which only the position counts), a later run goes
    /// on there in this file when they are safe, and all that was sent of it before, and what is sent after them without one.
    ///
    /// # Errors
    /// If the run is ending and nobody takes them; pass it on.
    pub async fn send(&mut self, reading: impl Into<Received>) -> Result<(), Error> {
        let batch = self.batch(reading.into())?;
        self.metrics.add_out(batch.rows(), batch.payload_bytes());
        give(&self.main, batch, self.share.budget(), self.name()).await
    }

    /// Sends messages to the `errors` output: they could be read but not be used.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn reject(&mut self, reading: impl Into<Received>, reason: &str) -> Result<(), Error> {
        let received = reading.into();
        let reasons = vec![reason.to_owned(); received.reading.payload.len()];
        self.reject_each(received, reasons).await
    }

    /// As [`reject`](Self::reject), each message for a reason of its own.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn reject_each(
        &mut self,
        reading: impl Into<Received>,
        reasons: Vec<String>,
    ) -> Result<(), Error> {
        let batch = self.batch(reading.into())?;
        self.metrics.add_errors(batch.rows());
        let failed = (0..).zip(reasons).collect();
        let (rejected, rest) = part_rejected(batch, failed, self.name())?;
        for batch in rejected.into_iter().chain(rest) {
            give(&self.errors, batch, self.share.budget(), self.name()).await?;
        }
        Ok(())
    }

    fn batch(&mut self, mut received: Received) -> Result<Batch, Error> {
        if let (Some(checkpoint), Some(positions), Some(partition)) =
            (received.reading.checkpoint.take(), &self.positions, &self.partition)
        {
            let next = positions.expect(Some(Checkpoint { partition: partition.clone(), ..checkpoint }), 0);
            std::mem::replace(&mut self.place, next).settle(Outcome::Filtered);
        }
        // The place first: it is to be settled before the file may be.
        let mut ack = self.place.split();
        ack.merge(self.ack.split());
        made_of(received, self.meta.clone(), ack)
    }
}

/// An intake of its own, for testing what reads files: what it is given comes out of the two receivers.
pub(crate) fn loose_intake(
    budget: &Budget,
    batch_bytes: usize,
    file: &File,
) -> (FileOutput, Receiver<Parcel>, Receiver<Parcel>) {
    let (main, main_out) = thalweg_runtime::channel(usize::MAX);
    let (errors, errors_out) = thalweg_runtime::channel(usize::MAX);
    let name: Arc<str> = "test".into();
    let intake = FileOutput {
        share: budget.share(),
        batch_bytes,
        stop: Stop::default(),
        metrics: ComponentMetrics::new(name.clone(), Role::Transform, "test"),
        main: vec![main],
        errors: vec![errors],
        ack: file.ack().split(),
        place: Ack::noop(),
        positions: None,
        partition: None,
        meta: Arc::new(Meta { source: name, path: Some(file.to_string().into()), time_us: 0 }),
    };
    (intake, main_out, errors_out)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use thalweg_record::{Content, Origin};

    use super::*;
    use crate::{Reading, testing};

    fn reading(position: Option<u64>) -> Reading {
        Reading {
            payload: testing::batch(["x"]).payload().clone(),
            path: None,
            positions: None,
            checkpoint: position.map(|position| Checkpoint::in_file(position.into())),
        }
    }

    async fn taken(from: &Receiver<Parcel>) -> Batch {
        match from.take().await {
            Some((_, Parcel::Messages(batch))) => batch,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_file_is_gone_on_with_where_all_before_is_safe_and_forgotten_when_its_source_knows_that_it_is_done()
     {
        let (failures, _failed) = tokio::sync::mpsc::unbounded_channel();
        let positions =
            Positions::new("main.lines".into(), Role::Transform, BTreeMap::new(), failures.clone());
        let source = Positions::new("in".into(), Role::Source, BTreeMap::new(), failures);
        let origin = Origin::new("in".into(), "a".into(), 3).at("s3://b/a");
        let mut file = File::new(origin, Content::from(vec![1, 2, 3]));
        file.ack_mut().merge(source.expect(Some(Checkpoint { partition: "l".into(), offset: 1.into() }), 1));
        let (mut intake, main, errors) = loose_intake(&Budget::new(1 << 20), 1 << 10, &file);
        intake.ack.settle(Outcome::Filtered);
        intake.ack = Ack::noop();
        intake.positions = Some(positions.clone());
        let meta =
            |intake: &FileOutput| Meta { source: "in".into(), path: None, time_us: intake.meta.time_us };
        let begun = meta(&intake);
        intake.begin(&mut file, begun);
        assert!(intake.keeps_places() && intake.saved().is_none());
        intake.send(reading(Some(10))).await.unwrap();
        intake.reject_each(reading(None), vec!["why".to_owned()]).await.unwrap();
        intake.send(reading(Some(20))).await.unwrap();
        intake.end();
        let [partition] = &positions.partitions()[..] else { panic!() };
        let (first, second, rejected) = (taken(&main).await, taken(&main).await, taken(&errors).await);
        second.settle(Outcome::Delivered);
        first.settle(Outcome::Delivered);
        assert_eq!(positions.saved(partition), None);
        assert_eq!(source.saved("l"), None);
        // The file is settled before its last messages are.
        file.settle(Outcome::Filtered);
        rejected.settle(Outcome::Rejected);
        assert_eq!(source.saved("l"), Some(1.into()));
        assert_eq!(positions.saved(partition), None);
        assert_eq!(positions.take_changes(), [(partition.clone(), None)]);
    }

    #[tokio::test]
    async fn a_file_that_was_read_is_gone_on_with_while_its_last_messages_are_on_their_way() {
        let (failures, _failed) = tokio::sync::mpsc::unbounded_channel();
        let positions = Positions::new("main.lines".into(), Role::Transform, BTreeMap::new(), failures);
        let origin = Origin::new("in".into(), "a".into(), 3).at("s3://b/a");
        let mut file = File::new(origin, Content::from(vec![1, 2, 3]));
        let (mut intake, main, _errors) = loose_intake(&Budget::new(1 << 20), 1 << 10, &file);
        intake.ack.settle(Outcome::Filtered);
        intake.ack = Ack::noop();
        intake.positions = Some(positions.clone());
        let meta = Meta { source: "in".into(), path: None, time_us: intake.meta.time_us };
        intake.begin(&mut file, meta);
        intake.send(reading(Some(10))).await.unwrap();
        intake.send(reading(Some(20))).await.unwrap();
        intake.end();
        let (first, second) = (taken(&main).await, taken(&main).await);
        first.settle(Outcome::Delivered);
        file.settle(Outcome::Filtered);
        let [partition] = &positions.partitions()[..] else { panic!() };
        assert_eq!(positions.saved(partition), Some(10.into()));
        second.settle(Outcome::Delivered);
        assert_eq!(positions.saved(partition), None);
    }
}

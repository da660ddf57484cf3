//! Where a source puts what it reads, and where it learns what it must know.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arrow_array::{Array, BinaryViewArray, RecordBatch, UInt64Array};
use serde_json::Value;
use thalweg_record::{
    Ack, Arena, Batch, Budget, File, Lease, Meta, Outcome, Parcel, Problem, Settlement, Share,
};
use thalweg_runtime::{HandOver, Sender, Stop};
use tokio::sync::oneshot;

use crate::metrics::ComponentMetrics;
use crate::outlets::part_rejected;
use crate::positions::{Checkpoint, Positions};
use crate::run::saves::Saves;
use crate::{Error, Role};

/// Messages that a source read.
#[derive(Debug)]
pub struct Reading {
    /// Their payloads.
    pub payload: BinaryViewArray,
    /// The file or address that they come from.
    pub path: Option<Arc<str>>,
    /// Where in it each begins.
    pub positions: Option<UInt64Array>,
    /// Where to go on once they are safe; a reading without a mark is lost if the run is killed.
    pub checkpoint: Option<Checkpoint>,
}

/// A [`Reading`], and fields that came with its messages: what a protocol says of them.
#[derive(Debug)]
pub struct Received {
    /// The messages.
    pub reading: Reading,
    /// Their fields, if there are any: a row for each.
    pub fields: Option<RecordBatch>,
}

impl From<Reading> for Received {
    fn from(reading: Reading) -> Self {
        Self { reading, fields: None }
    }
}

/// Becomes the answer to what was sent, once all of it has ended somewhere, and stays there even if the process is killed
/// now: see [`SourceOutput::send_acked`].
pub struct Settled(Pin<Box<dyn Future<Output = Settlement> + Send>>);

impl Settled {
    fn new(told: oneshot::Receiver<Settlement>, saves: Option<Saves>) -> Self {
        Self(Box::pin(async move {
            // Acknowledgements answer even when they are dropped, so this is never needed; were it, failure is the safe
            // guess.
            let failed = |reason| Settlement { outcome: Outcome::Failed, reason };
            let settlement = told.await.unwrap_or_else(|_| failed(None));
            if let Some(saves) = saves.filter(|_| settlement.outcome.is_safe())
                && !saves.next().await
            {
                return failed(Some("the run ended before it was saved".to_owned()));
            }
            settlement
        }))
    }
}

impl Future for Settled {
    type Output = Settlement;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Settlement> {
        self.0.as_mut().poll(context)
    }
}

/// Notes how much was read of what a source sent to be read later.
#[derive(Debug, Clone)]
pub struct Meter(Arc<ComponentMetrics>);

impl Meter {
    /// So many of the expected bytes were read.
    pub fn add_progress(&self, bytes: u64) {
        self.0.add_progress(bytes);
    }
}

/// Where a source puts what it reads.
///
/// A source that reads from many places at once gives each its clone: they send independently, and all stand on the
/// source's one share of the budget. What the source leads to goes on until the last clone is dropped.
#[derive(Clone)]
pub struct SourceOutput {
    pub(crate) share: Share,
    pub(crate) batch_bytes: usize,
    pub(crate) positions: Arc<Positions>,
    pub(crate) stop: Stop,
    pub(crate) metrics: Arc<ComponentMetrics>,
    /// Where positions are saved: what is settled lasts from the next save on.
    pub(crate) saves: Option<Saves>,
    pub(crate) main: Vec<Sender<Parcel>>,
    pub(crate) errors: Vec<Sender<Parcel>>,
    /// Whether each file goes by itself, since what it leads to takes long for it.
    pub(crate) singly: bool,
}

impl SourceOutput {
    /// The source's name in the configuration.
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

    /// Waits until the budget has room for memory that the source holds in another form.
    pub async fn reserve(&self, bytes: usize) -> Lease {
        self.share.reserve(bytes).await
    }

    /// The share of the budget that [`arena`](Self::arena) is of: for those who wait for memory elsewhere.
    pub fn share(&self) -> &Share {
        &self.share
    }

    /// Claims memory of the budget without waiting: for what is in hand, and must go on.
    pub fn claim(&self, bytes: usize) -> Lease {
        self.share.budget().claim(bytes)
    }

    /// Where a former run got to in a lane.
    pub fn saved(&self, partition: &str) -> Option<Value> {
        self.positions.saved(partition)
    }

    /// Up to where nothing in a lane will be needed again, even if the process is killed now: what came before may be
    /// removed where it comes from, or be acknowledged to whoever sent it. [`saved`](Self::saved) may be further on.
    pub fn committed(&self, partition: &str) -> Option<Value> {
        self.positions.committed(partition)
    }

    /// The lanes that former runs, or this one, got somewhere in.
    pub fn partitions(&self) -> Vec<Arc<str>> {
        self.positions.partitions()
    }

    /// Forgets a lane that will never be read again: its file is gone, say.
    pub fn forget(&self, partition: &str) {
        self.positions.forget(partition);
    }

    /// Whether the run was told to stop: the source then returns, having sent what it has read so far.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_requested()
    }

    /// Whether something that it leads to has ended, which it does by failing as long as there is a source.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.main.iter().chain(&self.errors).any(Sender::is_abandoned)
    }

    /// Waits until the run is told to stop: for `select!` beside a wait for input.
    pub async fn stopping(&self) {
        self.stop.requested().await;
    }

    /// Waits; says whether the run was told to stop meanwhile.
    pub async fn sleep(&self, duration: Duration) -> bool {
        self.stop.sleep(duration).await
    }

    /// For who reads later what the source has sent: to note how far that is.
    pub fn meter(&self) -> Meter {
        Meter(self.metrics.clone())
    }

    /// Notes that there are so many more bytes to read, so that the time left can be shown.
    pub fn add_expected(&self, bytes: u64) {
        self.metrics.add_expected(bytes);
    }

    /// Notes that so many of the expected bytes were read.
    pub fn add_progress(&self, bytes: u64) {
        self.metrics.add_progress(bytes);
    }

    /// Sends messages on. Waits until there is room for them.
    ///
    /// # Errors
    /// If the run is ending and nobody takes them; the source should pass the error on.
    pub async fn send(&mut self, reading: impl Into<Received>) -> Result<(), Error> {
        let batch = self.batch(reading.into())?;
        self.metrics.add_out(batch.rows(), batch.payload_bytes());
        self.give(batch, false).await
    }

    /// As [`send`](Self::send), for sources that answer whoever the messages came from: also gives a future of what
    /// became of them, which answers when that lasts: where positions are saved, after the next save. It need not be waited
    /// for. A source that is told to stop does not wait for it without end while
    /// it holds an outlet: some messages are only settled when all input has ended.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_acked(&mut self, reading: impl Into<Received>) -> Result<Settled, Error> {
        let mut batch = self.batch(reading.into())?;
        let (tell, told) = oneshot::channel();
        batch.ack_mut().merge(Ack::new(self.metrics.name.clone(), move |settlement| {
            // The source may not care any more.
            let _ = tell.send(settlement);
        }));
        self.metrics.add_out(batch.rows(), batch.payload_bytes());
        self.give(batch, false).await?;
        Ok(Settled::new(told, self.saves.clone()))
    }

    /// Sends messages that came in by another source before, with what was known of them then.
    ///
    /// # Errors
    /// As [`send`](Self::send), and if there are not fields for each message.
    pub async fn send_again(
        &mut self,
        reading: Reading,
        meta: Meta,
        fields: Option<RecordBatch>,
    ) -> Result<(), Error> {
        let batch = self.batch_of(Received { reading, fields }, meta)?;
        self.metrics.add_out(batch.rows(), batch.payload_bytes());
        self.give(batch, false).await
    }

    /// Sends messages to the `errors` output: they could be read but not be used.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn reject(&mut self, reading: Reading, reason: &str) -> Result<(), Error> {
        let batch = self.batch(reading.into())?;
        self.metrics.add_errors(batch.rows());
        let failed = (0..batch.rows() as u32).map(|row| (row, reason.to_owned())).collect();
        let (rejected, rest) = part_rejected(batch, failed, &self.metrics.name)?;
        for batch in rejected.into_iter().chain(rest) {
            self.give(batch, true).await?;
        }
        Ok(())
    }

    fn batch(&self, received: Received) -> Result<Batch, Error> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let meta = Meta {
            source: self.metrics.name.clone(),
            path: received.reading.path.clone(),
            time_us: i64::try_from(now.as_micros()).unwrap_or(i64::MAX),
        };
        self.batch_of(received, meta)
    }

    fn batch_of(&self, mut received: Received, meta: Meta) -> Result<Batch, Error> {
        let items = received.reading.payload.len();
        let ack = self.positions.expect(received.reading.checkpoint.take(), items);
        let batch = made_of(received, Arc::new(meta), ack)?;
        self.metrics.add_in(batch.rows(), batch.payload_bytes());
        Ok(batch)
    }

    async fn give(&self, batch: Batch, to_errors: bool) -> Result<(), Error> {
        let targets = if to_errors { &self.errors } else { &self.main };
        give(targets, batch, self.share.budget(), self.name()).await
    }

    /// Sends files on, with a mark for when all of them are safe. Waits until there is room for them.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_files(
        &mut self,
        mut files: Vec<File>,
        checkpoint: Option<Checkpoint>,
    ) -> Result<(), Error> {
        let ack = self.positions.expect(checkpoint, files.len());
        files.iter_mut().for_each(|file| file.ack_mut().merge(ack.split()));
        // What is left of it stands for no file.
        ack.settle(Outcome::Filtered);
        let parcels: Vec<Parcel> = match self.singly {
            true => files.into_iter().map(|file| Parcel::Files(vec![file])).collect(),
            false => vec![Parcel::Files(files)],
        };
        for parcel in parcels {
            self.metrics.add_in(parcel.items(), parcel.bytes());
            self.metrics.add_out(parcel.items(), parcel.bytes());
            give(&self.main, parcel, self.share.budget(), self.name()).await?;
        }
        Ok(())
    }

    /// Notes where to go on once all before it in its lane is safe, with nothing sent.
    pub fn checkpoint(&self, checkpoint: Checkpoint) {
        self.positions.expect(Some(checkpoint), 0).settle(Outcome::Filtered);
    }

    /// Sends a file to the `errors` output: it was found but cannot be used.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn reject_file(
        &mut self,
        mut file: File,
        mut problem: Problem,
        checkpoint: Option<Checkpoint>,
    ) -> Result<(), Error> {
        file.ack_mut().merge(self.positions.expect(checkpoint, 1));
        problem.component = self.name().clone();
        file.set_problem(problem);
        let parcel = Parcel::Files(vec![file]);
        self.metrics.add_in(1, parcel.bytes());
        self.metrics.add_errors(1);
        give(&self.errors, parcel, self.share.budget(), self.name()).await
    }
}

/// A batch of what was read.
pub(crate) fn made_of(received: Received, meta: Arc<Meta>, ack: Ack) -> Result<Batch, Error> {
    let Received { reading, fields } = received;
    let mut batch = Batch::new(reading.payload, meta, ack);
    if let Some(positions) = reading.positions {
        batch = batch.with_positions(positions)?;
    }
    match fields {
        Some(fields) => Ok(batch.with_fields(fields)?),
        None => Ok(batch),
    }
}

/// Gives each target the parcel or a copy of it, when all have room. `name` is that of who gives, for the error.
pub(crate) async fn give(
    targets: &[Sender<Parcel>],
    parcel: impl Into<Parcel>,
    budget: &Budget,
    name: &str,
) -> Result<(), Error> {
    let parcel = parcel.into();
    parcel.claim(budget);
    if parcel.items() == 0 {
        // Nothing to deliver, but its mark must move the lane.
        parcel.settle(Outcome::Filtered);
        return Ok(());
    }
    for target in targets {
        target.room().await;
    }
    let Some((last, others)) = targets.split_last() else {
        parcel.settle(Outcome::Filtered);
        return Ok(());
    };
    let closed = || Error::permanent(format!("what `{name}` leads to has ended"));
    for target in others {
        let parcel = parcel.share();
        let weight = parcel.weight();
        target.hand_over(parcel, weight).map(HandOver::run).map_err(|_| closed())?;
    }
    let weight = parcel.weight();
    last.hand_over(parcel, weight).map(HandOver::run).map_err(|_| closed())
}

/// An outlet of its own, for testing a source: what it sends comes out of the two receivers.
pub(crate) fn loose_outlet(
    stop: Stop,
    budget: &thalweg_record::Budget,
    batch_bytes: usize,
    saved: std::collections::BTreeMap<String, Value>,
) -> (SourceOutput, thalweg_runtime::Receiver<Parcel>, thalweg_runtime::Receiver<Parcel>) {
    let (failures, _) = tokio::sync::mpsc::unbounded_channel();
    let (main, main_out) = thalweg_runtime::channel(usize::MAX);
    let (errors, errors_out) = thalweg_runtime::channel(usize::MAX);
    let name: Arc<str> = "source".into();
    let outlet = SourceOutput {
        share: budget.share(),
        batch_bytes,
        positions: Positions::new(name.clone(), Role::Source, saved, failures),
        stop,
        metrics: ComponentMetrics::new(name, Role::Source, "test"),
        saves: None,
        main: vec![main],
        errors: vec![errors],
        singly: false,
    };
    (outlet, main_out, errors_out)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use thalweg_record::Budget;

    use crate::testing;

    fn reading(checkpoint: Option<Checkpoint>) -> Reading {
        Reading {
            payload: testing::batch(["one", "two"]).payload().clone(),
            path: None,
            positions: None,
            checkpoint,
        }
    }

    #[tokio::test]
    async fn what_was_sent_is_answered_when_its_last_part_is_settled_and_moves_its_lane_too() {
        let budget = Budget::new(1 << 20);
        let (mut outlet, main, _errors) = loose_outlet(Stop::default(), &budget, 1 << 10, BTreeMap::new());
        let checkpoint = Checkpoint { partition: "l".into(), offset: 7.into() };
        let mut settled = outlet.send_acked(reading(Some(checkpoint))).await.unwrap();
        let Some((_, Parcel::Messages(batch))) = main.take().await else { panic!("it was not sent") };
        let half = batch.share();
        batch.settle(Outcome::Delivered);
        tokio::select! {
            biased;
            settlement = &mut settled => panic!("{settlement:?} although a part is left"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(outlet.saved("l"), None);
        half.settle(Outcome::Rejected);
        assert_eq!(settled.await.outcome, Outcome::Rejected);
        assert_eq!(outlet.saved("l"), Some(7.into()));
    }

    #[tokio::test]
    async fn what_is_dropped_on_its_way_is_answered_as_failed_with_the_place() {
        let budget = Budget::new(1 << 20);
        let (mut outlet, main, _errors) = loose_outlet(Stop::default(), &budget, 1 << 10, BTreeMap::new());
        let settled = outlet.send_acked(reading(None)).await.unwrap();
        drop(main.take().await);
        let settlement = settled.await;
        assert_eq!(settlement.outcome, Outcome::Failed);
        assert!(settlement.reason.unwrap().contains("`source`"));
    }

    #[tokio::test]
    async fn what_a_protocol_says_of_messages_comes_as_their_fields() {
        let budget = Budget::new(1 << 20);
        let (mut outlet, main, _errors) = loose_outlet(Stop::default(), &budget, 1 << 10, BTreeMap::new());
        let column: arrow_array::ArrayRef = Arc::new(UInt64Array::from(vec![1, 2]));
        let fields = RecordBatch::try_from_iter([("n", column.clone())]).unwrap();
        outlet.clone().send(Received { reading: reading(None), fields: Some(fields) }).await.unwrap();
        let Some((_, Parcel::Messages(batch))) = main.take().await else { panic!("it was not sent") };
        assert_eq!(batch.fields().column_by_name("n"), Some(&column));
        let too_few = RecordBatch::try_from_iter([("n", column.slice(0, 1))]).unwrap();
        assert!(outlet.send(Received { reading: reading(None), fields: Some(too_few) }).await.is_err());
        batch.settle(Outcome::Delivered);
    }
}

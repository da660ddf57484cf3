//! The handle through which sources and file readers send what they read.
//!
//! A file reader is a source whose input is a file: both wait for memory, send batches, reject messages and
//! set checkpoints. They differ in what a batch owes ([`Upstream`]): a source's batch moves a partition of
//! the source; a file reader's batch is a part of the file's ack. A type for each was rejected: every
//! component that reads text serves both, and had to be generic over the two.
//!
//! See docs/decisions/020-file-readers-checkpoint-within-a-file.md.

mod file;
mod limit;
mod reading;
mod route;
mod rows;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arrow_array::{Array, RecordBatch};
use parking_lot::Mutex;
use serde_json::Value;
use thalweg_record::{Ack, Arena, Batch, Budget, File, Lease, Meta, Outcome, Passage, Problem, Share};
use thalweg_runtime::{Failpoint, Stop, Traffic};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::metrics::ComponentMetrics;
use crate::parcel::{Files, Parcel};
use crate::positions::{Checkpoint, Positions};
use crate::run::saves::{Haste, Saves};
use crate::{Error, Flow};

pub use reading::{Meter, Reading, Received, Settled};

pub(crate) use file::OpenFile;
pub(crate) use limit::Limit;
pub(crate) use route::{Route, give};
pub(crate) use rows::Rows;

/// Where a source, or a file reader, puts what it reads.
///
/// A source that reads from many places at once gives each its clone: they send independently, and all count
/// on the source's one share of the budget. The stages behind it continue until the last clone is dropped.
#[derive(Clone)]
pub struct SourceOutput {
    pub(crate) share: Share,
    pub(crate) batch_bytes: usize,
    pub(crate) stop: Stop,
    /// How many items may still be sent, if there is a limit.
    pub(crate) limit: Option<Limit>,
    pub(crate) metrics: Arc<ComponentMetrics>,
    /// The items that move in the group of the component: a checkpoint holds the component back.
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) main: Route,
    pub(crate) errors: Route,
    /// True if each file goes by itself, because what it leads to takes long for each.
    pub(crate) singly: bool,
    /// The most messages of a batch, if a transform that it leads to lets messages wait.
    pub(crate) rows: Option<Rows>,
    /// True if a run that is stopped leaves to the next one what was read and not sent: a transform would let
    /// it wait for long, and the source reads it again.
    pub(crate) leaves_rest: bool,
    /// The sequence of what is sent: see [`set_sequence`](Self::set_sequence).
    pub(crate) sequence: Option<Arc<str>>,
    pub(crate) upstream: Upstream,
}

/// The origin of an output's acks.
#[derive(Clone)]
pub(crate) enum Upstream {
    /// Of a source: its positions; and the saves, if positions are saved.
    Source(Arc<Positions>, Option<Saves>),
    /// Of a file reader: the file that it has open.
    File(Arc<Mutex<OpenFile>>),
}

impl SourceOutput {
    /// The component's name in the configuration.
    pub fn name(&self) -> &Arc<str> {
        &self.metrics.name
    }

    /// About how many bytes a batch should have.
    pub fn batch_bytes(&self) -> usize {
        self.batch_bytes
    }

    /// Waits until the budget has room, and returns memory to read into. To be called before reading.
    pub async fn arena(&self, capacity: usize) -> Arena {
        self.share.arena(capacity).await
    }

    /// Waits until the budget has room for memory that is held in another form.
    pub async fn reserve(&self, bytes: usize) -> Lease {
        self.share.reserve(bytes).await
    }

    /// The share of the budget that [`arena`](Self::arena) is of: for those who wait for memory elsewhere.
    pub fn share(&self) -> &Share {
        &self.share
    }

    /// True while the source is paused: [`arena`](Self::arena) and [`reserve`](Self::reserve) then wait. A
    /// source that reads into the same memory again and again gives it back.
    pub fn is_paused(&self) -> bool {
        self.share.is_held_back()
    }

    /// Claims memory of the budget without waiting: for what is in hand and must continue.
    pub fn claim(&self, bytes: usize) -> Lease {
        self.budget().claim(bytes)
    }

    fn budget(&self) -> &Budget {
        self.share.budget()
    }

    /// True if the run was asked to stop, or the source has sent as much as it may. A source then returns,
    /// having sent what it has read. A file reader may ignore it: sending ends with an error where a later
    /// run can resume the file.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_requested() || self.is_limit_reached()
    }

    /// The number of messages or files that the source may still send. A source that sends no more at once
    /// has an exact checkpoint where its limit is reached.
    pub fn left(&self) -> usize {
        if self.is_left() {
            return 0;
        }
        self.limit.as_ref().map_or(usize::MAX, Limit::left)
    }

    /// The most messages that a batch should have, if there is such a limit.
    pub fn batch_rows(&self) -> Option<usize> {
        self.rows.as_ref().map(Rows::most)
    }

    /// The most messages that the next batch should have: at least one, also when nothing is
    /// [`left`](Self::left). For sources that look at [`is_stopping`](Self::is_stopping) between batches.
    pub fn next_rows(&self) -> usize {
        let left = self.limit.as_ref().map_or(usize::MAX, Limit::left);
        left.min(self.batch_rows().unwrap_or(usize::MAX)).max(1)
    }

    /// Counts messages against the limit no longer that were sent in vain, and that the source reads again:
    /// those of an aborted transaction, for example. A source that had sent as much as it may then continues.
    pub fn give_back(&self, messages: usize) {
        if let Some(limit) = &self.limit {
            limit.give_back(messages);
        }
    }

    /// True if what was read and not sent is left to the next run.
    fn is_left(&self) -> bool {
        self.leaves_rest && self.stop.is_requested()
    }

    /// True if the source has sent as much as it may.
    pub(crate) fn is_limit_reached(&self) -> bool {
        self.is_left() || self.limit.as_ref().is_some_and(Limit::is_reached)
    }

    /// Why nothing more can be sent. A source that returns it has ended.
    pub fn limit_reached(&self) -> Error {
        Error::enough(format!("`{}` has sent as much as it may in this run", self.name()))
    }

    /// True in a dry run: the source removes nothing, and acknowledges nothing to a sender.
    pub fn is_dry(&self) -> bool {
        self.positions().is_some_and(|positions| positions.is_frozen())
    }

    /// Notes that input is left, if the run was asked to stop. A source that reached its limit has ended: the
    /// output of the run is whole.
    pub(crate) fn heed_stop(&self) {
        if self.stop.is_requested() {
            self.stop.heed();
        }
    }

    /// True if the open file is not to be read any further: the run was asked to stop, and a later run can
    /// resume the file.
    pub(crate) fn may_stop(&self, file: &OpenFile) -> bool {
        self.is_stopping() && file.may_be_left()
    }

    /// Waits until [`is_stopping`](Self::is_stopping): for `select!` beside a wait for input.
    pub async fn stopping(&self) {
        let Some(limit) = &self.limit else { return self.stop.requested().await };
        tokio::select! {
            () = self.stop.requested() => {}
            () = limit.reached() => {}
        }
    }

    /// Waits. Returns true if the source is to stop by then.
    pub async fn sleep(&self, duration: Duration) -> bool {
        tokio::time::timeout(duration, self.stopping()).await.is_ok()
    }

    /// Ends the input of the stages behind the source, which waits for them from now on: some settle messages
    /// only then. Nothing can be sent through this output any more.
    pub fn end(&mut self) {
        // Before the stages see the end: transforms leave what they hold to the next run, if input is left.
        self.heed_stop();
        (self.main, self.errors) = (Route::default(), Route::default());
    }

    /// Sets the sequence that the positions of messages belong to which are sent from here on: see
    /// [`Meta::sequence`]. A file reader sends messages of the sequence of its file.
    pub fn set_sequence(&mut self, sequence: Option<Arc<str>>) {
        self.sequence = sequence;
    }

    /// Counts what others read later of what the source has sent.
    pub fn meter(&self) -> Meter {
        Meter(self.metrics.clone())
    }

    /// Adds bytes that are to be read, so that the time left can be shown.
    pub fn add_expected(&self, bytes: u64) {
        self.metrics.add_expected(bytes);
    }

    /// Adds bytes that were read of those expected.
    pub fn add_progress(&self, bytes: u64) {
        self.metrics.add_progress(bytes);
    }

    /// True if a target has ended. While there is a source, that is a failure of the target.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.main.is_abandoned() || self.errors.is_abandoned()
    }
}

/// Checkpoints.
impl SourceOutput {
    /// Where a source resumes in a partition: the offset that a former run got to.
    pub fn saved(&self, partition: &str) -> Option<Value> {
        self.positions()?.saved(partition)
    }

    /// Where a file reader resumes in its file: the offset that a former run got to.
    pub fn saved_in_file(&self) -> Option<Value> {
        match &self.upstream {
            Upstream::Source(..) => None,
            Upstream::File(file) => file.lock().saved(),
        }
    }

    /// True if checkpoints are saved: of a file reader, those in its file.
    pub fn keeps_checkpoints(&self) -> bool {
        match &self.upstream {
            Upstream::Source(_, saves) => saves.is_some(),
            Upstream::File(file) => file.lock().keeps_checkpoints(),
        }
    }

    /// The offset in a partition before which nothing is needed again, even if the process is killed now:
    /// what came before may be removed at its origin, or acknowledged to its sender. [`saved`](Self::saved)
    /// may be further on.
    pub fn committed(&self, partition: &str) -> Option<Value> {
        self.positions()?.committed(partition)
    }

    /// The partitions in which former runs, or this one, got somewhere.
    pub fn partitions(&self) -> Vec<Arc<str>> {
        self.positions().map(|positions| positions.partitions()).unwrap_or_default()
    }

    /// The number of messages that the source sent and that are not settled.
    pub fn unsettled(&self) -> u64 {
        self.positions().map_or(0, |positions| positions.unsettled())
    }

    /// True if messages of the source failed: the run ends, and a later one sends them again. Known as soon
    /// as they no longer count as [unsettled](Self::unsettled).
    pub fn has_failed(&self) -> bool {
        self.positions().is_some_and(|positions| positions.has_failed())
    }

    /// Forgets a partition that will never be read again: its file is gone, for example.
    pub fn forget(&self, partition: &str) {
        if let Some(positions) = self.positions() {
            positions.forget(partition);
        }
    }

    /// Notes where to resume once all before it in its partition is settled, with nothing sent.
    pub fn checkpoint(&self, checkpoint: Checkpoint) {
        match &self.upstream {
            Upstream::Source(positions, _) => {
                positions.expect(Some(checkpoint), 0).settle(Outcome::Filtered);
            }
            Upstream::File(file) => file.lock().ack(Some(checkpoint.offset)).settle(Outcome::Filtered),
        }
    }

    /// Asks for a checkpoint soon, instead of at the next regular time: what was sent may not be readable
    /// again for long.
    pub fn save_soon(&self) {
        if let Upstream::Source(_, Some(saves)) = &self.upstream {
            saves.ask(Haste::Soon);
        }
    }

    /// Waits until what is settled by now is saved, or the run has ended. Of a file reader, and without
    /// checkpoints, there is nothing to wait for.
    pub async fn save(&self) {
        if let Upstream::Source(_, Some(saves)) = &self.upstream {
            saves.clone().next().await;
        }
    }

    /// The positions of a source. None for a file reader, whose partitions are its files.
    pub(crate) fn positions(&self) -> Option<&Arc<Positions>> {
        match &self.upstream {
            Upstream::Source(positions, _) => Some(positions),
            Upstream::File(_) => None,
        }
    }
}

/// Messages.
impl SourceOutput {
    /// Sends messages on. Waits until there is room for them. With a checkpoint, a later run resumes there
    /// when the messages are settled, and all that was sent before them in the partition. Of a file reader's
    /// checkpoint only the offset counts, and what it sends without a checkpoint belongs to the next one.
    ///
    /// # Errors
    /// If the run is ending and nothing takes them; the component should return the error.
    pub async fn send(&mut self, reading: impl Into<Received>) -> Result<(), Error> {
        let (batch, rest) = self.batch(reading.into(), None)?;
        self.send_batch(batch).await?;
        rest
    }

    /// As [`send`](Self::send), for sources that answer the sender of the messages: also returns a future of
    /// how they were settled, ready when that is committed. It need not be waited for. A source that was
    /// asked to stop must not wait for it without end while it holds an output: some messages are only
    /// settled when all input has ended.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_acked(&mut self, reading: impl Into<Received>) -> Result<Settled, Error> {
        let (mut batch, rest) = self.batch(reading.into(), None)?;
        let settled = self.settled(batch.ack_mut());
        self.send_batch(batch).await?;
        rest.map(|()| settled)
    }

    /// Adds an answer to the ack of a file that is about to be sent: returns a future of how the file was
    /// settled, as [`send_acked`](Self::send_acked) does for messages.
    pub fn settled(&self, ack: &mut Ack) -> Settled {
        let (tell, settled) = oneshot::channel();
        ack.merge(Ack::new(self.name().clone(), move |settlement| {
            // The source may not wait any more.
            let _ = tell.send(settlement);
        }));
        if self.is_dry() {
            return Settled::refused("a dry run delivers nothing");
        }
        let saves = match &self.upstream {
            Upstream::Source(_, saves) => saves.clone(),
            Upstream::File(_) => None,
        };
        Settled::new(settled, saves)
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
        let (batch, rest) = self.batch(Received { reading, fields }, Some(meta))?;
        self.send_batch(batch).await?;
        rest
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
        let (batch, rest) = self.batch(reading.into(), None)?;
        self.give_rejected(batch, reasons).await?;
        rest
    }

    /// As [`reject_each`](Self::reject_each), and returns a future as [`send_acked`](Self::send_acked) does.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn reject_acked(
        &mut self,
        reading: impl Into<Received>,
        reasons: Vec<String>,
    ) -> Result<Settled, Error> {
        let (mut batch, rest) = self.batch(reading.into(), None)?;
        let settled = self.settled(batch.ack_mut());
        self.give_rejected(batch, reasons).await?;
        rest.map(|()| settled)
    }

    async fn give_rejected(&self, batch: Batch, mut reasons: Vec<String>) -> Result<(), Error> {
        reasons.truncate(batch.rows());
        self.metrics.add_errors(batch.rows());
        let (rejected, rest) =
            thalweg_record::split_rejected(batch, (0..).zip(reasons).collect(), self.name())?;
        for batch in rejected.into_iter().chain(rest) {
            let bytes = batch.payload_bytes();
            self.give_batch(&self.errors, batch, bytes).await?;
        }
        Ok(())
    }

    async fn send_batch(&self, batch: Batch) -> Result<(), Error> {
        let bytes = batch.payload_bytes();
        self.metrics.add_out(batch.rows(), bytes);
        if let Some(rows) = &self.rows {
            let began = Instant::now();
            self.main.room().await;
            rows.note(batch.rows(), began.elapsed());
        }
        self.give_batch(&self.main, batch, bytes).await
    }

    /// Gives a batch of `bytes` to the targets of a route.
    async fn give_batch(&self, route: &Route, batch: Batch, bytes: usize) -> Result<(), Error> {
        let targets = route.messages.as_ref().ok_or_else(|| self.does_not_give(Flow::Messages))?;
        if let Upstream::File(file) = &self.upstream {
            let mut file = file.lock();
            if self.may_stop(&file) {
                file.leave();
                drop(file);
                batch.settle(Outcome::Unfinished);
                return Err(Error::permanent("the run is stopping"));
            }
        }
        Failpoint::SourceSend.pass();
        route.pass(&batch, batch.rows(), bytes);
        give(targets, batch, self.budget(), &self.traffic, self.name()).await
    }

    /// Counts items against the limit. Returns how many of them may be sent, and the error to return after
    /// that if it is not all.
    fn admit(&self, items: usize) -> (usize, Result<(), Error>) {
        let admitted = self.limit.as_ref().map_or(items, |limit| limit.take(items));
        (admitted, if admitted < items { Err(self.limit_reached()) } else { Ok(()) })
    }

    /// Returns the batch of the messages that the limit allows, and the error to return after it was sent if
    /// there were more. The batch then has no checkpoint: that of the reading is after all of them.
    fn batch(&self, mut received: Received, meta: Option<Meta>) -> Result<(Batch, Result<(), Error>), Error> {
        let (admitted, rest) = self.admit(received.reading.payload.len());
        if rest.is_err() {
            received.truncate(admitted);
        }
        Ok((self.owed(received, meta)?, rest))
    }

    /// Makes a batch of messages, with what it owes.
    fn owed(&self, mut received: Received, meta: Option<Meta>) -> Result<Batch, Error> {
        let checkpoint = received.reading.checkpoint.take();
        match &self.upstream {
            Upstream::Source(positions, _) => {
                let meta = meta.unwrap_or_else(|| self.meta(received.reading.path.clone()));
                let ack = positions.expect(checkpoint, received.reading.payload.len());
                let batch = received.into_batch(Arc::new(meta), ack)?;
                self.metrics.add_in(batch.rows(), batch.payload_bytes());
                Ok(batch)
            }
            Upstream::File(file) => {
                let mut file = file.lock();
                let ack = file.ack(checkpoint.map(|checkpoint| checkpoint.offset));
                received.into_batch(meta.map_or_else(|| file.meta(), Arc::new), ack)
            }
        }
    }

    fn meta(&self, path: Option<Arc<str>>) -> Meta {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time_us = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
        Meta { source: self.name().clone(), path, sequence: self.sequence.clone(), time_us, number: 0 }
    }

    /// [`SourceConfig::gives`](crate::SourceConfig::gives) says what a source gives, and the graph is checked
    /// against it.
    fn does_not_give(&self, flow: Flow) -> Error {
        Error::permanent(format!("the source `{}` sends {}, but gives others", self.name(), flow.name()))
    }
}

/// Files.
impl SourceOutput {
    /// Sends files on, with a checkpoint for when all of them are settled. Waits until there is room for
    /// them.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_files(
        &mut self,
        mut files: Vec<File>,
        mut checkpoint: Option<Checkpoint>,
    ) -> Result<(), Error> {
        let (admitted, rest) = self.admit(files.len());
        if rest.is_err() {
            files.truncate(admitted);
            checkpoint = None;
        }
        let (ack, passage) = self.ack_of_files(checkpoint, files.len());
        for file in &mut files {
            file.ack_mut().merge(ack.split());
            file.set_passage(passage.clone());
        }
        // The rest of the ack stands for no file.
        ack.settle(Outcome::Filtered);
        let parcels: Vec<Files> = match self.singly {
            true => files.into_iter().map(|file| vec![file]).collect(),
            false => vec![files],
        };
        for parcel in parcels {
            self.metrics.add_in(parcel.items(), parcel.bytes());
            self.metrics.add_out(parcel.items(), parcel.bytes());
            self.give_files(&self.main, parcel).await?;
        }
        rest
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
        self.admit(1).1?;
        file.ack_mut().merge(self.ack_of_files(checkpoint, 1).0);
        problem.component = self.name().clone();
        file.set_problem(problem);
        let parcel = vec![file];
        self.metrics.add_in(1, parcel.bytes());
        self.metrics.add_errors(1);
        self.give_files(&self.errors, parcel).await
    }

    /// The ack of the next files, and when the position of the source moves past them.
    fn ack_of_files(&self, checkpoint: Option<Checkpoint>, files: usize) -> (Ack, Option<Passage>) {
        match (&self.upstream, checkpoint) {
            (Upstream::Source(positions, _), Some(Checkpoint { partition, offset })) => {
                let (ack, passage) = positions.expect_in(partition, Some(offset), files);
                (ack, Some(passage))
            }
            (Upstream::Source(positions, _), None) => (positions.expect(None, files), None),
            (Upstream::File(file), checkpoint) => {
                (file.lock().ack(checkpoint.map(|checkpoint| checkpoint.offset)), None)
            }
        }
    }

    async fn give_files(&self, route: &Route, files: Files) -> Result<(), Error> {
        let targets = route.files.as_ref().ok_or_else(|| self.does_not_give(Flow::Files))?;
        route.pass(&files, files.items(), files.bytes());
        give(targets, files, self.budget(), &self.traffic, self.name()).await
    }
}

#[cfg(test)]
mod tests;

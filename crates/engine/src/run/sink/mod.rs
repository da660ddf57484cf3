//! The task of a sink: writes, settles, retries, and fails batches that can go another way. A sink behind a
//! buffer may be left when the run stops.
//!
//! See docs/decisions/007-limits-adapt.md and
//! docs/decisions/019-a-checkpoint-covers-output-and-input-together.md.

mod commits;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use serde_json::Value;
use thalweg_record::{Ack, Batch, Budget, DividedOrigins, Outcome};
use thalweg_runtime::{ConcurrencyLimit, Failpoint, Receiver, Sender, Stage, Stop, Ticket, Worker};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::checkpoints::StateSlot;
use super::edges::Port;
use super::flushes::Member;
use super::leaving::Leaving;
use super::{Retries, RunFailure};
pub(super) use commits::{Commits, EndedSink, Uncommitted};

use crate::Rejects;
use crate::component::{Sink, WriteOutcome};
use crate::metrics::ComponentMetrics;
use crate::missing::FieldWatch;
use crate::parcel::shares;
use crate::{Error, ErrorKind};
use thalweg_record::split_rejected;

/// Written batches are flushed at least this often.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// The retries of a batch before it goes another way.
const ATTEMPTS_WITH_ANOTHER_WAY: u32 = 5;
/// How long a failed sink is not used, if batches can go another way.
const LEFT_ALONE: Duration = Duration::from_secs(5);

/// One worker of a sink: it has one request in flight.
pub(super) struct Writer {
    pub(super) sink: Box<dyn Sink>,
    pub(super) errors: Vec<Sender<Batch>>,
    pub(super) ports: SinkPorts,
    pub(super) metrics: Arc<ComponentMetrics>,
    /// The fields that the sink reads.
    pub(super) fields: FieldWatch,
    pub(super) budget: Budget,
    pub(super) retries: Retries,
    /// Where the sink's state is put for the next save, if checkpoints are kept.
    pub(super) state: Option<StateSlot>,
    pub(super) barrier: CheckpointBarrier,
    /// Shared by the workers of a sink whose number of requests in flight adapts.
    pub(super) limit: Option<ConcurrencyLimit>,
    /// True if a failover leads here that has another way: the run then continues without this sink.
    pub(super) is_dispensable: bool,
    pub(super) pending: Pending,
    pub(super) condition: Condition,
    /// The request to stop of its group.
    pub(super) stop: Stop,
    /// The components whose output no later run continues.
    pub(super) removed: Arc<RwLock<BTreeSet<Arc<str>>>>,
    pub(super) reopens: Reopens,
    pub(super) commits: Commits,
    /// Where the sink is left with the steps that wait for the last checkpoint.
    pub(super) uncommitted: Uncommitted,
    /// When the sink is left, if a later run has its input from buffers.
    pub(super) leaving: Option<Leaving>,
    /// Dropped last: when the others flush for a checkpoint, a failure here must be known.
    pub(super) member: Member,
}

/// The ports of a sink.
#[derive(Debug, Clone, Default)]
pub(super) struct SinkPorts {
    /// Shows its input.
    pub(super) input: Option<Arc<Port>>,
    /// Counts and shows its rejected messages.
    pub(super) errors: Option<Arc<Port>>,
}

/// Read-locked while a sink notes its state and settles batches; write-locked while a checkpoint is saved. So
/// a checkpoint has both or neither.
pub(super) type CheckpointBarrier = Arc<RwLock<()>>;

/// How often the run was asked to reopen its outputs, and how often the sink did.
#[derive(Clone, Default)]
pub(super) struct Reopens {
    pub(super) asked: Arc<AtomicU64>,
    done: u64,
}

impl Reopens {
    pub(super) fn new(asked: &Arc<AtomicU64>) -> Self {
        Self { asked: asked.clone(), done: 0 }
    }

    fn is_due(&self) -> bool {
        self.asked.load(Ordering::Relaxed) != self.done
    }
}

/// The acks of batches that are written and not yet durable.
pub(super) struct Pending {
    /// Of batches that the next flush makes durable.
    written: Vec<Ack>,
    /// Of batches that the sink keeps until it says that they are durable.
    kept: VecDeque<Ack>,
    /// The batches of sources of which a part that the sink kept is settled, and another part is not.
    divided: DividedOrigins,
    flushed: Instant,
}

impl Default for Pending {
    fn default() -> Self {
        Self {
            written: Vec::new(),
            kept: VecDeque::new(),
            divided: DividedOrigins::default(),
            flushed: Instant::now(),
        }
    }
}

impl Pending {
    fn is_any(&self) -> bool {
        !self.written.is_empty() || !self.kept.is_empty()
    }

    fn settle(&mut self) {
        self.written.drain(..).for_each(|ack| ack.settle(Outcome::Delivered));
        self.flushed = Instant::now();
    }

    /// Settles the first `count` of the batches that the sink keeps.
    fn take_committed(&mut self, count: usize) {
        let count = count.min(self.kept.len());
        if count == 0 {
            return;
        }
        self.kept.iter().take(count).for_each(|ack| self.divided.note(ack));
        self.kept.drain(..count).for_each(|ack| ack.settle(Outcome::Delivered));
        self.divided.forget_settled();
    }

    /// True if the sink keeps a part of a batch of a source, and another part of it is settled.
    fn is_divided(&self) -> bool {
        self.kept.iter().any(|ack| self.divided.has_part(ack))
    }
}

/// Whether a sink can be used, where batches can go another way.
#[derive(Default)]
pub(super) enum Condition {
    /// It can be used.
    #[default]
    Well,
    /// It failed, and is used again after a while. `unopened`: what to open it with, if it could not even be
    /// opened.
    Failed { at: Instant, reason: String, unopened: Option<Option<Value>> },
    /// A flush failed: further writes may lose or repeat messages.
    Broken { reason: String },
}

impl Condition {
    /// Why the sink must not be used now.
    fn objection(&self) -> Option<&str> {
        match self {
            Condition::Failed { at, reason, .. } if at.elapsed() < LEFT_ALONE => Some(reason),
            Condition::Broken { reason } => Some(reason),
            Condition::Well | Condition::Failed { .. } => None,
        }
    }

    /// True if there is something to finish.
    fn is_open(&self) -> bool {
        matches!(self, Condition::Well | Condition::Failed { unopened: None, .. })
    }
}

/// Opens the workers of a sink and runs them until the input ends.
pub(super) async fn run(
    mut writers: Vec<Writer>,
    input: Receiver<Batch>,
    mut saved: Option<Value>,
    metrics: Arc<ComponentMetrics>,
    shortage: Arc<Notify>,
) -> Result<(), RunFailure> {
    for writer in &mut writers {
        writer.begin(saved.take()).await?;
    }
    let workers = writers.len();
    let stage = Stage::new(writers, input, metrics.hand_overs.clone()).with_rests(FLUSH_EVERY, shortage);
    if workers == 1 {
        return stage.run().await;
    }
    // Several workers only send and wait: they need no thread of their own.
    let mut tasks = JoinSet::new();
    for _ in 1..workers {
        tasks.spawn(stage.clone().run());
    }
    tasks.spawn(stage.run());
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(result) => result?,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => {}
        }
    }
    Ok(())
}

impl Worker for Writer {
    type Item = Batch;
    type Error = RunFailure;

    async fn take(&mut self, _: Ticket, batch: Batch) -> Result<(), RunFailure> {
        let Some(leaving) = self.leaving.clone() else { return self.deliver(batch).await };
        tokio::select! {
            biased;
            () = leaving.leave() => Ok(()),
            delivered = self.deliver(batch) => delivered,
        }
    }

    /// Pending batches are flushed at the latest after [`FLUSH_EVERY`], and at once if they hold the memory
    /// that a source waits for.
    fn is_restless(&self) -> bool {
        if self.is_left() {
            return self.member.is_asked();
        }
        let has_old = !self.pending.written.is_empty()
            && (self.pending.flushed.elapsed() >= FLUSH_EVERY || self.budget.is_short());
        // A broken or unopened sink has nothing to flush or reopen.
        self.member.is_asked()
            || self.condition.is_open() && (self.reopens.is_due() || self.sink.is_due() || has_old)
            || self.commits.saved() > 0
    }

    async fn rest(&mut self) -> Result<(), RunFailure> {
        let Some(leaving) = self.leaving.clone() else { return self.flush_due().await };
        if leaving.is_left() {
            self.member.answer();
            return Ok(());
        }
        tokio::select! {
            biased;
            () = leaving.leave() => Ok(()),
            flushed = self.flush_due() => flushed,
        }
    }

    async fn finish(self) -> Result<(), RunFailure> {
        let Some(leaving) = self.leaving.clone() else { return self.end_output().await };
        tokio::select! {
            biased;
            () = leaving.leave_unfinished() => Ok(()),
            ended = self.end_output() => ended,
        }
    }
}

/// The outcome of a batch, and its rejected rows.
type Written = (WriteOutcome, Vec<(u32, String)>);

/// Why a sink flushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flush {
    /// Its batches have waited, or memory is short.
    Regular,
    /// For a checkpoint, while nothing moves.
    Checkpoint,
}

impl Writer {
    /// True if the sink is left: it does nothing any more.
    fn is_left(&self) -> bool {
        self.leaving.as_ref().is_some_and(Leaving::is_left)
    }

    /// Opens the sink, unless it is left meanwhile.
    async fn begin(&mut self, saved: Option<Value>) -> Result<(), RunFailure> {
        let Some(leaving) = self.leaving.clone() else { return self.open(saved).await };
        tokio::select! {
            biased;
            () = leaving.leave() => Ok(()),
            opened = self.open(saved) => opened,
        }
    }

    /// Writes a batch, and settles what became durable.
    async fn deliver(&mut self, mut batch: Batch) -> Result<(), RunFailure> {
        batch.enter(&self.metrics.name);
        self.fields.note(&batch);
        let has_another_way = batch.ack().has_failover();
        if has_another_way && let Some(reason) = self.condition.objection() {
            batch.take_ack().fail(reason);
            return Ok(());
        }
        if let Condition::Broken { reason } = &self.condition {
            return Err(self.failed(Error::permanent(reason)));
        }
        if let Some(port) = &self.ports.input {
            port.show(&batch);
        }
        match self.write(&batch, has_another_way).await? {
            Ok((written, rejected)) => self.note_written(batch, written, rejected)?,
            Err(error) if has_another_way => return self.divert(batch, error).await,
            Err(error) => return Err(self.failed(error)),
        }
        // A sink that is slower than its sources has no rest in which it could do the following.
        let has_waited = self.pending.flushed.elapsed() >= FLUSH_EVERY;
        if has_waited && (!self.pending.written.is_empty() || self.sink.is_due()) {
            self.flush(Flush::Regular).await?;
        }
        self.commits.commit_all(&mut *self.sink, &self.retries, &self.metrics).await
    }

    /// Flushes for a checkpoint or by the clock, and takes the steps that the last checkpoint covers.
    async fn flush_due(&mut self) -> Result<(), RunFailure> {
        if self.member.is_asked() {
            if self.condition.is_open() && self.pending.is_any() {
                self.flush(Flush::Checkpoint).await?;
            }
            self.member.answer();
        } else if self.condition.is_open() {
            self.flush(Flush::Regular).await?;
        }
        self.commits.commit_all(&mut *self.sink, &self.retries, &self.metrics).await
    }

    /// Finishes or suspends the sink.
    async fn end_output(mut self) -> Result<(), RunFailure> {
        self.metrics.missing.add(std::mem::take(&mut self.fields));
        if !self.condition.is_open() {
            return Ok(());
        }
        let mut attempt = 0;
        Failpoint::SinkFinishBefore.pass();
        while let Err(error) = self.end().await {
            let most = self.attempts(self.can_break());
            if let Err(error) = self.retry(error, &mut attempt, most).await {
                return self.breaks(error);
            }
        }
        Failpoint::SinkFinishAfter.pass();
        let barrier = self.barrier.clone();
        let _moment = barrier.read();
        self.note_state();
        self.pending.settle();
        self.pending.take_committed(usize::MAX);
        Failpoint::Acknowledged.pass();
        if self.sink.uncommitted() > 0 {
            let Self { sink, commits, metrics, retries, .. } = self;
            self.uncommitted.lock().push(EndedSink { sink, commits, metrics, retries });
        }
        Ok(())
    }
}

impl Writer {
    /// Makes the sink ready to write, with the state that a former run left.
    pub(super) async fn open(&mut self, saved: Option<Value>) -> Result<(), RunFailure> {
        let mut attempt = 0;
        while let Err(error) = self.sink.open(saved.clone()).await {
            // Nothing is in flight yet that a run that is stopping would have to deliver.
            let is_stopping = self.retries.stop.is_requested();
            let is_patient = !is_stopping || self.leaving.is_some();
            let most = if is_patient { self.attempts(self.is_dispensable) } else { 0 };
            if let Err(error) = self.retry(error, &mut attempt, most).await {
                if !self.is_dispensable {
                    return Err(self.failed(error));
                }
                self.fails(error);
                if let Condition::Failed { unopened, .. } = &mut self.condition {
                    *unopened = Some(saved);
                }
                return Ok(());
            }
        }
        self.metrics.set_retrying(None);
        // Before anything is written: after a crash, the state is that which this run began with.
        self.note_state();
        Ok(())
    }

    /// Finishes the sink, or suspends it if a later run brings it the rest.
    async fn end(&mut self) -> Result<(), Error> {
        let is_continued = self.state.is_some() && !self.removed.read().contains(&self.metrics.name);
        match is_continued && self.stop.was_heeded() {
            true => self.sink.suspend().await,
            false => self.sink.finish().await,
        }
    }

    fn failed(&self, error: Error) -> RunFailure {
        RunFailure::of(&self.metrics, error.context(format!("the sink `{}` failed", self.metrics.name)))
    }

    /// Settles what became durable of a batch, and keeps the acks of the rest.
    fn note_written(
        &mut self,
        batch: Batch,
        written: WriteOutcome,
        rejected: Vec<(u32, String)>,
    ) -> Result<(), RunFailure> {
        self.recovered();
        let barrier = self.barrier.clone();
        let _moment = barrier.read();
        // Before the batch is settled: a saved state must not be older than the positions beside it.
        self.note_state();
        let batch = self.part(batch, rejected).map_err(|error| self.failed(error))?;
        let ack = match batch {
            Some(mut batch) => {
                self.metrics.add_out(batch.rows(), batch.payload_bytes());
                batch.take_ack()
            }
            None => Ack::noop(),
        };
        match written {
            WriteOutcome::Durable => ack.settle(Outcome::Delivered),
            WriteOutcome::Buffered => self.pending.written.push(ack),
            // Also if all messages were rejected: the sink counts batches.
            WriteOutcome::Staged => self.pending.kept.push_back(ack),
        }
        self.pending.take_committed(self.sink.take_committed());
        Failpoint::Acknowledged.pass();
        Ok(())
    }

    /// Sends a batch that could not be written another way.
    async fn divert(&mut self, mut batch: Batch, error: Error) -> Result<(), RunFailure> {
        if let Condition::Broken { reason } = &self.condition {
            batch.take_ack().fail(reason);
            return Ok(());
        }
        let reason = self.fails(error);
        self.sink.drop_batch();
        // Earlier batches leave first, on either way.
        let flushed = if self.pending.written.is_empty() { Ok(()) } else { self.flush(Flush::Regular).await };
        batch.take_ack().fail(&reason);
        flushed
    }

    /// Writes a batch, with retries after temporary errors. The inner error is that of the batch.
    async fn write(
        &mut self,
        batch: &Batch,
        has_another_way: bool,
    ) -> Result<Result<Written, Error>, RunFailure> {
        self.metrics.add_in(batch.rows(), batch.payload_bytes());
        let mut rejects = Rejects::default();
        let mut attempt = 0;
        loop {
            // A permit for each attempt: the pauses between them say nothing of how much is too much.
            let permit = match self.limit.as_ref().map(|limit| limit.acquire(batch.payload_bytes() as u64)) {
                Some(permit) => Some(permit.await),
                None => None,
            };
            let metrics = self.metrics.clone();
            let written = metrics.counted(self.write_once(batch, &mut rejects)).await;
            if let Some(permit) = permit {
                match &written {
                    Ok(_) => permit.succeeded(),
                    Err(error) if error.kind() == ErrorKind::Overloaded => permit.overloaded(),
                    Err(_) => permit.failed(),
                }
            }
            let rejected = rejects.take();
            match written {
                Ok(written) => return Ok(Ok((written, rejected))),
                Err(error) if self.is_flushed_before(&error) => {
                    self.flush(Flush::Regular).await?;
                    if let Condition::Broken { reason } = &self.condition {
                        return Ok(Err(Error::permanent(reason)));
                    }
                }
                Err(error) => {
                    let most = self.attempts(has_another_way);
                    if let Err(error) = self.retry(error, &mut attempt, most).await {
                        return Ok(Err(error));
                    }
                }
            }
        }
    }

    /// True if what was written before is flushed before a batch is tried again.
    fn is_flushed_before(&self, error: &Error) -> bool {
        error.kind().is_temporary() && self.sink.writes_whole() && !self.pending.written.is_empty()
    }

    async fn write_once(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<WriteOutcome, Error> {
        self.open_late().await?;
        Failpoint::SinkWriteBefore.check().map_err(interrupted)?;
        let written = self.sink.write(batch, rejects).await?;
        Failpoint::SinkWriteAfter.pass();
        Ok(written)
    }

    /// Flushes the sink, or reopens it if that is due.
    async fn flush_once(&mut self, why: Flush) -> Result<(), Error> {
        Failpoint::SinkFlushBefore.check().map_err(interrupted)?;
        match why {
            Flush::Checkpoint => {
                if self.pending.is_divided() {
                    self.sink.make_durable().await?;
                }
                self.sink.pre_commit().await?;
            }
            Flush::Regular if self.reopens.is_due() => self.sink.reopen().await?,
            Flush::Regular => self.sink.flush().await?,
        }
        Failpoint::SinkFlushAfter.pass();
        Ok(())
    }

    /// Opens a sink that could not be opened at the start.
    async fn open_late(&mut self) -> Result<(), Error> {
        if let Condition::Failed { unopened, .. } = &mut self.condition
            && let Some(saved) = unopened.clone()
        {
            self.sink.open(saved).await?;
            if let Condition::Failed { unopened, .. } = &mut self.condition {
                *unopened = None;
            }
        }
        Ok(())
    }

    async fn flush(&mut self, why: Flush) -> Result<(), RunFailure> {
        let mut attempt = 0;
        loop {
            let asked = self.reopens.asked.load(Ordering::Relaxed);
            let metrics = self.metrics.clone();
            let flushed = metrics.counted(self.flush_once(why)).await;
            match flushed {
                Ok(()) if why == Flush::Checkpoint => break,
                Ok(()) => {
                    self.reopens.done = asked;
                    break;
                }
                Err(error) => {
                    let most = self.attempts(self.can_break());
                    if let Err(error) = self.retry(error, &mut attempt, most).await {
                        return self.breaks(error);
                    }
                }
            }
        }
        self.metrics.set_retrying(None);
        let barrier = self.barrier.clone();
        let _moment = barrier.read();
        self.note_state();
        self.pending.settle();
        self.pending.take_committed(self.sink.take_committed());
        Ok(())
    }

    /// True if the run continues without this sink: all batches that are not durable have another route.
    fn can_break(&self) -> bool {
        // The ack of a batch whose messages were all rejected has no origin.
        let pending = self.pending.written.iter().chain(&self.pending.kept);
        let mut owed = pending.filter(|ack| !ack.is_noop()).peekable();
        let is_known = owed.peek().is_some() || !matches!(self.condition, Condition::Well);
        is_known && owed.all(Ack::has_failover)
    }

    /// The number of retries: without end if there is no other way, none if the sink has failed before.
    fn attempts(&self, has_another_way: bool) -> u32 {
        match (has_another_way, &self.condition) {
            (false, _) => u32::MAX,
            (true, Condition::Well) => ATTEMPTS_WITH_ANOTHER_WAY,
            (true, _) => 0,
        }
    }

    /// Pauses after a temporary error. Returns an error after which there is no retry.
    fn retry(
        &self,
        error: Error,
        attempt: &mut u32,
        most: u32,
    ) -> impl Future<Output = Result<(), Error>> + use<> {
        // A sink is not `Sync`, so the future must not hold `self`.
        let (retries, metrics, tried) = (self.retries.clone(), self.metrics.clone(), *attempt);
        *attempt += 1;
        async move {
            if !error.kind().is_temporary() || tried >= most {
                return Err(error);
            }
            retries.pause(&metrics, &error, tried).await;
            Ok(())
        }
    }

    /// Sends the rejected messages of a batch to `errors`. Returns the others.
    fn part(&self, batch: Batch, rejected: Vec<(u32, String)>) -> Result<Option<Batch>, Error> {
        let (rejected, rest) = split_rejected(batch, rejected, &self.metrics.name)?;
        if let Some(batch) = rejected {
            self.metrics.add_errors(batch.rows());
            if let Some(port) = &self.ports.errors {
                port.pass(&batch, batch.rows(), batch.payload_bytes());
            }
            batch.claim(&self.budget);
            for (target, batch) in self.errors.iter().zip(shares(batch, self.errors.len())) {
                let bytes = batch.payload_bytes();
                drop(target.push(batch, bytes));
            }
        }
        Ok(rest)
    }

    /// Notes that the sink failed and batches go another way. Returns the reason.
    fn fails(&mut self, error: Error) -> String {
        let reason = error.full();
        self.metrics.set_retrying(Some(reason.clone()));
        if let Condition::Well = self.condition {
            let name = &self.metrics.name;
            tracing::warn!("`{name}` failed ({reason}); batches take the other route until it works again");
        }
        let unopened = match &mut self.condition {
            Condition::Failed { unopened, .. } => unopened.take(),
            Condition::Well | Condition::Broken { .. } => None,
        };
        self.condition = Condition::Failed { at: Instant::now(), reason: reason.clone(), unopened };
        reason
    }

    fn recovered(&mut self) {
        if !matches!(self.condition, Condition::Well) {
            tracing::warn!("`{}` works again", self.metrics.name);
            self.condition = Condition::Well;
        }
    }

    /// Handles a flush that failed for good: pending batches and all later ones take the other route, if
    /// every pending batch has one.
    fn breaks(&mut self, error: Error) -> Result<(), RunFailure> {
        if !self.can_break() {
            return Err(self.failed(error));
        }
        let reason = error.full();
        self.metrics.set_retrying(Some(reason.clone()));
        tracing::warn!("`{}` failed ({reason}); batches take the other route", self.metrics.name);
        self.condition = Condition::Broken { reason: reason.clone() };
        self.pending.written.drain(..).chain(self.pending.kept.drain(..)).for_each(|ack| ack.fail(&reason));
        Ok(())
    }

    fn note_state(&mut self) {
        let Some(slot) = &self.state else { return };
        if let Some(state) = self.sink.state() {
            *slot.lock() = Some(state);
        }
        self.commits.note(self.sink.uncommitted());
    }
}

/// The error of a step that a test made fail: temporary, as most errors of a target are.
fn interrupted(error: std::io::Error) -> Error {
    Error::temporary("the target cannot be used").caused_by(error)
}

#[cfg(test)]
mod tests;

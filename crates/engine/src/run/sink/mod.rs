//! A sink at work: writes, acknowledges, tries again, and says so where what comes can go another way.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use thalweg_record::{Ack, Batch, Budget, Outcome, Parcel};
use thalweg_runtime::{ConcurrencyLimit, Receiver, Sender, Stage, Ticket, Worker};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::component::{Sink, WriteOutcome};
use crate::metrics::ComponentMetrics;
use crate::outlets::{Rejects, part_rejected};
use crate::{Error, ErrorKind};

use super::{Retries, RunFailure};

/// What was written is brought into safety at least this often.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// How often a batch that can go another way is tried before it does.
const ATTEMPTS_WITH_ANOTHER_WAY: u32 = 5;
/// How long a sink that failed is left alone, where what comes can go another way.
const LEFT_ALONE: Duration = Duration::from_secs(5);

/// A sink at work.
pub(super) struct Writer {
    pub(super) sink: Box<dyn Sink>,
    pub(super) errors: Vec<Sender<Parcel>>,
    pub(super) metrics: Arc<ComponentMetrics>,
    pub(super) budget: Budget,
    pub(super) retries: Retries,
    /// Where to put the sink's state for the next save, if positions are kept.
    pub(super) state: Option<Arc<Mutex<Option<Value>>>>,
    /// Held while something is settled and the state that covers it is noted: a save sees both or neither.
    pub(super) barrier: CheckpointBarrier,
    /// Shared by the copies of a sink whose requests under way adapt.
    pub(super) limit: Option<ConcurrencyLimit>,
    /// Whether something comes from a failover, so that the run goes on without this sink.
    pub(super) is_dispensable: bool,
    pub(super) pending: Pending,
    pub(super) condition: Condition,
    pub(super) reopens: Reopens,
}

/// What makes two steps one for a save, which takes the other side of it.
pub(super) type CheckpointBarrier = Arc<RwLock<()>>;

/// How often the run was asked to begin anew, and how often the sink did.
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

/// What was written and is not in safety yet.
pub(super) struct Pending {
    written: Vec<Ack>,
    /// What the sink keeps until it says that it is in safety.
    kept: VecDeque<Ack>,
    flushed: Instant,
}

impl Default for Pending {
    fn default() -> Self {
        Self { written: Vec::new(), kept: VecDeque::new(), flushed: Instant::now() }
    }
}

impl Pending {
    fn settle(&mut self) {
        self.written.drain(..).for_each(|ack| ack.settle(Outcome::Delivered));
        self.flushed = Instant::now();
    }

    /// So many of what the sink keeps are in safety.
    fn take_committed(&mut self, count: usize) {
        let count = count.min(self.kept.len());
        self.kept.drain(..count).for_each(|ack| ack.settle(Outcome::Delivered));
    }
}

/// Whether a sink can be used.
#[derive(Default)]
pub(super) enum Condition {
    /// It can.
    #[default]
    Well,
    /// It failed, and is tried again after a while. If it could not even be opened, with what to open it.
    Failed { at: Instant, reason: String, unopened: Option<Option<Value>> },
    /// What it had written could not be brought into safety: nobody knows what would come of writing more.
    Broken { reason: String },
}

impl Condition {
    /// Why it is not to be used now.
    fn objection(&self) -> Option<&str> {
        match self {
            Condition::Failed { at, reason, .. } if at.elapsed() < LEFT_ALONE => Some(reason),
            Condition::Broken { reason } => Some(reason),
            Condition::Well | Condition::Failed { .. } => None,
        }
    }

    /// Whether there is something to finish.
    fn is_open(&self) -> bool {
        matches!(self, Condition::Well | Condition::Failed { unopened: None, .. })
    }
}

/// Opens the copies of a sink and lets them write what comes, to the end.
pub(super) async fn run(
    mut writers: Vec<Writer>,
    input: Receiver<Parcel>,
    mut saved: Option<Value>,
    metrics: Arc<ComponentMetrics>,
    shortage: Arc<Notify>,
) -> Result<(), RunFailure> {
    for writer in &mut writers {
        writer.open(saved.take()).await?;
    }
    let copies = writers.len();
    let stage = Stage::new(writers, input, metrics.hand_overs.clone()).with_rests(FLUSH_EVERY, shortage);
    if copies == 1 {
        return stage.run().await;
    }
    // Several copies only send and wait: they need no thread of their own.
    let mut tasks = JoinSet::new();
    for _ in 1..copies {
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
    type Item = Parcel;
    type Error = RunFailure;

    async fn take(&mut self, _: Ticket, parcel: Parcel) -> Result<(), RunFailure> {
        let Parcel::Messages(mut batch) = parcel else {
            return Err(
                Error::permanent("files came where messages are taken; this is a bug of thalweg").into()
            );
        };
        batch.ack_mut().enter(&self.metrics.name);
        let has_another_way = batch.ack().has_failover();
        match (has_another_way, &self.condition) {
            (true, condition) => {
                if let Some(reason) = condition.objection() {
                    batch.take_ack().fail(reason);
                    return Ok(());
                }
            }
            (false, Condition::Broken { reason }) => return Err(self.failed(Error::permanent(reason))),
            (false, _) => {}
        }
        match self.write(&batch, has_another_way).await {
            Ok((written, rejected)) => {
                self.recovered();
                let barrier = self.barrier.clone();
                let _moment = barrier.read();
                // Before it is settled: a state that is saved must not be older than the positions beside it.
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
                    // Also one of which nothing is left: the sink counts batches.
                    WriteOutcome::Staged => self.pending.kept.push_back(ack),
                }
                self.pending.take_committed(self.sink.take_committed());
            }
            Err(error) if has_another_way => {
                let reason = self.fails(error);
                self.sink.give_up();
                // What was written before it goes before it, be it this way or the other.
                let flushed = if self.pending.written.is_empty() { Ok(()) } else { self.flush().await };
                batch.take_ack().fail(&reason);
                return flushed;
            }
            Err(error) => return Err(self.failed(error)),
        }
        if !self.pending.written.is_empty() && self.pending.flushed.elapsed() >= FLUSH_EVERY {
            self.flush().await?;
        }
        Ok(())
    }

    /// What is pending is flushed at the latest after a while, and at once when it keeps the memory that a source
    /// is waiting for.
    fn is_restless(&self) -> bool {
        self.reopens.is_due()
            || self.sink.is_due()
            || !self.pending.written.is_empty()
                && (self.pending.flushed.elapsed() >= FLUSH_EVERY || self.budget.is_short())
    }

    async fn rest(&mut self) -> Result<(), RunFailure> {
        self.flush().await
    }

    async fn finish(mut self) -> Result<(), RunFailure> {
        if !self.condition.is_open() {
            return Ok(());
        }
        let mut attempt = 0;
        while let Err(error) = self.sink.finish().await {
            let most = self.attempts(self.can_break());
            if let Err(error) = self.retry(error, &mut attempt, most).await {
                return self.breaks(error);
            }
        }
        let barrier = self.barrier.clone();
        let _moment = barrier.read();
        self.note_state();
        self.pending.settle();
        self.pending.take_committed(usize::MAX);
        Ok(())
    }
}

impl Writer {
    /// Makes the sink ready to write, with the state that a former run left.
    pub(super) async fn open(&mut self, saved: Option<Value>) -> Result<(), RunFailure> {
        let mut attempt = 0;
        while let Err(error) = self.sink.open(saved.clone()).await {
            let most = self.attempts(self.is_dispensable);
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
        self.metrics.set_trouble(None);
        // Before anything is written: a crash then finds what this run began with, not what a former one left.
        self.note_state();
        Ok(())
    }

    fn failed(&self, error: Error) -> RunFailure {
        RunFailure::of(&self.metrics, error.context(format!("the sink `{}` failed", self.metrics.name)))
    }

    /// Writes a batch, again and again after temporary errors; gives what was rejected.
    async fn write(
        &mut self,
        batch: &Batch,
        has_another_way: bool,
    ) -> Result<(WriteOutcome, Vec<(u32, String)>), Error> {
        self.metrics.add_in(batch.rows(), batch.payload_bytes());
        let mut rejects = Rejects::default();
        let mut attempt = 0;
        loop {
            // For each attempt anew: the pauses between them say nothing of how much is too much.
            let permit = match self.limit.as_ref().map(|limit| limit.acquire(batch.payload_bytes() as u64)) {
                Some(permit) => Some(permit.await),
                None => None,
            };
            let start = Instant::now();
            let written = match self.reopen().await {
                Ok(()) => self.sink.write(batch, &mut rejects).await,
                Err(error) => Err(error),
            };
            self.metrics.add_busy(start);
            if let Some(permit) = permit {
                match &written {
                    Ok(_) => permit.succeeded(),
                    Err(error) if error.kind() == ErrorKind::Overloaded => permit.overloaded(),
                    Err(_) => permit.failed(),
                }
            }
            let rejected = rejects.take();
            match written {
                Ok(written) => return Ok((written, rejected)),
                Err(error) => {
                    let most = self.attempts(has_another_way);
                    self.retry(error, &mut attempt, most).await?;
                }
            }
        }
    }

    /// Opens a sink that could not be opened at the beginning.
    async fn reopen(&mut self) -> Result<(), Error> {
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

    async fn flush(&mut self) -> Result<(), RunFailure> {
        let mut attempt = 0;
        loop {
            let start = Instant::now();
            let asked = self.reopens.asked.load(Ordering::Relaxed);
            let flushed =
                if self.reopens.is_due() { self.sink.reopen().await } else { self.sink.flush().await };
            self.metrics.add_busy(start);
            match flushed {
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
        self.metrics.set_trouble(None);
        let barrier = self.barrier.clone();
        let _moment = barrier.read();
        self.note_state();
        self.pending.settle();
        self.pending.take_committed(self.sink.take_committed());
        Ok(())
    }

    /// Whether the run goes on if it is never used again: all that is not in safety can go another way.
    fn can_break(&self) -> bool {
        let mut owed = self.pending.written.iter().chain(&self.pending.kept).peekable();
        let is_known = owed.peek().is_some() || !matches!(self.condition, Condition::Well);
        is_known && owed.all(Ack::has_failover)
    }

    /// How often to try again: without end where there is no other way, and once where it failed before.
    fn attempts(&self, has_another_way: bool) -> u32 {
        match (has_another_way, &self.condition) {
            (false, _) => u32::MAX,
            (true, Condition::Well) => ATTEMPTS_WITH_ANOTHER_WAY,
            (true, _) => 0,
        }
    }

    /// Pauses after a temporary error; gives back one that trying again cannot mend.
    fn retry(
        &self,
        error: Error,
        attempt: &mut u32,
        most: u32,
    ) -> impl Future<Output = Result<(), Error>> + use<> {
        // Only what is needed is moved into the future: a sink is not `Sync`, so `self` cannot be held over a wait.
        let (retries, metrics, tried) = (self.retries.clone(), self.metrics.clone(), *attempt);
        *attempt += 1;
        async move {
            if !error.kind().is_temporary() || tried >= most {
                return Err(error);
            }
            retries.pause(&metrics, error, tried).await
        }
    }

    /// Parts with the rejected messages of a batch: they leave by `errors`. Gives back the others.
    fn part(&self, batch: Batch, rejected: Vec<(u32, String)>) -> Result<Option<Batch>, Error> {
        let (rejected, rest) = part_rejected(batch, rejected, &self.metrics.name)?;
        if let Some(batch) = rejected {
            self.metrics.add_errors(batch.rows());
            batch.claim(&self.budget);
            let Some((last, others)) = self.errors.split_last() else {
                batch.settle(Outcome::Filtered);
                return Ok(rest);
            };
            for target in others {
                let parcel = Parcel::from(batch.share());
                let bytes = parcel.bytes();
                drop(target.push(parcel, bytes));
            }
            let parcel = Parcel::from(batch);
            let bytes = parcel.bytes();
            drop(last.push(parcel, bytes));
        }
        Ok(rest)
    }

    /// Notes that it failed where what comes can go another way, and gives the reason.
    fn fails(&mut self, error: Error) -> String {
        let reason = error.full();
        self.metrics.set_trouble(Some(reason.clone()));
        if let Condition::Well = self.condition {
            let name = &self.metrics.name;
            tracing::warn!("`{name}` failed ({reason}); what comes goes another way until it works again");
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

    /// What it wrote could not be brought into safety. If all of that can go another way it does, and so does what
    /// is still to come.
    fn breaks(&mut self, error: Error) -> Result<(), RunFailure> {
        if !self.can_break() {
            return Err(self.failed(error));
        }
        let reason = error.full();
        self.metrics.set_trouble(Some(reason.clone()));
        tracing::warn!("`{}` failed ({reason}); what comes goes another way", self.metrics.name);
        self.condition = Condition::Broken { reason: reason.clone() };
        self.pending.written.drain(..).chain(self.pending.kept.drain(..)).for_each(|ack| ack.fail(&reason));
        Ok(())
    }

    fn note_state(&self) {
        let Some(slot) = &self.state else { return };
        if let Some(state) = self.sink.state() {
            *slot.lock() = Some(state);
        }
    }
}

#[cfg(test)]
mod tests;

//! A sink at work: writes, acknowledges, tries again, hands over when all else fails.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;
use thalweg_record::{Ack, Batch, Budget, Outcome, Parcel};
use thalweg_runtime::{ConcurrencyLimit, HandOver, Receiver, Sender, Stage, Ticket, Worker};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::component::{Sink, Transform, Written};
use crate::metrics::ComponentMetrics;
use crate::outlets::{Outlets, Output, Rejects, part_rejected};
use crate::{Error, ErrorKind};

use super::Retries;

/// What was written is brought into safety at least this often.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// How often a sink that has a fallback is tried before that takes over.
const ATTEMPTS_BEFORE_FALLBACK: u32 = 5;

/// A sink at work.
pub(super) struct Writer {
    pub(super) sink: Box<dyn Sink>,
    pub(super) encoder: Option<Box<dyn Transform>>,
    pub(super) fallback: Option<Sender<Parcel>>,
    pub(super) errors: Vec<Sender<Parcel>>,
    pub(super) metrics: Arc<ComponentMetrics>,
    pub(super) budget: Budget,
    pub(super) retries: Retries,
    /// Where to put the sink's state for the next save, if positions are kept.
    pub(super) state: Option<Arc<Mutex<Option<Value>>>>,
    /// Shared by the copies of a sink whose requests under way adapt.
    pub(super) limit: Option<ConcurrencyLimit>,
    pub(super) pending: Pending,
    /// Whether the sink failed for good: the fallback gets all that comes.
    pub(super) has_given_up: bool,
}

/// What was written and is not in safety yet.
pub(super) struct Pending {
    written: Vec<Unsafe>,
    flushed: Instant,
}

enum Unsafe {
    /// The duty to acknowledge it.
    Ack(Ack),
    /// The whole of it, since another sink has to write it if this one fails.
    Batch(Box<Batch>),
}

impl Default for Pending {
    fn default() -> Self {
        Self { written: Vec::new(), flushed: Instant::now() }
    }
}

impl Pending {
    fn settle(&mut self) {
        self.written.drain(..).for_each(|written| match written {
            Unsafe::Ack(ack) => ack.settle(Outcome::Delivered),
            Unsafe::Batch(batch) => batch.settle(Outcome::Delivered),
        });
        self.flushed = Instant::now();
    }
}

/// Opens the copies of a sink and lets them write what comes, to the end.
pub(super) async fn run(
    mut writers: Vec<Writer>,
    input: Receiver<Parcel>,
    mut saved: Option<Value>,
    metrics: Arc<ComponentMetrics>,
    shortage: Arc<Notify>,
) -> Result<(), Error> {
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
    type Error = Error;

    async fn take(&mut self, _: Ticket, parcel: Parcel) -> Result<(), Error> {
        if self.has_given_up {
            return self.hand_on(parcel).await;
        }
        let Parcel::Messages(mut batch) = parcel;
        batch.ack_mut().enter(&self.metrics.name);
        match self.write(&batch).await {
            Ok((written, rejected)) => {
                // Before it is settled: a state that is saved must not be older than the positions beside it.
                self.note_state();
                let batch = self.part(batch, rejected).map_err(|error| self.failed(error))?;
                if let Some(mut batch) = batch {
                    self.metrics.add_out(batch.rows(), batch.payload_bytes());
                    match written {
                        Written::Safe => batch.settle(Outcome::Delivered),
                        Written::Pending if self.fallback.is_some() => {
                            self.pending.written.push(Unsafe::Batch(batch.into()));
                        }
                        Written::Pending => self.pending.written.push(Unsafe::Ack(batch.take_ack())),
                    }
                }
            }
            Err(error) => {
                self.pending.written.push(Unsafe::Batch(batch.into()));
                return self.give_up(error).await;
            }
        }
        if !self.pending.written.is_empty() && self.pending.flushed.elapsed() >= FLUSH_EVERY {
            self.flush().await?;
        }
        Ok(())
    }

    /// What is pending is flushed at the latest after a while, and at once when it keeps the memory that a source
    /// is waiting for.
    fn is_restless(&self) -> bool {
        !self.pending.written.is_empty()
            && (self.pending.flushed.elapsed() >= FLUSH_EVERY || self.budget.is_short())
    }

    async fn rest(&mut self) -> Result<(), Error> {
        self.flush().await
    }

    async fn finish(mut self) -> Result<(), Error> {
        if self.has_given_up {
            return Ok(());
        }
        let mut attempt = 0;
        while let Err(error) = self.sink.finish().await {
            if let Err(error) = self.retry(error, &mut attempt).await {
                return self.give_up(error).await;
            }
        }
        self.note_state();
        self.pending.settle();
        Ok(())
    }
}

impl Writer {
    /// Makes the sink ready to write, with the state that a former run left.
    pub(super) async fn open(&mut self, saved: Option<Value>) -> Result<(), Error> {
        let mut attempt = 0;
        while let Err(error) = self.sink.open(saved.clone()).await {
            if let Err(error) = self.retry(error, &mut attempt).await {
                return self.give_up(error).await;
            }
        }
        // Before anything is written: a crash then finds what this run began with, not what a former one left.
        self.note_state();
        Ok(())
    }

    fn failed(&self, error: Error) -> Error {
        Error::permanent(format!("the sink `{}` failed", self.metrics.name)).caused_by(error)
    }

    /// Writes a batch, again and again after temporary errors; gives what was rejected.
    async fn write(&mut self, batch: &Batch) -> Result<(Written, Vec<(u32, String)>), Error> {
        self.metrics.add_in(batch.rows(), batch.payload_bytes());
        let encoded = self.encoder.as_mut().map(|encoder| encode(encoder.as_mut(), batch)).transpose()?;
        let mut rejects = Rejects::default();
        let mut attempt = 0;
        loop {
            // For each attempt anew: the pauses between them say nothing of how much is too much.
            let permit = match self.limit.as_ref().map(|limit| limit.acquire(batch.payload_bytes() as u64)) {
                Some(permit) => Some(permit.await),
                None => None,
            };
            let start = Instant::now();
            let written = self.sink.write(encoded.as_ref().unwrap_or(batch), &mut rejects).await;
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
                Ok(written) => {
                    if let Some(encoded) = encoded {
                        encoded.settle(Outcome::Delivered);
                    }
                    return Ok((written, rejected));
                }
                Err(error) => self.retry(error, &mut attempt).await?,
            }
        }
    }

    async fn flush(&mut self) -> Result<(), Error> {
        let mut attempt = 0;
        loop {
            let start = Instant::now();
            let flushed = self.sink.flush().await;
            self.metrics.add_busy(start);
            match flushed {
                Ok(()) => break,
                Err(error) => {
                    if let Err(error) = self.retry(error, &mut attempt).await {
                        return self.give_up(error).await;
                    }
                }
            }
        }
        self.note_state();
        self.pending.settle();
        Ok(())
    }

    /// Pauses after a temporary error; gives back one that trying again cannot mend.
    fn retry(&self, error: Error, attempt: &mut u32) -> impl Future<Output = Result<(), Error>> + use<> {
        // Only what is needed is moved into the future: a sink is not `Sync`, so `self` cannot be held over a wait.
        let given_up = self.fallback.is_some() && *attempt >= ATTEMPTS_BEFORE_FALLBACK;
        let (retries, name, tried) = (self.retries.clone(), self.metrics.name.clone(), *attempt);
        *attempt += 1;
        async move {
            if error.kind() == ErrorKind::Permanent || given_up {
                return Err(error);
            }
            retries.pause(&name, error, tried).await
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

    /// The sink failed for good. With a fallback, that gets what is not in safety and all that is still to come.
    async fn give_up(&mut self, error: Error) -> Result<(), Error> {
        if self.fallback.is_none() {
            return Err(self.failed(error));
        }
        tracing::warn!("`{}` failed ({}); the next sink takes over", self.metrics.name, error.full());
        self.has_given_up = true;
        for written in std::mem::take(&mut self.pending.written) {
            if let Unsafe::Batch(batch) = written {
                self.hand_on(Parcel::from(*batch)).await?;
            }
        }
        Ok(())
    }

    fn hand_on(&mut self, parcel: Parcel) -> impl Future<Output = Result<(), Error>> + use<> {
        let fallback = self.fallback.clone();
        let gone = Error::permanent(format!("what takes over from `{}` has ended", self.metrics.name));
        async move {
            let Some(fallback) = fallback else { return Err(gone) };
            fallback.room().await;
            let bytes = parcel.bytes();
            fallback.hand_over(parcel, bytes).map(HandOver::run).map_err(|_| gone)
        }
    }

    fn note_state(&self) {
        let Some(slot) = &self.state else { return };
        if let Some(state) = self.sink.state() {
            *slot.lock() = Some(state);
        }
    }
}

/// Encodes a batch for this sink alone, leaving the batch as it is: another sink may have to encode it anew.
fn encode(encoder: &mut dyn Transform, batch: &Batch) -> Result<Batch, Error> {
    let mut copy = batch.share();
    copy.take_ack().settle(Outcome::Filtered);
    let mut out = Outlets::new("encode".into());
    encoder.apply(copy, &mut out)?;
    let main = out.take().into_iter().filter(|(output, _)| *output == Output::Main).map(|(_, batch)| batch);
    match Batch::merge(main.collect())? {
        Some(encoded) if encoded.rows() == batch.rows() => Ok(encoded),
        // Written as they are, they would look like what the others became.
        _ => Err(Error::permanent("its encoder did not encode every message; this is a bug of thalweg")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_trait::async_trait;
    use thalweg_runtime::{Stop, channel};

    use crate::{Role, testing};

    /// Counts what it wrote.
    #[derive(Default)]
    struct Counting {
        /// How often it cannot be opened.
        refusals: u32,
        written: u64,
    }

    #[async_trait]
    impl Sink for Counting {
        async fn open(&mut self, _: Option<Value>) -> Result<(), Error> {
            match self.refusals.checked_sub(1) {
                Some(left) => {
                    self.refusals = left;
                    Err(Error::temporary("not yet"))
                }
                None => Ok(()),
            }
        }

        async fn write(&mut self, batch: &Batch, _: &mut Rejects) -> Result<Written, Error> {
            self.written += batch.rows() as u64;
            Ok(Written::Safe)
        }

        async fn flush(&mut self) -> Result<(), Error> {
            Ok(())
        }

        fn state(&self) -> Option<Value> {
            Some(self.written.into())
        }
    }

    fn writer(sink: impl Sink + 'static) -> Writer {
        Writer {
            sink: Box::new(sink),
            encoder: None,
            fallback: None,
            errors: Vec::new(),
            metrics: ComponentMetrics::new("out".into(), Role::Sink, "test"),
            budget: Budget::new(1 << 20),
            retries: Retries { stop: Stop::default(), log: Arc::default() },
            state: None,
            limit: None,
            pending: Pending::default(),
            has_given_up: false,
        }
    }

    /// Runs a sink over batches of two messages; gives what was put down as its state when each was acknowledged.
    async fn states_seen(sink: Counting, batches: usize) -> Vec<Option<Value>> {
        let (sender, input) = channel(1 << 20);
        let state: Arc<Mutex<Option<Value>>> = Arc::default();
        let seen: Arc<Mutex<Vec<Option<Value>>>> = Arc::default();
        for _ in 0..batches {
            let (state, seen) = (state.clone(), seen.clone());
            let mut batch = testing::batch(["one", "two"]);
            *batch.ack_mut() = Ack::new("test".into(), move |_| seen.lock().push(state.lock().clone()));
            sender.push(batch.into(), 6).unwrap();
        }
        drop(sender);
        let writer = Writer { state: Some(state), ..writer(sink) };
        let (metrics, shortage) = (writer.metrics.clone(), writer.budget.shortage());
        run(vec![writer], input, None, metrics, shortage).await.unwrap();
        std::mem::take(&mut seen.lock())
    }

    #[tokio::test]
    async fn the_state_has_what_is_acknowledged() {
        let seen = states_seen(Counting::default(), 2).await;
        assert_eq!(seen, [Some(Value::from(2)), Some(Value::from(4))]);
    }

    #[tokio::test]
    async fn a_sink_that_cannot_be_opened_yet_is_opened_later() {
        let sink = Counting { refusals: 1, written: 0 };
        assert_eq!(states_seen(sink, 1).await, [Some(Value::from(2))]);
    }

    /// Sends requests that take a while; refuses every seventh.
    struct Requests(Arc<Mutex<UnderWay>>);

    #[derive(Default)]
    struct UnderWay {
        now: usize,
        most: usize,
        sent: usize,
    }

    #[async_trait]
    impl Sink for Requests {
        async fn write(&mut self, _: &Batch, _: &mut Rejects) -> Result<Written, Error> {
            let number = {
                let mut under_way = self.0.lock();
                under_way.now += 1;
                under_way.most = under_way.most.max(under_way.now);
                under_way.sent += 1;
                under_way.sent
            };
            tokio::time::sleep(Duration::from_millis(10)).await;
            self.0.lock().now -= 1;
            if number.is_multiple_of(7) { Err(Error::overloaded("too much")) } else { Ok(Written::Safe) }
        }

        async fn flush(&mut self) -> Result<(), Error> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_under_way_up_to_the_limit_and_what_was_refused_is_sent_again() {
        let (sender, input) = channel(1 << 20);
        let delivered: Arc<Mutex<usize>> = Arc::default();
        for _ in 0..30 {
            let delivered = delivered.clone();
            let mut batch = testing::batch(["one"]);
            *batch.ack_mut() = Ack::new("test".into(), move |_| *delivered.lock() += 1);
            sender.push(batch.into(), 3).unwrap();
        }
        drop(sender);
        let under_way: Arc<Mutex<UnderWay>> = Arc::default();
        let limit = ConcurrencyLimit::fixed(3);
        let copy = |_| Writer { limit: Some(limit.clone()), ..writer(Requests(under_way.clone())) };
        let writers: Vec<Writer> = (0..8).map(copy).collect();
        let (metrics, shortage) = (writers[0].metrics.clone(), writers[0].budget.shortage());
        run(writers, input, None, metrics, shortage).await.unwrap();
        let under_way = under_way.lock();
        assert_eq!((*delivered.lock(), under_way.now, under_way.most), (30, 0, 3));
        assert_eq!(under_way.sent, 30 + under_way.sent / 7);
    }
}

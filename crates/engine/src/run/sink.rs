//! The task of a sink: writes, acknowledges, tries again, hands over when all else fails.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;
use thalweg_record::{Ack, Batch, Budget, Outcome, Parcel};
use thalweg_runtime::{Receiver, Sender};

use crate::component::{Sink, Transform, Written};
use crate::metrics::ComponentMetrics;
use crate::outlets::{Outlets, Output, Rejects, part_rejected};
use crate::{Error, ErrorKind};

use super::Retries;

/// What was written is brought into safety at least this often.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// How often a sink that has a fallback is tried before that takes over.
const ATTEMPTS_BEFORE_FALLBACK: u32 = 5;

pub(super) struct Task {
    pub(super) sink: Box<dyn Sink>,
    pub(super) encoder: Option<Box<dyn Transform>>,
    pub(super) input: Receiver<Parcel>,
    pub(super) fallback: Option<Sender<Parcel>>,
    pub(super) errors: Vec<Sender<Parcel>>,
    pub(super) metrics: Arc<ComponentMetrics>,
    pub(super) budget: Budget,
    pub(super) retries: Retries,
    pub(super) saved: Option<Value>,
    /// Where to put the sink's state for the next save, if positions are kept.
    pub(super) state: Option<Arc<Mutex<Option<Value>>>>,
}

/// What was written and is not in safety yet.
enum Pending {
    /// The duty to acknowledge it.
    Ack(Ack),
    /// The whole of it, since another sink has to write it if this one fails.
    Batch(Box<Batch>),
}

impl Pending {
    fn settle(self) {
        match self {
            Pending::Ack(ack) => ack.settle(Outcome::Delivered),
            Pending::Batch(batch) => batch.settle(Outcome::Delivered),
        }
    }
}

impl Task {
    pub(super) async fn run(mut self) -> Result<(), Error> {
        let name = self.metrics.name.clone();
        let mut pending = Vec::new();
        let served = match self.serve(&mut pending).await {
            Err(error) => self.hand_over(error, pending).await,
            Ok(()) => Ok(()),
        };
        served.map_err(|error| Error::permanent(format!("the sink `{name}` failed")).caused_by(error))
    }

    /// Writes all there is. Where it fails for good, `pending` has what is not in safety, in order.
    async fn serve(&mut self, pending: &mut Vec<Pending>) -> Result<(), Error> {
        let saved = self.saved.take();
        let mut attempt = 0;
        while let Err(error) = self.sink.open(saved.clone()).await {
            self.retry(error, &mut attempt).await?;
        }
        // Before anything is written: a crash then finds what this run began with, not what a former one left.
        self.note_state();
        let mut flushed = Instant::now();
        loop {
            let parcel = match self.input.try_take() {
                Some(taken) => Some(taken),
                None if pending.is_empty() => self.input.take().await,
                None => {
                    // Nothing waits. What is pending is flushed at the latest after a while, and at once when it
                    // keeps the memory that a source is waiting for.
                    let wait = FLUSH_EVERY.saturating_sub(flushed.elapsed());
                    let wait = if self.budget.is_short() { Duration::ZERO } else { wait };
                    match tokio::time::timeout(wait, self.input.take()).await {
                        Ok(taken) => taken,
                        Err(_) => {
                            self.flush(pending).await?;
                            flushed = Instant::now();
                            continue;
                        }
                    }
                }
            };
            let Some((_, Parcel::Messages(mut batch))) = parcel else { break };
            batch.ack_mut().enter(&self.metrics.name);
            match self.write(&batch).await {
                Ok((written, rejected)) => {
                    // Before it is settled: a state that is saved must not be older than the positions beside it.
                    self.note_state();
                    if let Some(mut batch) = self.part(batch, rejected)? {
                        self.metrics.add_out(batch.rows(), batch.payload_bytes());
                        match written {
                            Written::Safe => batch.settle(Outcome::Delivered),
                            Written::Pending if self.fallback.is_some() => {
                                pending.push(Pending::Batch(batch.into()));
                            }
                            Written::Pending => pending.push(Pending::Ack(batch.take_ack())),
                        }
                    }
                }
                Err(error) => {
                    pending.push(Pending::Batch(batch.into()));
                    return Err(error);
                }
            }
            if !pending.is_empty() && flushed.elapsed() >= FLUSH_EVERY {
                self.flush(pending).await?;
                flushed = Instant::now();
            }
            tokio::task::coop::consume_budget().await;
        }
        let mut attempt = 0;
        while let Err(error) = self.sink.finish().await {
            self.retry(error, &mut attempt).await?;
        }
        self.note_state();
        pending.drain(..).for_each(Pending::settle);
        Ok(())
    }

    /// Writes a batch, again and again after temporary errors; gives what was rejected.
    async fn write(&mut self, batch: &Batch) -> Result<(Written, Vec<(u32, String)>), Error> {
        self.metrics.add_in(batch.rows(), batch.payload_bytes());
        let encoded = self.encoder.as_mut().map(|encoder| encode(encoder.as_mut(), batch)).transpose()?;
        let mut rejects = Rejects::default();
        let mut attempt = 0;
        loop {
            let start = Instant::now();
            let written = self.sink.write(encoded.as_ref().unwrap_or(batch), &mut rejects).await;
            self.metrics.add_busy(start);
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

    async fn flush(&mut self, pending: &mut Vec<Pending>) -> Result<(), Error> {
        let mut attempt = 0;
        loop {
            let start = Instant::now();
            let flushed = self.sink.flush().await;
            self.metrics.add_busy(start);
            match flushed {
                Ok(()) => break,
                Err(error) => self.retry(error, &mut attempt).await?,
            }
        }
        self.note_state();
        pending.drain(..).for_each(Pending::settle);
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

    /// This sink failed for good. With a fallback, that gets what is not in safety and all that is still to come.
    async fn hand_over(self, error: Error, pending: Vec<Pending>) -> Result<(), Error> {
        let Some(fallback) = &self.fallback else { return Err(error) };
        tracing::warn!("`{}` failed ({}); the next sink takes over", self.metrics.name, error.full());
        let mut held = pending.into_iter().filter_map(|pending| match pending {
            Pending::Batch(batch) => Some(Parcel::from(*batch)),
            Pending::Ack(_) => None,
        });
        loop {
            let parcel = match held.next() {
                Some(parcel) => parcel,
                None => match self.input.take().await {
                    Some((_, parcel)) => parcel,
                    None => return Ok(()),
                },
            };
            fallback.room().await;
            let bytes = parcel.bytes();
            if fallback.push(parcel, bytes).is_err() {
                return Err(error);
            }
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
        let task = Task {
            sink: Box::new(sink),
            encoder: None,
            input,
            fallback: None,
            errors: Vec::new(),
            metrics: ComponentMetrics::new("out".into(), Role::Sink, "counting"),
            budget: Budget::new(1 << 20),
            retries: Retries { stop: Stop::default(), log: Arc::default() },
            saved: None,
            state: Some(state),
        };
        task.run().await.unwrap();
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
}

//! Messages that a source read, and how they were settled.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow_array::{BinaryViewArray, RecordBatch, UInt64Array};
use thalweg_record::{Ack, Batch, Meta, Outcome, Settlement};
use tokio::sync::oneshot;

use crate::Error;
use crate::metrics::ComponentMetrics;
use crate::positions::Checkpoint;
use crate::run::saves::Saves;

/// Messages that a source read.
#[derive(Debug)]
pub struct Reading {
    /// The payloads.
    pub payload: BinaryViewArray,
    /// The file or address of the messages.
    pub path: Option<Arc<str>>,
    /// Where in it each message begins.
    pub positions: Option<UInt64Array>,
    /// Where to resume once the messages are settled. A reading without a checkpoint is lost if the run is
    /// killed.
    pub checkpoint: Option<Checkpoint>,
}

/// A [`Reading`] and the fields that came with its messages: what a protocol says of them.
#[derive(Debug)]
pub struct Received {
    /// The messages.
    pub reading: Reading,
    /// Their fields, if there are any: a row for each message.
    pub fields: Option<RecordBatch>,
}

impl From<Reading> for Received {
    fn from(reading: Reading) -> Self {
        Self { reading, fields: None }
    }
}

impl Received {
    /// Keeps the first messages, without the checkpoint, which is after all of them.
    pub(super) fn truncate(&mut self, rows: usize) {
        let reading = &mut self.reading;
        reading.payload = reading.payload.slice(0, rows);
        reading.positions = reading.positions.as_ref().map(|positions| positions.slice(0, rows));
        reading.checkpoint = None;
        self.fields = self.fields.as_ref().map(|fields| fields.slice(0, rows));
    }

    pub(super) fn into_batch(self, meta: Arc<Meta>, ack: Ack) -> Result<Batch, Error> {
        let Received { reading, fields } = self;
        let mut batch = Batch::new(reading.payload, meta, ack);
        if let Some(positions) = reading.positions {
            batch = batch.with_positions(positions)?;
        }
        match fields {
            Some(fields) => Ok(batch.with_fields(fields)?),
            None => Ok(batch),
        }
    }
}

/// A future of how a reading was settled. It is ready once all of the reading has ended somewhere, and stays
/// there even if the process is killed now: see
/// [`SourceOutput::send_acked`](super::SourceOutput::send_acked).
pub struct Settled(Pin<Box<dyn Future<Output = Settlement> + Send>>);

impl Settled {
    /// Ready at once, with a failure: the sender keeps what it sent.
    pub(super) fn refused(reason: &str) -> Self {
        let settlement = Settlement { outcome: Outcome::Failed, rejected: 0, reason: Some(reason.into()) };
        Self(Box::pin(std::future::ready(settlement)))
    }

    pub(super) fn new(settled: oneshot::Receiver<Settlement>, saves: Option<Saves>) -> Self {
        Self(Box::pin(async move {
            // Acks answer even when they are dropped, so this is never needed. Failure would be the safe
            // guess.
            let failed = |reason| Settlement { outcome: Outcome::Failed, rejected: 0, reason };
            let settlement = settled.await.unwrap_or_else(|_| failed(None));
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

/// Counts how much was read of what a source sent to be read later.
#[derive(Debug, Clone)]
pub struct Meter(pub(super) Arc<ComponentMetrics>);

impl Meter {
    /// Adds bytes that were read of those expected.
    pub fn add_progress(&self, bytes: u64) {
        self.0.add_progress(bytes);
    }
}

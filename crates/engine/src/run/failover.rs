//! A failover at work: what one way does not deliver goes the next.
//!
//! A batch is sent on as a copy over the same memory, with an acknowledgement of its own. If that is settled well, so
//! is the batch; if it fails, the batch as it was is sent the next way. So a way may be anything: a sink, or a
//! pipeline with all it leads to. A way of which one part was delivered and another failed is repeated as a whole by the
//! next: messages may then be delivered twice, but never not at all.

use std::sync::Arc;
use std::time::Duration;

use thalweg_record::{Ack, Batch, Outcome, Parcel};
use thalweg_runtime::{HandOver, Sender, Ticket, Worker};

use crate::Error;
use crate::metrics::ComponentMetrics;

use super::RunFailure;

/// One of the ways, and those after it. It does not know those before: what waits for a way to be settled must not
/// keep the way itself from coming to its end.
pub(super) struct Way {
    stages: Vec<Sender<Parcel>>,
    next: Option<Arc<Way>>,
    metrics: Arc<ComponentMetrics>,
}

impl Way {
    /// The first of these ways, each of which leads to some stages.
    pub(super) fn first_of(
        ways: impl DoubleEndedIterator<Item = Vec<Sender<Parcel>>>,
        metrics: &Arc<ComponentMetrics>,
    ) -> Option<Arc<Self>> {
        ways.rev().fold(None, |next, stages| Some(Arc::new(Way { stages, next, metrics: metrics.clone() })))
    }

    fn has_room(&self) -> bool {
        self.stages.iter().all(Sender::has_room)
    }

    async fn room(&self) {
        for stage in &self.stages {
            stage.room().await;
        }
    }

    /// What is to be sent this way: a copy whose failure sends the batch the next, or the batch if there is none.
    fn guard(&self, batch: Batch) -> Batch {
        let Some(next) = self.next.clone() else { return batch };
        let mut copy = batch.with_ack(Ack::noop());
        *copy.ack_mut() = Ack::with_failover(self.metrics.name.clone(), move |settlement| {
            if settlement.outcome.is_safe() {
                batch.settle(settlement.outcome);
            } else {
                next.take_over(batch);
            }
        });
        copy
    }

    /// Sends a batch this way since the one before failed. This may be in the middle of anything, so it only goes into
    /// the channels.
    fn take_over(&self, batch: Batch) {
        self.metrics.add_errors(batch.rows());
        self.give(batch, |stage, parcel, bytes| drop(stage.push(parcel, bytes)));
    }

    /// Where nobody takes it any more, it is dropped, and by that fails: the run is ending, or it goes the next way.
    fn give(&self, batch: Batch, give: impl Fn(&Sender<Parcel>, Parcel, usize)) {
        let batch = self.guard(batch);
        let Some((last, others)) = self.stages.split_last() else {
            return batch.settle(Outcome::Filtered);
        };
        for stage in others {
            let parcel = Parcel::from(batch.share());
            let bytes = parcel.bytes();
            give(stage, parcel, bytes);
        }
        let parcel = Parcel::from(batch);
        let bytes = parcel.bytes();
        give(last, parcel, bytes);
    }
}

/// What takes a failover's input.
pub(super) struct Failover {
    pub(super) first: Arc<Way>,
    /// How long to wait until a way has room, if not for ever.
    pub(super) timeout: Option<Duration>,
    /// Whether the wait for the next batch was too long.
    pub(super) has_waited: bool,
}

impl Failover {
    /// The ways, the preferred one first.
    fn ways(&self) -> impl Iterator<Item = &Arc<Way>> {
        std::iter::successors(Some(&self.first), |way| way.next.as_ref())
    }
}

impl Worker for Failover {
    type Item = Parcel;
    type Error = RunFailure;

    /// What fails goes into the channels of the later ways without a wait, so these must have room as well.
    fn has_room(&self) -> bool {
        match self.timeout {
            None => self.ways().all(|way| way.has_room()),
            Some(timeout) => {
                self.first.has_room()
                    || (self.has_waited || timeout.is_zero()) && self.ways().any(|way| way.has_room())
            }
        }
    }

    async fn room(&mut self) {
        let ways: Vec<Arc<Way>> = self.ways().cloned().collect();
        match self.timeout {
            None => {
                for way in ways {
                    way.room().await;
                }
            }
            // The last one is waited for however long it takes.
            Some(timeout) => {
                for way in &ways {
                    if way.next.is_none() {
                        way.room().await;
                    } else if tokio::time::timeout(timeout, way.room()).await.is_err() {
                        self.has_waited = true;
                        continue;
                    }
                    break;
                }
            }
        }
    }

    async fn take(&mut self, _: Ticket, parcel: Parcel) -> Result<(), RunFailure> {
        let Parcel::Messages(mut batch) = parcel else {
            return Err(
                Error::permanent("files came where messages are taken; this is a bug of thalweg").into()
            );
        };
        let metrics = &self.first.metrics;
        batch.ack_mut().enter(&metrics.name);
        metrics.add_in(batch.rows(), batch.payload_bytes());
        metrics.add_out(batch.rows(), batch.payload_bytes());
        self.has_waited = false;
        let first = self.timeout.and_then(|_| self.ways().find(|way| way.has_room()));
        match first.filter(|way| !Arc::ptr_eq(way, &self.first)) {
            Some(later) => later.take_over(batch),
            None => self.first.give(batch, |stage, parcel, bytes| {
                drop(stage.hand_over(parcel, bytes).map(HandOver::run));
            }),
        }
        Ok(())
    }

    async fn finish(self) -> Result<(), RunFailure> {
        Ok(())
    }
}

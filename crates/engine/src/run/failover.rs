//! A failover: a batch that one target fails to deliver goes to the next.
//!
//! A batch is sent as a copy over the same memory, with an ack of its own. If the copy is delivered, so is
//! the batch. If the copy fails, the original batch is sent the next way. So a way may be anything: a sink,
//! or a pipeline with all that it leads to. If one part of a way delivers and another fails, the next way
//! gets the whole batch: messages may then be delivered twice, but they are never lost.
//!
//! See docs/decisions/013-a-failover-watches-acks.md.

use std::sync::Arc;
use std::time::Duration;

use thalweg_record::{Ack, Batch, Outcome};
use thalweg_runtime::{HandOver, Sender, Ticket, Worker};

use super::RunFailure;
use super::edges::Port;
use crate::metrics::ComponentMetrics;
use crate::parcel::shares;

/// One of the ways, and those after it. It does not know those before: a batch that waits for a way to be
/// settled must not keep that way from ending.
pub(super) struct Way {
    stages: Vec<Sender<Batch>>,
    next: Option<Arc<Way>>,
    metrics: Arc<ComponentMetrics>,
    /// Counts and shows what goes this way.
    port: Option<Arc<Port>>,
}

impl Way {
    /// The first of these ways, each of which leads to some stages through a port.
    pub(super) fn first_of(
        ways: impl DoubleEndedIterator<Item = (Vec<Sender<Batch>>, Option<Arc<Port>>)>,
        metrics: &Arc<ComponentMetrics>,
    ) -> Option<Arc<Self>> {
        ways.rev().fold(None, |next, (stages, port)| {
            Some(Arc::new(Way { stages, next, metrics: metrics.clone(), port }))
        })
    }

    fn has_room(&self) -> bool {
        self.stages.iter().all(Sender::has_room)
    }

    async fn room(&self) {
        for stage in &self.stages {
            stage.room().await;
        }
    }

    /// The batch to send this way: a copy whose failure sends the batch the next way, or the batch if there
    /// is none.
    fn guard(&self, mut batch: Batch) -> Batch {
        let Some(next) = self.next.clone() else { return batch };
        let mut copy = batch.with_ack(Ack::noop());
        let observer = batch.ack().observer();
        let ack = Ack::with_failover(self.metrics.name.clone(), move |settlement| match settlement.outcome {
            // Not all of its messages, if only some were.
            Outcome::Rejected => batch.take_ack().reject(settlement.rejected),
            outcome if outcome.is_safe() => batch.settle(outcome),
            _ => next.take_over(batch),
        });
        *copy.ack_mut() = match observer {
            Some(observer) => ack.observed(observer),
            None => ack,
        };
        copy
    }

    /// Sends a batch this way because the one before failed. The caller may be in the middle of anything, so
    /// the batch only goes into the channels.
    fn take_over(&self, batch: Batch) {
        self.metrics.add_errors(batch.rows());
        self.give(batch, |stage, batch, bytes| drop(stage.push(batch, bytes)));
    }

    /// A stage that has ended drops the batch, which thereby fails: the run is ending, or the batch goes the
    /// next way.
    fn give(&self, batch: Batch, give: impl Fn(&Sender<Batch>, Batch, usize)) {
        if let Some(port) = &self.port {
            port.pass(&batch, batch.rows(), batch.payload_bytes());
        }
        let batch = self.guard(batch);
        for (stage, batch) in self.stages.iter().zip(shares(batch, self.stages.len())) {
            let bytes = batch.payload_bytes();
            give(stage, batch, bytes);
        }
    }
}

/// The worker of a failover.
pub(super) struct Failover {
    pub(super) first: Arc<Way>,
    /// How long to wait until a way has room. None: without end.
    pub(super) timeout: Option<Duration>,
    /// True if the wait for the next batch was too long.
    pub(super) has_waited: bool,
}

impl Failover {
    /// The ways, the preferred one first.
    fn ways(&self) -> impl Iterator<Item = &Arc<Way>> {
        std::iter::successors(Some(&self.first), |way| way.next.as_ref())
    }
}

impl Worker for Failover {
    type Item = Batch;
    type Error = RunFailure;

    /// A batch that fails goes into the channels of the later ways without a wait, so these must have room as
    /// well.
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
            // The wait for the last way has no limit.
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

    async fn take(&mut self, _: Ticket, mut batch: Batch) -> Result<(), RunFailure> {
        let metrics = &self.first.metrics;
        batch.enter(&metrics.name);
        metrics.add_in(batch.rows(), batch.payload_bytes());
        metrics.add_out(batch.rows(), batch.payload_bytes());
        self.has_waited = false;
        let first = self.timeout.and_then(|_| self.ways().find(|way| way.has_room()));
        match first.filter(|way| !Arc::ptr_eq(way, &self.first)) {
            Some(later) => later.take_over(batch),
            None => self.first.give(batch, |stage, batch, bytes| {
                drop(stage.hand_over(batch, bytes).map(HandOver::run));
            }),
        }
        Ok(())
    }

    async fn finish(self) -> Result<(), RunFailure> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use thalweg_record::Settlement;
    use thalweg_runtime::channel;

    use super::*;
    use crate::run::traces::Traces;
    use crate::{Role, testing};

    #[tokio::test]
    async fn a_batch_of_which_a_way_rejects_a_part_has_that_many_rejected_messages() {
        let ((to, sink), (other, _)) = (channel(usize::MAX), channel(usize::MAX));
        let metrics = ComponentMetrics::new("failover".into(), Role::Transform, "test");
        let first = Way::first_of([(vec![to], None), (vec![other], None)].into_iter(), &metrics).unwrap();
        let settled: Arc<Mutex<Option<Settlement>>> = Arc::default();
        let noted = settled.clone();
        let ack = Ack::new("in".into(), move |settlement| *noted.lock() = Some(settlement));
        let batch = testing::batch_with(["a", "b", "c"], ack);
        first.give(batch, |stage, batch, bytes| drop(stage.push(batch, bytes)));
        let copy = sink.take().await.unwrap().item.take_ack();
        copy.split().reject(1);
        copy.settle(Outcome::Delivered);
        let expected = Settlement { outcome: Outcome::Rejected, rejected: 1, reason: None };
        assert_eq!(*settled.lock(), Some(expected));
    }

    /// A way has an ack of its own, so a trace would end at the failover.
    #[tokio::test]
    async fn the_observer_of_a_batch_sees_each_way() {
        let ((to, sink), (other, _)) = (channel(usize::MAX), channel(usize::MAX));
        let metrics = ComponentMetrics::new("failover".into(), Role::Transform, "test");
        let first = Way::first_of([(vec![to], None), (vec![other], None)].into_iter(), &metrics).unwrap();
        let traces = Arc::new(Traces::default());
        traces.sample(1.0);
        let trace = traces.begin(&"in".into(), 1).unwrap();
        let batch = testing::batch_with(["a"], Ack::new("in".into(), |_| {}).observed(trace));
        first.give(batch, |stage, batch, bytes| drop(stage.push(batch, bytes)));
        let mut batch = sink.take().await.unwrap().item;
        assert!(batch.ack().observer().is_some());
        batch.take_ack().settle(Outcome::Delivered);
    }
}

//! The records of a batch on their way to the broker.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use thalweg_broker::outcomes::{self, Outcomes};
use thalweg_engine::Error;
use thalweg_record::{Batch, Lease};

use super::records::Records;
use super::refusals::Suspicion;
use crate::client::{Failure, Outgoing, Producer};

/// How long a closed producer may take to give each record its outcome.
const RECALL: Duration = Duration::from_secs(1);

/// The outcomes of the records of a batch. After a temporary error, the engine calls the sink with the same
/// batch, which is recognised by the address of its payload views.
pub(super) struct Pending<D> {
    rows: Outcomes<Way<D>>,
    missing: Missing,
    /// True if the producer gave up records, or takes none any more.
    is_lost: bool,
}

/// Where a record is that has no outcome.
enum Way<D> {
    /// Queued.
    Queued(D),
    /// Refused with others, for a reason that may be that of another record.
    Suspected,
}

type Row<D> = outcomes::Row<Way<D>>;

/// Returns what an outcome makes of a queued record, and the failure if the record must be sent again.
fn after<D>(outcome: Result<(), Failure>, waits_for_topic: bool) -> (Row<D>, Option<Failure>) {
    match outcome {
        Ok(()) => (Row::Done, None),
        Err(Failure::Refused(reason)) => (Row::Refused(reason), None),
        Err(Failure::NoTopic(reason)) if !waits_for_topic => (Row::Refused(reason), None),
        Err(Failure::RefusedTogether(_)) => (Row::Underway(Way::Suspected), None),
        Err(failure) => (Row::Unsent, Some(failure)),
    }
}

impl<D> Default for Pending<D> {
    fn default() -> Self {
        Self { rows: Outcomes::default(), missing: Missing::default(), is_lost: false }
    }
}

impl<D: Future<Output = Result<(), Failure>> + Send + Unpin> Pending<D> {
    /// Begins a batch, or continues it if it is the same as before. Returns true if it is another one.
    pub(super) fn begin(&mut self, batch: &Batch, claim: impl FnOnce() -> Lease) -> bool {
        let is_another = self.rows.are_of_another(batch);
        if is_another {
            self.rows.begin(batch, claim());
            self.is_lost = false;
        }
        is_another
    }

    /// The number of records that were confirmed or refused.
    pub(super) fn settled(&self) -> usize {
        self.rows.settled()
    }

    /// True if queued records have no outcome.
    pub(super) fn is_any(&self) -> bool {
        self.rows.iter().any(|row| matches!(row, Row::Underway(Way::Queued(_))))
    }

    /// True if another producer is needed, since the last call.
    pub(super) fn take_is_lost(&mut self) -> bool {
        std::mem::take(&mut self.is_lost)
    }

    /// Sends all records of the batch, and waits for their outcomes.
    ///
    /// # Errors
    /// If some have no outcome within `timeout`, or must be sent again.
    pub(super) async fn send<P: Producer<Delivery = D>>(
        &mut self,
        producer: &P,
        records: &mut Records,
        batch: &Batch,
        timeout: Duration,
    ) -> Result<(), Error> {
        self.queue(producer, records, batch, timeout).await?;
        self.settle(producer, records.has_one_topic(), timeout).await?;
        self.send_suspects(producer, records, batch, timeout).await
    }

    /// Queues all records that are not queued yet, in order.
    async fn queue<P: Producer<Delivery = D>>(
        &mut self,
        producer: &P,
        records: &mut Records,
        batch: &Batch,
        timeout: Duration,
    ) -> Result<(), Error> {
        if !self.rows.iter().any(|row| matches!(row, Row::Unsent)) {
            return Ok(());
        }
        let waits_for_topic = records.has_one_topic();
        let mut made = records.bind(batch);
        for (number, row) in self.rows.iter_mut().enumerate() {
            if !matches!(row, Row::Unsent) {
                continue;
            }
            let queued = match made.record(number) {
                Ok(record) => match made.suspicion(number, &record) {
                    None => self.missing.queue(producer, record, waits_for_topic).await,
                    Some(suspicion) => cleared(producer, record, suspicion, timeout).await,
                },
                Err(reason) => Ok(Row::Refused(reason)),
            };
            *row = queued.map_err(|failure| {
                self.is_lost |= matches!(failure, Failure::Lost(_));
                failure.error("records cannot be sent")
            })?;
        }
        Ok(())
    }

    /// Waits for the outcomes of what is queued.
    async fn settle<P: Producer<Delivery = D>>(
        &mut self,
        producer: &P,
        waits_for_topic: bool,
        timeout: Duration,
    ) -> Result<(), Error> {
        // It may end late: then each record is asked for its outcome nevertheless.
        let _ = tokio::time::timeout(timeout, producer.flush()).await;
        let mut error = None;
        let mut waiting = 0;
        for row in self.rows.iter_mut() {
            let Row::Underway(Way::Queued(delivery)) = row else { continue };
            match outcome(delivery).await {
                None => waiting += 1,
                Some(outcome) => {
                    let (now, failure) = after(outcome, waits_for_topic);
                    *row = now;
                    error = failure.or(error);
                }
            }
        }
        if let Some(failure) = error {
            // The producer repeats requests by itself: what it gives up is for another one.
            self.is_lost = true;
            return Err(failure.error("the broker did not take records"));
        }
        match waiting {
            0 => Ok(()),
            _ => Err(Error::overloaded(format!(
                "the broker did not confirm {waiting} records within {} s",
                timeout.as_secs_f64()
            ))),
        }
    }

    /// Notes the outcomes that a closed producer still gives. Records without one are sent again: all that
    /// were not confirmed, so that they keep their order.
    pub(super) async fn recall(&mut self) {
        let deadline = tokio::time::Instant::now() + RECALL;
        for row in self.rows.iter_mut() {
            let Row::Underway(Way::Queued(delivery)) = row else { continue };
            *row = match tokio::time::timeout_at(deadline, delivery).await {
                Ok(outcome) => after(outcome, true).0,
                Err(_) => Row::Unsent,
            };
        }
    }

    /// Sends each record by itself that was refused with others: only those that are refused again are to
    /// blame.
    async fn send_suspects<P: Producer<Delivery = D>>(
        &mut self,
        producer: &P,
        records: &mut Records,
        batch: &Batch,
        timeout: Duration,
    ) -> Result<(), Error> {
        for number in 0..self.rows.len() {
            if !matches!(self.rows[number], Row::Underway(Way::Suspected)) {
                continue;
            }
            let record = records.bind(batch).record(number).map_err(Error::permanent)?;
            self.rows[number] = alone(producer, record, timeout).await.map_err(|failure| {
                self.is_lost |= !matches!(failure, Failure::NoTopic(_));
                failure.error("the broker did not take a record")
            })?;
            if matches!(self.rows[number], Row::Underway(Way::Queued(_))) {
                return Err(Error::overloaded("the broker did not confirm a record"));
            }
        }
        Ok(())
    }

    /// Notes the outcomes that are known, without waiting for others.
    pub(super) async fn note_outcomes(&mut self) {
        for row in self.rows.iter_mut() {
            let Row::Underway(Way::Queued(delivery)) = row else { continue };
            if let Some(outcome) = outcome(delivery).await {
                *row = after(outcome, true).0;
            }
        }
    }

    /// Returns the rows that were refused so far, and for what reason: none of a row that was refused with
    /// others.
    pub(super) async fn refused(&mut self) -> Vec<(usize, Option<String>)> {
        self.note_outcomes().await;
        let rows = self.rows.iter().enumerate();
        let refused = rows.filter_map(|(number, row)| match row {
            Row::Refused(reason) => Some((number, Some(reason.clone()))),
            Row::Underway(Way::Suspected) => Some((number, None)),
            Row::Unsent | Row::Underway(Way::Queued(_)) | Row::Done => None,
        });
        refused.collect()
    }

    /// Refuses all records without an outcome.
    pub(super) fn refuse_rest(&mut self, reason: &str) {
        self.rows.refuse_rest(reason);
    }

    /// Ends the batch, all of whose records have an outcome. Returns the refused rows in order.
    pub(super) fn finish(&mut self) -> Vec<(u32, String)> {
        self.rows.finish()
    }
}

/// The topics that were missing a short while ago. The client waits for each record of a missing topic.
#[derive(Default)]
struct Missing(HashMap<String, (Instant, String)>);

impl Missing {
    /// How long a topic counts as missing, and the number of topics that are remembered.
    const VALID: Duration = Duration::from_secs(60);
    const MOST: usize = 1000;

    /// Queues a record, unless its topic is missing. A topic that is the same for all messages is waited for:
    /// it may be created, or the user be allowed to use it.
    async fn queue<P: Producer>(
        &mut self,
        producer: &P,
        record: Outgoing,
        waits_for_topic: bool,
    ) -> Result<Row<P::Delivery>, Failure> {
        if let Some(reason) = self.reason(&record.topic) {
            return Ok(Row::Refused(reason));
        }
        let topic = record.topic.clone();
        match producer.queue(record).await {
            Ok(delivery) => Ok(Row::Underway(Way::Queued(delivery))),
            Err(Failure::NoTopic(reason)) if !waits_for_topic => {
                self.add(topic, reason.clone());
                Ok(Row::Refused(reason))
            }
            Err(Failure::Refused(reason) | Failure::RefusedTogether(reason)) => Ok(Row::Refused(reason)),
            Err(failure) => Err(failure),
        }
    }

    fn add(&mut self, topic: String, reason: String) {
        if self.0.len() >= Self::MOST {
            self.0.clear();
        }
        self.0.insert(topic, (Instant::now(), reason));
    }

    fn reason(&self, topic: &str) -> Option<String> {
        let (since, reason) = self.0.get(topic)?;
        (since.elapsed() < Self::VALID).then(|| reason.clone())
    }
}

/// Sends a record by itself, and waits for its outcome: if it is refused, it is to blame.
async fn alone<P: Producer>(
    producer: &P,
    record: Outgoing,
    timeout: Duration,
) -> Result<Row<P::Delivery>, Failure> {
    // Those before it are not in its request.
    let _ = tokio::time::timeout(timeout, producer.flush()).await;
    let mut delivery = match producer.queue(record).await {
        Ok(delivery) => delivery,
        Err(Failure::Refused(reason) | Failure::RefusedTogether(reason)) => return Ok(Row::Refused(reason)),
        Err(failure) => return Err(failure),
    };
    let _ = tokio::time::timeout(timeout, producer.flush()).await;
    match outcome(&mut delivery).await {
        None => Ok(Row::Underway(Way::Queued(delivery))),
        Some(Ok(())) => Ok(Row::Done),
        Some(Err(Failure::Refused(reason) | Failure::RefusedTogether(reason))) => Ok(Row::Refused(reason)),
        Some(Err(failure)) => Err(failure),
    }
}

/// Sends a record by itself that was refused with others, and is known for it no longer if it is stored.
async fn cleared<P: Producer>(
    producer: &P,
    record: Outgoing,
    suspicion: Suspicion<'_>,
    timeout: Duration,
) -> Result<Row<P::Delivery>, Failure> {
    let row = alone(producer, record.clone(), timeout).await?;
    if matches!(row, Row::Done) {
        suspicion.clear(&record);
    }
    Ok(row)
}

/// Returns the outcome of a record, if it is known. Outside of tokio's budget: otherwise each record after
/// the 128th of a batch would seem to have none.
async fn outcome<D: Future + Unpin>(delivery: &mut D) -> Option<D::Output> {
    let known = poll_fn(|context| match Pin::new(&mut *delivery).poll(context) {
        Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
        Poll::Pending => Poll::Ready(None),
    });
    tokio::task::unconstrained(known).await
}

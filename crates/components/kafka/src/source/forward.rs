//! From records to messages.

use std::pin::pin;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryViewArray, BooleanArray, Int64Array, StringViewArray, TimestampMicrosecondArray,
    UInt64Array,
};
use arrow_schema::{DataType, Field as Column, TimeUnit};
use thalweg_config::{ByteSize, List};
use thalweg_engine::{Checkpoint, Error, Reading, Received, SourceOutput};
use thalweg_stream::whole::{self, Whole};
use tokio::sync::mpsc;

use super::ledger::Ledger;
use super::membership::Membership;
use crate::client::Incoming;
use crate::client::rust::RustConnector;

/// A part of a record that becomes a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Field {
    Topic,
    Partition,
    Offset,
    Timestamp,
    Key,
    Tombstone,
    Header(String),
}

impl Field {
    /// Returns the part with this name, if there is one.
    pub(super) fn new(name: &str) -> Option<Self> {
        Some(match name {
            "topic" => Self::Topic,
            "partition" => Self::Partition,
            "offset" => Self::Offset,
            "timestamp" => Self::Timestamp,
            "key" => Self::Key,
            "tombstone" => Self::Tombstone,
            other => Self::Header(other.strip_prefix("header.").filter(|name| !name.is_empty())?.to_owned()),
        })
    }

    /// Returns the description of the column of this part.
    pub(super) fn described(&self, name: &str) -> Column {
        let kind = match self {
            Self::Topic | Self::Key | Self::Header(_) => DataType::Utf8View,
            Self::Partition | Self::Offset => DataType::Int64,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Tombstone => DataType::Boolean,
        };
        Column::new(name, kind, true)
    }

    /// Returns this part of some records as a column.
    fn column(&self, records: &[Incoming]) -> ArrayRef {
        let text =
            |value: Option<&bytes::Bytes>| value.map(|value| String::from_utf8_lossy(value).into_owned());
        match self {
            Self::Topic => {
                let topics = records.iter().map(|record| Some(&*record.partition.topic));
                Arc::new(topics.collect::<StringViewArray>())
            }
            Self::Partition => {
                let numbers = records.iter().map(|record| i64::from(record.partition.number));
                Arc::new(Int64Array::from_iter_values(numbers))
            }
            Self::Offset => {
                Arc::new(Int64Array::from_iter_values(records.iter().map(|record| record.offset)))
            }
            Self::Timestamp => {
                let times = records.iter().map(|record| record.timestamp.saturating_mul(1000));
                Arc::new(TimestampMicrosecondArray::from_iter_values(times).with_timezone("UTC"))
            }
            Self::Key => {
                let keys = records.iter().map(|record| text(record.key.as_ref()));
                Arc::new(keys.collect::<StringViewArray>())
            }
            Self::Tombstone => {
                Arc::new(records.iter().map(|record| Some(record.value.is_none())).collect::<BooleanArray>())
            }
            Self::Header(name) => {
                let values = records.iter().map(|record| {
                    let header = record.headers.iter().find(|(known, _)| known == name);
                    text(header.and_then(|(_, value)| value.as_ref()))
                });
                Arc::new(values.collect::<StringViewArray>())
            }
        }
    }
}

/// Records that were read together.
pub(super) struct Answer {
    pub(super) records: Vec<Incoming>,
    /// The number of changes of partitions before, as [`Membership::note`] returns it.
    pub(super) changes: u64,
}

/// Passes records on as messages.
pub(super) struct Forward {
    out: SourceOutput,
    fields: Vec<(String, Field)>,
    whole: Whole,
    membership: Arc<Membership>,
}

impl Forward {
    pub(super) fn new(
        out: SourceOutput,
        fields: &List<String>,
        max_message_bytes: ByteSize,
        membership: Arc<Membership>,
    ) -> Self {
        let fields = fields.iter().filter_map(|name| Some((name.clone(), Field::new(name)?)));
        Self { out, fields: fields.collect(), whole: Whole::new(max_message_bytes), membership }
    }

    /// If messages are sent in transactions.
    fn ledger(&self) -> Option<&Arc<Ledger<RustConnector>>> {
        self.membership.ledger()
    }

    /// Passes on what comes through the queue, until it ends or no more may be sent: a later run reads the
    /// rest again. Ends transactions when they are due, and the last one at the end.
    ///
    /// # Errors
    /// If nothing takes the messages.
    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Answer>) -> Result<(), Error> {
        'answers: while let Some(Answer { records, changes }) = next(&mut queue, self.ledger()).await {
            for run in records.chunk_by(|a, b| a.partition == b.partition) {
                let mut rest = run;
                while !rest.is_empty() {
                    if self.out.left() == 0 {
                        // The records that were sent are still committed.
                        break 'answers;
                    }
                    let count = self.whole.batch(rest.iter().map(value), self.out.batch_bytes());
                    // The checkpoint is then exact where the limit of a run is reached.
                    let most = self.out.next_rows().min(self.most_records());
                    let (batch, after) = rest.split_at(count.min(most));
                    self.admit(batch, changes).await?;
                    rest = after;
                }
            }
        }
        if let Some(ledger) = self.ledger() {
            ledger.end_now().await;
        }
        Ok(())
    }

    fn most_records(&self) -> usize {
        self.ledger().map_or(usize::MAX, |ledger| ledger.most_records())
    }

    /// Sends records of one partition, unless they are read again.
    async fn admit(&mut self, records: &[Incoming], changes: u64) -> Result<(), Error> {
        let [first, ..] = records else { return Ok(()) };
        // Before they count as sent. The wait for memory may be long, as that of a paused source, and what
        // was sent holds back its transaction, or the partition when it is given up.
        let payload = self.payload(records).await;
        let Some(ledger) = self.ledger().cloned() else {
            return match self.membership.admit(records, changes) {
                true => self.send(records, payload).await,
                false => Ok(()),
            };
        };
        let Some(mut owed) = ledger.admit(&first.partition, changes).await else { return Ok(()) };
        owed.note(records);
        self.send(records, payload).await?;
        ledger.end_if_due(&mut owed).await;
        Ok(())
    }

    /// Waits for memory, and returns the values of records in it. Meanwhile ends a transaction that is due.
    async fn payload(&self, records: &[Incoming]) -> BinaryViewArray {
        let values: Vec<&[u8]> = records.iter().map(value).collect();
        let mut payload = pin!(self.whole.payload(&values, &self.out));
        let Some(ledger) = self.ledger() else { return payload.await };
        loop {
            let Some(due) = ledger.due().await else { return payload.await };
            match tokio::time::timeout_at(due.into(), payload.as_mut()).await {
                Ok(payload) => return payload,
                Err(_) => ledger.end_now().await,
            }
        }
    }

    /// Returns where to resume after these records. None with transactions: a message counts as delivered
    /// before its transaction is committed, and a saved position would outlive one that is aborted.
    fn checkpoint(&self, records: &[Incoming]) -> Option<Checkpoint> {
        let last = records.last().filter(|_| self.ledger().is_none())?;
        let place = self.membership.place_of(&last.partition, last.offset + 1);
        Some(Checkpoint { partition: last.partition.name().into(), offset: place.value() })
    }

    async fn send(&mut self, records: &[Incoming], payload: BinaryViewArray) -> Result<(), Error> {
        let [first, ..] = records else { return Ok(()) };
        self.out.set_sequence(Some(self.membership.sequence(&first.partition)));
        // Before the wait for room, in which the partition may be lost, and come back with another topic.
        let checkpoint = self.checkpoint(records);
        let columns = self.fields.iter().map(|(name, field)| (field.described(name), field.column(records)));
        let fields = whole::fields(columns, records.len())?;
        let received = Received {
            reading: Reading {
                payload,
                path: Some(first.partition.topic.clone()),
                positions: Some(UInt64Array::from_iter_values(records.iter().map(offset))),
                checkpoint,
            },
            fields,
        };
        match self.whole.rejected(value(first)) {
            None => self.out.send(received).await,
            Some(reason) => self.out.reject(received, &reason).await,
        }
    }
}

/// Returns the next records, and meanwhile ends a transaction that is due.
async fn next(
    queue: &mut mpsc::Receiver<Answer>,
    ledger: Option<&Arc<Ledger<RustConnector>>>,
) -> Option<Answer> {
    let Some(ledger) = ledger else { return queue.recv().await };
    loop {
        let Some(due) = ledger.due().await else { return queue.recv().await };
        match tokio::time::timeout_at(due.into(), queue.recv()).await {
            Ok(answer) => return answer,
            Err(_) => ledger.end_now().await,
        }
    }
}

/// Returns the value of a record. That of a tombstone is empty.
fn value(record: &Incoming) -> &[u8] {
    record.value.as_deref().unwrap_or_default()
}

fn offset(record: &Incoming) -> u64 {
    u64::try_from(record.offset).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use thalweg_engine::testing::{Arrived, Bounds, RunningSource};
    use thalweg_record::{Batch, Outcome};

    use super::*;
    use crate::client::{Changes, Partition, Place};
    use crate::source::Start;
    use crate::source::tests::{Idle, bounded_output, lent_output, unconnected_ledger};

    fn partition(number: i32) -> Partition {
        Partition { topic: "t".into(), number }
    }

    /// Records of one partition, from the first offset on.
    fn records(number: i32, offsets: std::ops::Range<i64>) -> Vec<Incoming> {
        let record = |offset: i64| {
            let (partition, value) = (partition(number), Some(offset.to_string().into()));
            Incoming { partition, offset, timestamp: 0, key: None, value, headers: Vec::new() }
        };
        offsets.map(record).collect()
    }

    fn membership(out: &SourceOutput, ledger: Option<Arc<Ledger<RustConnector>>>) -> Arc<Membership> {
        Arc::new(Membership::new(out, Start::Earliest, Duration::ZERO, ledger))
    }

    fn forward(out: &SourceOutput, membership: &Arc<Membership>) -> Forward {
        Forward::new(out.clone(), &List::default(), ByteSize::kib(1), membership.clone())
    }

    /// A queue that ends after these answers.
    fn queue(answers: Vec<Answer>) -> mpsc::Receiver<Answer> {
        let (queue, answered) = mpsc::channel(answers.len().max(1));
        answers.into_iter().for_each(|answer| queue.try_send(answer).ok().unwrap());
        answered
    }

    async fn taken(source: &RunningSource) -> Batch {
        let Some((_, Arrived::Messages(batch))) = source.main.take().await else { panic!() };
        batch
    }

    #[tokio::test]
    async fn with_transactions_no_position_is_saved() {
        let (out, source) = lent_output().await;
        for (ledger, expected) in [(Some(unconnected_ledger(&out)), None), (None, Some(1.into()))] {
            let mut forward = forward(&out, &membership(&out, ledger));
            let records = records(0, 0..1);
            let payload = forward.payload(&records).await;
            forward.send(&records, payload).await.unwrap();
            let batch = taken(&source).await;
            assert_eq!(out.unsettled(), 1);
            batch.settle(Outcome::Delivered);
            assert_eq!((out.unsettled(), out.saved("t/0")), (0, expected));
        }
    }

    #[tokio::test]
    async fn before_a_slow_transform_batches_are_small_and_a_run_that_stops_waits_only_for_what_it_sent() {
        let (out, source) = bounded_output(Bounds { rows: Some(2), ..Bounds::default() }).await;
        let membership = membership(&out, None);
        membership.assigned(&Idle::default(), vec![partition(0)]).await;
        let first = records(0, 0..3);
        let changes = membership.note(&first);
        forward(&out, &membership).run(queue(vec![Answer { records: first, changes }])).await.unwrap();
        for rows in [2, 1] {
            let batch = taken(&source).await;
            assert_eq!(batch.rows(), rows);
            assert!(!membership.is_settled());
            batch.settle(Outcome::Delivered);
        }
        assert!(membership.is_settled());
        let rest = records(0, 3..9);
        let changes = membership.note(&rest);
        source.stop.request();
        forward(&out, &membership).run(queue(vec![Answer { records: rest, changes }])).await.unwrap();
        assert_eq!((out.unsettled(), membership.is_settled()), (0, true));
    }

    /// The offset that was saved of the former log was taken for one behind the new records.
    #[tokio::test]
    async fn records_of_a_topic_that_was_made_again_are_settled_when_they_are() {
        let (out, source) = lent_output().await;
        let membership = membership(&out, None);
        let mut log = Idle::default();
        let send = async |log: &Idle, offsets: std::ops::Range<i64>| {
            membership.assigned(log, vec![partition(0)]).await;
            let records = records(0, offsets);
            let changes = membership.note(&records);
            forward(&out, &membership).run(queue(vec![Answer { records, changes }])).await.unwrap();
        };
        send(&log, 5..7).await;
        taken(&source).await.settle(Outcome::Delivered);
        let settled = |offset| BTreeMap::from([(partition(0), Place { offset, topic: None })]);
        assert_eq!(membership.settled(), settled(7));
        membership.revoked(&log, vec![partition(0)]).await;
        log.end = Some(3);
        send(&log, 0..3).await;
        assert!(!membership.is_settled() && membership.settled().is_empty());
        taken(&source).await.settle(Outcome::Delivered);
        assert!(membership.is_settled());
        assert_eq!(membership.settled(), settled(3));
    }

    #[tokio::test]
    async fn what_was_not_sent_of_a_partition_that_is_given_up_is_left_to_the_next_member() {
        let (out, source) = lent_output().await;
        let membership = membership(&out, None);
        let consumer = Idle::default();
        membership.assigned(&consumer, vec![partition(0), partition(1)]).await;
        let read: Vec<Incoming> = records(0, 0..2).into_iter().chain(records(1, 7..8)).collect();
        let changes = membership.note(&read);
        membership.revoked(&consumer, vec![partition(0)]).await;
        forward(&out, &membership).run(queue(vec![Answer { records: read, changes }])).await.unwrap();
        let batch = taken(&source).await;
        assert_eq!((batch.rows(), out.unsettled()), (1, 1));
        batch.settle(Outcome::Delivered);
        assert_eq!((out.saved("t/0"), out.saved("t/1")), (None, Some(8.into())));
    }

    /// They counted as sent: a paused source kept its transaction open until the broker aborted it, and each
    /// change in its group waited for them.
    #[tokio::test]
    async fn records_that_wait_for_memory_hold_back_neither_a_transaction_nor_a_partition() {
        let (out, source) = lent_output().await;
        for ledger in [Some(unconnected_ledger(&out)), None] {
            let membership = membership(&out, ledger.clone());
            membership.assigned(&Idle::default(), vec![partition(0)]).await;
            let read = records(0, 0..1);
            let changes = membership.note(&read);
            let budget = out.share().budget().clone();
            let (own, full) = (out.share().claim(1), budget.claim(budget.limit()));
            let mut forward = forward(&out, &membership);
            let mut admitted = pin!(forward.admit(&read, changes));
            let waits = async {
                while !budget.is_short() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                _ = admitted.as_mut() => panic!("there is no memory"),
                () = waits => {}
            }
            assert!(membership.is_settled());
            if let Some(ledger) = &ledger {
                let due = tokio::time::timeout(Duration::from_secs(60), ledger.due()).await;
                assert!(due.is_ok_and(|due| due.is_none()));
            }
            drop((own, full));
            let settled = async { taken(&source).await.settle(Outcome::Delivered) };
            tokio::join!(admitted, settled).0.unwrap();
        }
    }

    #[tokio::test]
    async fn a_limited_source_reads_no_further_and_settles_what_it_sent() {
        let (out, source) = bounded_output(Bounds { limit: Some(3), ..Bounds::default() }).await;
        let membership = membership(&out, None);
        let read = records(0, 0..5);
        let changes = membership.note(&read);
        forward(&out, &membership).run(queue(vec![Answer { records: read, changes }])).await.unwrap();
        let batch = taken(&source).await;
        assert_eq!(batch.rows(), 3);
        batch.settle(Outcome::Delivered);
        assert_eq!(out.saved("t/0"), Some(3.into()));
    }
}

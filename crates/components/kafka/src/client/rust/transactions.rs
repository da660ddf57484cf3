//! Producers with transactions.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use krafka::consumer::ConsumerGroupMetadata;
use krafka::error::ErrorCode;
use krafka::producer::{DeliveryHandle, TopicPartitionOffset, TransactionState, TransactionalProducer};
use krafka::{CloseOptions, KrafkaError};
use parking_lot::Mutex;

use super::{CLOSE_TIMEOUT, FIRST_ANSWERS, REQUEST_TIMEOUT, Sending, connect, failure, in_time, record};
use crate::client::{Connector, Failure, Fault, Generation, Outgoing, Partition, Producer, Transactions};
use crate::options::ClusterOptions;

/// The first reason why the open transaction cannot be committed. Deliveries note theirs.
type FirstFault = Arc<Mutex<Option<Fault>>>;

/// Makes producers with transactions of one id.
pub(crate) struct RustConnector {
    pub(crate) cluster: ClusterOptions,
    pub(crate) sending: Sending,
    pub(crate) id: String,
    /// The time after which the broker aborts a transaction.
    pub(crate) transaction_timeout: Duration,
}

impl RustConnector {
    async fn started(&self) -> Result<RustTransactions, Failure> {
        // A request without an answer is repeated while its transaction is open.
        let request_timeout = REQUEST_TIMEOUT.min(self.transaction_timeout / 2);
        let kafka = connect(&self.cluster, true, request_timeout).await?;
        let builder = self
            .sending
            .builder(&kafka)
            .delivery_timeout(self.transaction_timeout)
            .transaction_timeout(self.transaction_timeout);
        let producer = builder.build_transactional(self.id.clone()).await.map_err(failure_of)?;
        let is_empty = AtomicBool::new(true);
        Ok(RustTransactions { producer, is_empty, fault: FirstFault::default() })
    }
}

impl Connector for RustConnector {
    type Producer = RustTransactions;

    async fn connect(&self) -> Result<RustTransactions, Failure> {
        in_time(self.sending.timeout.max(FIRST_ANSWERS), self.started()).await
    }
}

/// Sends records in transactions.
pub(crate) struct RustTransactions {
    producer: TransactionalProducer,
    /// True if the open transaction has no records.
    is_empty: AtomicBool,
    fault: FirstFault,
}

/// The outcome of a record of a transaction.
pub(crate) struct Delivery {
    handle: DeliveryHandle,
    fault: FirstFault,
}

impl Future for Delivery {
    type Output = Result<(), Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.handle).poll(context).map(|outcome| match outcome {
            Ok(_) => Ok(()),
            Err(error) => Err(note(&self.fault, failure_of(error))),
        })
    }
}

impl Producer for RustTransactions {
    type Delivery = Delivery;

    async fn queue(&self, outgoing: Outgoing) -> Result<Delivery, Failure> {
        match self.producer.enqueue(record(outgoing)).await {
            Ok(handle) => {
                self.is_empty.store(false, Relaxed);
                Ok(Delivery { handle, fault: self.fault.clone() })
            }
            // The record is not part of the transaction, which these end nevertheless.
            Err(error) => Err(match failure_of(error) {
                failure @ (Failure::Fenced(_) | Failure::Lost(_)) => note(&self.fault, failure),
                failure => failure,
            }),
        }
    }

    async fn flush(&self) {
        // It fails for no reason of its own: each record has its outcome.
        let _ = self.producer.flush().await;
    }

    fn has_retried(&self) -> bool {
        self.producer.metrics().producer.retries > 0
    }

    async fn close(&self) {
        let _ = self.producer.close_with(CloseOptions::new().timeout(CLOSE_TIMEOUT)).await;
    }
}

impl Transactions for RustTransactions {
    fn begin(&self) -> Result<(), Failure> {
        *self.fault.lock() = None;
        self.is_empty.store(true, Relaxed);
        self.producer.begin().map_err(failure_of)
    }

    fn is_empty(&self) -> bool {
        self.is_empty.load(Relaxed)
    }

    fn fault(&self) -> Option<Fault> {
        self.fault.lock().clone()
    }

    async fn commit(
        &self,
        offsets: &BTreeMap<Partition, i64>,
        member: Option<&Generation>,
    ) -> Result<(), Failure> {
        if self.producer.state() != TransactionState::CommitUnknown
            && let Some(member) = member
        {
            let offsets: Vec<TopicPartitionOffset> = offsets
                .iter()
                .map(|(partition, offset)| {
                    TopicPartitionOffset::new(&*partition.topic, partition.number, *offset)
                })
                .collect();
            let member = ConsumerGroupMetadata::new(
                member.group.clone(),
                member.number,
                member.member.clone(),
                member.instance.clone(),
            );
            self.producer.send_offsets(&offsets, &member).await.map_err(failure_of)?;
        }
        match self.producer.commit().await {
            Ok(()) => Ok(()),
            Err(error) if self.producer.state() == TransactionState::CommitUnknown => {
                Err(Failure::Unknown(error.to_string()))
            }
            Err(error) => Err(failure_of(error)),
        }
    }
}

/// Notes a failure as the fault of the transaction, unless it has one. That it is fenced counts also later:
/// after a failure the client refuses what is sent, before the records that failed have their outcomes.
fn note(fault: &FirstFault, failure: Failure) -> Failure {
    let is_fenced = matches!(failure, Failure::Fenced(_));
    let mut fault = fault.lock();
    if fault.as_ref().is_none_or(|known| is_fenced && !known.is_fenced) {
        *fault = Some(Fault { reason: failure.reason().to_owned(), is_fenced });
    }
    failure
}

/// Returns what an error of a transaction means for the caller.
fn failure_of(error: KrafkaError) -> Failure {
    match &error {
        KrafkaError::Fenced { message } => match fence(message) {
            Fence::Taken => Failure::Fenced(error.to_string()),
            Fence::Expired => {
                let reason = "the broker has forgotten the `transactional_id`, which was not used for long";
                Failure::Lost(format!("{reason} ({error})"))
            }
            Fence::Unknown => Failure::Lost(error.to_string()),
        },
        KrafkaError::TransactionAbortable { message } => match code_of_record(message) {
            None => Failure::Lost(error.to_string()),
            Some(code) => {
                let error = KrafkaError::broker(code, message.clone());
                match code {
                    // A request that is too large is not divided in a transaction.
                    ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge => {
                        Failure::RefusedTogether(error.to_string())
                    }
                    _ => failure_of(error),
                }
            }
        },
        KrafkaError::Broker { code, .. } => match code {
            ErrorCode::ProducerFenced
            | ErrorCode::InvalidProducerEpoch
            | ErrorCode::TransactionCoordinatorFenced => Failure::Fenced(error.to_string()),
            ErrorCode::InvalidTxnState
            | ErrorCode::InvalidProducerIdMapping
            | ErrorCode::UnknownProducerId
            | ErrorCode::TransactionAbortable => Failure::Lost(error.to_string()),
            ErrorCode::TransactionalIdAuthorizationFailed | ErrorCode::InvalidTransactionTimeout => {
                Failure::Permanent(error.to_string())
            }
            _ => failure(error),
        },
        _ => failure(error),
    }
}

/// Why a client says that its producer is fenced.
#[derive(Debug, PartialEq, Eq)]
enum Fence {
    /// Another producer took the id, or the transaction took longer than it may.
    Taken,
    /// The broker does not know the id any more. It forgets those without a transaction for a week
    /// (`transactional.id.expiration.ms`), and knows a new producer as the first one.
    Expired,
    /// The producer had a failure before, which says it.
    Unknown,
}

/// Returns why the producer is fenced. The client says it nowhere but in this text: it begins with the code
/// of the broker, unless the client refuses by itself what comes after a failure.
fn fence(message: &str) -> Fence {
    let begins_with = |code: ErrorCode| message.starts_with(&format!("{code:?}:"));
    if begins_with(ErrorCode::InvalidProducerIdMapping) {
        Fence::Expired
    } else if message.ends_with("the transactional producer hit a fatal error") {
        Fence::Unknown
    } else {
        Fence::Taken
    }
}

/// The codes with which a broker refuses a record of a transaction each time, or its producer.
const REFUSALS: [ErrorCode; 7] = [
    ErrorCode::MessageTooLarge,
    ErrorCode::RecordListTooLarge,
    ErrorCode::InvalidRecord,
    ErrorCode::InvalidTimestamp,
    ErrorCode::InvalidTopic,
    ErrorCode::TopicAuthorizationFailed,
    ErrorCode::InvalidProducerEpoch,
];

/// Returns the code with which the broker refused a record of a transaction. The client has it nowhere but in
/// this text. Without it, a record that is never taken would look like one that is taken in the next
/// transaction, and come again without end.
fn code_of_record(message: &str) -> Option<ErrorCode> {
    let (_, name) = message.rsplit_once(" failed with ")?;
    REFUSALS.into_iter().find(|code| format!("{code:?}") == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_record_is_told_from_a_transaction_that_may_succeed_next_time() {
        let refused = |code: ErrorCode| {
            let text = format!("produce to t-0 failed with {code:?}");
            failure_of(KrafkaError::transaction_abortable(text))
        };
        assert!(matches!(refused(ErrorCode::MessageTooLarge), Failure::RefusedTogether(_)));
        assert!(matches!(refused(ErrorCode::InvalidTimestamp), Failure::RefusedTogether(_)));
        assert!(matches!(refused(ErrorCode::TopicAuthorizationFailed), Failure::NoTopic(_)));
        assert!(matches!(refused(ErrorCode::InvalidProducerEpoch), Failure::Fenced(_)));
        assert!(matches!(refused(ErrorCode::UnknownProducerId), Failure::Lost(_)));
    }

    #[test]
    fn an_id_that_the_broker_has_forgotten_was_not_taken_by_another_producer() {
        let failed = |text: &str| failure_of(KrafkaError::fenced(text));
        assert!(matches!(failed("InvalidProducerIdMapping: EndTxn failed"), Failure::Lost(_)));
        assert!(matches!(failed("ProducerFenced: EndTxn failed"), Failure::Fenced(_)));
        assert!(matches!(failed("InvalidProducerEpoch: another producer took over"), Failure::Fenced(_)));
        let later = "cannot send: the transactional producer hit a fatal error";
        assert!(matches!(failed(later), Failure::Lost(_)));
    }

    #[test]
    fn a_transaction_is_fenced_also_if_the_client_refused_other_records_before_it_said_so() {
        let fault = FirstFault::default();
        let notes = [("refused", false), ("fenced", true), ("refused again", false), ("fenced again", true)];
        for (reason, is_fenced) in notes {
            let failure = if is_fenced { Failure::Fenced } else { Failure::Lost };
            note(&fault, failure(reason.to_owned()));
        }
        assert_eq!(*fault.lock(), Some(Fault { reason: "fenced".to_owned(), is_fenced: true }));
    }
}

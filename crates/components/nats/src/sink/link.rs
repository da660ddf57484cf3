//! The connection of a sink, with the subject at which it receives answers.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use async_nats::{Client, Message, PublishErrorKind, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use thalweg_engine::Error;

use super::outgoing::Outgoing;
use crate::connection::{Connection, SUBSCRIPTION};
use crate::options::ServerOptions;

/// A connection with a subject for answers.
pub(super) struct Link {
    pub(super) connection: Connection,
    /// The beginning of the subjects for answers. A dot and a number follow.
    inbox: String,
    answers: Subscriber,
    /// True if the client has ended.
    is_lost: AtomicBool,
}

/// The reason why a message was not sent.
pub(super) enum NotSent {
    /// The client refuses the message, for example because it is larger than the server takes.
    Refused(String),
    /// The client took no further message in time.
    Blocked,
    /// The connection is of no use any more.
    Lost(String),
}

impl Link {
    /// Connects to one of the servers. At most `pending` messages are without an answer.
    ///
    /// # Errors
    /// If that fails.
    pub(super) async fn open(options: &ServerOptions, pending: usize) -> Result<Self, Error> {
        // A message that was sent again may have two answers.
        let connection = Connection::open(options, SUBSCRIPTION.max(2 * pending)).await?;
        let inbox = connection.client.new_inbox();
        let answers = connection.client.subscribe(format!("{inbox}.*")).await;
        let answers =
            answers.map_err(|error| Error::temporary("cannot subscribe to answers").caused_by(error))?;
        Ok(Self { connection, inbox, answers, is_lost: AtomicBool::new(false) })
    }

    /// True if the connection is of no use any more.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Relaxed)
    }

    /// Sends a message. Its answer, if it wants one, has the number.
    pub(super) async fn send(
        &self,
        outgoing: Outgoing,
        answer: Option<u64>,
        timeout: Duration,
    ) -> Result<(), NotSent> {
        let sending = publish(&self.connection.client, outgoing, answer.map(|number| self.subject(number)));
        match tokio::time::timeout(timeout, sending).await {
            Err(_) => Err(NotSent::Blocked),
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => match error.kind() {
                PublishErrorKind::MaxPayloadExceeded | PublishErrorKind::InvalidSubject => {
                    Err(NotSent::Refused(error.to_string()))
                }
                PublishErrorKind::Send => {
                    self.is_lost.store(true, Relaxed);
                    Err(NotSent::Lost(error.to_string()))
                }
            },
        }
    }

    fn subject(&self, number: u64) -> String {
        format!("{}.{number}", self.inbox)
    }

    /// Waits for an answer. Returns it with its number, or `None` after `timeout`.
    pub(super) async fn answer(&mut self, timeout: Duration) -> Option<(u64, Message)> {
        loop {
            let Some(message) = tokio::time::timeout(timeout, self.answers.next()).await.ok()? else {
                // The client has ended: the next message that is sent says so.
                tokio::time::sleep(timeout).await;
                return None;
            };
            let number = message.subject.strip_prefix(self.inbox.as_str());
            let number = number.and_then(|number| number.strip_prefix('.')?.parse().ok());
            if let Some(number) = number {
                return Some((number, message));
            }
        }
    }

    /// Waits until the server has taken all messages that were sent before: it takes them in order, and this
    /// is one of them. Returns false if it has not after `timeout`.
    pub(super) async fn round_trip(&mut self, number: u64, timeout: Duration) -> bool {
        let sent = self.connection.client.publish(self.subject(number), Bytes::new());
        if !matches!(tokio::time::timeout(timeout, sent).await, Ok(Ok(()))) {
            return false;
        }
        loop {
            match self.answer(timeout).await {
                Some((answered, _)) if answered == number => return true,
                Some(_) => {}
                None => return false,
            }
        }
    }
}

async fn publish(
    client: &Client,
    outgoing: Outgoing,
    answer: Option<String>,
) -> Result<(), async_nats::PublishError> {
    let Outgoing { subject, headers, payload } = outgoing;
    match (answer, headers.is_empty()) {
        (Some(answer), true) => client.publish_with_reply(subject, answer, payload).await,
        (Some(answer), false) => {
            client.publish_with_reply_and_headers(subject, answer, headers, payload).await
        }
        (None, true) => client.publish(subject, payload).await,
        (None, false) => client.publish_with_headers(subject, headers, payload).await,
    }
}

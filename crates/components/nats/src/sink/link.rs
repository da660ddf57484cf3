//! The connection of a sink, with the subject at which it receives the answers of streams.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use thalweg_engine::Error;

use super::outgoing::Outgoing;
use crate::connection::{Connection, NotSent, Room, SUBSCRIPTION, Subscriber};
use crate::options::ServerOptions;
use crate::wire::{Message, Publication};

/// The largest answer to a message, in bytes.
const ANSWER: usize = 64 << 10;
/// The bytes of answers that may wait to be read, for each message. An answer names the stream.
const BYTES_OF_ANSWER: usize = 512;

/// A connection, with a subject for the answers of streams if messages are for streams.
pub(super) struct Link {
    pub(super) connection: Connection,
    /// The beginning of the subjects for answers. A dot and a number follow.
    inbox: String,
    /// None without JetStream: a user that may only publish then needs no other right.
    answers: Option<Subscriber>,
}

impl Link {
    /// Connects to one of the servers. At most `pending` messages are without an answer; `None` if there are
    /// no answers.
    ///
    /// # Errors
    /// If that fails.
    pub(super) async fn open(options: &ServerOptions, pending: Option<usize>) -> Result<Self, Error> {
        let connection = Connection::open(options, ANSWER).await?;
        let inbox = connection.inbox();
        let answers = pending.map(|pending| {
            // A message that was sent again may have two answers.
            let count = SUBSCRIPTION.max(2 * pending);
            let room = Room::new(count, count * BYTES_OF_ANSWER);
            connection.subscribe(&format!("{inbox}.*"), None, &room)
        });
        Ok(Self { connection, inbox, answers })
    }

    /// Sends a message. Its answer, if it wants one, has the number.
    pub(super) async fn send(
        &self,
        outgoing: &Outgoing<'_>,
        answer: Option<u64>,
        timeout: Duration,
    ) -> Result<(), NotSent> {
        let Outgoing { subject, headers, payload } = outgoing;
        let reply = answer.map(|number| format!("{}.{number}", self.inbox));
        let message = Publication { subject, reply: reply.as_deref(), headers, payload };
        self.connection.publish(&message, timeout).await
    }

    /// Waits for an answer. Returns it with its number, or `None` after `timeout` or if the client has ended.
    pub(super) async fn answer(&mut self, timeout: Duration) -> Option<(u64, Message)> {
        let answers = self.answers.as_mut()?;
        let begun = Instant::now();
        loop {
            let message = tokio::time::timeout(timeout, answers.next()).await.ok()??;
            let number = message.subject.strip_prefix(self.inbox.as_str());
            let number = number.and_then(|number| number.strip_prefix('.')?.parse().ok());
            if let Some(number) = number {
                return Some((number, message));
            }
            // A server may send others without an end.
            if begun.elapsed() >= timeout {
                return None;
            }
        }
    }
}

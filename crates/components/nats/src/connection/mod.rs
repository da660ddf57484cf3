//! A client: a connection to one of the servers, and another one when it breaks.
//!
//! The client of the project NATS was in use before. It sets no limit for what a server sends, and cannot be
//! given a stream that would (docs/decisions/088-nats-by-a-client-of-ours.md).
//!
//! Messages that were on their way when a connection broke are lost. A component therefore looks at the
//! [epoch](Connection::epoch): as long as it is the same, all went over one connection, in order.

mod servers;
mod shared;
mod subscriber;
mod task;
#[cfg(test)]
mod tests;
mod user;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use thalweg_engine::Error;

use crate::options::ServerOptions;
use crate::wire::{Message, Publication, status};
use servers::Servers;
use shared::{Notices, Shared};
pub(crate) use subscriber::{Room, Subscriber};

/// The number of messages of a subscription that may wait to be taken.
pub(crate) const SUBSCRIPTION: usize = 8192;
/// The largest answer to a request of this program, in bytes.
pub(crate) const ANSWER: usize = 256 << 10;
/// How long a request waits for its answer.
const REQUEST: Duration = Duration::from_secs(5);
/// How often a component looks whether there is a connection.
const LOOK: Duration = Duration::from_millis(20);
/// The characters at the end of a subject for answers.
const INBOX: usize = 22;

/// A client. It ends when it is dropped, after it has sent what it was given.
pub(crate) struct Connection {
    shared: Arc<Shared>,
    inbox_prefix: String,
}

/// The reason why a message was not sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotSent {
    /// The message cannot be sent, for example because it is larger than the server takes.
    Refused(String),
    /// The server took no further message in time.
    Blocked,
    /// The client has ended.
    Lost(String),
}

impl Connection {
    /// Connects to one of the servers. At most `limit` bytes of a payload are kept.
    ///
    /// # Errors
    /// If none answers, or the user is refused.
    pub(crate) async fn open(options: &ServerOptions, limit: usize) -> Result<Self, Error> {
        let servers = Servers::new(options, limit).await?;
        let opened = servers.open_any().await?;
        let shared = Arc::<Shared>::default();
        // From now on, and not only when the task begins to run.
        shared.connected(&opened.info);
        tokio::spawn(task::keep(shared.clone(), servers, opened));
        Ok(Self { shared, inbox_prefix: options.inbox_prefix.clone() })
    }

    /// Returns a number that is another one for each connection.
    pub(crate) fn epoch(&self) -> u64 {
        self.shared.epoch()
    }

    /// True while there is a connection, as far as the client knows.
    pub(crate) fn is_connected(&self) -> bool {
        self.shared.is_connected()
    }

    /// Waits until there is a connection. Returns false if there is none after `timeout`.
    pub(crate) async fn connected(&self, timeout: Duration) -> bool {
        let begun = Instant::now();
        while !self.is_connected() {
            if begun.elapsed() >= timeout || self.is_lost() {
                return false;
            }
            tokio::time::sleep(LOOK).await;
        }
        true
    }

    /// True if there will be no connection any more.
    pub(crate) fn is_lost(&self) -> bool {
        self.shared.ended().is_some()
    }

    /// Returns why the client has ended, as the error of a component.
    pub(crate) fn lost(&self) -> Error {
        let error = Error::temporary("the connection to the server has ended");
        match self.shared.ended() {
            Some(reason) => error.caused_by(reason),
            None => error,
        }
    }

    /// Returns how many messages were dropped because a subscription was full.
    pub(crate) fn dropped(&self) -> u64 {
        self.shared.dropped()
    }

    /// Returns why the server refused a subscription, if it has refused one.
    pub(crate) fn refused(&self) -> Option<String> {
        self.shared.refused()
    }

    /// Takes the subjects of messages that the server refused since the last call, as far as it named them.
    pub(crate) fn take_forbidden(&self) -> Vec<String> {
        self.shared.take_forbidden()
    }

    /// Adds to an error why there is no connection, or what the server reported last: a server that refuses a
    /// message or a subscription says so apart from it.
    pub(crate) fn explained(&self, error: Error) -> Error {
        match self.shared.explanation() {
            Some(reason) => error.caused_by(reason),
            None => error,
        }
    }

    /// Returns what was reported so far.
    pub(crate) fn notices(&self) -> Notices {
        self.shared.notices()
    }

    /// Returns a subject for answers that no other client has.
    pub(crate) fn inbox(&self) -> String {
        let end: String = (0..INBOX).map(|_| fastrand::alphanumeric()).collect();
        format!("{}.{end}", self.inbox_prefix)
    }

    /// Sends a message: it is written to the present connection, or to the next one if there is none.
    ///
    /// # Errors
    /// If that is not possible `within` this time.
    pub(crate) async fn publish(&self, message: &Publication<'_>, within: Duration) -> Result<(), NotSent> {
        let published = tokio::time::timeout(within, self.shared.publish(message, None)).await;
        published.unwrap_or(Err(NotSent::Blocked))
    }

    /// Sends a message over the connection with this epoch.
    ///
    /// # Errors
    /// As [`publish`](Self::publish), and if the present connection is another one.
    pub(crate) async fn publish_over(
        &self,
        epoch: u64,
        message: &Publication<'_>,
        within: Duration,
    ) -> Result<(), NotSent> {
        let published = tokio::time::timeout(within, self.shared.publish(message, Some(epoch))).await;
        published.unwrap_or(Err(NotSent::Blocked))
    }

    /// Waits until the server has taken all messages that were sent before over the present connection.
    /// Returns false if it has not `within` this time, or the connection breaks.
    pub(crate) async fn round_trip(&self, within: Duration) -> bool {
        tokio::time::timeout(within, self.shared.round_trip()).await.unwrap_or(false)
    }

    /// Subscribes to a subject, as a member of a queue group if one is given. Messages wait in `room`.
    pub(crate) fn subscribe(&self, subject: &str, group: Option<&str>, room: &Arc<Room>) -> Subscriber {
        self.shared.subscribe(subject, group, room)
    }

    /// Sends a message, and returns the answer.
    ///
    /// # Errors
    /// If there is none in time.
    pub(crate) async fn request(&self, subject: &str, payload: &[u8]) -> Result<Message, Error> {
        let inbox = self.inbox();
        let mut answers = self.subscribe(&inbox, None, &Room::new(1, ANSWER));
        let message = Publication { subject, reply: Some(&inbox), headers: &[], payload };
        let answer = match self.publish(&message, REQUEST).await {
            Ok(()) => tokio::time::timeout(REQUEST, answers.next()).await,
            Err(NotSent::Refused(reason)) => {
                return Err(Error::permanent(format!("`{subject}` cannot be asked")).caused_by(reason));
            }
            Err(NotSent::Blocked) => {
                return Err(self.explained(Error::temporary("the server takes no request")));
            }
            Err(NotSent::Lost(_)) => return Err(self.lost()),
        };
        let seconds = REQUEST.as_secs();
        let silent = || Error::temporary(format!("there was no answer from `{subject}` within {seconds} s"));
        let answer = answer.map_err(|_| self.explained(silent()))?.ok_or_else(|| self.lost())?;
        match answer.status() {
            Some(status::NO_RESPONDERS) => Err(Error::temporary(format!("no server answers at `{subject}`"))),
            _ => Ok(answer),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.close();
    }
}

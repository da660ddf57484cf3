//! Core subscriptions: messages that are delivered at most once.
//!
//! The server sends without being asked, and drops what a client does not take. So one task takes all
//! messages and queues them, up to a number of bytes, and a second one waits for memory and the pipelines.
//! Messages that find the queue full are dropped and counted. Only reading from the connection when there is
//! room was rejected: the server would then cut the connection, and all its subscriptions lose messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::select_all;
use thalweg_engine::{Error, SourceOutput};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::messages::{Incoming, Messages};
use super::{NatsSource, POLL};
use crate::connection::{Connection, Room, SUBSCRIPTION, Subscriber};
use crate::wire::Message;

/// How often the source warns that it drops messages.
const WARN_EVERY: Duration = Duration::from_secs(10);
/// The memory of a message in the queue, beside its bytes.
const MESSAGE: usize = 200;
/// The number of messages that are taken from the queue at once.
const AT_ONCE: usize = 4096;

/// A message in the queue, with its part of the queue's bytes.
type Queued = (Incoming, OwnedSemaphorePermit);

/// The subscriptions of a source.
pub(super) struct Subscription<'a> {
    pub(super) config: &'a NatsSource,
    pub(super) messages: &'a Messages,
    pub(super) connection: &'a Connection,
    /// The bytes that may wait in the queue.
    pub(super) queue_bytes: usize,
    /// The number of messages that were dropped.
    pub(super) dropped: &'a AtomicU64,
}

impl Subscription<'_> {
    /// Reads until the source is to end.
    ///
    /// # Errors
    /// If the server refuses a subscription, the client ends, or nothing takes the messages.
    pub(super) async fn run(&self, out: &mut SourceOutput) -> Result<(), Error> {
        // As much may wait in the client, until this source takes it.
        let _queue = out.claim(self.queue_bytes * 2);
        let room = Room::new(SUBSCRIPTION, self.queue_bytes);
        let group = self.config.queue_group.as_deref();
        let subjects = self.config.subjects.iter();
        let subscribers: Vec<Subscriber> =
            subjects.map(|subject| self.connection.subscribe(subject, group, &room)).collect();
        let (queue, queued) = mpsc::unbounded_channel();
        let stop = out.clone();
        let (received, forwarded) =
            tokio::join!(self.receive(subscribers, &stop, queue), self.forward(queued, out));
        forwarded.and(received)
    }

    /// Queues what arrives, until the source is to end.
    async fn receive(
        &self,
        subscribers: Vec<Subscriber>,
        out: &SourceOutput,
        queue: mpsc::UnboundedSender<Queued>,
    ) -> Result<(), Error> {
        let room = Arc::new(Semaphore::new(self.queue_bytes));
        let mut arriving = select_all(subscribers);
        let mut active = Instant::now();
        let mut losses = Losses::new(self.connection, self.dropped);
        while !out.is_stopping() && !queue.is_closed() {
            // It says so apart from the subscription, which then has no message.
            if let Some(reason) = self.connection.refused() {
                return Err(Error::permanent("the server refuses a subscription").caused_by(reason));
            }
            match tokio::time::timeout(POLL, arriving.next()).await {
                Ok(Some(message)) => {
                    active = Instant::now();
                    match permit(&room, &message, self.queue_bytes) {
                        Some(permit) => {
                            // If the other task has ended, it says why.
                            let _ = queue.send((Incoming { message, place: None }, permit));
                        }
                        None => losses.add(1),
                    }
                }
                Ok(None) => return Err(self.connection.lost()),
                Err(_)
                    if self.config.end_after_idle.is_some_and(|idle| active.elapsed() >= idle.duration()) =>
                {
                    return Ok(());
                }
                Err(_) => {}
            }
            losses.note(self.connection, out);
        }
        Ok(())
    }

    /// Sends on what is queued, until the queue ends.
    async fn forward(
        &self,
        mut queued: mpsc::UnboundedReceiver<Queued>,
        out: &mut SourceOutput,
    ) -> Result<(), Error> {
        let mut taken = Vec::new();
        while queued.recv_many(&mut taken, AT_ONCE).await > 0 {
            let (arrived, permits): (Vec<Incoming>, Vec<OwnedSemaphorePermit>) = taken.drain(..).unzip();
            let mut rest = &arrived[..];
            while !rest.is_empty() {
                let (batch, after) = rest.split_at(self.messages.batch(rest, out.batch_bytes()));
                let received = self.messages.received(batch, out).await?;
                match self.messages.rejected(batch) {
                    None => out.send(received).await?,
                    Some(reason) => out.reject(received, &reason).await?,
                }
                rest = after;
            }
            drop(permits);
        }
        Ok(())
    }
}

/// Returns the part of the queue that a message takes. None if the queue is full. A message that is larger
/// than the queue takes all of it.
fn permit(room: &Arc<Semaphore>, message: &Message, all: usize) -> Option<OwnedSemaphorePermit> {
    let bytes = (message.length() + MESSAGE).min(all);
    room.clone().try_acquire_many_owned(u32::try_from(bytes).unwrap_or(u32::MAX)).ok()
}

/// The messages that were dropped, by this source and by its client.
struct Losses<'a> {
    /// All of them.
    all: &'a AtomicU64,
    /// Those that no warning was about.
    new: u64,
    /// Those of the client, when it was last asked.
    of_client: u64,
    warned: Option<Instant>,
}

impl<'a> Losses<'a> {
    fn new(connection: &Connection, all: &'a AtomicU64) -> Self {
        Self { all, new: 0, of_client: connection.dropped(), warned: None }
    }

    fn add(&mut self, count: u64) {
        self.new += count;
        self.all.fetch_add(count, Relaxed);
    }

    /// Counts those of the client, and warns now and then.
    fn note(&mut self, connection: &Connection, out: &SourceOutput) {
        let of_client = connection.dropped();
        let before = std::mem::replace(&mut self.of_client, of_client);
        self.add(of_client.saturating_sub(before));
        if self.new > 0 && self.warned.is_none_or(|last| last.elapsed() >= WARN_EVERY) {
            let (name, count) = (out.name(), std::mem::take(&mut self.new));
            self.warned = Some(Instant::now());
            tracing::warn!(
                "`{name}`: {count} messages were dropped, because they arrived faster than they were delivered"
            );
        }
    }
}

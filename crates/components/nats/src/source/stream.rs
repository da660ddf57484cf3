//! The messages of a stream, by a durable consumer.
//!
//! Three tasks run side by side: one asks for messages and waits for memory and the pipelines, one
//! acknowledges, and one asks the server now and then how far the consumer is.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use thalweg_engine::{Checkpoint, Error, SourceOutput};
use thalweg_stream::unacknowledged;
use tokio::sync::mpsc;

use super::NatsSource;
use super::acknowledgements::{Acknowledgements, Link, News, Times};
use super::consumer::{self, Consumer, Requests};
use super::deliveries::{Arrival, Deliveries};
use super::messages::{Incoming, Messages, with_checkpoint};
use super::place::Place;
use crate::connection::Connection;
use crate::wire::Message;

/// How often the source asks how far the consumer is.
const WATCH_EVERY: Duration = Duration::from_secs(1);
/// How long the numbers of acknowledged messages are remembered, at least: longer than a server takes to
/// store acknowledgements.
const REMEMBER: Duration = Duration::from_secs(30);
/// The time that servers wait for an acknowledgement if a consumer does not say it.
const ACK_WAIT: Duration = Duration::from_secs(30);

/// The news that may wait for the task that acknowledges. A server that reads acknowledgements slowly gets no
/// further messages taken.
const NEWS: usize = 16;

/// Reads a stream.
pub(super) struct Stream {
    pub(super) config: NatsSource,
    pub(super) stream: String,
    pub(super) consumer: String,
    pub(super) messages: Messages,
    /// The size of the messages that are asked for at once.
    pub(super) fetch_bytes: usize,
    /// The number of messages without an acknowledgement, for a consumer that is created.
    pub(super) max_ack_pending: i64,
    /// The messages that the consumer has not delivered yet.
    pub(super) lag: Arc<AtomicU64>,
    /// The acknowledgements of earlier calls of [`run`](Self::run).
    pub(super) kept: Option<Acknowledgements>,
}

impl Stream {
    /// Reads until the source is to end, and waits until what it sent is acknowledged.
    ///
    /// # Errors
    /// If the stream or the consumer cannot be read, or nothing takes the messages.
    pub(super) async fn run(&mut self, connection: &Connection, out: &mut SourceOutput) -> Result<(), Error> {
        let (stream, name) = (&self.stream, &self.consumer);
        let consumer = consumer::open(&self.config, stream, name, self.max_ack_pending, connection).await?;
        let partition: Arc<str> = format!("{stream}/{name}").into();
        let mut kept = self.take_kept(&consumer, &partition, out);
        let ended = self.read(connection, &consumer, partition, &mut kept, out).await;
        self.lag.store(0, Relaxed);
        self.kept = Some(kept);
        ended
    }

    /// Returns the acknowledgements of earlier calls, or of an earlier run, if they are of this consumer.
    fn take_kept(
        &mut self,
        consumer: &Consumer<'_>,
        partition: &str,
        out: &SourceOutput,
    ) -> Acknowledgements {
        let created = consumer.info.created();
        match self.kept.take() {
            Some(kept) if kept.deliveries.lock().are_of(&created) => kept,
            _ => Acknowledgements::new(Deliveries::new(created, out.saved(partition).as_ref())),
        }
    }

    async fn read(
        &self,
        connection: &Connection,
        consumer: &Consumer<'_>,
        partition: Arc<str>,
        kept: &mut Acknowledgements,
        out: &mut SourceOutput,
    ) -> Result<(), Error> {
        let mut link = Link::new(connection);
        let requests = Requests::new(consumer, self.fetch_bytes);
        // Messages of one request, or of two if an answer was late, are in the client, and those of the one
        // before are being sent on.
        let _requested = out.claim(self.fetch_bytes * 3);
        let mut positions = out.clone();
        positions.end();
        let ack_wait = consumer.info.config.ack_wait().unwrap_or(ACK_WAIT);
        let times = Times { ack_wait, retry_delay: self.config.retry_delay.duration() };
        let (deliveries, floor) = (kept.deliveries.clone(), Floor::default());
        let (tell, news) = mpsc::channel(NEWS);
        let passing = Passing { of: self, consumer, deliveries: &deliveries, floor: &floor, partition, tell };
        let work = async {
            let keep = kept.keep(&mut link, times, &positions, news);
            tokio::join!(passing.run(requests, out), keep).0
        };
        tokio::select! {
            ended = work => ended,
            never = self.watch(consumer, &floor) => match never {},
        }
    }

    /// Notes how far the consumer is.
    async fn watch(&self, consumer: &Consumer<'_>, floor: &Floor) -> Infallible {
        let mut held = (Instant::now(), 0);
        loop {
            if let Some(info) = consumer.ask().await {
                let now = info.ack_floor.stream_seq;
                self.lag.store(info.num_pending, Relaxed);
                floor.now.store(now, Relaxed);
                if held.0.elapsed() >= REMEMBER {
                    floor.before.store(held.1, Relaxed);
                    held = (Instant::now(), now);
                }
            }
            tokio::time::sleep(WATCH_EVERY).await;
        }
    }
}

/// The numbers up to which the server has all acknowledgements: now, and some time ago.
#[derive(Default)]
struct Floor {
    now: AtomicU64,
    before: AtomicU64,
}

/// Passes on what a consumer delivers.
struct Passing<'a> {
    of: &'a Stream,
    consumer: &'a Consumer<'a>,
    deliveries: &'a Mutex<Deliveries>,
    floor: &'a Floor,
    partition: Arc<str>,
    tell: mpsc::Sender<News>,
}

impl Passing<'_> {
    async fn run(self, mut requests: Requests<'_>, out: &mut SourceOutput) -> Result<(), Error> {
        let read = self.read(&mut requests, out).await;
        match read {
            Ok(()) => {
                // These are given back.
                self.new_ones(requests.rest()).await;
                // Some messages are settled only when the input has ended.
                out.end();
            }
            Err(_) => self.tell(News::Failed).await,
        }
        read
    }

    async fn read(&self, requests: &mut Requests<'_>, out: &mut SourceOutput) -> Result<(), Error> {
        let mut active = Instant::now();
        while !out.is_stopping() {
            let (before, now) = (self.floor.before.load(Relaxed), self.floor.now.load(Relaxed));
            let arrived = requests.next().await?;
            if std::mem::take(&mut requests.has_asked) {
                self.deliveries.lock().interrupt();
            }
            if arrived.is_empty() {
                if self.is_idle(active, out).await {
                    return Ok(());
                }
            } else {
                active = Instant::now();
                self.pass_on(arrived, out).await?;
            }
            if requests.is_drained {
                // A message that was delivered again before its acknowledgement came would be sent on again
                // if its number were forgotten before it was taken.
                self.deliveries.lock().forget_through(before, now);
            }
        }
        Ok(())
    }

    /// True if the source is to end because the consumer has nothing for it.
    async fn is_idle(&self, active: Instant, out: &SourceOutput) -> bool {
        let Some(idle) = self.of.config.end_after_idle else { return false };
        if active.elapsed() < idle.duration() {
            return false;
        }
        let Some(info) = self.consumer.ask().await else { return false };
        let open = self.deliveries.lock().open();
        if open > 0 {
            // Some messages are settled after a checkpoint, and others only when the input has ended.
            out.save_soon();
        }
        let has_stalled = active.elapsed() >= unacknowledged::stalled_after(idle);
        consumer::is_done(&info, open, has_stalled)
    }

    async fn pass_on(&self, arrived: Vec<Message>, out: &mut SourceOutput) -> Result<(), Error> {
        let new = self.new_ones(arrived).await;
        let mut rest = &new[..];
        // The others are given back.
        while !rest.is_empty() && !out.is_stopping() {
            let count = self.of.messages.batch(rest, out.batch_bytes()).min(out.next_rows());
            let (batch, after) = rest.split_at(count);
            self.send(batch, out).await?;
            rest = after;
        }
        Ok(())
    }

    /// Returns the messages that were not delivered before.
    async fn new_ones(&self, arrived: Vec<Message>) -> Vec<Incoming> {
        let Sorted { new, settled, ignored } = sort(&mut self.deliveries.lock(), arrived);
        if ignored > 0 {
            let stream = &self.of.stream;
            tracing::warn!("{ignored} messages of `{stream}` have no place in it, and are ignored");
        }
        if !settled.is_empty() {
            self.tell(News::Settled(settled.into_values().collect())).await;
        }
        new
    }

    async fn send(&self, batch: &[Incoming], out: &mut SourceOutput) -> Result<(), Error> {
        let received = self.of.messages.received(batch, out).await?;
        let places = batch.iter().filter_map(|incoming| incoming.place.as_ref());
        let sequences: Vec<u64> = places.clone().map(|place| place.sequence).collect();
        let offset = self.deliveries.lock().send(places);
        let checkpoint = Checkpoint { partition: self.partition.clone(), offset };
        let received = with_checkpoint(received, checkpoint);
        let sent = match self.of.messages.rejected(batch) {
            None => out.send_acked(received).await,
            Some(reason) => out.reject_acked(received, vec![reason]).await,
        };
        match sent {
            Ok(settled) => {
                self.tell(News::Sent(sequences, settled)).await;
                Ok(())
            }
            Err(error) => {
                drop(self.deliveries.lock().fail(&sequences));
                Err(error)
            }
        }
    }

    async fn tell(&self, news: News) {
        // The other task ends after this one.
        let _ = self.tell.send(news).await;
    }
}

/// Messages that have arrived, by what is to be done with them.
#[derive(Default)]
struct Sorted {
    new: Vec<Incoming>,
    /// The subjects for the acknowledgements of messages that were settled, by number. Of each message the
    /// last one counts.
    settled: BTreeMap<u64, Arc<str>>,
    /// How many have no place in the stream.
    ignored: usize,
}

fn sort(deliveries: &mut Deliveries, arrived: Vec<Message>) -> Sorted {
    let mut sorted = Sorted::default();
    for message in arrived {
        let place = message.reply.as_ref().and_then(|reply| Place::of(reply));
        let (Some(place), Some(reply)) = (place, message.reply.clone()) else {
            sorted.ignored += 1;
            continue;
        };
        match deliveries.arrive(&place, &reply) {
            Arrival::New => sorted.new.push(Incoming { message, place: Some(place) }),
            Arrival::OnItsWay => {}
            Arrival::Settled => drop(sorted.settled.insert(place.sequence, reply)),
        }
    }
    sorted
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::wire::Headers;

    #[test]
    fn of_a_settled_message_that_comes_again_and_again_only_the_last_reply_is_kept() {
        let message = |delivery: usize| Message {
            subject: "s".into(),
            reply: Some(format!("$JS.ACK.S.c.{delivery}.7.{delivery}.5.0").into()),
            headers: Headers::default(),
            headers_size: 0,
            payload: Bytes::new(),
            size: 0,
        };
        let mut deliveries = Deliveries::new("c".to_owned(), None);
        let first = sort(&mut deliveries, vec![message(1), message(2)]);
        assert_eq!((first.new.len(), first.settled.len()), (1, 0));
        deliveries.send(first.new.iter().filter_map(|incoming| incoming.place.as_ref()));
        deliveries.settle(&[7]);
        let again = sort(&mut deliveries, (3..2000).map(message).collect());
        assert!(again.new.is_empty() && again.ignored == 0);
        let expected: Arc<str> = "$JS.ACK.S.c.1999.7.1999.5.0".into();
        assert_eq!(again.settled, BTreeMap::from([(7, expected)]));
    }
}

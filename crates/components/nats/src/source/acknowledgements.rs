//! Acknowledgements: sent when messages are settled, and sent again until the server has them.
//!
//! A subject takes the acknowledgement of one message. The server takes those of a connection in order. So
//! only the last one of a batch asks for an answer, which is then that of all of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use parking_lot::Mutex;
use thalweg_broker::keeping::{SETTLE_WAIT, Settling, settle_wait};
use thalweg_engine::{Settled, SourceOutput};
use thalweg_record::Settlement;
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior};

use super::deliveries::Deliveries;
use crate::connection::{Connection, Room, SUBSCRIPTION, Subscriber};
use crate::wire::{Message, Publication, status};

/// How often the keeper looks after acknowledgements without an answer, and after the end of the source.
const LOOK: Duration = Duration::from_millis(100);
/// How long an answer may take before the acknowledgements are sent again, and how often that is done. Some
/// servers do not answer what they know already.
const ANSWER: Duration = Duration::from_secs(2);
const ATTEMPTS: u32 = 5;
/// How long an acknowledgement may wait in the client.
const WRITE: Duration = Duration::from_secs(1);
/// The bytes of answers that may wait to be read. An answer is a subject without a payload.
const ANSWERS: usize = 256 << 10;

/// The bytes of the acknowledgements without an answer that are kept to be sent again, about, and those of
/// each one beside its subject. The messages of the others are delivered again if they were lost.
const KEPT: usize = 16 << 20;
const BESIDE: usize = 100;

/// News of the task that sends messages on.
pub(super) enum News {
    /// Messages were sent on.
    Sent(Vec<u64>, Settled),
    /// Messages were delivered again that are settled.
    Settled(Vec<Arc<str>>),
    /// The task has failed: it begins again later.
    Failed,
}

/// The acknowledgements of a consumer, over all connections of the source.
pub(super) struct Acknowledgements {
    pub(super) deliveries: Arc<Mutex<Deliveries>>,
    /// The batches that are on their way, each with the numbers of its messages.
    settling: Settling<Vec<u64>>,
    /// The acknowledgements without an answer, by the number at the end of the subject for the answer.
    unanswered: BTreeMap<u64, Unanswered>,
    /// The bytes of them, about.
    kept: usize,
    next: u64,
}

struct Unanswered {
    replies: Vec<Arc<str>>,
    body: Bytes,
    sent: Instant,
    attempts: u32,
}

impl Unanswered {
    fn size(&self) -> usize {
        self.replies.iter().map(|reply| reply.len() + BESIDE).sum()
    }
}

/// The connection over which acknowledgements are sent.
pub(super) struct Link<'a> {
    connection: &'a Connection,
    inbox: String,
    answers: Subscriber,
}

impl<'a> Link<'a> {
    /// Prepares to receive answers.
    pub(super) fn new(connection: &'a Connection) -> Self {
        let inbox = connection.inbox();
        let room = Room::new(SUBSCRIPTION, ANSWERS);
        let answers = connection.subscribe(&format!("{inbox}.*"), None, &room);
        Self { connection, inbox, answers }
    }

    /// Writes the body of an acknowledgement. `None` if the connection with the epoch does not take it.
    async fn write(&self, epoch: u64, subject: &str, answer: Option<&str>, body: &[u8]) -> Option<()> {
        let message = Publication { subject, reply: answer, headers: &[], payload: body };
        self.connection.publish_over(epoch, &message, WRITE).await.ok()
    }
}

/// The times of a consumer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// How long the server waits for an acknowledgement.
    pub(super) ack_wait: Duration,
    /// How long the server waits before it delivers a message again that failed.
    pub(super) retry_delay: Duration,
}

impl Acknowledgements {
    pub(super) fn new(deliveries: Deliveries) -> Self {
        Self {
            deliveries: Arc::new(Mutex::new(deliveries)),
            settling: Settling::default(),
            unanswered: BTreeMap::new(),
            kept: 0,
            next: 0,
        }
    }

    /// Acknowledges what is settled, and keeps the other messages from being delivered again, until the news
    /// have ended and all is acknowledged.
    pub(super) async fn keep(
        &mut self,
        link: &mut Link<'_>,
        times: Times,
        out: &SourceOutput,
        mut news: mpsc::Receiver<News>,
    ) {
        let (mut progress, mut look) = (every((times.ack_wait / 3).max(LOOK)), every(LOOK));
        let (mut has_news, mut moved) = (true, Instant::now());
        loop {
            tokio::select! {
                new = news.recv(), if has_news => match new {
                    Some(News::Sent(sequences, settled)) => {
                        // If the server takes acknowledgements slowly, those that wait do not become more.
                        if let Some(settled) = self.settling.next_now() {
                            moved = Instant::now();
                            self.settled(link, times, out, settled).await;
                        }
                        self.settling.add(sequences, settled);
                    }
                    Some(News::Settled(replies)) => self.answer(link, replies, Bytes::from_static(ACK)).await,
                    Some(News::Failed) => return self.give_back(link, out).await,
                    None => {
                        self.give_back(link, out).await;
                        (has_news, moved) = (false, Instant::now());
                    }
                },
                Some(settled) = self.settling.next() => {
                    moved = Instant::now();
                    self.settled(link, times, out, settled).await;
                }
                Some(answer) = link.answers.next() => if self.answered(link, &answer) {
                    moved = Instant::now();
                },
                _ = progress.tick() => self.say_in_progress(link).await,
                _ = look.tick() => {
                    self.repeat(link).await;
                    if !has_news && self.is_over(out, moved) {
                        return;
                    }
                }
            }
        }
    }

    /// True if the source need not wait any longer.
    fn is_over(&self, out: &SourceOutput, moved: Instant) -> bool {
        // Messages are acknowledged after a checkpoint.
        out.save_soon();
        let wait = settle_wait(out);
        // Without an answer, the server delivers messages again, and a later run acknowledges them.
        let answers = if self.settling.is_empty() { SETTLE_WAIT[0] } else { wait };
        (self.settling.is_empty() && self.unanswered.is_empty()) || moved.elapsed() >= wait.min(answers)
    }

    /// Sends the answer of a batch that was settled.
    async fn settled(
        &mut self,
        link: &Link<'_>,
        times: Times,
        out: &SourceOutput,
        (sequences, settlement): (Vec<u64>, Settlement),
    ) {
        if settlement.outcome.is_safe() {
            // The engine counts the messages of a batch that became dead letters, and does not name them.
            let are_all_rejected = settlement.rejected >= sequences.len();
            let body = if are_all_rejected { TERM } else { ACK };
            let replies = self.deliveries.lock().settle(&sequences);
            self.answer(link, replies, Bytes::from_static(body)).await;
        } else if !out.is_dry() {
            let replies = self.deliveries.lock().fail(&sequences);
            self.answer(link, replies, nak(times.retry_delay)).await;
        }
    }

    /// Lets the server deliver to others what was not sent on; in a dry run, all that was received.
    async fn give_back(&mut self, link: &Link<'_>, out: &SourceOutput) {
        let replies = match out.is_dry() {
            true => self.deliveries.lock().replies(),
            false => self.deliveries.lock().take_unsent(),
        };
        self.answer(link, replies, nak(Duration::ZERO)).await;
    }

    async fn answer(&mut self, link: &Link<'_>, replies: Vec<Arc<str>>, body: Bytes) {
        if replies.is_empty() {
            return;
        }
        let number = self.next;
        self.next += 1;
        let unanswered = Unanswered { replies, body, sent: Instant::now(), attempts: 1 };
        write_all(link, number, &unanswered).await;
        self.kept += unanswered.size();
        self.unanswered.insert(number, unanswered);
        // The last one is kept, however large it is.
        while self.kept > KEPT && self.unanswered.len() > 1 {
            if let Some((_, oldest)) = self.unanswered.pop_first() {
                self.kept -= oldest.size();
            }
        }
    }

    /// Sends acknowledgements again that have no answer.
    async fn repeat(&mut self, link: &Link<'_>) {
        let kept = &mut self.kept;
        self.unanswered.retain(|_, unanswered| {
            let is_kept = unanswered.attempts < ATTEMPTS || unanswered.sent.elapsed() < ANSWER;
            *kept -= if is_kept { 0 } else { unanswered.size() };
            is_kept
        });
        if !link.connection.is_connected() {
            return;
        }
        for (number, unanswered) in &mut self.unanswered {
            if unanswered.sent.elapsed() >= ANSWER {
                (unanswered.sent, unanswered.attempts) = (Instant::now(), unanswered.attempts + 1);
                if !write_all(link, *number, unanswered).await {
                    // Each of the others could take as long.
                    return;
                }
            }
        }
    }

    /// Notes an answer. Returns true if it was waited for.
    fn answered(&mut self, link: &Link<'_>, answer: &Message) -> bool {
        let number = answer.subject.strip_prefix(link.inbox.as_str()).and_then(|rest| rest.strip_prefix('.'));
        let number = number.and_then(|number| number.parse().ok());
        // No server has the consumer at the moment, so none has taken them.
        let is_taken = answer.status() != Some(status::NO_RESPONDERS);
        let taken = number.filter(|_| is_taken).and_then(|number: u64| self.unanswered.remove(&number));
        self.kept -= taken.as_ref().map_or(0, Unanswered::size);
        taken.is_some()
    }

    /// Says that all messages on their way are still being processed.
    async fn say_in_progress(&mut self, link: &Link<'_>) {
        let replies = self.deliveries.lock().replies();
        if !link.connection.is_connected() {
            return;
        }
        let epoch = link.connection.epoch();
        for reply in replies {
            if link.write(epoch, &reply, None, IN_PROGRESS).await.is_none() {
                return;
            }
        }
    }
}

fn every(period: Duration) -> Interval {
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// The bodies of acknowledgements.
const ACK: &[u8] = b"+ACK";
const TERM: &[u8] = b"+TERM";
const IN_PROGRESS: &[u8] = b"+WPI";

/// Returns the body for messages that are to be delivered again after this time.
fn nak(delay: Duration) -> Bytes {
    match delay.as_nanos() {
        0 => Bytes::from_static(b"-NAK"),
        nanoseconds => format!("-NAK {{\"delay\": {nanoseconds}}}").into(),
    }
}

/// Writes acknowledgements, as far as the connection takes them: the others are repeated. The answer to the
/// last one counts for all, so all go over one connection. Returns true if all are written.
async fn write_all(link: &Link<'_>, number: u64, unanswered: &Unanswered) -> bool {
    let Some((last, others)) = unanswered.replies.split_last() else { return true };
    let (answer, epoch) = (format!("{}.{number}", link.inbox), link.connection.epoch());
    let written = async {
        for reply in others {
            link.write(epoch, reply, None, &unanswered.body).await?;
        }
        link.write(epoch, last, Some(&answer), &unanswered.body).await
    };
    // If it fails, no answer comes.
    link.connection.is_connected() && matches!(tokio::time::timeout(WRITE, written).await, Ok(Some(())))
}

#[cfg(test)]
mod tests {
    use thalweg_engine::testing::options;
    use thalweg_testbed::Patience;

    use super::*;
    use crate::options::ServerOptions;
    use crate::scripted::Scripted;

    #[test]
    fn a_delay_is_in_nanoseconds() {
        assert_eq!(nak(Duration::ZERO), "-NAK");
        assert_eq!(nak(Duration::from_millis(1500)), "-NAK {\"delay\": 1500000000}");
    }

    #[tokio::test]
    async fn an_answer_in_place_of_the_consumer_is_none() {
        let server = Scripted::start().await;
        let servers = options::<ServerOptions>(&format!("{{ servers: '{}' }}", server.address()));
        let (connection, mut peer) = tokio::join!(Connection::open(&servers, 1000), server.accept());
        let connection = connection.unwrap();
        let mut link = Link::new(&connection);
        let mut acknowledgements = Acknowledgements::new(Deliveries::new("c".to_owned(), None));
        let subject = "$JS.ACK.S.c.1.1.1.1.0";
        acknowledgements.answer(&link, vec![subject.into()], Bytes::from_static(ACK)).await;
        let line = peer.line(&format!("PUB {subject} ")).await;
        let reply = line.split(' ').next().unwrap();
        let none = format!("HMSG {reply} 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n");
        peer.write(none.as_bytes()).await.unwrap();
        let answer = link.answers.next().await.unwrap();
        assert!(!acknowledgements.answered(&link, &answer));
        assert_eq!(acknowledgements.unanswered.len(), 1);
        peer.write(format!("MSG {reply} 1 0\r\n\r\n").as_bytes()).await.unwrap();
        let answer = link.answers.next().await.unwrap();
        assert!(acknowledgements.answered(&link, &answer));
        assert!(acknowledgements.unanswered.is_empty());
        assert_eq!(acknowledgements.kept, 0);
    }

    #[tokio::test]
    async fn of_acknowledgements_that_a_server_never_answers_so_many_bytes_are_kept() {
        let server = Scripted::start().await;
        let servers = options::<ServerOptions>(&format!("{{ servers: '{}' }}", server.address()));
        let (connection, peer) = tokio::join!(Connection::open(&servers, 1000), server.accept());
        let connection = connection.unwrap();
        let link = Link::new(&connection);
        drop((peer, server));
        let patience = Patience::begin();
        while connection.is_connected() {
            patience.check(|| "the connection broke".to_owned());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let mut acknowledgements = Acknowledgements::new(Deliveries::new("c".to_owned(), None));
        let replies: Vec<Arc<str>> = vec!["x".repeat(1000).into(); 1000];
        for _ in 0..100 {
            acknowledgements.answer(&link, replies.clone(), Bytes::from_static(ACK)).await;
        }
        let sizes = acknowledgements.unanswered.values().map(Unanswered::size);
        assert_eq!(sizes.sum::<usize>(), acknowledgements.kept);
        assert!(acknowledgements.kept <= KEPT && acknowledgements.kept > KEPT / 2);
        assert_eq!(acknowledgements.unanswered.last_key_value().map(|(number, _)| *number), Some(99));
    }
}

//! A durable consumer of a stream: opened, and asked for messages.
//!
//! A request for messages is bounded in bytes, there is one at a time, and it ends with its connection.

use std::time::{Duration, Instant};

use chrono::{DateTime, SecondsFormat};
use futures_util::StreamExt;
use thalweg_engine::Error;

use super::place::Place;
use super::{NatsSource, POLL, Start};
use crate::connection::{Connection, NotSent, Room, SUBSCRIPTION, Subscriber};
use crate::jetstream::{Api, ConsumerInfo, Failure, NewConsumer, Pull, Refusal, shown};
use crate::wire::{Message, Publication, status};

/// The number of messages that a request is for.
const RECORDS: usize = 2048;
/// How long a request waits for messages at the server, and how much later the source takes it for lost.
const EXPIRES: Duration = Duration::from_secs(2);
const LOST_AFTER: Duration = Duration::from_secs(1);
/// The pause after a request that the server refused.
const PAUSE: Duration = Duration::from_millis(500);
/// The pauses after a request that the server ended before its time without a reason: the first one, and the
/// longest.
const EARLY: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];
/// How long the server may refuse all requests before the source looks for its stream and consumer again.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long a request may wait to be written.
const WRITE: Duration = Duration::from_secs(1);
/// The errors of JetStream for a consumer that exists already: by another configuration, and by its name.
const EXISTS: [u64; 2] = [10013, 10148];

/// The consumer of a source.
pub(super) struct Consumer<'a> {
    connection: &'a Connection,
    api: Api,
    stream: String,
    name: String,
    /// The first description of it.
    pub(super) info: ConsumerInfo,
}

impl Consumer<'_> {
    /// Asks how far the consumer is. `None` if the server does not answer.
    pub(super) async fn ask(&self) -> Option<ConsumerInfo> {
        self.api.consumer(self.connection, &self.stream, &self.name).await.ok()
    }
}

/// Opens the consumer, which is created unless it exists. It must then be one whose messages are acknowledged
/// one by one.
///
/// # Errors
/// If the stream does not exist, or the consumer is of another kind.
pub(super) async fn open<'a>(
    config: &NatsSource,
    stream: &str,
    name: &str,
    max_ack_pending: i64,
    connection: &'a Connection,
) -> Result<Consumer<'a>, Error> {
    let api = Api::new(config.domain.as_deref());
    api.find_stream(connection, stream).await.map_err(|failure| match failure {
        Failure::Refused(refusal) => {
            Error::temporary(format!("the stream `{stream}` cannot be read")).caused_by(refusal)
        }
        Failure::Unanswered(error) => error.context(format!("the stream `{stream}` cannot be read")),
    })?;
    let found = match api.consumer(connection, stream, name).await {
        Err(Failure::Refused(refusal)) if refusal.code == 404 => {
            let wanted = wanted(config, name, max_ack_pending);
            api.create_consumer(connection, stream, &wanted).await
        }
        found => found,
    };
    let what = format!("the consumer `{name}` of the stream `{stream}` cannot be used");
    let info = found.map_err(|failure| match failure {
        Failure::Refused(refusal) if is_final(&refusal) => Error::permanent(&what).caused_by(refusal),
        Failure::Refused(refusal) => Error::temporary(&what).caused_by(refusal),
        Failure::Unanswered(error) => error.context(&what),
    })?;
    if info.config.deliver_subject.is_some() {
        let reason = "the server sends its messages without being asked (`deliver_subject`)";
        return Err(Error::permanent(what).caused_by(reason));
    }
    match info.config.ack_policy.as_str() {
        "explicit" => {
            Ok(Consumer { connection, api, stream: stream.to_owned(), name: name.to_owned(), info })
        }
        _ => Err(Error::permanent(format!(
            "messages of the consumer `{name}` of the stream `{stream}` cannot be acknowledged one by one: \
             its `ack_policy` must be `explicit`"
        ))),
    }
}

/// True if another attempt to use a consumer would be refused too.
///
/// Another run that starts at the same time may have created the consumer in between, which the next attempt
/// finds. A stream or a consumer may be missing for a moment, and the server may be too busy.
fn is_final(refused: &Refusal) -> bool {
    let passes = matches!(refused.code, 404 | 408 | 429) || EXISTS.contains(&refused.err_code);
    (400..500).contains(&refused.code) && !passes
}

/// Returns the consumer to create if there is none.
fn wanted<'a>(config: &'a NatsSource, name: &'a str, max_ack_pending: i64) -> NewConsumer<'a> {
    let (deliver_policy, opt_start_seq, opt_start_time) = match (config.start_sequence, config.start) {
        (Some(sequence), _) => ("by_start_sequence", Some(sequence), None),
        (None, Start::All) => ("all", None, None),
        (None, Start::New) => ("new", None, None),
        (None, Start::Last) => ("last", None, None),
        (None, Start::LastPerSubject) => ("last_per_subject", None, None),
        (None, Start::Time(nanoseconds)) => {
            let time = DateTime::from_timestamp_nanos(nanoseconds);
            ("by_start_time", None, Some(time.to_rfc3339_opts(SecondsFormat::Nanos, true)))
        }
    };
    let none: &[String] = &[];
    // Servers before 2.10 know only one subject.
    let (filter_subject, filter_subjects) = match &config.subjects[..] {
        [only] => (Some(only.as_str()), none),
        all => (None, all),
    };
    NewConsumer {
        durable_name: name,
        deliver_policy,
        opt_start_seq,
        opt_start_time,
        ack_policy: "explicit",
        ack_wait: nanoseconds(config.ack_timeout.duration()),
        replay_policy: "instant",
        max_ack_pending,
        filter_subject,
        filter_subjects,
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Asks for messages, one request at a time.
pub(super) struct Requests<'a> {
    connection: &'a Connection,
    /// The subject of requests.
    subject: String,
    /// The subject for their answers.
    inbox: String,
    arriving: Subscriber,
    batch: usize,
    /// The size of the messages that a request is for.
    bytes: usize,
    expires: Duration,
    /// The request that the server has.
    pending: Option<Pending>,
    /// True if the next message is larger than a request is for.
    is_large: bool,
    pause_until: Option<Instant>,
    /// The number of requests in a row that the server ended before their time.
    early: u32,
    /// Since when the server refuses requests.
    refused: Option<Instant>,
    /// True if all messages were taken that had arrived by the end of the last call of [`next`](Self::next).
    pub(super) is_drained: bool,
    /// True if a request was sent, since it was last set to false.
    pub(super) has_asked: bool,
}

struct Pending {
    /// The number of messages that are missing.
    left: usize,
    /// The number of messages that it is for.
    all: usize,
    since: Instant,
    until: Instant,
    epoch: u64,
}

impl<'a> Requests<'a> {
    /// Prepares to ask for messages.
    pub(super) fn new(consumer: &Consumer<'a>, fetch_bytes: usize) -> Self {
        let connection = consumer.connection;
        let inbox = connection.inbox();
        // The server may still send what an earlier request was for.
        let room = Room::new(SUBSCRIPTION, 2 * fetch_bytes);
        let arriving = connection.subscribe(&inbox, None, &room);
        // A consumer may have limits for requests.
        let config = &consumer.info.config;
        let limit = |limit: i64, wanted: usize| match usize::try_from(limit) {
            Ok(limit) if limit > 0 => wanted.min(limit),
            _ => wanted,
        };
        Self {
            connection,
            subject: consumer.api.pull(&consumer.stream, &consumer.name),
            inbox,
            arriving,
            batch: limit(config.max_batch, RECORDS),
            bytes: limit(config.max_bytes, fetch_bytes),
            expires: config.max_expires().map_or(EXPIRES, |most| EXPIRES.min(most)),
            pending: None,
            is_large: false,
            pause_until: None,
            early: 0,
            refused: None,
            is_drained: false,
            has_asked: false,
        }
    }

    /// Returns messages, none after [`POLL`].
    ///
    /// # Errors
    /// If the server refuses all requests for some time, or the client has ended.
    pub(super) async fn next(&mut self) -> Result<Vec<Message>, Error> {
        let mut messages = Vec::new();
        // Messages that arrived for an earlier request are returned before another one is sent: a server that
        // crashed in between may count its deliveries from an earlier number.
        let mut next = self.arriving.arrived();
        if next.is_none() {
            self.ask().await?;
            next = tokio::time::timeout(POLL, self.arriving.next()).await.ok();
        }
        self.is_drained = true;
        let mut taken = 0;
        while let Some(arrived) = next {
            let Some(message) = arrived else { return Err(self.connection.lost()) };
            match about_request(&message) {
                Some((status, text)) => self.ended(status, &text)?,
                None => {
                    self.took_one();
                    messages.push(message);
                }
            }
            taken += 1;
            if taken >= RECORDS {
                self.is_drained = false;
                break;
            }
            next = self.arriving.arrived();
        }
        Ok(messages)
    }

    /// Returns the messages that have arrived.
    pub(super) fn rest(&mut self) -> Vec<Message> {
        let arrived = std::iter::from_fn(|| self.arriving.arrived().flatten()).take(SUBSCRIPTION);
        arrived.filter(|message| about_request(message).is_none()).collect()
    }

    /// Sends a request, unless the server has one.
    async fn ask(&mut self) -> Result<(), Error> {
        let epoch = self.connection.epoch();
        let is_lost = |pending: &Pending| pending.epoch != epoch || pending.until <= Instant::now();
        if self.pending.as_ref().is_some_and(is_lost) {
            self.pending = None;
        }
        let pauses = self.pause_until.is_some_and(|until| Instant::now() < until);
        if self.pending.is_some() || pauses || !self.connection.is_connected() {
            return Ok(());
        }
        let expires = nanoseconds(self.expires);
        let request = match self.is_large {
            true => Pull { batch: 1, expires, max_bytes: None },
            false => Pull { batch: self.batch, expires, max_bytes: Some(self.bytes) },
        };
        let all = request.batch;
        let failed = |reason: String| Error::temporary("messages cannot be asked for").caused_by(reason);
        let payload = serde_json::to_vec(&request).map_err(|error| failed(error.to_string()))?;
        let message =
            Publication { subject: &self.subject, reply: Some(&self.inbox), headers: &[], payload: &payload };
        match self.connection.publish(&message, WRITE).await {
            Ok(()) => {}
            Err(NotSent::Blocked) => return Ok(()),
            Err(NotSent::Lost(_)) => return Err(self.connection.lost()),
            Err(NotSent::Refused(reason)) => return Err(failed(reason)),
        }
        let since = Instant::now();
        let until = since + self.expires + LOST_AFTER;
        self.pending = Some(Pending { left: all, all, since, until, epoch });
        self.has_asked = true;
        Ok(())
    }

    fn took_one(&mut self) {
        (self.refused, self.is_large) = (None, false);
        if let Some(pending) = &mut self.pending {
            pending.left = pending.left.saturating_sub(1);
            if pending.left == 0 {
                (self.pending, self.early) = (None, 0);
            }
        }
    }

    /// Notes that the server has ended a request.
    fn ended(&mut self, status: u16, text: &str) -> Result<(), Error> {
        let has_none = self.pending.as_ref().is_some_and(|pending| pending.left == pending.all);
        match status {
            // A sign of life.
            status::IDLE_HEARTBEAT => return Ok(()),
            // No message came in time.
            status::TIMEOUT | status::NOT_FOUND => {
                self.refused = None;
                if let Some(pending) = &self.pending {
                    let (early, pause) = after_none(self.early, pending.since.elapsed(), self.expires);
                    (self.early, self.pause_until) = (early, Some(Instant::now() + pause));
                }
            }
            // The request is full, or its first message is larger than all that was asked for. A request that
            // was refused for another reason is repeated after a pause.
            status::REQUEST_TERMINATED if !has_none => {}
            status::REQUEST_TERMINATED if !self.is_large => self.is_large = true,
            _ => {
                self.is_large = false;
                self.pause_until = Some(Instant::now() + PAUSE);
                let since = *self.refused.get_or_insert_with(Instant::now);
                if since.elapsed() >= PATIENCE {
                    self.refused = None;
                    let text = shown(text);
                    let reason = format!("the server answers requests for messages with {status} {text}");
                    return Err(Error::temporary(reason.trim_end()));
                }
            }
        }
        self.pending = None;
        Ok(())
    }
}

/// Returns how many requests in a row were ended before their time, and the pause before the next one, after
/// a request for `expires` that `lasted` this long and that the server ended without a reason. Half of the
/// time is enough, because clocks differ.
fn after_none(early: u32, lasted: Duration, expires: Duration) -> (u32, Duration) {
    let [first, longest] = EARLY;
    if lasted >= expires / 2 {
        // The time may be very short.
        return (0, first.saturating_sub(lasted));
    }
    (early.saturating_add(1), (first * 2_u32.pow(early.min(10))).min(longest))
}

/// Returns the number and the text of a message that is about a request. A message of the stream has a
/// subject for its acknowledgement: its sender may have written a number too, and it has to be settled as the
/// others.
fn about_request(message: &Message) -> Option<(u16, String)> {
    let (status, text) = message.headers.status().filter(|(status, _)| *status != status::OK)?;
    let is_of_stream = message.reply.as_deref().is_some_and(|reply| Place::of(reply).is_some());
    (!is_of_stream).then(|| (status, text.into_owned()))
}

/// True if a source that is to end need not wait for the consumer: all messages without an acknowledgement
/// are the `open` ones of the source, and there are no others. If nothing has moved for long (`has_stalled`),
/// also if there are others, which the consumer delivers only after acknowledgements.
pub(super) fn is_done(info: &ConsumerInfo, open: usize, has_stalled: bool) -> bool {
    let most = usize::try_from(info.config.max_ack_pending).unwrap_or_default();
    let is_full = most > 0 && info.num_ack_pending >= most;
    info.num_ack_pending <= open && (info.num_pending == 0 || is_full && has_stalled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Headers;
    use bytes::Bytes;

    #[test]
    fn a_consumer_that_another_run_created_and_a_busy_server_are_tried_again() {
        for (code, error, expected) in [
            (400, 10013, false),
            (400, 10148, false),
            (404, 10059, false),
            (408, 0, false),
            (429, 10160, false),
            (503, 10008, false),
            (400, 10025, true),
        ] {
            let refused = serde_json::json!({ "code": code, "err_code": error, "description": "no" });
            let refused = serde_json::from_value(refused).unwrap();
            assert_eq!(is_final(&refused), expected, "{code}, {error}");
        }
    }

    #[test]
    fn the_pause_grows_with_requests_that_end_before_their_time() {
        let (mut early, mut pause) = (0, Duration::ZERO);
        for expected in [50, 100, 200, 400, 800, 1000, 1000] {
            (early, pause) = after_none(early, Duration::ZERO, EXPIRES);
            assert_eq!(pause, Duration::from_millis(expected));
        }
        assert_eq!((early, after_none(u32::MAX, Duration::ZERO, EXPIRES).1), (7, pause));
        assert_eq!(after_none(early, EXPIRES, EXPIRES), (0, Duration::ZERO));
        // The requests of a consumer may end at once.
        assert_eq!(after_none(early, Duration::ZERO, Duration::from_nanos(1)), (0, EARLY[0]));
    }

    #[test]
    fn a_message_of_the_stream_is_one_whatever_its_sender_wrote() {
        let headers = b"NATS/1.0 409 Consumer Deleted\r\n\r\n";
        let mut message = Message {
            subject: "s".into(),
            reply: None,
            headers: Headers::new(headers),
            headers_size: headers.len(),
            payload: Bytes::new(),
            size: 0,
        };
        assert_eq!(about_request(&message), Some((409, "Consumer Deleted".to_owned())));
        message.reply = Some("other".into());
        assert!(about_request(&message).is_some());
        message.reply = Some("$JS.ACK.S.c.1.2.3.4.5".into());
        assert_eq!(about_request(&message), None);
    }
}

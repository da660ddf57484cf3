//! A durable consumer of a stream: opened, and asked for messages.
//!
//! The client's own stream of messages was rejected. It asks for more while earlier messages wait, and is
//! silent for as long as a request lasts after a connection broke. A request here ends with its connection.

use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::pull::{BatchConfig, Config};
use async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy, Info};
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::stream::ConsumerErrorKind;
use async_nats::jetstream::{self, Context, ErrorCode};
use async_nats::{Message, StatusCode, Subject, Subscriber, datetime};
use futures_util::{FutureExt, StreamExt};
use thalweg_engine::Error;

use super::{NatsSource, POLL, Start};
use crate::connection::Connection;

/// The number of messages that a request is for.
const RECORDS: usize = 2048;
/// How long a request waits for messages at the server, and how much later the source takes it for lost.
const EXPIRES: Duration = Duration::from_secs(2);
const LOST_AFTER: Duration = Duration::from_secs(1);
/// The pause after a request that the server refused.
const PAUSE: Duration = Duration::from_millis(500);
/// How long the server may refuse all requests before the source looks for its stream and consumer again.
const PATIENCE: Duration = Duration::from_secs(15);

/// The consumer of a source.
pub(super) type PullConsumer = Consumer<Config>;

/// Opens the consumer, which is created unless it exists. It must then be one whose messages are acknowledged
/// one by one.
///
/// # Errors
/// If the stream does not exist, or the consumer is of another kind.
pub(super) async fn open(
    config: &NatsSource,
    stream: &str,
    name: &str,
    max_ack_pending: i64,
    connection: &Connection,
) -> Result<PullConsumer, Error> {
    let context = context(config, connection);
    let found = context.get_stream(stream).await.map_err(|error| {
        let failed = match error.kind() {
            GetStreamErrorKind::EmptyName | GetStreamErrorKind::InvalidStreamName => Error::permanent,
            GetStreamErrorKind::Request | GetStreamErrorKind::JetStream(_) => Error::temporary,
        };
        failed(format!("the stream `{stream}` cannot be read")).caused_by(error)
    })?;
    let wanted = wanted(config, name, max_ack_pending)?;
    let consumer = found.get_or_create_consumer(name, wanted).await.map_err(|error| {
        let failed = match error.kind() {
            ConsumerErrorKind::InvalidConsumerType | ConsumerErrorKind::InvalidName => Error::permanent,
            ConsumerErrorKind::JetStream(refused) if is_final(&refused) => Error::permanent,
            _ => Error::temporary,
        };
        failed(format!("the consumer `{name}` of the stream `{stream}` cannot be used")).caused_by(error)
    })?;
    match consumer.cached_info().config.ack_policy {
        AckPolicy::Explicit => Ok(consumer),
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
fn is_final(refused: &jetstream::Error) -> bool {
    let is_there = [ErrorCode::CONSUMER_NAME_EXIST, ErrorCode::CONSUMER_ALREADY_EXISTS];
    let passes = matches!(refused.code(), 404 | 408 | 429) || is_there.contains(&refused.error_code());
    (400..500).contains(&refused.code()) && !passes
}

fn context(config: &NatsSource, connection: &Connection) -> Context {
    match &config.domain {
        Some(domain) => jetstream::with_domain(connection.client.clone(), domain),
        None => jetstream::new(connection.client.clone()),
    }
}

/// Returns the consumer to create if there is none.
fn wanted(config: &NatsSource, name: &str, max_ack_pending: i64) -> Result<Config, Error> {
    let mut wanted = Config {
        durable_name: Some(name.to_owned()),
        deliver_policy: deliver_policy(config)?,
        ack_policy: AckPolicy::Explicit,
        ack_wait: config.ack_timeout.duration(),
        max_ack_pending,
        ..Config::default()
    };
    match &config.subjects[..] {
        // Servers before 2.10 know only this form.
        [only] => wanted.filter_subject.clone_from(only),
        all => wanted.filter_subjects = all.to_vec(),
    }
    Ok(wanted)
}

fn deliver_policy(config: &NatsSource) -> Result<DeliverPolicy, Error> {
    if let Some(start_sequence) = config.start_sequence {
        return Ok(DeliverPolicy::ByStartSequence { start_sequence });
    }
    Ok(match config.start {
        Start::All => DeliverPolicy::All,
        Start::New => DeliverPolicy::New,
        Start::Last => DeliverPolicy::Last,
        Start::LastPerSubject => DeliverPolicy::LastPerSubject,
        Start::Time(nanoseconds) => {
            let start_time = datetime::from_nanos(nanoseconds.into())
                .map_err(|error| Error::permanent("`start` cannot be used").caused_by(error))?;
            DeliverPolicy::ByStartTime { start_time }
        }
    })
}

/// Asks for messages, one request at a time.
pub(super) struct Requests<'a> {
    consumer: &'a PullConsumer,
    connection: &'a Connection,
    inbox: Subject,
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
    until: Instant,
    epoch: u64,
}

impl<'a> Requests<'a> {
    /// Prepares to ask for messages.
    ///
    /// # Errors
    /// If the server refuses a subscription for the answers.
    pub(super) async fn new(
        consumer: &'a PullConsumer,
        connection: &'a Connection,
        fetch_bytes: usize,
    ) -> Result<Self, Error> {
        let inbox = connection.client.new_inbox();
        let arriving = connection
            .client
            .subscribe(inbox.clone())
            .await
            .map_err(|error| Error::temporary("cannot subscribe to answers").caused_by(error))?;
        // A consumer may have limits for requests.
        let config = &consumer.cached_info().config;
        let limit = |limit: i64, wanted: usize| match usize::try_from(limit) {
            Ok(limit) if limit > 0 => wanted.min(limit),
            _ => wanted,
        };
        let expires = if config.max_expires.is_zero() { EXPIRES } else { EXPIRES.min(config.max_expires) };
        Ok(Self {
            consumer,
            connection,
            inbox: inbox.into(),
            arriving,
            batch: limit(config.max_batch, RECORDS),
            bytes: limit(config.max_bytes, fetch_bytes),
            expires,
            pending: None,
            is_large: false,
            pause_until: None,
            refused: None,
            is_drained: false,
            has_asked: false,
        })
    }

    /// Returns messages, none after [`POLL`].
    ///
    /// # Errors
    /// If the server refuses all requests for some time.
    pub(super) async fn next(&mut self) -> Result<Vec<Message>, Error> {
        let mut messages = Vec::new();
        // Messages that arrived for an earlier request are returned before another one is sent: a server that
        // crashed in between may count its deliveries from an earlier number.
        let mut next = self.arrived();
        if next.is_none() {
            self.ask().await?;
            next = tokio::time::timeout(POLL, self.arriving.next()).await.ok();
        }
        self.is_drained = true;
        while let Some(arrived) = next {
            let Some(message) = arrived else { return Err(Error::temporary("the subscription has ended")) };
            match message.status {
                None | Some(StatusCode::OK) => {
                    self.took_one();
                    messages.push(message);
                }
                Some(status) => self.ended(status)?,
            }
            if messages.len() >= RECORDS {
                self.is_drained = false;
                break;
            }
            next = self.arrived();
        }
        Ok(messages)
    }

    /// Returns the next message if it has arrived. The inner option is `None` if the subscription has ended.
    fn arrived(&mut self) -> Option<Option<Message>> {
        // Without a budget of the runtime, which would end a batch early.
        tokio::task::unconstrained(self.arriving.next()).now_or_never()
    }

    /// Returns the messages that have arrived.
    pub(super) fn rest(&mut self) -> Vec<Message> {
        let arrived = std::iter::from_fn(|| self.arrived().flatten());
        arrived.filter(|message| message.status.is_none_or(|status| status == StatusCode::OK)).collect()
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
        let request = match self.is_large {
            true => BatchConfig { batch: 1, expires: Some(self.expires), ..BatchConfig::default() },
            false => BatchConfig {
                batch: self.batch,
                max_bytes: self.bytes,
                expires: Some(self.expires),
                ..BatchConfig::default()
            },
        };
        let all = request.batch;
        let asked = self.consumer.request_batch(request, self.inbox.clone()).await;
        asked.map_err(|error| Error::temporary("messages cannot be asked for").caused_by(error))?;
        let until = Instant::now() + self.expires + LOST_AFTER;
        self.pending = Some(Pending { left: all, all, until, epoch });
        self.has_asked = true;
        Ok(())
    }

    fn took_one(&mut self) {
        (self.refused, self.is_large) = (None, false);
        if let Some(pending) = &mut self.pending {
            pending.left = pending.left.saturating_sub(1);
            if pending.left == 0 {
                self.pending = None;
            }
        }
    }

    /// Notes that the server has ended a request.
    fn ended(&mut self, status: StatusCode) -> Result<(), Error> {
        let has_none = self.pending.as_ref().is_some_and(|pending| pending.left == pending.all);
        match status {
            // A sign of life.
            StatusCode::IDLE_HEARTBEAT => return Ok(()),
            // No message came in time.
            StatusCode::TIMEOUT | StatusCode::NOT_FOUND => self.refused = None,
            // The request is full, or its first message is larger than all that was asked for. A request that
            // was refused for another reason is repeated after a pause.
            StatusCode::REQUEST_TERMINATED if !has_none => {}
            StatusCode::REQUEST_TERMINATED if !self.is_large => self.is_large = true,
            _ => {
                self.is_large = false;
                self.pause_until = Some(Instant::now() + PAUSE);
                let since = *self.refused.get_or_insert_with(Instant::now);
                if since.elapsed() >= PATIENCE {
                    self.refused = None;
                    let reason = format!("the server answers requests for messages with {status}");
                    return Err(Error::temporary(reason));
                }
            }
        }
        self.pending = None;
        Ok(())
    }
}

/// True if a source that is to end need not wait for the consumer: all messages without an acknowledgement
/// are the `open` ones of the source, and there are no others. If nothing has moved for long (`has_stalled`),
/// also if there are others, which the consumer delivers only after acknowledgements.
pub(super) fn is_done(info: &Info, open: usize, has_stalled: bool) -> bool {
    let most = usize::try_from(info.config.max_ack_pending).unwrap_or_default();
    let is_full = most > 0 && info.num_ack_pending >= most;
    info.num_ack_pending <= open && (info.num_pending == 0 || is_full && has_stalled)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}

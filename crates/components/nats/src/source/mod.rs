//! `nats`: reads subjects of the core, or a stream by a durable consumer.
//!
//! [`subscription`] is the core, where nothing is acknowledged; [`stream`] is JetStream. The two have little
//! in common but the connection, and the way from a message to its fields ([`messages`]). They are one
//! component nevertheless, because a user thinks of a server and subjects first. A key-value bucket is a
//! stream, so a third way to read one was rejected.

mod acknowledgements;
mod consumer;
mod deliveries;
mod messages;
mod place;
mod sequences;
mod stream;
mod subscription;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_broker::ahead;
use thalweg_config::{ByteSize, List, TimeSpan};
use thalweg_engine::{
    Component, Context, Endless, Error, KnownFields, Mistake, Source, SourceConfig, SourceOutput,
};

use crate::connection::{ANSWER, Connection};
use crate::options::{SUBJECT_RULE, ServerOptions, Wildcards, is_name, is_subject};
use messages::{Field, Messages};
use stream::Stream;
use subscription::Subscription;

/// How long the source waits for messages before it looks whether it is to end.
const POLL: Duration = Duration::from_millis(100);
/// The most messages that a consumer which is created may have without an acknowledgement.
const MOST_PENDING: usize = 50_000;

/// Reads messages of NATS: subjects of the core, or a stream of JetStream.
///
/// With `stream`, a durable consumer reads the stream. It is created unless it exists; one that exists is
/// used as it is. A message is acknowledged when it is delivered, or rejected and kept with its reason. While
/// it is on its way, the server hears that it is being processed. Run the same configuration several times,
/// and the server divides the messages among the runs. So none is lost: the messages of a run that ends
/// without acknowledging them are delivered again, after `ack_timeout`. The order of the others is that of
/// the stream. With `--state`, a message that the checkpoint covers and that is delivered again is not sent
/// on a second time.
///
/// Without `stream`, the source subscribes to `subjects`. Such messages are delivered at most once: those are
/// lost that are sent while the source does not run or has no connection, that are on their way when it is
/// killed, or that arrive faster than they are delivered.
///
/// `meta.path` is the stream, or the subjects of the subscription. `meta.position` is the number of the
/// message in the stream.
///
/// A key-value bucket is the stream `KV_` and its name, and its keys are subjects such as `$KV.bucket.key`.
/// With `start: last_per_subject`, the source reads the present values first, and then each change. The
/// header `KV-Operation` says that a key was deleted.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NatsSource {
    #[serde(flatten)]
    servers: ServerOptions,
    /// The subjects to read, also with the wildcards `*` (one word) and `>` (all further words). With
    /// `stream` they choose messages of the stream; the default is all.
    #[serde(default)]
    #[schemars(example = &"orders.>")]
    subjects: List<String>,
    /// Without `stream`: the queue group. Each message goes to one member of the group.
    #[serde(default)]
    queue_group: Option<String>,
    /// The stream to read.
    #[serde(default)]
    stream: Option<String>,
    /// The durable consumer of the stream. Needed with `stream`.
    #[serde(default)]
    consumer: Option<String>,
    /// The domain of JetStream. By default it is that of the server.
    #[serde(default)]
    domain: Option<String>,
    /// Where a consumer that is created begins: `all`, `new`, `last`, `last_per_subject`, or a point in time
    /// such as `2026-11-25T08:00:00Z`. The default is `all`.
    #[serde(default)]
    start: Start,
    /// The number of the message with which a consumer that is created begins, in place of `start`.
    #[serde(default)]
    start_sequence: Option<u64>,
    /// How long the server waits for the acknowledgement of a message, or for the news that it is being
    /// processed, before it delivers the message again. It is for a consumer that is created (`ack_wait`).
    /// The default is 30 s.
    #[serde(default = "thalweg_net::net::defaults::half_a_minute")]
    ack_timeout: TimeSpan,
    /// How long the server waits before it delivers a message again that could not be delivered. The default
    /// is 1 s.
    #[serde(default = "thalweg_net::net::defaults::one_second")]
    retry_delay: TimeSpan,
    /// Parts of the message that become fields, under the same names: `subject`, `reply` (where the sender
    /// expects an answer), headers as `header.Trace-Id`, and of messages of a stream `sequence`, `time` (when
    /// it was stored) and `deliveries` (how many times it was delivered).
    #[serde(default)]
    fields: List<String>,
    /// The largest message, in bytes. Of a larger one, the first 4 KiB leave by the `errors` output.
    #[serde(default = "thalweg_net::net::defaults::limit")]
    max_message_bytes: ByteSize,
    /// The size of the messages that are asked for at once; without `stream`, of those that may wait. A
    /// message that is larger is still read. The default is 1/32 of the memory, at most 2 MiB. Three times as
    /// much may be in memory, four times without `stream`.
    #[serde(default)]
    fetch_size: Option<ByteSize>,
    /// End the source after this time without messages: with `stream`, when the consumer has delivered all,
    /// and no other run has messages that are not acknowledged. By default it reads until the run is stopped.
    #[serde(default)]
    end_after_idle: Option<TimeSpan>,
}

/// Where a consumer begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
enum Start {
    /// At the first message.
    #[default]
    All,
    /// At the next message.
    New,
    /// At the last message.
    Last,
    /// At the last message of each subject.
    LastPerSubject,
    /// At the first message that is not older, in nanoseconds since 1970.
    Time(i64),
}

impl TryFrom<String> for Start {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let time = || {
            let time = chrono::DateTime::parse_from_rfc3339(&text).ok()?;
            time.timestamp_nanos_opt().map(Self::Time)
        };
        match text.as_str() {
            "all" => Ok(Self::All),
            "new" => Ok(Self::New),
            "last" => Ok(Self::Last),
            "last_per_subject" => Ok(Self::LastPerSubject),
            other => time().ok_or_else(|| {
                format!(
                    "`{other}` is none of `all`, `new`, `last` and `last_per_subject`, and no time such as \
                     `2026-11-25T08:00:00Z`."
                )
            }),
        }
    }
}

impl JsonSchema for Start {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "StartOfConsumer".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string" })
    }
}

impl NatsSource {
    fn fetch_bytes(&self, context: &Context) -> usize {
        ahead::fetch_bytes(self.fetch_size, context.memory.budget().limit())
    }

    /// Returns how much of a payload is kept. Of a message that is too large, the beginning is a part of its
    /// dead letter.
    fn kept_bytes(&self) -> usize {
        self.max_message_bytes.as_usize().saturating_add(1).max(ANSWER)
    }

    fn mistakes_of_subjects(&self) -> Option<Mistake> {
        if self.subjects.is_empty() && self.stream.is_none() {
            let mistake = Mistake::new("subjects", "There is no subject to read.");
            return Some(mistake.help("Give `subjects`, for example `orders.>`, or `stream`."));
        }
        if let Some(group) = self.queue_group.as_ref().filter(|group| !is_subject(group, Wildcards::Refused))
        {
            let mistake = Mistake::new("queue_group", format!("`{group}` is no name of a queue group."));
            return Some(mistake.help(format!("A name is {SUBJECT_RULE}.")));
        }
        let wrong = self.subjects.iter().find(|subject| !is_subject(subject, Wildcards::Allowed))?;
        let mistake = Mistake::new("subjects", format!("`{wrong}` is no subject."));
        Some(mistake.help(format!("A subject is {SUBJECT_RULE}.")))
    }

    fn mistakes_of_stream(&self) -> Option<Mistake> {
        if let Some(wrong) = [&self.stream, &self.consumer].into_iter().flatten().find(|name| !is_name(name))
        {
            let option = if self.stream.as_ref() == Some(wrong) { "stream" } else { "consumer" };
            let mistake = Mistake::new(option, format!("`{wrong}` is no name."));
            return Some(mistake.help("It has no spaces, dots, slashes and wildcards."));
        }
        let (option, message) = match (&self.stream, &self.consumer) {
            (Some(_), None) => ("consumer", "A stream is read by a consumer."),
            (None, Some(_)) => ("consumer", "Only a stream has a consumer."),
            (Some(_), _) if self.queue_group.is_some() => {
                ("queue_group", "Runs with the same consumer share the messages of a stream.")
            }
            (None, _) if self.start_sequence.is_some() => {
                ("start_sequence", "Only a stream has numbered messages.")
            }
            _ if self.start_sequence.is_some() && self.start != Start::All => {
                ("start_sequence", "`start` and `start_sequence` are two ways to begin.")
            }
            _ => return None,
        };
        Some(Mistake::new(option, message).help("For example `{ stream: ORDERS, consumer: archive }`."))
    }

    fn mistakes_of_fields(&self) -> Option<Mistake> {
        let is_wrong = |name: &&String| match Field::new(name) {
            Some(field) => field.is_of_streams() && self.stream.is_none(),
            None => true,
        };
        let wrong = self.fields.iter().find(is_wrong)?;
        let mistake = Mistake::new("fields", format!("A message has no `{wrong}`."));
        Some(mistake.help(
            "There are `subject`, `reply` and headers such as `header.Trace-Id`; with `stream` also \
             `sequence`, `time` and `deliveries`.",
        ))
    }
}

impl Component for NatsSource {
    const NAME: &'static str = "nats";
    const EXAMPLE: &'static str = r#"
sources:
  events:
    nats:
      servers: "127.0.0.1:4222"
      stream: EVENTS
      consumer: archive
      fields: [subject, sequence]
      end_after_idle: 1s
pipelines:
  main: { from: events, to: all }
sinks:
  all:
    file:
      path: out/events.jsonl
      encode: { format: json, fields: [subject, sequence, payload] }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.servers.check();
        mistakes.extend(self.mistakes_of_subjects());
        mistakes.extend(self.mistakes_of_stream());
        mistakes.extend(self.mistakes_of_fields());
        if self.ack_timeout.duration() < Duration::from_millis(500) {
            let mistake = Mistake::new("ack_timeout", "An acknowledgement takes more time.");
            mistakes.push(mistake.help("The default is `30s`."));
        }
        mistakes
    }
}

impl SourceConfig for NatsSource {
    fn endless(&self) -> Option<Endless> {
        Endless::unless("end_after_idle", self.end_after_idle.is_some())
    }

    fn fields(&self) -> KnownFields {
        KnownFields::of(self.fields.iter().filter_map(|name| Some(Field::new(name)?.described(name))))
    }

    fn blocks(&self) -> bool {
        false
    }

    // The server delivers again what was not acknowledged.
    fn resends(&self) -> bool {
        self.stream.is_some()
    }

    // The consumer goes on where it is.
    fn starts_over(&self) -> bool {
        false
    }

    fn has_growing_positions(&self) -> bool {
        false
    }

    fn describes_payload(&self) -> bool {
        !self.fields.is_empty()
    }

    // It acknowledges only what a saved checkpoint covers.
    fn rereads(&self) -> bool {
        self.stream.is_some()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        let fetch_bytes = self.fetch_bytes(context);
        let (Some(stream), Some(consumer)) = (&self.stream, &self.consumer) else {
            let dropped = Arc::new(AtomicU64::new(0));
            let shown = dropped.clone();
            context.details.show("dropped", move || shown.load(Relaxed));
            let messages = Messages::new(&self.fields, self.max_message_bytes, &self.subjects.join(", "));
            return Ok(Box::new(Core { config: self.clone(), messages, fetch_bytes, dropped }));
        };
        let lag = Arc::new(AtomicU64::new(0));
        let shown = lag.clone();
        let help = "Messages that its consumer has not delivered yet.";
        context.details.show_gauge("lag", help, move || shown.load(Relaxed));
        let pending = ahead::unacknowledged(context.memory.budget().limit(), MOST_PENDING);
        Ok(Box::new(JetStream(Stream {
            config: self.clone(),
            stream: stream.clone(),
            consumer: consumer.clone(),
            messages: Messages::new(&self.fields, self.max_message_bytes, stream),
            fetch_bytes,
            max_ack_pending: i64::try_from(pending).unwrap_or(i64::MAX),
            lag,
            kept: None,
        })))
    }
}

/// Reads subjects.
struct Core {
    config: NatsSource,
    messages: Messages,
    fetch_bytes: usize,
    /// The number of messages that arrived while the queue was full.
    dropped: Arc<AtomicU64>,
}

#[async_trait]
impl Source for Core {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let connection = Connection::open(&self.config.servers, self.config.kept_bytes()).await?;
        let subscription = Subscription {
            config: &self.config,
            messages: &self.messages,
            connection: &connection,
            queue_bytes: self.fetch_bytes * 2,
            dropped: &self.dropped,
        };
        subscription.run(out).await
    }
}

/// Reads a stream.
struct JetStream(Stream);

#[async_trait]
impl Source for JetStream {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let connection = Connection::open(&self.0.config.servers, self.0.config.kept_bytes()).await?;
        self.0.run(&connection, out).await
    }
}

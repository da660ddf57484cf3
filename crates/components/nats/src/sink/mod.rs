//! `nats`: sends messages to subjects, by default to those of streams.
//!
//! A batch of the engine is sent as a whole, with a limited number of messages that have no answer yet. It is
//! durable when a stream has confirmed each message; without JetStream, when the server has taken all of
//! them. One batch is on its way at a time, so order is kept.
//!
//! A message for a stream has a subject for the answer. The outcome of each message is kept with the batch,
//! so answers that never come need no memory.

mod answer;
mod link;
mod outgoing;
mod stored;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::template::Template;
use thalweg_config::TimeSpan;
use thalweg_engine::{
    Component, Context, Error, InFlight, Mistake, Rejects, Sink, SinkConfig, TransformConfig, WriteOutcome,
};
use thalweg_net::give_up::GiveUp;
use thalweg_record::{Batch, Share};
use thalweg_stream::encode::EncodeConfig;

use crate::connection::NotSent;
use crate::options::{SUBJECT_RULE, ServerOptions, Wildcards, is_header_name, is_subject};
use link::Link;
use outgoing::Rows;
use stored::{Limits, Storing};

/// The memory of a message in the client, beside its bytes.
const MESSAGE: usize = 300;

/// Sends messages to subjects of NATS, by default to those of JetStream's streams.
///
/// A message is acknowledged when a stream has confirmed it. While no server answers, messages wait, and
/// their source with them when the memory is full. A message that the stream or the server refuses, for
/// example because it is too large, leaves by `errors` with the server's reason. Messages for a subject that
/// no stream has wait if all messages have that subject, and leave by `errors` after 10 s otherwise.
///
/// Each message has an id, and a stream stores only one of several messages with the same id that come within
/// its `duplicate_window` (2 minutes by default). So a message that is sent again, because its confirmation
/// was lost, is stored once. With `message_id`, that also holds for messages that a restarted run sends
/// again.
///
/// With `jetstream: false`, messages go to the present subscribers. They are acknowledged when the server has
/// taken them. Nothing tells whether a subscriber got them, and those of a batch are sent again if the
/// connection breaks.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NatsSink {
    #[serde(flatten)]
    servers: ServerOptions,
    /// The subject, for example `logs` or `logs.{service}`. Columns in braces are replaced for each message.
    /// A message whose subject has spaces, wildcards or an empty word leaves by `errors`.
    subject: Template,
    /// False to send to the present subscribers, without a stream. The default is true.
    #[serde(default = "thalweg_net::net::defaults::yes")]
    jetstream: bool,
    /// The id of a message, for example `{meta.path}-{meta.position}` or `{id}`. It must be another one for
    /// each message. An empty one is no id. By default messages have ids that hold for this run.
    #[serde(default)]
    message_id: Option<Template>,
    /// Headers of the message, for example `{Host: '{meta.hostname}'}`. Columns in braces are replaced for
    /// each message.
    #[serde(default)]
    headers: BTreeMap<String, Template>,
    /// The format in which messages are sent, for example `json`. By default the payload is sent unchanged.
    #[serde(default)]
    encode: EncodeConfig,
    /// The number of messages that may be on their way without a confirmation. The default is 1024.
    #[serde(default = "thalweg_net::net::defaults::pending")]
    #[schemars(range(min = 1, max = 65536))]
    max_pending: usize,
    /// How long the server may confirm nothing. After that the sink reports it, and sends the messages again.
    /// The default is 30 s.
    #[serde(default = "thalweg_net::net::defaults::half_a_minute")]
    timeout: TimeSpan,
    /// After the server has been failing for this time, the messages of a batch leave by `errors`, although
    /// the server may have taken some of them. The time counts from the first attempt that fails, and again
    /// from each message that the server confirms or refuses. By default messages wait for as long as it
    /// takes.
    #[serde(default)]
    give_up: Option<TimeSpan>,
    /// The number of batches of the run that may be on their way at the same time. With more than 1, the
    /// order of messages is not kept. The default is 1.
    #[serde(default = "thalweg_net::net::defaults::one")]
    #[schemars(range(min = 1, max = 64))]
    concurrency: usize,
}

impl NatsSink {
    fn mistake_of_headers(&self) -> Option<Mistake> {
        if self.headers.keys().any(|name| name.eq_ignore_ascii_case("Nats-Msg-Id")) {
            let mistake = Mistake::new("headers", "The header `Nats-Msg-Id` is that of `message_id`.");
            return Some(mistake.help("For example `message_id: '{id}'`."));
        }
        let wrong = self.headers.keys().find(|name| !is_header_name(name))?;
        let mistake = Mistake::new("headers", format!("`{wrong}` is no name of a header."));
        Some(mistake.help("It has printable ASCII characters without spaces and colons."))
    }
}

impl Component for NatsSink {
    const NAME: &'static str = "nats";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { message: '{"id": %6d, "service": "shop"}', count: 100 } }
pipelines:
  main: { from: messages, transforms: [parse_json: {}], to: stream }
sinks:
  stream: { nats: { servers: "127.0.0.1:4222", subject: "events.{service}", message_id: "{id}" } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.servers.check();
        mistakes.extend(self.encode.mistakes());
        mistakes.extend(self.mistake_of_headers());
        if self.subject.is_constant() && !is_subject(self.subject.prefix(), Wildcards::Refused) {
            let mistake = Mistake::new("subject", format!("`{}` is no subject.", self.subject.prefix()));
            mistakes.push(mistake.help(format!("A subject is {SUBJECT_RULE}.")));
        }
        if self.message_id.is_some() && !self.jetstream {
            let mistake = Mistake::new("message_id", "Only streams compare the ids of messages.");
            mistakes.push(mistake.help("Remove it, or `jetstream: false`."));
        }
        if self.message_id.as_ref().is_some_and(Template::is_constant) {
            let mistake =
                Mistake::new("message_id", "A stream keeps one of several messages with the same id.");
            mistakes.push(mistake.help("Name a column that differs, for example `{id}`."));
        }
        if self.timeout.duration().is_zero() {
            let mistake = Mistake::new("timeout", "No server can confirm a message in no time.");
            mistakes.push(mistake.help("For example `30s`."));
        }
        mistakes
    }
}

impl SinkConfig for NatsSink {
    fn encoder(&self) -> Option<Box<dyn TransformConfig>> {
        self.encode.encoder()
    }

    fn fields(&self) -> Vec<String> {
        let templates = std::iter::once(&self.subject).chain(&self.message_id).chain(self.headers.values());
        templates.flat_map(Template::fields).collect()
    }

    fn remarks(&self) -> Vec<Mistake> {
        self.subject.remark("subject").into_iter().collect()
    }

    fn in_flight(&self) -> InFlight {
        InFlight::chosen(self.concurrency)
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        Ok(Box::new(Nats {
            memory: context.memory.clone(),
            rows: Rows::new(self),
            limits: Limits { pending: self.max_pending, timeout: self.timeout.duration() },
            give_up: GiveUp::after(self.give_up),
            config: self.clone(),
            link: None,
            storing: Storing::new(),
        }))
    }
}

struct Nats {
    config: NatsSink,
    limits: Limits,
    give_up: GiveUp,
    memory: Share,
    rows: Rows,
    link: Option<Link>,
    storing: Storing,
}

impl Nats {
    /// Connects to one of the servers, unless that is done.
    async fn connect(&mut self) -> Result<(), Error> {
        if self.link.is_none() {
            let pending = self.config.jetstream.then_some(self.limits.pending);
            self.link = Some(Link::open(&self.config.servers, pending).await?);
        }
        Ok(())
    }

    /// Sends a batch, or the rest of it.
    async fn send(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<(), Error> {
        self.connect().await?;
        let sent = match self.config.jetstream {
            true => self.send_to_stream(batch, rejects).await,
            false => self.send_to_core(batch, rejects).await,
        };
        if self.link.as_ref().is_some_and(|link| link.connection.is_lost()) {
            self.link = None;
            self.storing.send_again();
        }
        sent
    }

    fn begin(&mut self, batch: &Batch) {
        let bytes = 2 * batch.payload_bytes() + batch.rows() * MESSAGE;
        self.storing.begin(batch, || self.memory.claim(bytes));
    }

    async fn send_to_stream(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<(), Error> {
        self.begin(batch);
        let Some(link) = &mut self.link else { return Err(not_open()) };
        self.storing.send(link, &mut self.rows, batch, self.limits).await?;
        for (row, reason) in self.storing.finish() {
            rejects.reject(row, reason);
        }
        Ok(())
    }

    /// Refuses the messages of a batch that no server took. With the connection goes what the client has
    /// queued of them.
    fn refuse_rest(&mut self, batch: &Batch, reason: &str, rejects: &mut Rejects) {
        self.link = None;
        let refused = match self.config.jetstream {
            true => {
                self.begin(batch);
                self.storing.refuse_rest(reason);
                self.storing.finish()
            }
            false => (0..batch.rows()).map(|row| (row as u32, reason.to_owned())).collect(),
        };
        refused.into_iter().for_each(|(row, reason)| rejects.reject(row, reason));
    }

    /// Sends a batch to the present subscribers. It counts only if all went over one connection: one that
    /// breaks loses messages.
    async fn send_to_core(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<(), Error> {
        let timeout = self.limits.timeout;
        let Some(link) = &self.link else { return Err(not_open()) };
        if !link.connection.connected(timeout).await {
            return Err(link.connection.explained(Error::temporary("there is no connection to a server")));
        }
        let _copies = self.memory.claim(batch.payload_bytes() + batch.rows() * MESSAGE);
        let (epoch, before) = (link.connection.epoch(), link.connection.notices());
        let refused = send_all(link, &mut self.rows, batch, timeout).await?;
        let is_taken = link.connection.round_trip(timeout).await;
        if link.connection.is_lost() {
            return Err(link.connection.lost());
        }
        if !is_taken || link.connection.epoch() != epoch {
            let is_slow = link.connection.is_connected() && link.connection.epoch() == epoch;
            let error = match is_slow {
                true => {
                    let seconds = timeout.as_secs_f64();
                    Error::overloaded(format!("the server did not take messages within {seconds} s"))
                }
                false => Error::temporary("the connection broke while messages were sent"),
            };
            return Err(link.connection.explained(error));
        }
        let after = link.connection.notices();
        if after.errors != before.errors {
            let reason = after.last.unwrap_or_default();
            return Err(Error::permanent("the server refused messages").caused_by(reason));
        }
        refused.into_iter().for_each(|(row, reason)| rejects.reject(row, reason));
        Ok(())
    }
}

fn not_open() -> Error {
    Error::permanent("the sink `nats` was not opened")
}

/// Sends all messages of a batch. Returns those that the client refuses, in order.
async fn send_all(
    link: &Link,
    rows: &mut Rows,
    batch: &Batch,
    timeout: Duration,
) -> Result<Vec<(u32, String)>, Error> {
    let mut bound = rows.bind(batch);
    let mut refused = Vec::new();
    for row in 0..batch.rows() {
        let sent = match bound.message(row, None) {
            Ok(message) => link.send(&message, None, timeout).await,
            Err(reason) => Err(NotSent::Refused(reason)),
        };
        match sent {
            Ok(()) => {}
            Err(NotSent::Refused(reason)) => refused.push((row as u32, reason)),
            Err(NotSent::Blocked) => {
                let seconds = timeout.as_secs_f64();
                return Err(Error::overloaded(format!("the server took no message within {seconds} s")));
            }
            Err(NotSent::Lost(_)) => return Err(link.connection.lost()),
        }
    }
    Ok(refused)
}

#[async_trait]
impl Sink for Nats {
    async fn open(&mut self, _: Option<serde_json::Value>) -> Result<(), Error> {
        self.connect().await
    }

    async fn write(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<WriteOutcome, Error> {
        self.give_up.attempt();
        let before = self.storing.settled();
        if let Err(error) = self.send(batch, rejects).await {
            if self.storing.settled() > before {
                self.give_up.succeeded();
            }
            let reason = self.give_up.refusal(error)?;
            self.refuse_rest(batch, &reason, rejects);
        }
        self.give_up.end();
        Ok(WriteOutcome::Durable)
    }

    fn drop_batch(&mut self) {
        self.storing.finish();
        self.give_up.end();
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), Error> {
        self.link = None;
        Ok(())
    }
}

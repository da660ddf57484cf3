//! `mqtt`: sends messages to topics of a server.
//!
//! A batch of the engine is sent as a whole, with a limited number of messages that have no answer yet. It is
//! durable when the server has confirmed each message. One batch is on its way at a time, so order is kept,
//! except for a message that the server cannot take for now: it is sent again after those behind it.

mod outgoing;
mod pending;
mod sending;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_broker::confirmed::{Confirmed, Confirming};
use thalweg_codec::template::Template;
use thalweg_config::TimeSpan;
use thalweg_engine::{Claim, Component, Context, Error, Mistake, Sink, SinkConfig, TransformConfig};
use thalweg_net::give_up::GiveUp;
use thalweg_net::net::long_time;
use thalweg_record::{Batch, Share};
use thalweg_stream::encode::EncodeConfig;

use crate::connection::{Connection, Session};
use crate::options::{Protocol, QosOption, ServerOptions, random_client_id};
use crate::topic::{TOPIC_RULE, is_text, is_topic};
use crate::wire::Qos;
use outgoing::Rows;
use pending::Pending;
use sending::{CHUNK, Options, Sending};

/// The memory of a message in the lists of the sink.
const MESSAGE: usize = 64;
/// How long the server keeps the session of QoS 2 while there is no connection.
const SESSION: Duration = Duration::from_secs(60 * 60);

/// Sends messages to topics of MQTT.
///
/// A message is acknowledged when the server has confirmed it. While no server answers, messages wait, and
/// their source with them when the memory is full. A message that the server refuses leaves by `errors` with
/// the server's reason, which only MQTT 5 has; one that is larger than the server takes does so too.
///
/// With `qos: 1`, a message whose confirmation was lost is sent again, and subscribers get it twice. With
/// `qos: 2`, the server recognises it, as long as the run lasts; a restarted run may send messages again.
/// With `qos: 0`, messages are acknowledged when the server has taken all of a batch, and it confirms none of
/// them.
///
/// A server accepts messages that have no subscriber, and drops them, unless `retain` is set or a session
/// waits for them. It also drops what a subscriber does not take, as it is configured.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MqttSink {
    #[serde(flatten)]
    servers: ServerOptions,
    /// The topic, for example `logs` or `logs/{service}`. Columns in braces are replaced for each message. A
    /// message whose topic is empty, or has wildcards or control characters, leaves by `errors`.
    topic: Template,
    /// How often messages are delivered: at most once (0), at least once (1), or once as long as the run
    /// lasts (2). The default is 1.
    #[serde(default)]
    qos: QosOption,
    /// True if the server keeps the last message of each topic for later subscribers. The default is false.
    #[serde(default)]
    retain: bool,
    /// The name of the session. Needed with `qos: 2`. By default it is another one for each run.
    #[serde(default)]
    client_id: Option<String>,
    /// How long the server keeps a message for subscribers that are away (its expiry interval). Only MQTT 5
    /// has it. By default for ever.
    #[serde(default)]
    max_age: Option<TimeSpan>,
    /// The type of the content, for example `application/json`. Columns in braces are replaced for each
    /// message. Only MQTT 5 has it.
    #[serde(default)]
    content_type: Option<Template>,
    /// The topic at which the sender expects an answer. Columns in braces are replaced for each message. Only
    /// MQTT 5 has it.
    #[serde(default)]
    response_topic: Option<Template>,
    /// User properties, for example `{unit: '{unit}'}`. Columns in braces are replaced for each message. Only
    /// MQTT 5 has them.
    #[serde(default)]
    properties: BTreeMap<String, Template>,
    /// The format in which messages are sent, for example `json`. By default the payload is sent unchanged.
    #[serde(default)]
    encode: EncodeConfig,
    /// The number of messages that may be on their way without a confirmation. The server may want fewer. The
    /// default is 1024.
    #[serde(default = "thalweg_net::net::defaults::pending")]
    #[schemars(range(min = 1, max = 65535))]
    max_pending: usize,
    /// How long the server may confirm nothing. After that the sink reports it, and sends the messages again
    /// over a new connection. The default is 30 s.
    #[serde(default = "thalweg_net::net::defaults::half_a_minute")]
    timeout: TimeSpan,
    /// After the server has been failing for this time, the messages of a batch leave by `errors`, although
    /// the server may have taken some of them. The time counts from the first attempt that fails, and again
    /// from each message that the server confirms or refuses. By default messages wait for as long as it
    /// takes.
    #[serde(default)]
    give_up: Option<TimeSpan>,
}

impl MqttSink {
    fn keeps_session(&self) -> bool {
        self.qos.0 == Qos::ExactlyOnce
    }

    fn mistake_of_properties(&self) -> Option<Mistake> {
        let given = [
            ("max_age", self.max_age.is_some()),
            ("content_type", self.content_type.is_some()),
            ("response_topic", self.response_topic.is_some()),
            ("properties", !self.properties.is_empty()),
        ];
        if let Some((option, _)) = given.into_iter().find(|(_, is_given)| *is_given)
            && self.servers.protocol == Protocol::Mqtt3
        {
            let mistake = Mistake::new(option, "Messages of MQTT 3.1.1 have no properties.");
            return Some(mistake.help("Remove it, or set `protocol: mqtt5`."));
        }
        if self.max_age.is_some_and(|age| age.duration() < Duration::from_secs(1)) {
            let mistake = Mistake::new("max_age", "The protocol counts in seconds.");
            return Some(mistake.help("It is at least `1s`."));
        }
        self.properties.keys().find(|name| !is_text(name))?;
        let mistake =
            Mistake::new("properties", "The name of a property is too long, or has a control character.");
        Some(mistake.help("It has at most 65,535 bytes."))
    }

    /// Returns the mistakes in topics that are the same for all messages.
    fn mistakes_of_topics(&self) -> impl Iterator<Item = Mistake> {
        let given = [("topic", Some(&self.topic)), ("response_topic", self.response_topic.as_ref())];
        given.into_iter().filter_map(|(option, topic)| {
            let wrong = topic.filter(|topic| topic.is_constant() && !is_topic(topic.prefix()))?;
            let mistake = Mistake::new(option, format!("`{}` is no topic.", wrong.prefix()));
            Some(mistake.help(format!("A topic is {TOPIC_RULE}.")))
        })
    }
}

impl Component for MqttSink {
    const NAME: &'static str = "mqtt";
    const EXAMPLE: &'static str = r#"
sources:
  readings: { generate: { message: '{"id": %6d, "room": "kitchen"}', count: 100 } }
pipelines:
  main: { from: readings, transforms: [parse_json: {}], to: topics }
sinks:
  topics: { mqtt: { servers: "127.0.0.1:1883", topic: "sensors/{room}" } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.servers.check();
        mistakes.extend(self.encode.mistakes());
        mistakes.extend(self.mistake_of_properties());
        mistakes.extend(ServerOptions::mistake_of_client_id(self.client_id.as_ref()));
        mistakes.extend(self.mistakes_of_topics());
        if self.keeps_session() && self.client_id.is_none() {
            let mistake =
                Mistake::new("client_id", "`client_id` is missing: with `qos: 2`, the session has a name.");
            mistakes.push(mistake.help("Write for example `client_id: sender-1`, another one for each run."));
        }
        if self.timeout.duration().is_zero() {
            let mistake = Mistake::new("timeout", "No server can confirm a message in no time.");
            mistakes.push(mistake.help("For example `30s`."));
        }
        mistakes
    }
}

impl SinkConfig for MqttSink {
    fn encoder(&self) -> Option<Box<dyn TransformConfig>> {
        self.encode.encoder()
    }

    fn fields(&self) -> Vec<String> {
        let optional = [&self.content_type, &self.response_topic].into_iter().flatten();
        let templates = std::iter::once(&self.topic).chain(optional).chain(self.properties.values());
        templates.flat_map(Template::fields).collect()
    }

    fn claims(&self) -> Vec<Claim> {
        self.client_id.iter().map(|id| self.servers.claim(id)).collect()
    }

    fn remarks(&self) -> Vec<Mistake> {
        long_time("timeout", self.timeout).into_iter().chain(self.topic.remark("topic")).collect()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        Ok(Box::new(Confirmed(Mqtt {
            memory: context.memory.clone(),
            rows: Rows::new(self),
            client_id: self.client_id.clone().unwrap_or_else(random_client_id),
            give_up: GiveUp::after(self.give_up),
            config: self.clone(),
            connection: None,
            pending: Pending::default(),
            session: None,
            is_sending: false,
            window: usize::MAX,
        })))
    }
}

struct Mqtt {
    config: MqttSink,
    give_up: GiveUp,
    memory: Share,
    rows: Rows,
    client_id: String,
    connection: Option<Connection>,
    pending: Pending,
    /// The server that may have a session which this run began, and of which it knows the numbers.
    session: Option<String>,
    /// True during a call that sends.
    is_sending: bool,
    /// The number of messages that may be without an answer. Some servers answer a message that they refuse
    /// and then end the connection. The answer may be lost if further messages have arrived behind it. So
    /// after a call without any progress, this is one, and it doubles with each answer.
    window: usize,
}

impl Mqtt {
    /// Checks that the server can do what the options want.
    fn check(&self, connection: &Connection) -> Result<(), Error> {
        let (limits, qos) = (connection.limits, self.config.qos.0 as u8);
        if qos > limits.qos {
            let message = format!("the server takes no message with `qos: {qos}`, but with {}", limits.qos);
            return Err(Error::permanent(message));
        }
        if self.config.retain && !limits.takes_retained {
            return Err(Error::permanent("the server takes no message with `retain: true`"));
        }
        Ok(())
    }

    /// Nothing tells what the server has taken of that which it has not confirmed.
    fn disconnect(&mut self) {
        self.connection = None;
        if self.config.qos.0 == Qos::AtMostOnce {
            self.pending.forget_unconfirmed();
        }
    }

    async fn send_over_connection(&mut self, batch: &Batch) -> Result<(), Error> {
        self.connect().await?;
        let Some(connection) = &mut self.connection else {
            return Err(Error::permanent("the sink `mqtt` was not opened"));
        };
        let options = Options {
            most: self.config.max_pending.min(connection.limits.pending),
            qos: self.config.qos.0,
            timeout: self.config.timeout.duration(),
        };
        let (bound, window) = (self.rows.bind(batch), &mut self.window);
        let mut sending = Sending::new(options, connection, bound, &mut self.pending, window);
        sending.send().await
    }
}

#[async_trait]
impl Confirming for Mqtt {
    type Pending = Pending;

    async fn connect(&mut self) -> Result<(), Error> {
        if self.connection.as_ref().is_some_and(|connection| !connection.writer.is_broken()) {
            return Ok(());
        }
        self.connection = None;
        let keeps_session = self.config.keeps_session();
        let mut session = Session {
            client_id: &self.client_id,
            is_clean: true,
            expiry: Duration::ZERO,
            receive_maximum: None,
            payload_limit: 0,
        };
        let mut known = self.session.clone();
        if keeps_session && known.is_none() {
            // The server would take a message for one of an earlier run that has the same number.
            let discarding = Connection::open(&self.config.servers, &session).await?;
            known = Some(discarding.server.clone());
            discarding.close().await;
        }
        (session.is_clean, session.expiry) =
            (!keeps_session, if keeps_session { SESSION } else { Duration::ZERO });
        let connection = Connection::open(&self.config.servers, &session).await?;
        self.check(&connection)?;
        if keeps_session && connection.has_session && known.as_ref() != Some(&connection.server) {
            // The next attempt discards it.
            self.session = None;
            let server = &connection.server;
            return Err(Error::temporary(format!("the server `{server}` has a session of an earlier run")));
        }
        self.pending.send_again(keeps_session && connection.has_session);
        self.session = keeps_session.then(|| connection.server.clone());
        self.connection = Some(connection);
        Ok(())
    }

    fn begin(&mut self, batch: &Batch) {
        let bytes = batch.rows() * MESSAGE + 2 * CHUNK;
        self.pending.begin(batch, || self.memory.claim(bytes));
    }

    async fn send(&mut self, batch: &Batch) -> Result<(), Error> {
        // A call that was dropped may have left messages that were not written.
        if std::mem::replace(&mut self.is_sending, true) {
            self.disconnect();
        }
        let before = self.pending.steps();
        let sent = self.send_over_connection(batch).await;
        self.is_sending = false;
        if sent.is_err() {
            if self.pending.steps() == before {
                self.window = 1;
            } else {
                self.give_up.succeeded();
            }
            self.disconnect();
        }
        sent
    }

    // Forgets the connection and its session: the numbers of the batch are not used any more.
    fn abandon(&mut self) {
        (self.connection, self.session) = (None, None);
    }

    async fn close(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.close().await;
        }
    }

    fn pending(&mut self) -> &mut Pending {
        &mut self.pending
    }

    fn give_up(&mut self) -> &mut GiveUp {
        &mut self.give_up
    }
}

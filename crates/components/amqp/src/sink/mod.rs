//! `amqp`: sends messages to an exchange of a server.
//!
//! A batch of the engine is sent as a whole, with a limited number of messages that are not confirmed yet. It
//! is durable when the server has confirmed each message. One batch is on its way at a time, so order is
//! kept, except for a message that the server cannot take for now: it is sent again after those behind it.
//!
//! The server says with the end of the channel that it takes a message never, and does not say which one. So
//! after that one message is sent at a time, until the one is found.

mod outgoing;
mod pending;
mod sending;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_broker::confirmed::{Confirmed, Confirming};
use thalweg_codec::template::Template;
use thalweg_config::TimeSpan;
use thalweg_engine::{Component, Context, Error, Mistake, Sink, SinkConfig, TransformConfig};
use thalweg_net::give_up::GiveUp;
use thalweg_net::net::{check_timeout, long_time};
use thalweg_record::{Batch, Share};
use thalweg_stream::encode::EncodeConfig;

use crate::connection::{self, Connection};
use crate::options::{ServerOptions, mistake_of_length};
use crate::wire::{self, LONGEST, Method};
use outgoing::{Content, Rows};
use pending::Pending;
use sending::{CHUNK, Failure, Options, Sending};

/// The memory of a message in the lists of the sink.
const MESSAGE: usize = 96;

/// Sends messages to an exchange of AMQP 0.9.1, such as those of RabbitMQ.
///
/// A message is acknowledged when the server has confirmed it. While no server answers, messages wait, and
/// their source with them when the memory is full. A message that the server refuses leaves by `errors` with
/// the server's reason: no queue takes it (with `mandatory`), it is too large, or the user may not send it. A
/// message that a full queue refuses is sent again.
///
/// A message whose confirmation was lost is sent again, and consumers get it twice. With `message_id` they
/// can tell.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AmqpSink {
    #[serde(flatten)]
    servers: ServerOptions,
    /// The exchange, which must be there. By default the default exchange, for which the routing key is the
    /// name of a queue.
    #[serde(default)]
    exchange: String,
    /// The routing key, for example `orders.{country}`. Columns in braces are replaced for each message. A
    /// message whose key has more than 255 bytes leaves by `errors`.
    routing_key: Template,
    /// True if the server is to store messages on its disk, in queues that are durable. The default is true.
    #[serde(default = "thalweg_net::net::defaults::yes")]
    persistent: bool,
    /// True if a message that no queue takes leaves by `errors`; false if the server drops it. The default is
    /// true.
    #[serde(default = "thalweg_net::net::defaults::yes")]
    mandatory: bool,
    /// The id of a message, for example `{meta.path}-{meta.position}` or `{id}`. Columns in braces are
    /// replaced for each message. By default messages have none.
    #[serde(default)]
    message_id: Option<Template>,
    /// The type of the content, for example `application/json`. Columns in braces are replaced for each
    /// message.
    #[serde(default)]
    content_type: Option<Template>,
    /// The encoding of the content, for example `gzip`. Columns in braces are replaced for each message.
    #[serde(default)]
    content_encoding: Option<Template>,
    /// The id of the message that this one answers. Columns in braces are replaced for each message.
    #[serde(default)]
    correlation_id: Option<Template>,
    /// The queue in which the sender expects an answer. Columns in braces are replaced for each message.
    #[serde(default)]
    reply_to: Option<Template>,
    /// The type of the message, for example `order.created`. Columns in braces are replaced for each message.
    #[serde(default, rename = "type")]
    kind: Option<Template>,
    /// The name of the program that sends. Columns in braces are replaced for each message.
    #[serde(default)]
    app_id: Option<Template>,
    /// The priority of all messages, for queues that have priorities. By default messages have none.
    #[serde(default)]
    priority: Option<u8>,
    /// How long a queue keeps a message (its expiration). By default for ever.
    #[serde(default)]
    max_age: Option<TimeSpan>,
    /// Headers of the message, as texts, for example `{unit: '{unit}'}`. Columns in braces are replaced for
    /// each message.
    #[serde(default)]
    headers: BTreeMap<String, Template>,
    /// The format in which messages are sent, for example `json`. By default the payload is sent unchanged.
    #[serde(default)]
    encode: EncodeConfig,
    /// The number of messages that may be on their way without a confirmation. The default is 1024.
    #[serde(default = "thalweg_net::net::defaults::pending")]
    #[schemars(range(min = 1, max = 65535))]
    max_pending: usize,
    /// How long the server may confirm nothing. After that the sink reports it, and sends the messages again
    /// over a new connection. Writing a large message may take longer. The default is 30 s.
    #[serde(default = "thalweg_net::net::defaults::half_a_minute")]
    timeout: TimeSpan,
    /// After the server has been failing for this time, the messages of a batch leave by `errors`, although
    /// the server may have taken some of them. The time counts from the first attempt that fails, and again
    /// from each message that the server confirms or refuses. By default messages wait for as long as it
    /// takes.
    #[serde(default)]
    give_up: Option<TimeSpan>,
}

impl AmqpSink {
    /// Returns the properties that are texts, each with its option.
    fn texts(&self) -> [(&'static str, wire::Property, Option<&Template>); 7] {
        use wire::Property;
        [
            ("content_type", Property::ContentType, self.content_type.as_ref()),
            ("content_encoding", Property::ContentEncoding, self.content_encoding.as_ref()),
            ("correlation_id", Property::CorrelationId, self.correlation_id.as_ref()),
            ("reply_to", Property::ReplyTo, self.reply_to.as_ref()),
            ("message_id", Property::MessageId, self.message_id.as_ref()),
            ("type", Property::Type, self.kind.as_ref()),
            ("app_id", Property::AppId, self.app_id.as_ref()),
        ]
    }

    fn mistake_of_headers(&self) -> Option<Mistake> {
        if let Some(name) = self.headers.keys().find(|name| ["CC", "BCC"].contains(&name.as_str())) {
            let message = format!("`{name}` is a header by which the server routes, and a list.");
            return Some(Mistake::new("headers", message).help("Bind the queues to the exchange instead."));
        }
        if self.headers.contains_key("") {
            return Some(Mistake::new("headers", "A header has a name.").help("For example `unit`."));
        }
        mistake_of_length("headers", self.headers.keys())
    }

    /// Returns the mistakes in texts that are the same for all messages.
    fn mistakes_of_texts(&self) -> impl Iterator<Item = Mistake> {
        let key = ("routing_key", Some(&self.routing_key));
        let texts = self.texts().map(|(option, _, text)| (option, text));
        std::iter::once(key).chain(texts).filter_map(|(option, text)| {
            text.filter(|text| text.is_constant() && text.prefix().len() > LONGEST)?;
            Some(Mistake::new(option, "The text is too long.").help("It has at most 255 bytes."))
        })
    }

    fn mistake_of_age(&self) -> Option<Mistake> {
        self.max_age.filter(|age| !(1..=u128::from(u32::MAX)).contains(&age.duration().as_millis()))?;
        let mistake = Mistake::new("max_age", "It is between 1 ms and 49 days.");
        Some(mistake.help("Without `max_age`, messages are kept for ever."))
    }
}

impl Component for AmqpSink {
    const NAME: &'static str = "amqp";
    const EXAMPLE: &'static str = r#"
sources:
  orders: { generate: { message: '{"id": %6d, "country": "it"}', count: 100 } }
pipelines:
  main: { from: orders, transforms: [parse_json: {}], to: exchange }
sinks:
  exchange:
    amqp:
      servers: "127.0.0.1:5672"
      exchange: amq.topic
      routing_key: "orders.{country}"
      message_id: "{id}"
      mandatory: false
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.servers.check();
        mistakes.extend(self.encode.mistakes());
        mistakes.extend(mistake_of_length("exchange", [&self.exchange]));
        mistakes.extend(self.mistakes_of_texts());
        mistakes.extend(self.mistake_of_headers());
        mistakes.extend(self.mistake_of_age());
        mistakes.extend(check_timeout("timeout", self.timeout));
        mistakes
    }
}

impl SinkConfig for AmqpSink {
    fn encoder(&self) -> Option<Box<dyn TransformConfig>> {
        self.encode.encoder()
    }

    fn fields(&self) -> Vec<String> {
        let texts = self.texts().into_iter().filter_map(|(_, _, text)| text);
        let templates = std::iter::once(&self.routing_key).chain(texts).chain(self.headers.values());
        templates.flat_map(Template::fields).collect()
    }

    fn remarks(&self) -> Vec<Mistake> {
        long_time("timeout", self.timeout).into_iter().chain(self.routing_key.remark("routing_key")).collect()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        Ok(Box::new(Confirmed(Amqp {
            memory: context.memory.clone(),
            rows: Rows::new(self),
            give_up: GiveUp::after(self.give_up),
            config: self.clone(),
            connection: None,
            pending: Pending::default(),
            was_open: false,
            is_sending: false,
            window: usize::MAX,
        })))
    }
}

struct Amqp {
    config: AmqpSink,
    give_up: GiveUp,
    memory: Share,
    rows: Rows,
    connection: Option<Connection>,
    pending: Pending,
    /// True if the exchange was there before in this run. It is waited for then.
    was_open: bool,
    /// True during a call that sends.
    is_sending: bool,
    /// The number of messages that may be without a confirmation. It is one after the server has closed the
    /// channel, and doubles with each answer.
    window: usize,
}

impl Amqp {
    /// Sends the messages, over several connections if the server refuses some.
    async fn send_all(&mut self, batch: &Batch) -> Result<(), Error> {
        loop {
            self.connect().await?;
            let Some(connection) = &mut self.connection else {
                return Err(Error::permanent("the sink `amqp` was not opened"));
            };
            let options = Options {
                exchange: &self.config.exchange,
                is_mandatory: self.config.mandatory,
                most: self.config.max_pending,
                timeout: self.config.timeout.duration(),
            };
            let (bound, window) = (self.rows.bind(batch, connection.part), &mut self.window);
            let sent = Sending::new(options, connection, bound, &mut self.pending, window).send().await;
            match sent {
                Ok(()) => return Ok(()),
                // The confirmations are still to come.
                Err(Failure::Blocked(error)) => return Err(error),
                // Each time one more message has its outcome.
                Err(Failure::Refused) => self.connection = None,
                Err(Failure::Broken(error)) => {
                    self.connection = None;
                    return Err(error);
                }
            }
        }
    }
}

#[async_trait]
impl Confirming for Amqp {
    type Pending = Pending;

    async fn connect(&mut self) -> Result<(), Error> {
        if self.connection.as_ref().is_some_and(|connection| !connection.writer.is_broken()) {
            return Ok(());
        }
        self.connection = None;
        let opened = Connection::open(&self.config.servers, Content::KEPT).await;
        let mut connection = match self.was_open {
            true => opened.map_err(connection::temporary)?,
            false => opened?,
        };
        let mut out = Vec::new();
        let exchange = &self.config.exchange;
        if !exchange.is_empty() {
            wire::exchange_check(exchange, &mut out);
            let answered = connection.call(&out, |method| *method == Method::ExchangeDeclareOk).await;
            let message = format!("the exchange `{exchange}` cannot be used");
            answered.map_err(|failed| match self.was_open {
                true => failed.into_temporary(message),
                false => failed.into_error(message),
            })?;
        }
        out.clear();
        wire::confirm(&mut out);
        let answered = connection.call(&out, |method| *method == Method::SelectOk).await;
        answered.map_err(|failed| failed.into_error("the server does not confirm messages"))?;
        self.was_open = true;
        self.pending.send_again();
        self.connection = Some(connection);
        Ok(())
    }

    fn begin(&mut self, batch: &Batch) {
        let bytes = batch.rows() * MESSAGE + 4 * CHUNK;
        self.pending.begin(batch, || self.memory.claim(bytes));
    }

    async fn send(&mut self, batch: &Batch) -> Result<(), Error> {
        // A call that was dropped may have left messages that were not written.
        if std::mem::replace(&mut self.is_sending, true) {
            self.connection = None;
        }
        let before = self.pending.steps();
        let sent = self.send_all(batch).await;
        self.is_sending = false;
        if sent.is_err() && self.pending.steps() != before {
            self.give_up.succeeded();
        }
        sent
    }

    fn abandon(&mut self) {
        self.connection = None;
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

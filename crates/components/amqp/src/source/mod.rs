//! `amqp`: reads queues of a server.
//!
//! [`queues`] declares and consumes them, [`reading`] has the messages of a connection, [`unacknowledged`]
//! what the server expects to be acknowledged, and [`acknowledgements`] how that is done.

mod acknowledgements;
mod fields;
mod messages;
mod queues;
mod reading;
#[cfg(test)]
mod tests;
mod unacknowledged;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_broker::ahead;
use thalweg_codec::framing::check_limit;
use thalweg_config::{ByteSize, List, TimeSpan};
use thalweg_engine::{Component, Context, Endless, Error, KnownFields, Mistake, Source, SourceConfig};

use crate::options::{ArgumentOption, ServerOptions, mistake_of_length};
use fields::Field;
use messages::Messages;
use reading::Queues;

/// The most messages that the server may leave without an acknowledgement.
const MOST_PREFETCHED: usize = 65_535;
/// The most messages that are sent on together.
const MOST: usize = 4096;

/// Reads messages of AMQP 0.9.1: queues of RabbitMQ and others.
///
/// A message is acknowledged when it is delivered, or rejected and kept with its reason; with `--state`, when
/// a checkpoint covers it. So none is lost. If the connection breaks, or the run is killed, the server
/// delivers messages again that are not acknowledged: also those that are on their way, so that they are
/// delivered twice. A message whose delivery fails returns to its queue after 1 s. A quorum queue may drop a
/// message, or dead-letter it, that returned more often than its `x-delivery-limit` says: 20 times by default
/// since RabbitMQ 4.0.
///
/// A stream takes nothing back. It is read again from `x-stream-offset` on over each connection, and after a
/// message whose delivery failed.
///
/// Several runs share the messages of a queue. RabbitMQ ends the channel of a run that leaves a message
/// without an acknowledgement for 30 minutes (its `consumer_timeout`).
///
/// When the memory is full, the source reads nothing, and messages wait in the queue.
///
/// `meta.path` has the queues of the source.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AmqpSource {
    #[serde(flatten)]
    servers: ServerOptions,
    /// The queues to read.
    #[schemars(example = &"orders")]
    queues: List<String>,
    /// Declare the queues. One that is there must have the same options. By default they must be there.
    #[serde(default)]
    declare: Option<Declare>,
    /// Bind the queues to exchanges, which must be there. By default they get what is sent to them by name,
    /// and by bindings that others made. A binding that is removed here stays.
    #[serde(default)]
    bindings: Vec<Binding>,
    /// True if no other consumer may read the queues meanwhile. The default is false.
    #[serde(default)]
    exclusive: bool,
    /// Arguments of the consumers, for example `{x-priority: 10}`, or `{x-stream-offset: first}` for a
    /// stream.
    #[serde(default)]
    consumer_arguments: BTreeMap<String, ArgumentOption>,
    /// How many messages the server may send without an acknowledgement, of all queues together. The default
    /// is one for each 4 KiB of the memory, at least 1000 and at most 65535; with `reject_dead_letters` it is
    /// 1000.
    #[serde(default)]
    #[schemars(range(min = 1))]
    prefetch: Option<u16>,
    /// True to reject messages that become dead letters of the run, in place of acknowledging them: the
    /// server gives them to the dead letter exchange of their queue, or drops them if it has none. Each
    /// message is then a batch of its own, which makes the source slower. The default is false.
    #[serde(default)]
    reject_dead_letters: bool,
    /// Parts of the message that become fields, under the same names: `queue`, `exchange`, `routing_key`,
    /// `redelivered` (maybe delivered before), the properties `content_type`, `content_encoding`,
    /// `delivery_mode` (2 for persistent), `priority`, `correlation_id`, `reply_to`, `expiration`,
    /// `message_id`, `timestamp`, `type`, `user_id` and `app_id`, and headers as `header.unit`. A header that
    /// is a list or a table is JSON.
    #[serde(default)]
    fields: List<String>,
    /// The largest message, in bytes. Of a larger one, the first 4 KiB leave by the `errors` output.
    #[serde(default = "thalweg_net::net::defaults::limit")]
    max_message_bytes: ByteSize,
    /// End the source after this time without messages, if the queues have none, no other consumer, and no
    /// message that failed and is about to return. Otherwise it is five times this time, and at least 2 s:
    /// messages may come back from another consumer, and if too many are not acknowledged, the server
    /// delivers none, although some sinks settle messages only when the input has ended. By default the
    /// source reads until the run is stopped.
    #[serde(default)]
    end_after_idle: Option<TimeSpan>,
}

/// How queues are declared.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Declare {
    /// True if the queues are there after a restart of the server. The default is true.
    durable: bool,
    /// True if the server deletes a queue when its last consumer ends. The default is false.
    auto_delete: bool,
    /// Arguments of the queues, for example `{x-queue-type: quorum, x-dead-letter-exchange: failed}`.
    arguments: BTreeMap<String, ArgumentOption>,
}

impl Default for Declare {
    fn default() -> Self {
        Self { durable: true, auto_delete: false, arguments: BTreeMap::new() }
    }
}

/// A binding of the queues to an exchange.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Binding {
    /// The exchange.
    exchange: String,
    /// The routing keys, for a topic exchange also with the wildcards `*` (one word) and `#` (any words). The
    /// default is an empty one, for exchanges that do not use it.
    #[serde(default = "empty_key")]
    routing_key: List<String>,
    /// Arguments of the binding, for example `{x-match: all, kind: order}` for a headers exchange.
    #[serde(default)]
    arguments: BTreeMap<String, ArgumentOption>,
}

fn empty_key() -> List<String> {
    vec![String::new()].into()
}

impl AmqpSource {
    /// True if the queues are streams. Only their consumers have an offset.
    fn reads_streams(&self) -> bool {
        self.consumer_arguments.contains_key("x-stream-offset")
    }

    fn mistake_of_queues(&self) -> Option<Mistake> {
        if self.queues.is_empty() {
            let mistake = Mistake::new("queues", "There is no queue to read.");
            return Some(mistake.help("For example `orders`."));
        }
        if self.queues.iter().any(String::is_empty) {
            let mistake = Mistake::new("queues", "A queue has a name.");
            return Some(mistake.help("With `declare`, a run creates the queue of that name."));
        }
        let mut queues = self.queues.to_vec();
        queues.sort();
        if let Some(twice) = queues.windows(2).find(|pair| pair.first() == pair.last()).and_then(<[_]>::first)
        {
            let mistake = Mistake::new("queues", format!("`{twice}` is there twice."));
            return Some(mistake.help("Name each queue once."));
        }
        mistake_of_length("queues", &*self.queues)
    }

    fn mistake_of_bindings(&self) -> Option<Mistake> {
        if self.bindings.iter().any(|binding| binding.exchange.is_empty()) {
            let mistake = Mistake::new("bindings", "The default exchange takes no bindings.");
            return Some(mistake.help("It has one for each queue already: the queue's name."));
        }
        if self.bindings.iter().any(|binding| binding.routing_key.is_empty()) {
            let mistake = Mistake::new("bindings", "A binding without a key binds nothing.");
            return Some(mistake.help("Remove `routing_key` for an exchange that does not use it."));
        }
        let bindings = self.bindings.iter();
        let names =
            bindings.flat_map(|binding| std::iter::once(&binding.exchange).chain(&*binding.routing_key));
        mistake_of_length("bindings", names)
    }

    fn mistake_of_arguments(&self) -> Option<Mistake> {
        let declared = self.declare.iter().flat_map(|declare| declare.arguments.keys());
        let bound = self.bindings.iter().flat_map(|binding| binding.arguments.keys());
        self.mistake_of_streams()
            .or_else(|| mistake_of_length("declare", declared))
            .or_else(|| mistake_of_length("bindings", bound))
            .or_else(|| mistake_of_length("consumer_arguments", self.consumer_arguments.keys()))
    }

    /// A stream would begin with what comes next over each connection, and miss what came before.
    fn mistake_of_streams(&self) -> Option<Mistake> {
        let kind = self.declare.as_ref()?.arguments.get("x-queue-type")?;
        let is_stream = matches!(kind, ArgumentOption::Text(kind) if kind == "stream");
        (is_stream && !self.reads_streams()).then_some(())?;
        let mistake = Mistake::new("consumer_arguments", "A stream is read from an offset on.");
        Some(mistake.help("For example `{x-stream-offset: first}`."))
    }

    fn mistake_of_fields(&self) -> Option<Mistake> {
        let wrong = self.fields.iter().find(|name| Field::new(name).is_none())?;
        let mistake = Mistake::new("fields", format!("A message has no `{wrong}`."));
        Some(mistake.help(
            "There are `queue`, `exchange`, `routing_key`, `redelivered`, properties such as `message_id`, \
             and headers such as `header.unit`.",
        ))
    }
}

impl Component for AmqpSource {
    const NAME: &'static str = "amqp";
    const EXAMPLE: &'static str = r#"
sources:
  orders:
    amqp:
      servers: "127.0.0.1:5672"
      queues: orders
      declare: {}
      fields: [routing_key, redelivered]
      end_after_idle: 1s
pipelines:
  main: { from: orders, to: all }
sinks:
  all:
    file:
      path: out/orders.jsonl
      encode: { format: json, fields: [routing_key, redelivered, payload] }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.servers.check();
        mistakes.extend(self.mistake_of_queues());
        mistakes.extend(self.mistake_of_bindings());
        mistakes.extend(self.mistake_of_arguments());
        mistakes.extend(self.mistake_of_fields());
        mistakes.extend(check_limit(self.max_message_bytes));
        mistakes
    }
}

impl SourceConfig for AmqpSource {
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
        true
    }

    // The queue goes on where it is.
    fn starts_over(&self) -> bool {
        false
    }

    fn has_growing_positions(&self) -> bool {
        false
    }

    fn describes_payload(&self) -> bool {
        !self.fields.is_empty()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        let memory = context.memory.budget().limit();
        let (most, prefetch) = match self.reject_dead_letters {
            // The engine counts the dead letters of a batch, and does not name them. Each batch that is on
            // its way takes some memory.
            true => (1, ahead::LEAST_UNACKNOWLEDGED),
            false => (MOST, ahead::unacknowledged(memory, MOST_PREFETCHED)),
        };
        Ok(Box::new(Queues {
            config: self.clone(),
            messages: Messages::new(&self.fields, &self.queues, self.max_message_bytes, most),
            read_bytes: ahead::read_bytes(memory),
            prefetch: self.prefetch.map_or(prefetch, usize::from),
            was_ready: false,
            has_ended: false,
        }))
    }
}

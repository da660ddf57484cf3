//! `mqtt`: reads topics of a server.
//!
//! [`reading`] has the messages of a connection, [`deliveries`] what the server expects to be acknowledged,
//! and [`acknowledgements`] how that is done.

mod acknowledgements;
mod deliveries;
mod messages;
mod reading;
#[cfg(test)]
mod tests;

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_broker::ahead;
use thalweg_codec::framing::check_limit;
use thalweg_config::{ByteSize, List, TimeSpan};
use thalweg_engine::{Claim, Component, Context, Endless, Error, KnownFields, Mistake, Source, SourceConfig};

use crate::options::{Protocol, QosOption, ServerOptions};
use crate::topic::is_filter;
use crate::wire::Qos;
use acknowledgements::Acknowledgements;
use messages::{Field, Messages};
use reading::Topics;

/// How long the source waits for messages before it looks whether it is to end.
const POLL: Duration = Duration::from_millis(100);

/// Reads messages of MQTT: topics of a server.
///
/// With `qos: 1` or `qos: 2`, the server keeps a session under the name `client_id`: it stores messages for
/// the source while that is away. A message is acknowledged when it is delivered, or rejected and kept with
/// its reason; with `--state`, when a checkpoint covers it. So none is lost. If the connection breaks, the
/// server sends messages again that are not acknowledged; those that are on their way are not sent on a
/// second time. A run that is killed gets them again. With `qos: 0`, messages are lost that are sent while
/// the source has no connection, and that are on their way when it is killed.
///
/// Several runs share the messages of a subscription such as `$share/GROUP/sensors/#`. Each needs a
/// `client_id` of its own. The server keeps the messages of a run that is killed until it is started again.
///
/// A server that is full drops messages, as it is configured. When the memory is full, the source reads
/// nothing, and messages wait there.
///
/// `meta.path` has the topics of the subscription.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MqttSource {
    #[serde(flatten)]
    servers: ServerOptions,
    /// The topics to read, also with the wildcards `+` (one level) and `#` (all further levels), and shared
    /// (`$share/GROUP/TOPIC`). A subscription that is removed here stays in the session of the server.
    #[schemars(example = &"sensors/#")]
    topics: List<String>,
    /// How often messages are delivered: at most once (0), at least once (1), or once as long as the run
    /// lasts (2). It is never more than that with which they were sent. The default is 1.
    #[serde(default)]
    qos: QosOption,
    /// The name of the session, another one for each run: two runs with one name take the session from each
    /// other. Needed unless `qos` is 0.
    #[serde(default)]
    client_id: Option<String>,
    /// How long the server keeps the session while the source is away (its expiry interval). Only MQTT 5 has
    /// it. The default is 1 day.
    #[serde(default = "one_day")]
    session_timeout: TimeSpan,
    /// How many messages the server may send without an acknowledgement. Only MQTT 5 has it. The default is
    /// one for each 4 KiB of the memory, at least 1000.
    #[serde(default)]
    #[schemars(range(min = 1))]
    receive_maximum: Option<u16>,
    /// Parts of the message that become fields, under the same names: `topic`, `qos`, `retained` (sent before
    /// the subscription), `duplicate` (maybe sent before), and of messages of MQTT 5 `content_type`,
    /// `response_topic`, `expiry` (in seconds) and user properties as `property.unit`.
    #[serde(default)]
    fields: List<String>,
    /// The largest message, in bytes. Of a larger one, the first 4 KiB leave by the `errors` output.
    #[serde(default = "thalweg_net::net::defaults::limit")]
    max_message_bytes: ByteSize,
    /// End the source after this time without messages. If the server may be waiting for acknowledgements, it
    /// is five times this time, and at least 2 s: some sinks settle messages only when the input has ended.
    /// By default the source reads until the run is stopped.
    #[serde(default)]
    end_after_idle: Option<TimeSpan>,
}

fn one_day() -> TimeSpan {
    TimeSpan::seconds(24 * 60 * 60)
}

impl MqttSource {
    fn mistake_of_topics(&self) -> Option<Mistake> {
        if self.topics.is_empty() {
            let mistake = Mistake::new("topics", "There is no topic to read.");
            return Some(mistake.help("For example `sensors/#`."));
        }
        let wrong = self.topics.iter().find(|topic| !is_filter(topic))?;
        let mistake = Mistake::new("topics", format!("`{wrong}` is no topic."));
        Some(mistake.help(
            "`+` stands for a whole level, `#` for the last ones, and a shared subscription is \
             `$share/GROUP/TOPIC`.",
        ))
    }

    fn mistake_of_fields(&self) -> Option<Mistake> {
        let is_wrong = |name: &&String| match Field::new(name) {
            Some(field) => field.is_property() && self.servers.protocol == Protocol::Mqtt3,
            None => true,
        };
        let wrong = self.fields.iter().find(is_wrong)?;
        let mistake = Mistake::new("fields", format!("A message has no `{wrong}`."));
        Some(mistake.help(
            "There are `topic`, `qos`, `retained` and `duplicate`; with `protocol: mqtt5` also `content_type`, \
             `response_topic`, `expiry` and user properties such as `property.unit`.",
        ))
    }

    /// Returns the mistake of an option that the session does not have.
    fn mistake_of_session(&self) -> Option<Mistake> {
        let given = [
            ("session_timeout", self.session_timeout != one_day()),
            ("receive_maximum", self.receive_maximum.is_some()),
        ];
        let (option, _) = given.into_iter().find(|(_, is_given)| *is_given)?;
        if !self.is_acknowledged() {
            let mistake =
                Mistake::new(option, "With `qos: 0`, the server keeps no session and waits for no answer.");
            return Some(mistake.help(format!("Remove `{option}`, or set `qos: 1` and a `client_id`.")));
        }
        if self.servers.protocol == Protocol::Mqtt3 {
            let mistake = Mistake::new(option, format!("MQTT 3.1.1 has no `{option}`."));
            return Some(mistake.help("Remove it, or set `protocol: mqtt5`."));
        }
        None
    }

    fn is_acknowledged(&self) -> bool {
        self.qos.0 != Qos::AtMostOnce
    }
}

impl Component for MqttSource {
    const NAME: &'static str = "mqtt";
    const EXAMPLE: &'static str = r#"
sources:
  sensors:
    mqtt:
      servers: "127.0.0.1:1883"
      topics: "sensors/#"
      client_id: archive-1
      fields: [topic, retained]
      end_after_idle: 1s
pipelines:
  main: { from: sensors, to: all }
sinks:
  all:
    file:
      path: out/sensors.jsonl
      encode: { format: json, fields: [topic, retained, payload] }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.servers.check();
        mistakes.extend(self.mistake_of_topics());
        mistakes.extend(self.mistake_of_fields());
        mistakes.extend(ServerOptions::mistake_of_client_id(self.client_id.as_ref()));
        if self.is_acknowledged() && self.client_id.is_none() {
            let mistake = Mistake::new(
                "client_id",
                "`client_id` is missing: a session has a name, so that a later run continues it.",
            );
            mistakes
                .push(mistake.help(
                    "Write for example `client_id: archive-1`, another one for each run, or `qos: 0`.",
                ));
        }
        mistakes.extend(self.mistake_of_session());
        mistakes.extend(check_limit(self.max_message_bytes));
        // The protocol counts in seconds, and a session of none ends with its connection.
        if self.is_acknowledged() && self.session_timeout.duration() < Duration::from_secs(1) {
            let mistake =
                Mistake::new("session_timeout", "The server would lose messages when a connection breaks.");
            mistakes.push(mistake.help("It is at least `1s`; the default is `1d`."));
        }
        mistakes
    }
}

impl SourceConfig for MqttSource {
    fn endless(&self) -> Option<Endless> {
        Endless::unless("end_after_idle", self.end_after_idle.is_some())
    }

    fn fields(&self) -> KnownFields {
        KnownFields::of(self.fields.iter().filter_map(|name| Some(Field::new(name)?.described(name))))
    }

    fn blocks(&self) -> bool {
        false
    }

    // The server sends again what was not acknowledged.
    fn resends(&self) -> bool {
        self.is_acknowledged()
    }

    // The session goes on where it is.
    fn starts_over(&self) -> bool {
        false
    }

    fn has_growing_positions(&self) -> bool {
        false
    }

    fn describes_payload(&self) -> bool {
        !self.fields.is_empty()
    }

    fn claims(&self) -> Vec<Claim> {
        self.client_id.iter().map(|id| self.servers.claim(id)).collect()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        let memory = context.memory.budget().limit();
        let pending = ahead::unacknowledged(memory, usize::from(u16::MAX));
        Ok(Box::new(Topics {
            config: self.clone(),
            messages: Messages::new(&self.fields, self.max_message_bytes, &self.topics.join(", ")),
            read_bytes: ahead::read_bytes(memory),
            receive_maximum: self.receive_maximum.unwrap_or(u16::try_from(pending).unwrap_or(u16::MAX)),
            kept: Acknowledgements::default(),
            is_subscribed: false,
            has_ended: false,
        }))
    }
}

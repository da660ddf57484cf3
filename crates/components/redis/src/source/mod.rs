//! `redis`: reads a stream as a member of a group, a list, or channels.
//!
//! [`stream`] and [`list`] acknowledge what is settled, by a task of their own ([`keeper`]); [`channels`] are
//! delivered at most once. The three are one component, because a user thinks of a server and a key first.

mod channels;
mod head;
mod keeper;
mod link;
mod list;
mod messages;
mod mistakes;
mod pending;
mod stream;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_broker::ahead;
use thalweg_config::{ByteSize, List, TimeSpan};
use thalweg_engine::{Claim, Component, Context, Endless, Error, KnownFields, Mistake, Source, SourceConfig};
use thalweg_net::net::{check_fetch_size, long_time};
use thalweg_stream::unacknowledged;

use crate::connection::Servers;
use crate::id::Id;
use crate::options::ServerOptions;
use channels::Channels;
use keeper::Keeper;
use list::Elements;
use messages::{Field, Kind, Messages};
use pending::Place;
use stream::Stream;

/// How long the source waits for messages before it looks whether it is to end.
const POLL: Duration = Duration::from_millis(100);
/// The most entries or batches that may be on their way.
const MOST_PENDING: usize = 50_000;

/// Waits, if the server was asked to wait for messages, and answered at once that there are none: some relays
/// do not let it wait. The source would ask without end.
async fn pause_unless_waited(asked: Instant) {
    if asked.elapsed() < POLL / 2 {
        tokio::time::sleep(POLL).await;
    }
}

/// Returns the servers of a source. Over all its connections they remember the node that has its key.
///
/// # Errors
/// If a file of the options cannot be used.
fn opened<'s>(servers: &'s mut Option<Servers>, config: &RedisSource) -> Result<&'s mut Servers, Error> {
    Ok(match servers {
        Some(servers) => servers,
        none => none.insert(Servers::new(&config.servers)?),
    })
}

/// True if the source is to end although the server may have more: as many messages as may be are not
/// acknowledged since `moved`, and some are settled only when the input has ended.
fn has_stalled(config: &RedisSource, moved: Instant) -> bool {
    config.end_after_idle.is_some_and(|idle| moved.elapsed() >= unacknowledged::stalled_after(idle))
}

/// Reads messages of Redis or Valkey: a stream, a list, or channels.
///
/// With `stream`, the source is a consumer of a `group`, which is created unless it exists. An entry is
/// acknowledged when it is delivered, or rejected and kept with its reason. Run the same configuration
/// several times, each with its own `consumer`, and the server divides the entries among the runs. A run that
/// is started again first reads what it had not acknowledged. The entries of a run that does not come back go
/// to the others after `consumer_timeout`. So none is lost. With `--state`, an entry that the checkpoint
/// covers and that the server delivers again is not sent on a second time. This needs Redis 6.2 or later.
///
/// With `list`, each element is moved to a list of this `consumer` (`processing_list`), and removed from
/// there when it is delivered. A run that is started again first reads what it finds there. No other run
/// does: start a dead one again under the same name. No two runs may have the same name. This needs Redis 6.2
/// or later.
///
/// With `channels` or `pattern`, the source subscribes to them. Such messages are delivered at most once:
/// those are lost that are sent while the source does not run or has no connection, that are on their way
/// when it is killed, or that arrive so much faster than they are delivered that the server cuts the
/// connection.
///
/// `meta.path` is the key of the stream or list, or the channels. If the server is a node of a cluster that
/// does not have the key, the source goes to the node that has it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RedisSource {
    #[serde(flatten)]
    servers: ServerOptions,
    /// The key of the stream to read.
    #[serde(default)]
    stream: Option<String>,
    /// The group of the stream. Needed with `stream`.
    #[serde(default)]
    group: Option<String>,
    /// The name of this run. It must stay the same when the run is started again, and no other run may have
    /// it. The default is the name of this machine.
    #[serde(default)]
    consumer: Option<String>,
    /// Where a group that is created begins: `all`, `new`, or the id of an entry, after which it begins. The
    /// default is `all`.
    #[serde(default)]
    start: Start,
    /// How long a consumer may keep an entry without a sign of life, before this run claims it. The others
    /// should have the same value. The default is 1 minute.
    #[serde(default = "thalweg_net::net::defaults::one_minute")]
    consumer_timeout: TimeSpan,
    /// The field of an entry that is the payload. An entry without it has all its fields as payload, as a
    /// JSON object. The default is `payload`.
    #[serde(default = "payload")]
    payload_field: String,
    /// The key of the list to read.
    #[serde(default)]
    list: Option<String>,
    /// The side of the list from which elements are taken, `left` or `right`. The default is `left`: the
    /// oldest element of a list to which others append on the right.
    #[serde(default)]
    take_from: Side,
    /// The key of the list of the elements that are on their way. By default it is made of the key of the
    /// list and the name of the consumer: `{LIST}:processing:CONSUMER`.
    #[serde(default)]
    processing_list: Option<String>,
    /// The channels to subscribe to.
    #[serde(default)]
    channels: List<String>,
    /// The patterns of channels to subscribe to, such as `news.*`.
    #[serde(default)]
    pattern: List<String>,
    /// Parts of the message that become fields, under the same names. Of a stream: `id`, `time` (that of the
    /// id), `stream` (the key), and fields of the entry as `field.name`. Of a list: `list` (the key). Of
    /// channels: `channel` and `pattern`.
    #[serde(default)]
    fields: List<String>,
    /// The largest message, in bytes: of an entry, all its fields together. Of a larger one, the first 4 KiB
    /// leave by the `errors` output.
    #[serde(default = "thalweg_net::net::defaults::limit")]
    max_message_bytes: ByteSize,
    /// The size of the messages that are asked for at once. A message that is larger is still read. The
    /// default is 1/32 of the memory, at most 2 MiB. Twice as much may be in memory.
    #[serde(default)]
    fetch_size: Option<ByteSize>,
    /// How long the source waits before it reads a message again that could not be delivered. The default is
    /// 1 s.
    #[serde(default = "thalweg_net::net::defaults::one_second")]
    retry_delay: TimeSpan,
    /// End the source after this time without messages: with `stream`, when the group has delivered all, and
    /// no other consumer has entries that are not acknowledged; with `list`, when the list is empty. By
    /// default it reads until the run is stopped.
    #[serde(default)]
    end_after_idle: Option<TimeSpan>,
}

fn payload() -> String {
    "payload".to_owned()
}

/// Where a group begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
enum Start {
    /// At the first entry.
    #[default]
    All,
    /// At the next entry.
    New,
    /// After the entry with this id.
    After(Id),
}

impl Start {
    /// Returns the id after which the group begins.
    fn id(self) -> String {
        match self {
            Self::All => "0".to_owned(),
            Self::New => "$".to_owned(),
            Self::After(id) => id.to_string(),
        }
    }
}

impl TryFrom<String> for Start {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "all" => Ok(Self::All),
            "new" => Ok(Self::New),
            other => other.parse().map(Self::After).map_err(|_| {
                format!("`{other}` is none of `all` and `new`, and no id such as `1764230400000-0`.")
            }),
        }
    }
}

impl JsonSchema for Start {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "StartOfGroup".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string" })
    }
}

/// A side of a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Side {
    /// The first element.
    #[default]
    Left,
    /// The last element.
    Right,
}

impl Side {
    /// Returns the word of commands.
    fn word(self) -> &'static [u8] {
        match self {
            Self::Left => b"LEFT",
            Self::Right => b"RIGHT",
        }
    }
}

impl RedisSource {
    fn fetch_bytes(&self, context: &Context) -> usize {
        ahead::fetch_bytes(self.fetch_size, context.memory.budget().limit())
    }

    fn kind(&self) -> Kind {
        match (&self.stream, &self.list) {
            (Some(_), _) => Kind::Stream,
            (None, Some(_)) => Kind::List,
            (None, None) => Kind::Channels,
        }
    }

    /// Returns the name of this run.
    fn consumer(&self) -> Result<String, Error> {
        if let Some(consumer) = &self.consumer {
            return Ok(consumer.clone());
        }
        let name = hostname::get().map_err(|error| {
            Error::permanent("this machine has no name: give `consumer`").caused_by(error)
        })?;
        Ok(name.to_string_lossy().into_owned())
    }

    /// Returns the key of the list of elements on their way. A cluster keeps it where the list is, because of
    /// the part in braces.
    fn processing(&self, list: &str) -> Result<String, Error> {
        if let Some(key) = &self.processing_list {
            return Ok(key.clone());
        }
        let consumer = self.consumer()?;
        Ok(match list.contains(['{', '}']) {
            true => format!("{list}:processing:{consumer}"),
            false => format!("{{{list}}}:processing:{consumer}"),
        })
    }

    fn messages(&self, path: &str) -> Messages {
        Messages::new(&self.fields, self.kind(), self.max_message_bytes, &self.payload_field, path)
    }
}

impl Component for RedisSource {
    const NAME: &'static str = "redis";
    const EXAMPLE: &'static str = r#"
sources:
  events:
    redis:
      servers: "127.0.0.1:6379"
      stream: events
      group: archive
      fields: [id, field.service]
      end_after_idle: 1s
pipelines:
  main: { from: events, to: all }
sinks:
  all:
    file:
      path: out/events.jsonl
      encode: { format: json, fields: [id, field.service, payload] }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.servers.check();
        mistakes.extend(self.mistake_of_input().or_else(|| self.mistake_of_names()));
        mistakes.extend(self.mistake_of_kind());
        mistakes.extend(self.mistake_of_fields());
        mistakes.extend(self.mistakes_of_sizes());
        if self.consumer_timeout.duration() < Duration::from_secs(1) {
            let mistake = Mistake::new("consumer_timeout", "A consumer needs more time for a sign of life.");
            mistakes.push(mistake.help("The default is `1m`."));
        }
        mistakes
    }
}

impl SourceConfig for RedisSource {
    fn endless(&self) -> Option<Endless> {
        Endless::unless("end_after_idle", self.end_after_idle.is_some())
    }

    fn fields(&self) -> KnownFields {
        let kind = self.kind();
        KnownFields::of(self.fields.iter().filter_map(|name| Some(Field::new(name, kind)?.described(name))))
    }

    fn blocks(&self) -> bool {
        false
    }

    // Messages that were not acknowledged, or not removed from the second list, are read again.
    fn resends(&self) -> bool {
        self.kind() != Kind::Channels
    }

    // The group goes on where it is, and elements are taken off their list.
    fn starts_over(&self) -> bool {
        false
    }

    // It acknowledges only what a saved checkpoint covers, and a checkpoint has what is not acknowledged.
    fn rereads(&self) -> bool {
        self.kind() == Kind::Stream
    }

    fn has_growing_positions(&self) -> bool {
        false
    }

    // Fields of an entry are a part of its content.
    fn describes_payload(&self) -> bool {
        !self.fields.is_empty() && !self.fields.iter().any(|name| name.starts_with("field."))
    }

    fn claims(&self) -> Vec<Claim> {
        let consumer = self.consumer.as_deref().unwrap_or_default();
        let of_consumer = "Give each a `consumer` of its own. Its default is the name of this machine.";
        let (option, name, help) = match (&self.stream, &self.list, &self.processing_list) {
            (Some(stream), _, _) => {
                let group = self.group.as_deref().unwrap_or_default();
                ("consumer", format!("{stream}\0{group}\0{consumer}"), of_consumer)
            }
            (None, Some(_), Some(key)) => {
                ("processing_list", key.clone(), "Give each a `processing_list` of its own.")
            }
            (None, Some(list), None) => ("consumer", format!("{list}\0{consumer}"), of_consumer),
            (None, None, _) => return Vec::new(),
        };
        let outcome = "each would read again what the other is delivering";
        vec![Claim::name(option, self.servers.place(), name, outcome, help)]
    }

    fn check_memory(&self, memory: ByteSize) -> Vec<Mistake> {
        check_fetch_size(self.fetch_size, memory).into_iter().collect()
    }

    fn remarks(&self) -> Vec<Mistake> {
        let pattern = self.channels.iter().find(|channel| channel.contains(['*', '?', '[']));
        let pattern = pattern.map(|channel| {
            let message = format!("`{channel}` is read as the name of one channel.");
            Mistake::new("channels", message).help("A pattern of names is written as `pattern`.")
        });
        pattern.into_iter().chain(long_time("timeout", self.servers.timeout)).collect()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        let fetch_bytes = self.fetch_bytes(context);
        let most = ahead::unacknowledged(context.memory.budget().limit(), MOST_PENDING);
        let keeper = |place, help| {
            let lag = Arc::new(AtomicU64::new(0));
            let shown = lag.clone();
            context.details.show_gauge("lag", help, move || shown.load(Relaxed));
            Keeper::new(place, self.retry_delay.duration(), lag)
        };
        if let Some(key) = &self.stream {
            let (group, consumer) = (self.group.clone().unwrap_or_default(), self.consumer()?);
            let place = Place::Stream {
                key: key.clone(),
                group: group.clone(),
                consumer: consumer.clone(),
                consumer_timeout: self.consumer_timeout.duration(),
            };
            let keeper = keeper(place, "Entries that its group has not delivered yet.");
            return Ok(Box::new(Stream {
                config: self.clone(),
                key: key.clone(),
                group,
                consumer,
                messages: self.messages(key),
                fetch_bytes,
                most,
                servers: None,
                keeper,
                next: None,
            }));
        }
        if let Some(key) = &self.list {
            let processing = self.processing(key)?;
            let place = Place::List { key: key.clone(), processing: processing.clone() };
            let keeper = keeper(place, "Elements that its list still has.");
            return Ok(Box::new(Elements {
                config: self.clone(),
                key: key.clone(),
                processing,
                messages: self.messages(key),
                fetch_bytes,
                most,
                servers: None,
                keeper,
            }));
        }
        let names: Vec<&str> = self.channels.iter().chain(self.pattern.iter()).map(String::as_str).collect();
        let messages = self.messages(&names.join(", "));
        Ok(Box::new(Channels { config: self.clone(), messages, fetch_bytes }))
    }
}

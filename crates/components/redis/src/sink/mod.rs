//! `redis`: writes messages by one of the commands of Redis.
//!
//! A batch of the engine is sent as a whole, in pipelines. It is durable when the server has answered each of
//! its commands. One batch is on its way at a time, so order is kept.
//!
//! One component with a `command` was preferred to one for each: keys, values, users and failures are the
//! same for all. A list of words as the command, with columns in them, was rejected: most commands cannot be
//! repeated, or have answers that say nothing of a single message.

mod answer;
mod command;
mod nodes;
mod sending;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::template::Template;
use thalweg_config::TimeSpan;
use thalweg_engine::{
    Component, Context, Error, InFlight, Mistake, NeededField, Rejects, Sink, SinkConfig, TransformConfig,
    WriteOutcome,
};
use thalweg_net::give_up::GiveUp;
use thalweg_net::net::long_time;
use thalweg_record::Batch;
use thalweg_stream::encode::EncodeConfig;

use crate::connection::Servers;
use crate::options::ServerOptions;
use command::{Command, Rows};
use nodes::Nodes;
use sending::Sending;

/// Writes messages to Redis or Valkey: keys, hashes, lists, sets, sorted sets, streams or channels.
///
/// A message is acknowledged when the server has answered its command. While no server answers, or the server
/// is loading its data or is no master, messages wait, and their source with them when the memory is full. A
/// message that the server refuses leaves by `errors` with the server's reason, for example because the key
/// has another kind of value (`WRONGTYPE`), or because the server's memory is full (`OOM`).
///
/// If the connection breaks, messages without an answer are sent again, although the server may have them.
/// `set`, `hset`, `sadd` and `zadd` with the same content change nothing then. `lpush`, `rpush`, `publish`
/// and `xadd` add the message a second time; `xadd` with an `id` does not.
///
/// The server writes to its disk as it is configured. A message is safe from a crash of the server only with
/// `appendfsync always`. Its replicas get the message after the answer: one that becomes the primary may lack
/// the last messages.
///
/// In a cluster, each command goes to the node that has its key.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RedisSink {
    #[serde(flatten)]
    servers: ServerOptions,
    /// The command that writes a message: `set`, `hset` (hash), `lpush` or `rpush` (list), `sadd` (set),
    /// `zadd` (sorted set), `xadd` (stream), or `publish` (channel).
    #[schemars(example = &"rpush")]
    command: Command,
    /// The key, or the channel, for example `orders` or `user:{id}`. Columns in braces are replaced for each
    /// message.
    #[schemars(example = &"orders")]
    key: Template,
    /// The value, for example `{price}`. By default it is the payload.
    #[serde(default)]
    value: Option<Template>,
    /// With `hset`: the field of the hash that is set to the value.
    #[serde(default)]
    field: Option<Template>,
    /// With `hset` and `xadd`: the fields with their values, for example `{name: '{name}', host:
    /// '{meta.hostname}'}`. By default an entry of a stream has the value as its field `payload`.
    #[serde(default)]
    field_values: BTreeMap<String, Template>,
    /// With `zadd`: the score, for example `{time}`. A message whose score is no number leaves by `errors`.
    #[serde(default)]
    score: Option<Template>,
    /// With `xadd`: the id of the entry, for example `{meta.position}-1`. It must be larger than that of the
    /// entry before. An entry that the stream has already is not added again, and counts as delivered. An
    /// empty one, and the default, is an id of the server.
    #[serde(default)]
    id: Option<Template>,
    /// With `xadd`: about how many entries the stream keeps. By default it keeps all.
    #[serde(default)]
    #[schemars(range(min = 1))]
    max_length: Option<u64>,
    /// With `set`: how long the server keeps the key. By default it stays.
    #[serde(default)]
    max_age: Option<TimeSpan>,
    /// The format of the payload, for example `json`. By default the payload is written unchanged.
    #[serde(default)]
    encode: EncodeConfig,
    /// The number of messages that are sent together. The default is 1024.
    #[serde(default = "thalweg_net::net::defaults::pending")]
    #[schemars(range(min = 1, max = 65536))]
    max_pending: usize,
    /// After this time without success, messages leave by `errors`. By default they wait.
    #[serde(default)]
    give_up: Option<TimeSpan>,
    /// The number of batches of the run that may be on their way at the same time. With more than 1, the
    /// order of messages is not kept. The default is 1.
    #[serde(default = "thalweg_net::net::defaults::one")]
    #[schemars(range(min = 1, max = 64))]
    concurrency: usize,
}

impl RedisSink {
    /// Returns the first option that the command does not have.
    fn unused(&self) -> Option<&'static str> {
        use Command::{Hset, Set, Xadd, Zadd};
        let given = [
            ("field", self.field.is_some(), &[Hset][..]),
            ("field_values", !self.field_values.is_empty(), &[Hset, Xadd][..]),
            ("score", self.score.is_some(), &[Zadd][..]),
            ("id", self.id.is_some(), &[Xadd][..]),
            ("max_length", self.max_length.is_some(), &[Xadd][..]),
            ("max_age", self.max_age.is_some(), &[Set][..]),
        ];
        let unused =
            given.into_iter().find(|(_, is_given, commands)| *is_given && !commands.contains(&self.command));
        unused.map(|(option, _, _)| option)
    }

    /// True if each message replaces the one before.
    fn replaces(&self) -> bool {
        let is_one = match self.command {
            Command::Set => true,
            Command::Hset => self.field.as_ref().is_none_or(Template::is_constant),
            _ => false,
        };
        is_one && self.key.is_constant()
    }

    fn mistakes_of_command(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if self.key.is_constant() && self.key.prefix().is_empty() {
            let mistake = Mistake::new("key", "The key is empty.");
            mistakes.push(mistake.help("For example `orders` or `order:{id}`."));
        }
        if let Some(option) = self.unused() {
            let mistake = Mistake::new(option, format!("The command has no `{option}`."));
            mistakes.push(mistake.help("Leave it out, or choose another `command`."));
        }
        let has_fields = !self.field_values.is_empty();
        if self.command == Command::Hset && self.field.is_some() == has_fields {
            let mistake = Mistake::new("field", "A hash needs the fields to set.");
            mistakes.push(mistake.help("Give `field`, for example `{id}`, or `field_values`."));
        }
        if self.command == Command::Zadd && self.score.is_none() {
            let mistake = Mistake::new("score", "A member of a sorted set has a score.");
            mistakes.push(mistake.help("For example `score: '{time}'`."));
        }
        if has_fields && self.value.is_some() {
            let mistake = Mistake::new("value", "`field_values` have the values.");
            mistakes.push(mistake.help("Give one of the two."));
        }
        if self.id.as_ref().is_some_and(Template::is_constant) {
            let mistake = Mistake::new("id", "Each entry of a stream has its own id.");
            mistakes.push(mistake.help("Name a column that grows, for example `{meta.position}-1`."));
        }
        if self.max_age.is_some_and(|max_age| max_age.duration().as_millis() == 0) {
            let mistake = Mistake::new("max_age", "The server would not keep the key.");
            mistakes.push(mistake.help("The shortest time is `1ms`."));
        }
        mistakes
    }
}

impl Component for RedisSink {
    const NAME: &'static str = "redis";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { message: '{"id": %6d, "service": "shop"}', count: 100 } }
pipelines:
  main: { from: messages, transforms: [parse_json: {}], to: stream }
sinks:
  stream:
    redis: { servers: "127.0.0.1:6379", command: xadd, key: "events:{service}", field_values: { order: "{id}" } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.servers.check();
        mistakes.extend(self.encode.mistakes());
        mistakes.extend(self.mistakes_of_command());
        mistakes
    }
}

impl SinkConfig for RedisSink {
    fn encoder(&self) -> Option<Box<dyn TransformConfig>> {
        self.encode.encoder()
    }

    fn fields(&self) -> Vec<String> {
        let single = [&self.value, &self.field, &self.score, &self.id].into_iter().flatten();
        let templates = std::iter::once(&self.key).chain(single).chain(self.field_values.values());
        templates.flat_map(Template::fields).collect()
    }

    fn needed_fields(&self) -> Vec<NeededField> {
        let score =
            self.score.as_ref().filter(|score| score.prefix().is_empty() && score.suffix().is_empty());
        let needed = |score: &Template| NeededField {
            option: "score",
            names: score.fields(),
            help: "Name the field with the number, for example `score: '{time}'`.",
        };
        score.map(needed).into_iter().collect()
    }

    fn remarks(&self) -> Vec<Mistake> {
        let replaced = self.replaces().then(|| {
            let message = "Each message replaces the one before: the key is the same for all.";
            Mistake::new("key", message).help("Name a column to keep them all, for example `order:{id}`.")
        });
        let remarks = replaced.into_iter().chain(long_time("timeout", self.servers.timeout));
        remarks.chain(self.key.remark("key")).collect()
    }

    fn in_flight(&self) -> InFlight {
        InFlight::chosen(self.concurrency)
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        let nodes = Nodes::new(Servers::new(&self.servers)?);
        let give_up = GiveUp::after(self.give_up);
        Ok(Box::new(Redis {
            rows: Rows::new(self),
            sending: Sending::new(
                context.name.clone(),
                nodes,
                self.max_pending,
                give_up,
                context.memory.clone(),
            ),
        }))
    }
}

struct Redis {
    rows: Rows,
    sending: Sending,
}

#[async_trait]
impl Sink for Redis {
    async fn open(&mut self, _: Option<serde_json::Value>) -> Result<(), Error> {
        self.sending.connect().await
    }

    async fn write(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<WriteOutcome, Error> {
        self.sending.send(&mut self.rows, batch, rejects).await.map(|()| WriteOutcome::Durable)
    }

    fn drop_batch(&mut self) {
        self.sending.forget();
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), Error> {
        self.sending.close();
        Ok(())
    }
}

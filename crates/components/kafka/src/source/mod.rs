//! `kafka`: reads topics as a member of a group.
//!
//! The broker gives each partition to one member of the group, and keeps how far it got. The source commits
//! only what is settled, so a record that was not delivered is read again, by this member or by another. A
//! partition is a partition of the engine's checkpoint too: with `--state`, the source commits only what a
//! saved checkpoint covers.
//!
//! A partition that is taken away is given up in four steps: no record of it is sent any more, those on their
//! way are waited for, their offset is committed, and the partition is released. Records that were read and
//! not sent by then are read again by the next member.

mod forward;
mod gone;
mod ledger;
mod membership;
mod reading;
mod saved;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use regex::Regex;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::framing::check_limit;
use thalweg_config::{ByteSize, List, TimeSpan};
use thalweg_engine::{
    Component, Context, Endless, Error, KnownFields, Membership, Mistake, Source, SourceConfig,
    TransactionPlace,
};
use thalweg_net::net::check_fetch_size;

use crate::client::rust::{AutoOffsetReset, GroupProtocol, IsolationLevel, Receiving};
use crate::options::ClusterOptions;
use forward::Field;
use reading::Kafka;

/// The time that a member has to give up partitions.
const REBALANCE_TIMEOUT: Duration = Duration::from_secs(60);
/// The largest number of records in one answer.
const RECORDS: usize = 10_000;

/// Reads topics of Kafka, or of a broker that speaks its protocol, as a member of a group.
///
/// Run the same configuration several times, and the broker divides the partitions among the runs. A record
/// is committed when its messages are delivered, or rejected and kept with their reasons. So none is lost: a
/// member that ends without committing leaves its records to another one, which may deliver some of them
/// again.
///
/// The order of records within a partition is kept. The payload of a message is the value of the record; that
/// of a record without a value (a tombstone) is empty. `meta.path` is the topic, `meta.position` the offset.
///
/// With `--state`, a partition is resumed where the checkpoint is, or where the group is if that is further.
///
/// If the messages end in a sink `kafka` of the same cluster that has a `transactional_id`, the offsets are
/// committed in its transactions, and each record has its effect once. It is then resumed where the group is.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KafkaSource {
    #[serde(flatten)]
    cluster: ClusterOptions,
    /// The topics to read. A topic that begins with `^` is a regular expression: all topics are read whose
    /// names match, also those that are created later.
    #[schemars(example = &"^logs-.*$")]
    topics: List<String>,
    /// The name of the group. Members of a group share the partitions.
    group: String,
    /// The name of this member. The broker keeps its partitions for it while it restarts, for at most
    /// `session_timeout`. By default a restarted member gets partitions as a new one.
    #[serde(default)]
    instance: Option<String>,
    /// Where to begin in a partition for which the group has committed no offset: `earliest`, `latest`, or a
    /// point in time such as `2026-11-25T08:00:00Z`. The default is `earliest`.
    #[serde(default)]
    start: Start,
    /// Which records of transactions are read. The default is `read_committed`.
    #[serde(default)]
    isolation: Isolation,
    /// How members divide the partitions. The default is `classic`.
    #[serde(default)]
    protocol: Protocol,
    /// Parts of the record that become fields of its message, under the same names: `topic`, `partition`,
    /// `offset`, `timestamp`, `key`, `tombstone` (true for a record without a value) and headers as
    /// `header.trace-id`. Bytes of keys and headers that are not UTF-8 are replaced by U+FFFD.
    #[serde(default)]
    fields: List<String>,
    /// The largest message, in bytes. Of a larger one, the first 4 KiB leave by the `errors` output.
    #[serde(default = "thalweg_net::net::defaults::limit")]
    max_message_bytes: ByteSize,
    /// The size of an answer of a broker. A record that is larger is still read. The default is 1/32 of the
    /// memory, at most 2 MiB. Four of them may be in memory at the same time.
    #[serde(default)]
    fetch_size: Option<ByteSize>,
    /// With `protocol: classic`: after this time without a sign of life, the partitions of a member go to
    /// others. The default is 10 s.
    #[serde(default = "thalweg_net::net::defaults::ten_seconds")]
    session_timeout: TimeSpan,
    /// End the source after this time without records, when its partitions are read to their ends. A member
    /// that gets no partition ends after a minute at the earliest. By default it reads until the run is
    /// stopped.
    #[serde(default)]
    end_after_idle: Option<TimeSpan>,
}

/// Where to begin in a partition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
enum Start {
    /// At the first record.
    #[default]
    Earliest,
    /// At the next record.
    Latest,
    /// At the first record that is not older, in milliseconds since 1970.
    Time(i64),
}

impl TryFrom<String> for Start {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "earliest" => Ok(Self::Earliest),
            "latest" => Ok(Self::Latest),
            time => match chrono::DateTime::parse_from_rfc3339(time) {
                Ok(time) => Ok(Self::Time(time.timestamp_millis())),
                Err(_) => Err(format!(
                    "`{time}` is neither `earliest` nor `latest` nor a time such as `2026-11-25T08:00:00Z`."
                )),
            },
        }
    }
}

impl JsonSchema for Start {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Start".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string" })
    }
}

/// Which records of transactions are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Isolation {
    /// Those of committed transactions, and all records without a transaction.
    #[default]
    ReadCommitted,
    /// All records, also those of transactions that fail later.
    ReadUncommitted,
}

/// How members of a group divide the partitions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Protocol {
    /// One of the members divides them. All members stop for a moment.
    #[default]
    Classic,
    /// The broker divides them, from Kafka 4.0 on (KIP-848). Only members stop that lose partitions.
    Consumer,
}

impl KafkaSource {
    fn patterns(&self) -> Result<Vec<Regex>, Mistake> {
        let patterns = self.topics.iter().filter(|topic| topic.starts_with('^'));
        let mistake =
            |error: regex::Error| Mistake::new("topics", format!("It is not a regular expression: {error}."));
        patterns.map(|pattern| Regex::new(pattern).map_err(mistake)).collect()
    }

    fn receiving(&self, context: &Context) -> Receiving {
        let default = (context.memory.budget().limit() / 32).min(2 << 20);
        Receiving {
            group: self.group.clone(),
            instance: self.instance.clone(),
            protocol: match self.protocol {
                Protocol::Classic => GroupProtocol::Classic,
                Protocol::Consumer => GroupProtocol::Consumer,
            },
            isolation: match self.isolation {
                Isolation::ReadCommitted => IsolationLevel::ReadCommitted,
                Isolation::ReadUncommitted => IsolationLevel::ReadUncommitted,
            },
            reset: match self.start {
                Start::Latest => AutoOffsetReset::Latest,
                Start::Earliest | Start::Time(_) => AutoOffsetReset::Earliest,
            },
            session_timeout: self.session_timeout.duration(),
            rebalance_timeout: REBALANCE_TIMEOUT,
            fetch_size: self.fetch_size.map_or(default, ByteSize::as_usize).max(1 << 10),
            records: RECORDS,
        }
    }
}

impl Component for KafkaSource {
    const NAME: &'static str = "kafka";
    const EXAMPLE: &'static str = r#"
sources:
  events:
    kafka:
      brokers: "127.0.0.1:9092"
      topics: events
      group: archive
      fields: [partition, key]
      end_after_idle: 2s
pipelines:
  main: { from: events, to: all }
sinks:
  all:
    file:
      path: out/events.jsonl
      encode: { format: json, fields: [partition, key, payload] }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.cluster.check();
        mistakes.extend(self.patterns().err());
        if self.topics.is_empty() || self.topics.iter().any(String::is_empty) {
            let mistake = Mistake::new("topics", "There is no topic to read.");
            mistakes.push(mistake.help("For example `topics: logs`."));
        }
        if self.group.is_empty() {
            let mistake = Mistake::new("group", "The group has no name.");
            mistakes.push(mistake.help("For example `group: archive`."));
        }
        if let Some(name) = self.fields.iter().find(|name| Field::new(name).is_none()) {
            let mistake = Mistake::new("fields", format!("A record has no `{name}`."));
            mistakes.push(mistake.help(
                "There are `topic`, `partition`, `offset`, `timestamp`, `key`, `tombstone` and headers such as \
                 `header.trace-id`.",
            ));
        }
        if self.session_timeout.duration() < Duration::from_secs(1) {
            let mistake = Mistake::new("session_timeout", "A member must have at least a second.");
            mistakes.push(mistake.help("The default is `10s`."));
        }
        mistakes.extend(check_limit(self.max_message_bytes));
        mistakes
    }
}

impl SourceConfig for KafkaSource {
    fn endless(&self) -> Option<Endless> {
        Endless::unless("end_after_idle", self.end_after_idle.is_some())
    }

    fn fields(&self) -> KnownFields {
        KnownFields::of(self.fields.iter().filter_map(|name| Some(Field::new(name)?.described(name))))
    }

    fn blocks(&self) -> bool {
        false
    }

    // The group goes on where it is.
    fn starts_over(&self) -> bool {
        false
    }

    fn positions_place(&self) -> Option<TransactionPlace> {
        Some(self.cluster.place())
    }

    // Otherwise the offsets of a transaction that is still open would be taken for none.
    fn transaction_mistake(&self) -> Option<Mistake> {
        (self.isolation == Isolation::ReadUncommitted).then(|| {
            let message = "A source whose offsets are committed in transactions reads committed records.";
            Mistake::new("isolation", message).help("Leave it out.")
        })
    }

    fn membership(&self) -> Option<Membership> {
        Some(Membership {
            option: "group",
            place: self.cluster.place(),
            group: self.group.clone(),
            topics: self.topics.iter().cloned().collect(),
        })
    }

    fn describes_payload(&self) -> bool {
        !self.fields.is_empty()
    }

    fn check_memory(&self, memory: ByteSize) -> Vec<Mistake> {
        check_fetch_size(self.fetch_size, memory).into_iter().collect()
    }

    // It commits only what a saved checkpoint covers.
    fn rereads(&self) -> bool {
        true
    }

    fn needed_files(&self) -> Vec<(&'static str, PathBuf)> {
        self.cluster.needed_files()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        let lag = Arc::new(AtomicU64::new(0));
        let shown = lag.clone();
        let help = "Records of its partitions that it has not read yet.";
        context.details.show_gauge("lag", help, move || shown.load(Relaxed));
        let patterns = self.patterns().map_err(|mistake| Error::permanent(mistake.message))?;
        Ok(Box::new(Kafka {
            receiving: self.receiving(context),
            config: self.clone(),
            patterns,
            lag,
            membership: None,
            link: context.link.clone(),
        }))
    }
}

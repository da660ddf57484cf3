//! `splunk_hec`: sends messages to the HTTP Event Collector of Splunk.
//!
//! The collector stops at the first event that it cannot use, and says which one that is, in some answers
//! from 0 and in others from 1. Whether it keeps the events before it is not documented, so they are sent
//! again: rather twice than never.
//!
//! An answer says that the collector has the events in its queue. With `indexer_ack` it also has a number,
//! under which the collector tells later whether they are indexed: see [`acks`].

mod acks;
mod events;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;

use async_trait::async_trait;
use reqwest::StatusCode;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::template::Template;
use thalweg_config::{ByteSize, TimeSpan};
use thalweg_engine::{Component, Context, Error, InFlight, Mistake, Sink, SinkConfig, TransformConfig};
use thalweg_stream::encode::EncodeConfig;

use crate::requests::{
    Answer, Check, Compression, Failure, Parts, Reading, Receipt, Request, Service, Shared, Store,
    StoreOptions, Target, secret_header,
};
use acks::{Acks, CHANNEL, Channel};
use events::{Events, Lines};

/// Sends messages to the HTTP Event Collector of Splunk.
///
/// A message is acknowledged when the collector has accepted it, or with `indexer_ack` when Splunk has
/// indexed it. An event that the collector refuses leaves by `errors` with its reason, and the others are
/// sent again. While the collector is busy or away, or refuses the token, messages wait.
///
/// Splunk does not know events again: one that is sent twice after a lost answer or a restart is there twice.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SplunkHecConfig {
    #[serde(flatten)]
    options: StoreOptions,
    /// The token of the collector. Take it from a variable (`${SPLUNK_TOKEN}`) or a file
    /// (`${file:/run/secrets/splunk}`).
    token: String,
    /// The interface that takes the messages. The default is `event`.
    #[serde(default)]
    interface: Interface,
    /// The index, for example `main` or `{team}`. Columns in braces are replaced for each message. By default
    /// it is that of the token, as also for a message without the column. Messages for an index that the
    /// token may not use wait if all messages have that index, and leave by `errors` otherwise.
    #[serde(default)]
    index: Option<Template>,
    /// The source of the event, for example `{meta.path}`. By default it is that of the token.
    #[serde(default)]
    source: Option<Template>,
    /// The source type of the event, for example `access_combined`. By default it is that of the token.
    #[serde(default)]
    sourcetype: Option<Template>,
    /// The host of the event, for example `{meta.hostname}`. By default it is that of the collector.
    #[serde(default)]
    host: Option<Template>,
    /// Indexed fields of the event, for example `{ region: '{region}' }`. A value that is empty is left out.
    /// By default there are none.
    #[serde(default)]
    indexed_fields: BTreeMap<String, Template>,
    /// The field with the time of the event: a point in time after 1970, or such a text in the form of RFC
    /// 3339. By default, and without such a value, it is the time when the message was read.
    #[serde(default)]
    time: Option<String>,
    /// Whether a message is acknowledged only when Splunk has indexed it. The token must have indexer
    /// acknowledgement enabled, and a load balancer must lead all requests of the run to the same collector.
    /// The default is `false`.
    #[serde(default)]
    indexer_ack: bool,
    /// How long Splunk may take to index an event, with `indexer_ack`. After that the event is sent again.
    /// The default is 5 minutes.
    #[serde(default = "five_minutes")]
    ack_timeout: TimeSpan,
    /// The pause between two questions whether events are indexed. The default is 1 second.
    #[serde(default = "one_second")]
    ack_interval: TimeSpan,
    /// The format of messages. By default the payload is sent unchanged. With the interface `event`, a
    /// payload that is a JSON object is an event with fields, and any other a text.
    #[serde(default)]
    encode: EncodeConfig,
    #[serde(skip)]
    shared: Shared,
    #[serde(skip)]
    channel: Channel,
}

/// The interface of the collector.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Interface {
    /// Each message is an event.
    #[default]
    Event,
    /// Each message is one line or several, which Splunk divides into events as the source type says. All
    /// messages have the same `index`, `source`, `sourcetype` and `host`.
    Raw,
}

/// The paths of the collector, which requests have.
const INTERFACES: [&str; 4] =
    ["/services/collector/event", "/services/collector/raw", "/services/collector", "/services"];

fn five_minutes() -> TimeSpan {
    TimeSpan::seconds(300)
}

fn one_second() -> TimeSpan {
    TimeSpan::seconds(1)
}

impl SplunkHecConfig {
    /// Returns the templates of the metadata, with their names in events and queries.
    fn metadata(&self) -> impl Iterator<Item = (&'static str, &Template)> {
        let known = [
            ("index", &self.index),
            ("source", &self.source),
            ("sourcetype", &self.sourcetype),
            ("host", &self.host),
        ];
        known.into_iter().filter_map(|(name, template)| Some((name, template.as_ref()?)))
    }

    /// Returns the metadata that all messages have, for the query of the interface `raw`.
    fn query(&self) -> Vec<(String, String)> {
        self.metadata().map(|(name, template)| (name.to_owned(), template.prefix().to_owned())).collect()
    }

    fn headers(&self) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, secret_header("`token`", &format!("Splunk {}", self.token))?);
        if self.interface == Interface::Event {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        // Some servers with this interface, such as Vector, want a channel for lines in any case. With
        // `indexer_ack`, each request has a channel of its own.
        if !self.indexer_ack && self.interface == Interface::Raw {
            headers.insert(CHANNEL, self.channel.header());
        }
        Ok(headers)
    }

    /// Returns the mistakes in credentials, which would be sent in place of the token.
    fn mistakes_of_credentials(&self) -> Vec<Mistake> {
        let has_user = self.options.endpoint().has_user();
        let known = [
            ("auth", self.options.auth.is_some(), "Remove `auth`."),
            ("url", has_user, "Remove the user and the password from it."),
        ];
        let found = known.into_iter().filter(|(_, is_given, _)| *is_given);
        let message = "The credentials of the collector are its `token`.";
        found.map(|(name, _, help)| Mistake::new(name, message).help(help)).collect()
    }

    /// Returns the mistake in a token that the collector would refuse.
    fn mistake_of_token(&self) -> Option<Mistake> {
        let message = match self.token.trim() {
            "" => "The token is empty.",
            token if token.starts_with("Splunk ") => "The sink puts `Splunk` before the token itself.",
            _ => return None,
        };
        Some(Mistake::new("token", message).help("Take it from a variable: `${SPLUNK_TOKEN}`."))
    }

    /// Returns the mistakes in the times of acknowledgements.
    fn mistakes_of_times(&self) -> Vec<Mistake> {
        let times = [("ack_timeout", self.ack_timeout, "5m"), ("ack_interval", self.ack_interval, "1s")];
        let zero = times.into_iter().filter(|(_, time, _)| time.duration().is_zero());
        let mistake = |name: &'static str| Mistake::new(name, format!("`{name}` cannot be 0."));
        let zero = zero.map(|(name, _, usual)| mistake(name).help(format!("For example `{usual}`.")));
        let late = (self.ack_interval > self.ack_timeout).then(|| {
            let message = "Events would be sent again before Splunk is asked whether it has them.";
            Mistake::new("ack_interval", message).help("Make it shorter than `ack_timeout`.")
        });
        zero.chain(late).collect()
    }

    /// Returns the mistake of a channel for all requests, whose numbers would confirm others after a restart.
    fn mistake_of_channel(&self) -> Option<Mistake> {
        let is_channel = |name: &String| name.eq_ignore_ascii_case(CHANNEL);
        let has_channel = self.indexer_ack && self.options.headers.keys().any(is_channel);
        let mistake =
            || Mistake::new("headers", "With `indexer_ack`, each request has a channel of its own.");
        has_channel.then(|| mistake().help("Remove `X-Splunk-Request-Channel`."))
    }

    /// Returns the mistakes in the options of the interface `raw`.
    fn mistakes_of_raw(&self) -> Vec<Mistake> {
        let varies = self.metadata().find(|(_, template)| !template.is_constant());
        let of_all = varies.map(|(name, _)| {
            let mistake = Mistake::new(name, format!("With `raw`, all messages have the same `{name}`."));
            mistake.help("Write a text without columns, or use the interface `event`.")
        });
        let of_events = [("time", self.time.is_some()), ("indexed_fields", !self.indexed_fields.is_empty())];
        let without_effect = of_events.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| {
            let mistake = Mistake::new(name, format!("With `raw`, messages have no `{name}`."));
            mistake.help("Splunk finds it in the text. Remove it, or use the interface `event`.")
        });
        of_all.into_iter().chain(without_effect).collect()
    }
}

impl Component for SplunkHecConfig {
    const NAME: &'static str = "splunk_hec";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { message: '{"id": %6d, "team": "shop"}', count: 100 } }
pipelines:
  main: { from: messages, transforms: [parse_json: {}], to: events }
sinks:
  events:
    splunk_hec:
      url: "http://127.0.0.1:8088"
      token: "an example, take yours from a variable"
      index: "{team}"
      sourcetype: orders
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.options.check(&[Compression::Gzip]);
        mistakes.extend(self.encode.mistakes());
        if let Err(message) = self.headers() {
            mistakes.push(Mistake::new("token", message).help("Take it from a variable: `${SPLUNK_TOKEN}`."));
        }
        mistakes.extend(self.mistake_of_token());
        mistakes.extend(self.options.mistake_of_path(&INTERFACES));
        mistakes.extend(self.mistakes_of_credentials());
        mistakes.extend(self.mistakes_of_times());
        mistakes.extend(self.mistake_of_channel());
        if self.interface == Interface::Raw {
            mistakes.extend(self.mistakes_of_raw());
        }
        mistakes
    }
}

impl SinkConfig for SplunkHecConfig {
    fn encoder(&self) -> Option<Box<dyn TransformConfig>> {
        self.encode.encoder()
    }

    fn fields(&self) -> Vec<String> {
        let templates = self.metadata().map(|(_, template)| template).chain(self.indexed_fields.values());
        templates.flat_map(Template::fields).chain(self.time.clone()).collect()
    }

    fn in_flight(&self) -> InFlight {
        self.options.in_flight()
    }

    fn remarks(&self) -> Vec<Mistake> {
        self.options.remarks()
    }

    fn needed_files(&self) -> Vec<(&'static str, PathBuf)> {
        self.options.needed_files()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        let is_raw = self.interface == Interface::Raw;
        let target = Target {
            path: if is_raw { "/services/collector/raw" } else { "/services/collector/event" },
            query: if is_raw { self.query() } else { Vec::new() },
            headers: self.headers().map_err(Error::permanent)?,
            // The limit of Splunk Cloud.
            most_bytes: ByteSize::mib(1),
            is_joining: true,
            check: Check { path: "/services/collector/health", query: Vec::new(), denied: &[401, 403] },
        };
        let (timeout, interval) = (self.ack_timeout.duration(), self.ack_interval.duration());
        let collector = Collector {
            has_one_index: self.index.as_ref().is_none_or(Template::is_constant),
            acks: self.indexer_ack.then(|| Acks::new(interval, timeout)),
        };
        if is_raw {
            return Store::build(context, &self.options, &self.shared, target, collector, Lines);
        }
        let indexed = self.indexed_fields.iter().map(|(name, template)| owned((name.as_str(), template)));
        let events = Events {
            metadata: self.metadata().map(owned).collect(),
            indexed: indexed.collect(),
            time: self.time.clone(),
        };
        Store::build(context, &self.options, &self.shared, target, collector, events)
    }
}

fn owned((name, template): (&str, &Template)) -> (String, Template) {
    (name.to_owned(), template.clone())
}

/// The answer of the collector.
#[derive(Debug, Default, Deserialize)]
struct Said {
    code: Option<u32>,
    #[serde(rename = "ackId")]
    ack_id: Option<u64>,
    /// The number of the event that it stopped at.
    #[serde(rename = "invalid-event-number")]
    number: Option<usize>,
}

/// The code of an index that the token may not use.
const INCORRECT_INDEX: u32 = 7;

/// The codes that blame an event: no data, invalid data, an index, no event, an empty event, wrong indexed
/// fields. All others of a status 400 blame how requests are made.
const OF_EVENTS: [u32; 6] = [5, 6, INCORRECT_INDEX, 12, 13, 15];

/// The interfaces that take events.
pub(crate) struct Collector {
    /// True if all events are for the same index.
    has_one_index: bool,
    /// None if an event counts as soon as it is accepted.
    acks: Option<Acks>,
}

impl Collector {
    /// Returns a collector whose events count as soon as they are accepted, for several indexes.
    pub(crate) fn without_acks() -> Self {
        Self { has_one_index: false, acks: None }
    }

    /// Returns the meaning of the status 400.
    fn refused(&self, request: &Request, answer: &Answer, said: &Said) -> Reading {
        let blames_events = said.code.is_none_or(|code| OF_EVENTS.contains(&code));
        if !blames_events || (said.code == Some(INCORRECT_INDEX) && self.has_one_index) {
            return Reading::Again(request.failure(answer));
        }
        let reason = request.text(answer);
        match said.number {
            Some(number) => Reading::RefusedAt { number, reason },
            None => Reading::Refused(reason),
        }
    }
}

#[async_trait]
impl Service for Collector {
    fn headers(&self) -> HeaderMap {
        let channel = |_: &Acks| (HeaderName::from_static(CHANNEL), Channel::default().header());
        self.acks.iter().map(channel).collect()
    }

    fn read(&self, request: &Request, answer: &Answer, _: &Parts) -> Reading {
        let said: Said = serde_json::from_slice(&answer.body).unwrap_or_default();
        match answer.status {
            status if status.is_success() => match (&self.acks, said.ack_id) {
                (None, _) => Reading::Accepted,
                (Some(_), Some(number)) => Reading::Unconfirmed(Receipt { own: answer.own.clone(), number }),
                // To send it again would store it again.
                (Some(_), None) => Reading::Again(Failure::from(Error::permanent(format!(
                    "{} gave no number to ask for; enable indexer acknowledgement for the token, or set \
                     `indexer_ack: false`",
                    request.server()
                )))),
            },
            StatusCode::BAD_REQUEST => self.refused(request, answer, &said),
            StatusCode::PAYLOAD_TOO_LARGE => Reading::Refused(request.text(answer)),
            // Also a wrong token: the events are not the reason, so they wait.
            _ => Reading::Again(request.failure(answer)),
        }
    }

    async fn confirm(&self, request: &Request, receipts: &[Receipt]) -> Vec<Option<Failure>> {
        match &self.acks {
            Some(acks) => acks.wait(request, receipts).await,
            None => vec![None; receipts.len()],
        }
    }
}

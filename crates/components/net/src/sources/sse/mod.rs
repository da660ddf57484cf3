//! `sse`: server-sent events, the stream of messages that web servers have for browsers.
//!
//! The source names the last event when it connects again (`Last-Event-ID`). Whether the server then sends
//! what came after it is up to the server, so the user has to say it (`replays`): what a sink wrote since the
//! last checkpoint is cut off only if it comes again.
//!
//! The id is the offset of the checkpoint. An event without an id has that of the event before it.

// Public for its fuzz target.
#[doc(hidden)]
pub mod event_stream;
mod listen;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::columns::FieldType;
use thalweg_config::{ByteSize, List, TimeSpan};
use thalweg_engine::{Component, Context, Endless, Error, KnownFields, Mistake, Source, SourceConfig};

use crate::net::{check_timeout, defaults, long_time};
use crate::requests::{Auth, Endpoint};
use crate::tls::TlsClient;

/// Receives server-sent events: a stream of messages that a web server sends as the answer to a request.
///
/// The data of an event is a message. `meta.path` is the URL without its query. When the connection ends, or
/// nothing comes for `idle_timeout`, the source connects again, after `retry_delay` or the time that the
/// server asks for (`retry`, from 100 ms to 5 minutes); while connections end soon and without an event, the
/// time doubles, up to 10 s. It then sends the id of the last event (`Last-Event-ID`), so that the server can
/// continue behind it. It is saved with `--state` when the event is settled, and a later run sends it too. An
/// answer 204 ends the source. Any other status but 200, 408, 429 and those from 500 on ends the run with an
/// error; redirections are not followed.
///
/// The stream has no acknowledgements. Events without an id, and those of a server that does not continue
/// behind the id, are lost that are sent while the source is not connected, or that are on their way when it
/// is killed.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SseSource {
    /// The URL of the stream, for example `https://example.com/events`. A URL without a scheme uses
    /// `http://`.
    #[schemars(example = &"https://example.com/events")]
    url: String,
    /// Additional headers of the request, for example `{X-Source: thalweg}`.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The credentials of the request: `user` and `password`, `bearer`, `api_key` or `token`. By default
    /// those of `url` (`https://USER:PASSWORD@HOST`) are sent, if it has any.
    #[serde(default)]
    auth: Option<Auth>,
    /// TLS options, for a URL with `https://`. By default certificates that the system trusts are accepted.
    #[serde(default)]
    tls: TlsClient,
    /// How long the server may take to accept the request. The default is 30 s.
    #[serde(default = "defaults::half_a_minute")]
    timeout: TimeSpan,
    /// How long nothing may come, not even a comment, before the source connects again. Servers usually send
    /// comments while there are no events. The default is 5 minutes.
    #[serde(default = "five_minutes")]
    idle_timeout: TimeSpan,
    /// The pause before the source connects again, if the server does not say it. The default is 1 s.
    #[serde(default = "defaults::one_second")]
    retry_delay: TimeSpan,
    /// Whether the server sends the events again that came after the `Last-Event-ID`. Then a run with
    /// `--state` that was killed has each event once in files. If the server does not, messages would be cut
    /// off that do not come again. Events without an id of their own come again with those of the id before
    /// them. The default is `false`.
    #[serde(default)]
    replays: bool,
    /// Parts of the event that become fields, under the same names: `event` (its name, by default `message`)
    /// and `id` (that of the last event that had one).
    #[serde(default)]
    fields: List<String>,
    /// The largest event, in bytes. Of a larger one, the first 4 KiB leave by the `errors` output. While an
    /// event arrives, it may be in memory twice. Ids and names of more than 4 KiB have no effect, nor ids
    /// with control characters.
    #[serde(default = "defaults::limit")]
    max_message_bytes: ByteSize,
    /// End the source after this time without events. Time in which messages are delivered too slowly for
    /// more to be read does not count. By default it listens until the run is stopped.
    #[serde(default)]
    end_after_idle: Option<TimeSpan>,
}

fn five_minutes() -> TimeSpan {
    TimeSpan::seconds(300)
}

/// A part of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Event,
    Id,
}

impl Part {
    fn new(name: &str) -> Option<Self> {
        match name {
            "event" => Some(Self::Event),
            "id" => Some(Self::Id),
            _ => None,
        }
    }
}

impl SseSource {
    fn endpoint(&self) -> Endpoint<'_> {
        Endpoint {
            url: &self.url,
            headers: &self.headers,
            auth: self.auth.as_ref(),
            timeout: self.timeout.duration(),
            tls: &self.tls,
        }
    }

    /// Returns the fields of messages, with their names.
    fn parts(&self) -> Vec<(String, Part)> {
        self.fields.iter().filter_map(|name| Some((name.clone(), Part::new(name)?))).collect()
    }
}

impl Component for SseSource {
    const NAME: &'static str = "sse";
    const EXAMPLE: &'static str = r#"
# Runs until it is stopped.
sources:
  changes:
    sse:
      url: "https://stream.example.com/changes"
      fields: [event, id]

pipelines:
  main: { from: changes, transforms: [parse_json: {}], to: all }

sinks:
  all: { file: { path: out/changes.jsonl, encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.endpoint().check();
        if let Some(wrong) = self.fields.iter().find(|name| Part::new(name).is_none()) {
            let mistake = Mistake::new("fields", format!("An event has no `{wrong}`."));
            mistakes.push(mistake.help("There are `event` and `id`."));
        }
        mistakes.extend(check_timeout("idle_timeout", self.idle_timeout));
        mistakes
    }
}

impl SourceConfig for SseSource {
    fn endless(&self) -> Option<Endless> {
        Endless::unless("end_after_idle", self.end_after_idle.is_some())
    }

    fn fields(&self) -> KnownFields {
        let text = |name: &str| Some(FieldType::Text.field(name));
        self.parts().iter().fold(KnownFields::none(), |known, (name, _)| known.with(name, text(name)))
    }

    fn blocks(&self) -> bool {
        false
    }

    fn resends(&self) -> bool {
        self.replays
    }

    fn starts_over(&self) -> bool {
        false
    }

    fn rereads(&self) -> bool {
        self.replays
    }

    fn has_growing_positions(&self) -> bool {
        false
    }

    fn describes_payload(&self) -> bool {
        !self.fields.is_empty()
    }

    fn remarks(&self) -> Vec<Mistake> {
        let times = [("timeout", self.timeout), ("idle_timeout", self.idle_timeout)];
        times.into_iter().filter_map(|(option, time)| long_time(option, time)).collect()
    }

    fn needed_files(&self) -> Vec<(&'static str, PathBuf)> {
        self.tls.files()
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(listen::Client::new(self.clone())))
    }
}

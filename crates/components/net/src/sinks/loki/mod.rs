//! `loki`: sends messages as log lines.
//!
//! Loki keeps an index and an open chunk for each combination of labels, so a label with many values makes it
//! slow or refuse everything. The number of combinations is therefore bounded here, where the message that
//! begins one too many can be named.
//!
//! An answer does not tell which lines are refused, and the others may be stored. Sending lines again is
//! harmless: Loki drops a line that it has with the same time and labels. Messages without a time get times
//! that differ, so that equal lines of a batch are kept.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::exposition::is_label;
use thalweg_codec::json::write_text;
use thalweg_codec::template::{Template, column};
use thalweg_config::ByteSize;
use thalweg_engine::{Component, Context, Error, InFlight, Mistake, Sink, SinkConfig, TransformConfig};
use thalweg_record::Batch;
use thalweg_stream::encode::EncodeConfig;

use crate::requests::{
    Answer, Check, Compression, Encode, Encoded, Members, Moments, Parts, Reading, Request, Service, Shared,
    Store, StoreOptions, Target, header,
};

/// The largest size of the labels of a stream, in bytes.
const LARGEST: usize = 8 << 10;

/// Sends messages to Loki as log lines.
///
/// A message is acknowledged when Loki has confirmed it. Lines that Loki refuses, for example because they
/// are too old, leave by `errors` with its reason: a request that is refused is divided until the bad lines
/// are alone. While there is no server, messages wait.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LokiConfig {
    #[serde(flatten)]
    options: StoreOptions,
    /// The labels of the stream, for example `{ service: '{service}', host: '{meta.hostname}' }`. Columns in
    /// braces are replaced for each message. A label without a value is left out. Use only columns with few
    /// values; others belong into `metadata`.
    labels: BTreeMap<String, Template>,
    /// The largest number of different combinations of labels in a run. A message that would begin a further
    /// one leaves by `errors`. The default is 1000.
    #[serde(default = "thousand")]
    #[schemars(range(min = 1, max = 1_000_000))]
    max_streams: usize,
    /// Structured metadata of each line, for example `{ trace_id: '{trace_id}' }`. A value that is empty is
    /// left out. By default lines have none.
    #[serde(default)]
    metadata: BTreeMap<String, Template>,
    /// The field with the time of the line: a point in time from 1677 to 2262, or such a text in the form of
    /// RFC 3339. By default, and without such a value, it is the time when the message was read, or a few
    /// nanoseconds later, so that no two lines of a run have the same. A message that a later run reads again
    /// is then a second line.
    #[serde(default)]
    time: Option<String>,
    /// The tenant, for a Loki with several (`X-Scope-OrgID`).
    #[serde(default)]
    tenant: Option<String>,
    /// The format of lines, for example `logfmt`. By default the payload is the line.
    #[serde(default)]
    encode: EncodeConfig,
    #[serde(skip)]
    shared: Shared,
    #[serde(skip)]
    streams: Streams,
}

fn thousand() -> usize {
    1000
}

/// The combinations of labels of a run, for all writers.
#[derive(Debug, Clone, Default)]
struct Streams(Arc<Mutex<HashSet<Box<[u8]>>>>);

impl Streams {
    /// True if there is a stream with these labels, or if one may begin.
    fn admit(&self, labels: &[u8], most: usize) -> bool {
        let mut known = self.0.lock();
        known.contains(labels) || (known.len() < most && known.insert(labels.into()))
    }
}

impl LokiConfig {
    fn headers(&self) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(tenant) = &self.tenant {
            headers.insert("x-scope-orgid", header("`tenant`", tenant)?);
        }
        Ok(headers)
    }
}

impl Component for LokiConfig {
    const NAME: &'static str = "loki";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { message: '{"id": %6d, "service": "shop"}', count: 100 } }
pipelines:
  main: { from: messages, transforms: [parse_json: {}], to: lines }
sinks:
  lines: { loki: { url: "http://127.0.0.1:3100", labels: { service: "{service}" } } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.options.check(&[Compression::Gzip]);
        mistakes.extend(self.options.mistake_of_path(&["/loki/api/v1/push", "/loki/api/v1"]));
        mistakes.extend(self.encode.mistakes());
        if let Err(message) = self.headers() {
            mistakes.push(Mistake::new("tenant", message).help("For example `team-a`."));
        }
        if self.labels.is_empty() {
            let mistake = Mistake::new("labels", "A line needs a label.");
            mistakes.push(mistake.help("For example `{ service: '{service}' }`."));
        }
        for (option, names) in [("labels", &self.labels), ("metadata", &self.metadata)] {
            if let Some(name) = names.keys().find(|name| !is_label(name)) {
                let mistake = Mistake::new(option, format!("`{name}` cannot be the name of a label."));
                mistakes.push(mistake.help("Use letters, digits and underscores."));
            }
        }
        mistakes
    }
}

impl SinkConfig for LokiConfig {
    fn encoder(&self) -> Option<Box<dyn TransformConfig>> {
        self.encode.encoder()
    }

    fn fields(&self) -> Vec<String> {
        let templates = self.labels.values().chain(self.metadata.values());
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
        let target = Target {
            path: "/loki/api/v1/push",
            query: Vec::new(),
            headers: self.headers().map_err(Error::permanent)?,
            // The server's limit for what its parts send to each other is 4 MiB.
            most_bytes: ByteSize::mib(1),
            is_joining: true,
            check: Check { path: "/ready", query: Vec::new(), denied: &[] },
        };
        let lines = Lines {
            labels: self.labels.clone().into_iter().collect(),
            metadata: self.metadata.clone().into_iter().collect(),
            time: self.time.clone(),
            streams: self.streams.clone(),
            max_streams: self.max_streams,
            moments: self.shared.moments(),
            first: 0,
        };
        Store::build(context, &self.options, &self.shared, target, Push, lines)
    }
}

/// Writes messages as lines, each after the labels of its stream.
struct Lines {
    labels: Vec<(String, Template)>,
    metadata: Vec<(String, Template)>,
    time: Option<String>,
    streams: Streams,
    max_streams: usize,
    moments: Moments,
    /// The time of the first message of the batch, in nanoseconds since 1970. Each further one is a
    /// nanosecond later.
    first: i64,
}

impl Encode for Lines {
    fn begin(&mut self, batch: &Batch) {
        self.first = self.moments.take(batch);
    }

    fn encode(&mut self, batch: &Batch, rows: &[usize], into: &mut Encoded) {
        let mut labels = Members::of(&mut self.labels, batch);
        let mut metadata = Members::of(&mut self.metadata, batch);
        let times = self.time.as_deref().map(|name| column(batch, name));
        let mut stream = Vec::new();
        for &row in rows {
            stream.clear();
            let has_labels = labels.write(row, &mut stream);
            if let Err(reason) = admitted(&self.streams, self.max_streams, has_labels, &stream) {
                into.reject(row, reason);
                continue;
            }
            let time = times.as_ref().and_then(|times| times.time(row)?.timestamp_nanos_opt());
            let time = time.unwrap_or_else(|| self.first.saturating_add(row as i64));
            let out = into.buffer();
            out.extend_from_slice(&(stream.len() as u32).to_le_bytes());
            out.extend_from_slice(&stream);
            out.extend_from_slice(b"[\"");
            out.extend_from_slice(itoa::Buffer::new().format(time).as_bytes());
            out.extend_from_slice(b"\",");
            write_text(&String::from_utf8_lossy(batch.payload().value(row)), out);
            let start = out.len();
            out.push(b',');
            if !metadata.write(row, out) {
                out.truncate(start);
            }
            out.push(b']');
            into.end(row);
        }
    }
}

/// Returns the reason why there can be no stream with these labels.
fn admitted(streams: &Streams, most: usize, has_labels: bool, labels: &[u8]) -> Result<(), String> {
    if !has_labels {
        return Err("the message has no label: the fields of `labels` are empty".to_owned());
    }
    if labels.len() > LARGEST {
        return Err(format!("the labels have {} bytes, but at most {LARGEST} are possible", labels.len()));
    }
    match streams.admit(labels, most) {
        true => Ok(()),
        false => Err(format!("the message would begin another stream, but `max_streams` is {most}")),
    }
}

/// The interface that takes lines.
pub(crate) struct Push;

impl Service for Push {
    fn body(&self, parts: &Parts) -> Bytes {
        let mut places: HashMap<&[u8], usize> = HashMap::new();
        let mut streams: Vec<(&[u8], Vec<u8>)> = Vec::new();
        for (labels, line) in parts.iter().filter_map(divided) {
            let place = *places.entry(labels).or_insert_with(|| {
                streams.push((labels, Vec::new()));
                streams.len() - 1
            });
            if let Some((_, lines)) = streams.get_mut(place) {
                if !lines.is_empty() {
                    lines.push(b',');
                }
                lines.extend_from_slice(line);
            }
        }
        let mut body = Vec::with_capacity(parts.bytes().len() + 64);
        body.extend_from_slice(b"{\"streams\":[");
        for (number, (labels, lines)) in streams.into_iter().enumerate() {
            if number > 0 {
                body.push(b',');
            }
            body.extend_from_slice(b"{\"stream\":");
            body.extend_from_slice(labels);
            body.extend_from_slice(b",\"values\":[");
            body.extend_from_slice(&lines);
            body.extend_from_slice(b"]}");
        }
        body.extend_from_slice(b"]}");
        body.into()
    }

    fn read(&self, request: &Request, answer: &Answer, _: &Parts) -> Reading {
        match answer.status {
            status if status.is_success() => Reading::Accepted,
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY => {
                Reading::Refused(request.text(answer))
            }
            // Also wrong credentials: the lines are not the reason, so they wait.
            _ => Reading::Again(request.failure(answer)),
        }
    }
}

/// Divides a part into its labels and its line.
fn divided(part: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = part.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

//! `influxdb`: writes messages as points, in the line protocol.
//!
//! InfluxDB 3 names the lines that it refuses. Earlier versions store the other points of a request and do
//! not say which they refused, so the request is divided until the bad points are alone. A point that is sent
//! twice is the same point, as it has a time. Messages without one get times that differ, because the server
//! would keep only one of the points with equal times and tags.

mod line;
#[cfg(test)]
mod tests;

use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;
use thalweg_codec::template::Template;
use thalweg_config::{ByteSize, List};
use thalweg_engine::{Component, Context, Error, InFlight, Mistake, Sink, SinkConfig};

use crate::requests::{
    Answer, Check, Compression, Parts, Reading, Request, Service, Shared, Store, StoreOptions, Target,
    Verdict,
};
use line::{Columns, Points};

/// Writes messages as points to InfluxDB 1, 2 or 3, or to a server with the same interface, such as
/// VictoriaMetrics.
///
/// With `measurement`, the fields of a message become the tags and fields of a point. Without, the payload is
/// a line of the line protocol.
///
/// A message is acknowledged when the server has confirmed its point. A point that the server refuses, for
/// example because of the type of a field, leaves by `errors` with the server's reason. While there is no
/// server, messages wait.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InfluxdbConfig {
    #[serde(flatten)]
    options: StoreOptions,
    /// The database, for version 1 (`/write`). Needs a `user` with a `password` if the server has users.
    #[serde(default)]
    database: Option<String>,
    /// The retention policy of the database. The default is that of the database.
    #[serde(default)]
    retention_policy: Option<String>,
    /// The bucket, for version 2 (`/api/v2/write`), or the database of version 3. Needs `auth` with a
    /// `token`.
    #[serde(default)]
    bucket: Option<String>,
    /// The organisation of the bucket, by its name or id.
    #[serde(default)]
    org: Option<String>,
    /// The measurement, for example `requests` or `{kind}`. Columns in braces are replaced for each message.
    /// By default the payload is a line of the line protocol. Lines should have times: the server gives one
    /// that has none the time of its arrival, so a line that is sent again is a second point.
    #[serde(default)]
    measurement: Option<Template>,
    /// The fields of a message that are tags of the point. A tag without a value is left out. By default
    /// there are none.
    #[serde(default)]
    tags: List<String>,
    /// The fields of a message that are fields of the point. By default all that are neither tags nor the
    /// time.
    #[serde(default)]
    fields: Option<List<String, 1>>,
    /// The field with the time of the point: a point in time from 1677 to 2262, or such a text in the form of
    /// RFC 3339. By default, and without such a value, it is the time when the message was read, or a few
    /// nanoseconds later, so that no two points of a run have the same. A message that a later run reads
    /// again is then a second point. A dead letter that is replayed has the time when it was read, and about
    /// a millisecond more.
    #[serde(default)]
    time: Option<String>,
    /// The unit of the times in payloads that are lines. The default is `ns`.
    #[serde(default)]
    precision: Option<Precision>,
    #[serde(skip)]
    shared: Shared,
}

/// The unit of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Precision {
    /// Nanoseconds.
    Ns,
    /// Microseconds.
    Us,
    /// Milliseconds.
    Ms,
    /// Seconds.
    S,
}

impl InfluxdbConfig {
    fn query(&self) -> Vec<(String, String)> {
        let is_first = self.database.is_some();
        let names = match is_first {
            true => [("db", &self.database), ("rp", &self.retention_policy)],
            false => [("bucket", &self.bucket), ("org", &self.org)],
        };
        let named = names.into_iter().filter_map(|(name, value)| Some((name, value.clone()?)));
        let precision = match self.precision {
            None | Some(Precision::Ns) => "ns",
            Some(Precision::Us) if is_first => "u",
            Some(Precision::Us) => "us",
            Some(Precision::Ms) => "ms",
            Some(Precision::S) => "s",
        };
        let precision = ("precision", precision.to_owned());
        named.chain([precision]).map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

impl Component for InfluxdbConfig {
    const NAME: &'static str = "influxdb";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { message: '{"ms": %6d, "service": "shop"}', count: 100 } }
pipelines:
  main: { from: messages, transforms: [parse_json: {}], to: points }
sinks:
  points: { influxdb: { url: "http://127.0.0.1:8086", database: site, measurement: requests, tags: service } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.options.check(&[Compression::Gzip]);
        mistakes.extend(self.options.mistake_of_path(&["/api/v2/write", "/api/v2", "/write"]));
        let mut mistake = |option, message: &str, help: &str| {
            mistakes.push(Mistake::new(option, message).help(help));
        };
        let version = "Give `database` for version 1, or `bucket` and `org` for version 2.";
        match (&self.database, &self.bucket) {
            (Some(_), Some(_)) => mistake("bucket", "A `bucket` is not in a `database`.", version),
            (None, None) => mistake("database", "There is nothing to write to.", version),
            (Some(_), None) if self.org.is_some() => {
                mistake("org", "A `database` has no organisation.", version)
            }
            (None, Some(_)) if self.retention_policy.is_some() => {
                mistake("retention_policy", "A `bucket` has its own retention.", "Leave it out.");
            }
            _ => {}
        }
        let has_columns = !self.tags.is_empty() || self.fields.is_some() || self.time.is_some();
        if self.measurement.is_none() && has_columns {
            let message = "Without `measurement`, the payload is a whole line.";
            mistake("measurement", message, "For example `measurement: requests`.");
        }
        if self.measurement.is_some() && self.precision.is_some() {
            mistake("precision", "The times of points are written in nanoseconds.", "Leave it out.");
        }
        mistakes
    }
}

impl SinkConfig for InfluxdbConfig {
    fn fields(&self) -> Vec<String> {
        let named = self.tags.iter().chain(self.fields.iter().flatten()).chain(&self.time).cloned();
        named.chain(self.measurement.iter().flat_map(Template::fields)).collect()
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
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        let target = Target {
            path: if self.database.is_some() { "/write" } else { "/api/v2/write" },
            query: self.query(),
            headers,
            most_bytes: ByteSize::mib(5),
            is_joining: true,
            check: Check { path: "/ping", query: Vec::new(), denied: &[] },
        };
        let columns = self.measurement.clone().map(|measurement| Columns {
            measurement,
            tags: self.tags.iter().cloned().collect(),
            fields: self.fields.as_ref().map(|fields| fields.iter().cloned().collect()),
            time: self.time.clone(),
        });
        let points = Points::new(columns, self.shared.moments());
        Store::build(context, &self.options, &self.shared, target, Write, points)
    }
}

/// The interfaces that take points.
pub(crate) struct Write;

/// The lines that version 3 has refused.
#[derive(Deserialize)]
struct Refused {
    data: Vec<Line>,
}

#[derive(Deserialize)]
struct Line {
    /// From 1.
    line_number: usize,
    error_message: String,
}

impl Service for Write {
    fn read(&self, request: &Request, answer: &Answer, parts: &Parts) -> Reading {
        match answer.status {
            status if status.is_success() => Reading::Accepted,
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY | StatusCode::PAYLOAD_TOO_LARGE => {
                each(request, answer, parts).unwrap_or_else(|| Reading::Refused(request.text(answer)))
            }
            // Also wrong credentials, or no database: the points are not the reason, so they wait.
            _ => Reading::Again(request.failure(answer)),
        }
    }
}

/// Returns the fate of each point, if the answer names the lines that are refused, and the others were
/// stored.
fn each(request: &Request, answer: &Answer, parts: &Parts) -> Option<Reading> {
    let is_a_line = |part: &[u8]| memchr::memchr(b'\n', part) == Some(part.len() - 1);
    let Refused { data } = serde_json::from_slice(&answer.body).ok()?;
    if data.is_empty() || !parts.iter().all(|part| !part.is_empty() && is_a_line(part)) {
        return None;
    }
    let mut verdicts = vec![Verdict::Delivered; parts.len()];
    for Line { line_number, error_message } in data {
        let shown = request.shown(error_message.as_bytes());
        let reason = format!("{} answered {} for the line: {shown}", request.server(), answer.status);
        *verdicts.get_mut(line_number.checked_sub(1)?)? = Verdict::Rejected(reason);
    }
    Some(Reading::Each(verdicts))
}

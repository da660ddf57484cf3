//! `datadog_logs`: sends messages to the log intake of Datadog, or to a server with the same interface.
//!
//! A request is an array of entries. The intake answers for the request as a whole, and truncates entries
//! that are too large without saying so, so they leave by `errors` here.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;
use thalweg_codec::json::write_text;
use thalweg_codec::template::{Template, column};
use thalweg_config::ByteSize;
use thalweg_engine::{Component, Context, Error, InFlight, Mistake, Sink, SinkConfig, TransformConfig};
use thalweg_record::Batch;
use thalweg_stream::encode::EncodeConfig;

use crate::requests::{
    Answer, Check, Compression, Encode, Encoded, Members, Parts, Reading, Request, Service, Shared, Store,
    StoreOptions, Target, secret_header,
};

/// The largest request that the intake takes, in bytes before compression.
const LARGEST_REQUEST: usize = 5_000_000;

/// The default of the largest request: some bytes remain for the frame of the array.
const USUAL_REQUEST: ByteSize = ByteSize::kib(4608);

/// The largest entry that the intake keeps whole, in bytes.
const LARGEST_ENTRY: usize = 1_000_000;

/// The most entries of a request.
const MOST_ENTRIES: usize = 1000;

/// The domains of Datadog's sites.
const SITES: [&str; 3] = ["datadoghq.com", "datadoghq.eu", "ddog-gov.com"];

/// Sends messages to Datadog as log entries.
///
/// `url` is a site, such as `datadoghq.eu` or `us3.datadoghq.com`, whose intake is used over TLS; or the URL
/// of another intake, such as that of a Datadog Agent, Vector or a proxy.
///
/// A message is acknowledged when the intake has accepted it. Entries that it refuses leave by `errors` with
/// its reason: a request that is refused is divided until the bad entries are alone. So do entries of more
/// than 1 MB, which Datadog would truncate. While the intake is busy or away, or refuses the key, messages
/// wait.
///
/// Datadog does not know entries again: one that is sent twice after a lost answer or a restart is there
/// twice.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DatadogLogsConfig {
    #[serde(flatten)]
    options: StoreOptions,
    /// The API key. Take it from a variable (`${DD_API_KEY}`) or a file (`${file:/run/secrets/datadog}`).
    api_key: String,
    /// The technology that the entry is of, which chooses Datadog's pipeline for it, for example `nginx`.
    /// Columns in braces are replaced for each message. By default entries have none.
    #[serde(default)]
    ddsource: Option<Template>,
    /// Tags of the entry, for example `env:prod,team:{team}`. By default entries have none.
    #[serde(default)]
    ddtags: Option<Template>,
    /// The host of the entry, for example `{meta.hostname}`. By default entries have none.
    #[serde(default)]
    hostname: Option<Template>,
    /// The service of the entry, for example `{service}`. By default entries have none.
    #[serde(default)]
    service: Option<Template>,
    /// The field with the time of the entry: a point in time, or such a text in the form of RFC 3339. By
    /// default, and without such a value, it is the time when the message was read. Datadog takes entries of
    /// the last 18 hours.
    #[serde(default)]
    time: Option<String>,
    /// The format of the text of the entry, for example `json`, whose members become attributes. By default
    /// it is the payload.
    #[serde(default)]
    encode: EncodeConfig,
    #[serde(skip)]
    shared: Shared,
}

impl DatadogLogsConfig {
    /// Returns the options with the URL and the limit of the intake.
    fn of_intake(&self) -> StoreOptions {
        StoreOptions {
            url: intake_of(&self.options.url).unwrap_or_else(|| self.options.url.clone()),
            max_count: self.options.max_count.min(MOST_ENTRIES),
            ..self.options.clone()
        }
    }

    /// Returns the host of a URL that is no site.
    fn host(&self) -> Option<String> {
        if intake_of(&self.options.url).is_some() {
            return None;
        }
        Some(self.options.endpoint().url().ok()?.host_str()?.to_ascii_lowercase())
    }

    /// Returns the mistake of a URL of Datadog that takes no entries: its pages and its API.
    fn mistake_of_host(&self) -> Option<Mistake> {
        // Private links have other names than intakes, as `pvtlink.logs.datadoghq.com`.
        let may_take = |host: &str| ["intake", "logs."].iter().any(|part| host.contains(part));
        let host = self.host().filter(|host| is_below_a_site(host) && !may_take(host))?;
        let message = format!("`{host}` has pages or an API of Datadog, and takes no logs.");
        Some(Mistake::new("url", message).help("Write the site alone, for example `url: datadoghq.eu`."))
    }

    fn headers(&self) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert("dd-api-key", secret_header("`api_key`", &self.api_key)?);
        Ok(headers)
    }

    /// Returns the templates of an entry, with the names of their members.
    fn members(&self) -> impl Iterator<Item = (&'static str, &Template)> {
        let known = [
            ("ddsource", &self.ddsource),
            ("ddtags", &self.ddtags),
            ("hostname", &self.hostname),
            ("service", &self.service),
        ];
        known.into_iter().filter_map(|(name, template)| Some((name, template.as_ref()?)))
    }
}

impl Component for DatadogLogsConfig {
    const NAME: &'static str = "datadog_logs";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { message: '{"id": %6d, "service": "shop"}', count: 100 } }
pipelines:
  main: { from: messages, transforms: [parse_json: {}], to: logs }
sinks:
  logs:
    datadog_logs:
      # Or the site, for example datadoghq.eu
      url: "http://127.0.0.1:10518"
      api_key: "an example, take yours from a variable"
      service: "{service}"
      ddtags: "env:test"
      compression: zstd
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.options.check(&[Compression::Gzip, Compression::Zstd]);
        mistakes.extend(self.encode.mistakes());
        mistakes.extend(self.options.mistake_of_path(&["/api/v2/logs", "/v1/input"]));
        mistakes.extend(self.mistake_of_host());
        if self.api_key.trim().is_empty() {
            let mistake = Mistake::new("api_key", "The key is empty.");
            mistakes.push(mistake.help("Take it from a variable: `${DD_API_KEY}`."));
        }
        if let Err(message) = self.headers() {
            mistakes.push(Mistake::new("api_key", message).help("Take it from a variable: `${DD_API_KEY}`."));
        }
        if self.options.max_request_bytes.is_some_and(|size| size.as_usize() > LARGEST_REQUEST) {
            let mistake = Mistake::new("max_request_bytes", "Datadog takes at most 5 MB in a request.");
            mistakes.push(mistake.help("Leave it out: the default is `4.5MiB`."));
        }
        mistakes
    }
}

impl SinkConfig for DatadogLogsConfig {
    fn encoder(&self) -> Option<Box<dyn TransformConfig>> {
        self.encode.encoder()
    }

    fn fields(&self) -> Vec<String> {
        let templates = self.members().map(|(_, template)| template);
        templates.flat_map(Template::fields).chain(self.time.clone()).collect()
    }

    fn in_flight(&self) -> InFlight {
        self.options.in_flight()
    }

    fn remarks(&self) -> Vec<Mistake> {
        let mut remarks = self.options.remarks();
        let host = self.host();
        let is_clear = self.of_intake().endpoint().url().is_ok_and(|url| url.scheme() == "http");
        if is_clear && host.as_deref().is_some_and(is_of_datadog) {
            let remark = Mistake::new("url", "The key and the entries are sent to Datadog without TLS.");
            remarks.push(remark.help("Write the site alone, for example `url: datadoghq.eu`."));
        }
        remarks
    }

    fn needed_files(&self) -> Vec<(&'static str, PathBuf)> {
        self.options.needed_files()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        let target = Target {
            path: "/api/v2/logs",
            query: Vec::new(),
            headers: self.headers().map_err(Error::permanent)?,
            most_bytes: USUAL_REQUEST,
            is_joining: true,
            // The intake answers nothing but posts. Any answer shows that it is there.
            check: Check { path: "/", query: Vec::new(), denied: &[] },
        };
        let members = self.members().map(|(name, template)| (name.to_owned(), template.clone()));
        let entries = Entries { members: members.collect(), time: self.time.clone() };
        Store::build(context, &self.of_intake(), &self.shared, target, Intake, entries)
    }
}

/// Returns the URL of the intake of a site, such as `us3.datadoghq.com`. None for a URL. The name of an
/// intake is such a site too: as a URL without a scheme, it would get the key without TLS.
fn intake_of(site: &str) -> Option<String> {
    let starts = ["app.", "http-intake.logs."];
    let site = starts.iter().find_map(|start| site.strip_prefix(start)).unwrap_or(site);
    let is_below = |domain: &str| {
        let below = site.strip_suffix(domain).and_then(|below| below.strip_suffix('.'));
        site == domain
            || below.is_some_and(|below| !below.is_empty() && !below.contains(['/', ':', '.', '@']))
    };
    SITES.iter().any(|domain| is_below(domain)).then(|| format!("https://http-intake.logs.{site}"))
}

/// True if a host is a site of Datadog, or below one.
fn is_below_a_site(host: &str) -> bool {
    let is_below =
        |site: &&str| host.strip_suffix(*site).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    SITES.iter().any(is_below)
}

/// True if a host is one of Datadog, or probably meant as one: not that of an Agent in a network.
fn is_of_datadog(host: &str) -> bool {
    let is_public = [".com", ".eu"].iter().any(|end| host.ends_with(end));
    is_below_a_site(host) || (is_public && ["datadog", "ddog"].iter().any(|name| host.contains(name)))
}

/// Writes messages as entries.
struct Entries {
    members: Vec<(String, Template)>,
    time: Option<String>,
}

impl Encode for Entries {
    fn encode(&mut self, batch: &Batch, rows: &[usize], into: &mut Encoded) {
        let mut members = Members::of(&mut self.members, batch);
        let times = self.time.as_deref().map(|name| column(batch, name));
        for &row in rows {
            let before = into.len();
            let time = times.as_ref().and_then(|times| Some(times.time(row)?.timestamp_millis()));
            let time = time.unwrap_or(batch.meta().time_us / 1000);
            let out = into.buffer();
            let has_members = members.write(row, out);
            // The object continues.
            out.pop();
            if has_members {
                out.push(b',');
            }
            out.extend_from_slice(b"\"timestamp\":");
            out.extend_from_slice(itoa::Buffer::new().format(time).as_bytes());
            out.extend_from_slice(b",\"message\":");
            write_text(&String::from_utf8_lossy(batch.payload().value(row)), out);
            out.extend_from_slice(b"},");
            match into.len() - before - 1 {
                ..=LARGEST_ENTRY => into.end(row),
                length => {
                    let reason = format!(
                        "the entry has {length} bytes, but Datadog truncates entries of more than {LARGEST_ENTRY}"
                    );
                    into.reject(row, reason);
                }
            }
        }
    }
}

/// The intake of logs.
pub(crate) struct Intake;

impl Service for Intake {
    fn body(&self, parts: &Parts) -> Bytes {
        let entries = parts.bytes().strip_suffix(b",").unwrap_or(parts.bytes());
        [b"[".as_slice(), entries, b"]"].concat().into()
    }

    fn read(&self, request: &Request, answer: &Answer, _: &Parts) -> Reading {
        match answer.status {
            status if status.is_success() => Reading::Accepted,
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY => {
                Reading::Refused(request.text(answer))
            }
            // Also a wrong key: the entries are not the reason, so they wait.
            _ => Reading::Again(request.failure(answer)),
        }
    }
}

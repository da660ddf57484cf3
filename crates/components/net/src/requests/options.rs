//! The options that all stores share. Their configurations flatten this struct.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use reqwest::Method;
use reqwest::header::HeaderMap;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, TimeSpan};
use thalweg_engine::{Error, InFlight, Mistake};
use thalweg_runtime::ConcurrencyLimit;

use super::client::{Auth, Compression, Endpoint};
use super::gather::Limits;
use super::request::{Request, Sign};
use crate::net::{defaults, long_time};
use crate::tls::TlsClient;

/// The largest number of requests in flight, by default.
const MOST: usize = 64;

/// The number of batches that wait for an answer at the same time.
const WRITERS: usize = 64;

/// A server, and how messages are sent to it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct StoreOptions {
    /// The URL of the server, for example `https://store.example.com:9200`. A path is put before those of the
    /// system. A URL without a scheme uses `http://`.
    #[schemars(example = &"https://store.example.com")]
    pub(crate) url: String,
    /// Additional headers of the requests, for example `{X-Source: thalweg}`.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// The credentials of the requests: `user` and `password`, `bearer`, `api_key` or `token`. By default
    /// those of `url` (`https://USER:PASSWORD@HOST`) are sent, if it has any.
    #[serde(default)]
    pub(crate) auth: Option<Auth>,
    /// TLS options, for a URL with `https://`. By default certificates that the system trusts are accepted.
    #[serde(default)]
    pub(crate) tls: TlsClient,
    /// How bodies are compressed: with `gzip`, or with `zstd` for `clickhouse` and `datadog_logs`. The
    /// default is `none`. Those of `prometheus_remote_write` are always compressed with Snappy.
    #[serde(default)]
    pub(crate) compression: Compression,
    /// How long an answer may take. After that the request is sent again. The default is 30 s.
    #[serde(default = "defaults::half_a_minute")]
    pub(crate) timeout: TimeSpan,
    /// The largest number of requests in flight. By default it adapts to the server, up to 64, and is 1 for
    /// `prometheus_remote_write`. With 1, batches are sent in order, and not joined.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1024))]
    pub concurrency: Option<usize>,
    /// The largest body of a request, before it is compressed. A larger message is a request of its own. The
    /// default is 5 MiB, but 1 MiB for `loki` and `splunk_hec`, 4 MiB for `otlp`, and 4.5 MiB for
    /// `datadog_logs`.
    #[serde(default)]
    pub max_request_bytes: Option<ByteSize>,
    /// The largest number of messages in a request. The default is 10000. It is never more than 1000 for
    /// `datadog_logs`.
    #[serde(default = "ten_thousand")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_count: usize,
    /// How long a small batch waits for others, to be sent with them in one request. It does not wait if
    /// sources wait for memory. The default is 100 ms.
    #[serde(default = "defaults::a_tenth_of_a_second")]
    pub max_delay: TimeSpan,
    /// After the server has been failing for this time, the messages of a batch leave by `errors`. The time
    /// counts from the first attempt that fails, and again from each message that the server takes or
    /// refuses. By default messages wait for as long as it takes, and their sources with them when the memory
    /// is full.
    #[serde(default)]
    pub give_up: Option<TimeSpan>,
    /// Whether the server must answer before the run begins. The default is `true`.
    #[serde(default = "defaults::yes")]
    pub(crate) check: bool,
}

fn ten_thousand() -> usize {
    10_000
}

impl StoreOptions {
    /// Returns the options of a sink that has options of its own, with the defaults of stores. Whether the
    /// server can be used is not checked.
    pub fn new(url: String, tls: TlsClient, timeout: TimeSpan) -> Self {
        Self {
            url,
            headers: BTreeMap::new(),
            auth: None,
            tls,
            compression: Compression::None,
            timeout,
            concurrency: None,
            max_request_bytes: None,
            max_count: ten_thousand(),
            max_delay: defaults::a_tenth_of_a_second(),
            give_up: None,
            check: false,
        }
    }

    /// Returns the request to the server itself, each time with a body, for a component that sends requests
    /// by itself. Of an answer, at most this number of bytes is read.
    ///
    /// # Errors
    /// If the URL is none, or TLS cannot be set up.
    pub fn request(
        &self,
        headers: HeaderMap,
        most_answer: usize,
        sign: Arc<dyn Sign>,
    ) -> Result<Request, Error> {
        let request = self.endpoint().request(
            Method::POST,
            headers,
            self.compression,
            most_answer,
            &OnceLock::new(),
        )?;
        Ok(Request { sign: Some(sign), ..request })
    }

    /// Returns the mistakes that the schema cannot find. `known` are the compressions that the system knows.
    pub(crate) fn check(&self, known: &[Compression]) -> Vec<Mistake> {
        let mut mistakes = self.endpoint().check();
        mistakes.extend(self.compression.mistake(known));
        if self.endpoint().url().is_ok_and(|url| url.query().is_some()) {
            let mistake = Mistake::new("url", "The address of the server has a query.");
            mistakes.push(mistake.help("Leave it out: the options of the sink have what it is for."));
        }
        if self.max_request_bytes.is_some_and(|size| size.bytes() == 0) {
            let mistake = Mistake::new("max_request_bytes", "No message fits into a request.");
            mistakes.push(mistake.help("For example `5MiB`."));
        }
        mistakes
    }

    /// Returns the mistake of a URL that ends with one of these paths, which the sink adds itself.
    pub(crate) fn mistake_of_path(&self, added: &[&str]) -> Option<Mistake> {
        let url = self.endpoint().url().ok()?;
        let path = url.path().trim_end_matches('/');
        let twice = added.iter().find(|added| path.ends_with(**added))?;
        let message = format!("The sink adds the path itself: `{twice}` would be there twice.");
        Some(Mistake::new("url", message).help(format!("End the URL before `{twice}`.")))
    }

    /// Returns the files without which a run cannot begin.
    pub(crate) fn needed_files(&self) -> Vec<(&'static str, PathBuf)> {
        self.tls.files()
    }

    /// Returns the remarks on options that are probably not meant so.
    pub(crate) fn remarks(&self) -> Vec<Mistake> {
        [long_time("timeout", self.timeout), long_time("max_delay", self.max_delay)]
            .into_iter()
            .flatten()
            .collect()
    }

    /// Returns the server.
    pub(crate) fn endpoint(&self) -> Endpoint<'_> {
        Endpoint {
            url: &self.url,
            headers: &self.headers,
            auth: self.auth.as_ref(),
            timeout: self.timeout.duration(),
            tls: &self.tls,
        }
    }

    /// Returns the limits of a request. `bytes` is the default of the system.
    pub(crate) fn limits(&self, bytes: ByteSize) -> Limits {
        Limits {
            bytes: self.max_request_bytes.unwrap_or(bytes).as_usize(),
            count: self.max_count,
            delay: self.max_delay.duration(),
        }
    }

    /// Returns the limit on requests in flight.
    pub(crate) fn limit(&self) -> ConcurrencyLimit {
        match self.concurrency {
            Some(concurrency) => ConcurrencyLimit::fixed(concurrency),
            None => ConcurrencyLimit::adaptive(1..=MOST),
        }
    }

    /// True if batches are sent in order, one at a time.
    pub fn is_in_order(&self) -> bool {
        self.concurrency == Some(1)
    }

    /// Returns the number of batches that wait for an answer at the same time. Requests are limited within
    /// the sink.
    pub fn in_flight(&self) -> InFlight {
        match self.is_in_order() {
            true => InFlight::One,
            false => InFlight::Fixed(self.concurrency.unwrap_or(0).max(WRITERS)),
        }
    }
}

//! Sends messages as HTTP requests.
//!
//! With a batch per request, several batches are in flight at once; the engine adapts their number. With a
//! message per request, the requests of one batch are in flight at once, under the same kind of limit within
//! this sink. If an error stops a batch, the messages already sent are not resent: see `crate::requests`.

mod body;
// Public for its fuzz target.
#[doc(hidden)]
pub mod raw;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use arrow_array::BinaryViewArray;
use async_trait::async_trait;
use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Client, Method};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{TimeSpan, nearest};
use thalweg_engine::{
    Component, Context, Error, InFlight, Mistake, Rejects, Sink, SinkConfig, TransformConfig, WriteOutcome,
};
use thalweg_record::Batch;
use thalweg_runtime::ConcurrencyLimit;

use crate::net::defaults;
use crate::requests::{Auth, Compression, Endpoint, Piece, Request, Rounds, Verdict, header};
use crate::tls::TlsClient;
use thalweg_stream::encode::EncodeConfig;

/// The default limit on requests in flight.
const MOST: usize = 64;

/// The methods by which data is usually sent.
const METHODS: [&str; 5] = ["POST", "PUT", "PATCH", "DELETE", "GET"];

/// How many bytes of an answer are read, so that its connection can be reused.
const MOST_ANSWER: usize = 64 << 10;

/// Sends messages as HTTP requests: one message or one batch per request.
///
/// Messages answered with a status of 200 to 299 are delivered. After 429, 408, 500 and above, and without an
/// answer, the request is retried. As long as other requests succeed, retries wait 0.1 s, and longer while
/// the server has too much to do; otherwise they wait longer each time, and as long as the server asks for
/// (`Retry-After`). Overload (429, 503, 504, timeouts) reduces the number of requests in flight. After any
/// other status the messages leave by `errors`, with the beginning of the answer. Redirections are not
/// followed; their messages leave by `errors` too.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// The URL of the requests, for example `https://logs.example.com/in`. A URL without a scheme uses
    /// `http://`.
    url: String,
    /// The HTTP method of the requests.
    #[serde(default = "post")]
    method: String,
    /// Additional headers of the requests, for example `{X-Source: thalweg}`.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The format in which messages are sent, for example `json`. By default the payload is sent unchanged.
    #[serde(default)]
    encode: EncodeConfig,
    /// How messages are combined into requests. The default is `none`, one message per request.
    #[serde(default)]
    batch: Batching,
    /// The header `Content-Type`. The default is `application/x-ndjson` for `batch: lines`,
    /// `application/json` for `batch: array`, and otherwise `text/plain; charset=utf-8`.
    #[serde(default)]
    content_type: Option<String>,
    /// The credentials of the requests: `user` and `password`, or `bearer`. By default those of `url`
    /// (`https://USER:PASSWORD@HOST`) are sent, if it has any.
    #[serde(default)]
    auth: Option<Auth>,
    /// How bodies are compressed: with `gzip` or `zstd`. The default is `none`.
    #[serde(default)]
    compression: Compression,
    /// How long an answer may take. After that the request is retried.
    #[serde(default = "defaults::half_a_minute")]
    timeout: TimeSpan,
    /// The largest number of requests in flight. By default it adapts to the server, up to 64. With 1,
    /// messages are sent in order.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1024))]
    concurrency: Option<usize>,
    /// TLS options, for a URL with `https://`. By default certificates that the system trusts are accepted.
    #[serde(default)]
    tls: TlsClient,
    /// After the server has been failing for this time, the messages of a batch leave by `errors`. The time
    /// counts from the first attempt that fails, and again from each message that the server takes or
    /// refuses. By default messages wait for as long as it takes.
    #[serde(default)]
    give_up: Option<TimeSpan>,
    /// Whether each message is a complete request: request line, headers and body. The request is sent to the
    /// host of `url`, with its scheme. The other parts are sent as they are, except for headers that are
    /// given here: `headers` replaces those of the same name, and credentials replace those of the message.
    #[serde(default)]
    raw_request: bool,
    /// Shared by the clones of this configuration, which therefore share one connection pool.
    #[serde(skip)]
    client: Arc<OnceLock<Client>>,
}

/// How messages are combined into requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Batching {
    /// One message per request.
    #[default]
    None,
    /// One batch per request, with a line feed after each message.
    Lines,
    /// One batch per request, as a JSON array. Messages must be JSON: set `encode: json`, unless they are
    /// already.
    Array,
}

fn post() -> String {
    "POST".to_owned()
}

impl HttpConfig {
    fn endpoint(&self) -> Endpoint<'_> {
        Endpoint {
            url: &self.url,
            headers: &self.headers,
            auth: self.auth.as_ref(),
            timeout: self.timeout.duration(),
            tls: &self.tls,
        }
    }

    /// Returns the headers that requests have unless `headers` has others.
    fn own_headers(&self) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        let content_type = self.content_type.as_deref().unwrap_or(match self.batch {
            Batching::Lines => "application/x-ndjson",
            Batching::Array => "application/json",
            Batching::None => "text/plain; charset=utf-8",
        });
        if !self.raw_request {
            headers.insert(CONTENT_TYPE, header("`content_type`", content_type)?);
        }
        Ok(headers)
    }

    /// Returns the state that all requests share.
    fn request(&self) -> Result<Request, Error> {
        let method = Method::try_from(self.method.as_str())
            .map_err(|error| Error::permanent("the method cannot be used").caused_by(error))?;
        let headers = self.own_headers().map_err(Error::permanent)?;
        let compression = if self.raw_request { Compression::None } else { self.compression };
        self.endpoint().request(method, headers, compression, MOST_ANSWER, &self.client)
    }

    /// Limits the requests of one batch. With a batch per request, the engine limits them.
    fn limit(&self) -> ConcurrencyLimit {
        match (self.batch, self.concurrency) {
            (Batching::None, None) => ConcurrencyLimit::adaptive(1..=MOST),
            (Batching::None, Some(concurrency)) => ConcurrencyLimit::fixed(concurrency),
            _ => ConcurrencyLimit::fixed(1),
        }
    }
}

impl Component for HttpConfig {
    const NAME: &'static str = "http";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { message: '{"id": %6d}', count: 100 } }
  received: { http: { address: 127.0.0.1:18081, framing: {}, end_after_idle: 1s } }
pipelines:
  away: { from: messages, to: other }
  back: { from: received, to: all }
sinks:
  other: { http: { url: "http://127.0.0.1:18081/in", batch: lines, compression: gzip } }
  all: { file: { path: out/received.jsonl } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.encode.mistakes();
        mistakes.extend(self.endpoint().check());
        if let Err(message) = self.own_headers() {
            mistakes.push(Mistake::new("content_type", message).help("For example `text/csv`."));
        }
        if Method::try_from(self.method.as_str()).is_err() {
            let message = format!("`{}` is not a method.", self.method);
            mistakes.push(Mistake::new("method", message).help("For example `POST`."));
        }
        if self.raw_request && (self.batch != Batching::None || self.compression != Compression::None) {
            let mistake = Mistake::new("raw_request", "A message that is a whole request is sent as it is.");
            mistakes.push(mistake.help("Leave out `batch` and `compression`."));
        }
        mistakes
    }
}

impl SinkConfig for HttpConfig {
    fn encoder(&self) -> Option<Box<dyn TransformConfig>> {
        self.encode.encoder()
    }

    fn in_flight(&self) -> InFlight {
        match (self.batch, self.concurrency) {
            // The requests of a batch are limited within this sink.
            (Batching::None, _) => InFlight::One,
            (_, Some(concurrency)) => InFlight::Fixed(concurrency),
            (_, None) => InFlight::Adaptive(MOST),
        }
    }

    fn remarks(&self) -> Vec<Mistake> {
        let is_usual = METHODS.contains(&self.method.as_str());
        let remark = || {
            let message = format!("`{}` is a method that few servers know.", self.method);
            let near = nearest(&self.method, METHODS).unwrap_or("POST");
            Mistake::new("method", message).help(format!("Did you mean `{near}`?"))
        };
        (!is_usual).then(remark).into_iter().collect()
    }

    fn needed_files(&self) -> Vec<(&'static str, PathBuf)> {
        self.tls.files()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        let in_order = self.concurrency == Some(1);
        Ok(Box::new(Http {
            rounds: Rounds::new(&context.name, self.limit(), in_order, self.give_up),
            config: self.clone(),
            request: None,
        }))
    }
}

struct Http {
    config: HttpConfig,
    request: Option<Arc<Request>>,
    rounds: Rounds,
}

#[async_trait]
impl Sink for Http {
    async fn open(&mut self, _: Option<serde_json::Value>) -> Result<(), Error> {
        self.request = Some(Arc::new(self.config.request()?));
        Ok(())
    }

    async fn write(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<WriteOutcome, Error> {
        let Some(request) = self.request.clone() else {
            return Err(Error::permanent("the sink `http` was not opened"));
        };
        let payload = batch.payload();
        self.rounds.begin(payload);
        match self.config.batch {
            Batching::None => {
                let is_raw = self.config.raw_request;
                self.rounds.send(payload, rejects, |open| each(&request, payload, open, is_raw)).await?;
            }
            batching => {
                let is_array = batching == Batching::Array;
                self.rounds
                    .send(payload, rejects, |open| together(&request, payload, open, is_array))
                    .await?;
            }
        }
        Ok(WriteOutcome::Durable)
    }

    fn drop_batch(&mut self) {
        self.rounds.forget();
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// Makes a request of each message.
fn each<'a>(
    request: &'a Arc<Request>,
    payload: &'a BinaryViewArray,
    open: Vec<usize>,
    is_raw: bool,
) -> impl Iterator<Item = Piece> + Send + 'a {
    open.into_iter().map(move |row| {
        let body = Bytes::copy_from_slice(payload.value(row));
        let (request, bytes) = (request.clone(), body.len());
        let work = async move {
            let verdict = match is_raw {
                true => body::send_raw(&request, body).await,
                false => body::send(&request, body).await,
            };
            vec![verdict]
        };
        Piece { rows: vec![row], bytes, work: Box::pin(work) }
    })
}

/// Makes one request of a batch. All its messages have the same fate.
fn together(
    request: &Arc<Request>,
    payload: &BinaryViewArray,
    rows: Vec<usize>,
    is_array: bool,
) -> impl Iterator<Item = Piece> + Send + use<> {
    let piece = (!rows.is_empty()).then(|| {
        let body = body::joined(payload, is_array);
        let (request, bytes, count) = (request.clone(), body.len(), rows.len());
        let work = async move {
            let verdict = body::send(&request, body).await;
            std::iter::repeat_n(verdict, count).collect::<Vec<Verdict>>()
        };
        Piece { rows, bytes, work: Box::pin(work) }
    });
    piece.into_iter()
}

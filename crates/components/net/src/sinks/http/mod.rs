//! Sends messages as HTTP requests.
//!
//! With a batch per request, several batches are in flight at once; the engine adapts their number. With a
//! message per request, the requests of one batch are in flight at once, under the same kind of limit within
//! this sink. If an error stops a batch, the messages already sent are not resent.

mod raw;
mod request;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use bytes::Bytes;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Url, redirect};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::TimeSpan;
use thalweg_engine::{
    Component, Context, Error, InFlight, Mistake, Rejects, Sink, SinkConfig, TransformConfig, WriteOutcome,
};
use thalweg_record::Batch;
use thalweg_runtime::ConcurrencyLimit;
use tokio::task::JoinSet;

use crate::net::defaults;
use crate::progress::Progress;
use crate::tls::TlsClient;
use request::{Request, Verdict, failure};
use thalweg_stream::encode::EncodeConfig;

/// The default limit on requests in flight.
const MOST: usize = 64;

/// Sends messages as HTTP requests: one message or one batch per request.
///
/// Messages answered with a status of 200 to 299 are delivered. After 429, 408, 500 and above, and without an
/// answer, the request is retried. Retries wait longer each time, and overload (429, 503, 504, timeouts)
/// reduces the number of requests in flight. After any other status the messages leave by `errors`, with the
/// beginning of the answer. Redirections are not followed; their messages leave by `errors` too.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// The URL of the requests, for example `https://logs.example.com/in`. A URL without a scheme uses
    /// `http://`.
    address: String,
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
    /// The credentials of the requests: `user` and `password`, or `bearer`. By default none are sent.
    #[serde(default)]
    auth: Option<Auth>,
    /// How bodies are compressed. The default is `none`.
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
    /// TLS options, for an address with `https://`. By default certificates that the system trusts are
    /// accepted.
    #[serde(default)]
    tls: TlsClient,
    /// Whether each message is a complete request: request line, headers and body. The request is sent to the
    /// host of `address`, with its scheme. The other parts are sent as they are.
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

/// The credentials of requests.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Auth {
    /// The user name, for basic authentication.
    user: Option<String>,
    /// The password, for basic authentication.
    password: Option<String>,
    /// The bearer token, instead of `user` and `password`.
    bearer: Option<String>,
}

/// How bodies are compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Compression {
    /// Not compressed.
    #[default]
    None,
    /// With gzip.
    Gzip,
}

fn post() -> String {
    "POST".to_owned()
}

impl HttpConfig {
    fn url(&self) -> Result<Url, String> {
        let text = match self.address.contains("://") {
            true => self.address.clone(),
            false => format!("http://{}", self.address),
        };
        let url =
            Url::parse(&text).map_err(|error| format!("`{}` is not an address: {error}.", self.address))?;
        match url.scheme() {
            "http" | "https" if url.has_host() => Ok(url),
            other => Err(format!("`{other}` is not a scheme of HTTP.")),
        }
    }

    /// Returns the headers that all requests carry.
    fn headers(&self) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        let content_type = self.content_type.as_deref().unwrap_or(match self.batch {
            Batching::Lines => "application/x-ndjson",
            Batching::Array => "application/json",
            Batching::None => "text/plain; charset=utf-8",
        });
        let value = |text: &str| {
            HeaderValue::from_str(text).map_err(|_| format!("`{text}` cannot be the value of a header."))
        };
        if !self.raw_request {
            headers.insert(CONTENT_TYPE, value(content_type)?);
            if self.compression == Compression::Gzip {
                headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            }
        }
        for (name, text) in &self.headers {
            let known = HeaderName::try_from(name).map_err(|_| format!("`{name}` cannot be a header."))?;
            headers.insert(known, value(text)?);
        }
        Ok(headers)
    }

    fn client(&self) -> Result<Client, Error> {
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        let built = Client::builder()
            .tls_backend_preconfigured(self.tls.config()?)
            .timeout(self.timeout.duration())
            // Following a redirection may turn the request into one without a body.
            .redirect(redirect::Policy::none())
            .build()
            .map_err(|error| Error::permanent("the HTTP client cannot be created").caused_by(error))?;
        Ok(self.client.get_or_init(|| built).clone())
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
  other: { http: { address: "http://127.0.0.1:18081/in", batch: lines, compression: gzip } }
  all: { file: { path: out/received.jsonl } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.encode.mistakes();
        if let Err(message) = self.url() {
            mistakes
                .push(Mistake::new("address", message).help("For example `https://logs.example.com/in`."));
        }
        if let Err(message) = self.headers() {
            mistakes.push(Mistake::new("headers", message).help("For example `{ X-Source: thalweg }`."));
        }
        if Method::try_from(self.method.as_str()).is_err() {
            let message = format!("`{}` is not a method.", self.method);
            mistakes.push(Mistake::new("method", message).help("For example `POST`."));
        }
        if let Some(auth) = &self.auth
            && (auth.user.is_some() == auth.bearer.is_some()
                || (auth.password.is_some() && auth.user.is_none()))
        {
            let mistake = Mistake::new("auth", "`auth` is a user with a password, or a token.");
            mistakes.push(mistake.help("Give `user` and `password`, or `bearer`."));
        }
        if self.raw_request && (self.batch != Batching::None || self.compression != Compression::None) {
            let mistake = Mistake::new("raw_request", "A message that is a whole request is sent as it is.");
            mistakes.push(mistake.help("Leave out `batch` and `compression`."));
        }
        mistakes.extend(self.tls.check());
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

    fn build(&self, _: &Context) -> Result<Box<dyn Sink>, Error> {
        let limit = match self.concurrency {
            Some(concurrency) => ConcurrencyLimit::fixed(concurrency),
            None => ConcurrencyLimit::adaptive(1..=MOST),
        };
        Ok(Box::new(Http { config: self.clone(), request: None, limit, progress: Progress::default() }))
    }
}

struct Http {
    config: HttpConfig,
    request: Option<Arc<Request>>,
    /// Limits the requests of one batch, if each message is a request.
    limit: ConcurrencyLimit,
    progress: Progress,
}

#[async_trait]
impl Sink for Http {
    async fn open(&mut self, _: Option<serde_json::Value>) -> Result<(), Error> {
        let config = &self.config;
        self.request = Some(Arc::new(Request {
            client: config.client()?,
            url: config.url().map_err(Error::permanent)?,
            method: Method::try_from(config.method.as_str())
                .map_err(|error| Error::permanent("the method cannot be used").caused_by(error))?,
            headers: config.headers().map_err(Error::permanent)?,
            auth: config.auth.clone(),
            compression: config.compression,
            is_raw: config.raw_request,
        }));
        Ok(())
    }

    async fn write(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<WriteOutcome, Error> {
        let Some(request) = self.request.clone() else {
            return Err(Error::permanent("the sink `http` was not opened"));
        };
        match self.config.batch {
            Batching::None => self.write_each(&request, batch, rejects).await?,
            batching => {
                let body = request::joined(batch.payload(), batching == Batching::Array);
                match request.send(body).await {
                    Verdict::Delivered => {}
                    Verdict::Rejected(reason) => {
                        (0..batch.rows()).for_each(|row| rejects.reject(row as u32, reason.clone()));
                    }
                    Verdict::Again(error) => return Err(error),
                }
            }
        }
        Ok(WriteOutcome::Durable)
    }

    fn drop_batch(&mut self) {
        self.progress.forget();
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

impl Http {
    /// Sends each message of a batch as a request, several at once.
    async fn write_each(
        &mut self,
        request: &Arc<Request>,
        batch: &Batch,
        rejects: &mut Rejects,
    ) -> Result<(), Error> {
        let mut under_way: JoinSet<(usize, Verdict)> = JoinSet::new();
        let mut failed: Option<Error> = None;
        self.progress.begin(batch.payload());
        let mut rows = (0..batch.rows()).peekable();
        loop {
            while rows.next_if(|&row| self.progress.is_done(row)).is_some() {}
            let wants_more = failed.is_none() && rows.peek().is_some();
            let bytes = rows.peek().map_or(0, |&row| batch.payload().value(row).len());
            tokio::select! {
                biased;
                Some(ended) = under_way.join_next() => {
                    let (row, verdict) = match ended {
                        Ok(ended) => ended,
                        Err(error) => return Err(Error::permanent("a request panicked").caused_by(error)),
                    };
                    match verdict {
                        Verdict::Delivered => self.progress.done(row),
                        Verdict::Rejected(reason) => self.progress.reject(row, reason),
                        Verdict::Again(error) => failed = Some(failure(failed, error)),
                    }
                }
                permit = self.limit.acquire(bytes as u64), if wants_more => {
                    let Some(row) = rows.next() else { continue };
                    let body = Bytes::copy_from_slice(batch.payload().value(row));
                    let request = request.clone();
                    under_way.spawn(async move {
                        let verdict = request.send(body).await;
                        match &verdict {
                            Verdict::Again(error) if request::is_overload(error) => permit.overloaded(),
                            Verdict::Again(_) => permit.failed(),
                            _ => permit.succeeded(),
                        }
                        (row, verdict)
                    });
                }
                else => break,
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        for (row, reason) in self.progress.finish() {
            rejects.reject(row, reason);
        }
        Ok(())
    }
}

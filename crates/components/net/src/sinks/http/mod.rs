//! Sends messages as HTTP requests.
//!
//! With a batch per request, several batches are in flight at once; the engine adapts their number. With a
//! message per request, the requests of one batch are in flight at once, under the same kind of limit within
//! this sink. If an error stops a batch, the messages already sent are not resent.

// Public for its fuzz target.
#[doc(hidden)]
pub mod raw;
mod request;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
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
use crate::progress::{PAUSE, Progress};
use crate::tls::TlsClient;
use crate::upload::{pairs, percent_decoded};
use request::{Request, Verdict, failure};
use thalweg_stream::encode::EncodeConfig;

/// The default limit on requests in flight.
const MOST: usize = 64;

/// After this number of failures in a row, no further request is started before a pause.
const GIVE_UP_AFTER: usize = 3;

/// Sends messages as HTTP requests: one message or one batch per request.
///
/// Messages answered with a status of 200 to 299 are delivered. After 429, 408, 500 and above, and without an
/// answer, the request is retried. As long as other requests succeed, retries wait 0.1 s; otherwise they wait
/// longer each time. Overload (429, 503, 504, timeouts) reduces the number of requests in flight. After any
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
    /// TLS options, for a URL with `https://`. By default certificates that the system trusts are accepted.
    #[serde(default)]
    tls: TlsClient,
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
        let text = match self.url.contains("://") {
            true => self.url.clone(),
            false => format!("http://{}", self.url),
        };
        // The URL may contain a password, so it is not shown.
        let url = Url::parse(&text).map_err(|error| format!("It is not a URL: {error}."))?;
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
        // The value may be secret, so it is not shown.
        let value = |of: &str, text: &str| {
            HeaderValue::from_str(text)
                .map_err(|_| format!("{of} has a character that a header cannot have, such as a line feed."))
        };
        if !self.raw_request {
            headers.insert(CONTENT_TYPE, value("`content_type`", content_type)?);
            if self.compression == Compression::Gzip {
                headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            }
        }
        for (name, text) in &self.headers {
            let known = HeaderName::try_from(name).map_err(|_| format!("`{name}` cannot be a header."))?;
            headers.insert(known, value(&format!("`{name}`"), text)?);
        }
        Ok(headers)
    }

    /// Returns the header with the credentials of `auth`, or else of the URL, if there are any.
    fn authorization(&self) -> Result<Option<HeaderValue>, String> {
        let basic = |user: &[u8], password: &[u8]| {
            format!("Basic {}", STANDARD.encode([user, b":".as_slice(), password].concat()))
        };
        let text = match &self.auth {
            Some(Auth { user: Some(user), password, bearer: None }) => {
                basic(user.as_bytes(), password.as_deref().unwrap_or_default().as_bytes())
            }
            Some(Auth { user: None, password: None, bearer: Some(token) }) => format!("Bearer {token}"),
            Some(_) => return Err("`auth` is a user with a password, or a token.".to_owned()),
            None => match self.url() {
                Ok(url) if !url.username().is_empty() || url.password().is_some() => {
                    let part = |text: &str| percent_decoded(text.as_bytes());
                    basic(&part(url.username()), &part(url.password().unwrap_or_default()))
                }
                _ => return Ok(None),
            },
        };
        // The value is secret, so it is not shown.
        let mut value = HeaderValue::try_from(text).map_err(|_| {
            "`bearer` has a character that a header cannot have, such as a line feed.".to_owned()
        })?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// Returns the state that all requests share.
    fn request(&self) -> Result<Request, Error> {
        let url = self.url().map_err(Error::permanent)?;
        let secrets = self.secrets(&url);
        let mut headers = self.headers().map_err(Error::permanent)?;
        if let Some(value) = self.authorization().map_err(Error::permanent)? {
            headers.insert(AUTHORIZATION, value);
        }
        let mut url = url;
        // The header has them. A URL with a host can be without them.
        let _ = (url.set_username(""), url.set_password(None));
        Ok(Request {
            client: self.client()?,
            url,
            method: Method::try_from(self.method.as_str())
                .map_err(|error| Error::permanent("the method cannot be used").caused_by(error))?,
            headers,
            compression: self.compression,
            is_raw: self.raw_request,
            secrets,
        })
    }

    /// Returns the parts of the configuration that no message may contain: a server may repeat them in its
    /// answer.
    fn secrets(&self, url: &Url) -> Vec<String> {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let mut secrets: Vec<String> = self.headers.values().cloned().collect();
        if let Some(Auth { password, bearer, .. }) = &self.auth {
            secrets.extend([password, bearer].into_iter().flatten().cloned());
        }
        if let Ok(Some(header)) = self.authorization() {
            let encoded = header.to_str().ok().and_then(|header| header.split_once(' '));
            secrets.extend(encoded.map(|(_, encoded)| encoded.to_owned()));
        }
        if let Some(password) = url.password() {
            secrets.extend([password.to_owned(), text(percent_decoded(password.as_bytes()))]);
        }
        if let Some(query) = url.query() {
            secrets.push(query.to_owned());
            secrets.extend(pairs(query.as_bytes()).into_iter().map(|(_, value)| value));
        }
        // The longest first: it may contain others.
        secrets.retain(|secret| !secret.is_empty());
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets
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
  other: { http: { url: "http://127.0.0.1:18081/in", batch: lines, compression: gzip } }
  all: { file: { path: out/received.jsonl } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.encode.mistakes();
        if let Err(message) = self.url() {
            mistakes.push(Mistake::new("url", message).help("For example `https://logs.example.com/in`."));
        }
        if let Err(message) = self.headers() {
            mistakes.push(Mistake::new("headers", message).help("For example `{ X-Source: thalweg }`."));
        }
        if Method::try_from(self.method.as_str()).is_err() {
            let message = format!("`{}` is not a method.", self.method);
            mistakes.push(Mistake::new("method", message).help("For example `POST`."));
        }
        if let Err(message) = self.authorization() {
            mistakes.push(Mistake::new("auth", message).help("Give `user` and `password`, or `bearer`."));
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

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        let limit = match self.concurrency {
            Some(concurrency) => ConcurrencyLimit::fixed(concurrency),
            None => ConcurrencyLimit::adaptive(1..=MOST),
        };
        Ok(Box::new(Http {
            name: context.name.clone(),
            config: self.clone(),
            request: None,
            limit,
            progress: Progress::default(),
        }))
    }
}

struct Http {
    name: String,
    config: HttpConfig,
    request: Option<Arc<Request>>,
    /// Limits the requests of one batch, if each message is a request.
    limit: ConcurrencyLimit,
    progress: Progress,
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

/// The results of a round of requests.
#[derive(Default)]
struct Round {
    /// True if a message was delivered or rejected.
    has_progress: bool,
    /// The error that tells the most, if requests failed.
    failed: Option<Error>,
    failures: usize,
    /// The failures since a request last succeeded.
    in_a_row: usize,
}

impl Round {
    /// True if no further request may be started: the server has too much to do, or is gone.
    fn is_over(&self, in_order: bool) -> bool {
        let is_hopeless = |error: &Error| request::is_overload(error) || !error.kind().is_temporary();
        self.in_a_row >= GIVE_UP_AFTER
            || self.failed.as_ref().is_some_and(|error| in_order || is_hopeless(error))
    }

    /// Records how the request of a message ended.
    fn note(&mut self, row: usize, verdict: Verdict, progress: &mut Progress) {
        match verdict {
            Verdict::Delivered => progress.done(row),
            Verdict::Rejected(reason) => progress.reject(row, reason),
            Verdict::Again(error) => {
                self.failures += 1;
                self.in_a_row += 1;
                self.failed = Some(failure(self.failed.take(), error));
                return;
            }
        }
        (self.has_progress, self.in_a_row) = (true, 0);
    }
}

impl Http {
    /// Sends each message of a batch as a request, several at once. Requests that fail for now are repeated
    /// here as long as others succeed: the engine's pauses grow with each failed write of the same batch. If
    /// none succeeds, the engine decides how long to wait, and whether the batch goes another way.
    async fn write_each(
        &mut self,
        request: &Arc<Request>,
        batch: &Batch,
        rejects: &mut Rejects,
    ) -> Result<(), Error> {
        self.progress.begin(batch.payload());
        loop {
            let round = self.round(request, batch).await?;
            let Some(error) = round.failed else { break };
            if !round.has_progress || !error.kind().is_temporary() {
                return Err(error);
            }
            let failures = round.failures;
            tracing::warn!("`{}`: {failures} requests are repeated: {}", self.name, error.full());
            tokio::time::sleep(PAUSE).await;
        }
        for (row, reason) in self.progress.finish() {
            rejects.reject(row, reason);
        }
        Ok(())
    }

    /// Sends each message that is not done, once.
    async fn round(&mut self, request: &Arc<Request>, batch: &Batch) -> Result<Round, Error> {
        let in_order = self.config.concurrency == Some(1);
        let mut under_way: JoinSet<(usize, Verdict)> = JoinSet::new();
        let mut round = Round::default();
        let mut rows = (0..batch.rows()).peekable();
        loop {
            while rows.next_if(|&row| self.progress.is_done(row)).is_some() {}
            let wants_more = !round.is_over(in_order) && rows.peek().is_some();
            let bytes = rows.peek().map_or(0, |&row| batch.payload().value(row).len());
            tokio::select! {
                biased;
                Some(ended) = under_way.join_next() => match ended {
                    Ok((row, verdict)) => round.note(row, verdict, &mut self.progress),
                    Err(error) => return Err(Error::permanent("a request panicked").caused_by(error)),
                },
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
                else => return Ok(round),
            }
        }
    }
}

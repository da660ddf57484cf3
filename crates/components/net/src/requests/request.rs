//! Sends one request and returns its answer.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use flate2::write::GzEncoder;
use reqwest::header::{CONTENT_ENCODING, HeaderMap, RETRY_AFTER};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url};
use thalweg_engine::Error;
use thalweg_redact::{foreign, longest_secret, redacted_start, without_secrets};

use super::client::Compression;
use super::failure::{Failure, Verdict};

/// How many bytes of an answer are shown in messages.
const SHOWN: usize = 300;

/// A secret of fewer bytes is hidden only where it is a word of its own: it is a part of many other words.
const SHORT: usize = 4;

/// The longest wait that a server can ask for.
const LONGEST_WAIT: Duration = Duration::from_mins(5);

/// The state that all requests share.
pub struct Request {
    pub(crate) client: Client,
    pub(crate) url: Url,
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) compression: Compression,
    /// Texts that messages must not contain, the longest first.
    pub(crate) secrets: Vec<String>,
    /// How many bytes of an answer are read. Its connection can be reused if that is all of it.
    pub(crate) most_answer: usize,
    /// Signs each request, if the server wants that.
    pub(crate) sign: Option<Arc<dyn Sign>>,
}

/// Signs requests.
#[async_trait]
pub trait Sign: Send + Sync + 'static {
    /// Adds its signature to a request that is otherwise complete.
    ///
    /// # Errors
    /// If the request cannot be signed, because there are no credentials for example.
    async fn sign(&self, request: &mut reqwest::Request) -> Result<(), Failure>;
}

/// An answer of a server.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, or the beginning of it.
    pub body: Vec<u8>,
    /// False if the connection ended before the body, or if the body is too long.
    pub is_whole: bool,
    /// The headers that only the request of this answer had.
    pub own: HeaderMap,
}

impl Answer {
    /// Returns how long the server wants no further request, if it says so.
    pub fn retry_after(&self) -> Option<Duration> {
        retry_after(&self.headers, Utc::now())
    }
}

fn retry_after(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let at = DateTime::parse_from_rfc2822(text).ok()?;
            (at.with_timezone(&Utc) - now).to_std().unwrap_or_default()
        }
    };
    Some(wait.min(LONGEST_WAIT))
}

impl Request {
    /// Sends a request with this body to the URL, or to another one.
    pub(crate) async fn send(&self, url: Option<Url>, body: Bytes) -> Result<Answer, Failure> {
        self.send_with(HeaderMap::new(), url, body).await
    }

    /// Sends a request with this body, and with headers of its own, to the URL or to another one.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn send_with(&self, own: HeaderMap, url: Option<Url>, body: Bytes) -> Result<Answer, Failure> {
        let failed = |error| Error::permanent("a body cannot be compressed").caused_by(error);
        let (body, encoding) = match self.compression {
            Compression::None => (body, None),
            Compression::Gzip => (gzip(&body).map_err(failed)?, Some("gzip")),
            Compression::Zstd => (zstd(&body).map_err(failed)?, Some("zstd")),
        };
        let url = url.unwrap_or_else(|| self.url.clone());
        let mut built = self.client.request(self.method.clone(), url).headers(own.clone()).body(body);
        if let Some(encoding) = encoding {
            built = built.header(CONTENT_ENCODING, encoding);
        }
        let answer = self.send_built(built).await?;
        Ok(Answer { own, ..answer })
    }

    /// Sends a request that was built from the client, with the headers of all requests.
    pub(crate) async fn send_built(&self, built: RequestBuilder) -> Result<Answer, Failure> {
        Ok(self.answer(self.open(built).await?).await)
    }

    /// Sends a request as `send_built` does, and returns its answer before the body has come.
    pub(crate) async fn open(&self, built: RequestBuilder) -> Result<Response, Failure> {
        let built = built.headers(self.headers.clone());
        let Some(sign) = &self.sign else { return self.open_bare(built).await };
        let mut request = built.build().map_err(|error| self.failed(error))?;
        sign.sign(&mut request).await?;
        self.client.execute(request).await.map_err(|error| self.failed(error).into())
    }

    /// As `open`, without the headers and the signature of all requests: for another server, which must not
    /// get credentials.
    pub(crate) async fn open_bare(&self, built: RequestBuilder) -> Result<Response, Failure> {
        built.send().await.map_err(|error| self.failed(error).into())
    }

    /// Reads the body of an answer, as far as it is wanted.
    pub(crate) async fn answer(&self, mut response: Response) -> Answer {
        let (status, headers) = (response.status(), response.headers().clone());
        let mut body = Vec::new();
        let is_whole = loop {
            match response.chunk().await {
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => break true,
                Err(_) => break false,
            }
            if body.len() > self.most_answer {
                break false;
            }
        };
        Answer { status, headers, body, is_whole, own: HeaderMap::new() }
    }

    /// Returns the fate of all messages of a request by the status of the answer alone.
    pub fn by_status(&self, answer: &Answer) -> Verdict {
        match answer.status {
            status if status.is_success() => Verdict::Delivered,
            status if is_for_now(status) => Verdict::Again(self.failure(answer)),
            _ => Verdict::Rejected(self.text(answer)),
        }
    }

    /// Returns the failure of an answer after which the request is sent again.
    pub fn failure(&self, answer: &Answer) -> Failure {
        let text = self.text(answer);
        let failure = match answer.status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
                Failure::overloaded(text)
            }
            _ => Failure::temporary(text),
        };
        failure.after(answer.retry_after())
    }

    /// Returns what the server answered, for messages.
    pub fn text(&self, answer: &Answer) -> String {
        let shown = self.shown(&answer.body);
        let colon = if shown.is_empty() { "" } else { ": " };
        format!("{} answered {}{colon}{shown}", self.server(), answer.status)
    }

    /// Returns the server, for messages.
    pub fn server(&self) -> String {
        format!("`{}`", without_secrets(self.url.as_str()))
    }

    /// Returns the beginning of an answer, or of a part of it, without secrets.
    pub fn shown(&self, answer: &[u8]) -> String {
        let mut text = String::from_utf8_lossy(answer).trim().to_owned();
        for secret in &self.secrets {
            text = hidden(&text, secret);
        }
        // A secret that is cut would not be found.
        text.truncate(text.floor_char_boundary(SHOWN.saturating_add(longest_secret())));
        foreign(&redacted_start(&text, SHOWN)).into_owned()
    }

    fn failed(&self, error: reqwest::Error) -> Error {
        let text = format!("cannot send to {}", self.server());
        // The text already contains the URL.
        let error = error.without_url();
        match (error.is_timeout(), error.is_builder()) {
            (_, true) => Error::permanent(text).caused_by(error),
            (true, _) => Error::overloaded(text).caused_by(error),
            _ if is_refused(&error) => Error::temporary(format!(
                "{text}: the connection was refused; look whether the server runs, and at the host and the port"
            )),
            _ => Error::temporary(text).caused_by(error),
        }
    }
}

/// True if no program listens at the address.
fn is_refused(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    let io = |error: &(dyn std::error::Error + 'static)| {
        error.downcast_ref::<std::io::Error>().map(std::io::Error::kind)
    };
    causes.any(|cause| io(cause) == Some(std::io::ErrorKind::ConnectionRefused))
}

/// True if a request with this status should be sent again.
fn is_for_now(status: StatusCode) -> bool {
    matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT) || status.is_server_error()
}

/// Returns the text with `…` in place of a secret.
fn hidden(text: &str, secret: &str) -> String {
    if secret.len() >= SHORT {
        return text.replace(secret, "…");
    }
    let is_letter = |character: Option<char>| character.is_some_and(char::is_alphanumeric);
    let begins_word = is_letter(secret.chars().next());
    let ends_word = is_letter(secret.chars().next_back());
    let (mut shown, mut from) = (String::with_capacity(text.len()), 0);
    for (at, _) in text.match_indices(secret) {
        let after = at + secret.len();
        let before = text.get(..at).and_then(|before| before.chars().next_back());
        let next = text.get(after..).and_then(|rest| rest.chars().next());
        let is_within_word = (begins_word && is_letter(before)) || (ends_word && is_letter(next));
        if !is_within_word {
            shown.push_str(text.get(from..at).unwrap_or_default());
            shown.push('…');
            from = after;
        }
    }
    shown.push_str(text.get(from..).unwrap_or_default());
    shown
}

fn gzip(body: &[u8]) -> std::io::Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), flate2::Compression::fast());
    encoder.write_all(body)?;
    Ok(encoder.finish()?.into())
}

/// Compresses with the fastest level, as `gzip` does.
fn zstd(body: &[u8]) -> std::io::Result<Bytes> {
    Ok(zstd::bulk::compress(body, 1)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzzing::answered;
    use chrono::TimeZone;
    use reqwest::header::HeaderValue;

    #[test]
    fn a_short_secret_is_hidden_where_it_is_a_word() {
        for (text, secret, expected) in [
            ("the key abcd, xabcdx", "abcd", "the key …, x…x"),
            ("the key `a1`: a1b, ba1, (a1) a1", "a1", "the key `…`: a1b, ba1, (…) …"),
            ("é is no e", "e", "é is no …"),
            ("éé: é", "é", "éé: …"),
            ("x-1 and -1x", "-1", "x… and -1x"),
            ("a1", "a1", "…"),
            ("", "a1", ""),
        ] {
            assert_eq!(hidden(text, secret), expected);
        }
    }

    #[test]
    fn a_refused_connection_is_found_among_the_causes() {
        let caused = |kind| Error::temporary("no answer").caused_by(std::io::Error::from(kind));
        assert!(is_refused(&caused(std::io::ErrorKind::ConnectionRefused).context("again")));
        assert!(!is_refused(&caused(std::io::ErrorKind::TimedOut)));
    }

    #[test]
    fn a_secret_is_not_shown_in_part() {
        let secret = "7Hq-a-token-of-a-session-that-a-server-repeats";
        thalweg_redact::keep_credential(secret);
        let (request, _) = answered(200, &HeaderMap::new(), b"").unwrap();
        let start = "x ".repeat(SHOWN / 2 - 5);
        assert_eq!(request.shown(format!("{start}{secret} y").as_bytes()), format!("{start}…"));
    }

    #[test]
    fn a_wait_is_seconds_or_a_date_and_has_an_end() {
        let now = Utc.with_ymd_and_hms(2015, 10, 21, 7, 27, 50).unwrap();
        for (text, expected) in [
            ("0", Some(0)),
            (" 7 ", Some(7)),
            ("99999999999", Some(300)),
            ("Wed, 21 Oct 2015 07:28:00 GMT", Some(10)),
            ("Wed, 21 Oct 2015 07:27:00 GMT", Some(0)),
            ("-1", None),
            ("99999999999999999999999", None),
            ("soon", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_static(text));
            assert_eq!(retry_after(&headers, now).map(|wait| wait.as_secs()), expected, "{text}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }
}

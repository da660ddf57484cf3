//! A transport between OpenDAL and the network that inspects replies.
//!
//! OpenDAL's errors and metadata omit facts that matter for ranges: whether a reply is a part at all, which
//! part, and how long the server asks us to wait. Each attempt therefore reads through a transport of its own
//! that inspects the head of the reply, for any service.
//!
//! See docs/decisions/037-replies-are-checked-and-retried-here.md.

use http::{HeaderMap, Request, Response, StatusCode, Uri, header};
use opendal::{Buffer, Error, ErrorKind, HttpBody, HttpTransport, HttpTransporter};
use opendal_http_transport_reqwest::ReqwestTransport;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// The facts from the head of the last reply.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    /// The status of the reply, if the server speaks HTTP and has replied.
    pub status: Option<u16>,
    /// The length of the whole file in bytes.
    pub length: Option<u64>,
    /// How long to wait before another attempt.
    pub retry_after: Option<Duration>,
    /// True if the server sent the whole file instead of a part.
    pub ignored_range: bool,
}

/// Records the head of each reply.
pub(crate) struct Looking {
    pub inner: HttpTransporter,
    pub seen: Arc<Mutex<Seen>>,
}

impl HttpTransport for Looking {
    async fn fetch(&self, request: Request<Buffer>) -> opendal::Result<Response<HttpBody>> {
        let asked = request.headers().get(header::RANGE).and_then(|value| asked(value.to_str().ok()?));
        let response = self.inner.fetch(request).await?;
        let (status, headers) = (response.status(), response.headers());
        let part = part(headers);
        let mut seen = Seen {
            status: Some(status.as_u16()),
            length: part.and_then(|part| part.length),
            retry_after: retry_after(headers),
            ignored_range: false,
        };
        let mut wrong = None;
        if let Some((first, last)) = asked {
            let content = number(headers, header::CONTENT_LENGTH);
            if status == StatusCode::OK && (first > 0 || content.is_none_or(|length| length != last + 1)) {
                seen.ignored_range = true;
                seen.length = content;
                wrong = Some(Error::new(ErrorKind::Unsupported, "the range was ignored"));
            } else if status == StatusCode::OK {
                seen.length = content;
            } else if status == StatusCode::PARTIAL_CONTENT
                && part.and_then(|part| part.first).is_some_and(|given| given != first)
            {
                wrong = Some(
                    Error::new(ErrorKind::Unexpected, "the server sent another range than the requested one")
                        .set_temporary(),
                );
            }
        }
        *self.seen.lock() = seen;
        wrong.map_or(Ok(response), Err)
    }
}

/// Requests exactly this URL, with its query, regardless of what OpenDAL would make of its path.
pub(crate) struct Exactly {
    pub url: Uri,
    pub inner: HttpTransporter,
}

impl HttpTransport for Exactly {
    async fn fetch(&self, mut request: Request<Buffer>) -> opendal::Result<Response<HttpBody>> {
        *request.uri_mut() = self.url.clone();
        self.inner.fetch(request).await
    }
}

/// Fails every request with the reason why there is no client.
struct Without(String);

impl HttpTransport for Without {
    async fn fetch(&self, _: Request<Buffer>) -> opendal::Result<Response<HttpBody>> {
        Err(Error::new(ErrorKind::Unexpected, self.0.clone()))
    }
}

/// Returns the client that all origins share, with its connections. A forked process gets a new one: the
/// threads that drive the former connections do not exist in it.
pub(crate) fn client() -> HttpTransporter {
    static CLIENT: Mutex<Option<(u32, HttpTransporter)>> = Mutex::new(None);
    let mut made = CLIENT.lock();
    let process = std::process::id();
    if let Some((_, client)) = made.as_ref().filter(|(of, _)| *of == process) {
        return client.clone();
    }
    // Fails if a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder()
        .connect_timeout(Duration::from_secs(20))
        .user_agent(concat!("thalweg/", env!("CARGO_PKG_VERSION")))
        .build();
    let client = match client {
        Ok(client) => HttpTransporter::new(ReqwestTransport::new(client)),
        Err(error) => HttpTransporter::new(Without(format!("cannot create the HTTP client: {error}"))),
    };
    // Not dropped after a fork: closing the connections would also need the threads of the parent process.
    std::mem::forget(made.replace((process, client.clone())));
    client
}

/// Returns the two numbers of `bytes=0-99`.
fn asked(value: &str) -> Option<(u64, u64)> {
    let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?))
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct ContentRange {
    first: Option<u64>,
    length: Option<u64>,
}

/// Parses `Content-Range`: `bytes 0-99/1000`, `bytes 0-99/*` or `bytes */1000`.
fn part(headers: &HeaderMap) -> Option<ContentRange> {
    let value = headers.get(header::CONTENT_RANGE)?.to_str().ok()?;
    let (range, length) = value.trim().strip_prefix("bytes")?.trim().split_once('/')?;
    let first = range.split_once('-').and_then(|(first, _)| first.parse().ok());
    Some(ContentRange { first, length: length.parse().ok() })
}

fn number(headers: &HeaderMap, name: header::HeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// Parses `Retry-After`: seconds, or a date.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = opendal::raw::Timestamp::parse_rfc2822(value).ok()?;
    let wait =
        date.into_inner().as_millisecond() - opendal::raw::Timestamp::now().into_inner().as_millisecond();
    Some(Duration::from_millis(u64::try_from(wait).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test]
    fn ranges_in_headers_are_read_and_nonsense_is_not() {
        assert_eq!(asked("bytes=0-99"), Some((0, 99)));
        assert_eq!(asked("bytes=-99"), None);
        let part = |value| part(&headers(header::CONTENT_RANGE, value));
        assert_eq!(part("bytes 0-99/1000"), Some(ContentRange { first: Some(0), length: Some(1000) }));
        assert_eq!(part("bytes 5-9/*"), Some(ContentRange { first: Some(5), length: None }));
        assert_eq!(part("bytes */77"), Some(ContentRange { first: None, length: Some(77) }));
        assert_eq!(part("lines 0-99/1000"), None);
    }

    #[test]
    fn the_time_to_wait_is_given_in_seconds_or_as_a_date() {
        let wait = |value| retry_after(&headers(header::RETRY_AFTER, value));
        assert_eq!(wait("7"), Some(Duration::from_secs(7)));
        assert_eq!(wait("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        assert!(wait("Wed, 21 Oct 2099 07:28:00 GMT").unwrap() > Duration::from_secs(1_000_000));
        assert_eq!(wait("soon"), None);
    }
}

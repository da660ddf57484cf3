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
use reqwest::redirect::Policy;
use std::sync::Arc;
use std::time::Duration;
use thalweg_redact::foreign;

use crate::answers::Bounded;

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
    /// How the server has compressed the reply, if it has.
    pub encoding: Option<String>,
}

impl Seen {
    /// Completes a text about the state of a file that differs from an earlier one. A server that compresses
    /// some replies makes a file seem to change.
    pub(crate) fn told(&self, state: &str) -> String {
        self.encoding.as_ref().map_or_else(
            || state.to_owned(),
            |encoding| format!("{state}, compressed by the server (`Content-Encoding: {encoding}`)"),
        )
    }
}

/// Records the head of each reply.
pub(crate) struct Looking {
    pub inner: HttpTransporter,
    pub seen: Arc<Mutex<Seen>>,
    /// The length of the whole file; 0 if it is not known.
    pub whole: u64,
}

impl HttpTransport for Looking {
    async fn fetch(&self, request: Request<Buffer>) -> opendal::Result<Response<HttpBody>> {
        let asked = request.headers().get(header::RANGE).and_then(|value| asked(value.to_str().ok()?));
        let mut response = self.inner.fetch(request).await?;
        let headers = response.headers();
        let mut seen = Seen {
            status: Some(response.status().as_u16()),
            length: part(headers).and_then(|part| part.length),
            retry_after: retry_after(headers),
            ignored_range: false,
            encoding: encoding(headers),
        };
        let checked = asked.map_or(Ok(()), |asked| self.check_range(asked, &mut response, &mut seen));
        *self.seen.lock() = seen;
        checked.map(|()| response)
    }
}

impl Looking {
    /// Checks the head of a reply to a request for the range from `first` to `last`.
    fn check_range(
        &self,
        (first, last): (u64, u64),
        response: &mut Response<HttpBody>,
        seen: &mut Seen,
    ) -> opendal::Result<()> {
        if response.status() == StatusCode::PARTIAL_CONTENT {
            return match part(response.headers()).and_then(|part| part.first) {
                Some(given) if given != first => {
                    let why = "the server sent another range than the requested one";
                    Err(Error::new(ErrorKind::Unexpected, why).set_temporary())
                }
                _ => Ok(()),
            };
        }
        if response.status() != StatusCode::OK {
            return Ok(());
        }
        seen.length = number(response.headers(), header::CONTENT_LENGTH);
        let wanted = last.saturating_add(1);
        // All of the file may arrive in pieces, without a length.
        let is_all =
            seen.length.map_or(wanted == self.whole && seen.encoding.is_none(), |length| length == wanted);
        if first > 0 || !is_all {
            seen.ignored_range = true;
            return Err(Error::new(ErrorKind::Unsupported, "the range was ignored"));
        }
        // OpenDAL does not read a body without it.
        response.headers_mut().insert(header::CONTENT_LENGTH, wanted.into());
        Ok(())
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

/// Where a client follows redirects to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Redirects {
    /// To other web servers, but from an encrypted connection only to encrypted ones.
    Followed,
    /// Nowhere. A signed request is for one server: its token would let another one act for us.
    Refused,
}

impl Redirects {
    fn policy(self) -> Policy {
        /// The usual limit of clients.
        const MOST: usize = 10;
        match self {
            Self::Refused => Policy::none(),
            Self::Followed => Policy::custom(|attempt| {
                let leaves_tls = attempt.url().scheme() != "https"
                    && attempt.previous().last().is_some_and(|from| from.scheme() == "https");
                if leaves_tls {
                    return attempt.error("it redirects from https to http");
                }
                match attempt.previous().len() > MOST {
                    true => attempt.error("it redirects too often"),
                    false => attempt.follow(),
                }
            }),
        }
    }
}

/// Returns the client that all origins with these redirects share, with its connections. A forked process
/// gets a new one: the threads that drive the former connections do not exist in it.
pub(crate) fn client(redirects: Redirects) -> HttpTransporter {
    type Made = Mutex<Option<(u32, HttpTransporter)>>;
    static FOLLOWING: Made = Mutex::new(None);
    static REFUSING: Made = Mutex::new(None);
    let made = match redirects {
        Redirects::Followed => &FOLLOWING,
        Redirects::Refused => &REFUSING,
    };
    let mut made = made.lock();
    let process = std::process::id();
    if let Some((_, client)) = made.as_ref().filter(|(of, _)| *of == process) {
        return client.clone();
    }
    // Fails if a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder()
        .connect_timeout(Duration::from_secs(20))
        .user_agent(concat!("thalweg/", env!("CARGO_PKG_VERSION")))
        .redirect(redirects.policy())
        // The address may have a token in its query.
        .referer(false)
        .build();
    let client = match client {
        Ok(client) => {
            HttpTransporter::new(Bounded { inner: HttpTransporter::new(ReqwestTransport::new(client)) })
        }
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

/// Returns the compression of a reply, which may quote what a server likes.
fn encoding(headers: &HeaderMap) -> Option<String> {
    let encoding = headers.get(header::CONTENT_ENCODING)?.to_str().ok()?.trim();
    (!encoding.is_empty() && !encoding.eq_ignore_ascii_case("identity"))
        .then(|| foreign(encoding).into_owned())
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

    /// Starts a server that gives every request this answer. Returns its address, and the heads of the
    /// requests so far.
    fn server(answer: String) -> (std::net::SocketAddr, Arc<Mutex<Vec<String>>>) {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, seen) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let heads = seen.clone();
        std::thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                let mut head = vec![0; 8192];
                let length = client.read(&mut head).unwrap_or(0);
                heads.lock().push(String::from_utf8_lossy(&head[..length]).to_ascii_lowercase());
                let _ = client.write_all(answer.as_bytes());
            }
        });
        (address, seen)
    }

    #[tokio::test]
    async fn a_signed_request_follows_no_redirect_and_a_plain_one_tells_no_address() {
        let ok = "HTTP/1.1 200 OK\r\ncontent-length: 1\r\nconnection: close\r\n\r\nx";
        let (other, seen) = server(ok.to_owned());
        let redirect = format!(
            "HTTP/1.1 302 Found\r\nlocation: http://{other}/x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
        let (first, _) = server(redirect);
        let keys = "access_key_id=a&secret_access_key=b&session_token=TOKEN";
        let url = format!("s3://bucket/x?endpoint=http://{first}&{keys}");
        let (store, path) =
            crate::Store::with_retries(&url, crate::Retries { attempts: 1, ..crate::Retries::default() })
                .unwrap();
        assert!(store.stat(&path).await.is_err());
        assert_eq!(*seen.lock(), [""; 0]);
        let (store, path) = crate::Store::from_url(&format!("http://{first}/x?token=TOKEN")).unwrap();
        assert_eq!(store.stat(&path).await.unwrap().size(), 1);
        let seen = seen.lock();
        assert!(!seen.is_empty() && seen.iter().all(|head| !head.contains("token")), "{seen:?}");
    }
}

//! A folder over plain HTTP, like a web server: ranges, conditions, HEAD requests.

use crate::Proxy;
use crate::background::Background;
use crate::escape::{escaped, meant};
use bytes::Bytes;
use futures_util::stream;
use http::header::{self, HeaderMap, HeaderName};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::fs::Metadata;
use std::io;
use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

/// Bytes per read.
const BLOCK: u64 = 1 << 20;

type Body = BoxBody<Bytes, io::Error>;

/// A server for the files below a folder. Dropping it closes its connections.
pub struct WebFiles {
    background: Background,
}

impl WebFiles {
    /// Serves the files below `folder`, including those created later.
    pub fn serve(folder: impl Into<PathBuf>) -> io::Result<Self> {
        let folder: Arc<Path> = folder.into().into();
        let background = Background::serve("web files", move |stream| {
            let folder = folder.clone();
            async move {
                let service = service_fn(move |request| {
                    let folder = folder.clone();
                    async move { Ok::<_, Infallible>(answer(&folder, &request).await) }
                });
                let _ = stream.set_nodelay(true);
                // A client that closes the connection is not an error here.
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            }
        })?;
        Ok(Self { background })
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.background.address
    }

    /// Returns the URL of the server, without a file.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Returns the URL of a file; `path` is relative to the folder.
    pub fn url(&self, path: &str) -> String {
        format!("{}/{}", self.endpoint(), escaped(path))
    }

    /// Returns the URL of a file as seen through a proxy to this server.
    pub fn url_through(&self, proxy: &Proxy, path: &str) -> String {
        format!("{}/{}", proxy.endpoint(), escaped(path))
    }
}

async fn answer(folder: &Path, request: &Request<Incoming>) -> Response<Body> {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        return plain(StatusCode::METHOD_NOT_ALLOWED);
    }
    let Some(path) = below(folder, request.uri().path()) else { return plain(StatusCode::NOT_FOUND) };
    let Ok(mut file) = File::open(path).await else { return plain(StatusCode::NOT_FOUND) };
    let Ok(metadata) = file.metadata().await else { return plain(StatusCode::NOT_FOUND) };
    if !metadata.is_file() {
        return plain(StatusCode::NOT_FOUND);
    }
    let (etag, modified) = validators(&metadata);
    let asked = Asked { headers: request.headers(), etag: &etag, modified: &modified };
    let (status, first, length) = asked.part(metadata.len());
    let mut response = Response::builder()
        .status(status)
        .header(header::ACCEPT_RANGES, "bytes")
        .header(header::ETAG, &etag)
        .header(header::LAST_MODIFIED, &modified);
    if status == StatusCode::PARTIAL_CONTENT {
        let range = format!("bytes {first}-{}/{}", first + length - 1, metadata.len());
        response = response.header(header::CONTENT_RANGE, range);
    } else if status == StatusCode::RANGE_NOT_SATISFIABLE {
        response = response.header(header::CONTENT_RANGE, format!("bytes */{}", metadata.len()));
    }
    if status != StatusCode::NOT_MODIFIED {
        response = response.header(header::CONTENT_LENGTH, length);
    }
    let body = match length {
        _ if request.method() == Method::HEAD => nothing(),
        0 => nothing(),
        _ => {
            if file.seek(io::SeekFrom::Start(first)).await.is_err() {
                return plain(StatusCode::INTERNAL_SERVER_ERROR);
            }
            bytes_of(file, length)
        }
    };
    response.body(body).unwrap_or_else(|_| plain(StatusCode::INTERNAL_SERVER_ERROR))
}

/// Returns the path of the requested file, unless it is outside the folder.
fn below(folder: &Path, path: &str) -> Option<PathBuf> {
    let path = meant(path.strip_prefix('/')?)?;
    let relative = Path::new(&path);
    relative.components().all(|part| matches!(part, Component::Normal(_))).then(|| folder.join(relative))
}

/// Returns the entity tag and the time of the last change.
fn validators(metadata: &Metadata) -> (String, String) {
    let modified = metadata.modified().unwrap_or(UNIX_EPOCH);
    let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    (format!("\"{:x}-{:x}\"", since.as_nanos(), metadata.len()), httpdate::fmt_http_date(modified))
}

struct Asked<'a> {
    headers: &'a HeaderMap,
    etag: &'a str,
    modified: &'a str,
}

impl Asked<'_> {
    /// Returns the status, the first byte and the number of bytes to send, for a file of `total` bytes.
    fn part(&self, total: u64) -> (StatusCode, u64, u64) {
        if self.text(header::IF_MATCH).is_some_and(|tags| !self.names(tags)) {
            return (StatusCode::PRECONDITION_FAILED, 0, 0);
        }
        if self.text(header::IF_NONE_MATCH).is_some_and(|tags| self.names(tags)) {
            return (StatusCode::NOT_MODIFIED, 0, 0);
        }
        let same =
            self.text(header::IF_RANGE).is_none_or(|which| which == self.etag || which == self.modified);
        match self.text(header::RANGE).filter(|_| same).and_then(|range| wanted(range, total)) {
            None => (StatusCode::OK, 0, total),
            Some((first, last)) if first > last => (StatusCode::RANGE_NOT_SATISFIABLE, 0, 0),
            Some((first, last)) => (StatusCode::PARTIAL_CONTENT, first, last - first + 1),
        }
    }

    fn text(&self, name: HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    fn names(&self, tags: &str) -> bool {
        tags.split(',').any(|tag| tag.trim() == "*" || tag.trim() == self.etag)
    }
}

/// Returns the first and the last byte of a range. The first is after the last if the file has no such range.
/// Returns `None` for a header that is not understood or has several ranges: the protocol allows ignoring
/// those.
fn wanted(range: &str, total: u64) -> Option<(u64, u64)> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let end = total.saturating_sub(1);
    let (first, last) = match (first, last) {
        ("", last) => match last.parse().ok()? {
            0 => (total, end),
            last => (total.saturating_sub(last), end),
        },
        (first, "") => (first.parse().ok()?, end),
        (first, last) => {
            let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
            if first > last {
                return None;
            }
            (first, last.min(end))
        }
    };
    // An empty file has no first byte, so no range of it can be satisfied.
    Some(if first >= total { (1, 0) } else { (first, last) })
}

fn bytes_of(mut file: File, length: u64) -> Body {
    file.set_max_buf_size(BLOCK as usize);
    let blocks = stream::try_unfold((file, length), |(mut file, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let mut block = Vec::with_capacity(left.min(BLOCK) as usize);
        (&mut file).take(left.min(BLOCK)).read_buf(&mut block).await?;
        if block.is_empty() {
            return Err(io::Error::other("the file has become shorter"));
        }
        let left = left - block.len() as u64;
        Ok(Some((Frame::data(Bytes::from(block)), (file, left))))
    });
    StreamBody::new(blocks).boxed()
}

fn nothing() -> Body {
    Empty::new().map_err(|never: Infallible| match never {}).boxed()
}

fn plain(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(nothing());
    *response.status_mut() = status;
    response
}

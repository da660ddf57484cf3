//! The heads of requests and answers: kept as they were sent, parsed as far as necessary, and changed only by
//! faults.

use std::io;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// The maximum bytes of a head; no client or server here sends a longer one.
const LONGEST: u64 = 256 << 10;
const MOST_HEADERS: usize = 256;

/// The end of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// After this many bytes.
    Exact(u64),
    /// After an empty chunk.
    Chunked,
    /// At the end of the connection.
    ToTheEnd,
}

/// A client's request.
pub(super) struct Request {
    pub raw: Vec<u8>,
    pub method: String,
    pub target: String,
    pub framing: Framing,
    /// The client sends the body only after the server asks for it (`Expect: 100-continue`).
    pub waits: bool,
    pub closes: bool,
}

/// A server's answer.
pub(super) struct Answer {
    pub raw: Vec<u8>,
    pub status: u16,
    pub framing: Framing,
    /// The value of `Content-Length`, also if no body follows.
    pub length: Option<u64>,
    pub closes: bool,
}

/// The headers that matter, of either.
#[derive(Default)]
struct Said {
    length: Option<u64>,
    chunked: bool,
    closes: bool,
    waits: bool,
}

impl Said {
    fn by(headers: &[httparse::Header]) -> Self {
        let mut said = Self::default();
        for header in headers {
            let value = String::from_utf8_lossy(header.value).to_ascii_lowercase();
            match header.name.to_ascii_lowercase().as_str() {
                "content-length" => said.length = value.trim().parse().ok(),
                "transfer-encoding" => said.chunked = value.contains("chunked"),
                "connection" => said.closes = value.contains("close"),
                "expect" => said.waits = value.contains("100-continue"),
                _ => {}
            }
        }
        said
    }
}

impl Request {
    /// Reads the next request; `None` if the client sends no more.
    pub async fn read(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<Self>> {
        let Some(raw) = read(from).await? else { return Ok(None) };
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut head = httparse::Request::new(&mut headers);
        head.parse(&raw).map_err(io::Error::other)?;
        let said = Said::by(head.headers);
        let framing = match said {
            Said { chunked: true, .. } => Framing::Chunked,
            Said { length, .. } => Framing::Exact(length.unwrap_or(0)),
        };
        let (method, target) = (head.method.unwrap_or_default().into(), head.path.unwrap_or_default().into());
        let closes = said.closes || head.version == Some(0);
        Ok(Some(Self { method, target, framing, waits: said.waits, closes, raw }))
    }
}

impl Answer {
    /// Reads the next answer, to a request with this method.
    pub async fn read(from: &mut (impl AsyncBufRead + Unpin), method: &str) -> io::Result<Self> {
        let raw = read(from).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut head = httparse::Response::new(&mut headers);
        head.parse(&raw).map_err(io::Error::other)?;
        let said = Said::by(head.headers);
        let status = head.code.unwrap_or_default();
        let framing = match said {
            _ if method == "HEAD" || status < 200 || [204, 304].contains(&status) => Framing::Exact(0),
            Said { chunked: true, .. } => Framing::Chunked,
            Said { length: Some(length), .. } => Framing::Exact(length),
            _ => Framing::ToTheEnd,
        };
        let closes = said.closes || framing == Framing::ToTheEnd || head.version == Some(0);
        Ok(Self { status, framing, length: said.length, closes, raw })
    }
}

/// Reads up to the empty line, inclusive.
async fn read(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<Vec<u8>>> {
    let mut raw = Vec::new();
    let mut from = from.take(LONGEST);
    loop {
        let line = from.read_until(b'\n', &mut raw).await?;
        if line == 0 && raw.is_empty() {
            return Ok(None);
        }
        if line == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if raw.ends_with(b"\r\n\r\n") {
            return Ok(Some(raw));
        }
    }
}

/// Returns the head with another value of an existing header.
pub(super) fn with(raw: &[u8], name: &str, value: &str) -> Vec<u8> {
    let mut changed = Vec::with_capacity(raw.len() + value.len());
    for line in raw.split_inclusive(|byte| *byte == b'\n') {
        match line.iter().position(|byte| *byte == b':').map(|colon| line.split_at(colon)) {
            Some((before, _)) if before.eq_ignore_ascii_case(name.as_bytes()) => {
                changed.extend_from_slice(before);
                changed.extend_from_slice(format!(": {value}\r\n").as_bytes());
            }
            _ => changed.extend_from_slice(line),
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn framing(method: &str, head: &str) -> Framing {
        Answer::read(&mut head.as_bytes(), method).await.unwrap().framing
    }

    #[tokio::test]
    async fn the_head_says_where_the_body_ends() {
        let length = "HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n";
        assert_eq!(framing("GET", length).await, Framing::Exact(7));
        assert_eq!(framing("HEAD", length).await, Framing::Exact(0));
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(framing("GET", chunked).await, Framing::Chunked);
        assert_eq!(framing("GET", "HTTP/1.1 304 Not Modified\r\n\r\n").await, Framing::Exact(0));
        assert_eq!(framing("GET", "HTTP/1.1 200 OK\r\n\r\n").await, Framing::ToTheEnd);
    }

    #[tokio::test]
    async fn a_request_is_kept_as_it_came() {
        let head = "PUT /a//../b%2F'?x HTTP/1.1\r\nhOst: elsewhere\r\nExpect: 100-continue\r\n\r\n";
        let request = Request::read(&mut head.as_bytes()).await.unwrap().unwrap();
        assert_eq!(request.raw, head.as_bytes());
        assert_eq!((request.method.as_str(), request.target.as_str()), ("PUT", "/a//../b%2F'?x"));
        assert!(request.waits && request.framing == Framing::Exact(0));
        assert!(Request::read(&mut &b""[..]).await.unwrap().is_none());
        assert!(Request::read(&mut &b"PUT / HTT"[..]).await.is_err());
    }

    #[test]
    fn one_header_is_changed_and_the_rest_is_not() {
        let head = b"HTTP/1.1 200 OK\r\nEtag: \"a\"\r\nx-etag: \"b\"\r\n\r\n";
        let changed = with(head, "ETag", "\"c\"");
        assert_eq!(changed, b"HTTP/1.1 200 OK\r\nEtag: \"c\"\r\nx-etag: \"b\"\r\n\r\n");
    }
}

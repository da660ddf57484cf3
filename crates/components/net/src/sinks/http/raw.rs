//! Parses a message that is a complete HTTP/1.1 request.

use bytes::Bytes;
use memchr::memmem::find;
use reqwest::Method;
use reqwest::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE,
};

/// The parts of the request.
#[derive(Debug)]
pub struct RawRequest {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: Option<String>,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl RawRequest {
    /// Parses a message. Lines may end with or without a carriage return.
    ///
    /// # Errors
    /// The reason why the message is not a request.
    pub fn parse(message: Bytes) -> Result<Self, String> {
        let ends = [find(&message, b"\r\n\r\n").map(|at| (at, 4)), find(&message, b"\n\n").map(|at| (at, 2))];
        let (end, gap) = ends.into_iter().flatten().min().unwrap_or((message.len(), 0));
        let head = std::str::from_utf8(message.get(..end).unwrap_or_default())
            .map_err(|_| "its head is not text".to_owned())?;
        let mut lines = head.lines();
        let mut first = lines.next().unwrap_or_default().split_ascii_whitespace();
        let (Some(method), Some(target), Some(version), None) =
            (first.next(), first.next(), first.next(), first.next())
        else {
            return Err("its first line is not `METHOD PATH VERSION`".to_owned());
        };
        if !version.starts_with("HTTP/") {
            return Err("its first line does not end with a version of HTTP".to_owned());
        }
        let method = Method::try_from(method).map_err(|_| format!("`{method}` is not a method"))?;
        // `http://host/path` is valid too; the host is replaced in any case.
        let target = match target.split_once("://") {
            Some((_, rest)) => rest.find('/').and_then(|slash| rest.get(slash..)).unwrap_or("/"),
            None => target,
        };
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (target, None),
        };
        if !path.starts_with('/') {
            return Err(format!("`{target}` is not a path"));
        }
        let mut headers = HeaderMap::new();
        for line in lines {
            let (name, value) = line.split_once(':').ok_or_else(|| format!("`{line}` is not a header"))?;
            let name = HeaderName::try_from(name.trim()).map_err(|_| format!("`{name}` is not a header"))?;
            let value = HeaderValue::from_str(value.trim()).map_err(|_| format!("`{name}` has no value"))?;
            headers.append(name, value);
        }
        if headers.contains_key(TRANSFER_ENCODING) {
            return Err("its body is chunked (`Transfer-Encoding`)".to_owned());
        }
        let mut body = message.slice((end + gap).min(message.len())..);
        if let Some(length) = headers.get(CONTENT_LENGTH) {
            let length = length.to_str().ok().and_then(|length| length.parse::<usize>().ok());
            match length {
                Some(length) if length <= body.len() => body.truncate(length),
                _ => return Err("its body is shorter than its `Content-Length`".to_owned()),
            }
        }
        // These headers describe the original connection; a new one is used.
        for name in [HOST, CONTENT_LENGTH, CONNECTION, UPGRADE, EXPECT] {
            headers.remove(name);
        }
        Ok(Self { method, path: path.to_owned(), query, headers, body })
    }

    /// Returns the path, without the query.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the body.
    pub fn body(&self) -> &Bytes {
        &self.body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &'static str) -> Result<RawRequest, String> {
        RawRequest::parse(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn a_request_is_read_as_it_stands_on_the_wire() {
        let read = parse("PUT /a/b?c=d HTTP/1.1\r\nHost: x\r\nX-A: 1\r\nX-A: 2\r\n\r\nbody\n\nmore").unwrap();
        assert_eq!(
            (read.method.as_str(), read.path.as_str(), read.query.as_deref()),
            ("PUT", "/a/b", Some("c=d"))
        );
        assert_eq!(read.headers.get_all("x-a").iter().count(), 2);
        assert!(!read.headers.contains_key("host"));
        assert_eq!(read.body, "body\n\nmore");
        let read = parse("POST http://other/foo HTTP/1.0\nContent-Length: 4\n\nbody\n").unwrap();
        assert_eq!((read.path.as_str(), read.body), ("/foo", Bytes::from("body")));
        assert_eq!(parse("GET / HTTP/1.1").unwrap().body, "");
    }

    #[test]
    fn what_is_no_request_says_why() {
        for (text, reason) in [
            ("", "first line"),
            ("hello world", "first line"),
            ("GET / FTP/1", "version"),
            ("G(T / HTTP/1.1", "method"),
            ("GET x HTTP/1.1", "not a path"),
            ("GET / HTTP/1.1\nrubbish\n\n", "not a header"),
            ("GET / HTTP/1.1\nContent-Length: 9\n\nshort", "shorter"),
            ("GET / HTTP/1.1\nTransfer-Encoding: chunked\n\n", "is chunked"),
        ] {
            let found = parse(text).unwrap_err();
            assert!(found.contains(reason), "{found}");
        }
    }
}

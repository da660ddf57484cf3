//! Requests and answers of HTTP/1.1, as far as a client of Amazon's services needs them.

use std::io::{self, BufRead, Write};
use std::net::TcpStream;

use super::signature::Signed;

/// A request.
pub(super) struct Request {
    method: String,
    path: String,
    query: String,
    /// Names in lower case, and values.
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Request {
    /// Reads a request. None at the end of the connection.
    pub(super) fn read(reader: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut first = String::new();
        if reader.read_line(&mut first)? == 0 {
            return Ok(None);
        }
        let mut words = first.split_whitespace();
        let (Some(method), Some(target)) = (words.next(), words.next()) else {
            return Err(io::Error::other("a request begins with a method and a target"));
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            match line.trim_end().split_once(':') {
                Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.trim().to_owned())),
                None if line.trim_end().is_empty() => break,
                None => return Err(io::Error::other("a header has a name and a value")),
            }
        }
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let length = length.map_or(Ok(0), |(_, value)| value.parse::<usize>()).map_err(io::Error::other)?;
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let (method, path, query) = (method.to_owned(), path.to_owned(), query.to_owned());
        Ok(Some(Self { method, path, query, headers, body }))
    }

    /// Returns the value of a header.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn signed(&self) -> Signed<'_> {
        let Self { method, path, query, headers, body } = self;
        Signed { method, path, query, headers, body }
    }
}

/// An answer.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn write(&self, mut stream: &TcpStream) -> io::Result<()> {
        let Self { status, body } = self;
        let head = format!("HTTP/1.1 {status} Any\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all((head + body).as_bytes())
    }
}

/// True if the client has closed its connection. It waits for an answer, so it sends nothing.
pub(super) fn is_gone(stream: &TcpStream) -> bool {
    if stream.set_nonblocking(true).is_err() {
        return true;
    }
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false).is_err() || matches!(peeked, Ok(0))
}

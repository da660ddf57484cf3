//! HTTP to an S3 server, with as little code as possible between the socket and the bytes.
//!
//! A client library was rejected: it would limit the rate, and the server's rate is the figure of interest.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use http::request::Parts;
use reqsign_aws_v4::{Credential, RequestSigner, StaticCredentialProvider};
use reqsign_core::{Context, Signer};

/// The size of the read buffer in bytes.
const BLOCK: usize = 256 << 10;

/// Returns a signer of requests.
pub fn signer(key: &str, secret: &str, region: &str) -> Signer<Credential> {
    let keys = StaticCredentialProvider::new(key, secret);
    Signer::new(Context::new(), keys, RequestSigner::new("s3", region))
}

/// Returns the runtime for the signer, which never waits.
///
/// # Errors
/// Returns an error if the system cannot create a runtime.
pub fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().build()
}

/// A connection that is used for many requests.
pub struct Connection {
    address: String,
    /// `None` for objects that anyone may read.
    signer: Option<Signer<Credential>>,
    runtime: tokio::runtime::Runtime,
    stream: BufReader<TcpStream>,
}

/// The head of a response.
pub struct Answer {
    /// The number of bytes that follow.
    pub length: u64,
    /// The ETag of the object.
    pub etag: String,
}

impl Connection {
    /// Connects to a server. The keys and the region come from the environment; without them, requests are
    /// not signed.
    ///
    /// # Errors
    /// Returns an error if no server listens.
    pub fn open(address: &str) -> io::Result<Self> {
        let variable = |name: &str| std::env::var(name).ok();
        let keys =
            variable("AWS_ACCESS_KEY_ID").zip(variable("AWS_SECRET_ACCESS_KEY")).zip(variable("AWS_REGION"));
        let signer = keys.map(|((key, secret), region)| signer(&key, &secret, &region));
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            address: address.to_owned(),
            signer,
            runtime: runtime()?,
            stream: BufReader::with_capacity(BLOCK, stream),
        })
    }

    /// Sends a request and reads the head of the response.
    ///
    /// # Errors
    /// Returns an error if the connection breaks, or the status is not a success.
    pub fn ask(
        &mut self,
        method: &str,
        target: &str,
        range: Option<&str>,
        body: &[u8],
    ) -> io::Result<Answer> {
        let head = self.signed(method, target)?;
        let mut text = format!("{method} {target} HTTP/1.1\r\nhost: {}\r\n", self.address);
        for (name, value) in head.headers.iter().filter(|(name, _)| *name != http::header::HOST) {
            text += &format!("{name}: {}\r\n", value.to_str().map_err(io::Error::other)?);
        }
        if let Some(range) = range {
            text += &format!("range: bytes={range}\r\n");
        }
        if method != "GET" {
            text += &format!("content-length: {}\r\n", body.len());
        }
        text += "\r\n";
        self.stream.get_mut().write_all(text.as_bytes())?;
        self.stream.get_mut().write_all(body)?;
        let (status, answer) = self.head()?;
        if (200..300).contains(&status) {
            return Ok(answer);
        }
        // A response to `HEAD` has no body.
        let answer = Answer { length: if method == "HEAD" { 0 } else { answer.length }, ..answer };
        let why = String::from_utf8_lossy(&self.body(&answer)?).into_owned();
        Err(io::Error::other(format!("{method} {target}: {status}: {why}")))
    }

    fn signed(&self, method: &str, target: &str) -> io::Result<Parts> {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("http://{}{target}", self.address))
            .header("x-amz-content-sha256", "UNSIGNED-PAYLOAD")
            .body(())
            .map_err(io::Error::other)?;
        let (mut head, ()) = request.into_parts();
        if let Some(signer) = &self.signer {
            self.runtime.block_on(signer.sign(&mut head, None)).map_err(io::Error::other)?;
        }
        Ok(head)
    }

    fn head(&mut self) -> io::Result<(u16, Answer)> {
        let mut text = Vec::new();
        while !text.ends_with(b"\r\n\r\n") {
            if self.stream.read_until(b'\n', &mut text)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut head = httparse::Response::new(&mut headers);
        head.parse(&text).map_err(io::Error::other)?;
        let find = |wanted: &str| {
            let found = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case(wanted));
            found.map(|header| String::from_utf8_lossy(header.value).into_owned()).unwrap_or_default()
        };
        let status = head.code.unwrap_or_default();
        let length = match status {
            100 | 204 => 0,
            _ => find("content-length").parse().map_err(|_| io::Error::other("no Content-Length"))?,
        };
        Ok((status, Answer { length, etag: find("etag") }))
    }

    /// Reads the body after a response's head.
    ///
    /// # Errors
    /// Returns an error if the connection breaks.
    pub fn body(&mut self, answer: &Answer) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        self.stream.by_ref().take(answer.length).read_to_end(&mut body)?;
        Ok(body)
    }

    /// Reads the next bytes of the body until `into` is full.
    ///
    /// # Errors
    /// Returns an error if the connection breaks.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<()> {
        self.stream.read_exact(into)
    }
}

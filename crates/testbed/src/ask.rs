//! Sends one HTTP/1.1 request on its own connection, to query a server while it starts or to prepare it.
//!
//! An HTTP client library would add a runtime to code that only waits.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Time limit for a connection or read; no server on loopback takes longer for such requests.
const PATIENCE: Duration = Duration::from_secs(20);

/// Sends a request without a body, and returns the status and body of the answer. `headers` are whole lines.
pub(crate) fn ask(
    address: SocketAddr,
    method: &str,
    target: &str,
    headers: &[String],
) -> io::Result<(u16, Vec<u8>)> {
    send(address, method, target, headers, &[])
}

/// Posts JSON, and returns the status and body of the answer.
pub(crate) fn post(address: SocketAddr, target: &str, body: &[u8]) -> io::Result<(u16, Vec<u8>)> {
    let headers = ["Content-Type: application/json".to_owned(), format!("Content-Length: {}", body.len())];
    send(address, "POST", target, &headers, body)
}

fn send(
    address: SocketAddr,
    method: &str,
    target: &str,
    headers: &[String],
    body: &[u8],
) -> io::Result<(u16, Vec<u8>)> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    for header in headers {
        head += header;
        head += "\r\n";
    }
    head += "\r\n";
    stream.write_all(&[head.as_bytes(), body].concat())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    taken_apart(&answer).ok_or_else(|| io::Error::other(format!("`{address}` does not speak HTTP/1.1")))
}

fn taken_apart(answer: &[u8]) -> Option<(u16, Vec<u8>)> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = head.parse(answer).ok()? else { return None };
    Some((head.code?, answer.get(length..)?.to_vec()))
}

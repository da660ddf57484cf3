//! A client that shows every byte it receives.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A connection.
pub struct Raw {
    from: BufReader<TcpStream>,
}

/// The head of an answer.
pub struct Head {
    pub status: u16,
    lines: Vec<String>,
}

impl Head {
    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.lines.iter().find_map(|line| {
            let (other, value) = line.split_once(':')?;
            other.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    /// Returns the value of `Content-Length`.
    pub fn length(&self) -> usize {
        self.header("content-length").unwrap().parse().unwrap()
    }
}

impl Raw {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { from: BufReader::new(stream) }
    }

    /// Sends text unchanged.
    pub fn send(&mut self, text: &str) {
        self.from.get_mut().write_all(text.as_bytes()).unwrap();
    }

    /// Sends a request without a body; `headers` are lines that end in line feeds.
    pub fn ask(&mut self, method: &str, target: &str, headers: &str) -> Head {
        self.send(&format!("{method} {target} HTTP/1.1\r\nHost: somewhere\r\n{headers}\r\n"));
        self.head()
    }

    pub fn head(&mut self) -> Head {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            self.from.read_line(&mut line).unwrap();
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let status = lines[0].split(' ').nth(1).unwrap().parse().unwrap();
        Head { status, lines }
    }

    /// Reads `length` bytes.
    pub fn body(&mut self, length: usize) -> Vec<u8> {
        let mut body = vec![0; length];
        self.from.read_exact(&mut body).unwrap();
        body
    }

    /// Reads to the end of the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.from.read_to_end(&mut rest).unwrap();
        rest
    }

    /// True if nothing arrives for a while and the connection stays open.
    pub fn is_silent(&mut self) -> bool {
        self.from.get_ref().set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        self.from.fill_buf().is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }
}

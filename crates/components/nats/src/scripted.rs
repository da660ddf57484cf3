//! A server of tests that sends what a test says, for what a server of NATS cannot be made to do.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpStream};

/// The first line of the server.
const INFO: &[u8] = b"INFO {\"server_id\":\"scripted\",\"max_payload\":1048576}\r\n";

/// A server on a free port of loopback.
pub(crate) struct Scripted(TcpListener);

/// A connection of a client.
pub(crate) struct Peer(BufStream<TcpStream>);

impl Scripted {
    pub(crate) async fn start() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    pub(crate) fn address(&self) -> String {
        self.0.local_addr().unwrap().to_string()
    }

    /// Accepts a connection, and says nothing.
    pub(crate) async fn accept_silently(&self) -> Peer {
        Peer(BufStream::new(self.0.accept().await.unwrap().0))
    }

    /// Accepts a client.
    pub(crate) async fn accept(&self) -> Peer {
        let mut peer = self.accept_silently().await;
        peer.write(INFO).await.unwrap();
        peer.line("PING").await;
        peer.write(b"PONG\r\n").await.unwrap();
        peer
    }
}

impl Peer {
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await?;
        self.0.flush().await
    }

    /// Reads lines until one begins with this text. Returns what follows the text.
    pub(crate) async fn line(&mut self, begin: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).await.unwrap() > 0, "the client has gone before `{begin}`");
            if let Some(rest) = line.strip_prefix(begin) {
                return rest.trim().to_owned();
            }
        }
    }
}

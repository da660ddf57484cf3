//! A server of tests that sends what a test says, for what mosquitto cannot be made to do.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::wire::{self, Outgoing, Qos, Version};

/// A server of MQTT 5 on a free port of loopback.
pub(crate) struct Scripted(TcpListener);

/// A connection of a client.
pub(crate) struct Peer {
    stream: TcpStream,
    /// True if the client begins a new session.
    pub(crate) is_clean: bool,
}

impl Scripted {
    pub(crate) async fn start() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    /// Accepts a client. `has_session` says whether the server knows the session.
    pub(crate) async fn accept(&self, has_session: bool) -> Peer {
        let mut peer = Peer { stream: self.0.accept().await.unwrap().0, is_clean: false };
        // The flags are behind the name and the version of the protocol.
        peer.is_clean = peer.take(0x10).await[7] & 0x02 != 0;
        peer.write(&[0x20, 3, u8::from(has_session), 0, 0]).await.unwrap();
        peer
    }

    /// Accepts a client, and its subscription to one topic.
    pub(crate) async fn accept_subscriber(&self, has_session: bool, qos: Qos) -> Peer {
        let mut peer = self.accept(has_session).await;
        peer.take(0x82).await;
        peer.write(&[0x90, 4, 0, 1, 0, qos as u8]).await.unwrap();
        peer
    }
}

impl Peer {
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Reads packets until one begins with this byte. Returns what follows its length. The question whether
    /// the server is there is answered.
    pub(crate) async fn take(&mut self, wanted: u8) -> Vec<u8> {
        loop {
            let first = self.stream.read_u8().await.unwrap();
            let mut body = vec![0; self.length().await];
            self.stream.read_exact(&mut body).await.unwrap();
            if first == wanted {
                return body;
            }
            if first == 0xc0 {
                self.write(&[0xd0, 0]).await.unwrap();
            }
        }
    }

    async fn length(&mut self) -> usize {
        let (mut length, mut place) = (0, 0);
        loop {
            let byte = self.stream.read_u8().await.unwrap();
            length |= usize::from(byte & 0x7f) << place;
            place += 7;
            if byte & 0x80 == 0 {
                return length;
            }
        }
    }
}

/// Returns a message of the topic `t` with its number as text.
pub(crate) fn message(id: u16, qos: Qos, is_duplicate: bool) -> Vec<u8> {
    let payload = id.to_string();
    let message =
        Outgoing { topic: b"t", payload: payload.as_bytes(), qos, is_retained: false, properties: &[] };
    let mut out = Vec::new();
    wire::publish(Version::V5, &message, id, is_duplicate, &mut out);
    out
}

//! A server of tests that sends what a test says, for what RabbitMQ cannot be made to do.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::wire::{self, long_text, method, short_text};

/// A server of AMQP on a free port of loopback.
pub(crate) struct Scripted(TcpListener);

/// A connection of a client.
pub(crate) struct Peer {
    stream: TcpStream,
    /// The number of messages that the only queue has, if the server is to say so while it waits for
    /// something.
    pub(crate) waiting: Option<u32>,
}

/// A method: its class and number.
pub(crate) type Id = (u16, u16);

/// The methods that tests wait for.
pub(crate) const CLOSE: Id = (10, 50);
pub(crate) const CHANNEL_CLOSE: Id = (20, 40);
pub(crate) const QOS: Id = (60, 10);
pub(crate) const CONSUME: Id = (60, 20);
pub(crate) const CANCEL: Id = (60, 30);
pub(crate) const PUBLISH: Id = (60, 40);
pub(crate) const ACK: Id = (60, 80);
pub(crate) const SELECT: Id = (85, 10);
const DECLARE: Id = (50, 10);

impl Scripted {
    pub(crate) async fn start() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    /// Accepts a client, and does nothing.
    pub(crate) async fn accept_silently(&self) -> Peer {
        Peer { stream: self.0.accept().await.unwrap().0, waiting: None }
    }

    /// Accepts a client up to its channel.
    pub(crate) async fn accept(&self) -> Peer {
        let mut peer = self.accept_silently().await;
        let mut header = [0; 8];
        peer.stream.read_exact(&mut header).await.unwrap();
        assert_eq!(&header, wire::HEADER);
        peer.send(0, (10, 10), |out| {
            out.extend_from_slice(&[0, 9]);
            long_text(&[], out);
            long_text(b"PLAIN AMQPLAIN", out);
            long_text(b"en_US", out);
        })
        .await;
        peer.take((10, 11)).await;
        // 2047 channels, frames of 4096 bytes, and a heartbeat of 60 s.
        peer.send(0, (10, 30), |out| out.extend_from_slice(&[7, 255, 0, 0, 16, 0, 0, 60])).await;
        peer.take((10, 31)).await;
        peer.take((10, 40)).await;
        peer.send(0, (10, 41), |out| out.push(0)).await;
        peer.take((20, 10)).await;
        peer.send(1, (20, 11), |out| long_text(&[], out)).await;
        peer
    }

    /// Accepts a client that reads one queue.
    pub(crate) async fn accept_consumer(&self) -> Peer {
        let mut peer = self.accept().await;
        peer.take(QOS).await;
        peer.send(1, (60, 11), |_| {}).await;
        peer.take(CONSUME).await;
        peer.send(1, (60, 21), |out| short_text(b"0", out)).await;
        peer
    }

    /// Accepts a client that sends messages to the default exchange.
    pub(crate) async fn accept_publisher(&self) -> Peer {
        let mut peer = self.accept().await;
        peer.take(SELECT).await;
        peer.send(1, (85, 11), |_| {}).await;
        peer
    }
}

impl Peer {
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Sends a method.
    pub(crate) async fn send(&mut self, channel: u16, id: Id, arguments: impl FnOnce(&mut Vec<u8>)) {
        let mut out = Vec::new();
        method(channel, id.0, id.1, &mut out, arguments);
        self.write(&out).await.unwrap();
    }

    /// Confirms the messages up to this one.
    pub(crate) async fn confirm(&mut self, tag: u64) {
        self.send(1, ACK, |out| {
            out.extend_from_slice(&tag.to_be_bytes());
            out.push(1);
        })
        .await;
    }

    /// Ends the channel because of a message.
    pub(crate) async fn refuse(&mut self) {
        self.send(1, CHANNEL_CLOSE, |out| {
            out.extend_from_slice(&406_u16.to_be_bytes());
            short_text(b"PRECONDITION_FAILED - too large", out);
            out.extend_from_slice(&[0; 4]);
        })
        .await;
    }

    /// Reads frames until one has this method. Returns its arguments. The end of the channel is answered, and
    /// the parts of messages are skipped.
    pub(crate) async fn take(&mut self, wanted: Id) -> Vec<u8> {
        loop {
            let (kind, body) = self.frame().await;
            let Some((id, arguments)) = body.split_at_checked(4).filter(|_| kind == 1) else { continue };
            let id = (u16::from_be_bytes([id[0], id[1]]), u16::from_be_bytes([id[2], id[3]]));
            if id == wanted {
                return arguments.to_vec();
            }
            match (id, self.waiting) {
                (CHANNEL_CLOSE, _) => self.send(1, (20, 41), |_| {}).await,
                (DECLARE, Some(messages)) => self.say_waiting(messages).await,
                (QOS, Some(_)) => self.send(1, (60, 11), |_| {}).await,
                _ => {}
            }
        }
    }

    /// Reads frames until one is a heartbeat.
    pub(crate) async fn take_heartbeat(&mut self) {
        while self.frame().await.0 != 8 {}
    }

    async fn say_waiting(&mut self, messages: u32) {
        self.send(1, (50, 11), |out| {
            short_text(b"q", out);
            out.extend_from_slice(&messages.to_be_bytes());
            out.extend_from_slice(&1_u32.to_be_bytes());
        })
        .await;
    }

    /// Reads the end of the connection, and answers it.
    pub(crate) async fn end(&mut self) {
        self.take(CLOSE).await;
        self.send(0, (10, 51), |_| {}).await;
    }

    async fn frame(&mut self) -> (u8, Vec<u8>) {
        let kind = self.stream.read_u8().await.unwrap();
        self.stream.read_u16().await.unwrap();
        let length = self.stream.read_u32().await.unwrap();
        let mut body = vec![0; length as usize + 1];
        self.stream.read_exact(&mut body).await.unwrap();
        assert_eq!(body.pop(), Some(0xce));
        (kind, body)
    }
}

/// Returns a message for the only consumer with its number as text.
pub(crate) fn message(tag: u64) -> Vec<u8> {
    let (mut out, payload) = (Vec::new(), tag.to_string());
    method(1, 60, 60, &mut out, |out| {
        short_text(b"0", out);
        out.extend_from_slice(&tag.to_be_bytes());
        out.push(0);
        short_text(b"", out);
        short_text(b"q", out);
    });
    wire::header(payload.len(), &[0, 0], &mut out);
    wire::body(payload.as_bytes(), &mut out);
    out
}

/// Returns a heartbeat.
pub(crate) fn heartbeat() -> Vec<u8> {
    let mut out = Vec::new();
    wire::heartbeat(&mut out);
    out
}

//! A NATS server with JetStream.

use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use async_nats::header::HeaderMap;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::{self, stream};
use bytes::Bytes;
use futures_util::StreamExt;

use crate::Tools;
use crate::relay::Relay;
use crate::server::{Recipe, Server};

/// A NATS server with JetStream.
pub type Nats = Server<NatsServer>;

/// The kind of [`Nats`].
pub struct NatsServer;

/// A message of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NatsMessage {
    /// Its subject.
    pub subject: String,
    /// Its headers: names and values, in the order of their names.
    pub headers: Vec<(String, String)>,
    /// Its payload.
    pub payload: Bytes,
}

impl NatsMessage {
    /// Returns a message without headers.
    pub fn new(subject: impl Into<String>, payload: impl Into<Bytes>) -> Self {
        Self { subject: subject.into(), headers: Vec::new(), payload: payload.into() }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Returns the payload as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.payload).into_owned()
    }
}

/// How far a consumer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConsumerState {
    /// The messages that it has not delivered.
    pub pending: u64,
    /// The messages that it has delivered, without an acknowledgement.
    pub ack_pending: u64,
    /// The number of the message up to which all are acknowledged.
    pub ack_floor: u64,
}

impl Nats {
    /// Starts a server; this takes about half a second.
    ///
    /// # Errors
    /// If it is not installed or does not start.
    pub fn start() -> io::Result<Self> {
        Self::start_with("")
    }

    /// As [`start`](Self::start), with further lines of its configuration.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(configuration: &str) -> io::Result<Self> {
        let server = Tools::find().nats_server()?;
        let recipe = Recipe::new("nats-server", move |_, data| {
            let mut command = Command::new(&server);
            command.arg("-c").arg(data.join("nats.conf"));
            command
        });
        let prepare = |address: SocketAddr, data: &Path| {
            let mut text = format!("listen: \"{address}\"\n");
            let folder = data.join("jetstream");
            let _ = writeln!(text, "jetstream {{ store_dir: \"{}\" }}\n{configuration}", folder.display());
            std::fs::write(data.join("nats.conf"), text)
        };
        Self::launch(recipe, Relay::start()?, NatsServer, prepare)
    }

    /// Creates a stream of these subjects.
    ///
    /// # Errors
    /// If the server refuses it.
    pub fn create_stream(&self, name: &str, subjects: &[&str]) -> io::Result<()> {
        let subjects = subjects.iter().map(ToString::to_string).collect();
        self.create(stream::Config { name: name.to_owned(), subjects, ..stream::Config::default() })
    }

    /// Creates a stream.
    ///
    /// # Errors
    /// If the server refuses it.
    pub fn create(&self, config: stream::Config) -> io::Result<()> {
        self.block_on(async |client| Ok(jetstream::new(client).create_stream(config).await.map(drop)?))
    }

    /// Deletes a stream.
    ///
    /// # Errors
    /// If there is none.
    pub fn delete_stream(&self, name: &str) -> io::Result<()> {
        self.block_on(async |client| Ok(jetstream::new(client).delete_stream(name).await.map(drop)?))
    }

    /// Removes all messages of a stream.
    ///
    /// # Errors
    /// If there is no such stream.
    pub fn purge(&self, name: &str) -> io::Result<()> {
        self.block_on(async |client| {
            let stream = jetstream::new(client).get_stream(name).await?;
            Ok(stream.purge().await.map(drop)?)
        })
    }

    /// Stores messages in the streams of their subjects, in order.
    ///
    /// # Errors
    /// If the server refuses one.
    pub fn store(&self, messages: impl IntoIterator<Item = NatsMessage>) -> io::Result<()> {
        self.block_on(async |client| {
            let context = jetstream::new(client);
            let mut acks = Vec::new();
            for message in messages {
                let (subject, headers) = (message.subject.clone(), headers(&message));
                acks.push(context.publish_with_headers(subject, headers, message.payload).await?);
                // The client holds a limited number of answers.
                if acks.len() == 1000 {
                    for ack in acks.drain(..) {
                        let _ = ack.await?;
                    }
                }
            }
            for ack in acks {
                let _ = ack.await?;
            }
            Ok(())
        })
    }

    /// Sends messages to the present subscribers.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub fn send(&self, messages: impl IntoIterator<Item = NatsMessage>) -> io::Result<()> {
        self.block_on(async |client| {
            for message in messages {
                let (subject, headers) = (message.subject.clone(), headers(&message));
                client.publish_with_headers(subject, headers, message.payload).await?;
            }
            // Its answer comes after the server has taken all.
            let _ = client.request("no.service.listens.here", Bytes::new()).await;
            Ok(())
        })
    }

    /// Receives messages of a subject, until `count` have come. Calls `ready` when the server knows of the
    /// subscription.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub fn receive(&self, subject: &str, count: usize, ready: impl FnOnce()) -> io::Result<Vec<NatsMessage>> {
        self.block_on(async |client| {
            let mut subscriber = client.subscribe(subject.to_owned()).await?;
            let _ = client.request("no.service.listens.here", Bytes::new()).await;
            ready();
            let mut messages = Vec::new();
            while messages.len() < count
                && let Some(message) = subscriber.next().await
            {
                messages.push(taken(&message));
            }
            Ok(messages)
        })
    }

    /// Returns all messages of a stream, in order.
    ///
    /// # Errors
    /// If there is no such stream.
    pub fn messages(&self, stream: &str) -> io::Result<Vec<NatsMessage>> {
        self.block_on(async |client| {
            let stream = jetstream::new(client).get_stream(stream).await?;
            let all = stream.cached_info().state.messages as usize;
            let reader = pull::Config { ack_policy: AckPolicy::None, ..pull::Config::default() };
            let reader = stream.create_consumer(reader).await?;
            let mut messages = Vec::with_capacity(all);
            while messages.len() < all {
                let mut batch = reader.fetch().max_messages(1000).messages().await?;
                while let Some(message) = batch.next().await {
                    messages.push(taken(&message?.message));
                }
            }
            Ok(messages)
        })
    }

    /// Returns how far a consumer of a stream is.
    ///
    /// # Errors
    /// If there is no such stream or consumer.
    pub fn consumer(&self, stream: &str, consumer: &str) -> io::Result<ConsumerState> {
        self.block_on(async |client| {
            let stream = jetstream::new(client).get_stream(stream).await?;
            let info = stream.consumer_info(consumer).await?;
            Ok(ConsumerState {
                pending: info.num_pending,
                ack_pending: info.num_ack_pending as u64,
                ack_floor: info.ack_floor.stream_sequence,
            })
        })
    }

    /// Runs a client of the server on a runtime of its own, so that tests without one can use it.
    fn block_on<T>(
        &self,
        client: impl AsyncFnOnce(async_nats::Client) -> Result<T, async_nats::Error>,
    ) -> io::Result<T> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let address = self.address().to_string();
        let connected = async { client(async_nats::connect(address).await?).await };
        runtime.block_on(connected).map_err(io::Error::other)
    }
}

fn headers(message: &NatsMessage) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in &message.headers {
        headers.append(name.as_str(), value.as_str());
    }
    headers
}

fn taken(message: &async_nats::Message) -> NatsMessage {
    let headers = message.headers.iter().flat_map(HeaderMap::iter);
    let mut headers: Vec<(String, String)> = headers
        .flat_map(|(name, values)| values.iter().map(move |value| (name.to_string(), value.to_string())))
        .collect();
    headers.sort();
    NatsMessage { subject: message.subject.to_string(), headers, payload: message.payload.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn a_server_that_is_killed_comes_back_at_its_address_with_its_messages() {
        let mut nats = Nats::start().unwrap();
        let address = nats.address();
        nats.create_stream("S", &["s.>"]).unwrap();
        let messages =
            [NatsMessage::new("s.a", "first").header("Name", "value"), NatsMessage::new("s.b", "second")];
        nats.store(messages.clone()).unwrap();
        nats.kill().unwrap();
        assert!(TcpStream::connect(address).is_err());
        nats.restart().unwrap();
        assert_eq!(nats.address(), address);
        assert_eq!(nats.messages("S").unwrap(), messages);
        nats.hang().unwrap();
        nats.wake().unwrap();
        nats.delete_stream("S").unwrap();
        assert!(nats.messages("S").is_err());
    }
}

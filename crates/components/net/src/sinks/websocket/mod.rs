//! A server of websockets: whoever connects gets each message from then on.
//!
//! Clients come and go, and look on; so a message is delivered when it was given to those who were there, be it none. Each
//! client has a queue. It holds slices of one copy of each batch, and one that falls behind is dropped, so all queues
//! together hold no more than the longest may be.

mod client;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow_array::Array;
use async_trait::async_trait;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, TimeSpan};
use thalweg_engine::{
    BuildTransform, Context, Error, Mistake, Rejects, Sink, SinkConfig, TransformConfig, WriteOutcome,
};
use thalweg_record::Batch;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::net::{Accepted, Address, Announce, Listener, UnixSocket, defaults};
use client::{Door, serve};
use thalweg_stream::encode::EncodeConfig;

/// How long clients may take at the end to accept what they have not got yet.
const GRACE: Duration = Duration::from_secs(3);

/// How long to wait when the system has no room for another connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Shows messages to the clients of a websocket server.
///
/// Each client that is connected gets each message. A message is delivered when it was given to those who are there;
/// if nobody is, it is delivered too. A client that does not keep up is dropped, and does not hold up the others.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WebsocketConfig {
    /// Where to listen, as `HOST:PORT`. Without a host (`:8081`), on all of the machine's addresses.
    address: String,
    /// The path at which clients connect.
    #[serde(default = "slash")]
    path: String,
    /// The web pages that may connect, as `https://example.com`; `["*"]` allows all. By default only pages of the host
    /// and port that this is itself reached by. Programs that are no browsers are always allowed.
    #[serde(default)]
    origins: Vec<String>,
    /// The form in which messages are sent, for example `json`. By default they are sent as they are.
    #[serde(default)]
    encode: EncodeConfig,
    /// What messages are to a client. Text that is not UTF-8 is sent as binary.
    #[serde(default)]
    kind: Kind,
    /// How long a client may take to ask for the websocket.
    #[serde(default = "three_seconds")]
    handshake_timeout: TimeSpan,
    /// How many clients may be connected.
    #[serde(default = "defaults::connections")]
    #[schemars(range(min = 1))]
    max_clients: usize,
    /// How far a client may be behind. One that is further is dropped.
    #[serde(default = "one_mebibyte")]
    client_buffer: ByteSize,
}

/// What messages are to a client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// Text.
    #[default]
    Text,
    /// Bytes.
    Binary,
}

fn slash() -> String {
    "/".to_owned()
}

fn three_seconds() -> TimeSpan {
    TimeSpan::seconds(3)
}

fn one_mebibyte() -> ByteSize {
    ByteSize::mib(1)
}

impl SinkConfig for WebsocketConfig {
    const NAME: &'static str = "websocket";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { message: '{"id": %6d}', count: 100 } }
pipelines:
  main: { from: messages, to: watchers }
sinks:
  watchers: { websocket: { address: 127.0.0.1:18082, path: /watch } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let of_encode = TransformConfig::check(&self.encode).into_iter();
        let mut mistakes: Vec<_> = of_encode.map(|mistake| Mistake { option: "encode", ..mistake }).collect();
        if let Err(error) = Address::check_host_and_port(&self.address) {
            mistakes
                .push(Mistake::new("address", error.message).help("For example `0.0.0.0:8081`, or `:8081`."));
        }
        if !self.path.starts_with('/') {
            mistakes.push(Mistake::new("path", "A path begins with `/`.").help("For example `/watch`."));
        }
        mistakes
    }

    fn encoder(&self) -> Option<Box<dyn BuildTransform>> {
        self.encode.encoder()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        Ok(Box::new(Websocket::new(self.clone(), Announce::new(&context.name))))
    }
}

/// A client, as the sink sees it.
struct Client {
    queue: UnboundedSender<Message>,
    /// How many bytes are in the queue.
    behind: Arc<AtomicUsize>,
}

/// The clients that are connected.
#[derive(Default)]
struct Clients(Mutex<Vec<Client>>);

impl Clients {
    fn lock(&self) -> MutexGuard<'_, Vec<Client>> {
        // A list is whole whoever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Websocket {
    config: WebsocketConfig,
    announce: Announce,
    clients: Arc<Clients>,
    /// Accepts clients, until the sender is dropped.
    accepting: JoinSet<()>,
    is_open: Option<oneshot::Sender<()>>,
}

impl Websocket {
    fn new(config: WebsocketConfig, announce: Announce) -> Self {
        Self { config, announce, clients: Arc::default(), accepting: JoinSet::new(), is_open: None }
    }

    /// The messages of a batch, as they are sent: slices of one copy of it.
    fn messages(&self, batch: &Batch) -> impl Iterator<Item = Message> + use<> {
        let payload = batch.payload();
        let mut bytes = Vec::with_capacity(batch.payload_bytes());
        let mut ends = Vec::with_capacity(payload.len());
        for row in 0..payload.len() {
            bytes.extend_from_slice(payload.value(row));
            ends.push(bytes.len());
        }
        let (bytes, kind) = (Bytes::from(bytes), self.config.kind);
        let mut start = 0;
        ends.into_iter().map(move |end| {
            let message = bytes.slice(start..end);
            start = end;
            match kind {
                Kind::Binary => Message::Binary(message),
                Kind::Text => match Utf8Bytes::try_from(message.clone()) {
                    Ok(text) => Message::Text(text),
                    Err(_) => Message::Binary(message),
                },
            }
        })
    }
}

#[async_trait]
impl Sink for Websocket {
    async fn open(&mut self, _: Option<serde_json::Value>) -> Result<(), Error> {
        let address = Address::Tcp(self.config.address.clone());
        let listener = Listener::bind(&address, UnixSocket::default(), &self.announce).await?;
        let door = Arc::new(Door {
            path: self.config.path.clone(),
            origins: self.config.origins.clone(),
            timeout: self.config.handshake_timeout.duration(),
        });
        let (is_open, end) = oneshot::channel();
        self.is_open = Some(is_open);
        self.accepting.spawn(accept(listener, door, self.clients.clone(), self.config.max_clients, end));
        Ok(())
    }

    async fn write(&mut self, batch: &Batch, _: &mut Rejects) -> Result<WriteOutcome, Error> {
        if self.clients.lock().is_empty() {
            return Ok(WriteOutcome::Durable);
        }
        let most = self.config.client_buffer.as_usize();
        let messages: Vec<Message> = self.messages(batch).collect();
        self.clients.lock().retain(|client| {
            messages.iter().all(|message| {
                let behind = client.behind.fetch_add(message.len(), Ordering::Relaxed);
                // A message that is larger than the whole queue may be may still be the only one in it.
                (behind == 0 || behind + message.len() <= most) && client.queue.send(message.clone()).is_ok()
            })
        });
        Ok(WriteOutcome::Durable)
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), Error> {
        // Nobody else comes. The clients' queues end; they take what is in them and are closed.
        self.is_open = None;
        let _ = tokio::time::timeout(GRACE, self.accepting.join_next()).await;
        self.accepting.shutdown().await;
        Ok(())
    }
}

/// Accepts clients, up to the end; then waits until those there are have got everything.
async fn accept(
    listener: Listener,
    door: Arc<Door>,
    clients: Arc<Clients>,
    most: usize,
    mut end: oneshot::Receiver<()>,
) {
    let mut served: JoinSet<()> = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut end => break,
            Some(_) = served.join_next() => {}
            accepted = listener.accept(), if served.len() < most => match accepted {
                Ok((Accepted::Tcp(stream), peer)) => {
                    let (door, clients) = (door.clone(), clients.clone());
                    served.spawn(async move {
                        match door.open(stream).await {
                            Ok(socket) => {
                                let (queue, messages) = unbounded_channel();
                                let behind: Arc<AtomicUsize> = Arc::default();
                                clients.lock().push(Client { queue, behind: behind.clone() });
                                serve(socket, messages, &behind).await;
                            }
                            Err(error) => tracing::debug!("{peer}: no websocket: {error}"),
                        }
                    });
                }
                Ok((Accepted::Unix(_), _)) => {}
                Err(error) => {
                    tracing::warn!("cannot accept a websocket: {error}");
                    tokio::time::sleep(PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    clients.lock().clear();
    while served.join_next().await.is_some() {}
}

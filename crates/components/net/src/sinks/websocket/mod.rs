//! A WebSocket server: each connected client receives each message.
//!
//! Clients come and go, and only observe. Therefore a message is delivered once it is queued for the clients
//! connected at that time, even if there are none. Each client has a queue of slices of one copy of each
//! batch. A client that falls behind is disconnected. Thus all queues together hold no more than the maximum
//! of one queue.

mod client;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, List, TimeSpan};
use thalweg_engine::{
    Claim, Component, Context, Error, Mistake, Rejects, Sink, SinkConfig, TransformConfig, WriteOutcome,
};
use thalweg_record::Batch;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;

use crate::net::{Accepted, Address, Announce, Listener, UnixSocket, defaults};
use crate::websocket::{Kind, frames};
use client::{Handshake, serve};
use thalweg_stream::encode::EncodeConfig;

/// How long clients may take at the end to accept the messages left in their queues.
const GRACE: Duration = Duration::from_secs(3);

/// How long to wait after the system could not accept a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Shows messages to the clients of a WebSocket server.
///
/// Each connected client receives each message. A message is delivered once it is queued for the connected
/// clients, even if there are none. A client that does not keep up is disconnected; it does not slow down the
/// other clients.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WebsocketConfig {
    /// The address to listen on, as `HOST:PORT`. Without a host (`:8081`), the sink listens on all addresses
    /// of the machine.
    address: String,
    /// The path at which clients connect. Requests with another path are answered with 404.
    #[serde(default = "slash")]
    path: String,
    /// The origins of web pages that may connect, as `https://example.com`; `["*"]` allows all. By default
    /// only pages from the server's own host and port may connect. Clients that send no `Origin` header, that
    /// is programs other than browsers, may always connect.
    #[serde(default)]
    origins: List<String>,
    /// The format in which messages are sent, for example `json`. By default the payload is sent unchanged.
    #[serde(default)]
    encode: EncodeConfig,
    /// The type of the WebSocket messages. The default is `text`. Text that is not UTF-8 is sent as binary.
    #[serde(default)]
    kind: Kind,
    /// How long a client may take for the WebSocket handshake.
    #[serde(default = "three_seconds")]
    handshake_timeout: TimeSpan,
    /// The largest number of connected clients. Further clients wait until another one disconnects.
    #[serde(default = "defaults::connections")]
    #[schemars(range(min = 1))]
    max_clients: usize,
    /// How many bytes may wait for a client. A client with more is disconnected.
    #[serde(default = "one_mebibyte")]
    max_client_bytes: ByteSize,
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

impl Component for WebsocketConfig {
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
        let mut mistakes = self.encode.mistakes();
        if let Err(error) = Address::check_host_and_port(&self.address) {
            mistakes
                .push(Mistake::new("address", error.message).help("For example `0.0.0.0:8081`, or `:8081`."));
        }
        if !self.path.starts_with('/') {
            mistakes.push(Mistake::new("path", "A path begins with `/`.").help("For example `/watch`."));
        }
        mistakes
    }
}

impl SinkConfig for WebsocketConfig {
    fn encoder(&self) -> Option<Box<dyn TransformConfig>> {
        self.encode.encoder()
    }

    fn claims(&self) -> Vec<Claim> {
        Claim::port("address", "tcp", &self.address).into_iter().collect()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        Ok(Box::new(Websocket::new(self.clone(), Announce::new(&context.name))))
    }
}

/// The sink's handle of a client.
struct Client {
    queue: UnboundedSender<Message>,
    /// The number of bytes in the queue.
    behind: Arc<AtomicUsize>,
}

/// The connected clients; `None` after the end.
struct Clients(Mutex<Option<Vec<Client>>>);

impl Clients {
    fn lock(&self) -> MutexGuard<'_, Option<Vec<Client>>> {
        // A panic cannot leave the list half-changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a client. A handshake may complete after the end: the queue of such a client ends at once.
    fn add(&self, client: Client) {
        if let Some(clients) = &mut *self.lock() {
            clients.push(client);
        }
    }

    /// Returns the number of connected clients.
    fn count(&self) -> usize {
        self.lock().as_ref().map_or(0, Vec::len)
    }

    /// Ends the queues of all clients, and of those whose handshake completes later.
    fn end(&self) {
        *self.lock() = None;
    }
}

struct Websocket {
    config: WebsocketConfig,
    announce: Announce,
    clients: Arc<Clients>,
    /// The task that accepts clients until `is_open` is dropped.
    accepting: JoinSet<()>,
    is_open: Option<oneshot::Sender<()>>,
}

impl Websocket {
    fn new(config: WebsocketConfig, announce: Announce) -> Self {
        let clients = Arc::new(Clients(Mutex::new(Some(Vec::new()))));
        Self { config, announce, clients, accepting: JoinSet::new(), is_open: None }
    }
}

#[async_trait]
impl Sink for Websocket {
    async fn open(&mut self, _: Option<serde_json::Value>) -> Result<(), Error> {
        let address = Address::Tcp(self.config.address.clone());
        let listener = Listener::bind(&address, UnixSocket::default(), &self.announce).await?;
        let handshake = Arc::new(Handshake {
            path: self.config.path.clone(),
            origins: self.config.origins.to_vec(),
            timeout: self.config.handshake_timeout.duration(),
        });
        let (is_open, end) = oneshot::channel();
        self.is_open = Some(is_open);
        self.accepting.spawn(accept(listener, handshake, self.clients.clone(), self.config.max_clients, end));
        Ok(())
    }

    async fn write(&mut self, batch: &Batch, _: &mut Rejects) -> Result<WriteOutcome, Error> {
        if self.clients.count() == 0 {
            return Ok(WriteOutcome::Durable);
        }
        let most = self.config.max_client_bytes.as_usize();
        let messages: Vec<Message> = frames(batch, self.config.kind).collect();
        let keeps_up = |client: &Client| {
            messages.iter().all(|message| {
                let behind = client.behind.fetch_add(message.len(), Ordering::Relaxed);
                // A message larger than `max_client_bytes` is accepted if the queue is empty.
                (behind == 0 || behind + message.len() <= most) && client.queue.send(message.clone()).is_ok()
            })
        };
        if let Some(clients) = &mut *self.clients.lock() {
            clients.retain(keeps_up);
        }
        Ok(WriteOutcome::Durable)
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), Error> {
        // No further client is accepted. The queues end; clients receive the rest and are disconnected.
        self.is_open = None;
        let _ = tokio::time::timeout(GRACE, self.accepting.join_next()).await;
        self.accepting.shutdown().await;
        Ok(())
    }
}

/// Accepts clients until `end`. Then waits until the connected clients have received everything.
async fn accept(
    listener: Listener,
    handshake: Arc<Handshake>,
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
                Ok((Accepted::Tcp(stream), peer, _)) => {
                    let (handshake, clients) = (handshake.clone(), clients.clone());
                    served.spawn(async move {
                        match handshake.perform(stream).await {
                            Ok(socket) => {
                                let (queue, messages) = unbounded_channel();
                                let behind: Arc<AtomicUsize> = Arc::default();
                                clients.add(Client { queue, behind: behind.clone() });
                                serve(socket, messages, &behind).await;
                            }
                            Err(error) => tracing::debug!("{peer}: no websocket: {error}"),
                        }
                    });
                }
                Ok((Accepted::Unix(_), ..)) => {}
                Err(error) => {
                    tracing::warn!("cannot accept a websocket: {error}");
                    tokio::time::sleep(PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    clients.end();
    while served.join_next().await.is_some() {}
}

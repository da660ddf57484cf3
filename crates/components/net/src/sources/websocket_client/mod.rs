//! `websocket_client`: messages from a WebSocket server.
//!
//! WebSocket has no positions and no acknowledgements: a message comes once. So there is no checkpoint. A
//! connection that ends is opened again by the engine's retries, whose pauses grow while nothing comes.
//!
//! Memory for a message is reserved before it is waited for. It arrives in the buffer of the connection,
//! since its size is known only then.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::FutureExt;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, TimeSpan};
use thalweg_engine::{
    Component, Context, Endless, Error, KnownFields, Mistake, Reading, Source, SourceConfig, SourceOutput,
};
use thalweg_stream::whole::Whole;
use tokio::time::Instant;

use crate::net::{defaults, until};
use crate::websocket::{ClientOptions, Connect, Socket};

/// The memory that is waited for before a message, in bytes.
const LEAST: usize = 16 << 10;

/// The most messages that are sent together.
const MOST: usize = 4096;

/// Receives messages from a WebSocket server.
///
/// Each text or binary message of the server is a message. `meta.path` is the URL without its query. When the
/// connection ends, the source connects again, with pauses that grow to 10 s while no message comes. An
/// answer to the handshake that is not for now (429, 408, 500 and above) is repeated too; any other one ends
/// the run with an error. Redirections are not followed.
///
/// WebSocket has no acknowledgements. Messages are lost that the server sends while the source is not
/// connected, or that are on their way when the run is killed. While the memory is full, the source reads
/// nothing, and so answers no ping: a server may then end the connection.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WebsocketClientSource {
    #[serde(flatten)]
    client: ClientOptions,
    /// The largest message, in bytes. A larger one ends the connection, which is opened again: the rest of it
    /// cannot be skipped. While a message arrives, it takes memory beside `memory`.
    #[serde(default = "defaults::limit")]
    max_message_bytes: ByteSize,
    /// End the source after this time without messages. Time in which messages are delivered too slowly for
    /// more to be read does not count. By default it listens until the run is stopped.
    #[serde(default)]
    end_after_idle: Option<TimeSpan>,
}

impl Component for WebsocketClientSource {
    const NAME: &'static str = "websocket_client";
    const EXAMPLE: &'static str = r#"
# Runs until it is stopped.
sources:
  ticks:
    websocket_client:
      url: "wss://stream.example.com/ticks"
      send: '{"subscribe": "ticks"}'

pipelines:
  main: { from: ticks, to: all }

sinks:
  all: { file: { path: out/ticks.jsonl } }
"#;

    fn check(&self) -> Vec<Mistake> {
        self.client.check()
    }
}

impl SourceConfig for WebsocketClientSource {
    fn endless(&self) -> Option<Endless> {
        Endless::unless("end_after_idle", self.end_after_idle.is_some())
    }

    fn fields(&self) -> KnownFields {
        KnownFields::none()
    }

    fn blocks(&self) -> bool {
        false
    }

    fn resends(&self) -> bool {
        false
    }

    fn starts_over(&self) -> bool {
        false
    }

    fn has_growing_positions(&self) -> bool {
        false
    }

    fn remarks(&self) -> Vec<Mistake> {
        self.client.remarks()
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(Listening { config: self.clone(), connect: None, last_message: None }))
    }
}

struct Listening {
    config: WebsocketClientSource,
    connect: Option<Connect>,
    /// When a message came last, or the source began.
    last_message: Option<Instant>,
}

#[async_trait]
impl Source for Listening {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let connect = match self.connect.take() {
            Some(connect) => connect,
            None => self.config.client.prepare(self.config.max_message_bytes.as_usize())?,
        };
        self.last_message.get_or_insert_with(Instant::now);
        let listened = self.listen(&connect, out).await;
        // The engine runs the source again after a temporary error.
        self.connect = Some(connect);
        listened
    }
}

impl Listening {
    /// Connects, and sends messages until the connection ends.
    async fn listen(&mut self, connect: &Connect, out: &mut SourceOutput) -> Result<(), Error> {
        let mut socket = tokio::select! {
            biased;
            () = out.stopping() => return Ok(()),
            socket = connect.connect() => socket?,
            () = until(self.end()) => return Ok(()),
        };
        let path: Arc<str> = connect.path().into();
        loop {
            let begun = Instant::now();
            tokio::select! {
                biased;
                () = out.stopping() => break,
                memory = out.reserve(LEAST) => drop(memory),
            }
            // Messages that came meanwhile were not read: neither the server nor the source was idle.
            let waited = begun.elapsed();
            socket.excuse(waited);
            self.last_message = self.last_message.map(|last| last + waited);
            let first = tokio::select! {
                biased;
                () = out.stopping() => break,
                message = socket.hear() => message?,
                () = until(self.end()) => break,
            };
            let (messages, ended) = ready(&mut socket, first, out);
            let begun = Instant::now();
            self.send(&messages, &path, out).await?;
            socket.excuse(begun.elapsed());
            self.last_message = Some(Instant::now());
            if let Some(error) = ended {
                return Err(error);
            }
        }
        socket.close().await;
        Ok(())
    }

    /// Returns when the source ends if no message comes.
    fn end(&self) -> Option<Instant> {
        Some(self.last_message? + self.config.end_after_idle?.duration())
    }

    async fn send(&self, messages: &[Bytes], path: &Arc<str>, out: &mut SourceOutput) -> Result<(), Error> {
        let _held = out.claim(messages.iter().map(Bytes::len).sum());
        let texts: Vec<&[u8]> = messages.iter().map(|message| &**message).collect();
        let payload = Whole::new(self.config.max_message_bytes).payload(&texts, out).await;
        out.send(Reading { payload, path: Some(path.clone()), positions: None, checkpoint: None }).await
    }
}

/// Returns a message, and those that have come by now. Also the error if the connection has ended.
fn ready(socket: &mut Socket, first: Bytes, out: &SourceOutput) -> (Vec<Bytes>, Option<Error>) {
    let mut bytes = first.len();
    let mut messages = vec![first];
    while bytes < out.batch_bytes() && messages.len() < out.next_rows().min(MOST) {
        match socket.hear().now_or_never() {
            None => break,
            Some(Ok(message)) => {
                bytes += message.len();
                messages.push(message);
            }
            Some(Err(error)) => return (messages, Some(error)),
        }
    }
    (messages, None)
}

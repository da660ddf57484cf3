//! `websocket_client`: messages to a WebSocket server.
//!
//! A task holds the connection: it answers pings, and notices a connection that ends, also while there is
//! nothing to send. A write hands its frames to the task and waits until the system has taken them. The
//! alternative, to read the connection only during writes, was rejected: servers close connections whose
//! pings are not answered, and what is written into one that was closed is lost without a sign.

#[cfg(test)]
mod tests;

use std::time::Duration;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::TimeSpan;
use thalweg_engine::{
    Component, Context, Error, Mistake, Rejects, Sink, SinkConfig, TransformConfig, WriteOutcome,
};
use thalweg_record::Batch;
use thalweg_stream::encode::EncodeConfig;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;

use crate::give_up::GiveUp;
use crate::websocket::{ClientOptions, Connect, Kind, Socket, frames};

/// How long the connection may take to end: longer than the server may take to answer.
const GRACE: Duration = Duration::from_secs(5);

/// The largest message that is accepted from the server, in bytes. Its content is ignored.
const MOST_HEARD: usize = 1 << 20;

/// Sends messages to a WebSocket server.
///
/// Each message is one of the server. WebSocket has no acknowledgements: a message counts as delivered when
/// the system has taken it. Messages that the server had not read when the connection broke are lost without
/// a sign. When the connection ends during a write, the sink connects again and sends the whole batch again.
/// At the end of the run, the server has 3 s to read what is left and to answer the close. Messages of the
/// server are ignored.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WebsocketClientSink {
    #[serde(flatten)]
    client: ClientOptions,
    /// The format in which messages are sent, for example `json`. By default the payload is sent unchanged.
    #[serde(default)]
    encode: EncodeConfig,
    /// The type of the WebSocket messages. The default is `text`. Text that is not UTF-8 is sent as binary.
    #[serde(default)]
    kind: Kind,
    /// After the server has been failing for this time, the messages of a batch leave by `errors`. The time
    /// counts from the first attempt that fails. By default messages wait for as long as it takes.
    #[serde(default)]
    give_up: Option<TimeSpan>,
}

impl Component for WebsocketClientSink {
    const NAME: &'static str = "websocket_client";
    const EXAMPLE: &'static str = r#"
# Runs until it is stopped.
sources:
  load: { exec: { command: [cat, /proc/loadavg], every: 10s } }

pipelines:
  main: { from: load, to: monitor }

sinks:
  monitor: { websocket_client: { url: "wss://monitor.example.com/in" } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.client.check();
        mistakes.extend(self.encode.mistakes());
        mistakes
    }
}

impl SinkConfig for WebsocketClientSink {
    fn encoder(&self) -> Option<Box<dyn TransformConfig>> {
        self.encode.encoder()
    }

    fn remarks(&self) -> Vec<Mistake> {
        self.client.remarks()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        Ok(Box::new(Sending {
            name: context.name.clone(),
            config: self.clone(),
            connect: None,
            link: None,
            give_up: GiveUp::after(self.give_up),
        }))
    }
}

struct Sending {
    name: String,
    config: WebsocketClientSink,
    connect: Option<Connect>,
    link: Option<Link>,
    give_up: GiveUp,
}

/// The task that holds a connection.
struct Link {
    orders: mpsc::Sender<Order>,
    /// The task. It ends when `orders` is dropped, and with this set.
    task: JoinSet<Error>,
}

/// Frames to write. `done` is dropped if the connection ends before that.
struct Order {
    frames: Vec<Message>,
    done: oneshot::Sender<()>,
}

impl Link {
    fn new(socket: Socket) -> Self {
        let (orders, taken) = mpsc::channel(1);
        let mut task = JoinSet::new();
        task.spawn(keep(socket, taken));
        Self { orders, task }
    }

    /// True if the connection has not ended, as far as is known.
    fn is_open(&self) -> bool {
        !self.orders.is_closed()
    }

    /// Writes frames. Returns false if the connection has ended.
    async fn write(&mut self, frames: Vec<Message>) -> bool {
        let (done, written) = oneshot::channel();
        self.orders.send(Order { frames, done }).await.is_ok() && written.await.is_ok()
    }

    /// Returns why the connection has ended.
    async fn reason(mut self) -> Error {
        match self.task.join_next().await {
            Some(Ok(error)) => error,
            _ => Error::temporary("the connection has ended"),
        }
    }

    /// Ends the connection.
    async fn end(self) {
        let Self { orders, mut task } = self;
        drop(orders);
        let _ = tokio::time::timeout(GRACE, task.join_next()).await;
    }
}

/// Holds a connection until it ends, or no frames can come any more. Returns why it ended.
async fn keep(mut socket: Socket, mut orders: mpsc::Receiver<Order>) -> Error {
    loop {
        tokio::select! {
            order = orders.recv() => {
                let Some(Order { frames, done }) = order else {
                    socket.finish().await;
                    return Error::temporary("the connection was closed");
                };
                if let Err(error) = socket.write(frames).await {
                    return error;
                }
                // The sink may have given the batch up.
                let _ = done.send(());
            }
            heard = socket.hear() => {
                if let Err(error) = heard {
                    return error;
                }
            }
        }
    }
}

impl Sending {
    /// Returns the open connection, or a new one.
    async fn link(&mut self) -> Result<Link, Error> {
        if let Some(link) = self.link.take() {
            if link.is_open() {
                return Ok(link);
            }
            let reason = link.reason().await.full();
            tracing::debug!("`{}`: {reason}; it is connected again", self.name);
        }
        match &self.connect {
            Some(connect) => Ok(Link::new(connect.connect().await?)),
            None => Err(Error::permanent("the sink `websocket_client` was not opened")),
        }
    }

    async fn send(&mut self, batch: &Batch) -> Result<(), Error> {
        let mut link = self.link().await?;
        if !link.write(frames(batch, self.config.kind).collect()).await {
            return Err(link.reason().await);
        }
        self.link = Some(link);
        Ok(())
    }
}

#[async_trait]
impl Sink for Sending {
    async fn open(&mut self, _: Option<serde_json::Value>) -> Result<(), Error> {
        self.connect = Some(self.config.client.prepare(MOST_HEARD)?);
        Ok(())
    }

    async fn write(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<WriteOutcome, Error> {
        self.give_up.attempt();
        if let Err(error) = self.send(batch).await {
            let reason = self.give_up.refusal(error)?;
            for row in 0..u32::try_from(batch.rows()).unwrap_or(u32::MAX) {
                rejects.reject(row, reason.clone());
            }
        }
        self.give_up.end();
        Ok(WriteOutcome::Durable)
    }

    fn drop_batch(&mut self) {
        self.give_up.end();
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), Error> {
        if let Some(link) = self.link.take() {
            link.end().await;
        }
        Ok(())
    }
}

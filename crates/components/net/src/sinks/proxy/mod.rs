//! Passes messages to a server, and its answers back to the clients that sent the messages.
//!
//! `meta.path` identifies the connection of a message: see `crate::replies`. A server answers in the order of
//! the requests, so each message is sent after the previous one was answered. A late answer would be mistaken
//! for the answer to the next message. Therefore a connection with a missing answer, or with bytes after an
//! answer, is closed.

#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, TimeSpan};
use thalweg_engine::{Component, Context, Error, Mistake, Rejects, Sink, SinkConfig, WriteOutcome};
use thalweg_record::Batch;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout_at};

use crate::net::{Address, Dial, DialOptions, Stream, defaults, net_error};
use crate::progress::Progress;
use crate::replies;
use thalweg_codec::framing::After;
use thalweg_codec::stream_framing::{StreamCutter, StreamFraming};

/// How many bytes of an answer are read at once.
const PIECE: usize = 16 << 10;

/// Passes messages to a server, and its answers back to the clients of a source `proxy`.
///
/// Messages are written unchanged. A message is delivered when the server has answered it. If the answer does
/// not arrive in time, the message leaves by `errors`, since the server may or may not have processed it.
/// Answers are dropped if their message does not come from a source `proxy`, or if its client has
/// disconnected.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProxyConfig {
    /// The address of the server: `tcp://HOST:PORT` or `unix:///PATH`.
    address: Address,
    /// How the server's stream is cut into answers. By default each line is an answer. Answers keep their
    /// delimiter or length, unless `whole` is `false`.
    #[serde(default)]
    framing: StreamFraming,
    /// The largest answer, in bytes. After a larger one, its message leaves by `errors`.
    #[serde(default = "defaults::limit")]
    max_answer_bytes: ByteSize,
    /// How long the server may take to answer. After that the message leaves by `errors`.
    #[serde(default = "defaults::one_second")]
    timeout: TimeSpan,
    #[serde(flatten)]
    dial: DialOptions,
}

impl Component for ProxyConfig {
    const NAME: &'static str = "proxy";
    const EXAMPLE: &'static str = r#"
sources:
  clients: { proxy: { address: tcp://127.0.0.1:15885, end_after_idle: 100ms } }
pipelines:
  main: { from: clients, to: server }
sinks:
  server: { proxy: { address: tcp://127.0.0.1:15886, timeout: 5s } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.framing.check(self.max_answer_bytes);
        if !self.address.is_stream() {
            let mistake = Mistake::new("address", "A proxy needs connections, which datagrams do not have.");
            mistakes.push(mistake.help("Use `tcp://` or `unix://`."));
        }
        if self.framing.start_pattern.is_some() {
            let mistake =
                Mistake::new("framing", "The end of an answer with several lines cannot be detected.");
            mistakes.push(mistake.help("Leave out `start_pattern`."));
        }
        mistakes.extend(self.dial.check(&self.address));
        mistakes
    }
}

impl SinkConfig for ProxyConfig {
    fn build(&self, _: &Context) -> Result<Box<dyn Sink>, Error> {
        Ok(Box::new(Proxy { config: self.clone(), dial: None, talk: None, progress: Progress::default() }))
    }
}

struct Proxy {
    config: ProxyConfig,
    dial: Option<Dial>,
    talk: Option<Talk>,
    progress: Progress,
}

/// A connection to the server.
struct Talk {
    stream: Stream,
    partitioner: StreamCutter,
    /// Bytes read and not yet used.
    read: Vec<u8>,
}

#[async_trait]
impl Sink for Proxy {
    async fn open(&mut self, _: Option<serde_json::Value>) -> Result<(), Error> {
        self.dial = Some(Dial::of(&self.config.address, &self.config.dial)?);
        Ok(())
    }

    async fn write(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<WriteOutcome, Error> {
        let Some(dial) = &self.dial else {
            return Err(Error::permanent("the sink `proxy` was not opened"));
        };
        let config = &self.config;
        self.progress.begin(batch.payload());
        for row in 0..batch.rows() {
            if self.progress.is_done(row) {
                continue;
            }
            // Put back only after success: a connection with a missing answer cannot be reused.
            let mut talk = match self.talk.take() {
                // Bytes after an answer belong to no message, so such a connection cannot be reused either.
                Some(mut talk) => match talk.read.is_empty() && talk.stream.is_silent().await {
                    true => talk,
                    false => Talk::begin(dial, config).await?,
                },
                None => Talk::begin(dial, config).await?,
            };
            match talk.ask(batch.payload().value(row), config.timeout.duration()).await {
                Ok(answer) => {
                    if let Some(path) = batch.meta().path.as_deref() {
                        // The client may have disconnected.
                        replies::answer(path, answer);
                    }
                    self.progress.done(row);
                    self.talk = Some(talk);
                }
                Err(error) if error.kind() == ErrorKind::TimedOut => {
                    let reason = format!("`{}` did not answer within {}", config.address, config.timeout);
                    self.progress.reject(row, reason);
                }
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    let reason = format!("the answer of `{}` cannot be parsed: it {error}", config.address);
                    self.progress.reject(row, reason);
                }
                Err(error) => return Err(net_error("get an answer from", &config.address, &error)),
            }
        }
        for (row, reason) in self.progress.finish() {
            rejects.reject(row, reason);
        }
        Ok(WriteOutcome::Durable)
    }

    fn drop_batch(&mut self) {
        self.progress.forget();
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

impl Talk {
    async fn begin(dial: &Dial, config: &ProxyConfig) -> Result<Self, Error> {
        let partitioner = config.framing.begin(config.max_answer_bytes, true);
        Ok(Self { stream: dial.connect().await?, partitioner, read: Vec::new() })
    }

    /// Sends a message and waits for its answer.
    async fn ask(&mut self, message: &[u8], limit: Duration) -> io::Result<Bytes> {
        let end = Instant::now() + limit;
        self.stream.write_within(message, limit).await?;
        let invalid = |reason: String| io::Error::new(ErrorKind::InvalidData, reason);
        loop {
            if let Some(piece) = self.partitioner.next(&self.read, After::More).map_err(invalid)? {
                if piece.too_long {
                    return Err(invalid("is longer than `max_answer_bytes`".to_owned()));
                }
                let answer = Bytes::copy_from_slice(self.read.get(piece.range).unwrap_or_default());
                self.read.drain(..self.partitioner.advance());
                return Ok(answer);
            }
            self.read.drain(..self.partitioner.advance());
            self.read.reserve(PIECE);
            match timeout_at(end, self.stream.read_buf(&mut self.read)).await {
                Ok(Ok(0)) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => read?,
                Err(_) => return Err(ErrorKind::TimedOut.into()),
            };
        }
    }
}

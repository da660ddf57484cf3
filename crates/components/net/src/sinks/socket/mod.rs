//! Writes messages to a socket.
//!
//! On a stream without acknowledgements, a message is delivered once the system has accepted it. Bytes in
//! transit are lost silently if the connection breaks. The sink checks before each write whether the peer has
//! closed the connection.
//!
//! With acknowledgements, those of the messages are counted while the batch is still being written: a peer
//! whose answers are not read stops reading, too. The answers have the order of the messages, so after an
//! error the sink resends the batch from the first message without an answer: at once if others were
//! answered, otherwise when the engine asks for it.

#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind};

use arrow_array::{Array, BinaryViewArray};
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, TimeSpan};
use thalweg_engine::{
    Component, Context, Error, Mistake, Rejects, Sink, SinkConfig, TransformConfig, WriteOutcome,
};
use thalweg_record::{Batch, payload_runs};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{UdpSocket, UnixDatagram};
use tokio::time::timeout;

use crate::net::{Address, Dial, DialOptions, Stream, connect_udp, defaults, net_error};
use crate::progress::{PAUSE, Progress};
use thalweg_codec::framing::Delimiter;
use thalweg_codec::protobuf::write::varint;
use thalweg_stream::encode::EncodeConfig;

/// A message of at least this many bytes is written directly. Copying shorter ones is cheaper than a system
/// call each.
const DIRECT: usize = 16 << 10;

/// How many bytes of acknowledgements are read at once.
const ACKS: usize = 16 << 10;

/// The largest UDP datagram, in bytes.
const LARGEST_UDP: usize = 65_507;

/// Writes messages to a socket: TCP, UDP or a unix socket.
///
/// If the connection breaks, the sink reconnects and sends the messages not written yet. Messages that the
/// peer had not read are lost, unless it acknowledges them: with `acknowledge`, everything unacknowledged is
/// resent. A datagram is one message, and its arrival is never confirmed.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SocketConfig {
    /// The address to connect to: `tcp://HOST:PORT`, `udp://HOST:PORT`, `unix:///PATH` (a stream) or
    /// `unixgram:///PATH` (datagrams).
    address: Address,
    /// The format in which messages are written, for example `json`. By default the payload is written
    /// unchanged.
    #[serde(default)]
    encode: EncodeConfig,
    /// How messages are separated in a stream. By default each ends with a line feed.
    #[serde(default)]
    framing: Framing,
    /// The text that the peer writes for each message once it has stored it, for example `"OK\n"`, as the
    /// source `socket` does with the same option. Not for datagrams. By default no acknowledgement is
    /// expected.
    #[serde(default)]
    acknowledge: String,
    /// The unit that the peer acknowledges with one text: each `message` (the default), or each `batch`, for
    /// servers that answer once to everything they have read. With `batch` and a server that answers each
    /// message, messages are lost if the server fails.
    #[serde(default)]
    acknowledge_per: AcknowledgePer,
    /// How long to wait for the next acknowledgement. After that, what is not acknowledged is resent over a
    /// new connection.
    #[serde(default = "defaults::half_a_minute")]
    acknowledge_timeout: TimeSpan,
    /// How long the peer may take to accept a batch. After that the batch is resent over a new connection.
    #[serde(default = "defaults::half_a_minute")]
    write_timeout: TimeSpan,
    #[serde(flatten)]
    dial: DialOptions,
}

/// How messages are separated in a stream.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Framing {
    /// The method of separation. The default is `delimiter`.
    by: By,
    /// The bytes written after each message; with `by: ascii`, between the length and the message. The
    /// escapes `\n`, `\r`, `\t`, `\0`, `\\` and `\xHH` are understood.
    delimiter: Delimiter,
    /// With binary lengths: the number of bytes of a length, 1, 2, 4 or 8. The default is 4.
    size: Option<ByteSize>,
}

/// The method of separation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum By {
    /// `delimiter` follows each message.
    #[default]
    Delimiter,
    /// The length as text, then `delimiter`, precede each message.
    Ascii,
    /// The length as a binary number precedes each message, lowest byte first.
    BinaryLe,
    /// The length as a binary number precedes each message, highest byte first.
    BinaryBe,
    /// The length as an integer of variable length precedes each message, as Protocol Buffers write a stream
    /// of messages.
    Varint,
    /// No separation: messages are written back to back.
    None,
}

/// The unit that a peer acknowledges with one text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum AcknowledgePer {
    /// Each message.
    #[default]
    Message,
    /// All messages that the sink writes together.
    Batch,
}

impl Component for SocketConfig {
    const NAME: &'static str = "socket";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { lines: ["Hello!", "Goodbye!"], count: 2 } }
  received: { socket: { address: tcp://127.0.0.1:15881, acknowledge: "OK\n", end_after_idle: 1s } }
pipelines:
  away: { from: messages, to: other }
  back: { from: received, to: all }
sinks:
  other: { socket: { address: tcp://127.0.0.1:15881, acknowledge: "OK\n" } }
  all: { file: { path: out/received.log } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.encode.mistakes();
        if !self.address.is_stream() && !self.acknowledge.is_empty() {
            let mistake = Mistake::new("acknowledge", "Datagrams are not acknowledged.");
            mistakes.push(mistake.help("Leave it out, or use `tcp://` or `unix://`."));
        }
        if self.acknowledge.is_empty() && self.acknowledge_per != AcknowledgePer::default() {
            let mistake = Mistake::new("acknowledge_per", "Nothing is acknowledged.");
            mistakes.push(mistake.help("Give `acknowledge` as well, or leave it out."));
        }
        if !self.address.is_stream() && self.framing.by != By::default() {
            let mistake = Mistake::new("framing", "Each datagram is one message.");
            mistakes.push(mistake.help("Leave it out, or use `tcp://` or `unix://`."));
        }
        let is_binary = matches!(self.framing.by, By::BinaryLe | By::BinaryBe);
        match self.framing.size.map(ByteSize::bytes) {
            Some(_) if !is_binary => {
                mistakes.push(Mistake::new("framing", "`size` is for binary lengths.").help("Leave it out."));
            }
            None | Some(1 | 2 | 4 | 8) => {}
            Some(_) => mistakes.push(Mistake::new("framing", "A length has 1, 2, 4 or 8 bytes.")),
        }
        mistakes.extend(self.dial.check(&self.address));
        mistakes
    }
}

impl SinkConfig for SocketConfig {
    fn encoder(&self) -> Option<Box<dyn TransformConfig>> {
        self.encode.encoder()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        Ok(match self.address.is_stream() {
            true => Box::new(ToStream {
                name: context.name.clone(),
                config: self.clone(),
                dial: None,
                stream: None,
                gathered: Vec::new(),
                progress: Progress::default(),
            }),
            false => Box::new(ToDatagrams {
                address: self.address.clone(),
                socket: None,
                progress: Progress::default(),
            }),
        })
    }
}

/// Writes to a stream.
struct ToStream {
    name: String,
    config: SocketConfig,
    dial: Option<Dial>,
    stream: Option<Stream>,
    gathered: Vec<u8>,
    /// The messages of the batch that are acknowledged or rejected.
    progress: Progress,
}

#[async_trait]
impl Sink for ToStream {
    async fn open(&mut self, _: Option<serde_json::Value>) -> Result<(), Error> {
        self.dial = Some(Dial::of(&self.config.address, &self.config.dial)?);
        Ok(())
    }

    async fn write(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<WriteOutcome, Error> {
        self.progress.begin(batch.payload());
        while let Err(error) = self.write_rest(batch).await {
            if !self.progress.has_advanced() || !error.kind().is_temporary() {
                return Err(error);
            }
            tracing::warn!("`{}`: the rest of a batch is sent again: {}", self.name, error.full());
            tokio::time::sleep(PAUSE).await;
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

    async fn finish(&mut self) -> Result<(), Error> {
        if let Some(mut stream) = self.stream.take() {
            // Everything was written; the peer may already have disconnected.
            let _ = timeout(self.config.write_timeout.duration(), stream.shutdown()).await;
        }
        Ok(())
    }
}

impl ToStream {
    /// Sends the messages of a batch from the first that is not done, over one connection.
    async fn write_rest(&mut self, batch: &Batch) -> Result<(), Error> {
        let first = self.progress.first();
        let payload = batch.payload().slice(first, batch.rows() - first);
        let mut sent = Vec::new();
        for row in 0..payload.len() {
            match self.config.framing.objection(payload.value(row).len()) {
                Some(reason) => self.progress.reject(first + row, reason),
                None => sent.push(first + row),
            }
        }
        // Put back only after success: a connection with a partly written batch cannot be reused.
        let mut stream = self.connected().await?;
        let acks = Acks { config: &self.config, sent: &sent, progress: &mut self.progress };
        let (read, mut write) = tokio::io::split(&mut stream);
        let gathered = &mut self.gathered;
        tokio::try_join!(write_all(&self.config, &payload, gathered, &mut write), acks.read(read))?;
        self.stream = Some(stream);
        Ok(())
    }

    /// Returns the open connection, or a new one.
    async fn connected(&mut self) -> Result<Stream, Error> {
        let Some(dial) = &self.dial else {
            return Err(Error::permanent("the sink `socket` was not opened"));
        };
        if let Some(mut stream) = self.stream.take() {
            // Bytes after the last acknowledgement would be counted for the next message.
            let is_usable = match self.config.acknowledge.is_empty() {
                true => !stream.is_closed().await,
                false => stream.is_silent().await,
            };
            if is_usable {
                return Ok(stream);
            }
        }
        dial.connect().await
    }
}

/// Writes messages within the time limit.
async fn write_all(
    config: &SocketConfig,
    payload: &BinaryViewArray,
    gathered: &mut Vec<u8>,
    stream: &mut (impl AsyncWrite + Unpin),
) -> Result<(), Error> {
    let address = &config.address;
    gathered.clear();
    let write = config.framing.write(payload, gathered, stream);
    match timeout(config.write_timeout.duration(), write).await {
        Ok(written) => written.map_err(|error| net_error("write to", address, &error)),
        Err(_) => Err(Error::overloaded(format!("`{address}` did not accept a batch in time"))),
    }
}

/// The acknowledgements of a batch.
struct Acks<'a> {
    config: &'a SocketConfig,
    /// The rows that are sent.
    sent: &'a [usize],
    progress: &'a mut Progress,
}

impl Acks<'_> {
    /// Reads them, and marks the acknowledged messages as done.
    async fn read(self, mut stream: impl AsyncRead + Unpin) -> Result<(), Error> {
        let text = self.config.acknowledge.as_bytes();
        if text.is_empty() {
            return Ok(());
        }
        let mut rows = match self.config.acknowledge_per {
            AcknowledgePer::Message => self.sent.chunks(1),
            AcknowledgePer::Batch => self.sent.chunks(self.sent.len().max(1)),
        };
        let (mut read, limit) = (Vec::new(), self.config.acknowledge_timeout.duration());
        while rows.len() > 0 {
            // No more than is due, so that what a peer writes beyond that is noticed before the next batch.
            let missing = (rows.len() * text.len() - read.len()).min(ACKS);
            let mut limited = (&mut stream).take(missing as u64);
            match timeout(limit, limited.read_buf(&mut read)).await {
                Ok(Ok(0)) => return Err(self.unread(&ErrorKind::UnexpectedEof.into())),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(self.unread(&error)),
                Err(_) => {
                    let address = &self.config.address;
                    return Err(Error::overloaded(format!("`{address}` did not acknowledge in time")));
                }
            }
            let answers = read.chunks_exact(text.len());
            let rest = answers.remainder().len();
            for answer in answers {
                if answer != text {
                    return Err(self.wrong(answer));
                }
                rows.next().unwrap_or_default().iter().for_each(|&row| self.progress.done(row));
            }
            read.drain(..read.len() - rest);
        }
        Ok(())
    }

    fn unread(&self, error: &io::Error) -> Error {
        net_error("read the acknowledgement of", &self.config.address, error)
    }

    fn wrong(&self, answer: &[u8]) -> Error {
        Error::temporary(format!(
            "`{}` answered `{}` where `{}` was expected",
            self.config.address,
            answer.escape_ascii(),
            self.config.acknowledge.escape_debug()
        ))
    }
}

impl Framing {
    /// Writes messages with their framing, except for those with an objection.
    async fn write(
        &self,
        payload: &BinaryViewArray,
        gathered: &mut Vec<u8>,
        stream: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<()> {
        let delimiter = self.delimiter.bytes();
        if let (By::Delimiter, [byte]) = (self.by, delimiter) {
            // Adjacent lines are often contiguous in memory, including their line feeds.
            for run in payload_runs(payload, *byte) {
                match run {
                    Ok(run) => put(run, gathered, stream).await?,
                    Err(message) => {
                        put(message, gathered, stream).await?;
                        gathered.push(*byte);
                    }
                }
            }
        } else {
            for row in 0..payload.len() {
                let message = payload.value(row);
                if self.objection(message.len()).is_some() {
                    continue;
                }
                self.head(message.len(), gathered);
                put(message, gathered, stream).await?;
                if self.by == By::Delimiter {
                    gathered.extend_from_slice(delimiter);
                }
            }
        }
        stream.write_all(gathered).await?;
        stream.flush().await
    }

    /// Returns a length as a binary number, lowest byte first, and how many of its bytes are written.
    fn binary(&self, length: usize) -> ([u8; 8], usize) {
        ((length as u64).to_le_bytes(), self.size.map_or(4, ByteSize::as_usize).min(8))
    }

    /// Returns a reason if a message of `length` bytes cannot be written.
    fn objection(&self, length: usize) -> Option<String> {
        let (bytes, size) = self.binary(length);
        let is_binary = matches!(self.by, By::BinaryLe | By::BinaryBe);
        let is_too_long = is_binary && bytes.iter().skip(size).any(|&byte| byte != 0);
        is_too_long
            .then(|| format!("has {length} bytes, which is more than a length of {size} bytes can represent"))
    }

    /// Appends the bytes before a message of `length` bytes.
    fn head(&self, length: usize, out: &mut Vec<u8>) {
        let (bytes, size) = self.binary(length);
        match self.by {
            By::Delimiter | By::None => {}
            By::Ascii => {
                out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
                out.extend_from_slice(self.delimiter.bytes());
            }
            By::BinaryLe => out.extend(bytes.iter().take(size)),
            By::BinaryBe => out.extend(bytes.iter().take(size).rev()),
            By::Varint => varint(length as u64, out),
        }
    }
}

/// Writes bytes, or gathers them to be written together with later ones.
async fn put(bytes: &[u8], gathered: &mut Vec<u8>, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    if bytes.len() < DIRECT {
        gathered.extend_from_slice(bytes);
        if gathered.len() < DIRECT * 4 {
            return Ok(());
        }
    }
    stream.write_all(gathered).await?;
    gathered.clear();
    if bytes.len() >= DIRECT {
        stream.write_all(bytes).await?;
    }
    Ok(())
}

/// Sends datagrams.
struct ToDatagrams {
    address: Address,
    socket: Option<Datagrams>,
    progress: Progress,
}

enum Datagrams {
    Udp(UdpSocket),
    Unix(UnixDatagram),
}

impl Datagrams {
    async fn connect(address: &Address) -> io::Result<Self> {
        match address {
            Address::Unixgram(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(path)?;
                Ok(Self::Unix(socket))
            }
            Address::Udp(at) => connect_udp(at).await.map(Self::Udp),
            Address::Tcp(_) | Address::Unix(_) => Err(ErrorKind::Unsupported.into()),
        }
    }

    async fn send(&self, datagram: &[u8]) -> io::Result<usize> {
        match self {
            Self::Udp(socket) => socket.send(datagram).await,
            Self::Unix(socket) => socket.send(datagram).await,
        }
    }

    /// True if this kind of socket can never send a datagram of `length` bytes.
    fn is_too_large(&self, length: usize, error: &io::Error) -> bool {
        /// `EMSGSIZE`, which has no name in the standard library.
        const MESSAGE_SIZE: i32 = if cfg!(target_os = "linux") { 90 } else { 40 };
        matches!(self, Self::Udp(_)) && length > LARGEST_UDP || error.raw_os_error() == Some(MESSAGE_SIZE)
    }
}

#[async_trait]
impl Sink for ToDatagrams {
    async fn write(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<WriteOutcome, Error> {
        let failed = |error: io::Error| net_error("send to", &self.address, &error);
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => Datagrams::connect(&self.address).await.map_err(failed)?,
        };
        self.progress.begin(batch.payload());
        for row in 0..batch.rows() {
            if self.progress.is_done(row) {
                continue;
            }
            let datagram = batch.payload().value(row);
            match socket.send(datagram).await {
                Ok(_) => self.progress.done(row),
                Err(error) if socket.is_too_large(datagram.len(), &error) => {
                    let reason = format!("has {} bytes, which is too large for a datagram", datagram.len());
                    self.progress.reject(row, reason);
                }
                Err(error) => return Err(failed(error)),
            }
        }
        self.socket = Some(socket);
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

//! `socket`: messages from TCP, UDP and unix sockets.
//!
//! `crate::net` describes how many connections feed one source, and how clients are slowed down.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, TimeSpan};
use thalweg_engine::{Context, Error, Mistake, Source, SourceConfig, SourceOutput};

use crate::net::{
    Address, Announce, Connection, Datagrams, Limits, Listener, Plain, Respond, UnixSocket, defaults,
    receive, serve,
};
use crate::tls::TlsServer;
use thalweg_codec::partitioner::Partition;
use thalweg_config::FileMode;

/// Listens on a socket and receives messages: TCP, UDP or a unix socket.
///
/// A client that sends faster than messages can be delivered is slowed down. With `acknowledge`, the client
/// receives an acknowledgement of each delivered message. Without it, messages in flight are lost if the
/// program is killed.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SocketSource {
    /// The address to listen on: `tcp://HOST:PORT`, `udp://HOST:PORT`, `unix:///PATH` (a stream) or
    /// `unixgram:///PATH` (datagrams). Without a host, the source listens on all addresses of the machine.
    address: Address,
    /// How the stream is cut into messages. By default each line is a message. Each datagram is cut
    /// separately in the same way.
    #[serde(default)]
    framing: Partition,
    /// The largest message, in bytes, at most 1 GiB. Of a larger one, the first 4 KiB leave by the `errors`
    /// output.
    #[serde(default = "defaults::limit")]
    max_message_bytes: ByteSize,
    /// The text written to the client for each message, for example `"OK\n"`. If a message cannot be
    /// delivered, the connection is closed instead. Not for datagrams. By default nothing is written.
    #[serde(default)]
    acknowledge: String,
    /// When `acknowledge` is written. The default is `delivered`.
    #[serde(default)]
    respond: Respond,
    /// How long a client may take to accept `acknowledge`. After that its connection is closed.
    #[serde(default = "defaults::one_second")]
    acknowledge_timeout: TimeSpan,
    /// How long a client may send nothing in the middle of a message. After that its connection is closed,
    /// and the partial message leaves by `errors`.
    #[serde(default = "defaults::half_a_minute")]
    read_timeout: TimeSpan,
    /// Close a connection after this time without data. By default connections are kept open.
    #[serde(default)]
    idle_timeout: Option<TimeSpan>,
    /// The largest number of connected clients. Further clients wait until another one disconnects.
    #[serde(default = "defaults::connections")]
    #[schemars(range(min = 1))]
    max_connections: usize,
    /// The permissions of a unix socket, in octal. The default is `0770`.
    #[serde(default)]
    permissions: Option<FileMode>,
    /// Whether a unix socket is removed first if no process listens on it any more. A socket in use is never
    /// removed.
    #[serde(default = "defaults::yes")]
    remove_old_socket: bool,
    /// Serve TLS with this certificate. Only for TCP. By default connections are not encrypted.
    #[serde(default)]
    tls: Option<TlsServer>,
    /// End the source after this time without data, unless a message or an answer is in progress. By default
    /// it listens until the run is stopped.
    #[serde(default)]
    end_after_idle: Option<TimeSpan>,
}

impl SourceConfig for SocketSource {
    const NAME: &'static str = "socket";
    const EXAMPLE: &'static str = r#"
sources:
  lines:
    socket:
      address: tcp://127.0.0.1:15880
      acknowledge: "OK\n"
      end_after_idle: 100ms
pipelines:
  main: { from: lines, to: all }
sinks:
  all: { file: { path: out/lines.log } }
"#;
    const BLOCKS: bool = false;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.framing.check(self.max_message_bytes);
        if !self.address.is_stream() && !self.acknowledge.is_empty() {
            let mistake = Mistake::new("acknowledge", "Datagrams are not acknowledged.");
            mistakes.push(mistake.help("Leave it out, or use `tcp://` or `unix://`."));
        }
        if !self.address.is_stream() && self.framing.start_pattern.is_some() {
            let mistake =
                Mistake::new("framing", "A message of several lines cannot be assembled from datagrams.");
            mistakes.push(mistake.help("Leave out `start_pattern`."));
        }
        if self.tls.is_some() && !matches!(self.address, Address::Tcp(_)) {
            mistakes.push(Mistake::new("tls", "TLS is for TCP.").help("Leave it out, or use `tcp://`."));
        }
        mistakes
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(Socket::new(self.clone(), context)))
    }
}

struct Socket {
    config: SocketSource,
    announce: Announce,
}

impl Socket {
    fn new(config: SocketSource, context: &Context) -> Self {
        Self { config, announce: Announce::new(&context.name) }
    }
}

#[async_trait]
impl Source for Socket {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let config = &self.config;
        let unix = UnixSocket { permissions: config.permissions, remove_old: config.remove_old_socket };
        let end_after_idle = config.end_after_idle.map(TimeSpan::duration);
        let limit = config.max_message_bytes;
        if !config.address.is_stream() {
            let socket = Datagrams::bind(&config.address, unix, &self.announce).await?;
            return receive(&socket, Some(&config.framing), limit, end_after_idle, Plain, out).await;
        }
        let tls = config.tls.as_ref().map(TlsServer::acceptor).transpose()?;
        let listener = Listener::bind(&config.address, unix, &self.announce).await?;
        let limits = Limits { max_connections: config.max_connections, end_after_idle };
        let text = Bytes::copy_from_slice(config.acknowledge.as_bytes());
        let connection = Connection {
            limit,
            read_timeout: config.read_timeout.duration(),
            idle_timeout: config.idle_timeout.map(TimeSpan::duration),
            quiet: config.framing.quiet(),
            acknowledge: (!text.is_empty()).then_some((text, config.respond)),
            write_timeout: config.acknowledge_timeout.duration(),
        };
        let shared = Arc::new((connection, config.framing.clone()));
        serve(&listener, limits, tls.as_ref(), out, move |client, out| {
            let shared = shared.clone();
            async move {
                let (connection, framing) = &*shared;
                let partitioner = framing.begin(connection.limit, false);
                connection.run(client, partitioner, Plain, None, out).await
            }
        })
        .await
    }
}

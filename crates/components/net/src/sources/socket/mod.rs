//! `socket`: messages from TCP, UDP and unix sockets.
//!
//! How many connections lead into one source, and how they are slowed down, is in `shared::net`.

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

/// Reads messages from a socket that it listens on: TCP, UDP or a unix socket.
///
/// A client that sends faster than messages can be delivered is slowed down. Where `acknowledge` is set, it is told of
/// each message that is in safety; without that, what was on its way when the program is killed is lost.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SocketSource {
    /// Where to listen: `tcp://HOST:PORT`, `udp://HOST:PORT`, `unix:///PATH` (a stream) or `unixgram:///PATH`
    /// (datagrams). Without a host, on all of the machine's addresses.
    address: Address,
    /// Where one message ends and the next begins. The default: each line is one. Datagrams are cut in the same way,
    /// each for itself.
    #[serde(default)]
    framing: Partition,
    /// The longest that a message may be, at most 1 GiB. Of a longer one, the first 4 KiB leave by the `errors`
    /// output.
    #[serde(default = "defaults::limit")]
    max_message_bytes: ByteSize,
    /// A text that is written to the client for each message, for example `"OK\n"`. Not for datagrams. If a message
    /// is lost, the connection is closed instead.
    #[serde(default)]
    acknowledge: String,
    /// When it is written.
    #[serde(default)]
    respond: Respond,
    /// How long a client may take to accept it; then its connection is closed.
    #[serde(default = "defaults::one_second")]
    acknowledge_timeout: TimeSpan,
    /// How long a client may be silent in the middle of a message. Then its connection is closed, and what came of
    /// the message leaves by `errors`.
    #[serde(default = "defaults::half_a_minute")]
    read_timeout: TimeSpan,
    /// Close a connection on which nothing came for so long. By default it is kept.
    #[serde(default)]
    idle_timeout: Option<TimeSpan>,
    /// How many clients may be connected. Others wait until there is a place.
    #[serde(default = "defaults::connections")]
    #[schemars(range(min = 1))]
    max_connections: usize,
    /// The permissions of a unix socket, in octal. The default is `0770`.
    #[serde(default)]
    permissions: Option<FileMode>,
    /// Whether a unix socket that a program left behind is removed. One that is in use never is.
    #[serde(default = "defaults::yes")]
    remove_old_socket: bool,
    /// Use TLS, with this certificate. For TCP.
    #[serde(default)]
    tls: Option<TlsServer>,
    /// End when nothing came for so long and nothing is under way. By default it listens until the run is stopped.
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
                Mistake::new("framing", "A message of several lines cannot be put together of datagrams.");
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

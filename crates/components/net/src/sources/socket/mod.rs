//! `socket`: messages from TCP, UDP and unix sockets.
//!
//! `crate::net` describes how many connections feed one source, and how clients are slowed down.

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::TimeSpan;
use thalweg_engine::{
    Claim, Component, Context, Endless, Error, KnownFields, Mistake, Source, SourceConfig, SourceOutput,
};

use crate::net::{
    Address, Announce, Connection, Datagrams, ListenOptions, Listener, Plain, Respond, SocketOptions,
    defaults, receive, serve,
};
use crate::tls::Acceptor;
use thalweg_codec::charset::Charset;
use thalweg_codec::stream_framing::StreamFraming;

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
    framing: StreamFraming,
    /// The character set of the messages, such as `latin1` (as `windows-1252`), `utf-16` or `shift_jis`. The
    /// order of the bytes of `utf-16` is that of the byte order mark at the start of a connection, and
    /// little-endian without one; `utf-16le` and `utf-16be` name it. Messages are in UTF-8: a message that is
    /// not valid leaves by the `errors` output. `max_message_bytes` is the size before. The default is
    /// `utf-8`, which is passed on as it is. A byte order mark at the start is removed.
    #[serde(default)]
    charset: Charset,
    #[serde(flatten)]
    socket: SocketOptions,
    /// The text written to the client for each message, for example `"OK\n"`, once the message is delivered,
    /// or rejected and kept with its reason. If a message cannot be delivered, the connection is closed
    /// instead. Not for datagrams. By default nothing is written.
    #[serde(default)]
    acknowledge: String,
    /// When `acknowledge` is written. The default is `delivered`.
    #[serde(default)]
    respond: Respond,
    /// How long a client may take to accept `acknowledge`. After that its connection is closed.
    #[serde(default = "defaults::one_second")]
    acknowledge_timeout: TimeSpan,
    #[serde(flatten)]
    listen: ListenOptions,
}

impl Component for SocketSource {
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

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.framing.check(self.socket.max_message_bytes);
        if !self.address.is_stream() && !self.acknowledge.is_empty() {
            let mistake = Mistake::new("acknowledge", "Datagrams are not acknowledged.");
            mistakes.push(mistake.help("Leave it out, or use `tcp://` or `unix://`."));
        }
        if !self.address.is_stream() && self.framing.start_pattern.is_some() {
            let mistake =
                Mistake::new("framing", "A message of several lines cannot be assembled from datagrams.");
            mistakes.push(mistake.help("Leave out `start_pattern`."));
        }
        if !self.address.is_stream() && self.charset.is_marked() {
            let mistake = Mistake::new("charset", "Each datagram may order the bytes differently.");
            mistakes.push(mistake.help("Write `utf-16le` or `utf-16be`."));
        }
        mistakes.extend(self.listen.check(&self.address));
        mistakes
    }
}

impl SourceConfig for SocketSource {
    fn endless(&self) -> Option<Endless> {
        self.listen.endless()
    }

    fn fields(&self) -> KnownFields {
        KnownFields::none()
    }

    fn blocks(&self) -> bool {
        false
    }

    fn resends(&self) -> bool {
        // Only a client that waits for acknowledgements knows what to send again.
        !self.acknowledge.is_empty() && self.respond == Respond::Delivered
    }

    fn starts_over(&self) -> bool {
        false
    }

    fn has_growing_positions(&self) -> bool {
        false
    }

    fn claims(&self) -> Vec<Claim> {
        self.address.claim("address").into_iter().collect()
    }

    fn needed_files(&self) -> Vec<(&'static str, PathBuf)> {
        self.listen.needed_files()
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

/// Returns the source with these options, at another address if one is given.
#[cfg(test)]
pub(crate) fn for_test(config: &SocketSource, at: Option<&str>) -> (impl Source + use<>, Announce) {
    let mut config = config.clone();
    if let Some(at) = at {
        config.address = Address::Tcp(at.to_owned());
    }
    let announce = Announce::new("test");
    (Socket { config, announce: announce.clone() }, announce)
}

#[async_trait]
impl Source for Socket {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let config = &self.config;
        let limit = config.socket.max_message_bytes;
        if !config.address.is_stream() {
            let socket = Datagrams::bind(&config.address, config.socket.unix(), &self.announce).await?;
            let end_after_idle = config.listen.end_after_idle();
            let (framing, charset) = (Some(&config.framing), config.charset);
            return receive(&socket, framing, limit, charset, end_after_idle, Plain, out).await;
        }
        let tls = config.listen.acceptor()?.map(Acceptor::without_tickets);
        let listener = Listener::bind(&config.address, config.socket.unix(), &self.announce).await?;
        let limits = config.listen.limits();
        let text = Bytes::copy_from_slice(config.acknowledge.as_bytes());
        let connection = Connection {
            quiet: config.framing.quiet(),
            acknowledge: (!text.is_empty()).then_some((text, config.respond)),
            write_timeout: config.acknowledge_timeout.duration(),
            ..config.socket.connection()
        };
        let shared = Arc::new((connection, config.framing.clone(), config.charset));
        serve(&listener, limits, tls.as_ref(), out, move |client, out| {
            let shared = shared.clone();
            async move {
                let (connection, framing, charset) = &*shared;
                let partitioner = framing.begin(connection.limit, false).reading(*charset);
                connection.run(client, partitioner, Plain, None, out).await
            }
        })
        .await
    }
}

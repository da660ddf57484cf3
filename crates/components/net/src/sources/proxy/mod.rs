//! `proxy`: messages from clients that receive the answers of a server.
//!
//! The sink `proxy` finds the connection by the name that its messages carry as `meta.path`: see
//! `crate::replies`.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, TimeSpan};
use thalweg_engine::{Context, Error, Mistake, Source, SourceConfig, SourceOutput};

use crate::net::{
    Address, Announce, Client, Connection, Limits, Listener, Plain, UnixSocket, defaults, serve,
};
use crate::replies::Answerable;
use crate::tls::TlsServer;
use thalweg_codec::partitioner::Partition;
use thalweg_config::FileMode;

/// Receives messages from clients and returns a server's answers to them.
///
/// Together with the sink `proxy` it forms a proxy between clients and a server. The server's answers return
/// over the connection that the message came from. Messages can be inspected, changed, copied and counted on
/// the way. Answers have the order of the messages, provided that one sink `proxy` receives them all.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProxySource {
    /// The address to listen on: `tcp://HOST:PORT` or `unix:///PATH`. Without a host, the source listens on
    /// all addresses of the machine.
    address: Address,
    /// How the stream is cut into messages. By default each line is a message. Messages keep their delimiter
    /// or length, unless `whole` is `false`.
    #[serde(default)]
    framing: Partition,
    /// The largest message, in bytes, at most 1 GiB. Of a larger one, the first 4 KiB leave by the `errors`
    /// output.
    #[serde(default = "defaults::limit")]
    max_message_bytes: ByteSize,
    /// How long a client may send nothing in the middle of a message. After that its connection is closed,
    /// and the partial message leaves by `errors`.
    #[serde(default = "defaults::half_a_minute")]
    read_timeout: TimeSpan,
    /// How long a client may take to accept an answer. After that its connection is closed.
    #[serde(default = "defaults::ten_seconds")]
    write_timeout: TimeSpan,
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

impl SourceConfig for ProxySource {
    const NAME: &'static str = "proxy";
    const EXAMPLE: &'static str = r#"
sources:
  clients:
    proxy:
      address: tcp://127.0.0.1:15883
      end_after_idle: 100ms
pipelines:
  main: { from: clients, to: [server, copy] }
sinks:
  server: { proxy: { address: tcp://127.0.0.1:15884 } }
  copy: { file: { path: out/requests.log } }
"#;
    const BLOCKS: bool = false;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.framing.check(self.max_message_bytes);
        if !self.address.is_stream() {
            let mistake = Mistake::new("address", "A proxy needs connections, which datagrams do not have.");
            mistakes.push(mistake.help("Use `tcp://` or `unix://`."));
        }
        if self.tls.is_some() && !matches!(self.address, Address::Tcp(_)) {
            mistakes.push(Mistake::new("tls", "TLS is for TCP.").help("Leave it out, or use `tcp://`."));
        }
        mistakes
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(Proxy { config: self.clone(), announce: Announce::new(&context.name) }))
    }
}

struct Proxy {
    config: ProxySource,
    announce: Announce,
}

#[async_trait]
impl Source for Proxy {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let config = &self.config;
        let unix = UnixSocket { permissions: config.permissions, remove_old: config.remove_old_socket };
        let tls = config.tls.as_ref().map(TlsServer::acceptor).transpose()?;
        let listener = Listener::bind(&config.address, unix, &self.announce).await?;
        let limits = Limits {
            max_connections: config.max_connections,
            end_after_idle: config.end_after_idle.map(TimeSpan::duration),
        };
        let connection = Connection {
            limit: config.max_message_bytes,
            read_timeout: config.read_timeout.duration(),
            idle_timeout: config.idle_timeout.map(TimeSpan::duration),
            quiet: config.framing.quiet(),
            acknowledge: None,
            write_timeout: config.write_timeout.duration(),
        };
        let shared = Arc::new((connection, config.framing.clone()));
        serve(&listener, limits, tls.as_ref(), out, move |client, out| {
            let shared = shared.clone();
            async move {
                let (connection, framing) = &*shared;
                let partitioner = framing.begin(connection.limit, true);
                let (answerable, answers) = Answerable::new(&client.name);
                let client = Client { name: answerable.name().clone(), ..client };
                connection.run(client, partitioner, Plain, Some(answers), out).await
            }
        })
        .await
    }
}

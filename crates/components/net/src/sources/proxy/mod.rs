//! `proxy`: messages from clients that receive the answers of a server.
//!
//! The sink `proxy` finds the connection by the name that its messages carry as `meta.path`: see
//! `crate::replies`.

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::TimeSpan;
use thalweg_engine::{
    Claim, Component, Context, Endless, Error, Mistake, Source, SourceConfig, SourceOutput,
};

use crate::net::{
    Address, Announce, Client, Connection, ListenOptions, Listener, Plain, SocketOptions, defaults, serve,
};
use crate::replies::Answerable;
use thalweg_codec::stream_framing::StreamFraming;

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
    framing: StreamFraming,
    #[serde(flatten)]
    socket: SocketOptions,
    /// How long a client may take to accept an answer. After that its connection is closed.
    #[serde(default = "defaults::ten_seconds")]
    write_timeout: TimeSpan,
    #[serde(flatten)]
    listen: ListenOptions,
}

impl Component for ProxySource {
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

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.framing.check(self.socket.max_message_bytes);
        if !self.address.is_stream() {
            let mistake = Mistake::new("address", "A proxy needs connections, which datagrams do not have.");
            mistakes.push(mistake.help("Use `tcp://` or `unix://`."));
        }
        mistakes.extend(self.listen.check(&self.address));
        mistakes
    }
}

impl SourceConfig for ProxySource {
    fn endless(&self) -> Option<Endless> {
        self.listen.endless()
    }

    fn blocks(&self) -> bool {
        false
    }

    fn resends(&self) -> bool {
        // The server's answer does not tell the client whether other sinks have its message.
        false
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
        let tls = config.listen.acceptor()?;
        let listener = Listener::bind(&config.address, config.socket.unix(), &self.announce).await?;
        let limits = config.listen.limits();
        let connection = Connection {
            quiet: config.framing.quiet(),
            write_timeout: config.write_timeout.duration(),
            ..config.socket.connection()
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

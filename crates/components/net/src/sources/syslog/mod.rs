//! `syslog`: syslog messages over UDP, TCP and unix sockets.
//!
//! Fields are slices of the received bytes. Only values with escapes are copied.

mod parse;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, TimeSpan};
use thalweg_engine::{Context, Error, Mistake, Source, SourceConfig, SourceOutput};

use crate::net::{
    Address, Announce, Connection, Datagrams, Limits, Listener, UnixSocket, defaults, receive, serve,
};
use crate::tls::TlsServer;
use parse::Parser;
use thalweg_codec::partitioner::{Partition, Partitioner};
use thalweg_config::FileMode;

/// Receives syslog messages: RFC 5424, or the older RFC 3164 in its common variants.
///
/// The parts of a message become fields: `hostname`, `appname`, `procid`, `msgid`, `version`, `priority` (a
/// number), `facility` and `severity` (names), `timestamp`, and structured data as `sd.ID.KEY`. Times without
/// a time zone are UTC. Times without a year are placed within the last twelve months. Anything that is not a
/// syslog message leaves by `errors`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SyslogSource {
    /// The address to listen on: `udp://HOST:PORT`, `tcp://HOST:PORT`, `unixgram:///PATH` (datagrams, such as
    /// `/dev/log`) or `unix:///PATH` (a stream). The default is `udp://0.0.0.0:514`.
    address: Address,
    /// The format of messages. The default is `auto`.
    format: Format,
    /// How messages are separated in a stream. The default is `auto`. Each datagram is one message.
    framing: Framing,
    /// The part of a message that becomes the payload. The default is `raw`.
    payload: Payload,
    /// Whether the parts of a message become fields.
    fields: bool,
    /// Whether `facility` and `severity` are numbers instead of names.
    codes: bool,
    /// A text put before the name of each field, for example `syslog.`.
    prefix: String,
    /// The largest message, in bytes. Of a larger one, the first 4 KiB leave by the `errors` output.
    max_message_bytes: ByteSize,
    /// How long a client may send nothing in the middle of a message. After that its connection is closed,
    /// and the partial message leaves by `errors`.
    read_timeout: TimeSpan,
    /// Close a connection after this time without data. By default connections are kept open.
    idle_timeout: Option<TimeSpan>,
    /// The largest number of connected clients. Further clients wait until another one disconnects.
    #[schemars(range(min = 1))]
    max_connections: usize,
    /// The permissions of a unix socket, in octal. The default is `0770`.
    permissions: Option<FileMode>,
    /// Whether a unix socket is removed first if no process listens on it any more. A socket in use is never
    /// removed.
    remove_old_socket: bool,
    /// Serve TLS with this certificate. Only for TCP. By default connections are not encrypted.
    tls: Option<TlsServer>,
    /// End the source after this time without data, unless a message is in progress. By default it listens
    /// until the run is stopped.
    end_after_idle: Option<TimeSpan>,
}

/// The format of messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Format {
    /// Each message may have either format.
    #[default]
    Auto,
    /// `<34>Oct 11 22:14:15 host app[12]: message`.
    Rfc3164,
    /// `<34>1 2003-10-11T22:14:15.003Z host app 12 ID47 - message`.
    Rfc5424,
}

/// How messages are separated in a stream (RFC 6587).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Framing {
    /// Detected from the first byte of a connection.
    #[default]
    Auto,
    /// Each message begins with its length and a space.
    OctetCounting,
    /// Each message ends with a line feed.
    Lines,
}

/// The part of a message that becomes the payload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Payload {
    /// The whole message as received.
    #[default]
    Raw,
    /// Only the text, without the header.
    Message,
}

impl Default for SyslogSource {
    fn default() -> Self {
        Self {
            address: Address::Udp("0.0.0.0:514".to_owned()),
            format: Format::Auto,
            framing: Framing::Auto,
            payload: Payload::Raw,
            fields: true,
            codes: false,
            prefix: String::new(),
            max_message_bytes: defaults::limit(),
            read_timeout: defaults::half_a_minute(),
            idle_timeout: None,
            max_connections: defaults::connections(),
            permissions: None,
            remove_old_socket: true,
            tls: None,
            end_after_idle: None,
        }
    }
}

impl SourceConfig for SyslogSource {
    const NAME: &'static str = "syslog";
    const EXAMPLE: &'static str = r#"
sources:
  system:
    syslog:
      address: udp://127.0.0.1:15514
      end_after_idle: 100ms
pipelines:
  main: { from: system, transforms: [filter: "severity IN ('err', 'crit')"], to: all }
sinks:
  all: { file: { path: "out/{hostname}.jsonl", encode: json } }
"#;
    const BLOCKS: bool = false;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = Partition::default().check(self.max_message_bytes);
        if self.framing != Framing::Auto && !self.address.is_stream() {
            let mistake = Mistake::new("framing", "Each datagram is one message.");
            mistakes.push(mistake.help("Leave it out, or use `tcp://` or `unix://`."));
        }
        if self.codes && !self.fields {
            mistakes
                .push(Mistake::new("codes", "`codes` has no effect without `fields`.").help("Leave it out."));
        }
        if self.tls.is_some() && !matches!(self.address, Address::Tcp(_)) {
            mistakes.push(Mistake::new("tls", "TLS is for TCP.").help("Leave it out, or use `tcp://`."));
        }
        mistakes
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(Syslog { config: self.clone(), announce: Announce::new(&context.name) }))
    }
}

struct Syslog {
    config: SyslogSource,
    announce: Announce,
}

#[async_trait]
impl Source for Syslog {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let config = &self.config;
        let unix = UnixSocket { permissions: config.permissions, remove_old: config.remove_old_socket };
        let end_after_idle = config.end_after_idle.map(TimeSpan::duration);
        let limit = config.max_message_bytes;
        let parser = Parser::new(config);
        if !config.address.is_stream() {
            let socket = Datagrams::bind(&config.address, unix, &self.announce).await?;
            return receive(&socket, None, limit, end_after_idle, parser, out).await;
        }
        let tls = config.tls.as_ref().map(TlsServer::acceptor).transpose()?;
        let listener = Listener::bind(&config.address, unix, &self.announce).await?;
        let limits = Limits { max_connections: config.max_connections, end_after_idle };
        let framing = config.framing;
        let connection = Arc::new(Connection {
            limit,
            read_timeout: config.read_timeout.duration(),
            idle_timeout: config.idle_timeout.map(TimeSpan::duration),
            quiet: None,
            acknowledge: None,
            // Never used: nothing is written.
            write_timeout: config.read_timeout.duration(),
        });
        serve(&listener, limits, tls.as_ref(), out, move |client, out| {
            let (connection, parser) = (connection.clone(), parser.clone());
            async move {
                let partitioner = match framing {
                    Framing::Auto => Partitioner::of_syslog(limit),
                    Framing::OctetCounting => Partitioner::of_octets(limit),
                    Framing::Lines => Partition::default().begin(limit, false),
                };
                connection.run(client, partitioner, parser, None, out).await
            }
        })
        .await
    }
}

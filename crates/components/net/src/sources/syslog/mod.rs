//! `syslog`: syslog messages over UDP, TCP and unix sockets.
//!
//! [`thalweg_codec::syslog`] parses the messages, as for the transform `parse_syslog`.

mod parse;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{
    Claim, Component, Context, Endless, Error, Mistake, Received, Source, SourceConfig, SourceOutput,
};

use crate::net::{
    Address, Announce, Cut, Datagrams, Format as _, ListenOptions, Listener, Rejected, SocketOptions,
    receive, serve,
};
use crate::tls::Acceptor;
use parse::Parser;
use thalweg_codec::charset::Charset;
use thalweg_codec::stream_framing::{StreamCutter, StreamFraming};
use thalweg_codec::syslog::SyslogOptions;

/// Receives syslog messages: RFC 5424, or the older RFC 3164 in its common variants.
///
/// The parts of a message become fields: `hostname`, `appname`, `procid`, `msgid`, `version`, `priority` (a
/// number), `facility` and `severity` (names), `timestamp`, and structured data as `sd.ID.KEY`, or in `sd` if
/// there is too much of it (`max_fields`). A malformed element of structured data stays at the beginning of
/// the text, with all that follows. Times without a time zone are UTC. Times without a year are placed within
/// the last twelve months. Anything that is not a syslog message leaves by `errors` (see `others`).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SyslogSource {
    /// The address to listen on: `udp://HOST:PORT`, `tcp://HOST:PORT`, `unixgram:///PATH` (datagrams, such as
    /// `/dev/log`) or `unix:///PATH` (a stream). The default is `udp://0.0.0.0:514`.
    address: Address,
    /// How messages are separated in a stream. The default is `auto`. Each datagram is one message.
    framing: Framing,
    /// The character set of the messages, such as `latin1` (as `windows-1252`) or `shift_jis`. It has the
    /// characters of ASCII in their usual bytes, unlike UTF-16. Messages are in UTF-8: a message that is not
    /// valid leaves by the `errors` output. `max_message_bytes` is the size before. The default is `utf-8`,
    /// which is passed on as it is.
    charset: Charset,
    /// The part of a message that becomes the payload. The default is `raw`.
    payload: Payload,
    /// Whether the parts of a message become fields.
    add_fields: bool,
    /// The treatment of lines that are no syslog messages. The default is `reject`.
    others: Others,
    #[serde(flatten)]
    options: SyslogOptions,
    #[serde(flatten)]
    socket: SocketOptions,
    #[serde(flatten)]
    listen: ListenOptions,
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

/// The treatment of lines that are no syslog messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Others {
    /// They leave by `errors`.
    #[default]
    Reject,
    /// The line is the text of a message from the sender's address, with the time of its arrival. Its
    /// priority is 13 (a notice of a user) unless it begins with another one.
    Accept,
}

impl Default for SyslogSource {
    fn default() -> Self {
        Self {
            address: Address::Udp("0.0.0.0:514".to_owned()),
            framing: Framing::Auto,
            charset: Charset::default(),
            payload: Payload::Raw,
            add_fields: true,
            others: Others::Reject,
            options: SyslogOptions::default(),
            socket: SocketOptions::default(),
            listen: ListenOptions::default(),
        }
    }
}

impl SyslogSource {
    /// Parses the messages of a buffer, as for the batch of a connection. Public for its fuzz target.
    #[doc(hidden)]
    pub fn parse(&self, cut: &Cut) -> (Option<Received>, Vec<Rejected>) {
        let mut rejected = Vec::new();
        let all = 0..cut.messages.len();
        let received = Parser::new(self).received(cut, all, &"test".into(), &mut rejected);
        (received, rejected)
    }
}

impl Component for SyslogSource {
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

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = StreamFraming::default().check(self.socket.max_message_bytes);
        if self.framing != Framing::Auto && !self.address.is_stream() {
            let mistake = Mistake::new("framing", "Each datagram is one message.");
            mistakes.push(mistake.help("Leave it out, or use `tcp://` or `unix://`."));
        }
        if !self.charset.has_ascii() {
            let mistake = Mistake::new("charset", "Syslog messages have their priority in ASCII.");
            mistakes.push(mistake.help("Write for example `latin1`."));
        }
        if self.options.codes && !self.add_fields {
            mistakes.push(
                Mistake::new("codes", "`codes` has no effect without `add_fields`.").help("Leave it out."),
            );
        }
        mistakes.extend(self.listen.check(&self.address));
        mistakes
    }
}

impl SourceConfig for SyslogSource {
    fn endless(&self) -> Option<Endless> {
        self.listen.endless()
    }

    fn blocks(&self) -> bool {
        false
    }

    fn resends(&self) -> bool {
        // The protocol has no acknowledgements.
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
        let limit = config.socket.max_message_bytes;
        let parser = Parser::new(config);
        if !config.address.is_stream() {
            let socket = Datagrams::bind(&config.address, config.socket.unix(), &self.announce).await?;
            let end_after_idle = config.listen.end_after_idle();
            return receive(&socket, None, limit, config.charset, end_after_idle, parser, out).await;
        }
        let tls = config.listen.acceptor()?.map(Acceptor::without_tickets);
        let listener = Listener::bind(&config.address, config.socket.unix(), &self.announce).await?;
        let limits = config.listen.limits();
        let (framing, charset) = (config.framing, config.charset);
        let connection = Arc::new(config.socket.connection());
        serve(&listener, limits, tls.as_ref(), out, move |client, out| {
            let (connection, parser) = (connection.clone(), parser.clone());
            async move {
                let partitioner = match framing {
                    Framing::Auto => StreamCutter::of_syslog(limit),
                    Framing::OctetCounting => StreamCutter::of_octets(limit),
                    Framing::Lines => StreamFraming::default().begin(limit, false),
                };
                let partitioner = partitioner.reading(charset);
                connection.run(client, partitioner, parser, None, out).await
            }
        })
        .await
    }
}

//! `http`: messages that clients send as HTTP requests.
//!
//! A request is answered once its messages are delivered. A client without an answer resends the request, so
//! nothing is lost. The head of a request is read into a small buffer of the connection. The body is read
//! only when the budget has capacity.

mod request;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, List, TimeSpan};
use thalweg_engine::{
    Claim, Component, Context, Endless, Error, Mistake, Source, SourceConfig, SourceOutput,
};

use crate::net::{Address, Announce, Client, ListenOptions, Listener, Respond, UnixSocket, defaults, serve};
use crate::web::{Admission, RequestOptions, converse_until_stopped};
use thalweg_codec::charset::Charset;
use thalweg_codec::stream_framing::StreamFraming;

/// Receives messages in HTTP requests.
///
/// The body of a request is one message, or several if `framing` is given. It may be compressed with gzip or
/// zstd (`Content-Encoding`). The request is answered with `status` once all of its messages are settled:
/// delivered, or rejected and kept with their reasons. If some were rejected, the header `Thalweg-Rejected`
/// of the answer has their number, and the body says so. If messages could not be delivered, the answer is
/// 503, and the client should resend the request. A request that has one of the headers `Host`,
/// `Authorization`, `Content-Type` and `Origin` twice is answered with 400.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpSource {
    /// The address to listen on, as `HOST:PORT`. Without a host (`:8080`), the source listens on all
    /// addresses of the machine.
    address: String,
    /// The path that requests must have, for example `/logs`. Requests with another path are answered with
    /// 404. By default any path is accepted.
    #[serde(default)]
    path: Option<String>,
    #[serde(flatten)]
    request: RequestOptions,
    /// The part of a request that becomes the payload. The default is `body`.
    #[serde(default)]
    payload: Payload,
    /// Parts of the request that become fields of its messages, under the same names: `method`, `path`,
    /// `query`, `remote` (the client's address), `user`, and headers as `header.content-type`. A later
    /// transform may replace them: after `parse_json`, a body with the member `remote` or `user` has chosen
    /// that value itself. Give `parse_json` a `prefix`, or list the members it may make in its `fields`. To
    /// rename the fields before it is not enough, as a body may have the new names too.
    #[serde(default)]
    fields: List<String>,
    /// How the body is cut into messages. `{}` makes each line a message. By default the whole body is one
    /// message.
    #[serde(default)]
    framing: Option<StreamFraming>,
    /// The character set of the body, such as `latin1` (as `windows-1252`), `utf-16` or `shift_jis`. The
    /// order of the bytes of `utf-16` is that of the byte order mark, and little-endian without one;
    /// `utf-16le` and `utf-16be` name it. Messages are in UTF-8: a message that is not valid leaves by the
    /// `errors` output. The default is `utf-8`, which is passed on as it is. A byte order mark at the start
    /// is removed. A `charset` in the header `Content-Type` has no effect.
    #[serde(default)]
    charset: Charset,
    /// With `framing`: the largest message, in bytes. Of a larger one, the first 4 KiB leave by the `errors`
    /// output.
    #[serde(default = "defaults::limit")]
    max_message_bytes: ByteSize,
    /// The largest body, in bytes after decompression. A request with a larger one is answered with 413. So
    /// is a request that can never fit into three quarters of `memory`.
    #[serde(default = "default_body")]
    max_body_bytes: ByteSize,
    /// How long a client may take to send the head of a request, and again to send its body.
    #[serde(default = "defaults::half_a_minute")]
    read_timeout: TimeSpan,
    /// When requests are answered. The default is `delivered`.
    #[serde(default)]
    respond: Respond,
    /// The status of the answer to an accepted request, 200 to 299.
    #[serde(default = "ok")]
    #[schemars(range(min = 200, max = 299))]
    status: u16,
    /// The status of the answer if some messages were rejected, 200 to 599. These messages leave by `errors`;
    /// a client that resends them gets them rejected again. The default is that of `status`.
    #[serde(default)]
    #[schemars(range(min = 200, max = 599))]
    rejected_status: Option<u16>,
    #[serde(flatten)]
    listen: ListenOptions,
}

/// The part of a request that becomes the payload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Payload {
    /// The body.
    #[default]
    Body,
    /// The whole request in its HTTP/1.1 form: the request line, the headers, an empty line and the body.
    Request,
}

fn default_body() -> ByteSize {
    ByteSize::mib(16)
}

fn ok() -> u16 {
    200
}

impl Component for HttpSource {
    const NAME: &'static str = "http";
    const EXAMPLE: &'static str = r#"
sources:
  requests:
    http:
      address: 127.0.0.1:18080
      path: /logs
      framing: {}
      end_after_idle: 100ms
pipelines:
  main: { from: requests, to: all }
sinks:
  all: { file: { path: out/requests.log } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = match &self.framing {
            Some(framing) => framing.check(self.max_message_bytes),
            None => Vec::new(),
        };
        if let Err(error) = Address::check_host_and_port(&self.address) {
            let mistake = Mistake::new("address", error.message);
            mistakes.push(mistake.help("For example `0.0.0.0:8080`, or `:8080`."));
        }
        if self.framing.is_some() && self.payload == Payload::Request {
            let mistake = Mistake::new("framing", "A whole request cannot be cut into messages.");
            mistakes.push(mistake.help("Leave out `framing`, or use `payload: body`."));
        }
        if self.payload == Payload::Request && !self.charset.has_ascii() {
            let mistake = Mistake::new("charset", "The head of a request is in ASCII.");
            mistakes.push(mistake.help("Use `payload: body`."));
        }
        if let Some(name) = self.fields.iter().find(|name| !request::is_field(name)) {
            let mistake = Mistake::new("fields", format!("A request has no `{name}`."));
            mistakes.push(mistake.help(
                "There are `method`, `path`, `query`, `remote`, `user` and headers such as `header.content-type`.",
            ));
        }
        mistakes.extend(self.request.check(self.path.as_deref(), "/logs"));
        mistakes
    }
}

impl SourceConfig for HttpSource {
    fn endless(&self) -> Option<Endless> {
        self.listen.endless()
    }

    fn blocks(&self) -> bool {
        false
    }

    fn resends(&self) -> bool {
        // A client that was answered does not send its messages again.
        self.respond == Respond::Delivered
    }

    fn starts_over(&self) -> bool {
        false
    }

    fn has_growing_positions(&self) -> bool {
        false
    }

    fn claims(&self) -> Vec<Claim> {
        Claim::port("address", "tcp", &self.address).into_iter().collect()
    }

    fn needed_files(&self) -> Vec<(&'static str, PathBuf)> {
        self.listen.needed_files()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(Http { config: self.clone(), announce: Announce::new(&context.name) }))
    }
}

struct Http {
    config: HttpSource,
    announce: Announce,
}

/// The state that all connections share.
struct Server {
    config: HttpSource,
    admission: Admission,
}

#[async_trait]
impl Source for Http {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let config = self.config.clone();
        let admission = Admission::new(&config.request, config.path.as_deref())?;
        let (tls, limits) = (config.listen.acceptor()?, config.listen.limits());
        let address = Address::Tcp(config.address.clone());
        let listener = Listener::bind(&address, UnixSocket::default(), &self.announce).await?;
        let server = Arc::new(Server { config, admission });
        serve(&listener, limits, tls.as_ref(), out, move |client, out| server.clone().connection(client, out))
            .await
    }
}

impl Server {
    /// Serves a client's requests, one after the other.
    async fn connection(self: Arc<Self>, client: Client, out: SourceOutput) -> Result<(), Error> {
        let peer = client.name.clone();
        let options = self.config.request.connection(self.config.read_timeout);
        converse_until_stopped(client, options, out, |request, gate| {
            let (server, peer) = (self.clone(), peer.clone());
            async move { server.answer(request, &gate, &peer).await }
        })
        .await
    }
}

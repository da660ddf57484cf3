//! `http`: messages that clients send as HTTP requests.
//!
//! A request is answered when its messages are in safety, so a client that got no answer sends it again, and nothing is
//! lost. The head of a request is read into a small buffer of the connection; the body only when the budget has room.

mod request;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, TimeSpan};
use thalweg_engine::{Context, Error, Mistake, Source, SourceConfig, SourceOutput};

use crate::net::{Address, Announce, Client, Limits, Listener, Respond, UnixSocket, defaults, serve};
use crate::tls::TlsServer;
use crate::web::{self, Admission, ConnectionOptions, converse};
use thalweg_codec::partitioner::Partition;

/// Takes messages from HTTP requests.
///
/// The body of a request is a message, or several if `framing` is given. It may be compressed with gzip or zstd
/// (`Content-Encoding`). The request is answered with `status` when all of its messages are in safety, and with 503
/// if they could not be delivered: the client then sends them again.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpSource {
    /// Where to listen, as `HOST:PORT`. Without a host (`:8080`), on all of the machine's addresses.
    address: String,
    /// The path that requests must have, for example `/logs`. Others are answered with 404. By default any.
    #[serde(default)]
    path: Option<String>,
    /// The methods that requests may have; others are answered with 405. An empty list allows all. The default is
    /// `[POST, PUT]`.
    #[serde(default = "post_and_put")]
    methods: Vec<String>,
    /// What becomes the payload.
    #[serde(default)]
    payload: Payload,
    /// What else becomes fields of the messages, under the same names: `method`, `path`, `query`, `remote` (the
    /// client's address), `user`, and headers as `header.content-type`.
    #[serde(default)]
    fields: Vec<String>,
    /// Where one message ends and the next begins, in the body. By default all of it is one message; `{}` makes each
    /// line one.
    #[serde(default)]
    framing: Option<Partition>,
    /// With `framing`: the longest that a message may be. Of a longer one, the first 4 KiB leave by the `errors`
    /// output.
    #[serde(default = "defaults::limit")]
    max_message_bytes: ByteSize,
    /// The longest that a body may be, decompressed. A longer one is answered with 413.
    #[serde(default = "default_body")]
    max_body_bytes: ByteSize,
    /// A file of users and passwords, as the program `htpasswd` writes it with `-B` (bcrypt), `-m` (MD5) or `-s` (SHA).
    /// Requests must then have one of these (basic authentication); others are answered with 401.
    #[serde(default)]
    htpasswd: Option<PathBuf>,
    /// What clients are told that the password is for.
    #[serde(default = "default_realm")]
    realm: String,
    /// Use TLS, with this certificate.
    #[serde(default)]
    tls: Option<TlsServer>,
    /// How long a client may take to send the head of a request, and how long to send its body.
    #[serde(default = "defaults::half_a_minute")]
    read_timeout: TimeSpan,
    /// Whether a connection may be used for several requests.
    #[serde(default = "defaults::yes")]
    keep_alive: bool,
    /// How many clients may be connected. Others wait until there is a place.
    #[serde(default = "defaults::connections")]
    #[schemars(range(min = 1))]
    max_connections: usize,
    /// When requests are answered.
    #[serde(default)]
    respond: Respond,
    /// The status of the answer to what was accepted.
    #[serde(default = "ok")]
    #[schemars(range(min = 200, max = 299))]
    status: u16,
    /// The status of the answer when messages could not be processed: they are kept with the errors.
    #[serde(default = "unavailable")]
    #[schemars(range(min = 200, max = 599))]
    rejected_status: u16,
    /// End when no request came for so long and none is under way. By default it listens until the run is stopped.
    #[serde(default)]
    end_after_idle: Option<TimeSpan>,
}

/// What of a request becomes the payload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Payload {
    /// The body.
    #[default]
    Body,
    /// All of it: the line with method and path, the headers, an empty line and the body, as they are written on the
    /// wire.
    Request,
}

fn post_and_put() -> Vec<String> {
    vec!["POST".to_owned(), "PUT".to_owned()]
}

fn default_body() -> ByteSize {
    ByteSize::mib(16)
}

fn default_realm() -> String {
    "thalweg".to_owned()
}

fn ok() -> u16 {
    200
}

fn unavailable() -> u16 {
    503
}

impl SourceConfig for HttpSource {
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
    const BLOCKS: bool = false;

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
        if let Some(name) = self.fields.iter().find(|name| !request::is_field(name)) {
            let mistake = Mistake::new("fields", format!("A request has no `{name}`."));
            mistakes.push(mistake.help(
                "There are `method`, `path`, `query`, `remote`, `user` and headers such as `header.content-type`.",
            ));
        }
        mistakes.extend(web::check(self.path.as_deref(), &self.methods, "/logs"));
        if !(200..600).contains(&self.status) || !(200..600).contains(&self.rejected_status) {
            mistakes.push(Mistake::new("status", "A status is a number from 200 to 599."));
        }
        mistakes
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(Http { config: self.clone(), announce: Announce::new(&context.name) }))
    }
}

struct Http {
    config: HttpSource,
    announce: Announce,
}

/// What the connections have in common.
struct Server {
    config: HttpSource,
    admission: Admission,
}

#[async_trait]
impl Source for Http {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let config = self.config.clone();
        let (htpasswd, path) = (config.htpasswd.as_deref(), config.path.as_deref());
        let admission = Admission::new(htpasswd, &config.realm, path, &config.methods)?;
        let tls = config.tls.as_ref().map(TlsServer::acceptor).transpose()?;
        let limits = Limits {
            max_connections: config.max_connections,
            end_after_idle: config.end_after_idle.map(TimeSpan::duration),
        };
        let address = Address::Tcp(config.address.clone());
        let listener = Listener::bind(&address, UnixSocket::default(), &self.announce).await?;
        let server = Arc::new(Server { config, admission });
        serve(&listener, limits, tls.as_ref(), out, move |client, out| server.clone().connection(client, out))
            .await
    }
}

/// The outlet of a connection, until the run is stopped; and why it is of no use any more.
struct Gate(Mutex<(Option<SourceOutput>, Option<Error>)>);

impl Gate {
    fn lock(&self) -> MutexGuard<'_, (Option<SourceOutput>, Option<Error>)> {
        // Both are whole whoever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    /// Serves a client's requests, one after the other.
    async fn connection(self: Arc<Self>, client: Client, out: SourceOutput) -> Result<(), Error> {
        let peer = client.name.clone();
        let gate = Arc::new(Gate(Mutex::new((Some(out.clone()), None))));
        let manner = ConnectionOptions {
            read_timeout: self.config.read_timeout.duration(),
            keep_alive: self.config.keep_alive,
        };
        let stopping = {
            let gate = gate.clone();
            async move {
                out.stopping().await;
                // What the source leads to must be able to end; a request under way has its own.
                gate.lock().0 = None;
                drop(out);
            }
        };
        let answer = |request| {
            let (server, gate, peer) = (self.clone(), gate.clone(), peer.clone());
            async move { server.answer(request, &gate, &peer).await }
        };
        converse(client, manner, stopping, answer).await;
        match gate.lock().1.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

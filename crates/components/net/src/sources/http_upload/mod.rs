//! `http_upload`: files that clients send as HTTP requests.
//!
//! A request is answered once all of its files are settled. A client without an answer resends the request,
//! so nothing is lost. The files are sent on once the whole request has arrived. Of a request that is cut
//! off, no file is sent on.

mod request;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, TimeSpan};
use thalweg_engine::{
    Claim, Component, Context, Endless, Error, Flow, Mistake, Source, SourceConfig, SourceOutput,
};

use crate::net::{Address, Announce, Client, ListenOptions, Listener, UnixSocket, defaults, serve};
use crate::upload::{self, Accept, Room};
use crate::web::{Admission, ConnectionOptions, RequestOptions, converse_until_stopped};

/// Receives files in HTTP requests.
///
/// A request contains files in a form (`multipart/form-data`), or its body is one file, named by
/// `Content-Disposition`. Files are written to temporary files while they arrive; small ones stay in memory.
///
/// The answer is JSON. For each file, in order, it has `name`, `size` (bytes), `type` (if a transform
/// detected it), `status` (`delivered`, `rejected` or `failed`) and `reason`. Its HTTP status is 200 if all
/// files were delivered, 207 if some were, and 422 if all were rejected. It is 503 if the run could not
/// deliver them; the client may then resend them. It is 413 if a limit was exceeded, and 400 if the request
/// cannot be read.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpUpload {
    /// The address to listen on, as `HOST:PORT`. Without a host (`:8080`), the source listens on all
    /// addresses of the machine.
    address: String,
    /// The path that requests must have. Requests with another path are answered with 404.
    #[serde(default = "root")]
    path: String,
    #[serde(flatten)]
    request: RequestOptions,
    /// The form in which files are accepted. The default is `both`.
    #[serde(default)]
    accept: Accept,
    /// The largest file, in bytes. A request with a larger one is answered with 413, and none of its files is
    /// sent on.
    #[serde(default = "one_gib")]
    max_file_bytes: ByteSize,
    /// The largest request, in bytes. A larger one is answered with 413.
    #[serde(default = "four_gib")]
    max_request_bytes: ByteSize,
    /// The largest number of files in a request. A request with more is answered with 413.
    #[serde(default = "hundred")]
    #[schemars(range(min = 1))]
    max_files: usize,
    /// When requests are answered. The default is `delivered`.
    #[serde(default)]
    respond: Respond,
    /// How long a client may take to send the head of a request, how long it may pause within the body, and
    /// how long a request may wait for memory. After this time, a body must also have arrived with at least 1
    /// KiB per second on average.
    #[serde(default = "defaults::half_a_minute")]
    read_timeout: TimeSpan,
    #[serde(flatten)]
    listen: ListenOptions,
}

/// When requests are answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Respond {
    /// When all files of the request are settled.
    #[default]
    Delivered,
    /// With 202, when all files have arrived. They are lost if the process is killed before it delivers them.
    Received,
}

fn root() -> String {
    "/".to_owned()
}

fn one_gib() -> ByteSize {
    ByteSize::gib(1)
}

fn four_gib() -> ByteSize {
    ByteSize::gib(4)
}

fn hundred() -> usize {
    100
}

impl Component for HttpUpload {
    const NAME: &'static str = "http_upload";
    const EXAMPLE: &'static str = r#"
sources:
  uploads:
    http_upload:
      address: 127.0.0.1:18081
      max_file_bytes: 100MiB
      end_after_idle: 100ms
pipelines:
  main:
    from: uploads
    transforms:
      - check_type: { allow: ["image/*"] }
    to: images
sinks:
  images: { directory: { path: images, existing: rename } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.request.check(Some(&self.path), "/upload");
        if let Err(error) = Address::check_host_and_port(&self.address) {
            let mistake = Mistake::new("address", error.message);
            mistakes.push(mistake.help("For example `0.0.0.0:8080`, or `:8080`."));
        }
        if self.max_file_bytes > self.max_request_bytes {
            let message = format!(
                "A file of {} does not fit into a request of {}.",
                self.max_file_bytes, self.max_request_bytes
            );
            mistakes.push(Mistake::new("max_file_bytes", message).help("Raise `max_request_bytes`."));
        }
        mistakes
    }
}

impl SourceConfig for HttpUpload {
    fn endless(&self) -> Option<Endless> {
        self.listen.endless()
    }

    fn blocks(&self) -> bool {
        false
    }

    fn gives(&self) -> Flow {
        Flow::Files
    }

    fn resends(&self) -> bool {
        // A client that was answered does not send its files again.
        self.respond == Respond::Delivered
    }

    fn starts_over(&self) -> bool {
        false
    }

    fn claims(&self) -> Vec<Claim> {
        Claim::port("address", "tcp", &self.address).into_iter().collect()
    }

    fn needed_files(&self) -> Vec<(&'static str, PathBuf)> {
        self.listen.needed_files()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(Uploading {
            config: self.clone(),
            announce: Announce::new(&context.name),
            room: Room {
                share: context.memory.clone(),
                temporary: context.temporary.clone(),
                in_memory: true,
            },
        }))
    }
}

struct Uploading {
    config: HttpUpload,
    announce: Announce,
    room: Room,
}

/// The state that all connections share.
struct Server {
    admission: Admission,
    accept: Accept,
    limits: upload::Limits,
    respond: Respond,
    connection: ConnectionOptions,
    room: Room,
}

#[async_trait]
impl Source for Uploading {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let config = &self.config;
        let server = Arc::new(Server {
            admission: Admission::new(&config.request, Some(&config.path))?,
            accept: config.accept,
            limits: upload::Limits {
                max_file_bytes: config.max_file_bytes,
                max_request_bytes: config.max_request_bytes,
                max_files: config.max_files,
                patience: config.read_timeout.duration(),
            },
            respond: config.respond,
            connection: config.request.connection(config.read_timeout),
            room: self.room.clone(),
        });
        let (tls, limits) = (config.listen.acceptor()?, config.listen.limits());
        let address = Address::Tcp(config.address.clone());
        let listener = Listener::bind(&address, UnixSocket::default(), &self.announce).await?;
        serve(&listener, limits, tls.as_ref(), out, move |client, out| server.clone().connection(client, out))
            .await
    }
}

impl Server {
    /// Serves a client's requests, one after the other.
    async fn connection(self: Arc<Self>, client: Client, out: SourceOutput) -> Result<(), Error> {
        converse_until_stopped(client, self.connection, out, |request, gate| {
            let server = self.clone();
            async move { server.answer(request, &gate).await }
        })
        .await
    }
}

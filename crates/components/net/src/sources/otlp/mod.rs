//! `otlp`: logs, metrics and traces that senders of OpenTelemetry export.
//!
//! Requests come by HTTP or by gRPC, in the binary form or in JSON. All of them end in one reader, which
//! fills the columns. gRPC is spoken on top of HTTP/2 by hand: a request is five bytes and a message, an
//! answer ends with two headers. The library for it would add a router, a code generator and a second form of
//! bodies.
//!
//! See docs/decisions/096-otlp-is-read-into-columns.md.

mod grpc;
mod http;
mod request;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::otlp::Signal;
use thalweg_config::{ByteSize, List, TimeSpan};
use thalweg_engine::{
    Claim, Component, Context, Endless, Error, KnownFields, Mistake, Source, SourceConfig, SourceOutput,
};

use crate::net::{
    Activity, Address, Announce, Client, ListenOptions, Listener, UnixSocket, defaults, serve_beside,
};
use crate::tls::Acceptor;
use crate::web::{Admission, ConnectionOptions, RequestOptions, converse_by_http2, converse_until_stopped};

/// Receives logs, metrics and traces from OpenTelemetry's SDKs and collectors (OTLP).
///
/// A log record, a data point of a metric, and a span are a message each. Its columns have the names of the
/// fields of OTLP, such as `time_unix_nano`, `severity_number`, `body`, `trace_id`, `attributes` and
/// `resource_attributes`; `signal` is `logs`, `metrics` or `traces`. The payload is the body of a log record,
/// and the name of a span or metric. Attributes and nested values are JSON. A column is NULL if the field is
/// missing or has its default value.
///
/// A request is answered with success once all of its records are settled: delivered, or rejected and kept
/// with their reasons. The answer says how many were rejected. If records could not be delivered, the answer
/// tells the sender to send the request again. A request that is not valid is refused as a whole. So is one
/// whose resource, scope or metric is too large for the number of its records: each record has a copy of
/// them, and the copies of a request may have 64 times its size, at least 128 MiB and at most 1 GiB.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OtlpSource {
    /// The address to listen on for HTTP, as `HOST:PORT`, with the paths `/v1/logs`, `/v1/metrics` and
    /// `/v1/traces`. Without `http` and `grpc`, the source listens on `127.0.0.1:4318`.
    #[serde(default)]
    #[schemars(example = &"0.0.0.0:4318")]
    http: Option<String>,
    /// The address to listen on for gRPC, as `HOST:PORT`. Without `http` and `grpc`, the source listens on
    /// `127.0.0.1:4317`.
    #[serde(default)]
    #[schemars(example = &"0.0.0.0:4317")]
    grpc: Option<String>,
    /// The signals that are taken: `logs`, `metrics`, `traces`. Requests with anything else are refused as
    /// unknown. By default all are taken.
    #[serde(default)]
    signals: Option<List<Signal, 1>>,
    /// The largest request, in bytes after decompression. A larger one is refused. So is a request that can
    /// never fit into three quarters of `memory`.
    #[serde(default = "default_body")]
    max_body_bytes: ByteSize,
    /// How long a client may take to send the head of a request, and again to send its body.
    #[serde(default = "defaults::half_a_minute")]
    read_timeout: TimeSpan,
    /// How long a request waits for memory. After that the answer tells its sender to send it again 5 s
    /// later. Senders usually wait 10 s for an answer. The default is 5 s.
    #[serde(default = "five_seconds")]
    memory_timeout: TimeSpan,
    /// The path of a file with users and passwords, as for the source `http`. Requests must then carry a name
    /// and password of this file. By default no password is needed.
    #[serde(default)]
    htpasswd: Option<PathBuf>,
    #[serde(flatten)]
    listen: ListenOptions,
}

fn default_body() -> ByteSize {
    ByteSize::mib(16)
}

fn five_seconds() -> TimeSpan {
    TimeSpan::seconds(5)
}

impl OtlpSource {
    /// Returns the addresses for HTTP and gRPC.
    fn addresses(&self) -> (Option<String>, Option<String>) {
        match (&self.http, &self.grpc) {
            (None, None) => (Some("127.0.0.1:4318".to_owned()), Some("127.0.0.1:4317".to_owned())),
            (http, grpc) => (http.clone(), grpc.clone()),
        }
    }

    fn takes(&self, signal: Signal) -> bool {
        self.signals.as_ref().is_none_or(|signals| signals.contains(&signal))
    }

    fn requests(&self) -> RequestOptions {
        RequestOptions::posts(self.htpasswd.clone())
    }
}

impl Component for OtlpSource {
    const NAME: &'static str = "otlp";
    const EXAMPLE: &'static str = r#"
sources:
  telemetry:
    otlp:
      http: 127.0.0.1:18318
      grpc: 127.0.0.1:18317
      end_after_idle: 100ms
pipelines:
  main: { from: telemetry, to: all }
sinks:
  all: { file: { path: out/telemetry.jsonl, encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.requests().check(None, "/");
        for (option, address) in [("http", &self.http), ("grpc", &self.grpc)] {
            if let Some(Err(error)) = address.as_deref().map(Address::check_host_and_port) {
                let mistake = Mistake::new(option, error.message);
                mistakes.push(mistake.help("For example `0.0.0.0:4318`."));
            }
        }
        if self.read_timeout.is_zero() {
            let mistake = Mistake::new("read_timeout", "No client can send a request in no time.");
            mistakes.push(mistake.help("For example `30s`."));
        }
        if self.max_body_bytes.bytes() == 0 {
            let mistake = Mistake::new("max_body_bytes", "No request has 0 bytes.");
            mistakes.push(mistake.help("The default is `16MiB`."));
        }
        if matches!(&self.claims()[..], [http, grpc] if http.meets(grpc)) {
            let mistake = Mistake::new("grpc", "HTTP and gRPC cannot have one address.");
            mistakes.push(mistake.help("For example port 4318 for HTTP and 4317 for gRPC."));
        }
        mistakes
    }
}

impl SourceConfig for OtlpSource {
    fn endless(&self) -> Option<Endless> {
        self.listen.endless()
    }

    fn blocks(&self) -> bool {
        false
    }

    fn starts_over(&self) -> bool {
        false
    }

    fn has_growing_positions(&self) -> bool {
        false
    }

    fn claims(&self) -> Vec<Claim> {
        let (http, grpc) = self.addresses();
        let known = [("http", http), ("grpc", grpc)];
        known.into_iter().filter_map(|(option, address)| Claim::port(option, "tcp", &address?)).collect()
    }

    fn fields(&self) -> KnownFields {
        let taken = Signal::ALL.into_iter().filter(|signal| self.takes(*signal));
        let known = taken.map(|signal| {
            let fields = signal.fields();
            KnownFields::of(fields.fields().iter().map(|field| field.as_ref().clone()))
        });
        known.reduce(KnownFields::or).unwrap_or_else(KnownFields::none)
    }

    fn needed_files(&self) -> Vec<(&'static str, PathBuf)> {
        self.listen.needed_files()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        let announce = || Announce::new(&context.name);
        Ok(Box::new(Otlp { config: self.clone(), by_http: announce(), by_grpc: announce() }))
    }
}

struct Otlp {
    config: OtlpSource,
    by_http: Announce,
    by_grpc: Announce,
}

/// The state that all connections share.
struct Server {
    config: OtlpSource,
    admission: Admission,
}

#[async_trait]
impl Source for Otlp {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let config = self.config.clone();
        let admission = Admission::new(&config.requests(), None)?;
        let (tls, limits) = (config.listen.acceptor()?, config.listen.limits());
        let (http, grpc) = config.addresses();
        let (http, grpc) = (bound(http, &self.by_http).await?, bound(grpc, &self.by_grpc).await?);
        let server = Arc::new(Server { config, admission });
        let (activity, out) = (Activity::begin(), &*out);
        let by_http = async {
            let Some(listener) = &http else { return Ok(()) };
            let server = server.clone();
            let connection = move |client, out| server.clone().http_connection(client, out);
            serve_beside(listener, limits, tls.as_ref(), &activity, out, connection).await
        };
        let by_grpc = async {
            let Some(listener) = &grpc else { return Ok(()) };
            let (server, tls) = (server.clone(), tls.clone().map(|tls: Acceptor| tls.speaking(b"h2")));
            let connection = move |client, out| server.clone().grpc_connection(client, out);
            serve_beside(listener, limits, tls.as_ref(), &activity, out, connection).await
        };
        tokio::try_join!(by_http, by_grpc).map(|_| ())
    }
}

async fn bound(address: Option<String>, announce: &Announce) -> Result<Option<Listener>, Error> {
    match address {
        Some(address) => {
            Listener::bind(&Address::Tcp(address), UnixSocket::default(), announce).await.map(Some)
        }
        None => Ok(None),
    }
}

impl Server {
    /// Serves a client's requests by HTTP, one after the other.
    async fn http_connection(self: Arc<Self>, client: Client, out: SourceOutput) -> Result<(), Error> {
        let peer = client.name.clone();
        let read_timeout = self.config.read_timeout.duration();
        let options = ConnectionOptions { read_timeout, keep_alive: true };
        converse_until_stopped(client, options, out, |request, gate| {
            let (server, peer) = (self.clone(), peer.clone());
            async move { http::answer(&server, request, &gate, &peer).await }
        })
        .await
    }

    /// Serves a client's requests by gRPC.
    async fn grpc_connection(self: Arc<Self>, client: Client, out: SourceOutput) -> Result<(), Error> {
        let peer = client.name.clone();
        let interval = self.config.read_timeout.duration();
        converse_by_http2(client, interval, out, |request, gate| {
            let (server, peer) = (self.clone(), peer.clone());
            async move { grpc::answer(&server, request, &gate, &peer).await }
        })
        .await
    }
}

//! `otlp`: sends messages to a receiver of OpenTelemetry, by HTTP in the binary form.
//!
//! A request has records of one signal, and a sink may have messages of all. So the messages of a batch are
//! parts in the order of their signals, and pieces and requests end where the signal changes.
//!
//! A receiver may accept a request and reject some of its records, without saying which. If it rejected all
//! of them, they leave by `errors`. Otherwise they count as delivered, with a warning that has the number and
//! the reason: sending them again one by one would store the accepted ones twice, since no receiver
//! recognises a repeated record.
//!
//! gRPC was left out: each receiver of OTLP takes HTTP too, and the client that all these sinks share does
//! not read the headers behind a body that gRPC needs.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;
use reqwest::{StatusCode, Url};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::otlp::answer::partial_success;
use thalweg_codec::otlp::{Encoder, Signal, request, signal_of};
use thalweg_config::{ByteSize, List};
use thalweg_engine::{Component, Context, Error, InFlight, Mistake, Sink, SinkConfig};
use thalweg_record::Batch;

use crate::otlp::{headers, reason, url_of};
use crate::requests::{
    Answer, Check, Compression, Encode, Encoded, Parts, Reading, Request, Service, Shared, Store,
    StoreOptions, Target, Verdict,
};

/// Sends messages to a receiver of OpenTelemetry (OTLP) by HTTP: a collector, or a system that takes OTLP.
///
/// Messages have the columns that the source `otlp` gives: they become the log records, data points and spans
/// that they were. Other messages become log records with the payload as their body; columns of these names
/// are used as well, such as `severity_text` or `trace_id`. The columns decide, not the payload: a transform
/// that changes the text of a log record changes `body`.
///
/// A message is acknowledged when the receiver has confirmed its request. If the receiver rejects all records
/// of a request, they leave by `errors` with its reason; if it rejects some, which it does not name, the
/// number and the reason are logged. A request that is refused as malformed is divided until the bad records
/// are alone. While there is no receiver, messages wait. A request whose answer was lost is sent again, and
/// its records are then stored twice.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OtlpConfig {
    #[serde(flatten)]
    options: StoreOptions,
    /// The kind of record that messages without the column `signal` become. The default is `logs`. Metrics
    /// need the column `type`.
    #[serde(default)]
    signal: Signal,
    /// Attributes of the resource of messages without the column `resource_attributes`, for example `{
    /// service.name: shop }`. By default they have none.
    #[serde(default)]
    resource: BTreeMap<String, String>,
    /// Further fields of messages that become attributes of their records, under their names. By default
    /// there are none.
    #[serde(default)]
    attributes: List<String>,
    #[serde(skip)]
    shared: Shared,
}

/// The port of receivers for gRPC.
const GRPC: u16 = 4317;

impl Component for OtlpConfig {
    const NAME: &'static str = "otlp";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { message: '{"user": "ada", "id": %6d}', count: 100 } }
pipelines:
  main: { from: messages, transforms: [parse_json: {}], to: collector }
sinks:
  collector:
    otlp: { url: "http://127.0.0.1:4318", resource: { service.name: shop }, attributes: [user, id] }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.options.check(&[Compression::Gzip]);
        mistakes.extend(self.options.mistake_of_path(&Signal::ALL.map(Signal::path)));
        if self.resource.keys().any(String::is_empty) {
            let mistake = Mistake::new("resource", "An attribute has a name.");
            mistakes.push(mistake.help("For example `{ service.name: shop }`."));
        }
        mistakes
    }
}

impl SinkConfig for OtlpConfig {
    fn fields(&self) -> Vec<String> {
        self.attributes.to_vec()
    }

    fn in_flight(&self) -> InFlight {
        self.options.in_flight()
    }

    fn remarks(&self) -> Vec<Mistake> {
        let mut remarks = self.options.remarks();
        if self.options.endpoint().url().is_ok_and(|url| url.port() == Some(GRPC)) {
            let remark = Mistake::new("url", "4317 is usually the port of gRPC, but the sink sends by HTTP.");
            remarks.push(remark.help("Receivers usually take HTTP at port 4318."));
        }
        remarks
    }

    fn needed_files(&self) -> Vec<(&'static str, PathBuf)> {
        self.options.needed_files()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        let target = Target {
            // The signal follows.
            path: "",
            query: Vec::new(),
            headers: headers(),
            // Collectors take 20 MiB by default, other receivers less.
            most_bytes: ByteSize::mib(4),
            is_joining: true,
            check: Check { path: "/", query: Vec::new(), denied: &[401, 403] },
        };
        let encoder = Encoder::new(self.signal, &self.resource, self.attributes.to_vec());
        let export = Export { name: context.name.clone() };
        Store::build(context, &self.options, &self.shared, target, export, OtlpParts { encoder })
    }
}

/// Writes messages as parts of requests.
struct OtlpParts {
    encoder: Encoder,
}

impl Encode for OtlpParts {
    fn encode(&mut self, batch: &Batch, rows: &[usize], into: &mut Encoded) {
        let mut bound = self.encoder.bind(batch);
        let mut of_signals: [Vec<usize>; 3] = Default::default();
        for &row in rows {
            match bound.signal(row) {
                Ok(signal) => of_signals[signal as usize].push(row),
                Err(reason) => into.reject(row, reason),
            }
        }
        for (signal, rows) in Signal::ALL.into_iter().zip(of_signals) {
            into.divide();
            for row in rows {
                match bound.write(signal, row, into.buffer()) {
                    Ok(()) => into.end(row),
                    Err(reason) => into.reject(row, reason),
                }
            }
        }
    }
}

/// The interface of a receiver.
pub(crate) struct Export {
    /// The name of the sink.
    pub(crate) name: String,
}

/// Returns the signal of the records of a request.
fn signal(parts: &Parts) -> Signal {
    parts.iter().next().and_then(signal_of).unwrap_or_default()
}

impl Service for Export {
    fn body(&self, parts: &Parts) -> Bytes {
        request(parts.iter()).into()
    }

    fn url(&self, base: &Url, parts: &Parts) -> Option<Url> {
        Some(url_of(base, signal(parts)))
    }

    fn joins(&self, one: &Parts, other: &Parts) -> bool {
        signal(one) == signal(other)
    }

    fn read(&self, request: &Request, answer: &Answer, parts: &Parts) -> Reading {
        match answer.status {
            status if status.is_success() => self.accepted(request, answer, parts.len()),
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY => {
                Reading::Refused(reason(request, answer))
            }
            // Also wrong credentials or a wrong path: the records are not the reason, so they wait.
            _ => Reading::Again(request.failure(answer)),
        }
    }
}

impl Export {
    /// Returns what an answer with a success says.
    fn accepted(&self, request: &Request, answer: &Answer, count: usize) -> Reading {
        let Some(partial) = partial_success(&answer.body) else { return Reading::Accepted };
        let (server, shown) = (request.server(), request.shown(&partial.reason));
        if partial.rejected >= count as u64 {
            let reason = format!("{server} rejected the record: {shown}");
            return Reading::Each(vec![Verdict::Rejected(reason); count]);
        }
        match partial.rejected {
            0 => tracing::warn!("`{}`: {server} accepted {count} records with a warning: {shown}", self.name),
            rejected => tracing::warn!(
                "`{}`: {server} rejected {rejected} of {count} records, and did not say which: {shown}",
                self.name
            ),
        }
        Reading::Accepted
    }
}

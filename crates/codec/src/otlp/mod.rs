//! OTLP, the protocol of OpenTelemetry: requests with logs, metrics or traces become columns, and columns
//! become requests.
//!
//! [`Decoder`] walks a request in its binary form and appends the values of each record (log record, data
//! point, span) to the columns of its signal. [`request_of_json`] turns a request in JSON into one in the
//! binary form first. [`Encoder`] writes the columns of a message as a part, and [`request`] joins parts into
//! a request, in which records of one resource and scope are together. [`answer`] has the answers to
//! requests.
//!
//! A request comes from outside. Its nesting is bounded, time is in proportion to its size, and its columns
//! come in batches of bounded size.
//!
//! The protocol is described at <https://opentelemetry.io/docs/specs/otlp/>. See
//! docs/decisions/096-otlp-is-read-into-columns.md.

pub mod answer;
mod columns;
mod decode;
mod encode;
mod fill;
mod from_json;
mod join;
mod plan;
mod schema;
#[cfg(test)]
mod tests;
mod to_json;
mod walk;
mod write;

use arrow_schema::SchemaRef;
use schemars::JsonSchema;
use serde::Deserialize;

pub use decode::{Decoded, Decoder, Records};
pub use encode::{Bound, Encoder};
pub use join::{request, signal_of};

/// A kind of data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Signal {
    /// Log records.
    #[default]
    Logs,
    /// Data points of metrics.
    Metrics,
    /// Spans of traces.
    Traces,
}

impl Signal {
    /// All signals.
    pub const ALL: [Self; 3] = [Self::Logs, Self::Metrics, Self::Traces];

    /// Returns the value of the column `signal`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Logs => "logs",
            Self::Metrics => "metrics",
            Self::Traces => "traces",
        }
    }

    /// Returns the signal of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|signal| signal.name() == name)
    }

    /// Returns the path of requests by HTTP.
    pub fn path(self) -> &'static str {
        match self {
            Self::Logs => "/v1/logs",
            Self::Metrics => "/v1/metrics",
            Self::Traces => "/v1/traces",
        }
    }

    /// Returns the path of requests by gRPC.
    pub fn method(self) -> &'static str {
        match self {
            Self::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
            Self::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            Self::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        }
    }

    /// Returns the fields of its messages.
    pub fn fields(self) -> SchemaRef {
        plan::Plan::of(self).schema.clone()
    }
}

/// How many bytes of the reason why JSON is no request are kept: a text in place of a request is in it.
const REASON: usize = 1 << 10;

/// Returns a request in JSON in its binary form, which has at most four times as many bytes.
///
/// # Errors
/// The predicate of a sentence about the request: why it is none.
pub fn request_of_json(signal: Signal, json: &[u8]) -> Result<Vec<u8>, String> {
    let about = match signal {
        Signal::Logs => &schema::LOGS,
        Signal::Metrics => &schema::METRICS,
        Signal::Traces => &schema::TRACES,
    };
    from_json::message(about, json).map_err(|mut reason| {
        reason.truncate(reason.floor_char_boundary(REASON));
        format!("is not valid: {reason}")
    })
}

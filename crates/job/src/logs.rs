//! Passes the process's log events to the sources that collect them.

use std::fmt;

use serde_json::{Map, Value};
use thalweg_local::sources::internal_logs::{LogLevel, Record, record, wants};
use thalweg_redact::redacted;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// A `tracing` layer for processes that run graphs with sources that [collect
/// logs](thalweg_engine::SourceConfig::collects_logs).
#[derive(Debug, Clone, Copy)]
pub struct LogCollector;

impl LogCollector {
    /// Returns the layer. Sources select levels when they start, so the filter decides for each event.
    pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
        Self.with_filter(dynamic_filter_fn(|of, _| wants(level(of.level())) && is_for_users(of.target())))
    }
}

/// True if events of this target are for users. Those of the client of Kafka name its functions and its
/// options: components say in their own words what users must know. It alone knows of records that it skips
/// because they were deleted or are damaged.
#[must_use]
pub fn is_for_users(target: &str) -> bool {
    let is_in = |module: &str| {
        target.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    !is_in("krafka") || is_in("krafka::consumer::fetcher") || is_in("krafka::consumer::offsets")
}

impl<S: Subscriber> Layer<S> for LogCollector {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut seen = LogEvent::default();
        event.record(&mut seen);
        let text = |value: Value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let fields = seen.fields.into_iter().map(|(name, value)| (name, text(value))).collect();
        let of = event.metadata();
        record(&Record::new(level(of.level()), of.target(), seen.message, fields));
    }
}

fn level(level: &Level) -> LogLevel {
    match *level {
        Level::ERROR => LogLevel::Error,
        Level::WARN => LogLevel::Warn,
        Level::INFO => LogLevel::Info,
        Level::DEBUG => LogLevel::Debug,
        Level::TRACE => LogLevel::Trace,
    }
}

/// The message and the fields of a log event, without secrets.
#[derive(Debug, Default)]
pub struct LogEvent {
    /// The message.
    pub message: String,
    /// The other fields, in their order.
    pub fields: Map<String, Value>,
}

impl Visit for LogEvent {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = redacted(&format!("{value:?}")).into_owned();
        match field.name() {
            "message" => self.message = text,
            name => {
                self.fields.insert(name.to_owned(), text.into());
            }
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_the_client_of_kafka_are_for_users_only_if_records_are_skipped() {
        for target in ["thalweg_kafka::source", "krafkaesque", "krafka::consumer::fetcher::decode"] {
            assert!(is_for_users(target), "{target}");
        }
        for target in ["krafka", "krafka::consumer::group::classic", "krafka::network::pool"] {
            assert!(!is_for_users(target), "{target}");
        }
    }
}

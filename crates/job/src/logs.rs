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
        Self.with_filter(dynamic_filter_fn(|of, _| wants(level(of.level()))))
    }
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

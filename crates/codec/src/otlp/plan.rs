//! The columns for each signal, and the fields that they are made of.
//!
//! Columns have the names of the fields of a record. Those of its resource, its scope and its status have
//! that word before them: `resource_attributes`. A data point has the columns of its metric too.

use std::sync::{Arc, LazyLock};

use arrow_schema::{DataType, Field as ArrowField, FieldRef, Schema, SchemaRef, TimeUnit};

use super::Signal;
use super::schema::{
    EXPONENTIAL, EXPONENTIAL_POINT, Field, GAUGE, HISTOGRAM, HISTOGRAM_POINT, Kind, LOG_RECORD, Label,
    METRIC, Message, NUMBER_POINT, RESOURCE, SCOPE, SPAN, STATUS, SUM, SUMMARY, SUMMARY_POINT,
};
use crate::columns::FieldType;

/// A field of a message: where it goes to.
#[derive(Debug)]
pub(super) enum Target {
    /// To the column of this number.
    Column(usize),
    /// Its fields go to columns.
    Nested(Mapped),
    /// To no column of its own.
    Skipped,
}

/// A message type, and where its fields go to.
#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) message: &'static Message,
    /// One for each field of the message.
    pub(super) targets: Vec<Target>,
}

/// A kind of metric.
#[derive(Debug)]
pub(super) struct MetricKind {
    /// The name in the column `type`.
    pub(super) name: &'static str,
    /// The number of its field in a metric.
    pub(super) number: u32,
    pub(super) data: Mapped,
    pub(super) point: Mapped,
}

/// The parts that the columns of metrics are made of.
#[derive(Debug)]
pub(super) struct Metrics {
    pub(super) metric: Mapped,
    pub(super) kinds: Vec<MetricKind>,
    /// The column `type`.
    pub(super) kind: usize,
}

/// The columns of a signal.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) schema: SchemaRef,
    /// The record. That of metrics depends on their kind.
    pub(super) record: Option<Mapped>,
    pub(super) metrics: Option<Metrics>,
    pub(super) scope: Mapped,
    pub(super) scope_schema_url: usize,
    pub(super) resource: Mapped,
    pub(super) resource_schema_url: usize,
    /// The column `signal`.
    pub(super) signal: usize,
}

impl Plan {
    /// Returns the plan of a signal.
    pub(super) fn of(signal: Signal) -> &'static Self {
        static LOGS: LazyLock<Plan> = LazyLock::new(|| Plan::new(Signal::Logs));
        static METRICS: LazyLock<Plan> = LazyLock::new(|| Plan::new(Signal::Metrics));
        static TRACES: LazyLock<Plan> = LazyLock::new(|| Plan::new(Signal::Traces));
        match signal {
            Signal::Logs => &LOGS,
            Signal::Metrics => &METRICS,
            Signal::Traces => &TRACES,
        }
    }

    fn new(signal: Signal) -> Self {
        let mut columns = Columns(Vec::new());
        let (record, metrics) = match signal {
            Signal::Logs => (Some(columns.map("", &LOG_RECORD)), None),
            Signal::Traces => (Some(columns.map("", &SPAN)), None),
            Signal::Metrics => (None, Some(columns.metrics())),
        };
        let scope = columns.map("scope_", &SCOPE);
        let scope_schema_url = columns.text("scope_schema_url");
        let resource = columns.map("resource_", &RESOURCE);
        let resource_schema_url = columns.text("resource_schema_url");
        let signal = columns.text("signal");
        let schema = Arc::new(Schema::new(columns.0));
        Self { schema, record, metrics, scope, scope_schema_url, resource, resource_schema_url, signal }
    }
}

/// The columns so far.
struct Columns(Vec<FieldRef>);

impl Columns {
    /// Returns the number of a column, which is added if there is none of its name.
    fn add(&mut self, field: ArrowField) -> usize {
        match self.0.iter().position(|known| known.name() == field.name()) {
            Some(known) => known,
            None => {
                self.0.push(Arc::new(field));
                self.0.len() - 1
            }
        }
    }

    fn text(&mut self, name: &str) -> usize {
        self.add(FieldType::Text.field(name))
    }

    fn map(&mut self, prefix: &str, message: &'static Message) -> Mapped {
        let target = |field: &Field| self.target(prefix, field);
        Mapped { message, targets: message.fields.iter().map(target).collect() }
    }

    fn target(&mut self, prefix: &str, field: &Field) -> Target {
        match field.kind {
            Kind::Message(inner) if *inner == STATUS => Target::Nested(self.map("status_", inner)),
            // The data of a metric.
            Kind::Message(_) if field.label == Label::Explicit => Target::Skipped,
            _ if field.name == "data_points" => Target::Skipped,
            _ => Target::Column(self.add(described(field, format!("{prefix}{}", field.name)))),
        }
    }

    fn metrics(&mut self) -> Metrics {
        let metric = self.map("", &METRIC);
        let kind = self.text("type");
        let kinds = [
            ("gauge", 5, &GAUGE, &NUMBER_POINT),
            ("sum", 7, &SUM, &NUMBER_POINT),
            ("histogram", 9, &HISTOGRAM, &HISTOGRAM_POINT),
            ("exponential_histogram", 10, &EXPONENTIAL, &EXPONENTIAL_POINT),
            ("summary", 11, &SUMMARY, &SUMMARY_POINT),
        ];
        let kinds = kinds.map(|(name, number, data, point)| {
            let data = self.map("", data);
            MetricKind { name, number, data, point: self.map("", point) }
        });
        Metrics { metric, kinds: kinds.into(), kind }
    }
}

/// Returns the column of a field.
fn described(field: &Field, name: String) -> ArrowField {
    let kind = match (field.kind, field.label) {
        (_, Label::List) | (Kind::Value | Kind::Attributes | Kind::Message(_), _) => {
            return FieldType::Json.field(&name);
        }
        (Kind::Text | Kind::Bytes | Kind::Id(_) | Kind::Enum(_), _) => DataType::Utf8View,
        (Kind::Bool, _) => DataType::Boolean,
        (Kind::Double, _) => DataType::Float64,
        (Kind::Time, _) => DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
        (Kind::UInt64 | Kind::Fixed64, _) => DataType::UInt64,
        (Kind::Int | Kind::UInt32 | Kind::SInt32 | Kind::Fixed32 | Kind::SFixed64, _) => DataType::Int64,
    };
    ArrowField::new(name, kind, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(signal: Signal) -> Vec<String> {
        Plan::of(signal).schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    #[test]
    fn each_signal_has_its_columns() {
        let logs = [
            "time_unix_nano",
            "severity_number",
            "severity_text",
            "body",
            "attributes",
            "dropped_attributes_count",
            "flags",
            "trace_id",
            "span_id",
            "observed_time_unix_nano",
            "event_name",
            "scope_name",
            "scope_version",
            "scope_attributes",
            "scope_dropped_attributes_count",
            "scope_schema_url",
            "resource_attributes",
            "resource_dropped_attributes_count",
            "resource_entity_refs",
            "resource_schema_url",
            "signal",
        ];
        assert_eq!(names(Signal::Logs), logs);
        let traces = names(Signal::Traces);
        assert!(
            ["status_message", "status_code", "events", "kind"]
                .iter()
                .all(|name| { traces.iter().any(|known| known == name) })
        );
        let metrics = names(Signal::Metrics);
        let numbers = ["type", "as_int", "as_double", "is_monotonic", "bucket_counts", "quantile_values"];
        assert!(numbers.iter().all(|name| metrics.iter().any(|known| known == name)), "{metrics:?}");
        assert!(!metrics.iter().any(|name| name == "gauge" || name == "data_points"), "{metrics:?}");
    }
}

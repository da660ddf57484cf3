//! The messages of OTLP: the numbers, names and types of their fields.
//!
//! The tables are written by hand after <https://github.com/open-telemetry/opentelemetry-proto>, version 1. A
//! descriptor set in the program was rejected: what a field becomes (a time, an identifier, attributes) is
//! not in it.

/// The type of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Text,
    /// Bytes, as Base64 in JSON.
    Bytes,
    /// An identifier of this many bytes, as hexadecimal digits.
    Id(usize),
    Bool,
    /// A signed integer of variable length.
    Int,
    /// An unsigned integer of variable length and 32 bits.
    UInt32,
    /// An unsigned integer of variable length and 64 bits.
    UInt64,
    /// A signed integer of 32 bits whose sign is its lowest bit.
    SInt32,
    Fixed32,
    Fixed64,
    /// A signed integer of 8 bytes.
    SFixed64,
    Double,
    /// Nanoseconds since 1970 in 8 bytes. 0 is no time.
    Time,
    /// A number that has a name.
    Enum(&'static [&'static str]),
    /// A value of any type (`AnyValue`).
    Value,
    /// Names with values (a list of `KeyValue`).
    Attributes,
    Message(&'static Message),
}

/// How often a field occurs, and what it means if it does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Label {
    /// A missing field has the default value, and the default value is as good as none.
    Implicit,
    /// A missing field has the default value, which means something: the number of measurements is 0.
    Zero,
    /// A missing field has no value.
    Explicit,
    List,
}

/// A field of a message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Field {
    pub(super) number: u32,
    /// The name in the definition of the protocol, with underscores.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) label: Label,
}

/// A message type.
#[derive(Debug, PartialEq)]
pub(super) struct Message {
    /// The fields by their numbers, in ascending order.
    pub(super) fields: &'static [Field],
}

impl Message {
    /// Returns the index of the field with this number. `expected` is a guess.
    #[inline]
    pub(super) fn index_of(&self, number: u32, expected: usize) -> Option<usize> {
        match self.fields.get(expected) {
            Some(field) if field.number == number => Some(expected),
            _ => self.fields.iter().position(|field| field.number == number),
        }
    }

    /// Returns the field with this name, in the form of Protocol Buffers or of their JSON.
    pub(super) fn named(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| is_name(field.name, name))
    }
}

/// True if a name is that of a field: `time_unix_nano` or `timeUnixNano`.
fn is_name(field: &str, name: &str) -> bool {
    if field == name {
        return true;
    }
    let mut left = name.bytes();
    let mut is_capital = false;
    for byte in field.bytes() {
        if byte == b'_' {
            is_capital = true;
            continue;
        }
        let expected = if is_capital { byte.to_ascii_uppercase() } else { byte };
        is_capital = false;
        if left.next() != Some(expected) {
            return false;
        }
    }
    left.next().is_none()
}

const fn one(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, label: Label::Implicit }
}

const fn zero(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, label: Label::Zero }
}

const fn optional(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, label: Label::Explicit }
}

const fn list(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, label: Label::List }
}

/// The numbers of `AnyValue`.
pub(super) mod any {
    pub(in super::super) const TEXT: u32 = 1;
    pub(in super::super) const BOOL: u32 = 2;
    pub(in super::super) const INT: u32 = 3;
    pub(in super::super) const DOUBLE: u32 = 4;
    pub(in super::super) const ARRAY: u32 = 5;
    pub(in super::super) const OBJECT: u32 = 6;
    pub(in super::super) const BYTES: u32 = 7;
}

/// The numbers of `KeyValue`, and that of the elements of arrays and objects.
pub(super) const KEY: u32 = 1;
pub(super) const VALUE: u32 = 2;
pub(super) const ELEMENT: u32 = 1;

/// The numbers within a request: of a resource and its schema, of the groups below it, and of a scope and its
/// schema, and the records below it.
pub(super) const GROUPS: u32 = 1;
pub(super) const HEAD: u32 = 1;
pub(super) const INNER: u32 = 2;
pub(super) const SCHEMA_URL: u32 = 3;
/// The number of the points of a metric.
pub(super) const POINTS: u32 = 1;

pub(super) static ANY_VALUE: Message = Message {
    fields: &[
        optional(any::TEXT, "string_value", Kind::Text),
        optional(any::BOOL, "bool_value", Kind::Bool),
        optional(any::INT, "int_value", Kind::Int),
        optional(any::DOUBLE, "double_value", Kind::Double),
        optional(any::ARRAY, "array_value", Kind::Message(&ARRAY)),
        optional(any::OBJECT, "kvlist_value", Kind::Message(&OBJECT)),
        optional(any::BYTES, "bytes_value", Kind::Bytes),
    ],
};

static ARRAY: Message = Message { fields: &[list(ELEMENT, "values", Kind::Value)] };

static OBJECT: Message = Message { fields: &[one(ELEMENT, "values", Kind::Attributes)] };

pub(super) static KEY_VALUE: Message =
    Message { fields: &[one(KEY, "key", Kind::Text), optional(VALUE, "value", Kind::Value)] };

static ENTITY_REF: Message = Message {
    fields: &[
        one(1, "schema_url", Kind::Text),
        one(2, "type", Kind::Text),
        list(3, "id_keys", Kind::Text),
        list(4, "description_keys", Kind::Text),
    ],
};

pub(super) static RESOURCE: Message = Message {
    fields: &[
        one(1, "attributes", Kind::Attributes),
        one(2, "dropped_attributes_count", Kind::UInt32),
        list(3, "entity_refs", Kind::Message(&ENTITY_REF)),
    ],
};

pub(super) static SCOPE: Message = Message {
    fields: &[
        one(1, "name", Kind::Text),
        one(2, "version", Kind::Text),
        one(3, "attributes", Kind::Attributes),
        one(4, "dropped_attributes_count", Kind::UInt32),
    ],
};

pub(super) static LOG_RECORD: Message = Message {
    fields: &[
        one(1, "time_unix_nano", Kind::Time),
        one(2, "severity_number", Kind::Int),
        one(3, "severity_text", Kind::Text),
        optional(5, "body", Kind::Value),
        one(6, "attributes", Kind::Attributes),
        one(7, "dropped_attributes_count", Kind::UInt32),
        one(8, "flags", Kind::Fixed32),
        one(9, "trace_id", Kind::Id(16)),
        one(10, "span_id", Kind::Id(8)),
        one(11, "observed_time_unix_nano", Kind::Time),
        one(12, "event_name", Kind::Text),
    ],
};

/// The numbers of the body and of the name of an event in a log record.
pub(super) const BODY: u32 = 5;
pub(super) const EVENT_NAME: u32 = 12;

static EVENT: Message = Message {
    fields: &[
        one(1, "time_unix_nano", Kind::Fixed64),
        one(2, "name", Kind::Text),
        one(3, "attributes", Kind::Attributes),
        one(4, "dropped_attributes_count", Kind::UInt32),
    ],
};

static LINK: Message = Message {
    fields: &[
        one(1, "trace_id", Kind::Id(16)),
        one(2, "span_id", Kind::Id(8)),
        one(3, "trace_state", Kind::Text),
        one(4, "attributes", Kind::Attributes),
        one(5, "dropped_attributes_count", Kind::UInt32),
        one(6, "flags", Kind::Fixed32),
    ],
};

pub(super) static STATUS: Message = Message {
    fields: &[one(2, "message", Kind::Text), one(3, "code", Kind::Enum(&["unset", "ok", "error"]))],
};

const SPAN_KINDS: &[&str] = &["unspecified", "internal", "server", "client", "producer", "consumer"];

pub(super) static SPAN: Message = Message {
    fields: &[
        one(1, "trace_id", Kind::Id(16)),
        one(2, "span_id", Kind::Id(8)),
        one(3, "trace_state", Kind::Text),
        one(4, "parent_span_id", Kind::Id(8)),
        one(5, "name", Kind::Text),
        one(6, "kind", Kind::Enum(SPAN_KINDS)),
        one(7, "start_time_unix_nano", Kind::Time),
        one(8, "end_time_unix_nano", Kind::Time),
        one(9, "attributes", Kind::Attributes),
        one(10, "dropped_attributes_count", Kind::UInt32),
        list(11, "events", Kind::Message(&EVENT)),
        one(12, "dropped_events_count", Kind::UInt32),
        list(13, "links", Kind::Message(&LINK)),
        one(14, "dropped_links_count", Kind::UInt32),
        one(15, "status", Kind::Message(&STATUS)),
        one(16, "flags", Kind::Fixed32),
    ],
};

/// The number of the name of a span, and of a metric.
pub(super) const SPAN_NAME: u32 = 5;
pub(super) const METRIC_NAME: u32 = 1;

static EXEMPLAR: Message = Message {
    fields: &[
        one(2, "time_unix_nano", Kind::Fixed64),
        optional(3, "as_double", Kind::Double),
        one(4, "span_id", Kind::Id(8)),
        one(5, "trace_id", Kind::Id(16)),
        optional(6, "as_int", Kind::SFixed64),
        one(7, "filtered_attributes", Kind::Attributes),
    ],
};

static BUCKETS: Message =
    Message { fields: &[one(1, "offset", Kind::SInt32), list(2, "bucket_counts", Kind::UInt64)] };

static QUANTILE: Message =
    Message { fields: &[zero(1, "quantile", Kind::Double), zero(2, "value", Kind::Double)] };

pub(super) static NUMBER_POINT: Message = Message {
    fields: &[
        one(2, "start_time_unix_nano", Kind::Time),
        one(3, "time_unix_nano", Kind::Time),
        optional(4, "as_double", Kind::Double),
        list(5, "exemplars", Kind::Message(&EXEMPLAR)),
        optional(6, "as_int", Kind::SFixed64),
        one(7, "attributes", Kind::Attributes),
        one(8, "flags", Kind::UInt32),
    ],
};

pub(super) static HISTOGRAM_POINT: Message = Message {
    fields: &[
        one(2, "start_time_unix_nano", Kind::Time),
        one(3, "time_unix_nano", Kind::Time),
        zero(4, "count", Kind::Fixed64),
        optional(5, "sum", Kind::Double),
        list(6, "bucket_counts", Kind::Fixed64),
        list(7, "explicit_bounds", Kind::Double),
        list(8, "exemplars", Kind::Message(&EXEMPLAR)),
        one(9, "attributes", Kind::Attributes),
        one(10, "flags", Kind::UInt32),
        optional(11, "min", Kind::Double),
        optional(12, "max", Kind::Double),
    ],
};

pub(super) static EXPONENTIAL_POINT: Message = Message {
    fields: &[
        one(1, "attributes", Kind::Attributes),
        one(2, "start_time_unix_nano", Kind::Time),
        one(3, "time_unix_nano", Kind::Time),
        zero(4, "count", Kind::Fixed64),
        optional(5, "sum", Kind::Double),
        zero(6, "scale", Kind::SInt32),
        zero(7, "zero_count", Kind::Fixed64),
        one(8, "positive", Kind::Message(&BUCKETS)),
        one(9, "negative", Kind::Message(&BUCKETS)),
        one(10, "flags", Kind::UInt32),
        list(11, "exemplars", Kind::Message(&EXEMPLAR)),
        optional(12, "min", Kind::Double),
        optional(13, "max", Kind::Double),
        one(14, "zero_threshold", Kind::Double),
    ],
};

pub(super) static SUMMARY_POINT: Message = Message {
    fields: &[
        one(2, "start_time_unix_nano", Kind::Time),
        one(3, "time_unix_nano", Kind::Time),
        zero(4, "count", Kind::Fixed64),
        zero(5, "sum", Kind::Double),
        list(6, "quantile_values", Kind::Message(&QUANTILE)),
        one(7, "attributes", Kind::Attributes),
        one(8, "flags", Kind::UInt32),
    ],
};

/// The numbers of the fields of the data of a metric that are not points: numbers of variable length.
pub(super) const SETTINGS: [u32; 2] = [2, 3];

const TEMPORALITY: Field =
    one(2, "aggregation_temporality", Kind::Enum(&["unspecified", "delta", "cumulative"]));

pub(super) static GAUGE: Message =
    Message { fields: &[list(POINTS, "data_points", Kind::Message(&NUMBER_POINT))] };

pub(super) static SUM: Message = Message {
    fields: &[
        list(POINTS, "data_points", Kind::Message(&NUMBER_POINT)),
        TEMPORALITY,
        zero(3, "is_monotonic", Kind::Bool),
    ],
};

pub(super) static HISTOGRAM: Message =
    Message { fields: &[list(POINTS, "data_points", Kind::Message(&HISTOGRAM_POINT)), TEMPORALITY] };

pub(super) static EXPONENTIAL: Message =
    Message { fields: &[list(POINTS, "data_points", Kind::Message(&EXPONENTIAL_POINT)), TEMPORALITY] };

pub(super) static SUMMARY: Message =
    Message { fields: &[list(POINTS, "data_points", Kind::Message(&SUMMARY_POINT))] };

pub(super) static METRIC: Message = Message {
    fields: &[
        one(METRIC_NAME, "name", Kind::Text),
        one(2, "description", Kind::Text),
        one(3, "unit", Kind::Text),
        optional(5, "gauge", Kind::Message(&GAUGE)),
        optional(7, "sum", Kind::Message(&SUM)),
        optional(9, "histogram", Kind::Message(&HISTOGRAM)),
        optional(10, "exponential_histogram", Kind::Message(&EXPONENTIAL)),
        optional(11, "summary", Kind::Message(&SUMMARY)),
        one(12, "metadata", Kind::Attributes),
    ],
};

static SCOPE_LOGS: Message = Message {
    fields: &[
        one(HEAD, "scope", Kind::Message(&SCOPE)),
        list(INNER, "log_records", Kind::Message(&LOG_RECORD)),
        one(SCHEMA_URL, "schema_url", Kind::Text),
    ],
};

static RESOURCE_LOGS: Message = Message {
    fields: &[
        one(HEAD, "resource", Kind::Message(&RESOURCE)),
        list(INNER, "scope_logs", Kind::Message(&SCOPE_LOGS)),
        one(SCHEMA_URL, "schema_url", Kind::Text),
    ],
};

pub(super) static LOGS: Message =
    Message { fields: &[list(GROUPS, "resource_logs", Kind::Message(&RESOURCE_LOGS))] };

static SCOPE_METRICS: Message = Message {
    fields: &[
        one(HEAD, "scope", Kind::Message(&SCOPE)),
        list(INNER, "metrics", Kind::Message(&METRIC)),
        one(SCHEMA_URL, "schema_url", Kind::Text),
    ],
};

static RESOURCE_METRICS: Message = Message {
    fields: &[
        one(HEAD, "resource", Kind::Message(&RESOURCE)),
        list(INNER, "scope_metrics", Kind::Message(&SCOPE_METRICS)),
        one(SCHEMA_URL, "schema_url", Kind::Text),
    ],
};

pub(super) static METRICS: Message =
    Message { fields: &[list(GROUPS, "resource_metrics", Kind::Message(&RESOURCE_METRICS))] };

static SCOPE_SPANS: Message = Message {
    fields: &[
        one(HEAD, "scope", Kind::Message(&SCOPE)),
        list(INNER, "spans", Kind::Message(&SPAN)),
        one(SCHEMA_URL, "schema_url", Kind::Text),
    ],
};

static RESOURCE_SPANS: Message = Message {
    fields: &[
        one(HEAD, "resource", Kind::Message(&RESOURCE)),
        list(INNER, "scope_spans", Kind::Message(&SCOPE_SPANS)),
        one(SCHEMA_URL, "schema_url", Kind::Text),
    ],
};

pub(super) static TRACES: Message =
    Message { fields: &[list(GROUPS, "resource_spans", Kind::Message(&RESOURCE_SPANS))] };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_both_of_its_names() {
        for (name, expected) in [
            ("time_unix_nano", true),
            ("timeUnixNano", true),
            ("timeUnixnano", false),
            ("TimeUnixNano", false),
            ("timeUnixNanos", false),
            ("timeUnix", false),
            ("", false),
        ] {
            assert_eq!(is_name("time_unix_nano", name), expected, "{name}");
        }
    }

    #[test]
    fn fields_are_in_the_order_of_their_numbers() {
        fn check(message: &Message) {
            assert!(message.fields.is_sorted_by_key(|field| field.number), "{message:?}");
            for field in message.fields {
                if let Kind::Message(inner) = field.kind {
                    check(inner);
                }
            }
        }
        [&LOGS, &METRICS, &TRACES, &ANY_VALUE, &KEY_VALUE].into_iter().for_each(check);
    }
}

//! Instruments and traces as requests of OTLP, in the JSON form.
//!
//! An instrument keeps the name that it has for Prometheus, without the `_total` of counters: receivers that
//! write for Prometheus add it. A name that ends with a unit gives it to the metric.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value as Json, json};
use thalweg_engine::{BatchTrace, StageSpan};

use crate::instruments::{Instrument, Kind, Point, Times, Value};

/// Values count from the start of the run.
const CUMULATIVE: u32 = 2;
/// The kind of a span that is within a program.
const INTERNAL: u32 = 1;
/// The status of a span that failed.
const ERROR: u32 = 2;

/// Returns a resource with these attributes.
pub(super) fn resource(attributes: &BTreeMap<String, String>) -> Json {
    let attributes: Vec<Json> = attributes.iter().map(|(name, value)| text(name, value)).collect();
    json!({ "attributes": attributes })
}

/// Returns a request with the metrics of a run that began at this time.
pub(super) fn metrics(
    instruments: &[Instrument],
    resource: &Json,
    begun: SystemTime,
    now: SystemTime,
) -> Json {
    let with_points = instruments.iter().filter(|instrument| !instrument.points.is_empty());
    let metrics: Vec<Json> = with_points.map(|instrument| metric(instrument, begun, now)).collect();
    let scope = json!({ "scope": scope(), "metrics": metrics });
    json!({ "resourceMetrics": [{ "resource": resource, "scopeMetrics": [scope] }] })
}

/// Returns a request with the spans of these traces.
pub(super) fn traces<'t>(traces: impl IntoIterator<Item = &'t BatchTrace>, resource: &Json) -> Json {
    let spans: Vec<Json> = traces.into_iter().flat_map(spans).collect();
    let scope = json!({ "scope": scope(), "spans": spans });
    json!({ "resourceSpans": [{ "resource": resource, "scopeSpans": [scope] }] })
}

fn scope() -> Json {
    json!({ "name": "thalweg", "version": env!("CARGO_PKG_VERSION") })
}

fn metric(instrument: &Instrument, begun: SystemTime, now: SystemTime) -> Json {
    let Instrument { name, help, kind, points } = instrument;
    let name = name.strip_suffix("_total").unwrap_or(name);
    let mut metric = json!({ "name": format!("thalweg_{name}"), "description": help, "unit": unit(name) });
    let points: Vec<Json> = points.iter().map(|each| point(each, *kind, begun, now)).collect();
    let (form, data) = match kind {
        Kind::Counter => (
            "sum",
            json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE, "isMonotonic": true }),
        ),
        Kind::Gauge => ("gauge", json!({ "dataPoints": points })),
        Kind::Histogram => {
            ("histogram", json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE }))
        }
    };
    metric[form] = data;
    metric
}

/// The unit that a name ends with, in UCUM.
fn unit(name: &str) -> &'static str {
    if name.ends_with("_bytes") {
        "By"
    } else if name.ends_with("_seconds") {
        "s"
    } else {
        ""
    }
}

fn point(point: &Point, kind: Kind, begun: SystemTime, now: SystemTime) -> Json {
    let attributes: Vec<Json> = point.labels.iter().map(|(name, value)| text(name, value)).collect();
    let mut data = json!({ "attributes": attributes, "timeUnixNano": nanoseconds(now) });
    if kind != Kind::Gauge {
        data["startTimeUnixNano"] = nanoseconds(begun).into();
    }
    match &point.value {
        Value::Whole(value) => data["asInt"] = integer(*value),
        Value::Real(value) => data["asDouble"] = (*value).into(),
        Value::Times(Times { up_to, sum, count }) => {
            let bounds: Vec<f64> = up_to.iter().map(|(bound, _)| *bound).collect();
            data["count"] = (*count).into();
            data["sum"] = (*sum).into();
            data["bucketCounts"] = each(up_to, *count).into();
            data["explicitBounds"] = bounds.into();
        }
    }
    data
}

/// The number of values in each bucket alone, and in one without an upper bound.
fn each(up_to: &[(f64, u64)], count: u64) -> Vec<u64> {
    let mut below = 0;
    let all = up_to.iter().map(|(_, number)| *number).chain([count]);
    all.map(|number| number.saturating_sub(std::mem::replace(&mut below, number))).collect()
}

/// The span of a batch, and those of the components that it came to.
fn spans(trace: &BatchTrace) -> Vec<Json> {
    let id = format!("{:032x}", trace.id);
    let parent = identifier(trace.span);
    let mut batch = json!({
        "traceId": id,
        "spanId": parent,
        "name": &*trace.source,
        "kind": INTERNAL,
        "startTimeUnixNano": nanoseconds(trace.begun),
        "endTimeUnixNano": nanoseconds(after(trace, trace.took)),
        "attributes": [
            text("component", &trace.source),
            number("messages", trace.messages),
            number("rejected", trace.rejected),
            text("outcome", trace.outcome),
        ],
    });
    if trace.has_failed {
        batch["status"] = json!({ "code": ERROR });
    }
    let stage = |stage: &StageSpan| {
        json!({
            "traceId": id,
            "spanId": identifier(stage.span),
            "parentSpanId": parent,
            "name": &*stage.component,
            "kind": INTERNAL,
            "startTimeUnixNano": nanoseconds(after(trace, stage.begun)),
            "endTimeUnixNano": nanoseconds(after(trace, stage.ended)),
            "attributes": [
                text("component", &stage.component),
                number("messages", stage.messages),
                number("bytes", stage.bytes),
                number("parts", stage.parts),
            ],
        })
    };
    let mut spans: Vec<Json> = trace.stages.iter().map(stage).collect();
    spans.insert(0, batch);
    spans
}

fn after(trace: &BatchTrace, time: Duration) -> SystemTime {
    trace.begun.checked_add(time).unwrap_or(trace.begun)
}

fn identifier(span: u64) -> String {
    format!("{span:016x}")
}

fn text(name: &str, value: &str) -> Json {
    json!({ "key": name, "value": { "stringValue": value } })
}

fn number(name: &str, value: u64) -> Json {
    json!({ "key": name, "value": { "intValue": integer(value) } })
}

/// Integers of OTLP have a sign.
fn integer(value: u64) -> Json {
    i64::try_from(value).unwrap_or(i64::MAX).into()
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_codec::otlp::{Signal, request_of_json};

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_counter_a_gauge_and_a_histogram_become_metrics() {
        let labels = vec![("component", "in".to_owned())];
        let times = Times { up_to: vec![(0.5, 1), (1.0, 3)], sum: 7.25, count: 4 };
        let all = [
            Instrument::new("sent_bytes_total", "Bytes.", [(labels.clone(), Value::Whole(u64::MAX))]),
            Instrument::single("uptime_seconds", "The time.", Value::Real(2.0)),
            Instrument::new("empty_total", "Nothing.", []),
            Instrument {
                name: "latency_seconds".to_owned(),
                help: "Times.",
                kind: Kind::Histogram,
                points: vec![Point { labels, value: Value::Times(times) }],
            },
        ];
        let request = metrics(&all, &resource(&BTreeMap::new()), at(1), at(2));
        let metrics = &request["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
        let attributes = json!([{ "key": "component", "value": { "stringValue": "in" } }]);
        let (begun, now) = (1_000_000_000_u64, 2_000_000_000_u64);
        let sum = json!({
            "dataPoints": [{
                "attributes": attributes, "timeUnixNano": now, "startTimeUnixNano": begun, "asInt": i64::MAX,
            }],
            "aggregationTemporality": 2,
            "isMonotonic": true,
        });
        let gauge = json!({ "dataPoints": [{ "attributes": [], "timeUnixNano": now, "asDouble": 2.0 }] });
        let histogram = json!({
            "dataPoints": [{
                "attributes": attributes, "timeUnixNano": now, "startTimeUnixNano": begun,
                "count": 4, "sum": 7.25, "bucketCounts": [1, 2, 1], "explicitBounds": [0.5, 1.0],
            }],
            "aggregationTemporality": 2,
        });
        let expected = json!([
            { "name": "thalweg_sent_bytes", "description": "Bytes.", "unit": "By", "sum": sum },
            { "name": "thalweg_uptime_seconds", "description": "The time.", "unit": "s", "gauge": gauge },
            { "name": "thalweg_latency_seconds", "description": "Times.", "unit": "s", "histogram": histogram },
        ]);
        assert_eq!(*metrics, expected);
        request_of_json(Signal::Metrics, request.to_string().as_bytes()).unwrap();
    }

    #[test]
    fn a_batch_is_the_parent_of_the_components_that_it_came_to() {
        let stage = StageSpan {
            span: 2,
            component: "out".into(),
            begun: Duration::from_secs(1),
            ended: Duration::from_secs(3),
            messages: 4,
            bytes: 50,
            parts: 1,
        };
        let trace = BatchTrace {
            id: 1,
            span: 0x00ab,
            source: "in".into(),
            messages: 5,
            begun: at(10),
            took: Duration::from_secs(4),
            outcome: "failed",
            has_failed: true,
            rejected: 1,
            stages: vec![stage],
        };
        let resource = resource(&BTreeMap::from([("service.name".to_owned(), "shop".to_owned())]));
        let request = traces([&trace], &resource);
        let resource = &request["resourceSpans"][0]["resource"]["attributes"];
        assert_eq!(*resource, json!([{ "key": "service.name", "value": { "stringValue": "shop" } }]));
        let spans = &request["resourceSpans"][0]["scopeSpans"][0]["spans"];
        let (batch, out) = (&spans[0], &spans[1]);
        assert_eq!((&batch["spanId"], &out["parentSpanId"]), (&json!("00000000000000ab"), &batch["spanId"]));
        assert_eq!((&batch["traceId"], &batch["traceId"]), (&out["traceId"], &json!(format!("{:032}", 1))));
        assert!(batch.get("parentSpanId").is_none() && out.get("status").is_none());
        assert_eq!((&batch["name"], &batch["status"]["code"]), (&json!("in"), &json!(2)));
        assert_eq!(batch["endTimeUnixNano"], json!(14_000_000_000_u64));
        assert_eq!(out["startTimeUnixNano"], json!(11_000_000_000_u64));
        assert_eq!(out["endTimeUnixNano"], json!(13_000_000_000_u64));
        assert_eq!(out["attributes"][2], json!({ "key": "bytes", "value": { "intValue": 50 } }));
        request_of_json(Signal::Traces, request.to_string().as_bytes()).unwrap();
    }
}

//! The [instruments](crate::instruments) of a run in the text format of Prometheus.
//!
//! The [format](https://prometheus.io/docs/instrumenting/exposition_formats/) is written here.

use std::fmt::Write as _;

use super::Observed;
use crate::instruments::{Instrument, Kind, Point, Times, Value, instruments};

/// Returns all metrics.
pub(super) fn metrics(observed: &Observed) -> String {
    let mut out = String::new();
    for instrument in instruments(observed) {
        write(&mut out, &instrument);
    }
    out
}

fn write(out: &mut String, instrument: &Instrument) {
    let Instrument { name, help, kind, points } = instrument;
    let kind = match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    let _ = writeln!(out, "# HELP thalweg_{name} {help}\n# TYPE thalweg_{name} {kind}");
    for Point { labels, value } in points {
        match value {
            Value::Whole(value) => line(out, name, labels, None, value),
            Value::Real(value) => line(out, name, labels, None, value),
            Value::Times(times) => histogram(out, name, labels, times),
        }
    }
}

fn histogram(out: &mut String, name: &str, labels: &[(&'static str, String)], times: &Times) {
    let buckets = format!("{name}_bucket");
    for (bound, number) in &times.up_to {
        line(out, &buckets, labels, Some(&bound.to_string()), number);
    }
    line(out, &buckets, labels, Some("+Inf"), &times.count);
    line(out, &format!("{name}_sum"), labels, None, &times.sum);
    line(out, &format!("{name}_count"), labels, None, &times.count);
}

/// A line. `bound` is the label of a bucket.
fn line(
    out: &mut String,
    name: &str,
    labels: &[(&'static str, String)],
    bound: Option<&str>,
    value: &impl std::fmt::Display,
) {
    let all = labels.iter().map(|(label, text)| (*label, text.as_str()));
    let all = all.chain(bound.map(|bound| ("le", bound)));
    let shown: Vec<String> = all.map(|(label, text)| format!("{label}=\"{}\"", escaped(text))).collect();
    let shown = if shown.is_empty() { String::new() } else { format!("{{{}}}", shown.join(",")) };
    let _ = writeln!(out, "thalweg_{name}{shown} {value}");
}

/// Escapes the value of a label.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instruments_are_written_as_prometheus_reads_them() {
        let component = |name: &str| vec![("component", name.to_owned())];
        let times = Times { up_to: vec![(0.5, 1), (1.0, 3)], sum: 7.25, count: 4 };
        let points = [(component("a\"b"), Value::Whole(3)), (component("c"), Value::Real(0.5))];
        let all = [
            Instrument::new("errors_total", "Errors.", points),
            Instrument::single("uptime_seconds", "The time.", Value::Real(2.0)),
            Instrument {
                name: "latency_seconds".to_owned(),
                help: "Times.",
                kind: Kind::Histogram,
                points: vec![Point { labels: component("in"), value: Value::Times(times) }],
            },
        ];
        let mut out = String::new();
        all.iter().for_each(|instrument| write(&mut out, instrument));
        let expected = "\
# HELP thalweg_errors_total Errors.
# TYPE thalweg_errors_total counter
thalweg_errors_total{component=\"a\\\"b\"} 3
thalweg_errors_total{component=\"c\"} 0.5
# HELP thalweg_uptime_seconds The time.
# TYPE thalweg_uptime_seconds gauge
thalweg_uptime_seconds 2
# HELP thalweg_latency_seconds Times.
# TYPE thalweg_latency_seconds histogram
thalweg_latency_seconds_bucket{component=\"in\",le=\"0.5\"} 1
thalweg_latency_seconds_bucket{component=\"in\",le=\"1\"} 3
thalweg_latency_seconds_bucket{component=\"in\",le=\"+Inf\"} 4
thalweg_latency_seconds_sum{component=\"in\"} 7.25
thalweg_latency_seconds_count{component=\"in\"} 4
";
        assert_eq!(out, expected);
    }
}

//! A run's counters in the text format of Prometheus.
//!
//! The [format](https://prometheus.io/docs/instrumenting/exposition_formats/) is written here, from the
//! engine's own counters at the time of the request. An exporter library was rejected: it would count
//! everything a second time.

use std::fmt::Write as _;
use std::time::Instant;

use thalweg_engine::{ComponentCounts, EdgeCounts, Handle, SourceState};

use super::{Activity, Observed};
use crate::timetable::Timetable;

/// A counter of components: its name, its help, and its value.
type Counter = (&'static str, &'static str, fn(&ComponentCounts) -> f64);

const COUNTERS: [Counter; 9] = [
    ("received_messages_total", "Messages that it received (a source: read).", |c| c.rows_in as f64),
    ("received_bytes_total", "Bytes of payload that it received.", |c| c.bytes_in as f64),
    ("sent_messages_total", "Messages that it sent (a sink: wrote).", |c| c.rows_out as f64),
    ("sent_bytes_total", "Bytes of payload that it sent.", |c| c.bytes_out as f64),
    ("errors_total", "Messages that left by its errors output.", |c| c.errors as f64),
    ("busy_seconds_total", "Time spent in it, summed over its workers.", |c| c.busy_ns as f64 / 1e9),
    ("batches_at_once_total", "Batches processed in the call of the stage before.", |c| {
        c.taken_at_once as f64
    }),
    ("batches_queued_total", "Batches that came through a channel.", |c| c.queued as f64),
    ("retrying", "1 while it retries a temporary error.", |c| f64::from(u8::from(c.retrying.is_some()))),
];

/// Returns all metrics. Between two runs, those of a run are left out.
pub(super) fn metrics(observed: &Observed) -> String {
    let mut out = String::new();
    if let Activity::Running(handle) = &observed.activity {
        of_run(&mut out, handle, observed.begun);
    }
    if let Some(timetable) = &observed.timetable {
        scheduled(&mut out, timetable);
    }
    head(&mut out, "build_info", "The version of thalweg.");
    let _ = writeln!(out, "thalweg_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
    out
}

/// The runs of a schedule, and when the next one begins.
fn scheduled(out: &mut String, timetable: &Timetable) {
    let counts = timetable.counts();
    head(out, "scheduled_runs_total", "Times of the schedule, by what became of their runs.");
    for (outcome, number) in
        [("succeeded", counts.succeeded), ("failed", counts.failed), ("skipped", counts.skipped)]
    {
        let _ = writeln!(out, "thalweg_scheduled_runs_total{{outcome=\"{outcome}\"}} {number}");
    }
    head(out, "next_run_timestamp_seconds", "When the next run of the schedule begins, since 1970.");
    if let Some(next) = timetable.next() {
        let _ = writeln!(out, "thalweg_next_run_timestamp_seconds {}", next.timestamp());
    }
}

/// The metrics of a run that began at this time.
fn of_run(out: &mut String, handle: &Handle, begun: Instant) {
    let counts = handle.counts();
    for (name, help, value) in COUNTERS {
        head(out, &format!("component_{name}"), help);
        for component in &counts {
            line(out, name, component, value(component));
        }
    }
    gauges(out, &counts);
    sources(out, handle);
    edges(out, handle);
    queues(out, handle);
    let budget = handle.budget();
    let totals = [
        ("budget_limit_bytes", "The memory for data in flight.", budget.limit() as f64),
        ("budget_used_bytes", "The part of it in use.", budget.used() as f64),
        ("budget_peak_bytes", "The peak of its use.", budget.peak() as f64),
        (
            "dead_letters_total",
            "Messages kept because they could not be processed.",
            handle.dead_letters() as f64,
        ),
        (
            "dead_letters_dropped_total",
            "Dead letters dropped because there were too many.",
            handle.dead_letters_dropped() as f64,
        ),
        (
            "dead_letters_full",
            "1 while rejected messages wait because the dead letters are full.",
            f64::from(u8::from(handle.dead_letters_full().is_some())),
        ),
        ("uptime_seconds", "The time since the start of the run.", begun.elapsed().as_secs_f64()),
    ];
    for (name, help, value) in totals {
        head(out, name, help);
        let _ = writeln!(out, "thalweg_{name} {value}");
    }
    head(out, "budget_held_bytes", "The part of the memory for data in flight that a holder has.");
    for held in budget.holders() {
        let _ =
            writeln!(out, "thalweg_budget_held_bytes{{holder=\"{}\"}} {}", escaped(&held.name), held.bytes);
    }
}

/// Shows the gauges that components have of their own, those of one name together.
fn gauges(out: &mut String, counts: &[ComponentCounts]) {
    let all =
        counts.iter().flat_map(|component| component.gauges.iter().map(move |gauge| (gauge, component)));
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|(gauge, _)| gauge.name);
    for same in all.chunk_by(|(a, _), (b, _)| a.name == b.name) {
        for (number, (gauge, component)) in same.iter().enumerate() {
            if number == 0 {
                head(out, &format!("component_{}", gauge.name), gauge.help);
            }
            line(out, gauge.name, component, gauge.value as f64);
        }
    }
}

/// The latency of each source, what it has not settled, and whether it reads.
fn sources(out: &mut String, handle: &Handle) {
    let latencies = handle.latencies();
    describe(
        out,
        "source_latency_seconds",
        "The time from reading a batch until all of it is settled.",
        "histogram",
    );
    for latency in &latencies {
        let of = escaped(&latency.source);
        let name = "thalweg_source_latency_seconds";
        for (bound, number) in &latency.buckets {
            let _ = writeln!(out, "{name}_bucket{{component=\"{of}\",le=\"{bound}\"}} {number}");
        }
        let _ = writeln!(out, "{name}_bucket{{component=\"{of}\",le=\"+Inf\"}} {}", latency.total);
        let _ = writeln!(out, "{name}_sum{{component=\"{of}\"}} {}", latency.sum_s);
        let _ = writeln!(out, "{name}_count{{component=\"{of}\"}} {}", latency.total);
    }
    head(out, "source_oldest_unsettled_seconds", "The age of the oldest batch that is not settled.");
    for latency in &latencies {
        let age = latency.oldest_unsettled_ms.unwrap_or_default() as f64 / 1e3;
        plain(out, "source_oldest_unsettled_seconds", &latency.source, age);
    }
    head(out, "source_paused", "1 while a client has paused it.");
    for source in handle.sources() {
        let is_paused = f64::from(u8::from(source.state == SourceState::Paused));
        plain(out, "source_paused", &source.name, is_paused);
    }
}

/// Counters of each edge.
fn edges(out: &mut String, handle: &Handle) {
    let edges = handle.edges();
    let mut all = |name: &str, help: &str, value: fn(&EdgeCounts) -> u64| {
        head(out, name, help);
        for edge in &edges {
            let [from, output, to] = [&edge.from, &edge.output, &edge.to].map(|text| escaped(text));
            let _ = writeln!(
                out,
                "thalweg_{name}{{from=\"{from}\",output=\"{output}\",to=\"{to}\"}} {}",
                value(edge)
            );
        }
    };
    all("edge_messages_total", "Messages that passed the edge.", |edge| edge.messages);
    all("edge_bytes_total", "Bytes of payload that passed the edge.", |edge| edge.bytes);
    all("edge_batches_total", "Batches that passed the edge.", |edge| edge.batches);
}

/// Bytes that wait before each stage.
fn queues(out: &mut String, handle: &Handle) {
    let queues = handle.queues();
    head(out, "queue_bytes", "Bytes that wait in the channel before a stage.");
    for queue in &queues {
        plain(out, "queue_bytes", &queue.to, queue.bytes as f64);
    }
    head(out, "queue_limit_bytes", "The most that the channel before a stage holds.");
    for queue in &queues {
        plain(out, "queue_limit_bytes", &queue.to, queue.limit_bytes as f64);
    }
}

/// A line with the name of a component alone.
fn plain(out: &mut String, name: &str, component: &str, value: f64) {
    let _ = writeln!(out, "thalweg_{name}{{component=\"{}\"}} {value}", escaped(component));
}

fn line(out: &mut String, name: &str, component: &ComponentCounts, value: f64) {
    let ComponentCounts { name: of, kind, role, .. } = component;
    let _ = writeln!(
        out,
        "thalweg_component_{name}{{component=\"{}\",kind=\"{kind}\",role=\"{role}\"}} {value}",
        escaped(of)
    );
}

fn head(out: &mut String, name: &str, help: &str) {
    describe(out, name, help, if name.ends_with("_total") { "counter" } else { "gauge" });
}

fn describe(out: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(out, "# HELP thalweg_{name} {help}\n# TYPE thalweg_{name} {kind}");
}

/// Escapes the value of a label.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

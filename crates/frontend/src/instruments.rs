//! The instruments of a run: all that it measures, with names, help and values.
//!
//! `/metrics` writes them as text for Prometheus, and telemetry as metrics of OTLP, so neither can have what
//! the other lacks. Values come from the engine's own counters at the time of the question. An exporter
//! library was rejected: it would count everything a second time.

use std::time::Instant;

use thalweg_engine::{ComponentCounts, EdgeCounts, Handle, LatencyCounts, QueueCounts, SourceState};

use crate::api::{Activity, Observed};
use crate::timetable::Timetable;

/// An instrument with its present values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Instrument {
    /// The name after `thalweg_`. A counter ends with `_total`, a unit is before that.
    pub(crate) name: String,
    pub(crate) help: &'static str,
    pub(crate) kind: Kind,
    pub(crate) points: Vec<Point>,
}

/// The kind of an instrument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A value with its labels.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Point {
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) value: Value,
}

/// The value of a point.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Whole(u64),
    Real(f64),
    Times(Times),
}

/// The values of a histogram.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Times {
    /// Bounds in ascending order, each with the number of values that are not larger.
    pub(crate) up_to: Vec<(f64, u64)>,
    pub(crate) sum: f64,
    pub(crate) count: u64,
}

/// A counter of components: its name, its help, and its value.
type Counter = (&'static str, &'static str, fn(&ComponentCounts) -> Value);

const COUNTERS: [Counter; 9] = [
    ("received_messages_total", "Messages that it received (a source: read).", |c| Value::Whole(c.rows_in)),
    ("received_bytes_total", "Bytes of payload that it received.", |c| Value::Whole(c.bytes_in)),
    ("sent_messages_total", "Messages that it sent (a sink: wrote).", |c| Value::Whole(c.rows_out)),
    ("sent_bytes_total", "Bytes of payload that it sent.", |c| Value::Whole(c.bytes_out)),
    ("errors_total", "Messages that left by its errors output.", |c| Value::Whole(c.errors)),
    ("busy_seconds_total", "Time spent in it, summed over its workers.", |c| {
        Value::Real(c.busy_ns as f64 / 1e9)
    }),
    ("batches_at_once_total", "Batches processed in the call of the stage before.", |c| {
        Value::Whole(c.taken_at_once)
    }),
    ("batches_queued_total", "Batches that came through a channel.", |c| Value::Whole(c.queued)),
    ("retrying", "1 while it retries a temporary error.", |c| truth(c.retrying.is_some())),
];

/// Returns all instruments. Between two runs, those of a run are left out.
pub(crate) fn instruments(observed: &Observed) -> Vec<Instrument> {
    let mut all = Vec::new();
    if let Activity::Running(handle) = &observed.activity {
        of_run(&mut all, handle, observed.begun);
        if let Some(telemetry) = &observed.telemetry {
            telemetry.instruments(handle, &mut all);
        }
    }
    if let Some(timetable) = &observed.timetable {
        scheduled(&mut all, timetable);
    }
    let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    all.push(Instrument::new("build_info", "The version of thalweg.", [(version, Value::Whole(1))]));
    all
}

impl Instrument {
    /// A counter, if its name ends so, or a gauge.
    pub(crate) fn new(
        name: impl Into<String>,
        help: &'static str,
        points: impl IntoIterator<Item = (Vec<(&'static str, String)>, Value)>,
    ) -> Self {
        let name = name.into();
        let kind = if name.ends_with("_total") { Kind::Counter } else { Kind::Gauge };
        let points = points.into_iter().map(|(labels, value)| Point { labels, value }).collect();
        Self { name, help, kind, points }
    }

    /// An instrument with one value, of the process.
    pub(crate) fn single(name: &'static str, help: &'static str, value: Value) -> Self {
        Self::new(name, help, [(Vec::new(), value)])
    }
}

/// 1 or 0.
fn truth(is_true: bool) -> Value {
    Value::Whole(u64::from(is_true))
}

/// The runs of a schedule, and when the next one begins.
fn scheduled(all: &mut Vec<Instrument>, timetable: &Timetable) {
    let counts = timetable.counts();
    let by_outcome =
        [("succeeded", counts.succeeded), ("failed", counts.failed), ("skipped", counts.skipped)]
            .map(|(outcome, number)| (vec![("outcome", outcome.to_owned())], Value::Whole(number)));
    all.push(Instrument::new(
        "scheduled_runs_total",
        "Times of the schedule, by what became of their runs.",
        by_outcome,
    ));
    let next = timetable.next().map(|next| (Vec::new(), Value::Real(next.timestamp() as f64)));
    all.push(Instrument::new(
        "next_run_timestamp_seconds",
        "When the next run of the schedule begins, since 1970.",
        next,
    ));
}

/// The instruments of a run that began at this time.
fn of_run(all: &mut Vec<Instrument>, handle: &Handle, begun: Instant) {
    let counts = handle.counts();
    for (name, help, value) in COUNTERS {
        let points = counts.iter().map(|component| (labels_of(component), value(component)));
        all.push(Instrument::new(format!("component_{name}"), help, points));
    }
    gauges(all, &counts);
    sources(all, handle);
    edges(all, &handle.edges());
    queues(all, &handle.queues());
    let budget = handle.budget();
    let whole = |number: usize| Value::Whole(number as u64);
    all.extend([
        Instrument::single("budget_limit_bytes", "The memory for data in flight.", whole(budget.limit())),
        Instrument::single("budget_used_bytes", "The part of it in use.", whole(budget.used())),
        Instrument::single("budget_peak_bytes", "The peak of its use.", whole(budget.peak())),
        Instrument::single(
            "dead_letters_total",
            "Messages kept because they could not be processed.",
            Value::Whole(handle.dead_letters()),
        ),
        Instrument::single(
            "dead_letters_dropped_total",
            "Dead letters dropped because there were too many.",
            Value::Whole(handle.dead_letters_dropped()),
        ),
        Instrument::single(
            "dead_letters_full",
            "1 while rejected messages wait because the dead letters are full.",
            truth(handle.dead_letters_full().is_some()),
        ),
        Instrument::single(
            "uptime_seconds",
            "The time since the start of the run.",
            Value::Real(begun.elapsed().as_secs_f64()),
        ),
    ]);
    let held =
        budget.holders().into_iter().map(|held| (vec![("holder", held.name.to_string())], whole(held.bytes)));
    let help = "The part of the memory for data in flight that a holder has.";
    all.push(Instrument::new("budget_held_bytes", help, held));
}

/// The gauges that components have of their own, those of one name together.
fn gauges(all: &mut Vec<Instrument>, counts: &[ComponentCounts]) {
    let own =
        counts.iter().flat_map(|component| component.gauges.iter().map(move |gauge| (gauge, component)));
    let mut own: Vec<_> = own.collect();
    own.sort_by_key(|(gauge, _)| gauge.name);
    for same in own.chunk_by(|(a, _), (b, _)| a.name == b.name) {
        let Some((first, _)) = same.first() else { continue };
        let points = same.iter().map(|(gauge, component)| (labels_of(component), Value::Whole(gauge.value)));
        all.push(Instrument::new(format!("component_{}", first.name), first.help, points));
    }
}

/// The latency of each source, what it has not settled, and whether it reads.
fn sources(all: &mut Vec<Instrument>, handle: &Handle) {
    let latencies = handle.latencies();
    let times = |latency: &LatencyCounts| Point {
        labels: of(&latency.source),
        value: Value::Times(Times {
            up_to: latency.buckets.clone(),
            sum: latency.sum_s,
            count: latency.total,
        }),
    };
    all.push(Instrument {
        name: "source_latency_seconds".to_owned(),
        help: "The time from reading a batch until all of it is settled.",
        kind: Kind::Histogram,
        points: latencies.iter().map(times).collect(),
    });
    let age = |latency: &LatencyCounts| latency.oldest_unsettled_ms.unwrap_or_default() as f64 / 1e3;
    all.push(Instrument::new(
        "source_oldest_unsettled_seconds",
        "The age of the oldest batch that is not settled.",
        latencies.iter().map(|latency| (of(&latency.source), Value::Real(age(latency)))),
    ));
    let paused = handle.sources().into_iter();
    let paused = paused.map(|source| (of(&source.name), truth(source.state == SourceState::Paused)));
    all.push(Instrument::new("source_paused", "1 while a client has paused it.", paused));
}

/// The counters of each edge.
fn edges(all: &mut Vec<Instrument>, edges: &[EdgeCounts]) {
    let mut counter = |name: &str, help, value: fn(&EdgeCounts) -> u64| {
        let points = edges.iter().map(|edge| {
            let labels = [("from", &edge.from), ("output", &edge.output), ("to", &edge.to)];
            let labels = labels.map(|(label, text)| (label, text.clone()));
            (labels.to_vec(), Value::Whole(value(edge)))
        });
        all.push(Instrument::new(name, help, points));
    };
    counter("edge_messages_total", "Messages that passed the edge.", |edge| edge.messages);
    counter("edge_bytes_total", "Bytes of payload that passed the edge.", |edge| edge.bytes);
    counter("edge_batches_total", "Batches that passed the edge.", |edge| edge.batches);
}

/// The bytes that wait before each stage.
fn queues(all: &mut Vec<Instrument>, queues: &[QueueCounts]) {
    let waiting = queues.iter().map(|queue| (of(&queue.to), Value::Whole(queue.bytes)));
    all.push(Instrument::new("queue_bytes", "Bytes that wait in the channel before a stage.", waiting));
    let limits = queues.iter().map(|queue| (of(&queue.to), Value::Whole(queue.limit_bytes)));
    let help = "The most that the channel before a stage holds.";
    all.push(Instrument::new("queue_limit_bytes", help, limits));
}

/// The label of a component of which only the name is known.
fn of(component: &str) -> Vec<(&'static str, String)> {
    vec![("component", component.to_owned())]
}

fn labels_of(component: &ComponentCounts) -> Vec<(&'static str, String)> {
    vec![
        ("component", component.name.clone()),
        ("kind", component.kind.to_owned()),
        ("role", component.role.to_owned()),
    ]
}

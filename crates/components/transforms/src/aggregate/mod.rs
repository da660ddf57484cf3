//! Combines messages: counts, sums and more for each key and window.
//!
//! Keys are hashes of 128 bits, as in `dedupe`, and the values of a key are copied once for each group
//! (`group`). Each function has an accumulator for each group (`accumulator`), and each window a list of
//! groups (`window`). A session is one group with its own start and end (`sessions`). Which windows a message
//! is in is decided by `timing`, one message after the other, so that results do not depend on how messages
//! are divided into batches. `kept` and `kept_sessions` have what is open in checkpoints.
//!
//! See docs/decisions/108-aggregates-hold-acks-or-state.md and
//! docs/decisions/114-sessions-are-groups-that-merge.md.

mod accumulator;
mod counting;
mod distinct;
mod evaluation;
mod function;
mod group;
mod kept;
mod kept_sessions;
mod left;
mod list;
mod moments;
mod results;
mod running;
mod sessions;
mod sketch;
#[cfg(test)]
mod tests;
mod timing;
mod top;
mod window;

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::columns::FieldType;
use thalweg_codec::ordered::Ordered;
use thalweg_config::{List, TimeSpan};
use thalweg_engine::{Component, Context, Error, FieldUse, KnownFields, Mistake, Transform, TransformConfig};
use thalweg_expression::{Evaluator, Expression};
use thalweg_record::{INTRINSIC, is_metadata};

use crate::clock::now;
use crate::kept::Kept;
use crate::open::{Acks, KeptOpen};
use crate::scalar::field;
use accumulator::Scratch;
use function::Function;
use kept::KeptWindows;
use kept_sessions::KeptSessions;
use results::{END, START};
use running::{Aggregator, Applied};
use sessions::Sessions;
use timing::{Gaps, MOST, Spans, Timing, micros};

/// Combines messages: counts, sums and more for each key and window.
///
/// A result is a message without payload. Its fields are `window_start` and `window_end` (of windows by
/// time), those of `by`, and those of `values`. Give the sink an encoder, such as `encode: json`. Windows
/// leave in the order of their starts, and the results of a window in the order of the first messages of
/// their keys.
///
/// A window is a time with `every`, a session of a key with `session_timeout`, a number of messages with
/// `max_count`, and otherwise all of the input: its results leave at the end. A run that is stopped and has
/// no `--state` sends the results so far. Sessions leave in the order of their ends.
///
/// With `--state`, and sources that read their input again, a checkpoint has the open windows: each message
/// is counted once, also after `kill -9`, and a run that is stopped leaves open windows to the next one. With
/// other sources, messages are acknowledged when the results of their window are delivered. A client that
/// waits for its answer waits that long, and one that sends again is counted again. A broker that sends only
/// a number of messages before some are acknowledged must send those of a whole window, or the window never
/// ends unless there is an `idle_timeout`. A `buffer` on disk before the pipeline avoids both. At most 65,536
/// batches wait like this, and fewer if `memory` is less than 64 MiB: then the results of the oldest window
/// leave early, and others of the same window follow. A batch counts once for each session that it has
/// messages of, and the sessions with the most batches leave early.
///
/// The results of all windows also leave at the end of the input. If a later run with the same state reads
/// more messages of a window, further results of it follow.
///
/// `errors replay` counts dead letters in windows of their own: no letter is late, and the windows that the
/// state has stay open. Letters are replayed in parts of about a quarter of `memory`, and the results leave
/// at the end of each part.
///
/// Messages that cannot be counted leave by `errors`: a value that is not a number, a key of more than 16
/// KiB, or a new group if there are `max_groups` or the groups use an eighth of `memory`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Aggregate {
    /// The fields that together are the key of a group. By default all messages of a window are one group. A
    /// key of `meta.path` becomes the field `path`. NULL is a key like others. Values are compared as they
    /// are written: `1` and `"1"` are the same, `1` and `1.0` are not.
    #[serde(default)]
    by: List<String>,
    /// The fields of a result, each with its function: `{requests: count(*), kib: sum(bytes / 1024)}`. The
    /// functions take an expression in SQL and ignore NULL:
    ///
    /// - `count(*)`: the number of messages; `count(x)`: of those where `x` is not NULL; `count_if(x > 5)`:
    ///   of those where the condition is true.
    /// - `sum(x)`, `mean(x)`: of numbers, and of texts that are numbers. A sum of integers is exact.
    /// - `min(x)`, `max(x)`: of numbers, times, texts (by their bytes) or booleans.
    /// - `first(x)`, `last(x)`: in the order in which messages come; in sessions by `time`, in the order of
    ///   their times. `first(x)` is also SQL's `any_value(x)`.
    /// - `any(x > 5)`: whether the condition is true for any message.
    /// - `variance(x)`, `stddev(x)`: of a sample, so of at least two numbers.
    /// - `distinct(x)`: the number of different values. It is exact up to 1000 values. Beyond that it is
    ///   estimated by HyperLogLog, with a standard error of 1.6 %.
    /// - `quantile(x, 0.95)`: the number below which 95 % of the numbers are, with a relative error of at
    ///   most 1 % (DDSketch).
    /// - `list(x, 100)`: the first 100 values as a JSON array, in the order of `first`. At most 10000;
    ///   `count(x)` is the number of all values, and the summary of a run has the number of those left out
    ///   (`list_omitted`).
    /// - `top_k(x, 10)`: the 10 most frequent values as a JSON array of objects with `value`, `count` and
    ///   `error`. At most 100. A count is never too low, and at most `error` too high (Space-Saving). Counts
    ///   are exact for up to 10 times as many different values as asked for, and at least for 100. Beyond
    ///   that, `error` is at most the number of all values divided by that number.
    values: Ordered<Function>,
    /// The time from the start of a window to that of the next one, for example `1m`. Windows begin at
    /// multiples of it since 1970, in UTC.
    ///
    /// With `session_timeout`, sessions also end at these times: `every: 1d` divides those that last beyond
    /// midnight.
    every: Option<TimeSpan>,
    /// The time without messages of a key that ends its session, for example `30m`. `window_start` is the
    /// time of the first message, and `window_end` that of the last one plus this time. A message after
    /// exactly this time is in the next session. A message that comes late joins the sessions that it is
    /// between. Each open session is a group of `max_groups`.
    session_timeout: Option<TimeSpan>,
    /// The length of a window, if windows overlap: with `every: 1m` and `window_interval: 5m`, a message is
    /// in five windows. At least `every`, and at most 100 times as long. The default is `every`.
    window_interval: Option<TimeSpan>,
    /// The field with the time of a message, of the type `timestamp`. By default windows are by the time at
    /// which messages arrive here.
    time: Option<String>,
    /// How long a window waits for messages that come late: its results leave when a message comes whose
    /// `time` is this much after the end of the window. All sources and partitions count together: if one is
    /// read before another, the messages of the other one come late. A message of the far future ends all
    /// windows before it, so filter such messages. The default is `0s`.
    max_delay: Option<TimeSpan>,
    /// The time without any message after which the results of all windows leave. By default they wait for
    /// the next message, or for the end of the input. Windows by arrival end by the clock.
    idle_timeout: Option<TimeSpan>,
    /// How messages are treated that come after the results of all their windows have left.
    #[serde(default)]
    on_late: OnLate,
    /// The number of messages after which a window ends.
    max_count: Option<NonZeroU64>,
    /// The maximum number of groups of all open windows together. Messages of further groups leave by
    /// `errors`. The default is 100000. All groups together use at most a quarter of `memory`.
    #[serde(default = "most_groups")]
    #[schemars(range(min = 1))]
    max_groups: usize,
}

fn most_groups() -> usize {
    100_000
}

/// The output for late messages.
const LATE: &str = "late";

/// How late messages are treated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnLate {
    /// They leave by the `errors` output. This is the default.
    #[default]
    Error,
    /// They are filtered.
    Drop,
    /// They leave by the output `late`. Another pipeline reads it with `from: NAME.late`.
    Route,
}

impl Component for Aggregate {
    const NAME: &'static str = "aggregate";
    const EXAMPLE: &'static str = r#"
sources:
  requests: { generate: { message: '{"host": "web-1", "ms": %3d}', count: 1000 } }
pipelines:
  main:
    from: requests
    transforms:
      - parse_json: {}
      - aggregate: { by: host, values: { requests: count(*), slow: count_if(ms > 500), p95: "quantile(ms, 0.95)" } }
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if self.values.0.is_empty() {
            let mistake = Mistake::new("values", "`values` has no function.");
            mistakes.push(mistake.help("Write for example `values: { count: count(*) }`."));
        }
        let mut names: Vec<String> = self.by.iter().map(|name| key_name(name)).collect();
        names.extend(self.values.0.iter().map(|(name, _)| name.clone()));
        if self.has_times() {
            names.extend([START.to_owned(), END.to_owned()]);
        }
        let doubled = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name));
        if let Some((_, name)) = doubled {
            let mistake = Mistake::new("values", format!("A result has two fields called `{name}`."));
            mistakes.push(mistake.help("Give the value another name."));
        }
        if names.iter().any(|name| name.is_empty() || is_metadata(name)) {
            mistakes.push(Mistake::new("values", "A field needs a name that does not mean metadata."));
        }
        let is_zero = |span: Option<TimeSpan>| span.is_some_and(|span| span.duration().is_zero());
        if is_zero(self.every) {
            mistakes.push(Mistake::new("every", "`every` cannot be 0."));
        } else if let (Some(every), Some(length)) = (self.every, self.window_interval) {
            let (every, length) = (micros(every.duration()), micros(length.duration()));
            if length < every || length > every.saturating_mul(MOST) {
                let message = "`window_interval` must be at least `every`, and at most 100 times as long.";
                mistakes.push(Mistake::new("window_interval", message));
            }
        }
        if is_zero(self.idle_timeout) {
            mistakes.push(Mistake::new("idle_timeout", "`idle_timeout` cannot be 0."));
        }
        if is_zero(self.session_timeout) {
            mistakes.push(Mistake::new("session_timeout", "`session_timeout` cannot be 0."));
        }
        if self.session_timeout.is_some() && self.every.is_some() && self.window_interval.is_some() {
            let message = "`window_interval` has no effect on sessions: they do not overlap.";
            mistakes.push(Mistake::new("window_interval", message));
        }
        let without = |is_given: bool, option: &'static str, needed: &str| {
            is_given.then(|| Mistake::new(option, format!("`{option}` has no effect without `{needed}`.")))
        };
        if self.every.is_none() {
            mistakes.extend(without(self.window_interval.is_some(), "window_interval", "every"));
        }
        if !self.has_times() && self.time.is_some() {
            let message = "`time` has no effect without `every` or `session_timeout`.";
            mistakes.push(Mistake::new("time", message));
        }
        if self.time.is_none() {
            mistakes.extend(without(self.max_delay.is_some(), "max_delay", "time"));
            mistakes.extend(without(self.on_late != OnLate::Error, "on_late", "time"));
        }
        if self.has_times() && self.time.is_none() && self.idle_timeout.is_some() {
            let message = "`idle_timeout` has no effect on windows by arrival: they end by the clock.";
            mistakes.push(Mistake::new("idle_timeout", message));
        }
        if self.session_timeout.is_some() && self.max_count.is_some() {
            let message = "A session ends by time (`session_timeout`), not by number (`max_count`).";
            mistakes.push(Mistake::new("max_count", message));
        } else if self.every.is_some() && self.max_count.is_some() {
            let message = "A window ends by time (`every`) or by number (`max_count`), not by both.";
            mistakes.push(Mistake::new("max_count", message));
        }
        mistakes
    }
}

/// The field of a result that has a key: metadata has names that no field may have.
fn key_name(name: &str) -> String {
    match is_metadata(name) {
        true => name.trim_start_matches("meta.").to_owned(),
        false => name.to_owned(),
    }
}

impl Aggregate {
    /// True if results have the start and the end of their window.
    fn has_times(&self) -> bool {
        self.every.is_some() || self.session_timeout.is_some()
    }

    fn timing(&self) -> Timing {
        // A delay of nothing is none.
        let delay = self.max_delay.map(TimeSpan::duration).filter(|delay| !delay.is_zero());
        let delay = delay.map_or(0, micros);
        if let Some(timeout) = self.session_timeout {
            let every = self.every.map(|every| micros(every.duration()));
            let gaps = Gaps { timeout: micros(timeout.duration()), every };
            return match self.time {
                Some(_) => Timing::EventSessions(gaps, delay),
                None => Timing::ArrivalSessions(gaps),
            };
        }
        let Some(every) = self.every else {
            return self.max_count.map_or(Timing::Whole, |count| Timing::Count(count.get()));
        };
        let every = every.duration();
        let length = self.window_interval.map_or(every, TimeSpan::duration);
        let spans = Spans { every: micros(every), length: micros(length) };
        match self.time {
            Some(_) => Timing::Event(spans, delay),
            None => Timing::Arrival(spans),
        }
    }

    /// Describes what the groups of a state have.
    fn description(&self) -> String {
        let values = self.values.0.iter().map(|(name, function)| format!("{name}: {}", function.text()));
        let values = values.collect::<Vec<_>>().join(", ");
        let by = self.by.join(", ");
        let time = self.time.as_deref().unwrap_or("arrival");
        let windows = match self.timing() {
            Timing::Whole => "all of the input".to_owned(),
            Timing::Count(count) => format!("{count} messages"),
            Timing::Event(spans, _) | Timing::Arrival(spans) => {
                format!("{} µs every {} µs by {time}", spans.length, spans.every)
            }
            Timing::EventSessions(gaps, _) | Timing::ArrivalSessions(gaps) => {
                let divided = gaps.every.map(|every| format!(", divided every {every} µs"));
                format!("sessions of {} µs{} by {time}", gaps.timeout, divided.unwrap_or_default())
            }
        };
        format!("by: [{by}], values: {{ {values} }}, windows: {windows}")
    }

    fn aggregator(&self, context: &Context, now: fn() -> i64) -> Result<Aggregator, Error> {
        let budget = context.memory.budget();
        let evaluator = |expression: &Expression| Evaluator::new(expression.clone()).within(budget);
        let keys = self.by.iter().map(|name| field(name).map(|field| evaluator(&field)));
        let time = self.time.as_ref().map(|name| field(name).map(|field| (name.clone(), evaluator(&field))));
        let functions = self.values.0.iter().map(|(_, function)| Applied {
            kind: function.kind(),
            text: function.text().to_owned(),
            of: function.of().map(evaluator),
        });
        let shown = Arc::new(AtomicU64::new(0));
        let count = shown.clone();
        let help = "The open groups.";
        context.details.show_gauge("groups", help, move || count.load(Relaxed));
        // Letters come in the order in which they were rejected, so their times say nothing of their windows.
        let timing = if context.is_replay { self.timing().without_end() } else { self.timing() };
        let omitted = Arc::new(AtomicU64::new(0));
        let count = omitted.clone();
        context.details.show("list_omitted", move || count.load(Relaxed));
        let watermark = if timing.delay().is_some() { i64::MIN } else { 0 };
        let secret = crate::new_secret()?;
        let acks = Acks::new(context, |journal| {
            let (options, name) = (self.description(), &context.name);
            match timing.gaps().is_some() {
                true => KeptWindows::Sessions(KeptSessions::new(journal, options, secret, watermark, name)),
                false => KeptWindows::Windows(KeptOpen::new(journal, options, secret, watermark, name)),
            }
        });
        let functions: Vec<Applied> = functions.collect();
        let kinds: Vec<_> = functions.iter().map(|function| function.kind).collect();
        Ok(Aggregator {
            component: context.name.as_str().into(),
            by: self.by.to_vec(),
            key_names: self.by.iter().map(|name| key_name(name)).collect(),
            value_names: self.values.0.iter().map(|(name, _)| name.clone()).collect(),
            keys: keys.collect::<Result<_, _>>()?,
            functions,
            grows: kinds.iter().any(|kind| accumulator::grows(*kind)),
            kinds,
            time: time.transpose()?,
            timing,
            idle_timeout: self.idle_timeout.filter(|_| !context.is_replay).map(TimeSpan::duration),
            on_late: self.on_late,
            max_groups: self.max_groups,
            most: budget.limit() / 8,
            windows: BTreeMap::new(),
            sessions: Sessions::default(),
            watermark,
            groups: 0,
            shown,
            bytes: 0,
            memory: Kept::new(&context.memory),
            held: 0,
            acks,
            last: Instant::now(),
            secret,
            hashes: Vec::new(),
            scratch: Scratch::default(),
            omitted,
            starts: Vec::new(),
            found: Vec::new(),
            now,
        })
    }
}

impl TransformConfig for Aggregate {
    fn outputs(&self) -> Vec<String> {
        let late = (self.on_late == OnLate::Route).then(|| LATE.to_owned());
        late.into_iter().collect()
    }

    fn names_intrinsic(&self) -> bool {
        let fields = self.by.iter().chain(&self.time);
        let mut expressions = self.values.0.iter().filter_map(|(_, function)| function.of());
        fields.into_iter().any(|name| INTRINSIC.contains(&name.as_str()))
            || expressions.any(Expression::names_intrinsic)
    }

    fn fields(&self) -> Vec<String> {
        let expressions = self.values.0.iter().filter_map(|(_, function)| function.of());
        let needed = expressions.flat_map(|expression| expression.needed_columns());
        self.by.iter().chain(&self.time).chain(needed).cloned().collect()
    }

    fn field_use(&self) -> FieldUse {
        FieldUse::InExpressions
    }

    fn fields_after(&self, _: KnownFields) -> KnownFields {
        if self.on_late == OnLate::Route {
            return KnownFields::unknown();
        }
        let times = if self.has_times() { &[START, END][..] } else { &[] };
        let time = |known: KnownFields, name: &&str| known.with(name, Some(FieldType::Timestamp.field(name)));
        let known = times.iter().fold(KnownFields::none(), time);
        let known = self.by.iter().fold(known, |known, name| known.with(&key_name(name), None));
        self.values.0.iter().fold(known, |known, (name, _)| known.with(name, None))
    }

    fn is_sequential(&self) -> bool {
        true
    }

    fn replays_apart(&self) -> bool {
        true
    }

    fn ticks(&self) -> bool {
        self.idle_timeout.is_some() || self.timing().is_by_arrival()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error> {
        Ok(Box::new(self.aggregator(context, now)?))
    }
}

//! The health of a run, and whether it is ready: the answers of `/health` and `/ready`.
//!
//! A run is *healthy* if every component can work at present. A component that retries is not: it waits for
//! something outside, and a restart would not help. A run is *ready* once all components are built and run,
//! until it is asked to stop. A sink whose server is down leaves it ready: its sources still take input, as
//! far as buffers go. A process that waits for its next run is both.

use std::time::Duration;

use serde_json::{Value, json};
use thalweg_engine::{ComponentCounts, Handle};
use thalweg_redact::redacted;

/// A thread of the runtime that has shown no progress for this long is stuck.
pub(crate) const STUCK: Duration = Duration::from_secs(150);

/// Why a part of the run cannot work at present.
pub(crate) struct Problem {
    /// The name of the component.
    pub(crate) component: String,
    /// Its key in configurations.
    pub(crate) kind: &'static str,
    /// The reason, without secrets.
    pub(crate) reason: String,
}

/// Returns the problems of a run with these counters. `still_for` is how long a thread of it has made no
/// progress.
pub(crate) fn problems(handle: &Handle, counts: &[ComponentCounts], still_for: Duration) -> Vec<Problem> {
    let problem = |component: &str, kind, reason: &str| Problem {
        component: component.to_owned(),
        kind,
        reason: redacted(reason).into_owned(),
    };
    let retrying = counts
        .iter()
        .filter_map(|counts| Some(problem(&counts.name, counts.kind, counts.retrying.as_deref()?)));
    let full = handle.dead_letters_full().map(|full| problem("dead letters", "dead_letters", &full));
    let stuck = (still_for >= STUCK).then(|| {
        let reason = format!("a thread has made no progress for {} s", still_for.as_secs());
        problem("runtime", "runtime", &reason)
    });
    retrying.chain(full).chain(stuck).collect()
}

/// Returns whether the run is healthy, and the answer of `/health`.
pub(crate) fn health(handle: &Handle, still_for: Duration) -> (bool, Value) {
    let problems = problems(handle, &handle.counts(), still_for);
    let is_healthy = problems.is_empty();
    let status = if is_healthy { "ok" } else { "failing" };
    (is_healthy, json!({ "status": status, "problems": listed(&problems) }))
}

fn listed(problems: &[Problem]) -> Vec<Value> {
    let one = |problem: &Problem| json!({ "component": problem.component, "kind": problem.kind, "reason": problem.reason });
    problems.iter().map(one).collect()
}

/// Returns whether the run is ready, and the answer of `/ready`.
pub(crate) fn ready(handle: &Handle) -> (bool, Value) {
    let status = match (handle.is_stopping(), handle.is_started()) {
        (true, _) => "stopping",
        (false, false) => "starting",
        (false, true) => "ready",
    };
    (status == "ready", json!({ "status": status }))
}

/// Returns the answer of both between two runs: all is well with a process that waits for its next run.
pub(crate) fn waiting(next: &str) -> (bool, Value) {
    (true, json!({ "status": "waiting", "next_run": next }))
}

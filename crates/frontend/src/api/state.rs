//! The state of a run, as values.

use serde_json::{Map, Value, json};
use thalweg_engine::{ComponentCounts, Handle};

use super::reply::Refusal;
use super::{Activity, Observed, reload};
use crate::print::now;

/// The program, the process, and what it runs.
pub(super) fn about(run: &Observed) -> Value {
    let Observed { begun, configuration, state, .. } = run;
    let handle = run.handle().ok();
    let mut about = json!({
        "name": "thalweg",
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "uptime_s": begun.elapsed().as_secs_f64(),
        "configurations": [configuration],
        "state": state.to_string_lossy(),
        "started": handle.is_some_and(Handle::is_started),
        "stopping": run.stop.is_set() || handle.is_some_and(Handle::is_stopping),
    });
    if let Some(reloads) = &run.reloads {
        about["reload"] = reload::status(reloads);
    }
    if let Activity::Waiting(awaited) = &run.activity {
        about["next_run"] = awaited.next().into();
    }
    about
}

/// All counters.
pub(super) fn stats(run: &Observed) -> Result<Value, Refusal> {
    let (handle, begun) = (run.handle()?, run.begun);
    let budget = handle.budget();
    Ok(json!({
        "time": now(),
        "uptime_s": begun.elapsed().as_secs_f64(),
        "item": handle.item(),
        "started": handle.is_started(),
        "stopping": handle.is_stopping(),
        "budget": {
            "limit": budget.limit(),
            "used": budget.used(),
            "peak": budget.peak(),
            "holders": holders(handle),
        },
        "components": handle.counts().iter().map(component).collect::<Vec<_>>(),
        "edges": handle.edges(),
        "queues": handle.queues(),
        "latencies": handle.latencies(),
        "sources": handle.sources(),
        "dead_letters": {
            "kept": handle.dead_letters(),
            "dropped": handle.dead_letters_dropped(),
            "full": handle.dead_letters_full(),
        },
    }))
}

/// The holders of the budget, the one with the most first.
fn holders(handle: &Handle) -> Vec<Value> {
    let mut holders = handle.budget().holders();
    holders.sort_by_key(|held| std::cmp::Reverse(held.bytes));
    holders.iter().map(|held| json!({ "name": &*held.name, "bytes": held.bytes })).collect()
}

/// The counters of a component, with its own values that rise and fall.
fn component(counts: &ComponentCounts) -> Value {
    let mut value = json!(counts);
    if let Some(value) = value.as_object_mut() {
        let gauges = counts.gauges.iter().map(|gauge| (gauge.name.to_owned(), Value::from(gauge.value)));
        value.insert("gauges".to_owned(), Value::Object(gauges.collect::<Map<_, _>>()));
    }
    value
}

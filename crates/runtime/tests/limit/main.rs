//! Tests the required behaviour of the limit, given as data. Each file in `scenarios` describes a server, the
//! events it goes through, and the limit that is expected then. Scenarios run on virtual time, each with
//! several seeds.
//!
//! `cargo test --release -p thalweg-runtime --test limit -- --nocapture` prints the first seed of each as a
//! table; with `SCENARIO=slow`, only scenarios with "slow" in their name run.

#![allow(clippy::unwrap_used, reason = "the helpers of a test fail as it does")]

mod scenario;
mod server;
mod simulation;

use std::path::Path;

use scenario::{Scenario, Verdict};
use simulation::{Trace, simulate};
use thalweg_runtime::ConcurrencyLimit;

const SEEDS: u64 = 5;

fn run(scenario: &Scenario, limit: ConcurrencyLimit, seed: u64) -> Trace {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(simulate(scenario, limit, seed))
}

fn adaptive(scenario: &Scenario) -> ConcurrencyLimit {
    let [lower, upper] = scenario.bounds;
    ConcurrencyLimit::adaptive(lower..=upper)
}

/// Returns the most bytes that any fixed limit moves between two times, and that limit.
fn best_fixed(scenario: &Scenario, seed: u64, from: f64, to: f64) -> (usize, f64) {
    let [lower, upper] = scenario.bounds;
    let mut best = (0, 0.0);
    let mut limit = lower;
    while limit <= upper {
        let bytes = run(scenario, ConcurrencyLimit::fixed(limit), seed).bytes_between(from, to);
        if bytes > best.1 {
            best = (limit, bytes);
        }
        limit += (limit / 4).max(1);
    }
    best
}

fn check(scenario: &Scenario, seed: u64, trace: &Trace) -> Vec<String> {
    let mut failures = Vec::new();
    for expectation in &scenario.expect {
        let verdict = match expectation.throughput_of_best_fixed {
            // Only the first seed: this takes a run for each fixed limit, and the other seeds are for the
            // value of the limit.
            Some(_) if seed > 0 => continue,
            None => expectation.judge(trace),
            Some(share) => {
                let (limit, most) = best_fixed(scenario, seed, expectation.from, expectation.to);
                let got = trace.bytes_between(expectation.from, expectation.to) / most;
                Verdict {
                    kept: got >= share,
                    found: format!("{:.1} % of what {limit} at once move", got * 100.0),
                }
            }
        };
        let mark = if verdict.kept { "kept" } else { "BROKEN" };
        let line = format!("{expectation}: {mark}, {}", verdict.found);
        if seed == 0 {
            println!("  {line}");
        }
        if !verdict.kept {
            failures.push(format!("{}, seed {seed}: {line}", scenario.name));
        }
    }
    failures
}

#[test]
fn the_limit_does_what_each_scenario_demands() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/limit/scenarios");
    let wanted = std::env::var("SCENARIO").unwrap_or_default();
    let scenarios = Scenario::read_all(&directory);
    assert!(!scenarios.is_empty());
    let mut failures = Vec::new();
    for scenario in scenarios.iter().filter(|scenario| scenario.name.contains(&wanted)) {
        println!("\n{}: {}", scenario.name, scenario.about);
        for seed in 0..SEEDS {
            let trace = run(scenario, adaptive(scenario), seed);
            if seed == 0 {
                println!("{trace}");
            }
            failures.extend(check(scenario, seed, &trace));
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

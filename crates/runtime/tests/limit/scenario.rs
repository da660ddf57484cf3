//! The format of a scenario file.

use std::fmt;
use std::path::Path;

use serde::Deserialize;

use crate::simulation::Trace;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The name of the file.
    #[serde(skip)]
    pub name: String,
    pub about: String,
    pub bounds: [usize; 2],
    pub seconds: f64,
    /// The state at the beginning.
    pub begin: Change,
    #[serde(default)]
    pub events: Vec<Event>,
    pub expect: Vec<Expectation>,
}

#[derive(Debug, Deserialize)]
pub struct Event {
    pub at: f64,
    #[serde(flatten)]
    pub change: Change,
}

/// A change of state; absent values stay unchanged.
#[derive(Debug, Default, Deserialize)]
pub struct Change {
    /// How many items the server works on at once.
    pub slots: Option<usize>,
    /// True if all items share the slots (as threads share cores); false if they queue for one.
    pub shared: Option<bool>,
    /// The number of foreign items that share the slots.
    pub foreign: Option<usize>,
    /// How long an item occupies a slot, beside the time for its bytes.
    pub fixed_ms: Option<f64>,
    pub ns_per_byte: Option<f64>,
    /// Time in transit, without a slot.
    pub network_ms: Option<f64>,
    /// The factor by which everything in a slot is slower.
    pub slow: Option<f64>,
    /// Standard deviation of the logarithm of the time in a slot.
    pub noise: Option<f64>,
    /// The share of the items that takes `outlier_factor` times as long.
    pub outliers: Option<f64>,
    pub outlier_factor: Option<f64>,
    /// The number of items at the server above which items are refused, after `refusal_ms`.
    pub reject_above: Option<usize>,
    pub refusal_ms: Option<f64>,
    /// The share of all items that is refused in any state.
    pub reject_part: Option<f64>,
    /// The time after which the client cancels an item and reports overload.
    pub timeout_ms: Option<f64>,
    /// Sizes in bytes, each with its relative frequency.
    pub sizes: Option<Vec<(u64, f64)>>,
    /// The items to send per second, at random times; without it, as many as possible.
    pub offered_per_second: Option<f64>,
    pub upper: Option<usize>,
    pub budget: Option<u64>,
}

/// A condition that must hold from one time to another, in seconds.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expectation {
    pub from: f64,
    pub to: f64,
    /// The limit is between these values at 95 % of the times.
    pub limit: Option<[usize; 2]>,
    /// The mean of the limit is between these values.
    pub mean: Option<[f64; 2]>,
    /// The limit reaches this value or falls below it.
    pub falls_to: Option<usize>,
    /// The limit reaches this value or exceeds it.
    pub rises_to: Option<usize>,
    /// The bytes moved, as a share of what the best fixed limit moves.
    pub throughput_of_best_fixed: Option<f64>,
    /// The share of the items that is refused.
    pub refused_at_most: Option<f64>,
    /// The mean latency, as a multiple of the time on an empty server.
    pub slowdown_at_most: Option<f64>,
}

pub struct Verdict {
    pub kept: bool,
    pub found: String,
}

impl Expectation {
    pub fn judge(&self, trace: &Trace) -> Verdict {
        let points = || trace.points.iter().filter(|point| point.time >= self.from && point.time < self.to);
        let limits = || points().map(|point| point.limit);
        let mean = limits().sum::<usize>() as f64 / limits().count() as f64;
        let sum = |of: fn(&crate::simulation::Point) -> f64| points().map(of).sum::<f64>();
        if let Some([low, high]) = self.limit {
            let inside = limits().filter(|limit| (low..=high).contains(limit)).count() as f64;
            let share = inside / limits().count() as f64;
            Verdict {
                kept: share >= 0.95,
                found: format!("{:.1} % of the time, mean {mean:.1}", share * 100.0),
            }
        } else if let Some([low, high]) = self.mean {
            Verdict { kept: (low..=high).contains(&mean), found: format!("{mean:.1}") }
        } else if let Some(limit) = self.falls_to {
            let least = limits().min().unwrap_or(usize::MAX);
            Verdict { kept: least <= limit, found: format!("it fell to {least}") }
        } else if let Some(limit) = self.rises_to {
            let most = limits().max().unwrap_or(0);
            Verdict { kept: most >= limit, found: format!("it rose to {most}") }
        } else if let Some(most) = self.refused_at_most {
            let refused = sum(|point| point.refused) / sum(|point| point.done + point.refused);
            Verdict { kept: refused <= most, found: format!("{:.2} %", refused * 100.0) }
        } else if let Some(most) = self.slowdown_at_most {
            let slowdown = sum(|point| point.latency) / sum(|point| point.unloaded);
            Verdict { kept: slowdown <= most, found: format!("{slowdown:.2}") }
        } else {
            panic!("an expectation expects nothing: {self:?}")
        }
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {} s, ", self.from, self.to)?;
        if let Some([low, high]) = self.limit {
            write!(f, "limit {low} to {high}")
        } else if let Some([low, high]) = self.mean {
            write!(f, "mean limit {low} to {high}")
        } else if let Some(limit) = self.falls_to {
            write!(f, "falls to {limit}")
        } else if let Some(limit) = self.rises_to {
            write!(f, "rises to {limit}")
        } else if let Some(share) = self.throughput_of_best_fixed {
            write!(f, "throughput at least {} % of the best fixed limit's", share * 100.0)
        } else if let Some(most) = self.refused_at_most {
            write!(f, "at most {} % refused", most * 100.0)
        } else if let Some(most) = self.slowdown_at_most {
            write!(f, "at most {most} times as slow as an empty server")
        } else {
            write!(f, "nothing")
        }
    }
}

impl Scenario {
    /// Reads all scenarios of a directory, in the order of their names.
    pub fn read_all(directory: &Path) -> Vec<Self> {
        let mut paths: Vec<_> =
            std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let read = |path: &Path| {
            let text = std::fs::read_to_string(path).unwrap();
            let mut scenario: Self =
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            scenario.name = path.file_stem().unwrap().to_string_lossy().into_owned();
            scenario
        };
        paths.iter().map(|path| read(path)).collect()
    }
}

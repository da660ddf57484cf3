//! The measurements made under one limit, until there are enough of them for a decision.

use tokio::time::Instant;

use super::cost::{CostModel, Sums};

/// A single latency counts at most this many times the level of the last window, unless more than the share
/// `FEW` of the work is that slow.
const OUTLIER: f64 = 4.0;
const FEW: f64 = 0.25;

/// The least relative error of a level. Items that wait in the same queue are slow together, which the
/// deviation within a window does not show.
const LEAST_ERROR: f64 = 0.05;
#[derive(Debug)]
pub(super) struct Window {
    pub(super) opened: Instant,
    pub(super) samples: usize,
    pub(super) overloaded: usize,
    /// Seconds that refused work was in flight.
    pub(super) refused: f64,
    /// The greatest number in flight.
    pub(super) peak: usize,
    /// How many items began, and how many of them had to wait for the limit.
    pub(super) begun: usize,
    pub(super) held_back: usize,
    pub(super) noted: Sums,
    /// Sums over the samples of known sizes, with latencies cut: latency, expected cost, expected cost²,
    /// latency² / expected cost.
    pub(super) latency: f64,
    pub(super) expected: f64,
    pub(super) expected_squared: f64,
    pub(super) latency_squared: f64,
    /// The number of these samples, and their bytes.
    pub(super) known: f64,
    pub(super) known_bytes: f64,
    /// The latency that was cut off, and the expected cost of the samples it was cut from.
    pub(super) cut_off: f64,
    pub(super) expected_of_cut: f64,
    /// The expected cost of all samples.
    pub(super) expected_of_all: f64,
}

impl Window {
    pub(super) fn new(opened: Instant, in_flight: usize) -> Self {
        Self {
            opened,
            samples: 0,
            overloaded: 0,
            refused: 0.0,
            peak: in_flight,
            begun: 0,
            held_back: 0,
            noted: Sums::default(),
            latency: 0.0,
            expected: 0.0,
            expected_squared: 0.0,
            latency_squared: 0.0,
            known: 0.0,
            known_bytes: 0.0,
            cut_off: 0.0,
            expected_of_cut: 0.0,
            expected_of_all: 0.0,
        }
    }

    /// Adds a successful sample. `highest` is the last level or the baseline, whichever is higher.
    pub(super) fn add(&mut self, model: &CostModel, bytes: u64, seconds: f64, highest: Option<f64>) {
        let mut latency = seconds;
        let expected = model.expected(bytes);
        self.samples += 1;
        self.expected_of_all += expected;
        if let Some(highest) = highest
            && model.knows(bytes)
        {
            let most = OUTLIER * expected * highest;
            if latency > most {
                self.cut_off += latency - most;
                self.expected_of_cut += expected;
                latency = most;
            }
            self.latency += latency;
            self.expected += expected;
            self.expected_squared += expected * expected;
            self.latency_squared += latency * latency / expected;
            self.known += 1.0;
            self.known_bytes += bytes as f64;
        }
        model.note(&mut self.noted, bytes, latency);
    }

    /// Returns the number of samples of equal size that would be as good as these.
    pub(super) fn effective_samples(&self) -> f64 {
        self.expected * self.expected / self.expected_squared
    }

    /// True if the limit kept more work from being in flight. Reaching the limit once is not enough: short
    /// bursts would raise it for ever, and any work at all reaches a limit of 1.
    pub(super) fn is_used(&self) -> bool {
        self.begun > 0 && self.held_back * 2 >= self.begun
    }

    /// Returns the level, as a ratio of sums: large items, whose latency says more, count for more. Returns
    /// `None` if most of the work was of unknown sizes.
    pub(super) fn level(&self) -> Option<Level> {
        if self.expected <= 0.5 * self.expected_of_all || self.expected <= 0.0 {
            return None;
        }
        let cut = self.latency / self.expected;
        let variance = (self.latency_squared / self.expected - cut * cut).max(0.0);
        let all = if self.expected_of_cut > FEW * self.expected { self.cut_off / self.expected } else { 0.0 };
        Some(Level { cut, level: cut + all, error: (variance / self.effective_samples()).sqrt() })
    }
}

/// The result of a window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Level {
    pub(super) level: f64,
    pub(super) error: f64,
    /// The level if all cut latencies were outliers: on the same scale as the model's input.
    pub(super) cut: f64,
}

impl Level {
    /// Returns the error relative to the level.
    pub(super) fn uncertainty(self) -> f64 {
        (self.error / self.level).max(LEAST_ERROR)
    }

    pub(super) fn times(self, unit: f64) -> Self {
        Self { level: self.level * unit, error: self.error * unit, cut: self.cut * unit }
    }
}

//! What was measured under one limit, until there is enough of it to be judged.

use tokio::time::Instant;

use super::cost::{CostModel, Sums};

/// A single latency counts as no more than so many times what the last window showed, unless
/// more than this part of the work is like that.
const OUTLIER: f64 = 4.0;
const FEW: f64 = 0.25;

/// A level is not known better than by this part: what waits in one queue is slow together, which the deviation
/// within a window does not show.
const LEAST_ERROR: f64 = 0.05;
#[derive(Debug)]
pub(super) struct Window {
    pub(super) opened: Instant,
    pub(super) samples: usize,
    pub(super) overloaded: usize,
    /// Seconds that refused work was in flight.
    pub(super) refused: f64,
    /// The most that were in flight.
    pub(super) peak: usize,
    /// How much was begun, and how much of that had to wait for it.
    pub(super) begun: usize,
    pub(super) held_back: usize,
    pub(super) noted: Sums,
    /// Over the samples of sizes the model knows, latencies being cut: latency, expected, expected²,
    /// latency² / expected.
    pub(super) latency: f64,
    pub(super) expected: f64,
    pub(super) expected_squared: f64,
    pub(super) latency_squared: f64,
    /// Of the same samples: how many, and their bytes.
    pub(super) known: f64,
    pub(super) known_bytes: f64,
    /// Latency that was cut off, and what was expected of those it was cut from.
    pub(super) cut_off: f64,
    pub(super) expected_of_cut: f64,
    /// Expected, over all samples.
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

    /// Adds what went well. `highest` is the level that nothing was above so far, if there is one yet.
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

    /// How many samples of equal size would be as good as these.
    pub(super) fn effective_samples(&self) -> f64 {
        self.expected * self.expected / self.expected_squared
    }

    /// Whether the limit was what kept more from being in flight. Reaching it once is not enough: short bursts
    /// would raise it for ever, and one that is 1 is reached by any work at all.
    pub(super) fn is_used(&self) -> bool {
        self.begun > 0 && self.held_back * 2 >= self.begun
    }

    /// The level, as the ratio of sums (so that large items, whose latency says more, count for more).
    /// `None` if most of the work was of sizes not known yet.
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

/// What a window measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Level {
    pub(super) level: f64,
    pub(super) error: f64,
    /// As if all that was cut were outliers: the same scale as what the model learns from.
    pub(super) cut: f64,
}

impl Level {
    /// The error as part of the level.
    pub(super) fn uncertainty(self) -> f64 {
        (self.error / self.level).max(LEAST_ERROR)
    }

    pub(super) fn times(self, unit: f64) -> Self {
        Self { level: self.level * unit, error: self.error * unit, cut: self.cut * unit }
    }
}

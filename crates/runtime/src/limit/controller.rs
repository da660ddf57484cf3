//! The arithmetic that decides the limit, without locks, clocks or waiting.
//!
//! The [module](super) describes what it does and why. All levels and the baseline are multiples of the cost
//! that the [`CostModel`] expects, so they are numbers without a unit.

use std::ops::RangeInclusive;
use std::time::Duration;

use tokio::time::Instant;

use super::cost::CostModel;
use super::window::{Level, Window};

/// Minimum duration of a window: a shorter one measures the noise of the scheduler.
const SHORTEST_WINDOW: Duration = Duration::from_millis(50);
/// After this time, [`FEWEST_WHEN_SLOW`] samples are enough to close a window.
const LONG_WINDOW: Duration = Duration::from_secs(5);
const FEWEST: usize = 4;
const FEWEST_WHEN_SLOW: usize = 2;
/// A window of very unequal items is closed at the latest at this multiple of the samples it needs.
const MOST_SAMPLES: usize = 8;
/// Up to this ratio to the baseline, the limit grows at its full pace.
const CALM: f64 = 1.1;
/// Above this ratio to the baseline, plus twice the standard error of the measurement, the window is a
/// strike.
const BUSY: f64 = 1.25;
/// The number of consecutive strikes that lower the limit: in general, and while the level still rises.
const STRIKES: u32 = 2;
const STRIKES_WHILE_RISING: u32 = 4;
/// The least and the greatest share of the limit that remains when it is lowered.
const LEAST_LEFT: f64 = 0.5;
const MOST_LEFT: f64 = 0.95;
/// If the latency falls by at least this power of the decrease of the limit, our own work made it rise.
const OURS: f64 = 0.6;
/// At this power or more, our own work still causes the latency: the queue is not drained.
const STILL_OURS: f64 = 0.9;
/// The share of the limit that remains in a further trial, if the level is nearly calm and the queue
/// therefore short.
const LEFT_TO_DRAIN: f64 = 0.75;
/// A limit lowered by at least this power of e gives a conclusive result in spite of the noise.
const CONCLUSIVE: f64 = 0.5;
/// After this many trials that ended at the known baseline, a trial continues below it, to verify the
/// baseline.
const TRIALS_TO_VERIFY: u32 = 4;
/// The number of windows per step if the limit is near the one that was too high, or if the level is not
/// quite calm.
const CAUTIOUS_WINDOWS: u32 = 4;
/// The share of that limit from which on a limit counts as near it.
const NEAR: f64 = 0.9;
/// After this many steps in a row, the step doubles.
const STEPS_TO_DOUBLE: u32 = 4;

/// The result of the work under a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Succeeded,
    Overloaded,
    /// The work failed for another reason, or was cancelled. This says nothing about the load.
    Silent,
}

/// Finished work: its size, its latency, and the epoch in which it began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Done {
    pub(super) outcome: Outcome,
    pub(super) bytes: u64,
    pub(super) latency: Duration,
    pub(super) epoch: u64,
}

/// An experiment: the limit was lowered from `limit`, where the level was `before`.
#[derive(Debug)]
struct Trial {
    limit: usize,
    before: Level,
}

/// The changes and refusals so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) raised: u64,
    pub(super) lowered: u64,
    pub(super) overloaded: u64,
}

#[derive(Debug)]
pub(super) struct Controller {
    lower: usize,
    /// The upper bound, as configured or as set later.
    upper: usize,
    budget: Option<u64>,
    mean_bytes: Option<f64>,
    limit: usize,
    /// Work that began in an earlier epoch is not measured, because the limit or the server was in another
    /// state.
    epoch: u64,
    window: Window,
    model: CostModel,
    /// The level without contention; `None` before the first window.
    baseline: Option<f64>,
    last_level: f64,
    /// Exponentially fading sums of the expected costs and of their squares.
    usual: f64,
    usual_squared: f64,
    strikes: u32,
    trial: Option<Trial>,
    /// Trials since the last one that ended because a lower limit no longer helped.
    unverified: u32,
    /// The limit doubles up to this value.
    proven: usize,
    /// The limit that was too high the last time.
    ceiling: Option<usize>,
    /// The number of steps in a row.
    streak: u32,
    /// Windows that have passed towards a cautious step.
    waited: u32,
    counts: Counts,
}

impl Controller {
    pub(super) fn new(bounds: RangeInclusive<usize>, now: Instant) -> Self {
        let lower = (*bounds.start()).max(1);
        let upper = (*bounds.end()).max(lower);
        Self {
            lower,
            upper,
            budget: None,
            mean_bytes: None,
            limit: lower,
            epoch: 0,
            window: Window::new(now, 0),
            model: CostModel::default(),
            baseline: None,
            last_level: 1.0,
            usual: 0.0,
            usual_squared: 0.0,
            strikes: 0,
            trial: None,
            unverified: 0,
            proven: usize::MAX,
            ceiling: None,
            streak: 0,
            waited: 0,
            counts: Counts::default(),
        }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) fn bounds(&self) -> RangeInclusive<usize> {
        self.lower..=self.bound()
    }

    /// Returns the fixed cost in seconds and the cost of a byte in seconds, both without contention.
    pub(super) fn costs(&self) -> Option<(f64, f64)> {
        let (fixed, per_byte) = self.model.parameters();
        self.baseline.map(|level| (fixed * level, per_byte * level))
    }

    pub(super) fn set_upper(&mut self, upper: usize, now: Instant, in_flight: usize) {
        self.upper = upper.max(self.lower);
        self.obey_bound(now, in_flight);
    }

    pub(super) fn set_budget(&mut self, bytes: u64, now: Instant, in_flight: usize) {
        self.budget = Some(bytes);
        self.obey_bound(now, in_flight);
    }

    /// Records that work on `bytes` bytes begins. `in_flight` includes it. `held_back` is true if it had to
    /// wait for the limit.
    pub(super) fn begun(&mut self, bytes: u64, held_back: bool, in_flight: usize, now: Instant) {
        let bytes = bytes as f64;
        let mean = self.mean_bytes.map_or(bytes, |mean| mean + (bytes - mean) / 16.0);
        self.mean_bytes = Some(mean);
        self.window.peak = self.window.peak.max(in_flight);
        self.window.begun += 1;
        self.window.held_back += usize::from(held_back);
        if self.budget.is_some() {
            self.obey_bound(now, in_flight);
        }
    }

    /// Records that work is done. `in_flight` no longer includes it.
    pub(super) fn done(&mut self, done: Done, in_flight: usize, now: Instant) {
        if done.outcome == Outcome::Overloaded {
            self.counts.overloaded += 1;
        }
        if done.epoch != self.epoch {
            return;
        }
        match done.outcome {
            Outcome::Silent => return,
            Outcome::Overloaded => {
                self.window.overloaded += 1;
                self.window.refused += done.latency.as_secs_f64();
            }
            Outcome::Succeeded => self.sample(done.bytes, done.latency),
        }
        if self.is_complete(now) {
            let window = std::mem::replace(&mut self.window, Window::new(now, in_flight));
            self.judge(window, now);
        }
    }

    fn bound(&self) -> usize {
        let fits = match (self.budget, self.mean_bytes) {
            (Some(budget), Some(mean)) if mean > 0.0 => (budget as f64 / mean) as usize,
            _ => usize::MAX,
        };
        self.upper.min(fits).max(self.lower)
    }

    fn obey_bound(&mut self, now: Instant, in_flight: usize) {
        let bound = self.bound();
        if self.limit > bound {
            // Remember what the server could handle, for when the bound is raised again.
            self.proven = self.proven.max(self.limit);
            self.trial = None;
            self.change(bound);
            self.window = Window::new(now, in_flight);
        }
    }

    fn sample(&mut self, bytes: u64, latency: Duration) {
        let seconds = latency.as_secs_f64().max(1e-9);
        let highest = self.baseline.map(|baseline| self.last_level.max(baseline));
        self.window.add(&self.model, bytes, seconds, highest);
    }

    fn is_complete(&self, now: Instant) -> bool {
        let window = &self.window;
        let open = now - window.opened;
        let fewest = if open < LONG_WINDOW { FEWEST } else { FEWEST_WHEN_SLOW };
        let needed = self.limit.max(fewest);
        if window.overloaded * 4 >= needed.min(self.limit.max(1)) {
            return true;
        }
        let samples = window.samples + window.overloaded;
        let even = window.expected_squared <= 0.0 || window.effective_samples() * 2.0 >= needed as f64;
        open >= SHORTEST_WINDOW
            && open.as_secs_f64() >= self.usual_latency()
            && samples >= needed
            && (even || samples >= needed * MOST_SAMPLES)
    }

    fn judge(&mut self, window: Window, now: Instant) {
        let measured = window.level();
        let measured = self.learn(&window, measured);
        let before_this = self.last_level;
        if let Some(Level { level, .. }) = measured {
            self.last_level = level;
        }
        if window.overloaded > 0 {
            self.back_off_from_overload(&window, now);
            return;
        }
        if self.baseline.is_none() {
            // The model has just been fitted, so the level is 1 by definition.
            self.baseline = Some(1.0);
        }
        let Some(measured) = measured else { return };
        if self.conclude_trial(measured) {
            return;
        }
        let baseline = self.follow(measured.level);
        let (ratio, error) = (measured.level / baseline, measured.error / baseline);
        if !window.is_used() {
            self.strikes = 0;
        } else if self.limit > self.lower && ratio > BUSY + 2.0 * error {
            self.strike(measured, ratio, measured.level > before_this * BUSY);
        } else {
            self.strikes = 0;
            self.grow(ratio <= CALM + error);
        }
    }

    /// Returns the usual latency of an item in seconds, as a mean over time and not over items. Short items
    /// finish first. A window that ends before the long items finish measures mostly the queue of the short
    /// ones.
    fn usual_latency(&self) -> f64 {
        if self.usual > 0.0 { self.usual_squared / self.usual * self.last_level } else { 0.0 }
    }

    /// Updates the model from the window. The model defines the unit of all levels. All levels are therefore
    /// converted such that the work of this window keeps its cost. Otherwise the baseline would drift: the
    /// model would learn a small bias repeatedly from its own measurements. Returns the measurement in the
    /// new unit.
    fn learn(&mut self, window: &Window, measured: Option<Level>) -> Option<Level> {
        if window.samples == 0 {
            return measured;
        }
        self.usual = 0.9 * self.usual + window.expected;
        self.usual_squared = 0.9 * self.usual_squared + window.expected_squared;
        self.model.learn(&window.noted, measured.map_or(self.last_level, |level| level.cut));
        let (fixed, per_byte) = self.model.parameters();
        let expected = fixed * window.known + per_byte * window.known_bytes;
        let Some(measured) = measured.filter(|_| expected > 0.0) else { return measured };
        let unit = window.expected / expected;
        self.baseline = self.baseline.map(|baseline| baseline * unit);
        self.last_level *= unit;
        if let Some(trial) = &mut self.trial {
            trial.before = trial.before.times(unit);
        }
        Some(measured.times(unit))
    }

    /// Counts a strike, and lowers the limit after enough of them. While the level rises, the window mixes
    /// fast and slow work, and the effect of a lower limit could not be distinguished from the rise.
    fn strike(&mut self, measured: Level, ratio: f64, rising: bool) {
        self.streak = 0;
        self.strikes += 1;
        if self.strikes >= if rising { STRIKES_WHILE_RISING } else { STRIKES } {
            self.attempt(measured, MOST_LEFT / ratio);
        } else {
            // The next window must not measure work that began before the slowdown.
            self.epoch += 1;
        }
    }

    /// Lowers the limit, to see whether that helps.
    fn attempt(&mut self, before: Level, share: f64) {
        self.trial = Some(Trial { limit: self.limit, before });
        self.lower_to(self.limit, share);
    }

    /// Lowers the limit after refusals. By Little's law, the time that refused work was in flight shows how
    /// much of the work in flight was wasted.
    fn back_off_from_overload(&mut self, window: &Window, now: Instant) {
        let elapsed = (now - window.opened).as_secs_f64().max(1e-9);
        let in_flight = self.limit.min(window.peak.max(1));
        let served = 1.0 - window.refused / elapsed / in_flight as f64;
        self.trial = None;
        self.ceiling = Some(self.limit);
        self.lower_to(in_flight, served * MOST_LEFT);
    }

    /// Evaluates the experiment of a lower limit: if it did not help, our work was not the cause. Returns
    /// true if the limit was lowered once more because lowering it still helped.
    fn conclude_trial(&mut self, after: Level) -> bool {
        let Some(Trial { limit, before }) = self.trial.take() else { return false };
        if after.level > before.level * BUSY {
            // Another change happened meanwhile, so the trial shows nothing.
            return false;
        }
        let baseline = self.baseline.unwrap_or(after.level);
        let lowered = (limit as f64 / self.limit as f64).ln();
        let helped = (before.level / after.level).ln() / lowered;
        let helped_at_most = helped + before.uncertainty().hypot(after.uncertainty()) / lowered;
        let is_conclusive = lowered >= CONCLUSIVE || after.level <= BUSY * baseline;
        if is_conclusive && helped_at_most < STILL_OURS {
            self.unverified = 0;
        }
        if is_conclusive && helped_at_most < OURS {
            self.baseline = Some(after.level);
            self.proven = limit;
            return false;
        }
        self.ceiling = Some(limit);
        self.unverified += 1;
        let seems_drained = after.level <= CALM * baseline;
        if self.limit == self.lower
            || (is_conclusive && helped_at_most < STILL_OURS)
            || (seems_drained && self.unverified < TRIALS_TO_VERIFY)
        {
            return false;
        }
        self.attempt(after, if after.level <= BUSY * baseline { LEFT_TO_DRAIN } else { LEAST_LEFT });
        true
    }

    /// Moves the baseline towards the measured level, as far as our own contention cannot be the cause, and
    /// returns it.
    fn follow(&mut self, level: f64) -> f64 {
        let baseline = self.baseline.unwrap_or(level);
        let ratio = level / baseline;
        let growing_freely = self.proven == usize::MAX && ratio < BUSY;
        let share = if ratio < 0.5 {
            1.0
        } else if ratio < 0.8 || self.limit == self.lower || growing_freely {
            0.5
        } else if ratio < 1.0 {
            0.25
        } else if ratio <= CALM || (ratio < BUSY && self.limit == self.bound()) {
            0.125
        } else {
            0.0
        };
        let baseline = baseline + share * (level - baseline);
        self.baseline = Some(baseline);
        baseline
    }

    fn grow(&mut self, calm: bool) {
        let bound = self.bound();
        if self.limit >= bound {
            return;
        }
        let near = self.ceiling.is_some_and(|ceiling| (self.limit + 1) as f64 >= NEAR * ceiling as f64);
        let next = if calm && self.limit < self.proven {
            self.limit.saturating_mul(2).min(self.proven)
        } else if !calm || near {
            self.streak = 0;
            self.waited += 1;
            if self.waited < CAUTIOUS_WINDOWS {
                return;
            }
            self.limit + 1
        } else {
            self.streak += 1;
            let step = 1usize << (self.streak / STEPS_TO_DOUBLE).min(16);
            self.limit + step.min(self.limit / 4).max(1)
        };
        if self.ceiling.is_some_and(|ceiling| next > ceiling) {
            self.ceiling = None;
        }
        self.counts.raised += 1;
        self.change(next.min(bound));
    }

    /// Lowers the limit to `share` of `from`.
    fn lower_to(&mut self, from: usize, share: f64) {
        let left = (from as f64 * share.clamp(LEAST_LEFT, MOST_LEFT)).round() as usize;
        let left = left.min(from.saturating_sub(1)).max(self.lower);
        self.streak = 0;
        self.strikes = 0;
        self.proven = left;
        if left < self.limit {
            self.counts.lowered += 1;
            self.change(left);
        }
    }

    fn change(&mut self, limit: usize) {
        self.waited = 0;
        self.epoch += 1;
        self.limit = limit;
    }
}

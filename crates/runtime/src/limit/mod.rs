//! A concurrency limit that finds its own value.
//!
//! A [`ConcurrencyLimit`] hands out permits: one for each request that a sink has in flight, or one for each
//! batch that a worker of a segment processes. It measures how long the work under each permit took, and
//! moves to the value that just keeps the other side busy. Any more work would only wait there instead of
//! here, and it holds memory in both places.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! use thalweg_runtime::ConcurrencyLimit;
//!
//! let limit = ConcurrencyLimit::adaptive(1..=64);
//! let permit = limit.acquire(64 * 1024).await; // about to send 64 KiB
//! // ... one attempt to send them ...
//! permit.succeeded();
//!
//! assert_eq!(limit.to_string(), "adaptive 1 to 64");
//! assert_eq!(ConcurrencyLimit::fixed(4).to_string(), "4, as configured");
//! # }
//! ```
//!
//! # How to use it
//!
//! - Take one permit for each *attempt*, when the work begins, and end it with the result of the attempt. A
//!   permit that spans an attempt, a pause and another attempt reports one very slow success, and hides the
//!   refusal.
//! - [`overloaded`](Permit::overloaded) is for refusals that mean "too much": 429, 503, a timeout.
//!   [`failed`](Permit::failed) is for every other failure, such as a 404. It is no measurement at all, since
//!   failing is often quick. A dropped permit was cancelled, and is no measurement either.
//! - The size of a request is its bytes as they are sent; the size of a segment's work is the bytes of the
//!   batch.
//! - Bounds: for requests `1..=` some hundreds; for workers of a segment `1..=` the cores. The byte budget is
//!   another bound, which moves: [`set_budget`](ConcurrencyLimit::set_budget).
//! - The limit cannot see other clients. Two limits on one server find a balance, as two connections do, but
//!   not quickly and not exactly in halves.
//!
//! # How it works
//!
//! **Cost of an item.** Latencies of items of different sizes are compared by the expected cost of each item,
//!
//! ```text
//! cost(bytes) = fixed + per_byte · bytes
//! ```
//!
//! fitted by least squares to recent items, with the load of their time divided out and a weight of `1 /
//! cost²` for each. Small items among large ones therefore do not look like a server that became fast, and a
//! large one among small ones does not look like one that became slow. Items of a size unknown to the model
//! only teach it, and take no part in the rest.
//!
//! **Level.** Samples are gathered in *windows*. A window has at least as many samples as the limit, and at
//! least 4 (2 after 5 s). It lasts at least 50 ms and as long as an item usually takes. Only work begun under
//! the present limit counts. The level of a window is
//!
//! ```text
//! level = Σ latency / Σ cost        a latency counts at most 4 times as much as in the last window
//! ```
//!
//! A mean, not a minimum or a median: some batches and requests are just slow, and that is not a fault. The
//! cut keeps one request that hung from dominating the mean. Nothing is cut if more than a quarter of the
//! work is that slow.
//!
//! **Baseline.** The level without contention. By Little's law (items in flight = rate · latency), once the
//! other side is busy, more in flight cannot raise the rate, so it must raise the latency in proportion. Of
//! `limit` in flight, `limit · baseline / level` are served and the rest waits. The baseline follows a lower
//! level, and slowly one that is at most 1.1 times as high. It follows a far lower level (under a half) at
//! once. It also follows a higher level if no decrease is possible (at the lower bound) or no increase (at
//! the upper bound). In all other cases only an experiment raises it, see below.
//!
//! **Additive increase.** The limit is raised after a window if two conditions hold. At least half of the
//! work that began had to wait for the limit: a limit that is not needed is never raised. The level is calm:
//! at most 1.1 times the baseline plus its standard error. The limit is doubled up to the first decrease, or
//! up to its former value when a decrease turned out to be useless. After that it grows by 1; by 2 after four
//! raises in a row, by 4 after four more, up to a quarter of the limit. If the level is not calm, or the
//! limit is within a tenth of one that was too high the last time, it grows by 1 after each fourth window.
//!
//! **Multiplicative decrease.** The limit is lowered if the level of two windows in a row (up to four, while
//! the level still rises) is above `1.25 · baseline` plus twice the standard error of the measurement:
//!
//! ```text
//! limit ← limit · 0.95 · baseline / level      at least half of it
//! ```
//!
//! This is just below what can be served, so the queue drains and the next window sees the baseline again.
//! Refusals need no second window:
//!
//! ```text
//! limit ← 0.95 · (in flight − Σ latency of refusals / length of the window)      at least half of it
//! ```
//!
//! By Little's law again, the sum shows how much of the work in flight was wasted. Work begun before the
//! decrease does not count again.
//!
//! **Each decrease is an experiment.** The next window shows whether the latency fell with the limit:
//!
//! ```text
//! helped = ln(level before / level after) / ln(limit before / limit after)
//! ```
//!
//! The value is 1 if our own work causes the wait, and 0 if the other side has become slow by itself. If it
//! is below 0.6, and not by chance, the baseline becomes the new level, and the limit returns to its former
//! value. If it is near 1, the queue may not be drained yet, and the limit is lowered again, until that no
//! longer helps (only every fourth time, if the level has reached the baseline by then). This distinguishes
//! workers that contend for cores from other processes that keep the machine busy. It also lets the limit
//! recover from a slowness that never ends, and corrects a baseline that was too high from the start.
//!
//! **Costs.** A server with one queue usually has between 1 and 1.3 times as much in flight as it has slots.
//! If items are very unequal, the limit sometimes drops by half for a window although that is not necessary.
//!
//! # Alternatives in use elsewhere, and why they were rejected
//!
//! - *Vector's adaptive request concurrency* compares the mean latency of a round trip with a moving average
//!   of past ones, in units of its deviation, regardless of the sizes of the requests. It rises by 1 and
//!   falls by a tenth. The average includes the queue that the limit itself has caused, so a slow enough rise
//!   is never noticed; users found it slow to start and to recover. (Its documentation, and issues 3255 and
//!   7371 of its repository.)
//! - *Netflix's concurrency-limits*: Vegas uses the least latency ever seen as the baseline, which unequal
//!   sizes and noise make far too low, and measures it again at random. Gradient2 uses a long average
//!   instead, whose drift needed several repairs, and accepts a constant overload as the normal state (issues
//!   137 and 134 there).
//! - *A minimum over a window of time*, as in BBR (Cardwell et al., "BBR: Congestion-Based Congestion
//!   Control", ACM Queue 14(5), 2016): sound for packets, biased for work whose latency is noisy by itself.
//!   The idea to drain the queue in order to see the baseline is from there.
//! - *Hill climbing on the throughput*, trying one more and one less: it needs no baseline. But at a noise of
//!   a tenth it takes hundreds of items to see whether the 41st was worth it, and it is blind while the
//!   supply is the limit.
//!
//! Additive increase and multiplicative decrease: D. Chiu, R. Jain, "Analysis of the Increase and Decrease
//! Algorithms for Congestion Avoidance in Computer Networks", 1989. The queue from the ratio of latencies: L.
//! Brakmo, L. Peterson, "TCP Vegas", 1995. Caution near the last failure: S. Ha, I. Rhee, L. Xu, "CUBIC",
//! 2008.
//!
//! The required behaviour in each situation is stored as data in `tests/limit/scenarios`, and runs on virtual
//! time: `cargo test --release -p thalweg-runtime --test limit -- --nocapture` prints each scenario as a
//! table.
//!
//! See docs/decisions/007-limits-adapt.md.

mod controller;
mod cost;
mod waiting;
mod window;

#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use controller::{Controller, Done, Outcome};
use waiting::{HeldBack, QueuePosition, Slots};

/// A limit on the number of work items in flight. Clones share the limit.
///
/// The [module](self) describes how it finds its value. Acquiring and ending a permit each lock a mutex once,
/// for less than a microsecond: this is meant for batches and requests, not for messages.
#[derive(Clone)]
pub struct ConcurrencyLimit(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
}

struct State {
    slots: Slots,
    control: Control,
}

enum Control {
    Fixed(usize),
    Adaptive(Box<Controller>),
}

impl State {
    fn limit(&self) -> usize {
        match &self.control {
            Control::Fixed(limit) => *limit,
            Control::Adaptive(controller) => controller.limit(),
        }
    }
}

impl ConcurrencyLimit {
    /// Creates a limit that finds its value between these bounds and starts at the lower one. A lower bound
    /// of 0 counts as 1, and an upper bound below the lower one counts as equal to it.
    pub fn adaptive(bounds: RangeInclusive<usize>) -> Self {
        Self::new(Control::Adaptive(Box::new(Controller::new(bounds, Instant::now()))))
    }

    /// Creates a limit that never changes; 0 counts as 1. `concurrency: 4` in a configuration creates such a
    /// limit.
    pub fn fixed(limit: usize) -> Self {
        Self::new(Control::Fixed(limit.max(1)))
    }

    fn new(control: Control) -> Self {
        Self(Arc::new(Shared { state: Mutex::new(State { slots: Slots::default(), control }) }))
    }

    /// Returns a permit for work on `bytes` bytes if one is free and no task is waiting for it.
    pub fn try_acquire(&self, bytes: u64) -> Option<Permit> {
        let mut state = self.0.state.lock();
        let limit = state.limit();
        let held_back = state.slots.try_take(limit)?;
        Some(self.0.clone().begin(state, bytes, held_back))
    }

    /// Waits for a permit for work on `bytes` bytes. Waiting tasks get their permits in the order of their
    /// first poll. Dropping the future cancels the wait at any time.
    pub fn acquire(&self, bytes: u64) -> Acquire {
        Acquire { shared: self.0.clone(), bytes, place: None }
    }

    /// Sets the upper bound (not below the lower one). More than that may be in flight for a while: nothing
    /// is interrupted. A fixed limit does not change.
    pub fn set_upper(&self, upper: usize) {
        self.control(|controller, now, in_flight| controller.set_upper(upper, now, in_flight));
    }

    /// Also bounds the limit by the number of items of the recent mean size that fit into `bytes`, but not
    /// below the lower bound. A fixed limit does not change.
    pub fn set_budget(&self, bytes: u64) {
        self.control(|controller, now, in_flight| controller.set_budget(bytes, now, in_flight));
    }

    fn control(&self, change: impl FnOnce(&mut Controller, Instant, usize)) {
        let now = Instant::now();
        let mut state = self.0.state.lock();
        let in_flight = state.slots.in_flight();
        if let Control::Adaptive(controller) = &mut state.control {
            change(controller, now, in_flight);
        }
        drop(state);
        self.0.hand_over();
    }

    /// Returns the current limit.
    pub fn current(&self) -> usize {
        self.0.state.lock().limit()
    }

    /// Returns the number of permits in use. It may exceed [`current`](Self::current) after the limit fell.
    pub fn in_flight(&self) -> usize {
        self.0.state.lock().slots.in_flight()
    }

    /// Returns the state of the limit, for the summary of a run.
    pub fn snapshot(&self) -> Snapshot {
        let state = self.0.state.lock();
        let common = Snapshot {
            current: state.limit(),
            in_flight: state.slots.in_flight(),
            waiting: state.slots.waiting(),
            adaptive: None,
        };
        let Control::Adaptive(controller) = &state.control else { return common };
        let counts = controller.counts();
        let costs = controller.costs();
        Snapshot {
            adaptive: Some(Adaptive {
                bounds: controller.bounds(),
                raised: counts.raised,
                lowered: counts.lowered,
                overloaded: counts.overloaded,
                fixed: costs.map(|(fixed, _)| Duration::try_from_secs_f64(fixed).unwrap_or(Duration::MAX)),
                bytes_per_second: costs
                    .map(|(_, per_byte)| 1.0 / per_byte)
                    .filter(|bytes_per_second| bytes_per_second.is_finite()),
            }),
            ..common
        }
    }
}

/// Displays the configuration: "adaptive 1 to 64", or "4, as configured".
impl fmt::Display for ConcurrencyLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.state.lock().control {
            Control::Fixed(limit) => write!(f, "{limit}, as configured"),
            Control::Adaptive(controller) => {
                let bounds = controller.bounds();
                write!(f, "adaptive {} to {}", bounds.start(), bounds.end())
            }
        }
    }
}

impl fmt::Debug for ConcurrencyLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.snapshot().fmt(f)
    }
}

impl Shared {
    /// Records the start of work whose slot has been taken.
    fn begin(self: Arc<Self>, mut state: MutexGuard<'_, State>, bytes: u64, held_back: HeldBack) -> Permit {
        // The clock is read under the lock, so that no work seems to have begun before an earlier change.
        let begun = Instant::now();
        let in_flight = state.slots.in_flight();
        let epoch = match &mut state.control {
            Control::Fixed(_) => 0,
            Control::Adaptive(controller) => {
                controller.begun(bytes, held_back, in_flight, begun);
                controller.epoch()
            }
        };
        drop(state);
        Permit { shared: self, bytes, begun, epoch, outcome: Outcome::Silent }
    }

    /// Hands free slots to waiting tasks. Wakes outside the lock: a waker may run code that takes it.
    fn hand_over(&self) {
        loop {
            let mut state = self.state.lock();
            let limit = state.limit();
            let waker = state.slots.hand_over(limit);
            drop(state);
            match waker {
                Some(waker) => waker.wake(),
                None => return,
            }
        }
    }
}

/// Waits for a permit; see [`ConcurrencyLimit::acquire`].
#[must_use = "nothing is acquired until it is awaited"]
pub struct Acquire {
    shared: Arc<Shared>,
    bytes: u64,
    /// The position in the queue, once it waits.
    place: Option<QueuePosition>,
}

impl Future for Acquire {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit> {
        let shared = self.shared.clone();
        let mut state = shared.state.lock();
        let limit = state.limit();
        let held_back = match self.place {
            Some(place) => {
                ready!(state.slots.poll(place, context));
                self.place = None;
                true
            }
            None => match state.slots.try_take(limit) {
                Some(held_back) => held_back,
                None => {
                    self.place = Some(state.slots.enqueue(context.waker().clone()));
                    return Poll::Pending;
                }
            },
        };
        Poll::Ready(self.shared.clone().begin(state, self.bytes, held_back))
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let handed = self.shared.state.lock().slots.leave(place);
        if handed {
            self.shared.hand_over();
        }
    }
}

/// The right to have one piece of work in flight. Dropping it means that the work was cancelled: the slot
/// becomes free, and nothing is learnt from it.
#[must_use = "dropped, it gives its slot back at once"]
pub struct Permit {
    shared: Arc<Shared>,
    bytes: u64,
    begun: Instant,
    epoch: u64,
    outcome: Outcome,
}

impl Permit {
    /// Ends successful work: its duration is a measurement.
    pub fn succeeded(mut self) {
        self.outcome = Outcome::Succeeded;
    }

    /// Ends work that was refused because of overload, or was not done in time.
    pub fn overloaded(mut self) {
        self.outcome = Outcome::Overloaded;
    }

    /// Ends work that failed for a reason unrelated to the load.
    pub fn failed(self) {}
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.slots.give_back();
        let in_flight = state.slots.in_flight();
        if let Control::Adaptive(controller) = &mut state.control {
            let now = Instant::now();
            let done = Done {
                outcome: self.outcome,
                bytes: self.bytes,
                latency: now - self.begun,
                epoch: self.epoch,
            };
            controller.done(done, in_flight, now);
        }
        drop(state);
        self.shared.hand_over();
    }
}

/// The state of a [`ConcurrencyLimit`]. It displays as "12 (adaptive 1 to 64)" or "4 (as configured)".
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// The current limit.
    pub current: usize,
    /// The number of permits in use.
    pub in_flight: usize,
    /// The number of tasks that wait for a permit.
    pub waiting: usize,
    /// The history and the estimates of an adaptive limit; `None` for a fixed one.
    pub adaptive: Option<Adaptive>,
}

/// The history and the estimates of an adaptive limit.
#[derive(Debug, Clone, PartialEq)]
pub struct Adaptive {
    /// The bounds between which the limit may move at the moment.
    pub bounds: RangeInclusive<usize>,
    /// How many times the limit was raised.
    pub raised: u64,
    /// How many times the limit was lowered because of contention or refusals.
    pub lowered: u64,
    /// The number of permits that ended as overloaded.
    pub overloaded: u64,
    /// The time that an empty item takes without contention; `None` before the first window of samples.
    pub fixed: Option<Duration>,
    /// The bytes that one slot transfers per second beside that; `None` also if the size makes no difference.
    pub bytes_per_second: Option<f64>,
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.adaptive {
            None => write!(f, "{} (as configured)", self.current),
            Some(Adaptive { bounds, .. }) => {
                write!(f, "{} (adaptive {} to {})", self.current, bounds.start(), bounds.end())
            }
        }
    }
}

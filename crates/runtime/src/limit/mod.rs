//! How much may be under way at once: a limit that finds its own value.
//!
//! A [`ConcurrencyLimit`] gives out permits: one for each request that a sink has in flight, or one for each
//! batch that a copy of a segment works on. It watches how long the work under each permit took and moves so that
//! there is just enough under way to keep the other side busy. More than that only waits over there instead of
//! here, where it holds memory all the same.
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
//! - One permit for each *attempt*, taken when the work begins and ended by what came of it. A permit that
//!   spans an attempt, a pause and another attempt reports one very slow success, and hides the refusal.
//! - [`overloaded`](Permit::overloaded) is for refusals that mean "too much": 429, 503, a time-out.
//!   [`failed`](Permit::failed) is for everything else (a 404, say): it is no measurement at all, since failing is
//!   often quick. A permit that is dropped was cancelled, and is no measurement either.
//! - Permits for bytes as they are sent. For a segment: the bytes of the batch.
//! - The bounds: for requests `1..=` some hundreds; for copies of a segment `1..=` the cores. What the byte
//!   budget has room for is a bound as well, and moves: [`set_budget`](ConcurrencyLimit::set_budget).
//! - What cannot be seen from here is who else is there. Two limits on one server find a balance, as two
//!   connections do, but not quickly and not exactly in halves.
//!
//! # How it works
//!
//! **Cost of an item.** Latencies of unlike items are compared by what each may be expected to cost,
//!
//! ```text
//! cost(bytes) = fixed + per_byte · bytes
//! ```
//!
//! fitted by least squares to the recent items, with the load of their time divided out and each weighing
//! `1 / cost²`. So small items among large ones are not a server that became fast, and a large one among
//! small ones is not one that became slow. Items of a size about which the model knows nothing yet teach it, and
//! take no part in the rest.
//!
//! **Level.** Samples are gathered in *windows*: at least as many as the limit, and 4 (2 after 5 s), for 50 ms and
//! for as long as an item usually takes. Only work that was begun under the present limit counts. A window's level is
//!
//! ```text
//! level = Σ latency / Σ cost        a latency counts at most 4 times as much as in the last window
//! ```
//!
//! A mean, not a minimum or a median: of batches and requests some are just slow, and that is no fault. The cut
//! keeps one that hung from speaking for all; where more than a quarter of the work is like that, nothing is cut.
//!
//! **Baseline.** The level without contention. By Little's law (items in flight = rate · latency), once the
//! other side is busy, more in flight cannot raise the rate, so it must raise the latency in proportion: of `limit`
//! in flight, `limit · baseline / level` are served and the rest waits. The baseline follows a level that is
//! lower, and one that is at most 1.1 times as high, slowly; far lower ones (under a half) at once. Where
//! nothing can be taken back (at the lower bound) or won (at the upper one) it follows a higher level too. Otherwise
//! only an experiment raises it, see below.
//!
//! **Additive increase.** If at least half of what began had to wait for the limit (one that is not needed is
//! never raised) and the level is calm, at most 1.1 times the baseline plus its standard error, the limit is
//! raised after each window: doubled up to the first decrease, or up to what it was when a decrease turned out
//! to be for nothing; then by 1; by 2 after four raises in a row, by 4 after four more, up to a quarter. When it is
//! not calm, or within a tenth of what was too much the last time, by 1 after each fourth window.
//!
//! **Multiplicative decrease.** If the level of two windows in a row is above `1.25 · baseline` plus twice
//! the standard error of what was measured (of up to four, while it still rises),
//!
//! ```text
//! limit ← limit · 0.95 · baseline / level      at least half of it
//! ```
//!
//! which is just below what can be served, so that the queue drains and the next window sees the
//! baseline anew. Refusals need no second window:
//!
//! ```text
//! limit ← 0.95 · (in flight − Σ latency of refusals / length of the window)      at least half of it
//! ```
//!
//! where the sum is, by Little's law again, how many in flight were in vain. What was begun before the decrease does
//! not count again.
//!
//! **Each decrease is an experiment.** The next window says whether the latency fell with the limit:
//!
//! ```text
//! helped = ln(level before / level after) / ln(limit before / limit after)
//! ```
//!
//! is 1 where our own work is what it waits for, and 0 where the other side has become slow by itself. If it is
//! below 0.6, and not by chance, the baseline becomes the new level, and the limit goes back where it was. If it is near 1,
//! the queue may not be drained yet, and the limit is lowered again, until lowering it helps no more (when
//! the level is the baseline by then, only every fourth time). This is what tells copies that contend for cores
//! from neighbours who keep the machine busy, what lets the limit recover after a slowness that never ends, and what
//! corrects a baseline that was too high from the start.
//!
//! **What it costs.** A server with one queue has between 1 and 1.3 times as much in flight as it has slots, as a
//! rule; where items are very unequal, the limit now and then drops by half for a window although it need not.
//!
//! # What others do, and what was rejected
//!
//! - *Vector's adaptive request concurrency* compares the mean latency of a round trip with a moving average of past
//!   ones, in units of its deviation, whatever the sizes of the requests; it rises by 1 and falls by a
//!   tenth. The average takes in the queue that it has made itself, so a slow enough rise is never noticed;
//!   and users found it slow to start and to recover. (Its documentation, and issues 3255 and 7371 of its repository.)
//! - *Netflix's concurrency-limits*: Vegas takes the least latency ever seen for the baseline, which unequal sizes
//!   and noise make far too low, and measures it again by chance; Gradient2 takes a long average instead, whose drift
//!   needed several repairs, and accepts a constant overload as the normal state (issues 137 and 134 there).
//! - *A minimum over a window of time*, as in BBR (Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM
//!   Queue 14(5), 2016): sound for packets, biased for work whose latency is noisy by itself. From there is the idea
//!   to drain the queue in order to see the baseline.
//! - *Climbing the throughput* by trying one more and one less: needs no baseline, but at a noise of a tenth it takes
//!   hundreds of items to see whether the 41st was worth it, and it is blind while the supply is what limits.
//!
//! Additive increase and multiplicative decrease: D. Chiu, R. Jain, "Analysis of the Increase and Decrease Algorithms
//! for Congestion Avoidance in Computer Networks", 1989. The queue from the ratio of latencies: L. Brakmo, L.
//! Peterson, "TCP Vegas", 1995. Caution near the last failure: S. Ha, I. Rhee, L. Xu, "CUBIC", 2008.
//!
//! What it must do in which situation is written down as data in `tests/limit/scenarios`, and run on virtual time:
//! `cargo test --release -p thalweg-runtime --test limit -- --nocapture` prints each as a table.

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

/// How many pieces of work may be under way at once. Clones share the limit.
///
/// The [module](self) says how it finds its value. Taking and ending a permit each lock a mutex once, for
/// less than a microsecond: this is for batches and requests, not for messages.
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
    /// A limit that finds its value between these bounds, beginning at the lower one. A lower bound of 0 is
    /// taken as 1, and an upper one below the lower as equal to it.
    pub fn adaptive(bounds: RangeInclusive<usize>) -> Self {
        Self::new(Control::Adaptive(Box::new(Controller::new(bounds, Instant::now()))))
    }

    /// A limit that stays as it is; 0 is taken as 1. This is what `concurrency: 4` makes.
    pub fn fixed(limit: usize) -> Self {
        Self::new(Control::Fixed(limit.max(1)))
    }

    fn new(control: Control) -> Self {
        Self(Arc::new(Shared { state: Mutex::new(State { slots: Slots::default(), control }) }))
    }

    /// Takes a permit for work on `bytes` bytes if there is one and nobody is waiting for it.
    pub fn try_acquire(&self, bytes: u64) -> Option<Permit> {
        let mut state = self.0.state.lock();
        let limit = state.limit();
        let held_back = state.slots.try_take(limit)?;
        Some(self.0.clone().begin(state, bytes, held_back))
    }

    /// Waits for a permit for work on `bytes` bytes. Those who wait get theirs in the order in which they first
    /// polled; one who no longer wants it drops the future at any time.
    pub fn acquire(&self, bytes: u64) -> Acquire {
        Acquire { shared: self.0.clone(), bytes, place: None }
    }

    /// Moves the upper bound (not below the lower one). More than that may be under way for a while: nothing is
    /// interrupted. A fixed limit stays as it is.
    pub fn set_upper(&self, upper: usize) {
        self.control(|controller, now, in_flight| controller.set_upper(upper, now, in_flight));
    }

    /// Bounds the limit by how many items of the recent mean size fit into `bytes`, beside the upper bound and not
    /// below the lower one. A fixed limit stays as it is.
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

    /// How many may be under way now.
    pub fn current(&self) -> usize {
        self.0.state.lock().limit()
    }

    /// How many are under way now. This may be above [`current`](Self::current) after the limit fell.
    pub fn in_flight(&self) -> usize {
        self.0.state.lock().slots.in_flight()
    }

    /// How the limit stands, for the summary of a run.
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

/// What was configured: "adaptive 1 to 64", or "4, as configured".
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
    /// Notes that work begins whose slot has been taken.
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

    /// Gives free slots to those who wait. Wakes outside the lock: a waker may run code that takes it.
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
    /// Where it waits, once it does.
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

/// The right to have one piece of work under way. Dropped, it was cancelled: the slot is free again, and
/// nothing is learnt from it.
#[must_use = "dropped, it gives its slot back at once"]
pub struct Permit {
    shared: Arc<Shared>,
    bytes: u64,
    begun: Instant,
    epoch: u64,
    outcome: Outcome,
}

impl Permit {
    /// The work was done: how long it took is a measurement.
    pub fn succeeded(mut self) {
        self.outcome = Outcome::Succeeded;
    }

    /// The work was refused because there was too much of it, or was not done in time.
    pub fn overloaded(mut self) {
        self.outcome = Outcome::Overloaded;
    }

    /// The work failed for a reason that has nothing to do with how much there was.
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

/// How a [`ConcurrencyLimit`] stands. It displays as "12 (adaptive 1 to 64)" or "4 (as configured)".
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// How many may be under way.
    pub current: usize,
    /// How many are.
    pub in_flight: usize,
    /// How many wait for a permit.
    pub waiting: usize,
    /// What an adaptive limit knows; `None` for a fixed one.
    pub adaptive: Option<Adaptive>,
}

/// What an adaptive limit knows.
#[derive(Debug, Clone, PartialEq)]
pub struct Adaptive {
    /// Between which values the limit may move at the moment.
    pub bounds: RangeInclusive<usize>,
    /// How many times it was raised.
    pub raised: u64,
    /// How many times it was lowered because of contention or refusals.
    pub lowered: u64,
    /// How many permits ended as overloaded.
    pub overloaded: u64,
    /// What an empty item takes when nothing contends; `None` before the first window of samples.
    pub fixed: Option<Duration>,
    /// What goes through one slot in a second beside that; `None` also where the size makes no difference.
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

//! Whether the threads of a run make progress.
//!
//! The workers of the runtime count how often they wait and how long they were busy. A worker that does not
//! wait, and whose counts stay as they are, has been in one step for that long: it computes, or is blocked.
//! The thread that drives the run calls [`Pulse::tick`], so a thread of its own that reads the pulse also
//! notices if that one is blocked. A worker with much to do shows its counts once in 61 steps, so a time that
//! means something is minutes. Threads that components have for themselves are not observed: they may wait
//! for input for days.
//!
//! A task on the runtime that notes the time was rejected: it runs on any worker that is free, so one blocked
//! worker among several would never be noticed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::{Handle as RuntimeHandle, RuntimeMetrics};

/// How often the counts of the workers are read.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The progress of the current run. Clones are of the same run.
#[derive(Clone, Default)]
pub(crate) struct Pulse(Arc<Mutex<Option<Current>>>);

struct Current {
    workers: RuntimeMetrics,
    looks: Looks,
}

/// The counts of a worker: how often it waited or was woken, and how long it was busy.
type Counts = (u64, Duration);

/// The latest change of each worker's counts.
struct Looks {
    seen: Vec<(Counts, Instant)>,
    /// The last look.
    looked: Instant,
    /// The last call of the thread that drives the run.
    ticked: Instant,
}

impl Looks {
    fn new(now: Instant) -> Self {
        Self { seen: Vec::new(), looked: now, ticked: now }
    }

    /// Compares the counts of the workers with the last ones. A worker waits if the number of its waits and
    /// wake-ups is odd.
    fn look(&mut self, now: Instant, counts: impl Iterator<Item = Counts>) {
        self.looked = now;
        for (worker, counts) in counts.enumerate() {
            match self.seen.get_mut(worker) {
                None => self.seen.push((counts, now)),
                Some((known, since)) if *known != counts || counts.0 % 2 == 1 => {
                    (*known, *since) = (counts, now);
                }
                Some(_) => {}
            }
        }
    }

    /// The longest time in which one of the threads made no progress.
    fn still_for(&self, now: Instant) -> Duration {
        let oldest = self.seen.iter().map(|(_, since)| *since).chain([self.ticked]).min();
        oldest.map(|oldest| now.saturating_duration_since(oldest)).unwrap_or_default()
    }
}

impl Pulse {
    /// A run begins on the current runtime.
    pub(crate) fn begin(&self) {
        let workers = RuntimeHandle::current().metrics();
        *self.0.lock() = Some(Current { workers, looks: Looks::new(Instant::now()) });
    }

    /// Notes that the thread that drives the run is not blocked.
    pub(crate) fn tick(&self) {
        if let Some(Current { workers, looks }) = &mut *self.0.lock() {
            let now = Instant::now();
            looks.ticked = now;
            if now.saturating_duration_since(looks.looked) >= LOOK_EVERY {
                let counts = |worker| {
                    (workers.worker_park_unpark_count(worker), workers.worker_total_busy_duration(worker))
                };
                looks.look(now, (0..workers.num_workers()).map(counts));
            }
        }
    }

    /// The run has ended.
    pub(crate) fn end(&self) {
        *self.0.lock() = None;
    }

    /// The longest time in which a thread of the current run made no progress. Zero between runs.
    pub(crate) fn still_for(&self) -> Duration {
        self.0.lock().as_ref().map(|current| current.looks.still_for(Instant::now())).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_worker_that_neither_waits_nor_finishes_a_step_makes_no_progress() {
        let start = Instant::now();
        let mut looks = Looks::new(start);
        let busy = |seconds: u32| SECOND * seconds;
        // The first waits, the second computes, the third works step by step.
        for second in 0..10 {
            let now = start + busy(second);
            looks.ticked = now;
            looks.look(now, [(3, busy(1)), (4, busy(1)), (8, busy(second))].into_iter());
        }
        assert_eq!(looks.still_for(start + busy(9)), busy(9));
        looks.look(start + busy(10), [(3, busy(1)), (5, busy(10)), (8, busy(10))].into_iter());
        looks.ticked = start + busy(10);
        assert_eq!(looks.still_for(start + busy(10)), Duration::ZERO);
        // The thread that drives the run is blocked.
        assert_eq!(looks.still_for(start + busy(12)), busy(2));
    }

    #[test]
    fn a_blocked_worker_of_a_real_runtime_is_noticed_until_it_goes_on() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let (release, blocked) = std::sync::mpsc::channel::<()>();
        let pulse = Pulse::default();
        assert_eq!(pulse.still_for(), Duration::ZERO);
        runtime.block_on(async { pulse.begin() });
        let task = runtime.spawn(async move {
            let _ = blocked.recv();
        });
        let until = |reached: &dyn Fn(Duration) -> bool| {
            while !reached(pulse.still_for()) {
                std::thread::sleep(Duration::from_millis(10));
                pulse.tick();
            }
        };
        until(&|still| still > LOOK_EVERY * 4);
        release.send(()).unwrap();
        runtime.block_on(task).unwrap();
        until(&|still| still < LOOK_EVERY * 2);
        pulse.end();
    }
}

//! How long batches take from reading to settling.
//!
//! The times of a source go into buckets whose width grows with the time: sixteen between a power of two and
//! the next. A quantile is therefore known to a thirty-second of its value, whatever the times are, and the
//! memory does not grow with their number. Windows of a few seconds, of which the oldest is emptied in turn,
//! make the quantiles those of the last minute.
//!
//! (Rejected: a sample of the times. Its highest quantiles depend on chance, and they are what is looked
//! for.)

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;

/// Quantiles of the time from reading a batch of a source to settling it, in microseconds.
#[derive(Debug, Clone, Default, Serialize, PartialEq)]
pub struct LatencyCounts {
    /// The source.
    pub source: String,
    /// The number of batches that were settled in the last minute: in the last 45 to 60 seconds.
    pub count: u64,
    /// Half of them took at most this long, to a thirty-second of it. 0 if there are none.
    pub p50_us: u64,
    /// Nine tenths of them took at most this long.
    pub p90_us: u64,
    /// All but one of a hundred of them took at most this long.
    pub p99_us: u64,
    /// The longest time of them.
    pub max_us: u64,
    /// Bounds in seconds, in ascending order, each with the number of batches since the start of the run that
    /// took at most this long. All batches, also slower ones, are in `total`.
    pub buckets: Vec<(f64, u64)>,
    /// The sum of the times of all batches since the start of the run, in seconds.
    pub sum_s: f64,
    /// The number of batches that were settled since the start of the run.
    pub total: u64,
    /// The age of the oldest batch that is not settled, in milliseconds. None if all are.
    pub oldest_unsettled_ms: Option<u64>,
}

/// The bounds of [`LatencyCounts::buckets`], in seconds.
const BOUNDS_S: [f64; 17] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];

/// The times of the batches of one source.
#[derive(Debug)]
pub(crate) struct Latency(Mutex<Times>);

impl Default for Latency {
    fn default() -> Self {
        Self(Mutex::new(Times {
            next: 0,
            open: BTreeMap::new(),
            recent: Recent::beginning(Instant::now()),
            up_to: [0; BOUNDS_S.len()],
            sum: Duration::ZERO,
            total: 0,
        }))
    }
}

#[derive(Debug)]
struct Times {
    next: u64,
    /// When each batch was read that is not settled, in the order of reading. It has an entry only for as
    /// long as the batch has memory.
    open: BTreeMap<u64, Instant>,
    recent: Recent,
    /// The batches of each bucket alone.
    up_to: [u64; BOUNDS_S.len()],
    sum: Duration,
    total: u64,
}

/// The time of one batch, which ends when this is dropped.
pub(crate) struct Timing {
    latency: Arc<Latency>,
    number: u64,
    begun: Instant,
}

impl Latency {
    /// Begins the time of a batch that was read now.
    pub(crate) fn begin(self: &Arc<Self>) -> Timing {
        self.begin_at(Instant::now())
    }

    fn begin_at(self: &Arc<Self>, begun: Instant) -> Timing {
        let mut times = self.0.lock();
        let number = times.next;
        times.next += 1;
        times.open.insert(number, begun);
        Timing { latency: self.clone(), number, begun }
    }

    fn end(&self, number: u64, begun: Instant, now: Instant) {
        let mut times = self.0.lock();
        // A batch ends once.
        if times.open.remove(&number).is_some() {
            times.note(now.saturating_duration_since(begun), now);
        }
    }

    pub(super) fn counts(&self, source: &str) -> LatencyCounts {
        self.counts_at(source, Instant::now())
    }

    fn counts_at(&self, source: &str, now: Instant) -> LatencyCounts {
        let mut times = self.0.lock();
        times.recent.turn(now);
        let (counts, count, max_us) = times.recent.all();
        let quantile = |percent| quantile(&counts, count, percent).min(max_us);
        let mut so_far = 0;
        let cumulated = BOUNDS_S.into_iter().zip(times.up_to).map(|(bound, number)| {
            so_far += number;
            (bound, so_far)
        });
        let oldest = times.open.values().next().map(|begun| now.saturating_duration_since(*begun));
        LatencyCounts {
            source: source.to_owned(),
            count,
            p50_us: quantile(50),
            p90_us: quantile(90),
            p99_us: quantile(99),
            max_us,
            buckets: cumulated.collect(),
            sum_s: times.sum.as_secs_f64(),
            total: times.total,
            oldest_unsettled_ms: oldest.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

impl Drop for Timing {
    fn drop(&mut self) {
        self.latency.end(self.number, self.begun, Instant::now());
    }
}

impl Times {
    fn note(&mut self, took: Duration, now: Instant) {
        self.recent.note(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), now);
        let took_s = took.as_secs_f64();
        if let Some(bucket) = BOUNDS_S.iter().position(|bound| took_s <= *bound) {
            self.up_to[bucket] += 1;
        }
        self.sum = self.sum.saturating_add(took);
        self.total += 1;
    }
}

/// The number of windows, of which the newest is being filled.
const WINDOWS: usize = 4;
/// The time that a window covers.
const WINDOW: Duration = Duration::from_secs(15);

/// The times of the last windows.
#[derive(Debug)]
struct Recent {
    begun: Instant,
    /// The number of the newest window since the beginning.
    newest: u64,
    windows: [Window; WINDOWS],
}

#[derive(Debug, Default)]
struct Window {
    /// The number of times in each bucket. Without memory until there is one.
    counts: Vec<u32>,
    count: u64,
    max_us: u64,
}

impl Recent {
    fn beginning(begun: Instant) -> Self {
        Self { begun, newest: 0, windows: Default::default() }
    }

    /// Empties the windows that are over.
    fn turn(&mut self, now: Instant) {
        let number = now.saturating_duration_since(self.begun).as_secs() / WINDOW.as_secs();
        let passed = number.saturating_sub(self.newest).min(WINDOWS as u64);
        // The clock of another thread may be a moment behind.
        self.newest = self.newest.max(number);
        for back in 0..passed {
            let at = (self.newest - back) % WINDOWS as u64;
            let window = &mut self.windows[at as usize];
            window.counts.clear();
            (window.count, window.max_us) = (0, 0);
        }
    }

    fn note(&mut self, us: u64, now: Instant) {
        self.turn(now);
        let window = &mut self.windows[(self.newest % WINDOWS as u64) as usize];
        window.counts.resize(BUCKETS, 0);
        let bucket = &mut window.counts[bucket_of(us)];
        *bucket = bucket.saturating_add(1);
        window.count += 1;
        window.max_us = window.max_us.max(us);
    }

    /// The number of times in each bucket, the number of all, and the longest.
    fn all(&self) -> (Vec<u64>, u64, u64) {
        let mut counts = vec![0; BUCKETS];
        for window in &self.windows {
            counts.iter_mut().zip(&window.counts).for_each(|(all, own)| *all += u64::from(*own));
        }
        let count = self.windows.iter().map(|window| window.count).sum();
        let max_us = self.windows.iter().map(|window| window.max_us).max().unwrap_or_default();
        (counts, count, max_us)
    }
}

/// The logarithm of the number of buckets between a power of two and the next.
const FINE: u32 = 4;
/// Longer times count as this: twelve days.
const LONGEST_US: u64 = (1 << 40) - 1;
const BUCKETS: usize = 592;

/// Returns the bucket of a time. Each of the first ones has one microsecond.
fn bucket_of(us: u64) -> usize {
    let us = us.min(LONGEST_US);
    let magnitude = us.checked_ilog2().unwrap_or_default();
    let Some(shift) = magnitude.checked_sub(FINE) else { return us as usize };
    let fine = (us >> shift) as usize & ((1 << FINE) - 1);
    ((shift as usize + 1) << FINE) + fine
}

/// Returns the middle of a bucket.
fn middle_of(bucket: usize) -> u64 {
    let Some(shift) = (bucket >> FINE).checked_sub(1) else { return bucket as u64 };
    let fine = (bucket & ((1 << FINE) - 1)) as u64;
    let (least, width) = (((1 << FINE) + fine) << shift, 1_u64 << shift);
    least + width / 2
}

/// Returns a time that this percentage of the times do not exceed.
fn quantile(counts: &[u64], count: u64, percent: u64) -> u64 {
    let rank = count.saturating_mul(percent).div_ceil(100).max(1);
    let mut so_far = 0;
    let found = counts.iter().position(|number| {
        so_far += number;
        so_far >= rank
    });
    found.map_or(0, middle_of)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Times of all magnitudes.
    fn times() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec((0..40_u32, any::<u64>()).prop_map(|(bits, any)| any >> (63 - bits)), 1..300)
    }

    #[test]
    fn every_time_is_in_a_bucket_whose_middle_is_near() {
        for magnitude in 0..40 {
            let power = 1_u64 << magnitude;
            for us in [power - 1, power, power + 1, power + power / 3, power + power / 2] {
                let (bucket, us) = (bucket_of(us), us.min(LONGEST_US));
                assert!(bucket < BUCKETS);
                assert!(middle_of(bucket).abs_diff(us) <= us / 32, "{us} is near {}", middle_of(bucket));
            }
        }
        assert_eq!((bucket_of(LONGEST_US), bucket_of(u64::MAX)), (BUCKETS - 1, BUCKETS - 1));
    }

    proptest! {
        #[test]
        fn a_quantile_is_that_of_the_sorted_times_to_a_thirty_second(mut times in times()) {
            let begun = Instant::now();
            let mut recent = Recent::beginning(begun);
            times.iter().for_each(|us| recent.note(*us, begun));
            times.sort_unstable();
            let (counts, count, max_us) = recent.all();
            prop_assert_eq!((count, max_us), (times.len() as u64, times[times.len() - 1]));
            for percent in [1, 50, 90, 99, 100] {
                let exact = times[(times.len() * percent).div_ceil(100).max(1) - 1];
                let found = quantile(&counts, count, percent as u64);
                prop_assert!(found.abs_diff(exact) <= exact / 32, "{} of {}: {}", percent, exact, found);
            }
        }

        /// Pauses between times, in seconds.
        #[test]
        fn only_the_times_of_the_last_minute_count(pauses in prop::collection::vec(0..40_u64, 1..50)) {
            let begun = Instant::now();
            let (mut recent, mut at, mut noted) = (Recent::beginning(begun), 0, Vec::new());
            for pause in pauses {
                at += pause;
                noted.push(at);
                recent.note(at, begun + Duration::from_secs(at));
                let in_last = |windows: u64| {
                    noted.iter().filter(|then| at / 15 - **then / 15 < windows).copied().collect::<Vec<_>>()
                };
                let (counts, count, max_us) = recent.all();
                prop_assert_eq!(count, in_last(4).len() as u64);
                prop_assert_eq!(counts.iter().sum::<u64>(), count);
                prop_assert_eq!(Some(max_us), in_last(4).into_iter().max());
            }
        }
    }

    #[test]
    fn times_are_those_of_settled_batches_and_the_oldest_other_one_is_known() {
        let latency = Arc::new(Latency::default());
        let begun = Instant::now();
        let after = |ms: u64| begun + Duration::from_millis(ms);
        let all: Vec<Timing> = [0, 10, 20].map(|ms| latency.begin_at(after(ms))).into();
        latency.end(1, after(10), after(13));
        let counts = latency.counts_at("in", after(50));
        assert_eq!((counts.count, counts.total, counts.max_us), (1, 1, 3000));
        assert_eq!((counts.p50_us, counts.p99_us), (3000, 3000));
        assert_eq!((counts.sum_s, counts.oldest_unsettled_ms), (0.003, Some(50)));
        let up_to = |counts: &LatencyCounts| -> Vec<u64> {
            counts.buckets.iter().map(|(_, number)| *number).collect()
        };
        let expected: Vec<u64> = BOUNDS_S.iter().map(|bound| u64::from(*bound >= 0.003)).collect();
        assert_eq!(up_to(&counts), expected);
        latency.end(0, after(0), after(3_600_000));
        // Nothing is settled twice, also when the rest is dropped.
        latency.end(0, after(0), after(3_600_001));
        let counts = latency.counts_at("in", after(3_600_000));
        assert_eq!((counts.count, counts.total, counts.oldest_unsettled_ms), (1, 2, Some(3_599_980)));
        assert_eq!(up_to(&counts), expected);
        drop(all);
        let counts = latency.counts_at("in", after(3_700_000));
        assert_eq!((counts.count, counts.total, counts.oldest_unsettled_ms), (0, 3, None));
        assert_eq!(counts.p50_us, 0);
    }
}

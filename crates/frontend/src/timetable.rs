//! The times of a scheduled configuration, and what became of them.
//!
//! The clock of the machine decides: each look at it is a parameter, so that tests have their own. A time
//! that passed while a run was active or the machine slept has no run, or with `overlap: queue` one for all
//! of them; it is never made up for. A clock that is set back by more than an hour is a new clock, whose
//! times count. One that is set back by less, by a correction, does not bring a time twice.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use parking_lot::Mutex;
use thalweg_config::counted;
use thalweg_engine::{OnRunFailure, Overlap, Schedule};

/// At most this many times are passed one by one: the clock may be set forward by years.
const MOST_PASSED: u64 = 1000;
/// A clock that is set back by more than this is a new one.
const NEW_CLOCK: TimeDelta = TimeDelta::hours(1);

/// The times of a process. Clones are the same.
#[derive(Clone)]
pub(crate) struct Timetable(Arc<Mutex<Times>>);

struct Times {
    schedule: Schedule,
    /// The first time that nothing was decided about.
    next: Option<DateTime<Utc>>,
    /// True if a time passed whose run begins when the active one has ended.
    is_queued: bool,
    /// When the next run begins, while none is active.
    due: Option<DateTime<Utc>>,
    looked: DateTime<Utc>,
    counts: RunCounts,
}

/// The number of runs that the times have had, by how they ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RunCounts {
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    /// Times without a run.
    pub(crate) skipped: u64,
}

impl Timetable {
    pub(crate) fn new(schedule: Schedule, now: DateTime<Utc>) -> Self {
        let next = schedule.next(now);
        let counts = RunCounts::default();
        Self(Arc::new(Mutex::new(Times { schedule, next, is_queued: false, due: None, looked: now, counts })))
    }

    /// Decides when the next run begins. Returns false if no time is left before the calendar ends.
    pub(crate) fn decide(&self, now: DateTime<Utc>) -> bool {
        let mut times = self.0.lock();
        times.decide(now);
        times.due.is_some()
    }

    /// Returns the time until the next run. It changes with the clock, so it is asked for now and then.
    pub(crate) fn left(&self, now: DateTime<Utc>) -> Duration {
        let mut times = self.0.lock();
        if times.has_new_clock(now) {
            times.decide(now);
        }
        let left = times.due.map(|due| (due - now).to_std().unwrap_or_default());
        left.unwrap_or(Duration::MAX)
    }

    /// A run begins.
    pub(crate) fn begin(&self, now: DateTime<Utc>) {
        let mut times = self.0.lock();
        times.due = None;
        if !std::mem::take(&mut times.is_queued) {
            times.next = times.next.and_then(|next| times.schedule.next(next));
        }
        let missed = times.pass(now);
        times.counts.skipped += missed;
        drop(times);
        if missed > 0 {
            tracing::warn!("skipped {} of the schedule: this one begins late", counted(missed, "run"));
        }
    }

    /// Looks at the clock while a run is active.
    pub(crate) fn look(&self, now: DateTime<Utc>) {
        let mut times = self.0.lock();
        times.has_new_clock(now);
        let mut passed = times.pass(now);
        if passed > 0 && times.schedule.overlap == Overlap::Queue && !times.is_queued {
            times.is_queued = true;
            passed -= 1;
        }
        times.counts.skipped += passed;
        drop(times);
        if passed > 0 {
            tracing::warn!("skipped {} of the schedule: one is still active", counted(passed, "run"));
        }
    }

    /// A run has ended. Returns true if no other one follows.
    pub(crate) fn end(&self, now: DateTime<Utc>, is_success: bool) -> bool {
        self.look(now);
        let mut times = self.0.lock();
        match is_success {
            true => times.counts.succeeded += 1,
            false => times.counts.failed += 1,
        }
        !is_success && times.schedule.on_failure == OnRunFailure::Stop
    }

    pub(crate) fn counts(&self) -> RunCounts {
        self.0.lock().counts
    }

    /// Returns when the next run begins, as far as that is known.
    pub(crate) fn next(&self) -> Option<DateTime<Utc>> {
        let times = self.0.lock();
        times.due.or(times.next)
    }

    /// The same, in the time zone of the schedule.
    pub(crate) fn next_shown(&self) -> String {
        let next = self.next();
        let times = self.0.lock();
        next.map(|next| times.schedule.shown(next)).unwrap_or_default()
    }
}

impl Times {
    fn decide(&mut self, now: DateTime<Utc>) {
        let most = u64::try_from(self.schedule.jitter.duration().as_millis()).unwrap_or(u64::MAX);
        let delay = Duration::from_millis(fastrand::u64(0..=most));
        self.due = match self.is_queued {
            true => Some(now),
            // A delay beyond the calendar is none.
            false => self.next.map(|next| later(next, delay).unwrap_or(next)),
        };
    }

    /// Notes a look at the clock. If it was set back by much, all begins with its times.
    fn has_new_clock(&mut self, now: DateTime<Utc>) -> bool {
        let is_new = self.looked - now > NEW_CLOCK;
        self.looked = now;
        if is_new {
            self.next = self.schedule.next(now);
            self.is_queued = false;
        }
        is_new
    }

    /// Leaves all times until now behind. Returns their number, as far as they are counted.
    fn pass(&mut self, now: DateTime<Utc>) -> u64 {
        let mut passed = 0;
        while let Some(next) = self.next.filter(|next| *next <= now) {
            passed += 1;
            self.next = self.schedule.next(if passed < MOST_PASSED { next } else { now });
        }
        passed
    }
}

/// A later time, unless the calendar ends before.
pub(crate) fn later(time: DateTime<Utc>, delay: Duration) -> Option<DateTime<Utc>> {
    time.checked_add_signed(TimeDelta::from_std(delay).ok()?)
}

#[cfg(test)]
mod tests {
    use thalweg_config::TimeSpan;

    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        DateTime::parse_from_rfc3339(&format!("2026-11-27T{text}Z")).unwrap().to_utc()
    }

    fn every_minute(now: &str, overlap: Overlap) -> Timetable {
        let cron: thalweg_config::Cron = "* * * * *".parse().unwrap();
        Timetable::new(Schedule { overlap, ..cron.into() }, at(now))
    }

    fn seconds_left(timetable: &Timetable, now: &str) -> u64 {
        timetable.left(at(now)).as_secs()
    }

    #[test]
    fn a_run_begins_at_its_time_and_each_time_has_one() {
        let timetable = every_minute("10:00:30", Overlap::Skip);
        assert!(timetable.decide(at("10:00:30")));
        assert_eq!(timetable.next_shown(), "2026-11-27T10:01:00Z");
        assert_eq!((seconds_left(&timetable, "10:00:30"), seconds_left(&timetable, "10:01:00")), (30, 0));
        timetable.begin(at("10:01:00"));
        assert!(!timetable.end(at("10:01:00"), true));
        // The clock was corrected by a second.
        assert!(timetable.decide(at("10:00:59")));
        assert_eq!(seconds_left(&timetable, "10:00:59"), 61);
        assert_eq!(timetable.counts(), RunCounts { succeeded: 1, ..RunCounts::default() });
    }

    #[test]
    fn times_during_a_run_are_skipped_and_counted() {
        let timetable = every_minute("10:00:30", Overlap::Skip);
        timetable.decide(at("10:00:30"));
        timetable.begin(at("10:01:00"));
        timetable.look(at("10:01:59"));
        assert_eq!(timetable.counts().skipped, 0);
        timetable.look(at("10:02:00"));
        timetable.look(at("10:02:01"));
        assert_eq!(timetable.counts().skipped, 1);
        timetable.end(at("10:04:30"), false);
        assert_eq!(timetable.counts(), RunCounts { failed: 1, skipped: 3, succeeded: 0 });
        timetable.decide(at("10:04:30"));
        assert_eq!(seconds_left(&timetable, "10:04:30"), 30);
    }

    #[test]
    fn one_time_during_a_run_is_queued_and_others_are_skipped() {
        let timetable = every_minute("10:00:30", Overlap::Queue);
        timetable.decide(at("10:00:30"));
        timetable.begin(at("10:01:00"));
        timetable.end(at("10:03:30"), true);
        assert_eq!(timetable.counts().skipped, 1);
        timetable.decide(at("10:03:30"));
        assert_eq!(seconds_left(&timetable, "10:03:30"), 0);
        timetable.begin(at("10:03:30"));
        timetable.end(at("10:03:40"), true);
        timetable.decide(at("10:03:40"));
        assert_eq!(seconds_left(&timetable, "10:03:40"), 20);
        assert_eq!(timetable.counts(), RunCounts { succeeded: 2, skipped: 1, failed: 0 });
    }

    #[test]
    fn a_machine_that_slept_runs_once_and_a_clock_that_is_set_begins_again() {
        let timetable = every_minute("10:00:30", Overlap::Queue);
        timetable.decide(at("10:00:30"));
        assert_eq!(seconds_left(&timetable, "12:00:30"), 0);
        timetable.begin(at("12:00:30"));
        assert_eq!(timetable.counts().skipped, 119);
        timetable.end(at("12:00:40"), true);
        timetable.decide(at("12:00:40"));
        assert_eq!(seconds_left(&timetable, "12:00:40"), 20);
        // Back by more than an hour.
        assert_eq!(seconds_left(&timetable, "10:30:15"), 45);
        // Forward by years.
        let later = at("10:30:15") + TimeDelta::days(4000);
        timetable.left(later);
        timetable.begin(later);
        assert_eq!(timetable.counts().skipped, 119 + MOST_PASSED);
        assert_eq!(timetable.next(), Some(later + TimeDelta::seconds(45)));
    }

    #[test]
    fn jitter_delays_a_run_by_at_most_that_much() {
        let cron: thalweg_config::Cron = "0 * * * *".parse().unwrap();
        let schedule = Schedule { jitter: TimeSpan::seconds(30), ..cron.into() };
        let timetable = Timetable::new(schedule.clone(), at("10:30:00"));
        for _ in 0..100 {
            timetable.decide(at("10:30:00"));
            assert!((1800..=1830).contains(&seconds_left(&timetable, "10:30:00")));
        }
        let stop = Schedule { on_failure: OnRunFailure::Stop, ..schedule };
        let timetable = Timetable::new(stop, at("10:30:00"));
        assert!(!timetable.end(at("10:31:00"), true) && timetable.end(at("10:31:00"), false));
    }
}

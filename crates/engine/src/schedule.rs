//! The key `schedule`: when `thalweg run` runs a configuration.
//!
//! The times are those of [`Cron`], in a time zone: a time that a change of the clock skips does not come,
//! and one that it repeats comes twice, as for the source `exec`. Moving a skipped time to the next one was
//! rejected: a run at 02:30 and one at 03:30 would then be one or two, and no one could say which.
//!
//! This is only the description. The front end waits, runs and counts.

use arrow_array::timezone::Tz;
use chrono::{DateTime, SecondsFormat, Utc};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{Cron, TimeSpan};

use crate::component::Mistake;

/// When a configuration runs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(from = "Written")]
#[schemars(with = "Written")]
pub struct Schedule {
    /// The times.
    pub cron: Cron,
    /// Their time zone; UTC if there is none.
    pub timezone: Option<String>,
    /// The treatment of a time that comes while a run is active.
    pub overlap: Overlap,
    /// The reaction to a run that failed.
    pub on_failure: OnRunFailure,
    /// The most that a run begins later than its time.
    pub jitter: TimeSpan,
}

/// The times alone, or a schedule with its options.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Written {
    Times(Cron),
    Options(Box<ScheduleOptions>),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ScheduleOptions {
    /// The times in the notation of cron: minute, hour, day, month and weekday, or a name such as `@hourly`.
    /// With six fields, the first is the second.
    cron: Cron,
    /// The time zone of the times, such as `Europe/Berlin`. A time that a change of the clock skips has no
    /// run, and one that comes twice has two. The default is UTC.
    timezone: Option<String>,
    /// The treatment of a time that comes while a run is active. With `skip` (the default) it has no run,
    /// which is logged and counted. With `queue` its run begins when the active one has ended; at most one
    /// waits, and others are skipped.
    #[serde(default)]
    overlap: Overlap,
    /// The reaction to a run that failed. With `continue` (the default) the next run comes at its time. With
    /// `stop` the process ends with the exit code of that run.
    #[serde(default)]
    on_failure: OnRunFailure,
    /// The most that a run begins later than its time, at random: many machines with the same times then do
    /// not all begin at once. The default is `0s`.
    #[serde(default)]
    jitter: TimeSpan,
}

/// The treatment of a time that comes while a run is active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// It has no run.
    #[default]
    Skip,
    /// Its run begins when the active one has ended.
    Queue,
}

/// The reaction to a run that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnRunFailure {
    /// The next run comes at its time.
    #[default]
    Continue,
    /// The process ends.
    Stop,
}

impl From<Written> for Schedule {
    fn from(written: Written) -> Self {
        match written {
            Written::Times(cron) => cron.into(),
            Written::Options(options) => {
                let ScheduleOptions { cron, timezone, overlap, on_failure, jitter } = *options;
                Self { cron, timezone, overlap, on_failure, jitter }
            }
        }
    }
}

impl From<Cron> for Schedule {
    fn from(cron: Cron) -> Self {
        Self {
            cron,
            timezone: None,
            overlap: Overlap::default(),
            on_failure: OnRunFailure::default(),
            jitter: TimeSpan::default(),
        }
    }
}

impl Schedule {
    /// Returns what its schema cannot find.
    pub(crate) fn check(&self) -> Option<Mistake> {
        let zone = self.timezone.as_ref().filter(|zone| zone.parse::<Tz>().is_err())?;
        let mistake = Mistake::new("timezone", format!("`{zone}` is not a time zone."));
        Some(mistake.help("Write for example `Europe/Berlin` or `+01:00`."))
    }

    fn zone(&self) -> Option<Tz> {
        self.timezone.as_deref().and_then(|zone| zone.parse().ok())
    }

    /// Returns the first time after this one. `None` if there is none before the calendar ends.
    pub fn next(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match self.zone() {
            Some(zone) => self.cron.next(&after.with_timezone(&zone)).map(|next| next.to_utc()),
            None => self.cron.next(&after),
        }
    }

    /// Returns a time as its time zone shows it: `2026-11-28T02:30:00+01:00`.
    pub fn shown(&self, at: DateTime<Utc>) -> String {
        let (form, zulu) = (SecondsFormat::Secs, true);
        match self.zone() {
            Some(zone) => at.with_timezone(&zone).to_rfc3339_opts(form, zulu),
            None => at.to_rfc3339_opts(form, zulu),
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_config::testing::{options, refused};

    use super::*;

    #[derive(Debug, Deserialize, JsonSchema)]
    struct Options {
        schedule: Option<Schedule>,
    }

    fn schedule(text: &str) -> Schedule {
        options::<Options>(&format!("schedule: {text}")).schedule.unwrap()
    }

    fn following(text: &str, after: &str, count: usize) -> Vec<String> {
        let schedule = schedule(text);
        let mut at = DateTime::parse_from_rfc3339(after).unwrap().to_utc();
        let mut next = || {
            at = schedule.next(at).unwrap();
            schedule.shown(at)
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn a_text_is_the_times_and_a_mapping_has_the_rest() {
        let short = schedule("'*/5 * * * *'");
        assert_eq!(
            short,
            schedule("{ cron: '*/5 * * * *', overlap: skip, on_failure: continue, jitter: 0s }")
        );
        let long = schedule(
            "{ cron: '@daily', timezone: Europe/Berlin, overlap: queue, on_failure: stop, jitter: 30s }",
        );
        assert_eq!((long.overlap, long.on_failure), (Overlap::Queue, OnRunFailure::Stop));
        assert_eq!((long.jitter, long.timezone.as_deref()), (TimeSpan::seconds(30), Some("Europe/Berlin")));
        assert!(options::<Options>("{}").schedule.is_none());
    }

    #[test]
    fn a_mistake_is_explained_in_either_form() {
        for text in ["'* *'", "{ cron: '* *' }"] {
            let refused = refused::<Options>(&format!("schedule: {text}"));
            assert!(refused.starts_with("`* *` is not a line of times"), "{refused}");
        }
        assert!(refused::<Options>("schedule: { cron: '@daily', every: 5m }").contains("`every`"));
        let mistake = schedule("{ cron: '@daily', timezone: Berlin }").check().unwrap();
        assert_eq!((mistake.option, mistake.message.as_str()), ("timezone", "`Berlin` is not a time zone."));
        assert!(schedule("{ cron: '@daily', timezone: '+01:00' }").check().is_none());
    }

    #[test]
    fn a_time_that_the_clock_skips_has_no_run_and_one_that_comes_twice_has_two() {
        let berlin = "{ cron: '30 2 * * *', timezone: Europe/Berlin }";
        assert_eq!(following(berlin, "2026-03-28T12:00:00Z", 1), ["2026-03-30T02:30:00+02:00"]);
        assert_eq!(
            following(berlin, "2026-10-24T12:00:00Z", 3),
            ["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-26T02:30:00+01:00"]
        );
        let kolkata = "{ cron: '0 9 * * *', timezone: Asia/Kolkata }";
        assert_eq!(following(kolkata, "2026-10-24T03:30:00Z", 1), ["2026-10-25T09:00:00+05:30"]);
        assert_eq!(following("'30 2 * * *'", "2026-03-28T12:00:00Z", 1), ["2026-03-29T02:30:00Z"]);
        // The clock changes by half an hour.
        let howe = "{ cron: '*/30 1-2 * * *', timezone: Australia/Lord_Howe }";
        assert_eq!(
            following(howe, "2026-10-03T14:30:00Z", 4),
            [
                "2026-10-04T01:30:00+10:30",
                "2026-10-04T02:30:00+11:00",
                "2026-10-05T01:00:00+11:00",
                "2026-10-05T01:30:00+11:00"
            ]
        );
    }
}

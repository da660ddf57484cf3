//! Times in the notation of cron: `minute hour day month weekday`.
//!
//! The rules are those of POSIX `crontab`, with steps (`*/5`), names of months and weekdays, and the
//! nicknames such as `@hourly`. Whole minutes are tried one after another, and hours where no minute can
//! match. A minute that a change of the clock skips has no run, and one that comes twice has two. A crate was
//! rejected: those that are maintained bring derive macros, and errors that name no field.

use chrono::{DateTime, Datelike, TimeDelta, TimeZone, Timelike};
use schemars::JsonSchema;
use serde::Deserialize;

/// Where a search ends: no 29 February is further away (1896 and 1904, and 2096 and 2104, are 8 years apart).
const HORIZON: TimeDelta = TimeDelta::days(9 * 366);

/// A parsed line of times.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub(super) struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// True if both days and weekdays are restricted: then either is enough.
    is_either_day: bool,
}

/// One of the five fields.
struct Field {
    name: &'static str,
    first: u32,
    last: u32,
    /// Names of the values, from the first one.
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field { name: "minute", first: 0, last: 59, names: &[] },
    Field { name: "hour", first: 0, last: 23, names: &[] },
    Field { name: "day", first: 1, last: 31, names: &[] },
    Field {
        name: "month",
        first: 1,
        last: 12,
        names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    // Sunday is 0 and 7.
    Field { name: "weekday", first: 0, last: 7, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

const NICKNAMES: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

impl TryFrom<String> for Cron {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let line = NICKNAMES.iter().find(|(name, _)| *name == text.trim()).map_or(&*text, |(_, line)| line);
        let texts: Vec<&str> = line.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = texts[..] else {
            return Err(format!(
                "`{text}` is not a line of times: write 5 fields (minute, hour, day, month, weekday), such as \
                 `*/5 * * * *`, or a name such as `@hourly`."
            ));
        };
        let [minute, hour, day, month, weekday] = &FIELDS;
        let mut cron = Self {
            minutes: minute.values(minutes)?,
            hours: hour.values(hours)?,
            days: day.values(days)?,
            months: month.values(months)?,
            weekdays: weekday.values(weekdays)?,
            is_either_day: !days.starts_with('*') && !weekdays.starts_with('*'),
        };
        cron.weekdays |= cron.weekdays >> 7 & 1;
        let epoch = DateTime::UNIX_EPOCH;
        match cron.next(&epoch) {
            Some(_) => Ok(cron),
            None => Err(format!("`{text}` never comes: no such month has this day.")),
        }
    }
}

impl Field {
    /// Returns the values of a field, as bits.
    fn values(&self, text: &str) -> Result<u64, String> {
        text.split(',').try_fold(0, |values, part| Ok(values | self.range(part)?))
    }

    /// Returns the values of one element of a list: a value, a range or `*`, with or without a step.
    fn range(&self, part: &str) -> Result<u64, String> {
        let Self { name, first, last, .. } = self;
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (part, None),
        };
        let (from, to) = match range.split_once('-') {
            _ if range == "*" => (*first, *last),
            Some((from, to)) => (self.value(from)?, self.value(to)?),
            // `5/15` is every 15 from 5 on.
            None => self.value(range).map(|value| (value, if step.is_some() { *last } else { value }))?,
        };
        if from > to {
            return Err(format!("`{part}` is not a range of the {name}: its end is before its beginning."));
        }
        let step = match step.map(str::parse) {
            None => 1,
            Some(Ok(step)) if step > 0 => step,
            Some(_) => {
                return Err(format!("`{part}` has no step of the {name}: write a number, as in `*/5`."));
            }
        };
        Ok((from..=to).step_by(step).fold(0, |values, value| values | 1 << value))
    }

    fn value(&self, text: &str) -> Result<u32, String> {
        let Self { name, first, last, names } = self;
        let named = names.iter().position(|name| name.eq_ignore_ascii_case(text));
        let is_number = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
        match named {
            Some(index) => Ok(first + index as u32),
            None => {
                text.parse().ok().filter(|value| is_number && (first..=last).contains(&value)).ok_or_else(
                    || {
                        format!(
                            "`{text}` is not a {name}: write a number from {first} to {last}, `*` or a range."
                        )
                    },
                )
            }
        }
    }
}

impl Cron {
    /// Returns the first such time after `after`, in its time zone. `None` if there is none.
    pub(super) fn next<Zone: TimeZone>(&self, after: &DateTime<Zone>) -> Option<DateTime<Zone>> {
        let seconds = TimeDelta::seconds(60 - after.timestamp().rem_euclid(60));
        let nanoseconds = TimeDelta::nanoseconds(after.timestamp_subsec_nanos().into());
        let mut at = after.clone().checked_add_signed(seconds)?.checked_sub_signed(nanoseconds)?;
        let end = after.clone().checked_add_signed(HORIZON)?;
        while at < end {
            let local = at.naive_local();
            if !self.has_day(&local) || !has(self.hours, local.hour()) {
                // To the next hour: zones differ by whole minutes.
                at = at.checked_add_signed(TimeDelta::minutes(60 - i64::from(local.minute())))?;
            } else if !has(self.minutes, local.minute()) {
                at = at.checked_add_signed(TimeDelta::minutes(1))?;
            } else {
                return Some(at);
            }
        }
        None
    }

    fn has_day(&self, date: &impl Datelike) -> bool {
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().num_days_from_sunday());
        has(self.months, date.month()) && if self.is_either_day { day || weekday } else { day && weekday }
    }
}

fn has(values: u64, value: u32) -> bool {
    values >> value & 1 == 1
}

#[cfg(test)]
mod tests {
    use arrow_array::timezone::Tz;

    use super::*;

    fn cron(text: &str) -> Result<Cron, String> {
        Cron::try_from(text.to_owned())
    }

    fn following(text: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
        let zone: Tz = zone.parse().unwrap();
        let mut at = DateTime::parse_from_rfc3339(after).unwrap().with_timezone(&zone);
        let cron = cron(text).unwrap();
        let mut next = || {
            at = cron.next(&at).unwrap();
            at.format("%a %F %R%:z").to_string()
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn times_follow_the_fields() {
        for (text, expected) in [
            ("* * * * *", ["Wed 2026-11-25 08:15+00:00", "Wed 2026-11-25 08:16+00:00"]),
            ("*/20 8-9 * * *", ["Wed 2026-11-25 08:20+00:00", "Wed 2026-11-25 08:40+00:00"]),
            ("5/40 * * * *", ["Wed 2026-11-25 08:45+00:00", "Wed 2026-11-25 09:05+00:00"]),
            ("14 8 * * *", ["Thu 2026-11-26 08:14+00:00", "Fri 2026-11-27 08:14+00:00"]),
            ("0 0 * * mon,Sat", ["Sat 2026-11-28 00:00+00:00", "Mon 2026-11-30 00:00+00:00"]),
            ("0 0 * * 7", ["Sun 2026-11-29 00:00+00:00", "Sun 2026-12-06 00:00+00:00"]),
            ("0 0 * * 5-7", ["Fri 2026-11-27 00:00+00:00", "Sat 2026-11-28 00:00+00:00"]),
            // Either of two restricted days is enough.
            ("0 0 1 * fri", ["Fri 2026-11-27 00:00+00:00", "Tue 2026-12-01 00:00+00:00"]),
            ("0 0 29 feb *", ["Tue 2028-02-29 00:00+00:00", "Sun 2032-02-29 00:00+00:00"]),
            ("@hourly", ["Wed 2026-11-25 09:00+00:00", "Wed 2026-11-25 10:00+00:00"]),
            ("@monthly", ["Tue 2026-12-01 00:00+00:00", "Fri 2027-01-01 00:00+00:00"]),
        ] {
            assert_eq!(following(text, "UTC", "2026-11-25T08:14:00.5Z", 2), expected, "{text}");
        }
    }

    #[test]
    fn an_hour_that_the_clock_skips_has_no_run_and_one_that_comes_twice_has_two() {
        assert_eq!(
            following("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 1),
            ["Mon 2026-03-30 02:30+02:00"]
        );
        assert_eq!(
            following("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 3),
            ["Sun 2026-10-25 02:30+02:00", "Sun 2026-10-25 02:30+01:00", "Mon 2026-10-26 02:30+01:00"]
        );
        assert_eq!(
            following("0 9 * * *", "Asia/Kolkata", "2026-10-24T03:30:00Z", 1),
            ["Sun 2026-10-25 09:00+05:30"]
        );
    }

    #[test]
    fn a_mistake_names_its_field() {
        for (text, start) in [
            ("* * * *", "`* * * *` is not a line of times"),
            ("60 * * * *", "`60` is not a minute: write a number from 0 to 59"),
            ("* * 0 * *", "`0` is not a day"),
            ("* * * foo *", "`foo` is not a month"),
            ("* * * * +1", "`+1` is not a weekday"),
            ("5-1 * * * *", "`5-1` is not a range of the minute"),
            ("*/0 * * * *", "`*/0` has no step of the minute"),
            ("0 0 30 2 *", "`0 0 30 2 *` never comes"),
            ("", "`` is not a line of times"),
        ] {
            let mistake = cron(text).unwrap_err();
            assert!(mistake.starts_with(start), "{mistake}");
        }
    }
}

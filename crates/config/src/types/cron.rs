//! Times in the notation of cron: `minute hour day month weekday`.
//!
//! The rules are those of POSIX `crontab`, with steps (`*/5`), names of months and weekdays, and the
//! nicknames such as `@hourly`. A sixth field in front is the second, as other programs have it. Times are
//! tried one after another, in steps of an hour where no minute of it can match, and of a minute where no
//! second can. A time that a change of the clock skips does not come, and one that it repeats comes twice. A
//! crate was rejected: those that are maintained bring derive macros, and errors that name no field.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Datelike, TimeDelta, TimeZone, Timelike};

use super::text_type::{read_from_text, text_type};
use crate::FormatError;

pub(crate) const FORMAT: &str = "cron-expression";

/// Where a search ends: no 29 February is further away (1896 and 1904, and 2096 and 2104, are 8 years apart).
const HORIZON: TimeDelta = TimeDelta::days(9 * 366);
const SECOND: TimeDelta = TimeDelta::seconds(1);

/// Times in the notation of cron: minute, hour, day, month and weekday, such as `*/5 * * * *`, or a name such
/// as `@hourly`. With six fields, the first is the second.
///
/// ```
/// use chrono::DateTime;
/// use thalweg_config::Cron;
/// let cron: Cron = "30 2 * * mon".parse().unwrap();
/// let sunday = DateTime::parse_from_rfc3339("2026-11-29T12:00:00Z").unwrap();
/// assert_eq!(cron.next(&sunday).unwrap().to_rfc3339(), "2026-11-30T02:30:00+00:00");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    /// As it was written.
    text: String,
    seconds: u64,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// True if both days and weekdays are restricted: then either is enough.
    is_either_day: bool,
}

/// One of the fields.
struct Field {
    name: &'static str,
    first: u32,
    last: u32,
    /// Names of the values, from the first one.
    names: &'static [&'static str],
}

const FIELDS: [Field; 6] = [
    Field { name: "second", first: 0, last: 59, names: &[] },
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

impl FromStr for Cron {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        let line = NICKNAMES.iter().find(|(name, _)| *name == text.trim()).map_or(text, |(_, line)| line);
        let texts: Vec<&str> = line.split_whitespace().collect();
        let [seconds, minutes, hours, days, months, weekdays] = match texts[..] {
            [minutes, hours, days, months, weekdays] => ["0", minutes, hours, days, months, weekdays],
            [seconds, minutes, hours, days, months, weekdays] => {
                [seconds, minutes, hours, days, months, weekdays]
            }
            _ => {
                return Err(FormatError::new(format!(
                    "`{text}` is not a line of times: write 5 fields (minute, hour, day, month, weekday), such as \
                     `*/5 * * * *`, 6 with the second in front, or a name such as `@hourly`."
                )));
            }
        };
        let [second, minute, hour, day, month, weekday] = &FIELDS;
        let mut cron = Self {
            text: text.trim().to_owned(),
            seconds: second.values(seconds)?,
            minutes: minute.values(minutes)?,
            hours: hour.values(hours)?,
            days: day.values(days)?,
            months: month.values(months)?,
            weekdays: weekday.values(weekdays)?,
            is_either_day: !days.starts_with('*') && !weekdays.starts_with('*'),
        };
        cron.weekdays |= cron.weekdays >> 7 & 1;
        match cron.next(&DateTime::UNIX_EPOCH) {
            Some(_) => Ok(cron),
            None => Err(FormatError::new(format!("`{text}` never comes: no such month has this day."))),
        }
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

read_from_text!(Cron);

text_type!(Cron, {
    "type": "string",
    "format": FORMAT,
    "examples": ["*/5 * * * *", "@hourly"],
});

impl Field {
    /// Returns the values of a field, as bits.
    fn values(&self, text: &str) -> Result<u64, FormatError> {
        text.split(',').try_fold(0, |values, part| Ok(values | self.range(part)?))
    }

    /// Returns the values of one element of a list: a value, a range or `*`, with or without a step.
    fn range(&self, part: &str) -> Result<u64, FormatError> {
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
            return Err(FormatError::new(format!(
                "`{part}` is not a range of the {name}: its end is before its beginning."
            )));
        }
        let step = match step.map(str::parse) {
            None => 1,
            Some(Ok(step)) if step > 0 => step,
            Some(_) => {
                return Err(FormatError::new(format!(
                    "`{part}` has no step of the {name}: write a number, as in `*/5`."
                )));
            }
        };
        Ok((from..=to).step_by(step).fold(0, |values, value| values | 1 << value))
    }

    fn value(&self, text: &str) -> Result<u32, FormatError> {
        let Self { name, first, last, names } = self;
        let named = names.iter().position(|name| name.eq_ignore_ascii_case(text));
        let article = if *name == "hour" { "an" } else { "a" };
        let is_number = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
        match named {
            Some(index) => Ok(first + index as u32),
            None => {
                text.parse().ok().filter(|value| is_number && (first..=last).contains(&value)).ok_or_else(
                    || {
                        FormatError::new(format!(
                            "`{text}` is not {article} {name}: write a number from {first} to {last}, `*` or a range."
                        ))
                    },
                )
            }
        }
    }
}

impl Cron {
    /// Returns the first such time after `after`, in its time zone. `None` if there is none before the
    /// calendar ends.
    pub fn next<Zone: TimeZone>(&self, after: &DateTime<Zone>) -> Option<DateTime<Zone>> {
        let nanoseconds = TimeDelta::nanoseconds(after.timestamp_subsec_nanos().into());
        let mut at = after.clone().checked_sub_signed(nanoseconds)?.checked_add_signed(SECOND)?;
        let end = after.clone().checked_add_signed(HORIZON)?;
        while at < end {
            let local = at.naive_local();
            let step = if !self.has_day(&local) || !has(self.hours, local.hour()) {
                // To the next hour: zones differ by whole minutes.
                3600 - 60 * local.minute() - local.second()
            } else if !has(self.minutes, local.minute()) {
                60 - local.second()
            } else if !has(self.seconds, local.second()) {
                1
            } else {
                return Some(at);
            };
            at = at.checked_add_signed(TimeDelta::seconds(step.into()))?;
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
    use chrono::FixedOffset;
    use proptest::prelude::*;

    use super::*;

    fn cron(text: &str) -> Result<Cron, String> {
        text.parse().map_err(|error: FormatError| error.to_string())
    }

    fn following(text: &str, after: &str, count: usize) -> Vec<String> {
        let mut at = DateTime::parse_from_rfc3339(after).unwrap();
        let cron = cron(text).unwrap();
        let mut next = || {
            at = cron.next(&at).unwrap();
            at.format("%a %F %T").to_string()
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn times_follow_the_fields() {
        for (text, expected) in [
            ("* * * * *", ["Wed 2026-11-25 08:15:00", "Wed 2026-11-25 08:16:00"]),
            ("*/20 8-9 * * *", ["Wed 2026-11-25 08:20:00", "Wed 2026-11-25 08:40:00"]),
            ("5/40 * * * *", ["Wed 2026-11-25 08:45:00", "Wed 2026-11-25 09:05:00"]),
            ("14 8 * * *", ["Thu 2026-11-26 08:14:00", "Fri 2026-11-27 08:14:00"]),
            ("0 0 * * mon,Sat", ["Sat 2026-11-28 00:00:00", "Mon 2026-11-30 00:00:00"]),
            ("0 0 * * 7", ["Sun 2026-11-29 00:00:00", "Sun 2026-12-06 00:00:00"]),
            ("0 0 * * 5-7", ["Fri 2026-11-27 00:00:00", "Sat 2026-11-28 00:00:00"]),
            // Either of two restricted days is enough.
            ("0 0 1 * fri", ["Fri 2026-11-27 00:00:00", "Tue 2026-12-01 00:00:00"]),
            ("0 0 29 feb *", ["Tue 2028-02-29 00:00:00", "Sun 2032-02-29 00:00:00"]),
            ("*/20 15 8 * * *", ["Wed 2026-11-25 08:15:00", "Wed 2026-11-25 08:15:20"]),
            ("* * * * * *", ["Wed 2026-11-25 08:14:01", "Wed 2026-11-25 08:14:02"]),
            ("59 59 23 31 12 *", ["Thu 2026-12-31 23:59:59", "Fri 2027-12-31 23:59:59"]),
            ("@hourly", ["Wed 2026-11-25 09:00:00", "Wed 2026-11-25 10:00:00"]),
            ("@monthly", ["Tue 2026-12-01 00:00:00", "Fri 2027-01-01 00:00:00"]),
        ] {
            assert_eq!(following(text, "2026-11-25T08:14:00.5Z", 2), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn the_next_time_is_the_first_that_fits(
            seconds in 0..4_000_000_000_i64,
            offset in -26..=28_i32,
            fields in ("[0-5]?[0-9]|\\*", "[0-5]?[0-9]|\\*/7", "1?[0-9]|\\*"),
        ) {
            let cron = cron(&format!("{} {} {} * * *", fields.0, fields.1, fields.2)).unwrap();
            let zone = FixedOffset::east_opt(offset * 1800).unwrap();
            let after = DateTime::from_timestamp(seconds, 5).unwrap().with_timezone(&zone);
            let next = cron.next(&after).unwrap();
            let fits = |at: &DateTime<FixedOffset>| {
                has(cron.seconds, at.second()) && has(cron.minutes, at.minute()) && has(cron.hours, at.hour())
            };
            prop_assert!(next > after && fits(&next) && next.timestamp_subsec_nanos() == 0);
            let first = (1..).map(|more| after + TimeDelta::seconds(more)).find(fits).unwrap();
            prop_assert_eq!(next.timestamp(), first.timestamp());
        }
    }

    #[test]
    fn a_mistake_names_its_field() {
        for (text, start) in [
            ("* * * *", "`* * * *` is not a line of times"),
            ("60 * * * *", "`60` is not a minute: write a number from 0 to 59"),
            ("60 * * * * *", "`60` is not a second: write a number from 0 to 59"),
            ("* * * * * * *", "`* * * * * * *` is not a line of times"),
            ("0 25 * * *", "`25` is not an hour: write a number from 0 to 23"),
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

//! A length of time: `1h30m`.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::time::Duration;

use super::text_type::{read_from_text, text_type};
use crate::{FormatError, nearest};

pub(crate) const FORMAT: &str = "time-span";

/// The units and their nanoseconds, from the largest, as `Display` writes them.
const UNITS: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Other spellings of the units.
const NAMES: [(&str, &str); 21] = [
    ("day", "d"),
    ("days", "d"),
    ("hr", "h"),
    ("hrs", "h"),
    ("hour", "h"),
    ("hours", "h"),
    ("min", "m"),
    ("mins", "m"),
    ("minute", "m"),
    ("minutes", "m"),
    ("sec", "s"),
    ("secs", "s"),
    ("second", "s"),
    ("seconds", "s"),
    ("msec", "ms"),
    ("millisecond", "ms"),
    ("milliseconds", "ms"),
    ("µs", "us"),
    ("microseconds", "us"),
    ("nanosecond", "ns"),
    ("nanoseconds", "ns"),
];

/// A length of time, written `500ms`, `5s`, `2m`, `1h30m` or `1d`.
///
/// The units are `ns`, `us`, `ms`, `s`, `m`, `h` and `d` (24 hours). A number without a unit is rejected,
/// because it could mean seconds or milliseconds; only `0` needs no unit.
///
/// ```
/// use std::time::Duration;
/// use thalweg_config::TimeSpan;
/// let span: TimeSpan = "1h30m".parse().unwrap();
/// assert_eq!(span.duration(), Duration::from_secs(5400));
/// assert_eq!(span.to_string(), "1h30m");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeSpan(pub Duration);

impl TimeSpan {
    /// Returns a span of `count` seconds.
    pub const fn seconds(count: u64) -> Self {
        Self(Duration::from_secs(count))
    }

    /// Parses a time span, or a number of seconds without a unit. For command lines, where a number has
    /// always meant seconds.
    ///
    /// # Errors
    /// If the text is neither.
    pub fn or_seconds(text: &str) -> Result<Self, FormatError> {
        match text.parse() {
            Ok(count) => Ok(Self::seconds(count)),
            Err(_) => text.parse(),
        }
    }

    /// Returns a span of `count` milliseconds.
    pub const fn milliseconds(count: u64) -> Self {
        Self(Duration::from_millis(count))
    }

    /// Returns the standard library's type.
    pub const fn duration(self) -> Duration {
        self.0
    }
}

impl Deref for TimeSpan {
    type Target = Duration;

    fn deref(&self) -> &Duration {
        &self.0
    }
}

impl From<Duration> for TimeSpan {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl From<TimeSpan> for Duration {
    fn from(span: TimeSpan) -> Self {
        span.0
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_nanos();
        if rest == 0 {
            return formatter.write_str("0s");
        }
        for (unit, nanoseconds) in UNITS {
            let nanoseconds = u128::from(nanoseconds);
            if rest >= nanoseconds {
                write!(formatter, "{}{unit}", rest / nanoseconds)?;
                rest %= nanoseconds;
            }
        }
        Ok(())
    }
}

impl FromStr for TimeSpan {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        const EXAMPLE: &str = "Write a number and a unit, for example `5s`, `500ms` or `1h30m`.";
        if text.trim().is_empty() || text.trim().starts_with('-') {
            return Err(FormatError::new(format!("`{text}` is not a length of time.")).help(EXAMPLE));
        }
        let too_long = || FormatError::new(format!("`{text}` is too long: the limit is 584 years."));
        let mut total: u64 = 0;
        let mut at = text.len() - text.trim_start().len();
        while let Some(rest) = text.get(at..).filter(|rest| !rest.trim().is_empty()) {
            let digits =
                rest.find(|character: char| !matches!(character, '0'..='9' | '.')).unwrap_or(rest.len());
            let (number, after) = rest.split_at(digits);
            let spaces = after.len() - after.trim_start().len();
            let word = after.trim_start();
            let length = word
                .find(|character: char| character.is_whitespace() || character.is_ascii_digit())
                .unwrap_or(word.len());
            let unit = word.get(..length).unwrap_or(word);
            let place = at + digits + spaces..at + digits + spaces + length;
            if number.is_empty() {
                return Err(FormatError::new(format!("`{text}` is not a length of time.")).help(EXAMPLE));
            }
            if unit.is_empty() {
                if text.trim() == "0" {
                    return Ok(Self(Duration::ZERO));
                }
                return Err(FormatError::new(format!("`{}` has no unit.", text.trim()))
                    .help(format!("Write `{number}s` or `{number}ms`.")));
            }
            let nanoseconds = nanoseconds(unit).ok_or_else(|| unknown(number, unit).at(place))?;
            let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
            if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
                return Err(FormatError::new(format!("`{number}` is not a number.")).help(EXAMPLE));
            }
            let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| too_long())? };
            let part = fraction.chars().take(15).fold((0u128, 1u128), |(part, scale), digit| {
                (part * 10 + u128::from(digit.to_digit(10).unwrap_or(0)), scale * 10)
            });
            let part = u64::try_from(part.0 * u128::from(nanoseconds) / part.1).map_err(|_| too_long())?;
            let sum = whole.checked_mul(nanoseconds).and_then(|whole| whole.checked_add(part));
            total = sum.and_then(|sum| total.checked_add(sum)).ok_or_else(too_long)?;
            at += digits + spaces + length;
            at += text.get(at..).map_or(0, |rest| rest.len() - rest.trim_start().len());
        }
        Ok(Self(Duration::from_nanos(total)))
    }
}

/// Returns the nanoseconds in a unit.
fn nanoseconds(unit: &str) -> Option<u64> {
    let lower = unit.to_lowercase();
    // `M` is ambiguous: it may mean months or millions.
    let lower = if unit == "M" { return None } else { lower.as_str() };
    let short = NAMES.into_iter().find(|(name, _)| *name == lower).map_or(lower, |(_, short)| short);
    UNITS.into_iter().find(|(name, _)| *name == short).map(|(_, nanoseconds)| nanoseconds)
}

fn unknown(number: &str, unit: &str) -> FormatError {
    let error = FormatError::new(format!("`{unit}` is not a unit of time."));
    match nearest(unit, UNITS.map(|(name, _)| name).into_iter().chain(NAMES.map(|(name, _)| name))) {
        Some(unit) => error.help(format!("Did you mean `{number}{unit}`?")),
        None => error.help("The units are `ns`, `us`, `ms`, `s`, `m`, `h` and `d`."),
    }
}

read_from_text!(TimeSpan);

text_type!(TimeSpan, {
    "type": "string",
    "format": FORMAT,
    "description": "A length of time: a number and a unit (`ms`, `s`, `m`, `h`, `d`), or several.",
    "examples": ["5s", "500ms", "1h30m"],
});

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn milliseconds(text: &str) -> u128 {
        text.parse::<TimeSpan>().unwrap().as_millis()
    }

    fn refused(text: &str) -> String {
        text.parse::<TimeSpan>().unwrap_err().to_string()
    }

    #[test]
    fn a_time_span_is_numbers_and_units() {
        assert_eq!(milliseconds("500ms"), 500);
        assert_eq!(milliseconds("5s"), 5_000);
        assert_eq!(milliseconds("2m"), 120_000);
        assert_eq!(milliseconds("1h30m"), 5_400_000);
        assert_eq!(milliseconds("1h 30 min"), 5_400_000);
        assert_eq!(milliseconds("1d"), 86_400_000);
        assert_eq!(milliseconds("1.5s"), 1_500);
        assert_eq!(milliseconds("0"), 0);
    }

    #[test]
    fn a_number_without_a_unit_is_refused() {
        assert_eq!(refused("5"), "`5` has no unit. Write `5s` or `5ms`.");
        assert_eq!(refused("1h30"), "`1h30` has no unit. Write `30s` or `30ms`.");
    }

    #[test]
    fn a_number_without_a_unit_is_seconds_where_that_is_allowed() {
        assert_eq!(TimeSpan::or_seconds("5"), Ok(TimeSpan::seconds(5)));
        assert_eq!(TimeSpan::or_seconds("5ms"), Ok(TimeSpan::milliseconds(5)));
        assert_eq!(TimeSpan::or_seconds("soon").unwrap_err().message, "`soon` is not a length of time.");
    }

    #[test]
    fn a_wrong_unit_is_answered_with_the_ones_there_are() {
        assert_eq!(refused("5 secnds"), "`secnds` is not a unit of time. Did you mean `5seconds`?");
        assert_eq!(
            refused("5 weeks"),
            "`weeks` is not a unit of time. The units are `ns`, `us`, `ms`, `s`, `m`, `h` and `d`."
        );
        assert_eq!("1h5weeks".parse::<TimeSpan>().unwrap_err().range, Some(3..8));
    }

    #[test]
    fn what_is_no_length_of_time_or_too_long_is_refused() {
        for text in ["", " ", "s", "-5s", "5s x"] {
            let message = format!("`{text}` is not a length of time.");
            assert_eq!(text.parse::<TimeSpan>().unwrap_err().message, message);
        }
        for (text, number) in [("1.2.3s", "1.2.3"), (".s", ".")] {
            let message = format!("`{number}` is not a number.");
            assert_eq!(text.parse::<TimeSpan>().unwrap_err().message, message);
        }
        for text in ["999999999999d", "99999999999999999999999s"] {
            assert_eq!(refused(text), format!("`{text}` is too long: the limit is 584 years."));
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_can_be_read_again(nanoseconds: u64, shift in 0u32..64) {
            let span = TimeSpan(Duration::from_nanos(nanoseconds >> shift));
            prop_assert_eq!(span.to_string().parse::<TimeSpan>().unwrap(), span);
        }

        #[test]
        fn no_text_panics(text in "\\PC*", parts in "([0-9.]{0,30}[a-zµ ]{0,3}){0,4}") {
            let _ = text.parse::<TimeSpan>();
            if let Err(error) = parts.parse::<TimeSpan>() && let Some(range) = error.range {
                prop_assert!(parts.get(range).is_some());
            }
        }
    }
}

//! Writes points in time as text.
//!
//! Formats are in the notation of `strftime`. Fractions of a second may have any number of digits: `%.2f` has
//! two and a dot before them, `%2f` has no dot, and `%.-2f` (or `%,-2f`) leaves out zeros at the end, and the
//! separator if nothing remains.

use chrono::format::{Item, StrftimeItems};
use chrono::{DateTime, FixedOffset, Utc};

/// Writes times in one format.
#[derive(Debug, Clone)]
pub struct TimeText {
    parts: Vec<Part>,
    /// The time zone. `None` for UTC.
    zone: Option<FixedOffset>,
    /// True if the format shows fractions of a second. If not, all times within a second have the same text.
    fractions: bool,
    /// The last time that was written. Its text is kept, because adjacent messages mostly have the same time.
    last: Option<i64>,
    text: String,
}

/// A part of a format.
#[derive(Debug, Clone)]
enum Part {
    /// Elements that the library knows.
    Items(Vec<Item<'static>>),
    Fraction(Fraction),
}

/// The digits of a fraction of a second.
#[derive(Debug, Clone)]
struct Fraction {
    separator: Option<char>,
    digits: u32,
    /// True if zeros at the end are left out.
    trims: bool,
}

impl Fraction {
    /// Reads an element that the library does not know. Returns its length as well.
    fn read(text: &str) -> Option<(Self, usize)> {
        let inside = text.strip_prefix('%')?;
        let separator = inside.chars().next().filter(|first| matches!(first, '.' | ','));
        let rest = &inside[separator.map_or(0, char::len_utf8)..];
        let trims = separator.is_some() && rest.starts_with('-');
        let digits =
            rest.trim_start_matches('-').chars().next()?.to_digit(10).filter(|digits| *digits > 0)?;
        let is_known = matches!(digits, 3 | 6 | 9) && !trims && separator != Some(',');
        let length = 3 + usize::from(separator.is_some()) + usize::from(trims);
        (!is_known && text.get(..length)?.ends_with('f'))
            .then_some((Self { separator, digits, trims }, length))
    }

    fn write(&self, nanoseconds: u32, out: &mut String) {
        let shown = nanoseconds.min(999_999_999) / 10_u32.pow(9 - self.digits);
        let text = format!("{shown:0width$}", width = self.digits as usize);
        let text = if self.trims { text.trim_end_matches('0') } else { &text };
        if !text.is_empty() {
            out.extend(self.separator);
            out.push_str(text);
        }
    }
}

/// Splits a format into its parts.
fn parts(format: &str) -> Option<Vec<Part>> {
    let items = |text: &str| StrftimeItems::new(text).parse_to_owned().ok().map(Part::Items);
    let mut parts = Vec::new();
    let (mut start, mut at) = (0, 0);
    while let Some(found) = format[at..].find('%') {
        at += found;
        match Fraction::read(&format[at..]) {
            Some((fraction, length)) => {
                parts.extend([items(&format[start..at])?, Part::Fraction(fraction)]);
                at += length;
                start = at;
            }
            // `%%` is a percent sign: the second character begins no element.
            None => at += 1 + usize::from(format[at + 1..].starts_with('%')),
        }
    }
    parts.push(items(&format[start..])?);
    Some(parts)
}

impl TimeText {
    /// Creates a writer from a format in the notation of `strftime`. `None` if the format is wrong.
    pub fn new(format: &str) -> Option<Self> {
        let parts = parts(format)?;
        let fractions = format.contains(['f', '+']);
        Some(Self { parts, zone: None, fractions, last: None, text: String::new() })
    }

    /// Sets the time zone, in seconds east of Greenwich. The default is UTC.
    pub fn in_zone(self, seconds: i64) -> Self {
        let zone = i32::try_from(seconds).ok().and_then(FixedOffset::east_opt);
        Self { zone: zone.filter(|_| seconds != 0), ..self }
    }

    /// Returns the text of a time.
    pub fn of(&mut self, time: DateTime<Utc>) -> &str {
        // A time whose nanoseconds do not fit 64 bits is formatted each time.
        let key = if self.fractions { time.timestamp_nanos_opt() } else { Some(time.timestamp()) };
        if key.is_none() || key != self.last {
            use std::fmt::Write as _;
            self.text.clear();
            for part in &self.parts {
                // A value that cannot be written, such as a year beyond those of the calendar, is left out.
                let _ = match (part, &self.zone) {
                    (Part::Items(items), Some(zone)) => {
                        write!(self.text, "{}", time.with_timezone(zone).format_with_items(items.iter()))
                    }
                    (Part::Items(items), None) => {
                        write!(self.text, "{}", time.format_with_items(items.iter()))
                    }
                    (Part::Fraction(fraction), _) => {
                        fraction.write(time.timestamp_subsec_nanos(), &mut self.text);
                        Ok(())
                    }
                };
            }
            self.last = key;
        }
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_in_its_zone() {
        let time = DateTime::from_timestamp(0, 0).unwrap();
        let text = |zone| TimeText::new("%H:%M %Z").unwrap().in_zone(zone).of(time).to_owned();
        assert_eq!([text(0), text(5_400), text(-3_600)], ["00:00 UTC", "01:30 +01:30", "23:00 -01:00"]);
        assert!(TimeText::new("%!").is_none());
    }

    #[test]
    fn fractions_have_any_number_of_digits() {
        let text = |format, nanoseconds| {
            TimeText::new(format).unwrap().of(DateTime::from_timestamp(1, nanoseconds).unwrap()).to_owned()
        };
        assert_eq!(text("%S%.2f|%S,%4f|%.3f|%%.2f", 129_456_789), "01.12|01,1294|.129|%.2f");
        assert_eq!(text("%.-9f|%,-2f|%.-3f", 120_000_000), ".12|,12|.12");
        assert_eq!(text("%S%.-9fZ%,-1f", 0), "01Z");
    }
}

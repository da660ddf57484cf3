//! The time stamps in the names of pieces.
//!
//! The sink finds its pieces again by their names, so it must read every text that a format gives. It
//! compares a text with the format, item by item. (Rejected: to parse the text as a time. `%l%M` gives `
//! 530`, which is read as the hour 53, and `%d` accepts the number `1`.)

use std::collections::BTreeSet;
use std::fmt::{Display, Write};
use std::ops::RangeInclusive;

use chrono::format::{Item, Numeric, Pad, StrftimeItems};
use chrono::{DateTime, FixedOffset, Local, TimeDelta, TimeZone};

/// Writes the present time. `None` if the format, or a part of it, cannot be written.
pub(super) fn now(format: &str) -> Option<String> {
    let items = StrftimeItems::new(format).parse().ok()?;
    written(Local::now().format_with_items(items.iter()))
}

fn written(text: impl Display) -> Option<String> {
    let mut out = String::new();
    write!(out, "{text}").ok().map(|()| out)
}

/// The texts that a format gives.
pub(super) struct Shape(Vec<Part>);

enum Part {
    Text(String),
    /// A number of at most `width` digits.
    Number {
        width: usize,
        range: RangeInclusive<u64>,
        pad: Pad,
    },
    /// A text like one of these: it may differ in its digits and signs.
    Like(BTreeSet<String>),
}

impl Shape {
    pub(super) fn new(format: &str) -> Self {
        Self(StrftimeItems::new(format).map(|item| Part::new(&item)).collect())
    }

    /// True if the format can give this text.
    pub(super) fn has(&self, text: &str) -> bool {
        let mut ends = BTreeSet::from([0]);
        for part in &self.0 {
            let longer = |end: usize| {
                let rest = text.get(end..).unwrap_or_default();
                part.lengths(rest).into_iter().map(move |length| end + length)
            };
            ends = ends.into_iter().flat_map(longer).collect();
        }
        ends.contains(&text.len())
    }
}

impl Part {
    fn new(item: &Item<'_>) -> Self {
        match item {
            Item::Literal(text) | Item::Space(text) => Self::Text((*text).to_owned()),
            Item::OwnedLiteral(text) | Item::OwnedSpace(text) => Self::Text(text.to_string()),
            Item::Numeric(number, pad) => match range(number) {
                Some((width, range)) => Self::Number { width, range, pad: *pad },
                None => Self::Like(samples(item)),
            },
            Item::Fixed(_) | Item::Error => Self::Like(samples(item)),
        }
    }

    /// Returns the lengths of the beginnings of a text that are texts of this part.
    fn lengths(&self, text: &str) -> Vec<usize> {
        match self {
            Self::Text(own) => text.starts_with(own).then_some(own.len()).into_iter().collect(),
            Self::Number { width, range, pad } => {
                let shortest = if *pad == Pad::None { 1 } else { *width };
                let is_number = |length: &usize| {
                    let text = text.get(..*length).unwrap_or_default();
                    let digits = if *pad == Pad::Space { text.trim_start_matches(' ') } else { text };
                    let has_zeros = digits.len() > 1 && digits.starts_with('0');
                    let is_padded = *pad == Pad::Zero || !has_zeros;
                    let is_decimal = digits.bytes().all(|byte| byte.is_ascii_digit());
                    is_decimal && is_padded && digits.parse().is_ok_and(|number| range.contains(&number))
                };
                (shortest..=*width).filter(is_number).collect()
            }
            Self::Like(samples) => {
                samples.iter().map(String::as_str).filter(|own| is_like(text, own)).map(str::len).collect()
            }
        }
    }
}

/// Returns the maximum number of digits and the values of a number, from the year 2001 on.
fn range(number: &Numeric) -> Option<(usize, RangeInclusive<u64>)> {
    Some(match number {
        Numeric::Year | Numeric::IsoYear => (4, 0..=9999),
        Numeric::YearDiv100 | Numeric::YearMod100 | Numeric::IsoYearDiv100 | Numeric::IsoYearMod100 => {
            (2, 0..=99)
        }
        Numeric::Quarter => (1, 1..=4),
        Numeric::Month | Numeric::Hour12 => (2, 1..=12),
        Numeric::Day => (2, 1..=31),
        Numeric::WeekFromSun | Numeric::WeekFromMon | Numeric::IsoWeek => (2, 0..=53),
        Numeric::NumDaysFromSun => (1, 0..=6),
        Numeric::WeekdayFromMon => (1, 1..=7),
        Numeric::Ordinal => (3, 1..=366),
        Numeric::Hour => (2, 0..=23),
        Numeric::Minute => (2, 0..=59),
        Numeric::Second => (2, 0..=60),
        Numeric::Nanosecond => (9, 0..=999_999_999),
        Numeric::Timestamp => (10, 1_000_000_000..=9_999_999_999),
        _ => return None,
    })
}

/// Returns the texts of an item in all months, on all days of the week, with fractions of each length, east
/// and west of Greenwich.
fn samples(item: &Item<'_>) -> BTreeSet<String> {
    let moments = moments().into_iter();
    moments.filter_map(|moment| written(moment.format_with_items([item].into_iter()))).collect()
}

fn moments() -> Vec<DateTime<FixedOffset>> {
    let zones = [0, 3600, -3600].into_iter().filter_map(FixedOffset::east_opt);
    let firsts = zones.filter_map(|zone| zone.with_ymd_and_hms(2026, 1, 1, 0, 0, 0).single());
    let later = |first: DateTime<FixedOffset>| {
        let hours = (0..12).map(move |month| first + TimeDelta::hours(month * (31 * 24 + 12)));
        let days = (0..7).map(move |day| first + TimeDelta::days(day));
        let fractions = [1_000_000, 1_000, 1].map(|part| first + TimeDelta::nanoseconds(part));
        hours.chain(days).chain(fractions)
    };
    firsts.flat_map(later).collect()
}

/// True if a text begins like a sample: with the same characters, but for digits and signs.
fn is_like(text: &str, sample: &str) -> bool {
    let is_sign = |byte: u8| matches!(byte, b'+' | b'-');
    let mut pairs = text.bytes().zip(sample.bytes());
    let is_alike = |(one, other): (u8, u8)| {
        one == other || one.is_ascii_digit() && other.is_ascii_digit() || is_sign(one) && is_sign(other)
    };
    text.len() >= sample.len() && pairs.all(is_alike)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_texts_of_a_format_are_stamps() {
        for (format, text, expected) in [
            ("%d", "25", true),
            ("%d", "1", false),
            ("%d", "32", false),
            ("%l%M", " 530", true),
            ("%l%M", "1230", true),
            ("%l%M", "0530", false),
            ("%H%z", "17-0500", true),
            ("%H%z", "17", false),
            ("%b%-d", "Feb3", true),
            ("%b%-d", "Feb03", false),
            ("%H-%3f", "17-042", true),
            ("%H-%3f", "17-42", false),
            ("%s", "1764092644", true),
            ("%s", "7", false),
            ("%Y-%m-%d_%H", "2026-01-99_03", false),
            ("é%%%y", "é%26", true),
        ] {
            assert_eq!(Shape::new(format).has(text), expected, "{format} {text}");
        }
    }

    #[test]
    fn what_cannot_be_written_is_no_format() {
        assert!(now("%H%#z").is_none() && now("%!").is_none() && now("%").is_none());
        assert!(["%H%z", "%Z", "%+", "%l%M", "%c"].into_iter().all(|format| now(format).is_some()));
    }

    const SPECIFIERS: &str = "Y C y q m b B h d e a A w u U W G g V j D x F v H k I l P p M S f R T X r Z z :z \
                              ::z :::z c + s % .f .3f .6f .9f 3f 6f 9f -d -H _m 0e -j _y -S";

    proptest! {
        #[test]
        fn every_text_that_a_format_gives_is_one_of_its_stamps(
            specifiers in prop::collection::vec((prop::sample::select(SPECIFIERS.split(' ').collect::<Vec<_>>()), "[-_a5é ]?"), 1..6),
            seconds in 1_000_000_000..9_000_000_000_i64,
            nanoseconds in prop_oneof![Just(0), Just(7_000_000), Just(7_000), 0..1_000_000_000_u32],
            minutes in -14 * 60..14 * 60,
        ) {
            let format: String = specifiers.iter().map(|(one, literal)| format!("%{one}{literal}")).collect();
            let zone = FixedOffset::east_opt(minutes * 60).unwrap();
            let moment = zone.timestamp_opt(seconds, nanoseconds).unwrap();
            let text = written(moment.format(&format)).unwrap();
            prop_assert!(Shape::new(&format).has(&text), "{} gives {}", format, text);
        }
    }
}

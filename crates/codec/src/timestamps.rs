//! Parses text into points in time, in microseconds since 1970 (UTC).
//!
//! The formats of most logs are parsed here by hand, digit by digit: a general parser takes ten times as
//! long. Because logs repeat the current second, the last text and its time are cached. `chrono` parses
//! formats that users define.
//!
//! See docs/decisions/029-hot-codecs-are-our-own.md.

use chrono::format::{Item, Parsed, StrftimeItems};
use chrono::{DateTime, Datelike, NaiveDate, NaiveTime, Utc};

/// The maximum length of a text that is cached with its time, in bytes.
const REMEMBERED: usize = 64;

/// The format of times.
#[derive(Debug, Clone)]
pub enum TimeFormat {
    /// Any of the formats below except `Strftime`. The size of a number tells its unit. It also has the times
    /// of the error logs of nginx, `2024/01/02 03:04:05`, and of Apache, `Tue Jan 02 03:04:05.678 2024`.
    Auto,
    /// As `Auto`, but a number has this number of units per second, whatever its size is.
    Numbers(i64),
    /// `2024-01-02T03:04:05.678Z`, also with a space instead of the `T`, another offset, or no offset.
    Rfc3339,
    /// `Tue, 02 Jan 2024 03:04:05 +0000`.
    Rfc2822,
    /// `02/Jan/2024:03:04:05 +0000`.
    Clf,
    /// A number since 1970. The value is the number of units per second.
    Unix(i64),
    /// A format in the notation of `strftime`.
    Strftime(Vec<Item<'static>>),
}

impl TimeFormat {
    /// Parses a format as users write it.
    ///
    /// # Errors
    /// The reason, if the format is unknown or wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        Ok(match text {
            "auto" => Self::Auto,
            "rfc3339" | "iso8601" => Self::Rfc3339,
            "rfc2822" => Self::Rfc2822,
            "clf" => Self::Clf,
            "unix" => Self::Unix(1),
            "unix_ms" => Self::Unix(1_000),
            "unix_us" => Self::Unix(1_000_000),
            "unix_ns" => Self::Unix(1_000_000_000),
            _ if !text.contains('%') => return Err(format!("`{text}` is not a time format.")),
            _ => match StrftimeItems::new(text).parse_to_owned() {
                Ok(items) => Self::Strftime(items),
                Err(_) => return Err(format!("`{text}` has a `%` that `strftime` does not know.")),
            },
        })
    }
}

/// Parses a fixed time zone: `UTC`, `Z`, `+02:00`, `-0530`. Returns its seconds east of Greenwich.
pub fn parse_zone(text: &str) -> Option<i64> {
    if text.eq_ignore_ascii_case("utc") || text.eq_ignore_ascii_case("gmt") {
        return Some(0);
    }
    let mut cursor = Cursor(text.as_bytes());
    let offset = cursor.offset()?;
    cursor.0.is_empty().then_some(offset)
}

/// Parses times of one format.
#[derive(Debug, Clone)]
pub struct TimeParser {
    format: TimeFormat,
    /// The zone of texts that name none, in seconds east of Greenwich.
    zone: i64,
    last: Option<(String, i64)>,
}

impl TimeParser {
    /// Creates a parser for times of this format. `zone` applies to texts without a zone, in seconds east of
    /// Greenwich.
    pub fn new(format: TimeFormat, zone: i64) -> Self {
        Self { format, zone, last: None }
    }

    /// Parses a text. Returns microseconds since 1970, or `None` if the text is not a time.
    pub fn parse(&mut self, text: &str) -> Option<i64> {
        if let Some((last, time)) = &self.last
            && last == text
        {
            return Some(*time);
        }
        let time = parse(&self.format, self.zone, text)?;
        if text.len() <= REMEMBERED {
            let (last, remembered) = self.last.get_or_insert_default();
            last.clear();
            last.push_str(text);
            *remembered = time;
        }
        Some(time)
    }
}

fn parse(format: &TimeFormat, zone: i64, text: &str) -> Option<i64> {
    match format {
        TimeFormat::Rfc3339 => rfc3339(text.as_bytes(), zone),
        TimeFormat::Clf => clf(text.as_bytes(), zone),
        TimeFormat::Rfc2822 => Some(DateTime::parse_from_rfc2822(text).ok()?.timestamp_micros()),
        TimeFormat::Unix(units) => unix(text, *units),
        TimeFormat::Strftime(items) => strftime(text, items, zone),
        TimeFormat::Auto => auto(text, zone, None),
        TimeFormat::Numbers(units) => auto(text, zone, Some(*units)),
    }
}

/// Parses a time of any format. `units` are those of a number per second; without them, its size decides.
fn auto(text: &str, zone: i64, units: Option<i64>) -> Option<i64> {
    let bytes = text.as_bytes();
    // The fifth, third or fourth byte tells the formats apart before any is tried.
    match (bytes.get(4), bytes.get(2)) {
        (Some(b'-'), _) if bytes.first() != Some(&b'-') => rfc3339(bytes, zone),
        (Some(b'/'), _) => dated(bytes, b'/', zone),
        (_, Some(b'/')) => clf(bytes, zone),
        _ if bytes.get(3) == Some(&b' ') => asctime(bytes, zone),
        _ if bytes.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'-' | b'+')) => {
            let digits = text.trim_start_matches(['-', '+']).split('.').next().unwrap_or_default();
            let usual = match digits.len() {
                0..=11 => 1,
                12..=14 => 1_000,
                15..=17 => 1_000_000,
                _ => 1_000_000_000,
            };
            unix(text, units.unwrap_or(usual))
        }
        _ => Some(DateTime::parse_from_rfc2822(text).ok()?.timestamp_micros()),
    }
}

/// Bytes to parse from left to right.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    fn digits(&mut self, count: usize) -> Option<i64> {
        let mut number = 0;
        for _ in 0..count {
            let digit = self.next()?.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            number = number * 10 + i64::from(digit);
        }
        Some(number)
    }

    /// Parses the English abbreviation of a month.
    fn month(&mut self) -> Option<i64> {
        Some(match [self.next()?, self.next()?, self.next()?] {
            [b'J', b'a', b'n'] => 1,
            [b'F', b'e', b'b'] => 2,
            [b'M', b'a', b'r'] => 3,
            [b'A', b'p', b'r'] => 4,
            [b'M', b'a', b'y'] => 5,
            [b'J', b'u', b'n'] => 6,
            [b'J', b'u', b'l'] => 7,
            [b'A', b'u', b'g'] => 8,
            [b'S', b'e', b'p'] => 9,
            [b'O', b'c', b't'] => 10,
            [b'N', b'o', b'v'] => 11,
            [b'D', b'e', b'c'] => 12,
            _ => return None,
        })
    }

    /// Parses `hh:mm` or `hh:mm:ss`, with an optional fraction, as microseconds. A leap second counts as the
    /// second after it.
    fn clock(&mut self) -> Option<i64> {
        let hour = self.digits(2)?;
        self.expect(b':')?;
        let minute = self.digits(2)?;
        let mut second = 0;
        if self.0.first() == Some(&b':') {
            self.next();
            second = self.digits(2)?;
        }
        if hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let mut micros = ((hour * 60 + minute) * 60 + second) * 1_000_000;
        if let Some(b'.' | b',') = self.0.first() {
            self.next();
            let mut unit = 100_000;
            let before = self.0.len();
            while let Some(digit) = self.0.first().map(|byte| byte.wrapping_sub(b'0')).filter(|&d| d < 10) {
                micros += i64::from(digit) * unit;
                unit /= 10;
                self.next();
            }
            if self.0.len() == before {
                return None;
            }
        }
        Some(micros)
    }

    /// Parses `Z`, `+hh:mm`, `+hhmm` or `+hh`, as seconds.
    fn offset(&mut self) -> Option<i64> {
        let sign = match self.next()? {
            b'Z' | b'z' => return Some(0),
            b'+' => 1,
            b'-' => -1,
            _ => return None,
        };
        let hours = self.digits(2)?;
        if self.0.first() == Some(&b':') {
            self.next();
        }
        let minutes = if self.0.is_empty() { 0 } else { self.digits(2)? };
        (hours < 24 && minutes < 60).then_some(sign * (hours * 60 + minutes) * 60)
    }
}

fn day(year: i64, month: i64, day: i64) -> Option<i64> {
    let date = NaiveDate::from_ymd_opt(
        i32::try_from(year).ok()?,
        u32::try_from(month).ok()?,
        u32::try_from(day).ok()?,
    )?;
    Some((i64::from(date.num_days_from_ce()) - 719_163) * 86_400_000_000)
}

fn rfc3339(text: &[u8], zone: i64) -> Option<i64> {
    dated(text, b'-', zone)
}

/// Parses a time that begins with year, month and day, which `hyphen` separates.
fn dated(text: &[u8], hyphen: u8, zone: i64) -> Option<i64> {
    let mut cursor = Cursor(text);
    let year = cursor.digits(4)?;
    cursor.expect(hyphen)?;
    let month = cursor.digits(2)?;
    cursor.expect(hyphen)?;
    let mut time = day(year, month, cursor.digits(2)?)?;
    let mut zone = zone;
    if let Some(separator) = cursor.next() {
        if !matches!(separator, b'T' | b't' | b' ' | b'_') {
            return None;
        }
        time += cursor.clock()?;
        if cursor.0.first() == Some(&b' ') {
            cursor.next();
        }
        match cursor.0 {
            b"" => {}
            b"UTC" | b"GMT" => zone = 0,
            _ => {
                zone = cursor.offset()?;
                if !cursor.0.is_empty() {
                    return None;
                }
            }
        }
    }
    Some(time - zone * 1_000_000)
}

fn clf(text: &[u8], zone: i64) -> Option<i64> {
    let mut cursor = Cursor(text);
    let date = cursor.digits(2)?;
    cursor.expect(b'/')?;
    let month = cursor.month()?;
    cursor.expect(b'/')?;
    let year = cursor.digits(4)?;
    cursor.expect(b':')?;
    let time = day(year, month, date)? + cursor.clock()?;
    let zone = match cursor.next() {
        None => zone,
        Some(b' ') => cursor.offset()?,
        Some(_) => return None,
    };
    cursor.0.is_empty().then_some(time - zone * 1_000_000)
}

/// Parses `Tue Jan 02 03:04:05 2024`, also with a fraction of a second, or a space in place of the first
/// digit of the day. The name of the weekday is not compared with the date.
fn asctime(text: &[u8], zone: i64) -> Option<i64> {
    let mut cursor = Cursor(text.get(4..)?);
    if !text.iter().take(3).all(u8::is_ascii_alphabetic) {
        return None;
    }
    let month = cursor.month()?;
    cursor.expect(b' ')?;
    let date = match cursor.0.first() {
        Some(b' ') => cursor.next().and_then(|_| cursor.digits(1))?,
        _ => cursor.digits(2)?,
    };
    cursor.expect(b' ')?;
    let clock = cursor.clock()?;
    cursor.expect(b' ')?;
    let time = day(cursor.digits(4)?, month, date)? + clock;
    cursor.0.is_empty().then_some(time - zone * 1_000_000)
}

/// Parses a number with `units` per second, in integer arithmetic.
fn unix(text: &str, units: i64) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 20 || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    // 20 digits and 9 more fit easily as nanoseconds.
    let scale = i128::from(1_000_000_000 / units);
    let mut nanos = whole.parse::<i128>().ok()? * scale;
    let mut unit = scale;
    for digit in fraction.bytes() {
        unit /= 10;
        nanos += i128::from(digit - b'0') * unit;
    }
    let nanos = if negative { -nanos } else { nanos };
    i64::try_from(nanos.div_euclid(1000)).ok()
}

fn strftime(text: &str, items: &[Item<'static>], zone: i64) -> Option<i64> {
    let mut parsed = Parsed::new();
    chrono::format::parse(&mut parsed, text, items.iter()).ok()?;
    let zone = match (parsed.offset(), parsed.timestamp()) {
        (Some(offset), _) => i64::from(offset),
        // Seconds since 1970 have no zone.
        (None, Some(_)) => 0,
        (None, None) => zone,
    };
    let lacks_year = parsed.timestamp().is_none()
        && parsed.year().is_none()
        && parsed.year_mod_100().is_none()
        && parsed.isoyear().is_none();
    if lacks_year {
        return in_a_recent_year(&parsed, zone);
    }
    civil(&parsed, zone)
}

fn civil(parsed: &Parsed, zone: i64) -> Option<i64> {
    let offset = i32::try_from(zone).ok()?;
    let civil = match parsed.to_naive_datetime_with_offset(offset) {
        Ok(civil) => civil,
        // A date alone means the start of the day.
        Err(_) if parsed.hour_mod_12().is_none() => parsed.to_naive_date().ok()?.and_time(NaiveTime::MIN),
        Err(_) => return None,
    };
    civil.and_utc().timestamp_micros().checked_sub(zone * 1_000_000)
}

/// Adds a year to a time without one, as syslog has them: the current year, or the previous one if the time
/// would be in the future.
fn in_a_recent_year(parsed: &Parsed, zone: i64) -> Option<i64> {
    const DAY: i64 = 86_400_000_000;
    let now = Utc::now();
    let year = i64::from(now.year());
    let of = |year: i64| {
        let mut parsed = parsed.clone();
        parsed.set_year(year).ok()?;
        civil(&parsed, zone)
    };
    match of(year) {
        Some(time) if time <= now.timestamp_micros().saturating_add(DAY) => Some(time),
        _ => of(year - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn time(format: &str, text: &str) -> Option<i64> {
        TimeParser::new(TimeFormat::parse(format).unwrap(), 0).parse(text)
    }

    #[test]
    fn one_time_is_the_same_in_every_form() {
        const TIME: i64 = 971_211_336_000_000;
        for (format, text) in [
            ("clf", "10/Oct/2000:13:55:36 -0700"),
            ("rfc3339", "2000-10-10T20:55:36Z"),
            ("rfc3339", "2000-10-10 20:55:36"),
            ("rfc3339", "2000-10-10 20:55:36.000 UTC"),
            ("rfc3339", "2000-10-10T22:55:36,000+02:00"),
            ("rfc3339", "2000-10-10T22:55:36+02"),
            ("rfc2822", "Tue, 10 Oct 2000 13:55:36 -0700"),
            ("unix", "971211336"),
            ("unix", "971211336.000"),
            ("unix_ms", "971211336000"),
            ("unix_us", "971211336000000"),
            ("unix_ns", "971211336000000000"),
            ("auto", "2000/10/10 20:55:36"),
            ("auto", "2000/10/10 20:55:36.000"),
            ("auto", "Tue Oct 10 20:55:36 2000"),
            ("auto", "Tue Oct 10 20:55:36.000 2000"),
            ("%d.%m.%Y %H:%M:%S", "10.10.2000 20:55:36"),
            ("%Y-%m-%d %H:%M:%S %z", "2000-10-10 13:55:36 -0700"),
            ("%s", "971211336"),
        ] {
            assert_eq!(time(format, text), Some(TIME), "{format} {text}");
            if !format.contains('%') {
                assert_eq!(time("auto", text), Some(TIME), "auto {text}");
            }
        }
        assert_eq!(time("%Y-%m-%d", "1970-01-02"), Some(86_400_000_000));
        assert_eq!(time("rfc3339", "1970-01-01T00:00:00.1234567Z"), Some(123_456));
        assert_eq!(time("unix", "-0.5"), Some(-500_000));
        assert_eq!(time("unix_ms", "1.5"), Some(1500));
    }

    #[test]
    fn a_number_has_the_given_unit_whatever_its_size_is() {
        let number = |units, text| TimeParser::new(TimeFormat::Numbers(units), 0).parse(text);
        assert_eq!(number(1_000_000, "1"), Some(1));
        assert_eq!(number(1_000_000, "1342540861416409"), Some(1_342_540_861_416_409));
        assert_eq!(number(1, "1385053862.3072"), Some(1_385_053_862_307_200));
        assert_eq!(number(1, "100000000000"), Some(100_000_000_000_000_000));
        assert_eq!(number(1, "1970-01-01T00:00:01Z"), Some(1_000_000));
    }

    #[test]
    fn a_time_without_a_zone_is_in_the_one_given() {
        let mut parser = TimeParser::new(TimeFormat::Rfc3339, parse_zone("+02:00").unwrap());
        assert_eq!(parser.parse("1970-01-01T02:00:00"), Some(0));
        assert_eq!(parser.parse("1970-01-01T02:00:00Z"), Some(7_200_000_000));
        let mut parser = TimeParser::new(TimeFormat::parse("%d.%m.%y %H:%M").unwrap(), 7200);
        assert_eq!(parser.parse("01.01.70 02:00"), Some(0));
        assert_eq!(parse_zone("-0530"), Some(-19_800));
        assert_eq!(parse_zone("Europe/Paris"), None);
    }

    #[test]
    fn a_time_without_a_year_is_not_in_the_future() {
        let tomorrow = Utc::now().timestamp_micros() + 2 * 86_400_000_000;
        for text in ["Jan  1 00:00:00", "Dec 31 23:59:59"] {
            let time = time("%b %e %H:%M:%S", text).unwrap();
            assert!(time < tomorrow && time > tomorrow - 370 * 86_400_000_000, "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "x",
            "2000-13-01",
            "2000-02-30T00:00:00Z",
            "2000-10-10T24:00:00Z",
            "2000-10-10T20:55:36.Z",
            "2000-10-10T20:55:36Zz",
            "10/Okt/2000:13:55:36 -0700",
            "10/Oct/2000",
            "2000/10-10 20:55:36",
            "Tue Oct 10 20:55:36",
            "Tue Oct 32 20:55:36 2000",
            "Tue Oct 10 20:55:36 2000 x",
            "123 Oct 10 20:55:36 2000",
            "1.2.3",
            "999999999999999999999",
            "--5",
            "é000-10-10",
            "5-",
        ] {
            assert_eq!(time("auto", text), None, "{text}");
        }
        assert_eq!(
            TimeFormat::parse("%Y-%!").unwrap_err(),
            "`%Y-%!` has a `%` that `strftime` does not know."
        );
        assert_eq!(TimeFormat::parse("iso").unwrap_err(), "`iso` is not a time format.");
    }

    proptest! {
        #[test]
        fn what_chrono_writes_is_read_back(seconds in -62_135_596_800i64..253_402_300_799, micros in 0u32..1_000_000) {
            let time = DateTime::from_timestamp(seconds, micros * 1000).unwrap();
            let expected = Some(time.timestamp_micros());
            prop_assert_eq!(super::rfc3339(time.to_rfc3339().as_bytes(), 0), expected);
            let clf = time.format("%d/%b/%Y:%H:%M:%S%.f %z").to_string();
            prop_assert_eq!(super::clf(clf.as_bytes(), 0), expected);
        }

        #[test]
        fn no_text_panics(text in "\\PC*", digits in "[-+0-9.:/ TZ]{0,40}") {
            for text in [text, digits] {
                for format in ["auto", "rfc3339", "rfc2822", "clf", "unix", "unix_ns", "%Y %s", "%b %d"] {
                    time(format, &text);
                }
            }
        }
    }
}

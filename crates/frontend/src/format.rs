//! Numbers, sizes, times and paragraphs as people read them.

use std::time::Duration;

use thalweg_engine::Summary;
use thalweg_redact::is_unseen;

use crate::paint::Paint;

pub use thalweg_config::{count, counted};

/// The outcome of a run and its duration: `done in 1.23 s`.
#[must_use]
pub(crate) fn headline(summary: &Summary, paint: Paint) -> String {
    let time = duration(summary.elapsed);
    match (&summary.failure, summary.stopped) {
        (Some(_), _) => paint.red(&format!("failed after {time}")),
        (None, true) => paint.bold(&format!("stopped after {time}")),
        (None, false) => paint.bold(&format!("done in {time}")),
    }
}

/// A number with about three digits.
fn three_digits(value: f64) -> String {
    match value {
        _ if value < 9.995 => format!("{value:.2}"),
        _ if value < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

const BYTES: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

fn unit_of(bytes: f64) -> (f64, &'static str) {
    let mut value = bytes;
    for unit in BYTES {
        if value < 999.5 {
            return (value, unit);
        }
        value /= 1024.0;
    }
    (value * 1024.0, "EiB")
}

/// A number of bytes: `12.3 MiB`.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    match unit_of(bytes as f64) {
        (_, "B") => format!("{bytes} B"),
        (value, unit) => format!("{} {unit}", three_digits(value)),
    }
}

/// A part of a number of bytes: `12.3 of 256 MiB`.
#[must_use]
pub fn bytes_of(part: u64, whole: u64) -> String {
    let (value, unit) = unit_of(whole as f64);
    let scale = if whole == 0 { 1.0 } else { value / whole as f64 };
    let whole = if value.fract() == 0.0 { format!("{value:.0}") } else { three_digits(value) };
    format!("{:.1} of {whole} {unit}", part as f64 * scale)
}

/// A number of things a second: `812/s`, `812 k/s`, `1.23 M/s`.
#[must_use]
pub fn per_second(rate: f64) -> String {
    match rate {
        _ if !rate.is_finite() => "–".to_owned(),
        _ if rate < 999.5 => format!("{rate:.0}/s"),
        _ if rate < 999_500.0 => format!("{} k/s", three_digits(rate / 1e3)),
        _ if rate < 999.5e6 => format!("{} M/s", three_digits(rate / 1e6)),
        _ => format!("{} G/s", three_digits(rate / 1e9)),
    }
}

/// A number per second.
#[must_use]
pub fn rate(number: u64, time: Duration) -> f64 {
    number as f64 / time.as_secs_f64()
}

/// A time: `1.23 ms`, `4.56 s`, `2 min 3 s`, `4 h 5 min`, `6 d 7 h`.
#[must_use]
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    let parts = |large: u64, unit: &str, small: u64, part: &str| match small {
        0 => format!("{large} {unit}"),
        _ => format!("{large} {unit} {small} {part}"),
    };
    match seconds {
        _ if time.is_zero() => "0 s".to_owned(),
        0 if time < Duration::from_millis(1) => format!("{} µs", time.as_micros()),
        0 => format!("{} ms", three_digits(time.as_secs_f64() * 1e3)),
        1..60 => format!("{} s", three_digits(time.as_secs_f64())),
        60..3600 => parts(seconds / 60, "min", seconds % 60, "s"),
        3600..86_400 => parts(seconds / 3600, "h", seconds % 3600 / 60, "min"),
        _ => parts(seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
    }
}

/// A time as a clock shows it: `0:12`, `1:02:03`.
#[must_use]
pub fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds / 3600 {
        0 => format!("{}:{:02}", seconds / 60, seconds % 60),
        hours => format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60),
    }
}

/// A time given in microseconds since 1970 (UTC): `2026-07-29 12:34:56 UTC`.
#[must_use]
pub fn moment(time_us: i64) -> String {
    match chrono::DateTime::from_timestamp_micros(time_us) {
        Some(time) => time.format("%Y-%m-%d %H:%M:%S UTC").to_string(),
        None => format!("{time_us} µs"),
    }
}

/// Rows in columns, each as wide as its widest cell.
#[must_use]
pub(crate) fn table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// The beginning of a text, on one line of at most `width` characters, with a dot for each that is not seen.
#[must_use]
pub fn excerpt(text: &str, width: usize) -> String {
    let mut shown = String::new();
    for (at, c) in text.trim_end().chars().enumerate() {
        if at + 1 >= width && text.trim_end().chars().nth(width).is_some() {
            shown.push('…');
            break;
        }
        shown.push(match c {
            '\n' => '⏎',
            c if is_unseen(c) => '·',
            c => c,
        });
    }
    shown
}

/// Breaks a text into lines of at most `width` characters, each after `indent` spaces. Empty lines separate
/// paragraphs. A line that begins with `- ` stays a line.
#[must_use]
pub fn paragraphs(text: &str, width: usize, indent: usize) -> String {
    let mut shown = String::new();
    let mut line = String::new();
    let mut end = |line: &mut String| {
        if !line.is_empty() {
            shown.push_str(&" ".repeat(indent));
            shown.push_str(line);
        }
        shown.push('\n');
        line.clear();
    };
    let limit = width.saturating_sub(indent).max(20);
    for paragraph in text.trim().split("\n\n") {
        for source in paragraph.lines() {
            let (source, hanging) = match source.trim_start().strip_prefix("- ") {
                Some(item) => (item, "- "),
                None => (source, ""),
            };
            if !hanging.is_empty() && !line.is_empty() {
                end(&mut line);
            }
            line.push_str(hanging);
            let mut starts = !hanging.is_empty();
            for word in source.split(' ').filter(|word| !word.is_empty()) {
                if !starts && !line.is_empty() && line.chars().count() + 1 + word.chars().count() > limit {
                    end(&mut line);
                }
                if !line.is_empty() && !std::mem::take(&mut starts) {
                    line.push(' ');
                }
                line.push_str(word);
            }
        }
        end(&mut line);
        end(&mut line);
    }
    shown.truncate(shown.trim_end().len());
    shown.push('\n');
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits() {
        let sizes = [0, 999, 1000, 1024, 12_345, 999_999, 1 << 20, 268_435_456, u64::MAX];
        let shown = [
            "0 B", "999 B", "0.98 KiB", "1.00 KiB", "12.1 KiB", "977 KiB", "1.00 MiB", "256 MiB", "16.0 EiB",
        ];
        assert_eq!(sizes.map(bytes), shown);
        assert_eq!(bytes_of(12_900_000, 256 << 20), "12.3 of 256 MiB");
        assert_eq!(bytes_of(0, 0), "0.0 of 0 B");
        assert_eq!(bytes_of(1 << 20, 3 << 29), "0.0 of 1.50 GiB");
    }

    #[test]
    fn times_are_shown_in_the_units_that_people_use() {
        let times = [0, 15, 1500, 12_345, 1_000_000, 59_990_000, 123_000_000, 3_600_000_000, 90_000_000_000];
        let shown = ["0 s", "15 µs", "1.50 ms", "12.3 ms", "1.00 s", "60.0 s", "2 min 3 s", "1 h", "1 d 1 h"];
        assert_eq!(times.map(|time| duration(Duration::from_micros(time))), shown);
        assert_eq!(clock(Duration::from_secs(3723)), "1:02:03");
        assert_eq!(clock(Duration::from_secs(5)), "0:05");
    }

    #[test]
    fn rates_have_three_digits() {
        let rates = [0.0, 999.4, 999.6, 1e6, 12.345e6, 2e9, f64::INFINITY];
        let shown = ["0/s", "999/s", "1.00 k/s", "1.00 M/s", "12.3 M/s", "2.00 G/s", "–"];
        assert_eq!(rates.map(per_second), shown);
    }

    #[test]
    fn an_excerpt_is_one_line_without_control_characters() {
        assert_eq!(excerpt("a\nb\u{1b}[31m\n", 20), "a⏎b·[31m");
        assert_eq!(excerpt("0123456789", 10), "0123456789");
        assert_eq!(excerpt("0123456789x", 10), "012345678…");
        assert_eq!(excerpt("", 10), "");
    }

    #[test]
    fn paragraphs_are_broken_between_words() {
        let text = "One two three four five six seven.\nEight.\n\nNine.";
        assert_eq!(paragraphs(text, 24, 2), "  One two three four\n  five six seven. Eight.\n\n  Nine.\n");
        let text = "Values:\n- `a`: first\n- `b`: one whose text is\n  long";
        assert_eq!(paragraphs(text, 24, 0), "Values:\n- `a`: first\n- `b`: one whose text is\nlong\n");
    }
}

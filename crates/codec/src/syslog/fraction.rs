//! Times of RFC 3164 with a fraction of a second, as many senders write them: `Nov 27 10:00:00.123`.
//!
//! The library takes the fraction for the beginning of the text, and finds no host. So it gets a copy of the
//! message without the fraction. Its parts are then those of the message itself, which has no other form.

use std::ops::Range;

use chrono::TimeDelta;
use syslog_loose::{Message, ProcId, StructuredElement};

/// The most digits of a fraction: nanoseconds.
const MOST: usize = 9;

/// The fraction of a second in the time of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fraction {
    /// Its place in the message, with the point or comma.
    range: Range<usize>,
    time: TimeDelta,
}

impl Fraction {
    /// Finds the fraction in a message whose header begins at `at`.
    pub(super) fn find(text: &str, at: usize) -> Option<Self> {
        let header = text.get(at..)?.trim_start().as_bytes();
        let start = text.len() - header.len();
        let (month, rest) = header.split_first_chunk::<3>()?;
        let length = rest.iter().position(|byte| !matches!(byte, b' ' | b':' | b'0'..=b'9'))?;
        let (time, fraction) = rest.split_at_checked(length)?;
        // A number after the time is not a part of it: `10:00:00 20.5 degrees`.
        let second = time.rsplit(|byte| *byte == b':').next().unwrap_or_default();
        let is_time = month.iter().all(u8::is_ascii_alphabetic)
            && time.iter().filter(|byte| **byte == b':').count() == 2
            && !second.is_empty()
            && second.iter().all(u8::is_ascii_digit);
        let (b'.' | b',', fraction) = fraction.split_first()? else { return None };
        let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let is_ended = matches!(fraction.get(digits), None | Some(b' ' | b':'));
        if !is_time || !is_ended || digits == 0 || digits > MOST {
            return None;
        }
        let number =
            fraction.iter().take(digits).fold(0, |number, byte| number * 10 + i64::from(byte - b'0'));
        let nanoseconds = (digits..MOST).fold(number, |number, _| number * 10);
        let start = start + month.len() + length;
        Some(Self { range: start..start + 1 + digits, time: TimeDelta::nanoseconds(nanoseconds) })
    }

    /// Returns a copy of the message without the fraction.
    pub(super) fn without(&self, text: &str) -> String {
        let [before, after] = [text.get(..self.range.start), text.get(self.range.end..)];
        [before.unwrap_or_default(), after.unwrap_or_default()].concat()
    }

    /// Returns the parts of the message `text`. `parsed` are those of its `copy`.
    pub(super) fn restored<'a>(&self, parsed: Message<&str>, copy: &str, text: &'a str) -> Message<&'a str> {
        let part = |part: &str| -> &'a str {
            let at = (part.as_ptr() as usize).saturating_sub(copy.as_ptr() as usize);
            let at = if at < self.range.start { at } else { at + self.range.len() };
            text.get(at..at + part.len()).unwrap_or_default()
        };
        let element = |element: StructuredElement<&str>| StructuredElement {
            id: part(element.id),
            params: element.params.into_iter().map(|(name, value)| (part(name), part(value))).collect(),
        };
        let process = |process: ProcId<&str>| match process {
            ProcId::PID(number) => ProcId::PID(number),
            ProcId::Name(name) => ProcId::Name(part(name)),
        };
        Message {
            protocol: parsed.protocol,
            facility: parsed.facility,
            severity: parsed.severity,
            timestamp: parsed.timestamp.map(|time| time.checked_add_signed(self.time).unwrap_or(time)),
            hostname: parsed.hostname.map(part),
            appname: parsed.appname.map(part),
            procid: parsed.procid.map(process),
            msgid: parsed.msgid.map(part),
            structured_data: parsed.structured_data.into_iter().map(element).collect(),
            msg: part(parsed.msg),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_ends_the_time_and_nothing_else_is_one() {
        let found = |text: &str| {
            let fraction = Fraction::find(text, 4)?;
            Some((text[fraction.range.clone()].to_owned(), fraction.time.num_nanoseconds()?))
        };
        for (text, digits, nanoseconds) in [
            ("<34>Nov 27 10:00:00.123 h a: m", ".123", 123_000_000),
            ("<34> Nov  7 10:00:00,5: m 1.5", ",5", 500_000_000),
            ("<34>Nov 27 2026 10:00:00.123456789", ".123456789", 123_456_789),
        ] {
            assert_eq!(found(text), Some((digits.to_owned(), nanoseconds)), "{text}");
        }
        for text in [
            "<34>Nov 27 10:00:00 h a: 1.5",
            "<34>Nov 27 10:00.5 h",
            "<34>Nov 27 10:00:.5 h",
            "<34>Nov 27 10:00:00. h",
            "<34>Nov 27 10:00:00 20.5 degrees",
            "<34>Nov 27 10:00:00: 20.5 degrees",
            "<34>Nov 27 10:00:00.1234567890 h",
            "<34>Nov 27 10:00:00.12x h",
            "<34>1 2003-10-11T22:14:15.003Z h",
            "<34>No",
            "<34>äöü 10:00:00.1 h",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }
}

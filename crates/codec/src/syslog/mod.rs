//! Parses syslog messages into columns, for the source `syslog` and the transform `parse_syslog`.

mod columns;
mod elements;
mod fraction;

use chrono::{DateTime, Datelike, TimeDelta, Utc};
use schemars::JsonSchema;
use serde::Deserialize;
use syslog_loose::{IncompleteDate, Message, ProcId, Protocol, Variant, parse_message_with_year_exact_tz};

pub use columns::{SEVERITIES, SyslogColumns};

use crate::framing::MAX_ROWS;
use fraction::Fraction;

/// How messages are parsed, and the fields that result.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SyslogOptions {
    /// The format of messages. The default is `auto`.
    pub format: SyslogFormat,
    /// Whether `facility` and `severity` are numbers instead of names.
    pub codes: bool,
    /// The largest number of fields for structured data in a batch. Structured data with further names goes
    /// into the field `sd`, as a JSON object with the names `ID.KEY`. The default is 64.
    #[schemars(range(max = 1024))]
    pub max_fields: usize,
    /// The names of the fields for structured data. A name that a message has again is numbered, as in
    /// `ip_2`. The default is `id_key`.
    pub structured_data: StructuredData,
    /// A text put before the name of each field, for example `syslog.`.
    pub prefix: String,
}

impl Default for SyslogOptions {
    fn default() -> Self {
        Self {
            format: SyslogFormat::Auto,
            codes: false,
            max_fields: 64,
            structured_data: StructuredData::IdKey,
            prefix: String::new(),
        }
    }
}

/// The format of messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SyslogFormat {
    /// Each message may have either format.
    #[default]
    Auto,
    /// `<34>Oct 11 22:14:15 host app[12]: message`, also with a fraction of a second or a year.
    Rfc3164,
    /// `<34>1 2003-10-11T22:14:15.003Z host app 12 ID47 - message`.
    Rfc5424,
}

/// The names of the fields for structured data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StructuredData {
    /// `sd.ID.KEY`.
    #[default]
    IdKey,
    /// The key alone, or `sd.ID.KEY` if the key is the name of another field. The field `structured_data` has
    /// the whole text, or `-` if there is none.
    Key,
}

/// The maximum number of values in a batch: rows times columns. A sender can give each message a field of its
/// own, with a place in all others.
const VALUES: usize = 1 << 19;

/// The number of fields that every message has.
const ALWAYS: usize = 8;

/// The priority of lines without one: a notice of a user.
const NOTICE: i64 = 13;

impl SyslogOptions {
    /// Returns the maximum number of messages in a batch.
    pub fn most_rows(&self) -> usize {
        (VALUES / (ALWAYS + self.max_fields)).clamp(1, MAX_ROWS)
    }

    /// Parses a message that arrived at `now`.
    ///
    /// # Errors
    /// The reason for rejecting the message.
    pub fn parse<'a>(&self, raw: &'a [u8], now: DateTime<Utc>) -> Result<Parsed<'a>, &'static str> {
        // The text may be any bytes; the header before it is ASCII.
        let chunk = raw.utf8_chunks().next();
        let (valid, is_all) = chunk.map_or(("", true), |chunk| (chunk.valid(), chunk.invalid().is_empty()));
        let valid = valid.trim_start();
        let Some((priority, rest)) = valid.strip_prefix('<').and_then(|rest| rest.split_once('>')) else {
            return Err("is not a syslog message: it does not begin with a priority, as in `<34>`");
        };
        let variant = match self.format {
            SyslogFormat::Auto => Variant::Either,
            SyslogFormat::Rfc3164 => Variant::RFC3164,
            SyslogFormat::Rfc5424 => Variant::RFC5424,
        };
        if elements::are_malformed(rest) {
            return Err("has too many malformed elements of structured data");
        }
        let priority = priority.parse::<u8>().ok().map(i64::from);
        let message = match Fraction::find(valid, valid.len() - rest.len()) {
            Some(fraction) => {
                let copy = fraction.without(valid);
                fraction.restored(parse(&copy, now, variant)?, &copy, valid)
            }
            None => parse(valid, now, variant)?,
        };
        let offset = |piece: &str| (piece.as_ptr() as usize).saturating_sub(raw.as_ptr() as usize);
        let is_new = matches!(message.protocol, Protocol::RFC5424(_));
        let malformed = elements::first_malformed(rest).filter(|_| is_new);
        let end = if is_all { offset(message.msg) + message.msg.len() } else { raw.len() };
        let text = raw.get(offset(malformed.unwrap_or(message.msg))..end).unwrap_or_default();
        let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
        Ok(Parsed { priority, procid: procid(&message, rest), message, text })
    }
}

/// The parts of a message.
pub struct Parsed<'a> {
    priority: Option<i64>,
    message: Message<&'a str>,
    /// The process, as received. The library makes numbers of digits: 12 of `012`.
    procid: Option<&'a str>,
    /// The text of the message, as received, with malformed structured data before it.
    pub text: &'a [u8],
}

impl<'a> Parsed<'a> {
    /// Returns a line that is no syslog message as a message of this host.
    pub fn line(raw: &'a [u8], host: &'a str, now: DateTime<Utc>) -> Self {
        let priority = raw.strip_prefix(b"<").and_then(|rest| {
            let end = rest.iter().take(4).position(|byte| *byte == b'>')?;
            let number = str::from_utf8(rest.get(..end)?).ok()?.parse::<u8>().ok()?;
            Some((i64::from(number), rest.get(end + 1..)?))
        });
        let (priority, text) = priority.unwrap_or((NOTICE, raw));
        let message = Message {
            facility: None,
            severity: None,
            timestamp: Some(now.fixed_offset()),
            hostname: Some(host),
            appname: None,
            procid: None,
            msgid: None,
            protocol: Protocol::RFC3164,
            structured_data: Vec::new(),
            msg: "",
        };
        Self { priority: Some(priority), message, procid: None, text }
    }
}

/// Returns the parts of a message.
fn parse(text: &str, now: DateTime<Utc>, variant: Variant) -> Result<Message<&str>, &'static str> {
    let year = move |date| year_of(date, now);
    parse_message_with_year_exact_tz(text, year, Some(Utc), variant).map_err(|_| match variant {
        Variant::RFC3164 => "is not a syslog message of RFC 3164",
        Variant::RFC5424 => "is not a syslog message of RFC 5424",
        Variant::Either => "is not a syslog message",
    })
}

/// Returns the process of a message as it is written. `rest` is the message after the priority.
fn procid<'a>(message: &Message<&'a str>, rest: &'a str) -> Option<&'a str> {
    match (message.procid.as_ref()?, &message.protocol) {
        (ProcId::Name(name), _) => Some(*name),
        // The fields before it are the version, time, host and application.
        (ProcId::PID(_), Protocol::RFC5424(_)) => {
            rest.split([' ', '\t']).filter(|field| !field.is_empty()).nth(4)
        }
        (ProcId::PID(_), Protocol::RFC3164) => {
            let app = message.appname?;
            let end = (app.as_ptr() as usize + app.len()).saturating_sub(rest.as_ptr() as usize);
            rest.get(end..)?.strip_prefix('[')?.split(']').next()
        }
    }
}

/// Returns the year of a date without one: the date is within the twelve months before `now`.
fn year_of((month, day, ..): IncompleteDate, now: DateTime<Utc>) -> i32 {
    // A sender's clock may be a day ahead.
    let latest = now + TimeDelta::days(1);
    latest.year() - i32::from((month, day) > (latest.month(), latest.day()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::TimeZone;

    #[test]
    fn a_time_without_a_year_is_within_the_last_twelve_months() {
        for (now, date, year) in [
            ((2026, 1, 15), (1, 15), 2026),
            ((2026, 1, 15), (1, 16), 2026),
            ((2026, 1, 15), (1, 17), 2025),
            ((2026, 1, 15), (2, 10), 2025),
            ((2026, 1, 15), (12, 31), 2025),
            ((2026, 12, 1), (1, 30), 2026),
            ((2026, 12, 1), (12, 2), 2026),
            ((2026, 12, 1), (12, 3), 2025),
            ((2026, 12, 31), (1, 1), 2027),
            ((2026, 12, 31), (1, 2), 2026),
            ((2026, 12, 31), (12, 31), 2026),
        ] {
            let at = Utc.with_ymd_and_hms(now.0, now.1, now.2, 12, 0, 0).unwrap();
            assert_eq!(year_of((date.0, date.1, 12, 0, 0), at), year, "{date:?} at {now:?}");
        }
    }
}

//! Messages as events, in pieces that fit into one request each.

use thalweg_codec::json::write_text;
use thalweg_codec::template::{Template, column};
use thalweg_net::requests::{Encode, Encoded};
use thalweg_record::Batch;
use thalweg_redact::beginning;

/// The largest event, in bytes, with what the service adds.
const MOST_EVENT: usize = 1 << 20;
/// The bytes that the service adds to each event.
const AROUND: usize = 26;
/// The longest name of a log group or log stream, in characters.
const LONGEST_NAME: usize = 512;
/// The longest time between two events of a request, in milliseconds.
pub(super) const LONGEST_SPAN: i64 = 24 * 60 * 60 * 1000;

/// An event as a part of a body.
pub(super) struct Event<'a> {
    /// The members of a body that name the log stream.
    pub(super) place: &'a [u8],
    /// In milliseconds since 1970.
    pub(super) time: i64,
    /// The text, in JSON.
    pub(super) message: &'a [u8],
}

impl<'a> Event<'a> {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.place.len() as u32).to_le_bytes());
        out.extend_from_slice(self.place);
        out.extend_from_slice(&self.time.to_le_bytes());
        out.extend_from_slice(self.message);
    }

    /// Reads a part.
    pub(super) fn read(part: &'a [u8]) -> Option<Self> {
        let (length, rest) = part.split_first_chunk::<4>()?;
        let (place, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let (time, message) = rest.split_first_chunk::<8>()?;
        Some(Self { place, time: i64::from_le_bytes(*time), message })
    }
}

/// Writes messages as events.
pub(super) struct Events {
    pub(super) log_group: Template,
    pub(super) log_stream: Template,
    pub(super) time: Option<String>,
}

impl Encode for Events {
    fn encode(&mut self, batch: &Batch, rows: &[usize], into: &mut Encoded) {
        let mut groups = self.log_group.bind(batch);
        let mut streams = self.log_stream.bind(batch);
        let times = self.time.as_deref().map(|name| column(batch, name));
        let read_at = batch.meta().time_us / 1000;
        let mut events: Vec<(Vec<u8>, i64, usize)> = Vec::with_capacity(rows.len());
        let (mut group, mut stream) = (Vec::new(), Vec::new());
        for &row in rows {
            group.clear();
            stream.clear();
            groups.render(row, &mut group);
            streams.render(row, &mut stream);
            match place(&group, &stream, batch.payload().value(row).len()) {
                Ok(place) => {
                    let time = times.as_ref().and_then(|times| times.time(row));
                    events.push((place, time.map_or(read_at, |time| time.timestamp_millis()), row));
                }
                Err(reason) => into.reject(row, reason),
            }
        }
        events.sort();
        let mut first: Option<(&[u8], i64)> = None;
        let mut message = Vec::new();
        for (place, time, row) in &events {
            if first.is_some_and(|(known, begin)| known != place.as_slice() || time - begin >= LONGEST_SPAN) {
                into.divide();
                first = None;
            }
            first.get_or_insert((place.as_slice(), *time));
            message.clear();
            write_text(&String::from_utf8_lossy(batch.payload().value(*row)), &mut message);
            Event { place, time: *time, message: &message }.write(into.buffer());
            into.end(*row);
        }
    }
}

/// Returns the members of a body that name the log stream, or the reason why a message cannot be an event.
fn place(group: &[u8], stream: &[u8], size: usize) -> Result<Vec<u8>, String> {
    if size == 0 {
        return Err("the message is empty, and no event".to_owned());
    }
    if size + AROUND > MOST_EVENT {
        let most = MOST_EVENT - AROUND;
        return Err(format!("the message has {size} bytes, but an event has at most {most}"));
    }
    let (group, stream) = (String::from_utf8_lossy(group), String::from_utf8_lossy(stream));
    for (option, name) in [("log_group", &group), ("log_stream", &stream)] {
        if let Some(reason) = mistake_of_name(option, name) {
            let shown = beginning(name, 100);
            return Err(format!("`{shown}` is no `{option}`: {reason}"));
        }
    }
    let mut place = b"\"logGroupName\":".to_vec();
    write_text(&group, &mut place);
    place.extend_from_slice(b",\"logStreamName\":");
    write_text(&stream, &mut place);
    Ok(place)
}

/// Returns the reason why this is no name of a log group or a log stream, as the option says.
pub(super) fn mistake_of_name(option: &str, name: &str) -> Option<String> {
    let length = name.chars().count();
    if length == 0 {
        return Some("it is empty".to_owned());
    }
    if length > LONGEST_NAME {
        return Some(format!("it has {length} characters, but at most {LONGEST_NAME} are possible"));
    }
    // A user cannot create it, so the message would wait for ever.
    if option == "log_group" && name.starts_with("aws/") {
        return Some("it begins with `aws/`, which is reserved".to_owned());
    }
    let is_of_group = |letter: char| letter.is_ascii_alphanumeric() || "_-/.#".contains(letter);
    let is_valid = match option {
        "log_group" => name.chars().all(is_of_group),
        _ => !name.contains([':', '*']),
    };
    (!is_valid).then(|| match option {
        "log_group" => "it has other characters than letters, digits and `_-/.#`".to_owned(),
        _ => "it has a `:` or a `*`".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_have_the_characters_that_the_service_takes() {
        for (option, name, expected) in [
            ("log_group", "a/b-c_d.e#1", None),
            ("log_group", "a b", Some("it has other characters than letters, digits and `_-/.#`")),
            ("log_group", "", Some("it is empty")),
            ("log_group", "aws/a", Some("it begins with `aws/`, which is reserved")),
            ("log_group", "/aws/a", None),
            ("log_stream", "aws/a", None),
            ("log_stream", "host 1 [é]", None),
            ("log_stream", "a:b", Some("it has a `:` or a `*`")),
        ] {
            assert_eq!(mistake_of_name(option, name).as_deref(), expected, "{name}");
        }
        let long = "x".repeat(LONGEST_NAME + 1);
        assert!(mistake_of_name("log_stream", &long).is_some());
    }

    proptest! {
        #[test]
        fn an_event_is_read_as_it_was_written(place: Vec<u8>, time: i64, message: Vec<u8>) {
            let mut part = Vec::new();
            Event { place: &place, time, message: &message }.write(&mut part);
            let read = Event::read(&part).unwrap();
            prop_assert_eq!((read.place, read.time, read.message), (&place[..], time, &message[..]));
        }
    }
}

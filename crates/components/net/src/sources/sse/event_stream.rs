//! The format of server-sent events: <https://html.spec.whatwg.org/multipage/server-sent-events.html>.
//!
//! Memory is bounded by the longest event: what a line or an event has beyond it is counted and dropped.

use std::sync::Arc;
use std::time::Duration;

use memchr::memchr2;
use thalweg_codec::framing::KEPT;

/// The longest name of an event, and the longest id, in bytes. A longer one has no effect, and neither has an
/// id that cannot be sent back in a header: events come again after the id before it, instead of none.
pub const LONGEST_NAME: usize = 4 << 10;

/// Room in a line for the name of its field.
const FIELD: usize = 16;

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// Its data: of an event that is too long, the first bytes.
    pub data: &'a [u8],
    /// Its name. Events without one are called `message`.
    pub name: &'a str,
    /// The id of the last event that had one. Empty if none had.
    pub id: &'a Arc<str>,
    /// The size of all its data, in bytes.
    pub size: usize,
}

/// Finds the events of a stream.
#[derive(Debug)]
pub struct EventStream {
    /// The most data of an event, in bytes.
    limit: usize,
    /// The beginning of a line that has not ended.
    line: Vec<u8>,
    /// The bytes of that line that were dropped.
    dropped: usize,
    /// True after a carriage return: a line feed behind it belongs to it.
    is_after_return: bool,
    /// True until the first line has ended.
    is_first: bool,
    /// The data of the event that has not ended.
    data: Vec<u8>,
    /// The size of that data with what was dropped. None if the event has no data.
    size: Option<usize>,
    name: String,
    /// The last id. It becomes that of an event when the event ends.
    id: Arc<str>,
    last_id: Arc<str>,
    /// The pause before a connection is opened again, if the server says it.
    retry: Option<Duration>,
}

impl EventStream {
    /// Begins a stream behind the event with this id, which may be empty.
    pub fn new(limit: usize, last_id: &str) -> Self {
        let id: Arc<str> = last_id.into();
        Self {
            limit,
            line: Vec::new(),
            dropped: 0,
            is_after_return: false,
            is_first: true,
            data: Vec::new(),
            size: None,
            name: String::new(),
            id: id.clone(),
            last_id: id,
            retry: None,
        }
    }

    /// Begins the stream of a new connection. An event that has not ended is dropped, as the server sends it
    /// again.
    pub fn restart(&mut self) {
        *self = Self { retry: self.retry, ..Self::new(self.limit, &self.last_id) };
    }

    /// The id of the last event that ended.
    pub fn last_id(&self) -> &Arc<str> {
        &self.last_id
    }

    /// The pause before a connection is opened again, if the server says it.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// The number of bytes that it holds.
    pub fn held(&self) -> usize {
        self.line.capacity() + self.data.capacity()
    }

    /// Reads bytes of the stream, and passes each event that ends in them to `found`.
    pub fn push(&mut self, mut bytes: &[u8], mut found: impl FnMut(Event<'_>)) {
        while let Some(&first) = bytes.first() {
            if std::mem::take(&mut self.is_after_return) && first == b'\n' {
                bytes = bytes.get(1..).unwrap_or_default();
                continue;
            }
            let Some(end) = memchr2(b'\r', b'\n', bytes) else { return self.keep(bytes) };
            let (line, rest) = bytes.split_at(end);
            self.keep(line);
            self.end_line(&mut found);
            self.is_after_return = rest.first() == Some(&b'\r');
            bytes = rest.get(1..).unwrap_or_default();
        }
    }

    /// Adds bytes to the line.
    fn keep(&mut self, bytes: &[u8]) {
        let room = (self.limit.max(LONGEST_NAME) + FIELD).saturating_sub(self.line.len());
        let kept = bytes.get(..room).unwrap_or(bytes);
        self.line.extend_from_slice(kept);
        self.dropped = self.dropped.saturating_add(bytes.len() - kept.len());
    }

    fn end_line(&mut self, found: &mut impl FnMut(Event<'_>)) {
        let mut line = std::mem::take(&mut self.line);
        let mark: &[u8] = if std::mem::take(&mut self.is_first) { b"\xef\xbb\xbf" } else { b"" };
        let text = line.strip_prefix(mark).unwrap_or(&line);
        match text.first() {
            None => self.end_event(found),
            // A comment.
            Some(b':') => {}
            Some(_) => self.field(text),
        }
        self.dropped = 0;
        line.clear();
        // A long line must not take its memory for ever.
        line.shrink_to(KEPT);
        self.line = line;
    }

    fn field(&mut self, line: &[u8]) {
        let colon = memchr::memchr(b':', line).unwrap_or(line.len());
        let (field, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let is_short = self.dropped == 0 && value.len() <= LONGEST_NAME;
        match field {
            b"data" => self.add(value),
            b"event" if is_short => self.name = String::from_utf8_lossy(value).into_owned(),
            b"id" if is_short && !value.iter().any(u8::is_ascii_control) => {
                self.id = String::from_utf8_lossy(value).into();
            }
            b"retry" if is_short && !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                let milliseconds = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
                self.retry = milliseconds.map(Duration::from_millis).or(self.retry);
            }
            _ => {}
        }
    }

    /// Adds a line to the data.
    fn add(&mut self, value: &[u8]) {
        let feed: &[u8] = if self.size.is_some() { b"\n" } else { b"" };
        for part in [feed, value] {
            let room = self.limit.max(KEPT).saturating_sub(self.data.len());
            self.data.extend_from_slice(part.get(..room).unwrap_or(part));
        }
        let more = feed.len().saturating_add(value.len()).saturating_add(self.dropped);
        self.size = Some(self.size.unwrap_or(0).saturating_add(more));
    }

    fn end_event(&mut self, found: &mut impl FnMut(Event<'_>)) {
        self.last_id = self.id.clone();
        if let Some(size) = self.size.take() {
            let kept = if size > self.limit { KEPT.min(self.data.len()) } else { self.data.len() };
            let data = self.data.get(..kept).unwrap_or_default();
            let name = if self.name.is_empty() { "message" } else { &self.name };
            found(Event { data, name, id: &self.last_id, size });
        }
        self.name.clear();
        self.data.clear();
        self.data.shrink_to(KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The data, the name, the id and the size of each event.
    type Found = Vec<(String, String, String, usize)>;

    fn events_of(stream: &mut EventStream, text: &[u8], piece: usize) -> Found {
        let mut found = Vec::new();
        for part in text.chunks(piece.max(1)) {
            stream.push(part, |event| {
                let data = String::from_utf8_lossy(event.data).into_owned();
                found.push((data, event.name.to_owned(), event.id.to_string(), event.size));
            });
        }
        found
    }

    fn events(text: &str) -> Found {
        events_of(&mut EventStream::new(1 << 20, ""), text.as_bytes(), usize::MAX)
    }

    fn event(data: &str, name: &str, id: &str) -> (String, String, String, usize) {
        (data.to_owned(), name.to_owned(), id.to_owned(), data.len())
    }

    /// The examples of the specification.
    #[test]
    fn events_are_found_as_the_specification_has_them() {
        let found = events("data: YHOO\ndata: +2\ndata: 10\n\n");
        assert_eq!(found, [event("YHOO\n+2\n10", "message", "")]);
        let text =
            ": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n";
        let expected = [
            event("first event", "message", "1"),
            event("second event", "message", ""),
            event(" third event", "message", ""),
        ];
        assert_eq!(events(text), expected);
        assert_eq!(
            events("data\n\ndata\ndata\n\ndata:"),
            [event("", "message", ""), event("\n", "message", "")]
        );
        assert_eq!(
            events("data:test\n\ndata: test\n\n"),
            [event("test", "message", ""), event("test", "message", "")]
        );
    }

    #[test]
    fn lines_end_in_three_ways_and_names_are_of_one_event() {
        let text = "\u{feff}event: add\rid: 7\r\ndata: a\r\rdata: b\r\n\r\nid: 8\n\nevent: x\n\ndata: c\n\nother: y\n\n";
        let expected = [event("a", "add", "7"), event("b", "message", "7"), event("c", "message", "8")];
        assert_eq!(events(text), expected);
        let mut stream = EventStream::new(10, "5");
        events_of(&mut stream, b"id: a\0b\nid: a\x7fb\nretry: 250\ndata: x\n\nretry: soon\nid: 6\n", 1);
        assert_eq!((&**stream.last_id(), stream.retry()), ("5", Some(Duration::from_millis(250))));
        stream.restart();
        // The event that had not ended is gone.
        assert_eq!(events_of(&mut stream, b"data: y\n\n", 3), [event("y", "message", "5")]);
    }

    #[test]
    fn what_is_too_long_is_counted_and_not_kept() {
        let mut stream = EventStream::new(8, "");
        let long = "x".repeat(1 << 20);
        let text =
            format!(":{long}\nid: {long}\nevent: {long}\ndata: {long}\ndata: {long}\n\ndata: 12345678\n\n");
        let found = events_of(&mut stream, text.as_bytes(), 1000);
        assert_eq!((found.len(), found[0].0.len(), found[0].3), (2, KEPT, (2 << 20) + 1));
        assert_eq!((found[0].1.as_str(), found[0].2.as_str()), ("message", ""));
        assert_eq!(found[1], event("12345678", "message", ""));
        assert!(stream.held() <= 2 * KEPT, "{}", stream.held());
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(
            text in r"((data|id|event|retry|:)(: ?)?[a\x00]{0,3}(\r\n|\r|\n){1,3}){0,8}",
            piece in 1..9usize,
        ) {
            let whole = events_of(&mut EventStream::new(4, ""), text.as_bytes(), usize::MAX);
            let mut stream = EventStream::new(4, "");
            prop_assert_eq!(events_of(&mut stream, text.as_bytes(), piece), whole);
        }
    }
}

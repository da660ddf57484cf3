//! The headers of a message.

use std::borrow::Cow;

use bytes::Bytes;

/// The first line begins with it.
pub(super) const VERSION: &str = "NATS/1.0";

/// The largest headers of a message that are kept, in bytes. A server of the default configuration takes no
/// larger message.
pub(crate) const LARGEST_HEADERS: usize = 1 << 20;

/// Headers, as they were sent. A client may send anything in their place, which then has no names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Headers(Bytes);

impl Headers {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(bytes))
    }

    /// Returns the number of bytes.
    pub(crate) fn length(&self) -> usize {
        self.0.len()
    }

    /// Returns the number and the text that stand behind the version, for a message about others.
    pub(crate) fn status(&self) -> Option<(u16, Cow<'_, str>)> {
        let rest = self.lines().next()?.strip_prefix(VERSION.as_bytes())?.trim_ascii();
        let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
        let (number, text) = rest.split_at(end);
        let number = std::str::from_utf8(number).ok()?.parse().ok()?;
        Some((number, String::from_utf8_lossy(text.trim_ascii())))
    }

    /// Returns the value of the first header with this name. Case counts.
    pub(crate) fn get(&self, name: &str) -> Option<Cow<'_, str>> {
        let mut lines = self.lines().skip(1).peekable();
        while let Some(line) = lines.next() {
            let Some(value) = line.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b":"))
            else {
                continue;
            };
            let mut value = String::from_utf8_lossy(value.trim_ascii());
            // A long value may continue on lines that begin with a space.
            while let Some(more) = lines.next_if(|line| matches!(line.first(), Some(b' ' | b'\t'))) {
                let more = String::from_utf8_lossy(more.trim_ascii());
                value = format!("{value} {more}").into();
            }
            return Some(value);
        }
        None
    }

    fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn headers_have_values_by_name_and_some_a_status() {
        let headers =
            Headers::new(b"NATS/1.0\r\nA: 1\r\na:2\r\nA: 3\r\nLong: x\r\n  y \r\n\tz\r\nBad:\xff\r\n\r\n");
        assert_eq!(headers.status(), None);
        for (name, expected) in [
            ("A", Some("1")),
            ("a", Some("2")),
            ("Long", Some("x y z")),
            ("Bad", Some("\u{fffd}")),
            ("Lon", None),
            ("NATS/1.0", None),
            ("", None),
        ] {
            assert_eq!(headers.get(name).as_deref(), expected, "{name}");
        }
        let status =
            |bytes: &[u8]| Headers::new(bytes).status().map(|(number, text)| (number, text.into_owned()));
        assert_eq!(status(b"NATS/1.0 503\r\n\r\n"), Some((503, String::new())));
        assert_eq!(
            status(b"NATS/1.0 409  Consumer Deleted \r\n\r\n"),
            Some((409, "Consumer Deleted".to_owned()))
        );
        for other in
            [&b""[..], b"\r\n", b"NATS/1.0", b"NATS/1.0 x", b"NATS/1.0 99999", b"HTTP/1.1 200 OK\r\n"]
        {
            assert_eq!(status(other), None, "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_headers(bytes: Vec<u8>, name in "[a-c:]{0,2}") {
            let headers = Headers::new(&bytes);
            let _ = (headers.status(), headers.get(&name));
        }
    }
}

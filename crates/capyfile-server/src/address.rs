//! Reads the path of a request as Go's server does, because clients have its addresses.
//!
//! Escapes are decoded before the path is taken apart, so `/a%2Fb` is `/a/b`. A path with `//`, `.` or `..`
//! in it is redirected to the path without. Rejected: serving such a path directly; a client that follows the
//! redirection would then see one address fail and the other work, depending on the server.

/// The target of a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// A processor of a service.
    Processor { service: String, processor: String },
    /// The same resource under a shorter path.
    Moved { path: String },
    /// Nothing: a path does not have two parts.
    Nothing,
    /// An escape is incomplete.
    Malformed,
}

impl Address {
    pub(super) fn of(path: &str) -> Self {
        let Some(path) = decoded(path) else { return Self::Malformed };
        let cleaned = cleaned(&path);
        if cleaned != path {
            return Self::Moved { path: encoded(&cleaned) };
        }
        let path = String::from_utf8_lossy(&path).into_owned();
        match path.trim_start_matches('/').split_once('/') {
            Some((service, processor)) if !processor.contains('/') => {
                Self::Processor { service: service.to_owned(), processor: processor.to_owned() }
            }
            _ => Self::Nothing,
        }
    }
}

fn decoded(path: &str) -> Option<Vec<u8>> {
    let mut escapes = path.split('%').skip(1);
    let is_escape = |text: &str| text.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    escapes.all(is_escape).then(|| thalweg_net::upload::percent_decoded(path.as_bytes()))
}

/// Removes empty parts, `.` and `..`. A slash at the end stays.
fn cleaned(path: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let mut cleaned = vec![b'/'];
    cleaned.extend(parts.join(&b'/'));
    if path.ends_with(b"/") && cleaned.len() > 1 {
        cleaned.push(b'/');
    }
    cleaned
}

fn encoded(path: &[u8]) -> String {
    let mut encoded = String::with_capacity(path.len());
    for &byte in path {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => encoded.push(char::from(byte)),
            b'-' | b'_' | b'.' | b'~' | b'$' | b'&' | b'+' | b',' | b'/' | b':' | b';' | b'=' | b'@' => {
                encoded.push(char::from(byte));
            }
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_decoded_and_then_taken_apart() {
        let processor = |service: &str, processor: &str| Address::Processor {
            service: service.into(),
            processor: processor.into(),
        };
        let moved = |path: &str| Address::Moved { path: path.into() };
        for (path, expected) in [
            ("/photos/archive", processor("photos", "archive")),
            ("/photos%2Farchive", processor("photos", "archive")),
            ("/ph%6ftos/a%20b", processor("photos", "a b")),
            ("/photos/a+b", processor("photos", "a+b")),
            ("/photos/", processor("photos", "")),
            ("/%ff/a", processor("\u{fffd}", "a")),
            ("/", Address::Nothing),
            ("/photos", Address::Nothing),
            ("/photos/a/b", Address::Nothing),
            ("/photos/a/", Address::Nothing),
            ("//photos/a", moved("/photos/a")),
            ("/photos//a//", moved("/photos/a/")),
            ("/photos/./a%20(b)", moved("/photos/a%20%28b%29")),
            ("/../photos/x/../a", moved("/photos/a")),
            ("/photos/..", moved("/")),
            ("//", moved("/")),
            ("/a%", Address::Malformed),
            ("/a%2/b", Address::Malformed),
            ("/a%%20/b", Address::Malformed),
        ] {
            assert_eq!(Address::of(path), expected, "{path}");
        }
    }
}

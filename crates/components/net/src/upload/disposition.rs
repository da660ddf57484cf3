//! Header values with parameters, and the file names in them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use super::form::{decoded, percent_decoded};

/// A value with its parameters: `form-data; name="a"; filename="b.png"`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Value {
    main: String,
    parameters: Vec<(String, Vec<u8>)>,
}

impl Value {
    /// Parses a value. Parameters that cannot be parsed are skipped.
    pub(super) fn parse(text: &[u8]) -> Self {
        let mut rest = text;
        let main = String::from_utf8_lossy(until(&mut rest, b";")).trim().to_ascii_lowercase();
        let mut parameters = Vec::new();
        while !rest.is_empty() {
            let before = rest;
            let name = until(&mut rest, b"=;").trim_ascii();
            // The byte that ended the name is just before `rest`.
            let ended = before.len().checked_sub(rest.len() + 1).and_then(|at| before.get(at));
            if ended != Some(&b'=') {
                continue;
            }
            rest = rest.trim_ascii_start();
            let value = match rest.split_first() {
                Some((b'"', quoted)) => {
                    rest = quoted;
                    let value = unquoted(&mut rest);
                    until(&mut rest, b";");
                    value
                }
                _ => until(&mut rest, b";").trim_ascii().to_vec(),
            };
            parameters.push((String::from_utf8_lossy(name).to_ascii_lowercase(), value));
        }
        Self { main, parameters }
    }

    /// True if the value itself is `main`, whatever its parameters.
    pub(super) fn is(&self, main: &str) -> bool {
        self.main == main
    }

    /// Returns the first parameter with this name.
    pub(super) fn parameter(&self, name: &str) -> Option<&[u8]> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_slice())
    }
}

/// Returns the bytes before the first of `ends`, and skips that byte.
fn until<'t>(rest: &mut &'t [u8], ends: &[u8]) -> &'t [u8] {
    let at = rest.iter().position(|byte| ends.contains(byte)).unwrap_or(rest.len());
    let (found, after) = rest.split_at(at);
    *rest = after.get(1..).unwrap_or_default();
    found
}

/// Returns the bytes before the next quote. A backslash escapes only a quote or a backslash, since clients
/// that send whole Windows paths do not escape theirs.
fn unquoted(rest: &mut &[u8]) -> Vec<u8> {
    let mut value = Vec::new();
    while let Some((&byte, after)) = rest.split_first() {
        *rest = after;
        match (byte, after.first()) {
            (b'"', _) => break,
            (b'\\', Some(&escaped @ (b'"' | b'\\'))) => {
                value.push(escaped);
                *rest = after.get(1..).unwrap_or_default();
            }
            _ => value.push(byte),
        }
    }
    value
}

/// Returns the file name in a `Content-Disposition`, without folders, or `None` if it has none. Forms have an
/// empty name if the user chose no file.
pub(super) fn name_of_file(disposition: &Value) -> Option<OsString> {
    let extended = disposition.parameter("filename*").and_then(extended);
    let name = match extended {
        Some(name) => name,
        // Browsers percent-encode the characters that cannot appear between quotes.
        None => decoded(disposition.parameter("filename")?, |code| matches!(code, b'"' | b'\r' | b'\n')),
    };
    if name.is_empty() {
        return None;
    }
    let end = name.iter().rposition(|byte| !matches!(byte, b'/' | b'\\')).map_or(0, |last| last + 1);
    let name = name.get(..end).unwrap_or_default();
    let base = name.rsplit(|byte| matches!(byte, b'/' | b'\\')).next().unwrap_or_default();
    let base: Vec<u8> = base.iter().copied().filter(|byte| *byte != 0).collect();
    Some(match base.as_slice() {
        b"" | b"." | b".." => super::UNNAMED.into(),
        _ => OsString::from_vec(base),
    })
}

/// Decodes a value in the form of RFC 5987: `utf-8'en'a%20b`.
fn extended(value: &[u8]) -> Option<Vec<u8>> {
    let mut parts = value.splitn(3, |byte| *byte == b'\'');
    let (charset, _, text) = (parts.next()?, parts.next()?, parts.next()?);
    let bytes = percent_decoded(text);
    match charset.to_ascii_lowercase().as_slice() {
        b"utf-8" => Some(bytes),
        b"iso-8859-1" => Some(bytes.into_iter().map(char::from).collect::<String>().into_bytes()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn name(parameters: &[u8]) -> Option<OsString> {
        name_of_file(&Value::parse(&[b"form-data; name=\"f\"; ", parameters].concat()))
    }

    #[test]
    fn values_have_parameters_with_quotes_and_without() {
        let value = Value::parse(b" Form-Data ;name=\"a;b\\\"c\" ; boundary = xyz; empty=; lone");
        assert!(value.is("form-data"));
        assert_eq!(value.parameter("name"), Some(&b"a;b\"c"[..]));
        assert_eq!(value.parameter("boundary"), Some(&b"xyz"[..]));
        assert_eq!(value.parameter("empty"), Some(&b""[..]));
        assert_eq!(value.parameter("lone"), None);
        assert_eq!(Value::parse(b"a; b=\"cut off").parameter("b"), Some(&b"cut off"[..]));
        assert_eq!(Value::parse(b""), Value::default());
    }

    #[test]
    fn names_are_of_files_and_never_of_folders() {
        for (given, expected) in [
            ("filename=\"a b.png\"", "a b.png"),
            ("filename=a.png", "a.png"),
            ("filename=\"../../etc/passwd\"", "passwd"),
            ("filename=\"/etc/passwd\"", "passwd"),
            ("filename=\"C:\\dir\\a.png\"", "a.png"),
            ("filename=\"..\\\\..\\\\a.png\"", "a.png"),
            ("filename=\"..\"", "upload"),
            ("filename=\"a/.\"", "upload"),
            ("filename=\"a/\"", "a"),
            ("filename=\"/\"", "upload"),
            ("filename=\"\0\"", "upload"),
            ("filename=\"a\0b\"", "ab"),
            ("filename=\"..\0\"", "upload"),
            ("filename=\"say %22x%22%0A\\\"y\\\".txt\"", "say \"x\"\n\"y\".txt"),
            ("filename=\"100%.txt\"", "100%.txt"),
            ("filename=\"%2e%2e%2fa\"", "%2e%2e%2fa"),
            ("filename=\"x\"; filename*=UTF-8''%e2%82%ac%20.txt", "€ .txt"),
            ("filename*=utf-8'en'..%2f..%2fa%00", "a"),
            ("filename*=iso-8859-1''%fc.txt", "ü.txt"),
            ("filename=\"x\"; filename*=koi8-r''%fc", "x"),
        ] {
            assert_eq!(name(given.as_bytes()).as_deref(), Some(OsStr::new(expected)), "{given}");
        }
        assert_eq!(name(b"filename=\"\xff.txt\"").as_deref(), Some(OsStr::from_bytes(b"\xff.txt")));
        assert_eq!(name(b"filename=\"\""), None);
        assert_eq!(name(b""), None);
    }
}

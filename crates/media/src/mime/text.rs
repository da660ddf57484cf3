//! Files without a signature: text of several kinds, or unknown.

use serde::de::IgnoredAny;

use super::types::{self as t, Type};
use super::{Detected, markup};

/// The encoding of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Charset {
    Utf8,
    Utf16Le,
    Utf16Be,
    Utf32Le,
    Utf32Be,
    Latin1,
    Windows1252,
}

/// Detects the kind of text; `cut` is true if the file continues after `head`.
pub(super) fn detect(head: &[u8], cut: bool) -> Detected {
    let Some((charset, mark)) = charset(head, cut) else { return of(&t::UNKNOWN) };
    let text = head.get(mark..).unwrap_or_default();
    if !matches!(charset, Charset::Utf8 | Charset::Latin1 | Charset::Windows1252) {
        return Detected { mime: plain(charset), extension: t::PLAIN.extension };
    }
    let found = markup::find(text).or_else(|| program(text)).or_else(|| data(text, cut)).unwrap_or(&t::PLAIN);
    let mime = match found.name {
        "text/plain" => plain(charset),
        "text/html" => html(charset),
        "text/xml" => xml(charset),
        name => name,
    };
    Detected { mime, extension: found.extension }
}

fn of(found: &'static Type) -> Detected {
    Detected { mime: found.name, extension: found.extension }
}

fn plain(charset: Charset) -> &'static str {
    match charset {
        Charset::Utf8 => "text/plain; charset=utf-8",
        Charset::Utf16Le => "text/plain; charset=utf-16le",
        Charset::Utf16Be => "text/plain; charset=utf-16be",
        Charset::Utf32Le => "text/plain; charset=utf-32le",
        Charset::Utf32Be => "text/plain; charset=utf-32be",
        Charset::Latin1 => "text/plain; charset=iso-8859-1",
        Charset::Windows1252 => "text/plain; charset=windows-1252",
    }
}

fn html(charset: Charset) -> &'static str {
    match charset {
        Charset::Latin1 => "text/html; charset=iso-8859-1",
        Charset::Windows1252 => "text/html; charset=windows-1252",
        _ => "text/html; charset=utf-8",
    }
}

fn xml(charset: Charset) -> &'static str {
    match charset {
        Charset::Latin1 => "text/xml; charset=iso-8859-1",
        Charset::Windows1252 => "text/xml; charset=windows-1252",
        _ => "text/xml; charset=utf-8",
    }
}

/// Returns the encoding of a text, and the length of its byte order mark in bytes. Returns `None` if it is
/// not text: it has control characters other than line breaks and similar ones.
fn charset(head: &[u8], cut: bool) -> Option<(Charset, usize)> {
    for (mark, charset) in [
        (&b"\xef\xbb\xbf"[..], Charset::Utf8),
        (b"\0\0\xfe\xff", Charset::Utf32Be),
        (b"\xff\xfe\0\0", Charset::Utf32Le),
        (b"\xfe\xff", Charset::Utf16Be),
        (b"\xff\xfe", Charset::Utf16Le),
    ] {
        if head.starts_with(mark) {
            return Some((charset, mark.len()));
        }
    }
    let controls = |byte: &u8| matches!(byte, 0..=8 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f);
    // Each piece is examined to its end, so that the compiler compares several bytes at once.
    if head.chunks(64).any(|piece| piece.iter().fold(false, |any, byte| any | controls(byte))) {
        return None;
    }
    let is_utf8 = match std::str::from_utf8(head) {
        Ok(_) => true,
        // A character that is cut by the end of `head`.
        Err(error) => cut && error.error_len().is_none(),
    };
    let charset = match is_utf8 {
        true => Charset::Utf8,
        false if head.iter().any(|byte| matches!(byte, 0x80..=0x9f)) => Charset::Windows1252,
        false => Charset::Latin1,
    };
    Some((charset, 0))
}

/// Detects a program by the interpreter in its first line, and some formats by their first words.
fn program(text: &[u8]) -> Option<&'static Type> {
    if text.starts_with(b"WEBVTT") {
        return Some(&t::WEBVTT);
    }
    if text.starts_with(b"BEGIN:VCARD") {
        return Some(&t::VCARD);
    }
    if text.starts_with(b"BEGIN:VCALENDAR") {
        return Some(&t::CALENDAR);
    }
    let line = text.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let mut name = words.next()?.rsplit(|byte| *byte == b'/').next()?;
    if name == b"env" {
        name = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='))?;
    }
    let name = name.trim_ascii_end();
    [
        (&b"python"[..], &t::PYTHON),
        (b"perl", &t::PERL),
        (b"lua", &t::LUA),
        (b"tclsh", &t::TCL),
        (b"wish", &t::TCL),
        (b"node", &t::JAVASCRIPT),
        (b"php", &t::PHP),
        (b"sh", &t::SHELL),
        (b"bash", &t::SHELL),
        (b"dash", &t::SHELL),
        (b"zsh", &t::SHELL),
        (b"ksh", &t::SHELL),
    ]
    .into_iter()
    .find(|(known, _)| name.starts_with(known))
    .map(|(_, found)| found)
}

/// Detects text formats for data.
fn data(text: &[u8], cut: bool) -> Option<&'static Type> {
    json(text, cut).or_else(|| {
        [(b',', &t::CSV), (b'\t', &t::TSV)]
            .into_iter()
            .find(|(separator, _)| is_table(text, *separator, cut))
            .map(|(_, found)| found)
            .or_else(|| is_subrip(text).then_some(&t::SUBRIP))
    })
}

fn json(text: &[u8], cut: bool) -> Option<&'static Type> {
    if !matches!(text.trim_ascii_start().first()?, b'{' | b'[') {
        return None;
    }
    if is_json(text, cut) {
        let names =
            [&b"\"FeatureCollection\""[..], b"\"Feature\"", b"\"Point\"", b"\"Polygon\"", b"\"LineString\""];
        let tells = |name: &[u8]| memchr::memmem::find(text, name).is_some();
        let is_geo = tells(b"\"type\"")
            && (tells(b"\"features\"") || tells(b"\"coordinates\"") || tells(b"\"geometry\""));
        return Some(if is_geo && names.into_iter().any(tells) { &t::GEOJSON } else { &t::JSON });
    }
    let mut lines = text.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).peekable();
    let mut count = 0;
    while let Some(line) = lines.next() {
        let is_object = matches!(line.trim_ascii_start().first(), Some(b'{' | b'['));
        if !is_object || !is_json(line, cut && lines.peek().is_none()) {
            return None;
        }
        count += 1;
    }
    (count > 1).then_some(&t::NDJSON)
}

/// True if the text is one JSON value or, if `cut`, the beginning of one.
fn is_json(text: &[u8], cut: bool) -> bool {
    match serde_json::from_slice::<IgnoredAny>(text) {
        Ok(_) => true,
        Err(error) => cut && error.is_eof(),
    }
}

/// True if the text is a table: at least two lines, all with the same number of fields, which is more than
/// one.
fn is_table(text: &[u8], separator: u8, cut: bool) -> bool {
    // Most text is not a table, which its first line shows.
    let first = text.trim_ascii_start();
    let first = memchr::memchr(b'\n', first).and_then(|end| first.get(..end)).unwrap_or(first);
    if memchr::memchr2(separator, b'"', first).is_none() {
        return false;
    }
    let (mut lines, mut fields, mut width) = (0usize, 1usize, 0usize);
    let (mut is_quoted, mut is_begun) = (false, false);
    for byte in text {
        match byte {
            b'"' => (is_quoted, is_begun) = (!is_quoted, true),
            _ if is_quoted => {}
            b'\r' => {}
            b'\n' => {
                if is_begun {
                    if lines > 0 && fields != width {
                        return false;
                    }
                    (lines, width) = (lines + 1, fields);
                }
                (fields, is_begun) = (1, false);
            }
            byte if *byte == separator => (fields, is_begun) = (fields + 1, true),
            _ => is_begun = true,
        }
    }
    if is_begun && !cut {
        if is_quoted || (lines > 0 && fields != width) {
            return false;
        }
        (lines, width) = (lines + 1, fields);
    }
    lines > 1 && width > 1
}

/// True if the text is subtitles: a number, and in the second line two times with an arrow between them.
fn is_subrip(text: &[u8]) -> bool {
    let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let is_number = |line: &[u8]| !line.is_empty() && line.iter().all(u8::is_ascii_digit);
    lines.next().is_some_and(is_number)
        && lines.next().is_some_and(|line| memchr::memmem::find(line, b" --> ").is_some() && line.len() >= 29)
}

//! Files without a signature: text of several kinds, or unknown.

use serde::de::IgnoredAny;

use super::types::{self as t, Type};
use super::{Detected, markup, script, table};

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
    /// Bytes above 127 that are neither UTF-8 nor text in Latin-1.
    Unknown,
}

/// Detects the kind of text; `cut` is true if the file continues after `head`.
///
/// The order of the attempts is that of Go's `mimetype`: a page is a page also if its rows are those of a
/// table. Only markup is looked for behind a byte order mark.
pub(super) fn detect(head: &[u8], cut: bool) -> Detected {
    let Some((charset, mark)) = charset(head, cut) else { return of(&t::UNKNOWN) };
    let text = head.get(mark..).unwrap_or_default();
    if !matches!(charset, Charset::Utf8 | Charset::Latin1 | Charset::Windows1252 | Charset::Unknown) {
        return Detected { mime: plain(charset), extension: t::PLAIN.extension };
    }
    let found = markup::find(text)
        .or_else(|| script::find(head))
        .or_else(|| data(head, cut))
        .or_else(|| opening(head))
        .unwrap_or(&t::PLAIN);
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
        Charset::Unknown => "text/plain",
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
    // As Go's `mimetype`: of the control characters of Latin-1, only the end of a line is one of a text.
    let has = |wanted: fn(&u8) -> bool| head.iter().any(wanted);
    let charset = match is_utf8 {
        true if !head.contains(&0x7f) || has(|byte| *byte > 0x7f) => Charset::Utf8,
        _ if has(|byte| matches!(byte, 0x7f..=0x84 | 0x86..=0x9f)) => Charset::Unknown,
        _ if !has(|byte| *byte > 0x9f) => Charset::Utf8,
        _ if head.contains(&0x85) => Charset::Windows1252,
        _ => Charset::Latin1,
    };
    Some((charset, 0))
}

/// Detects formats by their first words.
fn opening(head: &[u8]) -> Option<&'static Type> {
    for (words, found) in [(&b"BEGIN:VCARD"[..], &t::VCARD), (b"BEGIN:VCALENDAR", &t::CALENDAR)] {
        let rest = head.get(words.len()..).filter(|_| {
            head.get(..words.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(words))
        });
        let rest = rest.and_then(|rest| rest.strip_prefix(b"\r").unwrap_or(rest).strip_prefix(b"\n"));
        if rest.is_some_and(|rest| !rest.is_empty()) {
            return Some(found);
        }
    }
    let rest = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).strip_prefix(b"WEBVTT")?;
    matches!(rest.first(), None | Some(b'\n' | b'\r' | b' ' | b'\t')).then_some(&t::WEBVTT)
}

/// Detects text formats for data.
fn data(head: &[u8], cut: bool) -> Option<&'static Type> {
    let tables = || {
        let found = [(b',', &t::CSV), (b'\t', &t::TSV)].into_iter();
        let mut found = found.filter(|(separator, _)| table::is_table(head, *separator, cut));
        found.next().map(|(_, found)| found)
    };
    json(head, cut).or_else(|| is_subrip(head).then_some(&t::SUBRIP)).or_else(tables)
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
    // The last line may be cut.
    let text = if cut { memchr::memrchr(b'\n', text).map_or(text, |end| &text[..end]) } else { text };
    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let mut count = 0;
    for line in lines {
        if !is_json(line, false) {
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

/// True if the text is subtitles: the number 1, two times with an arrow between them, and a line that is
/// shown.
fn is_subrip(text: &[u8]) -> bool {
    let mut lines = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.next() == Some(b"1")
        && lines.next().is_some_and(is_range)
        && lines.next().is_some_and(|line| !line.is_empty())
}

/// True for two times in order, such as `00:02:16,612 --> 00:02:19,376`.
fn is_range(line: &[u8]) -> bool {
    let Some((from, rest)) = line.split_at_checked(12) else { return false };
    let Some(to) = rest.strip_prefix(b" --> ").filter(|to| to.len() == 12) else { return false };
    let form = |time: &[u8]| {
        time.iter().zip(b"00:00:00,000").all(|(byte, form)| match form {
            b'0' => byte.is_ascii_digit(),
            mark => byte == mark,
        })
    };
    form(from) && form(to) && from <= to
}

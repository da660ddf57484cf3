//! Text with tags: HTML, XML, and formats based on XML.

use super::types::{self as t, Type};

/// Tags that a page may begin with.
const TAGS: &[&str] = &[
    "html", "head", "script", "iframe", "h1", "div", "font", "table", "a", "style", "title", "b", "body",
    "br", "p",
];

/// Returns the type of markup, if the text is markup.
pub(super) fn find(text: &[u8]) -> Option<&'static Type> {
    let text = text.trim_ascii_start();
    if text.starts_with(b"<?php") {
        return Some(&t::PHP);
    }
    if !text.starts_with(b"<") {
        return None;
    }
    let is_declared = begins(text, "<?xml");
    if !is_declared && begins(text, "<!doctype html") {
        return Some(&t::HTML);
    }
    match root(text) {
        Some(name) if name.eq_ignore_ascii_case(b"svg") => Some(&t::SVG),
        Some(name) if is_declared => Some(dialect(name)),
        Some(name) if TAGS.iter().any(|tag| name.eq_ignore_ascii_case(tag.as_bytes())) => Some(&t::HTML),
        _ if is_declared => Some(&t::XML),
        _ if text.starts_with(b"<!--") => Some(&t::HTML),
        _ => None,
    }
}

fn begins(text: &[u8], with: &str) -> bool {
    text.get(..with.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(with.as_bytes()))
}

/// Returns the type of an XML file by its root element.
fn dialect(name: &[u8]) -> &'static Type {
    match name {
        b"rss" => &t::RSS,
        b"feed" => &t::ATOM,
        b"kml" => &t::KML,
        b"gpx" => &t::GPX,
        b"COLLADA" => &t::COLLADA,
        b"X3D" => &t::X3D,
        b"FeatureCollection" => &t::GML,
        b"html" => &t::XHTML,
        _ => &t::XML,
    }
}

/// Returns the name of the first element, without its prefix.
fn root(text: &[u8]) -> Option<&[u8]> {
    let mut rest = text;
    loop {
        let at = memchr::memchr(b'<', rest)?;
        rest = rest.get(at + 1..)?;
        let end = match rest {
            [b'?', ..] => memchr::memmem::find(rest, b"?>")? + 2,
            [b'!', b'-', b'-', ..] => memchr::memmem::find(rest, b"-->")? + 3,
            // The internal subset of a document type may contain declarations in brackets.
            [b'!', ..] => match (memchr::memchr(b'>', rest)?, memchr::memchr(b'[', rest)) {
                (end, Some(bracket)) if bracket < end => memchr::memmem::find(rest, b"]>")? + 2,
                (end, _) => end + 1,
            },
            _ => {
                let stops = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'>' | b'/');
                let name = rest.split(stops).next()?;
                return name.rsplit(|byte| *byte == b':').next().filter(|name| !name.is_empty());
            }
        };
        rest = rest.get(end..)?;
    }
}

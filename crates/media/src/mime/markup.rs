//! Text with tags: HTML, SVG, XML, and formats based on XML, by the rules of Go's `mimetype`.

use super::types::{self as t, Type};

/// The beginnings of pages. A space or `>` follows.
const TAGS: &[&str] = &[
    "<!doctype html",
    "<html",
    "<head",
    "<script",
    "<iframe",
    "<h1",
    "<div",
    "<font",
    "<table",
    "<a",
    "<style",
    "<title",
    "<b",
    "<body",
    "<br",
    "<p",
];

/// Formats based on XML: a root element, a name space behind it, and the type. Either may be empty.
const DIALECTS: &[(&str, &str, &Type)] = &[
    ("<rss", "", &t::RSS),
    ("<feed", "xmlns=\"http://www.w3.org/2005/Atom\"", &t::ATOM),
    ("<X3D", "xmlns:xsd=\"http://www.w3.org/2001/XMLSchema-instance\"", &t::X3D),
    ("<kml", "xmlns=\"http://www.opengis.net/kml/2.2\"", &t::KML),
    ("<kml", "xmlns=\"http://earth.google.com/kml/2.0\"", &t::KML),
    ("<kml", "xmlns=\"http://earth.google.com/kml/2.1\"", &t::KML),
    ("<kml", "xmlns=\"http://earth.google.com/kml/2.2\"", &t::KML),
    ("<xliff", "xmlns=\"urn:oasis:names:tc:xliff:document:1.2\"", &t::XLIFF),
    ("<COLLADA", "xmlns=\"http://www.collada.org/2005/11/COLLADASchema\"", &t::COLLADA),
    ("", "xmlns:gml=\"http://www.opengis.net/gml\"", &t::GML),
    ("", "xmlns:gml=\"http://www.opengis.net/gml/3.2\"", &t::GML),
    ("", "xmlns:gml=\"http://www.opengis.net/gml/3.3/exr\"", &t::GML),
    ("<gpx", "xmlns=\"http://www.topografix.com/GPX/1/1\"", &t::GPX),
    (
        "<TrainingCenterDatabase",
        "xmlns=\"http://www.garmin.com/xmlschemas/TrainingCenterDatabase/v2\"",
        &t::TCX,
    ),
    ("<amf", "", &t::AMF),
    ("<model", "xmlns=\"http://schemas.microsoft.com/3dmanufacturing/core/2015/02\"", &t::MODEL_3MF),
    ("<xfdf", "xmlns=\"http://ns.adobe.com/xfdf/\"", &t::XFDF),
    ("<Ontology", "xmlns=\"http://www.w3.org/2002/07/owl#\"", &t::OWL),
];

/// The bytes in which the root element is looked for.
const ROOT: usize = 512;

/// Returns the type of markup, if the text is markup.
pub(super) fn find(text: &[u8]) -> Option<&'static Type> {
    let trimmed = text.trim_ascii_start();
    if TAGS.iter().any(|tag| begins(trimmed, tag)) {
        return Some(&t::HTML);
    }
    if memchr::memmem::find(text, b"<svg").is_some() {
        return Some(&t::SVG);
    }
    begins(trimmed, "<?xml").then(|| dialect(trimmed))
}

/// True if the text begins with this tag, whose end or attributes follow.
fn begins(text: &[u8], tag: &str) -> bool {
    let is_there =
        text.get(..tag.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(tag.as_bytes()));
    is_there && matches!(text.get(tag.len()), Some(b' ' | b'>'))
}

/// Returns the type of an XML file.
fn dialect(text: &[u8]) -> &'static Type {
    let text = text.get(..ROOT).unwrap_or(text);
    let position = |part: &str| memchr::memmem::find(text, part.as_bytes());
    let is = |(root, space, _): &&(&str, &str, &Type)| match (*root, *space) {
        ("", space) => position(space).is_some(),
        (root, "") => position(root).is_some(),
        (root, space) => position(root).is_some_and(|root| position(space).is_some_and(|space| root < space)),
    };
    DIALECTS.iter().find(is).map_or(&t::XML, |(_, _, found)| *found)
}

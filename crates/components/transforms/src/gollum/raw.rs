//! JSON that stays as it came until a formatter changes it.
//!
//! Most members of an object pass a formatter unchanged. They are ranges of the message, which are written as
//! Go writes them when they leave. (Rejected: a tree of values. It takes half of a formatter's time, and
//! sixteen times the bytes of an array of small numbers.)

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;
use thalweg_codec::json_columns::{Element, elements, members};

use super::go::{Style, write_raw, write_text};

/// A value of JSON.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Raw<'a> {
    /// A text, without quotes and escapes.
    Text(Cow<'a, str>),
    /// Another value, as JSON that was checked.
    Json(Cow<'a, str>),
}

/// The members of an object, by name.
pub(super) type Members<'a> = BTreeMap<Cow<'a, str>, Raw<'a>>;

impl<'a> Raw<'a> {
    pub(super) fn of(json: &'a str, element: Element) -> Self {
        match json.as_bytes().get(element.range().start) {
            Some(b'"') => Raw::Text(text(json, element)),
            _ => Raw::Json(Cow::Borrowed(json.get(element.range()).unwrap_or_default())),
        }
    }

    /// Returns the text, if it is one.
    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Raw::Text(text) => Some(text),
            Raw::Json(_) => None,
        }
    }

    /// Returns the number, if it is one.
    pub(super) fn as_number(&self) -> Option<f64> {
        match self {
            Raw::Json(json) if json.starts_with(|first: char| first == '-' || first.is_ascii_digit()) => {
                json.parse().ok()
            }
            _ => None,
        }
    }

    /// Returns the elements, if it is an array.
    pub(super) fn as_array(&self) -> Option<&str> {
        match self {
            Raw::Json(json) if json.starts_with('[') => Some(json),
            _ => None,
        }
    }

    /// Returns the text of a value for lists and points: texts, booleans, and numbers without an exponent.
    /// `None` for other values.
    pub(super) fn scalar(&self) -> Option<Cow<'_, str>> {
        match (self, self.as_number()) {
            (Raw::Text(text), _) => Some(Cow::Borrowed(text)),
            (_, Some(number)) => Some(Cow::Owned(number.to_string())),
            (Raw::Json(json), _) => matches!(&**json, "true" | "false").then_some(Cow::Borrowed(json)),
        }
    }

    /// Appends the value as `json.Marshal` writes it.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Raw::Text(text) => write_text(text, out),
            Raw::Json(json) => write_raw(json, Style::Json, out),
        }
    }

    fn into_owned(self) -> Raw<'static> {
        match self {
            Raw::Text(text) => Raw::Text(Cow::Owned(text.into_owned())),
            Raw::Json(json) => Raw::Json(Cow::Owned(json.into_owned())),
        }
    }
}

impl From<Value> for Raw<'_> {
    fn from(value: Value) -> Self {
        match value {
            Value::String(text) => Raw::Text(Cow::Owned(text)),
            other => Raw::Json(Cow::Owned(other.to_string())),
        }
    }
}

/// Decodes a text of JSON.
pub(super) fn text(json: &str, element: Element) -> Cow<'_, str> {
    match element.plain() {
        Some(range) => Cow::Borrowed(json.get(range).unwrap_or_default()),
        None => {
            let mut decoded = String::new();
            element.decode(json.as_bytes(), &mut decoded);
            Cow::Owned(decoded)
        }
    }
}

/// Returns a message as text.
///
/// # Errors
/// The reason why it is not JSON.
pub(super) fn checked(value: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(value)
        .map_err(|error| format!("it is not a JSON object: invalid UTF-8 at byte {}", error.valid_up_to()))
}

/// Returns the members of an object.
///
/// # Errors
/// The reason why the value is not an object.
pub(super) fn object(value: &[u8]) -> Result<Members<'_>, String> {
    let json = checked(value)?;
    let mut found = Members::new();
    members(json, |name, value| {
        found.insert(text(json, name), Raw::of(json, value));
    })
    .map_err(|reason| format!("it {reason}"))?;
    Ok(found)
}

/// Returns an array without the elements that `keeps` refuses.
pub(super) fn retained(array: &str, mut keeps: impl FnMut(&Raw<'_>) -> bool) -> Raw<'static> {
    let mut kept = String::from("[");
    // The array was checked.
    let _ = elements(array, |element| {
        if keeps(&Raw::of(array, element)) {
            if kept.len() > 1 {
                kept.push(',');
            }
            kept.push_str(array.get(element.range()).unwrap_or_default());
        }
    });
    kept.push(']');
    Raw::Json(Cow::Owned(kept))
}

/// Returns an element of an array.
pub(super) fn element(array: &str, index: usize) -> Option<Raw<'static>> {
    let (mut at, mut found) = (0, None);
    // The array was checked.
    let _ = elements(array, |element| {
        if at == index {
            found = Some(Raw::of(array, element).into_owned());
        }
        at += 1;
    });
    found
}

/// Returns the members of an object, or the elements of an array by their indices. `None` if the value is
/// neither.
pub(super) fn inner<'a>(value: &Raw<'a>) -> Option<Vec<(Cow<'a, str>, Raw<'a>)>> {
    match value {
        Raw::Json(Cow::Borrowed(json)) => parts(json),
        Raw::Json(Cow::Owned(json)) => {
            let owned =
                |(name, value): (Cow<'_, str>, Raw<'_>)| (Cow::Owned(name.into_owned()), value.into_owned());
            Some(parts(json)?.into_iter().map(owned).collect())
        }
        Raw::Text(_) => None,
    }
}

fn parts(json: &str) -> Option<Vec<(Cow<'_, str>, Raw<'_>)>> {
    let mut found = Vec::new();
    match json.as_bytes().first() {
        Some(b'{') => {
            members(json, |name, value| found.push((text(json, name), Raw::of(json, value)))).ok()?
        }
        Some(b'[') => elements(json, |element| {
            found.push((Cow::Owned(found.len().to_string()), Raw::of(json, element)));
        })
        .ok()?,
        _ => return None,
    }
    Some(found)
}

//! Places in JSON texts, as options name them: `data.items`.
//!
//! A value is found as a range of its text. Answers may be large, and a tree of one takes many times its
//! bytes.

use std::ops::Range;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::json_columns::{Element, members, value_at};

/// The names of members from the outermost object on. There are none for the whole text.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub(crate) struct JsonPath(Vec<String>);

impl TryFrom<String> for JsonPath {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == "." {
            return Ok(Self(Vec::new()));
        }
        let names: Vec<String> =
            text.strip_prefix('.').unwrap_or(&text).split('.').map(str::to_owned).collect();
        match names.iter().any(String::is_empty) {
            true => Err(format!("`{text}` is no place in a JSON text: write for example `data.items`.")),
            false => Ok(Self(names)),
        }
    }
}

impl JsonPath {
    /// Returns the range of the value. None if the text has none.
    ///
    /// # Errors
    /// The reason if the text is not JSON as far as it was read, or not an object.
    pub(crate) fn find(&self, json: &str) -> Result<Option<Range<usize>>, String> {
        let text = json.strip_prefix('\u{feff}').unwrap_or(json).trim_start();
        let mut at = json.len() - text.len()..json.len();
        let mut decoded = String::new();
        for (depth, key) in self.0.iter().enumerate() {
            let within = json.get(at.clone()).unwrap_or_default();
            if depth > 0 && !within.starts_with('{') {
                return Ok(None);
            }
            let mut found = None;
            members(within, |name, value| {
                if plain(name, within, &mut decoded) == key {
                    found = Some(value.range());
                }
            })?;
            let Some(range) = found else { return Ok(None) };
            at = at.start + range.start..at.start + range.end;
        }
        Ok(Some(at))
    }

    /// Returns the value as text: a text without quotes and escapes, a number as it is. None if there is no
    /// value, or `null`.
    ///
    /// # Errors
    /// As [`find`](Self::find), and if the value is an object or an array.
    pub(crate) fn text(&self, json: &str) -> Result<Option<String>, String> {
        let Some(range) = self.find(json)? else { return Ok(None) };
        let value = value_at(json, range.start).filter(|value| !self.0.is_empty() || ends(json, *value));
        let Some(value) = value else { return Err("is not JSON".to_owned()) };
        let text = json.get(value.range()).unwrap_or_default();
        match text.as_bytes().first() {
            Some(b'{' | b'[') => Err("has an object or an array there".to_owned()),
            Some(b'n') => Ok(None),
            _ => Ok(Some(plain(value, json, &mut String::new()).to_owned())),
        }
    }

    /// As [`text`](Self::text), of a message: if it is itself the value, it may be text that is no JSON, as
    /// elements are that have lost their quotes.
    ///
    /// # Errors
    /// As [`text`](Self::text).
    pub(crate) fn text_of_message(&self, message: &str) -> Result<Option<String>, String> {
        let text = message.trim();
        let is_json = || value_at(text, 0).is_some_and(|value| ends(text, value));
        match self.0.is_empty() && !text.is_empty() && !is_json() {
            true => Ok(Some(text.to_owned())),
            false => self.text(message),
        }
    }
}

/// True if nothing follows a value in its text.
fn ends(json: &str, value: Element) -> bool {
    json.get(value.end()..).unwrap_or_default().trim().is_empty()
}

/// Returns the plain text of an element: without quotes and escapes.
fn plain<'a>(element: Element, json: &'a str, decoded: &'a mut String) -> &'a str {
    match element.plain() {
        Some(range) => json.get(range).unwrap_or_default(),
        None => element.decode(json.as_bytes(), decoded),
    }
}

impl std::fmt::Display for JsonPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { f.write_str(".") } else { f.write_str(&self.0.join(".")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> JsonPath {
        JsonPath::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn a_value_is_found_by_the_names_of_its_members() {
        let json = " {\"a\": {\"b\\n\": 1, \"b\": [1, 2]}, \"n\": null, \"t\": \"x\\\"y\", \"f\": 1.50}";
        let found = |at: &str| path(at).find(json).unwrap().map(|range| json[range].to_owned());
        assert_eq!(found("a.b").as_deref(), Some("[1, 2]"));
        assert_eq!(found(".t").as_deref(), Some("\"x\\\"y\""));
        assert_eq!(found(".").as_deref(), Some(json.trim_start()));
        assert_eq!((found("x"), found("n.x"), found("a.b.c")), (None, None, None));
        let text = |at: &str| path(at).text(json);
        assert_eq!((text("t"), text("f")), (Ok(Some("x\"y".to_owned())), Ok(Some("1.50".to_owned()))));
        assert_eq!((text("n"), text("x")), (Ok(None), Ok(None)));
        assert_eq!(text("a.b"), Err("has an object or an array there".to_owned()));
        assert_eq!(path(".").text(" 7").unwrap().as_deref(), Some("7"));
        assert_eq!(path("a").text("\u{feff} {\"a\": 1}").unwrap().as_deref(), Some("1"));
        assert_eq!(path("a.b").to_string(), "a.b");
    }

    #[test]
    fn a_message_that_is_the_value_may_be_any_text() {
        let text = |message: &str| path(".").text_of_message(message);
        for (message, expected) in [
            ("2024-05-01T00:00:00Z", "2024-05-01T00:00:00Z"),
            ("a b", "a b"),
            ("7", "7"),
            ("\"x\"", "x"),
            (" y ", "y"),
        ] {
            assert_eq!(text(message), Ok(Some(expected.to_owned())), "{message}");
        }
        assert_eq!(text("null"), Ok(None));
        assert_eq!(text("{}"), Err("has an object or an array there".to_owned()));
        assert_eq!(text(""), Err("is not JSON".to_owned()));
        assert_eq!(path(".").text("2024-05-01"), Err("is not JSON".to_owned()));
        assert_eq!(
            path("a").text_of_message("x").unwrap_err(),
            "is not a JSON object: expected `{` at byte 0"
        );
    }

    #[test]
    fn what_is_no_object_has_a_reason() {
        assert_eq!(path("a").find("[1]"), Err("is not a JSON object: expected `{` at byte 0".to_owned()));
        assert_eq!(path(".").text(""), Err("is not JSON".to_owned()));
        let wrong = JsonPath::try_from("a..b".to_owned()).unwrap_err();
        assert_eq!(wrong, "`a..b` is no place in a JSON text: write for example `data.items`.");
    }
}

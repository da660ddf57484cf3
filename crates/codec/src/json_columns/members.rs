//! The members of a JSON object, for code that takes a value apart without a tree of it.
//!
//! A tree takes sixteen times the bytes of an array of small numbers. Members are ranges of the text instead,
//! and values that only pass through are never converted.

use super::elements::Element;
use super::scan::{Fault, Kind, fault, key, skip_blanks, value};

/// Finds the members of a JSON object and passes the name and the value of each to `found`. A name may occur
/// more than once: the last one counts.
///
/// # Errors
/// The reason if the text is not an object, or is nested too deep. Some members may have been found before.
pub fn members(object: &str, found: impl FnMut(Element, Element)) -> Result<(), String> {
    walk(object.as_bytes(), found).map_err(|fault| fault.to_string())
}

/// Returns the value that begins at an offset of a text that [`members`] has accepted.
pub fn value_at(text: &str, at: usize) -> Option<Element> {
    let (end, kind) = value(text.as_bytes(), at, 0).ok()?;
    Some(Element::new(at, end, kind))
}

fn walk(bytes: &[u8], mut found: impl FnMut(Element, Element)) -> Result<(), Fault> {
    let mut at = skip_blanks(bytes, 0);
    if bytes.get(at) != Some(&b'{') {
        return fault(at, "expected `{`");
    }
    at = skip_blanks(bytes, at + 1);
    if bytes.get(at) != Some(&b'}') {
        loop {
            let (quote, after, escaped) = key(bytes, at)?;
            let name = Element::new(at, quote + 1, if escaped { Kind::EscapedText } else { Kind::Text });
            let start = skip_blanks(bytes, after);
            let (end, kind) = value(bytes, start, 1)?;
            found(name, Element::new(start, end, kind));
            at = skip_blanks(bytes, end);
            match bytes.get(at) {
                Some(b',') => at = skip_blanks(bytes, at + 1),
                Some(b'}') => break,
                _ => return fault(at, "expected `,` or `}`"),
            }
        }
    }
    let end = skip_blanks(bytes, at + 1);
    if end < bytes.len() { fault(end, "there is more after the object") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn found(object: &str) -> Option<BTreeMap<String, Value>> {
        let mut all = BTreeMap::new();
        let json = |element: Element| serde_json::from_str(&object[element.range()]).unwrap();
        members(object, |name, value| {
            let Value::String(name) = json(name) else { panic!("{name:?} is not a text") };
            assert_eq!(value_at(object, value.range().start), Some(value));
            all.insert(name, json(value));
        })
        .ok()?;
        Some(all)
    }

    proptest! {
        #[test]
        fn members_are_those_that_serde_json_finds(text in r#"(["{}:,a0 \[\]\\n]|"a":|"b\\n":){0,16}"#) {
            let object = format!("{{{text}}}");
            let expected: Option<BTreeMap<String, Value>> = serde_json::from_str(&object).ok();
            prop_assert_eq!(found(&object), expected);
        }
    }

    #[test]
    fn what_is_no_object_has_a_reason_with_its_place() {
        for (text, reason) in [
            ("x", "is not a JSON object: expected `{` at byte 0"),
            ("[1]", "is not a JSON object: expected `{` at byte 0"),
            ("{\"a\":1 \"b\"}", "is not a JSON object: expected `,` or `}` at byte 7"),
            ("{} {}", "is not a JSON object: there is more after the object at byte 3"),
        ] {
            assert_eq!(members(text, |_, _| {}), Err(reason.to_owned()));
        }
    }
}

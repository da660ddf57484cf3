//! The elements of a JSON array, found by the same walk as members: the whole grammar is checked, and the
//! depth is bounded.

use std::ops::{ControlFlow, Range};

use super::scan::{Fault, Kind, fault, skip_blanks, unescape, value};

/// An element of an array, or the name or value of a member of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element {
    start: usize,
    end: usize,
    kind: Kind,
}

impl Element {
    pub(super) fn new(start: usize, end: usize, kind: Kind) -> Self {
        Self { start, end, kind }
    }

    /// Returns its range in the text around it: with quotes, if it is a text.
    pub fn range(self) -> Range<usize> {
        self.start..self.end
    }

    /// Returns the range of its plain text in the array's text: without quotes, if it is a text. `None` for a
    /// text with escapes, which must be [decoded](Self::decode).
    pub fn plain(self) -> Option<Range<usize>> {
        match self.kind {
            Kind::EscapedText => None,
            Kind::Text => Some(self.start + 1..self.end - 1),
            _ => Some(self.start..self.end),
        }
    }

    /// Returns the offset of its end in the array's text.
    pub fn end(self) -> usize {
        self.end
    }

    /// Decodes a text with escapes. `array` is the array's text.
    pub fn decode<'a>(self, array: &[u8], decoded: &'a mut String) -> &'a str {
        let text = array.get(self.start + 1..self.end - 1).unwrap_or_default();
        unescape(std::str::from_utf8(text).unwrap_or_default(), decoded)
    }
}

/// Finds the elements of a JSON array and passes each to `found`.
///
/// # Errors
/// The reason if the text is not an array, or is nested too deep. Some elements may have been found before.
pub fn elements(array: &str, mut found: impl FnMut(Element)) -> Result<(), String> {
    let found = |element| {
        found(element);
        ControlFlow::Continue(())
    };
    walk(array.as_bytes(), found).map_err(|fault| match fault {
        Fault::Syntax { at, what } => format!("is not a JSON array: {what} at byte {at}"),
        other => other.to_string(),
    })
}

/// Finds the elements after the one that ends at `end`, until `found` breaks. [`elements`] must have accepted
/// the array.
pub fn elements_after(array: &[u8], end: usize, found: impl FnMut(Element) -> ControlFlow<()>) {
    let comma = skip_blanks(array, end);
    if array.get(comma) == Some(&b',') {
        // The text has no fault.
        let _ = walk_elements(array, skip_blanks(array, comma + 1), found);
    }
}

fn walk(bytes: &[u8], found: impl FnMut(Element) -> ControlFlow<()>) -> Result<(), Fault> {
    let at = skip_blanks(bytes, 0);
    if bytes.get(at) != Some(&b'[') {
        return fault(at, "expected `[`");
    }
    let at = skip_blanks(bytes, at + 1);
    let end = if bytes.get(at) == Some(&b']') { at + 1 } else { walk_elements(bytes, at, found)? };
    let at = skip_blanks(bytes, end);
    if at < bytes.len() { fault(at, "there is more after the array") } else { Ok(()) }
}

/// Walks from the start of an element. Returns the end of the array, or of the element at which `found`
/// breaks.
fn walk_elements(
    bytes: &[u8],
    start: usize,
    mut found: impl FnMut(Element) -> ControlFlow<()>,
) -> Result<usize, Fault> {
    let mut at = start;
    loop {
        let (end, kind) = value(bytes, at, 1)?;
        if found(Element { start: at, end, kind }).is_break() {
            return Ok(end);
        }
        at = skip_blanks(bytes, end);
        match bytes.get(at) {
            Some(b',') => at = skip_blanks(bytes, at + 1),
            Some(b']') => return Ok(at + 1),
            _ => return fault(at, "expected `,` or `]`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn texts(array: &str) -> Result<Vec<String>, String> {
        let (mut all, mut decoded) = (Vec::new(), String::new());
        elements(array, |element| {
            all.push(match element.plain() {
                Some(range) => array[range].to_owned(),
                None => element.decode(array.as_bytes(), &mut decoded).to_owned(),
            });
        })?;
        Ok(all)
    }

    proptest! {
        #[test]
        fn elements_are_those_that_serde_json_finds(text in r#"[\[\]{}",:0-9a\\n. -]{0,24}"#) {
            let array = format!("[{text}]");
            if texts(&array).is_ok() {
                let (mut all, mut rest) = (Vec::new(), Vec::new());
                elements(&array, |element| all.push(element)).unwrap();
                for (index, element) in all.iter().enumerate() {
                    rest.clear();
                    elements_after(array.as_bytes(), element.end(), |element| {
                        rest.push(element);
                        ControlFlow::Continue(())
                    });
                    prop_assert_eq!(&rest, &all[index + 1..]);
                }
            }
            let expected: Option<Vec<Value>> = serde_json::from_str(&array).ok();
            let plain = |value: Value| match value {
                Value::String(text) => text,
                other => other.to_string(),
            };
            let found = texts(&array).ok();
            prop_assert_eq!(found.is_some(), expected.is_some());
            if !text.contains([' ', '-', '.', ':']) {
                prop_assert_eq!(found, expected.map(|all| all.into_iter().map(plain).collect()));
            }
        }

        #[test]
        fn no_depth_overflows_the_stack(depth in prop_oneof![0..300usize, 0..200_000usize], closed in any::<bool>()) {
            let end = if closed { depth } else { depth / 2 };
            let found = texts(&format!("[{}{},1]", "[".repeat(depth), "]".repeat(end)));
            prop_assert_eq!(found.is_ok(), closed && (1..127).contains(&depth));
        }
    }

    #[test]
    fn what_is_too_deep_is_told() {
        let array = format!("[{}{}]", "[".repeat(200), "]".repeat(200));
        assert_eq!(texts(&array).unwrap_err(), "is not a JSON array: nested too deep at byte 127");
    }
}

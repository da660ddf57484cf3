//! Finds malformed elements of structured data, and bounds the time that they take.
//!
//! The library parses one element after another. At one that is malformed, it skips all up to the next `]`,
//! and parses on from there. The elements that it skips stay in the text of the message. To find that an
//! element is malformed, it may read up to the end of the message. So a message of many malformed elements
//! took quadratic time: seconds for a datagram of 64 KiB. Such a message is rejected. (Rejected: a parser of
//! our own, which would have to repeat the rest of the library.)

use memchr::{memchr, memchr_iter, memchr2};

/// At most this many elements of a message may be malformed.
const MOST: usize = 16;

/// The number of fields before structured data: version, time, host, application, process and message.
const FIELDS: usize = 6;

/// True if more elements are malformed than a message may have. `message` is what follows the priority.
pub(super) fn are_malformed(message: &str) -> bool {
    if memchr_iter(b']', message.as_bytes()).nth(MOST).is_none() {
        return false;
    }
    let malformed = elements(structured_data(message).unwrap_or_default()).filter(|is_right| !is_right);
    malformed.take(MOST + 1).count() > MOST
}

/// Returns the rest of a message of RFC 5424 from its structured data on.
fn structured_data(message: &str) -> Option<&str> {
    let (version, _) = message.split_once([' ', '\t'])?;
    let is_version = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit());
    (0..FIELDS).try_fold(message, |rest, _| {
        let after = rest.trim_start_matches(|character: char| !character.is_whitespace());
        (is_version && after.len() < rest.len()).then(|| after.trim_start_matches([' ', '\t']))
    })
}

/// Returns the rest of a message of RFC 5424 from its first malformed element on.
pub(super) fn first_malformed(message: &str) -> Option<&str> {
    let mut text = structured_data(message)?;
    while let Some((is_right, after)) = next(text) {
        if !is_right {
            return Some(text);
        }
        text = after;
    }
    None
}

/// Returns for each element at the beginning of a text whether it is well-formed.
fn elements(mut text: &str) -> impl Iterator<Item = bool> {
    std::iter::from_fn(move || {
        let (is_right, after) = next(text)?;
        text = after;
        Some(is_right)
    })
}

/// Returns whether the element at the beginning of a text is well-formed, and the text after it.
fn next(text: &str) -> Option<(bool, &str)> {
    let inside = text.strip_prefix('[')?;
    match element(inside) {
        Some(after) => Some((true, after)),
        None => Some((false, inside.get(memchr(b']', inside.as_bytes())? + 1..)?)),
    }
}

/// Returns the text after an element whose `[` is before `text`. `None` if it is malformed.
fn element(text: &str) -> Option<&str> {
    let is_in_name = |character: char| !character.is_whitespace() && !matches!(character, ']' | '=');
    let after_name = text.trim_start_matches(is_in_name);
    if after_name.len() == text.len() {
        return None;
    }
    let mut rest = after_name.trim_start_matches([' ', '\t']);
    let mut after = parameter(rest);
    while let Some(next) = after {
        rest = next;
        after = rest.strip_prefix(' ').and_then(parameter);
    }
    rest.strip_prefix(']')
}

/// Returns the text after a parameter.
fn parameter(text: &str) -> Option<&str> {
    let after_name = text.trim_start_matches(|character: char| !matches!(character, ']' | '='));
    if after_name.len() == text.len() {
        return None;
    }
    let value = after_name.strip_prefix('=')?.trim_start_matches([' ', '\t']).strip_prefix('"')?;
    let mut at = 0;
    loop {
        let rest = value.as_bytes().get(at..)?;
        at += memchr2(b'"', b'\\', rest)?;
        if value.as_bytes().get(at) == Some(&b'"') {
            return value.get(at + 1..);
        }
        // The character after a backslash.
        at += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use syslog_loose::{Variant, parse_message_with_year_exact};

    fn parsed(data: &str) -> Option<usize> {
        let message = format!("<1>1 - - - - - {data} x");
        let parsed = parse_message_with_year_exact(&message, |_| 2026, Variant::RFC5424).ok()?;
        Some(parsed.structured_data.len())
    }

    #[test]
    fn elements_are_counted_where_structured_data_is() {
        let message = |data: &str| format!("1 2026-11-25T08:14:02Z\thost app  1 id {data}");
        for (data, expected) in [
            ("[a b]".repeat(16), false),
            ("[a b]".repeat(17), true),
            (format!("{}x{}", "[a b]".repeat(16), "[a b]".repeat(9)), false),
            (format!("- {}", "[a b]".repeat(99)), false),
            ("[a b=\"c\\\"]\" d=\"\"][e]".repeat(99), false),
        ] {
            assert_eq!(are_malformed(&message(&data)), expected, "{data}");
        }
        assert!(!are_malformed(&format!("Nov 25 08:14:02 host app: {}", "[a b]".repeat(99))));
        assert!(!are_malformed(&"]".repeat(99)));
    }

    #[test]
    fn the_first_malformed_element_is_found() {
        for (data, expected) in [
            ("[a b=\"c\"][d][e f=g][h] text", Some("[e f=g][h] text")),
            ("[a b=\"c\" ] [d", Some("[a b=\"c\" ] [d")),
            ("[a b=\"c\"][d", None),
            ("- [e f=g]", None),
        ] {
            assert_eq!(first_malformed(&format!("1 - host app 1 id {data}")), expected);
        }
        assert_eq!(first_malformed("Nov 25 08:14:02 host app: [e f=g]"), None);
    }

    #[test]
    fn many_malformed_elements_are_found_in_linear_time() {
        assert!(are_malformed(&format!("1 - - - - - {}", "[\" c=\"]".repeat(200_000))));
    }

    proptest! {
        #[test]
        fn elements_are_those_of_the_library(data in "(\\[|\\[a|\\]|\"|a=\"| b=\"|\\\\|=| |\t|é|\"\\]){0,14}") {
            let data = format!("[{data}");
            let text = format!("{data} x");
            let found: Vec<bool> = elements(&text).collect();
            let well_formed = found.iter().filter(|is_right| **is_right).count();
            prop_assert_eq!(parsed(&data), (!found.is_empty()).then_some(well_formed), "{}", data);
        }
    }
}

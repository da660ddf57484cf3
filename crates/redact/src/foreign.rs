//! Texts of other machines, which become parts of errors.

use std::borrow::Cow;

/// Returns a text of another machine for an error: on one line, with escapes in place of characters that
/// control a terminal or change the direction of a text.
///
/// ```
/// use thalweg_redact::foreign;
/// assert_eq!(foreign("no\r\n\u{1b}[31mred"), r"no\r\n\u{1b}[31mred");
/// ```
#[must_use]
pub fn foreign(text: &str) -> Cow<'_, str> {
    if !text.contains(is_escaped) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match is_escaped(character) {
            true => escaped.extend(character.escape_default()),
            false => escaped.push(character),
        }
    }
    escaped.into()
}

fn is_escaped(character: char) -> bool {
    let changes_direction =
        matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let ends_line = matches!(character, '\u{2028}' | '\u{2029}');
    character.is_control() || changes_direction || ends_line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_terminal_would_obey_is_escaped() {
        for (text, shown) in [
            ("Öl, 水 `a\\b` \u{65}\u{301}", "Öl, 水 `a\\b` \u{65}\u{301}"),
            ("\u{1b}]0;t\u{7}\u{9b}31m\r\nerror: x", r"\u{1b}]0;t\u{7}\u{9b}31m\r\nerror: x"),
            ("a\u{202e}b\u{2028}", r"a\u{202e}b\u{2028}"),
        ] {
            assert_eq!(foreign(text), shown);
        }
    }
}

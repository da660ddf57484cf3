//! Texts from outside, such as those of messages and of other machines, in texts for people.
//!
//! A terminal obeys some characters, and shows others not at all: a field could clear the screen, or look
//! like another one. One set of characters is escaped everywhere ([`is_unseen`]): in a text from outside that
//! becomes a part of another ([`foreign`]), and in all that is written to a terminal ([`for_terminal`]).

use std::borrow::Cow;

/// True for a character that controls a terminal, changes the direction of a text, ends a line, or has no
/// width.
#[must_use]
pub fn is_unseen(character: char) -> bool {
    let changes_direction = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    let ends_line = matches!(character, '\u{2028}' | '\u{2029}');
    let has_no_width = matches!(
        character,
        '\u{ad}' | '\u{180e}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    );
    character.is_control() || changes_direction || ends_line || has_no_width
}

/// Returns a text from outside for a text that people read: on one line, with escapes in place of characters
/// that [are not seen](is_unseen).
///
/// ```
/// use thalweg_redact::foreign;
/// assert_eq!(foreign("no\r\n\u{1b}[31mred"), r"no\r\n\u{1b}[31mred");
/// ```
#[must_use]
pub fn foreign(text: &str) -> Cow<'_, str> {
    escaped(text, is_unseen)
}

/// Returns whole lines for a terminal: as [`foreign`], but line feeds and tabs stay. With `colours`, colours
/// stay as well.
///
/// ```
/// use thalweg_redact::for_terminal;
/// assert_eq!(for_terminal("a\n\u{1b}[31mb\u{1b}[2J", false), "a\n\\u{1b}[31mb\\u{1b}[2J");
/// assert_eq!(for_terminal("a\n\u{1b}[31mb\u{1b}[2J", true), "a\n\u{1b}[31mb\\u{1b}[2J");
/// ```
#[must_use]
pub fn for_terminal(text: &str, colours: bool) -> Cow<'_, str> {
    let is_escaped = |character| is_unseen(character) && !matches!(character, '\n' | '\t');
    if !colours || !text.contains('\u{1b}') {
        return escaped(text, is_escaped);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\u{1b}') {
        let (plain, sequence) = rest.split_at(at);
        let length = length_of_colour(sequence).unwrap_or(0);
        shown += &escaped(plain, is_escaped);
        match length {
            0 => shown += &foreign("\u{1b}"),
            length => shown += &sequence[..length],
        }
        rest = &sequence[length.max(1)..];
    }
    shown += &escaped(rest, is_escaped);
    shown.into()
}

/// Returns a text in which another character of the same length stands for each that is not seen. Positions
/// in it stay valid, and so do its lines.
#[must_use]
pub fn in_place(text: &str) -> Cow<'_, str> {
    let mut characters = text.chars().peekable();
    if !text.contains(is_unseen) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len());
    while let Some(character) = characters.next() {
        let ends_line = character == '\n' || character == '\r' && characters.peek() == Some(&'\n');
        shown.push(match character.len_utf8() {
            _ if ends_line || character == '\t' || !is_unseen(character) => character,
            1 => '?',
            2 => '·',
            3 => '\u{fffd}',
            _ => '\u{1f6c7}',
        });
    }
    shown.into()
}

/// Returns lines of JSON with escapes in place of characters that are [not seen](is_unseen). Outside of
/// strings, JSON has none but white space, so all values stay the same.
///
/// ```
/// use thalweg_redact::visible_json;
/// assert_eq!(visible_json("{\"a\":\"\u{9b}2J\u{e0041}é\"}\n"), "{\"a\":\"\\u009b2J\\udb40\\udc41é\"}\n");
/// ```
#[must_use]
pub fn visible_json(lines: &str) -> Cow<'_, str> {
    let is_escaped = |character| is_unseen(character) && !matches!(character, '\n' | '\r' | '\t');
    if !lines.contains(is_escaped) {
        return lines.into();
    }
    let mut visible = String::with_capacity(lines.len());
    for character in lines.chars() {
        if is_escaped(character) {
            visible.extend(character.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            visible.push(character);
        }
    }
    visible.into()
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
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

/// Returns the length of the sequence that sets a colour, if a text begins with one.
fn length_of_colour(text: &str) -> Option<usize> {
    let numbers = text.strip_prefix("\u{1b}[")?;
    let end = numbers.find(|c: char| !(c.is_ascii_digit() || c == ';'))?;
    numbers[end..].starts_with('m').then_some("\u{1b}[".len() + end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_terminal_would_obey_or_not_show_is_escaped() {
        for (text, shown) in [
            ("Öl, 水 `a\\b` \u{65}\u{301}", "Öl, 水 `a\\b` \u{65}\u{301}"),
            ("\u{1b}]0;t\u{7}\u{9b}31m\r\nerror: x", r"\u{1b}]0;t\u{7}\u{9b}31m\r\nerror: x"),
            ("a\u{202e}b\u{2028}", r"a\u{202e}b\u{2028}"),
            ("ho\u{200b}st\u{feff}\u{e0041}", r"ho\u{200b}st\u{feff}\u{e0041}"),
        ] {
            assert_eq!(foreign(text), shown);
            assert_eq!(foreign(shown), shown);
        }
    }

    #[test]
    fn lines_for_a_terminal_keep_their_ends_and_their_colours() {
        for (text, plain, coloured) in [
            ("a\tb\n", "a\tb\n", "a\tb\n"),
            ("a\rb", r"a\rb", r"a\rb"),
            ("\u{1b}[1;31mé\u{1b}[0m\n", "\\u{1b}[1;31mé\\u{1b}[0m\n", "\u{1b}[1;31mé\u{1b}[0m\n"),
            ("\u{1b}]0;t\u{7}\u{1b}[2", r"\u{1b}]0;t\u{7}\u{1b}[2", r"\u{1b}]0;t\u{7}\u{1b}[2"),
            ("\u{1b}\u{1b}[m", r"\u{1b}\u{1b}[m", "\\u{1b}\u{1b}[m"),
        ] {
            assert_eq!(for_terminal(text, false), plain);
            assert_eq!(for_terminal(text, true), coloured);
        }
    }

    #[test]
    fn positions_stay_valid_in_place() {
        let text = "a\u{1b}\u{9b}\u{202e}\u{e0041}\r\n\tb\rc";
        let shown = in_place(text);
        assert_eq!(shown, "a?·\u{fffd}\u{1f6c7}\r\n\tb?c");
        assert_eq!(shown.len(), text.len());
        assert_eq!(in_place("plain"), "plain");
    }
}

//! Finds a part of a scalar's text in the document.
//!
//! The text of a scalar can differ from its source: escapes are resolved, lines are folded, indentation is
//! dropped. A format that finds a mistake at byte 7 of the text needs the corresponding byte of the document.
//! Both are walked side by side. If they differ by more than quoting and folding explain (a variable was
//! substituted), the whole scalar is returned.

use std::ops::Range;

use crate::Span;

/// Returns the position in `source` of the bytes `part` of a scalar's `text`, which was read from `whole`.
pub(crate) fn within(source: &str, whole: Span, text: &str, part: Range<usize>) -> Span {
    locate(source, whole, text, part).unwrap_or(whole)
}

fn locate(source: &str, whole: Span, text: &str, part: Range<usize>) -> Option<Span> {
    let written = source.get(whole.start..whole.end)?;
    let (quote, mut at) = match written.chars().next() {
        _ if written == text => (None, 0),
        Some(quote @ ('"' | '\'')) => (Some(quote), 1),
        // The header of a block scalar ends at the end of its line.
        Some('|' | '>') => (None, written.find('\n')? + 1),
        _ => (None, 0),
    };
    let (mut start, mut end) = (None, None);
    for (index, character) in text.char_indices() {
        let from = loop {
            let rest = written.get(at..)?;
            let next = rest.chars().next()?;
            let (length, meaning) = match (quote, next) {
                (Some('\''), '\'') => (2, Some('\'')),
                (Some('"'), '\\') => escape(rest)?,
                _ => (next.len_utf8(), Some(next)),
            };
            if meaning == Some(character) {
                at += length;
                break at - length;
            } else if next.is_whitespace() || meaning.is_none() {
                at += length; // Removed by folding, or indentation.
            } else if character.is_whitespace() {
                break at; // Created by folding.
            } else {
                return None;
            }
        };
        if index <= part.start {
            start = Some(from);
        }
        if index < part.end {
            end = Some(at);
        }
    }
    if part.start >= text.len() {
        start = Some(at); // "Something is missing at the end."
    }
    let start = start?;
    let end = if part.is_empty() { start } else { end?.max(start) };
    Some(Span::new(whole.start + start, whole.start + end))
}

/// Returns the length of an escape sequence in bytes and the character it means; no character for an escaped
/// line break.
fn escape(rest: &str) -> Option<(usize, Option<char>)> {
    let kind = rest.chars().nth(1)?;
    let hexadecimal = |digits: usize| {
        let code = u32::from_str_radix(rest.get(2..2 + digits)?, 16).ok()?;
        Some((2 + digits, Some(char::from_u32(code)?)))
    };
    match kind {
        'x' => return hexadecimal(2),
        'u' => return hexadecimal(4), // Half of a surrogate pair has no character: returns None.
        'U' => return hexadecimal(8),
        _ => {}
    }
    let meaning = match kind {
        '\n' | '\r' => None,
        '0' => Some('\0'),
        'a' => Some('\x07'),
        'b' => Some('\x08'),
        't' => Some('\t'),
        'n' => Some('\n'),
        'v' => Some('\x0b'),
        'f' => Some('\x0c'),
        'r' => Some('\r'),
        'e' => Some('\x1b'),
        'N' => Some('\u{85}'),
        '_' => Some('\u{a0}'),
        'L' => Some('\u{2028}'),
        'P' => Some('\u{2029}'),
        other => Some(other),
    };
    Some((1 + kind.len_utf8(), meaning))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Document;

    /// Parses `text: <written>` and returns the source text at the position of `part`.
    fn found(written: &str, part: &str) -> String {
        let source = format!("text: {written}\n");
        let document = Document::parse("x", &source).unwrap();
        let node = document.root().get("text").unwrap();
        let text = node.as_str().unwrap();
        let start = text.find(part).unwrap();
        let span = within(&source, node.span, text, start..start + part.len());
        source[span.start..span.end].to_owned()
    }

    #[test]
    fn a_part_of_a_text_is_found_however_it_was_quoted() {
        assert_eq!(found("a b(c d", "(c"), "(c");
        assert_eq!(found("'it''s (c'", "(c"), "(c");
        assert_eq!(found("'it''s (c'", "'s"), "''s");
        assert_eq!(found(r#""tab\t\\d \u00e9 (c""#, "(c"), "(c");
        assert_eq!(found(r#""tab\t\\d (c""#, "\\d"), r"\\d");
        assert_eq!(found("|\n  first\n  sec(ond\n", "(ond"), "(ond");
        assert_eq!(found(">\n  first\n  sec(ond\n", "(ond"), "(ond");
        assert_eq!(found("plain\n  folded (here", "(here"), "(here");
    }

    #[test]
    fn a_text_that_differs_from_what_was_written_is_shown_whole() {
        assert_eq!(within("x: ${A}", Span::new(3, 7), "secret", 1..2), Span::new(3, 7));
        assert_eq!(within("x", Span::new(3, 70), "secret", 1..2), Span::new(3, 70));
    }

    #[test]
    fn the_end_of_a_text_is_a_place() {
        assert_eq!(within("'ab'", Span::new(0, 4), "ab", 2..2), Span::new(3, 3));
    }
}

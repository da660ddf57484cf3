//! Rewords the YAML parser's errors for a person.

use granit_parser::{ErrorKind, ScanError};

use crate::{Diagnostic, Span};

pub(crate) fn too_deep(span: Span) -> Diagnostic {
    let mut diagnostic = Diagnostic::new(span, "Mappings and lists are nested too deep.");
    diagnostic.help("The limit is 64 levels.");
    diagnostic
}

/// Returns a syntax mistake with its position and help. The parser's own words are used only for errors
/// without an entry here.
pub(crate) fn explain(text: &str, error: &ScanError) -> Diagnostic {
    use ErrorKind as Kind;
    let at = error.marker().byte_offset().unwrap_or(0).min(text.len());
    let span = match error.kind() {
        ErrorKind::UnknownQuotedScalarEscape => escape(text, at).unwrap_or_else(|| place(text, at)),
        _ => place(text, at),
    };
    let at_end = text.get(at..).is_some_and(|rest| rest.trim().is_empty());
    let line_start = text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |index| index + 1);
    let before = text.get(line_start..at).unwrap_or("");

    if let Some(diagnostic) = farther_back(text, at, line_start, error.kind()) {
        return diagnostic;
    }
    let (message, help): (String, &str) = match error.kind() {
        Kind::RecursionLimitExceeded => return too_deep(span),
        Kind::UnexpectedEofFlowSequence | Kind::UnclosedFlowCollection { open: '[' } => {
            ("A `[` is never closed.".into(), "Close the list with `]`.")
        }
        Kind::UnexpectedEofFlowMapping
        | Kind::UnexpectedEofImplicitFlowMapping
        | Kind::UnclosedFlowCollection { .. } => {
            ("A `{` is never closed.".into(), "Close the mapping with `}`.")
        }
        Kind::ExpectedFlowMappingSeparator if at_end => {
            ("The file ends inside a `{`.".into(), "Close the mapping with `}`.")
        }
        Kind::ExpectedFlowSequenceSeparator if at_end => {
            ("The file ends inside a `[`.".into(), "Close the list with `]`.")
        }
        Kind::ExpectedFlowMappingSeparator => (
            "Expected `,` or `}` in this mapping.".into(),
            "Is a comma or a closing brace missing before this?",
        ),
        Kind::ExpectedFlowSequenceSeparator => (
            "Expected `,` or `]` in this list.".into(),
            "Is a comma or a closing bracket missing before this?",
        ),
        Kind::MismatchedFlowCollectionEnd { open, close } => (
            format!("`{open}` is closed by `{close}`."),
            "Brackets are closed in the order they were opened.",
        ),
        Kind::MisplacedFlowCollectionEnd => {
            ("This closes a bracket that was not opened.".into(), "Remove it, or put quotes around the text.")
        }
        Kind::MappingValueNotAllowed | Kind::InvalidColonPlacement if before.contains(": ") => (
            "A second `:` on one line makes no sense here.".into(),
            "Put quotes around a text that contains `: `. A mapping inside goes on a line of its own, indented.",
        ),
        Kind::MappingValueNotAllowed | Kind::MappingKeyNotAllowed | Kind::InvalidColonPlacement => (
            "A key is not expected here.".into(),
            "Is the line before it, or this one, indented wrongly? Keys of one mapping start in the same column.",
        ),
        Kind::ExpectedBlockMappingKey => (
            "This does not fit the mapping around it.".into(),
            "Keys of one mapping start in the same column. Is the indentation right, and does each key have its `:`?",
        ),
        Kind::ExpectedBlockSequenceEntry => (
            "This does not fit the list around it.".into(),
            "Each element starts with `- `, in the same column as the others.",
        ),
        Kind::BlockSequenceEntryNotAllowed | Kind::BlockEntryInFlowCollection => (
            "A list element `- ` is not expected here.".into(),
            "Start the list on a line of its own, or write it as `[a, b]`.",
        ),
        Kind::InvalidIndentation | Kind::InvalidQuotedScalarIndent | Kind::InvalidFlowScalarIndent => (
            "The indentation does not fit what is around it.".into(),
            "Entries of one level start in the same column; nested entries are indented further.",
        ),
        Kind::InvalidBlockScalarIndent => (
            "A line of this text is indented less than its first.".into(),
            "Indent all lines after `|` or `>` alike.",
        ),
        Kind::SimpleKeyExpected | Kind::InvalidSimpleKey => (
            "This should be a key, but no `:` follows it.".into(),
            "Write `key: value`, or indent the line if it continues the text before it.",
        ),
        Kind::UnclosedQuotedScalar => {
            ("A quote is opened and never closed.".into(), "Close it with the same quote.")
        }
        Kind::InvalidTrailingSingleQuotedScalar => {
            ("Something follows a closed quote.".into(), "Inside of `'...'`, a quote is written twice: `''`.")
        }
        Kind::InvalidTrailingDoubleQuotedScalar => {
            ("Something follows a closed quote.".into(), "Inside of `\"...\"`, a quote is written `\\\"`.")
        }
        Kind::UnknownQuotedScalarEscape => (
            "This is not an escape sequence.".into(),
            "Inside of `\"...\"`, a backslash is written `\\\\`. In `'...'` it needs no escape.",
        ),
        Kind::UnexpectedCharacter { character: '`' | '@' } => {
            ("A text cannot start with this character.".into(), "Put quotes around it.")
        }
        Kind::UnexpectedCharacter { character: '%' } => {
            ("A text cannot start with `%`.".into(), "Put quotes around it.")
        }
        Kind::UnexpectedCharacter { character } => (
            format!("A text cannot start with `{}`.", character.escape_debug()),
            "Put quotes around it. Characters that are not seen come from a copy, or from another encoding.",
        ),
        Kind::ExpectedDocumentStart | Kind::MultipleDocumentsUnsupported => (
            "The document has ended before this.".into(),
            "A configuration is one mapping: is this line indented wrongly, or text of another file?",
        ),
        Kind::MissingAnchorOrAliasName => (
            "The name of an anchor is missing.".into(),
            "Put quotes around a text that starts with `*` or `&`.",
        ),
        Kind::CommentNotSeparated | Kind::CommentInterceptedScalar => (
            "A comment starts where it cannot.".into(),
            "Put a space before the `#`, or quotes around a text that contains one.",
        ),
        Kind::UnexpectedEof | Kind::UnexpectedEofBlockSequence | Kind::UnexpectedEofBlockMapping => {
            ("The file ends in the middle of something.".into(), "Was it cut off?")
        }
        kind => {
            (format!("This is not YAML: {kind}."), "A text with special characters needs quotes around it.")
        }
    };
    let mut diagnostic = Diagnostic::new(span, message);
    diagnostic.help(help);
    diagnostic
}

/// Returns a mistake if the text of a key without quotes begins or ends with a blank of Unicode, such as a
/// no-break space. To YAML such a blank is a part of the key.
pub(crate) fn unseen_in_key(text: &str, span: Span) -> Option<Diagnostic> {
    let before = text.len() - text.trim_start().len();
    let (at, character) = match text.chars().next().filter(|_| before > 0) {
        Some(first) => (0, first),
        None => text.char_indices().next_back().filter(|(_, last)| last.is_whitespace())?,
    };
    let start = span.start + at;
    let mut diagnostic = Diagnostic::new(
        Span::new(start, start + character.len_utf8()),
        format!("The key `{}` has a character beside it that looks like a space and is none.", text.trim()),
    );
    diagnostic.help("Remove it. Such characters come from a copy of a web page or a document.");
    Some(diagnostic)
}

/// Returns the place of the first blank of Unicode, such as a no-break space, that indents a line.
fn unseen_indentation(text: &str) -> Option<Span> {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let indentation = line.len() - line.trim_start_matches(char::is_whitespace).len();
        let blank = line.get(..indentation)?.char_indices().find(|(_, character)| !character.is_ascii());
        if let Some((at, character)) = blank {
            return Some(Span::new(start + at, start + at + character.len_utf8()));
        }
        start += line.len();
    }
    None
}

/// Looks for the cause before the position of the error: a parser often stops well after the mistake. Causes
/// are a tab, a variable between braces, an unclosed bracket or quote, and a line without its colon.
fn farther_back(text: &str, at: usize, line_start: usize, kind: &ErrorKind) -> Option<Diagnostic> {
    use ErrorKind as Kind;
    let line = text.get(line_start..)?.lines().next()?;
    let before = text.get(line_start..at)?;
    let mistake = |span: Span, message: &str, help: &str| {
        let mut diagnostic = Diagnostic::new(span, message);
        diagnostic.help(help);
        Some(diagnostic)
    };

    let blank = line.len() - line.trim_start_matches([' ', '\t']).len();
    let tab = line.get(..blank)?.find('\t').map(|tab| line_start + tab);
    let of_tabs = matches!(
        kind,
        Kind::TabNotAllowed
            | Kind::TabInBlockIndentation
            | Kind::TabInIndentation
            | Kind::TabAtBlockScalarStart
            | Kind::TabInPlainScalar
    );
    if of_tabs || tab.is_some() && before.len() <= blank {
        // The parser reports a multi-line text at its start, so the tab may be in the next line.
        let below = || {
            let next = text.get(at..)?.find('\n')? + at + 1;
            let line = text.get(next..)?;
            let blank = line.get(..line.len() - line.trim_start_matches([' ', '\t']).len())?;
            Some(next + blank.find('\t')?)
        };
        let tab = tab.or_else(|| Some(line_start + before.rfind('\t')?)).or_else(below).unwrap_or(at);
        return mistake(
            Span::new(tab, tab + 1),
            "A tab is used where only spaces are allowed.",
            "Indent with spaces.",
        );
    }

    if let Some(span) = unseen_indentation(text.get(..line_start + line.len())?) {
        return mistake(
            span,
            "The indentation has a character that looks like a space and is none.",
            "Indent with spaces. Such characters come from a copy of a web page or a document.",
        );
    }

    let open = still_open(text.get(..at)?);
    match (kind, open) {
        (
            Kind::ExpectedFlowMappingSeparator
            | Kind::ExpectedFlowSequenceSeparator
            | Kind::FlowMappingValueAdjacentCollection
            | Kind::MismatchedFlowCollectionEnd { .. }
            | Kind::MappingValueNotAllowed
            | Kind::InvalidColonPlacement,
            Some((_, '{' | '[')),
        ) if line.contains("${") => {
            let reach = (before.len() + 2).min(line.len());
            let start = line.get(..reach).unwrap_or(before).rfind("${").or_else(|| line.find("${"))?;
            let length = line.get(start..)?.find('}').map_or(2, |end| end + 1);
            let variable = line.get(start..start + length)?;
            mistake(
                Span::new(line_start + start, line_start + start + length),
                "Within `{ }` or `[ ]`, the `{` of a variable is taken for the start of a mapping.",
                &format!("Put quotes around it: `\"{variable}\"`."),
            )
        }
        (
            Kind::UnclosedQuotedScalar
            | Kind::InvalidQuotedScalarIndent
            | Kind::DocumentIndicatorInQuotedScalar,
            Some((quote, '"' | '\'')),
        ) => mistake(
            Span::new(quote, quote + 1),
            "A quote is opened here and not closed.",
            "Close it with the same quote. If the text continues, indent its other lines.",
        ),
        (
            Kind::MappingValueNotAllowed
            | Kind::ExpectedFlowMappingSeparator
            | Kind::ExpectedFlowSequenceSeparator
            | Kind::InvalidColonPlacement
            | Kind::InvalidIndentation
            | Kind::InvalidFlowScalarIndent
            | Kind::UnclosedFlowCollection { .. }
            | Kind::UnexpectedEofFlowMapping
            | Kind::UnexpectedEofImplicitFlowMapping
            | Kind::UnexpectedEofFlowSequence,
            Some((bracket, character @ ('[' | '{'))),
        ) if bracket < line_start || text.get(at..)?.trim().is_empty() => {
            let span = Span::new(bracket, bracket + 1);
            match character {
                '[' => mistake(span, "A `[` is not closed.", "Close the list with `]`."),
                _ => mistake(span, "A `{` is not closed.", "Close the mapping with `}`."),
            }
        }
        (Kind::MappingValueNotAllowed | Kind::SimpleKeyExpected | Kind::InvalidSimpleKey, None) => {
            // The line before, or this one, should have been `key: value`.
            let above = text.get(..line_start)?.trim_end();
            let above_start = above.rfind('\n').map_or(0, |index| index + 1);
            for (start, candidate) in [(line_start, line), (above_start, above.get(above_start..)?)] {
                let content = candidate.trim();
                let first = content.chars().next().unwrap_or('#');
                if let Some(colon) = content.find(':')
                    && !content.contains(": ")
                    && !content.ends_with(':')
                    && !content.starts_with('#')
                {
                    let colon = start + (candidate.len() - candidate.trim_start().len()) + colon;
                    let help = "Write `key: value`.";
                    return mistake(
                        Span::new(colon, colon + 1),
                        "A space is missing after this colon.",
                        help,
                    );
                }
                if !content.contains(':') && !matches!(first, '#' | '-' | '"' | '\'' | '|' | '>' | '[' | '{')
                {
                    let start = start + (candidate.len() - candidate.trim_start().len());
                    return mistake(
                        Span::new(start, start + content.len()),
                        "This line is neither a `key: value` nor a part of one.",
                        "Put a `:` and a space after the key. Indent a continued text further than its key.",
                    );
                }
            }
            None
        }
        _ => None,
    }
}

/// Returns the innermost bracket or quote that is open at the end of `text`, approximately as YAML sees it.
fn still_open(text: &str) -> Option<(usize, char)> {
    let mut open: Vec<(usize, char)> = Vec::new();
    let mut previous = '\n';
    let mut characters = text.char_indices().peekable();
    while let Some((index, character)) = characters.next() {
        let starts = matches!(previous, ' ' | '\t' | '\n' | '[' | '{' | ',' | '(');
        match character {
            '#' if matches!(previous, ' ' | '\t' | '\n') => {
                while characters.next_if(|(_, next)| *next != '\n').is_some() {}
            }
            '"' | '\'' if starts => {
                let mut closed = false;
                while let Some((_, next)) = characters.next() {
                    if next == '\\' && character == '"' {
                        characters.next();
                    } else if next == character {
                        closed = true;
                        break;
                    }
                }
                if !closed {
                    return Some((index, character));
                }
            }
            '[' | '{' if !open.is_empty() || starts => open.push((index, character)),
            ']' | '}' => {
                open.pop();
            }
            _ => {}
        }
        previous = character;
    }
    open.pop()
}

/// Returns the first invalid escape sequence after the start of a quoted text.
fn escape(text: &str, at: usize) -> Option<Span> {
    let mut characters = text.get(at..)?.char_indices();
    while let Some((index, character)) = characters.next() {
        if character == '\\' {
            let (_, kind) = characters.next()?;
            if !"0abtnvfre \"/\\N_LPxuU\n\r\t".contains(kind) {
                return Some(Span::new(at + index, at + index + 1 + kind.len_utf8()));
            }
        }
    }
    None
}

/// Returns the span to underline for a mistake at a byte: the word there. At the end of the file it is the
/// last character.
fn place(text: &str, at: usize) -> Span {
    let rest = text.get(at..).unwrap_or("");
    if rest.trim().is_empty() {
        let end = text.trim_end().len();
        let last = text.get(..end).and_then(|text| text.chars().next_back()).map_or(0, char::len_utf8);
        return Span::new(end - last, end);
    }
    let skipped = if rest.starts_with('\t') { 0 } else { rest.len() - rest.trim_start().len() };
    let word = rest.get(skipped..).unwrap_or("");
    let alphanumeric = |character: char| character.is_alphanumeric() || character == '_';
    let length = match word.find(|character| !alphanumeric(character)) {
        Some(0) => word.chars().next().map_or(0, char::len_utf8),
        Some(length) => length,
        None => word.len(),
    };
    Span::new(at + skipped, at + skipped + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_blank_that_is_no_space_is_found_in_indentations_only() {
        for (text, expected) in [
            ("a:\n  \u{a0}b: c", Some(Span::new(5, 7))),
            ("a:\n \u{3000} b: c\n\u{a0}d", Some(Span::new(4, 7))),
            ("a: \u{a0}b\n  c: d\u{a0}", None),
        ] {
            assert_eq!(unseen_indentation(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_blank_beside_a_key_that_is_no_space_is_found() {
        for (key, start, end) in [("\u{a0}b", 7, 9), ("\u{3000} b", 7, 10), ("b\u{a0}", 8, 10)] {
            let found = unseen_in_key(key, Span::new(7, 7 + key.len())).map(|mistake| mistake.span);
            assert_eq!(found, Some(Span::new(start, end)), "{key:?}");
        }
        for key in ["b", "a\u{a0}b", ""] {
            assert!(unseen_in_key(key, Span::new(7, 7 + key.len())).is_none(), "{key:?}");
        }
    }
}

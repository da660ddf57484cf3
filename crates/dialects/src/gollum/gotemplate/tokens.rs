//! Splits the text between the braces of a template into tokens.

use super::TemplateError;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) at: std::ops::Range<usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// `.a.b`, without its first dot; empty for `.` itself.
    Field(String),
    /// `$a` as `a`, and `$.a` as `.a`.
    Variable(String),
    Word(String),
    /// A text or number, in minijinja's notation.
    Literal(String),
    Bar,
    Assign,
    Comma,
    Open,
    Close,
}

pub(super) fn quote(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\t', "\\t");
    format!("\"{}\"", escaped.replace('\r', "\\r"))
}

pub(super) fn tokens(text: &str, start: usize) -> Result<Vec<Token>, TemplateError> {
    let mut found = Vec::new();
    let mut at = 0;
    let is_name = |character: char| character.is_alphanumeric() || character == '_';
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let first = rest.chars().next().unwrap_or(' ');
        let run = |from: usize, more: &dyn Fn(char) -> bool| {
            from + rest[from..].find(|character| !more(character)).unwrap_or(rest.len() - from)
        };
        let (length, kind) = match first {
            _ if first.is_whitespace() => {
                at += first.len_utf8();
                continue;
            }
            '|' => (1, Kind::Bar),
            '(' => (1, Kind::Open),
            ')' => (1, Kind::Close),
            ',' => (1, Kind::Comma),
            ':' if rest.starts_with(":=") => (2, Kind::Assign),
            '=' => (1, Kind::Assign),
            '.' => {
                let length = run(1, &|c| is_name(c) || c == '.');
                (length, Kind::Field(rest[1..length].to_owned()))
            }
            '$' => {
                let length = run(1, &|c| is_name(c) || c == '.');
                (length, Kind::Variable(rest[1..length].to_owned()))
            }
            '"' => {
                let mut escaped = false;
                let end = rest[1..].find(|character| {
                    let ends = character == '"' && !escaped;
                    escaped = character == '\\' && !escaped;
                    ends
                });
                let Some(end) = end else {
                    let message = "A quote is opened and never closed.".to_owned();
                    return Err(TemplateError { message, at: start + at..start + at + 1 });
                };
                (end + 2, Kind::Literal(rest[..end + 2].to_owned()))
            }
            '`' => {
                let Some(end) = rest[1..].find('`') else {
                    let message = "A quote is opened and never closed.".to_owned();
                    return Err(TemplateError { message, at: start + at..start + at + 1 });
                };
                (end + 2, Kind::Literal(quote(&rest[1..=end])))
            }
            '-' | '0'..='9' => {
                let length = run(1, &|c| c.is_ascii_digit() || c == '.');
                (length, Kind::Literal(rest[..length].to_owned()))
            }
            _ if is_name(first) => {
                let length = run(0, &is_name);
                (length, Kind::Word(rest[..length].to_owned()))
            }
            _ => {
                let message = format!("`{first}` is not expected here.");
                return Err(TemplateError { message, at: start + at..start + at + first.len_utf8() });
            }
        };
        found.push(Token { kind, at: start + at..start + at + length });
        at += length;
    }
    Ok(found)
}

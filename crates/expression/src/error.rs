//! A mistake in an expression and its position.

use std::ops::Range;

use datafusion_common::{DataFusionError, arrow::error::ArrowError};
use datafusion_sql::sqlparser::tokenizer::{Location, Span};

/// A mistake in an expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}", help.as_ref().map(|help| format!(" {help}")).unwrap_or_default())]
pub struct ExpressionError {
    /// The position of the mistake in the text, in bytes; `None` means the whole text.
    pub range: Option<Range<usize>>,
    /// The mistake: a sentence.
    pub message: String,
    /// The way to fix it: a sentence.
    pub help: Option<String>,
}

impl ExpressionError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { range: None, message: message.into(), help: None }
    }

    pub(crate) fn at(mut self, range: Option<Range<usize>>) -> Self {
        self.range = range;
        self
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// Returns the byte offset of a line and column. The column counts characters; both start at 1.
pub(crate) fn offset(sql: &str, place: Location) -> Option<usize> {
    let (line, column) = (usize::try_from(place.line).ok()?, usize::try_from(place.column).ok()?);
    let (mut start, mut rest) = (0, sql);
    for _ in 1..line {
        let end = rest.find('\n')? + 1;
        start += end;
        rest = &rest[end..];
    }
    let within = rest.char_indices().nth(column.checked_sub(1)?).map_or(rest.len(), |(at, _)| at);
    Some(start + within)
}

/// Returns the bytes that a span of the parser covers; `None` for the empty span of a node without a
/// position.
pub(crate) fn range(sql: &str, span: Span) -> Option<Range<usize>> {
    let (start, end) = (offset(sql, span.start)?, offset(sql, span.end)?);
    (start < end && end <= sql.len()).then_some(start..end)
}

/// Returns a DataFusion error in a few words, without its prefixes.
pub(crate) fn words(error: &DataFusionError) -> String {
    let root = error.find_root();
    if let DataFusionError::ArrowError(inner, _) = root {
        return match inner.as_ref() {
            ArrowError::DivideByZero => "division by zero".to_owned(),
            ArrowError::ArithmeticOverflow(text)
            | ArrowError::CastError(text)
            | ArrowError::ComputeError(text)
            | ArrowError::ParseError(text)
            | ArrowError::InvalidArgumentError(text) => lowered(text),
            other => lowered(&other.to_string()),
        };
    }
    lowered(root.message().lines().next().unwrap_or_default())
}

/// Returns the text in a form that continues a sentence: an initial capital becomes lowercase, acronyms
/// excepted.
fn lowered(text: &str) -> String {
    let text = text.trim().trim_end_matches('.');
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (Some(first), Some(second)) if first.is_ascii_uppercase() && second.is_ascii_lowercase() => {
            format!("{}{}", first.to_ascii_lowercase(), &text[1..])
        }
        _ => text.to_owned(),
    }
}

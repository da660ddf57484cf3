//! A mistake in an expression and its position.

use std::{ops::Range, sync::LazyLock};

use datafusion_common::{DataFusionError, arrow::error::ArrowError};
use datafusion_sql::sqlparser::tokenizer::{Location, Span};
use regex::{Captures, Regex};
use thalweg_redact::beginning;

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

/// Returns a DataFusion error in a few words, without its prefixes and in words of our own.
pub(crate) fn words(error: &DataFusionError) -> String {
    let root = error.find_root();
    let text = match root {
        DataFusionError::ArrowError(inner, _) => match inner.as_ref() {
            ArrowError::DivideByZero => return "division by zero".to_owned(),
            ArrowError::ArithmeticOverflow(text)
            | ArrowError::CastError(text)
            | ArrowError::ComputeError(text)
            | ArrowError::ParseError(text)
            | ArrowError::InvalidArgumentError(text) => text.clone(),
            other => other.to_string(),
        },
        root if root.message().contains(REGEX) => root.message().to_string(),
        root => root.message().lines().next().unwrap_or_default().to_owned(),
    };
    if text.contains(REGEX) {
        return format!("it is not a regular expression: {}", regex_reason(&text));
    }
    let is_planning = matches!(
        root,
        DataFusionError::Plan(_)
            | DataFusionError::NotImplemented(_)
            | DataFusionError::Internal(_)
            | DataFusionError::SchemaError(..)
    );
    // Values of messages may look like anything, but only the planner shows its structures.
    if is_planning && is_debug_output(&text) { NOT_SUPPORTED.to_owned() } else { plain(&text) }
}

/// How the message of a wrong regular expression begins.
const REGEX: &str = "regex parse error";

/// Returns the reason in the message of a wrong regular expression, which is a drawing of several lines.
pub(crate) fn regex_reason(message: &str) -> &str {
    let reason = message.lines().find_map(|line| line.trim().strip_prefix("error: "));
    reason.unwrap_or_else(|| message.lines().next().unwrap_or_default()).trim_end_matches('.')
}

/// True if a text shows structures, as in `Substring { expr: Identifier(Ident { ...`.
fn is_debug_output(text: &str) -> bool {
    let is_signature = text.contains(" failed to match any signature");
    !is_signature
        && [" { ", "Span(", "Identifier(", "::", "binary operator"].iter().any(|sign| text.contains(sign))
}

/// Returns the sentence for a call whose values have no type that the function takes, if that is the error.
/// The planner lists the types by its own structures.
fn wrong_types(text: &str) -> Option<String> {
    static NAME: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"'(\w+)'").ok());
    if let Some((function, _)) = text.split_once(" failed to match any signature") {
        let function = lowered(function.trim_start_matches("Internal error: "));
        return Some(format!("{function} does not take values of these types"));
    }
    let names_classes = text.contains(" expects ") && text.contains(" but received ");
    if !names_classes && !text.contains(" to the signature ") {
        return None;
    }
    let name = NAME.as_ref()?.captures(text).and_then(|captures| captures.get(1));
    Some(match name {
        Some(name) => format!("function '{}' does not take values of these types", name.as_str()),
        None => "a function does not take values of these types".to_owned(),
    })
}

/// Returns the sentence for an operator or a function between values whose types do not fit, if that is the
/// error. The types are nouns already.
fn wrong_operands(text: &str) -> Option<String> {
    type Rule = (LazyLock<Option<Regex>>, &'static str);
    static RULES: [Rule; 7] = [
        (
            LazyLock::new(|| {
                Regex::new(r"(?i)^cannot coerce arithmetic expression (time [-+] (?:integer|number)|(?:integer|number) [-+] time) to valid types$").ok()
            }),
            "`$1` has no unit: a span of time is written `INTERVAL '5 minutes'`",
        ),
        (
            LazyLock::new(|| {
                Regex::new(r"(?i)^cannot coerce arithmetic expression (.+?) ([-+*/%]) (.+) to valid types$")
                    .ok()
            }),
            "`$2` does not take values of the types $1 and $3",
        ),
        (
            LazyLock::new(|| {
                Regex::new(r"(?i)^cannot get result type for arithmetic operation (.+?) ([-+*/%]) (.+?): .+$")
                    .ok()
            }),
            "`$2` does not take values of the types $1 and $3",
        ),
        (
            LazyLock::new(|| {
                Regex::new(r"(?i)^cannot infer common argument type for logical boolean operation (.+) (and|or) (.+)$").ok()
            }),
            "`$2` combines conditions, not values of the types $1 and $3",
        ),
        (
            LazyLock::new(|| {
                Regex::new(r"(?i)^cannot infer common argument type for comparison operation (.+?) (?:=|<>|!=|<=?|>=?|is (?:not )?distinct from) (.+)$").ok()
            }),
            "a value of the type $1 cannot be compared with one of the type $2",
        ),
        (
            LazyLock::new(|| {
                Regex::new(r"(?i)^there isn't a common type to coerce (.+) and (.+) in (\w+) expression$")
                    .ok()
            }),
            "`$3` compares texts, not values of the types $1 and $2",
        ),
        (
            LazyLock::new(|| {
                Regex::new(r"(?i)^function '(\w+)' requires (?:string|text), but received (?:\w+ \(DataType: )?(\w+)\)?$").ok()
            }),
            "the function `$1` takes text, not values of the type $2",
        ),
    ];
    let text = text.trim().trim_end_matches('.');
    RULES.iter().find_map(|(rule, sentence)| {
        let captures = rule.as_ref()?.captures(text)?;
        let mut said = String::new();
        captures.expand(sentence, &mut said);
        let has_null = captures.iter().skip(1).flatten().any(|part| part.as_str() == NULL);
        if has_null {
            said += "; a field that no message has is NULL";
        }
        Some(said)
    })
}

/// The noun for the type of NULL.
const NULL: &str = "NULL";

/// The most characters of a value that are shown.
const SHOWN: usize = 60;

/// The text that replaces one that only shows the insides of the planner.
const NOT_SUPPORTED: &str = "expressions do not support this form of SQL";

/// Returns an error text without the notation of Rust and Arrow, lowered to continue a sentence.
fn plain(text: &str) -> String {
    static CAST: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"^(?:Cannot cast string|Can't cast value|Cannot cast value) '?(.*?)'? to (?:value of )?(?:type )?(\w+).*$").ok()
    });
    static TYPES: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"\b(?:(Utf8View|LargeUtf8|Utf8)|(U?Int(?:8|16|32|64))|(Float(?:16|32|64)|Decimal\d+(?:\([^)]*\))?)|(Boolean)|(Timestamp(?:\((?:[^()]|\([^()]*\))*\))?|Date(?:32|64)|Time(?:32|64)(?:\([^)]*\))?)|(Interval(?:\([^)]*\))?|Duration(?:\([^)]*\))?)|(Null)\b)").ok()
    });
    static RECEIVED: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"\w+ \(DataType: ([^)]*)\)").ok());
    static TIME: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"(?s)^Error parsing timestamp from '(.*?)'(?: using format '(.*)')?: .+$").ok()
    });
    const NOUNS: [&str; 7] = ["text", "integer", "number", "boolean", "time", "interval", NULL];
    let noun = |captures: &Captures| {
        let group = (1..=NOUNS.len()).find(|group| captures.get(*group).is_some());
        group.and_then(|group| NOUNS.get(group - 1)).copied().unwrap_or_default().to_owned()
    };
    if let Some(captures) = CAST.as_ref().and_then(|cast| cast.captures(text)) {
        let kind = captures.get(2).map_or("", |kind| kind.as_str());
        let wanted = match kind {
            _ if kind.starts_with("Int") || kind.starts_with("UInt") => "a whole number of 64 bits",
            _ if kind.starts_with("Float") || kind.starts_with("Decimal") => "a number",
            "Boolean" => "true or false",
            _ if kind.starts_with("Timestamp") || kind.starts_with("Date") => "a time",
            _ => "a value of the wanted type",
        };
        let value = beginning(captures.get(1).map_or("", |value| value.as_str()), SHOWN);
        return format!("`{value}` is not {wanted}");
    }
    if let Some(captures) = TIME.as_ref().and_then(|time| time.captures(text)) {
        let part = |group| captures.get(group).map(|part| beginning(part.as_str(), SHOWN));
        let value = part(1).unwrap_or_default();
        return match part(2) {
            Some(form) => format!("`{value}` does not have the form `{form}`"),
            None => format!("`{value}` is not a time"),
        };
    }
    if let Some(sentence) = wrong_types(text) {
        return sentence;
    }
    let in_nouns = |text: &str| match TYPES.as_ref() {
        Some(types) => types.replace_all(text, noun).into_owned(),
        None => text.to_owned(),
    };
    if let Some(sentence) = wrong_operands(&in_nouns(text)) {
        return sentence;
    }
    // The inner error says more.
    let text = text.rsplit("Error during planning: ").next().unwrap_or(text);
    let text = in_nouns(text);
    let text = match RECEIVED.as_ref() {
        Some(received) => received.replace_all(&text, "$1").into_owned(),
        None => text,
    };
    lowered(&text)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_at_a_cut_is_not_shown_in_part() {
        let secret = "6Tn-a-token-that-a-message-repeats";
        thalweg_redact::keep_credential(secret);
        for before in [55, 59] {
            let start = "x".repeat(before);
            for (theirs, ours) in [
                (
                    format!("Cannot cast string '{start}{secret}' to value of Int64 type"),
                    format!("`{start}…` is not a whole number of 64 bits"),
                ),
                (
                    format!("Error parsing timestamp from '{start}{secret}' using format '%Y': too short"),
                    format!("`{start}…` does not have the form `%Y`"),
                ),
            ] {
                assert_eq!(words(&DataFusionError::Execution(theirs)), ours);
            }
        }
    }

    #[test]
    fn no_notation_of_the_planner_is_shown() {
        for (theirs, ours) in [
            ("Cannot cast string 'x y' to value of Int64 type", "`x y` is not a whole number of 64 bits"),
            ("Can't cast value 1e300 to type Int64", "`1e300` is not a whole number of 64 bits"),
            ("Cannot cast string 'x' to value of Float64 type", "`x` is not a number"),
            (
                "Cannot coerce Utf8View + Timestamp(Microsecond, Some(\"UTC\")) to Int64",
                "cannot coerce text + time to integer",
            ),
            (
                "Function 'power' requires Float64, but received String (DataType: Utf8View).",
                "function 'power' requires number, but received text",
            ),
            (
                "Function 'abs' expects Numeric but received String",
                "function 'abs' does not take values of these types",
            ),
            (
                "Function 'concat' user-defined coercion failed with: Error during planning: concat takes values",
                "concat takes values",
            ),
            (
                "Failed to coerce arguments to satisfy a call to 'nanvl' function: coercion from Utf8, Int64 to the \
                 signature OneOf([Coercible([Coercion { .. }])]) failed",
                "function 'nanvl' does not take values of these types",
            ),
            (
                "Coercion from Utf8View to the signature Uniform(1, [Float64, Float32]) failed",
                "a function does not take values of these types",
            ),
            (
                "Cannot infer common argument type for logical boolean operation Int64 AND Utf8View",
                "`AND` combines conditions, not values of the types integer and text",
            ),
            (
                "Cannot infer common argument type for comparison operation Int64 = Boolean",
                "a value of the type integer cannot be compared with one of the type boolean",
            ),
            (
                "There isn't a common type to coerce Int64 and Utf8View in LIKE expression",
                "`LIKE` compares texts, not values of the types integer and text",
            ),
            (
                "Function 'upper' requires String, but received Int64 (DataType: Int64).",
                "the function `upper` takes text, not values of the type integer",
            ),
            (
                "Cannot coerce arithmetic expression Timestamp(Nanosecond, Some(\"UTC\")) - Int64 to valid types",
                "`time - integer` has no unit: a span of time is written `INTERVAL '5 minutes'`",
            ),
            (
                "Cannot coerce arithmetic expression Boolean + Interval(MonthDayNano) to valid types",
                "`+` does not take values of the types boolean and interval",
            ),
            (
                "Cannot get result type for arithmetic operation Boolean + Boolean: Invalid argument error: \
                 Invalid arithmetic operation: Boolean + Boolean",
                "`+` does not take values of the types boolean and boolean",
            ),
            (
                "Cannot infer common argument type for logical boolean operation Null AND Int64",
                "`AND` combines conditions, not values of the types NULL and integer; a field that no message has is NULL",
            ),
            (
                "Error parsing timestamp from '2026-13' using format '%Y-%m': input is out of range",
                "`2026-13` does not have the form `%Y-%m`",
            ),
            ("Error parsing timestamp from 'Int64': error parsing date", "`Int64` is not a time"),
            ("Error parsing timestamp from 'a::b { '", "error parsing timestamp from 'a::b { '"),
        ] {
            assert_eq!(words(&DataFusionError::Execution(theirs.to_owned())), ours);
        }
        for theirs in [
            "Unsupported ast node in sqltorel: Substring { expr: Identifier(Ident { value: \"a\" }) }",
            "Nothing matches, expected TypeSignatureClass::Native(Int64)",
            "Unsupported binary operator: PGOverlap",
        ] {
            assert_eq!(words(&DataFusionError::Plan(theirs.to_owned())), NOT_SUPPORTED);
        }
    }
}

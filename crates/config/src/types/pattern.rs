//! A regular expression.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use super::text_type::{read_from_text, text_type};
use crate::FormatError;
use regex::bytes::Regex;

pub(crate) const FORMAT: &str = "regex";

/// A regular expression, compiled when it is read and matched against bytes.
///
/// ```
/// use thalweg_config::Pattern;
/// let pattern: Pattern = r"^(?<client>\S+)".parse().unwrap();
/// assert!(pattern.is_match(b"10.0.0.1 - -"));
/// ```
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl Pattern {
    /// Returns the compiled expression.
    pub fn regex(&self) -> &Regex {
        &self.0
    }
}

impl Deref for Pattern {
    type Target = Regex;

    fn deref(&self) -> &Regex {
        &self.0
    }
}

/// Patterns are equal if their texts are equal.
impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for Pattern {}

impl From<Pattern> for Regex {
    fn from(pattern: Pattern) -> Self {
        pattern.0
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0.as_str())
    }
}

impl FromStr for Pattern {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        Regex::new(text).map(Self).map_err(|error| explain(text, &error))
    }
}

/// Returns the reason why `regex` rejected a text, with its position. `regex` returns both only as a drawing,
/// so the text is parsed again with `regex_syntax`.
fn explain(text: &str, error: &regex::Error) -> FormatError {
    if let regex::Error::CompiledTooBig(limit) = error {
        return FormatError::new(format!(
            "The regular expression is too big: compiled, it takes more than {limit} bytes."
        ))
        .help("Repetitions with large counts, such as `\\w{1000}`, make it big.");
    }
    let parsed = regex_syntax::ParserBuilder::new().utf8(false).build().parse(text);
    let (span, reason, look_around) = match &parsed {
        Err(regex_syntax::Error::Parse(error)) => {
            use regex_syntax::ast::ErrorKind::{UnsupportedBackreference, UnsupportedLookAround};
            let unsupported = matches!(error.kind(), UnsupportedLookAround | UnsupportedBackreference);
            (*error.span(), error.kind().to_string(), unsupported)
        }
        Err(regex_syntax::Error::Translate(error)) => (*error.span(), error.kind().to_string(), false),
        _ => return FormatError::new(format!("The regular expression is wrong: {error}.")),
    };
    let error =
        FormatError::new(format!("The regular expression is wrong: {}.", reason.trim_end_matches('.')))
            .at(span.start.offset..span.end.offset);
    if look_around {
        return error
            .help("Look-around and backreferences are not supported, because matching takes linear time.");
    }
    match reason.as_str() {
        "unclosed group" | "unopened group" => {
            error.help("Every `(` needs its `)`. For the character itself write `\\(` or `\\)`.")
        }
        "unclosed character class" => {
            error.help("Every `[` needs its `]`. For the character itself write `\\[`.")
        }
        "repetition operator missing expression" => {
            error.help("There is nothing before it to repeat. For the character itself put a `\\` before it.")
        }
        _ => error,
    }
}

read_from_text!(Pattern);

text_type!(Pattern, {
    "type": "string",
    "format": FORMAT,
    "description": "A regular expression. Named groups are written `(?<name>...)`.",
    "examples": ["^(?<client>\\S+) (?<status>\\d{3})$"],
});

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> (Option<&str>, String) {
        let error = text.parse::<Pattern>().unwrap_err();
        (error.range.map(|range| &text[range]), error.message)
    }

    #[test]
    fn the_place_of_a_mistake_is_inside_the_pattern() {
        assert_eq!(refused("a(b"), (Some("("), "The regular expression is wrong: unclosed group.".into()));
        assert_eq!(refused("é*[z-a]").0, Some("z-a"));
        assert_eq!(refused("a**{2").0, Some(r"{2"));
        assert_eq!(refused(r"(?=x)").0, Some("(?="));
        assert_eq!(refused(r"\p{Nope}").0, Some(r"\p{Nope}"));
    }

    #[test]
    fn a_pattern_that_is_too_big_is_refused() {
        assert!(refused(r"(\w{1000}){1000}").1.starts_with("The regular expression is too big"));
    }

    #[test]
    fn bytes_that_are_not_text_can_be_matched() {
        assert!(r"(?-u)\xff".parse::<Pattern>().unwrap().is_match(b"\xff"));
    }
}

//! Texts with placeholders in braces, such as `{name}`.

use thalweg_config::FormatError;

/// Splits a text into literal text and placeholders. `plain` receives the literal text. `inside` receives the
/// text between two braces and its offset in `text`, in bytes. A brace itself is written twice: `{{` or `}}`.
///
/// # Errors
/// If a brace has no counterpart, or `inside` returns an error.
pub fn parse<P>(
    text: &str,
    plain: impl Fn(String) -> P,
    inside: impl Fn(&str, usize) -> Result<P, FormatError>,
) -> Result<Vec<P>, FormatError> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let length = rest.find(['{', '}']).unwrap_or(rest.len());
        literal.push_str(&rest[..length]);
        at += length;
        let rest = &rest[length..];
        if rest.starts_with("{{") || rest.starts_with("}}") {
            literal.push_str(&rest[..1]);
            at += 2;
        } else if rest.starts_with('}') {
            return Err(FormatError::new("A `}` without its `{`.")
                .at(at..at + 1)
                .help("For the character itself write `}}`."));
        } else if rest.starts_with('{') {
            let Some(length) = rest.find('}') else {
                return Err(FormatError::new("A `{` without its `}`.")
                    .at(at..at + 1)
                    .help("For the character itself write `{{`."));
            };
            if !literal.is_empty() {
                pieces.push(plain(std::mem::take(&mut literal)));
            }
            pieces.push(inside(&rest[1..length], at + 1)?);
            at += length + 1;
        }
    }
    if !literal.is_empty() {
        pieces.push(plain(literal));
    }
    Ok(pieces)
}

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
        if let Some((length, name)) = doubled(rest) {
            return Err(FormatError::new("Two braces stand for one brace, and not for a value.")
                .at(at..at + length)
                .help(format!("Write `{{{name}}}`.")));
        }
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

/// Returns the length and the name of a placeholder of Vector, Jinja and others at the beginning of a text:
/// `{{ name }}`. The blanks tell it from a brace that is meant.
fn doubled(text: &str) -> Option<(usize, &str)> {
    let inside = text.strip_prefix("{{ ")?;
    let is_part = |character: char| character.is_alphanumeric() || matches!(character, '_' | '.');
    let (name, rest) = inside.split_at(inside.find(|character: char| !is_part(character))?);
    (!name.is_empty() && rest.starts_with(" }}")).then_some((name.len() + 6, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_of_other_languages_are_a_mistake_and_doubled_ones_are_not() {
        let parsed = |text: &str| parse(text, |text| text, |inside, _| Ok(format!("<{inside}>")));
        assert_eq!(parsed("{{a}} {b}{{ {c d} }}").unwrap().concat(), "{a} <b>{ <c d> }");
        let error = parsed("out/{{ host.name }}.log").unwrap_err();
        assert_eq!((error.range, error.help.as_deref()), (Some(4..19), Some("Write `{host.name}`.")));
    }

    /// The end of a placeholder was looked for in all of the rest.
    #[test]
    fn many_braces_are_read_in_linear_time() {
        let pieces = parse(&"{{ ".repeat(1_000_000), |text| text, |inside, _| Ok(inside.to_owned())).unwrap();
        assert_eq!(pieces.concat(), "{ ".repeat(1_000_000));
    }
}

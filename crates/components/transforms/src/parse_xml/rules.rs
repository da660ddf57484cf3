//! The rules of well-formed documents that the library does not check.
//!
//! Each reads a part of the document once. Without them, a quote that is missing joins elements, and a name
//! such as `a<b` becomes a field.

use thalweg_codec::columns::shortened;

/// Returns the first character that no document may contain, and its offset.
pub(super) fn forbidden(text: &str) -> Option<(usize, char)> {
    text.char_indices().find(|(_, character)| !is_character(*character))
}

/// True if a document may contain a character, also as a reference.
pub(super) fn is_character(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..)
}

/// Checks the name of an element or attribute, or the target of an instruction.
///
/// # Errors
/// If it is not a name.
pub(super) fn name(text: &str) -> Result<(), String> {
    let mut characters = text.chars();
    match characters.next() {
        Some(first) if begins_name(first) && characters.all(continues_name) => Ok(()),
        _ => Err(format!("`{}` is not a name", shortened(text))),
    }
}

fn begins_name(character: char) -> bool {
    matches!(character, ':' | '_' | 'A'..='Z' | 'a'..='z' | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}'
        | '\u{f8}'..='\u{2ff}' | '\u{370}'..='\u{37d}' | '\u{37f}'..='\u{1fff}' | '\u{200c}'..='\u{200d}'
        | '\u{2070}'..='\u{218f}' | '\u{2c00}'..='\u{2fef}' | '\u{3001}'..='\u{d7ff}'
        | '\u{f900}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fffd}' | '\u{10000}'..='\u{effff}')
}

fn continues_name(character: char) -> bool {
    begins_name(character)
        || matches!(character, '-' | '.' | '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}'
            | '\u{203f}'..='\u{2040}')
}

/// Checks an attribute. `value` is a part of `attributes`, which are those of the element as written.
///
/// # Errors
/// If its name is none, its value contains `<`, or no blank separates it from the next.
pub(super) fn attribute(attributes: &str, key: &str, value: &str) -> Result<(), String> {
    name(key)?;
    if value.contains('<') {
        return Err(format!("the value of the attribute `{}` contains `<`", shortened(key)));
    }
    let quote = (value.as_ptr() as usize + value.len()).saturating_sub(attributes.as_ptr() as usize);
    match attributes.as_bytes().get(quote + 1) {
        None | Some(b' ' | b'\t' | b'\r' | b'\n') => Ok(()),
        Some(_) => Err(format!("no blank follows the attribute `{}`", shortened(key))),
    }
}

/// Checks a comment.
///
/// # Errors
/// If it contains `--`, or ends with `-`.
pub(super) fn comment(text: &str) -> Result<(), String> {
    match text.contains("--") || text.ends_with('-') {
        true => Err("there is `--` in a comment".to_owned()),
        false => Ok(()),
    }
}

/// Checks the target of a processing instruction.
///
/// # Errors
/// If it is not a name, or that of the declaration.
pub(super) fn target(text: &str) -> Result<(), String> {
    match text.eq_ignore_ascii_case("xml") {
        true => Err(format!("`{text}` is not the name of an instruction")),
        false => name(text),
    }
}

//! Text templates with references to the groups of a regular expression: `${1}`, `$name`.

use regex::bytes::{CaptureLocations, Regex};

/// A template whose references are replaced by the text that their groups matched.
#[derive(Debug, Clone)]
pub(crate) struct Expansion(Vec<Piece>);

#[derive(Debug, Clone)]
enum Piece {
    Text(Vec<u8>),
    Group(usize),
}

impl Expansion {
    /// Parses a template: `${name}`, `$name` (the longest possible name), and `$$` for a `$`.
    ///
    /// # Errors
    /// The name of a group that the expression does not have.
    pub(crate) fn parse(template: &str, regex: &Regex) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut literal = Vec::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('$') {
            literal.extend_from_slice(before.as_bytes());
            let braced = after.strip_prefix('{').and_then(|inside| inside.split_once('}'));
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let name = match braced {
                Some((name, _)) => name,
                None => after.split(|c| !is_name(c)).next().unwrap_or_default(),
            };
            if let Some(after) = after.strip_prefix('$') {
                literal.push(b'$');
                rest = after;
            } else if name.is_empty() && braced.is_none() {
                literal.push(b'$');
                rest = after;
            } else {
                let group = match name.parse() {
                    Ok(group) if group < regex.captures_len() => Some(group),
                    _ => regex.capture_names().position(|known| known == Some(name)),
                };
                let group = group.ok_or_else(|| name.to_owned())?;
                if !literal.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut literal)));
                }
                pieces.push(Piece::Group(group));
                rest = match braced {
                    Some((_, after)) => after,
                    None => after.get(name.len()..).unwrap_or_default(),
                };
            }
        }
        literal.extend_from_slice(rest.as_bytes());
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal));
        }
        Ok(Self(pieces))
    }

    /// Returns the group if the template consists of one reference only.
    pub(crate) fn only(&self) -> Option<usize> {
        match self.0.as_slice() {
            [Piece::Group(group)] => Some(*group),
            _ => None,
        }
    }

    /// Appends the text for a match in `value`. Without a match, all groups are empty.
    pub(crate) fn write(&self, value: &[u8], found: Option<&CaptureLocations>, out: &mut Vec<u8>) {
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text),
                Piece::Group(group) => {
                    let place = found.and_then(|found| found.get(*group));
                    out.extend_from_slice(
                        place.and_then(|(start, end)| value.get(start..end)).unwrap_or_default(),
                    );
                }
            }
        }
    }
}

/// Returns the mistake for a reference to an unknown group.
pub(crate) fn unknown_group(option: &'static str, name: &str) -> thalweg_engine::Mistake {
    let message = format!("The regular expression has no group `{name}`.");
    thalweg_engine::Mistake::new(option, message)
        .help("Groups are written `$1` or `$name`; where a letter, a digit or `_` follows, `$${1}`.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn groups_are_known_by_number_and_name() {
        let regex = Regex::new("(a)(?<b>b)?").unwrap();
        let unknown = |text| Expansion::parse(text, &regex).unwrap_err();
        assert_eq!([unknown("$3"), unknown("${c}"), unknown("$1b")], ["3", "c", "1b"]);
        assert_eq!(Expansion::parse("${1}", &regex).unwrap().only(), Some(1));
        assert_eq!(Expansion::parse("$b ", &regex).unwrap().only(), None);
    }

    proptest! {
        #[test]
        fn it_is_what_the_library_makes_of_it(template in "[$]{0,2}[{]?[12b]?[}]?[ x$]{0,3}[$]?[1b]?", text in "[ab]{0,4}") {
            let regex = Regex::new("(a)(?<b>b)?").unwrap();
            let (Ok(expansion), Some(captures)) = (Expansion::parse(&template, &regex), regex.captures(text.as_bytes())) else {
                return Ok(());
            };
            let mut expected = Vec::new();
            captures.expand(template.as_bytes(), &mut expected);
            let mut locations = regex.capture_locations();
            regex.captures_read(&mut locations, text.as_bytes());
            let mut written = Vec::new();
            expansion.write(text.as_bytes(), Some(&locations), &mut written);
            prop_assert_eq!(written, expected);
        }
    }
}

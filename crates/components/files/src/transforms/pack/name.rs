//! The names of packed files.

use std::borrow::Cow;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use thalweg_config::{FormatError, nearest, register_format};

use thalweg_codec::braces;
use thalweg_codec::time_text::TimeText;

use crate::padding;

const FORMAT: &str = "pack-name";

const KNOWN: [&str; 4] = ["number", "date", "time", "id"];

/// A file name that may contain a number, a time or an identifier.
#[derive(Debug, Clone)]
pub struct PackName {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone)]
enum Piece {
    Literal(String),
    /// Padded with zeros to this number of digits.
    Number(usize),
    Time(TimeText),
    Id,
}

impl PackName {
    /// Returns the name of the file with this number, begun at this time.
    pub(super) fn render(&mut self, number: u64, begun: DateTime<Utc>, id: &str) -> String {
        let mut name = String::new();
        for piece in &mut self.pieces {
            match piece {
                Piece::Literal(text) => name.push_str(text),
                Piece::Number(digits) => name.push_str(&format!("{number:0digits$}")),
                Piece::Time(time) => name.push_str(time.of(begun)),
                Piece::Id => name.push_str(id),
            }
        }
        name
    }
}

/// Parses the text between braces, which begins at byte `at` of the template.
fn piece(inside: &str, at: usize) -> Result<Piece, FormatError> {
    let place = at..at + inside.len();
    let (name, format) = match inside.split_once(':') {
        Some((name, format)) => (name, Some(format)),
        None => (inside, None),
    };
    match (name, format) {
        ("number", format) => padding::digits(format, place).map(Piece::Number),
        ("date", None) => time("%Y-%m-%d", place),
        ("time", Some(format)) => time(format, place),
        ("time", None) => Err(FormatError::new("The time needs a format.")
            .at(place)
            .help("For example `{time:%Y-%m-%dT%H%M%S}`.")),
        ("id", None) => Ok(Piece::Id),
        (name, Some(_)) if KNOWN.contains(&name) => {
            Err(FormatError::new(format!("`{name}` has no format.")).at(place).help("Leave out the `:`."))
        }
        (name, _) => {
            let error = FormatError::new(format!("`{name}` is not a variable of file names.")).at(place);
            Err(error.help(match nearest(name, KNOWN) {
                Some(near) => format!("Did you mean `{{{near}}}`?"),
                None => "There are `{number}`, `{date}`, `{time:%Y-%m-%d}` and `{id}`.".to_owned(),
            }))
        }
    }
}

fn time(format: &str, place: std::ops::Range<usize>) -> Result<Piece, FormatError> {
    TimeText::new(format).map(Piece::Time).ok_or_else(|| {
        FormatError::new(format!("`{format}` is not a format for a point in time."))
            .at(place)
            .help("It is written as for `strftime`, for example `%Y-%m-%d`.")
    })
}

impl FromStr for PackName {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        let mut name = Self { pieces: braces::parse(text, Piece::Literal, piece)? };
        let sample = name.render(1, DateTime::UNIX_EPOCH, "id");
        if matches!(&*sample, "" | "." | "..") || sample.contains(['/', '\0']) {
            return Err(FormatError::new(format!("`{sample}` is not a valid file name.")).help(
                "It must not contain `/`: a sink `directory` has its own `name`, which may lead into folders.",
            ));
        }
        Ok(name)
    }
}

impl<'de> Deserialize<'de> for PackName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for PackName {
    fn schema_name() -> Cow<'static, str> {
        "PackName".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        register_format(FORMAT, |text| PackName::from_str(text).map(|_| ()));
        json_schema!({ "type": "string", "format": FORMAT, "examples": ["part-{number:5}.jsonl"] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_a_number_a_time_and_an_id() {
        let begun = DateTime::from_timestamp(1_700_000_000, 0).unwrap();
        let name = |text: &str| text.parse::<PackName>().unwrap().render(7, begun, "abc");
        assert_eq!(name("part-{number}.jsonl"), "part-7.jsonl");
        assert_eq!(name("{date}_{time:%H%M}-{number:5}-{id}"), "2023-11-14_2213-00007-abc");
        assert_eq!(name("{{{number}}}"), "{7}");
    }

    #[test]
    fn what_is_wrong_with_a_name_is_said() {
        let message = |text: &str| text.parse::<PackName>().unwrap_err().message;
        assert_eq!(message("a/{number}"), "`a/1` is not a valid file name.");
        assert_eq!(message("{time:%Y/%m}"), "`1970/01` is not a valid file name.");
        assert_eq!(message(".."), "`..` is not a valid file name.");
        assert_eq!(message(""), "`` is not a valid file name.");
        assert_eq!(message("{time}"), "The time needs a format.");
        assert_eq!(message("{id:3}"), "`id` has no format.");
        assert_eq!(message("{number:x}"), "`x` is not a number of digits from 1 to 20.");
        assert_eq!(message("{number"), "A `{` without its `}`.");
        let help = "{nummer}".parse::<PackName>().unwrap_err().help;
        assert_eq!(help.as_deref(), Some("Did you mean `{number}`?"));
    }
}

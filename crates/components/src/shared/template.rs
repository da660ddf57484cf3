//! Texts with columns in them: paths of files, lines of plain text.
//!
//! `{name}` stands for a column, `{name:%Y-%m-%d}` for a point in time in strftime's notation. Braces are used since
//! shells, SQL and regular expressions leave them alone in such texts, and strftime's `%` stays free.

use std::borrow::Cow;
use std::str::FromStr;

use chrono::format::{Item, StrftimeItems};
use chrono::{DateTime, Utc};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use thalweg_config::{FormatError, register_format};
use thalweg_record::{Batch, PAYLOAD};

use super::values::Values;

const FORMAT: &str = "template";

/// The name of the present time in templates.
const NOW: &str = "now";

/// A text with columns in it.
///
/// `{name}` is replaced by the value of the field `name`, or of `payload`, `meta.source`, `meta.path`, `meta.time` or
/// `meta.position`; NULL is replaced by nothing. `{name:%Y-%m-%d}` writes a point in time as strftime does, in
/// UTC; `{now:%H}` the present one. Braces themselves are written `{{` and `}}`.
#[derive(Debug, Clone)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone)]
enum Piece {
    Literal(String),
    Column { name: String, time: Option<TimeFormat> },
}

#[derive(Debug, Clone)]
struct TimeFormat {
    items: Vec<Item<'static>>,
    /// Whether it shows fractions of a second; if not, all times of a second have the same text.
    fractions: bool,
    /// The time that was written last, and its text: neighbours have mostly the same.
    last: Option<i64>,
    text: String,
}

impl Template {
    /// The columns that it needs.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Column { name, .. } if name != NOW => Some(name.as_str()),
            _ => None,
        })
    }

    /// Whether it is the same text for all messages, at any time.
    pub fn is_constant(&self) -> bool {
        self.pieces.iter().all(|piece| matches!(piece, Piece::Literal(_)))
    }

    /// The text that all its texts begin with: all of it, if it is constant.
    pub fn prefix(&self) -> &str {
        match self.pieces.first() {
            Some(Piece::Literal(text)) => text,
            _ => "",
        }
    }

    /// Looks its columns up in a batch. A column that the batch does not have is NULL.
    pub fn bind(&mut self, batch: &Batch) -> BoundTemplate<'_> {
        let values = self.pieces.iter().map(|piece| match piece {
            Piece::Column { name, .. } if name != NOW => column(batch, name),
            _ => Values::null(),
        });
        BoundTemplate { values: values.collect(), pieces: &mut self.pieces, now: Utc::now() }
    }
}

/// A column by the name that templates and options use, ready to be written.
pub(crate) fn column(batch: &Batch, name: &str) -> Values {
    let fields = batch.fields();
    if let Some((place, field)) = fields.schema_ref().column_with_name(name) {
        return Values::of(field, fields.column(place));
    }
    if name == PAYLOAD {
        return Values::payload(batch.payload());
    }
    match batch.column(name) {
        Some(column) => {
            let field = arrow_schema::Field::new(name, column.data_type().clone(), true);
            Values::of(&field, &column)
        }
        None => Values::null(),
    }
}

/// A [`Template`] and the columns of a batch.
pub struct BoundTemplate<'a> {
    pieces: &'a mut [Piece],
    values: Vec<Values>,
    now: DateTime<Utc>,
}

impl BoundTemplate<'_> {
    /// Appends its text for a message to `out`.
    pub fn render(&mut self, row: usize, out: &mut Vec<u8>) {
        for (piece, values) in self.pieces.iter_mut().zip(&self.values) {
            match piece {
                Piece::Literal(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Column { time: None, .. } => values.write_text(row, out),
                Piece::Column { name, time: Some(format) } => {
                    let time = if name == NOW { Some(self.now) } else { values.time(row) };
                    if let Some(time) = time {
                        out.extend_from_slice(format.text(time).as_bytes());
                    }
                }
            }
        }
    }
}

impl TimeFormat {
    fn text(&mut self, time: DateTime<Utc>) -> &str {
        // Times whose nanoseconds do not fit are written anew each time.
        let key = if self.fractions { time.timestamp_nanos_opt() } else { Some(time.timestamp()) };
        if key.is_none() || key != self.last {
            use std::fmt::Write as _;
            self.text.clear();
            // What cannot be written (a form that needs a named time zone, say) is left out.
            let _ = write!(self.text, "{}", time.format_with_items(self.items.iter()));
            self.last = key;
        }
        &self.text
    }
}

impl FromStr for Template {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut at = 0;
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            let plain = rest.find(['{', '}']).unwrap_or(rest.len());
            literal.push_str(&rest[..plain]);
            at += plain;
            let rest = &rest[plain..];
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
                    pieces.push(Piece::Literal(std::mem::take(&mut literal)));
                }
                pieces.push(placeholder(&rest[1..length], at + 1)?);
                at += length + 1;
            }
        }
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        Ok(Self { pieces })
    }
}

/// What stands between braces, which begins at byte `at` of the template.
fn placeholder(inside: &str, at: usize) -> Result<Piece, FormatError> {
    let (name, format) = match inside.split_once(':') {
        Some((name, format)) => (name, Some(format)),
        None => (inside, None),
    };
    let place = at..at + inside.len();
    if name.trim().is_empty() || name.contains('{') {
        return Err(FormatError::new(format!("`{{{inside}}}` names no column."))
            .at(at - 1..place.end + 1)
            .help(
                "Write the name of a field between the braces; for the characters themselves `{{` and `}}`.",
            ));
    }
    let name = name.trim().to_owned();
    let Some(format) = format else {
        if name == NOW {
            return Err(FormatError::new("The present time needs a format.")
                .at(place)
                .help("For example `{now:%Y-%m-%d}`."));
        }
        return Ok(Piece::Column { name, time: None });
    };
    let Ok(items) = StrftimeItems::new(format).parse_to_owned() else {
        return Err(FormatError::new(format!("`{format}` is not a format for a point in time."))
            .at(place.end - format.len()..place.end)
            .help("It is written as for `strftime`, for example `%Y-%m-%d`."));
    };
    let fractions = format.contains(['f', '+']);
    let time = Some(TimeFormat { items, fractions, last: None, text: String::new() });
    Ok(Piece::Column { name, time })
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Template {
    fn schema_name() -> Cow<'static, str> {
        "Template".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        register_format(FORMAT, |text| Template::from_str(text).map(|_| ()));
        json_schema!({
            "type": "string",
            "format": FORMAT,
            "description": "A text in which `{name}` is replaced by the value of that field, and `{name:%Y-%m-%d}` by a point in time.",
            "examples": ["{time:%Y-%m-%d} {level} {message}"],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, StringViewArray, TimestampMicrosecondArray};
    use arrow_schema::Field;
    use proptest::prelude::*;
    use thalweg_engine::testing::batch;

    fn example() -> Batch {
        let columns: [(&str, ArrayRef); 3] = [
            ("n", Arc::new(Int64Array::from(vec![Some(1), None]))),
            ("s", Arc::new(StringViewArray::from(vec!["a{b}", "2026-02-03T04:05:06Z"]))),
            (
                "t",
                Arc::new(
                    TimestampMicrosecondArray::from(vec![1_767_323_045_678_901, 1_767_323_045_999_999])
                        .with_timezone("UTC"),
                ),
            ),
        ];
        let columns =
            columns.map(|(name, column)| (Field::new(name, column.data_type().clone(), true), column));
        batch(["first", "second"]).set_fields(columns).unwrap()
    }

    fn rendered(template: &str) -> [String; 2] {
        let mut template: Template = template.parse().unwrap();
        let batch = example();
        let mut bound = template.bind(&batch);
        [0, 1].map(|row| {
            let mut out = Vec::new();
            bound.render(row, &mut out);
            String::from_utf8(out).unwrap()
        })
    }

    #[test]
    fn columns_are_put_in_and_null_is_nothing() {
        assert_eq!(rendered("<{n}|{ s }|{{n}}>"), ["<1|a{b}|{n}>", "<|2026-02-03T04:05:06Z|{n}>"]);
        assert_eq!(rendered("{payload} {missing}"), ["first ", "second "]);
        assert_eq!(rendered("{meta.source}/{meta.time:%Y}{meta.path}"), ["test/2023", "test/2023"]);
        assert_eq!(rendered("{t}"), ["2026-01-02T03:04:05.678901Z", "2026-01-02T03:04:05.999999Z"]);
    }

    #[test]
    fn times_are_written_as_strftime_does() {
        assert_eq!(rendered("{t:%Y/%m/%d %H:%M:%S}"), ["2026/01/02 03:04:05", "2026/01/02 03:04:05"]);
        assert_eq!(rendered("{t:%S%.3f}"), ["05.678", "05.999"]);
        assert_eq!(rendered("{s:%d}{n:%d}"), ["", "03"]);
        assert_eq!(rendered("{now:%Y}")[0].len(), 4);
    }

    #[test]
    fn it_is_known_what_it_depends_on() {
        let template: Template = "{a}{meta.time:%H}{now:%H}".parse().unwrap();
        assert_eq!(template.columns().collect::<Vec<_>>(), ["a", "meta.time"]);
        assert!(!template.is_constant());
        let constant: Template = "a}}b".parse().unwrap();
        assert!(constant.is_constant());
        assert_eq!((template.prefix(), constant.prefix()), ("", "a}b"));
    }

    #[test]
    fn mistakes_are_shown_where_they_are() {
        let place = |text: &str| text[text.parse::<Template>().unwrap_err().range.unwrap()].to_owned();
        assert_eq!(place("é {a"), "{");
        assert_eq!(place("é } a"), "}");
        assert_eq!(place("é {}"), "{}");
        assert_eq!(place("é {a:%!}"), "%!");
        assert_eq!(place("{now}"), "now");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[{}:%YfQ a-cé]{0,20}") {
            match text.parse::<Template>() {
                Ok(mut template) => {
                    let batch = example();
                    template.bind(&batch).render(0, &mut Vec::new());
                }
                Err(error) => prop_assert!(text.get(error.range.unwrap()).is_some()),
            }
        }
    }
}

//! Texts with columns in them: file paths, lines of plain text.
//!
//! `{name}` is replaced by a column, `{name:%Y-%m-%d}` by a point in time in strftime's notation. Braces are
//! used because shells, SQL and regular expressions do not use them in such texts, and strftime's `%` stays
//! free.
//!
//! See docs/decisions/028-one-column-transforms-share-a-target.md.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use arrow_array::{Array, ArrayRef, BinaryViewArray, TimestampMicrosecondArray};
use arrow_schema::Field;
use chrono::Utc;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use thalweg_config::{FormatError, Mistake, register_format};
use thalweg_record::{Ack, Batch, PAYLOAD, PayloadWriter};

use crate::block::Block;
use crate::braces;
use crate::foreign;
use crate::time_text::TimeText;
use crate::values::Values;

const FORMAT: &str = "template";

/// The name of the current time in templates.
const NOW: &str = "now";

/// The names of the host name in templates. A field with the short name takes precedence.
const HOSTNAME: &str = "hostname";
const META_HOSTNAME: &str = "meta.hostname";

/// A text with columns in it.
///
/// `{name}` is replaced by the value of the field `name`, or of `payload`, `meta.source`, `meta.path`,
/// `meta.time` or `meta.position`. NULL is replaced by nothing. `{meta.hostname}` is the name of this
/// machine. `{hostname}` is the same if messages have no field of that name. `{name:%Y-%m-%d}` writes a point
/// in time as strftime does, in UTC; `{now:%H}` writes the current time. A brace itself is written `{{` or
/// `}}`.
#[derive(Debug, Clone)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone)]
enum Piece {
    Literal(String),
    Column { name: String, time: Option<TimeText> },
}

impl Template {
    /// Returns the names of the columns that the template needs.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Column { name, .. } if name != NOW => Some(name.as_str()),
            _ => None,
        })
    }

    /// Returns the names of the columns that messages must have: not the name of this machine.
    pub fn fields(&self) -> Vec<String> {
        let is_field = |name: &&str| ![HOSTNAME, META_HOSTNAME].contains(name);
        self.columns().filter(is_field).map(str::to_owned).collect()
    }

    /// True if the text is the same for all messages at any time.
    pub fn is_constant(&self) -> bool {
        self.pieces.iter().all(|piece| matches!(piece, Piece::Literal(_)))
    }

    /// Returns the literal text at the start of the template. For a constant template, that is the whole
    /// text.
    pub fn prefix(&self) -> &str {
        match self.pieces.first() {
            Some(Piece::Literal(text)) => text,
            _ => "",
        }
    }

    /// Returns the literal text at the end of the template. For a constant template, that is the whole text.
    pub fn suffix(&self) -> &str {
        match self.pieces.last() {
            Some(Piece::Literal(text)) => text,
            _ => "",
        }
    }

    /// Returns the remark on an option with this template whose text has a placeholder of another program.
    pub fn remark(&self, option: &'static str) -> Option<Mistake> {
        let text = |piece: &Piece| match piece {
            Piece::Literal(text) => text.replace('{', "{{").replace('}', "}}"),
            Piece::Column { name, .. } => format!("{{{name}}}"),
        };
        foreign::remark(option, &self.pieces.iter().map(text).collect::<String>())
    }

    /// Returns the template without the first bytes of its [`prefix`](Self::prefix).
    #[must_use]
    pub fn without_prefix(&self, bytes: usize) -> Self {
        let mut pieces = self.pieces.clone();
        if let Some(Piece::Literal(text)) = pieces.first_mut() {
            *text = text.get(bytes..).unwrap_or_default().to_owned();
        }
        Self { pieces }
    }

    /// Looks up the template's columns in a batch. A column that the batch lacks is NULL. The name `payload`
    /// is a field of that name in the messages that have it, and the payload in all others.
    pub fn bind(&mut self, batch: &Batch) -> BoundTemplate<'_> {
        let now = Utc::now();
        let mut bound = Binding::default();
        for piece in &mut self.pieces {
            match piece {
                Piece::Literal(text) => bound.text.extend_from_slice(text.as_bytes()),
                Piece::Column { name, time: Some(format) } if name == NOW => {
                    bound.text.extend_from_slice(format.of(now).as_bytes());
                }
                Piece::Column { name, time } => bound.column(batch, name, time.as_mut()),
            }
        }
        bound.end();
        BoundTemplate { pieces: bound.pieces }
    }
}

/// Adds to the reasons of rejected messages which fields of these templates have no value there. Each reason
/// is given with the row of its message.
pub fn explain<'t>(
    templates: impl IntoIterator<Item = &'t Template>,
    batch: &Batch,
    rejected: &mut [(u32, String)],
) {
    if rejected.is_empty() {
        return;
    }
    let mut columns = BTreeMap::new();
    for piece in templates.into_iter().flat_map(|template| &template.pieces) {
        if let Piece::Column { name, time } = piece
            && ![NOW, HOSTNAME, META_HOSTNAME].contains(&name.as_str())
            && !hides_payload(batch, name)
        {
            columns.insert(name, (column(batch, name), time.is_some()));
        }
    }
    let mut text = Vec::new();
    for (row, reason) in rejected {
        let row = *row as usize;
        let mut lead = ": ";
        for (name, (values, is_time)) in &columns {
            text.clear();
            values.write_text(row, &mut text);
            let lacks = match (text.is_empty(), *is_time && values.time(row).is_none()) {
                (true, _) => "value",
                (false, true) => "time",
                (false, false) => continue,
            };
            let _ = write!(reason, "{lead}`{name}` has no {lacks}");
            lead = ", ";
        }
    }
}

/// Returns the value of a name that has one value for all messages of a batch. `None` for other names.
fn same_for_all(batch: &Batch, name: &str) -> Option<Values> {
    if name != META_HOSTNAME && batch.field(name).is_some() {
        return None;
    }
    match name {
        "meta.source" => Some(Values::one(&batch.meta().source)),
        "meta.path" => Some(batch.meta().path.as_deref().map_or_else(Values::null, Values::one)),
        "meta.time" => {
            let time = TimestampMicrosecondArray::from_value(batch.meta().time_us, 1).with_timezone("UTC");
            let field = Field::new(name, time.data_type().clone(), false);
            Some(Values::of(&field, &(Arc::new(time) as ArrayRef)))
        }
        META_HOSTNAME | HOSTNAME => Some(Values::one(host_name())),
        _ => None,
    }
}

/// True if a name is that of the payload, and some messages have a field of that name.
fn hides_payload(batch: &Batch, name: &str) -> bool {
    let field = batch.field(name).filter(|_| name == PAYLOAD);
    field.is_some_and(|(place, _)| batch.fields().column(place).null_count() > 0)
}

/// Returns the batch without a field.
fn without(batch: &Batch, name: &str) -> Batch {
    let mut fields = batch.fields().clone();
    if let Some((place, _)) = batch.fields().schema_ref().column_with_name(name) {
        fields.remove_column(place);
    }
    let bare = batch.with_ack(Ack::noop());
    // The number of rows is the same.
    bare.with_fields(fields).unwrap_or_else(|_| batch.with_ack(Ack::noop()))
}

/// Returns a column by the name that templates and options use, ready to be written.
pub fn column(batch: &Batch, name: &str) -> Values {
    if let Some((place, field)) = batch.field(name) {
        return Values::of(field, batch.fields().column(place));
    }
    if name == PAYLOAD {
        return Values::payload(batch.payload());
    }
    match batch.column(name) {
        Some(column) => {
            let field = Field::new(name, column.data_type().clone(), true);
            Values::of(&field, &column)
        }
        None => Values::null(),
    }
}

/// Returns the name of this machine.
fn host_name() -> &'static str {
    static NAME: LazyLock<String> = LazyLock::new(|| match hostname::get() {
        Ok(name) => name.to_string_lossy().into_owned(),
        Err(_) => String::new(),
    });
    &NAME
}

/// A [`Template`] with the columns of a batch.
pub struct BoundTemplate<'a> {
    pieces: Vec<Bound<'a>>,
}

/// A piece of the template in one batch. Adjacent pieces that are the same for all messages are merged into
/// one text.
enum Bound<'a> {
    Text(Block),
    Bytes(BinaryViewArray),
    Values(Values),
    Time(Values, &'a mut TimeText),
    /// A field called `payload`, and the payload of the messages without the field.
    Mixed(Values, Values, Option<&'a mut TimeText>),
}

/// The pieces bound so far.
#[derive(Default)]
struct Binding<'a> {
    pieces: Vec<Bound<'a>>,
    /// The text to put before the next piece.
    text: Vec<u8>,
}

impl<'a> Binding<'a> {
    fn push(&mut self, piece: Bound<'a>) {
        self.end();
        self.pieces.push(piece);
    }

    /// Adds a column, or its text if it is the same for all messages.
    fn column(&mut self, batch: &Batch, name: &str, time: Option<&'a mut TimeText>) {
        if hides_payload(batch, name) {
            let (field, hidden) = (column(batch, name), column(&without(batch, name), name));
            return self.push(Bound::Mixed(field, hidden, time));
        }
        match (same_for_all(batch, name), time) {
            (Some(value), Some(format)) => {
                let text = value.time(0).map_or("", |time| format.of(time));
                self.text.extend_from_slice(text.as_bytes());
            }
            (Some(value), None) => value.write_text(0, &mut self.text),
            (None, Some(format)) => self.push(Bound::Time(column(batch, name), format)),
            (None, None) => {
                let values = column(batch, name);
                self.push(values.bytes().map_or_else(|| Bound::Values(values), Bound::Bytes));
            }
        }
    }

    fn end(&mut self) {
        if !self.text.is_empty() {
            self.pieces.push(Bound::Text(Block::new(std::mem::take(&mut self.text))));
        }
    }
}

impl BoundTemplate<'_> {
    /// Appends the text of one message to `out`.
    #[inline]
    pub fn render(&mut self, row: usize, out: &mut Vec<u8>) {
        for piece in &mut self.pieces {
            match piece {
                Bound::Text(text) => text.write(out),
                Bound::Bytes(bytes) if bytes.is_null(row) => {}
                Bound::Bytes(bytes) => out.extend_from_slice(bytes.value(row)),
                Bound::Values(values) => values.write_text(row, out),
                Bound::Time(values, format) => {
                    if let Some(time) = values.time(row) {
                        out.extend_from_slice(format.of(time).as_bytes());
                    }
                }
                Bound::Mixed(field, hidden, format) => {
                    let values = if field.is_null(row) { hidden } else { field };
                    match format {
                        Some(format) => {
                            let text = values.time(row).map_or("", |time| format.of(time));
                            out.extend_from_slice(text.as_bytes());
                        }
                        None => values.write_text(row, out),
                    }
                }
            }
        }
    }

    /// Writes the texts of the first `rows` messages, each as a payload. `row_bytes` is an estimate of the
    /// bytes per message.
    pub(crate) fn render_all(&mut self, rows: usize, row_bytes: usize) -> BinaryViewArray {
        // The common forms, a text before and after one column, do not choose among pieces for each message.
        let empty = Block::new(Vec::new());
        let (before, column, after) = match self.pieces.as_slice() {
            [Bound::Bytes(column)] => (&empty, column, &empty),
            [Bound::Text(before), Bound::Bytes(column)] => (before, column, &empty),
            [Bound::Bytes(column), Bound::Text(after)] => (&empty, column, after),
            [Bound::Text(before), Bound::Bytes(column), Bound::Text(after)] => (before, column, after),
            _ => {
                let mut written = PayloadWriter::with_capacity(row_bytes.saturating_mul(rows), rows);
                for row in 0..rows {
                    self.render(row, written.buffer());
                    written.end();
                }
                return written.finish();
            }
        };
        let around = before.text().len() + after.text().len();
        let bytes = column.lengths().map(|length| length as usize + around).sum::<usize>();
        let mut written = PayloadWriter::with_capacity(bytes + Block::SIZE, rows);
        if column.null_count() == 0 {
            for row in 0..rows {
                let out = written.buffer();
                before.write(out);
                out.extend_from_slice(column.value(row));
                after.write(out);
                written.end();
            }
        } else {
            for row in 0..rows {
                self.render(row, written.buffer());
                written.end();
            }
        }
        written.finish()
    }
}

impl FromStr for Template {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        Ok(Self { pieces: braces::parse(text, Piece::Literal, placeholder)? })
    }
}

/// Parses the text between braces, which begins at byte `at` of the template.
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
    let Some(time) = TimeText::new(format) else {
        return Err(FormatError::new(format!("`{format}` is not a format for a point in time."))
            .at(place.end - format.len()..place.end)
            .help("It is written as for `strftime`, for example `%Y-%m-%d`."));
    };
    Ok(Piece::Column { name, time: Some(time) })
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
    use arrow_array::{Int64Array, StringViewArray};
    use arrow_schema::DataType;
    use proptest::prelude::*;
    use thalweg_record::testing::batch;

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
    fn a_rejected_message_is_told_with_the_fields_that_have_no_value() {
        let template: Template = "{n}/{missing}/{payload}/{s:%Y}/{now:%H}/{hostname}".parse().unwrap();
        let mut rejected = [(0, "first".to_owned()), (1, "second".to_owned())];
        explain([&template], &example(), &mut rejected);
        assert_eq!(rejected[0].1, "first: `missing` has no value, `s` has no time");
        assert_eq!(rejected[1].1, "second: `missing` has no value, `n` has no value");
    }

    #[test]
    fn times_are_written_as_strftime_does() {
        assert_eq!(rendered("{t:%Y/%m/%d %H:%M:%S}"), ["2026/01/02 03:04:05", "2026/01/02 03:04:05"]);
        assert_eq!(rendered("{t:%S%.3f}"), ["05.678", "05.999"]);
        assert_eq!(rendered("{s:%d}{n:%d}"), ["", "03"]);
        assert_eq!(rendered("{now:%Y}")[0].len(), 4);
    }

    #[test]
    fn the_zone_is_called_utc_and_the_machine_by_its_name() {
        assert_eq!(rendered("{meta.time:%Z}|{t:%Z}"), ["UTC|UTC", "UTC|UTC"]);
        let host = hostname::get().unwrap().into_string().unwrap();
        assert_eq!(
            rendered("{hostname}={meta.hostname}"),
            [format!("{host}={host}"), format!("{host}={host}")]
        );
        let field: ArrayRef = Arc::new(StringViewArray::from(vec!["web"]));
        let batch =
            batch(["x"]).set_fields([(Field::new("hostname", DataType::Utf8View, true), field)]).unwrap();
        let mut template: Template = "{hostname}".parse().unwrap();
        let mut out = Vec::new();
        template.bind(&batch).render(0, &mut out);
        assert_eq!(out, b"web");
    }

    #[test]
    fn all_forms_give_the_same_at_once_as_one_by_one() {
        let before = "a text before it that is longer than what is copied as a block: ";
        for text in
            ["{payload}", "<{payload}", "{s}>", "<{s}>", "{n}{s}", "x", "", "{t:%S}{payload}{n}", "{none}>"]
        {
            let text = text.replace('<', before);
            let mut template: Template = text.parse().unwrap();
            let batch = example();
            let all = template.bind(&batch).render_all(2, 0);
            let all: Vec<_> =
                all.iter().map(|text| String::from_utf8(text.unwrap().to_vec()).unwrap()).collect();
            assert_eq!(all, rendered(&text), "{text}");
        }
    }

    #[test]
    fn a_field_called_payload_is_that_of_the_messages_that_have_it() {
        let columns: [(&str, ArrayRef); 2] = [
            ("payload", Arc::new(StringViewArray::from(vec![None, Some("own")]))),
            ("meta.time", Arc::new(StringViewArray::from(vec![Some("2026-02-03T04:05:06Z"), None]))),
        ];
        let columns =
            columns.map(|(name, column)| (Field::new(name, column.data_type().clone(), true), column));
        let batch = batch(["first", "second"]).set_fields(columns).unwrap();
        let mut template: Template = "{payload} {meta.time:%Y}".parse().unwrap();
        let mut bound = template.bind(&batch);
        let texts = [0, 1].map(|row| {
            let mut out = Vec::new();
            bound.render(row, &mut out);
            String::from_utf8(out).unwrap()
        });
        // A field does not hide metadata.
        assert_eq!(texts, ["first 2023", "own 2023"]);
    }

    #[test]
    fn it_is_known_what_it_depends_on() {
        let template: Template = "{a}{meta.time:%H}{now:%H}".parse().unwrap();
        assert_eq!(template.columns().collect::<Vec<_>>(), ["a", "meta.time"]);
        assert!(!template.is_constant());
        let constant: Template = "a}}b".parse().unwrap();
        assert!(constant.is_constant());
        assert_eq!((template.prefix(), constant.prefix()), ("", "a}b"));
        let rest = "out/a-{n}".parse::<Template>().unwrap().without_prefix(4);
        assert_eq!((rest.prefix(), rest.columns().collect::<Vec<_>>()), ("a-", vec!["n"]));
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

//! Parses comma-separated values, a record a message.
//!
//! A record without quotes, which is most of them, is cut at its delimiters in one sweep; in one with quotes a
//! quoted field too is a view of the payload, and only a field with a doubled quote in it is copied. Nothing is
//! allocated for a record. (`csv-core` would copy all of them, and pass over an unclosed quote in silence.)
//!
//! Records come as messages, and the sources that read lines end a message at every line feed. So a line feed
//! within quotes cannot be seen here: both halves of such a record are rejected.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{Array, BinaryViewArray, BooleanArray};
use hashbrown::HashMap;
use memchr::{memchr, memchr_iter};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Context, Error, Mistake, Outlets, Transform, TransformConfig};
use thalweg_record::Batch;

use crate::shared::columns::{Columns, FieldType, Typing, missing, reject_all, shortened, unknown_types};
use crate::shared::keys::bytes_of;

/// Of how many files the header is remembered; then the one not seen for longest is forgotten.
const MOST_PATHS: usize = 10_000;

/// Parses comma-separated values.
///
/// Each message is one record. A record with too few or too many values, or with a quote that is not closed,
/// leaves by the `errors` output. (A line feed within quotes ends the message where lines are read, and so the
/// record is rejected.)
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ParseCsv {
    /// The names of the columns, in order.
    columns: Vec<String>,
    /// Whether the first record of each file gives the names of the columns. It is not passed on. A run
    /// that continues inside of a file has not seen its header, and rejects its records: give `columns` then.
    header: bool,
    /// What stands between values: one ASCII character.
    delimiter: String,
    /// What stands around values that contain the delimiter; doubled it means itself. One ASCII character, or
    /// empty for none.
    quote: String,
    /// The types of columns that are not text: `{age: int, height: float}`. A text that does not fit its type
    /// leaves by the `errors` output.
    types: BTreeMap<String, FieldType>,
    /// Texts that mean that there is no value. Without this option `-` and the empty text do, in columns with a
    /// type other than text.
    null_values: Option<Vec<String>>,
    /// Whether white space around values is removed.
    trim: bool,
    /// Whether values that are missing at the end are NULL, and those that are too many ignored.
    flexible: bool,
    /// The field to parse; by default the payload.
    field: String,
}

impl Default for ParseCsv {
    fn default() -> Self {
        Self {
            columns: Vec::new(),
            header: false,
            delimiter: ",".to_owned(),
            quote: "\"".to_owned(),
            types: BTreeMap::new(),
            null_values: None,
            trim: false,
            flexible: false,
            field: super::payload(),
        }
    }
}

/// The one ASCII character of a text.
fn character(text: &str) -> Option<u8> {
    match text.as_bytes() {
        [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r') => Some(*byte),
        _ => None,
    }
}

impl TransformConfig for ParseCsv {
    const NAME: &'static str = "parse_csv";
    const EXAMPLE: &'static str = r#"
sources:
  people: { generate: { message: '"Lovelace, Ada",36,1.65', count: 3 } }
pipelines:
  main:
    from: people
    transforms:
      - parse_csv: { columns: [name, age, height], types: { age: int, height: float } }
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        let mut mistake = |option, message: String, help: Option<&str>| {
            mistakes.push(Mistake { option, message, help: help.map(str::to_owned) });
        };
        match (self.columns.is_empty(), self.header) {
            (true, false) => mistake(
                "",
                "The columns have no names.".to_owned(),
                Some("List them in `columns`, or say `header: true` if the first record of each file does."),
            ),
            (false, true) => mistake(
                "header",
                "`columns` and `header` both give the names of the columns.".to_owned(),
                Some("Leave out one of them."),
            ),
            _ => {}
        }
        for (at, name) in self.columns.iter().enumerate() {
            if self.columns.iter().take(at).any(|other| other == name) {
                mistake("columns", format!("Two columns are called `{name}`."), None);
            }
        }
        if character(&self.delimiter).is_none() {
            mistake("delimiter", "The delimiter must be one ASCII character.".to_owned(), None);
        }
        if !self.quote.is_empty() && character(&self.quote).is_none() {
            mistake("quote", "The quote must be one ASCII character, or empty for none.".to_owned(), None);
        } else if self.quote == self.delimiter {
            mistake("quote", "The quote cannot be the delimiter too.".to_owned(), None);
        }
        if !self.columns.is_empty() {
            mistakes.extend(unknown_types(&self.types, self.columns.iter().map(String::as_str)));
        }
        mistakes
    }

    fn is_sequential(&self) -> bool {
        self.header
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        let dialect = Dialect {
            delimiter: character(&self.delimiter).unwrap_or(b','),
            quote: character(&self.quote),
            trim: self.trim,
            flexible: self.flexible,
        };
        let typing = Typing::new(&self.types, self.null_values.as_deref());
        let field = self.field.clone();
        let scratch = String::new();
        Ok(if self.header {
            let headers = Headers { paths: HashMap::new(), layouts: Vec::new(), clock: 0, typing };
            Box::new(WithHeader { dialect, headers, field, scratch })
        } else {
            let columns = Columns::new(typing, &self.columns);
            Box::new(WithColumns { dialect, columns, field, scratch })
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct Dialect {
    delimiter: u8,
    quote: Option<u8>,
    trim: bool,
    flexible: bool,
}

impl Dialect {
    /// Gives each value of a record to `each`, and how many there were. `scratch` is for values with doubled quotes.
    #[inline]
    fn split(
        self,
        record: &str,
        scratch: &mut String,
        mut each: impl FnMut(usize, &str),
    ) -> Result<usize, String> {
        let bytes = record.as_bytes();
        let trim = |piece| if self.trim { str::trim(piece) } else { piece };
        let quote = self.quote.filter(|&quote| memchr(quote, bytes).is_some());
        let mut column = 0;
        let mut at = 0;
        let Some(quote) = quote else {
            for end in memchr_iter(self.delimiter, bytes) {
                each(column, trim(record.get(at..end).unwrap_or_default()));
                column += 1;
                at = end + 1;
            }
            each(column, trim(record.get(at..).unwrap_or_default()));
            return Ok(column + 1);
        };
        let is_space =
            |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t')) && byte != Some(&self.delimiter);
        loop {
            while self.trim && is_space(bytes.get(at)) {
                at += 1;
            }
            if bytes.get(at) != Some(&quote) {
                let rest = record.get(at..).unwrap_or_default();
                let end = memchr(self.delimiter, rest.as_bytes());
                each(column, trim(rest.get(..end.unwrap_or(rest.len())).unwrap_or_default()));
                column += 1;
                match end {
                    Some(end) => at += end + 1,
                    None => return Ok(column),
                }
                continue;
            }
            let opening = at;
            at += 1;
            scratch.clear();
            let piece = loop {
                let rest = record.get(at..).unwrap_or_default();
                let Some(closing) = memchr(quote, rest.as_bytes()) else {
                    return Err(format!("the quote at byte {opening} is not closed"));
                };
                at += closing + 1;
                if bytes.get(at) == Some(&quote) {
                    scratch.push_str(rest.get(..=closing).unwrap_or_default());
                    at += 1;
                    continue;
                }
                let piece = rest.get(..closing).unwrap_or_default();
                if scratch.is_empty() {
                    break piece;
                }
                scratch.push_str(piece);
                break scratch.as_str();
            };
            each(column, piece);
            column += 1;
            while self.trim && is_space(bytes.get(at)) {
                at += 1;
            }
            match bytes.get(at) {
                None => return Ok(column),
                Some(&byte) if byte == self.delimiter => at += 1,
                Some(_) => {
                    let delimiter = char::from(self.delimiter);
                    return Err(format!("a quote is closed before byte {at}, but no `{delimiter}` follows"));
                }
            }
        }
    }

    /// Parses one record into the columns.
    fn row(
        self,
        value: &[u8],
        columns: &mut Columns,
        row: usize,
        scratch: &mut String,
    ) -> Result<(), String> {
        let record = text(value)?;
        let expected = columns.len();
        let mut misfit = None;
        let found = self.split(record, scratch, |column, piece| {
            if column < expected
                && misfit.is_none()
                && let Err(reason) = columns.push(column, piece)
            {
                misfit = Some(reason);
            }
        })?;
        if found != expected {
            if !self.flexible {
                let s = if found == 1 { "" } else { "s" };
                return Err(format!("has {found} value{s} for {expected} columns"));
            }
            if misfit.is_none() {
                columns.fill(row);
            }
        }
        misfit.map_or(Ok(()), Err)
    }

    fn rows(self, input: &BinaryViewArray, field: &str, columns: &mut Columns, scratch: &mut String) {
        columns.begin(input.data_buffers(), input.len());
        for row in 0..input.len() {
            let parsed = match input.is_null(row) {
                true => Err(missing(field)),
                false => self.row(input.value(row), columns, row, scratch),
            };
            if let Err(reason) = parsed {
                columns.fail(row, reason);
            }
        }
    }
}

/// A record without the carriage return that a line of Windows ends with.
fn text(value: &[u8]) -> Result<&str, String> {
    let value = value.strip_suffix(b"\r").unwrap_or(value);
    simdutf8::basic::from_utf8(value).map_err(|_| super::not_utf8(value))
}

struct WithColumns {
    dialect: Dialect,
    columns: Columns,
    field: String,
    scratch: String,
}

impl Transform for WithColumns {
    fn apply(&mut self, batch: Batch, out: &mut Outlets) -> Result<(), Error> {
        let Some(input) = bytes_of(&batch, &self.field) else {
            return reject_all(batch, &missing(&self.field), out);
        };
        self.dialect.rows(&input, &self.field, &mut self.columns, &mut self.scratch);
        self.columns.finish(batch, out)
    }
}

/// What is known of the columns of each file. Files of the same header share one layout.
struct Headers {
    paths: HashMap<Option<Arc<str>>, Known>,
    layouts: Vec<(Vec<String>, Columns)>,
    clock: u64,
    typing: Typing,
}

struct Known {
    layout: Result<usize, String>,
    used: u64,
}

impl Headers {
    /// Learns the header of a file.
    fn learn(&mut self, path: Option<Arc<str>>, names: Result<Vec<String>, String>) {
        let layout = names.map(|names| {
            let known = self.layouts.iter().position(|(known, _)| *known == names);
            known.unwrap_or_else(|| {
                let columns = Columns::new(self.typing.clone(), &names);
                self.layouts.push((names, columns));
                self.layouts.len() - 1
            })
        });
        if self.paths.len() >= MOST_PATHS
            && let Some(oldest) =
                self.paths.iter().min_by_key(|(_, known)| known.used).map(|(path, _)| path.clone())
        {
            self.paths.remove(&oldest);
        }
        self.paths.insert(path, Known { layout, used: self.clock });
    }
}

struct WithHeader {
    dialect: Dialect,
    headers: Headers,
    field: String,
    scratch: String,
}

impl WithHeader {
    fn names(&mut self, value: &[u8]) -> Result<Vec<String>, String> {
        let record = text(value)?;
        let record = record.strip_prefix('\u{feff}').unwrap_or(record);
        let mut names: Vec<String> = Vec::new();
        self.dialect.split(record, &mut self.scratch, |column, name| {
            let name = if name.is_empty() { format!("column_{}", column + 1) } else { name.to_owned() };
            let mut free = name.clone();
            let mut number = 2;
            while names.contains(&free) {
                free = format!("{name}_{number}");
                number += 1;
            }
            names.push(free);
        })?;
        Ok(names)
    }
}

impl Transform for WithHeader {
    fn apply(&mut self, batch: Batch, out: &mut Outlets) -> Result<(), Error> {
        let Some(mut input) = bytes_of(&batch, &self.field) else {
            return reject_all(batch, &missing(&self.field), out);
        };
        if input.is_empty() {
            out.send(batch);
            return Ok(());
        }
        self.headers.clock += 1;
        let path = batch.meta().path.clone();
        // Where positions are known, a file begins at its first byte, or after a mark of the byte order.
        let begins =
            batch.positions().and_then(|positions| positions.values().first()).map(|&first| first <= 3);
        let is_new = !self.headers.paths.contains_key(&path);
        let mut batch = batch;
        if begins.is_some_and(|begins| begins) || (is_new && (begins.is_none() || path.is_none())) {
            let names = match input.is_null(0) {
                true => Err(missing(&self.field)),
                false => self.names(input.value(0)),
            };
            self.headers.learn(path.clone(), names);
            let others: BooleanArray = (0..batch.rows()).map(|row| Some(row > 0)).collect();
            match batch.filter(&others)? {
                Some(others) => batch = others,
                None => return Ok(()),
            }
            let Some(others) = bytes_of(&batch, &self.field) else {
                return reject_all(batch, &missing(&self.field), out);
            };
            input = others;
        }
        let Some(known) = self.headers.paths.get_mut(&path) else {
            let path = path.as_deref().unwrap_or_default();
            let reason = format!(
                "the header of `{path}` was not seen, since reading began further on: give `columns`"
            );
            return reject_all(batch, &reason, out);
        };
        known.used = self.headers.clock;
        match &known.layout {
            Err(reason) => {
                let reason = format!("the header could not be read: {}", shortened(reason));
                reject_all(batch, &reason, out)
            }
            Ok(layout) => match self.headers.layouts.get_mut(*layout) {
                Some((_, columns)) => {
                    self.dialect.rows(&input, &self.field, columns, &mut self.scratch);
                    columns.finish(batch, out)
                }
                None => Err(Error::permanent("a layout of columns is gone")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{UInt64Array, cast::AsArray};
    use proptest::prelude::*;
    use serde_json::json;
    use thalweg_engine::{Output, testing};
    use thalweg_record::{Ack, Meta};

    #[test]
    fn it_conforms() {
        let lines = ["a,b", "1,2", "", "\"x,y\",3", "\"", "1,2,3"];
        testing::transform_conforms::<ParseCsv>("columns: [a, b]", &lines);
        testing::transform_conforms::<ParseCsv>("header: true", &lines);
    }

    fn parsed(yaml: &str, lines: &[&str]) -> testing::Given {
        testing::apply::<ParseCsv>(yaml, [testing::batch(lines)])
    }

    #[test]
    fn values_become_typed_columns() {
        let given = parsed(
            "{columns: [name, age, ok, at], types: {age: int, ok: bool, at: timestamp}}",
            &["Ada,36,true,1970-01-01T00:00:01Z", "Bob,,,-", "Eve,x,,", "\"\",1,no,0\r"],
        );
        assert_eq!(
            given.main(),
            [
                json!({"name": "Ada", "age": 36, "ok": true, "at": 1_000_000}),
                json!({"name": "Bob"}),
                json!({"name": "", "age": 1, "ok": false, "at": 0}),
            ]
        );
        assert_eq!(given.errors()[0].1, "the field `age` is not a whole number of 64 bits: `x`");
    }

    #[test]
    fn quotes_protect_delimiters_and_double_to_mean_themselves() {
        let given =
            parsed("columns: [a, b]", &[r#""x,y","say ""hi""""#, r#"a"b,"""""#, r#""a,b"#, r#""a"b,c"#]);
        assert_eq!(
            given.main(),
            [json!({"a": "x,y", "b": r#"say "hi""#}), json!({"a": r#"a"b"#, "b": r#"""#})]
        );
        assert_eq!(
            given.errors().iter().map(|(_, reason)| reason.as_str()).collect::<Vec<_>>(),
            ["the quote at byte 0 is not closed", "a quote is closed before byte 3, but no `,` follows"]
        );
    }

    #[test]
    fn too_few_and_too_many_values_are_told_with_both_numbers() {
        let lines = ["1", "1,2,3", "1,2,", "1,2"];
        let given = parsed("columns: [a, b]", &lines);
        assert_eq!(given.main(), [json!({"a": "1", "b": "2"})]);
        assert_eq!(given.errors()[0].1, "has 1 value for 2 columns");
        assert_eq!(given.errors()[1].1, "has 3 values for 2 columns");
        let given = parsed("{columns: [a, b], flexible: true}", &lines);
        assert_eq!(given.main()[0], json!({"a": "1"}));
        assert_eq!(
            given.main()[1..],
            [json!({"a": "1", "b": "2"}), json!({"a": "1", "b": "2"}), json!({"a": "1", "b": "2"})]
        );
    }

    #[test]
    fn delimiters_quotes_and_space_are_as_configured() {
        let given = parsed(
            "{columns: [a, b], delimiter: \"\\t\", quote: \"'\", trim: true}",
            &[" x \t 'y\tz' ", "''''\t ' w '"],
        );
        assert_eq!(given.main(), [json!({"a": "x", "b": "y\tz"}), json!({"a": "'", "b": " w "})]);
        let given = parsed("{columns: [a], quote: ''}", &["\"x"]);
        assert_eq!(given.main(), [json!({"a": "\"x"})]);
    }

    #[test]
    fn bytes_that_are_not_utf8_are_rejected_with_their_place() {
        let given = testing::apply::<ParseCsv>("columns: [a]", [testing::batch([&b"ab\xff"[..], b"ok"])]);
        assert_eq!(given.errors()[0].1, "is not UTF-8, at byte 2");
        assert_eq!(given.main(), [json!({"a": "ok"})]);
    }

    #[test]
    fn quoted_text_is_not_copied() {
        let batch = testing::batch([r#""a quoted text that is not inline",x"#]);
        let payload = batch.payload().value(0).as_ptr() as usize;
        let given = testing::apply::<ParseCsv>("columns: [a, b]", [batch]);
        let column = given.outputs[&Output::Main][0].fields().column(0).as_string_view().clone();
        assert_eq!(column.value(0).as_ptr() as usize, payload + 1);
    }

    fn of(path: &str, first: Option<u64>, lines: &[&str]) -> Batch {
        let batch = testing::batch(lines);
        let meta = Meta { path: Some(path.into()), ..(**batch.meta()).clone() };
        let batch = Batch::new(batch.payload().clone(), Arc::new(meta), Ack::unobserved());
        match first {
            Some(first) => batch
                .with_positions(UInt64Array::from_iter_values(
                    (0..lines.len() as u64).map(|n| first + n * 10),
                ))
                .unwrap(),
            None => batch,
        }
    }

    #[test]
    fn each_file_has_its_own_header() {
        let given = testing::apply::<ParseCsv>(
            "{header: true, types: {n: int}}",
            [
                of("one", None, &["\u{feff}a,n", "x,1"]),
                of("two", None, &["n,,n"]),
                of("one", None, &["y,2"]),
                of("two", None, &["3,z,w"]),
            ],
        );
        assert_eq!(
            given.main(),
            [
                json!({"a": "x", "n": 1}),
                json!({"a": "y", "n": 2}),
                json!({"n": 3, "column_2": "z", "n_2": "w"})
            ]
        );
    }

    #[test]
    fn files_of_one_header_share_a_schema() {
        let given = testing::apply::<ParseCsv>(
            "header: true",
            [of("one", None, &["a,b", "1,2"]), of("two", None, &["a,b", "3,4"])],
        );
        let schemas: Vec<_> =
            given.outputs[&Output::Main].iter().map(|batch| batch.fields().schema()).collect();
        assert!(Arc::ptr_eq(&schemas[0], &schemas[1]));
    }

    #[test]
    fn a_file_that_is_continued_has_no_header_and_one_that_begins_again_has_a_new_one() {
        let given = testing::apply::<ParseCsv>(
            "header: true",
            [of("one", Some(50), &["x,1"]), of("two", Some(0), &["a", "1"]), of("two", Some(0), &["b", "2"])],
        );
        assert_eq!(given.main(), [json!({"a": "1"}), json!({"b": "2"})]);
        assert_eq!(
            given.errors()[0].1,
            "the header of `one` was not seen, since reading began further on: give `columns`"
        );
    }

    #[test]
    fn a_header_that_cannot_be_read_rejects_what_follows_it() {
        let given = testing::apply::<ParseCsv>("header: true", [of("one", None, &["a,\"b", "1,2"])]);
        assert_eq!(given.errors()[0].1, "the header could not be read: the quote at byte 2 is not closed");
        assert_eq!(given.errors().len(), 1);
    }

    #[test]
    fn what_does_not_go_together_is_a_mistake() {
        let messages = |yaml: &str| -> Vec<String> {
            testing::options::<ParseCsv>(yaml).check().into_iter().map(|mistake| mistake.message).collect()
        };
        assert_eq!(messages("{}"), ["The columns have no names."]);
        assert_eq!(
            messages("{columns: [a], header: true}"),
            ["`columns` and `header` both give the names of the columns."]
        );
        assert_eq!(
            messages("{columns: [a, a], delimiter: ab}"),
            ["Two columns are called `a`.", "The delimiter must be one ASCII character.",]
        );
        assert_eq!(messages("{header: true, quote: ','}"), ["The quote cannot be the delimiter too."]);
        assert_eq!(messages("{columns: [a], types: {b: int}}").len(), 1);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            records in prop::collection::vec(prop::collection::vec("[a-z,\" é]{0,20}", 3), 1..10),
        ) {
            let lines: Vec<String> = records
                .iter()
                .map(|record| {
                    let written: Vec<String> = record
                        .iter()
                        .map(|value| match value.contains(['"', ',']) {
                            true => format!("\"{}\"", value.replace('"', "\"\"")),
                            false => value.clone(),
                        })
                        .collect();
                    written.join(",")
                })
                .collect();
            let given = testing::apply::<ParseCsv>("columns: [a, b, c]", [testing::batch(&lines)]);
            let expected: Vec<_> =
                records.iter().map(|r| json!({"a": r[0], "b": r[1], "c": r[2]})).collect();
            prop_assert_eq!(given.main(), expected);
        }

        #[test]
        fn no_line_is_lost(lines in prop::collection::vec("[a,\" ]{0,12}", 1..20)) {
            for yaml in ["columns: [a, b]", "{columns: [a, b], flexible: true, trim: true, types: {b: int}}"] {
                let given = testing::apply::<ParseCsv>(yaml, [testing::batch(&lines)]);
                let (mut found, mut expected) = (given.payloads(Output::Main), lines.clone());
                found.extend(given.payloads(Output::Errors));
                found.sort();
                expected.sort();
                prop_assert_eq!(found, expected);
            }
        }
    }

    /// `cargo test --release -p thalweg-components --lib parse_csv::tests::figures -- --ignored --nocapture`
    #[test]
    #[ignore = "measures"]
    fn figures() {
        let line = |n: usize, q: &str| {
            format!(
                "{n},{q}customer {n}{q},{q}some street name {}{q},{},2024-01-02,{q}abc{q},{},x{n},{q}last but one{q},end",
                n % 99,
                n * 3,
                n % 7
            )
        };
        let yaml = "columns: [a, b, c, d, e, f, g, h, i, j]";
        for q in ["", "\""] {
            let lines: Vec<String> = (0..8192).map(|n| line(n, q)).collect();
            super::super::testing::measure::<ParseCsv>(yaml, &lines);
            super::super::testing::measure::<ParseCsv>(
                &format!("{{{yaml}, types: {{a: int, d: int, g: int}}}}"),
                &lines,
            );
        }
    }
}

//! Parses the W3C extended log format, as IIS and CloudFront write it.
//!
//! Lines that begin with `#` are directives. `#Fields:` names the columns of the lines that follow in its
//! file. A server writes it again after a restart. So a batch is divided at directives, and the module
//! `headers` remembers the columns of each file.

mod record;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::time::Duration;

use arrow_array::{Array, BinaryViewArray};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::columns::{Columns, Typing, missing, reject_all, unknown_types};
use thalweg_codec::keys::bytes_of;
use thalweg_config::List;
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Outputs, Transform, TransformConfig};
use thalweg_record::{Batch, Outcome};
use thalweg_stream::pieces::Pieces;

use crate::headers::{Headers, unreadable};
use crate::text_parser::TextOptions;
use record::Records;

/// Parses the W3C extended log format, which Microsoft's IIS and Amazon CloudFront write.
///
/// The directive `#Fields:` names the fields of the lines that follow it in the same file, such as
/// `cs-uri-stem` and `sc-status`. Directives do not become messages. With `--state`, a later run knows the
/// fields of the files that it continues. The fields of the last 10,000 files are kept, in at most 16 MiB. A
/// line before the first `#Fields:` of its file leaves by the `errors` output, and so does a line with more
/// or fewer values than there are fields.
///
/// `time` is a point in time, with the date of the field `date`. Without that field, the time of the day is
/// the text `time-of-day`. Statuses, sizes and ports are whole numbers, durations are numbers. The value `-`
/// is NULL. The format is described at <https://www.w3.org/TR/WD-logfile.html>.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParseW3c {
    /// The program that wrote the log. The default is `iis`.
    #[serde(default)]
    format: W3cFormat,
    /// The names of the fields, in their order. By default the directive `#Fields:` of each file names them.
    #[serde(default)]
    fields: List<String>,
    #[serde(flatten)]
    options: TextOptions,
}

/// A program that writes the format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum W3cFormat {
    /// IIS, and others: there is a space between values, or a tab, and texts may be in double quotes.
    #[default]
    Iis,
    /// Amazon CloudFront: there is a tab between values, and `%20` in them is a space. The URLs in
    /// `cs-uri-query` and `cs(Referer)` keep their escapes.
    Cloudfront,
}

/// The maximum number of fields.
const MOST: usize = 4096;
/// The bytes that a value takes in a column of text, however short it is.
const VALUE: usize = 16;

impl ParseW3c {
    fn typing(&self) -> Typing {
        self.options.typing(record::types())
    }
}

impl Component for ParseW3c {
    const NAME: &'static str = "parse_w3c";
    const EXAMPLE: &'static str = r##"
sources:
  iis:
    generate:
      lines:
        - "#Fields: date time cs-method cs-uri-stem sc-status time-taken"
        - "2026-11-25 08:14:02 GET /default.htm 200 15"
pipelines:
  main:
    from: iis
    transforms:
      - parse_w3c: {}
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"##;

    fn check(&self) -> Vec<Mistake> {
        let mut seen = HashSet::new();
        let twice = self.fields.iter().find(|name| !seen.insert(name.as_str()));
        let twice = twice.map(|name| Mistake::new("fields", format!("`{name}` is named twice.")));
        let mut mistakes: Vec<_> = twice.into_iter().collect();
        if !self.fields.is_empty() {
            mistakes.extend(unknown_types(&self.options.types, self.fields.iter().map(String::as_str)));
        }
        mistakes
    }
}

impl TransformConfig for ParseW3c {
    fn fields(&self) -> Vec<String> {
        vec![self.options.field.clone()]
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        if self.fields.is_empty() {
            return before.with_others();
        }
        let typing = self.typing();
        before.parsed(named(self.fields.to_vec()).iter().map(|name| typing.kind(name).field(name)))
    }

    fn is_sequential(&self) -> bool {
        self.fields.is_empty()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error> {
        let typing = self.typing();
        let given =
            (!self.fields.is_empty()).then(|| Columns::new(typing.clone(), named(self.fields.to_vec())));
        Ok(Box::new(Parser {
            headers: Headers::new(typing, "name its fields in `fields`", &context.memory),
            given,
            records: Records::new(self.format == W3cFormat::Cloudfront),
            field: self.options.field.clone(),
            pieces: Pieces::new(4 * context.batch_bytes),
        }))
    }
}

/// Returns the names of columns. The time of the day is only a point in time with a date.
fn named(mut names: Vec<String>) -> Vec<String> {
    if !names.iter().any(|name| name == "date") {
        names.iter_mut().filter(|name| *name == "time").for_each(|name| "time-of-day".clone_into(name));
    }
    names
}

struct Parser {
    headers: Headers,
    /// The columns of all files, if they are given.
    given: Option<Columns>,
    records: Records,
    field: String,
    pieces: Pieces,
}

/// True if a line is a directive, or empty.
fn is_directive(line: &[u8]) -> bool {
    matches!(unmarked(line).first(), Some(b'#') | None) || line == b"\r"
}

/// Returns a line without the byte order mark that the first of a file may have.
fn unmarked(line: &[u8]) -> &[u8] {
    line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line)
}

/// Returns the columns that a directive names, if it names them.
fn names(line: &[u8]) -> Option<Result<Vec<String>, String>> {
    let list = unmarked(line).strip_prefix(b"#Fields:")?;
    let list = std::str::from_utf8(list).map_err(|_| thalweg_codec::not_utf8(line));
    Some(list.and_then(|list| {
        let names: Vec<String> = list.split_ascii_whitespace().map(str::to_owned).collect();
        let mut seen = HashSet::new();
        match names.iter().find(|name| !seen.insert(name.as_str())) {
            Some(name) => Err(format!("it names `{name}` twice")),
            None if names.len() > MOST => {
                Err(format!("it names {} fields, and at most {MOST} are read", names.len()))
            }
            None if names.is_empty() => Err("it names no field".to_owned()),
            None => Ok(named(names)),
        }
    }))
}

impl Parser {
    /// Divides a batch into runs of directives and of records.
    fn divide(&mut self, batch: Batch, input: &BinaryViewArray) {
        let is_directive = |row: usize| !input.is_null(row) && is_directive(input.value(row));
        let mut start = 0;
        for row in 1..input.len() {
            if is_directive(row) != is_directive(row - 1) {
                self.pieces.push(batch.share().slice(start, row - start));
                start = row;
            }
        }
        let rows = batch.rows() - start;
        self.pieces.push(batch.slice(start, rows));
    }

    /// Reads the directives of a run. A list of fields that cannot be read is rejected.
    fn direct(&mut self, batch: Batch, input: &BinaryViewArray, out: &mut Outputs) -> Result<(), Error> {
        let mut failed = Vec::new();
        for row in 0..input.len() {
            let Some(names) = names(input.value(row)).filter(|_| self.given.is_none()) else { continue };
            failed.extend(names.as_ref().err().map(|reason| (row as u32, unreadable(reason))));
            let begins = batch.positions().map(|positions| positions.value(row));
            self.headers.learn(batch.meta().path.clone(), begins, names);
        }
        if let Some(rest) = out.reject(batch, failed)? {
            rest.settle(Outcome::Filtered);
        }
        Ok(())
    }

    /// Begins a run of records or directives.
    fn begin(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let Some(input) = bytes_of(&batch, &self.field) else {
            return Ok(reject_all(batch, &missing(&self.field), out)?);
        };
        if input.is_empty() || !input.is_null(0) && is_directive(input.value(0)) {
            return self.direct(batch, &input, out);
        }
        self.headers.tick();
        let columns = match &mut self.given {
            Some(columns) => Ok(columns),
            None => self.headers.columns(&batch.meta().path),
        };
        match columns {
            Ok(columns) => self.pieces.cut(batch, VALUE * columns.len()),
            Err(reason) => reject_all(batch, &reason, out)?,
        }
        Ok(())
    }
}

impl Transform for Parser {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        match bytes_of(&batch, &self.field) {
            Some(input) => self.divide(batch, &input),
            None => reject_all(batch, &missing(&self.field), out)?,
        }
        self.resume(out)
    }

    fn resume(&mut self, out: &mut Outputs) -> Result<(), Error> {
        if let Some(batch) = self.pieces.take() {
            self.begin(batch, out)?;
        }
        if let Some(piece) = self.pieces.next_piece() {
            let columns = match &mut self.given {
                Some(columns) => Ok(columns),
                None => self.headers.columns(&piece.meta().path),
            };
            match (bytes_of(&piece, &self.field), columns) {
                (Some(input), Ok(columns)) => {
                    self.records.read(&input, &self.field, columns);
                    columns.finish(piece, out)?;
                }
                (None, _) => reject_all(piece, &missing(&self.field), out)?,
                (_, Err(reason)) => reject_all(piece, &reason, out)?,
            }
        }
        if !self.pieces.is_empty() {
            out.hold(Duration::ZERO);
        }
        Ok(())
    }

    fn state(&mut self) -> Option<serde_json::Value> {
        self.headers.state()
    }

    fn is_exact(&self) -> bool {
        self.given.is_none()
    }

    fn restore(&mut self, saved: serde_json::Value) -> Result<(), Error> {
        self.headers.restore(saved)
    }
}

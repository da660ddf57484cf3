//! Parses comma-separated values, one record per message.
//!
//! Sources that read lines end a message at every line feed. So this parser never sees a line feed within
//! quotes, and rejects both halves of such a record. The transform `csv` reads whole files of records.
//!
//! `thalweg_codec::csv` splits records; `header` handles files with headers.

mod header;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::List;
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Outputs, Transform, TransformConfig};
use thalweg_record::Batch;

use header::WithHeader;
use thalweg_codec::columns::{Columns, missing, reject_all};
use thalweg_codec::csv::{CsvOptions, Dialect};
use thalweg_codec::keys::bytes_of;
use thalweg_stream::pieces::Pieces;

use crate::headers::Headers;

/// The bytes that a value takes in a column of text, however short it is.
const VALUE: usize = 16;

/// Parses comma-separated values. Each message is one record.
///
/// A record with too few or too many values, or with a quote that is not closed, leaves by the `errors`
/// output. A source that reads lines ends the message at a line feed within quotes, so such a record is
/// rejected. The transform `csv` reads whole files, in which values may contain line feeds.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ParseCsv {
    /// The names of the columns, in order. Give either `columns` or `header: true`.
    columns: List<String>,
    /// True if the first record of each file names the columns. The header does not become a message. With
    /// `--state`, a later run knows the headers of the files that it continues. The headers of the last
    /// 10,000 files are kept, in at most 16 MiB. The records of a file whose header was not read, because
    /// reading began after it, leave by the `errors` output; list the names in `columns` in place of
    /// `header`, and `thalweg errors replay` processes them. A header that cannot be read leaves by the
    /// `errors` output as well, with the records of its file. The default is `false`.
    header: bool,
    /// With `header`: the maximum number of columns. The records of a file with more columns leave by the
    /// `errors` output. The default is 4096.
    #[schemars(range(min = 1))]
    max_columns: usize,
    /// The character around values that contain the delimiter: one ASCII character, or empty for none. Within
    /// quotes, two of it are the character itself. The default is `"`.
    quote: String,
    #[serde(flatten)]
    options: CsvOptions,
    /// The field to parse. The default is the payload.
    field: String,
}

impl Default for ParseCsv {
    fn default() -> Self {
        Self {
            columns: List::default(),
            header: false,
            max_columns: 4096,
            quote: "\"".to_owned(),
            options: CsvOptions::default(),
            field: crate::payload(),
        }
    }
}

impl Component for ParseCsv {
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
        match (self.columns.is_empty(), self.header) {
            (true, false) => mistakes.push(Mistake::new("", "The columns have no names.").help(
                "List them in `columns`, or set `header: true` if the first record of each file names them.",
            )),
            (false, true) => {
                let message = "`columns` and `header` both give the names of the columns.";
                mistakes.push(Mistake::new("header", message).help("Leave out one of them."));
            }
            _ => {}
        }
        mistakes.extend(self.options.mistakes(&self.columns, &self.quote));
        mistakes
    }
}

impl TransformConfig for ParseCsv {
    fn is_sequential(&self) -> bool {
        self.header
    }

    fn fields(&self) -> Vec<String> {
        vec![self.field.clone()]
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        if self.header {
            return before.with_others();
        }
        let typing = self.options.typing();
        before.parsed(self.columns.iter().map(|name| typing.kind(name).field(name)))
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error> {
        let dialect = self.options.dialect(&self.quote);
        let typing = self.options.typing();
        let field = self.field.clone();
        let scratch = String::new();
        let pieces = Pieces::new(4 * context.batch_bytes);
        Ok(if self.header {
            let advice = "list its columns in `columns` in place of `header: true`";
            let headers = Headers::new(typing, advice, &context.memory);
            let max_columns = self.max_columns.max(1);
            let is_replay = context.is_replay;
            Box::new(WithHeader { dialect, headers, max_columns, is_replay, field, scratch, pieces })
        } else {
            let columns = Columns::new(typing, &self.columns);
            Box::new(WithColumns { dialect, columns, field, scratch, pieces })
        })
    }
}

struct WithColumns {
    dialect: Dialect,
    columns: Columns,
    field: String,
    scratch: String,
    pieces: Pieces,
}

impl Transform for WithColumns {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        self.pieces.push(batch);
        self.resume(out)
    }

    fn resume(&mut self, out: &mut Outputs) -> Result<(), Error> {
        if let Some(batch) = self.pieces.take() {
            self.pieces.cut(batch, VALUE * self.columns.len());
        }
        if let Some(piece) = self.pieces.next_piece() {
            match bytes_of(&piece, &self.field) {
                Some(input) => {
                    self.dialect.rows(&input, &self.field, &mut self.columns, &mut self.scratch);
                    self.columns.finish(piece, out)?;
                }
                None => reject_all(piece, &missing(&self.field), out)?,
            }
        }
        if !self.pieces.is_empty() {
            out.hold(std::time::Duration::ZERO);
        }
        Ok(())
    }
}

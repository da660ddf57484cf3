//! Parses comma-separated values, a record a message.
//!
//! Records come as messages, and the sources that read lines end a message at every line feed. So a line feed
//! within quotes cannot be seen here: both halves of such a record are rejected. Whole files of records are for the
//! transform `csv`.
//!
//! How a record is cut is in `shared::csv`, how files with a header are told apart in `header`.

mod header;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Context, Error, Mistake, Outputs, Transform, TransformConfig};
use thalweg_record::Batch;

use header::{Headers, WithHeader};
use thalweg_codec::columns::{Columns, FieldType, Typing, missing, reject_all};
use thalweg_codec::csv::{self, Dialect};
use thalweg_codec::keys::bytes_of;

/// Parses comma-separated values.
///
/// Each message is one record. A record with too few or too many values, or with a quote that is not closed,
/// leaves by the `errors` output. (A line feed within quotes ends the message where lines are read, and so the
/// record is rejected. The transform `csv` reads whole files, where there may be some.)
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ParseCsv {
    /// The names of the columns, in order.
    columns: Vec<String>,
    /// Whether the first record of each file gives the names of the columns. It is not passed on. A run
    /// that continues inside of a file has not seen its header, and rejects its records: give `columns` then.
    header: bool,
    /// With `header`, the most columns that a file may have. The records of one with more leave by the `errors` output.
    #[schemars(range(min = 1))]
    max_columns: usize,
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
            max_columns: 4096,
            delimiter: ",".to_owned(),
            quote: "\"".to_owned(),
            types: BTreeMap::new(),
            null_values: None,
            trim: false,
            flexible: false,
            field: crate::payload(),
        }
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
        match (self.columns.is_empty(), self.header) {
            (true, false) => mistakes.push(Mistake::new("", "The columns have no names.").help(
                "List them in `columns`, or say `header: true` if the first record of each file does.",
            )),
            (false, true) => {
                let message = "`columns` and `header` both give the names of the columns.";
                mistakes.push(Mistake::new("header", message).help("Leave out one of them."));
            }
            _ => {}
        }
        mistakes.extend(csv::mistakes(&self.columns, &self.delimiter, &self.quote, &self.types));
        mistakes
    }

    fn is_sequential(&self) -> bool {
        self.header
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        let dialect = Dialect::new(&self.delimiter, &self.quote, self.trim, self.flexible);
        let typing = Typing::new(&self.types, self.null_values.as_deref());
        let field = self.field.clone();
        let scratch = String::new();
        Ok(if self.header {
            let headers = Headers::new(typing);
            Box::new(WithHeader { dialect, headers, max_columns: self.max_columns.max(1), field, scratch })
        } else {
            let columns = Columns::new(typing, &self.columns);
            Box::new(WithColumns { dialect, columns, field, scratch })
        })
    }
}

struct WithColumns {
    dialect: Dialect,
    columns: Columns,
    field: String,
    scratch: String,
}

impl Transform for WithColumns {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let Some(input) = bytes_of(&batch, &self.field) else {
            return Ok(reject_all(batch, &missing(&self.field), out)?);
        };
        self.dialect.rows(&input, &self.field, &mut self.columns, &mut self.scratch);
        Ok(self.columns.finish(batch, out)?)
    }
}

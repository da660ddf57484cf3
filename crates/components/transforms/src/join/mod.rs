//! Adds to messages the columns of a table.
//!
//! The table is in memory, as columns and an index of its keys. A batch is looked up as a whole: its keys are
//! columns of bytes, and the columns that it gets are taken from those of the table by the rows that were
//! found. All workers share one table.
//!
//! `source` reads the file (`file`, `rows`, `parquet`, `gathered`), `table` holds it, and `watched` reads it
//! again. `comparable` says which values are equal, `points` and `spans` what contains a value, `index` finds
//! rows, and `run` looks batches up.
//!
//! See docs/decisions/116-a-table-is-in-memory.md.

mod chosen;
mod comparable;
mod file;
mod gathered;
mod index;
mod on;
#[cfg(not(feature = "parquet"))]
#[path = "no_parquet.rs"]
mod parquet;
#[cfg(feature = "parquet")]
mod parquet;
mod points;
mod rows;
mod run;
mod source;
mod spans;
mod table;
#[cfg(test)]
mod tests;
mod unusable;
mod watched;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use arrow_schema::Field;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::columns::FieldType;
use thalweg_config::{FormatError, List, TimeSpan};
use thalweg_engine::{
    Component, Context, Error, FieldMistake, KnownFields, Mistake, Transform, TransformConfig,
};
use thalweg_record::Budget;

use chosen::{Chosen, Names};
use index::Duplicates;
use on::On;
use run::Joiner;
use source::{Source, TableFormat};
use watched::Watched;

/// Adds the columns of a table to messages, found by a key: a join, or lookup.
///
/// The table is a file of CSV, JSON Lines or Parquet (also compressed with gzip or zstd, if it is text),
/// which is read when the run starts. A message whose key is in the table gets the other columns of that row
/// as fields. One whose key is not there stays unchanged (`on_missing`).
///
/// Keys are equal if they are written equally. The number `7` is equal to the text `7` of a CSV file, and
/// numbers without a fraction are written without one: `7.0` is `7`. Texts are compared byte by byte: `007`
/// is not equal to `7`, unless `types` makes it a number, and `A` is not equal to `a`. NULL is equal to
/// nothing, not even to NULL.
///
/// The columns of CSV are text without `types`, and an empty value is an empty text. The types of JSON
/// members follow from the values of the whole file. Lists and records of Parquet become JSON text. A row
/// that cannot be parsed makes the whole table unusable: the run does not start, and says which line it is.
///
/// The table is in memory once, whatever the number of workers, and may take a quarter of `memory`. When its
/// file changes, it is read again, and needs that memory twice for a moment. Each batch of messages sees one
/// table. A changed file that cannot be used changes nothing: the log says why, once, and messages find the
/// former rows. Write a new table to another file, and rename it to this one, so that it is never read half
/// written.
///
/// A message leaves by the `errors` output if it has a field already that is called as a column of the table,
/// or if a value that is looked up in networks or ranges is no address, number or time.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Join {
    /// The path of the table. A relative path begins at the folder in which the program runs.
    table: PathBuf,
    /// The fields of messages that are compared, and the columns of the table: `on: customer` if both have
    /// the same name, `on: { customer: id }` for the field `customer` and the column `id`, and several of
    /// them for a key of several parts: `on: [country, city]`.
    ///
    /// `on: { client: { in: network } }` finds the network that the IP address in the field `client` is in:
    /// the column has values such as `10.0.0.0/8` or `2001:db8::/32`, and the smallest network counts. `on: {
    /// time: { from: start, to: end } }` finds the row whose range contains the number or time: `from` is in
    /// the range, `to` is not, and NULL means that it has no end there. The columns must be numbers or times,
    /// so CSV needs `types`. One entry of this kind may be beside others.
    on: On,
    /// The columns that messages get: a list, or `{ column: field }` to give them other names. The default is
    /// all columns but those of `on`.
    columns: Option<Names>,
    /// A prefix for the name of each field, such as `customer_`. The default is empty.
    #[serde(default)]
    prefix: String,
    /// How a message is treated whose key is not in the table.
    #[serde(default)]
    on_missing: OnMissing,
    /// How a message is treated whose key is in the table. `drop` keeps those that are not in it: an anti
    /// join.
    #[serde(default)]
    on_found: OnFound,
    /// How rows with the same key are treated. Ranges that overlap, and equal networks, are such rows.
    #[serde(default)]
    duplicates: Duplicates,
    /// The format of the table. By default the ending of its name tells: `.csv`, `.tsv`, `.jsonl`, `.ndjson`,
    /// `.json` (one object in each line), `.parquet`; also with `.gz` or `.zst` after it.
    format: Option<TableFormat>,
    /// Of CSV: the character between values, one ASCII character. The default is a comma, and a tab for
    /// `.tsv`.
    delimiter: Option<String>,
    /// The types of columns of CSV, and of members of JSON: `{ since: timestamp, limit: int }`.
    #[serde(default)]
    types: BTreeMap<String, FieldType>,
    /// Of CSV: the texts that mean NULL. By default these are `-` and the empty text, in columns with a type
    /// other than text.
    null_values: Option<List<String>>,
    /// How often to look whether the file has changed: a look comes with a batch of messages. A new file is
    /// read once two looks find it the same, since a program may still be writing it at the first one, or at
    /// the first one if it was modified longer ago than this, and than 5 s. A batch that comes then waits
    /// until the new table is read. The default is `5s`; `0s` looks before each batch.
    #[serde(default = "five_seconds")]
    refresh_interval: TimeSpan,
    #[serde(skip)]
    opened: Arc<Mutex<Weak<Watched>>>,
    #[serde(skip)]
    seen: Arc<OnceLock<Seen>>,
}

fn five_seconds() -> TimeSpan {
    TimeSpan::seconds(5)
}

/// The output for messages whose key is not in the table.
const MISSING: &str = "missing";

/// How messages are treated whose key is not in the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnMissing {
    /// They stay unchanged. This is the default, a left join.
    #[default]
    Keep,
    /// They are filtered: an inner join.
    Drop,
    /// They leave by the `errors` output.
    Error,
    /// They leave by the output `missing`. Another pipeline reads it with `from: NAME.missing`.
    Route,
}

/// How messages are treated whose key is in the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnFound {
    /// They get the columns of the row. This is the default.
    #[default]
    Add,
    /// They are filtered.
    Drop,
}

/// The findings of a check in the file.
#[derive(Debug, Clone)]
enum Seen {
    /// The fields that messages get.
    Fields(Vec<Field>),
    /// It cannot be used.
    Mistake(Mistake),
    /// Nothing: it is not there, or too large for a check.
    Nothing,
}

/// A check reads tables of at most this size. Decompressed, they may have a quarter of the other.
const CHECKED: u64 = 4 << 20;
const CHECK_MEMORY: usize = 64 << 20;

impl Component for Join {
    const NAME: &'static str = "join";
    const EXAMPLE: &'static str = r#"
sources:
  orders: { generate: { message: '{"id": %6d, "customer": "c7"}', count: 10 } }
pipelines:
  main:
    from: orders
    transforms:
      - parse_json: {}
      - join: { table: customers.csv, on: customer, columns: [name, country] }
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.on.mistakes();
        mistakes.extend(self.chosen().mistakes());
        let format = self.format();
        if format.is_none() {
            let message = format!("The name of `{}` does not tell its format.", self.table.display());
            let help = "Give `format: csv`, `format: jsonl` or `format: parquet`.";
            mistakes.push(Mistake::new("table", message).help(help));
        }
        if self.delimiter.as_ref().is_some_and(|delimiter| ascii(delimiter).is_none()) {
            let mistake = Mistake::new("delimiter", "The delimiter must be one ASCII character.");
            mistakes.push(mistake.help("A tab is written `\"\\t\"`, in double quotes."));
        }
        let is = |wanted: TableFormat| format.is_none_or(|format| format == wanted);
        let without_effect = [
            ("delimiter", self.delimiter.is_some() && !is(TableFormat::Csv), "is for CSV"),
            ("null_values", self.null_values.is_some() && !is(TableFormat::Csv), "is for CSV"),
            (
                "types",
                !self.types.is_empty() && format == Some(TableFormat::Parquet),
                "is for CSV and JSON Lines: a Parquet file has its own types",
            ),
        ];
        for (option, _, why) in without_effect.into_iter().filter(|(_, is_given, _)| *is_given) {
            mistakes.push(Mistake::new(option, format!("`{option}` {why}.")));
        }
        if self.on_found == OnFound::Drop {
            if self.on_missing == OnMissing::Drop {
                let message = "Nothing would ever pass: messages are dropped that are in the table, and those that are not.";
                mistakes.push(Mistake::new("on_found", message));
            }
            let given = [("columns", self.columns.is_some()), ("prefix", !self.prefix.is_empty())];
            for (option, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
                let message =
                    format!("`{option}` has no effect with `on_found: drop`: no message gets columns.");
                mistakes.push(Mistake::new(option, message));
            }
        }
        if mistakes.is_empty()
            && let Seen::Mistake(mistake) = self.seen()
        {
            mistakes.push(mistake.clone());
        }
        mistakes
    }
}

/// Returns the byte of a text that is one ASCII character.
fn ascii(text: &str) -> Option<u8> {
    match text.as_bytes() {
        [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r' | b'"') => Some(*byte),
        _ => None,
    }
}

impl TransformConfig for Join {
    fn outputs(&self) -> Vec<String> {
        let missing = (self.on_missing == OnMissing::Route).then(|| MISSING.to_owned());
        missing.into_iter().collect()
    }

    fn fields(&self) -> Vec<String> {
        self.on.keys().fields().map(str::to_owned).collect()
    }

    fn needed_files(&self) -> Vec<(&'static str, PathBuf)> {
        vec![("table", self.table.clone())]
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        if self.on_found == OnFound::Drop {
            return before;
        }
        match (self.seen(), self.chosen().listed()) {
            (Seen::Fields(fields), _) => fields.iter().fold(before, |known, field| {
                // The type of a member follows from the values of a file, which may change.
                let is_fixed = self.format() != Some(TableFormat::Jsonl);
                known.with(field.name(), is_fixed.then(|| field.clone()))
            }),
            (_, Some(listed)) => listed.iter().fold(before, |known, (_, name)| known.with(name, None)),
            (_, None) => before.with_others(),
        }
    }

    fn remarks(&self, before: &KnownFields) -> Vec<FieldMistake> {
        let Seen::Fields(fields) = self.seen() else { return Vec::new() };
        let known = before.names().find(|name| fields.iter().any(|field| field.name() == name));
        let remark = |name: &str| {
            let message = format!(
                "Messages may have a field `{name}` before `join`, which adds a column of this name: such messages are \
                 rejected."
            );
            let help = "Give a `prefix`, or other names: `columns: { column: field }`.";
            FieldMistake {
                text: self.table.to_string_lossy().into_owned(),
                error: FormatError::new(message).help(help),
            }
        };
        known.map(remark).into_iter().collect()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let watched = match opened.upgrade() {
            Some(watched) => watched,
            None => {
                let every = self.refresh_interval.duration();
                let watched = Watched::open(self.source(), &context.name, every, &context.memory)?;
                let watched = Arc::new(watched);
                *opened = Arc::downgrade(&watched);
                watched
            }
        };
        let path = self.table.display().to_string();
        Ok(Box::new(Joiner::new(watched, self.on.keys(), path, self.on_found, self.on_missing)))
    }
}

impl Join {
    fn chosen(&self) -> Chosen {
        match self.on_found {
            OnFound::Add => Chosen::new(self.columns.clone(), self.prefix.clone()),
            OnFound::Drop => Chosen::none(),
        }
    }

    fn format(&self) -> Option<TableFormat> {
        self.format.or_else(|| TableFormat::of_name(&self.table.to_string_lossy()))
    }

    fn source(&self) -> Source {
        let name = self.table.to_string_lossy().to_ascii_lowercase();
        let is_tabbed = [".tsv", ".tsv.gz", ".tsv.zst"].iter().any(|end| name.ends_with(end));
        let usual = if is_tabbed { b'\t' } else { b',' };
        Source {
            path: self.table.clone(),
            format: self.format().unwrap_or(TableFormat::Csv),
            delimiter: self.delimiter.as_deref().and_then(ascii).unwrap_or(usual),
            types: self.types.clone(),
            null_values: self.null_values.as_ref().map(|values| values.to_vec()),
            keys: self.on.keys(),
            chosen: self.chosen(),
            duplicates: self.duplicates,
        }
    }

    /// Returns what is in the file when the configuration is checked. It is read once for that.
    fn seen(&self) -> &Seen {
        self.seen.get_or_init(|| {
            let source = self.source();
            let size = file::state_at(&source.path).map(|state| state.size());
            if size.is_none_or(|size| size > CHECKED) {
                return Seen::Nothing;
            }
            match source.read(&Budget::new(CHECK_MEMORY).share()) {
                Ok((table, _)) => {
                    Seen::Fields(table.fields().iter().map(|field| field.as_ref().clone()).collect())
                }
                Err(unusable) => unusable.mistake().map_or(Seen::Nothing, Seen::Mistake),
            }
        })
    }
}

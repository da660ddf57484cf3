//! Writes the fields of each message as its payload: JSON, CSV, logfmt or text from a template.
//!
//! A Parquet table is a format of a whole file, not of a message. The options name it here, where all formats
//! are, and [`Encoding::table`] tells the sinks that write tables how.
//!
//! All payloads of a batch are written into one buffer. The bytes that are the same for every message (the
//! keys with their quotes, colons and commas) are prepared once per schema. Short keys are copied as blocks
//! of fixed size. If only one column of a text template varies within a batch, each message is three copies:
//! the text before the column, its value, and the text after it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use arrow_array::{Array, BinaryViewArray};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{List, Mistake};
use thalweg_record::{Batch, INTRINSIC, Outputs, PAYLOAD, PayloadWriter, is_record};

mod flat;
mod members;
mod table;

use crate::columns::FieldType;
use crate::names::{covers, same};
use crate::target::{Input, Slot};
use crate::template::{Template, column};
use crate::values::Values;
use flat::{Key, columns, quote_csv, write_csv, write_json, write_logfmt};
use members::Members;
pub use table::{TableCompression, TableOptions};

/// The columns to write, as pairs: the name to write and the field's name.
pub type Columns = Vec<(String, String)>;

/// A format and its options, as a configuration names them.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(from = "Written")]
#[schemars(with = "Written")]
pub struct Encoding {
    options: EncodeOptions,
    /// The columns of a format with a header. The first batch decides them, for all encoders of this encoding
    /// and for the header.
    decided: Arc<OnceLock<Columns>>,
}

/// How messages are written: the name of a format, or a format with its options.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Written {
    Format(Format),
    Options(Box<EncodeOptions>),
}

impl From<Written> for Encoding {
    fn from(written: Written) -> Self {
        let options = match written {
            Written::Options(options) => *options,
            Written::Format(format) => EncodeOptions {
                format,
                fields: None,
                exclude: List::default(),
                nulls: None,
                nested: None,
                root: None,
                sort: None,
                delimiter: None,
                trailing_delimiter: None,
                header: None,
                template: None,
                table: TableOptions::default(),
                into: crate::payload(),
                field: None,
                skip_empty: false,
            },
        };
        Self { options, decided: Arc::default() }
    }
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EncodeOptions {
    /// The format: `json`, `csv`, `logfmt`, `text`, `raw`, or in the sinks `objects` and `file` `parquet`.
    format: Format,
    /// The columns to write, in this order. They may include `payload`, `meta.source`, `meta.path`,
    /// `meta.time` and `meta.position`. The default is all fields in their present order. With `csv`, the
    /// default is the fields of the first messages: these are the columns of all lines and of the header. A
    /// later message with a value in another field leaves by the `errors` output. Give `fields` to have the
    /// same columns in every run.
    #[serde(default)]
    fields: Option<List<String, 1>>,
    /// The fields that are not written if `fields` is not given. A name also excludes the fields whose names
    /// begin with it and a dot. `*` matches any characters. The default is none.
    #[serde(default)]
    exclude: List<String>,
    /// For `json`: `omit` (the default) leaves out fields that are NULL, `keep` writes them as `null`. `keep`
    /// needs `fields`: a message itself does not tell which other fields exist. To keep the `null` members of
    /// JSON messages, use `parse_json` with `nulls: keep` instead: `omit` leaves these as they are.
    #[serde(default)]
    nulls: Option<Nulls>,
    /// For `json`: true to write names with dots as nested objects (a dot after `\` is a part of a name).
    /// `a.b` becomes the member `b` of the object `a`, the reverse of `parse_json` with `flatten`. If the
    /// field `a` has a value as well, `a.b` keeps its name. The default is `false`.
    #[serde(default)]
    nested: Option<bool>,
    /// For `json`: writes only the fields whose names begin with this name and a dot, without that prefix. A
    /// field with exactly this name is written as the whole value. The default is all fields.
    #[serde(default)]
    root: Option<String>,
    /// For `json`: true to write members in the order of their names. The default is `false`: they keep the
    /// order of the fields.
    #[serde(default)]
    sort: Option<bool>,
    /// For `csv`: the character between values, one ASCII character. The default is a comma.
    #[serde(default)]
    delimiter: Option<char>,
    /// For `csv`: true to write a delimiter after the last value as well. The default is `false`.
    #[serde(default)]
    trailing_delimiter: Option<bool>,
    /// For `csv` in a sink: true to begin each file with a line of the columns' names. The default is `true`.
    #[serde(default)]
    header: Option<bool>,
    /// For `text`: the template of a message, for example `{meta.time:%H:%M:%S} {level} {message}`.
    #[serde(default)]
    template: Option<Template>,
    #[serde(flatten)]
    table: TableOptions,
    /// The target of the text: a field, or `payload` (the default). A field that holds JSON is written as
    /// that JSON by a later `encode: json`.
    #[serde(default = "crate::payload")]
    #[schemars(length(min = 1))]
    into: String,
    /// True to leave messages unchanged whose `field` is empty or missing. The default is `false`.
    #[serde(default)]
    skip_empty: bool,
    /// The field that `skip_empty` checks. The default is the payload.
    #[serde(default)]
    field: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Format {
    /// A JSON object.
    Json,
    /// Comma-separated values.
    Csv,
    /// `key=value` pairs.
    Logfmt,
    /// A text from a template.
    Text,
    /// A Parquet table, in sinks that write files.
    Parquet,
    /// The payload as it is.
    Raw,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Format::Json => "json",
            Format::Csv => "csv",
            Format::Logfmt => "logfmt",
            Format::Text => "text",
            Format::Parquet => "parquet",
            Format::Raw => "raw",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Nulls {
    /// Fields that are NULL are left out.
    Omit,
    /// Fields that are NULL are written as `null`.
    Keep,
}

impl Default for Encoding {
    /// Returns the format `raw`, which leaves payloads as they are.
    fn default() -> Self {
        Written::Format(Format::Raw).into()
    }
}

impl Encoding {
    /// Returns the format `json` without options.
    pub fn json() -> Self {
        Written::Format(Format::Json).into()
    }

    /// True if payloads stay as they are, so there is nothing to encode.
    pub fn is_raw(&self) -> bool {
        self.options.format == Format::Raw
    }

    /// Returns how tables are written, if the format is Parquet.
    pub fn table(&self) -> Option<&TableOptions> {
        (self.options.format == Format::Parquet).then_some(&self.options.table)
    }

    /// True if its options name an [intrinsic column](INTRINSIC), such as `payload`. A batch without fields
    /// is written by its payloads in any case.
    pub fn names_intrinsic(&self) -> bool {
        let EncodeOptions { fields, template, skip_empty, .. } = &self.options;
        let fields = fields.iter().flatten().map(String::as_str);
        let columns = template.iter().flat_map(Template::columns);
        *skip_empty || fields.chain(columns).any(|name| INTRINSIC.contains(&name))
    }

    /// Returns the names of the fields that its options name to be written.
    pub fn fields(&self) -> Vec<String> {
        let EncodeOptions { fields, template, .. } = &self.options;
        let of_template = template.iter().flat_map(Template::fields);
        fields.iter().flatten().cloned().chain(of_template).collect()
    }

    /// Returns the first line of a file, without its line feed. `None` if the format has no header. `fields`
    /// are those of the first messages, which decide the columns if no encoder has seen messages yet.
    pub fn header(&self, fields: &Schema) -> Option<Vec<u8>> {
        let options = &self.options;
        if options.format != Format::Csv || options.header == Some(false) {
            return None;
        }
        let mut header = Vec::new();
        let delimiter = self.delimiter();
        for (number, (name, _)) in self.decided.get_or_init(|| options.columns(fields)).iter().enumerate() {
            if number > 0 {
                header.push(delimiter);
            }
            let start = header.len();
            header.extend_from_slice(name.as_bytes());
            quote_csv(&mut header, start, delimiter);
        }
        if options.trailing_delimiter == Some(true) {
            header.push(delimiter);
        }
        Some(header)
    }

    /// Returns the columns that the first batch has decided, if the format needs the same ones in all files.
    pub fn decided(&self) -> Option<&Columns> {
        self.options.decides().then(|| self.decided.get()).flatten()
    }

    /// Sets the columns that an earlier run decided, unless this run has decided them.
    pub fn decide(&self, columns: Columns) {
        let _ = self.decided.set(columns);
    }

    fn delimiter(&self) -> u8 {
        self.options.delimiter.and_then(|delimiter| u8::try_from(delimiter).ok()).unwrap_or(b',')
    }

    /// Returns the mistakes that the schema cannot express.
    pub fn check(&self) -> Vec<Mistake> {
        let options = &self.options;
        let format = options.format;
        let mut mistakes = Vec::new();
        let mut mistake = |option, message: &str, help: &str| {
            let help = Some(help.to_owned());
            mistakes.push(Mistake { option, message: message.to_owned(), help });
        };
        if format == Format::Text && options.template.is_none() {
            mistake(
                "template",
                "`text` needs a template.",
                "For example `{ format: text, template: \"{message}\" }`.",
            );
        }
        let only_for = [
            ("template", options.template.is_some(), Format::Text),
            ("nulls", options.nulls.is_some(), Format::Json),
            ("delimiter", options.delimiter.is_some(), Format::Csv),
            ("header", options.header.is_some(), Format::Csv),
            ("trailing_delimiter", options.trailing_delimiter.is_some(), Format::Csv),
            ("nested", options.nested.is_some(), Format::Json),
            ("root", options.root.is_some(), Format::Json),
            ("sort", options.sort.is_some(), Format::Json),
            ("columns", options.table.columns.is_some(), Format::Parquet),
            ("compression", options.table.compression.is_some(), Format::Parquet),
            ("row_group_size", options.table.row_group_size.is_some(), Format::Parquet),
        ];
        for (option, is_given, wanted) in only_for {
            if is_given && format != wanted {
                let message = format!("`{option}` is for the format `{}`.", wanted.name());
                mistake(option, &message, "Leave it out, or change `format`.");
            }
        }
        let has_fields = !matches!(format, Format::Text | Format::Raw | Format::Parquet);
        if options.fields.is_some() && !has_fields {
            let help = match format {
                Format::Parquet => {
                    "List the `columns` with their types, for example `{ name: text, size: int }`."
                }
                _ => "Leave it out, or change `format`.",
            };
            mistake("fields", "`fields` has no meaning for this format.", help);
        }
        if options.table.columns.as_ref().is_some_and(|columns| columns.0.is_empty()) {
            mistake("columns", "`columns` lists no column.", "For example `{ name: text, size: int }`.");
        }
        if format == Format::Parquet && (options.into != PAYLOAD || options.skip_empty) {
            mistake(
                "into",
                "A table is a file, not a field of a message.",
                "Leave out `into` and `skip_empty`.",
            );
        }
        if !options.exclude.is_empty() && !has_fields {
            mistake(
                "exclude",
                "`exclude` has no meaning for this format.",
                "Leave it out, or change `format`.",
            );
        }
        if options.fields.is_some() && (!options.exclude.is_empty() || options.root.is_some()) {
            let option = if options.root.is_some() { "root" } else { "exclude" };
            mistake(option, "`fields` already lists the columns to write.", "Leave out one of them.");
        }
        if format == Format::Json && options.nulls == Some(Nulls::Keep) && options.fields.is_none() {
            mistake(
                "nulls",
                "`nulls: keep` needs `fields`: otherwise a message would get the fields of its neighbours.",
                "List the `fields` to write, or use `parse_json` with `nulls: keep` to keep the `null` members of JSON.",
            );
        }
        if format == Format::Raw && (options.into != PAYLOAD || options.skip_empty) {
            mistake("into", "`raw` leaves messages as they are.", "Use `copy` to copy the payload.");
        }
        if options.field.is_some() && !options.skip_empty {
            mistake(
                "field",
                "`field` has an effect only with `skip_empty`.",
                "Say `skip_empty: true`, or leave it out.",
            );
        }
        if options.delimiter.is_some_and(|d| !d.is_ascii() || matches!(d, '"' | '\r' | '\n')) {
            mistake(
                "delimiter",
                "`delimiter` must be an ASCII character, and neither a quote nor a line end.",
                "For example `\"\\t\"` or `;`.",
            );
        }
        let mut seen = HashSet::new();
        if let Some(twice) = options.fields.iter().flatten().find(|name| !seen.insert(name.as_str())) {
            mistake("fields", &format!("`{twice}` is named twice."), "Name each column once.");
        }
        mistakes
    }

    /// Creates an encoder.
    ///
    /// # Errors
    /// If the format `text` has no template, which [`check`](Self::check) reports as a mistake in the
    /// configuration.
    pub fn build(&self) -> Result<Encoder, Mistake> {
        let mut options = self.options.clone();
        let writer = match options.format {
            Format::Json => Writer::Json { keep_nulls: options.nulls == Some(Nulls::Keep) },
            Format::Csv => Writer::Csv {
                delimiter: self.delimiter(),
                trailing: options.trailing_delimiter == Some(true),
            },
            Format::Logfmt => Writer::Logfmt,
            Format::Text => match options.template.take() {
                Some(template) => Writer::Text(template),
                None => {
                    return Err(Mistake::new(
                        "template",
                        "`encode` with the format `text` needs a `template`",
                    ));
                }
            },
            Format::Raw => Writer::Raw,
            Format::Parquet => {
                return Err(Mistake::new(
                    "format",
                    "`parquet` writes files, not single messages: it is for the sinks `objects` and `file`",
                ));
            }
        };
        let kind = if options.format == Format::Json { FieldType::Json } else { FieldType::Text };
        let skip = options
            .skip_empty
            .then(|| Input { field: options.field.clone().unwrap_or_else(crate::payload), skip_empty: true });
        let slot = Slot::new(&options.into, kind);
        // Listed columns are a choice: the other fields are left out. Columns that the first batch decides
        // are not, so no field may be left out silently.
        let decided = options.decides().then(|| self.decided.clone());
        Ok(Encoder { writer, decided, options, known: None, row_bytes: 0, slot, skip })
    }
}

enum Writer {
    Json { keep_nulls: bool },
    Csv { delimiter: u8, trailing: bool },
    Logfmt,
    Text(Template),
    Raw,
}

/// Writes the payloads of batches in one format.
pub struct Encoder {
    writer: Writer,
    options: EncodeOptions,
    /// The columns that the first batch decides, if the format needs the same ones in all messages.
    decided: Option<Arc<OnceLock<Columns>>>,
    /// The schema of the previous batch, and its layout.
    known: Option<(SchemaRef, Arc<Layout>)>,
    /// The bytes per message in the previous batch, as an estimate for the next.
    row_bytes: usize,
    slot: Slot,
    /// The field that must not be empty.
    skip: Option<Input>,
}

/// How messages of one schema are written.
enum Layout {
    /// Columns one after the other, and the names of fields for which there is no column.
    Flat(Vec<Key>, Vec<String>),
    /// Nested objects: the columns' names, and the tree of members.
    Nested(Vec<String>, Members),
}

impl EncodeOptions {
    /// True if the first batch decides the columns.
    fn decides(&self) -> bool {
        self.format == Format::Csv && self.fields.is_none()
    }

    /// Returns the columns to write.
    fn columns(&self, fields: &Schema) -> Columns {
        let same = |name: &String| (name.clone(), name.clone());
        if let Some(fields) = &self.fields {
            return fields.iter().map(same).collect();
        }
        // The first messages decide the columns of CSV, so these are not without any.
        let has_fields = is_record(fields) && (!self.decides() || !fields.fields().is_empty());
        if !has_fields && self.root.is_none() {
            return vec![same(&PAYLOAD.to_owned())];
        }
        let names = fields.fields().iter().map(|field| field.name());
        let below = |name: &String| match &self.root {
            None => Some(same(name)),
            Some(root) => {
                let rest = name.strip_prefix(root.as_str())?.strip_prefix('.')?;
                Some((rest.to_owned(), name.clone()))
            }
        };
        let is_excluded = |name: &str| self.exclude.iter().any(|pattern| covers(pattern, name));
        let mut columns: Vec<_> =
            names.filter_map(below).filter(|(written, _)| !is_excluded(written)).collect();
        if self.sort == Some(true) {
            // Sorted part by part, as the parts become members of objects.
            let parts = |name: &str| name.split('.').map(str::to_owned).collect::<Vec<_>>();
            columns.sort_by_cached_key(|(written, _)| {
                if self.nested == Some(true) { parts(written) } else { vec![written.clone()] }
            });
        }
        columns
    }
}

impl Encoder {
    /// Writes the payloads of a batch and sends it to `out`.
    ///
    /// # Errors
    /// If the options contradict each other, which [`Encoding::check`] reports as a mistake in the
    /// configuration.
    pub fn encode(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), ArrowError> {
        let layout = self.layout(&batch);
        let batch = match &*layout {
            Layout::Flat(keys, others) if !others.is_empty() => match without(keys, others, batch, out)? {
                Some(batch) => batch,
                None => return Ok(()),
            },
            _ => batch,
        };
        let skipped = match &self.skip {
            Some(input) => match input.read(&batch) {
                Some(column) => column.nulls().filter(|nulls| nulls.null_count() > 0).cloned(),
                None => {
                    out.send(batch);
                    return Ok(());
                }
            },
            None => None,
        };
        let rows = batch.rows();
        let estimate = self.row_bytes.max(16).saturating_mul(rows);
        let room = || PayloadWriter::with_capacity(estimate.saturating_add(estimate / 16), rows);
        let text = match (&mut self.writer, &*layout) {
            (Writer::Raw, _) => {
                out.send(batch);
                return Ok(());
            }
            (Writer::Text(template), _) => template.bind(&batch).render_all(rows, self.row_bytes),
            (Writer::Json { keep_nulls }, Layout::Nested(names, members)) => {
                let columns: Vec<Values> = names.iter().map(|name| column(&batch, name)).collect();
                let root = self.options.root.as_ref().map_or_else(Values::null, |root| column(&batch, root));
                members.write(&root, &columns, rows, *keep_nulls, room())
            }
            (Writer::Json { keep_nulls }, Layout::Flat(keys, _)) => {
                write_json(&columns(keys, &batch), rows, *keep_nulls, room())
            }
            (Writer::Csv { delimiter, trailing }, Layout::Flat(keys, _)) => {
                write_csv(&columns(keys, &batch), rows, *delimiter, *trailing, room())
            }
            (_, Layout::Flat(keys, _)) => write_logfmt(&columns(keys, &batch), rows, room()),
            (_, Layout::Nested(..)) => {
                let message = "`encode` can only nest objects in JSON".to_owned();
                return Err(ArrowError::InvalidArgumentError(message));
            }
        };
        let bytes: usize = text.data_buffers().iter().map(|buffer| buffer.len()).sum();
        self.row_bytes = bytes / rows.max(1) + 1;
        let text = match skipped {
            Some(nulls) => {
                let (views, buffers, _) = text.into_parts();
                BinaryViewArray::try_new(views, buffers, Some(nulls))?
            }
            None => text,
        };
        self.slot.put(batch, text, Vec::new(), out)
    }

    fn layout(&mut self, batch: &Batch) -> Arc<Layout> {
        let schema = batch.fields().schema_ref();
        match &self.known {
            Some((known, layout)) if same(known, schema) => layout.clone(),
            _ => {
                let columns = self.options.columns(schema);
                let is_nested = self.options.nested == Some(true) || self.options.root.is_some();
                let layout = if self.options.format == Format::Json && is_nested {
                    let (written, names): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
                    Layout::Nested(names, Members::new(&written, self.options.nested == Some(true)))
                } else {
                    let (columns, others) = self.decide(columns);
                    let places: HashMap<&str, usize> =
                        schema.fields().iter().map(|field| field.name().as_str()).zip(0..).collect();
                    let key = |(_, name): (_, String)| {
                        Key::new(places.get(name.as_str()).copied(), name, &self.writer)
                    };
                    Layout::Flat(columns.into_iter().map(key).collect(), others)
                };
                let layout = Arc::new(layout);
                self.known = Some((schema.clone(), layout.clone()));
                layout
            }
        }
    }

    /// Returns the columns to write, and the fields among `columns` for which there is none.
    fn decide(&self, columns: Columns) -> (Columns, Vec<String>) {
        let Some(decided) = &self.decided else { return (columns, Vec::new()) };
        let known = decided.get_or_init(|| columns.clone());
        let names: HashSet<&str> = known.iter().map(|(_, name)| name.as_str()).collect();
        let others = columns.into_iter().map(|(_, name)| name);
        let others = others.filter(|name| !names.contains(name.as_str()));
        (known.clone(), others.collect())
    }
}

/// Rejects the messages that have a value in one of the `others`, for which there is no column.
fn without(
    keys: &[Key],
    others: &[String],
    batch: Batch,
    out: &mut Outputs,
) -> Result<Option<Batch>, ArrowError> {
    let values: Vec<(&String, Values)> = others.iter().map(|name| (name, column(&batch, name))).collect();
    let mut failed = Vec::new();
    for row in 0..batch.rows() {
        if let Some((name, _)) = values.iter().find(|(_, values)| !values.is_null(row)) {
            let count = keys.len();
            let reason = format!(
                "there is no column for the field `{name}`: the first messages had only the {count} that the \
                 header has; list all columns in `fields` of `encode`"
            );
            failed.push((row as u32, reason));
        }
    }
    out.reject(batch, failed)
}

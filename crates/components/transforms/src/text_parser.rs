//! Parsers that read one text per message and know their columns: their common options and path.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::columns::{ByteParser, Columns, FieldType, Typing, parse_required};
use thalweg_engine::{Error, KnownFields, Outputs, Transform};
use thalweg_record::Batch;

/// The field to parse, and the types of the results.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct TextOptions {
    /// Other types for fields: `{status: text}`. A message with a value that does not fit its type leaves by
    /// the `errors` output.
    pub(crate) types: BTreeMap<String, FieldType>,
    /// The field to parse. The default is the payload.
    pub(crate) field: String,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self { types: BTreeMap::new(), field: crate::payload() }
    }
}

impl TextOptions {
    /// Returns the typing of columns that have these types unless the options give others.
    pub(crate) fn typing<'a>(&self, usual: impl IntoIterator<Item = (&'a str, FieldType)>) -> Typing {
        let usual = usual.into_iter().map(|(name, kind)| (name.to_owned(), kind));
        let given = self.types.iter().map(|(name, kind)| (name.clone(), *kind));
        Typing::new(&usual.chain(given).collect(), None)
    }

    /// Returns what is known of the fields of messages to which a parser adds these.
    pub(crate) fn fields_after<'a>(
        &self,
        before: KnownFields,
        usual: impl IntoIterator<Item = (&'a str, FieldType)>,
    ) -> KnownFields {
        let kind = |name: &str, usual| self.types.get(name).copied().unwrap_or(usual);
        before.parsed(usual.into_iter().map(|(name, usual)| kind(name, usual).field(name)))
    }
}

/// Reads one message.
pub(crate) trait TextReader: Send {
    /// Appends at most one value to each column.
    ///
    /// # Errors
    /// The reason for rejecting the message.
    fn read(&mut self, text: &str, columns: &mut Columns) -> Result<(), String>;
}

impl<R: TextReader + ?Sized> TextReader for Box<R> {
    fn read(&mut self, text: &str, columns: &mut Columns) -> Result<(), String> {
        (**self).read(text, columns)
    }
}

/// Parses messages by a reader.
pub(crate) struct TextParser<R> {
    reader: R,
    columns: Columns,
    field: String,
}

impl<R: TextReader> TextParser<R> {
    /// Creates a parser of the texts in a field.
    pub(crate) fn new(reader: R, columns: Columns, field: &str) -> Self {
        Self { reader, columns, field: field.to_owned() }
    }
}

impl<R: TextReader> ByteParser for TextParser<R> {
    fn field(&self) -> &str {
        &self.field
    }

    fn columns(&mut self) -> &mut Columns {
        &mut self.columns
    }

    #[inline]
    fn parse(&mut self, _: usize, value: &[u8]) -> Result<(), String> {
        let text = simdutf8::basic::from_utf8(value).map_err(|_| thalweg_codec::not_utf8(value))?;
        self.reader.read(text, &mut self.columns)
    }
}

impl<R: TextReader> Transform for TextParser<R> {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        Ok(parse_required(self, batch, out)?)
    }
}

/// Appends a value of a log to a column. `-` is NULL.
#[inline]
pub(crate) fn push(columns: &mut Columns, column: usize, piece: &str) -> Result<(), String> {
    if piece == "-" { Ok(()) } else { columns.push(column, piece) }
}

//! Keys and values that become columns: the common part of parsers whose keys are not known in advance.
//!
//! A column is added with the first message that has its key, and stays, so the schema is stable after a few
//! messages. Columns are forgotten only if more than half of them had no value for some batches: otherwise a
//! single message with a thousand keys would slow all later ones. Most messages have the same keys in the
//! same order. So the key that followed the previous key last time is tried first, before the hash table.
//!
//! A message is parsed completely before its values are added to the columns: a malformed message adds none.

use std::ops::Range;

use hashbrown::HashMap;
use thalweg_codec::columns::{ByteParser, Columns, Typing, parse_required, shortened};
use thalweg_engine::{Error, Outputs, Transform};
use thalweg_record::Batch;

/// Reads the pairs of one message.
pub(crate) trait Syntax: Send {
    /// Passes each pair of a text to [`Pairs::set`].
    ///
    /// # Errors
    /// The reason for rejecting the message.
    fn read(&mut self, text: &str, pairs: &mut Pairs) -> Result<(), String>;
}

/// A value of a pair.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    /// The value of a key that stands alone.
    True,
    /// A range of the message.
    Raw(Range<usize>),
    /// A range of [`Pairs::decoded`].
    Decoded(Range<usize>),
}

/// The pairs of one message, in memory that is reused, and the columns of all messages.
pub(crate) struct Pairs {
    columns: Columns,
    numbers: HashMap<Box<str>, usize>,
    max_fields: usize,
    /// For each column: the row that last set a value, and that value.
    values: Vec<(usize, Value)>,
    /// The columns with a value in this message.
    present: Vec<usize>,
    row: usize,
    /// The column of the next key, if the keys come in the order of the message before.
    guess: usize,
    /// Values that contained escapes, decoded.
    pub(crate) decoded: String,
}

impl Pairs {
    fn new(typing: Typing, max_fields: usize) -> Self {
        Self {
            columns: Columns::new(typing, [""; 0]),
            numbers: HashMap::new(),
            max_fields,
            values: Vec::new(),
            present: Vec::new(),
            row: 0,
            guess: 0,
            decoded: String::new(),
        }
    }

    /// Sets the value of a key in this message. The last value of a key counts.
    ///
    /// # Errors
    /// If the key is one more than the maximum.
    #[inline]
    pub(crate) fn set(&mut self, key: &str, value: Value) -> Result<(), String> {
        let column = self.column(key)?;
        self.guess = column + 1;
        if let Some(slot) = self.values.get_mut(column) {
            if slot.0 != self.row {
                self.present.push(column);
            }
            *slot = (self.row, value);
        }
        Ok(())
    }

    fn column(&mut self, key: &str) -> Result<usize, String> {
        if self.columns.name(self.guess) == Some(key) {
            return Ok(self.guess);
        }
        if let Some(&column) = self.numbers.get(key) {
            return Ok(column);
        }
        if self.columns.len() >= self.max_fields {
            let most = self.max_fields;
            return Err(format!("the key `{}` is one more than `max_fields` allows, {most}", shortened(key)));
        }
        let column = self.columns.add(key);
        self.numbers.insert(key.into(), column);
        self.values.push((usize::MAX, Value::True));
        Ok(column)
    }

    fn begin(&mut self, row: usize) {
        self.row = row;
        self.guess = 0;
        self.present.clear();
        self.decoded.clear();
    }

    /// Adds the values of this message to the columns.
    fn end(&mut self, text: &str) -> Result<(), String> {
        for &column in &self.present {
            let piece = match self.values.get(column) {
                Some((_, Value::True)) => "true",
                Some((_, Value::Raw(range))) => text.get(range.clone()).unwrap_or_default(),
                Some((_, Value::Decoded(range))) => self.decoded.get(range.clone()).unwrap_or_default(),
                None => continue,
            };
            self.columns.push(column, piece)?;
        }
        Ok(())
    }

    fn begin_batch(&mut self) {
        if self.columns.forget_idle() {
            let names = (0..self.columns.len())
                .filter_map(|column| Some((self.columns.name(column)?.into(), column)));
            self.numbers = names.collect();
            self.values.truncate(self.columns.len());
        }
        self.values.iter_mut().for_each(|(row, _)| *row = usize::MAX);
    }
}

/// Parses messages of one syntax.
pub(crate) struct PairParser<S> {
    syntax: S,
    pairs: Pairs,
    field: String,
}

impl<S: Syntax> PairParser<S> {
    /// Creates a parser of the texts in a field.
    pub(crate) fn new(syntax: S, typing: Typing, max_fields: usize, field: &str) -> Self {
        Self { syntax, pairs: Pairs::new(typing, max_fields), field: field.to_owned() }
    }
}

impl<S: Syntax> ByteParser for PairParser<S> {
    fn field(&self) -> &str {
        &self.field
    }

    fn columns(&mut self) -> &mut Columns {
        &mut self.pairs.columns
    }

    #[inline]
    fn parse(&mut self, row: usize, value: &[u8]) -> Result<(), String> {
        let text = simdutf8::basic::from_utf8(value).map_err(|_| thalweg_codec::not_utf8(value))?;
        self.pairs.begin(row);
        self.syntax.read(text, &mut self.pairs)?;
        self.pairs.end(text)
    }
}

impl<S: Syntax> Transform for PairParser<S> {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        self.pairs.begin_batch();
        Ok(parse_required(self, batch, out)?)
    }
}

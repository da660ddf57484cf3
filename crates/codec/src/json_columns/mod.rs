//! Parses JSON objects into columns.
//!
//! There are two passes. The first walks each payload once. It checks the whole grammar, and stores only the
//! position and the kind of each member's value (eight bytes). The second converts one column at a time. By
//! then the kinds of all its values are known, so the type of the column is decided before any value is
//! converted. A column of mixed types needs no undoing. Texts without escapes and nested values are views of
//! the payload.
//!
//! Records of one stream resemble each other. Each key therefore remembers the key that followed it last. The
//! walk first compares the next bytes with that key, sixteen at once. Only if they differ does it search the
//! end of the key and hash it.
//!
//! The rejected alternative is a general parser that builds a tree per record, from which the columns are
//! filled. The example `hot_path` measures both: building the tree alone takes longer than both passes,
//! because it stores every value.
//!
//! See docs/decisions/029-hot-codecs-are-our-own.md.

use std::collections::{BTreeMap, HashSet};

use arrow_array::{Array, BinaryViewArray, BooleanArray};
use arrow_schema::ArrowError;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_record::{Batch, Outputs};

mod columns;
mod convert;
mod elements;
mod members;
mod scan;
mod shape;
mod spans;
mod walk;

pub use elements::{Element, elements, elements_after};
pub use members::{members, value_at};

use crate::columns::FieldType;
use scan::as_text;
use shape::Shape;
use walk::{Walk, Walked};

/// The maximum nesting depth of a record, itself included. Other parsers have the same limit.
const DEEPEST: usize = 127;

/// Records of this length, in bytes, or more are rejected. Lengths share 32 bits with the kind of the value.
pub const LONGEST: usize = 1 << 28;

/// The value of a member that is `null`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Nulls {
    /// It is NULL, as if the member were missing.
    #[default]
    Omit,
    /// It is the JSON value `null`, which is written again. In expressions and casts it is NULL.
    Keep,
}

/// The options of [`JsonColumns`].
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The members to parse. `None` means all.
    pub fields: Option<HashSet<String>>,
    /// The members that must have a certain type, by path.
    pub types: BTreeMap<String, FieldType>,
    /// True if the members of nested objects become fields, named with dots.
    pub flatten: bool,
    /// The prefix of the name of each field.
    pub prefix: String,
    /// The value of a member that is `null`, unless its type is given.
    pub nulls: Nulls,
    /// The maximum number of fields.
    pub max_fields: usize,
}

/// Parses JSON objects into columns. Remembers the structure of the records between batches.
pub struct JsonColumns {
    walk: Walk,
    shape: Shape,
}

impl JsonColumns {
    /// Creates a parser with these options.
    pub fn new(wanted: Wanted) -> Self {
        Self { walk: Walk::new(wanted), shape: Shape::default() }
    }

    /// Limits what is made of a batch at once to a part of this memory, in bytes.
    #[must_use]
    pub fn within(mut self, memory: usize) -> Self {
        self.walk.within(memory);
        self
    }

    /// Gives the times of members their unit, by path: the number of units per second.
    #[must_use]
    pub fn with_units(mut self, units: &'static [(&'static str, i64)]) -> Self {
        self.walk.units = units;
        self
    }

    /// Parses one column of a batch, which `read` returns. Its NULLs are ignored. Rejects messages whose
    /// value is not a JSON object, and returns the others with the new columns. If messages were rejected,
    /// `read` is called again with the others.
    ///
    /// # Errors
    /// If Arrow cannot build the new batch.
    pub fn parse(
        &mut self,
        batch: Batch,
        out: &mut Outputs,
        read: impl Fn(&Batch) -> Option<BinaryViewArray>,
    ) -> Result<Parsed, ArrowError> {
        let Some(column) = read(&batch) else { return Ok(Parsed { batch: Some(batch), rest: None }) };
        let mut walked = self.walk.batch(&column);
        if self.walk.overflowed {
            // Fields of earlier batches may use up `max_fields`.
            self.walk.forget(0, 0, 1);
            walked = self.walk.batch(&column);
        }
        let Walked { texts, failed, rows } = walked;
        if failed.is_empty() && rows == column.len() {
            let columns = self.walk.columns(&texts, column.data_buffers());
            let batch = Some(self.shape.set(batch, columns, &self.walk)?);
            return Ok(Parsed { batch, rest: None });
        }
        let walked = BooleanArray::from((0..column.len()).map(|row| row < rows).collect::<Vec<bool>>());
        let (batch, rest) = batch.partition(&walked)?;
        let batch = match batch {
            Some(batch) => out.reject(batch, failed)?,
            None => None,
        };
        // The messages may have been copied to a new buffer. The columns must be views of that buffer.
        let Some(batch) = batch else { return Ok(Parsed { batch: None, rest }) };
        let Some(column) = read(&batch) else { return Ok(Parsed { batch: Some(batch), rest }) };
        let text =
            |row| if column.is_valid(row) { as_text(column.value(row)).unwrap_or_default() } else { "" };
        let texts: Vec<&str> = (0..column.len()).map(text).collect();
        let columns = self.walk.columns(&texts, column.data_buffers());
        Ok(Parsed { batch: Some(self.shape.set(batch, columns, &self.walk)?), rest })
    }
}

/// The messages of a batch after [`JsonColumns::parse`].
pub struct Parsed {
    /// The parsed messages, if any.
    pub batch: Option<Batch>,
    /// The messages after those, as they were, if all together have too many columns. They must be parsed
    /// next.
    pub rest: Option<Batch>,
}

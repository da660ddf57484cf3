//! From JSON objects to columns.
//!
//! Two passes. The first walks each payload once: it checks the whole grammar, and notes for each member only
//! where its value stands and of what kind it is (eight bytes). The second goes a column at a time: by then the
//! kinds of all its values are known, so the type of the column is decided before a single value is converted, and
//! a column of mixed types needs no undoing. Texts without escapes and nested values are views of the payload.
//!
//! Records of one stream resemble each other. So each key remembers which key followed it last, and the walk
//! compares the bytes at hand with that one (sixteen at once) before it looks for the end of the key and hashes it.
//!
//! The alternative was a general parser's tree of each record, walked into the columns. The example `hot_path`
//! measures both: the tree alone takes longer than all of this, since it stores what this one only notes the place of.

use std::collections::{BTreeMap, HashSet};

use arrow_array::{Array, BinaryViewArray};
use arrow_schema::ArrowError;
use thalweg_record::Batch;
use thalweg_record::Outputs;

mod columns;
mod convert;
mod scan;
mod shape;
mod spans;
mod walk;

use crate::columns::FieldType;
use scan::as_text;
use shape::Shape;
use walk::Walk;

/// How deep a record may be nested, itself included; the same as other parsers have.
const DEEPEST: usize = 127;

/// The longest record: lengths share 32 bits with the kind of the value.
const LONGEST: usize = 1 << 28;

/// What is wanted of JSON objects.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Only these members, if not all.
    pub fields: Option<HashSet<String>>,
    /// Members that must have a certain type.
    pub types: BTreeMap<String, FieldType>,
    /// Whether objects in objects are looked into.
    pub flatten: bool,
    /// What stands before the name of each field.
    pub prefix: String,
    /// How many fields there may be.
    pub max_fields: usize,
}

/// Makes columns of JSON objects, and remembers what they look like.
pub struct JsonColumns {
    walk: Walk,
    shape: Shape,
}

impl JsonColumns {
    /// Columns of what is wanted.
    pub fn new(wanted: Wanted) -> Self {
        Self { walk: Walk::new(wanted), shape: Shape::default() }
    }

    /// Parses the column of a batch that `read` gives, whose NULLs are left alone. Rejects what is no JSON object,
    /// and gives the rest with its new columns. `read` is asked again where some were rejected.
    pub fn parse(
        &mut self,
        batch: Batch,
        out: &mut Outputs,
        read: impl Fn(&Batch) -> Option<BinaryViewArray>,
    ) -> Result<Option<Batch>, ArrowError> {
        let Some(column) = read(&batch) else { return Ok(Some(batch)) };
        let (mut texts, mut failed) = self.walk.batch(&column);
        if self.walk.overflowed {
            // Fields that were seen in earlier batches may be what leaves no room.
            self.walk.forget(0, 0, 1);
            (texts, failed) = self.walk.batch(&column);
        }
        if failed.is_empty() {
            let columns = self.walk.columns(&texts, column.data_buffers());
            return Ok(Some(self.shape.set(batch, columns, &self.walk)?));
        }
        // What is left may have been copied to a buffer of its own, so that is what the columns must stand on.
        let Some(batch) = out.reject(batch, failed)? else { return Ok(None) };
        let Some(column) = read(&batch) else { return Ok(Some(batch)) };
        let text =
            |row| if column.is_valid(row) { as_text(column.value(row)).unwrap_or_default() } else { "" };
        let texts: Vec<&str> = (0..column.len()).map(text).collect();
        let columns = self.walk.columns(&texts, column.data_buffers());
        Ok(Some(self.shape.set(batch, columns, &self.walk)?))
    }
}

//! Parses payloads that are JSON objects into columns.
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

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Context, Error, Mistake, Outlets, Transform, TransformConfig};
use thalweg_record::Batch;

mod columns;
mod convert;
mod scan;
mod shape;
mod spans;
mod walk;

use crate::shared::columns::FieldType;
use scan::as_text;
use shape::Shape;
use walk::Walk;

/// How deep a record may be nested, itself included; the same as other parsers have.
const DEEPEST: usize = 127;

/// The longest record: lengths share 32 bits with the kind of the value.
const LONGEST: usize = 1 << 28;

/// Parses payloads that are JSON objects, such as the lines of a JSON Lines file, into fields.
///
/// Each member becomes a field. Its type is found from the values of a batch: whole numbers, numbers, booleans
/// or text; nested and mixed values are kept as JSON text. Members that a record lacks are NULL. A payload that
/// is not a JSON object leaves by `errors` with the reason. Payloads stay as they are.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ParseJsonConfig {
    /// Only these members become fields; the others are checked and skipped, which is faster. The default is all.
    #[schemars(length(min = 1))]
    fields: Option<Vec<String>>,
    /// Members that must have a certain type: `int`, `float`, `bool`, `text`, `timestamp` or `json`. A text that
    /// holds such a value is converted; a record with a value that does not fit leaves by `errors`. A timestamp is
    /// a text as in RFC 3339, or a number of seconds since 1970 (whole numbers of 12 or more digits are milli-,
    /// micro- or nanoseconds, by their size).
    types: BTreeMap<String, FieldType>,
    /// Whether the members of nested objects become fields, called `outer.inner`. Otherwise a nested object
    /// is one field that holds its JSON text. The default is `false`.
    flatten: bool,
    /// What to put before the name of each field, for example `json_`. The default is nothing.
    prefix: String,
    /// How many different fields a batch may have; a record with further ones leaves by `errors`. It protects
    /// against data where names are values. The default is 1024.
    #[schemars(range(min = 1, max = 65_536))]
    max_fields: usize,
}

impl Default for ParseJsonConfig {
    fn default() -> Self {
        Self { fields: None, types: BTreeMap::new(), flatten: false, prefix: String::new(), max_fields: 1024 }
    }
}

impl TransformConfig for ParseJsonConfig {
    const NAME: &'static str = "parse_json";
    const EXAMPLE: &'static str = r#"
sources:
  messages:
    generate:
      message: '{"id": %6d, "name": "%12s", "score": %2f}'
      count: 1000
pipelines:
  main:
    from: messages
    transforms:
      - parse_json: { types: { score: float } }
    to: nowhere
sinks:
  nowhere: { discard: {} }
"#;

    fn check(&self) -> Vec<Mistake> {
        let Some(fields) = &self.fields else { return Vec::new() };
        let missing = self.types.keys().filter(|name| !fields.contains(name));
        let mistake = |name| Mistake {
            option: "types",
            message: format!("`types` names `{name}`, which is not among `fields`."),
            help: Some(format!("Add `{name}` to `fields`, or take it out of `types`.")),
        };
        missing.map(mistake).collect()
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        Ok(Box::new(ParseJson { walk: Walk::new(self), shape: Shape::default() }))
    }
}

struct ParseJson {
    walk: Walk,
    shape: Shape,
}

impl Transform for ParseJson {
    fn apply(&mut self, batch: Batch, out: &mut Outlets) -> Result<(), Error> {
        let payload = batch.payload().clone();
        let (mut texts, mut failed) = self.walk.batch(&payload);
        if self.walk.overflowed {
            // Fields that were seen in earlier batches may be what leaves no room.
            self.walk.forget(0, 0, 1);
            (texts, failed) = self.walk.batch(&payload);
        }
        if failed.is_empty() {
            let columns = self.walk.columns(&texts, payload.data_buffers());
            out.send(self.shape.set(batch, columns, &self.walk)?);
            return Ok(());
        }
        // What is left may have been copied to a buffer of its own, so that is what the columns must stand on.
        let Some(batch) = out.reject(batch, failed)? else { return Ok(()) };
        let payload = batch.payload().clone();
        let texts: Vec<&str> =
            payload.iter().map(|value| as_text(value.unwrap_or_default()).unwrap_or_default()).collect();
        let columns = self.walk.columns(&texts, payload.data_buffers());
        out.send(self.shape.set(batch, columns, &self.walk)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests;

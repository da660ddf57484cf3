//! Parses JSON objects into columns: see [`JsonColumns`].

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use arrow_schema::Field;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::List;
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Outputs, Transform, TransformConfig};
use thalweg_record::Batch;

use thalweg_codec::columns::FieldType;
use thalweg_codec::json_columns::{JsonColumns, Nulls, Wanted};
use thalweg_codec::target::Input;

/// Parses payloads that are JSON objects, such as the lines of a JSON Lines file, into fields.
///
/// Each member becomes a field. Its type follows from the values of a batch: whole numbers, numbers, booleans
/// or text. Nested and mixed values are kept as JSON text. A value keeps its own type whatever other messages
/// have: `1` stays `1` beside `1.5` or `"a"`. Members that a message lacks, and `null`, are NULL (`nulls:
/// keep` keeps `null`). A payload that is not a JSON object leaves by the `errors` output with the reason.
///
/// Payloads stay as they are. With `field`, that field is parsed instead, and stays as well.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ParseJsonConfig {
    #[serde(flatten)]
    input: Input,
    /// The members that become fields. Other members are validated and skipped, which is faster. The default
    /// is all members.
    fields: Option<List<String, 1>>,
    /// The types that members must have: `int`, `float`, `bool`, `text`, `timestamp` or `json`. A text that
    /// holds such a value is converted. A message with a value that does not fit leaves by the `errors`
    /// output. A `bool` may also be `yes`, `on`, `1` or their opposites. A `timestamp` is RFC 3339, the
    /// common log format, RFC 2822, or a number since 1970. The size of a number tells its unit: seconds,
    /// milliseconds, microseconds or nanoseconds.
    types: BTreeMap<String, FieldType>,
    /// True to make fields of the members of nested objects, called `outer.inner`. With `false`, a nested
    /// object is one field that holds its JSON text. The default is `false`.
    flatten: bool,
    /// A prefix for the name of each field, for example `json_`. The default is empty.
    prefix: String,
    /// The value of a member that is `null`, if `types` does not name it. `omit` (the default) makes it NULL,
    /// as if it were missing. `keep` makes it the JSON value `null`, which `encode: json` writes again. Other
    /// members of the same name are then kept as JSON text too, which is slower.
    nulls: Nulls,
    /// The maximum number of different fields in a batch. A message with further members leaves by the
    /// `errors` output. The limit protects against data that uses values as names. A batch has no more fields
    /// than one for each 4 KiB of `memory`, or 1024. The default is 1024.
    #[schemars(range(min = 1, max = 65_536))]
    max_fields: usize,
}

impl Default for ParseJsonConfig {
    fn default() -> Self {
        Self {
            input: Input::default(),
            fields: None,
            types: BTreeMap::new(),
            flatten: false,
            prefix: String::new(),
            nulls: Nulls::Omit,
            max_fields: 1024,
        }
    }
}

impl Component for ParseJsonConfig {
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
}

impl TransformConfig for ParseJsonConfig {
    fn fields(&self) -> Vec<String> {
        vec![self.input.field.clone()]
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        let named = |name: &str| format!("{}{name}", self.prefix);
        let typed: Vec<Field> = self.types.iter().map(|(name, kind)| kind.field(&named(name))).collect();
        let parsed = before.clone().parsed(typed.iter().cloned());
        let known = match self.fields.as_ref().filter(|_| !self.flatten) {
            Some(fields) => fields.iter().fold(before, |known, name| known.with(&named(name), None)),
            None => before.with_others(),
        };
        let names = typed.iter().map(Field::name);
        names.fold(known, |known, name| known.with(name, parsed.kind(name).cloned()))
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error> {
        let wanted = Wanted {
            fields: self.fields.as_ref().map(|fields| fields.iter().cloned().collect()),
            types: self.types.clone(),
            flatten: self.flatten,
            prefix: self.prefix.clone(),
            nulls: self.nulls,
            max_fields: self.max_fields,
        };
        let columns = JsonColumns::new(wanted).within(context.memory.budget().limit());
        Ok(Box::new(ParseJson { input: self.input.clone(), columns, waiting: VecDeque::new() }))
    }
}

struct ParseJson {
    input: Input,
    columns: JsonColumns,
    /// Messages that are not parsed yet. With many fields, columns take far more memory than the text, so
    /// they leave in pieces.
    waiting: VecDeque<Batch>,
}

impl Transform for ParseJson {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        self.waiting.push_back(batch);
        self.resume(out)
    }

    fn resume(&mut self, out: &mut Outputs) -> Result<(), Error> {
        if let Some(batch) = self.waiting.pop_front() {
            let parsed = self.columns.parse(batch, out, |batch| self.input.read(batch))?;
            out.send(parsed.batch);
            parsed.rest.into_iter().for_each(|rest| self.waiting.push_front(rest));
        }
        if !self.waiting.is_empty() {
            out.hold(Duration::ZERO);
        }
        Ok(())
    }
}

#[cfg(test)]
mod own_types;
#[cfg(test)]
mod tests;

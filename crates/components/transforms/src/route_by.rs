//! Sends messages to outputs by the value of a field.
//!
//! `route` evaluates a condition per output. Here the value is looked up once, so the cost does not depend on
//! the number of outputs.

use arrow_array::{Array, BinaryViewArray};
use hashbrown::HashMap;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Outputs, Transform, TransformConfig};
use thalweg_record::{Batch, INTRINSIC, ViewBuilder};

use crate::labels::check_labels;
use thalweg_codec::columns::FieldType;
use thalweg_codec::delimiter::Delimiter;
use thalweg_codec::keys::bytes_of;
use thalweg_codec::ordered::Ordered;
use thalweg_codec::target::Slot;

/// Sends each message to an output by the value of a field.
///
/// Messages with any other value continue in this pipeline. Another pipeline reads the messages of an output
/// with `from: main.label`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteBy {
    /// The field whose value decides. The default is the payload.
    #[serde(default = "crate::payload")]
    field: String,
    /// The outputs and their values: `{failures: "error", access: "http"}`.
    outputs: Ordered<String>,
    /// A delimiter, for example `:`. Only the text before its first occurrence decides. That text and the
    /// delimiter are removed from every message that contains the delimiter. A message without it continues
    /// unchanged. By default the whole value decides.
    #[serde(default)]
    #[schemars(length(min = 1))]
    prefix_until: Option<String>,
}

impl Component for RouteBy {
    const NAME: &'static str = "route_by";
    const EXAMPLE: &'static str = r#"
sources:
  service: { generate: { lines: ["error: it failed", "info: it works"] } }
pipelines:
  main:
    from: service
    transforms:
      - route_by: { outputs: { failures: error }, prefix_until: ": " }
    to: screen
  failures:
    from: main.failures
    to: alarms
sinks:
  screen: { stdout: {} }
  alarms: { stdout: { encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let outputs = &self.outputs.0;
        let mut mistakes = check_labels(outputs.iter().map(|(label, _)| label.as_str()));
        mistakes.iter_mut().for_each(|mistake| mistake.option = "outputs");
        if outputs.is_empty() {
            let mistake = Mistake::new("outputs", "There is no output to send messages to.");
            mistakes.push(mistake.help("Write `{label: \"value\"}`."));
        }
        for (at, (label, value)) in outputs.iter().enumerate() {
            if let Some((first, _)) = outputs.iter().take(at).find(|(_, known)| known == value) {
                let message = format!("`{first}` and `{label}` have the same value `{value}`.");
                mistakes.push(Mistake::new("outputs", message).help("Each message goes to one output."));
            }
        }
        mistakes
    }
}

impl TransformConfig for RouteBy {
    fn names_intrinsic(&self) -> bool {
        INTRINSIC.contains(&self.field.as_str())
    }

    fn outputs(&self) -> Vec<String> {
        self.outputs.0.iter().map(|(label, _)| label.clone()).collect()
    }

    fn fields(&self) -> Vec<String> {
        vec![self.field.clone()]
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        before
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        let values = self.outputs.0.iter().map(|(_, value)| value.clone().into_bytes());
        Ok(Box::new(Router {
            field: self.field.clone(),
            groups: vec![Vec::new(); self.outputs.0.len() + 1],
            outputs: values.zip(0..).collect(),
            delimiter: self.prefix_until.as_deref().map(Delimiter::new),
            slot: Slot::new(&self.field, FieldType::Text),
        }))
    }
}

struct Router {
    field: String,
    outputs: HashMap<Vec<u8>, usize>,
    /// The rows of each output. The last entry holds the rows that continue.
    groups: Vec<Vec<u32>>,
    delimiter: Option<Delimiter>,
    slot: Slot,
}

impl Router {
    /// Returns the text of each message without its prefix.
    fn without_prefix(&self, column: &BinaryViewArray, delimiter: &Delimiter) -> BinaryViewArray {
        let mut rest = ViewBuilder::over(column.data_buffers(), column.len());
        for value in column {
            match value {
                Some(value) => {
                    let start = delimiter.find(value).map_or(0, |at| at + delimiter.len());
                    rest.push(value.get(start..).unwrap_or_default());
                }
                None => rest.push_null(),
            }
        }
        rest.finish()
    }

    fn send(&mut self, output: usize, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let column = self.delimiter.as_ref().and(bytes_of(&batch, &self.field));
        let batch = match (&self.delimiter, column) {
            (Some(delimiter), Some(column)) => {
                let rest = self.without_prefix(&column, delimiter);
                self.slot.give(batch, rest, Vec::new(), out)?
            }
            _ => Some(batch),
        };
        match batch {
            Some(batch) if output < self.outputs.len() => out.send_to(output, batch),
            batch => out.send(batch),
        }
        Ok(())
    }
}

impl Transform for Router {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let onwards = self.outputs.len();
        let Some(column) = bytes_of(&batch, &self.field) else {
            out.send(batch);
            return Ok(());
        };
        self.groups.iter_mut().for_each(Vec::clear);
        for row in 0..column.len() {
            let value = column.is_valid(row).then(|| column.value(row));
            let value = match &self.delimiter {
                Some(delimiter) => value.and_then(|value| value.get(..delimiter.find(value)?)),
                None => value,
            };
            let output = value.and_then(|value| self.outputs.get(value)).copied().unwrap_or(onwards);
            if let Some(rows) = self.groups.get_mut(output) {
                rows.push(row as u32);
            }
        }
        let mut left = Some(batch);
        let mut groups = std::mem::take(&mut self.groups);
        let last = groups.iter().rposition(|rows| !rows.is_empty());
        for (output, rows) in groups.iter_mut().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            let part = if Some(output) == last { left.take() } else { left.as_ref().map(Batch::share) };
            let Some(part) = part else { break };
            let part = if rows.len() == part.rows() { Some(part) } else { part.select(rows)? };
            if let Some(part) = part {
                self.send(output, part, out)?;
            }
        }
        self.groups = groups;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::{Output, testing};

    use crate::testing::with_text;

    #[test]
    fn it_conforms() {
        for yaml in ["outputs: {a: a}", "{outputs: {a: a}, prefix_until: ':'}", "{field: b, outputs: {a: a}}"]
        {
            testing::transform_conforms::<RouteBy>(yaml, &["a", "", "a:b", "b"]);
        }
    }

    #[test]
    fn the_value_decides_and_the_rest_goes_on() {
        let columns: [(&str, &[Option<&str>]); 1] =
            [("k", &[Some("x"), Some("y"), None, Some("z"), Some("x")])];
        let batch = || with_text(&["1", "2", "3", "4", "5"], &columns);
        let yaml = "{field: k, outputs: {second: y, first: x, none: q}}";
        let given = testing::apply::<RouteBy>(yaml, [batch()]);
        assert_eq!(given.payloads(Output::Named(0)), ["2"]);
        assert_eq!(given.payloads(Output::Named(1)), ["1", "5"]);
        assert_eq!(given.payloads(Output::Named(2)), [""; 0]);
        assert_eq!(given.payloads(Output::Main), ["3", "4"]);
        let given = testing::apply::<RouteBy>("{field: nothing, outputs: {a: x}}", [batch()]);
        assert_eq!(given.payloads(Output::Main).len(), 5);
    }

    #[test]
    fn a_prefix_decides_and_is_removed() {
        let lines = ["error: a long message that is a view", ": b", "none", "other: c", "error: d: e"];
        let yaml = "{outputs: {failures: error}, prefix_until: ': '}";
        let given = testing::apply::<RouteBy>(yaml, [testing::batch(lines)]);
        assert_eq!(given.payloads(Output::Named(0)), ["a long message that is a view", "d: e"]);
        assert_eq!(given.payloads(Output::Main), ["b", "none", "c"]);
    }

    #[test]
    fn mistakes() {
        let mistakes = |yaml: &str| testing::messages(testing::options::<RouteBy>(yaml).check());
        assert_eq!(mistakes("outputs: {}"), ["There is no output to send messages to."]);
        assert_eq!(
            mistakes("outputs: {errors: a, 'a.b': b, c: b}"),
            [
                "The label `errors` is taken: messages that cannot be processed leave by it.",
                "`a.b` cannot be a label.",
                "`a.b` and `c` have the same value `b`.",
            ]
        );
        assert_eq!(mistakes("outputs: {a: a}"), [""; 0]);
    }
}

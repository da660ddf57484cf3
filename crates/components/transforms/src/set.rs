//! Sets fields to the values of expressions.
//!
//! Fields are set one after the other, because a later expression may use an earlier field. If an expression
//! cannot be evaluated for a message, the message is noted once, and the batch stays together until all
//! fields are set. The message is then rejected in its original form, without the fields set before. If the
//! values of a batch are too large together, the batch is divided, and its parts leave one after the other.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use arrow_schema::FieldRef;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{
    Component, Context, Error, FieldMistake, FieldUse, KnownFields, Mistake, Outputs, Transform,
    TransformConfig,
};
use thalweg_expression::{Evaluated, Evaluator, Expression};
use thalweg_record::{Ack, Batch, PAYLOAD};

use thalweg_codec::columns::{Before, Layout};
use thalweg_codec::keys::{bytes_of_column, present};
use thalweg_codec::ordered::Ordered;

use crate::conditions;

/// Sets fields: `{name: "expression"}`.
///
/// The expressions are SQL over the fields. They are evaluated in order, so a later expression sees the
/// fields set before. An existing field is replaced. Setting `payload` replaces the message itself (NULL
/// makes it empty). A message for which an expression cannot be evaluated leaves by the `errors` output.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Set(Ordered<Expression>);

impl Component for Set {
    const NAME: &'static str = "set";
    const EXAMPLE: &'static str = r#"
sources:
  service: { generate: { message: "level=info bytes=2048", count: 3 } }
pipelines:
  main:
    from: service
    transforms:
      - parse_logfmt: { types: { bytes: int } }
      - set: { kib: "bytes / 1024.0", size: "CASE WHEN kib > 1 THEN 'large' ELSE 'small' END" }
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        if self.0.0.is_empty() {
            let mistake = Mistake::new("", "`set` sets no field.");
            return vec![mistake.help("Write for example `set: { seconds: \"ms / 1000\" }`.")];
        }
        let nameless = self.0.0.iter().filter(|(name, _)| name.is_empty());
        nameless
            .map(|(_, expression)| {
                Mistake::new("", format!("The field to set to `{expression}` has no name."))
            })
            .collect()
    }
}

impl TransformConfig for Set {
    fn names_intrinsic(&self) -> bool {
        self.0.0.iter().any(|(_, expression)| expression.names_intrinsic())
    }

    fn fields(&self) -> Vec<String> {
        let settings = self.0.0.iter().enumerate();
        let needed = settings.flat_map(|(at, (_, expression))| {
            let before = &self.0.0[..at];
            let is_set = move |name: &str| {
                before.iter().any(|(set, _)| {
                    name.strip_prefix(set.as_str())
                        .is_some_and(|part| part.is_empty() || part.starts_with('.'))
                })
            };
            expression.needed_columns().iter().filter(move |name| !is_set(name))
        });
        needed.cloned().collect()
    }

    fn field_use(&self) -> FieldUse {
        FieldUse::InExpressions
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        self.0.0.iter().fold(before, |known, (name, expression)| {
            let columns = known.schema_of(expression.possible_columns());
            let kind = columns.and_then(|columns| expression.result(name, &columns).ok());
            known.with(name, kind)
        })
    }

    fn check_fields(&self, before: &KnownFields) -> Vec<FieldMistake> {
        let mut mistakes = Vec::new();
        self.0.0.iter().fold(before.clone(), |known, (name, expression)| {
            let columns = known.schema_of(expression.possible_columns());
            let result = columns.map(|columns| expression.result(name, &columns));
            let kind = match result {
                Some(Err(error)) => {
                    mistakes.push(conditions::mistake(expression, &error));
                    None
                }
                Some(Ok(kind)) => Some(kind),
                None => None,
            };
            known.with(name, kind)
        });
        mistakes
    }

    fn remarks(&self, before: &KnownFields) -> Vec<FieldMistake> {
        let mut known = before.clone();
        let mut found = Vec::new();
        for (name, expression) in &self.0.0 {
            found.extend(conditions::remarks(expression, &known));
            known = known.with(name, None);
        }
        found
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error> {
        let memory = context.memory.budget();
        let fields = self.0.0.iter().map(|(name, expression)| Setting {
            name: name.clone(),
            value: Evaluator::new(expression.clone()).within(memory),
            field: None,
        });
        Ok(Box::new(Setter { settings: fields.collect(), waiting: VecDeque::new() }))
    }
}

struct Setter {
    settings: Vec<Setting>,
    /// The batches, and the parts of one, that are still to be processed.
    waiting: VecDeque<Batch>,
}

struct Setting {
    name: String,
    value: Evaluator,
    /// The field in the previous batch, and its layout.
    field: Option<(FieldRef, Layout)>,
}

impl Setting {
    fn set(&mut self, batch: Batch, evaluated: Evaluated) -> Result<Batch, Error> {
        if self.name == PAYLOAD {
            let field = evaluated.field(PAYLOAD);
            let payload = bytes_of_column(&field, &evaluated.values).ok_or_else(|| {
                let kind = evaluated.values.data_type();
                Error::permanent(format!("a value of type `{kind}` cannot be set as the payload"))
            })?;
            return Ok(batch.with_payload(present(payload))?);
        }
        let field = evaluated.field(&self.name);
        if self.field.as_ref().is_none_or(|(known, _)| **known != field) {
            let field = Arc::new(field);
            self.field = Some((field.clone(), Layout::new(vec![field])));
        }
        let Some((_, layout)) = &mut self.field else { return Ok(batch) };
        Ok(layout.extend(batch, vec![evaluated.values])?)
    }
}

impl Setter {
    /// Sets the fields of a batch. Returns the batch as it was if their values are too large.
    fn set(&mut self, batch: Batch, out: &mut Outputs) -> Result<Option<Batch>, Error> {
        let mut failed: BTreeMap<u32, String> = BTreeMap::new();
        let mut now = batch.with_ack(Ack::noop());
        let mut held = 0;
        for setting in &mut self.settings {
            let mut evaluated = setting.value.evaluate_beside(held, &now);
            held = evaluated.held;
            if evaluated.is_too_large && now.rows() > 1 {
                return Ok(Some(batch));
            }
            for (row, reason) in std::mem::take(&mut evaluated.failed) {
                failed.entry(row).or_insert_with(|| format!("`{}` cannot be set: {reason}", setting.name));
            }
            now = setting.set(now, evaluated)?;
        }
        let before = Before::of(&batch);
        let mut batch = batch;
        *now.ack_mut() = batch.take_ack();
        let rest = before.reject(now, failed.into_iter().collect(), out)?;
        out.send(rest);
        Ok(None)
    }
}

impl Transform for Setter {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        self.waiting.push_back(batch);
        self.resume(out)
    }

    fn resume(&mut self, out: &mut Outputs) -> Result<(), Error> {
        while let Some(batch) = self.waiting.pop_front() {
            let Some(batch) = self.set(batch, out)? else { break };
            let half = batch.rows() / 2;
            let first = batch.share().slice(0, half);
            let rest = batch.rows() - half;
            self.waiting.push_front(batch.slice(half, rest));
            self.waiting.push_front(first);
        }
        if !self.waiting.is_empty() {
            out.hold(Duration::ZERO);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use thalweg_engine::{Output, testing};
    use thalweg_record::Budget;

    use crate::testing::with_text;

    #[test]
    fn it_conforms() {
        for yaml in ["{a: 1, b: payload}", "{a: CAST(payload AS BIGINT)}", "{payload: nothing}"] {
            testing::transform_conforms::<Set>(yaml, &["1", "", "b"]);
        }
    }

    /// A field of mixed types is JSON text, and one of numbers with and without a fraction has floats.
    #[test]
    fn a_payload_does_not_depend_on_the_types_of_other_messages() {
        let parsed = |lines: &[&str]| {
            let mut given =
                testing::apply::<crate::parse_json::ParseJsonConfig>("{}", [testing::batch(lines)]);
            let batches = given.outputs.remove(&Output::Main).unwrap_or_default();
            testing::apply::<Set>("{payload: a}", batches).payloads(Output::Main)
        };
        let lines = [r#"{"a": "x"}"#, r#"{"a": 1}"#, r#"{"a": 1.5}"#];
        let alone: Vec<String> = lines.iter().flat_map(|line| parsed(&[line])).collect();
        assert_eq!(alone, ["x", "1", "1.5"]);
        assert_eq!(parsed(&lines), alone);
        assert_eq!(parsed(&lines[1..]), alone[1..]);
    }

    #[test]
    fn later_fields_see_earlier_ones_in_the_order_written() {
        let batch = || with_text(&["x"], &[("n", &[Some("5")])]);
        let given = testing::apply::<Set>(
            "{z: CAST(n AS BIGINT) + 1, a: z * 2, n: \"'new'\", m: n, none: 'NULL'}",
            [batch(), batch()],
        );
        assert_eq!(given.main()[0], json!({"n": "new", "z": 6, "a": 12, "m": "new"}));
        let schemas: Vec<_> =
            given.outputs[&Output::Main].iter().map(|batch| batch.fields().schema()).collect();
        assert!(Arc::ptr_eq(&schemas[0], &schemas[1]));
    }

    #[test]
    fn the_payload_can_be_set() {
        let batch = with_text(&["x", "y"], &[("n", &[Some("a text that is longer than a view"), None])]);
        let given = testing::apply::<Set>("{payload: n, copy: payload}", [batch]);
        assert_eq!(given.payloads(Output::Main), ["a text that is longer than a view", ""]);
        assert_eq!(given.main()[1], json!({"copy": ""}));
        let given = testing::apply::<Set>("{payload: 1 + 1}", [testing::batch(["x"])]);
        assert_eq!(given.payloads(Output::Main), ["2"]);
    }

    #[test]
    fn values_that_are_too_large_together_leave_in_parts() {
        let mut context = testing::context();
        context.memory = Budget::new(64 << 20).share();
        let mut setter =
            testing::options::<Set>("{a: \"repeat(payload, 6000000)\"}").build(&context).unwrap();
        let mut out = Outputs::new("set".into());
        // A transform of the same segment may send several batches at once.
        for letters in ["abcdefghijkl", "mnopqrstuvwx"] {
            setter.apply(testing::batch(letters.chars().map(String::from)), &mut out).unwrap();
        }
        let (mut rows, mut letters) = (Vec::new(), Vec::new());
        loop {
            for (output, batch) in out.take() {
                assert_eq!(output, Output::Main);
                rows.push(batch.rows());
                letters.extend(testing::payloads(&batch));
            }
            if out.take_held().is_none() {
                break;
            }
            setter.resume(&mut out).unwrap();
        }
        assert!(rows.len() > 2, "{rows:?}");
        assert_eq!(letters.concat(), "abcdefghijklmnopqrstuvwx");
    }

    #[test]
    fn what_fails_is_rejected_once_and_as_it_came() {
        let batch = with_text(&["x", "y"], &[("n", &[Some("0"), Some("2")])]);
        let given = testing::apply::<Set>(
            "{payload: \"'new'\", n: 4 / CAST(n AS BIGINT), m: 1 / (CAST(n AS BIGINT) - CAST(n AS BIGINT) + 1), o: CAST('q' || n AS BIGINT)}",
            [batch],
        );
        assert_eq!(given.payloads(Output::Errors), ["x", "y"]);
        let errors = given.rows(Output::Errors);
        assert_eq!(errors[0]["n"], "0");
        assert!(given.errors()[0].1.starts_with("`n` cannot be set: "), "{:?}", given.errors());
        assert!(given.errors()[1].1.starts_with("`o` cannot be set: "), "{:?}", given.errors());
    }

    #[test]
    fn mistakes_in_expressions_and_names_are_told() {
        assert_eq!(
            testing::refused::<Set>("{a: '1 +'}"),
            "The expression ends too early. Expected an expression."
        );
        assert_eq!(
            testing::messages(testing::options::<Set>("{'': 1}").check()),
            ["The field to set to `1` has no name."]
        );
        assert_eq!(testing::messages(testing::options::<Set>("{}").check()), ["`set` sets no field."]);
    }
}

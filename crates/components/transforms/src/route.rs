//! Sends messages to outputs by conditions.
//!
//! The conditions are evaluated one after the other, each only for messages that no earlier condition
//! selected. So the first condition that is true decides, and a condition that cannot be evaluated affects
//! only messages that reach it.

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{
    Component, Context, Error, FieldMistake, FieldUse, KnownFields, Mistake, Outputs, Transform,
    TransformConfig,
};
use thalweg_expression::{Evaluator, Expression};
use thalweg_record::Batch;

use crate::conditions::{self, ask};
use crate::labels::check_labels;
use thalweg_codec::ordered::Ordered;

/// Sends messages to named outputs: `{label: "condition"}`.
///
/// A message leaves by the first label whose condition is true. Other messages continue in this pipeline.
/// Another pipeline reads the messages of a label with `from: pipeline.label`. A message for which a
/// condition cannot be evaluated leaves by the `errors` output.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Route(Ordered<Expression>);

impl Component for Route {
    const NAME: &'static str = "route";
    const EXAMPLE: &'static str = r#"
sources:
  service: { generate: { message: "level=error status=503", count: 3 } }
pipelines:
  main:
    from: service
    transforms:
      - parse_logfmt: { types: { status: int } }
      - route: { server_errors: "status >= 500" }
    to: screen
  failures:
    from: main.server_errors
    to: alarms
sinks:
  screen: { stdout: {} }
  alarms: { stdout: { encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if self.0.0.is_empty() {
            let mistake = Mistake::new("", "There is no label to send messages to.");
            mistakes.push(mistake.help("Write `{label: \"condition\"}`."));
        }
        mistakes.extend(check_labels(self.0.0.iter().map(|(label, _)| label.as_str())));
        mistakes
    }
}

impl TransformConfig for Route {
    fn names_intrinsic(&self) -> bool {
        self.0.0.iter().any(|(_, condition)| condition.names_intrinsic())
    }

    fn outputs(&self) -> Vec<String> {
        self.0.0.iter().map(|(label, _)| label.clone()).collect()
    }

    fn fields(&self) -> Vec<String> {
        self.0.0.iter().flat_map(|(_, condition)| condition.needed_columns()).cloned().collect()
    }

    fn field_use(&self) -> FieldUse {
        FieldUse::InExpressions
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        before
    }

    fn check_fields(&self, before: &KnownFields) -> Vec<FieldMistake> {
        self.0.0.iter().filter_map(|(_, condition)| conditions::unfit(condition, before)).collect()
    }

    fn remarks(&self, before: &KnownFields) -> Vec<FieldMistake> {
        self.0.0.iter().flat_map(|(_, condition)| conditions::remarks(condition, before)).collect()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error> {
        let memory = context.memory.budget();
        let conditions =
            self.0.0.iter().map(|(_, condition)| Evaluator::new(condition.clone()).within(memory));
        Ok(Box::new(Router { conditions: conditions.collect() }))
    }
}

struct Router {
    conditions: Vec<Evaluator>,
}

impl Transform for Router {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let mut left = Some(batch);
        for (output, condition) in self.conditions.iter_mut().enumerate() {
            let Some(batch) = left.take() else { break };
            let Some((batch, answers)) = ask(condition, batch, out)? else { break };
            let (matching, others) = batch.partition(&answers)?;
            if let Some(matching) = matching {
                out.send_to(output, matching);
            }
            left = others;
        }
        out.send(left);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::{Output, testing};

    #[test]
    fn it_conforms() {
        for yaml in ["{a: \"payload = 'a'\"}", "{a: 'true', b: 'true'}", "{a: nothing = 1, b: payload <> ''}"]
        {
            testing::transform_conforms::<Route>(yaml, &["a", "", "b"]);
        }
    }

    #[test]
    fn the_first_true_condition_decides_and_the_rest_goes_on() {
        let given = testing::apply::<Route>(
            "{z: \"payload LIKE 'a%'\", b: \"payload LIKE '%b'\"}",
            [testing::batch(["ab", "xb", "x", "a"]), testing::batch(["y"])],
        );
        assert_eq!(given.payloads(Output::Named(0)), ["ab", "a"]);
        assert_eq!(given.payloads(Output::Named(1)), ["xb"]);
        assert_eq!(given.payloads(Output::Main), ["x", "y"]);
        assert_eq!(testing::options::<Route>("{z: a, b: a}").outputs(), ["z", "b"]);
    }

    #[test]
    fn what_was_taken_before_is_not_asked_any_more() {
        let given = testing::apply::<Route>(
            "{zero: \"payload = '0'\", half: 2 / CAST(payload AS BIGINT) = 1}",
            [testing::batch(["0", "2", "x", "5"])],
        );
        assert_eq!(given.payloads(Output::Named(0)), ["0"]);
        assert_eq!(given.payloads(Output::Named(1)), ["2"]);
        assert_eq!(given.payloads(Output::Main), ["5"]);
        assert_eq!(given.payloads(Output::Errors), ["x"]);
    }

    #[test]
    fn labels_that_are_taken_or_no_names_are_mistakes() {
        let messages = |yaml: &str| -> Vec<String> {
            testing::options::<Route>(yaml).check().into_iter().map(|mistake| mistake.message).collect()
        };
        assert_eq!(
            messages("{errors: a, 'a.b': a, '': a, ok-1: a}"),
            [
                "The label `errors` is taken: messages that cannot be processed leave by it.",
                "`a.b` cannot be a label.",
                "`` cannot be a label.",
            ]
        );
        assert_eq!(messages("{}"), ["There is no label to send messages to."]);
    }
}

//! Passes messages for which a condition is true.

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{
    Component, Context, Error, FieldMistake, FieldUse, KnownFields, Mistake, Outputs, Transform,
    TransformConfig,
};
use thalweg_expression::{Evaluator, Expression};
use thalweg_record::Batch;

use crate::conditions::{self, ask};

/// Passes messages for which a condition is true.
///
/// Other messages are filtered: the condition is false, or it is NULL, for example because a field is
/// missing. A message for which the condition cannot be evaluated leaves by the `errors` output.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Filter {
    /// The condition alone: `filter: "status >= 500"`.
    Condition(Expression),
    /// The condition as an option.
    Options(FilterOptions),
}

/// The options of a filter.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilterOptions {
    /// The condition: a SQL expression over the fields.
    condition: Expression,
}

impl Component for Filter {
    const NAME: &'static str = "filter";
    const EXAMPLE: &'static str = r#"
sources:
  service: { generate: { message: "level=info status=503", count: 3 } }
pipelines:
  main:
    from: service
    transforms:
      - parse_logfmt: { types: { status: int } }
      - filter: "status >= 500 AND level <> 'debug'"
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let (Filter::Condition(condition) | Filter::Options(FilterOptions { condition })) = self;
        conditions::constant(condition).into_iter().collect()
    }
}

impl TransformConfig for Filter {
    fn names_intrinsic(&self) -> bool {
        let (Filter::Condition(condition) | Filter::Options(FilterOptions { condition })) = self;
        condition.names_intrinsic()
    }

    fn fields(&self) -> Vec<String> {
        let (Filter::Condition(condition) | Filter::Options(FilterOptions { condition })) = self;
        condition.needed_columns().to_vec()
    }

    fn field_use(&self) -> FieldUse {
        FieldUse::InExpressions
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        before
    }

    fn check_fields(&self, before: &KnownFields) -> Vec<FieldMistake> {
        let (Filter::Condition(condition) | Filter::Options(FilterOptions { condition })) = self;
        conditions::unfit(condition, before).into_iter().collect()
    }

    fn remarks(&self, before: &KnownFields) -> Vec<FieldMistake> {
        let (Filter::Condition(condition) | Filter::Options(FilterOptions { condition })) = self;
        conditions::remarks(condition, before)
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error> {
        let (Filter::Condition(condition) | Filter::Options(FilterOptions { condition })) = self;
        let memory = context.memory.budget();
        Ok(Box::new(Running { condition: Evaluator::new(condition.clone()).within(memory) }))
    }
}

struct Running {
    condition: Evaluator,
}

impl Transform for Running {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        if let Some((batch, answers)) = ask(&mut self.condition, batch, out)? {
            out.send(batch.filter(&answers)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_config::FormatError;
    use thalweg_engine::{Output, testing};

    use crate::testing::with_text;

    #[test]
    fn it_conforms() {
        for yaml in ["payload = 'a'", "condition: nothing = 1", "payload <> ''"] {
            testing::transform_conforms::<Filter>(yaml, &["a", "", "b"]);
        }
    }

    #[test]
    fn false_and_null_are_filtered_and_what_cannot_be_said_is_rejected() {
        let batch = || with_text(&["a", "b", "c", "d"], &[("n", &[Some("0"), Some("1"), None, Some("5")])]);
        let given = testing::apply::<Filter>("condition: 1 / CAST(n AS BIGINT) >= 1", [batch()]);
        assert_eq!(given.payloads(Output::Main), ["b"]);
        assert_eq!(given.payloads(Output::Errors), ["a"]);
        assert_eq!(given.reasons(), ["`1 / CAST(n AS BIGINT) >= 1` failed: division by zero."]);
        let given = testing::apply::<Filter>("nothing = 1", [batch()]);
        assert!(given.outputs.is_empty());
    }

    #[test]
    fn a_constant_is_a_condition_only_if_it_is_true_or_false() {
        for (condition, mistakes) in [
            ("\"'yes'\"", vec!["`'yes'` is a value, and no condition."]),
            ("condition: 1 + 1", vec!["`1 + 1` is a value, and no condition."]),
            ("1 = 1", vec![]),
            ("random() < 0.5", vec![]),
            ("flag", vec![]),
        ] {
            assert_eq!(testing::messages(testing::options::<Filter>(condition).check()), mistakes);
        }
    }

    #[test]
    fn an_expression_that_is_none_is_a_mistake() {
        // The registry does this for the whole program: `serde` hides the mistakes within an untagged enum.
        thalweg_config::register_format("sql", |sql| {
            thalweg_expression::check(sql).map_err(|error| FormatError::new(error.to_string()))
        });
        assert_eq!(
            testing::refused::<Filter>("condition: 'a >= >= 1'"),
            "`>=` is not expected here. Expected an expression."
        );
        assert_eq!(
            testing::refused::<Filter>("'a >= >= 1'"),
            "`>=` is not expected here. Expected an expression."
        );
        assert_eq!(
            testing::refused::<Filter>("conditon: a"),
            "`conditon` is not known here. Did you mean `condition`?"
        );
    }
}

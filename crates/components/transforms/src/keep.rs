//! Keeps only some fields, without touching messages: the schema changes once for all batches that share it.

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::List;
use thalweg_engine::{Component, Context, Error, KnownFields, Transform, TransformConfig};

use crate::selection::Selection;

/// Keeps the listed fields, and drops all others.
///
/// In a name, `*` matches any characters: `[status, "http_*"]`. The fields keep their order. Fields that do
/// not exist are ignored. The payload stays as it is.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Keep(List<String>);

impl Component for Keep {
    const NAME: &'static str = "keep";
    const EXAMPLE: &'static str = r#"
sources:
  numbers: { generate: { message: "level=info http_status=200 msg=hello", count: 3 } }
pipelines:
  main:
    from: numbers
    transforms:
      - parse_logfmt: {}
      - keep: [msg, "http_*"]
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;
}

impl TransformConfig for Keep {
    fn names_intrinsic(&self) -> bool {
        false
    }

    fn fields(&self) -> Vec<String> {
        self.0.to_vec()
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        before.only(&self.0)
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        Ok(Box::new(Selection::of(self.0.to_vec())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use thalweg_engine::{Output, testing};

    use crate::testing::with_text;

    #[test]
    fn it_conforms() {
        testing::transform_conforms::<Keep>("[a]", &["a", "", "b"]);
    }

    #[test]
    fn only_listed_fields_stay_in_their_order_and_with_one_schema_for_all() {
        let batch = || with_text(&["x"], &[("a", &[Some("1")]), ("b_c", &[Some("2")]), ("d", &[Some("3")])]);
        let given = testing::apply::<Keep>("['b_*', a, nothing]", [batch(), batch()]);
        assert_eq!(given.main()[0].to_string(), r#"{"a":"1","b_c":"2"}"#);
        let schemas: Vec<_> =
            given.outputs[&Output::Main].iter().map(|batch| batch.fields().schema()).collect();
        assert!(Arc::ptr_eq(&schemas[0], &schemas[1]));
    }
}

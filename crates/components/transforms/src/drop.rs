//! Drops fields without touching messages: the schema changes once for all batches that share it.

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::List;
use thalweg_engine::{Component, Context, Error, FieldUse, KnownFields, Transform, TransformConfig};

use crate::selection::Selection;

/// Drops the listed fields.
///
/// In a name, `*` matches any characters: `[debug, "tmp_*"]`. Fields that do not exist are ignored. The
/// payload stays as it is.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Drop(List<String>);

impl Component for Drop {
    const NAME: &'static str = "drop";
    const EXAMPLE: &'static str = r#"
sources:
  numbers: { generate: { message: "level=info tmp_a=1 msg=hello", count: 3 } }
pipelines:
  main:
    from: numbers
    transforms:
      - parse_logfmt: {}
      - drop: [level, "tmp_*"]
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;
}

impl TransformConfig for Drop {
    fn names_intrinsic(&self) -> bool {
        false
    }

    fn fields(&self) -> Vec<String> {
        self.0.to_vec()
    }

    fn field_use(&self) -> FieldUse {
        FieldUse::Optional
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        self.0.iter().fold(before, |known, name| known.without(name))
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        Ok(Box::new(Selection::without(self.0.to_vec())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::testing;

    use crate::testing::with_text;

    #[test]
    fn it_conforms() {
        testing::transform_conforms::<Drop>("[a]", &["a", "", "b"]);
    }

    #[test]
    fn listed_fields_are_gone_and_the_payload_stays() {
        let batch = with_text(&["x"], &[("a", &[Some("1")]), ("tmp_b", &[Some("2")]), ("c", &[Some("3")])]);
        let given = testing::apply::<Drop>("[a, 'tmp_*', payload, nothing]", [batch]);
        assert_eq!(given.main()[0].to_string(), r#"{"c":"3"}"#);
        assert_eq!(given.payloads(thalweg_engine::Output::Main), ["x"]);
    }
}

//! Encodes bytes as base64.

use base64::Engine as _;
use base64::engine::GeneralPurpose;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Outputs, Transform, TransformConfig};
use thalweg_record::Batch;

use crate::base64::{base64, check_alphabet};
use thalweg_codec::columns::FieldType;
use thalweg_codec::target::{Editor, Target};

/// Encodes a text or bytes as base64, with padding.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EncodeBase64 {
    #[serde(flatten)]
    target: Target,
    /// The 64 characters of the alphabet. The default is the alphabet of RFC 4648.
    alphabet: Option<String>,
}

impl Component for EncodeBase64 {
    const NAME: &'static str = "encode_base64";
    const EXAMPLE: &'static str = r#"
sources:
  service: { generate: { message: "message %4d", count: 3 } }
pipelines:
  main:
    from: service
    transforms:
      - encode_base64: { into: encoded }
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        check_alphabet(self.alphabet.as_deref())
    }
}

impl TransformConfig for EncodeBase64 {
    fn fields(&self) -> Vec<String> {
        vec![self.target.input().field]
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        before.with(self.target.output(), None)
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        let engine = base64(self.alphabet.as_deref()).map_err(Error::permanent)?;
        Ok(Box::new(Encoder { editor: self.target.editor(FieldType::Text), engine }))
    }
}

struct Encoder {
    editor: Editor,
    engine: GeneralPurpose,
}

impl Transform for Encoder {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let Self { editor, engine } = self;
        Ok(editor.write(batch, out, |value, out| {
            let start = out.len();
            out.resize(start + value.len().div_ceil(3) * 4, 0);
            let room = out.get_mut(start..).unwrap_or_default();
            engine.encode_slice(value, room).map(drop).map_err(|error| error.to_string())
        })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::{Output, testing};

    #[test]
    fn it_conforms() {
        testing::transform_conforms::<EncodeBase64>("{}", &["a", "", "abc"]);
    }

    #[test]
    fn bytes_become_base64_of_the_alphabet_wanted() {
        let bytes = [&b"\xfb\xff"[..], b"a", b"", b"abc"];
        let given =
            |yaml: &str| testing::apply::<EncodeBase64>(yaml, [testing::batch(bytes)]).payloads(Output::Main);
        assert_eq!(given("{}"), ["+/8=", "YQ==", "", "YWJj"]);
        let url = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        assert_eq!(given(&format!("alphabet: '{url}'"))[0], "-_8=");
        assert_eq!(
            testing::messages(testing::options::<EncodeBase64>("alphabet: abc").check()),
            ["This is not an alphabet of base64: Invalid length - must be 64 bytes."]
        );
    }
}

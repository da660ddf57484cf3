//! Decodes base64.

use base64::Engine as _;
use base64::engine::GeneralPurpose;
use memchr::memchr2;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Component, Context, Error, Mistake, Outputs, Transform, TransformConfig};
use thalweg_record::Batch;

use crate::base64::{base64, check_alphabet};
use crate::on_error::OnError;
use thalweg_codec::columns::FieldType;
use thalweg_codec::target::{Edit, Editor, Target};

/// Decodes base64.
///
/// Line ends in the text are ignored, and padding may be missing. A text that is not base64 leaves by the
/// `errors` output. The result may be any bytes in a payload; in a field it must be UTF-8, otherwise the
/// message leaves by the `errors` output.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DecodeBase64 {
    #[serde(flatten)]
    target: Target,
    /// The 64 characters of the alphabet. The default is the alphabet of RFC 4648.
    alphabet: Option<String>,
    /// How a text is treated that is not base64: `reject` (the default) sends the message to the `errors`
    /// output, `keep` leaves the text unchanged, and `clear` empties it.
    on_error: OnError,
}

impl Component for DecodeBase64 {
    const NAME: &'static str = "decode_base64";
    const EXAMPLE: &'static str = r#"
sources:
  service: { generate: { lines: ["YSBtZXNzYWdl"] } }
pipelines:
  main:
    from: service
    transforms:
      - decode_base64: {}
    to: screen
sinks:
  screen: { stdout: {} }
"#;

    fn check(&self) -> Vec<Mistake> {
        check_alphabet(self.alphabet.as_deref())
    }
}

impl TransformConfig for DecodeBase64 {
    fn fields(&self) -> Vec<String> {
        vec![self.target.input().field]
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        let engine = base64(self.alphabet.as_deref()).map_err(Error::permanent)?;
        Ok(Box::new(Decoder {
            editor: self.target.editor(FieldType::Text),
            engine,
            on_error: self.on_error,
            joined: Vec::new(),
        }))
    }
}

struct Decoder {
    editor: Editor,
    engine: GeneralPurpose,
    on_error: OnError,
    /// The text without its line ends; used only for texts that have some.
    joined: Vec<u8>,
}

impl Transform for Decoder {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let Self { editor, engine, on_error, joined } = self;
        Ok(editor.edit(batch, out, |given, out| {
            let mut value = given;
            if memchr2(b'\r', b'\n', value).is_some() {
                joined.clear();
                joined.extend(value.iter().filter(|byte| !matches!(byte, b'\r' | b'\n')));
                value = joined;
            }
            match engine.decode_vec(value, out) {
                Ok(()) => Ok(Edit::Written),
                Err(error) => on_error.edit(given, format!("is not base64: {error}")),
            }
        })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thalweg_engine::{Output, testing};

    use crate::encode_base64::EncodeBase64;

    #[test]
    fn it_conforms() {
        testing::transform_conforms::<DecodeBase64>("{}", &["YQ==", "", "?", "YWJj"]);
    }

    #[test]
    fn what_is_no_base64_is_rejected() {
        let texts = ["YQ==", "YQ", "YW\r\nJj\n", "Y", "Y?Jj", "YWJj=", "/w=="];
        let given = testing::apply::<DecodeBase64>("into: a", [testing::batch(texts)]);
        let decoded: Vec<_> = given.main().into_iter().map(|row| row["a"].clone()).collect();
        assert_eq!(decoded, ["a", "a", "abc"]);
        let rejected: Vec<String> = given.errors().into_iter().map(|(payload, _)| payload).collect();
        assert_eq!(rejected, ["Y", "Y?Jj", "YWJj=", "/w=="]);
        assert_eq!(given.errors()[3].1, "the field `a` is not UTF-8, at byte 0");
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_read_back(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let encoded = testing::apply::<EncodeBase64>("{}", [testing::batch([&bytes])]);
            let encoded = encoded.outputs.into_values().flatten().next().unwrap();
            let decoded = testing::apply::<DecodeBase64>("{}", [encoded]);
            prop_assert_eq!(decoded.outputs[&Output::Main][0].payload().value(0), bytes);
        }
    }
}

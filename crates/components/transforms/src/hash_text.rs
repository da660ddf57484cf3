//! Hashes a text.
//!
//! `hash` is the transform of files: a name has one transform, whatever it takes. A component of two flows
//! was rejected, because the options have nothing in common beside the algorithm.

use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::columns::FieldType;
use thalweg_codec::digest::{Algorithm, Digest};
use thalweg_codec::target::{Editor, Target};
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Outputs, Transform, TransformConfig};
use thalweg_record::Batch;

use crate::pseudonym::{self, Pseudonyms};

/// Replaces a text by its hash, in hexadecimal digits.
///
/// With `secret`, the hash is a pseudonym: an HMAC-SHA-256, which cannot be computed without the secret. A
/// plain hash of a mail address or a card number does not hide it, since all of them can be tried.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HashText {
    #[serde(flatten)]
    target: Target,
    /// The algorithm: `sha256` (the default), `sha1`, `md5`, `blake3`, `xxh3` or `crc32c`. The last two are
    /// the fastest, and for grouping only: texts with the same hash are easily made.
    #[serde(default)]
    algorithm: Algorithm,
    /// The secret of an HMAC with SHA-256, at least 8 bytes. Take it from a variable (`${MASK_SECRET}`) or a
    /// file (`${file:/run/secrets/mask}`). By default the hash has no secret.
    secret: Option<String>,
    /// The number of digits to keep, from the first one. Fewer digits are shorter, and more often the same
    /// for different texts. The default is all.
    #[schemars(range(min = 1))]
    digits: Option<usize>,
}

/// The secret is not shown.
impl fmt::Debug for HashText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashText").field("target", &self.target).finish_non_exhaustive()
    }
}

impl Component for HashText {
    const NAME: &'static str = "hash_text";
    const EXAMPLE: &'static str = r#"
sources:
  people: { generate: { lines: ['{"mail": "ann@example.org"}', '{"mail": "bob@example.org"}'] } }
pipelines:
  main:
    from: people
    transforms:
      - parse_json: {}
      - hash_text: { field: mail, secret: "an example, take yours from a variable", digits: 16 }
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes: Vec<Mistake> = pseudonym::check(self.secret.as_deref()).into_iter().collect();
        if self.secret.is_some() && self.algorithm != Algorithm::Sha256 {
            let mistake = Mistake::new("algorithm", "With a `secret`, the algorithm is `sha256`.");
            mistakes.push(mistake.help("Remove `algorithm`."));
        }
        mistakes
    }
}

impl TransformConfig for HashText {
    fn fields(&self) -> Vec<String> {
        vec![self.target.input().field]
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        before.with(self.target.output(), None)
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        Ok(Box::new(Hasher {
            editor: self.target.editor(FieldType::Text),
            algorithm: self.algorithm,
            pseudonyms: self.secret.as_deref().map(Pseudonyms::new),
            digits: self.digits.unwrap_or(usize::MAX),
        }))
    }
}

struct Hasher {
    editor: Editor,
    algorithm: Algorithm,
    pseudonyms: Option<Pseudonyms>,
    digits: usize,
}

impl Transform for Hasher {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let Self { editor, algorithm, pseudonyms, digits } = self;
        Ok(editor.write(batch, out, |value, out| {
            let start = out.len();
            match pseudonyms {
                Some(pseudonyms) => pseudonyms.write(value, out),
                None => {
                    let mut digest = Digest::new(*algorithm);
                    digest.update(value);
                    digest.write(out);
                }
            }
            out.truncate(start.saturating_add(*digits));
            Ok(())
        })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::{Output, testing};

    fn hashed(yaml: &str) -> Vec<String> {
        testing::apply::<HashText>(yaml, [testing::batch(["abc", ""])]).payloads(Output::Main)
    }

    #[test]
    fn it_conforms() {
        testing::transform_conforms::<HashText>("{}", &["a", "", "abc"]);
    }

    #[test]
    fn a_text_becomes_its_hash() {
        assert_eq!(
            hashed("{}"),
            [
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
            ]
        );
        assert_eq!(hashed("{ algorithm: md5, digits: 8 }"), ["90015098", "d41d8cd9"]);
        let given = hashed("{ secret: 'not so secret', digits: 12 }");
        assert_eq!(given.iter().map(String::len).collect::<Vec<_>>(), [12, 12]);
        assert_ne!(given, hashed("{ secret: 'another secret', digits: 12 }"));
    }

    #[test]
    fn a_hash_goes_into_a_field_of_its_own() {
        let given = testing::apply::<HashText>("{ into: id, algorithm: crc32c }", [testing::batch(["abc"])]);
        assert_eq!(given.main(), [serde_json::json!({"id": "364b3fb7"})]);
        assert_eq!(given.payloads(Output::Main), ["abc"]);
    }

    #[test]
    fn mistakes_are_told_and_the_secret_is_not() {
        let config = testing::options::<HashText>("{ secret: 'never shown', algorithm: md5 }");
        assert_eq!(testing::messages(config.check()), ["With a `secret`, the algorithm is `sha256`."]);
        assert!(!format!("{config:?}").contains("never shown"));
    }
}

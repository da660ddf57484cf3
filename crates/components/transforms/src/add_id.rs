//! Adds an identifier to each message.

use std::sync::Arc;

use arrow_array::Array;
use chrono::DateTime;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Outputs, Transform, TransformConfig};
use thalweg_record::{Batch, PAYLOAD, TextBuilder};

use thalweg_codec::columns::{FieldType, Layout};
use thalweg_codec::keys::bytes_of;

/// The counter of `time` starts again at this number, so it always has seven digits.
const IN_A_SECOND: u64 = 10_000_000;

/// Adds an identifier to each message.
///
/// With `--state`, the counters of `time`, `sequence` and `sequence_hex` continue in later runs. Without it,
/// they start again in each run.
///
/// A run after `kill -9` reads some messages a second time. `hash` gives them the same identifiers as before,
/// and `time` and `uuid` give them others.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AddId {
    /// The field that receives the identifier, as text. `payload` replaces the message itself. The default is
    /// `id`.
    #[schemars(length(min = 1))]
    into: String,
    /// How the identifier is made. The default is `time`.
    kind: Kind,
    /// The first number of a counter. The default is 1.
    start: u64,
    /// For `hash`: the field to hash. The default is the payload.
    field: Option<String>,
}

impl Default for AddId {
    fn default() -> Self {
        Self { into: "id".to_owned(), kind: Kind::Time, start: 1, field: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Kind {
    /// The second in which the message was read, in UTC, and a counter of seven digits, as in
    /// `2601020304050000001`.
    Time,
    /// A hash of `field` (64-bit FNV-1a) in hexadecimal digits. Equal contents get equal identifiers. A
    /// message without the field gets none.
    Hash,
    /// A counter, in decimal digits.
    Sequence,
    /// A counter, in hexadecimal digits.
    SequenceHex,
    /// A UUID of version 7 (RFC 9562), which is random but sorts by time.
    Uuid,
}

impl Component for AddId {
    const NAME: &'static str = "add_id";
    const EXAMPLE: &'static str = r#"
sources:
  service: { generate: { message: "message %4d", count: 3 } }
pipelines:
  main:
    from: service
    transforms:
      - add_id: { kind: hash, into: checksum }
      - add_id: { kind: uuid }
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        if self.start != 1 && !self.is_sequential() {
            let message = "`start` has an effect only with a counter.";
            return vec![Mistake::new("start", message).help("Leave it out, or say `kind: sequence`.")];
        }
        if self.field.is_some() && self.kind != Kind::Hash {
            let message = "`field` has an effect only with `kind: hash`.";
            return vec![Mistake::new("field", message).help("Leave it out, or say `kind: hash`.")];
        }
        Vec::new()
    }
}

impl TransformConfig for AddId {
    fn is_sequential(&self) -> bool {
        !matches!(self.kind, Kind::Hash | Kind::Uuid)
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        before.with(&self.into, None)
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        Ok(Box::new(Identifier {
            kind: self.kind,
            field: self.field.clone().unwrap_or_else(crate::payload),
            into: (self.into != PAYLOAD)
                .then(|| Layout::new(vec![Arc::new(FieldType::Text.field(&self.into))])),
            start: self.start,
            count: 0,
            saved: 0,
            random: fastrand::Rng::new(),
        }))
    }
}

struct Identifier {
    kind: Kind,
    field: String,
    /// The target field; `None` if the target is the payload.
    into: Option<Layout>,
    /// The first number.
    start: u64,
    /// How many numbers were given.
    count: u64,
    /// The count when the state was last asked for.
    saved: u64,
    random: fastrand::Rng,
}

impl Identifier {
    fn next(&mut self) -> u64 {
        let number = self.start.wrapping_add(self.count);
        self.count += 1;
        number
    }
}

impl Transform for Identifier {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        use std::fmt::Write as _;
        let micros = batch.meta().time_us;
        let second =
            DateTime::from_timestamp_micros(micros).map(|time| time.format("%y%m%d%H%M%S").to_string());
        let second = second.unwrap_or_default();
        let input = if self.kind == Kind::Hash { bytes_of(&batch, &self.field) } else { None };
        let mut ids = TextBuilder::over(&[], batch.rows());
        let mut text = String::new();
        for row in 0..batch.rows() {
            text.clear();
            // Writing to a `String` cannot fail.
            let _ = match self.kind {
                Kind::Time => write!(text, "{second}{:07}", self.next() % IN_A_SECOND),
                Kind::Sequence => write!(text, "{}", self.next()),
                Kind::SequenceHex => write!(text, "{:x}", self.next()),
                Kind::Uuid => write_uuid(micros / 1000, self.random.u128(..), &mut text),
                Kind::Hash => match input.as_ref().filter(|input| input.is_valid(row)) {
                    Some(input) => write!(text, "{:x}", fnv1a(input.value(row))),
                    None => {
                        ids.push_null();
                        continue;
                    }
                },
            };
            ids.push(&text);
        }
        let ids = ids.finish();
        let batch = match &mut self.into {
            Some(layout) => layout.extend(batch, vec![Arc::new(ids)])?,
            None => batch.with_payload(thalweg_codec::keys::present(ids.to_binary_view()))?,
        };
        out.send(batch);
        Ok(())
    }

    fn state(&mut self) -> Option<Value> {
        let former = std::mem::replace(&mut self.saved, self.count);
        (former != self.count).then(|| self.count.into())
    }

    fn restore(&mut self, saved: Value) -> Result<(), Error> {
        self.count = serde_json::from_value(saved).map_err(crate::unusable_state)?;
        self.saved = self.count;
        Ok(())
    }
}

/// FNV-1a with 64 bits.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Writes a UUID of version 7: 48 bits of time in milliseconds, the version, and random bits except for the
/// variant.
fn write_uuid(millis: i64, random: u128, text: &mut String) -> std::fmt::Result {
    use std::fmt::Write as _;
    let time = (millis.max(0) as u128 & 0xffff_ffff_ffff) << 80;
    let id = time | 7 << 76 | (random >> 4 & 0xfff) << 64 | 2 << 62 | random >> 66;
    let part = |shift: u32, digits: u32| id >> shift & ((1 << (digits * 4)) - 1);
    write!(
        text,
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        part(96, 8),
        part(80, 4),
        part(64, 4),
        part(48, 4),
        part(0, 12)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    use serde_json::json;
    use thalweg_engine::{Output, testing};

    #[test]
    fn it_conforms() {
        for kind in ["time", "hash", "sequence", "sequence_hex", "uuid"] {
            testing::transform_conforms::<AddId>(&format!("kind: {kind}"), &["a", "", "abc"]);
        }
        testing::transform_conforms::<AddId>("{kind: hash, field: nothing, into: payload}", &["a", ""]);
    }

    fn ids(yaml: &str) -> Vec<String> {
        let batches = [testing::batch(["a", "b"]), testing::batch(["a"])];
        let rows = testing::apply::<AddId>(yaml, batches).main();
        rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn counters_go_on_from_batch_to_batch() {
        assert_eq!(ids("{}"), ["2311142213200000001", "2311142213200000002", "2311142213200000003"]);
        assert_eq!(ids("kind: sequence"), ["1", "2", "3"]);
        let many = (0..30).map(|_| testing::batch(["a"]));
        let rows = testing::apply::<AddId>("kind: sequence_hex", many).main();
        assert_eq!(rows[29], json!({"id": "1e"}));
    }

    #[test]
    fn what_is_equal_has_the_same_hash() {
        // Test vectors published with the algorithm.
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(ids("kind: hash"), ["af63dc4c8601ec8c", "af63df4c8601f1a5", "af63dc4c8601ec8c"]);
        let given = testing::apply::<AddId>("{kind: hash, into: payload}", [testing::batch(["a"])]);
        assert_eq!(given.payloads(Output::Main), ["af63dc4c8601ec8c"]);
        assert_eq!(
            testing::messages(testing::options::<AddId>("field: a").check()),
            ["`field` has an effect only with `kind: hash`."]
        );
    }

    #[test]
    fn uuids_are_of_version_7() {
        let ids = ids("kind: uuid");
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 3);
        let parts: Vec<&str> = ids[0].split('-').collect();
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert_eq!(i64::from_str_radix(&[parts[0], parts[1]].concat(), 16).unwrap(), 1_700_000_000_000);
        assert!(parts[2].starts_with('7') && parts[3].starts_with(['8', '9', 'a', 'b']), "{ids:?}");
    }
}

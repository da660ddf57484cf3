//! Numbers messages.

use std::sync::Arc;

use arrow_array::Int64Array;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Outputs, Transform, TransformConfig};
use thalweg_record::{Batch, PAYLOAD};

use thalweg_codec::columns::{FieldType, Layout};

/// Numbers messages in the order in which they pass.
///
/// With `--state`, the count continues in later runs, so that a message that is read again after a kill gets
/// the number that it had. With another `start`, it restarts there. Without `--state`, each run restarts.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AddSequence {
    /// The field that receives the number, a whole number. The default is `sequence`.
    #[schemars(length(min = 1))]
    into: String,
    /// The number of the first message. The default is 0.
    start: i64,
}

impl Default for AddSequence {
    fn default() -> Self {
        Self { into: "sequence".to_owned(), start: 0 }
    }
}

impl Component for AddSequence {
    const NAME: &'static str = "add_sequence";
    const EXAMPLE: &'static str = r#"
sources:
  service: { generate: { message: "message %4d", count: 3 } }
pipelines:
  main:
    from: service
    transforms:
      - add_sequence: { into: number, start: 1 }
      - encode: { format: text, template: "{number}: {payload}" }
    to: screen
sinks:
  screen: { stdout: {} }
"#;

    fn check(&self) -> Vec<Mistake> {
        if self.into != PAYLOAD {
            return Vec::new();
        }
        let message = "The number would take the place of the message.";
        let help = "Name another field, and combine both with `encode: { format: text, template: ... }`.";
        vec![Mistake::new("into", message).help(help)]
    }
}

impl TransformConfig for AddSequence {
    fn is_sequential(&self) -> bool {
        true
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        before.with(&self.into, Some(FieldType::Int.field(&self.into)))
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        let layout = Layout::new(vec![Arc::new(FieldType::Int.field(&self.into))]);
        let start = self.start;
        Ok(Box::new(Counter { numbers: Numbers { start, next: start }, saved: start, layout }))
    }
}

/// The numbers that a later run must know.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Numbers {
    start: i64,
    next: i64,
}

struct Counter {
    numbers: Numbers,
    /// The next number when the state was last asked for.
    saved: i64,
    layout: Layout,
}

impl Transform for Counter {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let first = self.numbers.next;
        self.numbers.next = first.wrapping_add(batch.rows() as i64);
        let numbers = (0..batch.rows() as i64).map(|row| first.wrapping_add(row));
        let numbers = Int64Array::from_iter_values(numbers);
        out.send(self.layout.extend(batch, vec![Arc::new(numbers)])?);
        Ok(())
    }

    fn state(&mut self) -> Option<Value> {
        let former = std::mem::replace(&mut self.saved, self.numbers.next);
        (former != self.saved).then(|| serde_json::to_value(self.numbers).ok())?
    }

    fn restore(&mut self, saved: Value) -> Result<(), Error> {
        let saved: Numbers = serde_json::from_value(saved).map_err(crate::unusable_state)?;
        if saved.start == self.numbers.start {
            (self.numbers, self.saved) = (saved, saved.next);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::testing;

    #[test]
    fn it_conforms() {
        testing::transform_conforms::<AddSequence>("{}", &["a", "", "abc"]);
    }

    #[test]
    fn another_start_begins_anew_after_a_restart() {
        let build = |yaml: &str| testing::options::<AddSequence>(yaml).build(&testing::context()).unwrap();
        let mut out = Outputs::new("test".into());
        let mut first = build("start: 5");
        first.apply(testing::batch(["a", "b"]), &mut out).unwrap();
        let saved = first.state().unwrap();
        assert_eq!(first.state(), None);
        out.take();
        for (yaml, number) in [("start: 5", 7), ("start: 100", 100)] {
            let mut next = build(yaml);
            next.restore(saved.clone()).unwrap();
            next.apply(testing::batch(["c"]), &mut out).unwrap();
            let given: Vec<_> =
                out.take().iter().flat_map(|(_, batch)| testing::rows(batch.fields())).collect();
            assert_eq!(given[0]["sequence"], number);
        }
        let refused = build("{}").restore("nonsense".into()).unwrap_err().to_string();
        assert!(refused.starts_with("its saved state cannot be read: "), "{refused}");
    }

    #[test]
    fn the_count_goes_on_from_batch_to_batch() {
        let batches = [testing::batch(["a", "b"]), testing::batch(["c"])];
        let given = testing::apply::<AddSequence>("{into: n, start: 9223372036854775806}", batches);
        let numbers: Vec<_> = given.main().into_iter().map(|row| row["n"].clone()).collect();
        assert_eq!(numbers, [i64::MAX - 1, i64::MAX, i64::MIN]);
        let given = testing::apply::<AddSequence>("{}", [testing::batch(["a", "b"])]);
        assert_eq!(given.main()[1]["sequence"], 1);
        assert_eq!(
            testing::messages(testing::options::<AddSequence>("into: payload").check()),
            ["The number would take the place of the message."]
        );
    }
}

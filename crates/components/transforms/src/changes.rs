//! Passes messages whose values differ from those before them.
//!
//! Values are compared by hashes of 128 bits, as keys are. They are computed under a secret, which the state
//! has too: otherwise a sender could make a change that is taken for none. With `by_at_least`, numbers are
//! kept themselves and compared with those of the last message that passed: a comparison with the message
//! before would never pass a value that drifts slowly.

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, BooleanArray, Float64Array};
use arrow_buffer::BooleanBuffer;
use arrow_cast::cast;
use arrow_schema::DataType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thalweg_codec::keys::Secret;
use thalweg_config::List;
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Outputs, Transform, TransformConfig};
use thalweg_record::{Batch, INTRINSIC, PAYLOAD};

use crate::last_values::{Kind, LastValues};
use crate::scalar::bits;

/// Passes a message if its values differ from those of the message before it with the same key, and filters
/// the others.
///
/// The first message of each key passes. NULL and a missing field are the same value.
///
/// With `--state`, and sources that read their input again, a later run continues with the values of the
/// checkpoint. Otherwise each run begins without values, so the first message of each key passes again. After
/// a kill no change is lost. If messages have moved for more than a minute at the last checkpoint, as behind
/// a slow `limit`, the next run begins without values, too.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Changes {
    /// The fields that together are the key of a message. By default all messages have the same key. Values
    /// are compared as they are written: `1` and `"1"` are the same, `1` and `1.0` are not.
    keys: List<String>,
    /// The fields whose values are compared. The default is all fields but those of the type `timestamp`; of
    /// messages without fields it is the payload.
    fields: List<String>,
    /// The least difference of a number, for example `0.5`. A number that differs by less from that of the
    /// last message of its key that passed is no change. A text that is a number counts as one. Needs
    /// `fields`.
    by_at_least: Option<f64>,
    /// True to send the other messages to the output `rest` instead of filtering them. Another pipeline reads
    /// it with `from: NAME.rest`. The default is `false`.
    rest: bool,
    /// The maximum number of keys to remember. Beyond it, the key whose values have not changed for the
    /// longest time is forgotten: its next message passes. Each needs about 170 bytes, and all together use
    /// at most an eighth of `memory`: with less, fewer are remembered. The default is 100000.
    #[schemars(range(min = 1))]
    max_keys: usize,
}

impl Default for Changes {
    fn default() -> Self {
        Self {
            keys: List::default(),
            fields: List::default(),
            by_at_least: None,
            rest: false,
            max_keys: 100_000,
        }
    }
}

impl Component for Changes {
    const NAME: &'static str = "changes";
    const EXAMPLE: &'static str = r#"
sources:
  sensors:
    generate: { lines: ["room=a degrees=20.0", "room=b degrees=18.5", "room=a degrees=20.1", "room=a degrees=20.5"] }
pipelines:
  main:
    from: sensors
    transforms:
      - parse_logfmt: { types: { degrees: float } }
      - changes: { keys: room, fields: degrees, by_at_least: 0.5 }
    to: screen
sinks:
  screen: { stdout: {} }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        let Some(least) = self.by_at_least else { return mistakes };
        if !(least.is_finite() && least > 0.0) {
            mistakes.push(Mistake::new("by_at_least", "The least difference must be greater than 0."));
        }
        if self.fields.is_empty() {
            let mistake =
                Mistake::new("by_at_least", "`by_at_least` needs `fields`, the numbers to compare.");
            mistakes.push(mistake.help("Write for example `fields: degrees`."));
        }
        mistakes
    }
}

impl TransformConfig for Changes {
    fn names_intrinsic(&self) -> bool {
        self.keys.iter().chain(self.fields.iter()).any(|name| INTRINSIC.contains(&name.as_str()))
    }

    fn outputs(&self) -> Vec<String> {
        self.rest.then(|| "rest".to_owned()).into_iter().collect()
    }

    fn fields(&self) -> Vec<String> {
        self.keys.iter().chain(self.fields.iter()).cloned().collect()
    }

    fn is_sequential(&self) -> bool {
        true
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        before
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error> {
        let (keys, fields) = (self.keys.join(", "), self.fields.join(", "));
        let least = self.by_at_least.map(|least| format!(", by_at_least: {least}")).unwrap_or_default();
        let options = format!("keys: [{keys}], fields: [{fields}]{least}");
        let parts = if self.by_at_least.is_some() { self.fields.len() } else { 1 };
        let bytes = parts * size_of::<Part>();
        Ok(Box::new(Comparing {
            keys: self.keys.to_vec(),
            fields: self.fields.to_vec(),
            by_at_least: self.by_at_least,
            rest: self.rest,
            last: LastValues::new(context, crate::new_secret()?, options, self.max_keys, bytes),
            hashes: Vec::new(),
        }))
    }
}

/// A value of a message, or all of its values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Part {
    /// A number, with `by_at_least`.
    Number(#[serde(with = "bits")] f64),
    /// The upper and lower half of a hash.
    Hash(u64, u64),
}

impl Kind for Box<[Part]> {
    fn heap(&self) -> usize {
        size_of_val::<[Part]>(self)
    }
}

impl Part {
    fn of(hash: u128) -> Self {
        Self::Hash((hash >> 64) as u64, hash as u64)
    }

    /// True if it differs from another value, numbers by at least this.
    fn differs(self, other: Self, least: f64) -> bool {
        let (Part::Number(one), Part::Number(other)) = (self, other) else { return self != other };
        // 20.2 - 20.1 is a little less than 0.1. The rounding of large numbers is more than the least
        // difference, but equal ones never differ.
        let rounding = ((one.abs() + other.abs() + least) * f64::EPSILON).min(least / 2.0);
        let difference = (one - other).abs();
        difference >= least - rounding || difference.is_nan()
    }
}

/// The values of a field in a batch.
struct Column {
    hashes: Vec<u128>,
    numbers: Option<Float64Array>,
}

impl Column {
    fn part(&self, row: usize) -> Part {
        let number = self.numbers.as_ref().filter(|numbers| numbers.is_valid(row));
        match number.map(|numbers| numbers.value(row)).filter(|number| number.is_finite()) {
            Some(number) => Part::Number(number),
            None => Part::of(self.hashes.get(row).copied().unwrap_or_default()),
        }
    }
}

struct Comparing {
    keys: Vec<String>,
    fields: Vec<String>,
    by_at_least: Option<f64>,
    rest: bool,
    last: LastValues<Box<[Part]>>,
    hashes: Vec<u128>,
}

impl Comparing {
    /// Returns what is compared.
    fn columns(&self, batch: &Batch) -> Vec<Column> {
        let secret = self.last.secret();
        let hashed = |names: &[String]| {
            let mut hashes = Vec::new();
            secret.hash_keys(batch, names, &mut hashes);
            hashes
        };
        if self.by_at_least.is_some() {
            let column = |name: &String| Column {
                hashes: hashed(std::slice::from_ref(name)),
                numbers: numbers(batch, name),
            };
            return self.fields.iter().map(column).collect();
        }
        let hashes = match (self.fields.is_empty(), batch.fields().num_columns()) {
            (false, _) => hashed(&self.fields),
            (true, 0) => hashed(&[PAYLOAD.to_owned()]),
            (true, _) => of_all(batch, secret),
        };
        vec![Column { hashes, numbers: None }]
    }
}

/// Returns a hash of all fields but times. It does not depend on fields that are NULL, nor on the order.
fn of_all(batch: &Batch, secret: Secret) -> Vec<u128> {
    let mut all = vec![0_u128; batch.rows()];
    let mut hashes = Vec::new();
    let schema = batch.fields().schema();
    for (field, column) in schema.fields().iter().zip(batch.fields().columns()) {
        if matches!(field.data_type(), DataType::Timestamp(..)) {
            continue;
        }
        let of_field = secret.derived(field.name());
        of_field.hash_keys(batch, std::slice::from_ref(field.name()), &mut hashes);
        let nulls = column.logical_nulls();
        for (row, (all, hash)) in all.iter_mut().zip(&hashes).enumerate() {
            if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                *all = all.wrapping_add(*hash);
            }
        }
    }
    all
}

/// Returns the numbers of a field, and of its texts that are numbers. Other values are NULL.
fn numbers(batch: &Batch, name: &str) -> Option<Float64Array> {
    let column = batch.column(name)?;
    let has_numbers = column.data_type().is_numeric() || *column.data_type() == DataType::Utf8View;
    let numbers = has_numbers.then(|| cast(&column, &DataType::Float64).ok()).flatten()?;
    Some(numbers.as_primitive::<Float64Type>().clone())
}

impl Transform for Comparing {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let mut hashes = std::mem::take(&mut self.hashes);
        hashes.clear();
        match self.keys.is_empty() {
            true => hashes.resize(batch.rows(), 0),
            false => self.last.secret().hash_keys(&batch, &self.keys, &mut hashes),
        }
        let columns = self.columns(&batch);
        let least = self.by_at_least.unwrap_or_default();
        self.last.begin();
        let last = &mut self.last;
        let passing = BooleanBuffer::collect_bool(batch.rows(), |row| {
            let key = hashes.get(row).copied().unwrap_or_default();
            let parts = || columns.iter().map(|column| column.part(row));
            let is_same = last.get(key).is_some_and(|before| {
                before.len() == columns.len()
                    && before.iter().zip(parts()).all(|(before, now)| !now.differs(*before, least))
            });
            if !is_same {
                last.set(key, parts().collect());
            }
            !is_same
        });
        last.count();
        self.hashes = hashes;
        let passing = BooleanArray::from(passing);
        if self.rest {
            let (passed, rest) = batch.partition(&passing)?;
            if let Some(rest) = rest {
                out.send_to(0, rest);
            }
            out.send(passed);
        } else {
            out.send(batch.filter(&passing)?);
        }
        Ok(())
    }

    fn pre_commit(&mut self) -> Result<(), Error> {
        self.last.pre_commit()
    }

    fn state(&mut self) -> Option<Value> {
        self.last.state()
    }

    fn restore(&mut self, saved: Value) -> Result<(), Error> {
        self.last.restore(saved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thalweg_engine::{Output, testing};
    use thalweg_record::Outcome;

    use crate::testing::{with_state, with_text};

    fn passed(yaml: &str, lines: &[&str]) -> Vec<String> {
        testing::apply::<Changes>(yaml, lines.chunks(3).map(testing::batch)).payloads(Output::Main)
    }

    #[test]
    fn it_conforms() {
        testing::transform_conforms::<Changes>("{}", &["a", "a", "", "b", "b"]);
        testing::transform_conforms::<Changes>("{ rest: true, keys: nothing }", &["a", "a", "b"]);
        testing::transform_conforms::<Changes>("{ fields: payload, by_at_least: 2 }", &["1", "2", "x"]);
    }

    #[test]
    fn a_message_passes_if_it_differs_from_the_one_before() {
        assert_eq!(passed("{}", &["a", "a", "b", "b", "a", "", "", "a"]), ["a", "b", "a", "", "a"]);
        let given = testing::apply::<Changes>("rest: true", [testing::batch(["a", "a", "b"])]);
        assert_eq!(given.payloads(Output::Main), ["a", "b"]);
        assert_eq!(given.payloads(Output::Named(0)), ["a"]);
    }

    #[test]
    fn each_key_has_its_own_values_and_null_is_one_of_them() {
        let batch = || {
            with_text(
                &["1", "2", "3", "4", "5", "6"],
                &[
                    ("k", &[Some("a"), None, Some("a"), None, Some("a"), None]),
                    ("v", &[Some("x"), Some("x"), Some("y"), Some("x"), None, None]),
                ],
            )
        };
        let given = testing::apply::<Changes>("{ keys: k, fields: v }", [batch()]);
        assert_eq!(given.payloads(Output::Main), ["1", "2", "3", "5", "6"]);
        // All fields: a field that is missing is NULL.
        let without = with_text(&["7", "8"], &[("k", &[Some("a"), None])]);
        let given = testing::apply::<Changes>("keys: k", [batch(), without]);
        assert_eq!(given.payloads(Output::Main), ["1", "2", "3", "5", "6"]);
    }

    #[test]
    fn a_small_difference_of_numbers_is_no_change_and_a_drift_is() {
        let yaml = "{ fields: payload, by_at_least: 0.1 }";
        assert_eq!(passed(yaml, &["20.1", "20.15", "20.2", "20.25", "20.3"]), ["20.1", "20.2", "20.3"]);
        assert_eq!(passed(yaml, &["1", "1.0", "x", "x", "y", "1"]), ["1", "x", "y", "1"]);
        assert_eq!(passed(yaml, &["nan", "nan", "inf", "5"]), ["nan", "inf", "5"]);
        let (large, larger) = ("1764300000000000000", "1764300000000001000");
        let yaml = "{ fields: payload, by_at_least: 100 }";
        assert_eq!(passed(yaml, &[large, large, large, larger, larger]), [large, larger]);
    }

    #[test]
    fn the_key_without_changes_for_the_longest_time_is_forgotten() {
        let yaml = "{ keys: payload, fields: payload, max_keys: 2 }";
        assert_eq!(passed(yaml, &["a", "b", "a", "c", "a", "b"]), ["a", "b", "c", "a", "b"]);
        assert_eq!(
            testing::refused::<Changes>("max_keys: 0"),
            "`max_keys` must be at least 1, but it is `0`."
        );
    }

    #[test]
    fn a_difference_needs_numbers() {
        let mistakes = |options| testing::messages(testing::options::<Changes>(options).check());
        assert_eq!(mistakes("by_at_least: 1"), ["`by_at_least` needs `fields`, the numbers to compare."]);
        assert_eq!(
            mistakes("{ fields: a, by_at_least: 0 }"),
            ["The least difference must be greater than 0."]
        );
    }

    /// A message: its key and its value.
    type Message = (u8, u8);

    fn batch(messages: &[Message], first: usize) -> Batch {
        let payloads: Vec<String> =
            (first..first + messages.len()).map(|number| number.to_string()).collect();
        let payloads: Vec<&str> = payloads.iter().map(String::as_str).collect();
        let texts = |of: &dyn Fn(&Message) -> u8| {
            messages.iter().map(|message| of(message).to_string()).collect::<Vec<_>>()
        };
        let (keys, values) = (texts(&|message| message.0), texts(&|message| message.1));
        let keys: Vec<Option<&str>> = keys.iter().map(|text| Some(text.as_str())).collect();
        let values: Vec<Option<&str>> = values.iter().map(|text| Some(text.as_str())).collect();
        with_text(&payloads, &[("k", &keys), ("v", &values)])
    }

    /// The numbers of the messages that pass.
    fn model(messages: &[Message], max_keys: usize) -> Vec<usize> {
        let mut last: Vec<Message> = Vec::new();
        let mut passed = Vec::new();
        for (number, message) in messages.iter().enumerate() {
            if last.contains(message) {
                continue;
            }
            passed.push(number);
            last.retain(|(key, _)| *key != message.0);
            last.push(*message);
            if last.len() > max_keys {
                last.remove(0);
            }
        }
        passed
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// The output after the last checkpoint of a killed run is removed, as by a sink that resumes.
        #[test]
        fn any_batches_and_kills_give_the_same(
            messages in prop::collection::vec((0..6_u8, 0..3_u8), 0..60),
            size in 1..7_usize,
            max_keys in 1..7_usize,
            kills in prop::collection::vec((0..4_usize, 0..8_usize), 0..4),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let context = with_state(&folder);
            let yaml = format!("{{ keys: k, fields: v, max_keys: {max_keys} }}");
            let (mut found, mut saved, mut covered, mut left) = (Vec::<usize>::new(), None, 0, 0);
            for &(between, length) in kills.iter().chain([&(2, usize::MAX)]) {
                found.truncate(left);
                let begun = covered;
                let mut transform = testing::options::<Changes>(&yaml).build(&context).unwrap();
                saved.iter().for_each(|saved: &Value| transform.restore(saved.clone()).unwrap());
                let mut out = Outputs::new("test".into());
                for (number, part) in messages.chunks(size).enumerate().skip(begun).take(length) {
                    transform.apply(batch(part, number * size), &mut out).unwrap();
                    for (_, batch) in out.take() {
                        let payloads = testing::payloads(&batch);
                        found.extend(payloads.iter().map(|payload| payload.parse::<usize>().unwrap()));
                        batch.settle(Outcome::Delivered);
                    }
                    if number % (between + 1) == 0 {
                        transform.pre_commit().unwrap();
                        saved = transform.state().or(saved);
                        prop_assert_eq!(transform.state(), None, "nothing has changed since");
                        (covered, left) = (number + 1, found.len());
                    }
                }
            }
            prop_assert_eq!(found, model(&messages, max_keys));
        }
    }

    /// The value of the state would have been that of a message which comes again.
    #[test]
    fn a_state_of_a_moment_at_which_messages_move_has_no_values() {
        let folder = tempfile::tempdir().unwrap();
        let context = with_state(&folder);
        let build = |context: &Context| testing::options::<Changes>("{}").build(context).unwrap();
        let passes = |transform: &mut dyn Transform, line: &str| {
            let mut out = Outputs::new("test".into());
            transform.apply(testing::batch([line]), &mut out).unwrap();
            out.take().len()
        };
        let mut first = build(&context);
        assert_eq!(passes(&mut *first, "a"), 1);
        let moving = first.state().unwrap();
        first.pre_commit().unwrap();
        let still = first.state().unwrap();
        for (saved, expected) in [(moving, 1), (still.clone(), 0)] {
            let mut next = build(&context);
            next.restore(saved).unwrap();
            assert_eq!(passes(&mut *next, "a"), expected);
        }
        // A run that keeps no values leaves none to the next one.
        let mut without = build(&Context { rereads: false, ..context.clone() });
        without.restore(still.clone()).unwrap();
        assert_eq!(passes(&mut *without, "a"), 1);
        assert_ne!(without.state().unwrap(), still);
        assert_eq!(without.state(), None);
    }

    /// Under another secret, each value would be a change.
    #[test]
    fn each_new_state_has_a_secret_of_its_own_and_a_later_run_has_that_of_the_state() {
        let folder = tempfile::tempdir().unwrap();
        let context = with_state(&folder);
        let build = || testing::options::<Changes>("{}").build(&context).unwrap();
        let (mut first, mut second, mut later) = (build(), build(), build());
        let (first, second) = (first.state().unwrap(), second.state().unwrap());
        assert_ne!(first["secret"], second["secret"]);
        later.restore(first.clone()).unwrap();
        let mut out = Outputs::new("test".into());
        later.apply(testing::batch(["a"]), &mut out).unwrap();
        later.pre_commit().unwrap();
        assert_eq!(later.state().unwrap()["secret"], first["secret"]);
    }
}

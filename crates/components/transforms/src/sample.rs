//! Passes a sample of the messages.
//!
//! With a key, the key's hash decides: all messages of a trace or a user pass, or none.

use arrow_array::BooleanArray;
use arrow_buffer::BooleanBuffer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Outputs, Transform, TransformConfig};
use thalweg_record::{Batch, INTRINSIC};

use thalweg_codec::keys::hash_keys;

/// Passes a sample of the messages and filters the others.
///
/// Give either `rate: 0.1`, which passes each message with that probability, or `one_in: 10`, which passes
/// every tenth message. With a `key`, `one_in: 10` passes every tenth value of the key on average. With
/// `take: 3`, the first three of each ten pass.
///
/// With `--state`, a later run continues within the group, or within the random numbers of the `seed`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sample {
    /// The probability of each message to pass, from 0 to 1.
    #[schemars(range(min = 0.0, max = 1.0))]
    rate: Option<f64>,
    /// The size of a group of messages, of which the first one passes.
    #[schemars(range(min = 1))]
    one_in: Option<u64>,
    /// With `one_in`: the number of messages that pass in each group, its first ones. The default is 1.
    #[schemars(range(min = 1))]
    take: Option<u64>,
    /// True to send the other messages to the output `rest` instead of filtering them. Another pipeline reads
    /// it with `from: NAME.rest`. The default is `false`.
    rest: bool,
    /// A field whose value decides: messages with the same value all pass, or none does. By default each
    /// message is decided separately.
    key: Option<String>,
    /// A number that makes the choice the same in every run. With a `key` the choice is always the same, and
    /// another seed makes another choice.
    seed: Option<u64>,
}

impl Component for Sample {
    const NAME: &'static str = "sample";
    const EXAMPLE: &'static str = r#"
sources:
  numbers: { generate: { message: "hello", count: 100 } }
pipelines:
  main:
    from: numbers
    transforms:
      - sample: { one_in: 10 }
    to: screen
sinks:
  screen: { stdout: {} }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mistake = |message: &str, help: &str| vec![Mistake::new("", message).help(help)];
        match (self.take, self.one_in) {
            (Some(_), None) => {
                let mistake = Mistake::new("take", "`take` needs `one_in`, the size of a group.");
                return vec![mistake.help("Add `one_in`, for example `one_in: 10`.")];
            }
            (Some(take), Some(count)) if take > count => {
                let message = format!("`take` is {take}, which is more than `one_in`, {count}.");
                return vec![Mistake::new("take", message)];
            }
            _ => {}
        }
        if self.rate.is_some_and(f64::is_nan) {
            let mistake = Mistake::new("rate", "`rate` is not a number.");
            return vec![mistake.help("Give a probability from 0 to 1, for example `rate: 0.1`.")];
        }
        match (self.rate, self.one_in) {
            (None, None) => mistake(
                "`sample` has neither `rate` nor `one_in`.",
                "Give one of them: `rate: 0.1` or `one_in: 10`.",
            ),
            (Some(_), Some(_)) => {
                mistake("`rate` and `one_in` both say how many messages to pass.", "Leave out one of them.")
            }
            _ => Vec::new(),
        }
    }
}

impl TransformConfig for Sample {
    fn names_intrinsic(&self) -> bool {
        self.key.as_deref().is_some_and(|key| INTRINSIC.contains(&key))
    }

    fn outputs(&self) -> Vec<String> {
        self.rest.then(|| "rest".to_owned()).into_iter().collect()
    }

    fn is_sequential(&self) -> bool {
        // With a key, each message is decided alone. With groups or a seed, the decision depends on earlier
        // messages.
        self.key.is_none() && (self.seed.is_some() || self.one_in.is_some())
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        before
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        Ok(Box::new(Sampler {
            part: match (self.rate, self.one_in) {
                (_, Some(count)) => Fraction::Of(self.take.unwrap_or(1), count.max(1)),
                (rate, None) => Fraction::Rate(rate.unwrap_or(1.0)),
            },
            key: self.key.iter().cloned().collect(),
            rest: self.rest,
            seed: self.seed.unwrap_or(0),
            has_seed: self.seed.is_some(),
            random: self.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed),
            count: 0,
            saved: None,
            hashes: Vec::new(),
        }))
    }
}

/// The state for a later run.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// The index of the next message in its group.
    Count(u64),
    /// The seed that continues the random numbers, and the configured one.
    Random { seed: u64, from: u64 },
}

#[derive(Clone, Copy)]
enum Fraction {
    Rate(f64),
    /// The first messages of each group: how many pass, and the size of the group.
    Of(u64, u64),
}

struct Sampler {
    part: Fraction,
    key: Vec<String>,
    rest: bool,
    seed: u64,
    has_seed: bool,
    random: fastrand::Rng,
    /// The index of the next message in its group.
    count: u64,
    /// The state that was returned last.
    saved: Option<State>,
    hashes: Vec<u128>,
}

impl Transform for Sampler {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let rows = batch.rows();
        let keep = if self.key.is_empty() {
            match self.part {
                Fraction::Rate(rate) => BooleanBuffer::collect_bool(rows, |_| self.random.f64() < rate),
                Fraction::Of(take, count) => BooleanBuffer::collect_bool(rows, |_| {
                    let place = self.count;
                    self.count = (place + 1) % count;
                    place < take
                }),
            }
        } else {
            hash_keys(&batch, &self.key, self.seed, &mut self.hashes);
            let hash = |row: usize| self.hashes.get(row).map_or(0, |&hash| hash as u64);
            match self.part {
                // The upper 53 bits of the hash, as a number from 0 (included) to 1 (excluded).
                Fraction::Rate(rate) => BooleanBuffer::collect_bool(rows, |row| {
                    (hash(row) >> 11) as f64 / ((1_u64 << 53) as f64) < rate
                }),
                Fraction::Of(take, count) => {
                    BooleanBuffer::collect_bool(rows, |row| hash(row) % count < take)
                }
            }
        };
        let keep = BooleanArray::from(keep);
        if self.rest {
            let (passed, rest) = batch.partition(&keep)?;
            if let Some(rest) = rest {
                out.send_to(0, rest);
            }
            out.send(passed);
        } else {
            out.send(batch.filter(&keep)?);
        }
        Ok(())
    }

    fn state(&mut self) -> Option<Value> {
        let now = Some(self.place()?);
        let former = std::mem::replace(&mut self.saved, now);
        (former != now).then(|| serde_json::to_value(now).ok())?
    }

    fn restore(&mut self, saved: Value) -> Result<(), Error> {
        let saved: State = serde_json::from_value(saved).map_err(crate::unusable_state)?;
        match (self.part, saved) {
            (Fraction::Of(_, size), State::Count(count)) => self.count = count % size,
            (Fraction::Rate(_), State::Random { seed, from }) if self.has_seed && from == self.seed => {
                self.random = fastrand::Rng::with_seed(seed);
            }
            // The options have changed since, so there is nothing to continue.
            _ => {}
        }
        Ok(())
    }
}

impl Sampler {
    /// Returns the place in the sequence of decisions, if these depend on it.
    fn place(&self) -> Option<State> {
        match self.part {
            _ if !self.key.is_empty() => None,
            Fraction::Of(..) => Some(State::Count(self.count)),
            Fraction::Rate(_) if self.has_seed => {
                Some(State::Random { seed: self.random.get_seed(), from: self.seed })
            }
            Fraction::Rate(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::{Output, testing};

    fn passed(yaml: &str, lines: &[String], batch: usize) -> Vec<String> {
        testing::apply::<Sample>(yaml, lines.chunks(batch).map(testing::batch)).payloads(Output::Main)
    }

    #[test]
    fn it_conforms() {
        for yaml in [
            "rate: 0.5",
            "one_in: 2",
            "{rate: 0.5, key: payload}",
            "{one_in: 2, key: nothing}",
            "rate: 0",
            "{one_in: 3, take: 2, rest: true}",
            "{rate: 0.5, rest: true, key: payload}",
        ] {
            testing::transform_conforms::<Sample>(yaml, &["a", "", "b", "c", "a"]);
        }
    }

    #[test]
    fn every_so_many_th_message_passes_over_the_edges_of_batches() {
        let lines: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        let expected: Vec<String> = (0..100).step_by(10).map(|n| n.to_string()).collect();
        assert_eq!(passed("one_in: 10", &lines, 7), expected);
        assert_eq!(passed("one_in: 1", &lines, 7), lines);
    }

    #[test]
    fn the_first_of_each_group_pass_and_the_rest_can_be_led_elsewhere() {
        let lines: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        let yaml = "{one_in: 5, take: 2, rest: true}";
        let given = testing::apply::<Sample>(yaml, lines.chunks(3).map(testing::batch));
        let part = |passes: bool| -> Vec<String> {
            (0..20).filter(|n| (n % 5 < 2) == passes).map(|n| n.to_string()).collect()
        };
        assert_eq!(given.payloads(Output::Main), part(true));
        assert_eq!(given.payloads(Output::Named(0)), part(false));
        assert_eq!(testing::options::<Sample>(yaml).outputs(), ["rest"]);
        assert_eq!(passed("{one_in: 5, take: 2}", &lines, 3), part(true));
        assert_eq!(passed("{one_in: 5, take: 5}", &lines, 3), lines);
    }

    #[test]
    fn about_the_rate_passes_and_a_seed_repeats_it() {
        let lines: Vec<String> = (0..10_000).map(|n| n.to_string()).collect();
        let first = passed("{rate: 0.1, seed: 1}", &lines, 1000);
        assert!((800..1200).contains(&first.len()), "{}", first.len());
        assert_eq!(first, passed("{rate: 0.1, seed: 1}", &lines, 77));
        assert_ne!(first, passed("{rate: 0.1, seed: 2}", &lines, 1000));
        let by_key = passed("{rate: 0.1, key: payload}", &lines, 1000);
        assert!((800..1200).contains(&by_key.len()), "{}", by_key.len());
        assert_eq!(passed("rate: 1", &lines, 1000), lines);
    }

    #[test]
    fn messages_of_one_key_have_one_fate() {
        let lines: Vec<String> = (0..1000).map(|n| (n % 10).to_string()).collect();
        for yaml in ["{rate: 0.5, key: payload}", "{one_in: 2, key: payload}"] {
            let passed = passed(yaml, &lines, 33);
            assert_eq!(passed.len() % 100, 0, "{}", passed.len());
            assert!(!passed.is_empty() && passed.len() < 1000);
        }
    }

    #[test]
    fn one_of_the_two_measures_is_needed_and_in_range() {
        assert_eq!(
            testing::options::<Sample>("{}").check()[0].message,
            "`sample` has neither `rate` nor `one_in`."
        );
        assert_eq!(
            testing::messages(testing::options::<Sample>("{rate: 1, one_in: 1}").check()),
            ["`rate` and `one_in` both say how many messages to pass."]
        );
        assert_eq!(
            testing::messages(testing::options::<Sample>("rate: .nan").check()),
            ["`rate` is not a number."]
        );
        assert_eq!(testing::refused::<Sample>("rate: 10"), "`rate` must be at most 1.0, but it is `10`.");
        assert_eq!(testing::refused::<Sample>("one_in: 0"), "`one_in` must be at least 1, but it is `0`.");
        assert_eq!(
            testing::messages(testing::options::<Sample>("{rate: 0.5, take: 1}").check()),
            ["`take` needs `one_in`, the size of a group."]
        );
        assert_eq!(
            testing::messages(testing::options::<Sample>("{one_in: 2, take: 3}").check()),
            ["`take` is 3, which is more than `one_in`, 2."]
        );
        assert_eq!(testing::messages(testing::options::<Sample>("{one_in: 2, take: 2}").check()), [""; 0]);
    }
}

//! Passes each message once.
//!
//! It remembers hashes of 128 bits instead of keys, so memory is bounded whatever the keys are. Hashes are
//! forgotten in the order of their first messages, so a message that repeats forever passes once per period.
//! Forgetting the least recently used hash was rejected: such a message would never pass again, and a list
//! would have to be updated at each repetition.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use arrow_array::BooleanArray;
use arrow_buffer::BooleanBuffer;
use hashbrown::HashSet;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::TimeSpan;
use thalweg_engine::{Component, Context, Error, Outputs, Transform, TransformConfig};
use thalweg_record::{Batch, PAYLOAD};

use thalweg_codec::keys::hash_keys;

/// Passes the first message of each key and filters messages with a key seen before.
///
/// A repetition is filtered even if the first message fails later.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Dedupe {
    /// The fields that together are the key of a message. The default is `[payload]`.
    #[schemars(length(min = 1))]
    keys: Vec<String>,
    /// The maximum number of different keys to remember. When it is reached, the oldest key is forgotten.
    /// Each key needs about 70 bytes. The default is 100000.
    #[schemars(range(min = 1))]
    window: usize,
    /// How long to remember a key after its first message, for example `5m`. By default keys are forgotten
    /// only when the window is full.
    within: Option<TimeSpan>,
}

impl Default for Dedupe {
    fn default() -> Self {
        Self { keys: vec![PAYLOAD.to_owned()], window: 100_000, within: None }
    }
}

impl Component for Dedupe {
    const NAME: &'static str = "dedupe";
    const EXAMPLE: &'static str = r#"
sources:
  alerts: { generate: { message: "disk=full host=a", count: 100 } }
pipelines:
  main:
    from: alerts
    transforms:
      - parse_logfmt: {}
      - dedupe: { keys: [disk, host], within: 5m }
    to: screen
sinks:
  screen: { stdout: {} }
"#;
}

impl TransformConfig for Dedupe {
    fn is_sequential(&self) -> bool {
        true
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        Ok(Box::new(Deduper {
            keys: self.keys.clone(),
            seen: Seen {
                window: self.window.max(1),
                within: self.within.map(TimeSpan::duration),
                keys: HashSet::new(),
                order: VecDeque::new(),
            },
            hashes: Vec::new(),
            now: Instant::now,
        }))
    }
}

struct Deduper {
    keys: Vec<String>,
    seen: Seen,
    hashes: Vec<u128>,
    now: fn() -> Instant,
}

struct Seen {
    window: usize,
    within: Option<Duration>,
    keys: HashSet<u128>,
    order: VecDeque<(u128, Instant)>,
}

impl Seen {
    fn expire(&mut self, now: Instant) {
        let Some(within) = self.within else { return };
        while let Some((key, first)) = self.order.front()
            && now.duration_since(*first) >= within
        {
            self.keys.remove(key);
            self.order.pop_front();
        }
    }

    /// Remembers the key. Returns true if it is new.
    fn insert(&mut self, key: u128, now: Instant) -> bool {
        if !self.keys.insert(key) {
            return false;
        }
        if self.order.len() >= self.window
            && let Some((oldest, _)) = self.order.pop_front()
        {
            self.keys.remove(&oldest);
        }
        self.order.push_back((key, now));
        true
    }
}

impl Transform for Deduper {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let now = (self.now)();
        self.seen.expire(now);
        hash_keys(&batch, &self.keys, 0, &mut self.hashes);
        let mut hashes = self.hashes.iter();
        let keep = BooleanBuffer::collect_bool(batch.rows(), |_| {
            hashes.next().is_none_or(|&key| self.seen.insert(key, now))
        });
        out.send(batch.filter(&BooleanArray::from(keep))?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thalweg_engine::{Output, testing};

    use crate::testing::with_text;

    fn passed(yaml: &str, lines: &[&str]) -> Vec<String> {
        testing::apply::<Dedupe>(yaml, lines.chunks(3).map(testing::batch)).payloads(Output::Main)
    }

    #[test]
    fn it_conforms() {
        testing::transform_conforms::<Dedupe>("{}", &["a", "", "a", "", "b"]);
        testing::transform_conforms::<Dedupe>("keys: [nothing]", &["a", "b"]);
    }

    #[test]
    fn the_first_passes_and_the_window_forgets_in_order_of_coming() {
        assert_eq!(passed("{}", &["a", "b", "a", "a", "", "b", "", "c"]), ["a", "b", "", "c"]);
        assert_eq!(passed("window: 2", &["a", "b", "a", "c", "a", "b"]), ["a", "b", "c", "a", "b"]);
        assert_eq!(passed("window: 1", &["a", "a", "b", "a"]), ["a", "b", "a"]);
    }

    #[test]
    fn fields_can_be_the_key_and_null_is_a_value_too() {
        let batch = with_text(&["1", "2", "3", "4"], &[("k", &[Some("x"), None, Some("x"), None])]);
        let given = testing::apply::<Dedupe>("keys: [k]", [batch]);
        assert_eq!(given.payloads(Output::Main), ["1", "2"]);
    }

    #[test]
    fn a_key_passes_again_when_its_time_is_over() {
        let start = Instant::now();
        let mut seen = Seen {
            window: 10,
            within: Some(Duration::from_secs(5)),
            keys: HashSet::new(),
            order: VecDeque::new(),
        };
        assert!(seen.insert(1, start));
        for (seconds, is_new) in [(1, false), (4, false), (5, true), (9, false), (10, true)] {
            let now = start + Duration::from_secs(seconds);
            seen.expire(now);
            assert_eq!(seen.insert(1, now), is_new, "{seconds}");
        }
    }

    #[test]
    fn a_window_of_nothing_is_a_mistake() {
        assert_eq!(testing::refused::<Dedupe>("window: 0"), "`window` must be at least 1, but it is `0`.");
        assert_eq!(
            testing::refused::<Dedupe>("keys: []"),
            "`keys` needs at least 1 element, but it is empty."
        );
    }

    proptest! {
        #[test]
        fn it_is_like_a_list_of_the_last_new_ones(lines in prop::collection::vec("[a-f]", 0..60), window in 1..5usize) {
            let mut last: VecDeque<String> = VecDeque::new();
            let mut expected = Vec::new();
            for line in &lines {
                if !last.contains(line) {
                    expected.push(line.clone());
                    last.push_back(line.clone());
                    if last.len() > window {
                        last.pop_front();
                    }
                }
            }
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            prop_assert_eq!(passed(&format!("window: {window}"), &lines), expected);
        }
    }
}

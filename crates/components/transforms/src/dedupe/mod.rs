//! Passes each message once.
//!
//! It remembers hashes of 128 bits instead of keys, so memory is bounded whatever the keys are. Hashes are
//! forgotten in the order of their first messages, so a message that repeats forever passes once per period.
//! Forgetting the least recently used hash was rejected: such a message would never pass again, and a list
//! would have to be updated at each repetition.
//!
//! The hashes are computed under a secret, which the state has too. Otherwise a sender could make a message
//! that is taken for another one, and filtered.
//!
//! `seen` remembers hashes in memory and in temporary files (`run`), `saved` keeps them for a later run.

mod run;
mod saved;
mod seen;

use std::time::{Duration, Instant, SystemTime};

use arrow_array::BooleanArray;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use thalweg_config::{List, TimeSpan};
use thalweg_engine::{Component, Context, Error, KnownFields, Outputs, Transform, TransformConfig};
use thalweg_record::{Batch, INTRINSIC, PAYLOAD};

use saved::Saved;
use seen::Seen;

/// Passes the first message of each key and filters messages with a key seen before.
///
/// A repetition is filtered even if the first message fails later. A key is remembered as a hash of 128 bits
/// under a random secret: among a billion keys, the chance that a new one is taken for another is less than
/// one in 10^20, also if senders choose the keys.
///
/// With `--state`, a later run remembers the keys of all messages before the first one that is not done. No
/// message that comes again after a kill is lost; some may pass twice. Each key then takes about 25 bytes in
/// the state. Without `--state`, each run starts without keys.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Dedupe {
    /// The fields that together are the key of a message. The default is `[payload]`. Values are compared as
    /// they are written: `1` and `"1"` are the same, `1` and `1.0` are not.
    keys: List<String, 1>,
    /// The maximum number of different keys to remember. When it is reached, the oldest key is forgotten. An
    /// eighth of `memory` is for keys, of about 40 bytes each. More keys are kept in temporary files, of 24
    /// bytes each (twice that while files are merged), and need a byte and a half in memory. The default is
    /// 100000.
    #[schemars(range(min = 1))]
    max_keys: usize,
    /// How long to remember a key after its first message, for example `5m`. By default keys are forgotten
    /// only when there are `max_keys`.
    max_age: Option<TimeSpan>,
}

impl Default for Dedupe {
    fn default() -> Self {
        Self { keys: vec![PAYLOAD.to_owned()].into(), max_keys: 100_000, max_age: None }
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
      - dedupe: { keys: [disk, host], max_age: 5m }
    to: screen
sinks:
  screen: { stdout: {} }
"#;
}

impl TransformConfig for Dedupe {
    fn names_intrinsic(&self) -> bool {
        self.keys.iter().any(|key| INTRINSIC.contains(&key.as_str()))
    }

    fn fields(&self) -> Vec<String> {
        self.keys.to_vec()
    }

    fn is_sequential(&self) -> bool {
        true
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        before
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error> {
        let max_age = self.max_age.map(TimeSpan::duration);
        let secret = crate::new_secret()?;
        Ok(Box::new(Deduper {
            keys: self.keys.to_vec(),
            seen: Seen::new(self.max_keys, max_age, &context.memory, context.temporary.clone()),
            saved: Saved::new(context.journal.clone(), self.keys.to_vec(), secret, &context.name),
            hashes: Vec::new(),
            clock: Clock::new(),
            failure: None,
        }))
    }
}

/// The time since 1970, which goes on steadily within a run, whatever is done to the clock.
struct Clock {
    start: Instant,
    at_start: Duration,
}

impl Clock {
    fn new() -> Self {
        let at_start = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { start: Instant::now(), at_start }
    }

    fn now(&self) -> Duration {
        self.at_start + self.start.elapsed()
    }
}

struct Deduper {
    keys: Vec<String>,
    seen: Seen,
    saved: Saved,
    hashes: Vec<u128>,
    clock: Clock,
    /// Why the last state could not be saved.
    failure: Option<Error>,
}

/// The error of a file of keys that cannot be written or read.
fn unusable_file(error: std::io::Error) -> Error {
    let advice = "make room in the folder for temporary files, or give a smaller `max_keys` or more `memory`";
    Error::permanent(format!(
        "the keys that do not fit into memory cannot be kept in a file: {error}; {advice}"
    ))
}

impl Deduper {
    /// Returns which messages are the first of their keys.
    fn first(&mut self, rows: usize) -> Result<BooleanArray, Error> {
        let now = self.clock.now();
        self.seen.expire(now);
        let mut first = Vec::with_capacity(rows);
        for &key in &self.hashes {
            let is_new = self.seen.insert(key, now).map_err(unusable_file)?;
            if is_new {
                self.saved.add(key);
            }
            first.push(is_new);
        }
        self.saved.note_if_many(&self.seen, now)?;
        Ok(first.into())
    }
}

impl Transform for Deduper {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        self.saved.secret().hash_keys(&batch, &self.keys, &mut self.hashes);
        let number = self.seen.next();
        let first = self.first(batch.rows())?;
        let mut new = batch.filter(&first)?;
        if let Some(new) = &mut new {
            self.saved.watch(new, number);
        }
        out.send(new);
        Ok(())
    }

    fn pre_commit(&mut self) -> Result<(), Error> {
        self.saved.forget_failures();
        Ok(())
    }

    fn state(&mut self) -> Option<Value> {
        self.saved.state(&self.seen, self.clock.now()).unwrap_or_else(|failure| {
            self.failure = Some(failure);
            None
        })
    }

    /// The state has only keys of messages that are settled.
    fn is_exact(&self) -> bool {
        false
    }

    fn restore(&mut self, saved: Value) -> Result<(), Error> {
        self.saved.restore(saved, &mut self.seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::sync::Arc;
    use thalweg_codec::keys::hash_keys;
    use thalweg_engine::{Journal, Output, Store, testing};
    use thalweg_record::Outcome;

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
        assert_eq!(passed("max_keys: 2", &["a", "b", "a", "c", "a", "b"]), ["a", "b", "c", "a", "b"]);
        assert_eq!(passed("max_keys: 1", &["a", "a", "b", "a"]), ["a", "b", "a"]);
    }

    #[test]
    fn fields_can_be_the_key_and_null_is_a_value_too() {
        let batch = with_text(&["1", "2", "3", "4"], &[("k", &[Some("x"), None, Some("x"), None])]);
        let given = testing::apply::<Dedupe>("keys: [k]", [batch]);
        assert_eq!(given.payloads(Output::Main), ["1", "2"]);
    }

    #[test]
    fn a_window_of_nothing_is_a_mistake() {
        assert_eq!(
            testing::refused::<Dedupe>("max_keys: 0"),
            "`max_keys` must be at least 1, but it is `0`."
        );
        assert_eq!(
            testing::refused::<Dedupe>("keys: []"),
            "`keys` needs at least 1 element, but it is empty."
        );
    }

    /// Passes lines one by one. The run is killed when those in `settled` are settled, and the others are
    /// not. Returns the lines that passed, and the state that was saved last.
    fn killed(
        context: &Context,
        saved: Option<Value>,
        lines: &[&str],
        settled: &[&str],
    ) -> (Vec<String>, Option<Value>) {
        let mut transform = testing::options::<Dedupe>("{}").build(context).unwrap();
        saved.into_iter().for_each(|saved| transform.restore(saved).unwrap());
        let mut out = Outputs::new("test".into());
        let (mut passed, mut on_their_way) = (Vec::new(), Vec::new());
        for line in lines {
            transform.apply(testing::batch([line]), &mut out).unwrap();
            for (_, batch) in out.take() {
                passed.extend(testing::payloads(&batch));
                match settled.contains(line) {
                    true => batch.settle(Outcome::Delivered),
                    false => on_their_way.push(batch),
                }
            }
        }
        (passed, transform.state())
    }

    #[test]
    fn a_message_that_was_on_its_way_at_a_kill_passes_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(folder.path()).unwrap());
        let context = Context { journal: Some(Journal::new(store, "test")), ..testing::context() };
        let (passed, saved) = killed(&context, None, &["a", "b", "c"], &["a", "c"]);
        assert_eq!(passed, ["a", "b", "c"]);
        // A message after one that is not settled may be read again with it.
        let (passed, saved) = killed(&context, saved, &["a", "b", "c", "d"], &["b", "c", "d"]);
        assert_eq!(passed, ["b", "c", "d"]);
        let (passed, _) = killed(&context, saved, &["a", "b", "c", "d", "e"], &[]);
        assert_eq!(passed, ["e"]);
    }

    #[test]
    fn keys_are_kept_again_after_a_batch_went_another_way() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(folder.path()).unwrap());
        let context = Context { journal: Some(Journal::new(store, "test")), ..testing::context() };
        let mut transform = testing::options::<Dedupe>("{}").build(&context).unwrap();
        let mut out = Outputs::new("test".into());
        for (line, outcome) in [("a", Outcome::Delivered), ("b", Outcome::Failed), ("c", Outcome::Delivered)]
        {
            transform.apply(testing::batch([line]), &mut out).unwrap();
            out.take().into_iter().for_each(|(_, batch)| batch.settle(outcome));
        }
        let passed = |saved: Option<Value>| killed(&context, saved, &["a", "b", "c"], &[]).0;
        let moving = transform.state();
        transform.pre_commit().unwrap();
        let still = transform.state();
        assert_eq!(passed(still), Vec::<String>::new());
        assert_eq!(passed(moving), ["b", "c"]);
    }

    #[test]
    fn the_keys_of_a_checkpoint_stay_when_the_window_turns_over_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(folder.path()).unwrap());
        let context = Context { journal: Some(Journal::new(store, "test")), ..testing::context() };
        let build = || testing::options::<Dedupe>("max_keys: 1000").build(&context).unwrap();
        let mut out = Outputs::new("test".into());
        let mut passed = |transform: &mut dyn Transform, lines: &[String]| {
            transform.apply(testing::batch(lines), &mut out).unwrap();
            let left = out.take().into_iter().map(|(_, batch)| {
                let rows = batch.rows();
                batch.settle(Outcome::Delivered);
                rows
            });
            left.sum::<usize>()
        };
        let lines = |numbers: std::ops::Range<usize>| numbers.map(|n| n.to_string()).collect::<Vec<_>>();
        let mut transform = build();
        assert_eq!(passed(&mut *transform, &lines(0..1000)), 1000);
        let saved = transform.state().unwrap();
        // Several pages of notes, without a checkpoint.
        for start in (1000..500_000).step_by(1000) {
            assert_eq!(passed(&mut *transform, &lines(start..start + 1000)), 1000);
        }
        let mut transform = build();
        transform.restore(saved).unwrap();
        assert_eq!(passed(&mut *transform, &lines(0..1000)), 0);
    }

    /// A message of 64 bytes whose XXH3 with 128 bits and the seed 0 depends only on `sums[0] ^ sums[1]`. The
    /// first word of each 16 bytes is that of XXH3's own secret, so that its product with the other is zero.
    fn crafted(sums: [u64; 2]) -> Vec<u8> {
        let [first, second] = [0xbe4b_a423_396c_feb8, 0x78e5_c0cc_4ee6_79cb];
        let [third, fourth]: [u64; 2] = [0x8e24_43f7_7446_08b8, 0xdb97_9083_e96d_d4de];
        let rest = [sums[0].wrapping_sub(third), sums[1].wrapping_sub(fourth)];
        let words = [first, 0, second, 0, third, rest[0], fourth, rest[1]];
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    #[test]
    fn messages_that_are_made_to_have_one_hash_without_a_secret_both_pass() {
        let batch = testing::batch([crafted([1, 0]), crafted([0, 1])]);
        let mut hashes = Vec::new();
        hash_keys(&batch, &[PAYLOAD.to_owned()], 0, &mut hashes);
        assert_eq!(hashes[0], hashes[1]);
        assert_eq!(testing::apply::<Dedupe>("{}", [batch]).payloads(Output::Main).len(), 2);
    }

    #[test]
    fn each_new_state_has_a_secret_of_its_own_and_a_later_run_has_that_of_the_state() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(folder.path()).unwrap());
        let context =
            |name: &str| Context { journal: Some(Journal::new(store.clone(), name)), ..testing::context() };
        let secret = |saved: &Option<Value>| saved.as_ref().unwrap()["secret"].clone();
        let (_, first) = killed(&context("first"), None, &["a"], &["a"]);
        let (_, second) = killed(&context("second"), None, &["a"], &["a"]);
        assert_ne!(secret(&first), secret(&second));
        let (_, later) = killed(&context("first"), first.clone(), &["b"], &["b"]);
        assert_eq!(secret(&first), secret(&later));
    }

    #[test]
    fn a_state_without_a_secret_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(folder.path()).unwrap());
        let context = Context { journal: Some(Journal::new(store, "test")), ..testing::context() };
        let (_, mut saved) = killed(&context, None, &["a"], &["a"]);
        saved.as_mut().unwrap().as_object_mut().unwrap().remove("secret");
        let refused = testing::options::<Dedupe>("{}").build(&context).unwrap().restore(saved.unwrap());
        let said = refused.unwrap_err().to_string();
        assert!(said.starts_with("its saved state cannot be read: missing field `secret`; "), "{said}");
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
            prop_assert_eq!(passed(&format!("max_keys: {window}"), &lines), expected);
        }
    }

    /// Run alone: `cargo test --release -p thalweg-transforms --lib ten_million -- --ignored --nocapture`.
    #[test]
    #[ignore = "takes a while, and measures the memory of the whole process"]
    fn ten_million_keys_stay_within_the_budget_and_48_mib() {
        let memory = thalweg_record::Budget::new(32 << 20).share();
        let context = Context { memory: memory.clone(), ..testing::context() };
        let mut transform = testing::options::<Dedupe>("max_keys: 10000000").build(&context).unwrap();
        let mut out = Outputs::new("test".into());
        let start = Instant::now();
        for (round, expected) in [(0, 10_000_000), (1, 0)] {
            let mut passed = 0;
            for batch in 0..1000 {
                let lines: Vec<String> =
                    (0..10_000).map(|n| format!("message {}", batch * 10_000 + n)).collect();
                transform.apply(testing::batch(&lines), &mut out).unwrap();
                passed += out.take().iter().map(|(_, batch)| batch.rows()).sum::<usize>();
            }
            assert_eq!(passed, expected);
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim();
            let kib: usize = peak.trim_end_matches(" kB").parse().unwrap();
            println!(
                "round {round}: {:?}, {kib} KiB, {} bytes of the budget",
                start.elapsed(),
                memory.budget().used()
            );
            assert!(kib < (32 + 48) << 10, "{kib} KiB");
        }
    }
}

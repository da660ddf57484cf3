//! Limits the rate of messages.
//!
//! The limiter is a token bucket: it fills at the rate up to the burst, and each message takes one token.
//! With `wait`, a batch is cut: as many messages pass as there are tokens, and the engine resumes the rest
//! when there are more. To pass whole batches and pause afterwards was rejected: it lets a batch of any size
//! through at once, and at a stop all that waits.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime};

use arrow_array::BooleanArray;
use arrow_buffer::BooleanBuffer;
use hashbrown::HashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thalweg_config::TimeSpan;
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Outputs, Transform, TransformConfig};
use thalweg_record::{Batch, INTRINSIC, Share};

use crate::kept::Kept;
use thalweg_codec::keys::Secret;

/// Limits the rate of messages.
///
/// Over any time, no more messages pass than `rate` allows for that time, and `burst` beside. With `--state`,
/// a later run continues with what this one left of the burst, unless there is a `key`: then each run starts
/// with whole bursts. A run that is stopped leaves what waits to the next one, if the source can read it
/// again: of each source, about a second's messages are delivered first.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// The maximum number of messages in each period `per`. A number greater than 0, which may be a fraction.
    rate: f64,
    /// The period of `rate`. The default is `1s`.
    #[serde(default = "second")]
    per: TimeSpan,
    /// The maximum number of messages that pass at once after a quiet time, at least 1. With `on_excess:
    /// wait` it is at least what `rate` allows in 10 ms, because timers are no finer. The default is `rate`.
    burst: Option<f64>,
    /// How messages above the limit are treated. The default is `wait`.
    #[serde(default)]
    on_excess: OnExcess,
    /// A field: each of its values has its own limit. `on_excess` must then be `drop`, `error` or `route`, so
    /// that messages of one value do not block messages of other values. By default one limit applies to all
    /// messages.
    key: Option<String>,
    /// The maximum number of values of `key` to remember. Beyond it, the oldest value is forgotten and its
    /// limit starts again. Each needs about 100 bytes, which count on `memory`. The default is 100000.
    #[serde(default = "most_keys")]
    #[schemars(range(min = 1))]
    max_keys: usize,
}

fn second() -> TimeSpan {
    TimeSpan::seconds(1)
}

fn most_keys() -> usize {
    100_000
}

/// The output for messages above the limit.
const EXCESS: &str = "excess";

/// How messages above the limit are treated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnExcess {
    /// They wait, and the components before wait too, back to the source. A run that is stopped keeps to the
    /// rate while it drains; what still waits after `--drain-timeout` is not delivered.
    #[default]
    Wait,
    /// They are filtered.
    Drop,
    /// They leave by the `errors` output.
    Error,
    /// They leave by the output `excess`. Another pipeline reads it with `from: NAME.excess`.
    Route,
}

impl Component for Limit {
    const NAME: &'static str = "limit";
    const EXAMPLE: &'static str = r#"
sources:
  numbers: { generate: { message: "hello", count: 100 } }
pipelines:
  main:
    from: numbers
    transforms:
      - limit: { rate: 10, per: 1m, on_excess: drop }
    to: screen
sinks:
  screen: { stdout: {} }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if !(self.rate.is_finite() && self.rate > 0.0) {
            let message = "The rate must be greater than 0: nothing would ever pass.";
            mistakes.push(Mistake::new("rate", message));
        }
        if self.per.duration().is_zero() {
            mistakes.push(Mistake::new("per", "The time must be longer than 0."));
        }
        if self.burst.is_some_and(|burst| !(burst.is_finite() && burst >= 1.0)) {
            let message = "The burst must be at least 1: nothing would ever pass.";
            mistakes.push(Mistake::new("burst", message));
        }
        if self.key.is_some() && self.on_excess == OnExcess::Wait {
            let mistake = Mistake::new("on_excess", "With a `key`, messages above the limit cannot wait.");
            mistakes.push(mistake.help("Say `on_excess: drop`, `on_excess: error` or `on_excess: route`."));
        }
        mistakes
    }
}

impl TransformConfig for Limit {
    fn names_intrinsic(&self) -> bool {
        self.key.as_deref().is_some_and(|key| INTRINSIC.contains(&key))
    }

    fn outputs(&self) -> Vec<String> {
        let excess = (self.on_excess == OnExcess::Route).then(|| EXCESS.to_owned());
        excess.into_iter().collect()
    }

    fn is_sequential(&self) -> bool {
        true
    }

    fn rate(&self) -> Option<f64> {
        (self.on_excess == OnExcess::Wait).then(|| self.per_second())
    }

    // A message that waits passes some time, however often it comes.
    fn remembers(&self) -> bool {
        self.on_excess != OnExcess::Wait
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        before
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error> {
        Ok(Box::new(self.limiter(&context.memory, Instant::now)?))
    }
}

/// The finest time in which messages that wait can be released, in seconds.
const FINEST: f64 = 0.01;
/// The time after which messages that wait are released together, in seconds, if the burst allows.
const STEP: f64 = 0.05;
/// The shortest pause, in seconds. A pause for what rounding has left of a token would be no time at all.
const SHORTEST: f64 = 1e-6;
/// The longest pause, in seconds.
const LONGEST: f64 = 1e9;

impl Limit {
    fn per_second(&self) -> f64 {
        (self.rate / self.per.duration().as_secs_f64()).clamp(f64::MIN_POSITIVE, f64::MAX)
    }

    fn limiter(&self, memory: &Share, now: fn() -> Instant) -> Result<Limiter, Error> {
        let per_second = self.per_second();
        let least = if self.on_excess == OnExcess::Wait { per_second * FINEST } else { 0.0 };
        Ok(Limiter {
            per_second,
            burst: self.burst.unwrap_or(self.rate).max(1.0).max(least),
            on_excess: self.on_excess,
            reason: format!("exceeds the limit of {} messages per {}", self.rate, self.per),
            key: self.key.iter().cloned().collect(),
            secret: crate::new_secret()?,
            max_keys: self.max_keys.max(1),
            single: None,
            has_changed: false,
            buckets: HashMap::new(),
            order: VecDeque::new(),
            kept: Kept::new(memory),
            hashes: Vec::new(),
            waiting: VecDeque::new(),
            passed: 0,
            now,
        })
    }
}

struct Limiter {
    per_second: f64,
    burst: f64,
    on_excess: OnExcess,
    reason: String,
    key: Vec<String>,
    /// That of the hashes of keys. They are in no state.
    secret: Secret,
    max_keys: usize,
    single: Option<Bucket>,
    /// True if a message has passed since the state was last asked for.
    has_changed: bool,
    buckets: HashMap<u128, Bucket>,
    order: VecDeque<u128>,
    kept: Kept,
    hashes: Vec<u128>,
    /// The batches of which something waits.
    waiting: VecDeque<Batch>,
    /// The number of messages of the first of them that have passed.
    passed: usize,
    now: fn() -> Instant,
}

/// The state for a later run: the tokens at a time, in seconds since 1970.
#[derive(Serialize, Deserialize)]
struct Saved {
    tokens: f64,
    time: f64,
}

fn seconds_since_1970() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

#[derive(Clone, Copy)]
struct Bucket {
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    fn fill(&mut self, now: Instant, per_second: f64, burst: f64) {
        let elapsed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + elapsed * per_second).min(burst);
        self.filled = now;
    }

    fn take(&mut self) -> bool {
        let enough = self.tokens >= 1.0;
        if enough {
            self.tokens -= 1.0;
        }
        enough
    }
}

impl Limiter {
    fn passing(&mut self, batch: &Batch, now: Instant) -> BooleanBuffer {
        if self.key.is_empty() {
            let bucket = self.filled(now);
            return BooleanBuffer::collect_bool(batch.rows(), |_| bucket.take());
        }
        let full = Bucket { tokens: self.burst, filled: now };
        self.secret.hash_keys(batch, &self.key, &mut self.hashes);
        let mut hashes = self.hashes.iter();
        let passing = BooleanBuffer::collect_bool(batch.rows(), |_| {
            let Some(&key) = hashes.next() else { return true };
            if !self.buckets.contains_key(&key) {
                if self.order.len() >= self.max_keys
                    && let Some(oldest) = self.order.pop_front()
                {
                    self.buckets.remove(&oldest);
                }
                self.order.push_back(key);
            }
            let bucket = self.buckets.entry(key).or_insert(full);
            bucket.fill(now, self.per_second, self.burst);
            bucket.take()
        });
        let key = size_of::<u128>();
        self.kept
            .set(self.buckets.capacity() * (key + size_of::<Bucket>() + 1) + self.order.capacity() * key);
        passing
    }

    /// Returns the bucket of all messages, with the tokens of now.
    fn filled(&mut self, now: Instant) -> &mut Bucket {
        self.has_changed = true;
        let bucket = self.single.get_or_insert(Bucket { tokens: self.burst, filled: now });
        bucket.fill(now, self.per_second, self.burst);
        bucket
    }

    /// Passes as many of the messages that wait as there are tokens.
    fn release(&mut self, out: &mut Outputs) -> Result<(), Error> {
        let now = (self.now)();
        let mut tokens = self.filled(now).tokens;
        while tokens >= 1.0
            && let Some(batch) = self.waiting.pop_front()
        {
            let end = batch.rows().min(self.passed.saturating_add(tokens as usize));
            tokens -= (end - self.passed) as f64;
            let start = std::mem::replace(&mut self.passed, end);
            if end == batch.rows() {
                self.passed = 0;
            }
            if start == 0 && end == batch.rows() {
                out.send(batch);
                continue;
            }
            let rows: Vec<u32> = (start as u32..end as u32).collect();
            if end == batch.rows() {
                out.send(batch.select(&rows)?);
            } else {
                out.send(batch.share().select(&rows)?);
                self.waiting.push_front(batch);
            }
        }
        self.filled(now).tokens = tokens;
        if let Some(batch) = self.waiting.front() {
            let most = self.burst.min((self.per_second * STEP).max(1.0)).floor();
            let next = most.min((batch.rows() - self.passed) as f64);
            let pause = ((next - tokens) / self.per_second).clamp(SHORTEST, LONGEST);
            out.hold(Duration::from_secs_f64(pause));
        }
        Ok(())
    }
}

impl Transform for Limiter {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        if self.on_excess == OnExcess::Wait {
            self.waiting.push_back(batch);
            return self.release(out);
        }
        let now = (self.now)();
        let passing = self.passing(&batch, now);
        let rest = match self.on_excess {
            OnExcess::Wait | OnExcess::Drop => batch.filter(&BooleanArray::from(passing))?,
            OnExcess::Route => {
                let (rest, excess) = batch.partition(&BooleanArray::from(passing))?;
                if let Some(excess) = excess {
                    out.send_to(0, excess);
                }
                rest
            }
            OnExcess::Error => {
                let reason = &self.reason;
                let excess = passing.iter().enumerate().filter(|(_, passes)| !passes);
                let failed = excess.map(|(row, _)| (row as u32, reason.clone())).collect();
                out.reject(batch, failed)?
            }
        };
        out.send(rest);
        Ok(())
    }

    fn resume(&mut self, out: &mut Outputs) -> Result<(), Error> {
        self.release(out)
    }

    fn state(&mut self) -> Option<Value> {
        if !std::mem::take(&mut self.has_changed) {
            return None;
        }
        let elapsed = (self.now)().saturating_duration_since(self.single?.filled).as_secs_f64();
        let saved = Saved { tokens: self.single?.tokens, time: seconds_since_1970() - elapsed };
        serde_json::to_value(saved).ok()
    }

    /// Its tokens are those of a time, not of messages.
    fn is_exact(&self) -> bool {
        false
    }

    fn restore(&mut self, saved: Value) -> Result<(), Error> {
        let saved: Saved = serde_json::from_value(saved).map_err(crate::unusable_state)?;
        // The clock may have been set back since.
        let elapsed = (seconds_since_1970() - saved.time).max(0.0);
        let tokens = (saved.tokens + elapsed * self.per_second).clamp(0.0, self.burst);
        self.single = self.key.is_empty().then(|| Bucket { tokens, filled: (self.now)() });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::sync::LazyLock;

    use thalweg_engine::{Output, Outputs, testing};

    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    thread_local! { static PASSED: Cell<Duration> = const { Cell::new(Duration::ZERO) }; }

    fn now() -> Instant {
        *START + PASSED.get()
    }

    /// Sends batches at the given seconds. Returns the messages of each that passed, and how many were
    /// rejected.
    fn run(yaml: &str, batches: &[(f64, &[&str])]) -> Vec<(String, usize)> {
        let mut limiter = testing::options::<Limit>(yaml).limiter(&testing::context().memory, now).unwrap();
        let mut out = Outputs::new("test".into());
        let mut given = Vec::new();
        for (second, lines) in batches {
            PASSED.set(Duration::from_secs_f64(*second));
            limiter.apply(testing::batch(*lines), &mut out).unwrap();
            let (mut passed, mut rejected) = (String::new(), 0);
            for (output, batch) in out.take() {
                match output {
                    Output::Main => passed = testing::payloads(&batch).concat(),
                    _ => rejected += batch.rows(),
                }
            }
            given.push((passed, rejected));
        }
        given
    }

    /// Sends batches of these sizes as fast as they pass. Returns the time of each message.
    fn times(yaml: &str, sizes: &[usize], late: Duration) -> Vec<Duration> {
        let mut limiter = testing::options::<Limit>(yaml).limiter(&testing::context().memory, now).unwrap();
        let mut out = Outputs::new("test".into());
        let (mut times, mut number, mut expected) = (Vec::new(), 0, 0);
        PASSED.set(Duration::ZERO);
        for &size in sizes {
            let lines: Vec<String> = (number..number + size).map(|n| n.to_string()).collect();
            number += size;
            limiter.apply(testing::batch(&lines), &mut out).unwrap();
            loop {
                for payload in out.take().iter().flat_map(|(_, batch)| testing::payloads(batch)) {
                    assert_eq!(payload, expected.to_string());
                    expected += 1;
                    times.push(PASSED.get());
                }
                let Some(pause) = out.take_held() else { break };
                PASSED.set(PASSED.get() + pause + late);
                limiter.resume(&mut out).unwrap();
            }
        }
        assert_eq!(times.len(), number);
        times
    }

    /// Returns the most messages within a second.
    fn most_in_a_second(times: &[Duration]) -> usize {
        let within =
            |at: usize| times[at..].partition_point(|time| *time - times[at] < Duration::from_secs(1));
        (0..times.len()).map(within).max().unwrap_or(0)
    }

    #[test]
    fn it_conforms() {
        for yaml in [
            "rate: 1000",
            "{rate: 1, per: 1h, on_excess: drop}",
            "{rate: 1, per: 1h, on_excess: error}",
            "{rate: 1, per: 1h, on_excess: drop, key: payload}",
            "{rate: 1, per: 1h, on_excess: route}",
            "{rate: 1, per: 1h, on_excess: route, key: payload}",
        ] {
            testing::transform_conforms::<Limit>(yaml, &["a", "", "b", "a"]);
        }
    }

    #[test]
    fn a_batch_is_cut_so_that_the_rate_holds_within_any_second() {
        let times = times("{rate: 1000}", &[6165, 3, 900], Duration::from_micros(900));
        assert_eq!(times.iter().filter(|time| time.is_zero()).count(), 1000);
        assert!(most_in_a_second(&times) <= 2000, "{}", most_in_a_second(&times));
        let last = times.last().unwrap().as_secs_f64();
        assert!((6.06..6.12).contains(&last), "{last}");
    }

    #[test]
    fn a_burst_is_all_that_passes_at_once() {
        let times = times("{rate: 10, burst: 2}", &[7], Duration::ZERO);
        let times: Vec<_> = times.iter().map(Duration::as_millis).collect();
        assert_eq!(times, [0, 0, 100, 200, 300, 400, 500]);
    }

    proptest! {
        #[test]
        fn no_second_has_more_messages_than_the_rate_and_the_burst(
            rate in 1..3000_u32,
            burst in 1..500_u32,
            sizes in prop::collection::vec(1..900_usize, 1..8),
            late in 0..4000_u64,
        ) {
            let times = times(&format!("{{rate: {rate}, burst: {burst}}}"), &sizes, Duration::from_micros(late));
            let burst = burst.max(rate.div_ceil(100));
            prop_assert!(most_in_a_second(&times) <= (rate + burst) as usize);
        }
    }

    #[test]
    fn tokens_that_rounding_keeps_just_below_one_are_waited_for() {
        let mut limiter = testing::options::<Limit>("{rate: 1000, burst: 1}")
            .limiter(&testing::context().memory, now)
            .unwrap();
        PASSED.set(Duration::ZERO);
        limiter.single = Some(Bucket { tokens: 1.0 - 1e-12, filled: now() });
        let mut out = Outputs::new("test".into());
        limiter.apply(testing::batch(["a"]), &mut out).unwrap();
        PASSED.set(out.take_held().unwrap());
        limiter.resume(&mut out).unwrap();
        assert_eq!(out.take().len(), 1);
    }

    #[test]
    fn a_restart_does_not_fill_the_bucket() {
        let build = || {
            testing::options::<Limit>("{rate: 1, per: 365d, burst: 3, on_excess: drop}")
                .limiter(&testing::context().memory, Instant::now)
                .unwrap()
        };
        let mut out = Outputs::new("test".into());
        let mut first = build();
        assert_eq!(first.state(), None);
        first.apply(testing::batch(["a", "b"]), &mut out).unwrap();
        let saved = first.state().unwrap();
        assert_eq!(first.state(), None);
        out.take();
        let mut second = build();
        second.restore(saved).unwrap();
        second.apply(testing::batch(["c", "d"]), &mut out).unwrap();
        let passed: Vec<_> = out.take().iter().flat_map(|(_, batch)| testing::payloads(batch)).collect();
        assert_eq!(passed, ["c"]);
    }

    #[test]
    fn buckets_of_keys_are_full_after_a_restart() {
        let yaml = "{rate: 1, per: 365d, burst: 1, key: payload, on_excess: drop}";
        let mut limiter =
            testing::options::<Limit>(yaml).limiter(&testing::context().memory, Instant::now).unwrap();
        let mut out = Outputs::new("test".into());
        limiter.apply(testing::batch(["a", "a"]), &mut out).unwrap();
        assert_eq!((out.take().len(), limiter.state()), (1, None));
    }

    #[test]
    fn the_excess_is_dropped_until_there_are_tokens_again() {
        let given = run(
            "{rate: 60, per: 1m, burst: 2, on_excess: drop}",
            &[(0.0, &["a", "b", "c"]), (0.5, &["d"]), (1.0, &["e", "f"]), (60.0, &["g", "h", "i"])],
        );
        assert_eq!(
            given.iter().map(|(passed, _)| passed.as_str()).collect::<Vec<_>>(),
            ["ab", "", "e", "gh"]
        );
    }

    #[test]
    fn the_excess_can_be_rejected() {
        let given = run("{rate: 2, on_excess: error}", &[(0.0, &["a", "b", "c"])]);
        assert_eq!((given[0].0.as_str(), given[0].1), ("ab", 1));
        let given =
            testing::apply::<Limit>("{rate: 1, per: 1h, on_excess: error}", [testing::batch(["a", "b"])]);
        assert_eq!(given.errors()[0].1, "exceeds the limit of 1 messages per 1h");
    }

    #[test]
    fn the_excess_can_be_led_elsewhere() {
        let yaml = "{rate: 2, per: 1h, on_excess: route}";
        assert_eq!(testing::options::<Limit>(yaml).outputs(), ["excess"]);
        assert!(testing::options::<Limit>("{rate: 2, on_excess: drop}").outputs().is_empty());
        let given = testing::apply::<Limit>(
            yaml,
            [testing::batch(["a", "b", "c"]), testing::batch(["d"]), testing::batch(["e"])],
        );
        assert_eq!(given.payloads(Output::Main), ["a", "b"]);
        assert_eq!(given.payloads(Output::Named(0)), ["c", "d", "e"]);
        let given = testing::apply::<Limit>(
            "{rate: 1, per: 1h, on_excess: route, key: payload}",
            [testing::batch(["a", "b", "a", "b", "c"])],
        );
        assert_eq!(given.payloads(Output::Main), ["a", "b", "c"]);
        assert_eq!(given.payloads(Output::Named(0)), ["a", "b"]);
    }

    #[test]
    fn each_key_has_its_own_bucket_and_the_oldest_is_forgotten() {
        let given = run(
            "{rate: 1, on_excess: drop, key: payload, max_keys: 2}",
            &[(0.0, &["a", "b", "a", "b"]), (0.1, &["a", "c", "a", "c"]), (1.2, &["a", "c"])],
        );
        // `c` takes the place of `a`. `a` then takes the place of `b`, with a full bucket.
        assert_eq!(given.iter().map(|(passed, _)| passed.as_str()).collect::<Vec<_>>(), ["ab", "ca", "ac"]);
    }

    #[test]
    fn limits_under_which_nothing_passes_are_mistakes() {
        let messages = |yaml: &str| -> Vec<&'static str> {
            testing::options::<Limit>(yaml).check().into_iter().map(|mistake| mistake.option).collect()
        };
        assert_eq!(messages("{rate: 0, per: '0', burst: 0.5}"), ["rate", "per", "burst"]);
        assert_eq!(messages("{rate: 1, key: a}"), ["on_excess"]);
        assert_eq!(
            testing::refused::<Limit>("{}"),
            "The option `rate` is missing. The maximum number of messages in each period `per`."
        );
    }
}

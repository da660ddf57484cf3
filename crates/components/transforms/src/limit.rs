//! Limits the rate of messages.
//!
//! The limiter is a token bucket: it fills at the rate up to the burst, and each message takes one token.
//! With `wait`, a batch passes whole and the bucket goes into debt. The engine then pauses the pipeline until
//! the debt is paid. Over time the rate is exact, while messages still travel in batches.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use arrow_array::BooleanArray;
use arrow_buffer::BooleanBuffer;
use hashbrown::HashMap;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::TimeSpan;
use thalweg_engine::{Component, Context, Error, Mistake, Outputs, Transform, TransformConfig};
use thalweg_record::Batch;

use thalweg_codec::keys::hash_keys;

/// Limits the rate of messages.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// The maximum number of messages in each period `per`. A number greater than 0, which may be a fraction.
    rate: f64,
    /// The period of `rate`. The default is `1s`.
    #[serde(default = "second")]
    per: TimeSpan,
    /// The maximum number of messages that pass at once after a quiet time, at least 1. The default is
    /// `rate`.
    burst: Option<f64>,
    /// How messages above the limit are treated. The default is `wait`.
    #[serde(default)]
    on_excess: OnExcess,
    /// A field: each of its values has its own limit. `on_excess` must then be `drop`, `error` or `route`, so
    /// that messages of one value do not block messages of other values. By default one limit applies to all
    /// messages.
    key: Option<String>,
    /// The maximum number of values of `key` to remember. Beyond it, the oldest value is forgotten and its
    /// limit starts again. The default is 100000.
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
    /// They wait, and the components before wait too, back to the source. Messages pass in whole batches,
    /// with pauses between.
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
    fn outputs(&self) -> Vec<String> {
        let excess = (self.on_excess == OnExcess::Route).then(|| EXCESS.to_owned());
        excess.into_iter().collect()
    }

    fn is_sequential(&self) -> bool {
        true
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        Ok(Box::new(self.limiter(Instant::now)))
    }
}

impl Limit {
    fn limiter(&self, now: fn() -> Instant) -> Limiter {
        Limiter {
            per_second: (self.rate / self.per.duration().as_secs_f64()).clamp(f64::MIN_POSITIVE, f64::MAX),
            burst: self.burst.unwrap_or(self.rate).max(1.0),
            on_excess: self.on_excess,
            reason: format!("exceeds the limit of {} messages per {}", self.rate, self.per),
            key: self.key.iter().cloned().collect(),
            max_keys: self.max_keys.max(1),
            single: None,
            buckets: HashMap::new(),
            order: VecDeque::new(),
            hashes: Vec::new(),
            now,
        }
    }
}

struct Limiter {
    per_second: f64,
    burst: f64,
    on_excess: OnExcess,
    reason: String,
    key: Vec<String>,
    max_keys: usize,
    single: Option<Bucket>,
    buckets: HashMap<u128, Bucket>,
    order: VecDeque<u128>,
    hashes: Vec<u128>,
    now: fn() -> Instant,
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
        let full = Bucket { tokens: self.burst, filled: now };
        if self.key.is_empty() {
            let bucket = self.single.get_or_insert(full);
            bucket.fill(now, self.per_second, self.burst);
            return BooleanBuffer::collect_bool(batch.rows(), |_| bucket.take());
        }
        hash_keys(batch, &self.key, 0, &mut self.hashes);
        let mut hashes = self.hashes.iter();
        BooleanBuffer::collect_bool(batch.rows(), |_| {
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
        })
    }
}

impl Transform for Limiter {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let now = (self.now)();
        if self.on_excess == OnExcess::Wait {
            let bucket = self.single.get_or_insert(Bucket { tokens: self.burst, filled: now });
            bucket.fill(now, self.per_second, self.burst);
            bucket.tokens -= batch.rows() as f64;
            if bucket.tokens < 0.0 {
                const LONGEST: f64 = 1e9;
                out.pause(Duration::from_secs_f64((-bucket.tokens / self.per_second).min(LONGEST)));
            }
            out.send(batch);
            return Ok(());
        }
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::LazyLock;

    use thalweg_engine::{Output, Outputs, testing};

    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    thread_local! { static PASSED: Cell<Duration> = const { Cell::new(Duration::ZERO) }; }

    fn now() -> Instant {
        *START + PASSED.get()
    }

    /// Sends batches at the given seconds. Returns the messages of each that passed, and the pauses.
    fn run(yaml: &str, batches: &[(f64, &[&str])]) -> Vec<(String, usize, Duration)> {
        let mut limiter = testing::options::<Limit>(yaml).limiter(now);
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
            given.push((passed, rejected, out.take_pause()));
        }
        given
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
    fn a_batch_that_is_too_many_passes_and_is_waited_for() {
        let given = run("{rate: 10, burst: 2}", &[(0.0, &["a"; 7]), (0.5, &["b"; 1]), (10.0, &["c"; 2])]);
        let pauses: Vec<_> = given.iter().map(|(_, _, pause)| pause.as_millis()).collect();
        assert_eq!(pauses, [500, 100, 0]);
        assert_eq!(given[0].0, "aaaaaaa");
    }

    #[test]
    fn the_excess_is_dropped_until_there_are_tokens_again() {
        let given = run(
            "{rate: 60, per: 1m, burst: 2, on_excess: drop}",
            &[(0.0, &["a", "b", "c"]), (0.5, &["d"]), (1.0, &["e", "f"]), (60.0, &["g", "h", "i"])],
        );
        assert_eq!(
            given.iter().map(|(passed, ..)| passed.as_str()).collect::<Vec<_>>(),
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
        assert_eq!(given.iter().map(|(passed, ..)| passed.as_str()).collect::<Vec<_>>(), ["ab", "ca", "ac"]);
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

//! Counts messages and reports the throughput.
//!
//! A separate task prints the figures, so that they appear on time even while nothing is written. The sink
//! itself only adds to two counters for each batch. Time is measured from the first batch on: the time before
//! it belongs to the sender.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use thalweg_config::TimeSpan;
use thalweg_engine::{Component, Context, Error, Rejects, Sink, SinkConfig, WriteOutcome};
use thalweg_record::Batch;

use crate::clock::Clock;
use crate::report::report;

/// Drops all messages, and reports how many arrive per second.
///
/// At each interval it writes the messages and bytes per second since the last line to the standard error
/// output. At the end it writes those of the whole run. With `--json` each line is an object with `"event":
/// "measure"`; with `--quiet` nothing is written. Dropped messages count as delivered.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Measure {
    /// The time between two reports. With `0s` there is only the report at the end. The default is 3 s.
    every: TimeSpan,
}

impl Default for Measure {
    fn default() -> Self {
        Self { every: TimeSpan::seconds(3) }
    }
}

impl Component for Measure {
    const NAME: &'static str = "measure";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { message: "%256s", count: 1000000 } }
pipelines:
  main: { from: messages, to: rate }
sinks:
  rate: { measure: { every: 1s } }
"#;
}

impl SinkConfig for Measure {
    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        let counters = Arc::new(Counters { name: context.name.clone(), ..Counters::default() });
        Ok(Box::new(Measuring { every: self.every.duration(), counters, clock: None }))
    }
}

#[derive(Default)]
struct Counters {
    name: String,
    messages: AtomicU64,
    bytes: AtomicU64,
    /// When the first batch arrived.
    first: OnceLock<Instant>,
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy, Default)]
struct Snapshot {
    messages: u64,
    bytes: u64,
    after: Duration,
}

impl Counters {
    fn add(&self, messages: usize, bytes: usize) {
        self.first.get_or_init(Instant::now);
        self.messages.fetch_add(messages as u64, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    fn look(&self) -> Snapshot {
        Snapshot {
            messages: self.messages.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            after: self.first.get().map(Instant::elapsed).unwrap_or_default(),
        }
    }

    /// Prints the throughput between two moments.
    fn say(&self, from: Snapshot, to: Snapshot, is_end: bool) {
        let (text, object) = figures(&self.name, from, to, is_end);
        report(&text, &object);
    }
}

fn figures(name: &str, from: Snapshot, to: Snapshot, is_end: bool) -> (String, Value) {
    let seconds = to.after.saturating_sub(from.after).as_secs_f64();
    let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    let messages = rate(to.messages.saturating_sub(from.messages));
    let bytes = rate(to.bytes.saturating_sub(from.bytes));
    let scale = if is_end { "in all" } else { "so far" };
    let text = format!(
        "`{name}`: {messages:.0} messages/s, {:.1} MiB/s; {scale} {} messages, {:.1} MiB in {:.3} s\n",
        bytes / f64::from(1 << 20),
        to.messages,
        to.bytes as f64 / f64::from(1 << 20),
        to.after.as_secs_f64(),
    );
    let object = json!({
        "event": "measure",
        "name": name,
        "messages_per_second": messages,
        "bytes_per_second": bytes,
        "seconds": seconds,
        "all_messages": to.messages,
        "all_bytes": to.bytes,
        "all_seconds": to.after.as_secs_f64(),
        "is_end": is_end,
    });
    (text, object)
}

struct Measuring {
    every: Duration,
    counters: Arc<Counters>,
    clock: Option<Clock>,
}

#[async_trait]
impl Sink for Measuring {
    async fn open(&mut self, _: Option<Value>) -> Result<(), Error> {
        if self.every.is_zero() || self.clock.is_some() {
            return Ok(());
        }
        let mut last = Snapshot::default();
        self.clock = Some(Clock::every(self.every, &self.counters, move |counters| {
            let now = counters.look();
            if counters.first.get().is_some() {
                counters.say(last, now, false);
            }
            last = now;
        }));
        Ok(())
    }

    async fn write(&mut self, batch: &Batch, _: &mut Rejects) -> Result<WriteOutcome, Error> {
        self.counters.add(batch.rows(), batch.payload_bytes());
        Ok(WriteOutcome::Durable)
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), Error> {
        self.clock = None;
        self.counters.say(Snapshot::default(), self.counters.look(), true);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::testing::batch;
    use thalweg_engine::testing::{context, options, sink_conforms, write_all};

    #[tokio::test]
    async fn it_conforms() {
        sink_conforms::<Measure>("{}").await;
        sink_conforms::<Measure>("every: 0s").await;
    }

    #[tokio::test]
    async fn nothing_is_rejected_and_all_is_counted() {
        assert!(write_all::<Measure>("{}", [batch(["", "\0", "text"])]).await.unwrap().is_empty());
        let mut sink = options::<Measure>("{}").build(&context()).unwrap();
        sink.open(None).await.unwrap();
        let counters = Counters::default();
        counters.add(3, 5);
        counters.add(1, 2);
        let snapshot = counters.look();
        assert_eq!((snapshot.messages, snapshot.bytes), (4, 7));
    }

    #[test]
    fn rates_are_those_since_the_last_line() {
        let at = |messages, bytes, seconds| Snapshot { messages, bytes, after: Duration::from_secs(seconds) };
        let (text, object) = figures("out", at(100, 1 << 20, 1), at(500, 5 << 20, 3), false);
        assert_eq!(text, "`out`: 200 messages/s, 2.0 MiB/s; so far 500 messages, 5.0 MiB in 3.000 s\n");
        assert_eq!(object["messages_per_second"], 200.0);
        // Without messages there is no time to divide by.
        let (text, _) = figures("out", Snapshot::default(), Snapshot::default(), true);
        assert_eq!(text, "`out`: 0 messages/s, 0.0 MiB/s; in all 0 messages, 0.0 MiB in 0.000 s\n");
    }
}

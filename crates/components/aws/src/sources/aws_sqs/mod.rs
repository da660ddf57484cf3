//! `aws_sqs`: reads a queue of SQS.
//!
//! [`reader`] receives messages and sends them on; [`keeper`] deletes those that are settled, and keeps the
//! others from being delivered to another reader meanwhile. [`deliveries`] is what the two know together. The
//! keeper is a task beside the reader, because the reader waits for room while messages are on their way.
//! [`pauses`] is how long the reader waits before it asks again a queue that brings nothing new.

mod deliveries;
mod keeper;
mod messages;
mod pauses;
mod reader;
#[cfg(test)]
mod tests;

pub(crate) use messages::Body;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_broker::keeping::unless_stopped;
use thalweg_config::{ByteSize, List, TimeSpan};
use thalweg_engine::{
    Component, Context, Endless, Error, KnownFields, Mistake, Source, SourceConfig, SourceOutput,
};
use tokio::sync::mpsc;

use crate::api::{Api, SQS};
use crate::options::AwsOptions;
use crate::queue::{Queue, is_queue};
use keeper::Keeper;
use messages::{Field, Messages};
use reader::Reader;

/// How long the source waits before it looks again whether it is to end, or has room.
const POLL: Duration = Duration::from_millis(100);
/// How many bytes of an answer are read. Ten of the largest messages have 10 MiB.
const MOST_ANSWER: usize = 16 << 20;
/// The least size of what is received at once.
const LEAST_FETCH: usize = 16 << 10;
/// A message may be on its way for each of these bytes of the memory, between these limits.
const BYTES_OF_PENDING: usize = 4 << 10;
const PENDING: [usize; 2] = [1000, 20_000];

/// Reads messages of a queue of Amazon SQS.
///
/// A message is deleted from the queue when it is delivered, or rejected and kept with its reason. While it
/// is on its way, its visibility timeout is extended, so no other reader gets it. Run the same configuration
/// several times, and SQS divides the messages among the runs. The messages of a run that is killed come
/// again after `visibility_timeout`. So none is lost. A message that fails comes again after `retry_delay`,
/// and goes to the dead letter queue after as many deliveries as the queue has been set to.
///
/// With `--state`, a message that the checkpoint covers and that is delivered again is not sent on a second
/// time. The order of a queue in order (FIFO) is kept within each message group, also behind a message that
/// fails. Other queues have no order, and may deliver a message twice.
///
/// `meta.path` is the queue as it is given here.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AwsSqsSource {
    #[serde(flatten)]
    aws: AwsOptions,
    /// The URL of the queue, or its name.
    #[schemars(example = &"https://sqs.eu-west-1.amazonaws.com/123456789012/orders")]
    queue: String,
    /// How long SQS waits for a sign of life before it delivers a message to another reader. It hears of a
    /// message three times as often. From 1 s to 12 h; the default is 2 minutes.
    #[serde(default = "two_minutes")]
    visibility_timeout: TimeSpan,
    /// How long SQS waits before it delivers a message again that could not be delivered. The default is 1 s.
    #[serde(default = "thalweg_net::net::defaults::one_second")]
    retry_delay: TimeSpan,
    /// The number of requests that wait for messages at the same time. Each gets up to 10 messages. As many
    /// may delete some. The default is 4. There is at most one for each 16 MiB of `memory`.
    #[serde(default = "four")]
    #[schemars(range(min = 1, max = 64))]
    concurrency: usize,
    /// Parts of the message that become fields, under the same names: `id`, `time` (when it was sent),
    /// `deliveries` (how many times it was delivered), `message_group`, `deduplication_id`, `sequence` (its
    /// number in a queue in order), and attributes as `attribute.Name`.
    #[serde(default)]
    fields: List<String>,
    /// The largest message, in bytes. Of a larger one, the first 4 KiB leave by the `errors` output.
    #[serde(default = "thalweg_net::net::defaults::limit")]
    max_message_bytes: ByteSize,
    /// End the source after this time without messages, when the queue has no messages, also none that are on
    /// their way to other readers. By default it reads until the run is stopped.
    #[serde(default)]
    end_after_idle: Option<TimeSpan>,
}

fn two_minutes() -> TimeSpan {
    TimeSpan::seconds(120)
}

fn four() -> usize {
    4
}

/// Returns the number of requests at the same time whose answers fit into this memory, however long they are.
fn concurrency(wanted: usize, limit: usize) -> usize {
    wanted.min(limit / MOST_ANSWER).max(1)
}

impl AwsSqsSource {
    /// How long a request waits for messages, in seconds.
    fn wait(&self) -> u64 {
        // None if the answer would come too late then.
        let longest = (self.aws.timeout().duration() / 2).as_secs().min(20);
        self.end_after_idle.map_or(longest, |idle| longest.min(idle.duration().as_secs().max(1)))
    }
}

impl Component for AwsSqsSource {
    const NAME: &'static str = "aws_sqs";
    const EXAMPLE: &'static str = r#"
sources:
  orders:
    aws_sqs:
      region: us-east-1
      url: "http://127.0.0.1:4566"
      auth: { access_key_id: test, secret_access_key: test }
      queue: orders
      fields: [id, time]
      end_after_idle: 1s
pipelines:
  main: { from: orders, to: all }
sinks:
  all:
    file:
      path: out/orders.jsonl
      encode: { format: json, fields: [id, time, payload] }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.aws.check();
        if !is_queue(&self.queue) {
            // The text is not shown: it may be a URL with a password.
            let mistake = Mistake::new("queue", "This is neither a URL of a queue nor a name.");
            mistakes.push(mistake.help("For example `orders`."));
        }
        if !(1..=12 * 60 * 60).contains(&self.visibility_timeout.duration().as_secs()) {
            let mistake = Mistake::new("visibility_timeout", "No queue waits for this time.");
            mistakes.push(mistake.help("It waits from `1s` to `12h`."));
        }
        if let Some(wrong) = self.fields.iter().find(|name| Field::new(name).is_none()) {
            let mistake = Mistake::new("fields", format!("A message has no `{wrong}`."));
            mistakes.push(mistake.help(
                "There are `id`, `time`, `deliveries`, `message_group`, `deduplication_id`, `sequence`, and \
                 attributes such as `attribute.Host`.",
            ));
        }
        mistakes
    }
}

impl SourceConfig for AwsSqsSource {
    fn endless(&self) -> Option<Endless> {
        Endless::unless("end_after_idle", self.end_after_idle.is_some())
    }

    fn fields(&self) -> KnownFields {
        KnownFields::of(self.fields.iter().filter_map(|name| Some(Field::new(name)?.described(name))))
    }

    fn blocks(&self) -> bool {
        false
    }

    // Deleted messages do not come again.
    fn starts_over(&self) -> bool {
        false
    }

    // It deletes only what a saved checkpoint covers, and a checkpoint has what is not deleted.
    fn rereads(&self) -> bool {
        true
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        let access = Arc::new(self.aws.access(&SQS, &self.queue)?);
        let api = Api::new(&access, &self.aws.requests(access.url.clone()), MOST_ANSWER)?;
        let limit = context.memory.budget().limit();
        let lag = Arc::new(AtomicU64::new(0));
        let shown = lag.clone();
        let help = "Messages that its queue has not delivered yet, about.";
        context.details.show_gauge("lag", help, move || shown.load(Relaxed));
        let api = Arc::new(api);
        let config = Self { concurrency: concurrency(self.concurrency, limit), ..self.clone() };
        Ok(Box::new(Sqs {
            queue: Queue::new(&self.queue),
            messages: Messages::new(&self.fields, self.max_message_bytes, &self.queue),
            fetch_bytes: (limit / 32).clamp(LEAST_FETCH, 2 << 20),
            most: (limit / BYTES_OF_PENDING).clamp(PENDING[0], PENDING[1]),
            keeper: Keeper::new(&config, api.clone(), lag),
            config,
            api,
            next: None,
        }))
    }
}

/// Reads a queue.
struct Sqs {
    config: AwsSqsSource,
    api: Arc<Api>,
    queue: Queue,
    messages: Messages,
    /// The size of the messages that a request asks for.
    fetch_bytes: usize,
    /// The number of messages that may be on their way.
    most: usize,
    keeper: Keeper,
    /// The number of the next partition. None before the first run.
    next: Option<u64>,
}

#[async_trait]
impl Source for Sqs {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let Some(url) = unless_stopped(out, self.queue.url(&self.api.request)).await else { return Ok(()) };
        let url = url.map_err(|error| error.error("the queue cannot be used"))?;
        if self.next.is_none() {
            self.keeper.recall(&prefix(&self.config.queue), out);
        }
        // At random: partitions of other runs may be left.
        let next = self.next.get_or_insert_with(|| fastrand::u64(..));
        let (tell, news) = mpsc::unbounded_channel();
        let mut positions = out.clone();
        positions.end();
        let reader = Reader::new(
            &self.config,
            self.api.clone(),
            url,
            &self.messages,
            self.fetch_bytes,
            self.most,
            self.keeper.deliveries.clone(),
            tell,
            next,
        );
        let keeping = self.keeper.keep(url, &positions, news);
        tokio::join!(reader.run(out), keeping).0?;
        // Messages may not be deletable when all have been read.
        self.keeper.deliveries.lock().failure()
    }
}

/// Returns the beginning of the names of partitions. Each batch is a partition of its own, because messages
/// are deleted in any order.
fn prefix(queue: &str) -> String {
    format!("{queue}/")
}

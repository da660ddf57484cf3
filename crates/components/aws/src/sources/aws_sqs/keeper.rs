//! The fate of messages: those that are settled are deleted, those that failed come again, and the others are
//! kept from other readers for as long as they are on their way.
//!
//! A deletion may be repeated, so one without an answer is. A handle that the queue no longer knows deletes
//! nothing: the message comes again, and is then known to be settled.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use thalweg_broker::keeping::{SETTLE_WAIT, settle_wait, unless_stopped};
use thalweg_engine::{Error, Settled, SourceOutput};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::MissedTickBehavior;

use super::AwsSqsSource;
use super::deliveries::Deliveries;
use crate::api::{Api, CallError};
use crate::queue::is_fifo;
use crate::refusal::Kind;

/// How often the keeper looks after what is due, and after the end of the source.
const LOOK: Duration = Duration::from_millis(100);
/// How often it asks how many messages the queue has.
const WATCH_EVERY: Duration = Duration::from_secs(30);
/// The number of messages in a request.
const AT_ONCE: usize = 10;
/// How long the keeper waits after a failed request.
const PAUSE: Duration = Duration::from_secs(1);

/// A part of what one request received, which was sent on.
pub(super) struct Part {
    pub(super) ids: Vec<Arc<str>>,
    /// The partition of the checkpoint that has the ids, until they are deleted.
    pub(super) partition: Arc<str>,
    pub(super) fate: Fate,
}

/// The fate of messages that were sent on.
pub(super) enum Fate {
    Open(Settled),
    /// True if they are safe.
    Known(bool),
}

impl Fate {
    async fn known(self) -> bool {
        match self {
            Self::Open(settled) => settled.await.outcome.is_safe(),
            Self::Known(is_safe) => is_safe,
        }
    }
}

/// News of the task that reads.
pub(super) enum News {
    /// Messages of one request were sent on.
    Sent(Vec<Part>),
    /// A message came again that is settled.
    Settled(Arc<str>),
    /// These were not sent on.
    Unsent(Vec<Arc<str>>),
    /// The task has failed: it begins again later.
    Failed,
}

/// A message that is settled, and not deleted.
struct Done {
    id: Arc<str>,
    partition: Option<Arc<str>>,
}

/// Messages that were sent on together, and whether they are safe.
type Ended = Vec<(Vec<Arc<str>>, Arc<str>, bool)>;

/// The fate of the messages of a source, over all runs of its task.
pub(super) struct Keeper {
    pub(super) deliveries: Arc<Mutex<Deliveries>>,
    api: Arc<Api>,
    concurrency: usize,
    is_fifo: bool,
    /// In seconds.
    visibility_timeout: u64,
    /// In seconds.
    retry_delay: u64,
    /// The messages that the queue has not delivered.
    lag: Arc<AtomicU64>,
    settling: JoinSet<Ended>,
    settled: Vec<Done>,
    /// The handles of messages that others are to get, and after how many seconds.
    returned: Vec<(String, u64)>,
    /// The number of messages of a partition that are not deleted.
    left: HashMap<Arc<str>, usize>,
    /// The requests that delete messages, and those that set when others are delivered again.
    deletions: Requests,
    changes: Requests,
    watch: Instant,
}

/// The answer to a request for several messages, as far as it is read.
#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "Failed", default)]
    failed: Vec<Failed>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failed {
    id: String,
    #[serde(default)]
    sender_fault: bool,
    #[serde(default)]
    code: String,
}

impl Keeper {
    pub(super) fn new(config: &AwsSqsSource, api: Arc<Api>, lag: Arc<AtomicU64>) -> Self {
        let (now, visibility_timeout) = (Instant::now(), config.visibility_timeout.duration());
        Self {
            deliveries: Arc::new(Mutex::new(Deliveries::new(visibility_timeout / 3))),
            api,
            concurrency: config.concurrency,
            is_fifo: is_fifo(&config.queue),
            visibility_timeout: visibility_timeout.as_secs(),
            retry_delay: config.retry_delay.duration().as_millis().div_ceil(1000).min(12 * 60 * 60) as u64,
            lag,
            settling: JoinSet::new(),
            settled: Vec::new(),
            returned: Vec::new(),
            left: HashMap::new(),
            deletions: Requests { before: now, is_failing: false },
            changes: Requests { before: now, is_failing: false },
            watch: now,
        }
    }

    /// Notes what the checkpoint of an earlier run covers. It is deleted, and not sent on again.
    pub(super) fn recall(&mut self, prefix: &str, out: &SourceOutput) {
        for partition in out.partitions().into_iter().filter(|partition| partition.starts_with(prefix)) {
            let saved = out.saved(&partition);
            let pairs = saved.as_ref().and_then(Value::as_array).into_iter().flatten();
            let text =
                |pair: &Value, place: usize| pair.get(place).and_then(Value::as_str).map(str::to_owned);
            let mut count = 0;
            for (id, handle) in pairs.filter_map(|pair| Some((text(pair, 0)?, text(pair, 1)?))) {
                let id: Arc<str> = id.into();
                self.deliveries.lock().arrive(&id, &handle);
                self.settle(id, Some(partition.clone()));
                count += 1;
            }
            match count {
                0 => out.forget(&partition),
                count => {
                    self.left.insert(partition, count);
                }
            }
        }
    }

    /// Looks after messages until the news have ended and all is deleted.
    pub(super) async fn keep(&mut self, url: &str, out: &SourceOutput, news: mpsc::UnboundedReceiver<News>) {
        if let Err(error) = self.attend(url, out, news).await {
            self.deliveries.lock().failed = Some(error);
        }
        self.lag.store(0, Relaxed);
    }

    async fn attend(
        &mut self,
        url: &str,
        out: &SourceOutput,
        mut news: mpsc::UnboundedReceiver<News>,
    ) -> Result<(), Error> {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut has_news, mut moved) = (true, Instant::now());
        loop {
            tokio::select! {
                new = news.recv(), if has_news => match new {
                    Some(News::Sent(parts)) => self.wait_for(parts),
                    Some(News::Settled(id)) => self.settle(id, None),
                    Some(News::Unsent(ids)) => self.give_back(&ids, 0),
                    Some(News::Failed) => return Ok(()),
                    None => {
                        (has_news, moved) = (false, Instant::now());
                        if out.is_dry() {
                            let all = self.deliveries.lock().all();
                            self.give_back(&all, 0);
                        }
                    }
                },
                Some(ended) = self.settling.join_next() => {
                    moved = Instant::now();
                    self.note(ended, out);
                    while let Some(ended) = self.settling.try_join_next() {
                        self.note(ended, out);
                    }
                    match unless_stopped(out, self.delete(url, out)).await {
                        Some(deleted) => deleted?,
                        None => return Ok(()),
                    }
                }
                _ = look.tick() => {
                    match unless_stopped(out, self.do_due(url, out)).await {
                        Some(done) => done?,
                        None => return Ok(()),
                    }
                    if !has_news && self.is_over(out, moved) {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Waits for what becomes of messages that were sent on.
    fn wait_for(&mut self, parts: Vec<Part>) {
        let is_fifo = self.is_fifo;
        self.settling.spawn(async move {
            let mut ended = Vec::with_capacity(parts.len());
            for Part { ids, partition, fate } in parts {
                ended.push((ids, partition, fate.known().await));
            }
            // Of messages in order, those behind a failed one have to come again after it.
            if is_fifo && let Some(first) = ended.iter().position(|(_, _, is_safe)| !is_safe) {
                ended.iter_mut().skip(first).for_each(|(_, _, is_safe)| *is_safe = false);
            }
            ended
        });
    }

    /// Notes what became of messages.
    fn note(&mut self, ended: Result<Ended, JoinError>, out: &SourceOutput) {
        for (ids, partition, is_safe) in ended.into_iter().flatten() {
            if is_safe {
                self.left.insert(partition.clone(), ids.len());
                ids.into_iter().for_each(|id| self.settle(id, Some(partition.clone())));
            } else if !out.is_dry() {
                out.forget(&partition);
                self.give_back(&ids, self.retry_delay);
            }
        }
    }

    /// Notes that a message is to be deleted.
    fn settle(&mut self, id: Arc<str>, partition: Option<Arc<str>>) {
        self.deliveries.lock().deleting += 1;
        self.settled.push(Done { id, partition });
    }

    /// Lets the queue deliver messages again after this number of seconds.
    fn give_back(&mut self, ids: &[Arc<str>], seconds: u64) {
        let mut deliveries = self.deliveries.lock();
        let handles = ids.iter().filter_map(|id| deliveries.give_back(id));
        self.returned.extend(handles.map(|handle| (handle, seconds)));
    }

    /// True if the source need not wait any longer.
    fn is_over(&self, out: &SourceOutput, moved: Instant) -> bool {
        // Messages are deleted after a checkpoint.
        out.save_soon();
        let wait = settle_wait(out);
        // A later run gets again what the service does not delete now.
        let deleted = if self.settling.is_empty() { SETTLE_WAIT[0] } else { wait };
        let is_idle = self.returned.is_empty() && (self.settled.is_empty() || out.is_dry());
        (self.settling.is_empty() && is_idle) || moved.elapsed() >= wait.min(deleted)
    }

    /// Does what is due by the clock.
    async fn do_due(&mut self, url: &str, out: &SourceOutput) -> Result<(), Error> {
        self.change_due(url).await?;
        self.delete(url, out).await?;
        if self.watch <= Instant::now() {
            self.watch = Instant::now() + WATCH_EVERY;
            if let Ok(Counts { visible, .. }) = counts(&self.api, url).await {
                self.lag.store(visible, Relaxed);
            }
        }
        Ok(())
    }

    /// Sets when the messages are delivered again that are due.
    async fn change_due(&mut self, url: &str) -> Result<(), Error> {
        if !self.changes.are_due() {
            return Ok(());
        }
        let due = self.deliveries.lock().due();
        let extended = due.into_iter().map(|handle| (handle, self.visibility_timeout)).collect();
        let changes = [std::mem::take(&mut self.returned), extended];
        self.change(url, changes.concat()).await
    }

    /// Deletes what is settled, as far as the service does it. That may take long, or fail for long:
    /// meanwhile, the messages are still kept from other readers.
    async fn delete(&mut self, url: &str, out: &SourceOutput) -> Result<(), Error> {
        // A dry run leaves to the next one what an earlier one did not delete.
        while !self.settled.is_empty() && !out.is_dry() && self.deletions.are_due() {
            self.change_due(url).await?;
            let mut calls = JoinSet::new();
            for _ in 0..self.concurrency {
                let rest = self.settled.split_off(self.settled.len().min(AT_ONCE));
                let taken = std::mem::replace(&mut self.settled, rest);
                if taken.is_empty() {
                    break;
                }
                let entries = self.entries(&taken);
                if entries.is_empty() {
                    // All were deleted under other handles.
                    self.deleted(taken, Ok(Answer { failed: Vec::new() }), out)?;
                    continue;
                }
                let (api, url) = (self.api.clone(), url.to_owned());
                calls.spawn(async move {
                    let body = json!({ "QueueUrl": url, "Entries": entries });
                    (taken, api.call::<Answer>("DeleteMessageBatch", &body).await)
                });
            }
            let mut ended = Ok(());
            while let Some(call) = calls.join_next().await {
                let Ok((taken, answer)) = call else { continue };
                let noted = self.deleted(taken, answer, out);
                ended = ended.and(noted);
            }
            ended?;
        }
        Ok(())
    }

    /// Returns the entries of a request, whose ids are the places of the messages.
    fn entries(&self, taken: &[Done]) -> Vec<Value> {
        let deliveries = self.deliveries.lock();
        let entry = |(place, done): (usize, &Done)| {
            let handle = deliveries.handle(&done.id)?;
            Some(json!({ "Id": place.to_string(), "ReceiptHandle": handle }))
        };
        taken.iter().enumerate().filter_map(entry).collect()
    }

    /// Notes the answer to a request that deletes messages.
    ///
    /// # Errors
    /// If the user may not delete messages.
    fn deleted(
        &mut self,
        taken: Vec<Done>,
        answer: Result<Answer, CallError>,
        out: &SourceOutput,
    ) -> Result<(), Error> {
        let failed = match answer {
            Ok(Answer { failed }) => failed,
            Err(error) => {
                self.settled.extend(taken);
                return self.deletions.fail(error, "messages cannot be deleted");
            }
        };
        self.deletions.is_failing = false;
        // An entry that the sender is to blame for has a handle that is of no use.
        let again = failed.iter().filter(|failed| {
            let is_useless = failed.sender_fault && Kind::of(&failed.code) != Kind::Overload;
            !is_useless
        });
        let again: Vec<usize> = again.filter_map(|failed| failed.id.parse().ok()).collect();
        for (place, done) in taken.into_iter().enumerate() {
            if again.contains(&place) {
                self.settled.push(done);
                self.deletions.pause();
            } else {
                self.deliveries.lock().delete(&done.id);
                self.forget(done.partition, out);
            }
        }
        Ok(())
    }

    /// Notes that a message of a partition is deleted. A later run need not know a partition without any.
    fn forget(&mut self, partition: Option<Arc<str>>, out: &SourceOutput) {
        let Some(partition) = partition else { return };
        if let Some(left) = self.left.get_mut(&partition) {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.left.remove(&partition);
                out.forget(&partition);
            }
        }
    }

    /// Sets when messages are delivered again. A message that the queue has delivered to another reader, or
    /// that is deleted, is left as it is.
    async fn change(&mut self, url: &str, changes: Vec<(String, u64)>) -> Result<(), Error> {
        let mut rest = changes.chunks(AT_ONCE).peekable();
        while rest.peek().is_some() {
            let mut calls = JoinSet::new();
            for chunk in rest.by_ref().take(self.concurrency) {
                let mut entries = Vec::with_capacity(chunk.len());
                for (place, (handle, seconds)) in chunk.iter().enumerate() {
                    let id = place.to_string();
                    let entry = json!({ "Id": id, "ReceiptHandle": handle, "VisibilityTimeout": seconds });
                    entries.push(entry);
                }
                let (api, body) = (self.api.clone(), json!({ "QueueUrl": url, "Entries": entries }));
                calls.spawn(async move { api.call::<Answer>("ChangeMessageVisibilityBatch", &body).await });
            }
            while let Some(call) = calls.join_next().await {
                match call {
                    Ok(Err(error)) => {
                        self.changes.fail(error, "messages cannot be kept from other readers")?;
                    }
                    Ok(Ok(_)) => self.changes.is_failing = false,
                    Err(_) => {}
                }
            }
        }
        Ok(())
    }
}

/// Requests of one kind, which pause after one that failed.
struct Requests {
    /// None is made before.
    before: Instant,
    /// True if the last one failed, of which there was a warning.
    is_failing: bool,
}

impl Requests {
    fn are_due(&self) -> bool {
        Instant::now() >= self.before
    }

    fn pause(&mut self) {
        self.before = Instant::now() + PAUSE;
    }

    /// Notes that a request failed.
    ///
    /// # Errors
    /// The error, if no further request succeeds.
    fn fail(&mut self, error: CallError, message: &str) -> Result<(), Error> {
        // A message may be to blame, which comes again then.
        let is_of_messages = matches!(&error, CallError::Refused(refusal) if refusal.kind == Kind::Messages);
        let error = error.error(message);
        if !error.kind().is_temporary() && !is_of_messages {
            return Err(error);
        }
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!("{}; this is tried again", error.full());
        }
        self.pause();
        Ok(())
    }
}

/// The numbers of messages of a queue, which are not exact.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    /// Those that a reader can get.
    pub(super) visible: u64,
    /// Those that are on their way to a reader.
    pub(super) delivered: u64,
    /// Those that a reader gets later.
    pub(super) delayed: u64,
}

/// Asks how many messages a queue has.
///
/// # Errors
/// If the service refuses that, or does not answer.
pub(super) async fn counts(api: &Api, url: &str) -> Result<Counts, CallError> {
    #[derive(Deserialize)]
    struct Attributes {
        #[serde(rename = "Attributes", default)]
        attributes: HashMap<String, Value>,
    }
    let names = [
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesNotVisible",
        "ApproximateNumberOfMessagesDelayed",
    ];
    let body = json!({ "QueueUrl": url, "AttributeNames": names });
    let Attributes { attributes } = api.call("GetQueueAttributes", &body).await?;
    let number = |name: &str| match attributes.get(name) {
        Some(Value::String(text)) => text.parse().unwrap_or(0),
        Some(value) => value.as_u64().unwrap_or(0),
        None => 0,
    };
    Ok(Counts { visible: number(names[0]), delivered: number(names[1]), delayed: number(names[2]) })
}

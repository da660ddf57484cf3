//! The task that receives messages and sends them on.
//!
//! Several requests wait for messages at the same time, each in a task of its own, and their answers are sent
//! on one after the other. The messages of an answer become one batch, or few: their order is that of the
//! queue.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use thalweg_engine::{Checkpoint, Error, SourceOutput};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::super::stopping::unless_stopped;
use super::deliveries::{Arrival, Deliveries};
use super::keeper::{Counts, News, Part, counts};
use super::messages::{Body, Incoming, Messages};
use super::{AwsSqsSource, POLL, prefix};
use crate::api::{Api, CallError, read};
use crate::refusal::Kind;

/// The most messages of a request.
const AT_ONCE: usize = 10;
/// The size that messages are thought to have before one was received.
const FIRST: usize = 256 << 10;
/// How long as many messages as may be are on their way before a source that is to end does so, and how many
/// times `end_after_idle`, whichever is longer.
const UNSETTLED: Duration = Duration::from_secs(2);
const STALLED: u32 = 5;

/// The answer to a request for messages.
enum Answer {
    Messages(Vec<Incoming>),
    /// It has more bytes than are read.
    TooLong,
}

/// Passes on the messages of a queue.
pub(super) struct Reader<'a> {
    config: &'a AwsSqsSource,
    api: Arc<Api>,
    url: &'a str,
    messages: &'a Messages,
    fetch_bytes: usize,
    most: usize,
    deliveries: Arc<Mutex<Deliveries>>,
    tell: mpsc::UnboundedSender<News>,
    /// The number of the next partition of the checkpoint.
    next: &'a mut u64,
    receiving: JoinSet<Result<Answer, CallError>>,
    /// About how many bytes a message has.
    average: usize,
    /// The number of messages that must be received each by itself, because an answer was too long.
    alone: usize,
}

impl<'a> Reader<'a> {
    #[expect(clippy::too_many_arguments, reason = "they are its fields")]
    pub(super) fn new(
        config: &'a AwsSqsSource,
        api: Arc<Api>,
        url: &'a str,
        messages: &'a Messages,
        fetch_bytes: usize,
        most: usize,
        deliveries: Arc<Mutex<Deliveries>>,
        tell: mpsc::UnboundedSender<News>,
        next: &'a mut u64,
    ) -> Self {
        let receiving = JoinSet::new();
        let (average, alone) = (FIRST, 0);
        Self {
            config,
            api,
            url,
            messages,
            fetch_bytes,
            most,
            deliveries,
            tell,
            next,
            receiving,
            average,
            alone,
        }
    }

    pub(super) async fn run(mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let read = self.read(out).await;
        match &read {
            // Some messages are settled only when the input has ended.
            Ok(()) => out.end(),
            Err(_) => self.tell(News::Failed),
        }
        read
    }

    async fn read(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let mut active = Instant::now();
        while !out.is_stopping() {
            let is_full = {
                let mut deliveries = self.deliveries.lock();
                deliveries.failure()?;
                deliveries.count() >= self.most
            };
            if is_full {
                if self.has_stalled(active) {
                    break;
                }
                // Some are settled after a checkpoint.
                out.save_soon();
                tokio::time::sleep(POLL).await;
                continue;
            }
            match self.next(out).await? {
                None => break,
                Some(messages) if messages.is_empty() => {
                    if self.is_done(active, out).await? {
                        break;
                    }
                }
                Some(messages) => {
                    self.pass_on(&messages, out).await?;
                    active = Instant::now();
                }
            }
        }
        Ok(())
    }

    /// True if the source is to end although the queue may have more: as many messages as may be are on their
    /// way, and some are settled only when the input has ended.
    fn has_stalled(&self, active: Instant) -> bool {
        let idle = self.config.end_after_idle.map(|idle| idle.duration().saturating_mul(STALLED));
        idle.is_some_and(|idle| active.elapsed() >= idle.max(UNSETTLED))
    }

    /// Returns the messages of the next answer that are not on their way already. None if the run is to stop.
    async fn next(&mut self, out: &SourceOutput) -> Result<Option<Vec<Incoming>>, Error> {
        while self.receiving.len() < self.config.concurrency {
            let body = self.request();
            let api = self.api.clone();
            self.receiving.spawn(async move { receive(&api, body).await });
        }
        let answer = tokio::select! {
            biased;
            () = out.stopping() => return Ok(None),
            answer = self.receiving.join_next() => answer,
        };
        let answer = match answer {
            Some(Ok(answer)) => answer.map_err(|error| error.error("messages cannot be received"))?,
            Some(Err(error)) => return Err(Error::permanent("a request panicked").caused_by(error)),
            None => return Ok(Some(Vec::new())),
        };
        Ok(Some(self.arrived(answer)))
    }

    /// Returns the body of a request for messages.
    fn request(&self) -> Value {
        let (system, attributes) = self.messages.wanted();
        let mut body = json!({
            "QueueUrl": self.url,
            "MaxNumberOfMessages": match self.alone {
                0 => (self.fetch_bytes / self.average.max(1)).clamp(1, AT_ONCE),
                _ => 1,
            },
            "VisibilityTimeout": self.config.visibility_timeout.duration().as_secs(),
            "WaitTimeSeconds": self.config.wait(),
        });
        if !system.is_empty() {
            body["MessageSystemAttributeNames"] = json!(system);
        }
        if !attributes.is_empty() {
            body["MessageAttributeNames"] = json!(attributes);
        }
        body
    }

    /// Notes that messages arrived. Returns those that are to be sent on.
    fn arrived(&mut self, answer: Answer) -> Vec<Incoming> {
        let mut messages = match answer {
            Answer::Messages(messages) => messages,
            Answer::TooLong => {
                // They come again.
                self.alone = AT_ONCE * self.config.concurrency;
                return Vec::new();
            }
        };
        self.alone = self.alone.saturating_sub(messages.len());
        let size: usize = messages.iter().map(Incoming::bytes).sum();
        if let Some(average) = size.checked_div(messages.len()) {
            self.average = average;
        }
        let deliveries = self.deliveries.clone();
        messages.retain(|message| {
            let id: Arc<str> = message.id.as_str().into();
            let arrival = deliveries.lock().arrive(&id, &message.handle);
            if arrival == Arrival::Settled {
                self.tell(News::Settled(id));
            }
            arrival == Arrival::New
        });
        messages
    }

    async fn pass_on(&mut self, messages: &[Incoming], out: &mut SourceOutput) -> Result<(), Error> {
        let _received = out.claim(messages.iter().map(Incoming::bytes).sum());
        let mut rest = messages;
        let mut parts = Vec::new();
        let mut sent = Ok(());
        while !rest.is_empty() && !out.is_stopping() {
            let count = self.messages.batch(rest, out.batch_bytes()).min(out.next_rows());
            let (batch, after) = rest.split_at(count);
            match self.send(batch, out).await {
                Ok(part) => parts.push(part),
                Err(error) => {
                    sent = Err(error);
                    break;
                }
            }
            rest = after;
        }
        self.tell(News::Sent(parts));
        if !rest.is_empty() {
            self.tell(News::Unsent(rest.iter().map(|message| message.id.as_str().into()).collect()));
        }
        sent
    }

    async fn send(&mut self, batch: &[Incoming], out: &mut SourceOutput) -> Result<Part, Error> {
        let mut received = self.messages.received(batch, out).await?;
        let ids: Vec<Arc<str>> = batch.iter().map(|message| message.id.as_str().into()).collect();
        let partition: Arc<str> = format!("{}{:016x}", prefix(&self.config.queue), *self.next).into();
        *self.next = self.next.wrapping_add(1);
        let offset = batch.iter().map(|message| json!([message.id, message.handle])).collect();
        received.reading.checkpoint = Some(Checkpoint { partition: partition.clone(), offset });
        let settled = match self.messages.rejected(batch) {
            None => out.send_acked(received).await?,
            Some(reason) => out.reject_acked(received, vec![reason]).await?,
        };
        Ok(Part { ids, partition, settled })
    }

    /// True if the source is to end: the queue has no messages but those on their way here. Requests that
    /// wait for messages have found none.
    async fn is_done(&self, active: Instant, out: &SourceOutput) -> Result<bool, Error> {
        if self.config.end_after_idle.is_none_or(|idle| active.elapsed() < idle.duration()) {
            return Ok(false);
        }
        let Some(counts) = unless_stopped(out, counts(&self.api, self.url)).await else { return Ok(true) };
        match counts {
            Ok(Counts { visible, delivered, delayed }) => {
                let own = self.deliveries.lock().count() as u64;
                Ok(visible == 0 && delayed == 0 && delivered <= own)
            }
            // A user who may not ask for them has to believe the requests for messages.
            Err(CallError::Refused(refusal)) if refusal.kind == Kind::Forbidden => Ok(true),
            Err(error) => Err(error.error("the queue cannot be read")),
        }
    }

    fn tell(&self, news: News) {
        // The other task ends after this one.
        let _ = self.tell.send(news);
    }
}

/// Sends a request for messages, and waits for them.
async fn receive(api: &Api, body: Value) -> Result<Answer, CallError> {
    let asked = Instant::now();
    let answer = api.ask("ReceiveMessage", body.to_string().into()).await?;
    if !answer.is_whole && !answer.body.is_empty() && answer.body.len() > super::MOST_ANSWER {
        return Ok(Answer::TooLong);
    }
    let Body { messages } = read(&api.request, &answer)?;
    let messages = messages.unwrap_or_default();
    // A server that does not wait would be asked without end.
    if messages.is_empty() && asked.elapsed() < POLL / 2 {
        tokio::time::sleep(POLL).await;
    }
    Ok(Answer::Messages(messages))
}

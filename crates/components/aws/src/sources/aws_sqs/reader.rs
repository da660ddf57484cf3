//! The task that receives messages and sends them on.
//!
//! Several requests wait for messages at the same time, each in a task of its own, and their answers are sent
//! on one after the other. The messages of an answer become one batch, or few: their order is that of the
//! queue. They are on their way from the moment they are here: an answer may wait for its turn for longer
//! than the visibility timeout, when a sink is slow.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use thalweg_broker::keeping::unless_stopped;
use thalweg_engine::{Checkpoint, Error, SourceOutput};
use thalweg_record::{Budget, Lease};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::deliveries::{Arrival, Deliveries};
use super::keeper::{Counts, Fate, News, Part, counts};
use super::messages::{Body, Incoming, Messages};
use super::pauses::Pauses;
use super::{AwsSqsSource, POLL, prefix};
use crate::api::{Api, CallError, read};
use crate::queue::is_fifo;
use crate::refusal::Kind;

/// The most messages of a request.
const AT_ONCE: usize = 10;
/// The size that messages are thought to have before one was received.
const FIRST: usize = 256 << 10;
/// How long as many messages as may be are on their way before a source that is to end does so, and how many
/// times `end_after_idle`, whichever is longer.
const UNSETTLED: Duration = Duration::from_secs(2);
const STALLED: u32 = 5;

/// The most bytes of the id of a message, and of its handle.
const LONGEST: usize = 4 << 10;

/// The answer to a request for messages.
enum Answer {
    Messages(Arrived),
    /// It has more bytes than are read.
    TooLong,
}

/// The messages of an answer, which are noted.
struct Arrived {
    /// Those that are to be sent on.
    new: Vec<Incoming>,
    /// Those that are settled already.
    settled: Vec<Arc<str>>,
    /// True if some are on their way already.
    has_repeated: bool,
    /// The number of all messages, and about how many bytes they have.
    count: usize,
    bytes: usize,
    /// The memory that they have until it is their turn.
    _held: Lease,
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
    pauses: Pauses,
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
            pauses: Pauses::default(),
        }
    }

    pub(super) async fn run(mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let read = self.read(out).await;
        self.leave().await;
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

    /// Lets the queue deliver again what has arrived and had not its turn.
    async fn leave(&mut self) {
        self.receiving.abort_all();
        while let Some(ended) = self.receiving.join_next().await {
            if let Ok(Ok(Answer::Messages(arrived))) = ended {
                let new = self.settle(arrived);
                self.tell(News::Unsent(ids(&new)));
            }
        }
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
            let (body, fetch_bytes) = (self.request(), self.fetch_bytes);
            let (api, deliveries) = (self.api.clone(), self.deliveries.clone());
            let (pause, budget) = (self.pauses.next(self.config.concurrency), out.share().budget().clone());
            self.receiving.spawn(async move {
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
                let expected = budget.claim(fetch_bytes);
                receive(&api, body, &deliveries, &budget, expected).await
            });
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

    /// Learns from an answer how many messages to ask for. Returns those that are to be sent on.
    fn arrived(&mut self, answer: Answer) -> Vec<Incoming> {
        let Answer::Messages(arrived) = answer else {
            // They come again.
            self.alone = AT_ONCE * self.config.concurrency;
            self.pauses.note(false);
            if self.pauses.warns() {
                let (server, most) = (self.api.request.server(), super::MOST_ANSWER >> 20);
                tracing::warn!(
                    "{server} answered a request for messages with more than {most} MiB; the messages are \
                     asked for again one by one, when the queue delivers them again"
                );
            }
            return Vec::new();
        };
        self.alone = self.alone.saturating_sub(arrived.count);
        if let Some(average) = arrived.bytes.checked_div(arrived.count) {
            self.average = average;
        }
        // In order, they come again after those before them, which may fail.
        let is_too_early = arrived.has_repeated && is_fifo(&self.config.queue);
        let is_empty = arrived.count == 0;
        let new = self.settle(arrived);
        // The request itself waited if there were none.
        if !is_empty {
            self.pauses.note(!is_too_early && !new.is_empty());
        }
        if is_too_early {
            self.tell(News::Unsent(ids(&new)));
            return Vec::new();
        }
        new
    }

    /// Lets messages be deleted that are settled. Returns the new ones.
    fn settle(&self, Arrived { new, settled, .. }: Arrived) -> Vec<Incoming> {
        settled.into_iter().for_each(|id| self.tell(News::Settled(id)));
        let mut deliveries = self.deliveries.lock();
        deliveries.waiting = deliveries.waiting.saturating_sub(new.len());
        new
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
            // Of a group in order, those behind a failed one have to be sent on after it.
            let must_wait = is_fifo(&self.config.queue) && share_a_group(batch, rest);
            if must_wait
                && !out.is_dry()
                && let Some(part) = parts.last_mut()
                && !wait_for(part, out).await
            {
                break;
            }
        }
        self.tell(News::Sent(parts));
        if !rest.is_empty() {
            self.tell(News::Unsent(ids(rest)));
        }
        sent
    }

    async fn send(&mut self, batch: &[Incoming], out: &mut SourceOutput) -> Result<Part, Error> {
        let mut received = self.messages.received(batch, out).await?;
        let partition: Arc<str> = format!("{}{:016x}", prefix(&self.config.queue), *self.next).into();
        *self.next = self.next.wrapping_add(1);
        let offset = batch.iter().map(|message| json!([message.id, message.handle])).collect();
        received.reading.checkpoint = Some(Checkpoint { partition: partition.clone(), offset });
        let settled = match self.messages.rejected(batch) {
            None => out.send_acked(received).await?,
            Some(reason) => out.reject_acked(received, vec![reason]).await?,
        };
        Ok(Part { ids: ids(batch), partition, fate: Fate::Open(settled) })
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
                let deliveries = self.deliveries.lock();
                let is_all_here = visible == 0 && delayed == 0 && delivered <= deliveries.count() as u64;
                // A dry run deletes nothing.
                let is_deleted = deliveries.deleting == 0 || out.is_dry();
                Ok(is_all_here && is_deleted && deliveries.waiting == 0)
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

fn ids(messages: &[Incoming]) -> Vec<Arc<str>> {
    messages.iter().map(|message| message.id.as_str().into()).collect()
}

/// True if some of these messages of a queue in order are in a group with some of the others.
fn share_a_group(messages: &[Incoming], others: &[Incoming]) -> bool {
    messages.iter().any(|one| others.iter().any(|other| one.group() == other.group()))
}

/// Waits until messages that were sent on are settled. Returns true if they are safe.
async fn wait_for(part: &mut Part, out: &SourceOutput) -> bool {
    let Fate::Open(settled) = &mut part.fate else { return true };
    let is_safe = loop {
        tokio::select! {
            biased;
            settlement = &mut *settled => break settlement.outcome.is_safe(),
            () = out.stopping() => return false,
            // Some are settled after a checkpoint.
            () = tokio::time::sleep(POLL) => out.save_soon(),
        }
    };
    part.fate = Fate::Known(is_safe);
    is_safe
}

/// Sends a request for messages, waits for them, and notes them. The memory that they are expected to need is
/// claimed already.
async fn receive(
    api: &Api,
    body: Value,
    deliveries: &Mutex<Deliveries>,
    budget: &Budget,
    expected: Lease,
) -> Result<Answer, CallError> {
    let asked = Instant::now();
    let answer = api.ask("ReceiveMessage", body.to_string().into()).await?;
    if !answer.is_whole && !answer.body.is_empty() && answer.body.len() > super::MOST_ANSWER {
        return Ok(Answer::TooLong);
    }
    // Its texts are copied.
    let reading = budget.claim(answer.body.capacity() * 2);
    let Body { messages } = read(&api.request, &answer)?;
    let messages = messages.unwrap_or_default();
    drop(answer);
    // Ids and handles are kept as long as a message is on its way.
    let is_long = |message: &Incoming| message.id.len().max(message.handle.len()) > LONGEST;
    if messages.len() > AT_ONCE || messages.iter().any(is_long) {
        let server = api.request.server();
        let text = format!("{server} delivers more messages than {AT_ONCE}, or one with a long id");
        return Err(CallError::Failed(Error::temporary(text)));
    }
    // A server that does not wait would be asked without end.
    if messages.is_empty() && asked.elapsed() < POLL / 2 {
        tokio::time::sleep(POLL).await;
    }
    let bytes = messages.iter().map(Incoming::bytes).sum();
    let held = budget.claim(bytes);
    drop((reading, expected));
    let arrived = note(messages, bytes, held, &mut deliveries.lock());
    Ok(Answer::Messages(arrived))
}

/// Notes messages that arrived.
fn note(messages: Vec<Incoming>, bytes: usize, held: Lease, deliveries: &mut Deliveries) -> Arrived {
    let (new, settled, count) = (Vec::new(), Vec::new(), messages.len());
    let mut arrived = Arrived { new, settled, has_repeated: false, count, bytes, _held: held };
    for message in messages {
        let id: Arc<str> = message.id.as_str().into();
        match deliveries.arrive(&id, &message.handle) {
            Arrival::New => arrived.new.push(message),
            Arrival::OnItsWay => arrived.has_repeated = true,
            Arrival::Settled => arrived.settled.push(id),
        }
    }
    deliveries.waiting += arrived.new.len();
    arrived
}

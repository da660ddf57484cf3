//! Joins the messages of several batches into one request.
//!
//! Sources make large batches of files, but a batch for each request or datagram that they receive. A writer
//! has one batch at a time and waits for its answer, so a sink has many writers, which meet here. The first
//! writer of a group leads it: it waits for `max_delay`, for a full group, for the memory to be short, and
//! then for its turn to send. All that join meanwhile are sent with it. So groups grow by themselves while a
//! server is busy.
//!
//! A group that is refused as a whole may contain a single bad message. It is sent again in halves, until bad
//! messages are alone. If [`MOST_ALONE`] messages were refused one by one and none was accepted, the reason
//! is not in the messages, and the rest is refused with them. If some of the rest is accepted nevertheless,
//! what was refused together is sent again.
//!
//! A task for each group was rejected. If a writer is dropped, so is what it waits for, and a leader that is
//! dropped ends its group: the others send again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use reqwest::Url;
use thalweg_record::Budget;
use thalweg_runtime::ConcurrencyLimit;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::failure::{Failure, Verdict};
use super::parts::Parts;
use super::request::{Answer, Request};
use super::rounds::end;

/// The number of messages of a request that are refused one by one before the rest is refused with them.
const MOST_ALONE: usize = 16;

/// The system that requests are sent to.
pub(crate) trait Service: Send + Sync + 'static {
    /// Returns the body with these messages.
    fn body(&self, parts: &Parts) -> Bytes {
        Bytes::copy_from_slice(parts.bytes())
    }

    /// Returns the URL for these messages, if it is not that of all requests.
    fn url(&self, base: &Url, parts: &Parts) -> Option<Url> {
        let _ = (base, parts);
        None
    }

    /// Returns what the answer says about these messages.
    fn read(&self, request: &Request, answer: &Answer, parts: &Parts) -> Reading;
}

/// The meaning of an answer for the messages of a request.
#[derive(Debug)]
pub(crate) enum Reading {
    /// The server has all of them.
    Accepted,
    /// The fate of each.
    Each(Vec<Verdict>),
    /// The server took none, or not all, because of one or several of them, for this reason. It does not
    /// matter if it receives the others twice.
    Refused(String),
    /// They should be sent again.
    Again(Failure),
}

/// The limits of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) bytes: usize,
    pub(crate) count: usize,
    /// How long a request waits for more messages.
    pub(crate) delay: Duration,
}

/// Sends the messages of the writers of a sink, which share it.
pub(crate) struct Gather {
    request: Request,
    service: Box<dyn Service>,
    limits: Limits,
    /// Limits the requests in flight.
    limit: ConcurrencyLimit,
    /// True if a request may have messages of several batches.
    is_joining: bool,
    /// The group that can be joined.
    open: Mutex<Option<Arc<Group>>>,
    /// The server wants no request before.
    not_before: Mutex<Option<Instant>>,
}

/// Messages that are sent together.
#[derive(Default)]
struct Group {
    content: Mutex<Content>,
    full: Notify,
}

#[derive(Default)]
struct Content {
    parts: Parts,
    /// The writers that wait, each with the number of its messages, in their order.
    waiting: Vec<(usize, oneshot::Sender<Vec<Verdict>>)>,
}

impl Gather {
    pub(crate) fn new(
        request: Request,
        service: Box<dyn Service>,
        limits: Limits,
        limit: ConcurrencyLimit,
        is_joining: bool,
    ) -> Self {
        let (open, not_before) = (Mutex::new(None), Mutex::new(None));
        Self { request, service, limits, limit, is_joining, open, not_before }
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Sends messages once, with those of other writers. Returns the fate of each.
    pub(crate) async fn send(&self, parts: Parts, budget: &Budget) -> Vec<Verdict> {
        let count = parts.len();
        let (answer, answered) = oneshot::channel();
        if let Some(leader) = self.join(parts, answer) {
            leader.lead(budget).await;
        }
        answered.await.unwrap_or_else(|_| {
            vec![Verdict::Again(Failure::temporary("a request was not sent: its writer ended")); count]
        })
    }

    /// Adds messages to the open group. If they do not fit, or there is none, they begin one, which the
    /// caller leads.
    fn join(&self, parts: Parts, answer: oneshot::Sender<Vec<Verdict>>) -> Option<Leader<'_>> {
        let mut open = self.open.lock();
        if let Some(group) = open.as_ref() {
            let mut content = group.content.lock();
            let bytes = content.parts.bytes().len() + parts.bytes().len();
            let count = content.parts.len() + parts.len();
            if bytes <= self.limits.bytes && count <= self.limits.count {
                content.waiting.push((parts.len(), answer));
                content.parts.append(&parts);
                if bytes == self.limits.bytes || count == self.limits.count {
                    group.full.notify_one();
                }
                return None;
            }
            group.full.notify_one();
        }
        let content = Content { waiting: vec![(parts.len(), answer)], parts };
        let group = Arc::new(Group { content: Mutex::new(content), full: Notify::new() });
        if self.is_joining {
            *open = Some(group.clone());
        }
        Some(Leader { gather: self, group })
    }

    /// Waits as long as the server wants no request.
    async fn wait(&self) {
        loop {
            let at = *self.not_before.lock();
            match at {
                Some(at) if at > Instant::now() => tokio::time::sleep_until(at).await,
                _ => return,
            }
        }
    }

    fn note_delay(&self, verdicts: &[Verdict]) {
        let delays = verdicts.iter().filter_map(|verdict| match verdict {
            Verdict::Again(failure) => failure.delay(),
            _ => None,
        });
        if let Some(delay) = delays.max() {
            let at = Instant::now() + delay;
            let mut known = self.not_before.lock();
            *known = Some(known.map_or(at, |known| known.max(at)));
        }
    }

    /// Sends messages, in parts if they are refused together.
    async fn attempt(&self, parts: Parts) -> Vec<Verdict> {
        let mut verdicts = Vec::with_capacity(parts.len());
        let (mut alone, mut has_accepted) = (0, false);
        let mut together = Vec::new();
        let mut rest = vec![parts];
        while let Some(parts) = rest.pop() {
            let (count, is_too_large, reading) = self.ask(&parts).await;
            match reading {
                Reading::Accepted => {
                    has_accepted = true;
                    verdicts.extend(std::iter::repeat_n(Verdict::Delivered, count));
                }
                Reading::Each(each) => {
                    has_accepted |= each.iter().any(|verdict| matches!(verdict, Verdict::Delivered));
                    verdicts.extend(each);
                }
                Reading::Refused(_) if count > 1 && (is_too_large || has_accepted || alone < MOST_ALONE) => {
                    let (first, second) = parts.halves();
                    rest.extend([second, first]);
                }
                Reading::Refused(reason) => {
                    alone += 1;
                    if count > 1 {
                        together.push(verdicts.len()..verdicts.len() + count);
                    }
                    verdicts.extend(std::iter::repeat_n(Verdict::Rejected(reason), count));
                }
                Reading::Again(failure) => {
                    // The rest is for the next round.
                    let open = count + rest.iter().map(Parts::len).sum::<usize>();
                    verdicts.extend(std::iter::repeat_n(Verdict::Again(failure), open));
                    break;
                }
            }
        }
        if has_accepted {
            together.into_iter().for_each(|range| reconsider(verdicts.get_mut(range)));
        }
        verdicts
    }

    /// Sends one request. Returns the number of its messages, whether it was too large, and its answer.
    async fn ask(&self, parts: &Parts) -> (usize, bool, Reading) {
        let count = parts.len();
        let url = self.service.url(&self.request.url, parts);
        let answer = match self.request.send(url, self.service.body(parts)).await {
            Ok(answer) => answer,
            Err(failure) => return (count, false, Reading::Again(failure)),
        };
        let is_too_large = answer.status == reqwest::StatusCode::PAYLOAD_TOO_LARGE;
        let reading = match self.service.read(&self.request, &answer, parts) {
            Reading::Each(each) if each.len() != count => {
                let text =
                    format!("{} answered for {} of {count} messages", self.request.server(), each.len());
                Reading::Again(Failure::temporary(text))
            }
            reading => reading,
        };
        (count, is_too_large, reading)
    }
}

/// Has messages sent again that were refused together: others were accepted, so some of them may be good.
fn reconsider(refused: Option<&mut [Verdict]>) {
    for verdict in refused.into_iter().flatten() {
        if let Verdict::Rejected(reason) = verdict {
            *verdict = Verdict::Again(Failure::temporary(std::mem::take(reason)));
        }
    }
}

/// The writer that sends a group. If it is dropped before, so is the group.
struct Leader<'a> {
    gather: &'a Gather,
    group: Arc<Group>,
}

impl Leader<'_> {
    async fn lead(self, budget: &Budget) {
        self.fill(budget).await;
        self.gather.wait().await;
        let bytes = self.group.content.lock().parts.bytes().len();
        let permit = self.gather.limit.acquire(bytes as u64).await;
        let Content { parts, waiting } = self.take();
        let verdicts = self.gather.attempt(parts).await;
        end(permit, &verdicts);
        self.gather.note_delay(&verdicts);
        let mut verdicts = verdicts.into_iter();
        for (count, answer) in waiting {
            // A writer that is gone needs no answer.
            let _ = answer.send(verdicts.by_ref().take(count).collect());
        }
    }

    /// Waits until the group is full, or has waited long enough. Messages that hold the memory which a source
    /// waits for do not wait.
    async fn fill(&self, budget: &Budget) {
        let Limits { delay, bytes, count } = self.gather.limits;
        let is_full = {
            let content = self.group.content.lock();
            content.parts.bytes().len() >= bytes || content.parts.len() >= count
        };
        if is_full || delay.is_zero() || !self.gather.is_joining {
            return;
        }
        let shortage = budget.shortage();
        let short = shortage.notified();
        if budget.is_short() {
            return;
        }
        tokio::select! {
            () = self.group.full.notified() => {}
            () = short => {}
            () = tokio::time::sleep(delay) => {}
        }
    }

    /// Closes the group and takes what is in it.
    fn take(&self) -> Content {
        let mut open = self.gather.open.lock();
        if open.as_ref().is_some_and(|group| Arc::ptr_eq(group, &self.group)) {
            *open = None;
        }
        std::mem::take(&mut *self.group.content.lock())
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

#[cfg(test)]
mod tests;

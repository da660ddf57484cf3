//! Joins the messages of several batches into one request.
//!
//! Sources make large batches of files, but a batch for each request or datagram that they receive. A writer
//! has one batch at a time and waits for its answer, so a sink has many writers, which meet here. The first
//! writer of a group leads it: it waits for `max_delay`, for a full group, for the memory to be short, and
//! then for its turn to send. All that join meanwhile are sent with it. So groups grow by themselves while a
//! server is busy.
//!
//! A group that is refused as a whole may contain a single bad message: see [`division`]. Some servers
//! confirm later what they have accepted. The group waits for that after its turn, so that others can send
//! meanwhile.
//!
//! A task for each group was rejected. If a writer is dropped, so is what it waits for, and a leader that is
//! dropped ends its group: the others send again.

mod division;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use reqwest::Url;
use reqwest::header::HeaderMap;
use thalweg_record::Budget;
use thalweg_runtime::ConcurrencyLimit;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::failure::{Failure, Verdict};
use super::parts::Parts;
use super::request::{Answer, Request};
use super::rounds::end;
use division::{Division, Fates};

/// The system that requests are sent to.
#[async_trait]
pub trait Service: Send + Sync + 'static {
    /// Returns the body with these messages.
    fn body(&self, parts: &Parts) -> Bytes {
        Bytes::copy_from_slice(parts.bytes())
    }

    /// Returns the URL for these messages, if it is not that of all requests.
    fn url(&self, base: &Url, parts: &Parts) -> Option<Url> {
        let _ = (base, parts);
        None
    }

    /// Returns the headers of one request alone.
    fn headers(&self) -> HeaderMap {
        HeaderMap::new()
    }

    /// True if messages may be sent in one request with others.
    fn joins(&self, one: &Parts, other: &Parts) -> bool {
        let _ = (one, other);
        true
    }

    /// Prepares the server for these messages: creates what they are to be written into, for example. Called
    /// before each request.
    ///
    /// # Errors
    /// If that fails for now. The messages are sent again.
    async fn prepare(&self, request: &Request, parts: &Parts) -> Result<(), Failure> {
        let _ = (request, parts);
        Ok(())
    }

    /// Returns what the answer says about these messages.
    fn read(&self, request: &Request, answer: &Answer, parts: &Parts) -> Reading;

    /// Waits until the server has confirmed what it accepted with these receipts. Returns for each why it is
    /// not confirmed, if so. Needed by a system whose answers are [`Reading::Unconfirmed`].
    async fn confirm(&self, request: &Request, receipts: &[Receipt]) -> Vec<Option<Failure>> {
        let _ = request;
        vec![None; receipts.len()]
    }
}

/// The mark of an accepted request, by which the server confirms it later.
#[derive(Debug, Clone)]
pub struct Receipt {
    /// The headers that only the accepted request had.
    pub own: HeaderMap,
    /// The number that the server gave to it.
    pub number: u64,
}

/// The meaning of an answer for the messages of a request.
#[derive(Debug)]
pub enum Reading {
    /// The server has all of them.
    Accepted,
    /// The server has all of them, and will confirm by this receipt that they are safe.
    Unconfirmed(Receipt),
    /// The fate of each.
    Each(Vec<Verdict>),
    /// The server took none, or not all, because of one or several of them, for this reason. It does not
    /// matter if it receives the others twice.
    Refused(String),
    /// As `Refused`, and the answer says by a number, from 0 or from 1, which message it is.
    RefusedAt {
        /// The number.
        number: usize,
        /// The server's reason.
        reason: String,
    },
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
            let fits = bytes <= self.limits.bytes && count <= self.limits.count;
            if fits && self.service.joins(&content.parts, &parts) {
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

    /// Sends messages, in pieces if they are refused together.
    async fn attempt(&self, parts: &Parts) -> Fates {
        let mut division = Division::new(parts.len());
        while let Some(piece) = division.next() {
            let (is_too_large, reading) = match piece.len() == parts.len() {
                true => self.ask(parts).await,
                false => self.ask(&parts.slice(piece.clone())).await,
            };
            division.note(piece, reading, is_too_large);
        }
        division.end()
    }

    /// Waits until what the server accepted is confirmed. Other messages are sent again.
    async fn confirm(&self, unconfirmed: Vec<(Range<usize>, Receipt)>, verdicts: &mut [Verdict]) {
        if unconfirmed.is_empty() {
            return;
        }
        let (pieces, receipts): (Vec<Range<usize>>, Vec<Receipt>) = unconfirmed.into_iter().unzip();
        let failures = self.service.confirm(&self.request, &receipts).await;
        for (piece, failure) in pieces.into_iter().zip(failures) {
            if let (Some(failure), Some(verdicts)) = (failure, verdicts.get_mut(piece)) {
                verdicts.fill(Verdict::Again(failure));
            }
        }
    }

    /// Sends one request. Returns whether it was too large, and its answer.
    async fn ask(&self, parts: &Parts) -> (bool, Reading) {
        let count = parts.len();
        if let Err(failure) = self.service.prepare(&self.request, parts).await {
            return (false, Reading::Again(failure));
        }
        let url = self.service.url(&self.request.url, parts);
        let (own, body) = (self.service.headers(), self.service.body(parts));
        let answer = match self.request.send_with(own, url, body).await {
            Ok(answer) => answer,
            Err(failure) => return (false, Reading::Again(failure)),
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
        (is_too_large, reading)
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
        let Fates { mut verdicts, unconfirmed } = self.gather.attempt(&parts).await;
        end(permit, &verdicts);
        self.gather.note_delay(&verdicts);
        drop(parts);
        self.gather.confirm(unconfirmed, &mut verdicts).await;
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

//! Polls: page after page, at their times.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arrow_buffer::Buffer;
use async_trait::async_trait;
use reqwest::header::{ETAG, LAST_MODIFIED};
use thalweg_engine::{Checkpoint, Error, Source, SourceOutput};
use thalweg_redact::without_secrets;
use tokio::time::{Interval, MissedTickBehavior};

use super::ask::{Asker, Body, Fetched};
use super::content::{Content, Messages};
use super::pages::Said;
use super::place::{Place, SoFar};
use super::trail::Trail;
use super::{HttpClient, Origin, PAGE};
use crate::net::{Cut, Format, Plain};
use crate::requests::Failure;

/// The size that is expected of a first answer, in bytes.
const USUAL: usize = 64 << 10;

/// The shortest time between two polls.
const LEAST: Duration = Duration::from_millis(1);

/// The longest cursor, in bytes.
const LONGEST_CURSOR: usize = 8 << 10;

/// The source. It is prepared by its first run, since that reads files.
pub(super) struct Client {
    config: HttpClient,
    polling: Option<Polling>,
}

impl Client {
    pub(super) fn new(config: HttpClient) -> Self {
        Self { config, polling: None }
    }
}

#[async_trait]
impl Source for Client {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        if self.polling.is_none() {
            self.polling = Some(Polling::new(&self.config, out)?);
        }
        match &mut self.polling {
            Some(polling) => polling.run(out).await,
            None => Ok(()),
        }
    }
}

struct Polling {
    asker: Asker,
    content: Content,
    /// The URL without secrets: `meta.path` of the messages, and the partition.
    path: Arc<str>,
    /// The times of polls, if there are several.
    times: Option<Interval>,
    place: Place,
    /// The pages of the poll, for those that come again.
    trail: Trail,
    /// True from the beginning of a poll to its end: after a temporary error, the engine runs the source
    /// again.
    is_under_way: bool,
    /// True if the page is that of an earlier run: the server may not have it any more.
    is_resumed: bool,
    /// The size of the last answer.
    expected: usize,
}

/// How a poll ended.
enum Polled {
    Done,
    Stopped,
}

impl Polling {
    fn new(config: &HttpClient, out: &SourceOutput) -> Result<Self, Error> {
        let asker = Asker::new(config.clone())?;
        let path: Arc<str> = without_secrets(asker.request.url.as_str()).into();
        let mut place: Place = match out.saved(&path) {
            Some(saved) => serde_json::from_value(saved).map_err(|error| {
                Error::permanent(format!("the saved place in `{path}` cannot be read")).caused_by(error)
            })?,
            None => Place::default(),
        };
        if place.page.as_ref().is_some_and(|page| !config.may_have(page)) {
            tracing::warn!("`{}`: `pages` has changed, so the poll is begun again", out.name());
            place = place.rewound();
        }
        let times = config.every.map(|every| {
            let mut times = tokio::time::interval(every.duration().max(LEAST));
            times.set_missed_tick_behavior(MissedTickBehavior::Skip);
            times
        });
        let content = Content {
            framing: config.framing.clone(),
            array: config.array_field.clone(),
            charset: config.charset,
            limit: config.max_message_bytes,
            share: out.share().clone(),
        };
        let is_resumed = place.is_within();
        let (trail, is_under_way, expected) = (Trail::default(), false, USUAL);
        Ok(Self { asker, content, path, times, place, trail, is_under_way, is_resumed, expected })
    }

    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        loop {
            if !self.is_under_way {
                if !self.wait(out).await {
                    return Ok(());
                }
                (self.trail, self.is_under_way) = (Trail::default(), true);
            }
            match self.poll(out).await? {
                Ok(Polled::Stopped) => return Ok(()),
                Ok(Polled::Done) => {}
                Err(failure) if failure.is_temporary() => {
                    if out.sleep(failure.delay().unwrap_or_default()).await {
                        return Ok(());
                    }
                    return Err(failure.error());
                }
                Err(failure) if self.times.is_none() => return Err(failure.error()),
                Err(failure) => {
                    tracing::error!("`{}`: a poll failed: {}", out.name(), failure.text());
                    self.place = std::mem::take(&mut self.place).rewound();
                }
            }
            self.is_under_way = false;
            if self.times.is_none() {
                return Ok(());
            }
        }
    }

    /// Waits for the time of the next poll. Returns false if the run was asked to stop.
    async fn wait(&mut self, out: &SourceOutput) -> bool {
        let Some(times) = &mut self.times else { return !out.is_stopping() };
        tokio::select! {
            biased;
            () = out.stopping() => false,
            _ = times.tick() => true,
        }
    }

    /// Fetches the pages of a poll, from the place on.
    ///
    /// # Errors
    /// If nothing can be sent any more.
    async fn poll(&mut self, out: &mut SourceOutput) -> Result<Result<Polled, Failure>, Error> {
        loop {
            let fetched = tokio::select! {
                biased;
                () = out.stopping() => return Ok(Ok(Polled::Stopped)),
                fetched = self.fetch(out) => fetched,
            };
            match fetched {
                Ok(Fetched::Unchanged) => {
                    self.place = std::mem::take(&mut self.place).rewound();
                    return Ok(Ok(Polled::Done));
                }
                Ok(Fetched::End) => {
                    self.place = std::mem::take(&mut self.place).ended();
                    self.is_resumed = false;
                    out.checkpoint(self.checkpoint(&self.place)?);
                    return Ok(Ok(Polled::Done));
                }
                Ok(Fetched::Gone(refused)) if self.is_resumed && self.place.is_within() => {
                    let name = out.name();
                    tracing::warn!("`{name}`: the poll is begun again: {}", refused.text());
                    (self.place, self.is_resumed) = (std::mem::take(&mut self.place).rewound(), false);
                }
                Ok(Fetched::Gone(refused)) => return Ok(Err(refused)),
                Ok(Fetched::Page(body)) => {
                    self.expected = body.body.len().max(1);
                    self.is_resumed = false;
                    let digest = match self.send(&body, out).await? {
                        Ok(digest) => digest,
                        Err(failure) => return Ok(Err(failure)),
                    };
                    let Some(page) = &self.place.page else { return Ok(Ok(Polled::Done)) };
                    if let Err(reason) = self.trail.add(digest, page) {
                        return Ok(Err(self.asker.failed(&reason)));
                    }
                    if self.trail.is_long_empty() {
                        tracing::warn!("`{}`: many pages in a row have no messages", out.name());
                    }
                }
                Err(failure) => return Ok(Err(failure)),
            }
        }
    }

    async fn fetch(&self, out: &SourceOutput) -> Result<Fetched, Failure> {
        // The memory is taken when the body comes: until then, the server must not wait for the pipeline.
        drop(out.reserve(self.expected).await);
        self.asker.fetch(&self.place, out).await
    }

    /// Sends the messages of a page that are not sent yet, and goes on to the next page. Returns the digest
    /// of all its messages, if it has any.
    ///
    /// # Errors
    /// If nothing can be sent any more.
    async fn send(
        &mut self,
        body: &Body,
        out: &mut SourceOutput,
    ) -> Result<Result<Option<String>, Failure>, Error> {
        let failed = |reason: &str| self.asker.failed(&format!("the body {reason}"));
        let mut so_far = SoFar::default();
        let mut cuts = match self.content.cuts(&body.body) {
            Ok(cuts) => cuts.peekable(),
            Err(reason) => return Ok(Err(failed(&reason))),
        };
        if self.place.sent > 0 {
            match self.content.cuts(&body.body) {
                Ok(again) => so_far = self.already_sent(again, out),
                Err(reason) => return Ok(Err(failed(&reason))),
            }
        }
        let (mut messages, mut last, mut is_past) = (0, None, false);
        while let Some(cut) = cuts.next() {
            let cut = cut.decoded(out);
            let total = cut.messages.len() + cut.rejected.len();
            let before = usize::try_from(so_far.count.saturating_sub(messages)).unwrap_or(total).min(total);
            messages += total as u64;
            if let Some(range) = cut.messages.last() {
                last = Some((cut.buffer.clone(), range.clone()));
            }
            let mut from = before;
            while from < total {
                if out.left() == 0 {
                    return Err(out.limit_reached());
                }
                let to = chunk(&cut, from, out.next_rows());
                (from..to).for_each(|row| so_far.add(message(&cut, row)));
                is_past = to == total && cuts.peek().is_none();
                let place = match is_past {
                    true => match self.after(body, messages, last.as_ref()) {
                        Ok(place) => place,
                        Err(failure) => return Ok(Err(failure)),
                    },
                    false => Place { sent: so_far.count, digest: so_far.digest(), ..self.place.clone() },
                };
                let checkpoint = self.checkpoint(&place)?;
                self.send_rows(&cut, from..to, checkpoint, out).await?;
                self.place = place;
                from = to;
            }
        }
        if !is_past {
            // There are no messages, or all of them were sent before.
            match self.after(body, messages, last.as_ref()) {
                Ok(place) => self.place = place,
                Err(failure) => return Ok(Err(failure)),
            }
            out.checkpoint(self.checkpoint(&self.place)?);
        }
        Ok(Ok(so_far.digest()))
    }

    /// Returns the messages at the beginning of a page that were sent: none, if the page has changed.
    fn already_sent(&self, cuts: Messages, out: &SourceOutput) -> SoFar {
        let mut so_far = SoFar::default();
        for cut in cuts {
            let cut = cut.decoded(out);
            for row in 0..cut.messages.len() + cut.rejected.len() {
                if so_far.count == self.place.sent {
                    break;
                }
                so_far.add(message(&cut, row));
            }
        }
        if so_far.count == self.place.sent && so_far.digest() == self.place.digest {
            return so_far;
        }
        let name = out.name();
        tracing::warn!("`{name}`: the page has changed since it was read in part; all of it is sent");
        SoFar::default()
    }

    /// Sends messages of a cut, or rejected ones.
    async fn send_rows(
        &self,
        cut: &Cut,
        rows: Range<usize>,
        checkpoint: Checkpoint,
        out: &mut SourceOutput,
    ) -> Result<(), Error> {
        let good = cut.messages.len();
        if rows.start < good {
            let Some(mut received) = Plain.received(cut, rows, &self.path, &mut Vec::new()) else {
                return Ok(());
            };
            received.reading.checkpoint = Some(checkpoint);
            return out.send(received).await;
        }
        let rejected = cut.rejected.get(rows.start - good..rows.end - good).unwrap_or_default();
        let (mut reading, reasons) = cut.refused(rejected, &self.path);
        reading.checkpoint = Some(checkpoint);
        out.reject_each(reading, reasons).await
    }

    fn checkpoint(&self, place: &Place) -> Result<Checkpoint, Error> {
        let offset = serde_json::to_value(place)
            .map_err(|error| Error::permanent("a place cannot be saved").caused_by(error))?;
        Ok(Checkpoint { partition: self.path.clone(), offset })
    }

    /// Returns the place after a page with this number of messages: at the next page, or at the next poll.
    fn after(
        &self,
        body: &Body,
        messages: u64,
        last: Option<&(Buffer, Range<usize>)>,
    ) -> Result<Place, Failure> {
        let config = &self.asker.config;
        let text = std::str::from_utf8(&body.body).ok();
        let last = last.map(|(buffer, range)| buffer.get(range.clone()).unwrap_or_default());
        let next_cursor = self.next_cursor(text, last)?.or_else(|| self.place.next_cursor.clone());
        let next = match &config.pages {
            None => None,
            Some(pages) => {
                let link = body.link();
                let said = Said { url: &body.url, link: link.as_deref(), body: text, messages };
                let page = self.place.page.clone().or_else(|| pages.first());
                let next = pages.next(page.as_ref(), &said, config.body_has(PAGE));
                next.map_err(|reason| self.asker.failed(&reason))?
            }
        };
        let cursor = self.place.cursor.clone();
        if next.is_some() {
            return Ok(Place { cursor, next_cursor, page: next, ..Place::default() });
        }
        let is_same = next_cursor.is_none() || next_cursor == cursor;
        let (etag, last_modified) = match is_same && config.is_conditional() {
            true => (body.validator(ETAG), body.validator(LAST_MODIFIED)),
            // The next poll asks for something else.
            false => (None, None),
        };
        Ok(Place { cursor: next_cursor.or(cursor), etag, last_modified, ..Place::default() })
    }

    /// Returns the cursor that a page gives, if it gives one.
    fn next_cursor(&self, body: Option<&str>, last: Option<&[u8]>) -> Result<Option<String>, Failure> {
        let Some(cursor) = &self.asker.config.cursor else { return Ok(None) };
        let failed = |what: &str, reason: &str| {
            let field = &cursor.field;
            self.asker.failed(&format!("{what} {reason}, so there is no `{field}` (`cursor.field`)"))
        };
        let (what, text) = match (cursor.from, last) {
            (Origin::Body, _) => ("the body", body),
            (Origin::Message, None) => return Ok(None),
            (Origin::Message, Some(last)) => ("the last message", std::str::from_utf8(last).ok()),
        };
        let found = match text {
            None => Err("is not UTF-8".to_owned()),
            // An answer without messages may have no body.
            Some("") if cursor.from == Origin::Body => Ok(None),
            Some(text) if cursor.from == Origin::Body => cursor.field.text(text),
            Some(text) => cursor.field.text_of_message(text),
        };
        match found.map_err(|reason| failed(what, &reason))? {
            None if cursor.from == Origin::Message => Err(failed(what, "does not have it")),
            Some(value) if value.len() > LONGEST_CURSOR => {
                Err(failed(what, &format!("has more than {LONGEST_CURSOR} bytes there")))
            }
            found => Ok(found),
        }
    }
}

/// Returns the end of the rows of a cut that are sent together: messages, or rejected ones.
fn chunk(cut: &Cut, from: usize, most: usize) -> usize {
    let good = cut.messages.len();
    let end = if from < good { good } else { good + cut.rejected.len() };
    end.min(from.saturating_add(most))
}

/// Returns a message of a cut. Rejected ones follow the others.
fn message(cut: &Cut, row: usize) -> &[u8] {
    let good = cut.messages.len();
    let range = match row.checked_sub(good) {
        None => cut.messages.get(row),
        Some(row) => cut.rejected.get(row).map(|(range, _)| range),
    };
    range.and_then(|range| cut.buffer.get(range.clone())).unwrap_or_default()
}

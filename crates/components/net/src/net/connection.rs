//! One connection of a source: reads messages, sends them on, and writes answers back.
//!
//! All answers are the same text, so a client can only count them: the n-th answer is taken as that of the
//! n-th message. The messages of one [`Cut`] leave in several batches, the rejected ones in a batch of their
//! own. They are therefore answered together, once all of those batches are settled. The rejected alternative
//! was to answer each batch when it is settled: an answer could then stand for another message, which is lost
//! if the program is killed.

use std::collections::VecDeque;
use std::future::{pending, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::ByteSize;
use thalweg_engine::{Error, Settled, SourceOutput};
use thalweg_record::Incomplete;
use thalweg_runtime::Failpoint;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::places::FAREWELL;
use super::serve::{Activity, UnderWay};
use super::stream_reader::Taken;
use super::{Client, Cut, Format, Place, Sent, Standing, Stream, StreamReader};
use thalweg_codec::stream_framing::StreamCutter;

/// The largest number of cuts of a connection that may wait for their answers. Above it, the connection is
/// not read.
const MAX_WAITING: usize = 256;

/// When the sender of messages gets its answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Respond {
    /// When the messages are delivered and, with `--state`, covered by a saved checkpoint.
    #[default]
    Delivered,
    /// When the messages have been received. They are lost if the program is killed before it delivers them.
    Received,
}

/// Answers from a server, for the client of a source `proxy`.
pub type Answers = mpsc::UnboundedReceiver<Bytes>;

/// The options that all connections of a source share.
#[derive(Debug, Clone)]
pub struct Connection {
    /// The largest message, in bytes.
    pub limit: ByteSize,
    /// How long a client may take for a message, from its first byte. Time in which the source does not read
    /// does not count.
    pub read_timeout: Duration,
    /// How long a client may send nothing between messages, after its last data and the last answer.
    pub idle_timeout: Option<Duration>,
    /// With messages of several lines: the time without a new line after which a message is complete.
    pub quiet: Option<Duration>,
    /// The text written to the client for each message, and when it is written.
    pub acknowledge: Option<(Bytes, Respond)>,
    /// How long a client may take to accept an answer.
    pub write_timeout: Duration,
}

/// Such a connection ends once nothing arrives for this time.
const LULL: Duration = Duration::from_millis(100);

/// The reason if an answer cannot be written.
const UNANSWERED: &str = "it could not be answered";

/// Why a connection ended.
enum End {
    /// No more messages are read. Pending answers are written first.
    Done,
    /// The connection is unusable: pending answers cannot be written.
    Broken,
}

/// The messages of one cut, which are answered together.
struct Unanswered {
    /// Their batches that are not known to be safe.
    unsettled: Vec<Settled>,
    /// The number of messages, rejected ones included.
    messages: usize,
    /// True if one of them has content.
    has_content: bool,
}

/// An open connection.
struct Talk<'a, F> {
    options: &'a Connection,
    stream: Stream,
    peer: Arc<str>,
    format: F,
    reader: StreamReader,
    /// The messages to be answered, those of each cut together.
    waiting: VecDeque<Unanswered>,
    answers: Option<Answers>,
    activity: Activity,
    place: Place,
    /// When the connection lost its place.
    displaced: Option<Instant>,
    begun: Instant,
    /// When a message with content last came or was answered.
    last_message: Option<Instant>,
    /// When data last arrived.
    last_data: Instant,
    /// When an answer was last written.
    last_answer: Instant,
    /// True if the lines held back have been sent since data last arrived.
    was_quiet: bool,
    /// Held in the middle of a message, and while answers are due.
    under_way: Option<UnderWay>,
}

impl Connection {
    /// Serves a client until it disconnects or the run stops. A problem of this one client is not an error.
    ///
    /// # Errors
    /// If messages cannot be sent on.
    pub async fn run<F: Format>(
        &self,
        client: Client,
        partitioner: StreamCutter,
        format: F,
        answers: Option<Answers>,
        mut out: SourceOutput,
    ) -> Result<(), Error> {
        let reader = StreamReader::new(partitioner, self.limit, out.batch_bytes(), out.share().clone());
        let Client { stream, name: peer, activity, place } = client;
        let begun = Instant::now();
        let mut talk = Talk {
            options: self,
            stream,
            peer,
            format,
            reader,
            waiting: VecDeque::new(),
            answers,
            activity,
            place,
            displaced: None,
            begun,
            last_message: None,
            last_data: begun,
            last_answer: begun,
            was_quiet: true,
            under_way: None,
        };
        let end = talk.read(&mut out).await?;
        // Downstream stages end only when all source outputs are dropped. Some settle their batches only
        // then.
        drop(out);
        if let End::Done = end {
            talk.close().await;
        }
        Ok(())
    }
}

/// The next event of a connection.
enum Event {
    Stop,
    /// The oldest unanswered messages are safe; or `None` if one of their batches failed.
    Settled(Option<Unanswered>),
    Answer(Bytes),
    Ready(io::Result<()>),
    /// The lines held back are complete.
    Quiet,
    /// The client has sent nothing for too long, or did not complete its message.
    Silent,
    /// Other connections need the memory of the incomplete message.
    Dropped,
    /// Another client needs the place of this connection.
    Displaced,
    /// A connection that lost its place has been read to its end for now.
    Drained,
}

impl<F: Format> Talk<'_, F> {
    async fn read(&mut self, out: &mut SourceOutput) -> Result<End, Error> {
        loop {
            let (before, was_read) = (Instant::now(), self.is_read());
            let event = self.event(out).await;
            // A source that waits for the budget or the pipeline is not idle: it would end with messages that
            // it has read, or that wait in the system.
            let _busy = self.activity.under_way();
            // Until the next event the source does not read either.
            let excused = if was_read { Instant::now() } else { before };
            if let Some(end) = self.handle(event, out).await? {
                return Ok(end);
            }
            self.reader.excuse(excused.elapsed());
        }
    }

    /// Handles an event. Returns the end of the connection if it ends now.
    async fn handle(&mut self, event: Event, out: &mut SourceOutput) -> Result<Option<End>, Error> {
        let answered = match event {
            Event::Stop => {
                self.reject_rest("the run was stopped", out).await?;
                return Ok(Some(End::Done));
            }
            Event::Settled(safe) => self.answer(safe).await,
            Event::Answer(answer) => self.write(&answer).await,
            Event::Quiet => {
                self.was_quiet = true;
                let taken = self.reader.quiet();
                return self.send_taken(taken, out).await;
            }
            Event::Silent => return self.end(End::Done, "nothing more arrived in time", out).await.map(Some),
            Event::Displaced => {
                self.displaced = Some(Instant::now());
                return Ok(None);
            }
            Event::Drained => {
                return self.end(End::Done, "another client needed its place", out).await.map(Some);
            }
            Event::Dropped => return self.end(End::Done, Incomplete::REASON, out).await.map(Some),
            Event::Ready(ready) => match self.take(ready).await {
                Ok(taken) => return self.send_taken(taken, out).await,
                Err(error) => {
                    let reason = format!("the connection broke ({error})");
                    return self.end(End::Broken, &reason, out).await.map(Some);
                }
            },
        };
        match answered {
            true => Ok(None),
            false => self.end(End::Broken, UNANSWERED, out).await.map(Some),
        }
    }

    /// False if too many cuts wait for their answers.
    fn is_read(&self) -> bool {
        self.waiting.len() < MAX_WAITING
    }

    /// Returns when the client has been silent for too long, and what that means.
    fn silent_at(&self) -> Option<(Instant, Event)> {
        if !self.is_read() {
            return None;
        }
        let Some(since) = self.reader.since() else {
            // A client that waits for an answer, or has just received one, is not idle.
            let idle = self.options.idle_timeout.filter(|_| self.waiting.is_empty())?;
            return Some((self.last_data.max(self.last_answer) + idle, Event::Silent));
        };
        let end = since + self.options.read_timeout;
        let quiet = self.options.quiet.filter(|_| !self.was_quiet).map(|quiet| self.last_data + quiet);
        Some(match quiet {
            Some(quiet) if quiet < end => (quiet, Event::Quiet),
            _ => (end, Event::Silent),
        })
    }

    /// Waits for the next event.
    async fn event(&mut self, out: &SourceOutput) -> Event {
        let is_within = self.reader.since().is_some();
        self.under_way = match is_within || !self.waiting.is_empty() {
            false => None,
            true => self.under_way.take().or_else(|| Some(self.activity.under_way())),
        };
        self.place.set(self.standing(is_within));
        let (is_read, silent) = (self.is_read(), self.silent_at());
        let drained = self.drained_at().map(|time| (time, Event::Drained));
        tokio::select! {
            biased;
            () = out.stopping() => Event::Stop,
            safe = first(&mut self.waiting) => Event::Settled(safe),
            answer = next(&mut self.answers) => Event::Answer(answer),
            () = self.reader.dropped() => Event::Dropped,
            () = self.place.closing() => Event::Displaced,
            event = at(drained) => event,
            ready = self.reader.ready(&self.stream), if is_read => Event::Ready(ready),
            event = at(silent) => event,
        }
    }

    /// Returns how much the connection needs its place.
    fn standing(&self, is_within: bool) -> Standing {
        let since = self.last_message.unwrap_or(self.begun);
        let has_spoken = self.last_message.is_some();
        // A server behind a proxy may still answer.
        match !self.waiting.is_empty() || self.answers.is_some() {
            true => Standing::Busy { since },
            false => Standing::Silent { since, has_spoken, is_within },
        }
    }

    /// Returns when the connection ends, if it lost its place: nothing more arrives, or too much does.
    fn drained_at(&self) -> Option<Instant> {
        let displaced = self.displaced?;
        let lull = if self.is_read() { self.last_data.max(displaced) + LULL } else { displaced };
        Some(lull.min(displaced + FAREWELL))
    }

    /// Reads the data that has arrived.
    async fn take(&mut self, ready: io::Result<()>) -> io::Result<Taken> {
        ready?;
        let taken = self.reader.read(&mut self.stream, self.options.read_timeout).await;
        (self.last_data, self.was_quiet) = (Instant::now(), false);
        self.activity.note();
        taken
    }

    /// Sends the messages of a read. Returns the end of the connection if it ends now.
    async fn send_taken(&mut self, mut taken: Taken, out: &mut SourceOutput) -> Result<Option<End>, Error> {
        loop {
            match taken {
                Taken::Nothing => {}
                Taken::NoRoom(reason) => return self.end(End::Done, reason, out).await.map(Some),
                Taken::Cut(cut) => {
                    if !self.send(cut, out).await? {
                        return self.end(End::Broken, UNANSWERED, out).await.map(Some);
                    }
                }
                Taken::End(None) => return Ok(Some(End::Done)),
                Taken::End(Some(cut)) => {
                    let answered = self.send(cut, out).await?;
                    return Ok(Some(if answered { End::Done } else { End::Broken }));
                }
            }
            taken = match self.reader.next_cut() {
                Some(next) => next,
                None => return Ok(None),
            };
        }
    }

    /// Ends the connection for this reason. The part of a message that was read is rejected.
    async fn end(&mut self, end: End, reason: &str, out: &mut SourceOutput) -> Result<End, Error> {
        tracing::debug!("`{}`: {}: {reason}", out.name(), self.peer);
        self.reject_rest(reason, out).await?;
        Ok(end)
    }

    /// Sends messages. Returns false if the client was to be answered at once and could not be.
    async fn send(&mut self, cut: Cut, out: &mut SourceOutput) -> Result<bool, Error> {
        let at_once = matches!(self.options.acknowledge, Some((_, Respond::Received)));
        let is_answered = self.answers.is_some() || self.options.acknowledge.is_some();
        let (mut messages, mut unsettled) = (0, Vec::<Settled>::new());
        let has_content = cut.has_content();
        if has_content {
            self.last_message = Some(Instant::now());
        }
        let note = |sent: Sent| {
            messages += sent.messages;
            unsettled.extend(sent.settled);
        };
        cut.send(&mut self.format, &self.peer, is_answered && !at_once, out, note).await?;
        if at_once {
            return Ok(self.acknowledge(messages).await);
        }
        if !unsettled.is_empty() {
            self.waiting.push_back(Unanswered { unsettled, messages, has_content });
        }
        Ok(true)
    }

    /// Answers messages that are safe. Returns false if the connection must be closed.
    async fn answer(&mut self, safe: Option<Unanswered>) -> bool {
        let Some(safe) = safe else {
            // Without an acknowledgement, the client knows that it has to resend the messages.
            tracing::debug!("{}: its messages failed; the connection is closed", self.peer);
            return false;
        };
        if safe.has_content {
            self.last_message = Some(Instant::now());
        }
        self.acknowledge(safe.messages).await
    }

    async fn acknowledge(&mut self, count: usize) -> bool {
        let Some((text, _)) = &self.options.acknowledge else { return true };
        let text = text.repeat(count);
        Failpoint::AnswerBefore.pass();
        let is_written = self.write(&text).await;
        Failpoint::AnswerAfter.pass();
        is_written
    }

    async fn write(&mut self, bytes: &[u8]) -> bool {
        match self.stream.write_within(bytes, self.options.write_timeout).await {
            Ok(()) => {
                self.last_answer = Instant::now();
                true
            }
            Err(error) => {
                tracing::debug!("{}: cannot write an answer: {error}", self.peer);
                false
            }
        }
    }

    async fn reject_rest(&mut self, reason: &str, out: &mut SourceOutput) -> Result<(), Error> {
        match self.reader.abandon(reason) {
            Some(cut) => cut.send(&mut self.format, &self.peer, false, out, |_| {}).await,
            None => Ok(()),
        }
    }

    /// Writes the answers that are still due, then closes the connection.
    async fn close(mut self) {
        while !self.waiting.is_empty() {
            let event = tokio::select! {
                biased;
                safe = first(&mut self.waiting) => Event::Settled(safe),
                answer = next(&mut self.answers) => Event::Answer(answer),
            };
            let goes_on = match event {
                Event::Settled(safe) => self.answer(safe).await,
                Event::Answer(answer) => self.write(&answer).await,
                _ => true,
            };
            if !goes_on {
                return;
            }
        }
        while let Some(answer) = self.answers.as_mut().and_then(|answers| answers.try_recv().ok()) {
            if !self.write(&answer).await {
                return;
            }
        }
        // The client may have disconnected already.
        let _ = tokio::time::timeout(self.options.write_timeout, self.stream.shutdown()).await;
    }
}

/// Waits until all batches of the oldest unanswered messages are settled, and removes these messages from
/// `waiting`. Returns them, or `None` as soon as one of the batches failed. Dropping the future loses
/// nothing: it changes `waiting` only while it is polled.
async fn first(waiting: &mut VecDeque<Unanswered>) -> Option<Unanswered> {
    poll_fn(|context| {
        let Some(oldest) = waiting.front_mut() else { return Poll::Pending };
        let mut has_failed = false;
        // All are polled at once, so that those that wait for a saved checkpoint share it.
        oldest.unsettled.retain_mut(|settled| match Pin::new(settled).poll(context) {
            Poll::Ready(settlement) => {
                has_failed |= !settlement.outcome.is_safe();
                false
            }
            Poll::Pending => true,
        });
        if !has_failed && !oldest.unsettled.is_empty() {
            return Poll::Pending;
        }
        Poll::Ready(waiting.pop_front().filter(|_| !has_failed))
    })
    .await
}

async fn next(answers: &mut Option<Answers>) -> Bytes {
    let answer = match answers {
        Some(answers) => answers.recv().await,
        None => None,
    };
    match answer {
        Some(answer) => answer,
        None => pending().await,
    }
}

/// Waits for an event that is due at a time.
async fn at(due: Option<(Instant, Event)>) -> Event {
    match due {
        Some((time, event)) => {
            sleep_until(time).await;
            event
        }
        None => pending().await,
    }
}

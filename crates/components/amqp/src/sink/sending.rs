//! A batch on its way: frames are written while confirmations are read.

use std::pin::pin;
use std::time::{Duration, Instant};

use thalweg_engine::Error;

use super::outgoing::{Bound, Content};
use super::pending::{Confirmed, Pending};
use crate::connection::Connection;
use crate::wire::{self, Close, Confirmation, Event, Method, PublishTo};

/// About how many bytes are written at once. A message may be written in several pieces.
pub(super) const CHUNK: usize = 64 << 10;
/// How long the sink waits for a confirmation before it looks at the time.
const LOOK: Duration = Duration::from_millis(100);
/// The pause after a message that the server could not take now.
const PAUSE: Duration = Duration::from_millis(200);

/// How a batch is sent.
pub(super) struct Options<'a> {
    pub(super) exchange: &'a str,
    /// True to get messages back that no queue takes.
    pub(super) is_mandatory: bool,
    /// The most messages that may be without a confirmation.
    pub(super) most: usize,
    /// How long the server may be without progress.
    pub(super) timeout: Duration,
}

/// Why a batch was not sent as a whole.
pub(super) enum Failure {
    /// The server takes nothing for now. The connection stays.
    Blocked(Error),
    /// The server has closed the channel because of a message. Another channel goes on.
    Refused,
    /// The connection is of no use any more.
    Broken(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Broken(error)
    }
}

/// A batch that is sent over a connection.
pub(super) struct Sending<'a> {
    options: Options<'a>,
    /// The number of messages that may be without a confirmation now.
    window: &'a mut usize,
    bound: Bound<'a>,
    pending: &'a mut Pending,
    connection: &'a mut Connection,
    /// Frames that are not written yet.
    out: Vec<u8>,
    /// The part of the last message's payload that has no frames yet.
    rest: &'a [u8],
    /// The answer to a server that starts or stops the flow of messages: true for active.
    flow: Option<bool>,
    progress: Instant,
    pause_until: Option<Instant>,
    /// True if the server could not take a message since the last progress.
    was_late: bool,
}

impl<'a> Sending<'a> {
    pub(super) fn new(
        options: Options<'a>,
        connection: &'a mut Connection,
        bound: Bound<'a>,
        pending: &'a mut Pending,
        window: &'a mut usize,
    ) -> Self {
        let (out, progress) = (Vec::new(), Instant::now());
        Self {
            options,
            window,
            bound,
            pending,
            connection,
            out,
            rest: &[],
            flow: None,
            progress,
            pause_until: None,
            was_late: false,
        }
    }

    /// Sends all messages, and waits for the confirmations.
    ///
    /// # Errors
    /// If the connection breaks, or some messages are not confirmed in time.
    pub(super) async fn send(&mut self) -> Result<(), Failure> {
        // The server may have said something since the last batch.
        self.take_all(Duration::ZERO).await?;
        loop {
            let has_more = self.fill();
            self.write().await?;
            if self.pending.is_done() && self.rest.is_empty() {
                return Ok(());
            }
            // While there is more to send, only confirmations that have arrived are taken.
            self.take_all(if has_more { Duration::ZERO } else { LOOK }).await?;
            self.check_time()?;
        }
    }

    /// Writes the frames, and takes events meanwhile: a server may read nothing before its own frames are
    /// read, such as a large message that it returns.
    async fn write(&mut self) -> Result<(), Failure> {
        let (out, writer) = (std::mem::take(&mut self.out), self.connection.writer.clone());
        {
            let mut writing = pin!(writer.write(&out));
            loop {
                tokio::select! {
                    biased;
                    written = &mut writing => {
                        written?;
                        break;
                    }
                    event = self.connection.reader.next(LOOK) => {
                        if let Some(event) = event? {
                            self.take(event)?;
                        }
                    }
                }
            }
        }
        self.out = out;
        self.out.clear();
        // A message is confirmed only when all of it was written, which may take longer than the timeout.
        if !self.rest.is_empty() && self.connection.reader.blocked().is_none() {
            self.progress = Instant::now();
        }
        Ok(())
    }

    /// Makes frames of the next messages. Returns true if there may be more.
    fn fill(&mut self) -> bool {
        self.fill_rest();
        // Nothing may come between the frames of a message.
        if self.rest.is_empty()
            && let Some(is_active) = self.flow.take()
        {
            wire::flow_ok(is_active, &mut self.out);
        }
        // A message that was begun is written to its end in any case.
        let is_held = self.connection.reader.blocked().is_some()
            || self.pause_until.is_some_and(|until| Instant::now() < until);
        while !is_held && self.out.len() < CHUNK {
            let Some(row) = self.pending.next(self.options.most.min(*self.window)) else { return false };
            self.begin(row);
            self.fill_rest();
        }
        !is_held || !self.rest.is_empty()
    }

    /// Makes the first frames of a message.
    fn begin(&mut self, row: usize) {
        let payload = self.bound.payload(row);
        let Options { exchange, is_mandatory, .. } = self.options;
        match self.bound.message(row) {
            Ok(message) => {
                let content = is_mandatory.then(|| Content::of(message, payload));
                let routing_key = message.routing_key;
                wire::publish(PublishTo { exchange, routing_key, is_mandatory }, &mut self.out);
                wire::header(payload.len(), message.properties, &mut self.out);
                self.rest = payload;
                self.pending.sent(row, content);
            }
            Err(reason) => self.pending.refuse(row, reason),
        }
    }

    /// Makes frames of what is left of a payload, as far as there is room.
    fn fill_rest(&mut self) {
        while !self.rest.is_empty() && self.out.len() < CHUNK {
            // Each frame has no more than the server takes, and no more than is written at once.
            let count = self.rest.len().min(self.connection.part).min(CHUNK);
            let (part, rest) = self.rest.split_at(count);
            wire::body(part, &mut self.out);
            self.rest = rest;
        }
    }

    /// Takes the events of the server, and waits at most `wait` for the first one.
    async fn take_all(&mut self, mut wait: Duration) -> Result<(), Failure> {
        while let Some(event) = self.connection.reader.next(wait).await? {
            self.take(event)?;
            wait = Duration::ZERO;
            // A server may send frames without end that confirm nothing.
            if self.is_late() {
                break;
            }
        }
        Ok(())
    }

    fn take(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Method(Method::Ack(confirmation)) => self.confirm(confirmation, true),
            Event::Method(Method::Nack(confirmation)) => self.confirm(confirmation, false),
            Event::Method(Method::ChannelClose(close)) => return Err(self.closed(close)),
            Event::Method(Method::Flow(is_active)) => self.flow = Some(is_active),
            Event::Returned(message) => {
                let content = Content::of_returned(&message);
                if !self.pending.returned(content, &message.reason) {
                    // Its confirmation would make it a message that was taken.
                    let error = Error::temporary("the server returns a message that was not sent");
                    return Err(error.caused_by(message.reason).into());
                }
            }
            // The channel has no consumer.
            Event::Method(_) | Event::Delivery(_) | Event::Heartbeat => {}
        }
        Ok(())
    }

    fn confirm(&mut self, confirmation: Confirmation, is_taken: bool) {
        match self.pending.confirm(confirmation, is_taken) {
            Confirmed::Progress => {
                (self.progress, self.was_late) = (Instant::now(), false);
                *self.window = self.window.saturating_mul(2);
            }
            Confirmed::Later => {
                self.pause_until = Some(Instant::now() + PAUSE.mul_f64(0.5 + fastrand::f64()));
                self.was_late = true;
            }
            Confirmed::Unknown => {}
        }
    }

    /// Finds the message because of which the server has closed the channel.
    fn closed(&mut self, close: Close) -> Failure {
        if close.concerns_message() && (self.pending.refuse_only(&close) || *self.window > 1) {
            *self.window = 1;
            return Failure::Refused;
        }
        Failure::Broken(Error::temporary("the server has closed the channel").caused_by(close))
    }

    fn is_late(&self) -> bool {
        self.progress.elapsed() >= self.options.timeout
    }

    fn check_time(&mut self) -> Result<(), Failure> {
        if !self.is_late() {
            return Ok(());
        }
        let (missing, seconds) = (self.pending.missing(), self.options.timeout.as_secs_f64());
        let error = Error::overloaded(format!("{missing} messages were not confirmed within {seconds} s"));
        if let Some(reason) = self.connection.reader.blocked() {
            let error = error.caused_by(format!("the server takes no messages for now: {reason}"));
            // A message that was written in part cannot be continued by another call.
            return Err(if self.rest.is_empty() { Failure::Blocked(error) } else { Failure::Broken(error) });
        }
        Err(Failure::Broken(match self.was_late {
            true => error.caused_by("a queue refuses messages, for example because it is full"),
            false => error,
        }))
    }
}

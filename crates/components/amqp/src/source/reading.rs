//! The messages of one connection: read, and sent on.
//!
//! One task reads and waits for memory and the pipelines, so that messages which find no room stay with the
//! server. A second one acknowledges: [`Acknowledgements`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use thalweg_broker::keeping::{Kept, joined};
use thalweg_engine::{Error, Source, SourceOutput};
use thalweg_stream::unacknowledged;
use tokio::sync::mpsc;

use super::acknowledgements::{Acknowledgements, Sent};
use super::messages::{Incoming, Messages};
use super::queues::{self, Question, Unprepared, Waiting};
use super::unacknowledged::Unacknowledged;
use super::{AmqpSource, MOST};
use crate::connection::{self, Connection, Failed, Reader, Writer};
use crate::wire::{Delivery, Event, Method};

/// How long the source waits for messages before it looks whether it is to end.
const POLL: Duration = Duration::from_millis(100);

/// Reads the queues of a server.
pub(super) struct Queues {
    pub(super) config: AmqpSource,
    pub(super) messages: Messages,
    /// The size of the messages that are read before they are sent on.
    pub(super) read_bytes: usize,
    /// How many messages the server may send without an acknowledgement.
    pub(super) prefetch: usize,
    /// True if the server has let the source read the queues in this run. A later refusal may end by itself:
    /// a queue is not there while its node is down.
    pub(super) was_ready: bool,
    /// True once nothing more is sent on: what is left is to acknowledge.
    pub(super) has_ended: bool,
}

#[async_trait]
impl Source for Queues {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        match self.connected(out).await {
            // Nothing can be acknowledged over another connection.
            Err(error) if self.has_ended => {
                tracing::warn!(
                    "`{}`: the server delivers its last messages again: they could not be acknowledged: {}",
                    out.name(),
                    error.full()
                );
                Ok(())
            }
            ended => ended,
        }
    }
}

impl Queues {
    /// Reads over one connection, and acknowledges.
    async fn connected(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let prefetch = queues::prefetch_of_each(&self.config, self.prefetch);
        let mut connection = tokio::select! {
            connection = self.connect(prefetch) => connection?,
            // A server that does not answer takes no acknowledgements either.
            () = out.stopping() => return Ok(()),
        };
        let writer = connection.writer.clone();
        queues::consume(&self.config, &writer).await?;
        // Messages that were read, and those before them that are being sent on.
        let _read = out.claim(self.read_bytes * 2);
        let mut positions = out.clone();
        positions.end();
        let (tell, news) = mpsc::unbounded_channel();
        let open = Arc::new(Mutex::new(Unacknowledged::default()));
        let mut acknowledgements = Acknowledgements::new(open.clone(), &self.config);
        let kept = Kept::default();
        let reading = Reading {
            config: &self.config,
            messages: &self.messages,
            read_bytes: self.read_bytes,
            prefetch,
            consumers: 0,
            was_ready: &mut self.was_ready,
            has_ended: &mut self.has_ended,
            question: None,
            asked: None,
            open: &open,
            writer: &writer,
            kept: &kept,
            tell: Some(tell),
        };
        let keeping = acknowledgements.keep(&writer, &positions, news);
        joined(reading.run(&mut connection.reader, out), keeping, &kept).await?;
        connection.close().await;
        Ok(())
    }

    async fn connect(&self, prefetch: u16) -> Result<Connection, Error> {
        // One byte more shows that a message is too large.
        let payload_limit = self.config.max_message_bytes.as_usize().saturating_add(1);
        let opened = Connection::open(&self.config.servers, payload_limit).await;
        let mut connection = match self.was_ready {
            true => opened.map_err(connection::temporary)?,
            false => opened?,
        };
        match queues::prepare(&self.config, prefetch, &mut connection).await {
            Ok(()) => Ok(connection),
            Err(Unprepared { failed, message }) if self.was_ready => Err(failed.into_temporary(message)),
            Err(Unprepared { failed, message }) => Err(failed.into_error(message)),
        }
    }
}

/// Reads the messages of a connection.
struct Reading<'a> {
    config: &'a AmqpSource,
    messages: &'a Messages,
    read_bytes: usize,
    /// The messages that each consumer may have without an acknowledgement.
    prefetch: u16,
    /// The number of consumers that the server has accepted.
    consumers: usize,
    was_ready: &'a mut bool,
    has_ended: &'a mut bool,
    question: Option<Question>,
    /// When the last question was asked.
    asked: Option<Instant>,
    open: &'a Mutex<Unacknowledged>,
    writer: &'a Writer,
    kept: &'a Kept,
    /// None once nothing more is sent on.
    tell: Option<mpsc::UnboundedSender<Sent>>,
}

impl Reading<'_> {
    /// Reads until the source is to end, and all is acknowledged.
    async fn run(mut self, reader: &mut Reader, out: &mut SourceOutput) -> Result<(), Error> {
        self.read(reader, out).await?;
        // Some messages are settled only when the input has ended.
        out.end();
        *self.has_ended = true;
        self.tell = None;
        queues::cancel(self.config, self.writer).await?;
        // Messages that come meanwhile return to their queues with the end of the channel.
        while !self.kept.has_ended() {
            if let Some(event) = reader.next(POLL).await? {
                self.take(event)?;
            }
        }
        Ok(())
    }

    /// Reads until the source is to end. Messages that were not sent on return to their queue.
    async fn read(&mut self, reader: &mut Reader, out: &mut SourceOutput) -> Result<(), Error> {
        let (mut incoming, mut active, mut bytes) = (Vec::new(), Instant::now(), 0_usize);
        while !out.is_stopping() {
            if self.kept.has_failed() {
                return Err(Error::temporary("the connection cannot be written to"));
            }
            // Messages that have arrived leave together.
            let wait = if incoming.is_empty() { POLL } else { Duration::ZERO };
            match reader.next(wait).await? {
                Some(event) => {
                    if let Some(new) = self.take(event)? {
                        active = Instant::now();
                        bytes = bytes.saturating_add(new.bytes());
                        incoming.push(new);
                    }
                }
                None if incoming.is_empty() => {}
                None => bytes = usize::MAX,
            }
            if bytes >= self.read_bytes || incoming.len() >= MOST {
                self.send(std::mem::take(&mut incoming), out).await?;
                (active, bytes) = (Instant::now(), 0);
            }
            if incoming.is_empty() && self.is_over(active, out).await? {
                break;
            }
        }
        self.send(incoming, out).await
    }

    /// True if the source is to end, since the server has nothing for it.
    async fn is_over(&mut self, active: Instant, out: &SourceOutput) -> Result<bool, Error> {
        let Some(idle) = self.config.end_after_idle else { return Ok(false) };
        let Some(mut question) = self.question else {
            let is_due = self.asked.is_none_or(|asked| asked.elapsed() >= POLL);
            if is_due && self.is_ready() && active.elapsed() >= idle.duration() {
                self.asked = Some(Instant::now());
                let are_returning = self.open.lock().are_returning();
                let mut question = Question::ask(self.config, self.writer).await?;
                if are_returning {
                    question.spoil();
                }
                self.question = Some(question);
            }
            return Ok(false);
        };
        question.go_on(self.prefetch, self.writer).await?;
        self.question = Some(question);
        let Some(waiting) = question.answer() else { return Ok(false) };
        self.question = None;
        if waiting == Waiting::None && !self.open.lock().are_returning() {
            return Ok(active.elapsed() >= idle.duration());
        }
        // A server that waits for acknowledgements delivers nothing. Some messages are settled after a
        // checkpoint, and others only when the input has ended. Not for ever: the source would wait for
        // settlements, and they for the end of the source.
        out.save_soon();
        Ok(active.elapsed() >= unacknowledged::stalled_after(idle))
    }

    /// True if the server has accepted all consumers.
    fn is_ready(&self) -> bool {
        self.consumers == self.config.queues.len()
    }

    /// Takes an event. Returns a message that is to be sent on.
    fn take(&mut self, event: Event) -> Result<Option<Incoming>, Error> {
        match event {
            Event::Delivery(message) if self.tell.is_some() => return self.arrive(message).map(Some),
            // It returns to its queue.
            Event::Delivery(_) => {}
            Event::Method(Method::ConsumeOk) => {
                self.consumers += 1;
                *self.was_ready |= self.is_ready();
            }
            Event::Method(Method::ChannelClose(close)) => {
                let (failed, message) = (Failed::Refused(close), "the server has closed the channel");
                // Another consumer may be that of a run which was killed a moment ago.
                return Err(match *self.was_ready || self.config.exclusive {
                    true => failed.into_temporary(message),
                    false => failed.into_error(message),
                });
            }
            // At its end the source has ended its consumers itself, and only acknowledges.
            Event::Method(Method::Cancel(tag)) if self.tell.is_some() => {
                let queue = self.place(&tag).and_then(|place| self.config.queues.get(place));
                let name = queue.map_or(tag.as_str(), String::as_str);
                return Err(Error::temporary(format!(
                    "the server has ended the consumer of the queue `{name}`, which may be deleted"
                )));
            }
            Event::Method(method) => {
                if let Some(question) = &mut self.question {
                    question.answered(&method);
                }
            }
            Event::Returned(_) | Event::Heartbeat => {}
        }
        Ok(None)
    }

    /// Returns the place of the queue of a consumer.
    fn place(&self, tag: &str) -> Option<usize> {
        tag.parse().ok().filter(|place| *place < self.config.queues.len())
    }

    fn arrive(&mut self, message: Delivery) -> Result<Incoming, Error> {
        let queue = self.place(&message.consumer);
        let queue = queue.ok_or_else(|| Error::temporary("the server has sent a message for no consumer"))?;
        if let Some(question) = &mut self.question {
            question.spoil();
        }
        let mut open = self.open.lock();
        if open.len() >= usize::from(self.prefetch).saturating_mul(self.config.queues.len()) {
            return Err(Error::temporary("the server sends more messages than it may (`prefetch`)"));
        }
        if !open.arrive(message.tag) {
            return Err(Error::temporary("the server has sent messages whose numbers do not grow"));
        }
        Ok(Incoming { message, queue })
    }

    /// Sends messages on, as many as the source may.
    async fn send(&self, incoming: Vec<Incoming>, out: &mut SourceOutput) -> Result<(), Error> {
        let mut rest = &incoming[..];
        while !rest.is_empty() && out.left() > 0 {
            let count = self.messages.batch(rest, out.batch_bytes()).min(out.next_rows());
            let (batch, after) = rest.split_at(count);
            self.send_batch(batch, out).await?;
            rest = after;
        }
        Ok(())
    }

    async fn send_batch(&self, batch: &[Incoming], out: &mut SourceOutput) -> Result<(), Error> {
        let received = self.messages.received(batch, out).await?;
        let tags: Vec<u64> = batch.iter().map(|incoming| incoming.message.tag).collect();
        let settled = match self.messages.rejected(batch) {
            None => out.send_acked(received).await?,
            Some(reason) => out.reject_acked(received, vec![reason]).await?,
        };
        if let Some(tell) = &self.tell {
            // The other task ends after this one.
            let _ = tell.send(Sent { tags, settled });
        }
        Ok(())
    }
}

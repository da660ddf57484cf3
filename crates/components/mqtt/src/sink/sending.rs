//! A batch on its way: packets are written while answers are read.

use std::time::{Duration, Instant};

use thalweg_engine::Error;

use super::outgoing::Bound;
use super::pending::{Answered, Pending, Step};
use crate::connection::Connection;
use crate::wire::{self, AckKind, Packet, Qos, Reason};

/// About how many bytes are written at once.
pub(super) const CHUNK: usize = 64 << 10;
/// The largest packet of the protocol, in bytes.
const LARGEST: usize = 268_435_455;
/// How long the sink waits for an answer before it looks at the time.
const LOOK: Duration = Duration::from_millis(100);
/// The pause after a message that the server could not take now.
const PAUSE: Duration = Duration::from_millis(200);

/// How a batch is sent.
pub(super) struct Options {
    /// The most messages that the options and the server allow to be without an answer.
    pub(super) most: usize,
    pub(super) qos: Qos,
    /// How long the server may be without progress.
    pub(super) timeout: Duration,
}

/// A batch that is sent over a connection.
pub(super) struct Sending<'a> {
    options: Options,
    /// The number of messages that may be without an answer now.
    window: &'a mut usize,
    bound: Bound<'a>,
    pending: &'a mut Pending,
    connection: &'a mut Connection,
    /// Packets that are not written yet.
    out: Vec<u8>,
    progress: Instant,
    pause_until: Option<Instant>,
    /// Why a message is to be sent again.
    reason: Option<Reason>,
}

impl<'a> Sending<'a> {
    pub(super) fn new(
        options: Options,
        connection: &'a mut Connection,
        bound: Bound<'a>,
        pending: &'a mut Pending,
        window: &'a mut usize,
    ) -> Self {
        let (out, progress, pause_until, reason) = (Vec::new(), Instant::now(), None, None);
        Self { options, window, bound, pending, connection, out, progress, pause_until, reason }
    }

    /// Sends all messages, and waits for the answers.
    ///
    /// # Errors
    /// If the connection breaks, or some messages have no answer in time.
    pub(super) async fn send(&mut self) -> Result<(), Error> {
        loop {
            let has_more = self.fill();
            self.connection.writer.write(&self.out).await?;
            self.out.clear();
            if self.pending.is_done() {
                break;
            }
            // While there is more to send, only answers that have arrived are taken.
            let mut wait = if has_more { Duration::ZERO } else { LOOK };
            while let Some(packet) = self.connection.reader.next(wait).await? {
                self.take(&packet);
                wait = Duration::ZERO;
                // A server may send packets without end that answer nothing.
                if self.is_late() {
                    break;
                }
            }
            self.check_time()?;
        }
        match self.options.qos {
            Qos::AtMostOnce => self.round_trip().await,
            Qos::AtLeastOnce | Qos::ExactlyOnce => Ok(()),
        }
    }

    /// Makes packets of the next messages. Returns true if there may be more.
    fn fill(&mut self) -> bool {
        if self.pause_until.is_some_and(|until| Instant::now() < until) {
            return false;
        }
        let version = self.connection.writer.version;
        let largest = self.connection.limits.packet.min(LARGEST);
        while self.out.len() < CHUNK {
            match self.pending.next(self.options.qos, self.options.most.min(*self.window)) {
                None => return false,
                Some(Step::Release(id)) => self.release(id),
                Some(Step::Message(row, id, is_duplicate)) => match self.bound.message(row, largest) {
                    Ok(message) => wire::publish(version, &message, id, is_duplicate, &mut self.out),
                    Err(reason) => self.pending.refuse(row, reason),
                },
            }
        }
        true
    }

    fn release(&mut self, id: u16) {
        wire::ack(self.connection.writer.version, AckKind::PubRel, id, Reason::SUCCESS, &mut self.out);
    }

    /// Takes a packet of the server.
    fn take(&mut self, packet: &Packet) {
        let answered = match packet {
            Packet::PubAck(ack) => self.pending.answer(AckKind::PubAck, ack),
            Packet::PubRec(ack) => self.pending.answer(AckKind::PubRec, ack),
            Packet::PubComp(ack) => self.pending.answer(AckKind::PubComp, ack),
            // The session has no subscription.
            _ => return,
        };
        match answered {
            Answered::Progress => self.note_progress(),
            Answered::Release(id) => {
                self.note_progress();
                self.release(id);
            }
            Answered::Later(reason) => {
                self.pause_until = Some(Instant::now() + PAUSE.mul_f64(0.5 + fastrand::f64()));
                self.reason = Some(reason);
            }
            Answered::Unknown => {}
        }
    }

    fn note_progress(&mut self) {
        self.progress = Instant::now();
        *self.window = self.window.saturating_mul(2);
    }

    fn is_late(&self) -> bool {
        self.progress.elapsed() >= self.options.timeout
    }

    fn check_time(&mut self) -> Result<(), Error> {
        if !self.is_late() {
            return Ok(());
        }
        let (missing, seconds) = (self.pending.missing(), self.options.timeout.as_secs_f64());
        let error = Error::overloaded(format!("{missing} messages were not confirmed within {seconds} s"));
        Err(match self.reason.take() {
            Some(reason) => error.caused_by(reason.to_string()),
            None => error,
        })
    }

    /// Waits until the server has taken all that was written.
    async fn round_trip(&mut self) -> Result<(), Error> {
        let number = self.connection.writer.ask().await?;
        let begun = Instant::now();
        while !self.connection.reader.has_answered(number) {
            self.connection.reader.next(LOOK).await?;
            if begun.elapsed() >= self.options.timeout {
                let seconds = self.options.timeout.as_secs_f64();
                return Err(Error::overloaded(format!(
                    "the server did not take messages within {seconds} s"
                )));
            }
        }
        Ok(())
    }
}

//! The messages of a batch on their way to a stream.
//!
//! After a temporary error, the engine calls the sink with the same batch. Messages that the stream has
//! confirmed are not sent again then. The others are, under the same id: the stream keeps one of them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use thalweg_broker::outcomes::{self, Outcomes};
use thalweg_engine::Error;
use thalweg_record::{Batch, Lease};

use super::answer::Answer;
use super::link::Link;
use super::outgoing::{Bound, Rows};
use crate::connection::NotSent;

/// How long the sink waits for an answer before it looks at the connection.
const LOOK: Duration = Duration::from_millis(100);
/// The pause after a message that the stream could not take now.
const PAUSE: Duration = Duration::from_millis(200);

type Row = outcomes::Row<()>;

/// The limits of a sink.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// The number of messages without an answer.
    pub(super) pending: usize,
    /// How long the server may be without progress.
    pub(super) timeout: Duration,
}

/// The messages of a batch.
#[derive(Default)]
pub(super) struct Storing {
    /// A message on its way has been sent over the present connection.
    rows: Outcomes<()>,
    /// The number of the first message. Numbers are not used again.
    first: u64,
    /// The ids of messages begin with it, so that they differ from those of other runs.
    nonce: u64,
    /// No message before this one is unsent.
    next: usize,
    /// The messages without an answer.
    waiting: usize,
    /// The connection over which they were sent.
    epoch: u64,
    pause_until: Option<Instant>,
    /// Why a message is to be sent again.
    reason: Option<String>,
    missing: Missing,
}

impl Storing {
    pub(super) fn new() -> Self {
        Self { nonce: fastrand::u64(..), ..Self::default() }
    }

    /// Begins a batch, or continues it if it is the same as before.
    pub(super) fn begin(&mut self, batch: &Batch, claim: impl FnOnce() -> Lease) {
        if self.rows.are_of_another(batch) {
            self.finish();
            self.rows.begin(batch, claim());
        }
    }

    /// The number of messages of the batch that were stored or refused.
    pub(super) fn settled(&self) -> usize {
        self.rows.settled()
    }

    /// Refuses all messages of the batch without an outcome.
    pub(super) fn refuse_rest(&mut self, reason: &str) {
        self.rows.refuse_rest(reason);
    }

    /// Ends the batch. Returns the refused rows in order.
    pub(super) fn finish(&mut self) -> Vec<(u32, String)> {
        self.first += self.rows.len() as u64;
        (self.next, self.waiting) = (0, 0);
        (self.reason, self.pause_until) = (None, None);
        self.rows.finish()
    }

    /// Sends all messages of the batch, and waits for the answers.
    ///
    /// # Errors
    /// If some have no answer, or are to be sent again, or the client has ended.
    pub(super) async fn send(
        &mut self,
        link: &mut Link,
        rows: &mut Rows,
        batch: &Batch,
        limits: Limits,
    ) -> Result<(), Error> {
        let has_one_subject = rows.has_one_subject();
        let mut bound = rows.bind(batch);
        let mut progress = Instant::now();
        loop {
            if link.connection.is_lost() {
                return Err(link.connection.lost());
            }
            self.look(link.connection.epoch());
            self.fill(link, &mut bound, limits).await?;
            if self.waiting == 0 && self.next == self.rows.len() {
                return Ok(());
            }
            let mut wait = LOOK;
            while let Some((number, message)) = link.answer(wait).await {
                if self.note(number, Answer::of(&message), &mut bound, has_one_subject) {
                    progress = Instant::now();
                }
                // A server may send answers without an end.
                if progress.elapsed() >= limits.timeout {
                    break;
                }
                wait = Duration::ZERO;
            }
            for subject in link.connection.take_forbidden() {
                // If all messages have the subject, its right is missing, and they wait for it.
                if !has_one_subject && self.forbid(&subject, &mut bound) {
                    progress = Instant::now();
                }
            }
            if progress.elapsed() >= limits.timeout {
                return Err(self.unanswered(link, limits));
            }
        }
    }

    /// Messages without an answer are sent again over a new connection: the earlier one may have lost them.
    fn look(&mut self, epoch: u64) {
        if std::mem::replace(&mut self.epoch, epoch) != epoch {
            self.send_again();
        }
    }

    /// Sends all messages again that have no answer.
    pub(super) fn send_again(&mut self) {
        self.rows.iter_mut().filter(|row| **row == Row::Underway(())).for_each(|row| *row = Row::Unsent);
        (self.next, self.waiting) = (0, 0);
    }

    /// Sends messages in order, as many as may be without an answer.
    async fn fill(&mut self, link: &Link, bound: &mut Bound<'_>, limits: Limits) -> Result<(), Error> {
        if self.pause_until.is_some_and(|until| Instant::now() < until) || !link.connection.is_connected() {
            return Ok(());
        }
        while self.waiting < limits.pending
            && let Some(row) = self.rows.get_mut(self.next)
        {
            if *row == Row::Unsent {
                let number = self.first + self.next as u64;
                let id = format!("{:016x}-{number}", self.nonce);
                let sent = match bound.message(self.next, Some(id)) {
                    Ok(message) => link.send(&message, Some(number), LOOK).await,
                    Err(reason) => Err(NotSent::Refused(reason)),
                };
                match sent {
                    Ok(()) => {
                        *row = Row::Underway(());
                        self.waiting += 1;
                    }
                    Err(NotSent::Refused(reason)) => *row = Row::Refused(reason),
                    Err(NotSent::Blocked) => return Ok(()),
                    Err(NotSent::Lost(_)) => return Err(link.connection.lost()),
                }
            }
            self.next += 1;
        }
        Ok(())
    }

    /// Notes an answer. Returns true if a message has its outcome.
    fn note(&mut self, number: u64, answer: Answer, bound: &mut Bound<'_>, has_one_subject: bool) -> bool {
        let place = number.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        // An answer may be that of an earlier batch.
        let Some(place) = place.filter(|place| *place < self.rows.len()) else { return false };
        let is_waiting = self.rows[place] == Row::Underway(());
        match answer {
            // Also to a message that is to be sent again.
            Answer::Stored => {
                self.missing.remove(bound, place);
                self.settle(place, Row::Done)
            }
            Answer::Refused(reason) => self.settle(place, Row::Refused(reason)),
            _ if !is_waiting => false,
            Answer::Later(reason) => self.later(place, reason),
            Answer::NoStream => {
                let subject = bound.subject(place).ok().filter(|_| !has_one_subject);
                match subject.and_then(|subject| self.missing.add(&subject)) {
                    Some(reason) => self.settle(place, Row::Refused(reason)),
                    None => self.later(place, "no stream has the subject of the messages".to_owned()),
                }
            }
        }
    }

    /// Notes the outcome of a message. Returns true if that is progress.
    fn settle(&mut self, place: usize, outcome: Row) -> bool {
        let row = &mut self.rows[place];
        // A message that was sent twice may be refused the second time.
        if *row == Row::Done {
            return false;
        }
        if std::mem::replace(row, outcome) == Row::Underway(()) {
            self.waiting -= 1;
        }
        true
    }

    /// Refuses the messages on their way to a subject that the server forbids: no answer comes. Returns true
    /// if there are any.
    fn forbid(&mut self, subject: &str, bound: &mut Bound<'_>) -> bool {
        let mut are_any = false;
        for place in 0..self.rows.len() {
            if self.rows[place] == Row::Underway(())
                && bound.subject(place).is_ok_and(|found| found == subject)
            {
                let reason = format!("the server does not let the user send to `{subject}`");
                are_any |= self.settle(place, Row::Refused(reason));
            }
        }
        are_any
    }

    /// Sends a message again after a pause. Returns false: that is no progress.
    fn later(&mut self, place: usize, reason: String) -> bool {
        self.rows[place] = Row::Unsent;
        self.waiting -= 1;
        self.next = self.next.min(place);
        self.pause_until = Some(Instant::now() + PAUSE.mul_f64(0.5 + fastrand::f64()));
        self.reason = Some(reason);
        false
    }

    /// Returns the error of a batch whose messages have no answers in time. They are sent again: a server
    /// that failed may have forgotten them, although the connection is the same.
    fn unanswered(&mut self, link: &Link, limits: Limits) -> Error {
        let missing = self.rows.missing();
        self.send_again();
        let seconds = limits.timeout.as_secs_f64();
        let error = Error::overloaded(format!("{missing} messages were not confirmed within {seconds} s"));
        match self.reason.take() {
            Some(reason) => error.caused_by(reason),
            None => link.connection.explained(error),
        }
    }
}

/// The subjects that no stream has. While a server starts, no stream has any.
#[derive(Default)]
struct Missing(HashMap<String, (Instant, Instant)>);

impl Missing {
    /// How long a subject must be missing before its messages are refused.
    const GRACE: Duration = Duration::from_secs(10);
    /// A subject that was not used for this time may have got a stream.
    const VALID: Duration = Duration::from_secs(60);
    const MOST: usize = 1000;

    /// Notes that a subject is missing. Returns the reason to refuse its messages, if it is so for long.
    fn add(&mut self, subject: &str) -> Option<String> {
        if self.0.len() >= Self::MOST {
            self.0.retain(|_, (_, last)| last.elapsed() < Self::VALID / 2);
        }
        if self.0.len() >= Self::MOST {
            self.0.clear();
        }
        let now = Instant::now();
        let (first, last) = self.0.entry(subject.to_owned()).or_insert((now, now));
        if last.elapsed() >= Self::VALID {
            *first = now;
        }
        *last = now;
        (first.elapsed() >= Self::GRACE).then(|| format!("no stream has the subject `{subject}`"))
    }

    /// Notes that the subject of a message has a stream: it was missing for a moment only.
    fn remove(&mut self, bound: &mut Bound<'_>, row: usize) {
        if !self.0.is_empty()
            && let Ok(subject) = bound.subject(row)
        {
            self.0.remove(&subject);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::NatsSink;
    use thalweg_engine::testing::{batch, context, options};

    /// Returns a message without an answer, whose subject was first missing `missing` ago.
    fn sent(batch: &Batch, missing: Duration) -> Storing {
        let mut storing = Storing::new();
        storing.begin(batch, || context().memory.claim(1));
        (storing.rows[0], storing.next, storing.waiting) = (Row::Underway(()), 1, 1);
        let now = Instant::now();
        storing.missing.0.insert("s".to_owned(), (now.checked_sub(missing).unwrap(), now));
        storing
    }

    #[test]
    fn a_subject_that_had_a_stream_meanwhile_is_not_missing_for_long() {
        let batch = batch(["a"]);
        let mut rows = Rows::new(&options::<NatsSink>("{ servers: h, subject: s }"));
        let mut bound = rows.bind(&batch);
        let mut storing = sent(&batch, Missing::GRACE);
        assert!(storing.note(0, Answer::NoStream, &mut bound, false));
        assert_eq!(storing.finish(), [(0, "no stream has the subject `s`".to_owned())]);
        let mut storing = sent(&batch, Missing::GRACE);
        storing.missing.remove(&mut bound, 0);
        assert!(!storing.note(0, Answer::NoStream, &mut bound, false));
        assert_eq!((storing.rows[0].clone(), storing.waiting, storing.next), (Row::Unsent, 0, 0));
    }

    #[test]
    fn a_message_to_a_forbidden_subject_is_refused_and_others_are_not() {
        let batch = batch(["a"]);
        let mut rows = Rows::new(&options::<NatsSink>("{ servers: h, subject: s }"));
        let mut bound = rows.bind(&batch);
        let mut storing = sent(&batch, Duration::ZERO);
        assert!(!storing.forbid("t", &mut bound));
        assert!(storing.forbid("s", &mut bound) && !storing.forbid("s", &mut bound));
        assert_eq!(storing.waiting, 0);
        assert_eq!(storing.finish(), [(0, "the server does not let the user send to `s`".to_owned())]);
    }

    #[test]
    fn a_message_that_is_stored_stays_so() {
        let batch = batch(["a"]);
        let mut rows = Rows::new(&options::<NatsSink>("{ servers: h, subject: s }"));
        let mut bound = rows.bind(&batch);
        let mut storing = sent(&batch, Duration::ZERO);
        assert!(storing.note(0, Answer::Stored, &mut bound, false));
        assert!(storing.missing.0.is_empty());
        assert!(!storing.note(0, Answer::Refused("no".to_owned()), &mut bound, false));
        assert!(!storing.note(0, Answer::NoStream, &mut bound, false));
        assert_eq!((storing.waiting, storing.finish()), (0, vec![]));
    }
}

//! The state that a client and the task of its connection share.
//!
//! A message is written into memory that belongs to one connection, and is lost with it: none is sent over
//! another connection than that of its [epoch](Shared::epoch). While there is no connection, or the server
//! does not take what is to be written, senders wait.
//!
//! A server takes what a connection brings in order. So its answer to a question whether it is there also
//! says that it has taken all messages before the question.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::mpsc::error::SendError;
use tokio::sync::mpsc::{self, UnboundedSender};

use super::NotSent;
use super::subscriber::{Room, Subscriber};
use crate::wire::{self, Info, Message, Operation, Publication};

/// The bytes that may wait to be written. A message that finds less there is added as a whole.
const OUTPUT: usize = 64 << 10;
/// The number of questions without an answer after which the server is taken for lost.
const UNANSWERED: u32 = 2;
/// The beginning of the error of a server that refuses a subscription, and of one that refuses a message. The
/// subject follows in quotation marks.
const REFUSED: &str = "permissions violation for subscription";
const FORBIDDEN: &str = "permissions violation for publish to ";
/// The most subjects of refused messages that are kept.
const MOST_FORBIDDEN: usize = 100;

/// The events that the server reports beside messages.
#[derive(Debug, Default, Clone)]
pub(crate) struct Notices {
    /// The number of errors that the server reported, and the last of them.
    pub(crate) errors: u64,
    pub(crate) last: Option<String>,
    /// How often a subscription was full, so that a message was dropped.
    dropped: u64,
    /// Why the server refused a subscription, if it has refused one.
    refused: Option<String>,
}

impl Notices {
    fn add(&mut self, error: String) {
        self.errors += 1;
        if after(&error, REFUSED).is_some() {
            self.refused = Some(error.clone());
        }
        self.last = Some(error);
    }
}

/// Returns the rest of an error that begins with a text, in any case.
fn after<'a>(error: &'a str, begin: &str) -> Option<&'a str> {
    let (found, rest) = error.split_at_checked(begin.len())?;
    found.eq_ignore_ascii_case(begin).then_some(rest)
}

/// The state of a client.
#[derive(Default)]
struct State {
    /// The bytes to write over the present connection. None while there is none.
    output: Option<Vec<u8>>,
    /// True if the server waits for the answer whether the client is there.
    owes_pong: bool,
    /// True while bytes of the connection are being written. A question would wait behind them.
    is_writing: bool,
    /// The number of such questions to the server over this connection, and of its answers.
    asked: u64,
    answered: u64,
    /// The error that the server reported last, if it has sent nothing else since.
    parting: Option<String>,
    epoch: u64,
    /// The largest message that the server takes.
    max_payload: usize,
    /// The servers that the last server has named.
    learned: Vec<String>,
    subscriptions: HashMap<u64, Subscription>,
    /// The number of the last subscription.
    last: u64,
    notices: Notices,
    /// The subjects of messages that the server refused, until they are taken.
    forbidden: Vec<String>,
    /// Why there is no connection at the moment.
    outage: Option<String>,
    /// True if the client was dropped.
    is_closing: bool,
    /// Why there will be no connection any more.
    ended: Option<String>,
}

struct Subscription {
    subject: String,
    group: Option<String>,
    queue: UnboundedSender<Message>,
    room: Arc<Room>,
}

/// The part of a client that its task shares.
#[derive(Default)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Tells the task that there is something to write.
    output: Notify,
    /// Tells the task that the client was dropped.
    closing: Notify,
    /// Tells senders that they may send, or never will.
    room: Notify,
    /// Tells those who asked the server that it has answered, or never will.
    answer: Notify,
    /// The number of questions since the server sent something.
    unanswered: AtomicU32,
}

/// For the client.
impl Shared {
    pub(super) fn epoch(&self) -> u64 {
        self.state.lock().epoch
    }

    pub(super) fn is_connected(&self) -> bool {
        self.state.lock().output.is_some()
    }

    pub(super) fn notices(&self) -> Notices {
        self.state.lock().notices.clone()
    }

    /// Returns how many messages were dropped because a subscription was full.
    pub(super) fn dropped(&self) -> u64 {
        self.state.lock().notices.dropped
    }

    /// Returns why the server refused a subscription, if it has refused one.
    pub(super) fn refused(&self) -> Option<String> {
        self.state.lock().notices.refused.clone()
    }

    /// Takes the subjects of messages that the server refused since the last call, as far as it named them.
    pub(super) fn take_forbidden(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().forbidden)
    }

    /// Returns what explains a failure: why there is no connection, or else the last error of the server.
    pub(super) fn explanation(&self) -> Option<String> {
        let state = self.state.lock();
        let State { ended, outage, notices, .. } = &*state;
        [ended, outage, &notices.last].into_iter().flatten().next().cloned()
    }

    /// Returns why there will be no connection any more.
    pub(super) fn ended(&self) -> Option<String> {
        self.state.lock().ended.clone()
    }

    /// Waits until a message can be written, and does so. `over` is the epoch of the only connection over
    /// which it may be sent, if there is one.
    pub(super) async fn publish(&self, message: &Publication<'_>, over: Option<u64>) -> Result<(), NotSent> {
        loop {
            let mut room = pin!(self.room.notified());
            room.as_mut().enable();
            if let Some(published) = self.try_publish(message, over) {
                return published;
            }
            room.await;
        }
    }

    /// Writes a message. Returns `None` if that has to wait.
    fn try_publish(&self, message: &Publication<'_>, over: Option<u64>) -> Option<Result<(), NotSent>> {
        if let Some(mistake) = message.mistake() {
            return Some(Err(NotSent::Refused(mistake)));
        }
        let mut state = self.state.lock();
        if let Some(reason) = &state.ended {
            return Some(Err(NotSent::Lost(reason.clone())));
        }
        if over.is_some_and(|epoch| !state.is_over(epoch)) {
            return Some(Err(NotSent::Blocked));
        }
        let (size, most) = (message.size(), state.max_payload);
        let output = state.output.as_mut()?;
        if size > most {
            let reason = format!("the message has {size} bytes, more than the server takes ({most})");
            return Some(Err(NotSent::Refused(reason)));
        }
        if output.len() >= OUTPUT {
            return None;
        }
        wire::publish(output, message);
        drop(state);
        self.output.notify_one();
        Some(Ok(()))
    }

    /// Asks the server whether it is there, and waits for the answer. Returns false if the connection breaks
    /// before it comes.
    pub(super) async fn round_trip(&self) -> bool {
        let (epoch, number) = {
            let mut state = self.state.lock();
            if !state.ask() {
                return false;
            }
            (state.epoch, state.asked)
        };
        self.output.notify_one();
        loop {
            let mut answer = pin!(self.answer.notified());
            answer.as_mut().enable();
            let (is_over, answered) = {
                let state = self.state.lock();
                (state.is_over(epoch), state.answered)
            };
            if !is_over || answered >= number {
                return is_over;
            }
            answer.await;
        }
    }

    /// Subscribes to a subject, over this connection and later ones.
    pub(super) fn subscribe(
        self: &Arc<Self>,
        subject: &str,
        group: Option<&str>,
        room: &Arc<Room>,
    ) -> Subscriber {
        let (tell, queue) = mpsc::unbounded_channel();
        let mut state = self.state.lock();
        state.last += 1;
        let number = state.last;
        if state.ended.is_none() {
            if let Some(output) = &mut state.output {
                wire::subscribe(output, number, subject, group);
            }
            let subscription = Subscription {
                subject: subject.to_owned(),
                group: group.map(str::to_owned),
                queue: tell,
                room: room.clone(),
            };
            state.subscriptions.insert(number, subscription);
        }
        drop(state);
        self.output.notify_one();
        Subscriber { number, queue, room: room.clone(), shared: self.clone() }
    }

    pub(super) fn unsubscribe(&self, number: u64) {
        let mut state = self.state.lock();
        if state.subscriptions.remove(&number).is_some()
            && let Some(output) = &mut state.output
        {
            wire::unsubscribe(output, number);
            drop(state);
            self.output.notify_one();
        }
    }

    /// Ends the client, after what is to be written was written.
    pub(super) fn close(&self) {
        self.state.lock().is_closing = true;
        self.closing.notify_one();
        self.output.notify_one();
    }
}

/// For the task.
impl Shared {
    /// Begins a connection, with all subscriptions.
    pub(super) fn connected(&self, info: &Info) {
        let mut state = self.state.lock();
        let mut output = Vec::new();
        for (number, Subscription { subject, group, .. }) in &state.subscriptions {
            wire::subscribe(&mut output, *number, subject, group.as_deref());
        }
        state.output = Some(output);
        (state.owes_pong, state.is_writing) = (false, false);
        (state.asked, state.answered, state.parting) = (0, 0, None);
        state.epoch += 1;
        state.outage = None;
        state.learn(info);
        drop(state);
        self.unanswered.store(0, Relaxed);
        self.output.notify_one();
        self.wake();
    }

    /// Ends a connection, with what was not written.
    pub(super) fn disconnected(&self, reason: &str) {
        let mut state = self.state.lock();
        state.output = None;
        // A server says why it closes a connection.
        state.outage = Some(match state.parting.take() {
            Some(error) => format!("{error} ({reason})"),
            None => reason.to_owned(),
        });
        drop(state);
        self.wake();
    }

    /// Wakes all that wait for the connection, or for another one.
    fn wake(&self) {
        self.room.notify_waiters();
        self.answer.notify_waiters();
    }

    /// Ends the client for good. The first reason counts.
    pub(super) fn end(&self, reason: &str) {
        let mut state = self.state.lock();
        state.output = None;
        state.ended.get_or_insert_with(|| reason.to_owned());
        state.subscriptions.clear();
        drop(state);
        self.wake();
    }

    pub(super) fn learned(&self) -> Vec<String> {
        self.state.lock().learned.clone()
    }

    /// Takes what the server has sent.
    pub(super) fn take(&self, operation: Operation) {
        let mut state = self.state.lock();
        state.parting = None;
        match operation {
            Operation::Message(number, message) => {
                let State { subscriptions, notices, .. } = &mut *state;
                // A message of a subscription that has ended may still arrive.
                let Some(subscription) = subscriptions.get(&number) else { return };
                if !subscription.room.enter(&message) {
                    notices.dropped += 1;
                } else if let Err(SendError(message)) = subscription.queue.send(message) {
                    // The subscriber is being dropped.
                    subscription.room.leave(&message);
                }
            }
            Operation::Info(info) => state.learn(&info),
            Operation::Error(error) => {
                state.parting = Some(error.clone());
                state.forbid(&error);
                state.notices.add(error);
            }
            // One answer is for all questions that wait for it, so that they need no memory.
            Operation::Ping => {
                state.owes_pong = true;
                drop(state);
                self.output.notify_one();
            }
            Operation::Pong => {
                state.answered = state.asked.min(state.answered + 1);
                drop(state);
                self.answer.notify_waiters();
            }
            Operation::Ok => {}
        }
    }

    /// Notes that the server has sent something.
    pub(super) fn heard(&self) {
        self.unanswered.store(0, Relaxed);
    }

    /// Asks the server whether it is there, unless that would wait behind what is being written, for which
    /// there is another limit. Returns false if the server has not answered for long.
    pub(super) fn ask(&self) -> bool {
        let mut state = self.state.lock();
        if state.is_writing {
            return true;
        }
        if self.unanswered.fetch_add(1, Relaxed) >= UNANSWERED {
            return false;
        }
        state.ask();
        drop(state);
        self.output.notify_one();
        true
    }

    /// Exchanges what is to be written with an empty buffer. The bytes taken before have been written.
    pub(super) fn take_output(&self, into: &mut Vec<u8>) {
        let mut state = self.state.lock();
        let State { output, owes_pong, is_writing, .. } = &mut *state;
        if let Some(output) = output {
            std::mem::swap(output, into);
            if std::mem::take(owes_pong) {
                into.extend_from_slice(wire::PONG);
            }
        }
        *is_writing = !into.is_empty();
        drop(state);
        self.room.notify_waiters();
    }

    /// Waits until there may be something to write.
    pub(super) async fn output(&self) {
        self.output.notified().await;
    }

    pub(super) fn is_closing(&self) -> bool {
        self.state.lock().is_closing
    }

    /// Waits until the client is dropped.
    pub(super) async fn closing(&self) {
        while !self.is_closing() {
            self.closing.notified().await;
        }
    }
}

impl State {
    /// True if the present connection is that of the epoch.
    fn is_over(&self, epoch: u64) -> bool {
        self.output.is_some() && self.epoch == epoch
    }

    /// Writes the question whether the server is there. Returns false if there is no connection.
    fn ask(&mut self) -> bool {
        let Some(output) = &mut self.output else { return false };
        output.extend_from_slice(wire::PING);
        self.asked += 1;
        true
    }

    /// Notes the subject of a message that the server refused, if the error is about one.
    fn forbid(&mut self, error: &str) {
        let subject = after(error, FORBIDDEN).and_then(|rest| rest.strip_prefix('"')?.strip_suffix('"'));
        // A subject with other characters is written in another way.
        let Some(subject) = subject.filter(|subject| !subject.contains('\\')) else { return };
        if self.forbidden.len() < MOST_FORBIDDEN && !self.forbidden.iter().any(|known| known == subject) {
            self.forbidden.push(subject.to_owned());
        }
    }

    fn learn(&mut self, info: &Info) {
        self.learned.clone_from(&info.connect_urls);
        self.max_payload = match info.max_payload {
            ..=0 => usize::MAX,
            most => usize::try_from(most).unwrap_or(usize::MAX),
        };
    }
}

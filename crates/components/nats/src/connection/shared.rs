//! The state that a client and the task of its connection share.
//!
//! A message is written into memory that belongs to one connection, and is lost with it: none is sent over
//! another connection than that of its [epoch](Shared::epoch). While there is no connection, or the server
//! does not take what is to be written, senders wait.

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

/// The events that the server reports beside messages.
#[derive(Debug, Default, Clone)]
pub(crate) struct Notices {
    /// The number of errors that the server reported, and the last of them.
    pub(crate) errors: u64,
    pub(crate) last: Option<String>,
    /// How often a subscription was full, so that a message was dropped.
    pub(crate) dropped: u64,
}

/// The state of a client.
#[derive(Default)]
struct State {
    /// The bytes to write over the present connection. None while there is none.
    output: Option<Vec<u8>>,
    /// True if the server waits for the answer whether the client is there.
    owes_pong: bool,
    epoch: u64,
    /// The largest message that the server takes.
    max_payload: usize,
    /// The servers that the last server has named.
    learned: Vec<String>,
    subscriptions: HashMap<u64, Subscription>,
    /// The number of the last subscription.
    last: u64,
    notices: Notices,
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

    /// Waits until a message can be written, and does so.
    pub(super) async fn publish(&self, message: &Publication<'_>) -> Result<(), NotSent> {
        loop {
            let mut room = pin!(self.room.notified());
            room.as_mut().enable();
            if let Some(published) = self.try_publish(message) {
                return published;
            }
            room.await;
        }
    }

    /// Writes a message. Returns `None` if that has to wait.
    fn try_publish(&self, message: &Publication<'_>) -> Option<Result<(), NotSent>> {
        if !message.is_writable() {
            return Some(Err(NotSent::Refused("a subject has spaces".to_owned())));
        }
        let mut state = self.state.lock();
        if let Some(reason) = &state.ended {
            return Some(Err(NotSent::Lost(reason.clone())));
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
        state.owes_pong = false;
        state.epoch += 1;
        state.outage = None;
        state.learn(info);
        drop(state);
        self.unanswered.store(0, Relaxed);
        self.output.notify_one();
        self.room.notify_waiters();
    }

    /// Ends a connection, with what was not written.
    pub(super) fn disconnected(&self, reason: &str) {
        let mut state = self.state.lock();
        state.output = None;
        state.outage = Some(reason.to_owned());
    }

    /// Ends the client for good. The first reason counts.
    pub(super) fn end(&self, reason: &str) {
        let mut state = self.state.lock();
        state.output = None;
        state.ended.get_or_insert_with(|| reason.to_owned());
        state.subscriptions.clear();
        drop(state);
        self.room.notify_waiters();
    }

    pub(super) fn learned(&self) -> Vec<String> {
        self.state.lock().learned.clone()
    }

    /// Takes what the server has sent.
    pub(super) fn take(&self, operation: Operation) {
        let mut state = self.state.lock();
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
                state.notices.errors += 1;
                state.notices.last = Some(error);
            }
            // One answer is for all questions that wait for it, so that they need no memory.
            Operation::Ping => {
                state.owes_pong = true;
                drop(state);
                self.output.notify_one();
            }
            Operation::Pong | Operation::Ok => {}
        }
    }

    /// Notes that the server has sent something.
    pub(super) fn heard(&self) {
        self.unanswered.store(0, Relaxed);
    }

    /// Asks the server whether it is there. Returns false if it has not answered for long.
    pub(super) fn ask(&self) -> bool {
        if self.unanswered.fetch_add(1, Relaxed) >= UNANSWERED {
            return false;
        }
        if let Some(output) = &mut self.state.lock().output {
            output.extend_from_slice(wire::PING);
        }
        self.output.notify_one();
        true
    }

    /// Exchanges what is to be written with an empty buffer.
    pub(super) fn take_output(&self, into: &mut Vec<u8>) {
        let mut state = self.state.lock();
        let State { output, owes_pong, .. } = &mut *state;
        if let Some(output) = output {
            std::mem::swap(output, into);
            if std::mem::take(owes_pong) {
                into.extend_from_slice(wire::PONG);
            }
        }
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
    fn learn(&mut self, info: &Info) {
        self.learned.clone_from(&info.connect_urls);
        self.max_payload = match info.max_payload {
            ..=0 => usize::MAX,
            most => usize::try_from(most).unwrap_or(usize::MAX),
        };
    }
}

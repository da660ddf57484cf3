//! A subscription, and the messages that wait to be taken from it.
//!
//! The connection goes on reading however full a subscription is, because answers to other questions are
//! behind its messages. So there is room for some messages and bytes, and further messages are dropped.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use futures_util::Stream;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::mpsc::error::TryRecvError;

use super::shared::Shared;
use crate::wire::Message;

/// The room for messages that wait to be taken. Several subscriptions may share it.
#[derive(Debug)]
pub(crate) struct Room {
    messages: AtomicUsize,
    bytes: AtomicUsize,
    most_messages: usize,
    most_bytes: usize,
}

impl Room {
    /// Has room for this many messages and bytes. A message that finds some room may be larger than it.
    pub(crate) fn new(most_messages: usize, most_bytes: usize) -> Arc<Self> {
        let (messages, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { messages, bytes, most_messages, most_bytes })
    }

    /// Makes room for a message. Returns false if there is none. Only one task calls it.
    pub(super) fn enter(&self, message: &Message) -> bool {
        let has_room =
            self.messages.load(Relaxed) < self.most_messages && self.bytes.load(Relaxed) < self.most_bytes;
        if has_room {
            self.messages.fetch_add(1, Relaxed);
            self.bytes.fetch_add(message.length(), Relaxed);
        }
        has_room
    }

    pub(super) fn leave(&self, message: &Message) {
        self.messages.fetch_sub(1, Relaxed);
        self.bytes.fetch_sub(message.length(), Relaxed);
    }
}

/// The messages of a subscription. Dropping it ends the subscription. It ends by itself with the client.
pub(crate) struct Subscriber {
    pub(super) number: u64,
    pub(super) queue: UnboundedReceiver<Message>,
    pub(super) room: Arc<Room>,
    pub(super) shared: Arc<Shared>,
}

impl Subscriber {
    /// Returns the next message if it has arrived. The inner option is `None` if the subscription has ended.
    pub(crate) fn arrived(&mut self) -> Option<Option<Message>> {
        match self.queue.try_recv() {
            Ok(message) => {
                self.room.leave(&message);
                Some(Some(message))
            }
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(None),
        }
    }
}

impl Stream for Subscriber {
    type Item = Message;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Message>> {
        let this = self.get_mut();
        let next = this.queue.poll_recv(context);
        if let Poll::Ready(Some(message)) = &next {
            this.room.leave(message);
        }
        next
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        // The messages that are left make room for the other subscriptions.
        self.queue.close();
        while self.arrived().is_some_and(|message| message.is_some()) {}
        self.shared.unsubscribe(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Headers;

    fn message(size: usize) -> Message {
        Message {
            subject: "s".into(),
            reply: None,
            headers: Headers::default(),
            headers_size: 0,
            payload: vec![0; size].into(),
            size,
        }
    }

    #[test]
    fn a_message_finds_room_until_the_messages_or_the_bytes_are_too_many() {
        let room = Room::new(3, 10);
        let (small, large) = (message(1), message(100));
        assert!(room.enter(&small) && room.enter(&large) && !room.enter(&small));
        room.leave(&large);
        assert!(room.enter(&small) && room.enter(&small) && !room.enter(&small));
    }
}

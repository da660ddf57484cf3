//! The messages that the server has sent and that are not acknowledged.
//!
//! The protocol wants acknowledgements in the order of the messages, so one that is settled early waits for
//! those before it. When a connection breaks, the server sends all messages again that are not acknowledged,
//! under the same numbers, if it still has the session. A message that is on its way through the pipelines is
//! then not sent on a second time.
//!
//! A message of QoS 2 has one step more: its number belongs to it until the server releases it. It is known
//! again until then, also if it was acknowledged.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::wire::{AckKind, Qos, Reason};

/// The meaning of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The message is to be sent on. It has this key from now on.
    New(u64),
    /// The message is on its way already.
    OnItsWay,
    /// The message was settled, but its acknowledgement was lost.
    Settled,
}

/// The messages of one session.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    /// Those of the present connection, in order.
    open: VecDeque<Open>,
    /// The place in `open` of the first message, counted from the first of all.
    first: u64,
    /// Where each message is, by its key.
    places: HashMap<u64, Place>,
    /// Those of earlier connections that were sent on and that the server has not sent again yet, by number.
    earlier: HashMap<u16, Open>,
    /// The numbers of messages of QoS 2 that were acknowledged and not released.
    unreleased: HashSet<u16>,
    next_key: u64,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    /// In `open`, counted from the first of all.
    Open(u64),
    /// In `earlier`, under this number.
    Earlier(u16),
}

#[derive(Debug, Clone, Copy)]
struct Open {
    key: u64,
    id: u16,
    qos: Qos,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Received,
    Sent,
    Settled,
}

impl Deliveries {
    /// Begins a connection. `has_session` says whether the server knows what it sent over earlier ones.
    pub(super) fn begin(&mut self, has_session: bool) {
        let open = std::mem::take(&mut self.open);
        self.places.clear();
        if has_session {
            // A message that was not sent on is new when it comes again.
            let sent = open.into_iter().filter(|open| open.state != State::Received);
            self.earlier.extend(sent.map(|open| (open.id, open)));
            self.places.extend(self.earlier.values().map(|open| (open.key, Place::Earlier(open.id))));
        } else {
            self.earlier.clear();
            self.unreleased.clear();
        }
    }

    /// Notes a message with an acknowledgement.
    pub(super) fn arrive(&mut self, id: u16, qos: Qos, is_duplicate: bool) -> Arrival {
        if qos == Qos::ExactlyOnce && self.unreleased.contains(&id) {
            self.push(id, qos, State::Settled);
            return Arrival::Settled;
        }
        match self.earlier.remove(&id) {
            Some(known) if is_duplicate => {
                self.place(known);
                if known.state == State::Settled { Arrival::Settled } else { Arrival::OnItsWay }
            }
            other => {
                // The number is that of another message by now.
                if let Some(other) = other {
                    self.places.remove(&other.key);
                }
                Arrival::New(self.push(id, qos, State::Received))
            }
        }
    }

    fn push(&mut self, id: u16, qos: Qos, state: State) -> u64 {
        let key = self.next_key;
        self.next_key += 1;
        self.place(Open { key, id, qos, state });
        key
    }

    fn place(&mut self, open: Open) {
        self.places.insert(open.key, Place::Open(self.first + self.open.len() as u64));
        self.open.push_back(open);
    }

    fn find(&mut self, key: u64) -> Option<&mut Open> {
        match *self.places.get(&key)? {
            Place::Open(place) => self.open.get_mut(usize::try_from(place - self.first).ok()?),
            Place::Earlier(id) => self.earlier.get_mut(&id),
        }
    }

    /// Notes that messages were sent on.
    pub(super) fn send(&mut self, keys: &[u64]) {
        self.set(keys, State::Sent);
    }

    /// Notes that messages are settled.
    pub(super) fn settle(&mut self, keys: &[u64]) {
        self.set(keys, State::Settled);
    }

    /// Notes that messages failed: they are new when they come again.
    pub(super) fn fail(&mut self, keys: &[u64]) {
        self.set(keys, State::Received);
        let places = &mut self.places;
        self.earlier.retain(|_, open| {
            let is_known = open.state != State::Received;
            if !is_known {
                places.remove(&open.key);
            }
            is_known
        });
    }

    fn set(&mut self, keys: &[u64], state: State) {
        for key in keys {
            if let Some(open) = self.find(*key) {
                open.state = state;
            }
        }
    }

    /// Returns the acknowledgements that are due, in order.
    pub(super) fn take_due(&mut self) -> Vec<(AckKind, u16)> {
        let mut due = Vec::new();
        while let Some(open) = self.open.front().copied().filter(|open| open.state == State::Settled) {
            self.open.pop_front();
            self.places.remove(&open.key);
            self.first += 1;
            if open.qos == Qos::ExactlyOnce {
                self.unreleased.insert(open.id);
                due.push((AckKind::PubRec, open.id));
            } else {
                due.push((AckKind::PubAck, open.id));
            }
        }
        due
    }

    /// Notes that the server releases the number of a message. Returns the reason to answer.
    pub(super) fn release(&mut self, id: u16) -> u8 {
        if self.unreleased.remove(&id) { Reason::SUCCESS } else { Reason::PACKET_ID_UNKNOWN }
    }

    /// The number of messages of this connection without an acknowledgement.
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AckKind::{PubAck, PubRec};
    use Qos::{AtLeastOnce, ExactlyOnce};
    use proptest::prelude::*;

    fn new(deliveries: &mut Deliveries, id: u16, qos: Qos) -> u64 {
        let Arrival::New(key) = deliveries.arrive(id, qos, false) else { panic!() };
        deliveries.send(&[key]);
        key
    }

    #[test]
    fn acknowledgements_are_in_the_order_of_the_messages() {
        let mut deliveries = Deliveries::default();
        let keys: Vec<u64> = [(1, AtLeastOnce), (2, ExactlyOnce), (3, AtLeastOnce)]
            .map(|(id, qos)| new(&mut deliveries, id, qos))
            .to_vec();
        deliveries.settle(&keys[1..]);
        assert_eq!((deliveries.take_due(), deliveries.open()), (vec![], 3));
        deliveries.settle(&keys[..1]);
        assert_eq!(deliveries.take_due(), [(PubAck, 1), (PubRec, 2), (PubAck, 3)]);
        assert_eq!((deliveries.release(2), deliveries.release(2)), (0, 0x92));
    }

    #[test]
    fn a_message_that_comes_again_is_not_sent_on_again() {
        let mut deliveries = Deliveries::default();
        let keys = [1, 2, 3].map(|id| new(&mut deliveries, id, AtLeastOnce));
        let Arrival::New(_) = deliveries.arrive(4, AtLeastOnce, false) else { panic!() };
        deliveries.settle(&keys[1..2]);
        deliveries.begin(true);
        assert_eq!(deliveries.arrive(1, AtLeastOnce, true), Arrival::OnItsWay);
        assert_eq!(deliveries.arrive(2, AtLeastOnce, true), Arrival::Settled);
        // It was not sent on before, and the next one is another message with the number.
        assert!(matches!(deliveries.arrive(4, AtLeastOnce, true), Arrival::New(_)));
        let Arrival::New(other) = deliveries.arrive(3, AtLeastOnce, false) else { panic!() };
        deliveries.settle(&keys);
        assert_eq!((deliveries.take_due(), deliveries.open()), (vec![(PubAck, 1), (PubAck, 2)], 2));
        assert_ne!(other, keys[2]);
    }

    #[test]
    fn what_an_earlier_session_had_is_forgotten_with_it() {
        let mut deliveries = Deliveries::default();
        let keys = [1, 2].map(|id| new(&mut deliveries, id, ExactlyOnce));
        deliveries.settle(&keys[..1]);
        assert_eq!(deliveries.take_due(), [(PubRec, 1)]);
        deliveries.begin(false);
        assert!(matches!(deliveries.arrive(1, ExactlyOnce, true), Arrival::New(_)));
        deliveries.settle(&keys);
        assert!(deliveries.take_due().is_empty());
    }

    #[test]
    fn a_message_of_qos_2_is_known_until_it_is_released() {
        let mut deliveries = Deliveries::default();
        let key = new(&mut deliveries, 1, ExactlyOnce);
        deliveries.settle(&[key]);
        assert_eq!(deliveries.take_due(), [(PubRec, 1)]);
        deliveries.begin(true);
        assert_eq!(deliveries.arrive(1, ExactlyOnce, true), Arrival::Settled);
        assert_eq!(deliveries.take_due(), [(PubRec, 1)]);
        assert_eq!(deliveries.release(1), 0);
        assert!(matches!(deliveries.arrive(1, ExactlyOnce, false), Arrival::New(_)));
    }

    #[test]
    fn messages_that_failed_are_new_when_they_come_again() {
        let mut deliveries = Deliveries::default();
        let keys = [1, 2].map(|id| new(&mut deliveries, id, AtLeastOnce));
        deliveries.fail(&keys[..1]);
        deliveries.begin(true);
        assert!(matches!(deliveries.arrive(1, AtLeastOnce, true), Arrival::New(_)));
        deliveries.fail(&keys[1..]);
        assert!(matches!(deliveries.arrive(2, AtLeastOnce, true), Arrival::New(_)));
    }

    proptest! {
        /// In any order of settling, each message is acknowledged once, in order, and only after it is
        /// settled.
        #[test]
        fn each_is_acknowledged_once_and_in_order(order in Just((1..40_u16).collect::<Vec<_>>()).prop_shuffle()) {
            let mut deliveries = Deliveries::default();
            let keys: Vec<u64> = (1..40).map(|id| new(&mut deliveries, id, AtLeastOnce)).collect();
            let (mut settled, mut acknowledged) = (Vec::new(), Vec::new());
            for id in order {
                deliveries.settle(&[keys[usize::from(id) - 1]]);
                settled.push(id);
                for (_, id) in deliveries.take_due() {
                    prop_assert!(settled.contains(&id));
                    acknowledged.push(id);
                }
            }
            prop_assert_eq!(acknowledged, (1..40).collect::<Vec<u16>>());
        }
    }
}

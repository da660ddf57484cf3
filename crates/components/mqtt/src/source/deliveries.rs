//! The messages that the server has sent and that are not acknowledged.
//!
//! The protocol wants acknowledgements in the order of the messages, so one that is settled early waits for
//! those before it. When a connection breaks, the server sends all messages again that are not acknowledged,
//! under the same numbers, if it still has the session. A message that is on its way through the pipelines is
//! then not sent on a second time.
//!
//! A message of QoS 2 has one step more: its number belongs to it until the server releases it. It is known
//! again until then, also if it was acknowledged.
//!
//! A number alone does not name a message. A server drops messages that expire, or resumes from an older
//! state after a crash, and gives their numbers to others, of which it may have to send the first again too.
//! So the contents are compared: without that, a message would be acknowledged in place of another one.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::wire::{AckKind, Publish, Qos, Reason};

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
    /// The contents of those of the present connection, by number.
    present: HashMap<u16, u64>,
    /// The contents of messages of QoS 2 that were acknowledged and not released, by number.
    unreleased: HashMap<u16, u64>,
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
    content: u64,
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
        self.present.clear();
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
    pub(super) fn arrive(&mut self, message: &Publish) -> Arrival {
        let (id, qos, content) = (message.id, message.qos, content(message));
        let may_be_known = message.is_duplicate || qos == Qos::ExactlyOnce;
        if may_be_known && self.present.get(&id) == Some(&content) {
            return Arrival::OnItsWay;
        }
        if qos == Qos::ExactlyOnce && self.unreleased.get(&id) == Some(&content) {
            self.push(id, qos, content, State::Settled);
            return Arrival::Settled;
        }
        match self.earlier.remove(&id) {
            Some(known) if message.is_duplicate && known.content == content => {
                self.place(known);
                if known.state == State::Settled { Arrival::Settled } else { Arrival::OnItsWay }
            }
            other => {
                // The number is that of another message by now.
                if let Some(other) = other {
                    self.places.remove(&other.key);
                }
                Arrival::New(self.push(id, qos, content, State::Received))
            }
        }
    }

    fn push(&mut self, id: u16, qos: Qos, content: u64, state: State) -> u64 {
        let key = self.next_key;
        self.next_key += 1;
        self.place(Open { key, id, qos, content, state });
        key
    }

    fn place(&mut self, open: Open) {
        self.places.insert(open.key, Place::Open(self.first + self.open.len() as u64));
        self.present.insert(open.id, open.content);
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
            self.present.remove(&open.id);
            self.first += 1;
            if open.qos == Qos::ExactlyOnce {
                self.unreleased.insert(open.id, open.content);
                due.push((AckKind::PubRec, open.id));
            } else {
                due.push((AckKind::PubAck, open.id));
            }
        }
        due
    }

    /// Notes that the server releases the number of a message. Returns the reason to answer.
    pub(super) fn release(&mut self, id: u16) -> u8 {
        if self.unreleased.remove(&id).is_some() { Reason::SUCCESS } else { Reason::PACKET_ID_UNKNOWN }
    }

    /// The number of messages of this connection without an acknowledgement.
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }
}

/// Returns a number that tells messages apart. Properties do not count: a server changes the expiry of a
/// message that it sends again.
fn content(message: &Publish) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&message.topic, &message.payload, message.length).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::wire::{Ack, Packet};
    use AckKind::{PubAck, PubRec};
    use Qos::{AtLeastOnce, ExactlyOnce};
    use proptest::prelude::*;

    fn message(id: u16, qos: Qos, is_duplicate: bool, payload: &str) -> Publish {
        Publish {
            topic: "t".to_owned(),
            id,
            qos,
            is_duplicate,
            is_retained: false,
            properties: Vec::new(),
            payload: payload.as_bytes().to_vec(),
            length: payload.len(),
            has_large_properties: false,
        }
    }

    /// A message whose payload is its number.
    fn arrive(deliveries: &mut Deliveries, id: u16, qos: Qos, is_duplicate: bool) -> Arrival {
        deliveries.arrive(&message(id, qos, is_duplicate, &id.to_string()))
    }

    fn new(deliveries: &mut Deliveries, id: u16, qos: Qos) -> u64 {
        let Arrival::New(key) = arrive(deliveries, id, qos, false) else { panic!() };
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
        let Arrival::New(_) = arrive(&mut deliveries, 4, AtLeastOnce, false) else { panic!() };
        deliveries.settle(&keys[1..2]);
        deliveries.begin(true);
        assert_eq!(arrive(&mut deliveries, 1, AtLeastOnce, true), Arrival::OnItsWay);
        assert_eq!(arrive(&mut deliveries, 2, AtLeastOnce, true), Arrival::Settled);
        // It was not sent on before, and the next one is another message with the number.
        assert!(matches!(arrive(&mut deliveries, 4, AtLeastOnce, true), Arrival::New(_)));
        let Arrival::New(other) = arrive(&mut deliveries, 3, AtLeastOnce, false) else { panic!() };
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
        assert!(matches!(arrive(&mut deliveries, 1, ExactlyOnce, true), Arrival::New(_)));
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
        assert_eq!(arrive(&mut deliveries, 1, ExactlyOnce, true), Arrival::Settled);
        assert_eq!(deliveries.take_due(), [(PubRec, 1)]);
        assert_eq!(deliveries.release(1), 0);
        assert!(matches!(arrive(&mut deliveries, 1, ExactlyOnce, false), Arrival::New(_)));
    }

    #[test]
    fn another_message_under_a_known_number_is_new() {
        let mut deliveries = Deliveries::default();
        let keys = [(1, AtLeastOnce), (2, ExactlyOnce)].map(|(id, qos)| new(&mut deliveries, id, qos));
        deliveries.begin(true);
        // The server dropped the first one, and its other message got lost on the way.
        let other = deliveries.arrive(&message(1, AtLeastOnce, true, "other"));
        assert!(matches!(other, Arrival::New(_)));
        assert_eq!(arrive(&mut deliveries, 2, ExactlyOnce, true), Arrival::OnItsWay);
        deliveries.settle(&keys);
        assert_eq!((deliveries.take_due(), deliveries.open()), (vec![], 2));
        let Arrival::New(key) = other else { panic!() };
        deliveries.settle(&[key]);
        assert_eq!(deliveries.take_due(), [(PubAck, 1), (PubRec, 2)]);
        let other = deliveries.arrive(&message(2, ExactlyOnce, false, "other"));
        assert!(matches!(other, Arrival::New(_)));
    }

    #[test]
    fn a_message_that_comes_again_over_the_same_connection_is_acknowledged_once() {
        for qos in [AtLeastOnce, ExactlyOnce] {
            let mut deliveries = Deliveries::default();
            let key = new(&mut deliveries, 1, qos);
            assert_eq!(arrive(&mut deliveries, 1, qos, true), Arrival::OnItsWay);
            deliveries.settle(&[key]);
            assert_eq!((deliveries.take_due().len(), deliveries.open()), (1, 0));
        }
    }

    #[test]
    fn messages_that_failed_are_new_when_they_come_again() {
        let mut deliveries = Deliveries::default();
        let keys = [1, 2].map(|id| new(&mut deliveries, id, AtLeastOnce));
        deliveries.fail(&keys[..1]);
        deliveries.begin(true);
        assert!(matches!(arrive(&mut deliveries, 1, AtLeastOnce, true), Arrival::New(_)));
        deliveries.fail(&keys[1..]);
        assert!(matches!(arrive(&mut deliveries, 2, AtLeastOnce, true), Arrival::New(_)));
    }

    /// A server with a session, and what is on its way between it and the source.
    #[derive(Default)]
    struct Server {
        deliveries: Deliveries,
        /// The messages without an end, in order: number, message, and whether it was received.
        open: Vec<(u16, usize, bool)>,
        sent: usize,
        to_source: VecDeque<Packet>,
        to_server: VecDeque<(AckKind, u16)>,
        /// The messages that the source has sent on and that are not settled, with their keys.
        unsettled: Vec<(u64, usize)>,
        /// How often each message was sent on, and whether it was settled or dropped by the server.
        found: Vec<usize>,
        settled: HashSet<usize>,
        expired: HashSet<usize>,
    }

    /// The half of the messages have QoS 2.
    fn qos_of(number: usize) -> Qos {
        if number.is_multiple_of(2) { AtLeastOnce } else { ExactlyOnce }
    }

    impl Server {
        fn publish(&mut self, id: u16, number: usize, is_duplicate: bool) {
            let message = message(id, qos_of(number), is_duplicate, &number.to_string());
            self.to_source.push_back(Packet::Publish(message));
        }

        fn release(&mut self, id: u16) {
            self.to_source.push_back(Packet::PubRel(Ack { id, reason: Reason::new(Reason::SUCCESS) }));
        }

        /// Sends the next message, under the lowest free number.
        fn send(&mut self) {
            let free = (1..5).find(|id| self.open.iter().all(|open| open.0 != *id));
            if let Some(id) = free {
                let number = self.sent;
                self.sent += 1;
                self.found.push(0);
                self.open.push((id, number, false));
                self.publish(id, number, false);
            }
        }

        /// The source takes a packet.
        fn receive(&mut self) {
            match self.to_source.pop_front() {
                Some(Packet::Publish(message)) => {
                    let number = str::from_utf8(&message.payload).unwrap().parse().unwrap();
                    if let Arrival::New(key) = self.deliveries.arrive(&message) {
                        self.deliveries.send(&[key]);
                        self.found[number] += 1;
                        self.unsettled.push((key, number));
                    }
                    self.acknowledge();
                }
                Some(Packet::PubRel(release)) => {
                    self.deliveries.release(release.id);
                    self.to_server.push_back((AckKind::PubComp, release.id));
                }
                _ => {}
            }
        }

        fn settle(&mut self, choice: usize) {
            if !self.unsettled.is_empty() {
                let (key, number) = self.unsettled.remove(choice % self.unsettled.len());
                self.deliveries.settle(&[key]);
                self.settled.insert(number);
                self.acknowledge();
            }
        }

        fn acknowledge(&mut self) {
            self.to_server.extend(self.deliveries.take_due());
        }

        /// The server takes an answer.
        fn take(&mut self) {
            let Some((kind, id)) = self.to_server.pop_front() else { return };
            let place = self.open.iter().position(|open| open.0 == id);
            let Some(place) = place else { panic!("an answer to a message that the server does not have") };
            let (_, number, is_received) = &mut self.open[place];
            match kind {
                AckKind::PubRec => {
                    assert!(self.settled.contains(number), "{number} is acknowledged and not settled");
                    *is_received = true;
                    self.release(id);
                }
                _ => {
                    assert!(kind == AckKind::PubComp || self.settled.contains(number));
                    self.open.remove(place);
                }
            }
        }

        /// The connection breaks. Meanwhile a message may expire.
        fn reconnect(&mut self, choice: usize) {
            self.to_source.clear();
            self.to_server.clear();
            self.deliveries.begin(true);
            if self.open.get(choice).is_some_and(|open| !open.2) {
                self.expired.insert(self.open.remove(choice).1);
            }
            for (id, number, is_received) in self.open.clone() {
                if is_received { self.release(id) } else { self.publish(id, number, true) }
            }
        }
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

        /// However connections break, no message is lost or acknowledged early, one of QoS 2 is sent on once,
        /// and all are acknowledged in the end.
        #[test]
        fn each_is_sent_on_and_acknowledged_over_any_connections(
            steps in prop::collection::vec((0..7_u8, 0..6_usize), 0..120),
        ) {
            let mut server = Server::default();
            for (step, choice) in steps {
                match step {
                    0 => server.send(),
                    1 | 2 => server.receive(),
                    3 => server.settle(choice),
                    4 | 5 => server.take(),
                    _ => server.reconnect(choice),
                }
            }
            for _ in 0..100 {
                server.receive();
                server.settle(0);
                server.take();
            }
            prop_assert!(server.open.is_empty(), "{:?}", server.open);
            for (number, found) in server.found.iter().enumerate() {
                prop_assert!(*found > 0 || server.expired.contains(&number), "{} is lost", number);
                prop_assert!(*found <= 1 || qos_of(number) == AtLeastOnce, "{} comes {} times", number, found);
            }
        }
    }
}

//! The messages that a consumer has delivered and that are not acknowledged yet.
//!
//! The server delivers a message again if it does not hear of it in time: after a cut connection, or after
//! this process was stopped for a while. A message that is on its way is then not sent on a second time. The
//! later delivery only has another subject for the acknowledgement.
//!
//! A checkpoint has the numbers of all messages that were sent on and that the server may still deliver
//! again. A resumed run acknowledges them without sending them on. The server says up to which number all
//! messages are acknowledged, so the numbers before that are forgotten: after a while, because a server that
//! crashes forgets the last acknowledgements, or at once if they are many ranges.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::place::Place;
use super::sequences::Sequences;

/// The number of ranges that are kept for a while. Each checkpoint has them.
const MANY: usize = 500;

/// The meaning of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The message is to be sent on.
    New,
    /// The message is on its way already.
    OnItsWay,
    /// The message was settled, but its acknowledgement was lost.
    Settled,
}

/// The messages of one consumer.
#[derive(Debug)]
pub(super) struct Deliveries {
    /// The consumer: its time of creation, so that another one of the same name is not mistaken for it.
    consumer: String,
    /// The messages that were received and not acknowledged, by number.
    open: BTreeMap<u64, Open>,
    /// The messages that were sent on, and that the server may deliver again.
    known: Sequences,
    /// The number of the last delivery, and of its message, if it was the first delivery of the message.
    last: Option<(u64, u64)>,
}

#[derive(Debug)]
struct Open {
    /// The subject for the acknowledgement.
    reply: Arc<str>,
    is_sent: bool,
}

impl Deliveries {
    /// Begins where the checkpoint of an earlier run is, if it is of the same consumer.
    pub(super) fn new(consumer: String, saved: Option<&Value>) -> Self {
        let saved = saved.filter(|saved| saved["consumer"] == consumer.as_str());
        let known = saved.map(|saved| Sequences::from_value(&saved["known"])).unwrap_or_default();
        Self { consumer, open: BTreeMap::new(), known, last: None }
    }

    /// True if these are the deliveries of that consumer.
    pub(super) fn are_of(&self, consumer: &str) -> bool {
        self.consumer == consumer
    }

    /// Notes a delivery.
    pub(super) fn arrive(&mut self, place: &Place, reply: &Arc<str>) -> Arrival {
        if let Some(open) = self.open.get_mut(&place.sequence) {
            open.reply = reply.clone();
            return Arrival::OnItsWay;
        }
        if self.known.contains(place.sequence) {
            return Arrival::Settled;
        }
        self.open.insert(place.sequence, Open { reply: reply.clone(), is_sent: false });
        Arrival::New
    }

    /// Notes that the next deliveries do not follow the last one: a server that crashed in between may count
    /// them from an earlier number.
    pub(super) fn interrupt(&mut self) {
        self.last = None;
    }

    /// Notes that messages are sent on. Returns the offset of their checkpoint.
    pub(super) fn send<'a>(&mut self, places: impl IntoIterator<Item = &'a Place>) -> Value {
        for place in places {
            // No other message was delivered between two consecutive deliveries. So those between the two
            // messages are not for this consumer, and the range may have them.
            let first = match self.last {
                Some((delivery, sequence))
                    if place.attempt == 1
                        && delivery.checked_add(1) == Some(place.delivery)
                        && sequence < place.sequence
                        && self.known.contains(sequence) =>
                {
                    sequence
                }
                _ => place.sequence,
            };
            self.known.add(first, place.sequence);
            self.last = (place.attempt == 1).then_some((place.delivery, place.sequence));
            if let Some(open) = self.open.get_mut(&place.sequence) {
                open.is_sent = true;
            }
        }
        json!({ "consumer": self.consumer, "known": self.known.to_value() })
    }

    /// Returns the subjects for the acknowledgements of messages that are settled.
    pub(super) fn settle(&mut self, sequences: &[u64]) -> Vec<Arc<str>> {
        sequences.iter().filter_map(|sequence| self.open.remove(sequence)).map(|open| open.reply).collect()
    }

    /// Forgets messages that failed, so that they can be sent on again. Returns the subjects for the news.
    pub(super) fn fail(&mut self, sequences: &[u64]) -> Vec<Arc<str>> {
        self.interrupt();
        sequences.iter().for_each(|sequence| self.known.remove(*sequence));
        self.settle(sequences)
    }

    /// Forgets the messages that were not sent on. Returns the subjects for the news.
    pub(super) fn take_unsent(&mut self) -> Vec<Arc<str>> {
        let unsent: Vec<u64> =
            self.open.iter().filter(|(_, open)| !open.is_sent).map(|(sequence, _)| *sequence).collect();
        self.settle(&unsent)
    }

    /// Returns the number of messages that are not acknowledged.
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// Returns the subjects of all messages that are not acknowledged.
    pub(super) fn replies(&self) -> Vec<Arc<str>> {
        self.open.values().map(|open| open.reply.clone()).collect()
    }

    /// Forgets the numbers up to which the server has had all acknowledgements for a while, or up to which it
    /// has them now, if there are many ranges.
    pub(super) fn forget_through(&mut self, before: u64, now: u64) {
        self.known.remove_through(before);
        if self.known.ranges() > MANY {
            self.known.remove_through(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(sequence: u64, delivery: u64, attempt: u64) -> Place {
        Place { sequence, delivery, attempt, stored_ns: 0 }
    }

    fn reply(text: &str) -> Arc<str> {
        text.into()
    }

    #[test]
    fn a_message_is_sent_on_once_however_often_it_is_delivered() {
        let mut deliveries = Deliveries::new("c".to_owned(), None);
        let first = place(5, 1, 1);
        assert_eq!(deliveries.arrive(&first, &reply("r1")), Arrival::New);
        assert_eq!(deliveries.arrive(&place(5, 2, 2), &reply("r2")), Arrival::OnItsWay);
        let saved = deliveries.send([&first]);
        assert_eq!(saved, json!({ "consumer": "c", "known": [[5, 5]] }));
        assert_eq!(deliveries.arrive(&place(5, 3, 3), &reply("r3")), Arrival::OnItsWay);
        assert_eq!(deliveries.replies(), [reply("r3")]);
        assert_eq!(deliveries.settle(&[5]), [reply("r3")]);
        assert_eq!(deliveries.arrive(&place(5, 4, 4), &reply("r4")), Arrival::Settled);
        deliveries.forget_through(4, 5);
        assert_eq!(deliveries.arrive(&place(5, 4, 4), &reply("r4")), Arrival::Settled);
        deliveries.forget_through(5, 5);
        assert_eq!(deliveries.arrive(&place(5, 5, 5), &reply("r5")), Arrival::New);
    }

    #[test]
    fn a_later_run_knows_the_messages_of_its_checkpoint_unless_the_consumer_is_another() {
        let mut deliveries = Deliveries::new("c".to_owned(), None);
        for number in [1, 2, 5] {
            let place = place(number, number, 1);
            deliveries.arrive(&place, &reply("r"));
            deliveries.send([&place]);
        }
        let saved = deliveries.send([]);
        assert_eq!(saved["known"], json!([[1, 2], [5, 5]]));
        let mut same = Deliveries::new("c".to_owned(), Some(&saved));
        assert_eq!(same.arrive(&place(2, 9, 2), &reply("r")), Arrival::Settled);
        assert_eq!(same.arrive(&place(3, 10, 1), &reply("r")), Arrival::New);
        let mut other = Deliveries::new("d".to_owned(), Some(&saved));
        assert_eq!(other.arrive(&place(2, 9, 2), &reply("r")), Arrival::New);
        assert!(other.are_of("d") && !other.are_of("c"));
    }

    #[test]
    fn messages_of_others_between_two_deliveries_are_one_range() {
        let mut deliveries = Deliveries::new("c".to_owned(), None);
        // Consecutive deliveries; one to another process; one that was delivered before.
        let places = [place(10, 1, 1), place(14, 2, 1), place(20, 4, 1), place(30, 5, 2), place(40, 6, 1)];
        let saved = deliveries.send(&places);
        assert_eq!(saved["known"], json!([[10, 14], [20, 20], [30, 30], [40, 40]]));
        deliveries.interrupt();
        let saved = deliveries.send(&[place(50, 7, 1), place(60, 8, 1)]);
        assert_eq!(saved["known"], json!([[10, 14], [20, 20], [30, 30], [40, 40], [50, 60]]));
    }

    #[test]
    fn of_many_ranges_only_those_are_kept_that_the_server_may_need() {
        let mut deliveries = Deliveries::new("c".to_owned(), None);
        let places: Vec<Place> = (0..1001).map(|number| place(2 * number, 3 * number, 1)).collect();
        deliveries.send(&places);
        assert_eq!(deliveries.known.ranges(), 1001);
        deliveries.forget_through(0, 1998);
        assert_eq!(deliveries.send([])["known"], json!([[2000, 2000]]));
    }

    #[test]
    fn messages_that_failed_or_were_not_sent_on_are_new_when_they_come_again() {
        let mut deliveries = Deliveries::new("c".to_owned(), None);
        let places = [place(1, 1, 1), place(2, 2, 1), place(3, 3, 1)];
        places.iter().for_each(|place| {
            deliveries.arrive(place, &reply(&format!("r{}", place.sequence)));
        });
        deliveries.send(&places[..2]);
        assert_eq!(deliveries.take_unsent(), [reply("r3")]);
        assert_eq!(deliveries.fail(&[2]), [reply("r2")]);
        for (number, expected) in [(1, Arrival::OnItsWay), (2, Arrival::New), (3, Arrival::New)] {
            assert_eq!(deliveries.arrive(&place(number, 9, 2), &reply("r")), expected, "{number}");
        }
    }
}

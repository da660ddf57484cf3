//! The messages of a batch on their way to the server.
//!
//! After a temporary error, the engine calls the sink with the same batch. Messages that the server has
//! confirmed are not sent again then. The others are, in their order. With QoS 2 they keep their numbers, by
//! which the server knows them again, as long as it has the session.

use std::collections::HashMap;

use thalweg_broker::confirmed::{self, Pending as _};
use thalweg_broker::outcomes::{self, Outcomes};
use thalweg_record::{Batch, Lease};

use crate::wire::{Ack, AckKind, Qos, Reason, Remedy};

/// Where a message is that has no outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Way {
    /// Sent under this number, without an answer. False if it is to be sent again over a new connection.
    Sent(u16, bool),
    /// As `Sent`, and the server has stored it, but not passed it on.
    Received(u16, bool),
}

type Row = outcomes::Row<Way>;

/// The next packet to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The message of a row, under this number. True if it may have been sent before.
    Message(usize, u16, bool),
    /// The news that the number is to be released.
    Release(u16),
}

/// The meaning of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answered {
    /// A message has its outcome, or is a step further.
    Progress,
    /// As `Progress`; this is to be sent now.
    Release(u16),
    /// The server takes no message for now.
    Later(Reason),
    /// Nothing that was sent has the number.
    Unknown,
}

/// The messages of a batch.
#[derive(Default)]
pub(super) struct Pending {
    rows: Outcomes<Way>,
    /// The rows of the numbers that are in use.
    ids: HashMap<u16, usize>,
    last_id: u16,
    /// The number of messages that were sent over the present connection and have no outcome.
    waiting: usize,
    /// No row before this one is to be sent over the present connection.
    next: usize,
    /// The number of answers by which a message had its outcome, or came a step further.
    steps: u64,
}

/// True if a message was sent over the present connection and has no outcome.
fn is_waiting(row: &Row) -> bool {
    matches!(row, Row::Underway(Way::Sent(_, true) | Way::Received(_, true)))
}

impl Pending {
    /// Begins a batch, or continues it if it is the same as before.
    pub(super) fn begin(&mut self, batch: &Batch, claim: impl FnOnce() -> Lease) {
        if self.rows.are_of_another(batch) {
            self.finish();
            self.rows.begin(batch, claim());
        }
    }

    /// The number of answers to this batch by which a message had its outcome, or came a step further.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// Begins a new connection: what has no answer is sent again. `has_session` says whether the server knows
    /// the numbers of the earlier one.
    pub(super) fn send_again(&mut self, has_session: bool) {
        (self.next, self.waiting) = (0, 0);
        for row in self.rows.iter_mut() {
            match row {
                Row::Underway(Way::Sent(_, is_sent) | Way::Received(_, is_sent)) if has_session => {
                    *is_sent = false;
                }
                // The server has forgotten them, or they are sent as others.
                Row::Underway(_) => *row = Row::Unsent,
                _ => {}
            }
        }
        if !has_session {
            self.ids.clear();
        }
    }

    /// True if all messages have an outcome.
    pub(super) fn is_done(&self) -> bool {
        self.next == self.rows.len() && self.ids.is_empty()
    }

    /// Returns the next step, if fewer than `most` messages are without an answer. Messages of QoS 0 have no
    /// number and no answer.
    pub(super) fn next(&mut self, qos: Qos, most: usize) -> Option<Step> {
        let is_full = self.waiting >= most;
        while let Some(row) = self.rows.get_mut(self.next) {
            let place = self.next;
            match row {
                Row::Underway(Way::Sent(_, false) | Way::Received(_, false)) if is_full => return None,
                Row::Underway(Way::Sent(id, is_sent @ false)) => {
                    *is_sent = true;
                    self.waiting += 1;
                    return Some(Step::Message(place, *id, true));
                }
                Row::Underway(Way::Received(id, is_sent @ false)) => {
                    *is_sent = true;
                    self.waiting += 1;
                    return Some(Step::Release(*id));
                }
                Row::Unsent if qos == Qos::AtMostOnce => {
                    // It counts when the server has answered what is sent after it.
                    *row = Row::Done;
                    return Some(Step::Message(place, 0, false));
                }
                Row::Unsent => {
                    if is_full || self.ids.len() >= usize::from(u16::MAX) {
                        return None;
                    }
                    let id = self.new_id(place);
                    self.rows[place] = Row::Underway(Way::Sent(id, true));
                    self.waiting += 1;
                    return Some(Step::Message(place, id, false));
                }
                _ => self.next += 1,
            }
        }
        None
    }

    /// Returns a number that is not in use. There is one: fewer than 65,535 are.
    fn new_id(&mut self, place: usize) -> u16 {
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            if !self.ids.contains_key(&self.last_id) {
                self.ids.insert(self.last_id, place);
                return self.last_id;
            }
        }
    }

    /// Notes that a message cannot be sent.
    pub(super) fn refuse(&mut self, place: usize, reason: String) {
        if let Some(row) = self.rows.get_mut(place) {
            self.waiting -= usize::from(is_waiting(row));
            if let Row::Underway(Way::Sent(id, _) | Way::Received(id, _)) = *row {
                self.ids.remove(&id);
            }
            *row = Row::Refused(reason);
        }
    }

    /// Sends all messages of QoS 0 again: the connection broke, or they were not all taken.
    pub(super) fn forget_unconfirmed(&mut self) {
        self.rows.iter_mut().filter(|row| **row == Row::Done).for_each(|row| *row = Row::Unsent);
        self.next = 0;
    }

    /// Notes an answer.
    pub(super) fn answer(&mut self, kind: AckKind, ack: &Ack) -> Answered {
        let Some(&place) = self.ids.get(&ack.id) else {
            // A server that has forgotten the number still waits for nothing.
            return Answered::Unknown;
        };
        let row = &mut self.rows[place];
        // A number that was released over this connection is not released again.
        let is_known = matches!(
            (kind, &*row),
            (AckKind::PubAck | AckKind::PubRec, Row::Underway(Way::Sent(..)))
                | (AckKind::PubRec, Row::Underway(Way::Received(_, false)))
                | (AckKind::PubComp, Row::Underway(Way::Received(..)))
        );
        if !is_known {
            return Answered::Unknown;
        }
        self.waiting -= usize::from(is_waiting(row));
        match ack.reason.remedy() {
            Remedy::None if kind == AckKind::PubRec => {
                *row = Row::Underway(Way::Received(ack.id, true));
                self.waiting += 1;
                self.steps += 1;
                return Answered::Release(ack.id);
            }
            // The number was released before, and the answer to that was lost.
            _ if kind == AckKind::PubComp => *row = Row::Done,
            Remedy::None => *row = Row::Done,
            Remedy::Change => {
                *row = Row::Refused(format!("the server refuses the message: {}", ack.reason));
            }
            Remedy::Retry | Remedy::Wait => {
                *row = Row::Unsent;
                self.next = self.next.min(place);
                self.ids.remove(&ack.id);
                return Answered::Later(ack.reason.clone());
            }
        }
        self.ids.remove(&ack.id);
        self.steps += 1;
        Answered::Progress
    }

    /// The number of messages without an outcome.
    pub(super) fn missing(&self) -> usize {
        self.rows.missing()
    }
}

impl confirmed::Pending for Pending {
    fn refuse_rest(&mut self, reason: &str) {
        self.rows.refuse_rest(reason);
        self.ids.clear();
        self.waiting = 0;
    }

    fn finish(&mut self) -> Vec<(u32, String)> {
        let refused = self.rows.finish();
        *self = Self { last_id: self.last_id, ..Self::default() };
        refused
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashSet, VecDeque};

    use super::*;
    use proptest::prelude::*;
    use thalweg_engine::testing::{batch, context};

    fn begun(count: usize) -> Pending {
        let mut pending = Pending::default();
        pending.begin(&batch(vec!["x"; count]), || context().memory.claim(1));
        pending
    }

    fn steps(pending: &mut Pending, most: usize) -> Vec<Step> {
        std::iter::from_fn(|| pending.next(Qos::AtLeastOnce, most)).collect()
    }

    fn ack(id: u16, code: u8) -> Ack {
        Ack { id, reason: Reason::new(code) }
    }

    #[test]
    fn messages_are_sent_in_order_and_no_more_than_may_be_without_an_answer() {
        let mut pending = begun(3);
        assert_eq!(steps(&mut pending, 2), [Step::Message(0, 1, false), Step::Message(1, 2, false)]);
        assert_eq!(pending.answer(AckKind::PubAck, &ack(2, 0)), Answered::Progress);
        assert_eq!(steps(&mut pending, 2), [Step::Message(2, 3, false)]);
        assert_eq!(pending.answer(AckKind::PubAck, &ack(9, 0)), Answered::Unknown);
        assert!(!pending.is_done());
        for id in [1, 3] {
            assert_eq!(pending.answer(AckKind::PubAck, &ack(id, 0x10)), Answered::Progress);
        }
        assert!(pending.is_done() && pending.finish().is_empty());
    }

    #[test]
    fn what_a_server_refuses_has_its_reason_and_what_it_cannot_take_now_is_sent_again() {
        let mut pending = begun(2);
        steps(&mut pending, 10);
        assert_eq!(pending.answer(AckKind::PubAck, &ack(1, 0x87)), Answered::Progress);
        let quota = Reason::new(0x97);
        assert_eq!(pending.answer(AckKind::PubAck, &ack(2, 0x97)), Answered::Later(quota));
        assert_eq!(steps(&mut pending, 10), [Step::Message(1, 3, false)]);
        assert_eq!(pending.answer(AckKind::PubAck, &ack(3, 0)), Answered::Progress);
        let reason = "the server refuses the message: not authorized (0x87)".to_owned();
        assert_eq!(pending.finish(), [(0, reason)]);
    }

    #[test]
    fn a_new_connection_sends_no_more_at_once_than_it_may() {
        let mut pending = begun(3);
        steps(&mut pending, 3);
        pending.send_again(true);
        assert_eq!(steps(&mut pending, 1), [Step::Message(0, 1, true)]);
        assert_eq!(pending.answer(AckKind::PubRec, &ack(1, 0x87)), Answered::Progress);
        assert_eq!(steps(&mut pending, 2), [Step::Message(1, 2, true), Step::Message(2, 3, true)]);
    }

    #[test]
    fn a_new_connection_continues_the_session_or_begins_again() {
        for (has_session, expected) in [
            (true, [Step::Release(1), Step::Message(1, 2, true)]),
            (false, [Step::Message(0, 3, false), Step::Message(1, 4, false)]),
        ] {
            let mut pending = begun(2);
            steps(&mut pending, 10);
            assert_eq!(pending.answer(AckKind::PubRec, &ack(1, 0)), Answered::Release(1));
            pending.send_again(has_session);
            assert_eq!(steps(&mut pending, 10), expected);
            let Step::Release(id) = expected[0] else { continue };
            // The server has released it before.
            assert_eq!(pending.answer(AckKind::PubComp, &ack(id, 0x92)), Answered::Progress);
            assert_eq!(pending.answer(AckKind::PubRec, &ack(2, 0)), Answered::Release(2));
            assert_eq!(pending.answer(AckKind::PubComp, &ack(2, 0)), Answered::Progress);
            assert!(pending.is_done());
        }
    }

    #[test]
    fn a_server_that_repeats_an_answer_gets_no_further_release() {
        let mut pending = begun(1);
        steps(&mut pending, 10);
        assert_eq!(pending.answer(AckKind::PubRec, &ack(1, 0)), Answered::Release(1));
        for code in [0, 0x97] {
            assert_eq!(pending.answer(AckKind::PubRec, &ack(1, code)), Answered::Unknown);
        }
        assert_eq!((pending.steps(), pending.is_done()), (1, false));
        // Over a new connection nothing was released yet.
        pending.send_again(true);
        assert_eq!(pending.answer(AckKind::PubRec, &ack(1, 0)), Answered::Release(1));
        assert_eq!(pending.answer(AckKind::PubComp, &ack(1, 0)), Answered::Progress);
        steps(&mut pending, 10);
        assert!(pending.is_done());
    }

    /// A server with a session, and what is on its way between it and the sink.
    struct Server {
        pending: Pending,
        qos: Qos,
        most: usize,
        to_server: VecDeque<Step>,
        to_sink: VecDeque<(AckKind, Ack)>,
        /// The numbers of QoS 2 that it knows.
        received: HashSet<u16>,
        /// How often it has each message.
        found: Vec<usize>,
        /// The messages that it has refused.
        refused: HashSet<usize>,
    }

    impl Server {
        fn new(qos: Qos, most: usize) -> Self {
            Self {
                pending: begun(8),
                qos,
                most,
                to_server: VecDeque::new(),
                to_sink: VecDeque::new(),
                received: HashSet::new(),
                found: vec![0; 8],
                refused: HashSet::new(),
            }
        }

        fn send(&mut self) {
            self.to_server.extend(self.pending.next(self.qos, self.most));
        }

        /// The server takes a packet. `code` is its reason for a new message.
        fn take(&mut self, code: u8) {
            let answer = match self.to_server.pop_front() {
                None => return,
                Some(Step::Release(id)) => {
                    let code = if self.received.remove(&id) { 0 } else { 0x92 };
                    (AckKind::PubComp, ack(id, code))
                }
                Some(Step::Message(place, id, _)) => {
                    let is_known = self.received.contains(&id);
                    let code = if is_known { 0 } else { code };
                    if code == 0 && !is_known {
                        self.found[place] += 1;
                    }
                    if code == 0x87 {
                        self.refused.insert(place);
                    }
                    match self.qos {
                        Qos::ExactlyOnce => {
                            if code == 0 {
                                self.received.insert(id);
                            }
                            (AckKind::PubRec, ack(id, code))
                        }
                        _ => (AckKind::PubAck, ack(id, code)),
                    }
                }
            };
            self.to_sink.push_back(answer);
        }

        fn answer(&mut self) {
            if let Some((kind, ack)) = self.to_sink.pop_front()
                && let Answered::Release(id) = self.pending.answer(kind, &ack)
            {
                self.to_server.push_back(Step::Release(id));
            }
        }

        fn reconnect(&mut self) {
            self.to_server.clear();
            self.to_sink.clear();
            self.pending.send_again(self.qos == Qos::ExactlyOnce);
        }
    }

    proptest! {
        /// With any answers of a server, each message is done or refused once all have an answer.
        #[test]
        fn any_answers_lead_to_an_end(
            answers in prop::collection::vec((0..3_usize, 1..12_u16, 0..4_usize), 0..60),
            most in 1..10_usize,
        ) {
            let (kinds, codes) = ([AckKind::PubAck, AckKind::PubRec, AckKind::PubComp], [0, 0x10, 0x80, 0x97]);
            let mut pending = begun(8);
            steps(&mut pending, most);
            for (kind, id, code) in answers {
                pending.answer(kinds[kind], &ack(id, codes[code]));
                steps(&mut pending, most);
                let waiting = pending.rows.iter().filter(|row| is_waiting(row)).count();
                prop_assert!(pending.waiting == waiting && waiting <= most);
                prop_assert_eq!(pending.is_done(), pending.missing() == 0);
            }
        }

        /// However connections break, the server has each message or has refused it, and one of QoS 2 once.
        #[test]
        fn each_arrives_over_any_connections(
            steps in prop::collection::vec((0..6_u8, 0..5_usize), 0..120),
            qos in prop::sample::select(vec![Qos::AtLeastOnce, Qos::ExactlyOnce]),
            most in 1..10_usize,
        ) {
            let mut server = Server::new(qos, most);
            for (step, choice) in steps {
                match step {
                    0 => server.send(),
                    1 | 2 => server.take([0, 0, 0, 0x87, 0x97][choice]),
                    3 | 4 => server.answer(),
                    _ => server.reconnect(),
                }
            }
            for _ in 0..100 {
                server.send();
                server.take(0);
                server.answer();
            }
            prop_assert!(server.pending.is_done() && server.received.is_empty());
            let refused: HashSet<usize> =
                server.pending.finish().into_iter().map(|(row, _)| row as usize).collect();
            prop_assert!(refused.is_subset(&server.refused));
            for (place, found) in server.found.iter().enumerate() {
                let outcomes = found + usize::from(refused.contains(&place));
                prop_assert!(outcomes == 1 || outcomes > 1 && qos == Qos::AtLeastOnce, "{} of {}", outcomes, place);
            }
        }
    }
}

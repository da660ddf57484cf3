//! The messages of a batch on their way to the server.
//!
//! After a temporary error, the engine calls the sink with the same batch. Messages that the server has
//! confirmed are not sent again then. The others are, in their order. The server numbers the messages of a
//! channel as they come, and so does this list.

use std::collections::VecDeque;

use thalweg_broker::confirmed::{self, Pending as _};
use thalweg_broker::outcomes::{self, Outcomes};
use thalweg_record::{Batch, Lease};

use super::outgoing::Content;
use crate::wire::{Close, Confirmation};

/// Where a message is that has no outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Way {
    /// Sent, without a confirmation.
    Sent,
    /// Returned, for this reason, and not confirmed yet.
    Returned(String),
}

type Row = outcomes::Row<Way>;

/// A message without a confirmation.
#[derive(Debug, Clone, Copy)]
struct Open {
    /// Its number on the channel.
    tag: u64,
    row: usize,
    /// None if the server returns no messages.
    content: Option<Content>,
}

/// The messages of a batch.
#[derive(Default)]
pub(super) struct Pending {
    rows: Outcomes<Way>,
    /// Those without a confirmation, in the order of their numbers.
    open: VecDeque<Open>,
    /// The number of the last message of the channel.
    last_tag: u64,
    /// No row before this one is to be sent.
    next: usize,
    /// The number of messages of this batch that have an outcome.
    steps: u64,
}

/// The meaning of a confirmation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Confirmed {
    /// Messages have their outcome.
    Progress,
    /// The server could not take messages, which are to be sent again.
    Later,
    /// Nothing that was sent has the number.
    Unknown,
}

impl Pending {
    /// Begins a batch, or continues it if it is the same as before.
    pub(super) fn begin(&mut self, batch: &Batch, claim: impl FnOnce() -> Lease) {
        if self.rows.are_of_another(batch) {
            self.finish();
            self.rows.begin(batch, claim());
        }
    }

    /// The number of messages of this batch that have an outcome.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// Begins a new channel: what is not confirmed is sent again.
    pub(super) fn send_again(&mut self) {
        (self.next, self.last_tag) = (0, 0);
        self.open.clear();
        for row in self.rows.iter_mut() {
            if matches!(row, Row::Underway(_)) {
                *row = Row::Unsent;
            }
        }
    }

    /// True if all messages have an outcome.
    pub(super) fn is_done(&self) -> bool {
        self.open.is_empty() && self.rows.iter().skip(self.next).all(|row| *row != Row::Unsent)
    }

    /// Returns the next row to send, if fewer than `most` messages are without a confirmation.
    pub(super) fn next(&mut self, most: usize) -> Option<usize> {
        while let Some(row) = self.rows.get(self.next) {
            match row {
                Row::Unsent if self.open.len() >= most => return None,
                Row::Unsent => return Some(self.next),
                _ => self.next += 1,
            }
        }
        None
    }

    /// Notes that a row is being sent.
    pub(super) fn sent(&mut self, row: usize, content: Option<Content>) {
        self.last_tag += 1;
        self.open.push_back(Open { tag: self.last_tag, row, content });
        self.set(row, Row::Underway(Way::Sent));
    }

    /// Notes that a row cannot be sent.
    pub(super) fn refuse(&mut self, row: usize, reason: String) {
        self.set(row, Row::Refused(reason));
    }

    fn set(&mut self, row: usize, outcome: Row) {
        if let Some(row) = self.rows.get_mut(row) {
            *row = outcome;
        }
    }

    /// Notes that the server has returned a message. Its confirmation follows. Returns false if no message is
    /// like it.
    pub(super) fn returned(&mut self, content: Content, reason: &Close) -> bool {
        let is_sent = |open: &&Open| self.rows.get(open.row) == Some(&Row::Underway(Way::Sent));
        let mut like = self.open.iter().filter(is_sent);
        let exact = like.clone().find(|open| open.content == Some(content));
        let found =
            exact.or_else(|| like.find(|open| open.content.is_some_and(|known| known.is_like(content))));
        let Some(row) = found.map(|open| open.row) else { return false };
        let reason = format!("the server returns the message: {reason}");
        self.set(row, Row::Underway(Way::Returned(reason)));
        true
    }

    /// Notes a confirmation. `is_taken` is false if the server could not take the messages.
    pub(super) fn confirm(&mut self, confirmation: Confirmation, is_taken: bool) -> Confirmed {
        let Confirmation { tag, is_multiple } = confirmation;
        let (begin, end) = match self.open.binary_search_by_key(&tag, |open| open.tag) {
            Ok(place) if is_multiple => (0, place + 1),
            Ok(place) => (place, place + 1),
            // Zero means all, and those in between may be confirmed already.
            Err(_) if is_multiple && tag == 0 => (0, self.open.len()),
            Err(place) if is_multiple && tag <= self.last_tag => (0, place),
            Err(_) => return Confirmed::Unknown,
        };
        let confirmed: Vec<Open> = self.open.drain(begin..end).collect();
        let mut meaning = Confirmed::Unknown;
        for Open { row, .. } in confirmed {
            let outcome = match self.rows.get_mut(row).map(|row| std::mem::replace(row, Row::Done)) {
                Some(Row::Underway(Way::Returned(reason))) => Row::Refused(reason),
                _ if is_taken => Row::Done,
                _ => {
                    self.next = self.next.min(row);
                    meaning = Confirmed::Later;
                    self.set(row, Row::Unsent);
                    continue;
                }
            };
            self.set(row, outcome);
            self.steps += 1;
            if meaning == Confirmed::Unknown {
                meaning = Confirmed::Progress;
            }
        }
        meaning
    }

    /// Notes that the server has closed the channel because of a message. Returns true if it can only be one,
    /// which is refused then.
    pub(super) fn refuse_only(&mut self, reason: &Close) -> bool {
        let (Some(Open { row, .. }), 1) = (self.open.front().copied(), self.open.len()) else { return false };
        self.open.clear();
        self.set(row, Row::Refused(format!("the server refuses the message: {reason}")));
        self.steps += 1;
        true
    }

    /// The number of messages without an outcome.
    pub(super) fn missing(&self) -> usize {
        self.rows.missing()
    }
}

impl confirmed::Pending for Pending {
    fn refuse_rest(&mut self, reason: &str) {
        self.rows.refuse_rest(reason);
        self.open.clear();
    }

    fn finish(&mut self) -> Vec<(u32, String)> {
        let refused = self.rows.finish();
        *self = Self { last_tag: self.last_tag, ..Self::default() };
        refused
    }
}

#[cfg(test)]
mod tests {
    use super::super::outgoing::Outgoing;
    use super::*;
    use proptest::prelude::*;
    use thalweg_engine::testing::{batch, context};

    fn begun(count: usize) -> Pending {
        let mut pending = Pending::default();
        pending.begin(&batch(vec!["x"; count]), || context().memory.claim(1));
        pending
    }

    fn content(routing_key: &str, properties: &[u8]) -> Content {
        Content::of(Outgoing { routing_key: routing_key.as_bytes(), properties }, b"payload")
    }

    /// Sends rows whose routing keys are their numbers.
    fn send(pending: &mut Pending, most: usize) -> Vec<usize> {
        let mut sent = Vec::new();
        while let Some(row) = pending.next(most) {
            pending.sent(row, Some(content(&row.to_string(), b"\0\0")));
            sent.push(row);
        }
        sent
    }

    fn of(tag: u64, is_multiple: bool) -> Confirmation {
        Confirmation { tag, is_multiple }
    }

    fn close(code: u16, text: &str) -> Close {
        Close { code, text: text.to_owned() }
    }

    #[test]
    fn messages_are_sent_in_order_and_no_more_than_may_be_without_a_confirmation() {
        let mut pending = begun(4);
        assert_eq!(send(&mut pending, 2), [0, 1]);
        assert_eq!(pending.confirm(of(2, false), true), Confirmed::Progress);
        assert_eq!(send(&mut pending, 2), [2]);
        assert_eq!(pending.confirm(of(9, true), true), Confirmed::Unknown);
        assert_eq!(pending.confirm(of(2, false), true), Confirmed::Unknown);
        assert_eq!(pending.confirm(of(3, true), true), Confirmed::Progress);
        assert!(!pending.is_done());
        assert_eq!(send(&mut pending, 2), [3]);
        assert_eq!(pending.confirm(of(0, true), true), Confirmed::Progress);
        assert!(pending.is_done() && pending.steps() == 4 && pending.finish().is_empty());
    }

    #[test]
    fn what_a_full_queue_refuses_is_sent_again_and_what_is_returned_has_its_reason() {
        let mut pending = begun(3);
        send(&mut pending, 10);
        let no_route = close(312, "NO_ROUTE");
        // A plugin has changed the properties.
        assert!(pending.returned(content("1", b"\x01\0"), &no_route));
        assert!(!pending.returned(content("1", b"\0\0"), &no_route));
        assert_eq!(pending.confirm(of(3, false), false), Confirmed::Later);
        assert_eq!(pending.confirm(of(2, true), true), Confirmed::Progress);
        assert_eq!(send(&mut pending, 10), [2]);
        assert_eq!(pending.confirm(of(4, false), true), Confirmed::Progress);
        let reason = "the server returns the message: NO_ROUTE (312)".to_owned();
        assert!(pending.is_done());
        assert_eq!(pending.finish(), [(1, reason)]);
    }

    #[test]
    fn of_messages_with_one_key_the_one_with_the_same_properties_is_returned() {
        let mut pending = begun(2);
        for properties in [b"\0\0", b"\x01\0"] {
            let row = pending.next(10).unwrap();
            pending.sent(row, Some(content("k", properties)));
        }
        assert!(pending.returned(content("k", b"\x01\0"), &close(312, "NO_ROUTE")));
        assert_eq!(pending.confirm(of(2, true), true), Confirmed::Progress);
        assert_eq!(pending.finish().len(), 1);
    }

    #[test]
    fn a_new_channel_sends_again_what_is_not_confirmed() {
        let mut pending = begun(3);
        send(&mut pending, 10);
        assert_eq!(pending.confirm(of(2, false), true), Confirmed::Progress);
        assert!(!pending.refuse_only(&close(406, "too large")));
        pending.send_again();
        assert_eq!(send(&mut pending, 1), [0]);
        assert!(pending.refuse_only(&close(406, "too large")));
        pending.send_again();
        assert_eq!(send(&mut pending, 1), [2]);
        assert_eq!(pending.confirm(of(1, false), true), Confirmed::Progress);
        let reason = "the server refuses the message: too large (406)".to_owned();
        assert!(pending.is_done());
        assert_eq!(pending.finish(), [(0, reason)]);
    }

    proptest! {
        /// Each message has its outcome at the end, for any confirmations: a model of the server has those
        /// that it took.
        #[test]
        fn each_message_is_taken_or_refused_whatever_the_server_says(
            count in 1..30_usize,
            most in 1..10_usize,
            answers in prop::collection::vec((0..40_u64, any::<bool>(), any::<bool>(), 0..8_u8), 0..100),
        ) {
            let mut pending = begun(count);
            let mut channel = Vec::new();
            let mut taken = std::collections::BTreeSet::new();
            let good = (0..).map(|_| (0, true, true, 7)).take(count + 1);
            for (tag, is_multiple, is_taken, fault) in answers.into_iter().chain(good) {
                channel.extend(send(&mut pending, most));
                if fault == 0 {
                    pending.send_again();
                    channel.clear();
                    continue;
                }
                let before = pending.missing();
                let open: Vec<(u64, usize)> = pending.open.iter().map(|open| (open.tag, open.row)).collect();
                pending.confirm(of(tag, is_multiple), is_taken);
                let is_meant = |known: u64| match is_multiple {
                    true => tag == 0 || (known <= tag && tag <= channel.len() as u64),
                    false => known == tag,
                };
                let meant = open.iter().filter(|(known, _)| is_meant(*known));
                let meant: Vec<usize> = meant.map(|(_, row)| *row).collect();
                if is_taken {
                    prop_assert_eq!(pending.missing(), before - meant.len());
                    taken.extend(meant);
                } else {
                    prop_assert_eq!(pending.missing(), before);
                }
            }
            prop_assert!(pending.is_done());
            prop_assert_eq!(taken.len(), count);
            prop_assert!(pending.finish().is_empty());
        }
    }
}

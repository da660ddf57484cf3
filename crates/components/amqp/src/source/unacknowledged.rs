//! The messages of a channel that are not acknowledged.
//!
//! The server numbers the messages of a channel, and takes an acknowledgement of one message, or of all up to
//! it. It forgets the numbers with the channel: what has no acknowledgement then is delivered again under
//! other numbers, maybe to others.

use std::collections::BTreeSet;

use crate::wire;

/// The numbers of messages without an acknowledgement.
#[derive(Debug, Default)]
pub(super) struct Unacknowledged {
    tags: BTreeSet<u64>,
    /// The number of the last message that arrived.
    last: u64,
    /// How many messages failed and have not returned to their queue.
    returning: usize,
}

/// The answer to messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The server may forget them.
    Ack,
    /// The server gives them to the dead letter exchange of their queue, if it has one.
    Reject,
    /// The server delivers them again.
    Requeue,
}

impl Unacknowledged {
    /// Notes a message. Returns false if its number is no larger than the one before: an acknowledgement of
    /// all messages up to one would mean others. Zero means all messages.
    pub(super) fn arrive(&mut self, tag: u64) -> bool {
        let is_next = tag > self.last;
        if is_next {
            self.last = tag;
            self.tags.insert(tag);
        }
        is_next
    }

    pub(super) fn len(&self) -> usize {
        self.tags.len()
    }

    /// Notes that messages failed, which are requeued later.
    pub(super) fn fail(&mut self, messages: usize) {
        self.returning += messages;
    }

    /// True if messages failed and have not returned to their queue.
    pub(super) fn are_returning(&self) -> bool {
        self.returning > 0
    }

    /// Answers messages, which are in the order of their numbers. Appends the frames.
    pub(super) fn answer(&mut self, tags: &[u64], answer: Answer, out: &mut Vec<u8>) {
        let known: Vec<u64> = tags.iter().copied().filter(|tag| self.tags.remove(tag)).collect();
        let Some(last) = known.last() else { return };
        let are_first = self.tags.first().is_none_or(|first| first > last);
        match answer {
            Answer::Ack if are_first => wire::ack(*last, true, out),
            Answer::Ack => known.iter().for_each(|tag| wire::ack(*tag, false, out)),
            Answer::Reject => known.iter().for_each(|tag| wire::nack(*tag, false, out)),
            Answer::Requeue => {
                self.returning = self.returning.saturating_sub(known.len());
                known.iter().for_each(|tag| wire::nack(*tag, true, out));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the answers that were written: the number, and true if all up to it are meant.
    fn acks(mut bytes: &[u8]) -> Vec<(u64, bool)> {
        let mut found = Vec::new();
        // An acknowledgement has 21 bytes.
        while let Some((ack, rest)) = bytes.split_at_checked(21) {
            found.push((u64::from_be_bytes(ack[11..19].try_into().unwrap()), ack[19] == 1));
            bytes = rest;
        }
        assert!(bytes.is_empty());
        found
    }

    #[test]
    fn one_acknowledgement_is_enough_for_the_first_messages() {
        let mut open = Unacknowledged::default();
        assert!((1..=6).all(|tag| open.arrive(tag)) && !open.arrive(6));
        let mut out = Vec::new();
        open.answer(&[3, 4], Answer::Ack, &mut out);
        open.answer(&[1, 2], Answer::Ack, &mut out);
        open.answer(&[1, 2], Answer::Ack, &mut out);
        assert_eq!(acks(&out), [(3, false), (4, false), (2, true)]);
        out.clear();
        open.answer(&[5], Answer::Requeue, &mut out);
        open.answer(&[6], Answer::Reject, &mut out);
        assert_eq!((out[19], out[40], open.len()), (2, 0, 0));
    }

    #[test]
    fn numbers_grow_and_messages_that_failed_are_returning_until_they_are_requeued() {
        let mut open = Unacknowledged::default();
        assert!(!open.arrive(0) && open.arrive(2) && !open.arrive(1) && open.arrive(3));
        assert!(!open.are_returning());
        open.fail(1);
        let mut out = Vec::new();
        open.answer(&[3], Answer::Ack, &mut out);
        assert!(open.are_returning());
        open.answer(&[2], Answer::Requeue, &mut out);
        assert_eq!((open.are_returning(), open.len()), (false, 0));
    }

    proptest! {
        /// A server that takes the answers has exactly the messages left that were not acknowledged.
        #[test]
        fn no_message_is_acknowledged_for_another(
            batches in prop::collection::vec(1..5_u64, 1..8),
            seed: u64,
        ) {
            let (mut open, mut server, mut next) = (Unacknowledged::default(), BTreeSet::new(), 1);
            let mut waiting = Vec::new();
            for rows in batches {
                let tags: Vec<u64> = (next..next + rows).collect();
                next += rows;
                for tag in &tags {
                    prop_assert!(open.arrive(*tag));
                    server.insert(*tag);
                }
                waiting.push(tags);
            }
            let mut random = fastrand::Rng::with_seed(seed);
            random.shuffle(&mut waiting);
            while let Some(tags) = waiting.pop() {
                let mut out = Vec::new();
                open.answer(&tags, Answer::Ack, &mut out);
                for (tag, is_multiple) in acks(&out) {
                    prop_assert!(server.contains(&tag), "the server would end the channel");
                    server.retain(|known| if is_multiple { *known > tag } else { *known != tag });
                }
                let left: BTreeSet<u64> = waiting.iter().flatten().copied().collect();
                prop_assert_eq!(&server, &left);
                prop_assert_eq!(open.len(), left.len());
            }
        }
    }
}

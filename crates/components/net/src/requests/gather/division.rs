//! Divides a request that a server refuses, until the messages that are to blame are alone.
//!
//! An answer often refuses all messages of a request because of one of them. The request is then sent again
//! in pieces: in halves, or around the message that the answer names. The pieces of a request form a tree.
//! Each of them is sent once, has fewer messages than the one above it, and none without messages exists. So
//! `n` messages take at most `2n - 1` requests, whatever the server answers, and each has its fate at the
//! end: a message that is refused alone is refused for good.
//!
//! If [`MOST_ALONE`] messages were refused one by one and none was accepted, the reason is probably not in
//! the messages. Pieces that are refused then are not divided. If the server accepts a later piece after all,
//! the division continues with what was left.
//!
//! The number of the message that an answer names is only a place to divide at: servers count from 0 or from
//! 1, and both neighbours are sent alone. To reject the message of that number was rejected, because it may
//! be the wrong one.

use std::ops::Range;

use super::{Failure, Reading, Receipt, Verdict};

/// The number of messages of a request that are refused one by one before the rest is no longer divided.
pub(super) const MOST_ALONE: usize = 16;

/// The fate of the messages of a request.
pub(super) struct Fates {
    pub(super) verdicts: Vec<Verdict>,
    /// Messages that the server has, but that it will confirm only later.
    pub(super) unconfirmed: Vec<(Range<usize>, Receipt)>,
}

/// A request whose messages get their fates.
pub(super) struct Division {
    /// None for messages without a fate.
    verdicts: Vec<Option<Verdict>>,
    /// The pieces to be sent. The last one is the next.
    rest: Vec<Range<usize>>,
    /// Pieces that were refused and not divided, with the reasons.
    together: Vec<(Range<usize>, String)>,
    unconfirmed: Vec<(Range<usize>, Receipt)>,
    /// The number of messages that were refused alone.
    alone: usize,
    has_accepted: bool,
}

impl Division {
    /// Begins with a request of this number of messages.
    pub(super) fn new(count: usize) -> Self {
        Self {
            verdicts: vec![None; count],
            rest: Vec::from([Range { start: 0, end: count }]),
            together: Vec::new(),
            unconfirmed: Vec::new(),
            alone: 0,
            has_accepted: false,
        }
    }

    /// Returns the next piece to be sent.
    pub(super) fn next(&mut self) -> Option<Range<usize>> {
        self.rest.pop()
    }

    /// Notes the answer to a piece. A piece that is too large is divided in any case.
    pub(super) fn note(&mut self, piece: Range<usize>, reading: Reading, is_too_large: bool) {
        match reading {
            Reading::Accepted => self.accept(piece),
            Reading::Unconfirmed(receipt) => {
                self.unconfirmed.push((piece.clone(), receipt));
                self.accept(piece);
            }
            Reading::Each(each) => {
                let is_any = each.iter().any(|verdict| matches!(verdict, Verdict::Delivered));
                for (known, verdict) in self.of(piece).iter_mut().zip(each) {
                    *known = Some(verdict);
                }
                if is_any {
                    self.resume();
                }
            }
            Reading::Refused(reason) => self.refuse(piece, None, reason, is_too_large),
            Reading::RefusedAt { number, reason } => self.refuse(piece, Some(number), reason, is_too_large),
            Reading::Again(failure) => self.fail(&failure),
        }
    }

    /// Returns the fates.
    pub(super) fn end(mut self) -> Fates {
        for (piece, reason) in std::mem::take(&mut self.together) {
            self.of(piece).fill(Some(Verdict::Rejected(reason)));
        }
        let unsent = || Verdict::Again(Failure::temporary("the message was not sent"));
        let verdicts = self.verdicts.into_iter().map(|verdict| verdict.unwrap_or_else(unsent)).collect();
        Fates { verdicts, unconfirmed: self.unconfirmed }
    }

    fn of(&mut self, piece: Range<usize>) -> &mut [Option<Verdict>] {
        self.verdicts.get_mut(piece).unwrap_or_default()
    }

    fn accept(&mut self, piece: Range<usize>) {
        self.of(piece).fill(Some(Verdict::Delivered));
        self.resume();
    }

    /// Divides what was refused together: the server accepts messages, so some of these may be good.
    fn resume(&mut self) {
        self.has_accepted = true;
        for (piece, _) in std::mem::take(&mut self.together) {
            self.divide(piece, None);
        }
    }

    fn refuse(&mut self, piece: Range<usize>, number: Option<usize>, reason: String, is_too_large: bool) {
        if piece.len() <= 1 {
            self.alone += 1;
            self.of(piece).fill(Some(Verdict::Rejected(reason)));
        } else if is_too_large || self.has_accepted || self.alone < MOST_ALONE {
            self.divide(piece, number);
        } else {
            self.together.push((piece, reason));
        }
    }

    fn divide(&mut self, piece: Range<usize>, number: Option<usize>) {
        // With many bad messages, what is behind each of them would be sent again and again.
        let cuts = cuts(piece.len(), number.filter(|_| self.alone < MOST_ALONE));
        let mut end = piece.end;
        for cut in cuts.into_iter().rev() {
            self.rest.push(piece.start + cut..end);
            end = piece.start + cut;
        }
        self.rest.push(piece.start..end);
    }

    /// Ends with a failure. Messages without a fate are for the next round, also those that were refused
    /// together: whether the reason is in them is not known.
    fn fail(&mut self, failure: &Failure) {
        self.rest.clear();
        self.together.clear();
        for verdict in self.verdicts.iter_mut().filter(|verdict| verdict.is_none()) {
            *verdict = Some(Verdict::Again(failure.clone()));
        }
    }
}

/// Returns where two or more messages are divided: around the message of a number, from 0 or 1, or in the
/// middle. There is at least one such place, and no piece is empty.
fn cuts(count: usize, number: Option<usize>) -> Vec<usize> {
    let around = |number: usize| [number.saturating_sub(1), number, number.saturating_add(1)];
    let mut cuts: Vec<usize> =
        number.filter(|number| *number <= count).map(around).into_iter().flatten().collect();
    cuts.dedup();
    cuts.retain(|cut| (1..count).contains(cut));
    if cuts.is_empty() {
        cuts.push(count / 2);
    }
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The answer of a server that refuses requests with a bad message, and those with more than `most`.
    /// `base` is how it counts: from 0, from 1, or not at all.
    #[derive(Debug, Clone)]
    struct Refusing {
        bad: Vec<bool>,
        most: usize,
        base: Option<usize>,
    }

    impl Refusing {
        fn answer(&self, piece: &Range<usize>) -> (Reading, bool) {
            if piece.len() > self.most {
                return (Reading::Refused("too many".to_owned()), true);
            }
            match self.bad[piece.clone()].iter().position(|bad| *bad) {
                None => (Reading::Accepted, false),
                Some(at) => {
                    let reason = "bad".to_owned();
                    let reading = match self.base {
                        Some(base) => Reading::RefusedAt { number: at + base, reason },
                        None => Reading::Refused(reason),
                    };
                    (reading, false)
                }
            }
        }

        /// Returns the fates, `+` and `-`, and the number of requests.
        fn play(&self) -> (String, usize) {
            let mut division = Division::new(self.bad.len());
            let mut requests = 0;
            while let Some(piece) = division.next() {
                requests += 1;
                assert!(!piece.is_empty());
                let (reading, is_too_large) = self.answer(&piece);
                division.note(piece, reading, is_too_large);
            }
            let sign = |verdict: &Verdict| match verdict {
                Verdict::Delivered => '+',
                Verdict::Rejected(_) => '-',
                Verdict::Again(_) => '?',
            };
            (division.end().verdicts.iter().map(sign).collect(), requests)
        }
    }

    #[test]
    fn a_request_is_cut_around_the_message_that_is_named() {
        assert_eq!(cuts(9, Some(4)), [3, 4, 5]);
        assert_eq!(cuts(9, Some(0)), [1]);
        assert_eq!(cuts(9, Some(1)), [1, 2]);
        assert_eq!(cuts(9, Some(9)), [8]);
        assert_eq!(cuts(9, Some(10)), [4]);
        assert_eq!(cuts(2, Some(1)), [1]);
        assert_eq!(cuts(2, None), [1]);
        assert_eq!(cuts(9, Some(usize::MAX)), [4]);
    }

    #[test]
    fn a_named_message_takes_five_requests() {
        for base in [0, 1] {
            let mut bad = vec![false; 1000];
            bad[500] = true;
            let (fates, requests) = Refusing { bad, most: 1000, base: Some(base) }.play();
            assert_eq!(fates.find('-'), Some(500));
            assert_eq!((fates.matches('-').count(), requests), (1, 5));
        }
    }

    #[test]
    fn a_server_that_refuses_everything_gets_few_requests() {
        for base in [None, Some(0), Some(1)] {
            let (fates, requests) = Refusing { bad: vec![true; 4096], most: 4096, base }.play();
            assert_eq!(fates, "-".repeat(4096));
            assert!(requests < 100, "{requests}");
        }
    }

    #[test]
    fn a_failure_leaves_what_has_no_fate_for_the_next_round() {
        let mut division = Division::new(4);
        let reason = || "no".to_owned();
        for reading in [
            Reading::Refused(reason()),
            Reading::Refused(reason()),
            Reading::Refused(reason()),
            Reading::Again(Failure::temporary("away")),
        ] {
            let piece = division.next().unwrap();
            division.note(piece, reading, false);
        }
        assert_eq!(division.next(), None);
        let verdicts = division.end().verdicts;
        assert!(matches!(&verdicts[0], Verdict::Rejected(reason) if reason == "no"));
        assert!(verdicts[1..].iter().all(|verdict| matches!(verdict, Verdict::Again(_))));
    }

    proptest! {
        /// However a server refuses: good messages are delivered unless none is found for long, bad ones are
        /// refused, and the number of requests has its limit.
        #[test]
        fn every_message_has_its_fate_after_fewer_than_twice_as_many_requests(
            bad in prop::collection::vec(prop::bool::weighted(0.3), 1..200),
            most in 1..200_usize,
            base in prop::option::of(0..3_usize),
        ) {
            let (fates, requests) = Refusing { bad: bad.clone(), most, base }.play();
            prop_assert!(requests < 2 * bad.len(), "{} of {}", requests, bad.len());
            let expected: String = bad.iter().map(|bad| if *bad { '-' } else { '+' }).collect();
            // Good messages behind many bad ones, none of which was sent without a bad one.
            if fates.contains('+') {
                prop_assert_eq!(fates, expected);
            } else {
                prop_assert!(fates.chars().all(|fate| fate == '-'));
            }
        }
    }
}

//! The most messages of a batch that leads to a slow transform.
//!
//! The plan knows the rate of the transform, and from it a size for batches whose messages all get there.
//! Often most do not: a filter, a sample or a `dedupe` before it drops them, and small batches then cost more
//! than the messages in them. Their number is not known, so the size follows the time that a source waits
//! until there is room for its next batch. While that is short, batches become larger, and after a long wait
//! they have their first size again. Only full batches count: a source that has little to send shows nothing.
//! The channels and the workers behind a source take some batches before it waits at all, so a size is kept
//! for several batches and for some time. Each run begins with the first size, so that even a run that is
//! stopped soon moves its checkpoint.
//!
//! (Rejected: to count the messages that arrive at the transform. Those of other sources come there too.)

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::plan::{MOST_ROWS, SPAN};

/// The number of full batches without a wait after which batches become larger.
const CALM: u32 = 8;

/// The size of the batches of a source. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Rows(Arc<Mutex<Growth>>);

impl Rows {
    /// The size for batches of which all messages get to the transform.
    pub(crate) fn new(first: usize) -> Self {
        Self(Arc::new(Mutex::new(Growth::new(first))))
    }

    pub(super) fn most(&self) -> usize {
        self.0.lock().most
    }

    /// Notes that a batch of `rows` messages has waited for this time until there was room.
    pub(super) fn note(&self, rows: usize, waited: Duration) {
        self.0.lock().note(rows, waited, Instant::now());
    }
}

#[derive(Debug)]
struct Growth {
    first: usize,
    most: usize,
    /// The number of full batches since the last change, or the last wait.
    full: u32,
    /// When the first of them was sent.
    since: Option<Instant>,
}

impl Growth {
    fn new(first: usize) -> Self {
        Self { first, most: first, full: 0, since: None }
    }

    fn note(&mut self, rows: usize, waited: Duration, now: Instant) {
        if waited > SPAN {
            self.set(self.first);
        } else if waited > SPAN / 2 {
            // With twice as many messages, the wait would be too long.
            self.set(self.most);
        } else if rows >= self.most {
            let since = *self.since.get_or_insert(now);
            self.full += 1;
            if self.full >= CALM && now.duration_since(since) >= SPAN {
                self.set(self.most.saturating_mul(2).min(MOST_ROWS.max(self.first)));
            }
        }
    }

    fn set(&mut self, most: usize) {
        *self = Self { most, ..Self::new(self.first) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Batches: the number of messages as a part of the size, the wait, and the time since the one before, in
    /// milliseconds.
    fn batches() -> impl Strategy<Value = Vec<(f64, u64, u64)>> {
        let size = prop_oneof![1 => 0.0..1.0, 9 => Just(1.0), 1 => Just(1.5)];
        let wait = prop_oneof![30 => 0..126_u64, 1 => 126..251_u64, 1 => 251..2000_u64];
        prop::collection::vec((size, wait, 0..100_u64), 0..300)
    }

    /// The size that follows from all batches: those since the last long wait count.
    fn modelled(first: usize, sent: &[(usize, u64, u64)]) -> usize {
        let begin = sent.iter().rposition(|(_, wait, _)| *wait > 250).map_or(0, |at| at + 1);
        let (mut most, mut calm) = (first, Vec::new());
        for (rows, wait, at) in &sent[begin..] {
            match *wait {
                126.. => calm.clear(),
                _ if *rows >= most => calm.push(at),
                _ => {}
            }
            if calm.len() >= CALM as usize && calm[calm.len() - 1] - calm[0] >= 250 {
                most = (most * 2).min(MOST_ROWS);
                calm.clear();
            }
        }
        most
    }

    proptest! {
        #[test]
        fn the_size_doubles_while_full_batches_do_not_wait_and_is_the_first_after_a_wait(
            first in 16..MOST_ROWS,
            batches in batches(),
        ) {
            let (mut growth, begin, mut at) = (Growth::new(first), Instant::now(), 0);
            let mut sent = Vec::new();
            for (part, wait, pause) in batches {
                at += pause;
                let rows = (growth.most as f64 * part) as usize;
                sent.push((rows, wait, at));
                growth.note(rows, Duration::from_millis(wait), begin + Duration::from_millis(at));
                prop_assert_eq!(growth.most, modelled(first, &sent));
                prop_assert!((first..=MOST_ROWS).contains(&growth.most));
            }
        }

        /// A source that is always faster than the transform, whose messages are dropped on the way except
        /// for this part: a batch passes in a moment, or has the first size.
        #[test]
        fn batches_become_as_large_as_pass_in_a_moment(rate in 1.0..60_000.0_f64, kept in 0.0..=1.0_f64) {
            let first = ((rate * SPAN.as_secs_f64()) as usize).max(16);
            let (mut growth, mut now) = (Growth::new(first), Instant::now());
            let passes = |rows: usize| Duration::from_secs_f64(rows as f64 * kept / rate);
            for _ in 0..20_000 {
                let waited = passes(growth.most);
                now += waited + Duration::from_millis(1);
                growth.note(growth.most, waited, now);
            }
            let takes = passes(growth.most);
            prop_assert!(growth.most == first || takes <= SPAN, "{} take {takes:?}", growth.most);
            prop_assert!(growth.most == MOST_ROWS || takes * 2 >= SPAN, "{} take {takes:?}", growth.most);
        }
    }

    #[test]
    fn clones_share_the_size() {
        let rows = Rows::new(16);
        rows.clone().0.lock().set(64);
        assert_eq!(rows.most(), 64);
        rows.note(64, SPAN * 2);
        assert_eq!(rows.clone().most(), 16);
    }
}

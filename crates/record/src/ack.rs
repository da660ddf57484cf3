//! Acknowledgements: what a source is told about what it sent.
//!
//! An [`Ack`] stands for one or several *origins*, each a batch as a source sent it. It is a token that is
//! owned, never copied: whoever holds a batch holds its `Ack`, and ends by settling it. Splitting a batch
//! splits its `Ack`; merging batches merges theirs. An origin is answered once, when the last of its parts
//! is settled, with the worst that happened to any of them.
//!
//! A counter and a maximum in two atomics are enough for that. The alternative that was rejected, a tree of
//! parents and children that mirrors the splits, gives the same answer with an allocation for every split.

#[cfg(feature = "loom")]
use loom::sync::{
    Arc, Mutex,
    atomic::{AtomicU8, AtomicUsize, Ordering},
};
#[cfg(not(feature = "loom"))]
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU8, AtomicUsize, Ordering},
};

use smallvec::SmallVec;

/// How a message ended. Of several parts the later in this order decides: a batch of which one half was
/// filtered out and the other delivered was delivered; one of which any part failed has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Outcome {
    /// A transform removed it on purpose.
    Filtered = 0,
    /// A sink has it in safety.
    Delivered = 1,
    /// It could not be processed, and is kept in safety with its reason (the `errors` output or the dead letters).
    Rejected = 2,
    /// It is not known to be anywhere. The source must send it again.
    Failed = 3,
}

impl Outcome {
    fn from_u8(value: u8) -> Self {
        match value {
            0 => Outcome::Filtered,
            1 => Outcome::Delivered,
            2 => Outcome::Rejected,
            _ => Outcome::Failed,
        }
    }

    /// Whether the source may regard the message as done with: everything but [`Outcome::Failed`].
    pub fn is_safe(self) -> bool {
        self != Outcome::Failed
    }
}

/// The answer to an origin, given once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The worst that happened to any part.
    pub outcome: Outcome,
    /// Why, where it failed.
    pub reason: Option<String>,
}

type Answer = Box<dyn FnOnce(Settlement) + Send>;

struct Origin {
    /// Parts not yet settled.
    pending: AtomicUsize,
    /// The worst outcome so far.
    worst: AtomicU8,
    /// The first failure's reason, and who is to be told. Locked only on failure and at the end.
    answer: Mutex<(Option<String>, Option<Answer>)>,
    /// Whether a failure is made good by whoever is told.
    has_failover: bool,
}

impl Origin {
    fn settle(&self, outcome: Outcome, reason: Option<&str>) {
        if let Some(reason) = reason
            && let Ok(mut answer) = self.answer.lock()
        {
            answer.0.get_or_insert_with(|| reason.to_owned());
        }
        // The maximum is published by the decrement below; whoever takes the counter to nought sees all of them.
        self.worst.fetch_max(outcome as u8, Ordering::Relaxed);
        if self.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            let outcome = Outcome::from_u8(self.worst.load(Ordering::Relaxed));
            let taken = self.answer.lock().ok().map(|mut answer| (answer.0.take(), answer.1.take()));
            if let Some((reason, Some(tell))) = taken {
                tell(Settlement { outcome, reason });
            }
        }
    }
}

/// The duty to say how a batch ended. See the [module](self) for how parts and origins relate.
pub struct Ack {
    origins: SmallVec<[Arc<Origin>; 1]>,
    /// None in [`noop`](Self::noop), which is made for each file and must not allocate.
    place: Option<std::sync::Arc<str>>,
}

impl Ack {
    /// An acknowledgement of one origin; `answer` is called once, on the thread that settles its last part.
    /// `place` names who made it, for the message of one that is dropped.
    pub fn new(place: std::sync::Arc<str>, answer: impl FnOnce(Settlement) + Send + 'static) -> Self {
        Self::of(place, answer, false)
    }

    /// As [`new`](Self::new), of an origin whose failure `answer` makes good: it sends the messages another way. A
    /// sink that cannot write them is to say so by failing this, where else it would go on trying.
    pub fn with_failover(
        place: std::sync::Arc<str>,
        answer: impl FnOnce(Settlement) + Send + 'static,
    ) -> Self {
        Self::of(place, answer, true)
    }

    fn of(
        place: std::sync::Arc<str>,
        answer: impl FnOnce(Settlement) + Send + 'static,
        has_failover: bool,
    ) -> Self {
        let origin = Origin {
            pending: AtomicUsize::new(1),
            worst: AtomicU8::new(Outcome::Filtered as u8),
            answer: Mutex::new((None, Some(Box::new(answer)))),
            has_failover,
        };
        Self { origins: SmallVec::from_iter([Arc::new(origin)]), place: Some(place) }
    }

    /// Whether a failure of all that it stands for is made good: see [`guarded`](Self::guarded).
    pub fn has_failover(&self) -> bool {
        !self.origins.is_empty() && self.origins.iter().all(|origin| origin.has_failover)
    }

    /// An acknowledgement that nobody waits for: for data made by the engine itself, and in tests.
    pub fn noop() -> Self {
        Self { origins: SmallVec::new(), place: None }
    }

    /// Notes who holds it from here on, for the message of one that is dropped.
    pub fn enter(&mut self, place: &std::sync::Arc<str>) {
        self.place = Some(std::sync::Arc::clone(place));
    }

    fn place(&self) -> &str {
        self.place.as_deref().unwrap_or("nowhere")
    }

    /// Makes a second part: the origins are answered when both parts are settled.
    pub fn split(&self) -> Self {
        for origin in &self.origins {
            origin.pending.fetch_add(1, Ordering::Relaxed);
        }
        Self { origins: self.origins.clone(), place: self.place.clone() }
    }

    /// Takes over another's duty: settling this one settles both.
    pub fn merge(&mut self, mut other: Self) {
        self.origins.extend(other.origins.drain(..));
    }

    /// Settles this part.
    pub fn settle(mut self, outcome: Outcome) {
        for origin in self.origins.drain(..) {
            origin.settle(outcome, None);
        }
    }

    /// Settles this part as failed, and says why.
    pub fn fail(mut self, reason: &str) {
        for origin in self.origins.drain(..) {
            origin.settle(Outcome::Failed, Some(reason));
        }
    }
}

impl Drop for Ack {
    fn drop(&mut self) {
        if self.origins.is_empty() {
            return;
        }
        let reason = format!("dropped unsettled in `{}`", self.place());
        for origin in self.origins.drain(..) {
            origin.settle(Outcome::Failed, Some(&reason));
        }
    }
}

impl std::fmt::Debug for Ack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ack({} in {})", self.origins.len(), self.place())
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Answers = std::sync::Arc<parking_lot::Mutex<Vec<(usize, Settlement)>>>;

    fn observed(id: usize, answers: &Answers) -> Ack {
        let answers = answers.clone();
        Ack::new("test".into(), move |settlement| answers.lock().push((id, settlement)))
    }

    #[test]
    fn one_dropped_unsettled_has_failed_and_says_where() {
        let answers = Answers::default();
        let mut ack = observed(0, &answers);
        ack.enter(&"main.filter".into());
        drop(ack);
        let expected = Settlement {
            outcome: Outcome::Failed,
            reason: Some("dropped unsettled in `main.filter`".into()),
        };
        assert_eq!(*answers.lock(), [(0, expected)]);
    }

    #[test]
    fn it_is_guarded_if_all_that_it_stands_for_is() {
        let guarded = || Ack::with_failover("test".into(), |_| {});
        let mut ack = guarded().split();
        ack.merge(guarded());
        assert!(ack.has_failover());
        ack.merge(Ack::new("test".into(), |_| {}));
        assert!(!ack.has_failover() && !Ack::noop().has_failover());
    }

    #[derive(Debug, Clone)]
    enum Step {
        Split(prop::sample::Index),
        Merge(prop::sample::Index, prop::sample::Index),
        Settle(prop::sample::Index, u8),
        Drop(prop::sample::Index),
    }

    fn step() -> impl Strategy<Value = Step> {
        let index = any::<prop::sample::Index>;
        prop_oneof![
            3 => index().prop_map(Step::Split),
            2 => (index(), index()).prop_map(|(a, b)| Step::Merge(a, b)),
            3 => (index(), 0..4u8).prop_map(|(a, o)| Step::Settle(a, o)),
            1 => index().prop_map(Step::Drop),
        ]
    }

    proptest! {
        /// The model: each part is the list of the origins that it stands for, and each origin remembers
        /// its unsettled parts and the worst outcome.
        #[test]
        fn each_origin_is_answered_once_with_the_worst_of_its_parts(
            origins in 1..5usize,
            steps in prop::collection::vec(step(), 0..60),
        ) {
            let answers = Answers::default();
            let mut parts: Vec<(Ack, Vec<usize>)> =
                (0..origins).map(|id| (observed(id, &answers), vec![id])).collect();
            let mut pending = vec![1usize; origins];
            let mut worst = vec![Outcome::Filtered; origins];
            let mut expected = Vec::new();
            let mut settled = |ids: &[usize], outcome: Outcome, pending: &mut Vec<usize>| {
                for &id in ids {
                    worst[id] = worst[id].max(outcome);
                    pending[id] -= 1;
                    if pending[id] == 0 {
                        expected.push((id, worst[id]));
                    }
                }
            };
            for step in steps {
                if parts.is_empty() {
                    break;
                }
                match step {
                    Step::Split(which) => {
                        let (ack, ids) = &parts[which.index(parts.len())];
                        let part = (ack.split(), ids.clone());
                        part.1.iter().for_each(|&id| pending[id] += 1);
                        parts.push(part);
                    }
                    Step::Merge(a, b) => {
                        let (a, b) = (a.index(parts.len()), b.index(parts.len()));
                        if a != b {
                            let (other, ids) = parts.remove(a);
                            let at = if b > a { b - 1 } else { b };
                            parts[at].0.merge(other);
                            parts[at].1.extend(ids);
                        }
                    }
                    Step::Settle(which, outcome) => {
                        let (ack, ids) = parts.remove(which.index(parts.len()));
                        let outcome = Outcome::from_u8(outcome);
                        ack.settle(outcome);
                        settled(&ids, outcome, &mut pending);
                    }
                    Step::Drop(which) => {
                        let (ack, ids) = parts.remove(which.index(parts.len()));
                        drop(ack);
                        settled(&ids, Outcome::Failed, &mut pending);
                    }
                }
            }
            for (ack, ids) in parts.drain(..) {
                ack.settle(Outcome::Delivered);
                settled(&ids, Outcome::Delivered, &mut pending);
            }
            let given: Vec<_> = answers.lock().iter().map(|(id, s)| (*id, s.outcome)).collect();
            prop_assert_eq!(given, expected);
        }
    }
}

#[cfg(all(test, feature = "loom"))]
mod loom_tests {
    use super::*;

    #[test]
    fn two_threads_settling_the_last_parts_answer_once_with_the_worst() {
        loom::model(|| {
            let told = loom::sync::Arc::new(loom::sync::Mutex::new(Vec::new()));
            let teller = told.clone();
            let ack = Ack::new("test".into(), move |s| teller.lock().unwrap().push(s.outcome));
            let part = ack.split();
            let thread = loom::thread::spawn(move || part.settle(Outcome::Rejected));
            ack.settle(Outcome::Delivered);
            thread.join().unwrap();
            assert_eq!(*told.lock().unwrap(), [Outcome::Rejected]);
        });
    }
}

//! Acknowledgements: how a source learns what happened to the data it sent.
//!
//! An [`Ack`] covers one or several *origins*, each a batch as a source sent it. It is an owned token, never
//! copied: the holder of a batch holds its `Ack` and finally settles it. Splitting a batch splits its `Ack`;
//! merging batches merges their acks. An origin is answered once, when the last of its parts is settled, with
//! the worst outcome of all parts.
//!
//! A counter and a maximum in two atomics are enough for that. A tree of parents and children that mirrors
//! the splits was rejected: it gives the same answer, but allocates for every split.
//!
//! See docs/decisions/004-an-ack-counts-parts.md.

use std::collections::HashMap;

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

/// How a message ended. If parts of a batch end differently, the outcome that is later in this order decides:
/// a batch with one half filtered and the other delivered was delivered. If any part failed, the batch
/// failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Outcome {
    /// A transform removed the message on purpose.
    Filtered = 0,
    /// A sink has written the message durably.
    Delivered = 1,
    /// The message could not be processed. It is kept durably with its reason (by the `errors` output or as a
    /// dead letter).
    Rejected = 2,
    /// The run was stopped before all of a file was read. A later run reads the rest.
    Unfinished = 3,
    /// No component is known to have the message. The source must send it again.
    Failed = 4,
}

impl Outcome {
    fn from_u8(value: u8) -> Self {
        match value {
            0 => Outcome::Filtered,
            1 => Outcome::Delivered,
            2 => Outcome::Rejected,
            3 => Outcome::Unfinished,
            _ => Outcome::Failed,
        }
    }

    /// True if the source may regard the message as done.
    pub fn is_safe(self) -> bool {
        self < Outcome::Unfinished
    }
}

/// The answer to an origin, sent once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The worst outcome of any part.
    pub outcome: Outcome,
    /// The number of rejected messages.
    pub rejected: usize,
    /// The reason of a failure.
    pub reason: Option<String>,
}

type Answer = Box<dyn FnOnce(Settlement) + Send>;

/// Sees the way that the parts of an origin take, for a trace. Places are names of components.
pub trait AckObserver: Send + Sync {
    /// A part with this number of messages and bytes goes from one place to another.
    fn entered(
        &self,
        from: Option<&std::sync::Arc<str>>,
        to: &std::sync::Arc<str>,
        messages: usize,
        bytes: usize,
    );

    /// A part is about to be settled at a place.
    fn settled(&self, at: Option<&std::sync::Arc<str>>);
}

struct Origin {
    /// The number of parts not yet settled.
    pending: AtomicUsize,
    /// The worst outcome so far.
    worst: AtomicU8,
    /// The number of rejected messages so far.
    rejected: AtomicUsize,
    /// The reason of the first failure, and the callback. Locked only on failure and at the end.
    answer: Mutex<(Option<String>, Option<Answer>)>,
    /// True if the callback handles a failure itself, by sending the messages another way.
    has_failover: bool,
    /// Of few origins: those that are traced.
    observer: Option<std::sync::Arc<dyn AckObserver>>,
}

impl Origin {
    /// Settles a part at a place.
    fn settle(
        &self,
        place: Option<&std::sync::Arc<str>>,
        outcome: Outcome,
        rejected: usize,
        reason: Option<&str>,
    ) {
        if let Some(observer) = &self.observer {
            observer.settled(place);
        }
        if let Some(reason) = reason
            && let Ok(mut answer) = self.answer.lock()
        {
            answer.0.get_or_insert_with(|| reason.to_owned());
        }
        // The decrement below publishes the maximum and the sum: the thread that brings the counter to zero
        // sees the outcomes of all parts.
        self.worst.fetch_max(outcome as u8, Ordering::Relaxed);
        if rejected > 0 {
            self.rejected.fetch_add(rejected, Ordering::Relaxed);
        }
        if self.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            let outcome = Outcome::from_u8(self.worst.load(Ordering::Relaxed));
            let rejected = self.rejected.load(Ordering::Relaxed);
            let taken = self.answer.lock().ok().map(|mut answer| (answer.0.take(), answer.1.take()));
            if let Some((reason, Some(tell))) = taken {
                tell(Settlement { outcome, rejected, reason });
            }
        }
    }
}

/// The duty to settle a batch. The [module](self) describes how parts and origins relate.
pub struct Ack {
    origins: SmallVec<[Arc<Origin>; 1]>,
    /// None in [`noop`](Self::noop), which is made for each file and must not allocate.
    place: Option<std::sync::Arc<str>>,
}

impl Ack {
    /// Creates an ack of one origin. `answer` is called once, on the thread that settles the last part.
    /// `place` names the creator, for the message if the ack is dropped.
    pub fn new(place: std::sync::Arc<str>, answer: impl FnOnce(Settlement) + Send + 'static) -> Self {
        Self::of(place, answer, false)
    }

    /// Like [`new`](Self::new), but for an origin with a failover: on failure, `answer` sends the messages
    /// another way. A sink that cannot write them must fail this ack instead of retrying.
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
            rejected: AtomicUsize::new(0),
            answer: Mutex::new((None, Some(Box::new(answer)))),
            has_failover,
            observer: None,
        };
        Self { origins: SmallVec::from_iter([Arc::new(origin)]), place: Some(place) }
    }

    /// Lets an observer see the way of this ack, which must be new: no part of it was split off.
    #[must_use]
    pub fn observed(mut self, observer: std::sync::Arc<dyn AckObserver>) -> Self {
        for origin in self.origins.iter_mut().filter_map(Arc::get_mut) {
            origin.observer = Some(observer.clone());
        }
        self
    }

    /// Returns the observer of this ack, if it has one: that of its first origin with one. An ack that stands
    /// for this one is [observed](Self::observed) too.
    pub fn observer(&self) -> Option<std::sync::Arc<dyn AckObserver>> {
        self.origins.iter().find_map(|origin| origin.observer.clone())
    }

    /// True if all origins have a failover: see [`with_failover`](Self::with_failover).
    pub fn has_failover(&self) -> bool {
        !self.origins.is_empty() && self.origins.iter().all(|origin| origin.has_failover)
    }

    /// Creates an ack without an origin, for data that the engine itself produces and for tests.
    pub fn noop() -> Self {
        Self { origins: SmallVec::new(), place: None }
    }

    /// True if the ack has no origin.
    pub fn is_noop(&self) -> bool {
        self.origins.is_empty()
    }

    /// Records the component that holds the ack from here on, for the message if the ack is dropped.
    pub fn enter(&mut self, place: &std::sync::Arc<str>) {
        self.enter_with(place, || (0, 0));
    }

    /// As [`enter`](Self::enter), with the number of messages and bytes, which are only asked for if the ack
    /// is observed.
    pub fn enter_with(&mut self, place: &std::sync::Arc<str>, size: impl FnOnce() -> (usize, usize)) {
        if self.origins.iter().any(|origin| origin.observer.is_some()) {
            let (messages, bytes) = size();
            for observer in self.origins.iter().filter_map(|origin| origin.observer.as_ref()) {
                observer.entered(self.place.as_ref(), place, messages, bytes);
            }
        }
        self.place = Some(std::sync::Arc::clone(place));
    }

    fn place(&self) -> &str {
        self.place.as_deref().unwrap_or("nowhere")
    }

    /// Creates a second part. The origins are answered once both parts are settled.
    pub fn split(&self) -> Self {
        for origin in &self.origins {
            origin.pending.fetch_add(1, Ordering::Relaxed);
        }
        Self { origins: self.origins.clone(), place: self.place.clone() }
    }

    /// Takes over the origins of another ack: settling this one settles both.
    pub fn merge(&mut self, mut other: Self) {
        self.origins.extend(other.origins.drain(..));
    }

    /// Settles this part.
    pub fn settle(mut self, outcome: Outcome) {
        let place = self.place.take();
        for origin in self.origins.drain(..) {
            origin.settle(place.as_ref(), outcome, 0, None);
        }
    }

    /// Settles this part, which is `count` messages, as rejected.
    pub fn reject(mut self, count: usize) {
        let place = self.place.take();
        for origin in self.origins.drain(..) {
            origin.settle(place.as_ref(), Outcome::Rejected, count, None);
        }
    }

    /// Settles this part as failed, with a reason.
    pub fn fail(mut self, reason: &str) {
        let place = self.place.take();
        for origin in self.origins.drain(..) {
            origin.settle(place.as_ref(), Outcome::Failed, 0, Some(reason));
        }
    }
}

impl Drop for Ack {
    fn drop(&mut self) {
        if self.origins.is_empty() {
            return;
        }
        let reason = format!("dropped unsettled in `{}`", self.place());
        let place = self.place.take();
        for origin in self.origins.drain(..) {
            origin.settle(place.as_ref(), Outcome::Failed, 0, Some(&reason));
        }
    }
}

impl std::fmt::Debug for Ack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ack({} in {})", self.origins.len(), self.place())
    }
}

/// The origins of which some parts were settled while others were open. A holder of parts finds out with it
/// whether it holds the rest of an origin.
#[derive(Default)]
pub struct DividedOrigins(HashMap<usize, Arc<Origin>>);

impl DividedOrigins {
    /// Notes the origins of a part that is about to be settled, if they have other parts.
    pub fn note(&mut self, ack: &Ack) {
        let divided = ack.origins.iter().filter(|origin| origin.pending.load(Ordering::Acquire) > 1);
        self.0.extend(divided.map(|origin| (address(origin), Arc::clone(origin))));
    }

    /// Forgets the origins of which all parts are settled.
    pub fn forget_settled(&mut self) {
        self.0.retain(|_, origin| origin.pending.load(Ordering::Acquire) > 0);
    }

    /// True if the ack is of a part of a noted origin.
    pub fn has_part(&self, ack: &Ack) -> bool {
        ack.origins.iter().any(|origin| self.0.contains_key(&address(origin)))
    }
}

/// Tells an origin from all others that exist.
fn address(origin: &Arc<Origin>) -> usize {
    std::ptr::from_ref::<Origin>(origin).addr()
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
            rejected: 0,
            reason: Some("dropped unsettled in `main.filter`".into()),
        };
        assert_eq!(*answers.lock(), [(0, expected)]);
    }

    /// Notes each step.
    #[derive(Default)]
    struct Steps(parking_lot::Mutex<Vec<String>>);

    impl AckObserver for Steps {
        fn entered(
            &self,
            from: Option<&std::sync::Arc<str>>,
            to: &std::sync::Arc<str>,
            messages: usize,
            bytes: usize,
        ) {
            let from = from.map_or("nowhere", |from| &**from);
            self.0.lock().push(format!("{from} to {to}: {messages} messages, {bytes} bytes"));
        }

        fn settled(&self, at: Option<&std::sync::Arc<str>>) {
            self.0.lock().push(format!("settled in {}", at.map_or("nowhere", |at| &**at)));
        }
    }

    #[test]
    fn an_observer_sees_each_part_and_is_told_before_the_answer() {
        let steps = std::sync::Arc::new(Steps::default());
        let noted = steps.clone();
        let ack = Ack::new("in".into(), move |_| noted.0.lock().push("answered".to_owned()));
        let mut one = ack.observed(steps.clone());
        one.enter_with(&"main".into(), || (3, 20));
        let mut other = one.split();
        assert!(other.observer().is_some() && Ack::noop().observer().is_none());
        other.enter(&"out".into());
        // Without an observer, nothing is asked for.
        Ack::new("in".into(), |_| {}).enter_with(&"main".into(), || unreachable!());
        one.reject(1);
        drop(other);
        let expected = [
            "in to main: 3 messages, 20 bytes",
            "main to out: 0 messages, 0 bytes",
            "settled in main",
            "settled in out",
            "answered",
        ];
        assert_eq!(*steps.0.lock(), expected);
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

    #[test]
    fn the_rejected_messages_of_all_parts_are_counted() {
        let answers = Answers::default();
        let ack = observed(0, &answers);
        let (one, other) = (ack.split(), ack.split());
        one.reject(2);
        other.reject(1);
        ack.settle(Outcome::Delivered);
        let expected = Settlement { outcome: Outcome::Rejected, rejected: 3, reason: None };
        assert_eq!(*answers.lock(), [(0, expected)]);
    }

    #[test]
    fn the_rest_of_a_divided_origin_is_known_until_all_its_parts_are_settled() {
        let origin = || Ack::new("test".into(), |_| {});
        let (whole, other) = (origin(), origin());
        let (first, mut rest) = (whole.split(), whole);
        rest.merge(origin());
        let mut divided = DividedOrigins::default();
        for ack in [first, other] {
            divided.note(&ack);
            ack.settle(Outcome::Delivered);
        }
        assert_eq!(divided.0.len(), 1);
        let (last, later) = (rest.split(), origin());
        assert!(divided.has_part(&rest) && divided.has_part(&last) && !divided.has_part(&later));
        rest.settle(Outcome::Delivered);
        divided.forget_settled();
        assert!(divided.has_part(&last));
        last.settle(Outcome::Delivered);
        divided.forget_settled();
        assert!(divided.0.is_empty());
        later.settle(Outcome::Delivered);
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
        /// The model: each part is a list of its origins, and each origin tracks its unsettled parts and the
        /// worst outcome.
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
            let reported = loom::sync::Arc::new(loom::sync::Mutex::new(Vec::new()));
            let reporter = reported.clone();
            let ack = Ack::new("test".into(), move |s| reporter.lock().unwrap().push(s.outcome));
            let part = ack.split();
            let thread = loom::thread::spawn(move || part.settle(Outcome::Rejected));
            ack.settle(Outcome::Delivered);
            thread.join().unwrap();
            assert_eq!(*reported.lock().unwrap(), [Outcome::Rejected]);
        });
    }
}

//! The place where an evaluation's result is stored, with the handles that wait for it.
//!
//! A cell is shared by the handles of an evaluation and by its code while that runs. It is concluded once: by
//! the code when it ends, or by another caller, whichever is first. One lock protects all of it. The lock is
//! held for a few instructions and never while foreign code runs (except the `clone` of a result). Wakers are
//! woken and values dropped after it is released. Two flags beside it answer the frequent questions without
//! the lock.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::error::EvaluationError;
use super::hook::{self, Forgotten};
use super::sync::{AtomicBool, Mutex, Ordering};

pub struct Cell<T> {
    concluded: AtomicBool,
    /// True if the code has started and was left waiting.
    suspended: AtomicBool,
    /// True if a handle has received the result. Used under the lock; it is stored here to keep the cell
    /// small.
    known: AtomicBool,
    state: Mutex<State<T>>,
}

struct State<T> {
    result: Stage<T>,
    /// Wakes the code while it waits. A caller that concludes the cell uses it to have the code dropped.
    code: Option<Waker>,
    /// The waiting handles by their numbers, in the order in which they began to wait.
    waiters: Waiters,
    handles: u32,
    next_handle: u32,
    /// Clones the result for several handles. The first `clone` of a handle sets it, because `T: Clone` is
    /// known there.
    duplicate: Option<fn(&T) -> T>,
    /// Receives a result that no handle is left for.
    forget: Option<fn(T)>,
}

enum Stage<T> {
    Pending,
    /// A failure is boxed, since it is rare and larger than most results.
    Concluded(Result<T, Box<EvaluationError>>),
    Taken,
}

impl<T> Cell<T> {
    /// Creates a cell for code that waits already (or that starts later), with one handle, whose number is
    /// zero.
    pub(super) fn new(suspended: bool) -> Arc<Self> {
        let state = State {
            result: Stage::Pending,
            code: None,
            waiters: Waiters::default(),
            handles: 1,
            next_handle: 1,
            duplicate: None,
            forget: None,
        };
        Arc::new(Self {
            concluded: AtomicBool::new(false),
            suspended: AtomicBool::new(suspended),
            known: AtomicBool::new(false),
            state: Mutex::new(state),
        })
    }

    pub(super) fn is_concluded(&self) -> bool {
        self.concluded.load(Ordering::Acquire)
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.suspended.load(Ordering::Acquire) && !self.is_concluded()
    }

    /// Records that the code resumes. Returns false if it must not, because another caller has concluded the
    /// cell.
    pub(super) fn resumes(&self) -> bool {
        self.suspended.store(false, Ordering::Release);
        !self.is_concluded()
    }

    /// Records that the code waits, and the waker that wakes it. Returns false if it must not wait, because
    /// another caller has concluded the cell.
    pub(super) fn suspends(&self, code: &Waker) -> bool {
        let mut state = self.state.lock();
        self.suspended.store(true, Ordering::Release);
        if !matches!(state.result, Stage::Pending) {
            return false;
        }
        match &mut state.code {
            Some(known) => known.clone_from(code),
            unknown => *unknown = Some(code.clone()),
        }
        true
    }

    /// Records that the code ended, normally or not. Does nothing if another caller has concluded the cell.
    pub(super) fn conclude(&self, result: Result<T, EvaluationError>) {
        // The code is not waiting, so its waker is of no use.
        let _ = self.set(result, |unused| unused);
    }

    /// Concludes the cell from outside the code. Returns the waker of the code if it waits.
    ///
    /// # Errors
    /// Returns the value if the cell was concluded before.
    pub(super) fn conclude_to(&self, value: T) -> Result<Option<Waker>, T> {
        self.set(value, Ok)
    }

    fn set<V>(
        &self,
        value: V,
        result_of: impl FnOnce(V) -> Result<T, EvaluationError>,
    ) -> Result<Option<Waker>, V> {
        let mut state = self.state.lock();
        if !matches!(state.result, Stage::Pending) {
            return Err(value);
        }
        let result = result_of(value);
        let unasked = if state.handles == 0 {
            state.result = Stage::Taken;
            Some(result)
        } else {
            state.result = Stage::Concluded(result.map_err(Box::new));
            None
        };
        self.concluded.store(true, Ordering::Release);
        let waiters = std::mem::take(&mut state.waiters);
        let code = state.code.take();
        let forget = state.forget;
        drop(state);
        waiters.wake();
        if let Some(result) = unasked {
            tell(result, forget);
        }
        Ok(code)
    }

    /// Returns the result if there is one. Otherwise wakes the handle's task when there is.
    pub(super) fn poll_result(
        &self,
        handle: u32,
        context: &mut Context<'_>,
    ) -> Poll<Result<T, EvaluationError>> {
        let mut state = self.state.lock();
        let left = match (&state.result, state.handles, state.duplicate) {
            (Stage::Pending, ..) => {
                state.waiters.add(handle, context.waker());
                return Poll::Pending;
            }
            (Stage::Concluded(Ok(value)), 2.., Some(duplicate)) => Stage::Concluded(Ok(duplicate(value))),
            (Stage::Concluded(Err(error)), ..) => Stage::Concluded(Err(error.clone())),
            _ => Stage::Taken,
        };
        self.known.store(true, Ordering::Relaxed);
        match std::mem::replace(&mut state.result, left) {
            Stage::Concluded(result) => Poll::Ready(result.map_err(|error| *error)),
            Stage::Pending | Stage::Taken => Poll::Ready(Err(EvaluationError::Taken)),
        }
    }

    /// Ready when concluded; the result stays.
    pub(super) fn poll_concluded(&self, handle: u32, context: &mut Context<'_>) -> Poll<()> {
        if self.is_concluded() {
            return Poll::Ready(());
        }
        let mut state = self.state.lock();
        if !matches!(state.result, Stage::Pending) {
            return Poll::Ready(());
        }
        state.waiters.add(handle, context.waker());
        Poll::Pending
    }

    /// Adds a handle, and returns its number.
    pub(super) fn add_handle(&self) -> u32
    where
        T: Clone,
    {
        let mut state = self.state.lock();
        state.duplicate = Some(T::clone);
        state.handles += 1;
        let handle = state.next_handle;
        state.next_handle = handle.wrapping_add(1);
        handle
    }

    /// From now on, passes a result that no handle is left for to this function.
    pub(super) fn forget_to(&self, forget: fn(T)) {
        self.state.lock().forget = Some(forget);
    }

    /// Removes a handle.
    pub(super) fn remove_handle(&self, handle: u32) {
        let mut state = self.state.lock();
        let waiter = state.waiters.remove(handle);
        state.handles -= 1;
        let is_unasked = state.handles == 0
            && !self.known.load(Ordering::Relaxed)
            && matches!(state.result, Stage::Concluded(_));
        let unasked = is_unasked.then(|| std::mem::replace(&mut state.result, Stage::Taken));
        let forget = state.forget;
        drop(state);
        drop(waiter);
        if let Some(Stage::Concluded(result)) = unasked {
            tell(result.map_err(|error| *error), forget);
        }
    }
}

type Waiter = (u32, Waker);

/// The waiting handles. Mostly there is one: further ones are in a box, which keeps a million cells small.
#[derive(Default)]
struct Waiters {
    first: Option<Waiter>,
    #[allow(clippy::box_collection, reason = "one word in the common case, not three")]
    others: Option<Box<Vec<Waiter>>>,
}

impl Waiters {
    fn add(&mut self, handle: u32, waker: &Waker) {
        let is_empty = self.first.is_none() && self.others.is_none();
        let others = self.others.iter_mut().flat_map(|others| others.iter_mut());
        match self.first.iter_mut().chain(others).find(|(number, _)| *number == handle) {
            Some((_, known)) => known.clone_from(waker),
            None if is_empty => {
                self.first = Some((handle, waker.clone()));
            }
            None => self.others.get_or_insert_default().push((handle, waker.clone())),
        }
    }

    fn remove(&mut self, handle: u32) -> Option<Waiter> {
        if self.first.as_ref().is_some_and(|(number, _)| *number == handle) {
            return self.first.take();
        }
        let others = self.others.as_mut()?;
        let at = others.iter().position(|(number, _)| *number == handle)?;
        Some(others.remove(at))
    }

    /// Wakes all handles in the order in which they began to wait.
    fn wake(self) {
        for (_, waker) in self.first.into_iter().chain(self.others.into_iter().flat_map(|others| *others)) {
            waker.wake();
        }
    }
}

/// Reports a result that no handle is left for. A panic always goes to the hook; an error only if `forget` is
/// set.
fn tell<T>(result: Result<T, EvaluationError>, forget: Option<fn(T)>) {
    match (result, forget) {
        (Ok(value), Some(forget)) => forget(value),
        (Err(EvaluationError::Panicked(message)), _) => hook::tell(Forgotten::Panicked(message)),
        _ => {}
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_small() {
        assert_eq!(size_of::<Cell<()>>(), 104);
    }
}

#[cfg(all(test, feature = "loom"))]
mod loom_tests {
    use super::*;
    use loom::sync::atomic::AtomicUsize;
    use std::task::Wake;

    struct Woken(AtomicUsize);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn whoever_waits_for_a_conclusion_gets_it_or_is_woken_for_it() {
        loom::model(|| {
            let cell = Cell::new(true);
            let concluder = Arc::clone(&cell);
            let thread = loom::thread::spawn(move || assert!(concluder.conclude_to(7).is_ok()));
            let woken = Arc::new(Woken(AtomicUsize::new(0)));
            let waker = Waker::from(Arc::clone(&woken));
            let first = cell.poll_result(0, &mut Context::from_waker(&waker));
            thread.join().unwrap();
            match first {
                Poll::Ready(result) => assert_eq!(result, Ok(7)),
                Poll::Pending => {
                    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
                    assert_eq!(
                        cell.poll_result(0, &mut Context::from_waker(Waker::noop())),
                        Poll::Ready(Ok(7))
                    );
                }
            }
        });
    }

    #[test]
    fn of_two_who_conclude_one_learns_that_the_other_was_first() {
        loom::model(|| {
            let cell = Cell::new(true);
            let other = Arc::clone(&cell);
            let thread = loom::thread::spawn(move || other.conclude_to(1).is_ok());
            let here = cell.conclude_to(2).is_ok();
            let there = thread.join().unwrap();
            assert!(here != there);
            let result = cell.poll_result(0, &mut Context::from_waker(Waker::noop()));
            assert_eq!(result, Poll::Ready(Ok(if here { 2 } else { 1 })));
        });
    }

    #[test]
    fn code_that_waits_while_it_is_concluded_learns_of_it_or_is_woken() {
        loom::model(|| {
            let cell = Cell::new(false);
            let other = Arc::clone(&cell);
            let thread = loom::thread::spawn(move || other.conclude_to(()).is_ok_and(|code| code.is_some()));
            let woken = Arc::new(Woken(AtomicUsize::new(0)));
            let learned = !cell.resumes() || !cell.suspends(&Waker::from(woken));
            let given_to_concluder = thread.join().unwrap();
            assert!(learned != given_to_concluder);
        });
    }
}

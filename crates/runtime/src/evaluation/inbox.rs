//! How other threads wake evaluations of an event loop, and how the loop sleeps until then.
//!
//! One lock is enough. A thread that wakes an evaluation takes it once each time; the event loop takes it
//! only if a wake-up arrived or before it sleeps. The flag beside it spares the loop the lock while no
//! wake-up arrives from other threads. The flag is a hint: a missed wake-up is found under the lock before
//! the loop sleeps.

use std::sync::OnceLock;
use std::time::Duration;

use super::sync::{AtomicBool, Bell, Mutex, Ordering};

#[derive(Default)]
pub(super) struct Inbox {
    arrived: AtomicBool,
    state: Mutex<State>,
    bell: Bell,
    /// Ends a sleep that also waits for descriptors.
    descriptors: OnceLock<mio::Waker>,
}

#[derive(Default)]
struct State {
    woken: Vec<usize>,
    asleep: Asleep,
}

#[derive(Default, PartialEq)]
enum Asleep {
    #[default]
    No,
    Waiting,
    WaitingForDescriptors,
}

impl Inbox {
    /// Wakes the evaluation at this index, from any thread.
    pub(super) fn wake(&self, place: usize) {
        let mut state = self.state.lock();
        if state.woken.last() != Some(&place) {
            state.woken.push(place);
        }
        self.arrived.store(true, Ordering::Release);
        match std::mem::take(&mut state.asleep) {
            Asleep::No => {}
            Asleep::Waiting => self.bell.ring(),
            Asleep::WaitingForDescriptors => {
                if let Some(waker) = self.descriptors.get() {
                    // This fails only if the event loop's own descriptors are gone, and then no loop can
                    // sleep on them.
                    let _ = waker.wake();
                }
            }
        }
    }

    /// Moves the woken indexes to the end of `places`.
    pub(super) fn take(&self, places: &mut Vec<usize>) {
        if self.arrived.load(Ordering::Acquire) {
            let mut state = self.state.lock();
            self.arrived.store(false, Ordering::Release);
            places.append(&mut state.woken);
        }
    }

    /// Sleeps until another thread wakes an evaluation, or until the time is over. It may end early.
    pub(super) fn sleep(&self, at_most: Option<Duration>) {
        let mut state = self.state.lock();
        if state.woken.is_empty() {
            state.asleep = Asleep::Waiting;
            state = self.bell.sleep(state, at_most);
            state.asleep = Asleep::No;
        }
    }

    /// Sleeps in `poll`, which waits for descriptors, unless a wake-up has arrived.
    pub(super) fn sleep_in<T>(&self, poll: impl FnOnce() -> T) -> Option<T> {
        {
            let mut state = self.state.lock();
            if !state.woken.is_empty() {
                return None;
            }
            state.asleep = Asleep::WaitingForDescriptors;
        }
        let polled = poll();
        self.state.lock().asleep = Asleep::No;
        Some(polled)
    }

    /// Sets the waker that ends a wait for descriptors.
    pub(super) fn set_descriptors(&self, waker: mio::Waker) {
        let _ = self.descriptors.set(waker);
    }
}

#[cfg(all(test, feature = "loom"))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    #[test]
    fn an_event_loop_never_sleeps_through_what_woke_it() {
        loom::model(|| {
            let inbox = Arc::new(Inbox::default());
            let threads = [3, 5].map(|place| {
                let inbox = inbox.clone();
                loom::thread::spawn(move || inbox.wake(place))
            });
            let mut places = Vec::new();
            while places.len() < 2 {
                inbox.take(&mut places);
                if places.len() < 2 {
                    inbox.sleep(None);
                }
            }
            for thread in threads {
                thread.join().unwrap();
            }
            places.sort_unstable();
            assert_eq!(places, [3, 5]);
        });
    }
}

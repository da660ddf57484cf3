//! The event loop of a thread: scheduled code, waiting code, and what the latter waits for.
//!
//! It is created when code first waits on the thread, and lives as long as the thread. It runs while the
//! thread is in [`block_on`], in turns. A turn runs everything that was scheduled when the turn began, in the
//! order of scheduling. Code that is scheduled meanwhile runs in the next turn. Between turns, timers that
//! are due and descriptors that are ready schedule the code that waits for them. If nothing is scheduled
//! then, the thread sleeps.
//!
//! Code that has not started is in the queue itself. Only code that has to wait gets an *entry*, and its
//! wakers contain the index of the entry. An entry is 24 bytes. With the storage of the code and the cell for
//! its result, that is the total memory of a waiting evaluation.
//!
//! No foreign code runs while anything here is borrowed. Wakers and code are taken out first and dropped
//! after that.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use mio::Interest;
use parking_lot::RwLock;
use slab::Slab;

use super::clock::{Clock, nanoseconds};
use super::home::{EventSource, Within};
use super::hook::drop_contained;
use super::inbox::Inbox;
use super::readiness::Readiness;
use super::storage::Slot;
use super::timers::{Timer, Timers};
use super::waker;

type Code = Pin<Slot<dyn Future<Output = ()>>>;

/// Descriptors are checked when nothing else is ready, or after this many polls of code: a system call costs
/// as much as some dozens of polls.
const LOOK_AFTER: u32 = 64;

/// A queue with a larger capacity than this shrinks when most of its items are gone.
const QUEUE_KEPT: usize = 4096;

thread_local! {
    static EVENT_LOOP: EventLoop = EventLoop::new();
    /// The number of this thread's event loop, to check whether a number belongs to this thread. Asking
    /// `EVENT_LOOP` would create an event loop on every thread that wakes something.
    static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The inboxes of all event loops, by their numbers. Numbers are reused.
static INBOXES: RwLock<Slab<Arc<Inbox>>> = RwLock::new(Slab::new());

struct EventLoop {
    number: usize,
    inbox: Arc<Inbox>,
    queue: RefCell<VecDeque<Scheduled>>,
    entries: RefCell<Slab<Entry>>,
    entries_made: Cell<u32>,
    timers: RefCell<Timers>,
    readiness: RefCell<Option<Readiness>>,
    clock: Clock,
    is_running: Cell<bool>,
    ran_since_look: Cell<u32>,
}

enum Scheduled {
    Start(Code),
    Resume { place: u32, serial: u32 },
}

/// An entry for code that waits, or for the foreground of [`block_on`], which has no code here.
struct Entry {
    /// `None` while the code runs.
    code: Option<Code>,
    /// Distinguishes this entry from earlier ones at the same index.
    serial: u32,
    is_scheduled: bool,
}

impl EventLoop {
    fn new() -> Self {
        let inbox = Arc::new(Inbox::default());
        let number = INBOXES.write().insert(Arc::clone(&inbox));
        assert!(number <= waker::LAST_LOOP, "there are too many threads with an event loop: {number}");
        NUMBER.set(Some(number));
        Self {
            number,
            inbox,
            queue: RefCell::default(),
            entries: RefCell::default(),
            entries_made: Cell::new(0),
            timers: RefCell::default(),
            readiness: RefCell::default(),
            clock: Clock::new(),
            is_running: Cell::new(false),
            ran_since_look: Cell::new(0),
        }
    }

    fn waker(&self, place: u32) -> Waker {
        waker::waker(self.number, place as usize)
    }

    fn add_entry(&self, code: Option<Code>) -> u32 {
        let serial = self.entries_made.get();
        self.entries_made.set(serial.wrapping_add(1));
        let mut entries = self.entries.borrow_mut();
        if entries.len() == entries.capacity() {
            // Grows by a quarter, not by doubling: half of a million empty entries would be 12 MB.
            let more = entries.capacity() / 4;
            entries.reserve_exact(more.max(64));
        }
        let place = entries.insert(Entry { code, serial, is_scheduled: false });
        // An entry is 24 bytes: memory runs out long before the numbers do.
        place as u32
    }

    fn remove_entry(&self, place: u32) {
        let entry = self.entries.borrow_mut().try_remove(place as usize);
        drop(entry);
    }

    fn schedule(&self, place: usize) {
        let mut entries = self.entries.borrow_mut();
        if let Some(entry) = entries.get_mut(place)
            && !entry.is_scheduled
        {
            entry.is_scheduled = true;
            let resume = Scheduled::Resume { place: place as u32, serial: entry.serial };
            self.queue.borrow_mut().push_back(resume);
        }
    }

    /// Runs until the foreground's future is ready.
    fn run<Fut: Future>(&self, mut future: Pin<&mut Fut>) -> Fut::Output {
        let foreground = Foreground::begin(self);
        let waker = self.waker(foreground.place);
        // Code that is already due runs before the foreground.
        self.take_woken();
        self.fire_timers();
        self.schedule(foreground.place as usize);
        loop {
            self.gather();
            let count = self.queue.borrow().len();
            for _ in 0..count {
                let Some(next) = self.queue.borrow_mut().pop_front() else { break };
                match next {
                    Scheduled::Start(code) => {
                        let place = self.add_entry(None);
                        self.poll(place, code);
                    }
                    Scheduled::Resume { place, serial } => {
                        let code = match self.entries.borrow_mut().get_mut(place as usize) {
                            Some(entry) if entry.serial == serial => {
                                entry.is_scheduled = false;
                                entry.code.take()
                            }
                            _ => continue,
                        };
                        match code {
                            Some(code) => self.poll(place, code),
                            None if place == foreground.place => {
                                if let Poll::Ready(value) =
                                    future.as_mut().poll(&mut Context::from_waker(&waker))
                                {
                                    return value;
                                }
                            }
                            None => {}
                        }
                    }
                }
            }
            self.ran_since_look.set(self.ran_since_look.get().saturating_add(count as u32));
        }
    }

    /// Runs code until it waits or ends. Its entry exists already, so that it can be woken meanwhile.
    fn poll(&self, place: u32, mut code: Code) {
        let waker = self.waker(place);
        if code.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            if let Some(entry) = self.entries.borrow_mut().get_mut(place as usize) {
                entry.code = Some(code);
            }
        } else {
            self.remove_entry(place);
            drop_contained(code);
        }
    }

    fn shrink_queue(&self) {
        let mut queue = self.queue.borrow_mut();
        if queue.capacity() > QUEUE_KEPT && queue.len() < queue.capacity() / 4 {
            let left = queue.len();
            queue.shrink_to(left.max(QUEUE_KEPT / 2));
        }
    }

    /// Schedules code that became ready, and sleeps if there is none.
    fn gather(&self) {
        self.shrink_queue();
        loop {
            self.take_woken();
            self.fire_timers();
            let is_idle = self.queue.borrow().is_empty();
            if !is_idle {
                if self.ran_since_look.get() >= LOOK_AFTER {
                    self.look(Some(Duration::ZERO));
                }
                return;
            }
            let due = self.timers.borrow().next_due();
            match due {
                Some(due) if self.clock.is_virtual() => {
                    self.look(Some(Duration::ZERO));
                    if self.queue.borrow().is_empty() {
                        self.clock.jump_to(due);
                    }
                }
                Some(due) => {
                    let time = Duration::from_nanos(due.saturating_sub(self.clock.now()));
                    self.sleep(Some(time));
                }
                None => self.sleep(None),
            }
        }
    }

    fn take_woken(&self) {
        let mut places = Vec::new();
        self.inbox.take(&mut places);
        for place in places {
            self.schedule(place);
        }
    }

    fn fire_timers(&self) {
        if self.timers.borrow().next_due().is_none() {
            return;
        }
        let now = self.clock.now();
        loop {
            let due = self.timers.borrow_mut().fire(now);
            match due {
                Some(waker) => waker.wake(),
                None => return,
            }
        }
    }

    fn sleep(&self, at_most: Option<Duration>) {
        let is_watching = self.readiness.borrow().as_ref().is_some_and(|readiness| !readiness.is_idle());
        if is_watching {
            self.inbox.sleep_in(|| self.look(at_most));
        } else {
            self.inbox.sleep(at_most);
        }
    }

    /// Waits for descriptors, and schedules the code that waited for them.
    fn look(&self, at_most: Option<Duration>) {
        self.ran_since_look.set(0);
        let mut ready = Vec::new();
        if let Some(readiness) = &mut *self.readiness.borrow_mut()
            && !readiness.is_idle()
        {
            readiness.poll(at_most, &mut ready);
        }
        for waker in ready {
            waker.wake();
        }
    }
}

impl Drop for EventLoop {
    /// Abandons the evaluations of a thread that ends.
    fn drop(&mut self) {
        NUMBER.set(None);
        INBOXES.write().try_remove(self.number);
        for scheduled in self.queue.take() {
            if let Scheduled::Start(code) = scheduled {
                drop_contained(code);
            }
        }
        for (_, entry) in self.entries.take() {
            drop_contained(entry);
        }
    }
}

/// The entry of a [`block_on`]; while it lives, the event loop is marked as running.
struct Foreground<'l> {
    event_loop: &'l EventLoop,
    place: u32,
    _within: Within,
}

impl<'l> Foreground<'l> {
    fn begin(event_loop: &'l EventLoop) -> Self {
        assert!(
            !event_loop.is_running.replace(true),
            "`block_on` was called by an evaluation, which would stop the event loop that it runs on: use `.await`"
        );
        Self { event_loop, place: event_loop.add_entry(None), _within: Within::enter(EventSource::Here) }
    }
}

impl Drop for Foreground<'_> {
    fn drop(&mut self) {
        self.event_loop.is_running.set(false);
        self.event_loop.shrink_queue();
        self.event_loop.remove_entry(self.place);
    }
}

/// Runs a future in the foreground of this thread, and the thread's event loop while the future waits. Code
/// that is not an evaluation itself (`main`, a test) waits this way.
///
/// Evaluations that still wait when the future is ready are kept, and continue in the next `block_on` of the
/// thread.
///
/// ```
/// use thalweg_runtime::evaluation::{ConcurrentProc, block_on};
///
/// let double = ConcurrentProc::new(async |number: u32| number * 2);
/// assert_eq!(block_on(double.call(21)), 42);
/// ```
///
/// # Panics
/// If an evaluation of this thread calls it and the future has to wait: the event loop, which runs the
/// evaluation, would wait for itself. Also if the thread is ending.
#[inline]
pub fn block_on<Fut: Future>(future: Fut) -> Fut::Output {
    let mut future = pin!(future);
    let first = {
        let _within = Within::enter(EventSource::Here);
        future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    };
    match first {
        Poll::Ready(value) => value,
        Poll::Pending => EVENT_LOOP.with(|event_loop| event_loop.run(future)),
    }
}

/// Schedules code that has not started. If the thread is ending, the code is dropped, and its evaluation
/// abandoned.
#[inline]
pub(super) fn start(code: Code) {
    let _ = EVENT_LOOP.try_with(|event_loop| {
        event_loop.queue.borrow_mut().push_back(Scheduled::Start(code));
    });
}

/// Adopts code that was left waiting under a waker that does nothing, and schedules another poll. If the
/// thread is ending, the code is dropped, and its evaluation abandoned.
pub(super) fn adopt(code: Code) -> Option<Waker> {
    EVENT_LOOP
        .try_with(|event_loop| {
            let place = event_loop.add_entry(Some(code));
            event_loop.schedule(place as usize);
            event_loop.waker(place)
        })
        .ok()
}

/// Schedules the code at an index of an event loop, from any thread. Does nothing if either is gone.
pub(super) fn wake(number: usize, place: usize) {
    if is_here(number) {
        let _ = EVENT_LOOP.try_with(|event_loop| event_loop.schedule(place));
    } else if let Some(inbox) = INBOXES.read().get(number) {
        inbox.wake(place);
    }
}

/// True if this thread's event loop has this number.
pub(super) fn is_here(number: usize) -> bool {
    NUMBER.get() == Some(number)
}

/// Drops the code that this waker wakes, after its evaluation was concluded. Code that waits on this thread
/// is dropped at once. Other code is woken, so that its own thread drops it.
pub(super) fn cancel(code: Waker) {
    let here = waker::named_by(&code).and_then(|(number, place)| {
        at(number, |event_loop| {
            let mut entries = event_loop.entries.borrow_mut();
            let taken = entries.get_mut(place)?.code.take()?;
            entries.remove(place);
            Some(taken)
        })
    });
    match here {
        Some(code) => drop_contained(code),
        None => code.wake(),
    }
}

pub(super) fn with_clock(change: impl FnOnce(&Clock)) {
    let _ = EVENT_LOOP.try_with(|event_loop| change(&event_loop.clock));
}

/// Creates a timer of this thread's event loop.
///
/// # Panics
/// If the thread is ending.
pub(super) fn add_timer(after: Duration, waker: &Waker) -> (usize, Timer) {
    EVENT_LOOP.with(|event_loop| {
        let due = event_loop.clock.now().saturating_add(nanoseconds(after));
        (event_loop.number, event_loop.timers.borrow_mut().add(due, waker.clone()))
    })
}

/// Sets another waker for a timer of this thread's event loop. Returns true if the timer has yet to fire.
pub(super) fn rewake_timer(number: usize, timer: Timer, waker: &Waker) -> bool {
    let former = at(number, |event_loop| event_loop.timers.borrow_mut().rewake(timer, waker));
    former.is_some()
}

/// Removes a timer. A timer of another thread's event loop is not removed, and fires without effect.
pub(super) fn remove_timer(number: usize, timer: Timer) {
    drop(at(number, |event_loop| event_loop.timers.borrow_mut().remove(timer)));
}

/// Makes this thread's event loop wake `waker` when the descriptor is ready.
pub(super) fn watch(descriptor: RawFd, interest: Interest, waker: &Waker) -> io::Result<(usize, u64)> {
    EVENT_LOOP.with(|event_loop| {
        let mut readiness = event_loop.readiness.borrow_mut();
        let readiness = match &mut *readiness {
            Some(readiness) => readiness,
            none => none.insert(Readiness::new(&event_loop.inbox)?),
        };
        Ok((event_loop.number, readiness.watch(descriptor, interest, waker.clone())?))
    })
}

/// Sets another waker for a descriptor. Returns true if the descriptor is not ready yet.
pub(super) fn rewatch(number: usize, descriptor: RawFd, waiter: u64, waker: &Waker) -> bool {
    let former = at(number, |event_loop| {
        event_loop.readiness.borrow_mut().as_mut()?.rewatch(descriptor, waiter, waker)
    });
    former.is_some()
}

/// Removes a waiter from a descriptor.
pub(super) fn unwatch(number: usize, descriptor: RawFd, waiter: u64) {
    drop(at(number, |event_loop| event_loop.readiness.borrow_mut().as_mut()?.unwatch(descriptor, waiter)));
}

/// Calls `get` with the event loop of this number, if it is this thread's.
fn at<T>(number: usize, get: impl FnOnce(&EventLoop) -> Option<T>) -> Option<T> {
    if !is_here(number) {
        return None;
    }
    EVENT_LOOP.try_with(get).ok().flatten()
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn what_waits_has_an_entry_of_three_words() {
        assert_eq!(size_of::<Entry>(), 3 * size_of::<usize>());
    }
}

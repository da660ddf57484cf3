//! Evaluations: code that runs concurrently, and costs nothing until it waits.
//!
//! Most code that *may* have to wait does not: the channel has capacity, the bytes are in the cache, the
//! limit is not reached. Such code should not pay for the possibility. Code that is *evaluated* runs in the
//! foreground, on its caller's stack, until it first has to wait. Only then is there something to schedule,
//! to wake and to await. A call that does not wait costs a few nanoseconds more than a plain one and
//! allocates nothing. A call that waits needs about 200 bytes, so a million of them are affordable.
//!
//! ```
//! use std::time::Duration;
//! use thalweg_runtime::evaluation::{ConcurrentProc, block_on, wait};
//!
//! let measure = ConcurrentProc::new(async |(place, milliseconds): (&'static str, u64)| {
//!     wait(Duration::from_millis(milliseconds)).await;
//!     format!("measured at {place}")
//! });
//! let upstream = measure.call_detached(("the weir", 2));
//! let downstream = measure.call_detached(("the bridge", 1));
//! block_on(async {
//!     assert_eq!(upstream.await.unwrap(), "measured at the weir");
//!     assert_eq!(downstream.await.unwrap(), "measured at the bridge");
//! });
//! ```
//!
//! # Overview
//!
//! - [`ConcurrentProc`] is code that can be called in four ways; [`concurrently`] is the short form for code
//!   that is called once.
//! - [`Evaluation`] is the handle of code that was left running: it awaits the result, with or without a time
//!   limit, concludes the evaluation from outside, or asks whether it waits.
//! - Code waits with [`wait`] for time, with [`await_readable`] and [`await_writable`] for descriptors, with
//!   [`await_fastest`] for one of several evaluations, and with [`resumption`] for an event that only other
//!   code observes. It can await an evaluation and, being an ordinary future, any other future. [`within`]
//!   adds a time limit to any of them.
//! - [`block_on`] is where code that is not an evaluation waits, and lets the event loop run.
//! - [`on_forgotten`] sets the hook for failures that no handle awaits.
//! - [`VirtualTime`] is a clock for tests.
//!
//! # Order of execution
//!
//! Each thread has an event loop, which runs while the thread is in [`block_on`], in turns. A turn runs all
//! code that was scheduled before it, in the order of scheduling. Code that is scheduled during a turn runs
//! in the next one. Code is scheduled by a detached call, by a wake-up when the event it waits for occurs,
//! and by its timer. Timers fire in the order of their times, and in the order of their creation if the times
//! are equal.
//!
//! Code that is called in the foreground runs at once, before anything that is scheduled. If it has to wait,
//! a `call` makes its caller wait, while `call_nonblock` passes it to the event loop and returns.
//!
//! ```
//! use std::{cell::RefCell, rc::Rc, time::Duration};
//! use thalweg_runtime::evaluation::{ConcurrentProc, block_on, wait};
//!
//! let log = Rc::new(RefCell::new(Vec::new()));
//! let code = {
//!     let log = Rc::clone(&log);
//!     ConcurrentProc::new(move |name: &'static str| {
//!         let log = Rc::clone(&log);
//!         async move {
//!             log.borrow_mut().push(format!("{name} starts"));
//!             wait(Duration::ZERO).await;
//!             log.borrow_mut().push(format!("{name} goes on"));
//!         }
//!     })
//! };
//! code.call_and_forget("scheduled");
//! let foreground = code.call_nonblock("foreground");
//! log.borrow_mut().push("caller".to_owned());
//! block_on(async { for _ in 0..2 { wait(Duration::ZERO).await } });
//! assert_eq!(
//!     *log.borrow(),
//!     ["foreground starts", "caller", "scheduled starts", "foreground goes on", "scheduled goes on"]
//! );
//! # drop(foreground);
//! ```
//!
//! Evaluations of a thread never leave it and never run at the same time, so the data they share needs no
//! lock. It may change whenever an evaluation awaits, and at no other point.
//!
//! # On tokio
//!
//! [`ConcurrentProc::on_tokio`] and [`concurrently_on_tokio`] create the same evaluations for code that runs
//! in a tokio runtime. The foreground is the same, and as cheap. Code that waits is a task of the runtime, on
//! any of its threads, so the code must be `Send`. Timers and descriptors are then tokio's: timers have its
//! resolution of a millisecond, and there is no order among its threads. Handles can be awaited, and
//! evaluations concluded, from anywhere. Do not use a proc made by [`ConcurrentProc::new`] on tokio's
//! threads: its code would wait for an event loop that no thread there runs.
//!
//! # Blocking calls
//!
//! Nothing may block, except `block_on`. The event loop has one thread. Code that sleeps, reads a file or
//! computes for long without awaiting stops all evaluations that wait there.
//!
//! # Common mistakes
//!
//! **An evaluation never runs.** It is only scheduled, and no code on this thread waits, so its event loop
//! does not run. Await an evaluation that must end:
//!
//! ```
//! # use thalweg_runtime::evaluation::{block_on, concurrently};
//! let greeting = concurrently(async { "hello" });
//! std::thread::sleep(std::time::Duration::from_millis(1)); // The event loop does not run meanwhile.
//! assert!(!greeting.is_concluded());
//! assert_eq!(block_on(greeting), Ok("hello"));
//! ```
//!
//! **An evaluation stops half way.** The foreground was ready first, `block_on` returned, and the event loop
//! stopped. The rest continues in the next `block_on` of the thread, or is dropped with the thread:
//!
//! ```
//! # use std::time::Duration;
//! # use thalweg_runtime::evaluation::{block_on, concurrently, wait};
//! let slow = concurrently(wait(Duration::from_millis(5)));
//! block_on(wait(Duration::from_millis(1)));
//! assert!(slow.is_waiting());
//! assert_eq!(block_on(slow), Ok(()));
//! ```
//!
//! **A call delays everything.** A `call` is awaited in place, so a loop of calls takes the sum of their
//! times. Start them all, then await them:
//!
//! ```
//! # use std::time::Duration;
//! # use thalweg_runtime::evaluation::{ConcurrentProc, VirtualTime, block_on, wait};
//! let time = VirtualTime::start();
//! let second = ConcurrentProc::new(async |_: u32| wait(Duration::from_secs(1)).await);
//! let start = time.now();
//! block_on(async { for number in 0..3 { second.call(number).await } });
//! assert_eq!(time.now() - start, Duration::from_secs(3));
//!
//! let start = time.now();
//! let evaluations = [0, 1, 2].map(|number| second.call_detached(number));
//! block_on(async { for evaluation in evaluations { evaluation.await.unwrap() } });
//! assert_eq!(time.now() - start, Duration::from_secs(1));
//! ```
//!
//! **Timers are late, descriptors go unread.** An evaluation computes for long. It should yield to the others
//! now and then:
//!
//! ```
//! # use std::time::Duration;
//! # use thalweg_runtime::evaluation::{block_on, concurrently, wait};
//! let sum = concurrently(async {
//!     let mut sum = 0_u64;
//!     for number in 0..100_000 {
//!         sum += number;
//!         if number % 10_000 == 0 {
//!             wait(Duration::ZERO).await;
//!         }
//!     }
//!     sum
//! });
//! let other = concurrently(async { "had its turn" });
//! assert_eq!(block_on(other), Ok("had its turn"));
//! assert!(!sum.is_concluded());
//! # assert_eq!(block_on(sum), Ok(4_999_950_000));
//! ```
//!
//! **`block_on` panics.** It was called within an evaluation, which runs on the event loop that it would wait
//! for. Use `.await` there:
//!
//! ```should_panic
//! # use std::time::Duration;
//! # use thalweg_runtime::evaluation::{block_on, concurrently, wait};
//! let inner = async || wait(Duration::from_millis(1)).await;
//! block_on(async move {
//!     wait(Duration::ZERO).await;
//!     block_on(inner()); // Should be `inner().await`.
//! });
//! ```
//!
//! **An error went unseen.** A dropped handle drops the result, including an `Err`. (A panic goes to the hook
//! in any case.) `forget` keeps errors from being lost:
//!
//! ```
//! # use std::{cell::Cell, rc::Rc, time::Duration};
//! # use thalweg_runtime::evaluation::{block_on, concurrently, on_forgotten, wait};
//! let finished = Rc::new(Cell::new(0));
//! let count = Rc::clone(&finished);
//! on_forgotten(move |_| count.set(count.get() + 1));
//!
//! drop(concurrently(async { "7 boats".parse::<u32>() }));
//! concurrently(async { "8 boats".parse::<u32>() }).forget();
//! block_on(wait(Duration::ZERO));
//! assert_eq!(finished.get(), 1);
//! ```
//!
//! **A panic ended more than its evaluation.** A panic in the foreground is the caller's, as in any function.
//! A panic after the first wait, or in scheduled code, ends its own evaluation; its handles receive it as an
//! error.
//!
//! ```
//! # use std::time::Duration;
//! # use thalweg_runtime::evaluation::{Called, ConcurrentProc, EvaluationError, block_on, wait};
//! let code = ConcurrentProc::new(async |waits: bool| {
//!     if waits {
//!         wait(Duration::ZERO).await;
//!     }
//!     panic!("over the weir")
//! });
//! let foreground: Result<Called<()>, _> = std::panic::catch_unwind(|| code.call_nonblock(false));
//! assert!(foreground.is_err());
//! let Called::Waiting(evaluation) = code.call_nonblock(true) else { unreachable!() };
//! assert_eq!(block_on(evaluation), Err(EvaluationError::Panicked("over the weir".into())));
//! ```
//!
//! **Dropping a handle, or a timeout, does not stop the code.** Only [`conclude_to`](Evaluation::conclude_to)
//! does; it also ends the losers of [`await_fastest`]:
//!
//! ```
//! # use std::time::Duration;
//! # use thalweg_runtime::evaluation::{ConcurrentProc, await_fastest, block_on, wait};
//! let server = ConcurrentProc::new(async |milliseconds| {
//!     wait(Duration::from_millis(milliseconds)).await;
//!     Some(milliseconds)
//! });
//! let servers = [60_000, 1].map(|milliseconds| server.call_detached(milliseconds));
//! assert_eq!(block_on(await_fastest(&servers)), Some(1));
//! assert!(servers[0].is_waiting());
//! assert_eq!(servers[0].conclude_to(None), Ok(()));
//! ```
//!
//! **The compiler says that the code "does not live long enough", or that it is only `FnOnce`.** An
//! evaluation may outlive the call, so it must own what it uses of the closure's captures. Clone them into
//! the future, like `log` above.
//!
//! **A borrow of a `RefCell` panics.** The borrow was held over an `.await`, and another evaluation borrowed
//! meanwhile. End borrows before awaiting. For the same reason thread-locals are shared: they belong to the
//! thread, not to the evaluation.
//!
//! ```
//! # use std::{cell::RefCell, rc::Rc, time::Duration};
//! # use thalweg_runtime::evaluation::{block_on, concurrently, wait};
//! let level = Rc::new(RefCell::new(1));
//! let ours = Rc::clone(&level);
//! let raised = concurrently(async move {
//!     let before = *ours.borrow(); // A copy: the borrow ends here.
//!     wait(Duration::ZERO).await;
//!     *ours.borrow_mut() = before + 1;
//! });
//! assert_eq!(block_on(raised), Ok(()));
//! assert_eq!(*level.borrow(), 2);
//! ```
//!
//! **A handle is awaited on another thread and nothing comes.** The code runs on the thread that called it,
//! and that thread must be in `block_on`. If the thread has ended, the evaluation is
//! [`Abandoned`](EvaluationError::Abandoned):
//!
//! ```
//! # use thalweg_runtime::evaluation::{EvaluationError, block_on, concurrently};
//! let evaluation = std::thread::spawn(|| concurrently(async { "never run" })).join().unwrap();
//! assert_eq!(block_on(evaluation), Err(EvaluationError::Abandoned));
//! ```
//!
//! # Implementation
//!
//! Evaluations are ordinary futures that are polled. A future cannot be moved after its first poll, so code
//! is put into recycled storage before its first step; a call that does not wait needs nothing more. If it
//! waits, the same storage moves to the event loop (or to tokio), with an entry to be woken by, and a cell
//! for its result. The event loop's wakers are numbers and own nothing. `unsafe` is used for the storage, for
//! these wakers, and for the registration of descriptors with tokio, each in a separate module.
//!
//! Rejected: fibers with separate stacks, as in Ruby's Concurrently, where the idea comes from. A stack takes
//! kilobytes and a mapping, and Rust has no safe way to switch stacks. Also rejected: a fast task for each
//! call. A task has to be allocated, queued and awaited whether it waits or not, which takes fifty times as
//! long.
//!
//! See docs/decisions/005-evaluations-in-recycled-storage.md.

mod cell;
mod clock;
mod error;
mod event_loop;
mod fastest;
mod handle;
mod home;
mod hook;
mod inbox;
mod proc;
mod readiness;
mod resume;
mod running;
mod storage;
mod sync;
mod timers;
mod tokio_readiness;
mod wait;
mod waker;

pub use clock::VirtualTime;
pub use error::{EvaluationError, TimedOut};
pub use event_loop::block_on;
pub use fastest::await_fastest;
pub use handle::Evaluation;
pub use home::{Here, Home, OnTokio};
pub use hook::{Forgettable, Forgotten, on_forgotten, on_forgotten_anywhere};
pub use proc::{Called, ConcurrentProc, concurrently, concurrently_on_tokio};
pub use readiness::{await_readable, await_writable};
pub use resume::{Resumer, resumption};
pub use wait::{Wait, wait, within};

#[cfg(all(test, not(feature = "loom")))]
mod tests;

/// Tests the examples of the users' page.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/evaluations.md")]
struct UsersPage;

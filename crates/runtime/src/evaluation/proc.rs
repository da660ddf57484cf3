//! Procs: code that can be called concurrently.

use std::task::{Context, Poll, Waker};

use super::cell::Cell;
use super::handle::Evaluation;
use super::home::{Here, Home, OnTokio, Within};
use super::hook::{self, Forgettable};
use super::running::{Destination, Running};
use super::storage::Slot;

/// An async closure, with the executor on which it continues when it has to wait. There are four ways to call
/// it:
///
/// | | starts | returns | its errors and panics go to |
/// | --- | --- | --- | --- |
/// | [`call`](Self::call) | in the foreground | a future of the result | the caller |
/// | [`call_nonblock`](Self::call_nonblock) | in the foreground | the result, or the evaluation if it waits | the caller, or the handle |
/// | [`call_detached`](Self::call_detached) | in its turn | the evaluation | the handle |
/// | [`call_and_forget`](Self::call_and_forget) | in its turn | nothing | the [hook](super::on_forgotten) |
///
/// The closure has one argument; use a tuple for several, `()` for none. It may be any function that returns
/// a future, such as `async |argument| …` and `move |argument| async move { … }`. The future must own what it
/// uses of the closure, since it may outlive the call: clone `Rc`s and `Arc`s into it.
///
/// ```
/// use std::time::Duration;
/// use thalweg_runtime::evaluation::{Called, ConcurrentProc, block_on, wait};
///
/// let greet = ConcurrentProc::new(async |(name, milliseconds): (&'static str, u64)| {
///     if milliseconds > 0 {
///         wait(Duration::from_millis(milliseconds)).await;
///     }
///     format!("hello, {name}")
/// });
///
/// assert_eq!(block_on(greet.call(("Ada", 1))), "hello, Ada");
/// assert!(matches!(greet.call_nonblock(("Ben", 0)), Called::Concluded(text) if text == "hello, Ben"));
/// let Called::Waiting(mut evaluation) = greet.call_nonblock(("Cleo", 1)) else { panic!("it does not wait") };
/// assert_eq!(block_on(evaluation.await_result()).unwrap(), "hello, Cleo");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct ConcurrentProc<F, H = Here> {
    code: F,
    home: std::marker::PhantomData<H>,
}

/// The result of a [`call_nonblock`](ConcurrentProc::call_nonblock).
#[derive(Debug)]
#[must_use = "the evaluation may still go on"]
pub enum Called<T> {
    /// The code did not have to wait: its result.
    Concluded(T),
    /// The code waits.
    Waiting(Evaluation<T>),
}

impl<F> ConcurrentProc<F, Here> {
    /// Creates a proc whose code continues on this thread's event loop when it has to wait.
    pub const fn new(code: F) -> Self {
        Self { code, home: std::marker::PhantomData }
    }
}

impl<F> ConcurrentProc<F, OnTokio> {
    /// Creates a proc whose code continues as a task of the caller's tokio runtime when it has to wait.
    ///
    /// ```
    /// use std::time::Duration;
    /// use thalweg_runtime::evaluation::{Called, ConcurrentProc, wait};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let fetch = ConcurrentProc::on_tokio(async |key: u32| {
    ///     wait(Duration::from_millis(1)).await;
    ///     key + 1
    /// });
    /// let Called::Waiting(evaluation) = fetch.call_nonblock(1) else { panic!("it does not wait") };
    /// assert_eq!(evaluation.await, Ok(2));
    /// # });
    /// ```
    pub const fn on_tokio(code: F) -> Self {
        Self { code, home: std::marker::PhantomData }
    }
}

impl<F, H> ConcurrentProc<F, H> {
    /// Runs the code in the foreground: on the caller's stack, and as a part of the caller when it has to
    /// wait. It costs only what the code itself costs. In code that is not `async`, wait for it with
    /// [`block_on`](super::block_on).
    #[inline]
    pub fn call<A, Fut>(&self, argument: A) -> Fut
    where
        F: Fn(A) -> Fut,
        Fut: Future,
    {
        (self.code)(argument)
    }

    /// Runs the code in the foreground until it first has to wait. If it does not, returns its result, after
    /// a few nanoseconds and no allocation. If it does, the rest is an evaluation, which continues without
    /// the caller.
    ///
    /// The first step runs under a waker that does nothing, and waiting code is polled once more in its turn.
    /// Every future has to allow for that.
    ///
    /// # Panics
    /// If the code panics before it waits. On tokio also if it waits outside of a runtime.
    #[inline]
    pub fn call_nonblock<A, Fut>(&self, argument: A) -> Called<Fut::Output>
    where
        F: Fn(A) -> Fut,
        Fut: Future,
        H: Home<Fut>,
    {
        let mut code = Slot::pin_with(|| Running::new((self.code)(argument), Destination::Caller));
        let first = {
            let _within = Within::enter(H::PLACE);
            code.as_mut().poll_code(&mut Context::from_waker(Waker::noop()))
        };
        match first {
            Poll::Ready(value) => {
                Slot::dispose(code);
                Called::Concluded(value)
            }
            Poll::Pending => {
                let cell = Cell::new(true);
                code.as_mut().redirect(Destination::Cell(cell.clone()));
                if let Some(waker) = H::adopt(code) {
                    cell.suspends(&waker);
                }
                Called::Waiting(Evaluation::first(cell))
            }
        }
    }

    /// Schedules the code. It starts after all code that was scheduled before, when the event loop runs.
    ///
    /// # Panics
    /// On tokio, outside of a runtime.
    #[inline]
    pub fn call_detached<A, Fut>(&self, argument: A) -> Evaluation<Fut::Output>
    where
        F: Fn(A) -> Fut,
        Fut: Future,
        H: Home<Fut>,
    {
        evaluate::<H, Fut>(|| (self.code)(argument))
    }

    /// Schedules the code, without a handle to its result. The [hook](super::on_forgotten) receives a
    /// failure.
    ///
    /// # Panics
    /// On tokio, outside of a runtime.
    #[inline]
    pub fn call_and_forget<A, Fut>(&self, argument: A)
    where
        F: Fn(A) -> Fut,
        Fut: Future,
        Fut::Output: Forgettable,
        H: Home<Fut>,
    {
        H::start(|| Running::new((self.code)(argument), Destination::Forget(hook::forget)));
    }
}

/// Schedules code on this thread's event loop: the short form of
/// [`call_detached`](ConcurrentProc::call_detached) for code that is called once.
///
/// ```
/// use thalweg_runtime::evaluation::{block_on, concurrently};
///
/// let mut sum = concurrently(async { (1..=100).sum::<u32>() });
/// assert_eq!(block_on(sum.await_result()), Ok(5050));
/// ```
#[inline]
pub fn concurrently<Fut: Future + 'static>(code: Fut) -> Evaluation<Fut::Output> {
    evaluate::<Here, Fut>(|| code)
}

/// Schedules code on the caller's tokio runtime, as [`concurrently`] does on the event loop.
///
/// # Panics
/// Outside of a runtime.
#[inline]
pub fn concurrently_on_tokio<Fut>(code: Fut) -> Evaluation<Fut::Output>
where
    Fut: Future + Send + 'static,
    Fut::Output: Send + 'static,
{
    evaluate::<OnTokio, Fut>(|| code)
}

#[inline]
fn evaluate<H: Home<Fut>, Fut: Future>(code: impl FnOnce() -> Fut) -> Evaluation<Fut::Output> {
    let cell = Cell::new(false);
    H::start(|| Running::new(code(), Destination::Cell(cell.clone())));
    Evaluation::first(cell)
}

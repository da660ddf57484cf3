//! Waiting for a time to pass, and for futures with a time limit.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use super::error::TimedOut;
use super::event_loop;
use super::home;
use super::timers::Timer;

/// Waits for `duration`, counted from the first poll. A duration of zero waits for the next turn of the event
/// loop, so that code scheduled before gets its turn.
///
/// Timers fire in the order of their times, and in the order of their creation if the times are equal. Code
/// that runs on tokio uses tokio's timers. Other code uses those of this thread's event loop, which fire
/// while it runs.
///
/// ```
/// use std::time::{Duration, Instant};
/// use thalweg_runtime::evaluation::{block_on, wait};
///
/// let start = Instant::now();
/// block_on(wait(Duration::from_millis(5)));
/// assert!(start.elapsed() >= Duration::from_millis(5));
/// ```
pub fn wait(duration: Duration) -> Wait {
    Wait { duration, state: State::New }
}

/// Created by [`wait`].
#[derive(Debug)]
#[must_use = "nothing is waited for until this is awaited"]
pub struct Wait {
    duration: Duration,
    state: State,
}

#[derive(Debug)]
enum State {
    New,
    /// It has been polled once and is ready in the next turn.
    NextTurn,
    /// In the timers of this event loop.
    Here {
        event_loop: usize,
        timer: Timer,
    },
    /// Boxed, since tokio's timer is large and must not move, and most waits are not tokio's.
    Tokio(Pin<Box<tokio::time::Sleep>>),
}

impl Future for Wait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let duration = self.duration;
        match &mut self.state {
            State::New if duration.is_zero() => {
                self.state = State::NextTurn;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            State::New if home::is_tokio() => {
                let mut sleep = Box::pin(tokio::time::sleep(duration));
                let polled = sleep.as_mut().poll(context);
                self.state = State::Tokio(sleep);
                polled
            }
            State::New => {
                let (event_loop, timer) = event_loop::add_timer(duration, context.waker());
                self.state = State::Here { event_loop, timer };
                Poll::Pending
            }
            State::NextTurn => Poll::Ready(()),
            State::Here { event_loop, .. } if !event_loop::is_here(*event_loop) => {
                // It was moved to another thread, so the wait starts again there. That never makes a wait
                // shorter.
                self.state = State::New;
                self.poll(context)
            }
            State::Here { event_loop, timer } => {
                if event_loop::rewake_timer(*event_loop, *timer, context.waker()) {
                    Poll::Pending
                } else {
                    Poll::Ready(())
                }
            }
            State::Tokio(sleep) => sleep.as_mut().poll(context),
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let State::Here { event_loop, timer } = self.state {
            event_loop::remove_timer(event_loop, timer);
        }
    }
}

/// Waits for a future, up to a time limit, and drops it after the limit. An evaluation continues, since only
/// its handle is dropped.
///
/// # Errors
/// [`TimedOut`] after the time limit.
///
/// ```
/// use std::time::Duration;
/// use thalweg_runtime::evaluation::{block_on, wait, within};
///
/// let slow = within(Duration::from_millis(1), wait(Duration::from_secs(60)));
/// assert_eq!(block_on(slow).unwrap_err().to_string(), "nothing came within 1ms");
/// ```
pub async fn within<Fut: Future>(duration: Duration, future: Fut) -> Result<Fut::Output, TimedOut> {
    let mut future = pin!(future);
    let mut time = wait(duration);
    std::future::poll_fn(|context| {
        if let Poll::Ready(value) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(value));
        }
        Pin::new(&mut time).poll(context).map(|()| Err(TimedOut { after: duration }))
    })
    .await
}

//! Deadlines that pass even while every worker of the runtime computes.
//!
//! The workers of tokio's runtime turn its clock between two tasks. Transforms that compute for minutes on
//! all of them stop it: no timer fires, and a run with one worker could be ended only by SIGKILL. So an alarm
//! also waits on a thread of its own. (Rejected: one more worker than cores. Any number of tasks may
//! compute.)

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use tokio::time::Instant;

use crate::Stop;

/// A longer duration, such as [`Duration::MAX`], is no limit: a century.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// A deadline. Use it for what must end, and a timer of tokio for all else: an alarm takes a thread.
#[derive(Debug)]
pub struct Alarm {
    at: Instant,
    rung: Stop,
    /// `None` if the system has no thread: the clock of the runtime remains.
    thread: Option<JoinHandle<()>>,
    /// Ends the thread when it is dropped.
    waiting: Option<Sender<()>>,
}

impl Alarm {
    /// Returns an alarm that rings after this duration. Must be called within a runtime.
    pub fn after(duration: Duration) -> Self {
        let duration = duration.min(LONGEST);
        let rung = Stop::default();
        let (waiting, dropped) = channel::<()>();
        let bell = rung.clone();
        let wait = move || {
            if dropped.recv_timeout(duration) == Err(RecvTimeoutError::Timeout) {
                bell.request();
            }
        };
        let thread = Builder::new().name("thalweg-alarm".to_owned()).spawn(wait).ok();
        Self { at: Instant::now() + duration, rung, thread, waiting: Some(waiting) }
    }

    /// Waits until the alarm rings.
    pub async fn rung(&self) {
        tokio::select! {
            () = self.rung.requested() => {}
            () = tokio::time::sleep_until(self.at) => {}
        }
    }

    /// Waits for the result of a future, but no longer than `duration`. The future is dropped then.
    pub async fn within<T>(duration: Duration, future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            output = future => Some(output),
            () = async { Self::after(duration).rung().await } => None,
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        drop(self.waiting.take());
        // Joined, not detached: glibc's `pthread_detach` may read the memory of a thread that exits (glibc
        // bug 19951).
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn an_alarm_rings_while_the_only_worker_computes() {
        let (release, held) = channel::<()>();
        let (begun, computes) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            begun.send(()).unwrap();
            let _ = held.recv();
        });
        computes.await.unwrap();
        Alarm::after(Duration::from_millis(20)).rung().await;
        assert_eq!(Alarm::within(Duration::ZERO, std::future::pending::<()>()).await, None);
        assert_eq!(Alarm::within(Duration::MAX, async { 1 }).await, Some(1));
        drop(release);
    }

    #[tokio::test(start_paused = true)]
    async fn an_alarm_follows_the_clock_of_the_runtime() {
        let begun = Instant::now();
        Alarm::after(Duration::from_secs(3600)).rung().await;
        assert_eq!(begun.elapsed().as_secs(), 3600);
    }
}

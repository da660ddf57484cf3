//! Reading and acknowledging over one connection.
//!
//! A source of a broker has two tasks for each connection: one reads messages and sends them on, the other
//! keeps what was sent on until it is settled, and acknowledges it. Neither may end alone.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thalweg_engine::{Error, SourceOutput};
use thalweg_record::Settlement;
use tokio::task::JoinSet;

/// How long a source waits at its end until all is settled: the first value if the run is being stopped. Both
/// count from the last progress.
pub const SETTLE_WAIT: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(60)];

/// How long a server may take for an answer when the run is being stopped. A later run gets again what this
/// one does not get.
const FAREWELL: Duration = Duration::from_secs(3);

/// Waits for an answer of a server; when the run is being stopped, for three more seconds at most. Returns
/// `None` if there is none by then. A connection on which it was asked for is of no use then.
pub async fn unless_stopped<T>(out: &SourceOutput, answer: impl Future<Output = T>) -> Option<T> {
    let stopped = async {
        out.stopping().await;
        tokio::time::sleep(FAREWELL).await;
    };
    tokio::select! {
        biased;
        answer = answer => Some(answer),
        () = stopped => None,
    }
}

/// Returns how long a source waits at its end until all is settled, counted from the last progress.
pub fn settle_wait(out: &SourceOutput) -> Duration {
    SETTLE_WAIT[usize::from(!out.is_stopping())]
}

/// Batches that were sent on and are not settled, each with what the server calls its messages.
#[derive(Debug)]
pub struct Settling<K>(JoinSet<(K, Settlement)>);

impl<K: Send + 'static> Default for Settling<K> {
    fn default() -> Self {
        Self(JoinSet::new())
    }
}

impl<K: Send + 'static> Settling<K> {
    /// Adds a batch.
    pub fn add(&mut self, batch: K, settled: impl Future<Output = Settlement> + Send + 'static) {
        self.0.spawn(async move { (batch, settled.await) });
    }

    /// Waits for a batch that is settled. Returns none if there are no batches. Dropping the future loses
    /// nothing.
    pub async fn next(&mut self) -> Option<(K, Settlement)> {
        loop {
            // A task that has ended otherwise tells nothing: the server delivers its messages again.
            if let Ok(settled) = self.0.join_next().await? {
                return Some(settled);
            }
        }
    }

    /// As [`next`](Self::next), without waiting.
    pub fn next_now(&mut self) -> Option<(K, Settlement)> {
        loop {
            if let Ok(settled) = self.0.try_join_next()? {
                return Some(settled);
            }
        }
    }

    /// True if all batches were returned.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The end of keeping, as reading sees it.
#[derive(Debug, Default)]
pub struct Kept {
    has_ended: AtomicBool,
    has_failed: AtomicBool,
}

impl Kept {
    /// True if nothing more is acknowledged over this connection.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// True if nothing can be acknowledged over this connection.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }
}

/// Runs both until they end. When keeping ends, reading learns of it and ends by itself: messages that it is
/// sending on would be lost for the engine if it were dropped. If reading fails, nothing is left to keep.
///
/// # Errors
/// That of keeping, or else that of reading.
pub async fn joined(
    reading: impl Future<Output = Result<(), Error>>,
    keeping: impl Future<Output = Result<(), Error>>,
    kept: &Kept,
) -> Result<(), Error> {
    let (mut reading, mut keeping) = (pin!(reading), pin!(keeping));
    let ended = tokio::select! {
        read = &mut reading => {
            read?;
            return keeping.await;
        }
        ended = &mut keeping => ended,
    };
    kept.has_failed.store(ended.is_err(), Ordering::Relaxed);
    kept.has_ended.store(true, Ordering::Relaxed);
    let read = reading.await;
    ended.and(read)
}

#[cfg(test)]
mod tests {
    use thalweg_record::Outcome;

    use super::*;

    /// The source had dropped messages that were on their way, so that the run failed.
    #[tokio::test]
    async fn what_is_being_sent_on_arrives_also_if_nothing_can_be_acknowledged() {
        let (kept, has_sent) = (Kept::default(), AtomicBool::new(false));
        let reading = async {
            while !kept.has_failed() {
                tokio::task::yield_now().await;
            }
            has_sent.store(true, Ordering::Relaxed);
            Err(Error::temporary("read"))
        };
        let keeping = async { Err(Error::temporary("kept")) };
        let ended = joined(reading, keeping, &kept).await;
        assert_eq!(ended.unwrap_err().to_string(), "kept");
        assert!(has_sent.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn after_the_last_message_is_read_what_is_on_its_way_is_kept() {
        let (kept, has_kept) = (Kept::default(), AtomicBool::new(false));
        let keeping = async {
            tokio::task::yield_now().await;
            has_kept.store(true, Ordering::Relaxed);
            Ok(())
        };
        joined(async { Ok(()) }, keeping, &kept).await.unwrap();
        assert!(has_kept.load(Ordering::Relaxed) && !kept.has_failed());
    }

    #[tokio::test]
    async fn batches_are_returned_as_they_are_settled() {
        let settlement = || Settlement { outcome: Outcome::Delivered, rejected: 0, reason: None };
        let mut settling = Settling::default();
        settling.add("never", std::future::pending());
        settling.add("now", async move { settlement() });
        assert_eq!(settling.next().await, Some(("now", settlement())));
        assert_eq!(settling.next_now(), None);
        assert!(!settling.is_empty());
        assert_eq!(Settling::<u64>::default().next().await, None);
    }

    #[tokio::test]
    async fn nothing_is_kept_if_reading_fails() {
        let kept = Kept::default();
        let reading = async { Err(Error::temporary("read")) };
        let ended = joined(reading, std::future::pending(), &kept).await;
        assert_eq!(ended.unwrap_err().to_string(), "read");
    }
}

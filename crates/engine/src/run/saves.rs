//! Waiting for a save.
//!
//! Where positions are kept, a run that continues cuts its sinks back to what was saved last. So what was settled since
//! then is not yet safe from a kill, and whoever is to be told that it is has to wait for the next save. Asking for one
//! brings it about soon; all who ask meanwhile share it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Notify, watch};

/// The saves of a run, for those who wait for one.
#[derive(Debug, Clone)]
pub(crate) struct Saves {
    asked: Arc<Notify>,
    /// How many have begun. What is settled before one begins is in it.
    begun: Arc<AtomicU64>,
    /// The number of the last that was completed; ends with the run.
    done: watch::Receiver<u64>,
}

/// The run's end of it.
pub(crate) struct Saver {
    saves: Saves,
    done: watch::Sender<u64>,
}

impl Saver {
    pub(crate) fn new() -> Self {
        let (done, receiver) = watch::channel(0);
        let saves = Saves { asked: Arc::default(), begun: Arc::default(), done: receiver };
        Self { saves, done }
    }

    /// For those who wait.
    pub(crate) fn saves(&self) -> Saves {
        self.saves.clone()
    }

    /// Somebody waits.
    pub(crate) async fn asked(&self) {
        self.saves.asked.notified().await;
    }

    /// Does a save, and lets those who waited for it know if it was done.
    pub(crate) fn save<E>(&self, save: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        // Before anything is looked at: who settles from now on waits for the next.
        let number = self.saves.begun.fetch_add(1, Ordering::SeqCst) + 1;
        save()?;
        self.done.send_replace(number);
        Ok(())
    }
}

impl Saves {
    /// Waits until what is settled by now is saved. Says whether it is: not, if the run ended without.
    pub(crate) async fn next(mut self) -> bool {
        let wanted = self.begun.load(Ordering::SeqCst) + 1;
        self.asked.notify_one();
        self.done.wait_for(|done| *done >= wanted).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_is_told_by_a_save_that_began_afterwards() {
        let saver = Saver::new();
        let mut waiting = None;
        saver
            .save(|| {
                waiting = Some(tokio::spawn(saver.saves().next()));
                Ok::<_, ()>(())
            })
            .unwrap();
        let waiting = waiting.unwrap();
        saver.asked().await;
        assert!(!waiting.is_finished());
        assert!(saver.save(|| Err(())).is_err());
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        saver.save(|| Ok::<_, ()>(())).unwrap();
        assert!(waiting.await.unwrap());
        let waiting = tokio::spawn(saver.saves().next());
        saver.asked().await;
        drop(saver);
        assert!(!waiting.await.unwrap());
    }
}

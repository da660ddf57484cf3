//! Waiting for a save of checkpoints.
//!
//! If checkpoints are kept, a resumed run truncates output written since the last save. So settled batches
//! are committed only by the next save, and a sender that waits for its acknowledgement waits for that save.
//! A request makes the next save come soon; all requests meanwhile share it.
//!
//! See docs/decisions/018-committed-is-more-than-settled.md.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::{Notify, watch};

/// The saves of a run, for those who wait for one.
#[derive(Debug, Clone)]
pub(crate) struct Saves {
    asked: Arc<Notify>,
    /// True if the next save is wanted [at once](Haste::AtOnce).
    is_urgent: Arc<AtomicBool>,
    /// The number of saves that have begun. A save has all that is settled before it begins.
    begun: Arc<AtomicU64>,
    /// The number of the last save that someone [waits for](Self::next).
    wanted: Arc<AtomicU64>,
    /// The number of the last completed save. Ends with the run.
    done: watch::Receiver<u64>,
}

/// How soon a save is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Haste {
    /// As soon as the pause after the last one is over.
    Soon,
    /// Without that pause: something grows until the save.
    AtOnce,
}

/// The run's side of the saves.
pub(crate) struct Saver {
    saves: Saves,
    done: watch::Sender<u64>,
}

impl Saver {
    pub(crate) fn new() -> Self {
        let (done, receiver) = watch::channel(0);
        let saves = Saves {
            asked: Arc::default(),
            is_urgent: Arc::default(),
            begun: Arc::default(),
            wanted: Arc::default(),
            done: receiver,
        };
        Self { saves, done }
    }

    /// The saves, for those who wait for one.
    pub(crate) fn saves(&self) -> Saves {
        self.saves.clone()
    }

    /// Waits until someone waits for a save.
    pub(crate) async fn asked(&self) -> Haste {
        self.saves.asked.notified().await;
        match self.saves.is_urgent.swap(false, Ordering::SeqCst) {
            true => Haste::AtOnce,
            false => Haste::Soon,
        }
    }

    /// Begins a save, before any state is read: what is settled from now on is in the next save.
    pub(crate) fn begin(&self) -> u64 {
        self.saves.begun.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// True if someone waits for a save that is not complete.
    pub(crate) fn is_awaited(&self) -> bool {
        self.saves.wanted.load(Ordering::SeqCst) > self.saves.last()
    }

    /// The save with this number is complete: wakes those who waited for it.
    pub(crate) fn complete(&self, number: u64) {
        self.done.send_replace(number);
    }
}

impl Saves {
    /// Asks for a save, without waiting for it.
    pub(crate) fn ask(&self, haste: Haste) {
        if haste == Haste::AtOnce {
            self.is_urgent.store(true, Ordering::SeqCst);
        }
        self.asked.notify_one();
    }

    /// Returns the number of the next save that has all that is known now.
    pub(crate) fn next_number(&self) -> u64 {
        self.begun.load(Ordering::SeqCst) + 1
    }

    /// Returns the number of the last completed save.
    pub(crate) fn last(&self) -> u64 {
        *self.done.borrow()
    }

    /// Waits until what is settled by now is saved. Returns false if the run ended before.
    pub(crate) async fn next(mut self) -> bool {
        let wanted = self.next_number();
        self.wanted.fetch_max(wanted, Ordering::SeqCst);
        self.asked.notify_one();
        self.done.wait_for(|done| *done >= wanted).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_who_ask_share_a_save_at_once_if_one_of_them_is_in_haste() {
        let saver = Saver::new();
        let saves = saver.saves();
        for (asked, expected) in [
            (&[Haste::Soon][..], Haste::Soon),
            (&[Haste::Soon, Haste::AtOnce, Haste::Soon][..], Haste::AtOnce),
            (&[Haste::Soon][..], Haste::Soon),
        ] {
            asked.iter().for_each(|haste| saves.ask(*haste));
            assert_eq!(saver.asked().await, expected);
        }
    }

    #[tokio::test]
    async fn a_wait_ends_with_a_save_that_began_after_it() {
        let saver = Saver::new();
        let number = saver.begin();
        let waiting = tokio::spawn(saver.saves().next());
        saver.asked().await;
        saver.complete(number);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished() && saver.is_awaited());
        // The next save fails.
        let _ = saver.begin();
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        saver.complete(saver.begin());
        assert!(waiting.await.unwrap() && !saver.is_awaited());
        let waiting = tokio::spawn(saver.saves().next());
        saver.asked().await;
        drop(saver);
        assert!(!waiting.await.unwrap());
    }
}

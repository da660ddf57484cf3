//! The places of a source for connections, and which connection loses its place if all are taken.
//!
//! A client that connects and sends nothing costs next to nothing, except its place: if such clients take all
//! of them, no other client is served. So when a client waits for a place, the connection that has been
//! silent for longest is closed, as web servers do with idle connections. It must have been silent for
//! [`LEAST`]. Otherwise many busy clients would take each other's places all the time. A connection with an
//! incomplete message, or one that waits for an answer, is never closed for that.
//!
//! The rejected alternative is a default of `idle_timeout`. It would close silent connections also where no
//! client waits, and a sender without acknowledgements loses what it sends into a closed connection.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_config::counted;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A connection that is silent for less than this keeps its place.
const LEAST: Duration = Duration::from_secs(10);
/// How often closed connections are reported.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// The connections of a source. A clone is another handle on the same ones.
#[derive(Debug, Clone, Default)]
pub struct Places(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    next: u64,
    open: HashMap<u64, Open>,
    /// The number of connections that were closed since the last report, and when that was.
    closed: usize,
    reported: Option<Instant>,
}

#[derive(Debug)]
struct Open {
    /// Since when the connection is silent. `None` while it is not.
    silent: Option<Instant>,
    closing: Arc<Notify>,
}

impl Places {
    /// Gives a place to a connection, which counts as busy at first.
    pub fn take(&self) -> Place {
        let mut state = self.0.lock();
        let number = state.next;
        state.next += 1;
        let closing = Arc::new(Notify::new());
        state.open.insert(number, Open { silent: None, closing: closing.clone() });
        Place { places: self.clone(), number, silent: None, closing }
    }

    /// True if a connection has been silent long enough to lose its place.
    pub fn has_silent(&self) -> bool {
        self.0.lock().longest().is_some()
    }

    /// Closes the connection that has been silent for longest, and reports it for the source `name`. `most`
    /// is the number of places.
    pub fn close_longest(&self, name: &str, most: usize) {
        let mut state = self.0.lock();
        let Some((number, since)) = state.longest() else { return };
        if let Some(open) = state.open.get_mut(&number) {
            open.silent = None;
            open.closing.notify_one();
        }
        state.closed += 1;
        if state.reported.is_none_or(|reported| reported.elapsed() >= REPORT_EVERY) {
            let closed = counted(std::mem::take(&mut state.closed) as u64, "silent connection");
            state.reported = Some(Instant::now());
            tracing::warn!(
                "`{name}`: {closed} closed for other clients, the last one after {} s of silence: all {most} places \
                 were taken. Raise `max_connections`, or set `idle_timeout`",
                since.elapsed().as_secs()
            );
        }
    }
}

impl State {
    /// Returns the connection that has been silent for longest, and since when.
    fn longest(&self) -> Option<(u64, Instant)> {
        let silent = self.open.iter().filter_map(|(&number, open)| Some((number, open.silent?)));
        silent.min_by_key(|(_, since)| *since).filter(|(_, since)| since.elapsed() >= LEAST)
    }
}

/// The place of a connection, until this is dropped.
#[derive(Debug)]
pub struct Place {
    places: Places,
    number: u64,
    silent: Option<Instant>,
    closing: Arc<Notify>,
}

impl Place {
    /// Sets since when the connection is silent: nothing is unfinished or unanswered. `None` if it is not.
    pub fn set_silent(&mut self, since: Option<Instant>) {
        if self.silent != since {
            self.silent = since;
            if let Some(open) = self.places.0.lock().open.get_mut(&self.number) {
                open.silent = since;
            }
        }
    }

    /// Waits until the connection must be closed, because another client needs its place.
    pub async fn closing(&self) {
        self.closing.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.0.lock().open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::testing::within;

    #[tokio::test(start_paused = true)]
    async fn the_connection_that_was_silent_for_longest_loses_its_place() {
        let places = Places::default();
        let (mut first, mut second, _busy) = (places.take(), places.take(), places.take());
        let begun = Instant::now();
        second.set_silent(Some(begun));
        tokio::time::advance(Duration::from_secs(5)).await;
        first.set_silent(Some(Instant::now()));
        assert!(!places.has_silent());
        tokio::time::advance(LEAST - Duration::from_secs(5)).await;
        assert!(places.has_silent());
        places.close_longest("s", 3);
        within(second.closing()).await;
        assert!(!places.has_silent());
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(places.has_silent());
        first.set_silent(None);
        assert!(!places.has_silent());
        drop((first, second));
        assert_eq!(places.0.lock().open.len(), 1);
    }
}

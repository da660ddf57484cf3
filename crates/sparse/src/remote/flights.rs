//! The ranges that are being fetched.
//!
//! A fetch in progress belongs to no reader. Every reader that needs its bytes waits for it. A reader that
//! stops does not affect the other readers. No range is fetched twice at the same time, and no fetch stops
//! because its first reader has gone.
//!
//! See docs/decisions/038-a-fetch-belongs-to-no-reader.md.

use super::RemoteError;
use crate::Span;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// Why a fetch ended without the bytes.
#[derive(Debug, Clone)]
pub(crate) enum Stopped {
    /// The waiting readers receive the error.
    Failed(RemoteError),
    /// The readers must look again: the file has restarted in another state, or it must be fetched as a
    /// whole.
    Anew,
}

/// The result of a fetch that its waiters receive; `None` until it has ended.
pub(crate) type Ended = Option<Result<(), Stopped>>;

#[derive(Default)]
pub(crate) struct Flights {
    table: Mutex<Table>,
}

/// The fetches by position. No two overlap.
#[derive(Default)]
pub(crate) struct Table {
    flights: BTreeMap<u64, Flight>,
    number: u64,
}

struct Flight {
    end: u64,
    number: u64,
    ended: watch::Receiver<Ended>,
}

impl Flights {
    pub fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    /// Records that `span` is being fetched from now on. It must not overlap a fetch in progress.
    pub fn begin(self: &Arc<Self>, table: &mut Table, span: Span) -> (Taken, watch::Receiver<Ended>) {
        let (sender, ended) = watch::channel(None);
        table.number += 1;
        let number = table.number;
        table.flights.insert(span.position, Flight { end: span.end(), number, ended: ended.clone() });
        (Taken { flights: self.clone(), position: span.position, number, sender, ended: None }, ended)
    }
}

impl Table {
    /// Returns the fetches that cover bytes of `missing`, and the parts of `missing` that none covers.
    pub fn divide(&self, missing: &[Span]) -> (Vec<watch::Receiver<Ended>>, Vec<Span>) {
        let (mut waits, mut rest) = (Vec::new(), Vec::new());
        let mut last = None;
        for span in missing {
            let mut from = span.position;
            let before = self.flights.range(..=from).next_back().filter(|(_, flight)| flight.end > from);
            let after = from.saturating_add(1);
            let within = self.flights.range(after..span.end().max(after));
            for (position, flight) in before.into_iter().chain(within) {
                if *position > from {
                    rest.push(Span::between(from, *position));
                }
                from = from.max(flight.end);
                // Two missing ranges in sequence may wait for the same fetch.
                if last.replace(flight.number) != Some(flight.number) {
                    waits.push(flight.ended.clone());
                }
            }
            if from < span.end() {
                rest.push(Span::between(from, span.end()));
            }
        }
        (waits, rest)
    }

    /// Returns the start of the first fetch at or after `position`.
    pub fn next(&self, position: u64) -> Option<u64> {
        self.flights.range(position..).next().map(|(position, _)| *position)
    }

    /// Removes all fetches: they belong to an earlier state of the file.
    pub fn clear(&mut self) {
        self.flights.clear();
    }
}

/// The entry of one fetch in the table. Dropping it removes the entry.
pub(crate) struct Taken {
    flights: Arc<Flights>,
    position: u64,
    number: u64,
    sender: watch::Sender<Ended>,
    ended: Ended,
}

impl Taken {
    /// Ends the fetch with the result `how`.
    pub fn end(mut self, how: Result<(), Stopped>) {
        self.ended = Some(how);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // Remove the entry first, then notify: a reader that looks again after the notification must not find
        // it.
        let mut table = self.flights.lock();
        if table.flights.get(&self.position).is_some_and(|flight| flight.number == self.number) {
            table.flights.remove(&self.position);
        }
        drop(table);
        self.sender.send_replace(self.ended.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_is_waited_for_and_only_the_rest_is_to_be_fetched() {
        let flights = Arc::new(Flights::default());
        let mut table = flights.lock();
        let first = flights.begin(&mut table, Span::new(100, 50));
        let second = flights.begin(&mut table, Span::new(200, 50));
        let (waits, rest) = table.divide(&[Span::new(0, 110), Span::new(120, 10), Span::new(140, 200)]);
        assert_eq!(waits.len(), 2);
        assert_eq!(rest, [Span::new(0, 100), Span::new(150, 50), Span::new(250, 90)]);
        let (waits, rest) = table.divide(&[Span::new(100, 50), Span::new(150, 50), Span::new(249, 1)]);
        assert_eq!((waits.len(), rest), (2, vec![Span::new(150, 50)]));
        assert_eq!((table.next(100), table.next(101), table.next(201)), (Some(100), Some(200), None));
        drop(table);
        first.0.end(Ok(()));
        assert!(matches!(*first.1.borrow(), Some(Ok(()))));
        let (waits, rest) = flights.lock().divide(&[Span::new(100, 150)]);
        assert_eq!((waits.len(), rest), (1, vec![Span::new(100, 100)]));
        drop(second);
        assert_eq!(flights.lock().next(0), None);
    }
}

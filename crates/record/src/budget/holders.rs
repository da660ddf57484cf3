//! Which holder has how much of the budget.
//!
//! A budget that is used up is no help to a user who does not know what uses it. Each handle on the budget
//! therefore belongs to a holder: a component, the dead letters, the taps. A lease is counted on the holder
//! of the handle that it was claimed or reserved through, until it is dropped, wherever its bytes are by
//! then: a batch counts for its source until its last slice is settled. Buffers that a stage
//! [claims](super::Budget::claim_buffers) are counted on the last stage that claimed them.
//!
//! Counting costs an addition under the lock that the budget takes for each lease anyway. (Rejected: a
//! counter for each holder behind an `Arc` in each lease. Its count of references is shared by all workers,
//! so each buffer would cost two contended atomic operations.)

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Budget;

/// The holder of a handle that was given none.
const OTHER: &str = "other work";

/// A holder, as its number in [`Holders`]. The first one is that of handles that were given none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Holder(usize);

/// The bytes that a holder has of the budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The name of the holder: a component, or another part of the engine such as `dead letters`, which has a
    /// space, as no component has. `other work` for what was given none.
    pub name: Arc<str>,
    /// The bytes.
    pub bytes: usize,
}

/// All holders of a budget. One that has been named stays, so that a number never changes its meaning.
pub(super) struct Holders {
    all: Vec<Held>,
    /// Those that are not shown while they have nothing.
    gone: BTreeSet<usize>,
}

impl Default for Holders {
    fn default() -> Self {
        Self { all: vec![Held { name: OTHER.into(), bytes: 0 }], gone: BTreeSet::new() }
    }
}

impl Holders {
    fn named(&mut self, name: &str) -> Holder {
        let number = self.number(name).unwrap_or_else(|| {
            self.all.push(Held { name: name.into(), bytes: 0 });
            self.all.len() - 1
        });
        self.gone.remove(&number);
        Holder(number)
    }

    fn number(&self, name: &str) -> Option<usize> {
        self.all.iter().position(|held| &*held.name == name)
    }

    fn shown(&self) -> Vec<Held> {
        let all = self.all.iter().enumerate();
        let is_shown = |(number, held): &(usize, &Held)| held.bytes > 0 || !self.gone.contains(number);
        all.filter(is_shown).map(|(_, held)| held.clone()).collect()
    }

    pub(super) fn add(&mut self, holder: Holder, bytes: usize) {
        if let Some(held) = self.all.get_mut(holder.0) {
            held.bytes += bytes;
        }
    }

    pub(super) fn remove(&mut self, holder: Holder, bytes: usize) {
        if let Some(held) = self.all.get_mut(holder.0) {
            held.bytes -= bytes;
        }
    }

    /// Counts bytes of one holder on another.
    pub(super) fn pass(&mut self, from: Holder, to: Holder, bytes: usize) {
        self.remove(from, bytes);
        self.add(to, bytes);
    }
}

impl Budget {
    /// Returns a handle on the same budget that belongs to a holder. Handles with the same name belong to the
    /// same one. The number of names must be limited: a budget keeps them.
    #[must_use]
    pub fn held_by(&self, name: &str) -> Self {
        let holder = self.shared.state.lock().holders.named(name);
        Self { shared: self.shared.clone(), holder }
    }

    /// Shows a holder no longer once it has nothing, until it is named again: its component was removed.
    pub fn forget_holder(&self, name: &str) {
        let mut state = self.shared.state.lock();
        if let Some(number) = state.holders.number(name) {
            state.holders.gone.insert(number);
        }
    }

    /// Returns how many bytes each holder has now, those that have none included. Their sum was
    /// [used](Self::used) at one moment.
    pub fn holders(&self) -> Vec<Held> {
        self.shared.state.lock().holders.shown()
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::Lease;

    fn held(budget: &Budget) -> Vec<(String, usize)> {
        budget.holders().iter().map(|held| (held.name.to_string(), held.bytes)).collect()
    }

    fn of(other: usize, a: usize, b: usize) -> Vec<(String, usize)> {
        vec![("other work".to_owned(), other), ("a".to_owned(), a), ("b".to_owned(), b)]
    }

    #[tokio::test]
    async fn bytes_count_for_the_holder_whose_handle_they_were_claimed_by() {
        let budget = Budget::new(1000);
        let (a, b) = (budget.held_by("a"), budget.held_by("b"));
        let (mut claimed, reserved) = (a.claim(100), b.share().reserve(30).await);
        let other = budget.claim(1);
        assert_eq!(held(&budget), of(1, 100, 30));
        let part = claimed.split(40);
        drop(claimed);
        assert_eq!(held(&budget), of(1, 40, 30));
        let again = budget.held_by("a").claim_arena(64).freeze();
        assert_eq!(held(&budget), of(1, 104, 30));
        drop((again, part, reserved, other));
        assert_eq!((held(&budget), budget.used()), (of(0, 0, 0), 0));
    }

    #[tokio::test]
    async fn a_request_that_waited_counts_for_who_waited() {
        let budget = Budget::new(100);
        let (a, share) = (budget.held_by("a").claim(75), budget.held_by("b").share());
        let own = share.claim(1);
        let waiting = tokio::spawn(async move { share.reserve(20).await });
        while !budget.is_short() {
            tokio::task::yield_now().await;
        }
        drop(a);
        let lease = waiting.await.unwrap();
        assert_eq!(held(&budget), of(0, 0, 21));
        drop((lease, own));
        assert_eq!(held(&budget), of(0, 0, 0));
    }

    #[test]
    fn a_holder_of_the_past_is_shown_while_it_has_something() {
        let budget = Budget::new(1000);
        let (_, b) = (budget.held_by("a"), budget.held_by("b").claim(5));
        ["a", "b", "unknown"].iter().for_each(|name| budget.forget_holder(name));
        let shown = |name: &str, bytes| (name.to_owned(), bytes);
        assert_eq!(held(&budget), [shown("other work", 0), shown("b", 5)]);
        drop(b);
        assert_eq!(held(&budget), [shown("other work", 0)]);
        let _again = budget.held_by("a");
        assert_eq!(held(&budget), [shown("other work", 0), shown("a", 0)]);
    }

    #[test]
    fn merged_bytes_count_for_the_holder_that_they_were_added_to() {
        let budget = Budget::new(1000);
        let mut lease: Lease = budget.held_by("a").claim(10);
        lease.merge(budget.held_by("b").claim(5)).unwrap();
        assert_eq!(held(&budget), of(0, 15, 0));
        drop(lease);
        assert_eq!(held(&budget), of(0, 0, 0));
    }

    #[test]
    fn a_buffer_counts_once_for_the_last_holder_that_claimed_it() {
        let budget = Budget::new(1 << 20);
        let column = arrow_array::UInt8Array::from(vec![7; 1000]);
        for (name, other) in [("a", "b"), ("b", "a")] {
            budget.held_by(name).claim_buffers(std::iter::once(&column as &dyn arrow_array::Array));
            let of = |name: &str| {
                budget.holders().iter().find(|held| &*held.name == name).map_or(0, |held| held.bytes)
            };
            assert_eq!((of(name), of(other)), (budget.used(), 0));
        }
        drop(column);
        assert_eq!(budget.used(), 0);
        assert!(budget.holders().iter().all(|held| held.bytes == 0));
    }
}

//! Restores the order of results that several workers of a stage computed in parallel.
//!
//! See docs/decisions/008-order-by-tickets.md.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::Ticket;

/// Accepts results in any order of their tickets, and passes them on in ticket order: a reorder buffer.
///
/// Every ticket must be submitted exactly once, even if its item had no result (an empty one), or later
/// tickets wait for ever. The results that wait are bounded by the items that the workers hold and, beyond
/// that, by the budget.
pub struct Sequencer<R> {
    state: Mutex<State<R>>,
    /// Notified when another ticket is in turn.
    moved: Notify,
}

struct State<R> {
    next: Ticket,
    early: BTreeMap<Ticket, R>,
}

impl<R> Default for Sequencer<R> {
    fn default() -> Self {
        Self { state: Mutex::new(State { next: 0, early: BTreeMap::new() }), moved: Notify::new() }
    }
}

impl<R> Sequencer<R> {
    /// Submits the result of `ticket`, and calls `deliver` for each result that is now in turn. Deliveries of
    /// different threads do not overlap, so `deliver` must be quick and must not wait.
    pub fn submit(&self, ticket: Ticket, result: R, mut deliver: impl FnMut(R)) {
        let mut state = self.state.lock();
        if ticket != state.next {
            state.early.insert(ticket, result);
            return;
        }
        deliver(result);
        state.next += 1;
        loop {
            let next = state.next;
            let Some(result) = state.early.remove(&next) else { break };
            deliver(result);
            state.next += 1;
        }
        self.moved.notify_waiters();
    }

    /// Waits until the results of all earlier tickets are delivered. Until the ticket is submitted, its
    /// holder may then deliver parts of its result itself.
    pub async fn turn(&self, ticket: Ticket) {
        loop {
            let mut moved = std::pin::pin!(self.moved.notified());
            moved.as_mut().enable();
            if self.state.lock().next == ticket {
                return;
            }
            moved.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_order_of_arrival_leaves_in_the_order_of_tickets(
            order in (1..200u64).prop_flat_map(|n| Just((0..n).collect::<Vec<_>>()).prop_shuffle()),
        ) {
            let sequencer = Sequencer::default();
            let mut out = Vec::new();
            for (arrived, &ticket) in order.iter().enumerate() {
                sequencer.submit(ticket, ticket, |result| out.push(result));
                let in_turn = (0..).find(|t| !order[..=arrived].contains(t)).unwrap();
                prop_assert_eq!(out.len() as u64, in_turn);
            }
            prop_assert_eq!(out, (0..order.len() as u64).collect::<Vec<_>>());
        }
    }

    #[tokio::test]
    async fn a_ticket_is_in_turn_when_all_before_it_are_submitted() {
        let sequencer = std::sync::Arc::new(Sequencer::default());
        sequencer.turn(0).await;
        let waiting = tokio::spawn({
            let sequencer = sequencer.clone();
            async move { sequencer.turn(2).await }
        });
        sequencer.submit(1, (), |()| {});
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        sequencer.submit(0, (), |()| {});
        waiting.await.unwrap();
    }
}

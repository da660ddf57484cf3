//! The messages of a batch on their way to a server.
//!
//! After a temporary error, the engine calls the sink with the same batch. It is recognised by the address of
//! its payload views, and its messages keep the outcomes that they have. The payload is held until then, so
//! that no other batch can occupy the same memory.

use std::ops::{Deref, DerefMut};

use arrow_array::{Array, BinaryViewArray};
use thalweg_record::{Batch, Lease, is_same_payload};

/// How far a message is on its way, with its outcome at the end.
pub trait State: Sized {
    /// The state of a message that is to be sent.
    fn unsent() -> Self;

    /// Returns the reason of a message that was refused for good.
    fn refused(self) -> Option<String>;
}

/// The messages of a batch, as a slice of their states `R`.
#[derive(Debug)]
pub struct Outcomes<R> {
    payload: Option<BinaryViewArray>,
    rows: Vec<R>,
    /// Covers the memory of the rows, and what the sink copies of the messages.
    memory: Option<Lease>,
}

impl<R> Default for Outcomes<R> {
    fn default() -> Self {
        Self { payload: None, rows: Vec::new(), memory: None }
    }
}

impl<R> Deref for Outcomes<R> {
    type Target = [R];

    fn deref(&self) -> &[R] {
        &self.rows
    }
}

impl<R> DerefMut for Outcomes<R> {
    fn deref_mut(&mut self) -> &mut [R] {
        &mut self.rows
    }
}

impl<R: State> Outcomes<R> {
    /// True if these are the messages of another batch than this one, or of none.
    pub fn are_of_another(&self, batch: &Batch) -> bool {
        !self.payload.as_ref().is_some_and(|known| is_same_payload(known, batch.payload()))
    }

    /// Begins a batch: all of its messages are to be sent. `memory` is held until its end.
    pub fn begin(&mut self, batch: &Batch, memory: Lease) {
        let payload = batch.payload();
        let rows = std::iter::repeat_with(R::unsent).take(payload.len()).collect();
        *self = Self { payload: Some(payload.clone()), rows, memory: Some(memory) };
    }

    /// Ends the batch. Returns the refused rows in order.
    pub fn finish(&mut self) -> Vec<(u32, String)> {
        let rows = std::mem::take(self).rows.into_iter().enumerate();
        rows.filter_map(|(number, row)| Some((number as u32, row.refused()?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use thalweg_engine::testing::{batch, context};

    use super::*;

    impl State for Option<&'static str> {
        fn unsent() -> Self {
            None
        }

        fn refused(self) -> Option<String> {
            self.map(str::to_owned)
        }
    }

    #[test]
    fn the_same_batch_keeps_its_outcomes_and_another_one_begins_anew() {
        let (first, second) = (batch(["a", "b", "c"]), batch(["d"]));
        let memory = context().memory;
        let mut rows = Outcomes::<Option<&'static str>>::default();
        assert!(rows.are_of_another(&first));
        rows.begin(&first, memory.claim(10));
        rows[1] = Some("too long");
        assert!(!rows.are_of_another(&first) && rows.are_of_another(&second));
        assert_eq!(rows.finish(), [(1, "too long".to_owned())]);
        assert!(rows.are_of_another(&first));
        rows.begin(&second, memory.claim(10));
        assert_eq!((rows.len(), rows[0]), (1, None));
    }
}

//! Wakers that are numbers: that of the event loop and that of the evaluation in it.
//!
//! Wakers of waiting code are copied a lot: every timer and descriptor with a waiter holds one. Here a waker
//! therefore owns nothing: no allocation, no reference count. Waking looks up the event loop; on that loop's
//! own thread it then sets a flag and pushes. The cost is that a number outlives its evaluation: the waker of
//! an evaluation that is over may wake the next one at the same index. That evaluation is then polled once
//! without need, which every future has to allow for anyway.
#![allow(unsafe_code)]

use std::ptr;
use std::task::{RawWaker, RawWakerVTable, Waker};

use super::event_loop;

const PLACE_BITS: u32 = usize::BITS / 8 * 5;

/// The largest number of an event loop that a waker can contain: 16 million on 64-bit machines.
pub(super) const LAST_LOOP: usize = (1 << (usize::BITS - PLACE_BITS)) - 1;

/// The largest index that a waker can contain: a million million on 64-bit machines.
pub(super) const LAST_PLACE: usize = (1 << PLACE_BITS) - 1;

static VTABLE: RawWakerVTable = RawWakerVTable::new(|data| RawWaker::new(data, &VTABLE), wake, wake, |_| {});

fn wake(data: *const ()) {
    let (event_loop, place) = split(data.addr());
    event_loop::wake(event_loop, place);
}

fn split(number: usize) -> (usize, usize) {
    (number >> PLACE_BITS, number & LAST_PLACE)
}

/// Creates the waker of an evaluation.
pub(super) fn waker(event_loop: usize, place: usize) -> Waker {
    debug_assert!(event_loop <= LAST_LOOP && place <= LAST_PLACE);
    let number = event_loop << PLACE_BITS | place;
    // SAFETY: the functions of the table accept any number, from any thread, and nothing is owned.
    unsafe { Waker::new(ptr::without_provenance(number), &VTABLE) }
}

/// Returns the event loop and the index in it, if the waker was created here.
pub(super) fn named_by(waker: &Waker) -> Option<(usize, usize)> {
    ptr::eq(waker.vtable(), &VTABLE).then(|| split(waker.data().addr()))
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn a_waker_names_its_event_loop_and_place() {
        for pair in [(0, 0), (3, 7), (LAST_LOOP, LAST_PLACE)] {
            assert_eq!(named_by(&waker(pair.0, pair.1).clone()), Some(pair));
        }
        assert_eq!(named_by(Waker::noop()), None);
    }

    #[test]
    fn a_waker_of_an_event_loop_that_is_gone_does_nothing() {
        waker(LAST_LOOP, 1).wake();
    }
}

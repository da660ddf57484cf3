//! A small number for each reading thread, unique among the living threads.
//!
//! The counters under a number are written by no other thread at the same time. A count therefore needs no
//! atomic addition, only a load and a store. The number of a thread that has ended goes to the next thread
//! that begins to read.

use parking_lot::Mutex;
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

struct Numbers {
    next: usize,
    free: BinaryHeap<Reverse<usize>>,
}

static NUMBERS: Mutex<Numbers> = Mutex::new(Numbers { next: 0, free: BinaryHeap::new() });

/// The number that a thread holds until it ends.
struct Held(usize);

/// The values of [`NUMBER`] before the first search of a thread, and while the thread ends.
const UNKNOWN: usize = usize::MAX;
const ENDED: usize = usize::MAX - 1;

thread_local! {
    // Beside the number that is held, because a value without a destructor is read without a check.
    static NUMBER: Cell<usize> = const { Cell::new(UNKNOWN) };
    static HELD: Held = Held::take();
}

impl Held {
    fn take() -> Self {
        let mut numbers = NUMBERS.lock();
        match numbers.free.pop() {
            Some(Reverse(number)) => Self(number),
            None => {
                numbers.next += 1;
                Self(numbers.next - 1)
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        NUMBER.set(ENDED);
        NUMBERS.lock().free.push(Reverse(self.0));
    }
}

/// Returns the number of this thread; while the thread ends, one that no list has.
#[inline]
pub(crate) fn number() -> usize {
    match NUMBER.get() {
        UNKNOWN => first_number(),
        number => number,
    }
}

#[cold]
fn first_number() -> usize {
    let number = HELD.try_with(|held| held.0).unwrap_or(ENDED);
    NUMBER.set(number);
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn living_threads_have_numbers_of_their_own_and_the_next_thread_has_that_of_one_that_ended() {
        let here = number();
        assert!(here < ENDED);
        assert_eq!(here, number());
        let mut first = None;
        // Other tests take numbers at the same time, hence the many attempts.
        let again = (0..1000).any(|_| {
            let there = std::thread::spawn(number).join().unwrap_or(ENDED);
            assert_ne!(there, here);
            there == *first.get_or_insert(there)
        });
        assert!(again);
    }
}

//! A small number for each reading thread, unique among the living threads.
//!
//! The counters under a number are written by no other thread at the same time. A count therefore needs no
//! atomic addition, only a load and a store. The number of a thread that has ended goes to the next thread
//! that begins to read.

use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

struct Numbers {
    next: usize,
    free: BinaryHeap<Reverse<usize>>,
}

static NUMBERS: Mutex<Numbers> = Mutex::new(Numbers { next: 0, free: BinaryHeap::new() });

struct Number(usize);

thread_local!(static NUMBER: Number = Number::take());

impl Number {
    #[cold]
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

impl Drop for Number {
    fn drop(&mut self) {
        NUMBERS.lock().free.push(Reverse(self.0));
    }
}

/// Returns the number of this thread; `None` while the thread ends.
#[inline]
pub(crate) fn number() -> Option<usize> {
    NUMBER.try_with(|number| number.0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn living_threads_have_numbers_of_their_own_and_the_next_thread_has_that_of_one_that_ended() {
        let here = number();
        assert!(here.is_some());
        assert_eq!(here, number());
        let mut first = None;
        // Other tests take numbers at the same time, hence the many attempts.
        let again = (0..1000).any(|_| {
            let there = std::thread::spawn(number).join().unwrap_or_default();
            assert_ne!(there, here);
            there == *first.get_or_insert(there)
        });
        assert!(again);
    }
}

//! Work that a thread does before it waits.
//!
//! An allocator may keep memory that other threads freed until the thread that allocated it comes back to it.
//! A thread that waits for its next event does not: so it returns such memory first.

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// At most this often in a thread: a thread that waits between two small messages does nothing else.
const PAUSE: Duration = Duration::from_millis(20);

static WORK: OnceLock<fn()> = OnceLock::new();

thread_local! {
    static LAST: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Sets what each thread does before it waits, for the whole process. Only the first call has an effect: only
/// the program knows its allocator.
pub fn set_before_wait(work: fn()) {
    let _ = WORK.set(work);
}

/// For the threads of a runtime: they call it before they wait.
pub fn before_wait() {
    let Some(work) = WORK.get() else { return };
    let now = Instant::now();
    if LAST.get().is_none_or(|last| now.duration_since(last) >= PAUSE) {
        LAST.set(Some(now));
        work();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    static CALLS: AtomicUsize = AtomicUsize::new(0);

    #[test]
    fn the_work_is_done_once_in_a_while_in_each_thread() {
        before_wait();
        set_before_wait(|| {
            CALLS.fetch_add(1, Ordering::Relaxed);
        });
        let begun = Instant::now();
        (0..1000).for_each(|_| before_wait());
        let most = 1 + begun.elapsed().as_millis() / PAUSE.as_millis();
        let calls = CALLS.load(Ordering::Relaxed);
        assert!(calls >= 1 && calls as u128 <= most, "{calls} of {most}");
        std::thread::spawn(before_wait).join().unwrap();
        assert_eq!(CALLS.load(Ordering::Relaxed), calls + 1);
    }
}

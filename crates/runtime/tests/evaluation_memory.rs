//! Measures the allocations of evaluations with a counting allocator.
//!
//! The allocator counts per thread, so that the tests, each on its own thread, do not affect each other.
#![allow(unsafe_code, reason = "an allocator is unsafe to implement; this one passes everything on")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use thalweg_runtime::evaluation::{Called, ConcurrentProc, Evaluation, block_on, concurrently, wait};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static LIVE_BYTES: Cell<isize> = const { Cell::new(0) };
}

/// Returns the bytes that glibc's `malloc` uses for a request: a word for itself, rounded up to 16 bytes, at
/// least 32.
fn with_overhead(size: usize) -> isize {
    (size + 8).next_multiple_of(16).max(32) as isize
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        LIVE_BYTES.set(LIVE_BYTES.get() + with_overhead(layout.size()));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE_BYTES.set(LIVE_BYTES.get() - with_overhead(layout.size()));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Counts the allocations of `work` after it has run once.
fn allocations_of(mut work: impl FnMut()) -> usize {
    work();
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

#[test]
fn a_call_that_does_not_wait_allocates_nothing() {
    let add = ConcurrentProc::new(async |(a, b): (u64, u64)| a + b);
    let in_foreground = allocations_of(|| {
        for number in 0..1000 {
            assert_eq!(block_on(add.call((number, 1))), number + 1);
        }
    });
    let nonblocking = allocations_of(|| {
        for number in 0..1000 {
            assert!(matches!(add.call_nonblock((number, 1)), Called::Concluded(sum) if sum == number + 1));
        }
    });
    assert_eq!((in_foreground, nonblocking), (0, 0));
}

#[test]
fn a_call_whose_code_is_large_allocates_nothing() {
    async fn sum(numbers: [u64; 1000]) -> u64 {
        let ready = std::future::ready(3).await;
        numbers.iter().sum::<u64>() + ready
    }
    let code = ConcurrentProc::new(sum);
    let call = || assert!(matches!(code.call_nonblock([1; 1000]), Called::Concluded(1003)));
    assert_eq!(allocations_of(call), 0);
}

#[test]
fn calls_within_calls_allocate_nothing() {
    let inner = ConcurrentProc::new(async |number: u64| number + 1);
    let outer = ConcurrentProc::new(move |number: u64| async move {
        match inner.call_nonblock(number) {
            Called::Concluded(number) => inner.call(number).await,
            Called::Waiting(_) => unreachable!("it does not wait"),
        }
    });
    assert_eq!(allocations_of(|| assert!(matches!(outer.call_nonblock(1), Called::Concluded(3)))), 0);
}

#[test]
fn on_tokio_a_call_that_does_not_wait_allocates_nothing() {
    let add = ConcurrentProc::on_tokio(async |(a, b): (u64, u64)| a + b);
    let count = allocations_of(|| assert!(matches!(add.call_nonblock((1, 2)), Called::Concluded(3))));
    assert_eq!(count, 0);
}

#[test]
fn a_forgotten_call_allocates_nothing_whether_it_waits_or_not() {
    let code = ConcurrentProc::new(async |waits: bool| {
        if waits {
            wait(Duration::ZERO).await;
        }
    });
    for waits in [false, true] {
        let count = allocations_of(|| {
            for _ in 0..100 {
                code.call_and_forget(waits);
            }
            block_on(async {
                wait(Duration::ZERO).await;
                wait(Duration::ZERO).await;
            });
        });
        assert_eq!(count, 0, "waits: {waits}");
    }
}

/// A little more than a power of two, the worst case for growing buffers.
const WAITING: usize = 132_000;

/// Returns the bytes of a waiting evaluation, without the state of its code and its handle.
fn bytes_each(evaluation: impl Fn() -> Evaluation<()>, own_state: usize) -> isize {
    let before = LIVE_BYTES.get();
    let mut waiting = Vec::with_capacity(WAITING);
    waiting.extend((0..WAITING).map(|_| evaluation()));
    block_on(wait(Duration::ZERO));
    block_on(wait(Duration::ZERO));
    assert!(waiting.iter().all(Evaluation::is_waiting));
    let all = LIVE_BYTES.get() - before;
    for evaluation in &waiting {
        assert_eq!(evaluation.conclude_to(()), Ok(()));
    }
    all / WAITING as isize - (own_state + size_of::<Evaluation<()>>()) as isize
}

#[test]
fn an_evaluation_that_waits_takes_less_than_256_bytes_beside_its_state() {
    let code = ConcurrentProc::new(|_: ()| std::future::pending::<()>());
    let call = || match code.call_nonblock(()) {
        Called::Waiting(evaluation) => evaluation,
        Called::Concluded(()) => unreachable!("it waits"),
    };
    let called = bytes_each(call, 0);
    let detached = bytes_each(|| concurrently(std::future::pending()), 0);
    println!("bytes for each evaluation that waits: {called} called, {detached} detached");
    assert!(called < 256 && detached < 256, "{called} called, {detached} detached");
}

#[test]
fn an_evaluation_that_waits_for_a_timer_takes_less_than_256_bytes_with_the_timer() {
    let hour = Duration::from_secs(3600);
    let each = bytes_each(|| concurrently(wait(hour)), size_of_val(&wait(hour)));
    println!("bytes for each evaluation that waits for a timer: {each}");
    assert!(each < 256, "{each}");
}

//! Tests that permits are counted correctly and that no waiter is forgotten. The behaviour of the limit is
//! tested in `tests/limit`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use proptest::prelude::*;

use super::*;

/// True if a waiter has been woken since it was last polled.
#[derive(Default)]
struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Waiter {
    acquire: Pin<Box<Acquire>>,
    bell: Arc<Bell>,
}

impl Waiter {
    fn poll(&mut self) -> Poll<Permit> {
        let waker = Waker::from(self.bell.clone());
        self.acquire.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

#[derive(Debug, Clone)]
enum Step {
    TryAcquire,
    /// Starts to wait, or gets a permit at once.
    Acquire,
    /// Polls the nth waiter.
    Poll(usize),
    /// Drops the future of the nth waiter, woken or not.
    Cancel(usize),
    End(usize, Outcome),
    SetUpper(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let outcome = prop_oneof![Just(Outcome::Succeeded), Just(Outcome::Overloaded), Just(Outcome::Silent)];
    let step = prop_oneof![
        1 => Just(Step::TryAcquire),
        3 => Just(Step::Acquire),
        3 => any::<usize>().prop_map(Step::Poll),
        1 => any::<usize>().prop_map(Step::Cancel),
        3 => (any::<usize>(), outcome).prop_map(|(n, outcome)| Step::End(n, outcome)),
        1 => (1_usize..9).prop_map(Step::SetUpper),
    ];
    proptest::collection::vec(step, 0..200)
}

fn end(permit: Permit, outcome: Outcome) {
    match outcome {
        Outcome::Succeeded => permit.succeeded(),
        Outcome::Overloaded => permit.overloaded(),
        Outcome::Silent => permit.failed(),
    }
}

/// Removes the nth of `items`, modulo their number.
fn pick<T>(items: &mut VecDeque<T>, n: usize) -> Option<T> {
    let n = n.checked_rem(items.len())?;
    items.remove(n)
}

proptest! {
    #[test]
    fn whatever_happens_slots_are_counted_and_nobody_is_forgotten(
        adaptive in any::<bool>(), first in 1_usize..5, steps in steps(),
    ) {
        let limit = match adaptive {
            true => ConcurrencyLimit::adaptive(first..=8),
            false => ConcurrencyLimit::fixed(first),
        };
        let mut permits = VecDeque::new();
        let mut waiters: VecDeque<Waiter> = VecDeque::new();
        for step in steps {
            match step {
                Step::TryAcquire => {
                    let permit = limit.try_acquire(1);
                    prop_assert!(permit.is_none() || waiters.iter().all(|w| w.bell.0.load(Ordering::Relaxed)));
                    permits.extend(permit);
                }
                Step::Acquire => {
                    let mut waiter =
                        Waiter { acquire: Box::pin(limit.acquire(1)), bell: Arc::default() };
                    match waiter.poll() {
                        Poll::Ready(permit) => permits.push_back(permit),
                        Poll::Pending => waiters.push_back(waiter),
                    }
                }
                Step::Poll(n) => {
                    if let Some(mut waiter) = pick(&mut waiters, n) {
                        let woken = waiter.bell.0.load(Ordering::Relaxed);
                        match waiter.poll() {
                            Poll::Ready(permit) => permits.push_back(permit),
                            Poll::Pending => {
                                prop_assert!(!woken, "a waiter was woken for nothing");
                                waiters.insert(n % (waiters.len() + 1), waiter);
                            }
                        }
                    }
                }
                Step::Cancel(n) => drop(pick(&mut waiters, n)),
                Step::End(n, outcome) => {
                    if let Some(permit) = pick(&mut permits, n) {
                        end(permit, outcome);
                    }
                }
                Step::SetUpper(upper) => limit.set_upper(upper),
            }
            let woken = waiters.iter().filter(|w| w.bell.0.load(Ordering::Relaxed)).count();
            prop_assert_eq!(limit.in_flight(), permits.len() + woken);
            prop_assert_eq!(limit.snapshot().waiting, waiters.len() - woken);
            prop_assert!(
                limit.in_flight() >= limit.current() || woken == waiters.len(),
                "a slot is free, and somebody waits: {:?}", limit
            );
        }
        permits.clear();
        while !waiters.is_empty() {
            let before = waiters.len();
            // Each permit is dropped as soon as it is acquired, and its slot passes to the next waiter.
            waiters.retain_mut(|waiter| waiter.poll().is_pending());
            prop_assert!(waiters.len() < before, "somebody waits although nothing is under way");
        }
        prop_assert_eq!(limit.in_flight(), 0);
    }
}

#[tokio::test]
async fn those_who_wait_are_served_in_the_order_in_which_they_came() {
    let limit = ConcurrencyLimit::fixed(1);
    let held = limit.acquire(0).await;
    let served = Arc::new(Mutex::new(Vec::new()));
    let tasks: Vec<_> = (0..5)
        .map(|n| {
            let (limit, served) = (limit.clone(), served.clone());
            tokio::spawn(async move {
                let permit = limit.acquire(0).await;
                served.lock().push(n);
                tokio::task::yield_now().await;
                permit.succeeded();
            })
        })
        .collect();
    tokio::task::yield_now().await;
    assert_eq!(limit.snapshot().waiting, 5);
    held.succeeded();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*served.lock(), [0, 1, 2, 3, 4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threads_that_come_and_go_leave_nothing_under_way() {
    let limit = ConcurrencyLimit::adaptive(2..=3);
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let limit = limit.clone();
            tokio::spawn(async move {
                for n in 0..500 {
                    if (n + task) % 3 == 0 {
                        // Cancelled after a poll or two, which races with the hand-over of the slot.
                        let mut acquire = Box::pin(limit.acquire(1));
                        tokio::select! {
                            biased;
                            permit = &mut acquire => permit.failed(),
                            () = tokio::task::yield_now() => {}
                        }
                    } else {
                        let permit = limit.acquire(1).await;
                        assert!(limit.in_flight() <= 3);
                        tokio::task::yield_now().await;
                        permit.succeeded();
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!((limit.in_flight(), limit.snapshot().waiting), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn failures_and_cancellations_are_no_measurements() {
    let limit = ConcurrencyLimit::adaptive(1..=8);
    for _ in 0..100 {
        let failed = limit.acquire(1000).await;
        tokio::time::advance(Duration::from_secs(1)).await;
        failed.failed();
        drop(limit.acquire(1000).await);
    }
    assert_eq!(limit.current(), 1);
    assert_eq!(limit.snapshot().adaptive.unwrap().fixed, None);
}

#[tokio::test(start_paused = true)]
async fn the_budget_bounds_the_limit_by_items_of_their_mean_size() {
    let limit = ConcurrencyLimit::adaptive(8..=64);
    drop(limit.acquire(1000).await);
    limit.set_budget(20_500);
    assert_eq!(limit.to_string(), "adaptive 8 to 20");
    limit.set_budget(100);
    assert_eq!(limit.to_string(), "adaptive 8 to 8");
}

#[tokio::test(start_paused = true)]
async fn a_configured_limit_is_not_moved_by_anything() {
    let limit = ConcurrencyLimit::fixed(4);
    limit.set_upper(2);
    limit.set_budget(1);
    for _ in 0..10 {
        limit.acquire(1000).await.overloaded();
    }
    assert_eq!((limit.current(), limit.to_string().as_str()), (4, "4, as configured"));
    assert_eq!(limit.snapshot().to_string(), "4 (as configured)");
}

use super::*;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Reserve(usize, usize),
    Claim(usize),
    Split(prop::sample::Index, usize),
    Merge(prop::sample::Index, prop::sample::Index),
    Resize(prop::sample::Index, usize),
    Arena(usize, usize),
    Freeze(prop::sample::Index, usize),
    Drop(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        (0..3usize, 1..500usize).prop_map(|(s, n)| Step::Reserve(s, n)),
        (0..500usize).prop_map(Step::Claim),
        (index(), 0..500usize).prop_map(|(a, n)| Step::Split(a, n)),
        (index(), index()).prop_map(|(a, b)| Step::Merge(a, b)),
        (index(), 0..500usize).prop_map(|(a, n)| Step::Resize(a, n)),
        (0..3usize, 1..4usize).prop_map(|(s, n)| Step::Arena(s, n * 64)),
        (index(), 0..500usize).prop_map(|(a, n)| Step::Freeze(a, n)),
        (index()).prop_map(Step::Drop),
    ]
}

enum Held {
    Lease(Lease),
    Slice { _slice: Buffer, of: usize },
}

impl Held {
    fn bytes(&self) -> usize {
        match self {
            Held::Lease(lease) => lease.bytes(),
            Held::Slice { of, .. } => *of,
        }
    }
}

/// Claims a column over a buffer, as the engine does for each batch.
fn buffer_claimed(budget: &Budget, buffer: &Buffer) {
    let column = arrow_array::UInt8Array::new(buffer.clone().into(), None);
    budget.claim_buffers(std::iter::once(&column as &dyn Array));
}

/// Polls once: a budget grants at once if it can.
fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}

proptest! {
    #[test]
    fn any_interleaving_gives_back_exactly_what_was_taken(
        limit in 0..2000usize,
        steps in prop::collection::vec(step(), 0..80),
    ) {
        let budget = Budget::new(limit);
        let shares = [budget.held_by("a").share(), budget.held_by("b").share(), budget.share()];
        let mut held: Vec<Held> = Vec::new();
        for step in steps {
            let len = held.len();
            match step {
                Step::Reserve(share, bytes) => {
                    let before = budget.used();
                    let was_empty = shares[share].held() == 0;
                    match now(shares[share].reserve(bytes)) {
                        Some(lease) => {
                            prop_assert!(was_empty || before + bytes <= limit - limit / 4);
                            held.push(Held::Lease(lease));
                        }
                        None => prop_assert!(!was_empty, "a share that holds nothing was made to wait"),
                    }
                }
                Step::Arena(share, bytes) => {
                    if let Some(arena) = now(shares[share].arena(bytes)) {
                        let buffer = arena.freeze();
                        let slice = buffer.slice(bytes / 2);
                        drop(buffer);
                        held.push(Held::Slice { _slice: slice, of: bytes });
                    }
                }
                Step::Freeze(at, bytes) if len > 0 && matches!(held[at.index(len)], Held::Lease(_)) => {
                    if let Held::Lease(lease) = held.remove(at.index(len)) {
                        let buffer = lease.freeze(vec![1; bytes]);
                        // A batch over this buffer is counted once.
                        buffer_claimed(&budget, &buffer);
                        held.push(Held::Slice { _slice: buffer.slice(bytes / 2), of: bytes });
                    }
                }
                Step::Claim(bytes) => held.push(Held::Lease(budget.claim(bytes))),
                Step::Split(at, bytes) if len > 0 => {
                    if let Held::Lease(lease) = &mut held[at.index(len)] {
                        let part = lease.split(bytes);
                        held.push(Held::Lease(part));
                    }
                }
                Step::Merge(a, b) if len > 1 && a.index(len) != b.index(len) => {
                    let (a, b) = (a.index(len), b.index(len));
                    let other = held.remove(a.max(b));
                    match (&mut held[a.min(b)], other) {
                        (Held::Lease(lease), Held::Lease(other)) => {
                            if let Err(other) = lease.merge(other) {
                                held.push(Held::Lease(other));
                            }
                        }
                        (_, other) => held.push(other),
                    }
                }
                Step::Resize(at, bytes) if len > 0 => {
                    if let Held::Lease(lease) = &mut held[at.index(len)] {
                        lease.resize(bytes);
                    }
                }
                Step::Drop(at) if len > 0 => drop(held.remove(at.index(len))),
                _ => {}
            }
            prop_assert_eq!(budget.used(), held.iter().map(Held::bytes).sum::<usize>());
            prop_assert_eq!(budget.used(), budget.holders().iter().map(|held| held.bytes).sum::<usize>());
            prop_assert!(budget.peak() >= budget.used());
        }
        drop(held);
        prop_assert_eq!(budget.used(), 0);
        for share in &shares {
            prop_assert_eq!(share.held(), 0);
        }
    }
}

#[tokio::test]
async fn a_reservation_waits_for_room_and_is_granted_when_there_is_some() {
    let budget = Budget::new(1000);
    let share = budget.share();
    let first = share.reserve(700).await;
    let waiting = tokio::spawn({
        let share = share.clone();
        async move { share.reserve(100).await.bytes() }
    });
    while !budget.is_short() {
        tokio::task::yield_now().await;
    }
    drop(first);
    assert_eq!(waiting.await.unwrap(), 100);
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn a_withdrawn_request_does_not_stand_in_the_way_of_the_next() {
    let budget = Budget::new(1000);
    let share = budget.share();
    let first = share.reserve(700).await;
    assert!(now(share.reserve(300)).is_none());
    drop(first);
    assert_eq!(budget.used(), 0);
    assert!(now(share.reserve(750)).is_some());
}

#[tokio::test]
async fn every_budget_from_nothing_upwards_lets_all_sources_finish() {
    for limit in [0, 1, 63, 64, 65, 200, 10_000] {
        let budget = Budget::new(limit);
        let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
        for _ in 0..3 {
            let (share, send) = (budget.share(), send.clone());
            tokio::spawn(async move {
                for _ in 0..100 {
                    let arena = share.arena(64).await;
                    let _ = send.send(arena.freeze());
                }
            });
        }
        drop(send);
        let mut count = 0;
        while let Some(buffer) = receive.recv().await {
            let grown = budget.claim(200);
            tokio::task::yield_now().await;
            drop((buffer, grown));
            count += 1;
        }
        assert_eq!(count, 300);
        assert_eq!(budget.used(), 0);
    }
}

#[tokio::test]
async fn an_arena_is_used_again_once_its_last_slice_is_gone() {
    let share = Budget::new(1 << 20).share();
    let buffer = share.arena(4096).await.freeze();
    let (address, slice) = (buffer.as_ptr(), buffer.slice_with_length(10, 10));
    drop(buffer);
    assert_ne!(share.arena(4096).await.as_ptr(), address);
    drop(slice);
    assert_eq!(share.arena(4096).await.as_ptr(), address);
}

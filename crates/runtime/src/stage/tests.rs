use super::*;
use crate::channel::{HandOver, Sender, channel};
use proptest::prelude::*;
use tokio::sync::Semaphore;

/// Records its items. If it has a gate, it waits for a permit before each item.
struct Noting {
    taken: Arc<Mutex<Vec<(Ticket, u32)>>>,
    gate: Option<Arc<Semaphore>>,
    restless: Option<Arc<AtomicU64>>,
    finished: Arc<AtomicU64>,
}

impl Worker for Noting {
    type Item = u32;
    type Error = String;

    async fn take(&mut self, ticket: Ticket, item: u32) -> Result<(), String> {
        if let Some(gate) = &self.gate {
            gate.acquire().await.map_err(|error| error.to_string())?.forget();
        }
        match item {
            13 => Err("thirteen".to_owned()),
            666 => panic!("six hundred and sixty-six"),
            _ => {
                self.taken.lock().push((ticket, item));
                Ok(())
            }
        }
    }

    fn is_restless(&self) -> bool {
        self.restless.as_ref().is_some_and(|rests| rests.load(Ordering::Relaxed) == 0)
    }

    async fn rest(&mut self) -> Result<(), String> {
        if let Some(rests) = &self.restless {
            rests.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn finish(self) -> Result<(), String> {
        self.finished.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[derive(Default)]
struct Fixture {
    taken: Arc<Mutex<Vec<(Ticket, u32)>>>,
    gate: Option<Arc<Semaphore>>,
    restless: Option<Arc<AtomicU64>>,
    finished: Arc<AtomicU64>,
    hand_overs: Arc<HandOvers>,
}

impl Fixture {
    /// Creates a stage whose items are known to be cheap.
    fn stage(&self, workers: usize) -> (Sender<u32>, Stage<Noting>) {
        let worker = |_| Noting {
            taken: self.taken.clone(),
            gate: self.gate.clone(),
            restless: self.restless.clone(),
            finished: self.finished.clone(),
        };
        let (sender, receiver) = channel(usize::MAX);
        let stage = Stage::new((0..workers).map(worker).collect(), receiver, self.hand_overs.clone());
        stage.seats.note_cost(Duration::ZERO);
        (sender, stage)
    }

    fn counts(&self) -> (u64, u64) {
        (self.hand_overs.at_once(), self.hand_overs.queued())
    }
}

fn hand_over(sender: &Sender<u32>, item: u32) {
    sender.hand_over(item, 1).map(HandOver::run).unwrap();
}

#[tokio::test]
async fn a_free_worker_takes_an_item_in_the_stack_of_the_caller() {
    let fixture = Fixture::default();
    let (sender, stage) = fixture.stage(1);
    hand_over(&sender, 7);
    assert_eq!(*fixture.taken.lock(), [(0, 7)]);
    drop(sender);
    stage.run().await.unwrap();
    assert_eq!((fixture.counts(), fixture.finished.load(Ordering::Relaxed)), ((1, 0), 1));
}

#[tokio::test]
async fn what_had_to_wait_is_finished_by_the_stage_and_the_rest_queues_behind_it() {
    let gate = Arc::new(Semaphore::new(0));
    let fixture = Fixture { gate: Some(gate.clone()), ..Fixture::default() };
    let (sender, stage) = fixture.stage(1);
    (1..=3).for_each(|item| hand_over(&sender, item));
    assert_eq!(*fixture.taken.lock(), []);
    let running = tokio::spawn(stage.run());
    tokio::task::yield_now().await;
    gate.add_permits(3);
    drop(sender);
    running.await.unwrap().unwrap();
    assert_eq!(*fixture.taken.lock(), [(0, 1), (1, 2), (2, 3)]);
    assert_eq!(fixture.counts(), (1, 2));
}

#[tokio::test]
async fn costly_work_is_left_to_the_tasks_of_the_stage() {
    let fixture = Fixture::default();
    let (sender, stage) = fixture.stage(1);
    (0..20).for_each(|_| stage.seats.note_cost(WORTH_WAKING * 2));
    hand_over(&sender, 1);
    drop(sender);
    stage.run().await.unwrap();
    assert_eq!(fixture.counts(), (0, 1));
}

#[tokio::test]
async fn an_error_in_the_stack_of_the_caller_is_the_stages() {
    let fixture = Fixture::default();
    let (sender, stage) = fixture.stage(1);
    hand_over(&sender, 13);
    assert_eq!(stage.run().await, Err("thirteen".to_owned()));
    assert_eq!(sender.hand_over(1, 1).err(), Some(1));
}

#[tokio::test]
async fn a_panic_in_the_stack_of_the_caller_is_the_stages() {
    let fixture = Fixture::default();
    let (sender, stage) = fixture.stage(1);
    hand_over(&sender, 666);
    assert!(tokio::spawn(stage.run()).await.unwrap_err().is_panic());
    assert_eq!(sender.hand_over(1, 1).err(), Some(1));
}

#[tokio::test]
async fn a_worker_that_became_restless_elsewhere_is_looked_after() {
    let rests = Arc::new(AtomicU64::new(1));
    let fixture = Fixture { restless: Some(rests.clone()), ..Fixture::default() };
    let (sender, stage) = fixture.stage(1);
    let running = tokio::spawn(stage.run());
    tokio::task::yield_now().await;
    rests.store(0, Ordering::Relaxed);
    hand_over(&sender, 1);
    while rests.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    drop(sender);
    running.await.unwrap().unwrap();
    assert_eq!(fixture.counts(), (1, 0));
}

/// A worker that hands its items over to another stage.
struct Passing(Sender<u32>);

impl Worker for Passing {
    type Item = u32;
    type Error = String;

    fn has_room(&self) -> bool {
        self.0.has_room()
    }

    async fn room(&mut self) {
        self.0.room().await;
    }

    async fn take(&mut self, _: Ticket, item: u32) -> Result<(), String> {
        if item.is_multiple_of(5) {
            tokio::task::yield_now().await;
        }
        self.0.hand_over(item, 1).map(HandOver::run).map_err(|_| "closed".to_owned())
    }

    async fn finish(self) -> Result<(), String> {
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn two_stages_of_one_worker_take_everything_once_and_in_order(
        items in prop::collection::vec(14..600u32, 0..300),
        costly in prop::collection::vec(any::<bool>(), 2),
        room in 1..8usize,
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_all().build().unwrap();
        runtime.block_on(async {
            let fixture = Fixture::default();
            let (last, sink) = fixture.stage(1);
            let (first, input) = channel(room);
            let middle = Stage::new(vec![Passing(last)], input, Arc::default());
            for (costly, note) in costly.iter().zip([
                &(|cost| sink.seats.note_cost(cost)) as &dyn Fn(Duration),
                &|cost| middle.seats.note_cost(cost),
            ]) {
                (0..40).for_each(|_| note(if *costly { WORTH_WAKING * 4 } else { Duration::ZERO }));
            }
            let tasks = [tokio::spawn(middle.run()), tokio::spawn(sink.run())];
            for &item in &items {
                first.room().await;
                first.hand_over(item, 1).map(HandOver::run).unwrap();
            }
            drop(first);
            for task in tasks {
                task.await.unwrap().unwrap();
            }
            let expected: Vec<_> = (0..).zip(items.iter().copied()).collect();
            assert_eq!(*fixture.taken.lock(), expected);
            let (at_once, queued) = fixture.counts();
            assert_eq!(at_once + queued, items.len() as u64);
        });
    }

    #[test]
    fn several_workers_take_everything_once(count in 0..500u32, workers in 1..4usize) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_all().build().unwrap();
        runtime.block_on(async {
            let fixture = Fixture::default();
            let (sender, stage) = fixture.stage(workers);
            let tasks: Vec<_> = (1..workers).map(|_| stage.clone()).chain([stage.clone()]).collect();
            drop(stage);
            let tasks: Vec<_> = tasks.into_iter().map(|stage| tokio::spawn(stage.run())).collect();
            for item in 0..count {
                hand_over(&sender, 1000 + item);
            }
            drop(sender);
            for task in tasks {
                task.await.unwrap().unwrap();
            }
            let mut taken = fixture.taken.lock().clone();
            taken.sort_unstable();
            let expected: Vec<_> = (0..count).map(|item| (Ticket::from(item), 1000 + item)).collect();
            assert_eq!(taken, expected);
            assert_eq!(fixture.finished.load(Ordering::Relaxed), workers as u64);
        });
    }
}

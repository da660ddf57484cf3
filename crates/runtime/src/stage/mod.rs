//! Stages: workers that process the items handed to them, on their own stack or on the caller's.
//!
//! Handing over is a [`call_nonblock`](crate::evaluation::ConcurrentProc::call_nonblock). Three conditions
//! must hold for it: a worker is free, no item is queued, and the work is too small to wake another core for
//! it. Then the caller does the stage's work on its own stack until the work has to wait. Otherwise the item
//! goes through the channel to the stage's own tasks. Work that had to wait continues as a tokio task, and
//! the stage's tasks collect its result.
//!
//! When is work worth another core? The stage knows the recent cost of an item. Below [`WORTH_WAKING`], the
//! hand-over would take longer than the work. Above, the caller has better things to do: a source continues
//! reading, a segment takes its next batch. Handing over directly whenever a worker is free was rejected: it
//! turns a source and a costly segment into one thread.
//!
//! Each worker is in one place at a time: idle in the stage, or with the task that uses it. No other locking
//! is necessary; a worker's own state needs none.
//!
//! See docs/decisions/006-a-worker-is-in-one-place.md.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::channel::{Claim, ClaimedWork, NewsGiver, Receiver, Taken, TakenWith, Ticket};
use crate::evaluation::{Called, ConcurrentProc, Evaluation};

/// Roughly the time until another core has started on an item and has its bytes in its own cache. (With 50
/// µs, writing text around 256-byte payloads took twice the CPU time and no less wall-clock time.)
const WORTH_WAKING: Duration = Duration::from_micros(100);

/// One worker of a stage.
pub trait Worker: Send + 'static {
    /// The type of the items.
    type Item: Send + 'static;
    /// The reason why the stage may end before its input does.
    type Error: Send + 'static;

    /// True if an item counts as moving (see [`Traffic`](crate::Traffic)) until [`take`](Self::take) returns.
    /// False if it counts only until `take` begins: what the worker sends is counted by itself.
    const MOVES_ITEMS: bool = true;

    /// True if the next stage has capacity for the output.
    fn has_room(&self) -> bool {
        true
    }

    /// Waits until the next stage has capacity for the output.
    fn room(&mut self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Processes an item. `ticket` is the item's sequence number in the stage's input.
    fn take(
        &mut self,
        ticket: Ticket,
        item: Self::Item,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// True if the worker has work to do although no item has arrived.
    fn is_restless(&self) -> bool {
        false
    }

    /// Does that work.
    fn rest(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        async { Ok(()) }
    }

    /// Ends the worker: there will be no more items.
    fn finish(self) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// Counts how the items of a stage arrived.
#[derive(Debug, Default)]
pub struct HandOvers {
    at_once: AtomicU64,
    queued: AtomicU64,
}

impl HandOvers {
    /// Returns the number of items processed on the stack of the caller that handed them over.
    pub fn at_once(&self) -> u64 {
        self.at_once.load(Ordering::Relaxed)
    }

    /// Returns the number of items that waited in the channel.
    pub fn queued(&self) -> u64 {
        self.queued.load(Ordering::Relaxed)
    }
}

/// Workers and their input. Each clone is [`run`](Self::run) as a separate task, one for each worker.
pub struct Stage<W: Worker> {
    input: Receiver<W::Item>,
    seats: Arc<Seats<W>>,
    /// Interval at which restless workers are checked while no items arrive.
    tick: Duration,
    /// Notified when they must be checked at once.
    nudge: Arc<Notify>,
}

/// An evaluation that had to wait. It returns the worker and the result of its work.
type Running<W> = Evaluation<(W, Result<(), <W as Worker>::Error>)>;

struct Seats<W: Worker> {
    state: Mutex<State<W>>,
    hand_overs: Arc<HandOvers>,
    /// The recent cost of an item, in nanoseconds.
    cost: AtomicU64,
}

struct State<W: Worker> {
    resting: Vec<W>,
    /// Evaluations that callers began and the stage must finish.
    running: Vec<Running<W>>,
    failure: Option<Failure<W::Error>>,
    /// The number of the stage's tasks. When the last task ends, the workers are dropped, and with them their
    /// handles on the downstream stages.
    tasks: usize,
}

enum Failure<E> {
    Error(E),
    Panic(Box<dyn std::any::Any + Send>),
}

/// The next step of a task of the stage.
enum Next<W: Worker> {
    Item(W, Taken<W::Item>),
    Running(Running<W>),
    Restless(W),
    End,
}

impl<W: Worker> Stage<W> {
    /// Creates a stage with these workers. From now on, items handed over to the other end of `input` may be
    /// processed at once.
    pub fn new(workers: Vec<W>, input: Receiver<W::Item>, hand_overs: Arc<HandOvers>) -> Self {
        let state = State { resting: workers, running: Vec::new(), failure: None, tasks: 1 };
        let seats = Arc::new(Seats { state: Mutex::new(state), hand_overs, cost: AtomicU64::new(u64::MAX) });
        input.attach(Arc::new(Entrance { news: input.news_giver(), seats: seats.clone() }));
        Self { input, seats, tick: Duration::MAX, nudge: Arc::default() }
    }

    /// Checks restless workers at this interval while no items arrive, and whenever `nudge` is notified.
    pub fn with_rests(mut self, tick: Duration, nudge: Arc<Notify>) -> Self {
        (self.tick, self.nudge) = (tick, nudge);
        self
    }

    /// Processes items until the input ends, then finishes a worker.
    ///
    /// # Errors
    /// Returns the errors of the workers, including those of work done on a caller's stack.
    pub async fn run(self) -> Result<(), W::Error> {
        loop {
            let (worker, result) = match self.next().await? {
                Next::Item(worker, taken) => {
                    self.seats.hand_overs.queued.fetch_add(1, Ordering::Relaxed);
                    work((self.seats.clone(), worker, taken)).await
                }
                Next::Running(running) => match running.await {
                    Ok(done) => done,
                    // The panic was reported where it happened. Here it ends the task, like a panic of the
                    // task itself.
                    Err(error) => resume_unwind(Box::new(error.to_string())),
                },
                Next::Restless(mut worker) => {
                    let result = worker.rest().await;
                    (worker, result)
                }
                Next::End => break,
            };
            result?;
            self.seats.give_back(worker);
            if !self.input.is_empty() {
                self.input.pass_on_news();
            }
            // A task woken from here may be placed in the LIFO slot of this tokio worker, from which no other
            // can steal it. Without a yield it would wait as long as this task has enough to do, and delay
            // all results after its item.
            tokio::task::yield_now().await;
        }
        let worker = self.seats.state.lock().resting.pop();
        match worker {
            Some(worker) => worker.finish().await,
            None => Ok(()),
        }
    }

    async fn next(&self) -> Result<Next<W>, W::Error> {
        loop {
            let news = self.input.news();
            let mut news = std::pin::pin!(news);
            news.as_mut().enable();
            let nudged = self.nudge.notified();
            let mut nudged = std::pin::pin!(nudged);
            nudged.as_mut().enable();
            // Read before the queue: a sender pushes before it is dropped, so its items are seen below.
            let ended = self.input.is_ended();
            if let Some(next) = self.seats.unfinished() {
                return next;
            }
            let mut without_room = None;
            let taken = self.input.try_take_with(|| {
                let worker = self.seats.state.lock().resting.pop()?;
                if worker.has_room() {
                    return Some(worker);
                }
                without_room = Some(worker);
                None
            });
            if let Some(mut worker) = without_room {
                worker.room().await;
                self.seats.give_back(worker);
                continue;
            }
            match taken {
                TakenWith::Item(worker, taken) => return Ok(Next::Item(worker, taken)),
                // The task that holds the workers looks for more items when it returns one.
                TakenWith::Unclaimed => {}
                TakenWith::Nothing => {
                    if let Some(worker) = self.seats.restless() {
                        return Ok(Next::Restless(worker));
                    }
                    if ended {
                        self.input.pass_on_news();
                        return Ok(Next::End);
                    }
                }
            }
            tokio::select! {
                () = news => {}
                () = nudged => {}
                () = tokio::time::sleep(self.tick) => {}
            }
        }
    }
}

impl<W: Worker> Clone for Stage<W> {
    fn clone(&self) -> Self {
        self.seats.state.lock().tasks += 1;
        Self {
            input: self.input.clone(),
            seats: self.seats.clone(),
            tick: self.tick,
            nudge: self.nudge.clone(),
        }
    }
}

impl<W: Worker> Drop for Stage<W> {
    fn drop(&mut self) {
        let mut state = self.seats.state.lock();
        state.tasks -= 1;
        if state.tasks == 0 {
            let gone = (std::mem::take(&mut state.resting), std::mem::take(&mut state.running));
            drop(state);
            drop(gone);
        }
    }
}

impl<W: Worker> Seats<W> {
    /// Updates the moving average, in which each item counts an eighth. The cap keeps one item with a long
    /// wait from outweighing hundreds.
    fn note_cost(&self, spent: Duration) {
        let spent = spent.min(WORTH_WAKING * 16).as_nanos() as u64;
        let cost = match self.cost.load(Ordering::Relaxed) {
            u64::MAX => spent,
            cost => cost - cost / 8 + spent / 8,
        };
        self.cost.store(cost, Ordering::Relaxed);
    }

    fn is_worth_waking(&self) -> bool {
        u128::from(self.cost.load(Ordering::Relaxed)) > WORTH_WAKING.as_nanos()
    }

    /// Takes a worker back. Returns true if it has work to do although no item has arrived.
    fn give_back(&self, worker: W) -> bool {
        let mut state = self.state.lock();
        if state.tasks == 0 {
            return false;
        }
        // Asked under the lock: a task that was nudged before did not find the worker, one that is nudged
        // later does.
        let is_restless = worker.is_restless();
        state.resting.push(worker);
        is_restless
    }

    /// Returns work that callers began and the stage's tasks must finish, or the failure of such work.
    fn unfinished(&self) -> Option<Result<Next<W>, W::Error>> {
        let mut state = self.state.lock();
        match state.failure.take() {
            Some(Failure::Error(error)) => return Some(Err(error)),
            Some(Failure::Panic(panic)) => {
                drop(state);
                resume_unwind(panic);
            }
            None => {}
        }
        state.running.pop().map(|running| Ok(Next::Running(running)))
    }

    fn restless(&self) -> Option<W> {
        let mut state = self.state.lock();
        let at = state.resting.iter().position(W::is_restless)?;
        Some(state.resting.swap_remove(at))
    }
}

/// The entrance for items that bypass the channel.
struct Entrance<W: Worker> {
    news: NewsGiver<W::Item>,
    seats: Arc<Seats<W>>,
}

impl<W: Worker> Claim<W::Item> for Entrance<W> {
    fn claim(&self) -> Option<ClaimedWork<W::Item>> {
        if self.seats.is_worth_waking() {
            return None;
        }
        let worker = {
            let mut state = self.seats.state.lock();
            let at = state.resting.iter().rposition(W::has_room)?;
            state.resting.swap_remove(at)
        };
        let (seats, news) = (self.seats.clone(), self.news.clone());
        Some(Box::new(move |taken| work_at_once(seats, &news, worker, taken)))
    }
}

async fn work<W: Worker>(
    (seats, mut worker, taken): (Arc<Seats<W>>, W, Taken<W::Item>),
) -> (W, Result<(), W::Error>) {
    let start = Instant::now();
    let Taken { ticket, item, pass } = taken;
    let pass = pass.filter(|_| W::MOVES_ITEMS);
    let result = worker.take(ticket, item).await;
    drop(pass);
    seats.note_cost(start.elapsed());
    (worker, result)
}

/// Does a stage's work up to the first wait, and leaves the rest to the stage.
fn work_at_once<W: Worker>(
    seats: Arc<Seats<W>>,
    news: &NewsGiver<W::Item>,
    worker: W,
    taken: Taken<W::Item>,
) {
    seats.hand_overs.at_once.fetch_add(1, Ordering::Relaxed);
    let proc = ConcurrentProc::on_tokio(work);
    let argument = (seats.clone(), worker, taken);
    // A panic belongs to the stage whose code panicked, not to the caller that happened to hand the item
    // over.
    let failure = match catch_unwind(AssertUnwindSafe(|| proc.call_nonblock(argument))) {
        Ok(Called::Concluded((worker, Ok(())))) => {
            let is_restless = seats.give_back(worker);
            return if is_restless { news.wake() } else { news.wake_if_any() };
        }
        Ok(Called::Waiting(running)) => {
            seats.state.lock().running.push(running);
            return news.wake();
        }
        Ok(Called::Concluded((_, Err(error)))) => Failure::Error(error),
        Err(panic) => Failure::Panic(panic),
    };
    seats.state.lock().failure = Some(failure);
    news.wake();
}

#[cfg(test)]
mod tests;

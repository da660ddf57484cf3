//! Stages: workers that take what is handed to them, in their own stack or in that of whoever hands it over.
//!
//! Handing over is a [`call_nonblock`](crate::evaluation::ConcurrentProc::call_nonblock): if a worker is free, nothing
//! waits before the item, and the work is not worth waking another core for, the caller does the stage's work in its
//! own stack until that has to wait for something. Only otherwise the item goes through the channel, to the stage's
//! own tasks. What had to wait goes on as a task of tokio, whose result they collect.
//!
//! When is work worth another core? The stage knows what an item cost it lately. Below [`WORTH_WAKING`] the hand-over
//! would take longer than the work. Above, the caller has better things to do: a source reads on, a segment
//! takes its next batch. Handing over at once whenever a worker is free was rejected: of one source and a costly
//! segment it makes one thread.
//!
//! Each worker is in one place at a time: at rest in the stage, or with whoever works with it. That is all the
//! locking there is; a worker's own state needs none.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::channel::{Claim, ClaimedWork, NewsGiver, Receiver, Taken, Ticket};
use crate::evaluation::{Called, ConcurrentProc, Evaluation};

/// What it takes, roughly, until another core has begun with what it was handed, and has its bytes in its own cache. (With
/// 50 µs, writing text around 256-byte payloads took twice the CPU time and no less of the clock.)
const WORTH_WAKING: Duration = Duration::from_micros(100);

/// One copy of what a stage does.
pub trait Worker: Send + 'static {
    /// What it takes.
    type Item: Send + 'static;
    /// Why the stage may end before its input does.
    type Error: Send + 'static;

    /// Whether there is room for what it will give on.
    fn has_room(&self) -> bool {
        true
    }

    /// Waits until there is room for what it will give on.
    fn room(&mut self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Does its work on an item. `ticket` is the item's number in the order of the stage's input.
    fn take(
        &mut self,
        ticket: Ticket,
        item: Self::Item,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Whether it has something to do though nothing came.
    fn is_restless(&self) -> bool {
        false
    }

    /// Does that.
    fn rest(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        async { Ok(()) }
    }

    /// There will be no more items.
    fn finish(self) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// How the items of a stage came to it.
#[derive(Debug, Default)]
pub struct HandOvers {
    at_once: AtomicU64,
    queued: AtomicU64,
}

impl HandOvers {
    /// How many were worked on in the stack of whoever handed them over.
    pub fn at_once(&self) -> u64 {
        self.at_once.load(Ordering::Relaxed)
    }

    /// How many waited in the channel.
    pub fn queued(&self) -> u64 {
        self.queued.load(Ordering::Relaxed)
    }
}

/// Workers and their input. Each clone is [`run`](Self::run) as a task of its own; as many as there are workers.
pub struct Stage<W: Worker> {
    input: Receiver<W::Item>,
    seats: Arc<Seats<W>>,
    /// How often restless workers are looked after while nothing comes.
    tick: Duration,
    /// Says that they should be looked after now.
    nudge: Arc<Notify>,
}

/// An evaluation that had to wait: gives the worker back, and what came of it.
type Running<W> = Evaluation<(W, Result<(), <W as Worker>::Error>)>;

struct Seats<W: Worker> {
    state: Mutex<State<W>>,
    hand_overs: Arc<HandOvers>,
    /// What an item cost lately, in nanoseconds.
    cost: AtomicU64,
}

struct State<W: Worker> {
    resting: Vec<W>,
    /// Begun by those who handed over, to be finished by the stage.
    running: Vec<Running<W>>,
    failure: Option<Failure<W::Error>>,
    /// How many tasks the stage has. With the last one the workers go, and with them their hold on the stages behind.
    tasks: usize,
}

enum Failure<E> {
    Error(E),
    Panic(Box<dyn std::any::Any + Send>),
}

/// What a task of the stage does next.
enum Next<W: Worker> {
    Item(W, Ticket, W::Item),
    Running(Running<W>),
    Restless(W),
    End,
}

impl<W: Worker> Stage<W> {
    /// A stage of these workers. What is handed over to the other end of `input` may from now on be taken at once.
    pub fn new(workers: Vec<W>, input: Receiver<W::Item>, hand_overs: Arc<HandOvers>) -> Self {
        let state = State { resting: workers, running: Vec::new(), failure: None, tasks: 1 };
        let seats = Arc::new(Seats { state: Mutex::new(state), hand_overs, cost: AtomicU64::new(u64::MAX) });
        input.attach(Arc::new(Entrance { news: input.news_giver(), seats: seats.clone() }));
        Self { input, seats, tick: Duration::MAX, nudge: Arc::default() }
    }

    /// Looks after restless workers this often while nothing comes, and whenever `nudge` is notified.
    pub fn with_rests(mut self, tick: Duration, nudge: Arc<Notify>) -> Self {
        (self.tick, self.nudge) = (tick, nudge);
        self
    }

    /// Takes what comes until the input ends, then finishes a worker.
    ///
    /// # Errors
    /// Those of the workers, also where the work was done by whoever handed over.
    pub async fn run(self) -> Result<(), W::Error> {
        loop {
            let (worker, result) = match self.next().await? {
                Next::Item(worker, ticket, item) => {
                    self.seats.hand_overs.queued.fetch_add(1, Ordering::Relaxed);
                    work((self.seats.clone(), worker, ticket, item)).await
                }
                Next::Running(running) => match running.await {
                    Ok(done) => done,
                    // The panic was told where it happened; here it ends the task, as one of the task's own would.
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
            // Whoever was woken from here may stand in this worker's own slot, from which no other can take it: without a
            // pause it would wait while this task has enough to do, and all that comes after its item with it.
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
            // Read before the queue: a sender pushes before it goes, so what it pushed is seen below.
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
                Taken::Item(worker, ticket, item) => return Ok(Next::Item(worker, ticket, item)),
                // Whoever has the workers looks for more when giving one back.
                Taken::Unclaimed => {}
                Taken::Nothing => {
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
    /// An average in which an item counts an eighth. One that had to wait long must not outweigh hundreds.
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

    fn give_back(&self, worker: W) {
        let mut state = self.state.lock();
        if state.tasks > 0 {
            state.resting.push(worker);
        }
    }

    /// What others began and the stage's tasks must see to.
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

/// Where items come in without passing through the channel.
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
        Some(Box::new(move |ticket, item| work_at_once(seats, &news, worker, ticket, item)))
    }
}

async fn work<W: Worker>(
    (seats, mut worker, ticket, item): (Arc<Seats<W>>, W, Ticket, W::Item),
) -> (W, Result<(), W::Error>) {
    let start = Instant::now();
    let result = worker.take(ticket, item).await;
    seats.note_cost(start.elapsed());
    (worker, result)
}

/// Does a stage's work as far as it goes without waiting; leaves the rest to the stage.
fn work_at_once<W: Worker>(
    seats: Arc<Seats<W>>,
    news: &NewsGiver<W::Item>,
    worker: W,
    ticket: Ticket,
    item: W::Item,
) {
    seats.hand_overs.at_once.fetch_add(1, Ordering::Relaxed);
    let proc = ConcurrentProc::on_tokio(work);
    let argument = (seats.clone(), worker, ticket, item);
    // A panic belongs to the stage whose code it is, not to the one that happened to hand over.
    let failure = match catch_unwind(AssertUnwindSafe(|| proc.call_nonblock(argument))) {
        Ok(Called::Concluded((worker, Ok(())))) => {
            let is_restless = worker.is_restless();
            seats.give_back(worker);
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

//! Carrying out a plan.
//!
//! Each source, each copy of a segment, each sink is a task. The way of a batch: the source reserves memory,
//! reads, and pushes the batch into a channel; a copy of a segment takes it, with a ticket, and calls its
//! transforms one after the other; the results are put in the order of the tickets and pushed on; a sink
//! writes them and settles them; the settlement moves the source's position, and the positions are saved
//! twice a second. A stage asks for room downstream before it takes a batch, never while it holds one.
//!
//! The run ends when the sources have ended and everything drained, or was told to stop and drained. If a
//! component fails for good, the sources are stopped, what can still be delivered is, and the run has failed.

mod auxiliaries;
mod channels;
mod failover;
mod failure;
mod files;
mod letters;
mod parts;
mod retries;
pub(crate) mod saves;
mod segment;
mod sink;
mod source;
mod state_dir;
mod unpack;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;
use thalweg_record::Budget;
use thalweg_runtime::{ConcurrencyLimit, Stage, Stop};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::metrics::{ComponentCounts, ComponentMetrics};
use crate::outlet::SourceOutput;
use crate::plan::{Destination, Plan};
use crate::positions::Positions;
use crate::{Context, Error, Flow, InFlight, Journal, Role, Step, Temporaries};

pub use failure::RunFailure;
pub use files::{FileEvent, FileWatcher};

use auxiliaries::Auxiliaries;
use channels::Channels;
use parts::{FileCheckpoints, SegmentBuilder};
use retries::Retries;
use saves::Saver;
use state_dir::{LazyStore, SinkState, save};

/// How often positions are saved.
const SAVE_EVERY: Duration = Duration::from_millis(500);
/// How soon, if somebody waits for it: all who ask meanwhile share the save.
const SAVE_SOON: Duration = Duration::from_millis(5);

/// Where a run keeps what outlives it.
#[derive(Debug, Clone)]
pub struct StateDir {
    /// The folder of the store. It is only made when there is something to keep.
    pub folder: PathBuf,
    /// Whether positions are kept, so that the run continues where the last one ended.
    pub positions: bool,
}

/// A run that has been prepared and can be started.
pub struct Run {
    plan: Plan,
    state_dir: StateDir,
    /// Whether sinks add to what former runs wrote.
    continues: bool,
    watcher: Option<Arc<dyn FileWatcher>>,
    temporary: Option<Temporaries>,
    store: Arc<LazyStore>,
    handle: Handle,
}

/// A view of a run, and the way to end it. Clones are of the same run.
#[derive(Clone)]
pub struct Handle {
    budget: Budget,
    stop: Stop,
    abort: Stop,
    metrics: Arc<Vec<Arc<ComponentMetrics>>>,
    letters: Arc<ComponentMetrics>,
    retries: Arc<Mutex<Vec<String>>>,
    /// How often it was asked to begin anew what it writes.
    reopens: Arc<AtomicU64>,
    item: &'static str,
}

impl Handle {
    /// Asks the sources to stop; the rest drains, then the run ends.
    pub fn stop(&self) {
        self.stop.request();
    }

    /// Ends the run at once. What is in flight is not acknowledged.
    pub fn abort(&self) {
        self.stop.request();
        self.abort.request();
    }

    /// Asks the sinks to begin anew what they write: see [`Sink::roll`](crate::Sink::roll).
    pub fn reopen(&self) {
        self.reopens.fetch_add(1, Ordering::Relaxed);
        // What the sinks wait for beside their input.
        self.budget.shortage().notify_waiters();
    }

    /// Waits until it is to end at once.
    pub async fn aborted(&self) {
        self.abort.requested().await;
    }

    /// Whether it was asked to stop.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_requested()
    }

    /// The budget.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// What one of what is counted is called: `file` where all sources give files, else `message`.
    pub fn item(&self) -> &'static str {
        self.item
    }

    /// The counters of all components now: sources, transforms, sinks.
    pub fn counts(&self) -> Vec<ComponentCounts> {
        self.metrics.iter().map(|metrics| metrics.counts()).collect()
    }

    /// How many messages were kept as dead letters.
    pub fn dead_letters(&self) -> u64 {
        self.letters.counts().rows_in
    }

    /// How many dead letters, the oldest, were dropped since there were too many of them.
    pub fn letters_dropped(&self) -> u64 {
        self.letters.counts().errors
    }

    /// What was tried again since the last call, for people.
    pub fn take_retries(&self) -> Vec<String> {
        std::mem::take(&mut self.retries.lock())
    }
}

/// How a run went.
#[derive(Debug)]
pub struct Summary {
    /// The counters of all components.
    pub components: Vec<ComponentCounts>,
    /// What one of what they count is called: `message` or `file`.
    pub item: &'static str,
    /// How long it took.
    pub elapsed: Duration,
    /// The budget, in bytes.
    pub budget_limit: usize,
    /// The most of it that was in use, in bytes.
    pub budget_peak: usize,
    /// Messages kept as dead letters.
    pub dead_letters: u64,
    /// Dead letters, the oldest, that were dropped since there were too many of them.
    pub letters_dropped: u64,
    /// Where the dead letters are.
    pub state_folder: PathBuf,
    /// Whether it was told to stop before its sources ended.
    pub stopped: bool,
    /// Where each source got to, by lane.
    pub positions: BTreeMap<String, BTreeMap<String, Value>>,
    /// Why the run failed, if it did.
    pub failure: Option<RunFailure>,
}

impl Run {
    /// Prepares a run of a plan. A state folder that continues is opened here, so that one in use is told early.
    ///
    /// # Errors
    /// If the store cannot be opened.
    pub fn new(plan: Plan, state_dir: StateDir) -> Result<Self, Error> {
        let store = Arc::new(LazyStore::new(state_dir.folder.clone()));
        if state_dir.positions {
            store.get()?;
        }
        let sources = plan.sources.iter().map(|source| (&source.node.name, Role::Source, source.node.kind));
        let operators = plan.segments.iter().flat_map(|segment| &segment.operators);
        let operators = operators.filter(|operator| !matches!(operator.node.config, Step::Marker));
        let operators = operators.map(|operator| {
            let role = if operator.delivers { Role::Sink } else { Role::Transform };
            (&operator.node.name, role, operator.node.kind)
        });
        let failovers = plan.failovers.iter().map(|failover| (&failover.name, Role::Transform, "failover"));
        let sinks = plan.sinks.iter().map(|sink| (&sink.node.name, Role::Sink, sink.node.kind));
        let mut metrics: Vec<Arc<ComponentMetrics>> = Vec::new();
        for (name, role, kind) in sources.chain(operators).chain(failovers).chain(sinks) {
            // A sink of files, or the encoder of a sink, is part of each segment that leads to it.
            if !metrics.iter().any(|known| known.name == *name) {
                metrics.push(ComponentMetrics::new(name.clone(), role, kind));
            }
        }
        metrics.sort_by_key(|metrics| metrics.role);
        let handle = Handle {
            budget: Budget::new(plan.memory.as_usize()),
            stop: Stop::default(),
            abort: Stop::default(),
            metrics: Arc::new(metrics),
            letters: ComponentMetrics::new("dead letters".into(), Role::Sink, "dead_letters"),
            retries: Arc::default(),
            reopens: Arc::default(),
            item: match plan.sources.iter().all(|source| source.node.config.gives() == Flow::Files) {
                true => "file",
                false => "message",
            },
        };
        Ok(Self {
            plan,
            continues: state_dir.positions,
            state_dir,
            watcher: None,
            temporary: None,
            store,
            handle,
        })
    }

    /// Has somebody watch what happens to each file.
    pub fn watched(mut self, watcher: Arc<dyn FileWatcher>) -> Self {
        self.watcher = Some(watcher);
        self
    }

    /// Has it count on this budget instead of one of its own: for runs that go on beside each other.
    pub fn within(mut self, budget: Budget) -> Self {
        self.handle.budget = budget;
        self
    }

    /// Has it make its temporary files there, in a folder that is not its own and stays when it ends: for runs that go on
    /// beside each other.
    pub fn making(mut self, temporary: Temporaries) -> Self {
        self.temporary = Some(temporary);
        self
    }

    /// Lets the sinks add to what former runs wrote, even where no positions are kept: for messages that belong to
    /// a former run.
    pub fn continuing(mut self) -> Self {
        self.continues = true;
        self
    }

    /// For watching and ending it.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Runs to the end. Must be called within a tokio runtime of several threads.
    pub async fn wait(self) -> Summary {
        let start = Instant::now();
        let folder = self.state_dir.folder.clone();
        let handle = self.handle.clone();
        let mut positions = Vec::new();
        let failure = match self.carry_out(&mut positions).await {
            Ok(failure) => failure,
            Err(error) => Some(error.into()),
        };
        let reached = positions.iter().map(|(source, positions)| {
            let partitions = positions.partitions().into_iter();
            let partitions = partitions
                .filter_map(|partition| Some((partition.to_string(), positions.saved(&partition)?)));
            (source.to_string(), partitions.collect())
        });
        Summary {
            components: handle.counts(),
            item: handle.item(),
            elapsed: start.elapsed(),
            budget_limit: handle.budget.limit(),
            budget_peak: handle.budget.peak(),
            dead_letters: handle.dead_letters(),
            letters_dropped: handle.letters_dropped(),
            state_folder: folder,
            stopped: handle.is_stopping() && failure.is_none(),
            positions: reached.collect(),
            failure,
        }
    }

    async fn carry_out(
        self,
        reached: &mut Vec<(Arc<str>, Arc<Positions>)>,
    ) -> Result<Option<RunFailure>, Error> {
        let Run { plan, state_dir, continues, watcher, temporary, store, handle } = self;
        let temporary = temporary.unwrap_or_else(|| {
            let own = Temporaries::new(plan.temporary.as_deref());
            own.sweep();
            own
        });
        let journals = if state_dir.positions { Some(store.get()?) } else { None };
        let metrics = |name: &Arc<str>| -> Arc<ComponentMetrics> {
            let found = handle.metrics.iter().find(|metrics| metrics.name == *name);
            found.cloned().unwrap_or_else(|| ComponentMetrics::new(name.clone(), Role::Transform, ""))
        };
        let context = |name: &str| Context {
            name: name.to_owned(),
            resumes: continues,
            batch_bytes: plan.batch_bytes,
            memory: handle.budget.share(),
            temporary: temporary.clone(),
            details: metrics(&name.into()).details.clone(),
            journal: journals.as_ref().map(|store| Journal::new(store.clone(), name)),
        };
        let mut channels = Channels::new(plan.batch_bytes.saturating_mul(4));
        let (failures, mut failed) = mpsc::unbounded_channel();
        let mut tasks: JoinSet<Result<(), RunFailure>> = JoinSet::new();
        let retries = Retries { stop: handle.stop.clone(), log: handle.retries.clone() };

        let saver = Saver::new();
        // Everything is built before anything starts, so that what cannot be built leaves nothing half done.
        let mut sources = Vec::new();
        let mut all_positions = Vec::new();
        let auxiliaries = Auxiliaries::of(&plan, &handle.stop);
        for stage in &plan.sources {
            let name = &stage.node.name;
            let saved = match state_dir.positions {
                true => store.get()?.positions(name)?,
                false => BTreeMap::new(),
            };
            let positions = Positions::new(name.clone(), Role::Source, saved, failures.clone());
            if state_dir.positions {
                positions.keep();
            }
            all_positions.push((name.clone(), positions.clone()));
            let is_auxiliary = stage.node.config.is_auxiliary();
            let guard = auxiliaries.guard(is_auxiliary, &positions);
            let outlet = SourceOutput {
                share: handle.budget.share(),
                batch_bytes: plan.batch_bytes,
                positions,
                stop: auxiliaries.stop(is_auxiliary).clone(),
                metrics: metrics(name),
                saves: state_dir.positions.then(|| saver.saves()),
                main: stage.main.iter().map(|&to| channels.sender(to)).collect(),
                errors: stage.errors.iter().map(|&to| channels.sender(to)).collect(),
                singly: stage.main.iter().any(|&to| plan.takes_singly(to)),
            };
            let built = stage.node.config.build(&context(name))?;
            sources.push((built, outlet, guard, stage.node.config.blocks()));
        }
        reached.clone_from(&all_positions);
        let places = FileCheckpoints { store: journals.clone(), failures, known: Mutex::default() };
        let parts = SegmentBuilder {
            places: &places,
            plan: &plan,
            handle: &handle,
            retries: &retries,
            watcher: &watcher,
            context: &context,
            metrics: &metrics,
        };
        let mut segments = Vec::new();
        for (number, segment) in plan.segments.iter().enumerate() {
            let input = channels.receiver(Destination::Segment(number));
            segments.extend(parts.segment(segment, input, &mut channels)?);
        }
        let mut failovers = Vec::new();
        for (number, stage) in plan.failovers.iter().enumerate() {
            let metrics = metrics(&stage.name);
            let ways =
                stage.ways.iter().map(|(_, stages)| stages.iter().map(|&to| channels.sender(to)).collect());
            let Some(first) = failover::Way::first_of(ways, &metrics) else { continue };
            let worker = failover::Failover { first, timeout: stage.timeout, has_waited: false };
            let input = channels.receiver(Destination::Failover(number));
            failovers.push(Stage::new(vec![worker], input, metrics.hand_overs.clone()));
        }
        let mut sink_states: Vec<SinkState> = Vec::new();
        let barrier = sink::CheckpointBarrier::default();
        let mut sinks = Vec::new();
        for (number, stage) in plan.sinks.iter().enumerate() {
            let name = &stage.node.name;
            let state: Arc<Mutex<Option<Value>>> = Arc::default();
            sink_states.push((name.clone(), state.clone()));
            let limit = match stage.node.config.in_flight() {
                InFlight::One | InFlight::Fixed(_) => None,
                InFlight::Adaptive(most) => Some(adaptive(most, &handle.budget)),
            };
            let mut writers = Vec::new();
            for _ in 0..stage.node.config.in_flight().most() {
                writers.push(sink::Writer {
                    sink: stage.node.config.build(&context(name))?,
                    errors: stage.errors.iter().map(|&to| channels.sender(to)).collect(),
                    metrics: metrics(name),
                    budget: handle.budget.clone(),
                    retries: retries.clone(),
                    state: state_dir.positions.then(|| state.clone()),
                    barrier: barrier.clone(),
                    limit: limit.clone(),
                    is_dispensable: stage.is_dispensable,
                    pending: sink::Pending::default(),
                    condition: sink::Condition::default(),
                    reopens: sink::Rolls::new(&handle.reopens),
                });
            }
            let saved = if state_dir.positions { store.get()?.sink_state(name)? } else { None };
            let input = channels.receiver(Destination::Sink(number));
            sinks.push(sink::run(writers, input, saved, metrics(name), handle.budget.shortage()));
        }
        let letters = letters::Task {
            input: channels.receiver(Destination::DeadLetters),
            store: store.clone(),
            metrics: handle.letters.clone(),
            bounds: plan.dead_letters,
            before: plan
                .segments
                .iter()
                .flat_map(|segment| &segment.operators)
                .map(|operator| (operator.node.name.clone(), operator.node.before.clone()))
                .collect(),
        };
        drop(channels);
        // Before those of the sources: what has been read of a file is only forgotten when its source knows that it is done.
        let all_positions = [places.known.into_inner(), all_positions].concat();
        drop(places.failures);

        // As many sources as cores or more keep all cores busy by themselves: with a thread each, they would only be in each
        // other's way, and each would wait for a copy of the segment that another one holds while it does not run. Fewer,
        // as tasks, would not let go of their core while there is something to send, and with it of what they woke.
        let are_many = sources.iter().filter(|(.., blocks)| !blocks).count() >= plan.cores;
        for (source, outlet, guard, blocks) in sources {
            let source = source::run(source, outlet, retries.clone(), guard);
            if are_many && !blocks {
                tasks.spawn(source);
            } else {
                on_a_thread(&mut tasks, &handle.abort, source);
            }
        }
        auxiliaries.dismiss_in_time(&mut tasks);
        for (blocks, segment) in segments {
            if blocks {
                on_a_thread(&mut tasks, &handle.abort, segment);
            } else {
                tasks.spawn(segment);
            }
        }
        for failover in failovers {
            tasks.spawn(failover.run());
        }
        for sink in sinks {
            on_a_thread(&mut tasks, &handle.abort, sink);
        }
        on_a_thread(&mut tasks, &handle.abort, letters.run());

        let mut broken = None;
        let mut unsettled = None;
        let save = |store: &LazyStore| saver.save(|| save(store, &all_positions, &sink_states, &barrier));
        let mut asked_for: Option<tokio::time::Instant> = None;
        let mut timer = tokio::time::interval(SAVE_EVERY);
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                ended = tasks.join_next() => match ended {
                    None => break,
                    Some(Ok(Ok(()))) => {}
                    Some(Ok(Err(failure))) => {
                        handle.stop.request();
                        broken.get_or_insert(failure);
                    }
                    Some(Err(error)) if error.is_panic() => {
                        handle.stop.request();
                        broken.get_or_insert_with(|| Error::permanent("a component panicked; this is a bug of thalweg").into());
                    }
                    Some(Err(_)) => {}
                },
                Some(reason) = failed.recv() => {
                    handle.stop.request();
                    unsettled.get_or_insert(reason);
                }
                () = handle.abort.requested() => {
                    tasks.shutdown().await;
                    broken.get_or_insert_with(|| Error::permanent("stopped at once; what was in flight is not acknowledged").into());
                    break;
                }
                () = saver.asked(), if state_dir.positions => {
                    asked_for.get_or_insert_with(|| tokio::time::Instant::now() + SAVE_SOON);
                }
                () = due(asked_for, &mut timer), if state_dir.positions => {
                    asked_for = None;
                    if let Err(error) = thalweg_runtime::blocking(|| save(&store)) {
                        handle.stop.request();
                        broken.get_or_insert_with(|| error.into());
                    }
                }
            }
        }
        while let Ok(reason) = failed.try_recv() {
            unsettled.get_or_insert(reason);
        }
        if state_dir.positions {
            thalweg_runtime::blocking(|| save(&store))?;
        }
        Ok(broken.or(unsettled))
    }
}

/// Waits until the next save is due: by the clock, or since somebody asked for it.
async fn due(asked_for: Option<tokio::time::Instant>, timer: &mut tokio::time::Interval) {
    match asked_for {
        Some(at) => tokio::time::sleep_until(at).await,
        None => {
            timer.tick().await;
        }
    }
}

/// The limit of up to so many copies at work, and of no more than the budget has room for. Where the number is fixed
/// there is no limit: it is how many copies there are.
fn adaptive(most: usize, budget: &Budget) -> ConcurrencyLimit {
    let limit = ConcurrencyLimit::adaptive(1..=most);
    limit.set_budget(budget.limit() as u64);
    limit
}

/// Gives a task a thread of its own: sources and sinks read and write files, which blocks, and what they wake must
/// not have to wait for that. Handing a worker's tasks to another thread around each read (`block_in_place`)
/// was tried: the threads multiply, and each has memory of its own that the budget cannot see.
fn on_a_thread(
    tasks: &mut JoinSet<Result<(), RunFailure>>,
    abort: &Stop,
    task: impl Future<Output = Result<(), RunFailure>> + Send + 'static,
) {
    let (runtime, abort) = (tokio::runtime::Handle::current(), abort.clone());
    tasks.spawn_blocking(move || {
        runtime.block_on(async {
            tokio::select! {
                ended = task => ended,
                () = abort.requested() => Ok(()),
            }
        })
    });
}

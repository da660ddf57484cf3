//! Carrying out a plan.
//!
//! Each source, worker of a segment, failover and sink is a task, and so is the store of dead letters. A
//! batch travels so: the source reserves memory, reads, and hands the batch over; a worker of a segment takes
//! it, with a ticket, and calls its transforms one after the other; the results are put in the order of the
//! tickets and handed on; a sink writes and settles them; the settlement moves the source's position;
//! positions are saved as checkpoints twice a second. A stage waits for room downstream before it takes a
//! batch, never while it holds one.
//!
//! The run ends when its sources have ended, or were asked to stop, and everything has drained. If a
//! component fails, the sources are stopped, batches in flight are delivered as far as possible, and the run
//! fails.
//!
//! [`wiring`] makes tasks of a plan, [`threads`] decides which runs where, [`supervisor`] watches over them
//! to the end.
//!
//! See docs/decisions/003-capacity-before-work.md, docs/decisions/009-threads-for-tasks-that-block.md and
//! docs/decisions/017-without-state-a-run-starts-over.md.

mod auxiliaries;
mod channels;
mod checkpoints;
mod control;
pub(crate) mod edges;
mod environment;
mod failover;
mod failure;
mod file_reader;
mod files;
mod flushes;
mod groups;
mod handle;
pub(crate) mod latency;
mod leaving;
mod letters;
mod parts;
mod queues;
mod rehearsal;
mod retries;
pub(crate) mod saves;
mod segment;
mod sink;
mod source;
mod summary;
mod supervisor;
pub(crate) mod tap;
mod threads;
mod wiring;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use thalweg_config::ByteSize;
use thalweg_record::Budget;
use tokio::sync::mpsc;

use crate::buffer::{self, Total};
use crate::plan::Plan;
use crate::replay::Replayed;
use crate::store::Store;
use crate::{Error, Owner, Role, Temporaries};

pub use control::{SourceState, SourceStatus, UnknownSource};
pub use edges::EdgeCounts;
pub use failure::RunFailure;
pub use files::{FileEvent, FileWatcher};
pub use handle::Handle;
pub use latency::LatencyCounts;
pub use parts::{Changes, Difference, Parts, PartsOptions, Refused, Written};
pub use queues::QueueCounts;
pub use rehearsal::Rehearsal;
pub use summary::{Summary, Undrained};
pub use tap::{Tap, TapError, TapRequest, Tapped};

use checkpoints::{ComponentPositions, LazyStore};
use environment::{Environment, RunSettings};
use handle::EndOfTaps;
use retries::Retries;
use summary::Ended;
use supervisor::Supervisor;
use threads::Tasks;
use wiring::{Wired, Wiring};

/// How long a run may drain, if it says nothing else.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a buffer on disk is still emptied after the request to stop, if the time to drain allows it.
const LINGER: Duration = Duration::from_secs(2);

/// The state directory of a run.
#[derive(Debug, Clone)]
pub struct StateDir {
    /// The folder of the store. It is only made when there is something to keep.
    pub folder: PathBuf,
    /// True if checkpoints are kept, so that the next run resumes where this one ended.
    pub positions: bool,
    /// The configuration of the run. Another one is refused. Without an owner, anything goes.
    pub owner: Option<Owner>,
}

/// A run that has been prepared and can be started.
pub struct Run {
    plan: Plan,
    state_dir: StateDir,
    /// True if sinks append to what former runs wrote.
    continues: bool,
    watcher: Option<Arc<dyn FileWatcher>>,
    temporary: Option<Temporaries>,
    drain_timeout: Duration,
    limit: Option<u64>,
    rehearsal: Option<Arc<dyn Rehearsal>>,
    store: Arc<LazyStore>,
    handle: Handle,
    /// The things that it shares with the runs of other parts, if there are any.
    common: Option<Common>,
    /// Ends the taps with the run, also if it never begins. A part leaves them to the whole.
    _taps: Option<EndOfTaps>,
}

/// The things that the runs of parts share, beside their [`Handle`].
#[derive(Clone)]
struct Common {
    store: Arc<LazyStore>,
    temporary: Temporaries,
    /// The space of all disk buffers.
    total: Arc<Total>,
    has_many_sources: bool,
}

impl Run {
    /// Prepares a run of a plan. If checkpoints are kept, the state directory is opened here, so that one in
    /// use is refused early. So is one for dead letters that belongs to another configuration.
    ///
    /// # Errors
    /// If the store cannot be opened or belongs to another configuration, or the plan has disk buffers and no
    /// checkpoints are kept.
    pub fn new(plan: Plan, state_dir: StateDir) -> Result<Self, Error> {
        check_buffers(&plan, &state_dir)?;
        let store = open_store(&state_dir)?;
        let handle = Handle::new(&plan);
        let taps = Some(handle.end_of_taps());
        Ok(Self { _taps: taps, ..Self::of(plan, state_dir, store, handle) })
    }

    /// Prepares the run of a part beside others.
    fn beside(plan: Plan, state_dir: StateDir, common: &Common, handle: Handle) -> Self {
        let temporary = Some(common.temporary.clone());
        let run = Self::of(plan, state_dir, common.store.clone(), handle);
        Self { common: Some(common.clone()), temporary, ..run }
    }

    fn of(plan: Plan, state_dir: StateDir, store: Arc<LazyStore>, handle: Handle) -> Self {
        Self {
            handle,
            continues: state_dir.positions,
            common: None,
            _taps: None,
            plan,
            state_dir,
            watcher: None,
            temporary: None,
            drain_timeout: DRAIN_TIMEOUT,
            limit: None,
            rehearsal: None,
            store,
        }
    }

    /// Tells `watcher` what happens to each file.
    pub fn watched(mut self, watcher: Arc<dyn FileWatcher>) -> Self {
        self.watcher = Some(watcher);
        self
    }

    /// Counts on this budget instead of one of the run's own: for runs beside each other.
    pub fn within(mut self, budget: Budget) -> Self {
        self.handle.budget = budget;
        self
    }

    /// Makes temporary files in a folder that is not the run's own and stays when the run ends: for runs
    /// beside each other.
    pub fn making(mut self, temporary: Temporaries) -> Self {
        self.temporary = Some(temporary);
        self
    }

    /// Lets the sinks append to what former runs wrote, even if no checkpoints are kept: for messages of a
    /// former run.
    pub fn continuing(mut self) -> Self {
        self.continues = true;
        self
    }

    /// Processes dead letters again: sinks append, and the letters are removed as they are settled.
    pub fn replaying(mut self, replayed: Arc<Replayed>) -> Self {
        self.store = Arc::new(self.store.replaying(replayed));
        self.continuing()
    }

    /// Limits how long the run may drain, counted from the request to stop ([`Handle::stop`], or a failure).
    /// After that the run ends, and fails: what is left is not acknowledged and is named in
    /// [`Summary::undrained`]. 60 seconds if nothing is said; [`Duration::MAX`] is no limit.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.drain_timeout = timeout;
        self
    }

    /// Ends each source after this number of messages or files. Input that was not sent is not acknowledged,
    /// and a later run with the same state continues there. Auxiliary sources have no limit of their own.
    pub fn limited(mut self, items: u64) -> Self {
        self.limit = Some(items);
        self
    }

    /// Makes this a dry run: no position moves, so that sources remove and acknowledge nothing, and what
    /// would become a dead letter is shown. The caller replaces the components that write.
    pub fn rehearsed(mut self, rehearsal: Arc<dyn Rehearsal>) -> Self {
        self.rehearsal = Some(rehearsal);
        self
    }

    /// For watching and ending the run.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Runs to the end. Must be called within a tokio runtime of several threads.
    pub async fn wait(self) -> Summary {
        let start = Instant::now();
        let (handle, folder) = (self.handle.clone(), self.state_dir.folder.clone());
        let mut positions = ComponentPositions::new();
        let ended = self.carry_out(&mut positions).await;
        let ended = ended.unwrap_or_else(|failure| Ended { failure: Some(failure), undrained: None });
        Summary::new(&handle, ended, &positions, start.elapsed(), folder)
    }

    /// Fills `positions` with those of the sources.
    async fn carry_out(self, positions: &mut ComponentPositions) -> Result<Ended, RunFailure> {
        let (failures, failed) = mpsc::unbounded_channel();
        let settings = RunSettings {
            batch_bytes: self.plan.batch_bytes,
            temporary: self.temporary.unwrap_or_else(|| {
                let own = Temporaries::new(self.plan.temporary.as_deref());
                own.sweep();
                own
            }),
            keeps_checkpoints: self.state_dir.positions,
            resumes: self.continues,
            watcher: self.watcher,
            drain_timeout: self.drain_timeout,
            limit: self.limit,
            has_many_sources: self.common.as_ref().is_some_and(|common| common.has_many_sources),
            rehearsal: self.rehearsal,
        };
        let environment = Environment::new(self.handle.clone(), self.store, settings, failures)?;
        if let Some(store) = &environment.checkpoints {
            let (plan, folder) = (&self.plan, &self.state_dir.folder);
            match &self.common {
                Some(common) => open_buffers(plan, folder, &common.total, self.drain_timeout)?,
                None => {
                    // A replay has only the components that letters pass. The service continues the output.
                    if !environment.store.replays() {
                        check_unfinished(plan, store)?;
                    }
                    open_buffers(plan, folder, &total_of(plan), self.drain_timeout)?;
                    buffer::warn_of_others(folder, &plan.buffers)?;
                }
            }
        }
        for source in &self.plan.sources {
            let name = &source.node.name;
            positions.push((name.clone(), environment.positions(name, Role::Source)?));
        }
        let Wired { tasks, checkpoints } = Wiring::build(&self.plan, &environment, positions)?;
        if let Some(store) = &environment.checkpoints {
            match &self.common {
                Some(_) => checkpoints::begin_beside(store, &checkpoints)?,
                None => checkpoints::begin(store, &checkpoints)?,
            }
        }
        drop((environment, self.plan));
        let started = self.handle.started.clone();
        let supervisor = Supervisor::new(self.handle, checkpoints, failed, self.drain_timeout);
        let tasks = Tasks::start(tasks).await?;
        started.store(true, Ordering::Relaxed);
        Ok(supervisor.run(tasks).await)
    }
}

/// Opens the disk buffers of a plan. The state directory is open, so no other process uses them.
fn open_buffers(plan: &Plan, state: &Path, total: &Arc<Total>, drain_timeout: Duration) -> Result<(), Error> {
    let linger = LINGER.min(drain_timeout / 4);
    plan.buffers.iter().try_for_each(|buffer| buffer.open(state, total, linger))
}

/// The space of the disk buffers of a plan.
fn total_of(plan: &Plan) -> Arc<Total> {
    Total::new(plan.buffer_limits.max_bytes.map(ByteSize::bytes))
}

/// Refuses disk buffers without a state directory.
fn check_buffers(plan: &Plan, state_dir: &StateDir) -> Result<(), Error> {
    let Some(buffer) = plan.buffers.first().filter(|_| !state_dir.positions) else { return Ok(()) };
    Err(Error::permanent(format!(
        "the buffer of `{}` needs a state directory, in which its messages wait for the next run: add `state: \
         FOLDER` to the configuration, or run with `--state FOLDER`",
        buffer.name
    )))
}

/// The store of a state directory, open if checkpoints are kept.
fn open_store(state_dir: &StateDir) -> Result<Arc<LazyStore>, Error> {
    let store = Arc::new(LazyStore::new(state_dir.folder.clone(), state_dir.owner.clone()));
    match &state_dir.owner {
        _ if state_dir.positions => _ = store.get()?,
        // Otherwise the first dead letter would fail the run, perhaps after hours.
        Some(owner) => Store::check_letters(&state_dir.folder, owner)?,
        None => {}
    }
    Ok(store)
}

/// Refuses a state with unfinished output of a component that was renamed or removed.
fn check_unfinished(plan: &Plan, store: &Store) -> Result<(), Error> {
    if plan.sources.iter().all(|source| plan.is_of_buffer(&source.node.name)) {
        // The run only empties buffers. The next one continues the output.
        return Ok(());
    }
    let transforms = plan.segments.iter().flat_map(|segment| &segment.operators);
    let transforms = transforms.map(|operator| &*operator.node.name);
    let sinks = plan.sinks.iter().map(|sink| &*sink.node.name);
    let names: BTreeSet<&str> = transforms.chain(sinks).collect();
    match store.unfinished_of_another(|name| names.contains(name))? {
        None => Ok(()),
        Some(name) => Err(Error::permanent(format!(
            "the state has unfinished output of `{name}`, which the configuration does not have: its messages are not \
             read again. Give the component its name back until the output is complete, or use another state folder, \
             with which all input is read from its beginning"
        ))),
    }
}

#[cfg(test)]
mod tests;

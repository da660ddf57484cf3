//! A graph whose configuration may change while it runs.
//!
//! Each [connected part](division) of the graph is a [`Run`] of its own. The parts share the budget, the
//! store of the state, the temporary files and the handle. A changed configuration is divided in the same
//! way. A part that is equal runs on untouched. Another one is stopped as a run is: its sources stop, what is
//! in flight is delivered, the last checkpoint is saved. Then the parts of the new configuration begin in its
//! place, as a next run with the same state does. So a change promises what a stop and a start promise, and
//! there is no second way to end or begin a component.
//!
//! (Rejected: to exchange single components of a running part. Their channels, tickets and checkpoints belong
//! to both sides of the exchange.)
//!
//! If a new part cannot start, the parts before it begin again. See
//! docs/decisions/104-a-changed-configuration-replaces-connected-parts.md.

mod difference;
mod division;
mod listeners;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinSet};

use super::edges::Ports;
use super::handle::EndOfTaps;
use super::summary::Ended;
use super::threads::not_ended;
use super::{
    Common, Handle, Run, RunFailure, SourceState, StateDir, Summary, check_buffers, check_unfinished,
    checkpoints, open_store, total_of,
};
use crate::plan::Plan;
use crate::{Error, Temporaries, buffer};
use difference::{Begin, Change};
pub use difference::{Difference, Refused};
pub use division::Written;
use division::{Part, Version};

/// How often it is looked whether a part has started.
const LOOK: Duration = Duration::from_millis(10);

/// How long a part that has started must not fail, to take the place of another one.
const PROBATION: Duration = Duration::from_millis(200);

/// How to run parts.
#[derive(Debug, Clone, Copy)]
pub struct PartsOptions {
    /// The number of cores to use.
    pub cores: usize,
    /// How long a part that was asked to stop may deliver what is in flight.
    pub drain_timeout: Duration,
}

/// A run whose configuration may change: see [`Changes`].
pub struct Parts {
    options: PartsOptions,
    state_dir: StateDir,
    common: Common,
    handle: Handle,
    /// The plan of the whole, as it begins.
    plan: Plan,
    changes: Changes,
    requests: mpsc::Receiver<Request>,
    running: Vec<Running>,
    /// The sources that were paused before the last change.
    paused: BTreeSet<String>,
    tasks: JoinSet<(u64, Summary)>,
    /// The number of the next part that begins.
    next: u64,
    failure: Option<Ended>,
    /// Ends the taps with the run, also if it never begins.
    _taps: EndOfTaps,
}

/// A part that runs, or has ended by itself.
struct Running {
    number: u64,
    part: Arc<Part>,
    handle: Handle,
    ports: Ports,
    /// Its end, if it has ended.
    ended: Option<Reached>,
}

impl Running {
    fn is_one_of(&self, parts: &[Arc<Part>]) -> bool {
        parts.iter().any(|part| Arc::ptr_eq(part, &self.part))
    }

    /// True if it is a part since this one, and its components are not built yet.
    fn is_starting(&self, first: u64) -> bool {
        self.number >= first && self.ended.is_none() && !self.handle.is_started()
    }
}

/// How far a part got.
struct Reached {
    stopped: bool,
    positions: BTreeMap<String, BTreeMap<String, Value>>,
}

/// A request to follow another configuration.
struct Request {
    written: Written,
    reply: oneshot::Sender<Result<Difference, Refused>>,
}

enum Event {
    Ended(Result<(u64, Summary), JoinError>),
    Asked(Request),
}

/// Changes the configuration of a run of [`Parts`]. All clones are of the same run.
#[derive(Clone)]
pub struct Changes {
    current: Arc<Mutex<Arc<Version>>>,
    sender: mpsc::Sender<Request>,
    keeps_positions: bool,
}

impl Changes {
    /// Compares a configuration with the one that runs.
    ///
    /// # Errors
    /// If the run cannot follow it.
    pub fn show(&self, written: &Written) -> Result<Difference, Refused> {
        self.change(written).map(|change| change.difference)
    }

    /// Lets the run follow a configuration. Returns once it does, or runs as before.
    ///
    /// # Errors
    /// If the run cannot follow it.
    pub async fn apply(&self, written: Written) -> Result<Difference, Refused> {
        let (reply, answered) = oneshot::channel();
        if self.sender.send(Request { written, reply }).await.is_err() {
            return Err(Refused::Ending);
        }
        answered.await.unwrap_or(Err(Refused::Ending))
    }

    fn change(&self, written: &Written) -> Result<Change, Refused> {
        let current = self.current.lock().clone();
        Change::between(&current, Version::of(written), self.keeps_positions)
    }
}

impl Parts {
    /// Prepares a run.
    ///
    /// # Errors
    /// As [`Run::new`].
    pub fn new(written: &Written, state_dir: StateDir, options: PartsOptions) -> Result<Self, Error> {
        let plan = Plan::new(&written.graph, options.cores);
        check_buffers(&plan, &state_dir)?;
        let sources = plan.sources.iter().filter(|source| !source.node.config.blocks()).count();
        let common = Common {
            store: open_store(&state_dir)?,
            temporary: Temporaries::new(plan.temporary.as_deref()),
            total: total_of(&plan),
            has_many_sources: sources >= options.cores,
        };
        let (sender, requests) = mpsc::channel(1);
        let changes = Changes {
            current: Arc::new(Mutex::new(Arc::new(Version::of(written)))),
            sender,
            keeps_positions: state_dir.positions,
        };
        let handle = Handle::of_parts(&plan);
        Ok(Self {
            options,
            state_dir,
            common,
            _taps: handle.end_of_taps(),
            handle,
            plan,
            changes,
            requests,
            running: Vec::new(),
            paused: BTreeSet::new(),
            tasks: JoinSet::new(),
            next: 0,
            failure: None,
        })
    }

    /// For watching and ending the run.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// For changing its configuration.
    #[must_use]
    pub fn changes(&self) -> Changes {
        self.changes.clone()
    }

    /// Runs until all parts have ended. Must be called within a tokio runtime of several threads.
    pub async fn wait(mut self) -> Summary {
        let start = Instant::now();
        match self.begin() {
            Ok(()) => {
                let version = self.changes.current.lock().clone();
                version.parts.iter().for_each(|part| self.start(part, Begin::New));
            }
            Err(error) => self.fail(error.into()),
        }
        while let Some(event) = self.event().await {
            match event {
                Event::Ended(ended) => self.note(ended),
                Event::Asked(Request { written, reply }) => {
                    // The client may be gone.
                    let _ = reply.send(self.change(&written).await);
                }
            }
            self.stop_auxiliaries();
        }
        self.summary(start.elapsed())
    }

    async fn event(&mut self) -> Option<Event> {
        let Self { tasks, requests, .. } = self;
        tokio::select! {
            biased;
            ended = tasks.join_next() => ended.map(Event::Ended),
            Some(request) = requests.recv() => Some(Event::Asked(request)),
        }
    }

    /// Prepares the store and the temporary directory.
    fn begin(&self) -> Result<(), Error> {
        self.common.temporary.sweep();
        if self.state_dir.positions {
            let store = self.common.store.get()?;
            check_unfinished(&self.plan, &store)?;
            buffer::warn_of_others(&self.state_dir.folder, &self.plan.buffers)?;
            checkpoints::begin_parts(&store)?;
        }
        Ok(())
    }

    /// Starts a part. Its components are built by its task.
    fn start(&mut self, part: &Arc<Part>, begin: Begin) {
        let plan = Plan::new(&part.graph, self.options.cores);
        let (handle, ports) = (self.handle.part(&plan), Ports::of(&plan));
        let paused = handle.sources.iter().filter(|source| self.paused.contains(&*source.name));
        paused.for_each(|source| source.pause());
        self.handle.add(&handle, &ports);
        let run = Run::beside(plan, self.state_dir.clone(), &self.common, handle.clone());
        let run = run.drain_timeout(self.options.drain_timeout);
        let run = match begin {
            Begin::New => run,
            Begin::Continues => run.continuing(),
        };
        let number = self.next;
        self.next += 1;
        self.tasks.spawn(async move { (number, run.wait().await) });
        self.running.push(Running { number, part: part.clone(), handle, ports, ended: None });
    }

    /// Notes the end of a part. A failure ends the run.
    fn note(&mut self, ended: Result<(u64, Summary), JoinError>) {
        match ended {
            Ok((number, summary)) => {
                if let Some(ended) = self.end(number, summary) {
                    self.broke(ended);
                }
            }
            Err(error) => {
                if let Err(failure) = not_ended(error) {
                    self.fail(failure);
                }
            }
        }
    }

    fn fail(&mut self, failure: RunFailure) {
        self.broke(Ended { failure: Some(failure), undrained: None });
    }

    /// Ends the run, because a part failed.
    fn broke(&mut self, ended: Ended) {
        self.handle.stop.request();
        self.failure.get_or_insert(ended);
    }

    /// Notes the end of a part. Returns it if it failed.
    fn end(&mut self, number: u64, summary: Summary) -> Option<Ended> {
        let Summary { stopped, positions, failure, undrained, .. } = summary;
        if let Some(running) = self.running.iter_mut().find(|running| running.number == number) {
            running.ended = Some(Reached { stopped, positions });
        }
        failure.map(|failure| Ended { failure: Some(failure), undrained })
    }

    /// Stops the parts that only accompany others, once these have ended.
    fn stop_auxiliaries(&self) {
        let mut others = self.running.iter().filter(|running| running.part.has_input()).peekable();
        if others.peek().is_some() && others.all(|running| running.ended.is_some()) {
            let auxiliary = self.running.iter().filter(|running| running.part.is_auxiliary());
            auxiliary.for_each(|running| running.handle.stop.request());
        }
    }

    fn summary(self, elapsed: Duration) -> Summary {
        let Self { handle, running, failure, state_dir, .. } = self;
        let mut positions = BTreeMap::new();
        let mut stopped = false;
        for Running { part, ended, .. } in running {
            let Some(reached) = ended else { continue };
            stopped |= reached.stopped && (handle.is_stopping() || !part.is_auxiliary());
            positions.extend(reached.positions);
        }
        let ended = failure.unwrap_or(Ended { failure: None, undrained: None });
        Summary::of_parts(&handle, ended, positions, stopped, elapsed, state_dir.folder)
    }
}

/// Another configuration.
impl Parts {
    async fn change(&mut self, written: &Written) -> Result<Difference, Refused> {
        if self.handle.is_stopping() {
            return Err(Refused::Ending);
        }
        let change = self.changes.change(written)?;
        let plan = Plan::new(&written.graph, self.options.cores);
        check_buffers(&plan, &self.state_dir).map_err(|error| Refused::Unusable(error.full()))?;
        let last = self.changes.current.lock().clone();
        thalweg_runtime::blocking(|| listeners::check(&change, &last))?;
        for running in &self.running {
            running.handle.removed.write().clone_from(&change.removed);
        }
        let paused = self.handle.sources().into_iter().filter(|source| source.state == SourceState::Paused);
        self.paused = paused.map(|source| source.name).collect();
        let names = self.names_of(&change.leaving);
        self.drain(&change.leaving).await;
        if self.handle.is_stopping() {
            // The parts that were to leave have left, and the others follow.
            return Err(Refused::Ending);
        }
        let begun = match self.check(&plan) {
            Ok(()) => self.begin_all(&change.joining).await,
            Err(error) => Err(error.full()),
        };
        if let Err(reason) = begun {
            let lost = self.bring_back(&change).await;
            return Err(if self.handle.is_stopping() {
                Refused::Ending
            } else {
                Refused::NotStarted(reason + &lost)
            });
        }
        self.forget_holders(&names);
        self.handle.show_graph(&plan);
        *self.changes.current.lock() = Arc::new(change.next);
        Ok(change.difference)
    }

    /// Checks what only shows once the parts that leave have saved their last checkpoint.
    fn check(&self, plan: &Plan) -> Result<(), Error> {
        if !self.state_dir.positions {
            return Ok(());
        }
        check_unfinished(plan, &*self.common.store.get()?)?;
        buffer::warn_of_others(&self.state_dir.folder, &plan.buffers)
    }

    /// The names of all components of parts, also those of transforms.
    fn names_of(&self, parts: &[Arc<Part>]) -> BTreeSet<Arc<str>> {
        let running = self.running.iter().filter(|running| running.is_one_of(parts));
        running.flat_map(|running| running.handle.metrics.iter().map(|of| of.name.clone())).collect()
    }

    /// Shows those of these components no longer as holders of the budget that are gone.
    fn forget_holders(&self, names: &BTreeSet<Arc<str>>) {
        let counts = self.handle.counts();
        let is_there = |name: &str| counts.iter().any(|counts| *counts.name == *name);
        names.iter().filter(|name| !is_there(name)).for_each(|name| self.handle.budget.forget_holder(name));
    }

    /// Stops parts, and waits until they have delivered what is in flight. Messages that they could not
    /// deliver in time are not acknowledged: the parts in their place get them again, as a next run does.
    ///
    /// A thread that stays blocked ends the run. It may still write what the parts in its place write again,
    /// and has the files and the memory that these need.
    async fn drain(&mut self, leaving: &[Arc<Part>]) {
        for running in self.running.iter().filter(|running| running.is_one_of(leaving)) {
            running.handle.stop.request();
        }
        while self.running.iter().any(|running| running.is_one_of(leaving) && running.ended.is_none()) {
            let Some(ended) = self.tasks.join_next().await else { break };
            match ended {
                // The end of a run that stops fails as that of any run.
                Ok((number, summary)) if self.is_one_of(number, leaving) && !self.handle.is_stopping() => {
                    let Some(ended) = self.end(number, summary) else { continue };
                    if ended.undrained.as_ref().is_some_and(|undrained| undrained.blocked > 0) {
                        self.broke(ended);
                    } else if let Some(failure) = ended.failure {
                        tracing::warn!("a part of the old configuration did not end well: {failure}");
                    }
                }
                ended => self.note(ended),
            }
        }
        if self.handle.is_stopping() {
            // How they ended is a part of the summary.
            return;
        }
        let (left, stay): (Vec<Running>, Vec<Running>) =
            std::mem::take(&mut self.running).into_iter().partition(|running| running.is_one_of(leaving));
        self.running = stay;
        left.iter().for_each(|running| self.handle.remove(&running.handle, &running.ports));
    }

    fn is_one_of(&self, number: u64, parts: &[Arc<Part>]) -> bool {
        self.running.iter().any(|running| running.number == number && running.is_one_of(parts))
    }

    /// Starts parts, and waits until their components are built and have worked for a moment: a sink that
    /// cannot use its state, or its target, says so when it is opened. Returns why a part failed, if one did.
    async fn begin_all(&mut self, joining: &[(Arc<Part>, Begin)]) -> Result<(), String> {
        let first = self.next;
        joining.iter().for_each(|(part, begin)| self.start(part, *begin));
        let mut proven = None;
        loop {
            if !self.running.iter().any(|running| running.is_starting(first)) {
                let proven = *proven.get_or_insert_with(|| Instant::now() + PROBATION);
                if joining.is_empty() || Instant::now() >= proven {
                    return Ok(());
                }
            }
            let ended = tokio::select! {
                ended = self.tasks.join_next() => ended,
                () = tokio::time::sleep(LOOK) => continue,
            };
            match ended {
                Some(Ok((number, summary))) if number >= first && !self.handle.is_stopping() => {
                    if let Some(Ended { failure: Some(failure), .. }) = self.end(number, summary) {
                        return Err(failure.to_string());
                    }
                }
                Some(ended) => self.note(ended),
                None => return Ok(()),
            }
        }
    }

    /// Ends the parts of a new configuration, and begins those of the old one again. Returns what to add to
    /// the reason.
    ///
    /// Without a state directory, a source that was removed would read its input again. It stays removed.
    async fn bring_back(&mut self, change: &Change) -> String {
        let joined: Vec<Arc<Part>> = change.joining.iter().map(|(part, _)| part.clone()).collect();
        self.drain(&joined).await;
        if self.handle.is_stopping() {
            return String::new();
        }
        let keeps_positions = self.state_dir.positions;
        let (before, lost): (Vec<_>, Vec<_>) =
            change.leaving.iter().cloned().partition(|part| keeps_positions || part.may_restart());
        let before: Vec<_> = before.into_iter().map(|part| (part, Begin::Continues)).collect();
        let is_left = !before.is_empty() || self.running.iter().any(|running| running.ended.is_none());
        let begun = match !lost.is_empty() && !is_left {
            true => Err("nothing is left that can begin again without a state directory".to_owned()),
            false => self.begin_all(&before).await,
        };
        if let Err(reason) = begun {
            let text = format!("neither the new configuration nor the old one could start: {reason}");
            self.fail(Error::permanent(text).into());
        }
        let sources = lost.iter().flat_map(|part| &part.graph.sources);
        let Some(source) = sources.map(|source| &source.name).next() else { return String::new() };
        let mut current = self.changes.current.lock();
        *current = Arc::new(current.without(&lost));
        format!("; `{source}` stays removed, because it would read its input again without a state directory")
    }
}

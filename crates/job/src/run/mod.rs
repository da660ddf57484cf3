//! Runs a job: its phases one after the other, each to its end.

mod control;
mod reloads;
pub mod signals;

use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use thalweg_engine::replay::Replayed;
use thalweg_engine::{Error, FileWatcher, Graph, Handle, Parts, PartsOptions, Plan, Run, StateDir, Summary};
use thalweg_runtime::Alarm;
use tokio::time::MissedTickBehavior;

use crate::descriptors::check_descriptor_limit;
use crate::dry_run::DryRun;
use crate::error::{LoadError, RunError};
use crate::history::{self, History, Recording};
use crate::job::{Job, Phase};
use crate::outcome::{JobOutcome, Outcome, Retries};

pub use control::Control;
pub use reloads::{ReloadError, ReloadStatus, Reloads};
pub use signals::{Signal, Signals, pause};

/// How often an observer is called while a phase runs.
pub(crate) const TICK: Duration = Duration::from_millis(100);
/// How long an aborted run may take to return.
const ABORT_TIMEOUT: Duration = Duration::from_secs(2);

/// How to run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The number of cores to use.
    pub cores: usize,
    /// The dead letters that the run processes again, if it does. Sinks then append to the output of earlier
    /// runs, also without checkpoints.
    pub replayed: Option<Arc<Replayed>>,
    /// How many messages or files each source may send, if that is limited.
    pub limit: Option<u64>,
    /// Shows what the run would write, if it is to have no effects.
    pub dry_run: Option<Arc<DryRun>>,
    /// How long a stopped run may take to deliver what is in flight.
    pub drain_timeout: Duration,
    /// The signals that stop the run (SIGINT, SIGTERM) and reopen its outputs (SIGHUP), if it heeds any. With
    /// `reloads`, SIGHUP reloads the configuration too. A signal counts from the creation of this value on,
    /// also between two phases.
    pub signals: Option<Signals>,
    /// Reloads the configuration while it runs, if that is wanted. The job has one phase then, and none of
    /// the options that only a run from its beginning to its end can have.
    pub reloads: Option<Reloads>,
}

impl RunOptions {
    /// How long a run may drain where nothing else is given.
    pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            cores: cores(),
            replayed: None,
            limit: None,
            dry_run: None,
            drain_timeout: Self::DRAIN_TIMEOUT,
            signals: None,
            reloads: None,
        }
    }
}

/// The number of cores of this machine.
#[must_use]
pub fn cores() -> usize {
    /// Kept, because Linux is asked by reading five files.
    static CORES: LazyLock<usize> =
        LazyLock::new(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get));
    *CORES
}

/// A request to a run that took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// The first signal arrived: the run drains.
    Stopping,
    /// The outputs are reopened.
    Reopening,
    /// The run was aborted, and a component did not return in time.
    Abandoned,
}

/// Shows a job while it runs. All methods have defaults that do nothing.
pub trait Observer {
    /// A phase is about to be prepared: set up the log here.
    ///
    /// # Errors
    /// Any error ends the job.
    fn prepare(&mut self, phase: &Phase) -> Result<(), LoadError> {
        let _ = phase;
        Ok(())
    }

    /// Receives the events of files.
    fn watcher(&self) -> Option<Arc<dyn FileWatcher>> {
        None
    }

    /// A phase begins. It is called within the runtime of the phase, so it may spawn tasks, which end with
    /// the phase.
    ///
    /// # Errors
    /// Any error ends the job.
    fn begin(&mut self, phase: &Phase, handle: &Handle) -> Result<(), LoadError> {
        let _ = (phase, handle);
        Ok(())
    }

    /// Called ten times a second. The handle may be used to stop or abort the phase.
    fn tick(&mut self, handle: &Handle) {
        let _ = handle;
    }

    /// Receives a notice.
    fn notice(&mut self, notice: Notice) {
        let _ = notice;
    }

    /// A phase ended.
    fn end(&mut self, phase: &Phase, outcome: &Outcome) {
        let _ = (phase, outcome);
    }
}

/// A job whose first phase is prepared. So a state directory in use is reported before anything runs.
pub struct JobRun {
    job: Job,
    options: RunOptions,
    first: Prepared,
    control: Control,
}

impl JobRun {
    /// Prepares the first phase.
    ///
    /// # Errors
    /// If the phase cannot be prepared.
    pub fn prepare(
        mut job: Job,
        options: RunOptions,
        observer: &mut dyn Observer,
    ) -> Result<Self, LoadError> {
        if let Some(dry_run) = &options.dry_run {
            job.phases.iter_mut().for_each(|phase| dry_run.take_over(phase));
        }
        let first = job.phases.first().ok_or_else(|| LoadError::Empty(job.name.clone()))?;
        observer.prepare(first)?;
        let first = prepared_run(first, &options, observer)?;
        let control = Control::new(first.handle());
        // The run has what it needs of them.
        job.phases.iter_mut().for_each(|phase| phase.document = None);
        Ok(Self { job, options, first, control })
    }

    /// Returns the control of the job, for other threads.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Runs the phases until one fails or is stopped, or all have ended.
    ///
    /// # Errors
    /// If a phase cannot start, or does not return after it was aborted. A failure of a run is in its
    /// outcome.
    pub fn run(self, observer: &mut dyn Observer) -> Result<JobOutcome, RunError> {
        let Self { job, options, first, control } = self;
        let is_stopping = || control.is_stopping() || options.signals.as_ref().is_some_and(Signals::has_end);
        let mut prepared = Some(first);
        let mut outcomes: Vec<Outcome> = Vec::new();
        for phase in &job.phases {
            let run = match prepared.take() {
                Some(run) => run,
                None if is_stopping() => {
                    // The request arrived after the last phase had ended.
                    outcomes.iter_mut().for_each(|outcome| outcome.summary.stopped = true);
                    break;
                }
                None => {
                    observer.prepare(phase)?;
                    let run = prepared_run(phase, &options, observer).map_err(LoadError::from)?;
                    control.turn_to(run.handle());
                    run
                }
            };
            let outcome = drive(phase, run, &options, observer)?;
            observer.end(phase, &outcome);
            let is_last = outcome.summary.failure.is_some() || outcome.summary.stopped;
            outcomes.push(outcome);
            if is_last {
                break;
            }
        }
        Ok(JobOutcome { phases: outcomes })
    }
}

/// Runs one graph as a single phase, without a [`Control`].
///
/// # Errors
/// If the run cannot start, or does not return after it was aborted.
pub fn run_graph(
    graph: Graph,
    state_dir: StateDir,
    options: RunOptions,
    observer: &mut dyn Observer,
) -> Result<Outcome, RunError> {
    let (processor, operations, configuration) = (None, None, None);
    let phase = Phase { graph, state_dir, processor, operations, configuration, document: None };
    observer.prepare(&phase)?;
    let run = prepared_run(&phase, &options, observer).map_err(LoadError::from)?;
    let outcome = drive(&phase, run, &options, observer)?;
    observer.end(&phase, &outcome);
    Ok(outcome)
}

/// A phase that is ready to run.
enum Prepared {
    Run(Box<Run>),
    Parts(Box<Parts>),
}

impl Prepared {
    fn handle(&self) -> Handle {
        match self {
            Self::Run(run) => run.handle(),
            Self::Parts(parts) => parts.handle(),
        }
    }

    async fn wait(self) -> Summary {
        match self {
            Self::Run(run) => run.wait().await,
            Self::Parts(parts) => parts.wait().await,
        }
    }
}

/// Prepares the run of a phase.
fn prepared_run(phase: &Phase, options: &RunOptions, observer: &dyn Observer) -> Result<Prepared, Error> {
    check_descriptor_limit()?;
    if let (Some(reloads), Some(written)) = (&options.reloads, phase.written()) {
        let of_parts = PartsOptions { cores: options.cores, drain_timeout: options.drain_timeout };
        let parts = Parts::new(&written, phase.state_dir.clone(), of_parts)?;
        reloads.begin(parts.changes());
        return Ok(Prepared::Parts(Box::new(parts)));
    }
    let run = Run::new(Plan::new(&phase.graph, options.cores), phase.state_dir.clone())?;
    let run = run.drain_timeout(options.drain_timeout);
    let run = match &options.replayed {
        Some(replayed) => run.replaying(replayed.clone()),
        None => run,
    };
    let run = match options.limit {
        Some(limit) => run.limited(limit),
        None => run,
    };
    let run = match options.dry_run.clone() {
        Some(dry_run) => run.rehearsed(dry_run),
        None => run,
    };
    Ok(Prepared::Run(Box::new(match observer.watcher() {
        Some(watcher) => run.watched(watcher),
        None => run,
    })))
}

/// Runs a phase to its end, on a runtime of its own.
fn drive(
    phase: &Phase,
    run: Prepared,
    options: &RunOptions,
    observer: &mut dyn Observer,
) -> Result<Outcome, RunError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(options.cores)
        .thread_name("thalweg")
        .on_thread_park(thalweg_runtime::idle::before_wait)
        .enable_all()
        .build()?;
    let mut retries = Retries::default();
    let handle = run.handle();
    let mut recording = None;
    let summary = runtime.block_on(async {
        observer.begin(phase, &handle)?;
        recording = recorded(phase, options);
        let signals = options.signals.clone().map(Signals::without_reopens);
        if let Some(reloads) = options.reloads.clone() {
            tokio::spawn(reloads.follow());
        }
        watch(run, &handle, signals, options.reloads.as_ref(), &mut retries, observer).await
    });
    if let Some(reloads) = &options.reloads {
        reloads.end();
    }
    retries.note(&handle);
    if let Some(recording) = recording {
        recording.end(&summary);
    }
    // A thread may still wait for something that never comes, such as a line from a terminal.
    thalweg_runtime::lasting::end(runtime);
    Ok(Outcome { summary: summary?, retries })
}

/// Begins the record of a run, if it has checkpoints and effects.
fn recorded(phase: &Phase, options: &RunOptions) -> Option<Recording> {
    let configuration = phase.configuration.as_ref()?;
    if !phase.state_dir.positions || options.dry_run.is_some() {
        return None;
    }
    let history = History::of(&phase.state_dir.folder);
    let begun = history.begin(configuration);
    begun.inspect_err(|error| history::warn(&history, error)).ok()
}

/// Waits for the end of a run, and meanwhile for signals and for the next tick.
async fn watch(
    run: Prepared,
    handle: &Handle,
    mut signals: Option<Signals>,
    reloads: Option<&Reloads>,
    retries: &mut Retries,
    observer: &mut dyn Observer,
) -> Result<Summary, RunError> {
    let mut wait = pin!(run.wait());
    let mut late = pin!(async {
        handle.aborted().await;
        Alarm::after(ABORT_TIMEOUT).rung().await;
    });
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut has_signal = false;
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    crate::code::release();
    loop {
        tokio::select! {
            summary = &mut wait => return Ok(summary),
            signal = Signals::next_of(&mut signals) => {
                heed(signal, has_signal, handle, reloads, observer);
                has_signal |= signal == Signal::End;
            }
            () = &mut late => {
                observer.notice(Notice::Abandoned);
                return Err(RunError::Abandoned);
            }
            _ = ticks.tick() => {
                retries.note(handle);
                observer.tick(handle);
            }
        }
    }
}

/// Carries out the request behind a signal. `is_second` is true if an earlier signal stopped the run.
fn heed(
    signal: Signal,
    is_second: bool,
    handle: &Handle,
    reloads: Option<&Reloads>,
    observer: &mut dyn Observer,
) {
    match signal {
        Signal::End if is_second => handle.abort(),
        Signal::End => {
            handle.stop();
            observer.notice(Notice::Stopping);
        }
        #[cfg(unix)]
        Signal::Reopen => {
            handle.reopen();
            observer.notice(Notice::Reopening);
            if let Some(reloads) = reloads.cloned() {
                tokio::spawn(async move { reloads.reload().await });
            }
        }
    }
}

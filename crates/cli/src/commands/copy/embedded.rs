//! A copy within another program, which gets figures instead of a text and says itself when to stop.

use std::ffi::OsString;
use std::pin::pin;
use std::time::{Duration, Instant};

use clap::{CommandFactory, Parser};
use thalweg_engine::{Graph, Handle, Plan, Run, StateDir};

use super::told::Figures;
use super::{Arguments, Job, list};
use crate::drive::Outcome;
use crate::exit::CliError;
use crate::progress::Retried;

/// How often the program is asked whether to go on.
const ASK: Duration = Duration::from_millis(100);
/// How long an end at once may take before what is left is given up.
const PATIENCE: Duration = Duration::from_secs(2);

/// A command line that is this command's only.
#[derive(Debug, Parser)]
#[command(name = "thalweg copy", color = clap::ColorChoice::Never)]
struct Line {
    #[command(flatten)]
    arguments: Arguments,
}

/// How far a copy is.
#[derive(Debug, Clone, Copy)]
pub struct CopyProgress {
    /// Bytes that were read.
    pub read_bytes: u64,
    /// How many bytes there are to read, if that is known.
    pub expected_bytes: Option<u64>,
    /// Files or rows that were written.
    pub copied: u64,
    /// Files or rows that could not be copied.
    pub errors: u64,
    /// The time since it began.
    pub elapsed: Duration,
}

/// What the program wants of a copy that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// That it goes on.
    GoOn,
    /// That it stops, after what is on its way has arrived.
    Stop,
    /// That it stops at once.
    Abort,
}

/// What a copy came to.
#[derive(Debug)]
pub struct Copied {
    /// The figures.
    pub figures: Figures,
    /// What would be copied, where nothing was to be written: from where, to where, and how many bytes.
    pub planned: Vec<(String, String, u64)>,
    /// How long it took.
    pub elapsed: Duration,
    /// It went on with one that was cut off.
    pub went_on: bool,
    /// It was told to stop before everything was copied.
    pub stopped: bool,
    /// Why it is no success, in the words of the command.
    pub failure: Option<String>,
}

/// Why there was no copy.
#[derive(Debug, thiserror::Error)]
pub enum NotCopied {
    /// What was asked for makes no sense: a text for people.
    #[error("{0}")]
    Invalid(String),
    /// It was tried and failed: a text for people.
    #[error("{0}")]
    Failed(String),
}

impl From<CliError> for NotCopied {
    fn from(failure: CliError) -> Self {
        match failure {
            CliError::Mistakes(diagnostics) => Self::Invalid(diagnostics.render(false)),
            CliError::Usage(text) => Self::Invalid(text),
            CliError::Failed(text) => Self::Failed(text),
            CliError::AlreadyReported | CliError::NobodyReads => Self::Failed("the copy failed".to_owned()),
        }
    }
}

/// Copies as `thalweg copy` does, whose arguments these are (without the words `thalweg copy`). Nothing is printed, and no signals
/// are heard: `ask` is asked some times a second what to do.
///
/// # Errors
/// If it could not begin. What went wrong later is in what this gives.
pub fn copy(
    arguments: impl IntoIterator<Item = OsString>,
    ask: &mut dyn FnMut(CopyProgress) -> Wish,
) -> Result<Copied, NotCopied> {
    let line = [OsString::from("thalweg copy")].into_iter().chain(arguments);
    let line = Line::try_parse_from(line).map_err(|told| NotCopied::Invalid(told.to_string()))?;
    Ok(run(&line.arguments, ask)?)
}

/// The long names of all options of the command.
#[must_use]
pub fn copy_options() -> Vec<String> {
    Line::command().get_opts().filter_map(|option| option.get_long().map(str::to_owned)).collect()
}

fn run(arguments: &Arguments, ask: &mut dyn FnMut(CopyProgress) -> Wish) -> Result<Copied, CliError> {
    let begun = Instant::now();
    let job = Job::new(arguments)?;
    job.look()?;
    let mut planned = Vec::new();
    if arguments.dry_run {
        list::targets(&job, &mut |from, to, size| {
            planned.push((from.to_owned(), to, size));
            true
        })?;
        return Ok(Copied {
            figures: Figures::default(),
            planned,
            elapsed: begun.elapsed(),
            went_on: false,
            stopped: false,
            failure: None,
        });
    }
    let kept = job.keep()?;
    let (outcome, stopped) = drive(&job.graph, kept.keeping.clone(), job.cores, ask)?;
    let figures = job.figures(&outcome, &kept)?;
    let failure = outcome.summary.failure.as_ref().map(ToString::to_string).or_else(|| {
        let state = kept.keeping.folder.display();
        (!job.is_done(&figures))
            .then(|| format!("{}: `thalweg errors list --state {state}` shows them", figures.not_copied()))
    });
    Ok(Copied {
        elapsed: outcome.summary.elapsed,
        went_on: kept.goes_on,
        stopped: stopped || outcome.summary.stopped,
        figures,
        planned,
        failure,
    })
}

/// Runs a graph to its end, and says whether it was told to stop.
fn drive(
    graph: &Graph,
    state_dir: StateDir,
    cores: usize,
    ask: &mut dyn FnMut(CopyProgress) -> Wish,
) -> Result<(Outcome, bool), CliError> {
    let continues = state_dir.positions;
    let run = Run::new(Plan::new(graph, cores), state_dir)?;
    let run = if continues { run.continuing() } else { run };
    let handle = run.handle();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores)
        .thread_name("thalweg")
        .enable_all()
        .build()?;
    let mut retried = Retried::default();
    let begun = Instant::now();
    let mut stopped = false;
    let mut aborted: Option<Instant> = None;
    let summary = runtime.block_on(async {
        let mut wait = pin!(run.wait());
        loop {
            tokio::select! {
                summary = &mut wait => break Some(summary),
                () = tokio::time::sleep(ASK) => {}
            }
            retried.note(&handle);
            match ask(progress(&handle, begun)) {
                Wish::GoOn => {}
                Wish::Stop => {
                    stopped = true;
                    handle.stop();
                }
                Wish::Abort => {
                    stopped = true;
                    aborted.get_or_insert_with(Instant::now);
                    handle.abort();
                }
            }
            if aborted.is_some_and(|aborted| aborted.elapsed() > PATIENCE) {
                break None;
            }
        }
    });
    retried.note(&handle);
    // A thread may still wait for something that never comes.
    runtime.shutdown_background();
    let Some(summary) = summary else {
        return Err(CliError::Failed("stopped: a component was still waiting for something".to_owned()));
    };
    Ok((Outcome { summary, retried }, stopped))
}

fn progress(handle: &Handle, begun: Instant) -> CopyProgress {
    let counts = handle.counts();
    let of_role = |role: &'static str| counts.iter().filter(move |counts| counts.role == role);
    let known = of_role("source").all(|counts| counts.expected_bytes > 0);
    CopyProgress {
        read_bytes: of_role("source").map(|counts| counts.progress_bytes.max(counts.bytes_in)).sum(),
        expected_bytes: known.then(|| of_role("source").map(|counts| counts.expected_bytes).sum()),
        copied: of_role("sink").map(|counts| counts.rows_out).sum(),
        errors: counts.iter().map(|counts| counts.errors).sum(),
        elapsed: begun.elapsed(),
    }
}

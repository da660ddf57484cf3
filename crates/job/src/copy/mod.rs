//! Copies objects: a job that is built from options instead of a document.
//!
//! The job is a configuration with the source `objects`, a pipeline and the sink `objects`. So a copy can do
//! nothing that a configuration cannot.
//!
//! See docs/decisions/027-copy-makes-a-configuration.md.

mod configuration;
mod endpoints;
mod figures;
mod kept;
mod listing;
mod pace;
mod rows;

use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, Document};
use thalweg_engine::{Graph, Handle};
use thalweg_files::sources::objects::ObjectsSource;

use crate::error::{LoadError, RunError};
use crate::outcome::Outcome;
use crate::run::{Observer, RunOptions, cores, run_graph};
use endpoints::Endpoints;

pub use figures::Figures;
pub use kept::{Kept, StateOptions};
pub use pace::{Mode, Pace, PaceOptions};
pub use rows::{Encode, Parse, Rows};

/// The largest number of cores that may be asked for.
const MOST_THREADS: usize = 1024;

/// The options of a copy.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CopyOptions {
    /// The URL or pattern to read.
    pub from: String,
    /// The object to write, or, with a slash at its end, the prefix of all objects.
    pub to: String,
    /// Patterns of the objects to copy; all if empty.
    pub include: Vec<String>,
    /// Patterns of the objects not to copy.
    pub exclude: Vec<String>,
    /// The treatment of an object that exists.
    pub existing: Option<Existing>,
    /// The content type of written objects.
    pub content_type: Option<String>,
    /// Lists what would be copied, and writes nothing.
    pub dry_run: bool,
    /// The budget for data in flight.
    pub memory: Option<ByteSize>,
    /// The number of cores to use.
    pub threads: Option<usize>,
    /// True if rows that cannot be copied are a failure.
    pub strict: bool,
    /// How rows are parsed, changed and encoded.
    #[serde(flatten)]
    pub rows: Rows,
    /// The state for resuming.
    #[serde(flatten)]
    pub state: StateOptions,
    /// The concurrency.
    #[serde(flatten)]
    pub pace: PaceOptions,
}

/// The treatment of an object that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Existing {
    /// It is replaced.
    Replace,
    /// It is replaced if it has another size or is older.
    Update,
    /// It stays.
    Skip,
    /// The file is not copied, which is an error.
    Error,
}

impl Existing {
    /// Its name in configurations.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Replace => "replace",
            Self::Update => "update",
            Self::Skip => "skip",
            Self::Error => "error",
        }
    }
}

impl CopyOptions {
    /// The names of all options, as programs give them.
    #[must_use]
    pub fn names() -> Vec<String> {
        let schema = schemars::schema_for!(Self);
        let options = schema.get("properties").and_then(|options| options.as_object());
        options.into_iter().flat_map(|options| options.keys().cloned()).collect()
    }
}

/// A copy whose options are checked.
pub struct CopyJob<'a> {
    /// The options.
    pub options: &'a CopyOptions,
    /// The configuration that does the same.
    pub document: Document,
    /// The graph of the configuration.
    pub graph: Graph,
    /// The number of cores to use.
    pub cores: usize,
    endpoints: Endpoints,
    source: ObjectsSource,
}

impl<'a> CopyJob<'a> {
    /// Checks the options.
    ///
    /// # Errors
    /// The mistakes in the options.
    pub fn new(options: &'a CopyOptions) -> Result<Self, LoadError> {
        options.rows.check()?;
        options.state.check()?;
        if options.threads.is_some_and(|threads| !(1..=MOST_THREADS).contains(&threads)) {
            let text = format!("`--threads` must be a number from 1 to {MOST_THREADS}");
            return Err(LoadError::Options(text));
        }
        let pace = options.pace.pace()?;
        let endpoints = Endpoints::new(&options.from, &options.to, &options.rows)?;
        let document = configuration::document(options, &endpoints, pace);
        let mut graph = thalweg_engine::read(&document, &crate::registry())?;
        graph.memory = options.memory.unwrap_or(graph.memory);
        let source = ObjectsSource::new(&endpoints.from, options.include.clone(), options.exclude.clone());
        Ok(Self { options, document, graph, cores: options.threads.unwrap_or_else(cores), endpoints, source })
    }

    /// Lists the first object.
    ///
    /// # Errors
    /// If there is none, or it would be copied onto itself.
    pub fn probe(&self) -> Result<(), LoadError> {
        let mut first = None;
        listing::list(&self.source, &mut |below, _, _| {
            first = Some(below.to_owned());
            false
        })?;
        let first = first.ok_or_else(|| LoadError::NothingToCopy(self.options.from.clone()))?;
        self.endpoints.refuse_itself(&self.source, &first)
    }

    /// Finds the state of an earlier copy, or removes it if the options say so.
    ///
    /// # Errors
    /// If obsolete state cannot be removed.
    pub fn keep(&self) -> Result<Kept, LoadError> {
        let mut kept = Kept::new(self.options, &self.endpoints)?;
        if self.options.state.restart {
            kept.forget(&self.endpoints)?;
        }
        Ok(kept)
    }

    /// Runs the copy.
    ///
    /// # Errors
    /// If the run cannot start, or does not return after it was aborted.
    pub fn run(
        &self,
        kept: &Kept,
        options: RunOptions,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, RunError> {
        run_graph(self.graph.clone(), kept.state_dir.clone(), options, observer)
    }

    /// Returns the counters of the run. Removes the state, if it is no longer needed.
    ///
    /// # Errors
    /// If the state cannot be removed.
    pub fn figures(&self, outcome: &Outcome, kept: &Kept) -> Result<Figures, LoadError> {
        let summary = &outcome.summary;
        let figures = Figures::of(summary, self.options.rows.parse.is_some());
        if summary.failure.is_none() && !summary.stopped {
            kept.end(&self.endpoints, figures.is_whole())?;
        }
        Ok(figures)
    }

    /// True if the copy succeeded: everything was copied or, without `strict`, only rows failed.
    #[must_use]
    pub fn is_done(&self, figures: &Figures) -> bool {
        figures.is_whole() || (self.options.rows.parse.is_some() && !self.options.strict)
    }
}

/// The progress of a copy.
#[derive(Debug, Clone, Copy)]
pub struct CopyProgress {
    /// Bytes that were read.
    pub read_bytes: u64,
    /// All bytes to read, if known.
    pub expected_bytes: Option<u64>,
    /// Files or rows that were written.
    pub copied: u64,
    /// Files or rows that could not be copied.
    pub errors: u64,
    /// The time since the start.
    pub elapsed: Duration,
}

/// The next step of a running copy, chosen by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// To continue.
    Continue,
    /// To stop once data in flight is delivered.
    Stop,
    /// To stop at once.
    Abort,
}

/// The result of a copy.
#[derive(Debug)]
pub struct Copied {
    /// Its counters.
    pub figures: Figures,
    /// The source, the target and the bytes of each object that a dry run would copy.
    pub planned: Vec<(String, String, u64)>,
    /// Its duration.
    pub elapsed: Duration,
    /// True if it resumed an interrupted copy.
    pub resumed: bool,
    /// True if it was stopped before everything was copied.
    pub stopped: bool,
    /// Why it is no success, for people.
    pub failure: Option<String>,
}

/// Copies objects, without output and without signal handlers. `ask` is called ten times a second.
///
/// # Errors
/// If the copy could not begin, or did not return after it was aborted. A later failure is in the result.
pub fn copy(options: &CopyOptions, ask: &mut dyn FnMut(CopyProgress) -> Wish) -> Result<Copied, RunError> {
    let begun = Instant::now();
    let job = CopyJob::new(options)?;
    job.probe()?;
    if options.dry_run {
        return Ok(Copied {
            figures: Figures::default(),
            planned: job.targets()?,
            elapsed: begun.elapsed(),
            resumed: false,
            stopped: false,
            failure: None,
        });
    }
    let kept = job.keep()?;
    let mut asking = Asking { ask, begun, stopped: false };
    let run_options = RunOptions { cores: job.cores, ..RunOptions::default() };
    let outcome = job.run(&kept, run_options, &mut asking)?;
    let figures = job.figures(&outcome, &kept)?;
    let failure = outcome.summary.failure.as_ref().map(ToString::to_string).or_else(|| {
        let state = kept.state_dir.folder.display();
        (!job.is_done(&figures))
            .then(|| format!("{}: `thalweg errors list --state {state}` shows them", figures.not_copied()))
    });
    Ok(Copied {
        elapsed: outcome.summary.elapsed,
        resumed: kept.resumes,
        stopped: asking.stopped || outcome.summary.stopped,
        figures,
        planned: Vec::new(),
        failure,
    })
}

/// Asks the caller at each tick.
struct Asking<'a> {
    ask: &'a mut dyn FnMut(CopyProgress) -> Wish,
    begun: Instant,
    stopped: bool,
}

impl Observer for Asking<'_> {
    fn tick(&mut self, handle: &Handle) {
        match (self.ask)(progress(handle, self.begun)) {
            Wish::Continue => {}
            Wish::Stop => {
                self.stopped = true;
                handle.stop();
            }
            Wish::Abort => {
                self.stopped = true;
                handle.abort();
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_names() {
        let names = CopyOptions::names();
        for name in ["from", "to", "content_type", "where", "type", "no_resume", "part_size"] {
            assert!(names.iter().any(|known| known == name), "{name} in {names:?}");
        }
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        let refused = |options: serde_json::Value| {
            let options: CopyOptions = serde_json::from_value(options).unwrap();
            CopyJob::new(&options).err().map(|error| (error.is_usage(), error.to_string()))
        };
        let text = |text: &str| Some((true, text.to_owned()));
        assert_eq!(
            refused(serde_json::json!({ "from": "a", "to": "b", "restart": true, "no_resume": true })),
            text("`--no-resume` cannot be used with `--restart`")
        );
        assert_eq!(
            refused(serde_json::json!({ "from": "a", "to": "b", "threads": 0 })),
            text("`--threads` must be a number from 1 to 1024")
        );
    }

    #[test]
    fn a_file_is_copied_and_a_caller_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "hello").unwrap();
        let place = |name: &str| folder.path().join(name).display().to_string();
        let options = CopyOptions {
            from: place("a"),
            to: place("b"),
            state: StateOptions { state: Some(folder.path().join("state")), ..StateOptions::default() },
            ..CopyOptions::default()
        };
        let mut asked = 0;
        let copied = copy(&options, &mut |_| {
            asked += 1;
            Wish::Continue
        });
        let copied = copied.unwrap();
        assert_eq!((copied.figures.copied, copied.failure, copied.resumed), (1, None, false));
        assert!(asked > 0);
        assert_eq!(std::fs::read_to_string(folder.path().join("b")).unwrap(), "hello");
    }
}

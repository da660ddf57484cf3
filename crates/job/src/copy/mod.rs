//! Copies objects: a job that is built from options instead of a document.
//!
//! The job is a configuration with the source `objects`, a pipeline and the sink `objects`. So a copy can do
//! nothing that a configuration cannot.
//!
//! See docs/decisions/027-copy-makes-a-configuration.md.

mod columns;
mod configuration;
mod endpoints;
mod figures;
mod kept;
mod listing;
mod pace;
mod rows;
mod stream;

use std::sync::Arc;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use thalweg_config::{ByteSize, Document, Node};
use thalweg_engine::{Graph, Handle};
pub use thalweg_files::sources::objects::ObjectLinks;
use thalweg_files::sources::objects::{ObjectsSource, is_sendable};
use thalweg_files::sources::standard_input::StandardInput;
use thalweg_store::Object;

use crate::error::{LoadError, RunError};
use crate::limits::Limits;
use crate::outcome::Outcome;
use crate::run::{Observer, RunOptions, cores, run_graph};
use endpoints::{Endpoints, is_stream, shown};

pub use figures::Figures;
pub use kept::{Kept, StateOptions};
pub use pace::{Mode, Pace, PaceOptions};
pub use rows::{Encode, Parse, Rows};
pub use stream::{StreamCopy, StreamError, Streamed};

/// The largest number of cores that may be asked for.
const MOST_THREADS: usize = 1024;

/// The options of a copy.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CopyOptions {
    /// The URL or pattern to read. `-` is the standard input.
    pub from: String,
    /// The object to write, or, with a slash at its end, the prefix of all objects. `-` is the standard
    /// output.
    pub to: String,
    /// Patterns of the objects to copy; all if empty.
    pub include: Vec<String>,
    /// Patterns of the objects not to copy.
    pub exclude: Vec<String>,
    /// The action for links in a folder of this machine. Without it, those that lead out are skipped.
    pub symlinks: Option<ObjectLinks>,
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

    /// Reads options in JSON, by their [`names`](Self::names).
    ///
    /// # Errors
    /// The first invalid value, with the name of its option.
    pub fn from_json(text: &str) -> Result<Self, LoadError> {
        let wrong = |error: serde_json::Error| LoadError::Options(error.to_string());
        let given: Map<String, Value> = serde_json::from_str(text).map_err(wrong)?;
        // The error for all options together would not name the wrong one.
        for (name, value) in &given {
            let alone: Map<String, Value> = [(name.clone(), value.clone())].into_iter().collect();
            serde_json::from_value::<Self>(Value::Object(alone))
                .map_err(|error| LoadError::Options(format!("`{name}`: {error}")))?;
        }
        serde_json::from_value(Value::Object(given)).map_err(wrong)
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
        if StreamCopy::of(options)?.is_some() {
            let text = "`-` stands for the standard input or output of `thalweg copy`; here, give a path";
            return Err(LoadError::Options(text.to_owned()));
        }
        let pace = options.pace.pace()?;
        let endpoints = Endpoints::new(&options.from, &options.to, &options.rows)?;
        let document = configuration::document(options, &endpoints, pace);
        let mut graph = thalweg_engine::read(&document, &crate::registry())?;
        if is_stream(&endpoints.from) {
            graph.sources.iter_mut().for_each(|source| source.config = Arc::new(StandardInput));
        }
        graph.memory = options.memory.unwrap_or_else(|| Limits::of_this_process().usual_memory());
        let source = ObjectsSource::new(&endpoints.from, options.include.clone(), options.exclude.clone())
            .symlinks(options.symlinks.unwrap_or_default());
        Ok(Self { options, document, graph, cores: options.threads.unwrap_or_else(cores), endpoints, source })
    }

    /// Lists the first object, and compares its columns with the options. `goes_on` is called ten times a
    /// second, and returns false to stop. Returns a warning for people, if there is reason for one.
    ///
    /// # Errors
    /// If there is none, it would be copied onto itself, it does not have a column that the options name, or
    /// `goes_on` returned false.
    pub fn probe(&self, goes_on: &mut dyn FnMut() -> bool) -> Result<Option<String>, LoadError> {
        if is_stream(&self.endpoints.from) {
            return Ok(None);
        }
        let (mut first, mut is_empty) = (None, true);
        let mut each = |below: &str, _: &Object| {
            is_empty = false;
            // A name that leads out of the target is rejected by itself when its turn comes.
            first = is_sendable(below).then(|| below.to_owned());
            first.is_none()
        };
        let link = listing::list(&self.source, &mut each, goes_on)?;
        let from = || shown(&self.options.from);
        match (first, link) {
            (Some(first), _) => {
                self.endpoints.refuse_itself(&self.source, &first)?;
                listing::wait(columns::check(&self.source, &self.options.rows), goes_on)
            }
            (None, Some(link)) if is_empty => Err(LoadError::OnlyLinks(from(), link)),
            (None, None) if is_empty => Err(LoadError::NothingToCopy(from())),
            (None, _) => Ok(None),
        }
    }

    /// The configuration, with variables in place of secrets.
    #[must_use]
    pub fn printable(&self) -> Node {
        configuration::printable(self.document.root())
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

    /// Returns the counters of the run.
    #[must_use]
    pub fn figures(&self, outcome: &Outcome) -> Figures {
        Figures::of(&outcome.summary, self.options.rows.parse.is_some())
    }

    /// Cleans up after a run that ended by itself: removes the state, if it is no longer needed.
    ///
    /// # Errors
    /// If the state cannot be removed.
    pub fn finish(&self, outcome: &Outcome, figures: &Figures, kept: &Kept) -> Result<(), LoadError> {
        match outcome.summary.failure.is_none() && !outcome.summary.stopped {
            true => kept.end(&self.endpoints, figures.is_whole()),
            false => Ok(()),
        }
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

impl CopyProgress {
    /// The progress while the source is listed: nothing is read yet.
    fn of_listing(begun: Instant) -> Self {
        Self { read_bytes: 0, expected_bytes: None, copied: 0, errors: 0, elapsed: begun.elapsed() }
    }
}

/// The next step of a running copy, chosen by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyControl {
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
    /// Why it is no success, for people.
    pub failure: Option<String>,
}

/// Copies objects, without output and without signal handlers. `on_progress` is called ten times a second,
/// also while the source is listed, and decides whether the copy continues.
///
/// # Errors
/// If the copy could not begin, or did not return after it was aborted. A later failure is in the result.
pub fn copy(
    options: &CopyOptions,
    on_progress: &mut dyn FnMut(CopyProgress) -> CopyControl,
) -> Result<Copied, RunError> {
    let begun = Instant::now();
    let job = CopyJob::new(options)?;
    let mut goes_on = || on_progress(CopyProgress::of_listing(begun)) == CopyControl::Continue;
    if let Some(warning) = job.probe(&mut goes_on)? {
        tracing::warn!("{warning}");
    }
    if options.dry_run {
        return Ok(Copied {
            figures: Figures::default(),
            planned: job.targets(&mut goes_on)?,
            elapsed: begun.elapsed(),
            resumed: false,
            failure: None,
        });
    }
    let kept = job.keep()?;
    let mut observer = ProgressObserver { on_progress, begun };
    let run_options = RunOptions { cores: job.cores, ..RunOptions::default() };
    let outcome = job.run(&kept, run_options, &mut observer)?;
    let figures = job.figures(&outcome);
    job.finish(&outcome, &figures, &kept)?;
    let failure = outcome.summary.failure.as_ref().map(ToString::to_string).or_else(|| {
        (!job.is_done(&figures)).then(|| format!("{}: {}", figures.not_copied(), kept.failures()))
    });
    Ok(Copied {
        elapsed: outcome.summary.elapsed,
        resumed: kept.resumes,
        figures,
        planned: Vec::new(),
        failure,
    })
}

/// Reports progress to the caller at each tick, and stops the copy if the caller says so.
struct ProgressObserver<'a> {
    on_progress: &'a mut dyn FnMut(CopyProgress) -> CopyControl,
    begun: Instant,
}

impl Observer for ProgressObserver<'_> {
    fn tick(&mut self, handle: &Handle) {
        match (self.on_progress)(progress(handle, self.begun)) {
            CopyControl::Continue => {}
            CopyControl::Stop => handle.stop(),
            CopyControl::Abort => handle.abort(),
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
    fn a_wrong_option_is_reported_with_its_name() {
        let refused = |text: &str| CopyOptions::from_json(text).err().map(|error| error.to_string());
        assert_eq!(
            refused(r#"{ "from": "a", "mode": "fast" }"#).as_deref(),
            Some("`mode`: it must be one of auto, sequential, parallel, parallel=N or channel")
        );
        assert_eq!(
            refused(r#"{ "from": "a", "threads": -1 }"#).as_deref(),
            Some("`threads`: invalid value: integer `-1`, expected usize")
        );
        let options = CopyOptions::from_json(r#"{ "from": "a", "readers": 2, "keep": ["b"] }"#).unwrap();
        assert_eq!((options.pace.readers, options.rows.keep), (Some(2), vec!["b".to_owned()]));
    }

    #[test]
    fn mistakes_show_no_secrets() {
        let from = "s3://bucket/a.csv?secret_access_key=SECRET";
        let options = serde_json::json!({ "from": from, "to": "b.csv", "parse": "csv", "where": "a >=" });
        let options = CopyOptions::from_json(&options.to_string()).unwrap();
        let mistakes = CopyJob::new(&options).err().unwrap().to_string();
        assert!(mistakes.contains("The expression ends too early"), "{mistakes}");
        let endpoints = Endpoints::new(from, "b.csv", &options.rows).unwrap();
        let document = configuration::document(&options, &endpoints, Pace::default());
        assert_eq!(document.text(), "thalweg copy s3://bucket/a.csv?… b.csv --where 'a >='");
        let url =
            document.root().get("sources").and_then(|all| all.get("origin")?.get("objects")?.get("url"));
        assert_eq!(url.and_then(|url| url.as_str()), Some(from));
    }

    #[test]
    fn a_source_without_an_object_is_named_without_its_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let options = CopyOptions {
            from: format!("file://{}/*.csv", folder.path().display()),
            to: format!("{}/out/", folder.path().display()),
            ..CopyOptions::default()
        };
        let error = CopyJob::new(&options).unwrap().probe(&mut || true).unwrap_err().to_string();
        assert_eq!(error, format!("there is nothing to copy: `{}` matches no object", options.from));
        assert_eq!(shown("https://me:password@host/a?token=b"), "https://host/a?…");
        assert_eq!(shown("folder/a?b"), "folder/a?b");
    }

    #[test]
    fn a_copy_is_stopped_while_its_source_does_not_answer() {
        // Connections are accepted by the system, and no request is answered.
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        for dry_run in [false, true] {
            let options = CopyOptions {
                from: format!("http://{}/a", server.local_addr().unwrap()),
                to: "never-written".to_owned(),
                dry_run,
                ..CopyOptions::default()
            };
            let stopped = copy(&options, &mut |_| CopyControl::Stop).unwrap_err();
            assert!(matches!(stopped, RunError::Load(LoadError::Stopped)), "{stopped}");
        }
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
            CopyControl::Continue
        });
        let copied = copied.unwrap();
        assert_eq!((copied.figures.copied, copied.failure, copied.resumed), (1, None, false));
        assert!(asked > 0);
        assert_eq!(std::fs::read_to_string(folder.path().join("b")).unwrap(), "hello");
    }
}

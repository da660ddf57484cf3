//! `thalweg copy`.
//!
//! The command makes a configuration (the source `objects`, a pipeline, the sink `objects`) and runs it, so that whatever it
//! does, a configuration can do.

mod configuration;
pub mod embedded;
mod keeping;
mod list;
mod pace;
mod places;
mod rows;
pub mod told;

use clap::{Args, ValueEnum};
use serde_json::json;
use thalweg_config::{ByteSize, Comments, Document};
use thalweg_engine::Graph;
use thalweg_files::sources::objects::ObjectsSource;

use self::keeping::{Kept, StateOptions};
use self::pace::PaceOptions;
use self::places::Endpoints;
use self::rows::Rows;
use self::told::Figures;
use super::run::size;
use crate::drive::{Outcome, RunOptions, drive};
use crate::exit::{CliError, Exit};
use crate::paint::Paint;
use crate::print;

/// Copies objects: one, or all below a prefix, between S3, GCS, Azure, web servers (which are only read) and folders.
///
/// Bytes are copied as they are, in parts, many at the same time, and compared by checksums where the store knows them.
/// Nobody sees an object before it is complete. With `--parse`, rows are read out of the objects, changed on the way and
/// written as one object. A copy that was cut off goes on where it was when it is begun again: see `--restart`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg copy s3://bucket/2026/ backup/
  thalweg copy 's3://bucket/logs/**/*.gz' 'az://archive/logs/?account_name=mine'
  thalweg copy https://example.org/large.iso gs://bucket/
  thalweg copy people.csv people.jsonl --parse csv --encode json --where \"age >= '18'\" --keep name,age
  thalweg copy 's3://bucket/*.csv' all.csv --parse csv --type age=int --where 'age >= 18'
  thalweg copy s3://bucket/ backup/ --dry-run
  thalweg copy s3://bucket/ backup/ --print-config > backup.yaml

Patterns go between quotes, since the shell would resolve them.

With --json, all that is told goes to the standard error output, an object a line, as with
`thalweg run`; the summary has a member `copy`.

Exit codes:
  0  everything was copied; of rows, also if some could not be read (see --strict)
  1  files could not be copied; or rows, with --strict
  2  the command line is wrong
  3  failed, was told to stop before everything was copied, or there is nothing to copy")]
pub struct Arguments {
    /// What to copy: s3://BUCKET/KEY, gs://BUCKET/KEY, az://CONTAINER/KEY, https://…, or a path. With a slash at its end, all
    /// that is below it; with `*` or `**`, what matches.
    #[arg(value_name = "FROM")]
    from: String,
    /// Where to: the name of the object, or, with a slash at its end, what names go below.
    #[arg(value_name = "TO")]
    to: String,
    /// Copy only objects that match a pattern: of the last part of the name, or, with a `/` in it, of all that is below FROM.
    /// May be given several times.
    #[arg(long, value_name = "PATTERN")]
    include: Vec<String>,
    /// Do not copy objects that match this pattern.
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// What to do where there is such an object already. Without it, it is replaced.
    #[arg(long, value_name = "WHAT")]
    existing: Option<Existing>,
    /// The content type of what is written.
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Say what would be copied, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print the configuration that does the same, for `thalweg run`, and do nothing.
    #[arg(long, conflicts_with = "dry_run")]
    print_config: bool,
    /// The memory for data in flight, for example `1GiB`. Without it, `256MiB`.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<ByteSize>,
    /// How many cores to use. Without it, all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// End with exit code 1 if there were rows that could not be read or written.
    #[arg(long)]
    strict: bool,
    /// Tell everything in JSON, a line each, on the standard error output.
    #[arg(long)]
    pub json: bool,
    /// Tell nothing but errors.
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    rows: Rows,
    #[command(flatten)]
    state: StateOptions,
    #[command(flatten)]
    pace: PaceOptions,
}

/// What to do where there is an object already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Existing {
    /// Replace it.
    Replace,
    /// Replace a file that has another size or is older.
    Update,
    /// Leave it alone.
    Skip,
    /// Do not copy the file, which is an error.
    Error,
}

impl Existing {
    fn name(self) -> &'static str {
        match self {
            Self::Replace => "replace",
            Self::Update => "update",
            Self::Skip => "skip",
            Self::Error => "error",
        }
    }
}

/// What a command line asks for, of which nothing is done yet.
struct Job<'a> {
    arguments: &'a Arguments,
    places: Endpoints,
    document: Document,
    graph: Graph,
    source: ObjectsSource,
    cores: usize,
}

impl<'a> Job<'a> {
    /// What the command line means.
    ///
    /// # Errors
    /// What is wrong with it.
    fn new(arguments: &'a Arguments) -> Result<Self, CliError> {
        arguments.rows.check()?;
        let pace = arguments.pace.pace()?;
        let places = Endpoints::new(&arguments.from, &arguments.to, &arguments.rows)?;
        let document = configuration::of(arguments, &places, pace);
        let mut graph =
            thalweg_engine::read(&document, &thalweg_components::registry()).map_err(CliError::Mistakes)?;
        graph.memory = arguments.memory.unwrap_or(graph.memory);
        let source = ObjectsSource::new(&places.from, arguments.include.clone(), arguments.exclude.clone());
        let cores = arguments.threads.map_or_else(super::cores, usize::from);
        Ok(Self { arguments, places, document, graph, source, cores })
    }

    /// Looks whether there is something to copy.
    ///
    /// # Errors
    /// If there is nothing, or if it would be copied onto itself.
    fn look(&self) -> Result<(), CliError> {
        let mut first = None;
        list::look(&self.source, &mut |below, _, _| {
            first = Some(below.to_owned());
            false
        })?;
        let Some(first) = first else {
            let from = &self.arguments.from;
            return Err(CliError::Failed(format!(
                "there is nothing to copy: nothing is there that `{from}` means"
            )));
        };
        self.places.refuse_itself(&self.source, &first)
    }

    /// What there is of a former copy.
    ///
    /// # Errors
    /// If what has to be removed cannot be.
    fn keep(&self) -> Result<Kept, CliError> {
        let mut kept = Kept::new(self.arguments, &self.places)?;
        if self.arguments.state.restart {
            kept.forget(&self.places)?;
        }
        Ok(kept)
    }

    /// What it came to. What was kept is removed if it is not needed any more.
    ///
    /// # Errors
    /// If it cannot be removed.
    fn figures(&self, outcome: &Outcome, kept: &Kept) -> Result<Figures, CliError> {
        let summary = &outcome.summary;
        let figures = Figures::of(summary, self.arguments.rows.parse.is_some());
        if summary.failure.is_none() && !summary.stopped {
            kept.end(&self.places, figures.is_whole())?;
        }
        Ok(figures)
    }

    /// Whether what could not be copied, if anything, is no failure.
    fn is_done(&self, figures: &Figures) -> bool {
        figures.is_whole() || (self.arguments.rows.parse.is_some() && !self.arguments.strict)
    }
}

pub fn run(arguments: &Arguments) -> Result<Exit, CliError> {
    let job = Job::new(arguments)?;
    if arguments.print_config {
        print::out(&thalweg_config::write(job.document.root(), &Comments::default()))?;
        return Ok(Exit::Done);
    }
    job.look()?;
    if arguments.dry_run {
        list::show(&job)?;
        return Ok(Exit::Done);
    }
    let kept = job.keep()?;
    if kept.goes_on {
        arguments.tell("resuming", "this goes on with a copy that was cut off; `--restart` begins anew");
    }
    let manner = RunOptions {
        cores: job.cores,
        json: arguments.json,
        quiet: arguments.quiet,
        continues: kept.keeping.positions,
        listen: None,
    };
    let outcome = drive(&job.graph, kept.keeping.clone(), manner, None)?;
    job.end(&outcome, &kept)
}

impl Arguments {
    /// Says something on the way.
    fn tell(&self, event: &str, text: &str) {
        if self.json {
            print::err(&format!("{}\n", json!({ "event": event, "message": text })));
        } else if !self.quiet {
            print::err(&format!("{}\n", Paint::stderr().dim(text)));
        }
    }
}

impl Job<'_> {
    /// Says what became of it.
    fn end(&self, outcome: &Outcome, kept: &Kept) -> Result<Exit, CliError> {
        let (arguments, summary) = (self.arguments, &outcome.summary);
        let figures = self.figures(outcome, kept)?;
        if arguments.json {
            print::err(&format!("{}\n", figures.json(outcome)));
        } else if !arguments.quiet {
            let state = kept.keeping.folder.display();
            let command = format!("thalweg errors list --state {state}");
            print::err(&figures.text(outcome, &command, Paint::stderr()));
        }
        match &summary.failure {
            Some(_) if arguments.json => Err(CliError::AlreadyReported),
            Some(failure) => Err(CliError::Failed(failure.to_string())),
            None if summary.stopped => Err(CliError::Failed(match kept.keeping.positions {
                true => "it was told to stop, so not all may be copied; the same command goes on".to_owned(),
                false => "it was told to stop, so not all may be copied".to_owned(),
            })),
            None if !self.is_done(&figures) => Ok(Exit::Errors),
            None => Ok(Exit::Done),
        }
    }
}

//! For programs that run configurations themselves, as the Python package does: what `thalweg run` does before and after a
//! run, and what it shows meanwhile.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use thalweg_config::{ByteSize, Diagnostics, Document};
use thalweg_dialects::capyfile;
use thalweg_engine::{Graph, Handle, Plan, Registry, SourceConfig, StateDir, Summary};
use thalweg_local::sources::internal_logs::InternalLogs;

use crate::commands::check::shown;
use crate::drive::{Outcome, RunOptions};
use crate::exit::CliError;
use crate::load::{Configuration, restrict, state_folder};
use crate::paint::Paint;
use crate::progress::{Progress, Retried, Watching};
use crate::{log, summary};

/// Why a configuration cannot be run.
#[derive(Debug)]
pub enum LoadError {
    /// There are mistakes in it.
    Mistakes(Diagnostics),
    /// What was asked for beside it is wrong: a sentence.
    Usage(String),
    /// It was tried and failed: a sentence.
    Failed(String),
}

impl From<CliError> for LoadError {
    fn from(failure: CliError) -> Self {
        match failure {
            CliError::Mistakes(diagnostics) => LoadError::Mistakes(diagnostics),
            CliError::Usage(text) => LoadError::Usage(text),
            CliError::Failed(text) => LoadError::Failed(text),
            CliError::AlreadyReported | CliError::NobodyReads => LoadError::Failed("it failed".to_owned()),
        }
    }
}

/// What is asked for beside a configuration; it goes before what that says.
#[derive(Debug, Default, Clone)]
pub struct Overrides {
    /// Only these pipelines, with what feeds them; without any, all.
    pub pipelines: Vec<String>,
    /// Where positions and dead letters are kept.
    pub state: Option<PathBuf>,
    /// The memory for data in flight.
    pub memory: Option<ByteSize>,
}

/// A configuration that can be run.
pub struct Ready {
    /// What it says.
    pub graph: Graph,
    /// Where its run keeps what outlives it.
    pub state_dir: StateDir,
}

/// Reads a file as it stands; `-` is the standard input.
///
/// # Errors
/// If it cannot be read, or is no YAML.
pub fn open(path: &Path) -> Result<Document, LoadError> {
    Ok(Configuration { path }.open()?)
}

/// Checks a configuration in any of the forms that `thalweg run` reads. `path` is where it came from: its folder is the one
/// that `state` in it is relative to.
///
/// # Errors
/// What is wrong with it.
pub fn ready(
    document: Document,
    path: &Path,
    registry: &Registry,
    wishes: &Overrides,
) -> Result<Ready, LoadError> {
    if capyfile::is_capyfile(&document) {
        return Err(LoadError::Usage(format!(
            "`{}` is a service definition of capyfile, which has phases that are run one after the other; \
             `python -m thalweg run` does that, and `python -m thalweg convert` makes configurations of it",
            document.name()
        )));
    }
    let configuration = Configuration { path };
    let loaded = Configuration::loaded(document)?;
    let mut graph = configuration.graph_of(&loaded, registry)?;
    restrict(&mut graph, &wishes.pipelines)?;
    graph.memory = wishes.memory.unwrap_or(graph.memory);
    let (folder, positions) =
        state_folder(&configuration.folder(), graph.state.as_deref(), wishes.state.as_deref());
    Ok(Ready { graph, state_dir: StateDir { folder, positions } })
}

/// What `thalweg check` says of a configuration that is right; with `plan`, for how many cores it is planned.
pub fn described(name: &str, graph: &Graph, plan: Option<usize>) -> String {
    let plan = plan.map(|cores| Plan::new(graph, cores));
    shown(name, graph, plan.as_ref(), Paint::off())
}

/// How many cores there are.
pub fn cores() -> usize {
    crate::commands::cores()
}

/// What is shown of a run while it goes on.
pub struct Showing(Watching);

/// Shows a run as `thalweg run` does, on the standard error output: unless it is `quiet`, two lines that change where that is a
/// terminal, and now and then a line elsewhere. Warnings are shown in any case.
///
/// # Errors
/// If the variable that says what is logged is wrong.
pub fn show(graph: &Graph, handle: Handle, quiet: bool) -> Result<Showing, LoadError> {
    let manner = RunOptions { cores: 1, json: false, quiet, continues: false, listen: None };
    let progress = Progress::new(graph, manner);
    let listens = graph.sources.iter().any(|source| source.kind == InternalLogs::NAME);
    log::begin(progress.bars(), false, false, listens)?;
    Ok(Showing(progress.watch(handle)))
}

impl Showing {
    /// Ends it; says what was tried again.
    pub fn end(self) -> Retried {
        self.0.end()
    }
}

/// A summary as `thalweg run --json` tells it.
pub fn summary(summary: Summary, retried: Retried) -> Value {
    let errors = summary::errors(&summary);
    let mut told = summary::json(&Outcome { summary, retried });
    told["errors"] = errors.into();
    told
}

/// How a run goes now.
pub fn statistics(handle: &Handle) -> Value {
    json!({
        "components": handle.counts(),
        "item": handle.item(),
        "budget_used_bytes": handle.budget().used(),
        "budget_limit_bytes": handle.budget().limit(),
        "dead_letters": handle.dead_letters(),
        "stopping": handle.is_stopping(),
    })
}

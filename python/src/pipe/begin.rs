//! Starts a run from a configuration.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use pyo3::prelude::*;
use thalweg_config::{ByteSize, Comments, Document};
use thalweg_frontend::{CheckOptions, Screen, Show, described};
use thalweg_job::{self as job, JobRun, LoadError, Overrides, RunOptions};

use super::objects::{self, Cause, Given};
use super::run::Run;
use crate::errors::{Error, configuration_error, mistaken};
use crate::{attach, logs};

/// The name of a configuration without a file in messages.
const NAME: &str = "configuration";

/// A configuration: a file, or one built in Python, in JSON.
#[derive(FromPyObject)]
pub enum Configuration {
    /// In JSON.
    #[pyo3(transparent)]
    Text(String),
    /// A file.
    #[pyo3(transparent)]
    Path(PathBuf),
}

impl Configuration {
    fn open(&self) -> Result<job::Configuration, LoadError> {
        match self {
            Configuration::Path(path) => job::Configuration::open(path),
            Configuration::Text(json) => {
                // Converted to YAML, so that mistakes are shown in readable text.
                let text = thalweg_config::write(Document::parse(NAME, json)?.root(), &Comments::default());
                Ok(job::Configuration::new(Document::parse(NAME, &text)?, Path::new("")))
            }
        }
    }
}

/// Converts an error into an exception.
pub fn raised(py: Python<'_>, error: LoadError) -> PyErr {
    match error {
        LoadError::Mistakes(mistakes) => {
            let list = serde_json::to_string(&mistakes).unwrap_or_default();
            mistaken(py, mistakes.render(false).trim_end(), &list)
        }
        error if error.is_usage() => configuration_error(py, &error.to_string()),
        error => Error::new_err(error.to_string()),
    }
}

fn overrides(
    py: Python<'_>,
    names: Vec<String>,
    state: Option<PathBuf>,
    memory: Option<String>,
) -> PyResult<Overrides> {
    let memory = memory.map(|text| {
        ByteSize::from_str(&text).map_err(|error| configuration_error(py, &format!("`memory`: {error}")))
    });
    Ok(Overrides { names, state, memory: memory.transpose()? })
}

/// The number of cores to use.
fn cores(threads: Option<u16>) -> usize {
    threads.map_or_else(job::cores, |threads| usize::from(threads.max(1)))
}

/// Starts a run. `show` prints its progress on the standard error output. `letters` is the directory for dead
/// letters of a configuration without a file and without a state directory.
#[pyfunction]
#[pyo3(signature = (config, given, *, pipelines = Vec::new(), state = None, memory = None, threads = None, show = false, letters = None))]
#[allow(clippy::too_many_arguments, reason = "as its users name them")]
pub fn start(
    py: Python<'_>,
    config: Configuration,
    given: Vec<Given>,
    pipelines: Vec<String>,
    state: Option<PathBuf>,
    memory: Option<String>,
    threads: Option<u16>,
    show: bool,
    letters: Option<PathBuf>,
) -> PyResult<Run> {
    attach::prepare(py)?;
    logs::begin(py)?;
    let cause = Cause::default();
    let queues = objects::queues(py, &given);
    let registry = objects::add(py, job::registry(), given, &cause)?;
    let overrides = overrides(py, pipelines, state, memory)?;
    let options = RunOptions { cores: cores(threads), ..RunOptions::default() };
    let started = py.detach(|| {
        let mut job = config.open()?.job(&registry, &overrides)?;
        if let (Configuration::Text(_), Some(letters)) = (&config, letters) {
            let phases = job.phases.iter_mut().map(|phase| &mut phase.state_dir);
            phases.filter(|state| !state.positions).for_each(|state| state.folder.clone_from(&letters));
        }
        let mut screen = Screen::new(Show { quiet: !show, warns: true, ..Show::default() });
        let run = JobRun::prepare(job, options, &mut screen)?;
        Run::begin(run, screen, cause, queues)
    });
    started.map_err(|error| raised(py, error))
}

/// Checks a configuration, and describes it; with `plan`, also its edges and how it will run.
#[pyfunction]
#[pyo3(signature = (config, given, *, plan = false, threads = None))]
pub fn check(
    py: Python<'_>,
    config: Configuration,
    given: Vec<Given>,
    plan: bool,
    threads: Option<u16>,
) -> PyResult<String> {
    let registry = objects::add(py, job::registry(), given, &Cause::default())?;
    let options = CheckOptions { plan, json: false, threads: Some(cores(threads)) };
    let checked = py.detach(|| Ok(described(&config.open()?.check(&registry)?, &options)));
    checked.map_err(|error| raised(py, error))
}

/// Writes a configuration in JSON as a person would write it.
#[pyfunction]
pub fn as_yaml(py: Python<'_>, json: &str) -> PyResult<String> {
    let written = Document::parse(NAME, json)
        .map(|document| thalweg_config::write(document.root(), &Comments::default()));
    written.map_err(|mistakes| raised(py, LoadError::Mistakes(mistakes)))
}

/// The roles and names of all components that come with thalweg.
#[pyfunction]
pub fn kinds() -> Vec<(&'static str, &'static str)> {
    job::registry().iter().map(|known| (known.role.name(), known.name)).collect()
}

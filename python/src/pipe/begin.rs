//! From a configuration to a run.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use pyo3::prelude::*;
use thalweg::embed::{self, LoadError, Overrides, Ready};
use thalweg_config::{ByteSize, Comments, Document};
use thalweg_engine::{Plan, Registry};

use super::objects::{self, Cause, Given};
use super::run::Run;
use crate::attach;
use crate::errors::{Error, configuration_error, mistaken};

/// The name in messages of a configuration that has no file.
const NAME: &str = "configuration";

/// A configuration: a file, or JSON that Python built.
#[derive(FromPyObject)]
pub enum Configuration {
    /// JSON text.
    #[pyo3(transparent)]
    Text(String),
    /// The path of a file.
    #[pyo3(transparent)]
    Path(PathBuf),
}

impl Configuration {
    fn open(&self) -> Result<(Document, &Path), LoadError> {
        match self {
            Configuration::Path(path) => Ok((embed::open(path)?, path)),
            Configuration::Text(json) => {
                let document = |text: &str| Document::parse(NAME, text).map_err(LoadError::Mistakes);
                // Converted to YAML, so that error messages show text that people can read.
                let text = thalweg_config::write(document(json)?.root(), &Comments::default());
                Ok((document(&text)?, Path::new("")))
            }
        }
    }

    fn ready(&self, registry: &Registry, wishes: &Overrides) -> Result<(String, Ready), LoadError> {
        let (document, path) = self.open()?;
        let name = document.name().to_owned();
        Ok((name, embed::ready(document, path, registry, wishes)?))
    }
}

fn raised(py: Python<'_>, refusal: LoadError) -> PyErr {
    match refusal {
        LoadError::Mistakes(mistakes) => {
            let told = serde_json::to_string(&mistakes).unwrap_or_default();
            mistaken(py, mistakes.render(false).trim_end(), &told)
        }
        LoadError::Usage(text) => configuration_error(py, &text),
        LoadError::Failed(text) => Error::new_err(text),
    }
}

fn wishes(
    py: Python<'_>,
    pipelines: Vec<String>,
    state: Option<PathBuf>,
    memory: Option<String>,
) -> PyResult<Overrides> {
    let memory = memory.map(|text| {
        ByteSize::from_str(&text).map_err(|error| configuration_error(py, &format!("`memory`: {error}")))
    });
    Ok(Overrides { pipelines, state, memory: memory.transpose()? })
}

/// Starts a run. `show` enables progress output on standard error.
#[pyfunction]
#[pyo3(signature = (config, given, *, pipelines = Vec::new(), state = None, memory = None, threads = None, show = false))]
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
) -> PyResult<Run> {
    attach::prepare(py)?;
    let cause = Cause::default();
    let registry = objects::add(py, thalweg_components::registry(), given, &cause)?;
    let wishes = wishes(py, pipelines, state, memory)?;
    let cores = threads.map_or_else(embed::cores, |threads| usize::from(threads.max(1)));
    let started = py.detach(|| {
        let (_, Ready { graph, state_dir }) = config.ready(&registry, &wishes)?;
        let run = thalweg_engine::Run::new(Plan::new(&graph, cores), state_dir.clone());
        let run = run.map_err(|error| LoadError::Failed(error.full()))?;
        let run = if state_dir.positions { run.continuing() } else { run };
        let showing = embed::show(&graph, run.handle(), !show)?;
        Run::begin(run, showing, cores, cause)
    });
    started.map_err(|refusal| raised(py, refusal))
}

/// Returns the graph of a configuration, and with `plan` how it would run.
#[pyfunction]
#[pyo3(signature = (config, given, *, plan = false, threads = None))]
pub fn check(
    py: Python<'_>,
    config: Configuration,
    given: Vec<Given>,
    plan: bool,
    threads: Option<u16>,
) -> PyResult<String> {
    let registry = objects::add(py, thalweg_components::registry(), given, &Cause::default())?;
    let cores = threads.map_or_else(embed::cores, |threads| usize::from(threads.max(1)));
    let checked = py.detach(|| {
        let (name, ready) = config.ready(&registry, &Overrides::default())?;
        Ok(embed::described(&name, &ready.graph, plan.then_some(cores)))
    });
    checked.map_err(|refusal| raised(py, refusal))
}

/// Returns a JSON configuration as YAML.
#[pyfunction]
pub fn as_yaml(py: Python<'_>, json: &str) -> PyResult<String> {
    let written = Document::parse(NAME, json)
        .map(|document| thalweg_config::write(document.root(), &Comments::default()));
    written.map_err(|mistakes| raised(py, LoadError::Mistakes(mistakes)))
}

/// Returns the roles and names of all components that come with thalweg.
#[pyfunction]
pub fn kinds() -> Vec<(&'static str, &'static str)> {
    thalweg_components::registry().iter().map(|known| (known.role.name(), known.name)).collect()
}

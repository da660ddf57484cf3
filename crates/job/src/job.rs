//! A job: the phases that one command runs.

use std::path::PathBuf;

use thalweg_config::{ByteSize, Diagnostics, Document};
use thalweg_dialects::Service;
use thalweg_dialects::capyfile::Operations;
use thalweg_engine::{Graph, Schedule, StateDir, Written};

use crate::error::{LoadError, did_you_mean};
use crate::history::ConfigurationId;

/// The phases that one command runs, one after the other.
pub struct Job {
    /// The name of the configuration in messages.
    pub name: String,
    /// The service that the configuration describes, if it is one.
    pub service: Option<Service>,
    /// The processor of the service that was chosen.
    pub processor: Option<String>,
    /// The phases, in order.
    pub phases: Vec<Phase>,
    /// Settings without effect, or with another meaning. Of a configuration in thalweg's own form, what is
    /// probably not meant so; `None` if there is nothing.
    pub remarks: Option<Diagnostics>,
}

/// A graph that runs to its end before the next phase begins.
pub struct Phase {
    /// The components and edges.
    pub graph: Graph,
    /// Where the run keeps checkpoints and dead letters.
    pub state_dir: StateDir,
    /// The processor of a service that this phase is part of.
    pub processor: Option<String>,
    /// The operations of another dialect behind the transforms.
    pub operations: Option<Operations>,
    /// The configuration in the history. Without it, the run leaves no record.
    pub configuration: Option<ConfigurationId>,
    /// The document of the graph in thalweg's own form, after the substitution of variables, if it has one.
    pub document: Option<Document>,
}

impl Phase {
    /// Returns the graph with its document, if it has one.
    #[must_use]
    pub fn written(&self) -> Option<Written> {
        Some(Written { graph: self.graph.clone(), document: self.document.clone()? })
    }
}

impl Job {
    /// Returns when the configuration is to run, if it says so.
    #[must_use]
    pub fn schedule(&self) -> Option<&Schedule> {
        self.phases.first()?.graph.schedule.as_ref()
    }
}

/// Settings beside a configuration, which replace those in it.
#[derive(Debug, Default, Clone)]
pub struct Overrides {
    /// Only these pipelines, with everything that feeds them; all if empty. Of a service, the one processor.
    pub names: Vec<String>,
    /// Where checkpoints and dead letters are kept.
    pub state: Option<PathBuf>,
    /// The budget for data in flight.
    pub memory: Option<ByteSize>,
}

/// Keeps only the pipelines of these names, if names are given.
pub(crate) fn restrict(graph: &mut Graph, names: &[String]) -> Result<(), LoadError> {
    for name in names {
        if graph.pipeline(name).is_none() {
            let known: Vec<&str> = graph.pipelines.iter().map(|pipeline| &*pipeline.name).collect();
            return Err(LoadError::UnknownPipeline { name: name.clone(), help: did_you_mean(name, &known) });
        }
    }
    if !names.is_empty() {
        graph.restrict(names);
    }
    Ok(())
}

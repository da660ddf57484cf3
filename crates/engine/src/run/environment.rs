//! The environment of a run: its components are built with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use thalweg_runtime::ConcurrencyLimit;
use tokio::sync::mpsc;

use super::checkpoints::LazyStore;
use super::edges::{Place, Port};
use super::retries::Retries;
use super::{FileWatcher, Handle, Rehearsal, RunFailure};
use crate::metrics::ComponentMetrics;
use crate::positions::Positions;
use crate::store::Store;
use crate::{Context, Error, Journal, Role, Temporaries};

/// The environment of a run.
pub(super) struct Environment {
    pub(super) handle: Handle,
    pub(super) batch_bytes: usize,
    pub(super) temporary: Temporaries,
    /// Opened when there is something to keep.
    pub(super) store: Arc<LazyStore>,
    /// The same store, open, if the run keeps checkpoints.
    pub(super) checkpoints: Option<Arc<Store>>,
    /// True if sinks append to what former runs wrote.
    pub(super) resumes: bool,
    pub(super) watcher: Option<Arc<dyn FileWatcher>>,
    pub(super) retries: Retries,
    pub(super) drain_timeout: Duration,
    /// How many messages or files each source may send.
    pub(super) limit: Option<u64>,
    /// True if the parts beside each other have as many sources as there are cores.
    pub(super) has_many_sources: bool,
    /// Receives what a dry run would keep. `None` if the run is none.
    pub(super) rehearsal: Option<Arc<dyn Rehearsal>>,
    /// Receives the failures of batches.
    pub(super) failures: mpsc::UnboundedSender<RunFailure>,
    metrics: BTreeMap<Arc<str>, Arc<ComponentMetrics>>,
}

/// The promises that all sources of a group keep.
#[derive(Debug, Clone, Copy)]
pub(super) struct Input {
    /// True if all send again what no checkpoint covers.
    pub(super) resends: bool,
    /// True if all read their input from its beginning in a run without state.
    pub(super) starts_over: bool,
    /// True if all read on at their saved positions in a run with state.
    pub(super) rereads: bool,
}

impl Default for Input {
    fn default() -> Self {
        Self { resends: true, starts_over: true, rereads: true }
    }
}

/// The part of the environment that a [`Run`](super::Run) decides.
pub(super) struct RunSettings {
    pub(super) batch_bytes: usize,
    pub(super) temporary: Temporaries,
    pub(super) keeps_checkpoints: bool,
    pub(super) resumes: bool,
    pub(super) watcher: Option<Arc<dyn FileWatcher>>,
    pub(super) drain_timeout: Duration,
    pub(super) limit: Option<u64>,
    pub(super) has_many_sources: bool,
    pub(super) rehearsal: Option<Arc<dyn Rehearsal>>,
}

impl Environment {
    pub(super) fn new(
        handle: Handle,
        store: Arc<LazyStore>,
        settings: RunSettings,
        failures: mpsc::UnboundedSender<RunFailure>,
    ) -> Result<Self, Error> {
        let checkpoints = if settings.keeps_checkpoints { Some(store.get()?) } else { None };
        let named = handle.metrics.iter().map(|metrics| (metrics.name.clone(), metrics.clone()));
        Ok(Self {
            metrics: named.collect(),
            retries: Retries { stop: handle.stop.clone(), log: handle.retries.clone() },
            batch_bytes: settings.batch_bytes,
            temporary: settings.temporary,
            resumes: settings.resumes,
            watcher: settings.watcher,
            drain_timeout: settings.drain_timeout,
            limit: settings.limit,
            has_many_sources: settings.has_many_sources,
            rehearsal: settings.rehearsal,
            handle,
            store,
            checkpoints,
            failures,
        })
    }

    /// The counters of a component.
    pub(super) fn metrics(&self, name: &Arc<str>) -> Arc<ComponentMetrics> {
        let found = self.metrics.get(name).cloned();
        found.unwrap_or_else(|| ComponentMetrics::new(name.clone(), Role::Transform, ""))
    }

    /// A port of a component.
    pub(super) fn port(&self, name: &Arc<str>, place: Place) -> Option<Arc<Port>> {
        self.handle.taps.port(name, place)
    }

    /// The context that a component of a group is built in.
    pub(super) fn context(&self, name: &Arc<str>, input: Input) -> Context {
        Context {
            name: name.to_string(),
            resumes: self.resumes,
            is_replay: self.store.replays() && self.checkpoints.is_none(),
            resends: input.resends,
            starts_over: input.starts_over,
            rereads: input.rereads,
            batch_bytes: self.batch_bytes,
            memory: self.handle.budget.held_by(name).share(),
            temporary: self.temporary.clone(),
            details: self.metrics(name).details.clone(),
            journal: self.checkpoints.as_ref().map(|store| Journal::new(store.clone(), name)),
            keeps_sequences: false,
            link: None,
        }
    }

    /// The positions of a component, beginning with what a former run saved, if checkpoints are kept.
    pub(super) fn positions(&self, name: &Arc<str>, role: Role) -> Result<Arc<Positions>, Error> {
        let saved = match &self.checkpoints {
            Some(store) => store.positions(name)?,
            None => BTreeMap::new(),
        };
        let positions = Positions::new(name.clone(), role, saved, self.failures.clone());
        match self.checkpoints {
            Some(_) => positions.keep(),
            None => positions.save_none(),
        }
        if self.rehearsal.is_some() {
            positions.freeze();
        }
        Ok(positions)
    }

    /// A limit of at most `most` workers at once, and of no more bytes in them than the budget has.
    pub(super) fn adaptive_limit(&self, most: usize) -> ConcurrencyLimit {
        let limit = ConcurrencyLimit::adaptive(1..=most);
        limit.set_budget(self.handle.budget.limit() as u64);
        limit
    }
}

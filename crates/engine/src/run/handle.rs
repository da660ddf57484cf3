//! A run as seen from outside: its counters, and the requests that can be made to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use thalweg_record::Budget;
use thalweg_runtime::Stop;

use crate::metrics::{ComponentCounts, ComponentMetrics};
use crate::plan::Plan;
use crate::{Flow, Role, Step};

/// A view of a run, and the way to end it. All clones are of the same run.
#[derive(Clone)]
pub struct Handle {
    pub(super) budget: Budget,
    pub(super) stop: Stop,
    pub(super) abort: Stop,
    pub(super) metrics: Arc<Vec<Arc<ComponentMetrics>>>,
    pub(super) letters: Arc<ComponentMetrics>,
    pub(super) retries: Arc<Mutex<Vec<String>>>,
    /// True once all components are built and their tasks are started.
    pub(super) started: Arc<AtomicBool>,
    /// How often the sinks were asked to reopen their files.
    pub(super) reopens: Arc<AtomicU64>,
    item: &'static str,
}

impl Handle {
    pub(super) fn new(plan: &Plan) -> Self {
        let gives_files = |source: &crate::SourceStage| source.node.config.gives() == Flow::Files;
        let mut inputs =
            plan.sources.iter().filter(|source| !plan.is_of_buffer(&source.node.name)).peekable();
        let are_files = inputs.peek().is_some() && inputs.all(gives_files);
        Self {
            budget: Budget::new(plan.memory.as_usize()),
            stop: Stop::default(),
            abort: Stop::default(),
            metrics: Arc::new(metrics_of(plan)),
            letters: ComponentMetrics::new("dead letters".into(), Role::Sink, "dead_letters"),
            retries: Arc::default(),
            started: Arc::default(),
            reopens: Arc::default(),
            item: if are_files { "file" } else { "message" },
        }
    }

    /// Asks the sources to stop. The run drains, and then ends: see
    /// [`Run::drain_timeout`](crate::Run::drain_timeout).
    pub fn stop(&self) {
        self.stop.request();
    }

    /// Ends the run at once. Messages in flight are not acknowledged.
    pub fn abort(&self) {
        self.stop.request();
        self.abort.request();
    }

    /// Asks the sinks to reopen their files: see [`Sink::reopen`](crate::Sink::reopen).
    pub fn reopen(&self) {
        self.reopens.fetch_add(1, Ordering::Relaxed);
        // Sinks wait for this beside their input.
        self.budget.shortage().notify_waiters();
    }

    /// Waits until the run is asked to end at once.
    pub async fn aborted(&self) {
        self.abort.requested().await;
    }

    /// True if the run was asked to stop.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_requested()
    }

    /// True once all components are built and run.
    pub fn is_started(&self) -> bool {
        self.started.load(Ordering::Relaxed)
    }

    /// The budget.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The unit of the counters: `file` if all sources give files, else `message`.
    pub fn item(&self) -> &'static str {
        self.item
    }

    /// The current counters of all components: sources, transforms, sinks.
    pub fn counts(&self) -> Vec<ComponentCounts> {
        self.metrics.iter().map(|metrics| metrics.counts()).collect()
    }

    /// The number of messages kept as dead letters.
    pub fn dead_letters(&self) -> u64 {
        self.letters.counts().rows_in
    }

    /// The number of dead letters that were dropped, the oldest first, because their limit was reached.
    pub fn dead_letters_dropped(&self) -> u64 {
        self.letters.counts().errors
    }

    /// The reason why rejected messages wait, if the store of dead letters is full and drops none.
    pub fn dead_letters_full(&self) -> Option<String> {
        self.letters.counts().retrying
    }

    /// Takes the descriptions of all retries since the last call.
    pub fn take_retries(&self) -> Vec<String> {
        std::mem::take(&mut self.retries.lock())
    }
}

/// The counters of each component of a plan, sources first.
fn metrics_of(plan: &Plan) -> Vec<Arc<ComponentMetrics>> {
    let sources = plan.sources.iter().map(|source| (&source.node.name, Role::Source, source.node.kind));
    let operators = plan.segments.iter().flat_map(|segment| &segment.operators);
    let operators = operators.filter(|operator| !matches!(operator.node.config, Step::Marker));
    let operators = operators.map(|operator| {
        let role = if operator.delivers { Role::Sink } else { Role::Transform };
        (&operator.node.name, role, operator.node.kind)
    });
    let failovers = plan.failovers.iter().map(|failover| (&failover.name, Role::Transform, "failover"));
    let sinks = plan.sinks.iter().map(|sink| (&sink.node.name, Role::Sink, sink.node.kind));
    // A file sink, or the encoder of a sink, is part of each segment that leads to it.
    let mut known = std::collections::BTreeSet::new();
    let mut metrics = Vec::new();
    for (name, role, kind) in sources.chain(operators).chain(failovers).chain(sinks) {
        if known.insert(name) {
            // Messages pass through a buffer: the input is that of other sources, and the output of other
            // sinks.
            let role = if plan.is_of_buffer(name) { Role::Transform } else { role };
            metrics.push(ComponentMetrics::new(name.clone(), role, kind));
        }
    }
    metrics.sort_by_key(|metrics| metrics.role);
    metrics
}

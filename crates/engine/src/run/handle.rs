//! A run as seen from outside: its counters, and the requests that can be made to it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use thalweg_record::Budget;
use thalweg_runtime::Stop;

use super::control::{SourceControl, SourceStatus, UnknownSource};
use super::edges::{EdgeCounts, Ports};
use super::latency::LatencyCounts;
use super::queues::{self, Queue, QueueCounts};
use super::tap::{Tap, TapError, TapRequest, Taps};
use super::traces::{BatchTrace, Traces};
use crate::metrics::{ComponentCounts, ComponentMetrics};
use crate::plan::Plan;
use crate::{Flow, Role, Step};

/// A view of a run, and the way to end it. All clones are of the same run.
///
/// The parts of a graph that may change run beside each other, each with a handle of its own. One handle
/// shows all of them. They share its budget, its taps, and everything else that is not of one part.
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
    /// The components that the next configuration does not have: their sinks finish their output.
    pub(super) removed: Arc<RwLock<BTreeSet<Arc<str>>>>,
    /// In the order of the plan.
    pub(super) sources: Arc<[Arc<SourceControl>]>,
    pub(super) taps: Arc<Taps>,
    pub(super) traces: Arc<Traces>,
    /// The channels, once they are made.
    pub(super) queues: Arc<OnceLock<Vec<Queue>>>,
    /// Those of the parts, if the run has parts.
    parts: Arc<RwLock<Vec<Handle>>>,
    graph: Arc<RwLock<Arc<Value>>>,
    item: &'static str,
    reads_out_of_files: bool,
}

impl Handle {
    pub(super) fn new(plan: &Plan) -> Self {
        let handle = Self::of_parts(plan);
        handle.taps.add(&Ports::of(plan));
        Self {
            metrics: Arc::new(metrics_of(plan)),
            sources: plan.sources.iter().map(SourceControl::of).collect(),
            ..handle
        }
    }

    /// The handle of the parts of a plan, which are [added](Self::add).
    pub(super) fn of_parts(plan: &Plan) -> Self {
        let gives_files = |source: &crate::SourceStage| source.node.config.gives() == Flow::Files;
        let mut inputs =
            plan.sources.iter().filter(|source| !plan.is_of_buffer(&source.node.name)).peekable();
        let are_files = inputs.peek().is_some() && inputs.all(gives_files);
        Self {
            budget: Budget::new(plan.memory.as_usize()),
            stop: Stop::default(),
            abort: Stop::default(),
            metrics: Arc::default(),
            letters: ComponentMetrics::new("dead letters".into(), Role::Sink, "dead_letters"),
            retries: Arc::default(),
            started: Arc::default(),
            reopens: Arc::default(),
            removed: Arc::default(),
            sources: Arc::default(),
            taps: Arc::new(Taps::new(Ports::default())),
            traces: Arc::default(),
            queues: Arc::default(),
            parts: Arc::default(),
            graph: Arc::new(RwLock::new(Arc::new(plan.described()))),
            item: if are_files { "file" } else { "message" },
            reads_out_of_files: plan.segments.iter().any(|segment| segment.file_reader().is_some()),
        }
    }

    /// The handle of one part of this run. It is stopped with this run, and may be stopped alone.
    pub(super) fn part(&self, plan: &Plan) -> Self {
        let stop = Stop::default();
        stop.join(&self.stop);
        Self {
            stop,
            metrics: Arc::new(metrics_of(plan)),
            started: Arc::default(),
            removed: Arc::default(),
            sources: plan.sources.iter().map(SourceControl::of).collect(),
            queues: Arc::default(),
            parts: Arc::default(),
            ..self.clone()
        }
    }

    /// Shows a part.
    pub(super) fn add(&self, part: &Self, ports: &Ports) {
        self.taps.add(ports);
        self.parts.write().push(part.clone());
    }

    /// Shows a part no longer.
    pub(super) fn remove(&self, part: &Self, ports: &Ports) {
        self.parts.write().retain(|other| !Arc::ptr_eq(&other.started, &part.started));
        self.taps.remove(ports);
    }

    /// Shows the graph of another plan.
    pub(super) fn show_graph(&self, plan: &Plan) {
        *self.graph.write() = Arc::new(plan.described());
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

    /// True if the run was asked to end at once.
    pub fn is_aborted(&self) -> bool {
        self.abort.is_requested()
    }

    /// True if the run was asked to stop.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_requested()
    }

    /// True once all components are built and run.
    pub fn is_started(&self) -> bool {
        if self.started.load(Ordering::Relaxed) {
            return true;
        }
        let parts = self.parts.read();
        let are_started = !parts.is_empty() && parts.iter().all(Self::is_started);
        if are_started {
            // It stays so while a part is replaced.
            self.started.store(true, Ordering::Relaxed);
        }
        are_started
    }

    /// The budget.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The unit of the counters: `file` if all sources give files, else `message`.
    pub fn item(&self) -> &'static str {
        self.item
    }

    /// True if messages are read out of files: a dead letter may be a file or a message of one.
    pub fn reads_out_of_files(&self) -> bool {
        self.reads_out_of_files
    }

    /// The current counters of all components: sources, transforms, sinks.
    pub fn counts(&self) -> Vec<ComponentCounts> {
        let parts = self.parts.read();
        if parts.is_empty() {
            return self.metrics.iter().map(|metrics| metrics.counts()).collect();
        }
        let mut metrics: Vec<_> = parts.iter().flat_map(|part| part.metrics.iter()).collect();
        metrics.sort_by_key(|metrics| metrics.role);
        metrics.into_iter().map(|metrics| metrics.counts()).collect()
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

/// The graph while it runs.
impl Handle {
    /// The plan as JSON, without the options of components: `sources`, `segments`, `failovers`, `sinks`,
    /// `memory` (in bytes) and `cores`.
    pub fn graph(&self) -> Arc<Value> {
        self.graph.read().clone()
    }

    /// The traffic of each edge, sorted by the names of the components.
    pub fn edges(&self) -> Vec<EdgeCounts> {
        self.taps.counts()
    }

    /// The bytes that wait before each stage, sorted by the names of the components. Empty until all of them
    /// are built.
    pub fn queues(&self) -> Vec<QueueCounts> {
        let parts = self.parts.read();
        queues::counts(parts.iter().chain([self]).flat_map(|part| part.queues.get().into_iter().flatten()))
    }

    /// How long the batches of each source take until they are settled.
    pub fn latencies(&self) -> Vec<LatencyCounts> {
        self.controls().iter().map(|source| source.latency.counts(&source.name)).collect()
    }

    /// Shows messages that pass. Nothing waits for the tap: what it is too slow for is left out.
    ///
    /// # Errors
    /// If nothing has a name that the request contains, or 16 taps are open.
    pub fn tap(&self, request: TapRequest) -> Result<Tap, TapError> {
        self.taps.open(request, &self.budget)
    }

    /// Traces this part of the batches that sources read from here on, at most 100 in a second: 1 traces all,
    /// 0 none, as from the beginning.
    pub fn trace(&self, ratio: f64) {
        self.traces.sample(ratio);
    }

    /// Takes the traces of batches that were settled since the last call.
    pub fn take_traces(&self) -> Vec<BatchTrace> {
        self.traces.take()
    }

    /// The number of batches that were chosen to be traced and were not: there were too many.
    pub fn traces_left_out(&self) -> u64 {
        self.traces.left_out()
    }

    pub(super) fn end_of_taps(&self) -> EndOfTaps {
        EndOfTaps(self.taps.clone())
    }
}

/// Single sources.
impl Handle {
    /// The state of each source.
    pub fn sources(&self) -> Vec<SourceStatus> {
        let is_started = self.is_started();
        self.controls().iter().map(|source| source.status(is_started)).collect()
    }

    /// Those of all parts.
    fn controls(&self) -> Vec<Arc<SourceControl>> {
        let parts = self.parts.read();
        parts.iter().chain([self]).flat_map(|part| part.sources.iter().cloned()).collect()
    }

    /// Gives a source no memory to read into until it is resumed. The messages that it has read go on. A run
    /// that is asked to stop ends as if the source were not paused. Pausing it again changes nothing.
    ///
    /// # Errors
    /// If there is no such source.
    pub fn pause(&self, source: &str) -> Result<(), UnknownSource> {
        self.source(source).map(|source| source.pause())
    }

    /// Lets a source that was paused read again. Otherwise it changes nothing.
    ///
    /// # Errors
    /// If there is no such source.
    pub fn resume(&self, source: &str) -> Result<(), UnknownSource> {
        self.source(source).map(|source| source.resume())
    }

    /// Asks a source alone to stop, paused or not. It is not read again in this run, and a later run with the
    /// same state continues there. No deadline applies to what it has sent.
    ///
    /// # Errors
    /// If there is no such source.
    pub fn drain(&self, source: &str) -> Result<(), UnknownSource> {
        self.source(source).map(|source| source.stop.request())
    }

    fn source(&self, name: &str) -> Result<Arc<SourceControl>, UnknownSource> {
        let sources = self.controls();
        sources.iter().find(|source| &*source.name == name).cloned().ok_or_else(|| UnknownSource {
            known: sources.iter().map(|source| source.name.to_string()).collect(),
        })
    }
}

/// Ends the taps of a run when it is dropped.
pub(super) struct EndOfTaps(Arc<Taps>);

impl Drop for EndOfTaps {
    fn drop(&mut self) {
        self.0.end();
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
    let mut known = BTreeSet::new();
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

//! The outputs of the components of a run: what left by each of them, and who looks at it.
//!
//! All targets of an output get the same messages. So an output counts once for all its edges, when a batch
//! is routed, and never for a single message.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::Serialize;
use thalweg_record::{Output, name_matches};

use super::tap::{Tappable, Viewers};
use crate::plan::{Destination, Plan, Segment, output_name};

/// An edge of the running graph.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct EdgeCounts {
    /// The component that it leads from.
    pub from: String,
    /// The output that it leads from: `main`, `errors`, or a label.
    pub output: String,
    /// The component that it leads to, or `dead letters`.
    pub to: String,
    /// The messages or files that were sent.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The batches or files that were sent.
    pub batches: u64,
}

/// A place of a component by which messages or files leave or enter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// An output.
    Output(Output),
    /// A way of a failover.
    Way(usize),
    /// The files that a file reader cannot read. Its `errors` are messages.
    Refused,
    /// The input of a sink.
    Input,
}

/// The name of what enters a sink.
const INPUT: &str = "input";
const MAIN: &str = "main";
const ERRORS: &str = "errors";

/// An output of a component, or the input of a sink, with its counters and its viewers.
#[derive(Debug)]
pub(crate) struct Port {
    place: Place,
    pub(super) component: Arc<str>,
    pub(super) output: Arc<str>,
    to: BTreeSet<Arc<str>>,
    messages: AtomicU64,
    bytes: AtomicU64,
    batches: AtomicU64,
    pub(super) viewers: Viewers,
}

impl Port {
    /// Counts content that leaves here, and shows it to those who look at it.
    pub(crate) fn pass(&self, content: &impl Tappable, messages: usize, bytes: usize) {
        if messages == 0 {
            // Only a checkpoint: it goes nowhere.
            return;
        }
        self.messages.fetch_add(messages as u64, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
        self.batches.fetch_add(1, Relaxed);
        self.show(content);
    }

    /// Shows content to those who look at it.
    pub(crate) fn show(&self, content: &impl Tappable) {
        if self.viewers.are_any() {
            self.viewers.show(self, content);
        }
    }

    /// True if what passes here was rejected.
    pub(super) fn rejects(&self) -> bool {
        matches!(self.place, Place::Output(Output::Errors) | Place::Refused)
    }

    /// True if a tap with this name sees what passes here: see
    /// [`TapRequest::edges`](super::TapRequest::edges).
    pub(super) fn is_meant(&self, name: &str) -> bool {
        match name.strip_suffix(".errors") {
            Some(component) if self.rejects() => name_matches(component, &self.component),
            _ if self.rejects() => false,
            // A pipeline that carries rejected files has a component of this name at its end.
            Some(_) => name == &*self.component,
            None => {
                name_matches(name, &self.component)
                    || name_matches(name, &format!("{}.{}", self.component, self.output))
            }
        }
    }

    /// The name by which a tap finds it.
    pub(super) fn name(&self) -> String {
        match self.rejects() {
            true => format!("{}.{ERRORS}", self.component),
            false => self.component.to_string(),
        }
    }
}

/// The ports of all components of a plan. A component that is a part of several segments has them once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ports(BTreeMap<(Arc<str>, Place), Arc<Port>>);

impl Ports {
    pub(crate) fn of(plan: &Plan) -> Self {
        let mut found = Found::default();
        for source in &plan.sources {
            let name = &source.node.name;
            found.output(name, Output::Main, &[], plan.entrances(&source.main));
            found.output(name, Output::Errors, &[], plan.entrances(&source.errors));
        }
        plan.segments.iter().for_each(|segment| found.segment(plan, segment));
        for failover in &plan.failovers {
            for (way, (_, to)) in failover.ways.iter().enumerate() {
                found.add(&failover.name, Place::Way(way), MAIN, plan.entrances(to));
            }
        }
        for sink in &plan.sinks {
            let name = &sink.node.name;
            found.add(name, Place::Input, INPUT, Vec::new());
            found.output(name, Output::Errors, &[], plan.entrances(&sink.errors));
        }
        Self(found.0.into_iter().map(|(key, port)| (key, Arc::new(port))).collect())
    }

    pub(crate) fn get(&self, component: &Arc<str>, place: Place) -> Option<Arc<Port>> {
        self.0.get(&(component.clone(), place)).cloned()
    }

    /// Adds those of a part that begins.
    pub(super) fn add(&mut self, others: &Self) {
        self.0.extend(others.0.iter().map(|(key, port)| (key.clone(), port.clone())));
    }

    /// Removes those of a part that has ended.
    pub(super) fn remove(&mut self, others: &Self) {
        self.0.retain(|key, _| !others.0.contains_key(key));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Port>> {
        self.0.values()
    }

    /// The counters of all edges, sorted.
    pub(super) fn counts(&self) -> Vec<EdgeCounts> {
        let mut edges: BTreeMap<[&str; 3], [u64; 3]> = BTreeMap::new();
        for port in self.iter() {
            let counts = [&port.messages, &port.bytes, &port.batches].map(|counter| counter.load(Relaxed));
            for to in &port.to {
                let edge = edges.entry([&*port.component, &*port.output, &**to]).or_default();
                edge.iter_mut().zip(counts).for_each(|(all, own)| *all += own);
            }
        }
        let edge = |([from, output, to], [messages, bytes, batches]): ([&str; 3], [u64; 3])| EdgeCounts {
            from: from.to_owned(),
            output: output.to_owned(),
            to: to.to_owned(),
            messages,
            bytes,
            batches,
        };
        edges.into_iter().map(edge).collect()
    }
}

/// The ports found so far.
#[derive(Default)]
struct Found(BTreeMap<(Arc<str>, Place), Port>);

impl Found {
    fn segment(&mut self, plan: &Plan, segment: &Segment) {
        for operator in &segment.operators {
            let name = &operator.node.name;
            let labels = operator.node.config.outputs();
            for (output, targets) in &operator.outputs {
                let to = targets.iter().map(|target| plan.entrance_of(segment, *target)).collect();
                self.output(name, *output, &labels, to);
            }
            if operator.delivers {
                self.add(name, Place::Input, INPUT, Vec::new());
            }
        }
        if let Some((reader, _)) = segment.file_reader() {
            let to = plan.entrances(&[Destination::DeadLetters]);
            self.add(&reader.node.name, Place::Refused, ERRORS, to);
        }
    }

    fn output(&mut self, component: &Arc<str>, output: Output, labels: &[String], to: Vec<Arc<str>>) {
        self.add(component, Place::Output(output), &output_name(output, labels), to);
    }

    fn add(&mut self, component: &Arc<str>, place: Place, output: &str, to: Vec<Arc<str>>) {
        let port = self.0.entry((component.clone(), place)).or_insert_with(|| Port {
            place,
            component: component.clone(),
            output: output.into(),
            to: BTreeSet::new(),
            messages: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            viewers: Viewers::default(),
        });
        port.to.extend(to);
    }
}

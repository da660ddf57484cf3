//! The parts of a plan that nothing connects: each has checkpoints of its own.
//!
//! A checkpoint holds back the sources of its group for a moment. With one group for the whole plan, a slow
//! sink would hold back sources that have nothing to do with it.

use std::collections::{BTreeMap, BTreeSet};

use crate::plan::{Destination, Plan};

/// The groups of a plan: stages that messages or files connect. The store of dead letters takes from all and
/// connects none.
pub(super) struct Groups {
    sources: Vec<usize>,
    stages: BTreeMap<Destination, usize>,
    /// The stages from which files reach a file reader. See [`counts`](Self::counts).
    before_readers: BTreeSet<Destination>,
    /// The stages that get what full buffers drop. See [`gets_drops`](Self::gets_drops).
    behind_drops: BTreeSet<Destination>,
    count: usize,
}

impl Groups {
    pub(super) fn of(plan: &Plan) -> Self {
        let edges = edges(plan);
        let mut groups = Self {
            sources: vec![0; plan.sources.len()],
            stages: BTreeMap::new(),
            before_readers: before_readers(plan, &edges),
            behind_drops: behind_drops(plan, &edges),
            count: 0,
        };
        let mut neighbours: BTreeMap<Node, Vec<Node>> = nodes(plan).map(|node| (node, Vec::new())).collect();
        for &(from, to) in edges.iter().filter(|(_, to)| *to != Destination::DeadLetters) {
            neighbours.entry(from).or_default().push(Node::Stage(to));
            neighbours.entry(Node::Stage(to)).or_default().push(from);
        }
        let mut seen = BTreeSet::new();
        for &first in neighbours.keys() {
            if !seen.insert(first) {
                continue;
            }
            let mut open = vec![first];
            while let Some(node) = open.pop() {
                groups.put(node, groups.count);
                let next = neighbours.get(&node).into_iter().flatten().copied();
                open.extend(next.filter(|&node| seen.insert(node)));
            }
            groups.count += 1;
        }
        groups
    }

    fn put(&mut self, node: Node, group: usize) {
        match node {
            Node::Source(number) => self.sources[number] = group,
            Node::Stage(stage) => drop(self.stages.insert(stage, group)),
        }
    }

    /// The number of groups.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The group of the source with this number.
    pub(super) fn of_source(&self, number: usize) -> usize {
        self.sources[number]
    }

    /// The group of a stage.
    pub(super) fn of_stage(&self, stage: Destination) -> usize {
        self.stages.get(&stage).copied().unwrap_or_default()
    }

    /// True if a stage gets messages that a full buffer drops. They come from sources of another group.
    pub(super) fn gets_drops(&self, stage: Destination) -> bool {
        self.behind_drops.contains(&stage)
    }

    /// True if a group has such a stage. Its checkpoints do not cover these messages.
    pub(super) fn has_drops(&self, group: usize) -> bool {
        self.behind_drops.iter().any(|stage| self.of_stage(*stage) == group)
    }

    /// True if items sent to a stage count as moving: a checkpoint waits until they are processed. Not so for
    /// files that lead to a file reader. It is held back like a source, in the middle of a file, so files
    /// would wait for it in vain. They are sent again by a later run, like input that was not read.
    pub(super) fn counts(&self, to: Destination) -> bool {
        !self.before_readers.contains(&to)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Node {
    Source(usize),
    Stage(Destination),
}

fn nodes(plan: &Plan) -> impl Iterator<Item = Node> {
    let stages = (0..plan.segments.len()).map(Destination::Segment);
    let stages = stages.chain((0..plan.failovers.len()).map(Destination::Failover));
    let stages = stages.chain((0..plan.sinks.len()).map(Destination::Sink)).map(Node::Stage);
    (0..plan.sources.len()).map(Node::Source).chain(stages)
}

/// The channels of a plan: who sends, and where.
fn edges(plan: &Plan) -> Vec<(Node, Destination)> {
    let mut edges = Vec::new();
    let mut add = |from: Node, to: &[Destination]| edges.extend(to.iter().map(|&to| (from, to)));
    for (number, source) in plan.sources.iter().enumerate() {
        add(Node::Source(number), &source.main);
        add(Node::Source(number), &source.errors);
    }
    for (number, segment) in plan.segments.iter().enumerate() {
        let targets = segment.operators.iter().flat_map(|operator| operator.outputs.values());
        let stages: Vec<_> =
            targets.flat_map(|targets| targets.iter()).filter_map(|target| target.stage()).collect();
        add(Node::Stage(Destination::Segment(number)), &stages);
    }
    for (number, failover) in plan.failovers.iter().enumerate() {
        failover.ways.iter().for_each(|(_, to)| add(Node::Stage(Destination::Failover(number)), to));
    }
    // Messages that a full buffer drops go to the errors of the sink behind it, and must not connect the two.
    let sinks = plan.sinks.iter().enumerate().filter(|(_, sink)| !plan.is_of_buffer(&sink.node.name));
    for (number, sink) in sinks {
        add(Node::Stage(Destination::Sink(number)), &sink.errors);
    }
    edges
}

/// The file readers, and all stages that lead to one.
fn before_readers(plan: &Plan, edges: &[(Node, Destination)]) -> BTreeSet<Destination> {
    let numbered = plan.segments.iter().enumerate();
    let readers = numbered.filter(|(_, segment)| segment.file_reader().is_some());
    let mut found: BTreeSet<_> = readers.map(|(number, _)| Destination::Segment(number)).collect();
    let mut known = 0;
    while known < found.len() {
        known = found.len();
        for (from, to) in edges {
            if let Node::Stage(from) = from
                && found.contains(to)
            {
                found.insert(*from);
            }
        }
    }
    found
}

/// The stages that get what full buffers drop, directly or through others.
fn behind_drops(plan: &Plan, edges: &[(Node, Destination)]) -> BTreeSet<Destination> {
    let writers = plan.sinks.iter().filter(|sink| plan.is_of_buffer(&sink.node.name));
    let mut open: Vec<Destination> = writers.flat_map(|sink| sink.errors.iter().copied()).collect();
    let mut found = BTreeSet::new();
    while let Some(stage) = open.pop() {
        // The store of dead letters belongs to no group.
        if stage != Destination::DeadLetters && found.insert(stage) {
            let onward = edges.iter().filter(|(from, _)| *from == Node::Stage(stage));
            open.extend(onward.map(|(_, to)| *to));
        }
    }
    found
}

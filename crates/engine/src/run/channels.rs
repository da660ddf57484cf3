//! The channels between the stages of a plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_record::Batch;
use thalweg_runtime::{HandOver, Receiver, Sender, Traffic, channel};

use super::groups::Groups;
use super::queues::Queue;
use crate::Flow;
use crate::parcel::{Files, Parcel};
use crate::plan::{Destination, Plan, Segment};

type Made<P> = BTreeMap<Destination, (Sender<P>, Receiver<P>)>;

/// The channels between the stages of a plan, made when they are first asked for. A stage takes messages or
/// files, as the plan says; the dead letters take both, each by a channel of its own.
pub(super) struct Channels {
    /// In bytes, of each channel.
    limit: usize,
    /// Those of sinks with a buffer in memory, and of segments on the way to a transform with a rate.
    others: BTreeMap<Destination, usize>,
    groups: Groups,
    /// The items that move in each group.
    traffic: Vec<Arc<Traffic>>,
    messages: Made<Batch>,
    files: Made<Files>,
}

/// The channels that a segment leads to.
pub(super) struct Exits<P>(pub(super) BTreeMap<Destination, Sender<P>>);

impl Channels {
    pub(super) fn new(plan: &Plan, groups: Groups) -> Self {
        let limit = plan.batch_bytes.saturating_mul(4);
        let sinks = plan.sinks.iter().enumerate();
        let buffers = sinks.filter_map(|(number, sink)| {
            Some((Destination::Sink(number), sink.memory?.as_usize().max(limit)))
        });
        let paced = plan.pace.channels().map(|(to, bytes)| (to, bytes.min(limit)));
        let others = buffers.chain(paced).collect();
        let traffic = (0..groups.count()).map(|_| Arc::default()).collect();
        Self { limit, others, groups, traffic, messages: BTreeMap::new(), files: BTreeMap::new() }
    }

    pub(super) fn groups(&self) -> &Groups {
        &self.groups
    }

    /// The items that move in a group.
    pub(super) fn traffic(&self, group: usize) -> &Arc<Traffic> {
        &self.traffic[group]
    }

    /// A sender of the group, whose items are counted as moving if they are to be.
    fn counted<P>(&self, sender: &Sender<P>, to: Destination, group: usize) -> Sender<P> {
        if self.groups.counts(to) { sender.counted(&self.traffic[group]) } else { sender.clone() }
    }

    fn messages(&mut self, to: Destination) -> &(Sender<Batch>, Receiver<Batch>) {
        let limit = self.others.get(&to).copied().unwrap_or(self.limit);
        self.messages.entry(to).or_insert_with(|| channel(limit))
    }

    fn files(&mut self, to: Destination) -> &(Sender<Files>, Receiver<Files>) {
        self.files.entry(to).or_insert_with(|| channel(self.limit))
    }

    /// The channels for those who look into them. They are not kept alive for them.
    pub(super) fn queues(&self, plan: &Plan) -> Vec<Queue> {
        let messages = self.messages.iter().map(|(to, (_, receiver))| Queue {
            to: plan.entrance(*to),
            limit: self.others.get(to).copied().unwrap_or(self.limit),
            waiting: Box::new(receiver.gauge()),
        });
        let files = self.files.iter().map(|(to, (_, receiver))| Queue {
            to: plan.entrance(*to),
            limit: self.limit,
            waiting: Box::new(receiver.gauge()),
        });
        messages.chain(files).collect()
    }

    /// A sender for a component of a group.
    pub(super) fn message_sender(&mut self, to: Destination, group: usize) -> Sender<Batch> {
        let sender = self.messages(to).0.clone();
        self.counted(&sender, to, group)
    }

    pub(super) fn message_senders(&mut self, to: &[Destination], group: usize) -> Vec<Sender<Batch>> {
        to.iter().map(|&to| self.message_sender(to, group)).collect()
    }

    pub(super) fn message_receiver(&mut self, to: Destination) -> Receiver<Batch> {
        self.messages(to).1.clone()
    }

    pub(super) fn file_sender(&mut self, to: Destination, group: usize) -> Sender<Files> {
        let sender = self.files(to).0.clone();
        self.counted(&sender, to, group)
    }

    pub(super) fn file_senders(&mut self, to: &[Destination], group: usize) -> Vec<Sender<Files>> {
        to.iter().map(|&to| self.file_sender(to, group)).collect()
    }

    pub(super) fn file_receiver(&mut self, to: Destination) -> Receiver<Files> {
        self.files(to).1.clone()
    }

    /// The channels by which messages leave a segment.
    pub(super) fn message_exits(&mut self, plan: &Plan, segment: &Segment, group: usize) -> Exits<Batch> {
        let stages = stages(plan, segment, Flow::Messages);
        Exits(stages.map(|stage| (stage, self.message_sender(stage, group))).collect())
    }

    /// The channels by which files leave a segment.
    pub(super) fn file_exits(&mut self, plan: &Plan, segment: &Segment, group: usize) -> Exits<Files> {
        let stages = stages(plan, segment, Flow::Files);
        Exits(stages.map(|stage| (stage, self.file_sender(stage, group))).collect())
    }
}

/// The stages outside of a segment that it leads to and that take a flow.
fn stages(plan: &Plan, segment: &Segment, flow: Flow) -> impl Iterator<Item = Destination> {
    let outputs = segment.operators.iter().flat_map(|operator| operator.outputs.values());
    let stages = outputs.flat_map(|targets| targets.iter()).filter_map(|target| target.stage());
    stages.filter(move |&stage| match stage {
        Destination::Segment(number) => plan.segments[number].takes == flow,
        Destination::Sink(_) | Destination::Failover(_) => flow == Flow::Messages,
        // A segment's rejects have the flow of its input.
        Destination::DeadLetters => segment.takes == flow,
    })
}

impl<P: Parcel> Exits<P> {
    pub(super) fn has_room(&self) -> bool {
        self.0.values().all(Sender::has_room)
    }

    /// Waits until there is room in all of them.
    pub(super) async fn room(&self) {
        for exit in self.0.values() {
            exit.room().await;
        }
    }

    /// Hands results over in their order. Work that the next stages take at once is not done here, where the
    /// other workers have to wait, but when `at_once` is run.
    pub(super) fn deliver(&self, results: Vec<(Destination, P)>, at_once: &mut Vec<HandOver>) {
        for (stage, parcel) in results {
            let weight = parcel.weight();
            if let Some(exit) = self.0.get(&stage) {
                // A stage has ended only after it failed, which ends the run. The parcel is then dropped, its
                // ack fails, and its source sends it again in the next run.
                at_once.extend(exit.hand_over(parcel, weight).ok());
            }
        }
    }
}

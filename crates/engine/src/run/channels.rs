//! The channels between stages.

use std::collections::BTreeMap;

use thalweg_record::Parcel;
use thalweg_runtime::{Receiver, Sender, channel};

use crate::plan::{Destination, Segment};

/// The channels between stages, made as they are asked for.
pub(super) struct Channels {
    limit: usize,
    made: BTreeMap<Destination, (Sender<Parcel>, Receiver<Parcel>)>,
}

impl Channels {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, made: BTreeMap::new() }
    }

    fn get(&mut self, to: Destination) -> &(Sender<Parcel>, Receiver<Parcel>) {
        self.made.entry(to).or_insert_with(|| channel(self.limit))
    }

    pub(super) fn sender(&mut self, to: Destination) -> Sender<Parcel> {
        self.get(to).0.clone()
    }

    pub(super) fn receiver(&mut self, to: Destination) -> Receiver<Parcel> {
        self.get(to).1.clone()
    }

    pub(super) fn exits(&mut self, segment: &Segment) -> BTreeMap<Destination, Sender<Parcel>> {
        let outputs = segment.operators.iter().flat_map(|operator| operator.outputs.values());
        let stages = outputs.flat_map(|targets| targets.iter()).filter_map(|target| target.stage());
        stages.collect::<Vec<_>>().into_iter().map(|stage| (stage, self.sender(stage))).collect()
    }
}

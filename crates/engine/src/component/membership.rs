//! Sources that are members of a group, which divides what it reads among them.

use std::collections::BTreeSet;

use super::TransactionPlace;

/// The group that a source is a member of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// The option with the name of the group.
    pub option: &'static str,
    /// The system that has the group.
    pub place: TransactionPlace,
    /// The name of the group.
    pub group: String,
    /// The topics that the source reads, as its options name them.
    pub topics: BTreeSet<String>,
}

impl Membership {
    /// True if both are members of one group, and read different things.
    pub(crate) fn differs(&self, other: &Self) -> bool {
        self.group == other.group && self.place.is(&other.place) && self.topics != other.topics
    }
}

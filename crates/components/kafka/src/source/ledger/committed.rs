//! The offsets that this run has committed in transactions, and the topics that they are of.
//!
//! An ordinary commit has the id of the topic as its text, so that an offset of a topic that was deleted is
//! not taken for one of the topic of the same name. A commit in a transaction could have it as well, but the
//! client sends none there. A broker forgets the offsets of a topic that is deleted. Only a transaction that
//! is committed after that, with records of the old topic, leaves an offset for the new one. So the run
//! remembers what it has committed itself. Of another member, or of a run that was killed, it cannot know.

use std::collections::BTreeMap;

use crate::client::{Partition, Place, TopicId};

/// The offsets that were committed.
#[derive(Default)]
pub(super) struct Committed {
    /// The topics of the partitions when they were last assigned, if brokers tell their ids.
    topics: BTreeMap<Partition, TopicId>,
    /// The last one of each partition.
    places: BTreeMap<Partition, Place>,
}

impl Committed {
    /// Notes the topic of a partition that was assigned.
    pub(super) fn set_topic(&mut self, partition: &Partition, topic: Option<&TopicId>) {
        match topic {
            Some(topic) => self.topics.insert(partition.clone(), topic.clone()),
            None => self.topics.remove(partition),
        };
    }

    /// Notes offsets that were committed.
    pub(super) fn add(&mut self, offsets: BTreeMap<Partition, i64>) {
        for (partition, offset) in offsets {
            let topic = self.topics.get(&partition).cloned();
            self.places.insert(partition, Place { offset, topic });
        }
    }

    /// True if an offset of a partition was committed, and not of a former topic.
    pub(super) fn has(&self, partition: &Partition) -> bool {
        let topic = self.topics.get(partition);
        self.places.get(partition).is_some_and(|place| !are_two(place.topic.as_ref(), topic))
    }

    /// True if this run has committed this offset, of another topic than this one.
    pub(super) fn is_of_former(&self, partition: &Partition, offset: i64, topic: Option<&TopicId>) -> bool {
        let is_former = |place: &Place| place.offset == offset && are_two(place.topic.as_ref(), topic);
        self.places.get(partition).is_some_and(is_former)
    }
}

/// True if these are two topics, as far as their ids are known.
fn are_two(one: Option<&TopicId>, other: Option<&TopicId>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one != other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn committed(topic: Option<&TopicId>, offset: i64) -> (Committed, Partition) {
        let (mut committed, partition) = (Committed::default(), Partition { topic: "t".into(), number: 0 });
        committed.set_topic(&partition, topic);
        committed.add(BTreeMap::from([(partition.clone(), offset)]));
        (committed, partition)
    }

    #[test]
    fn an_offset_of_a_former_topic_is_known_by_its_id() {
        let (old, new): (TopicId, TopicId) = ("a".into(), "b".into());
        let (mut committed, partition) = committed(Some(&old), 7);
        let is_former =
            |committed: &Committed, offset, topic| committed.is_of_former(&partition, offset, topic);
        assert!(is_former(&committed, 7, Some(&new)));
        // Another offset is that of another member, in the new topic.
        assert!(!is_former(&committed, 8, Some(&new)));
        assert!(!is_former(&committed, 7, Some(&old)) && !is_former(&committed, 7, None));
        assert!(committed.has(&partition));
        committed.set_topic(&partition, Some(&new));
        assert!(!committed.has(&partition) && is_former(&committed, 7, Some(&new)));
        committed.add(BTreeMap::from([(partition.clone(), 7)]));
        assert!(committed.has(&partition) && !is_former(&committed, 7, Some(&new)));
    }

    #[test]
    fn without_ids_an_offset_is_of_the_present_topic() {
        let topic: TopicId = "a".into();
        for (before, now) in [(None, None), (None, Some(&topic)), (Some(&topic), None)] {
            let (mut committed, partition) = committed(before, 7);
            committed.set_topic(&partition, now);
            assert!(committed.has(&partition) && !committed.is_of_former(&partition, 7, now));
        }
        let partition = Partition { topic: "t".into(), number: 0 };
        assert!(!Committed::default().has(&partition));
    }
}

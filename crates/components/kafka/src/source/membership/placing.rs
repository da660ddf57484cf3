//! Where a member continues the partitions that it gets.
//!
//! A saved offset is one of a log. A topic that was deleted and created again has another log, of which
//! nothing was read. It has another id, and the offset may not be in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{LOOK, Membership};
use crate::client::{Consumer, Failure, Partition, Place, TopicId};
use crate::source::Start;

/// How long a member asks for the ids of topics if it gets no answer.
const IDS_WAIT: Duration = Duration::from_secs(15);

impl Membership {
    fn saved_in(&self, partition: &Partition) -> Option<Place> {
        Place::of(&self.positions.saved(&partition.name())?)
    }

    pub(super) fn committed_in(&self, partition: &Partition) -> Option<Place> {
        Place::of(&self.positions.committed(&partition.name())?)
    }

    /// Forgets where this run would continue a partition: it is the place in another log. Records of that log
    /// may still be on their way.
    fn disown(&self, partition: &Partition) {
        let saved = self.saved_in(partition).map(|place| place.offset);
        let committed = self.committed_in(partition).map(|place| place.offset);
        let mut state = self.state.lock();
        let (passed, begun) = (state.passed.remove(partition), state.begun.remove(partition));
        let first = saved.into_iter().chain(committed).min().or(begun);
        if let (Some(first), Some(last)) = (first, saved.max(passed)) {
            state.foreign.insert(partition.clone(), first..=last);
        }
    }

    /// Returns where this run continues a partition, if it knows: behind what it sent. Not with a ledger.
    fn known(&self, partition: &Partition) -> Option<i64> {
        if self.ledger.is_some() {
            return None;
        }
        let saved = self.saved_in(partition);
        let state = self.state.lock();
        let saved = saved.and_then(|saved| state.of_present_log(partition, saved));
        let sent = saved.map(|saved| saved.offset).max(state.passed.get(partition).copied());
        // With `start: latest`, records that were read and not sent would be left out.
        sent.or_else(|| state.begun.get(partition).copied())
    }

    /// True if the topic of a partition is another one than before: it was deleted and created again.
    fn is_another(&self, partition: &Partition, topic: Option<&TopicId>) -> bool {
        let before = self.state.lock().topics.get(partition).cloned();
        let before = before.or_else(|| self.saved_in(partition)?.topic);
        topic.zip(before).is_some_and(|(topic, before)| *topic != before)
    }

    /// True if an offset of the group is one of a former topic, which a transaction of this run committed
    /// after that topic was deleted.
    pub(super) fn is_of_former_topic(
        &self,
        partition: &Partition,
        offset: i64,
        topic: Option<&TopicId>,
    ) -> bool {
        self.ledger.as_ref().is_some_and(|ledger| ledger.is_of_former_topic(partition, offset, topic))
    }

    /// Returns the ids of the topics of partitions.
    pub(super) async fn topic_ids(
        &self,
        consumer: &dyn Consumer,
        partitions: &[Partition],
    ) -> BTreeMap<Arc<str>, TopicId> {
        let topics: BTreeSet<Arc<str>> = partitions.iter().map(|partition| partition.topic.clone()).collect();
        let begun = Instant::now();
        loop {
            match consumer.topic_ids(&topics).await {
                Ok(ids) => return ids,
                Err(Failure::Temporary(_)) if begun.elapsed() < IDS_WAIT && !self.positions.is_stopping() => {
                    tokio::time::sleep(LOOK * 10).await;
                }
                Err(failure) => {
                    tracing::warn!(
                        "`{}`: the ids of its topics are not known, so a topic that was deleted and created \
                         again may be taken for the old one: {}",
                        self.positions.name(),
                        failure.reason()
                    );
                    return BTreeMap::new();
                }
            }
        }
    }

    /// True if the partition's log is another one than before, and nothing of it is settled yet.
    fn has_new_log(&self, partition: &Partition) -> bool {
        self.state.lock().foreign.contains_key(partition)
    }

    /// Returns the offset that the group committed in a partition, unless it is one of another topic. Brokers
    /// forget what was committed with a topic, but a member may have committed since.
    async fn of_topic(
        &self,
        consumer: &dyn Consumer,
        partition: &Partition,
        committed: Option<i64>,
        topic: Option<&TopicId>,
    ) -> Result<Option<i64>, Failure> {
        if committed.is_none() || topic.is_none() {
            return Ok(committed);
        }
        let of = consumer.committed_topic(partition).await?;
        Ok(committed.filter(|_| of.is_none() || of.as_ref() == topic))
    }

    /// Begins with a log of which nothing was read, and whose first record has this offset.
    async fn begin_log(&self, consumer: &dyn Consumer, partition: &Partition, first: i64) {
        let sought = match self.start {
            // `latest` would leave out what is in it.
            Start::Earliest | Start::Latest => consumer.seek(partition, first).await,
            Start::Time(time) => consumer.seek_to_time(partition, time).await,
        };
        self.note_unsought(partition, sought);
    }

    /// Continues a new partition where it is to be continued. Returns the offset that the group committed, if
    /// it is one of the partition's log.
    pub(super) async fn place(
        &self,
        consumer: &dyn Consumer,
        partition: &Partition,
        committed: Option<i64>,
        topic: Option<&TopicId>,
    ) -> Result<Option<i64>, Failure> {
        let known = self.known(partition);
        let is_another = self.is_another(partition, topic);
        let is_former =
            committed.is_some_and(|committed| self.is_of_former_topic(partition, committed, topic));
        let committed = committed.filter(|_| !is_former);
        // The partition may be taken away, and come back, before anything of a new log is committed.
        let is_new = is_another || is_former || self.has_new_log(partition);
        let committed = match is_new {
            true => self.of_topic(consumer, partition, committed, topic).await?,
            false => committed,
        };
        // Otherwise it is not known whether the offset of the group is one of the new topic.
        let bounds = match is_another {
            true => Some(consumer.bounds(partition).await?),
            false => self.bounds_without(consumer, partition, known, committed).await,
        };
        let Some((first, end)) = bounds else {
            if is_new && known.is_none() && committed.is_none() {
                let (first, _) = consumer.bounds(partition).await?;
                self.begin_log(consumer, partition, first).await;
                return Ok(None);
            }
            let sought = match (known, committed, self.start) {
                (Some(known), committed, _) if committed.is_none_or(|committed| committed < known) => {
                    consumer.seek(partition, known).await
                }
                (None, None, Start::Time(time)) => consumer.seek_to_time(partition, time).await,
                // The client continues where the group is, or as its own option says.
                _ => Ok(()),
            };
            self.note_unsought(partition, sought);
            return Ok(committed);
        };
        let committed = committed.filter(|committed| (first..=end).contains(committed));
        let (name, shown) = (self.positions.name(), partition.name());
        match known.filter(|_| !is_another) {
            Some(offset) if offset < first => {
                tracing::warn!(
                    "`{name}`: the records {offset} to {} of the partition `{shown}` were deleted before they were \
                     read",
                    first - 1
                );
                if committed.is_none() {
                    let sought = consumer.seek(partition, first).await;
                    self.note_unsought(partition, sought);
                }
                return Ok(committed);
            }
            Some(offset) => tracing::warn!(
                "`{name}`: the partition `{shown}` has the offsets {first} to {end}, but {offset} is saved: its topic \
                 was deleted and created again. It is read from where the group is, or else from its first record, or \
                 from the time that `start` has"
            ),
            None => tracing::warn!(
                "`{name}`: the topic of the partition `{shown}` was deleted and created again. It is read from where \
                 the group is, or else from its first record, or from the time that `start` has"
            ),
        }
        self.disown(partition);
        if committed.is_none() {
            self.begin_log(consumer, partition, first).await;
        }
        Ok(committed)
    }

    /// Returns the bounds of the log of a partition, if the place is not in them where this run would
    /// continue it. A topic that was deleted and created again has another log: what is in it was never read.
    async fn bounds_without(
        &self,
        consumer: &dyn Consumer,
        partition: &Partition,
        known: Option<i64>,
        committed: Option<i64>,
    ) -> Option<(i64, i64)> {
        let offset = known.filter(|known| committed.is_none_or(|committed| committed <= *known))?;
        let (first, end) = consumer.bounds(partition).await.ok()?;
        (!(first..=end).contains(&offset)).then_some((first, end))
    }

    fn note_unsought(&self, partition: &Partition, sought: Result<(), Failure>) {
        if let Err(failure) = sought {
            let (name, partition) = (self.positions.name(), partition.name());
            tracing::warn!("`{name}`: no place in the partition `{partition}`: {}", failure.reason());
        }
    }
}

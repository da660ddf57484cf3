use thalweg_engine::Checkpoint;

use super::*;
use crate::source::tests::{Idle, lent_output};

#[tokio::test]
async fn a_partition_that_comes_back_is_continued_behind_what_was_sent_of_it() {
    let (out, _source) = lent_output().await;
    let partition = Partition { topic: "t".into(), number: 0 };
    let record = |offset: i64| {
        let partition = partition.clone();
        Incoming { partition, offset, timestamp: 0, key: None, value: None, headers: Vec::new() }
    };
    let membership = Arc::new(Membership::new(&out, Start::Earliest, Duration::ZERO, None));
    let consumer = Idle::default();
    membership.assigned(&consumer, vec![partition.clone()]).await;
    let read = [record(5), record(6)];
    for sent in [0, 1] {
        let changes = membership.note(&read);
        assert_eq!(membership.admit(&read[..sent], changes), sent > 0);
        membership.revoked(&consumer, vec![partition.clone()]).await;
        assert!(!membership.admit(&read, changes));
        membership.assigned(&consumer, vec![partition.clone()]).await;
    }
    assert_eq!(*consumer.places.lock(), [5, 6]);
}

#[tokio::test]
async fn an_offset_behind_the_end_of_the_log_is_not_continued() {
    let (out, _source) = lent_output().await;
    let partition = Partition { topic: "t".into(), number: 0 };
    let record = Incoming {
        partition: partition.clone(),
        offset: 6,
        timestamp: 0,
        key: None,
        value: None,
        headers: Vec::new(),
    };
    for (start, first, end, sought, places) in [
        (Start::Time(9), 0, 6, vec![9], vec![]),
        (Start::Latest, 2, 6, vec![], vec![2]),
        (Start::Time(9), 0, 7, vec![], vec![7]),
        // The first records of the log were deleted.
        (Start::Time(9), 8, 20, vec![], vec![8]),
    ] {
        let membership = Arc::new(Membership::new(&out, start, Duration::ZERO, None));
        let read = [record.clone()];
        membership.assigned(&Idle::default(), vec![partition.clone()]).await;
        assert!(membership.admit(&read, membership.note(&read)));
        membership.revoked(&Idle::default(), vec![partition.clone()]).await;
        let consumer = Idle { first, end: Some(end), ..Idle::default() };
        membership.assigned(&consumer, vec![partition.clone()]).await;
        assert_eq!((&*consumer.sought.lock(), &*consumer.places.lock()), (&sought, &places));
    }
}

#[tokio::test]
async fn a_place_in_a_topic_that_was_created_again_is_not_continued() {
    let partition = Partition { topic: "t".into(), number: 0 };
    let old = Place { offset: 7, topic: Some("a".into()) };
    for (topic, group, places) in [
        // The same topic, a broker without ids, and another topic.
        (Some("a"), None, vec![7]),
        (None, None, vec![7]),
        (Some("b"), None, vec![0]),
        // The group has read the new topic, or it is not known whether it has, or it has read the old one.
        (Some("b"), Some((5, Some("b"))), vec![]),
        (Some("b"), Some((5, None)), vec![]),
        (Some("b"), Some((5, Some("a"))), vec![0]),
    ] {
        let (out, _source) = lent_output().await;
        out.checkpoint(Checkpoint { partition: partition.name().into(), offset: old.value() });
        let membership = Arc::new(Membership::new(&out, Start::Earliest, Duration::ZERO, None));
        let consumer = Idle { topic, group, ..Idle::default() };
        membership.assigned(&consumer, vec![partition.clone()]).await;
        assert_eq!(*consumer.places.lock(), places, "{topic:?} {group:?}");
        // The offset of the old topic is not committed for the new one.
        let is_old = topic != Some("b");
        assert_eq!(membership.settled().get(&partition), is_old.then_some(&old));
    }
}

/// The group's offset in the topic that was deleted was taken for one in the new topic.
#[tokio::test]
async fn a_topic_that_was_created_again_is_begun_again_if_its_partition_comes_back_unread() {
    let partition = Partition { topic: "t".into(), number: 0 };
    let old = Place { offset: 7, topic: Some("a".into()) };
    let record = Incoming {
        partition: partition.clone(),
        offset: 2,
        timestamp: 0,
        key: None,
        value: None,
        headers: Vec::new(),
    };
    for (start, group) in [(Start::Earliest, Some((5, Some("a")))), (Start::Latest, None)] {
        let (out, _source) = lent_output().await;
        out.checkpoint(Checkpoint { partition: partition.name().into(), offset: old.value() });
        let membership = Arc::new(Membership::new(&out, start, Duration::ZERO, None));
        let consumer = Idle { topic: Some("b"), first: 2, group, ..Idle::default() };
        for _ in 0..2 {
            membership.assigned(&consumer, vec![partition.clone()]).await;
            membership.revoked(&consumer, vec![partition.clone()]).await;
        }
        assert_eq!(*consumer.places.lock(), [2, 2], "{start:?}");
        // From the first record that was read, and not sent.
        membership.note(std::slice::from_ref(&record));
        membership.assigned(&consumer, vec![partition.clone()]).await;
        assert_eq!(*consumer.places.lock(), [2, 2, 2], "{start:?}");
    }
}

#[tokio::test]
async fn a_partition_begins_at_start_only_if_the_group_is_known_to_have_committed_nothing() {
    let (out, _source) = lent_output().await;
    let partition = Partition { topic: "t".into(), number: 0 };
    let lost = || Failure::Lost("the member is unknown".to_owned());
    let failing = Idle { failure: Some(lost), ..Idle::default() };
    for (consumer, sought) in [(failing, vec![]), (Idle::default(), vec![7])] {
        let membership = Arc::new(Membership::new(&out, Start::Time(7), Duration::ZERO, None));
        membership.assigned(&consumer, vec![partition.clone()]).await;
        assert_eq!(*consumer.sought.lock(), sought);
        assert_eq!(membership.has_partitions(), membership.take_unplaced().is_none());
    }
}

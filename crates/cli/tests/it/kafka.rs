//! Runs that share a topic, and a broker that fails, as users have them.

use thalweg_testbed::{Kafka, Record};

use crate::brokers::{self, Hangs};
use crate::common::House;

const RECORDS: u32 = 30_000;
const PARTITIONS: u32 = 6;

/// Members of a group are killed and started, connections are cut, and the broker crashes.
#[test]
fn members_of_a_group_that_are_killed_lose_no_record() {
    let mut kafka = Kafka::start(PARTITIONS).unwrap();
    let record = |number: u32| {
        Record::new("numbers", number.to_string()).partition((number % PARTITIONS).cast_signed())
    };
    kafka.store((0..RECORDS).map(record)).unwrap();
    let address = kafka.relayed_address();
    let source = |_: usize| {
        format!("kafka: {{ brokers: '{address}', topics: numbers, group: g, session_timeout: 6s }}")
    };
    let progress = |kafka: &Kafka| format!("{:?}", kafka.committed("g", "numbers", PARTITIONS));
    brokers::members_that_are_killed_lose_nothing(&mut kafka, Hangs::No, RECORDS, source, progress);
    // A partition may have been given up with records that a member had delivered and not committed.
    brokers::read_to_the_end(&House::with(&[]), &source(9));
    let committed = kafka.committed("g", "numbers", PARTITIONS).unwrap();
    assert_eq!(committed, vec![Some(i64::from(RECORDS / PARTITIONS)); PARTITIONS as usize]);
}

/// The sink waits for a broker that is down, within its memory, and stores what it got in order.
#[test]
fn a_sink_waits_for_a_broker_that_is_down_without_loss_and_within_the_memory() {
    let mut kafka = Kafka::start(1).unwrap();
    let sink = format!(
        "kafka: {{ brokers: '{}', topic: t, timeout: 1s, compression: lz4 }}",
        kafka.relayed_address()
    );
    brokers::a_sink_waits(&mut kafka, &sink);
    let records = kafka.records("t").unwrap();
    brokers::assert_all_in_order(records.iter().map(|record| record.value.as_deref().unwrap()));
}

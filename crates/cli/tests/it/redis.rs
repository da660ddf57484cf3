//! Runs that share a group, and a server that fails, as users have them.

use std::collections::BTreeSet;

use thalweg_testbed::Redis;

use crate::brokers::{self, Hangs};
use crate::common::House;

const MESSAGES: u32 = 30_000;

/// Processes are killed and started, connections are cut, and the server crashes and hangs.
#[test]
fn processes_that_share_a_group_and_are_killed_lose_no_entry() {
    let mut redis = Redis::start().unwrap();
    let numbers: Vec<String> = (0..MESSAGES).map(|number| number.to_string()).collect();
    redis.call(&["XGROUP", "CREATE", "numbers", "g", "0", "MKSTREAM"]).unwrap();
    redis
        .call_all(numbers.iter().map(|number| vec!["XADD", "numbers", "*", "payload", number.as_str()]))
        .unwrap();
    let address = redis.relayed_address();
    let source = |run: usize| {
        format!(
            "redis: {{ servers: '{address}', stream: numbers, group: g, consumer: 'c{run}', consumer_timeout: 2s, \
             timeout: 2s }}"
        )
    };
    let progress = |redis: &Redis| format!("{:?} are pending", redis.pending("numbers", "g"));
    brokers::members_that_are_killed_lose_nothing(&mut redis, Hangs::Yes, MESSAGES, source, progress);
    // Entries that a run was about to read again go to another one.
    brokers::read_to_the_end(&House::with(&[]), &source(9));
    assert_eq!(redis.pending("numbers", "g").unwrap(), 0);
}

/// The sink waits for a server that is down, within its memory, and stores what it got in order.
#[test]
fn a_sink_waits_for_a_redis_server_that_is_down_without_loss_and_within_the_memory() {
    let mut redis = Redis::start().unwrap();
    let sink =
        format!("redis: {{ servers: '{}', command: rpush, key: l, timeout: 1s }}", redis.relayed_address());
    brokers::a_sink_waits(&mut redis, &sink);
    let stored = redis.call(&["LRANGE", "l", "0", "-1"]).unwrap().texts();
    // A message that was sent when a connection broke may be there twice: what is new is in order.
    let mut seen = BTreeSet::new();
    brokers::assert_all_once(stored.iter().filter(|line| seen.insert(line.as_str())));
}

//! Processes that share the messages of a group or a list.

use std::collections::BTreeSet;

use super::*;

/// Two runs read what another one stores, while connections are cut, runs die, and the server crashes and
/// hangs. Returns the server, and how many messages came again.
async fn disturbed(mut redis: Redis, input: impl Fn(usize) -> String, count: u32) -> (Redis, u32) {
    let address = redis.relayed_address();
    let start = |run: usize| {
        let input = input(run);
        let yaml = format!("{{ servers: '{address}', {input}, fetch_size: 16KiB, timeout: 1s }}");
        start(&yaml, 64)
    };
    let (mut seen, mut repeated) = (BTreeSet::new(), 0);
    let mut members = vec![start(0), start(1)];
    let (mut step, patience) = (0, Patience::begin());
    while seen.len() < count as usize {
        for member in &members {
            for number in member.take_numbers(Duration::from_millis(20)).await.into_iter().flatten() {
                repeated += u32::from(!seen.insert(number));
            }
        }
        patience.check(|| format!("{} of {count} messages", seen.len()));
        match (step, seen.len()) {
            (0, 300..) => redis.cut(),
            (1, 800..) => {
                members.remove(0).task.abort();
                members.insert(0, start(0));
            }
            (2, 1200..) => block_in_place(|| {
                redis.kill().unwrap();
                redis.restart().unwrap();
            }),
            (3, 1600..) => {
                redis.hang().unwrap();
                tokio::time::sleep(Duration::from_secs(2)).await;
                redis.wake().unwrap();
            }
            _ => continue,
        }
        step += 1;
    }
    assert!(step >= 3, "{step}");
    for member in members {
        member.stop.request();
        assert!(member.finish().await.result.is_none());
    }
    (redis, repeated)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_share_a_group_lose_no_entry() {
    let count = 2000;
    let redis = numbered(count);
    let input = |run| format!("stream: s, group: g, consumer: 'c{run}', consumer_timeout: 1s");
    let (redis, repeated) = disturbed(redis, input, count).await;
    // Those repeat whose acknowledgement was lost with a process or the server.
    assert!(repeated < count, "{repeated}");
    let yaml = format!("{{ servers: '{}', {}, end_after_idle: 100ms }}", redis.address(), input(0));
    assert!(testing::read_all::<RedisSource>(&yaml, 1 << 16).await.result.is_none());
    until_pending(&redis, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_share_a_list_lose_no_element() {
    let count = 2000;
    let redis = numbered(count);
    let input = |run| format!("list: l, consumer: 'c{run}'");
    let (redis, repeated) = disturbed(redis, input, count).await;
    assert!(repeated < count, "{repeated}");
    // Elements that a broken connection left there are read by a later run.
    for run in 0..2 {
        let yaml = format!(
            "{{ servers: '{}', list: l, consumer: 'c{run}', end_after_idle: 100ms }}",
            redis.address()
        );
        assert!(testing::read_all::<RedisSource>(&yaml, 1 << 16).await.result.is_none());
        until_length(&redis, &format!("{{l}}:processing:c{run}"), 0).await;
    }
}

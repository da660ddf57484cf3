mod sharing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::block_in_place;

use thalweg_config::ByteSize;
use thalweg_engine::testing::{
    self, Arrived, RunningSource, messages, numbers, options, payloads, refused, rows,
};
use thalweg_engine::{Component, SourceConfig};
use thalweg_record::{Batch, Outcome};
use thalweg_testbed::{Patience, Redis, RedisValue};

use super::RedisSource;
use super::keeper::Keeper;
use super::list::Elements;
use super::pending::Place;

fn start(yaml: &str, batch_bytes: usize) -> RunningSource {
    testing::start_retried::<RedisSource>(yaml, batch_bytes)
}

/// Returns the fields of messages.
fn fields(batches: &[Batch]) -> Vec<Value> {
    batches.iter().flat_map(|batch| rows(batch.fields())).collect()
}

/// Returns rejected messages with their reasons.
fn rejected(batches: &[Batch]) -> Vec<(String, String)> {
    let reasons = fields(batches).into_iter().map(|row| row["error_reason"].as_str().unwrap().to_owned());
    batches.iter().flat_map(payloads).zip(reasons).collect()
}

/// A server with the stream `s` and the list `l`, which have messages with these numbers.
fn numbered(count: u32) -> Redis {
    let redis = Redis::start().unwrap();
    let numbers: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    block_in_place(|| {
        redis.call(&["XGROUP", "CREATE", "s", "g", "0", "MKSTREAM"]).unwrap();
        redis.call_all(numbers.iter().map(|number| vec!["XADD", "s", "*", "payload", number])).unwrap();
        redis.call_all(numbers.iter().map(|number| vec!["RPUSH", "l", number])).unwrap();
    });
    redis
}

fn call(redis: &Redis, words: &[&str]) -> RedisValue {
    block_in_place(|| redis.call(words).unwrap())
}

/// Waits until the group `g` has this many entries without an acknowledgement.
async fn until_pending(redis: &Redis, expected: i64) {
    let patience = Patience::begin();
    loop {
        let pending = block_in_place(|| redis.pending("s", "g").unwrap());
        if pending == expected {
            return;
        }
        patience.check(|| format!("{pending} are pending, and not {expected}"));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until a key has this many elements.
async fn until_length(redis: &Redis, key: &str, expected: i64) {
    let patience = Patience::begin();
    while call(redis, &["LLEN", key]) != RedisValue::Number(expected) {
        patience.check(|| format!("`{key}` has {:?}", call(redis, &["LRANGE", key, "0", "10"])));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn two_consumers_of_one_name_claim_the_same() {
    let meet = |one: &str, other: &str| {
        let [one, other] = [one, other].map(|yaml| options::<RedisSource>(yaml).claims().remove(0));
        one.meets(&other)
    };
    let stream = "{ servers: [h, i], stream: s, group: g }";
    assert!(meet(stream, "{ servers: 'redis://h:6379', stream: s, group: g }"));
    assert!(!meet(stream, "{ servers: h, stream: s, group: g, consumer: b }"));
    assert!(!meet(stream, "{ servers: h, stream: s, group: g, database: 1 }"));
    assert!(!meet(stream, "{ servers: h, stream: t, group: g }"));
    assert!(!meet("{ servers: h, stream: s, group: 'g h' }", "{ servers: h, stream: 's g', group: h }"));
    assert!(meet("{ servers: h, list: l }", "{ servers: h, list: l }"));
    let moved = "{ servers: h, list: l, processing_list: p }";
    assert!(meet(moved, "{ servers: h, list: m, processing_list: p, consumer: b }"));
    assert_eq!(options::<RedisSource>(moved).claims()[0].option, "processing_list");
    assert!(options::<RedisSource>("{ servers: h, channels: c }").claims().is_empty());
}

#[test]
fn what_is_probably_not_meant_is_remarked() {
    let remarks = |yaml: &str| messages(options::<RedisSource>(yaml).remarks());
    let pattern = "`news.*` is read as the name of one channel.";
    assert_eq!(remarks("{ servers: h, channels: 'news.*' }"), [pattern]);
    assert_eq!(remarks("{ servers: h, pattern: 'news.*' }"), [""; 0]);
    let source = options::<RedisSource>("{ servers: h, list: l, fetch_size: 2GiB }");
    let large = "`fetch_size` is 2GiB, more than `memory`: 1GiB.";
    assert_eq!(messages(source.check_memory(ByteSize::gib(1))), [large]);
    assert_eq!(messages(source.check_memory(ByteSize::gib(2))), [""; 0]);
}

#[test]
fn options_that_cannot_work_are_mistakes() {
    for (yaml, expected) in [
        ("{ servers: h }", "The source reads a stream, a list or channels."),
        ("{ servers: h, stream: s, group: g, list: l }", "The source reads a stream, a list or channels."),
        ("{ servers: h, stream: s }", "A stream is read by a group."),
        ("{ servers: h, list: l, group: g }", "Only a stream has groups."),
        ("{ servers: h, channels: c, take_from: right }", "Only a list has two sides."),
        ("{ servers: h, list: l, start: new }", "Only a group of a stream has a beginning."),
        (
            "{ servers: h, list: l, processing_list: l }",
            "The elements on their way are in a list of their own.",
        ),
        ("{ servers: h, channels: c, processing_list: l }", "Only elements of a list are moved."),
        ("{ servers: h, channels: c, fields: [id] }", "A message has no `id`."),
        ("{ servers: h, stream: '', group: g }", "`stream` is empty."),
        ("{ servers: h, channels: [c, ''] }", "`channels` is empty."),
        ("{ servers: h, list: l, payload_field: p }", "Only an entry of a stream has fields."),
        (
            "{ servers: h, list: l, consumer_timeout: 2m }",
            "Only a group of a stream gives entries of one consumer to another.",
        ),
        (
            "{ servers: h, channels: c, consumer: a }",
            "Each subscriber of a channel gets all messages: they have no names.",
        ),
        ("{ servers: h, channels: c, retry_delay: 5s }", "Messages of channels cannot be read again."),
        ("{ servers: h, list: l, retry_delay: 0s }", "The source would read a message again without end."),
        ("{ servers: h, list: l, fetch_size: 0B }", "The source cannot ask for messages of 0 bytes."),
        (
            "{ servers: h, list: l, max_message_bytes: 0B }",
            "`max_message_bytes` is 0B, but must be between 1 and 1GiB.",
        ),
        (
            "{ servers: h, stream: s, group: g, consumer_timeout: 1ms }",
            "A consumer needs more time for a sign of life.",
        ),
    ] {
        assert_eq!(messages(options::<RedisSource>(yaml).check()), [expected], "{yaml}");
    }
    let found = refused::<RedisSource>("{ servers: h, stream: s, group: g, start: now }");
    assert!(found.contains("`now` is none of `all`"), "{found}");
}

#[test]
fn elements_on_their_way_are_where_a_cluster_keeps_the_list() {
    let processing =
        |list: &str| options::<RedisSource>("{ servers: h, list: l, consumer: c }").processing(list).unwrap();
    assert_eq!(
        (processing("a"), processing("{a}b")),
        ("{a}:processing:c".into(), "{a}b:processing:c".into())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_entries_are_fields_and_a_later_run_continues_where_the_group_is() {
    let redis = Redis::start().unwrap();
    let large = "x".repeat(5000);
    block_in_place(|| {
        redis.call(&["XADD", "s", "1-1", "payload", "first", "trace", "t1"]).unwrap();
        redis.call(&["XADD", "s", "2-1", "payload", &large]).unwrap();
        redis.call(&["XADD", "s", "3-1", "a", "1", "b", "2"]).unwrap();
    });
    let yaml = |group: &str, more: &str| {
        format!(
            "{{ servers: '{}', stream: s, group: {group}, max_message_bytes: 4999, end_after_idle: 300ms, \
             fields: [id, time, stream, field.trace]{more} }}",
            redis.address()
        )
    };
    let sent = testing::read_all::<RedisSource>(&yaml("g", ""), 1 << 16).await;
    assert!(sent.result.is_none(), "{:?}", sent.result);
    assert_eq!(sent.payloads(), ["first", r#"{"a":"1","b":"2"}"#]);
    let shown: Vec<String> = fields(&sent.main).iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            r#"{"id":"1-1","time":1000,"stream":"s","field.trace":"t1"}"#,
            r#"{"id":"3-1","time":3000,"stream":"s"}"#,
        ]
    );
    let errors = rejected(&sent.errors);
    let [(payload, reason)] = &errors[..] else { panic!("{errors:?}") };
    assert_eq!(payload.len(), 4096);
    assert_eq!(reason, "the message has 5007 bytes, more than `max_message_bytes` (4999)");
    until_pending(&redis, 0).await;
    call(&redis, &["XADD", "s", "4-1", "payload", "new"]);
    for (group, start, expected) in [
        ("g", "", &["new"][..]),
        ("h", ", start: '2-1'", &[r#"{"a":"1","b":"2"}"#, "new"]),
        ("i", ", start: new", &[]),
    ] {
        let sent = testing::read_all::<RedisSource>(&yaml(group, start), 1 << 16).await;
        assert_eq!(sent.payloads(), expected, "{start}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_settled_entries_are_acknowledged_and_others_are_not_claimed_meanwhile() {
    let redis = numbered(100);
    let yaml = |consumer: &str| {
        format!(
            "{{ servers: '{}', stream: s, group: g, consumer: {consumer}, consumer_timeout: 1s, end_after_idle: 300ms }}",
            redis.address()
        )
    };
    let source = start(&yaml("a"), 20);
    let mut open = Vec::new();
    while open.iter().map(Batch::rows).sum::<usize>() < 100 {
        open.push(source.take_batch(Duration::from_secs(30)).await.unwrap());
    }
    let second = open.remove(1);
    let (left, expected) = (second.rows() as i64, numbers(&second));
    open.into_iter().for_each(|batch| batch.settle(Outcome::Delivered));
    until_pending(&redis, left).await;
    // Another consumer would have claimed it several times.
    let other = start(&yaml("b"), 20);
    assert!(other.take_batch(Duration::from_secs(4)).await.is_none());
    // A consumer that dies leaves its entries to the others.
    source.task.abort();
    let mut found = Vec::new();
    while found.len() < expected.len() {
        found.extend(other.take_numbers(Duration::from_secs(30)).await.unwrap());
    }
    assert_eq!(found, expected);
    second.settle(Outcome::Delivered);
    let sent = other.finish().await;
    assert!(sent.result.is_none() && sent.main.is_empty(), "{:?}", sent.result);
    until_pending(&redis, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_checkpoint_covers_is_acknowledged_and_not_sent_on_again() {
    let redis = numbered(3);
    let yaml = format!(
        "{{ servers: '{}', stream: s, group: g, consumer: a, end_after_idle: 300ms }}",
        redis.address()
    );
    let source = start(&yaml, 1 << 16);
    let batch = source.take_batch(Duration::from_secs(30)).await.unwrap();
    assert_eq!(numbers(&batch), [0, 1, 2]);
    source.task.abort();
    // The checkpoint of a run whose acknowledgements the server does not have.
    let pending = call(&redis, &["XPENDING", "s", "g", "-", "+", "10"]);
    let RedisValue::List(pending) = pending else { panic!("{pending:?}") };
    let ids: Vec<String> = pending.iter().map(|entry| entry.texts()[0].clone()).collect();
    let saved = BTreeMap::from([("s/g/0123".to_owned(), json!([ids[0], ids[2]]))]);
    let sent = testing::start::<RedisSource>(&yaml, 1 << 16, saved).finish().await;
    assert_eq!(sent.payloads(), ["1"]);
    until_pending(&redis, 0).await;
    batch.settle(Outcome::Delivered);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_that_have_no_room_beside_others_are_read_and_deleted_ones_are_left_out() {
    let redis = Redis::start().unwrap();
    let large: Vec<String> = (0..20).map(|number| format!("{number:060000}")).collect();
    block_in_place(|| {
        redis.call(&["XADD", "s", "1-1", "payload", "deleted"]).unwrap();
        redis.call(&["XGROUP", "CREATE", "s", "g", "0"]).unwrap();
        redis.call(&["XREADGROUP", "GROUP", "g", "dead", "STREAMS", "s", ">"]).unwrap();
        redis.call(&["XDEL", "s", "1-1"]).unwrap();
        redis.call_all(large.iter().map(|text| vec!["XADD", "s", "*", "payload", text])).unwrap();
        redis.call_all(large.iter().map(|text| vec!["RPUSH", "l", text])).unwrap();
    });
    for input in ["stream: s, group: g, consumer_timeout: 1s", "list: l"] {
        let yaml = format!(
            "{{ servers: '{}', {input}, fetch_size: 256KiB, end_after_idle: 300ms }}",
            redis.address()
        );
        let sent = testing::read_all::<RedisSource>(&yaml, 1 << 16).await;
        assert!(sent.result.is_none(), "{input}: {:?}", sent.result);
        let mut found = sent.payloads();
        found.sort();
        assert!(found == large, "{input}: {} messages", found.len());
    }
    until_pending(&redis, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elements_stay_in_a_second_list_until_they_are_settled_and_a_restarted_run_reads_them_first() {
    let redis = numbered(10);
    let large = "y".repeat(5000);
    call(&redis, &["RPUSH", "l", &large]);
    call(&redis, &["RPUSH", "l", "10"]);
    let yaml = format!(
        "{{ servers: '{}', list: l, consumer: c, processing_list: p, max_message_bytes: 4999, fields: [list], \
         end_after_idle: 300ms }}",
        redis.address()
    );
    // Each batch has one message.
    let source = start(&yaml, 1);
    let first = source.take_batch(Duration::from_secs(30)).await.unwrap();
    let second = source.take_batch(Duration::from_secs(30)).await.unwrap();
    assert_eq!((numbers(&first), numbers(&second)), (vec![0], vec![1]));
    until_length(&redis, "p", 12).await;
    second.settle(Outcome::Delivered);
    until_length(&redis, "p", 11).await;
    source.task.abort();
    first.settle(Outcome::Delivered);
    let sent = testing::read_all::<RedisSource>(&yaml, 1 << 16).await;
    assert_eq!(sent.payloads(), ["0", "2", "3", "4", "5", "6", "7", "8", "9", "10"]);
    assert_eq!(fields(&sent.main)[0], json!({ "list": "l" }));
    let reason = "the message has 5000 bytes, more than `max_message_bytes` (4999)".to_owned();
    assert_eq!(rejected(&sent.errors), [("y".repeat(4096), reason)]);
    until_length(&redis, "p", 0).await;
    // From the other side.
    call(&redis, &["RPUSH", "l", "1", "2"]);
    let yaml = yaml.replace("list: l,", "list: l, take_from: right,");
    assert_eq!(testing::read_all::<RedisSource>(&yaml, 1 << 16).await.payloads(), ["2", "1"]);
}

/// The source waited for the settlements, and they for the end of the source.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_may_end_does_so_if_elements_are_settled_only_at_the_end() {
    // As many batches as may be are on their way; or as much as is read at once of what an earlier run left.
    for (is_left, most, fetch_bytes) in [(false, 3, 64 << 10), (true, 1000, 64)] {
        let redis = numbered(10);
        if is_left {
            call(&redis, &["RENAME", "l", "p"]);
        }
        let yaml = format!(
            "{{ servers: '{}', list: l, processing_list: p, end_after_idle: 100ms }}",
            redis.address()
        );
        let config = options::<RedisSource>(&yaml);
        let place = Place::List { key: "l".to_owned(), processing: "p".to_owned() };
        let elements = Elements {
            key: "l".to_owned(),
            processing: "p".to_owned(),
            messages: config.messages("l"),
            fetch_bytes,
            most,
            servers: None,
            keeper: Keeper::new(place, Duration::ZERO, Arc::default()),
            config,
        };
        // Each batch has one message.
        let source = testing::start_source(Box::new(elements), 1, BTreeMap::new());
        let mut open = Vec::new();
        let next = || tokio::time::timeout(Duration::from_secs(60), source.main.take());
        while let Some((_, Arrived::Messages(batch))) = next().await.expect("the source ends") {
            open.push(batch);
        }
        let mut seen: Vec<u32> = open.iter().flat_map(numbers).collect();
        open.into_iter().for_each(|batch| batch.settle(Outcome::Delivered));
        let sent = source.finish().await;
        assert!(sent.result.is_none() && sent.main.is_empty(), "{:?}", sent.result);
        assert!((1..10).contains(&seen.len()), "{seen:?}");
        seen.extend(testing::read_all::<RedisSource>(&yaml, 1 << 16).await.main.iter().flat_map(numbers));
        assert_eq!(seen, (0..10).collect::<Vec<u32>>());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elements_that_the_server_moved_for_a_broken_connection_are_read_by_the_same_run() {
    let redis = numbered(1);
    let yaml = format!("{{ servers: '{}', list: l, processing_list: p }}", redis.address());
    let source = start(&yaml, 1 << 16);
    assert_eq!(source.take_numbers(Duration::from_secs(300)).await, Some(vec![0]));
    until_length(&redis, "p", 0).await;
    // As a command does that the server executes after the source has connected again.
    call(&redis, &["RPUSH", "p", "7"]);
    assert_eq!(source.take_numbers(Duration::from_secs(300)).await, Some(vec![7]));
    until_length(&redis, "p", 0).await;
    source.stop.request();
    assert!(source.finish().await.result.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_element_that_is_too_large_is_not_removed_by_its_place_when_the_list_has_changed() {
    let redis = Redis::start().unwrap();
    call(&redis, &["RPUSH", "l", &"y".repeat(5000), "1"]);
    let yaml =
        format!("{{ servers: '{}', list: l, processing_list: p, max_message_bytes: 4999 }}", redis.address());
    let source = start(&yaml, 1 << 16);
    let Some((_, Arrived::Messages(large))) = source.errors.take().await else { panic!() };
    until_length(&redis, "p", 2).await;
    // As the removal by a broken connection does, which the server executes late.
    call(&redis, &["LPOP", "p"]);
    large.settle(Outcome::Rejected);
    assert_eq!(source.take_numbers(Duration::from_secs(300)).await, Some(vec![1]));
    until_length(&redis, "p", 0).await;
    source.stop.request();
    assert!(source.finish().await.result.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_is_read_also_while_the_memory_of_the_server_is_full_and_a_list_waits() {
    let redis = numbered(3);
    call(&redis, &["CONFIG", "SET", "maxmemory", "1"]);
    let yaml = |input: &str| format!("{{ servers: '{}', {input}, end_after_idle: 300ms }}", redis.address());
    let sent = testing::read_all::<RedisSource>(&yaml("stream: s, group: g"), 1 << 16).await;
    assert!(sent.result.is_none(), "{:?}", sent.result);
    assert_eq!(sent.payloads(), ["0", "1", "2"]);
    until_pending(&redis, 0).await;
    let sent = testing::read_all::<RedisSource>(&yaml("list: l"), 1 << 16).await;
    let error = sent.result.unwrap();
    assert!(error.kind().is_temporary() && error.full().contains("OOM"), "{}", error.full());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_stopped_does_not_wait_for_a_server_that_hangs() {
    let redis = numbered(1);
    for input in ["stream: s, group: g", "list: l"] {
        let source = start(&format!("{{ servers: '{}', {input}, timeout: 1h }}", redis.address()), 1 << 16);
        assert_eq!(source.take_numbers(Duration::from_secs(300)).await, Some(vec![0]));
        redis.hang().unwrap();
        source.stop.request();
        assert!(source.finish().await.result.is_none(), "{input}");
        redis.wake().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_not_acknowledge_ends_the_run_also_when_all_has_been_read() {
    let redis = numbered(1);
    call(&redis, &["ACL", "SETUSER", "reader", "on", ">secret", "~*", "+@all", "-xack"]);
    let yaml = format!(
        "{{ servers: '{}', auth: {{ user: reader, password: secret }}, stream: s, group: g, \
         end_after_idle: 100ms }}",
        redis.address()
    );
    let source = start(&yaml, 1 << 16);
    let batch = source.take_batch(Duration::from_secs(300)).await.unwrap();
    // The source has ended its input, and waits.
    assert!(source.main.take().await.is_none());
    batch.settle(Outcome::Delivered);
    let error = source.finish().await.result.unwrap();
    assert!(!error.kind().is_temporary() && error.full().contains("NOPERM"), "{}", error.full());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn channels_are_heard_while_the_source_runs_also_after_the_server_was_away() {
    let mut redis = Redis::start().unwrap();
    let yaml = format!(
        "{{ servers: '{}', channels: [a, b], pattern: 'news.*', fields: [channel, pattern] }}",
        redis.relayed_address()
    );
    let source = start(&yaml, 1 << 16);
    for round in 0..2_u32 {
        // The server says how many subscribers a channel has.
        let patience = Patience::begin();
        while call(&redis, &["PUBSUB", "NUMSUB", "a"])
            != RedisValue::List(vec![text("a"), RedisValue::Number(1)])
            || call(&redis, &["PUBSUB", "NUMPAT"]) != RedisValue::Number(1)
        {
            patience.check(|| "the source does not subscribe".to_owned());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let channels = ["a", "b", "news.x", "other"];
        let sent: Vec<(String, &str)> = (0..40)
            .map(|number| ((100 * round + number).to_string(), channels[number as usize % 4]))
            .collect();
        block_in_place(|| {
            redis
                .call_all(sent.iter().map(|(number, channel)| vec!["PUBLISH", *channel, number.as_str()]))
                .unwrap();
        });
        let mut found = Vec::new();
        while found.len() < 30 {
            let batch = source.take_batch(Duration::from_secs(30)).await.unwrap();
            let shown =
                rows(batch.fields()).into_iter().map(|row| row["channel"].as_str().unwrap().to_owned());
            found.extend(payloads(&batch).into_iter().zip(shown));
            batch.settle(Outcome::Delivered);
        }
        let expected = sent.iter().filter(|(_, channel)| *channel != "other");
        let expected: Vec<(String, String)> =
            expected.map(|(number, channel)| (number.clone(), (*channel).to_owned())).collect();
        assert_eq!(found, expected);
        block_in_place(|| {
            redis.kill().unwrap();
            redis.restart().unwrap();
        });
    }
    source.stop.request();
    assert!(source.finish().await.result.is_none());
}

fn text(text: &str) -> RedisValue {
    RedisValue::Text(text.to_owned())
}

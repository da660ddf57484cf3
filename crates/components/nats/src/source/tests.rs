use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use serde_json::json;
use tokio::task::block_in_place;

use thalweg_engine::Component;
use thalweg_engine::testing::{
    self, Arrived, RunningSource, messages, numbers, options, payloads, refused, rows,
};
use thalweg_record::{Batch, Outcome};
use thalweg_testbed::{ConsumerState, Nats, NatsMessage, Patience};

use super::messages::Messages;
use super::stream::Stream;
use super::{JetStream, NatsSource};
use crate::scripted::{Peer, Scripted};

const DONE: (u64, u64) = (0, 0);

/// A server with the stream `S`, which has messages with these numbers.
fn numbered(count: u32) -> Nats {
    let nats = Nats::start().unwrap();
    block_in_place(|| {
        nats.create_stream("S", &["s.>"]).unwrap();
        store(&nats, 0..count);
    });
    nats
}

fn store(nats: &Nats, numbers: std::ops::Range<u32>) {
    nats.store(numbers.map(|number| NatsMessage::new("s.n", number.to_string()))).unwrap();
}

/// Waits until the consumer `c` has this many messages to deliver, and without an acknowledgement.
async fn until(nats: &Nats, expected: (u64, u64)) {
    let patience = Patience::begin();
    loop {
        let ConsumerState { pending, ack_pending, .. } = block_in_place(|| nats.consumer("S", "c").unwrap());
        if (pending, ack_pending) == expected {
            return;
        }
        patience.check(|| format!("{pending} to deliver, {ack_pending} not acknowledged"));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn options_that_cannot_work_are_mistakes() {
    for (yaml, expected) in [
        ("{ servers: h }", "There is no subject to read."),
        ("{ servers: h, subjects: 'a..b' }", "`a..b` is no subject."),
        ("{ servers: h, subjects: a, queue_group: 'a b' }", "`a b` is no name of a queue group."),
        ("{ servers: h, stream: S }", "A stream is read by a consumer."),
        ("{ servers: h, subjects: a, consumer: c }", "Only a stream has a consumer."),
        ("{ servers: h, stream: S.a, consumer: c }", "`S.a` is no name."),
        ("{ servers: h, stream: S, consumer: c, queue_group: q }", "Runs with the same consumer share"),
        ("{ servers: h, subjects: a, start_sequence: 1 }", "Only a stream has numbered messages."),
        (
            "{ servers: h, stream: S, consumer: c, start: new, start_sequence: 1 }",
            "`start` and `start_sequence` are two ways",
        ),
        ("{ servers: h, subjects: a, fields: [sequence] }", "A message has no `sequence`."),
        ("{ servers: h, subjects: a, fields: [key] }", "A message has no `key`."),
        ("{ servers: h, stream: S, consumer: c, ack_timeout: 1ms }", "An acknowledgement takes more time."),
    ] {
        let found = messages(options::<NatsSource>(yaml).check());
        assert!(found.len() == 1 && found[0].contains(expected), "{yaml}: {found:?}");
    }
    let found = refused::<NatsSource>("{ servers: h, stream: S, consumer: c, start: now }");
    assert!(found.contains("`now` is none of `all`"), "{found}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_messages_are_fields_and_a_later_run_continues_where_the_consumer_is() {
    let nats = Nats::start().unwrap();
    let store = |messages: Vec<NatsMessage>| block_in_place(|| nats.store(messages).unwrap());
    block_in_place(|| nats.create_stream("S", &["s.>"]).unwrap());
    store(vec![
        NatsMessage::new("s.a", "first").header("Trace-Id", "t1"),
        NatsMessage::new("s.b", ""),
        NatsMessage::new("s.a", "x".repeat(5000)),
        NatsMessage::new("s.other", "not read"),
    ]);
    let yaml = |consumer: &str, more: &str| {
        format!(
            "{{ servers: '{}', stream: S, consumer: {consumer}, subjects: [s.a, s.b], max_message_bytes: 4999, \
             end_after_idle: 300ms, fields: [subject, sequence, deliveries, header.Trace-Id]{more} }}",
            nats.address()
        )
    };
    let sent = testing::read_all::<NatsSource>(&yaml("c", ""), 1 << 16).await;
    assert!(sent.result.is_none(), "{:?}", sent.result);
    let shown: Vec<String> =
        sent.main.iter().flat_map(|batch| rows(batch.fields())).map(|row| row.to_string()).collect();
    assert_eq!(
        shown,
        [
            r#"{"subject":"s.a","sequence":1,"deliveries":1,"header.Trace-Id":"t1"}"#,
            r#"{"subject":"s.b","sequence":2,"deliveries":1}"#,
        ]
    );
    let [error] = &sent.errors[..] else { panic!("{:?}", sent.errors) };
    assert_eq!(payloads(error)[0].len(), 4096);
    assert_eq!(
        rows(error.fields())[0]["error_reason"],
        "the message has 5000 bytes, more than `max_message_bytes` (4999)"
    );
    until(&nats, DONE).await;
    store(vec![NatsMessage::new("s.a", "new")]);
    assert_eq!(testing::read_all::<NatsSource>(&yaml("c", ""), 1 << 16).await.payloads(), ["new"]);
    for (consumer, start, expected) in [
        ("d", ", start: '2020-01-01T00:00:00Z'", &["first", "", "new"][..]),
        ("e", ", start_sequence: 2", &["", "new"]),
        ("f", ", start: last_per_subject", &["", "new"]),
        ("g", ", start: last", &["new"]),
        ("h", ", start: new", &[]),
    ] {
        let sent = testing::read_all::<NatsSource>(&yaml(consumer, start), 1 << 16).await;
        assert_eq!(sent.payloads(), expected, "{start}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_is_settled_is_acknowledged_however_long_that_takes() {
    let nats = numbered(100);
    let yaml = format!(
        "{{ servers: '{}', stream: S, consumer: c, ack_timeout: 600ms, end_after_idle: 5s }}",
        nats.address()
    );
    let source = testing::start::<NatsSource>(&yaml, 20, BTreeMap::new());
    let mut open = Vec::new();
    while open.iter().map(Batch::rows).sum::<usize>() < 100 {
        open.push(source.take_batch(Duration::from_secs(30)).await.unwrap());
    }
    let second = open.remove(1);
    let left = second.rows() as u64;
    open.into_iter().for_each(|batch| batch.settle(Outcome::Delivered));
    until(&nats, (0, left)).await;
    // The server would have delivered it again several times.
    assert!(source.take_batch(Duration::from_secs(3)).await.is_none());
    until(&nats, (0, left)).await;
    second.settle(Outcome::Delivered);
    let sent = source.finish().await;
    assert!(sent.result.is_none() && sent.main.is_empty(), "{:?}", sent.result);
    until(&nats, DONE).await;
}

/// The source waited for the acknowledgements, and they for the end of the source.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_may_end_does_so_if_messages_are_settled_only_at_the_end() {
    for (max_ack_pending, first) in [(1000, 100), (40, 40)] {
        let nats = numbered(100);
        let yaml =
            format!("{{ servers: '{}', stream: S, consumer: c, end_after_idle: 300ms }}", nats.address());
        let config = options::<NatsSource>(&yaml);
        let stream = Stream {
            stream: "S".to_owned(),
            consumer: "c".to_owned(),
            messages: Messages::new(&config.fields, config.max_message_bytes, "S"),
            fetch_bytes: 64 << 10,
            max_ack_pending,
            lag: Arc::default(),
            kept: None,
            config,
        };
        let source = testing::start_source(Box::new(JetStream(stream)), 20, BTreeMap::new());
        let mut open = Vec::new();
        let next = || tokio::time::timeout(Duration::from_secs(60), source.main.take());
        while let Some((_, Arrived::Messages(batch))) = next().await.expect("the source ends") {
            open.push(batch);
        }
        let mut seen: Vec<u32> = open.iter().flat_map(numbers).collect();
        assert_eq!(seen.len(), first);
        open.into_iter().for_each(|batch| batch.settle(Outcome::Delivered));
        let sent = source.finish().await;
        assert!(sent.result.is_none() && sent.main.is_empty(), "{:?}", sent.result);
        seen.extend(testing::read_all::<NatsSource>(&yaml, 1 << 16).await.main.iter().flat_map(numbers));
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<u32>>());
        until(&nats, DONE).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_checkpoint_covers_is_acknowledged_and_not_sent_on_again() {
    let nats = numbered(100);
    let yaml = format!(
        "{{ servers: '{}', stream: S, consumer: c, ack_timeout: 1s, end_after_idle: 300ms }}",
        nats.address()
    );
    let source = testing::start::<NatsSource>(&yaml, 20, BTreeMap::new());
    let first = source.take_batch(Duration::from_secs(30)).await.unwrap();
    first.settle(Outcome::Delivered);
    let mut saved = source.positions.saved("S/c").unwrap();
    until(&nats, (0, 100 - saved["known"][0][1].as_u64().unwrap())).await;
    source.task.abort();
    // The checkpoint of a run whose acknowledgements the server does not have.
    saved["known"] = json!([[1, 50]]);
    let sent = testing::start::<NatsSource>(&yaml, 1 << 16, BTreeMap::from([("S/c".to_owned(), saved)]));
    let mut found: Vec<u32> =
        sent.finish().await.payloads().iter().map(|text| text.parse().unwrap()).collect();
    found.sort_unstable();
    assert_eq!(found, (50..100).collect::<Vec<u32>>());
    until(&nats, DONE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_failed_is_delivered_again_and_dead_letters_are_not() {
    let nats = Arc::new(numbered(2));
    let yaml = format!(
        "{{ servers: '{}', stream: S, consumer: c, retry_delay: 100ms, fields: [sequence, deliveries] }}",
        nats.address()
    );
    let (tell, ready) = mpsc::channel();
    let known = nats.clone();
    let terminated = std::thread::spawn(move || {
        let subject = "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.S.c";
        known.receive(subject, 1, || tell.send(()).unwrap()).unwrap()
    });
    block_in_place(|| ready.recv().unwrap());
    // Each batch has one message.
    let source = testing::start::<NatsSource>(&yaml, 1, BTreeMap::new());
    let mut first = source.take_batch(Duration::from_secs(30)).await.unwrap();
    let mut second = source.take_batch(Duration::from_secs(30)).await.unwrap();
    first.take_ack().fail("a test");
    second.take_ack().reject(1);
    let mut again = source.take_batch(Duration::from_secs(30)).await.unwrap();
    assert_eq!(rows(again.fields())[0], json!({ "sequence": 1, "deliveries": 2 }));
    again.take_ack().settle(Outcome::Delivered);
    until(&nats, DONE).await;
    let advisory = block_in_place(|| terminated.join().unwrap());
    assert!(advisory[0].text().contains("\"stream_seq\":2"), "{}", advisory[0].text());
    source.stop.request();
    source.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_are_larger_than_a_request_are_read() {
    let nats = numbered(1);
    let large = "y".repeat(100_000);
    let all = [NatsMessage::new("s.l", large.clone()), NatsMessage::new("s.l", "short")];
    block_in_place(|| nats.store(all).unwrap());
    let yaml = format!(
        "{{ servers: '{}', stream: S, consumer: c, fetch_size: 16KiB, end_after_idle: 300ms }}",
        nats.address()
    );
    assert_eq!(testing::read_all::<NatsSource>(&yaml, 1 << 16).await.payloads(), ["0", &large, "short"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_share_a_consumer_lose_no_message() {
    let count = 4000;
    let mut nats = numbered(count);
    let yaml = format!(
        "{{ servers: '{}', stream: S, consumer: c, ack_timeout: 1s, fetch_size: 16KiB }}",
        nats.relayed_address()
    );
    let start = || testing::start::<NatsSource>(&yaml, 64, BTreeMap::new());
    let (mut seen, mut repeated) = (BTreeSet::new(), 0);
    let mut members = vec![start()];
    let mut step = 0;
    let patience = Patience::begin();
    while seen.len() < count as usize {
        for member in &members {
            for number in member.take_numbers(Duration::from_millis(20)).await.into_iter().flatten() {
                repeated += u32::from(!seen.insert(number));
            }
        }
        patience.check(|| format!("{} of {count} messages after step {step}", seen.len()));
        // A process comes, one leaves without a word, connections are cut, the server crashes and hangs.
        match (step, seen.len()) {
            (0, 300..) => members.push(start()),
            (1, 800..) => nats.cut(),
            (2, 1300..) => {
                members.remove(0).task.abort();
                members.push(start());
            }
            (3, 1900..) => block_in_place(|| {
                nats.kill().unwrap();
                nats.restart().unwrap();
            }),
            (4, 2500..) => {
                nats.hang().unwrap();
                tokio::time::sleep(Duration::from_secs(3)).await;
                nats.wake().unwrap();
            }
            (5, 3200..) => {
                let left = members.remove(0);
                left.stop.request();
                let sent = left.finish().await;
                assert!(sent.result.is_none());
                for number in sent.main.iter().flat_map(numbers) {
                    repeated += u32::from(!seen.insert(number));
                }
            }
            _ => continue,
        }
        step += 1;
    }
    assert!(step >= 5, "{step}");
    for member in members {
        member.stop.request();
        assert!(member.finish().await.result.is_none());
    }
    until(&nats, DONE).await;
    // Those repeat whose acknowledgement was lost with a process, a connection or the server.
    assert!(repeated < count, "{repeated}");
}

/// Sends messages until each source has one, so that all are subscribed.
async fn until_subscribed(nats: &Nats, sources: &[&RunningSource]) {
    let mut waiting: Vec<&&RunningSource> = sources.iter().collect();
    while !waiting.is_empty() {
        block_in_place(|| nats.send([NatsMessage::new("a.probe", "0")]).unwrap());
        let mut silent = Vec::new();
        for source in waiting {
            if source.take_numbers(Duration::from_millis(200)).await.is_none() {
                silent.push(source);
            }
        }
        waiting = silent;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_gets_what_is_sent_while_it_runs_also_after_the_server_was_away() {
    let mut nats = Nats::start().unwrap();
    let yaml =
        format!("{{ servers: '{}', subjects: ['a.*', 'b.>'], fields: [subject] }}", nats.relayed_address());
    let source = testing::start::<NatsSource>(&yaml, 1 << 16, BTreeMap::new());
    for round in 1..4_u32 {
        until_subscribed(&nats, &[&source]).await;
        let numbered = |number: u32| {
            let subject = if number.is_multiple_of(2) { "a.x" } else { "b.y.z" };
            NatsMessage::new(subject, number.to_string())
        };
        let sent = (1000 * round..1000 * round + 100).map(numbered);
        let others = [NatsMessage::new("a", "1"), NatsMessage::new("a.b.c", "2"), NatsMessage::new("b", "3")];
        block_in_place(|| nats.send(sent.chain(others)).unwrap());
        let mut found = Vec::new();
        while found.len() < 100 {
            let arrived = source.take_numbers(Duration::from_secs(30)).await.unwrap();
            found.extend(arrived.into_iter().filter(|number| *number > 0));
        }
        found.sort_unstable();
        assert_eq!(found, (1000 * round..1000 * round + 100).collect::<Vec<u32>>());
        match round {
            1 => nats.cut(),
            _ => block_in_place(|| {
                nats.kill().unwrap();
                nats.restart().unwrap();
            }),
        }
    }
    source.stop.request();
    assert!(source.finish().await.result.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_of_a_queue_group_share_messages() {
    let nats = Nats::start().unwrap();
    let yaml = format!("{{ servers: '{}', subjects: 'a.>', queue_group: q }}", nats.address());
    let start = || testing::start::<NatsSource>(&yaml, 1 << 16, BTreeMap::new());
    let members = [start(), start()];
    until_subscribed(&nats, &[&members[0], &members[1]]).await;
    let sent = (1..201_u32).map(|number| NatsMessage::new("a.x", number.to_string()));
    block_in_place(|| nats.send(sent).unwrap());
    let mut found = [Vec::new(), Vec::new()];
    while found.iter().map(Vec::len).sum::<usize>() < 200 {
        for (member, found) in members.iter().zip(&mut found) {
            let arrived = member.take_numbers(Duration::from_millis(100)).await.into_iter().flatten();
            found.extend(arrived.filter(|number| *number > 0));
        }
    }
    let mut all = found.concat();
    all.sort_unstable();
    assert_eq!(all, (1..201).collect::<Vec<u32>>());
    assert!(found.iter().all(|found| !found.is_empty()));
}

#[tokio::test]
async fn a_hostile_server_is_a_temporary_error_of_the_source_and_no_hang() {
    let server = Scripted::start().await;
    let yaml = format!("{{ servers: '{}', subjects: s, max_message_bytes: 10 }}", server.address());
    for (bytes, expected) in [
        ("MSG s 1 18446744073709551615\r\n", "a message of an impossible size"),
        ("+OK\r\nMSG s 1 3\r\nlonger\r\n", "a message that is longer than it says"),
    ] {
        let serve = async {
            let mut peer = server.accept().await;
            peer.line("SUB ").await;
            peer.write(bytes.as_bytes()).await.unwrap();
            peer
        };
        let (sent, _peer) = tokio::join!(testing::read_all::<NatsSource>(&yaml, 1 << 16), serve);
        let error = sent.result.unwrap();
        assert!(error.kind().is_temporary() && error.full().contains(expected), "{}", error.full());
    }
}

#[tokio::test]
async fn a_subscription_that_the_server_refuses_ends_the_source() {
    let server = Scripted::start().await;
    let yaml = format!("{{ servers: '{}', subjects: [s, t] }}", server.address());
    let serve = async {
        let mut peer = server.accept().await;
        peer.line("SUB t ").await;
        // Only of `t`: messages of `s` arrive.
        peer.write(b"-ERR 'Permissions Violation for Subscription to \"t\"'\r\n").await.unwrap();
        peer.write(b"MSG s 1 1\r\n1\r\n").await.unwrap();
        peer
    };
    let (sent, _peer) = tokio::join!(testing::read_all::<NatsSource>(&yaml, 1 << 16), serve);
    let error = sent.result.unwrap();
    assert!(!error.kind().is_temporary());
    let expected = "the server refuses a subscription: Permissions Violation for Subscription to \"t\"";
    assert_eq!(error.full(), expected);
}

#[tokio::test]
async fn of_a_huge_message_the_beginning_leaves_by_errors_with_its_size_and_the_next_one_is_read() {
    let server = Scripted::start().await;
    let yaml = format!("{{ servers: '{}', subjects: s, max_message_bytes: 10 }}", server.address());
    let source = testing::start::<NatsSource>(&yaml, 1 << 16, BTreeMap::new());
    let mut peer = server.accept().await;
    peer.line("SUB ").await;
    let size = 40 << 20;
    peer.write(format!("MSG s 1 {size}\r\n").as_bytes()).await.unwrap();
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..40 {
        peer.write(&piece).await.unwrap();
    }
    peer.write(b"\r\nMSG s 1 1\r\n7\r\n").await.unwrap();
    let (numbers, error) = tokio::join!(source.take_numbers(Duration::from_secs(300)), source.errors.take());
    assert_eq!(numbers, Some(vec![7]));
    let Some((_, Arrived::Messages(error))) = error else { panic!("no message was rejected") };
    assert_eq!(payloads(&error)[0].len(), 4096);
    let reason = format!("the message has {size} bytes, more than `max_message_bytes` (10)");
    assert_eq!(rows(error.fields())[0]["error_reason"], reason);
    source.stop.request();
    assert!(source.finish().await.result.is_none());
}

/// Answers the requests of a source for a stream and a consumer. Returns the number of its subscription for
/// messages, and the subject to which they are to be sent.
async fn answer_as_a_stream(peer: &mut Peer) -> (String, String) {
    let consumer = r#"{"name":"c","created":"2026-11-25T08:00:00Z","config":{"ack_policy":"explicit"}}"#;
    let mut subscriptions = BTreeMap::new();
    let mut answered = 0;
    loop {
        let line = peer.line("").await;
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["SUB", subject, number] => {
                subscriptions.insert(subject.to_owned(), number.to_owned());
            }
            ["PUB", subject, reply, _] if subject.starts_with("$JS.API.CONSUMER.MSG.NEXT.") => {
                return (subscriptions[reply].clone(), reply.to_owned());
            }
            ["PUB", subject, reply, _] if answered < 2 => {
                let answer = if subject.starts_with("$JS.API.STREAM.INFO.") { "{}" } else { consumer };
                let number = &subscriptions[reply];
                let message = format!("MSG {reply} {number} {}\r\n{answer}\r\n", answer.len());
                peer.write(message.as_bytes()).await.unwrap();
                answered += 1;
            }
            _ => {}
        }
    }
}

#[tokio::test]
async fn what_a_hostile_stream_sends_is_ignored_or_an_error_and_no_hang() {
    let server = Scripted::start().await;
    let yaml = format!("{{ servers: '{}', stream: S, consumer: c }}", server.address());
    let source = testing::start::<NatsSource>(&yaml, 1 << 16, BTreeMap::new());
    let mut peer = server.accept().await;
    let (number, subject) = answer_as_a_stream(&mut peer).await;
    // Without places, about others, and with numbers at their limits.
    let heartbeat = format!("HMSG {subject} {number} 16 16\r\nNATS/1.0 100\r\n\r\n\r\n");
    peer.write(heartbeat.repeat(3000).as_bytes()).await.unwrap();
    peer.write(format!("MSG s {number} 1\r\n1\r\n").repeat(3000).as_bytes()).await.unwrap();
    for (payload, count) in [(7, u64::MAX), (8, 3)] {
        let reply = format!("$JS.ACK.S.c.1.{count}.{count}.{}.0", i64::MAX);
        peer.write(format!("MSG s {number} {reply} 1\r\n{payload}\r\n").as_bytes()).await.unwrap();
    }
    let mut found = Vec::new();
    while found.len() < 2 {
        found.extend(source.take_numbers(Duration::from_secs(300)).await.unwrap());
    }
    assert_eq!(found, [7, 8]);
    peer.write(b"MSG s 1 -1\r\n").await.unwrap();
    let error = source.finish().await.result.unwrap();
    assert!(error.kind().is_temporary() && error.full().contains("impossible size"), "{}", error.full());
}

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, RecordBatch, StringViewArray};
use tokio::task::block_in_place;

use thalweg_engine::testing::{self, batch, messages, open_sink, options, write_until_durable};
use thalweg_engine::{Component, Error, Rejects, Sink, SinkConfig, WriteOutcome};
use thalweg_record::{Batch, Outcome};
use thalweg_testbed::{Amqp, AmqpMessage, Outage};

use super::AmqpSink;
use crate::scripted::{PUBLISH, Scripted};
use crate::wire;

/// Of a message: the queue and the payload.
type Row<'a> = (&'a str, &'a str);

fn batch_of(rows: &[Row<'_>]) -> Batch {
    let columns: [(&str, ArrayRef); 1] =
        [("place", Arc::new(rows.iter().map(|row| Some(row.0)).collect::<StringViewArray>()))];
    batch(rows.iter().map(|row| row.1)).with_fields(RecordBatch::try_from_iter(columns).unwrap()).unwrap()
}

fn payloads(messages: &[AmqpMessage]) -> Vec<&str> {
    messages.iter().map(|message| message.payload.as_str()).collect()
}

/// Writes a batch of which all messages are accepted. Calls `failed` after each error.
async fn write(sink: &mut dyn Sink, batch: Batch, failed: impl FnMut(&Error)) {
    assert!(write_until_durable(sink, batch, failed).await.is_empty());
}

/// The shared server with a queue.
fn with_queue(queue: &str, arguments: &[(&str, &str)]) -> Arc<Amqp> {
    block_in_place(|| {
        let amqp = Amqp::shared().unwrap();
        amqp.declare(queue, arguments).unwrap();
        amqp
    })
}

#[test]
fn options_that_cannot_work_are_mistakes() {
    for (yaml, expected) in [
        (
            "{ servers: h, routing_key: a, headers: { CC: b } }",
            "`CC` is a header by which the server routes, and a list.",
        ),
        ("{ servers: h, routing_key: a, headers: { '': b } }", "A header has a name."),
        ("{ servers: h, routing_key: a, max_age: 60d }", "It is between 1 ms and 49 days."),
        ("{ servers: h, routing_key: a, timeout: 0s }", "No server can answer in no time."),
    ] {
        assert_eq!(messages(options::<AmqpSink>(yaml).check()), [expected], "{yaml}");
    }
    let long = format!("{{ servers: h, routing_key: {} }}", "k".repeat(256));
    assert_eq!(messages(options::<AmqpSink>(&long).check()), ["The text is too long."]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_message_has_follows_from_the_row_and_what_no_queue_takes_has_its_reason() {
    let amqp = with_queue("parts", &[]);
    let rows: [Row<'_>; 4] = [("parts", "one"), ("nowhere", "lost"), ("parts", ""), ("parts", "two")];
    for mandatory in [true, false] {
        let yaml = format!(
            "{{ servers: '{}', routing_key: '{{place}}', mandatory: {mandatory}, \
             message_id: 'id-{{payload}}', content_type: text/plain, headers: {{ From: 'x-{{place}}' }}, \
             priority: 2 }}",
            amqp.address()
        );
        let mut sink = open_sink::<AmqpSink>(&yaml).await;
        let rejected = write_until_durable(&mut *sink, batch_of(&rows), |_| {}).await;
        sink.finish().await.unwrap();
        let reason = (1, "the server returns the message: NO_ROUTE (312)".to_owned());
        assert_eq!(rejected, if mandatory { vec![reason] } else { Vec::new() });
        let stored = block_in_place(|| amqp.take_messages("parts").unwrap());
        assert_eq!(payloads(&stored), ["one", "", "two"]);
        let expected = AmqpMessage {
            routing_key: "parts".to_owned(),
            content_type: Some("text/plain".to_owned()),
            message_id: Some("id-two".to_owned()),
            priority: Some(2),
            is_persistent: true,
            headers: vec![("From".to_owned(), "x-parts".to_owned())],
            payload: "two".to_owned(),
            ..AmqpMessage::default()
        };
        assert_eq!(stored[2], expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_of_many_frames_arrives_as_it_is() {
    let amqp = with_queue("large", &[]);
    let yaml = format!("{{ servers: '{}', routing_key: large, max_pending: 1 }}", amqp.address());
    let lines: Vec<String> = [1, 131_064, 131_065, 1_000_000].map(|count| "z".repeat(count)).to_vec();
    let mut sink = open_sink::<AmqpSink>(&yaml).await;
    write(&mut *sink, batch(lines.iter().map(String::as_str)), |error| panic!("{}", error.full())).await;
    sink.finish().await.unwrap();
    let stored = block_in_place(|| amqp.take_messages("large").unwrap());
    assert!(stored.iter().map(|message| &message.payload).eq(&lines));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_waits_for_a_server_that_is_away_and_no_message_is_lost() {
    let mut amqp = Amqp::start().unwrap();
    block_in_place(|| amqp.declare("q", &[]).unwrap());
    let yaml =
        format!("{{ servers: '{}', routing_key: q, timeout: 1s, max_pending: 100 }}", amqp.relayed_address());
    let mut sink = open_sink::<AmqpSink>(&yaml).await;
    let mut expected = BTreeSet::new();
    for round in 0..5 {
        let lines: Vec<String> = (0..300).map(|number| format!("message {round} {number:04}")).collect();
        let batch = batch(lines.iter().map(String::as_str));
        expected.extend(lines);
        let outage = match round {
            1 => Outage::Killed,
            3 => Outage::Hanging,
            _ => Outage::Cut,
        };
        let mut lost = block_in_place(|| amqp.lose(outage).unwrap());
        write(&mut *sink, batch, |_| block_in_place(|| lost.mend().unwrap())).await;
        assert!(lost.is_over());
    }
    sink.finish().await.unwrap();
    let stored = block_in_place(|| amqp.messages("q").unwrap());
    let distinct: BTreeSet<String> = stored.into_iter().map(|message| message.payload).collect();
    assert_eq!(distinct, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_holds_messages_back_and_give_up_lets_them_leave() {
    let amqp = with_queue("full", &[("x-max-length", "2"), ("x-overflow", "reject-publish")]);
    let yaml =
        |more: &str| format!("{{ servers: '{}', routing_key: full, timeout: 1s{more} }}", amqp.address());
    let mut sink = open_sink::<AmqpSink>(&yaml("")).await;
    let mut failures = Vec::new();
    // A classic queue may take a few more than its limit.
    let lines: Vec<String> = (0..12).map(|number| number.to_string()).collect();
    let mut taken = Vec::new();
    write(&mut *sink, batch(lines.iter().map(String::as_str)), |error| {
        failures.push(error.full());
        taken.extend(block_in_place(|| amqp.take_messages("full").unwrap()));
    })
    .await;
    taken.extend(block_in_place(|| amqp.take_messages("full").unwrap()));
    assert!(
        failures[0].ends_with("a queue refuses messages, for example because it is full"),
        "{failures:?}"
    );
    let distinct: BTreeSet<&str> = payloads(&taken).into_iter().collect();
    assert_eq!(distinct, lines.iter().map(String::as_str).collect());
    let mut sink = open_sink::<AmqpSink>(&yaml(", give_up: 1s")).await;
    let rejected = write_until_durable(&mut *sink, batch(lines.iter().map(String::as_str)), |_| {}).await;
    let stored = block_in_place(|| amqp.take_messages("full").unwrap());
    assert_eq!(rejected.len() + stored.len(), lines.len());
    assert!(rejected.iter().all(|(_, reason)| reason.starts_with("could not be sent for 1 s (`give_up`): ")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exchange_that_is_not_there_and_an_unknown_user_are_refused_for_good() {
    let amqp = with_queue("any", &[]);
    let address = amqp.address();
    for (more, expected) in [
        (
            "exchange: nowhere",
            "the exchange `nowhere` cannot be used: NOT_FOUND - no exchange 'nowhere' in vhost '/' (404)",
        ),
        ("auth: { user: guest, password: other }", "see `auth`"),
        ("auth: { user: nobody, password: guest }", "see `auth`"),
    ] {
        let yaml = format!("{{ servers: '{address}', routing_key: any, {more} }}");
        let mut sink = options::<AmqpSink>(&yaml).build(&testing::context()).unwrap();
        let error = sink.open(None).await.unwrap_err();
        assert!(!error.kind().is_temporary(), "{}", error.full());
        assert!(error.full().ends_with(expected), "{}", error.full());
        assert!(!error.full().contains("other"), "{}", error.full());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_tls_is_reached_if_its_certificate_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (folder.path().join("certificate.pem"), folder.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let amqp = block_in_place(|| Amqp::start_secured(&certificate, &key).unwrap());
    block_in_place(|| amqp.declare("q", &[]).unwrap());
    let certificate = certificate.display();
    let yaml = |tls: &str| {
        format!("{{ servers: 'amqps://{}', routing_key: q, tls: {tls} }}", amqp.secured_address())
    };
    let mut sink = open_sink::<AmqpSink>(&yaml(&format!("{{ ca: '{certificate}' }}"))).await;
    write(&mut *sink, batch(["over TLS"]), |error| panic!("{}", error.full())).await;
    sink.finish().await.unwrap();
    assert_eq!(payloads(&block_in_place(|| amqp.messages("q").unwrap())), ["over TLS"]);
    let mut untrusting = options::<AmqpSink>(&yaml("{}")).build(&testing::context()).unwrap();
    assert!(untrusting.open(None).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_for_which_the_server_closes_the_channel_leaves_and_the_others_are_sent() {
    let server = Scripted::start().await;
    let yaml = format!("{{ servers: '{}', routing_key: q, mandatory: false }}", server.address());
    let serving = tokio::spawn(async move {
        // Of three messages together, the server does not say which one it means.
        let mut peer = server.accept_publisher().await;
        for _ in 0..3 {
            peer.take(PUBLISH).await;
        }
        peer.refuse().await;
        let mut peer = server.accept_publisher().await;
        peer.take(PUBLISH).await;
        peer.confirm(1).await;
        peer.take(PUBLISH).await;
        peer.take(PUBLISH).await;
        peer.refuse().await;
        let mut peer = server.accept_publisher().await;
        peer.take(PUBLISH).await;
        peer.refuse().await;
        let mut peer = server.accept_publisher().await;
        peer.take(PUBLISH).await;
        peer.confirm(1).await;
        peer.end().await;
    });
    let mut sink = open_sink::<AmqpSink>(&yaml).await;
    let rejected = write_until_durable(&mut *sink, batch(["a", "b", "c"]), |error| {
        panic!("{}", error.full());
    })
    .await;
    let reason = "the server refuses the message: PRECONDITION_FAILED - too large (406)".to_owned();
    assert_eq!(rejected, [(1, reason)]);
    sink.finish().await.unwrap();
    serving.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_blocks_the_connection_is_waited_for_and_nothing_is_sent_twice() {
    let server = Scripted::start().await;
    let yaml =
        format!("{{ servers: '{}', routing_key: q, max_pending: 1, timeout: 200ms }}", server.address());
    let serving = tokio::spawn(async move {
        let mut peer = server.accept_publisher().await;
        peer.take(PUBLISH).await;
        peer.send(0, (10, 60), |out| wire::short_text(b"low on memory", out)).await;
        peer.confirm(1).await;
        tokio::time::sleep(Duration::from_millis(700)).await;
        peer.send(0, (10, 61), |_| {}).await;
        peer.take(PUBLISH).await;
        peer.confirm(2).await;
        peer.end().await;
    });
    let mut sink = open_sink::<AmqpSink>(&yaml).await;
    let mut failures = Vec::new();
    write(&mut *sink, batch(["a", "b"]), |error| failures.push(error.full())).await;
    let expected =
        "1 messages were not confirmed within 0.2 s: the server takes no messages for now: low on memory";
    assert!(!failures.is_empty() && failures.iter().all(|failure| failure == expected), "{failures:?}");
    sink.finish().await.unwrap();
    serving.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_sends_without_end_and_confirms_nothing_is_given_no_more_than_the_timeout() {
    let server = Scripted::start().await;
    let yaml = format!("{{ servers: '{}', routing_key: q, timeout: 200ms }}", server.address());
    tokio::spawn(async move {
        let mut peer = server.accept_publisher().await;
        let beats = crate::scripted::heartbeat().repeat(8192);
        while peer.write(&beats).await.is_ok() {}
    });
    let mut sink = open_sink::<AmqpSink>(&yaml).await;
    let batch = batch(["x"]);
    let mut rejects = Rejects::default();
    let written = tokio::time::timeout(Duration::from_secs(60), sink.write(&batch, &mut rejects)).await;
    let error = written.expect("the sink does not end").unwrap_err();
    assert_eq!(error.full(), "1 messages were not confirmed within 0.2 s");
    batch.settle(Outcome::Delivered);
}

/// More than the buffers of a connection take.
const LARGE: usize = 16 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_takes_longer_than_the_timeout_to_write_is_written_once() {
    let server = Scripted::start().await;
    let yaml = format!("{{ servers: '{}', routing_key: q, timeout: 2s }}", server.address());
    let serving = tokio::spawn(async move {
        let mut peer = server.accept_publisher().await;
        peer.take(PUBLISH).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        // The next message begins when the first one was written.
        peer.take(PUBLISH).await;
        peer.confirm(2).await;
        peer.end().await;
    });
    let mut sink = open_sink::<AmqpSink>(&yaml).await;
    let large = "a".repeat(LARGE);
    write(&mut *sink, batch([large.as_str(), "b"]), |error| panic!("{}", error.full())).await;
    sink.finish().await.unwrap();
    serving.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_returns_a_large_message_before_it_reads_on_is_read() {
    let server = Scripted::start().await;
    let yaml = format!("{{ servers: '{}', routing_key: q }}", server.address());
    let serving = tokio::spawn(async move {
        let mut peer = server.accept_publisher().await;
        peer.take(PUBLISH).await;
        peer.take(PUBLISH).await;
        peer.send(1, (60, 50), |out| {
            out.extend_from_slice(&312_u16.to_be_bytes());
            for text in [&b"NO_ROUTE"[..], b"", b"q"] {
                wire::short_text(text, out);
            }
        })
        .await;
        let mut out = Vec::new();
        wire::header(LARGE, &[0, 0], &mut out);
        for part in vec![b'a'; LARGE].chunks(4000) {
            wire::body(part, &mut out);
        }
        peer.write(&out).await.unwrap();
        peer.confirm(2).await;
        peer.end().await;
    });
    let mut sink = open_sink::<AmqpSink>(&yaml).await;
    let (first, second) = ("a".repeat(LARGE), "b".repeat(LARGE));
    let rejected = write_until_durable(&mut *sink, batch([first.as_str(), second.as_str()]), |error| {
        panic!("{}", error.full());
    })
    .await;
    assert_eq!(rejected, [(0, "the server returns the message: NO_ROUTE (312)".to_owned())]);
    sink.finish().await.unwrap();
    serving.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_was_not_sent_and_comes_back_is_an_error() {
    let server = Scripted::start().await;
    let yaml = format!("{{ servers: '{}', routing_key: q }}", server.address());
    tokio::spawn(async move {
        let mut peer = server.accept_publisher().await;
        peer.take(PUBLISH).await;
        peer.send(1, (60, 50), |out| {
            out.extend_from_slice(&312_u16.to_be_bytes());
            for text in [&b"NO_ROUTE"[..], b"", b"other"] {
                wire::short_text(text, out);
            }
        })
        .await;
        let mut out = Vec::new();
        wire::header(1, &[0, 0], &mut out);
        wire::body(b"x", &mut out);
        peer.write(&out).await.unwrap();
        peer.confirm(1).await;
        // A connection that is closed with unread bytes is reset, and what was sent is lost.
        std::future::pending::<()>().await;
    });
    let mut sink = open_sink::<AmqpSink>(&yaml).await;
    let batch = batch(["x"]);
    let error = sink.write(&batch, &mut Rejects::default()).await.unwrap_err();
    assert_eq!(error.full(), "the server returns a message that was not sent: NO_ROUTE (312)");
    batch.settle(Outcome::Delivered);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_sent_again_after_a_call_that_was_dropped() {
    let server = Scripted::start().await;
    let yaml = format!("{{ servers: '{}', routing_key: q }}", server.address());
    let serving = tokio::spawn(async move {
        // The first connection stays open, and confirms nothing.
        let _first = server.accept_publisher().await;
        let mut second = server.accept_publisher().await;
        second.take(PUBLISH).await;
        second.confirm(1).await;
        second.end().await;
    });
    let mut sink = open_sink::<AmqpSink>(&yaml).await;
    let batch = batch(["x"]);
    let mut rejects = Rejects::default();
    let dropped = tokio::time::timeout(Duration::from_millis(300), sink.write(&batch, &mut rejects)).await;
    assert!(dropped.is_err());
    assert_eq!(sink.write(&batch, &mut rejects).await.unwrap(), WriteOutcome::Durable);
    batch.settle(Outcome::Delivered);
    sink.finish().await.unwrap();
    serving.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sink_conforms() {
    let amqp = with_queue("conforms", &[]);
    testing::sink_conforms::<AmqpSink>(&format!(
        "{{ servers: '{}', routing_key: conforms }}",
        amqp.address()
    ))
    .await;
}

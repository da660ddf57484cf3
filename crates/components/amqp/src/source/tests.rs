use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::block_in_place;

use thalweg_engine::Component;
use thalweg_engine::testing::{self, RunningSource, messages, numbers, options, payloads, rows};
use thalweg_record::{Batch, Outcome};
use thalweg_testbed::{Amqp, AmqpMessage};

use super::AmqpSource;
use crate::scripted::{ACK, CANCEL, Peer, QOS, Scripted, heartbeat, message};
use crate::wire;

const WAIT: Duration = Duration::from_secs(60);

fn start(yaml: &str, batch_bytes: usize) -> RunningSource {
    testing::start_retried::<AmqpSource>(yaml, batch_bytes)
}

/// A server with numbered messages in a queue, and the options of a source that reads it.
fn numbered(count: u32, queue: &str, more: &str) -> (Arc<Amqp>, String) {
    let amqp = block_in_place(|| {
        let amqp = Amqp::shared().unwrap();
        amqp.declare(queue, &[]).unwrap();
        amqp.publish("", queue, (0..count).map(|number| number.to_string())).unwrap();
        amqp
    });
    let yaml = format!("{{ servers: '{}', queues: {queue}{more} }}", amqp.address());
    (amqp, yaml)
}

#[test]
fn options_that_cannot_work_are_mistakes() {
    for (yaml, expected) in [
        ("{ servers: h, queues: [] }", "There is no queue to read."),
        ("{ servers: h, queues: '' }", "A queue has a name."),
        ("{ servers: h, queues: [a, b, a] }", "`a` is there twice."),
        (
            "{ servers: h, queues: a, bindings: [{ exchange: '' }] }",
            "The default exchange takes no bindings.",
        ),
        (
            "{ servers: h, queues: a, bindings: [{ exchange: e, routing_key: [] }] }",
            "A binding without a key binds nothing.",
        ),
        ("{ servers: h, queues: a, fields: [topic] }", "A message has no `topic`."),
        (
            "{ servers: h, queues: a, declare: { arguments: { x-queue-type: stream } } }",
            "A stream is read from an offset on.",
        ),
        (
            "{ servers: h, queues: a, max_message_bytes: 0B }",
            "`max_message_bytes` is 0B, but must be between 1 and 1GiB.",
        ),
    ] {
        assert_eq!(messages(options::<AmqpSource>(yaml).check()), [expected], "{yaml}");
    }
    let long = format!("{{ servers: h, queues: {} }}", "q".repeat(256));
    assert_eq!(messages(options::<AmqpSource>(&long).check()), ["A name is too long."]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_are_declared_and_bound_and_parts_of_messages_are_fields() {
    let amqp = block_in_place(|| Amqp::shared().unwrap());
    let yaml = format!(
        "{{ servers: 'amqp://{}/%2F', queues: [fields-a, fields-b], \
         declare: {{ arguments: {{ x-max-priority: 5 }} }}, \
         bindings: [{{ exchange: amq.topic, routing_key: ['f.#', g] }}], max_message_bytes: 4999, \
         end_after_idle: 300ms, \
         fields: [queue, exchange, routing_key, redelivered, content_type, priority, message_id, \
         header.unit] }}",
        amqp.address()
    );
    // The queues are there from the first run on.
    assert!(start(&yaml, 1 << 16).finish().await.payloads().is_empty());
    let first = AmqpMessage {
        exchange: "amq.topic".to_owned(),
        routing_key: "f.x.y".to_owned(),
        content_type: Some("text/plain".to_owned()),
        message_id: Some("m-1".to_owned()),
        priority: Some(3),
        headers: vec![("unit".to_owned(), "K".to_owned())],
        payload: "one".to_owned(),
        ..AmqpMessage::default()
    };
    block_in_place(|| {
        amqp.publish_messages([first]).unwrap();
        amqp.publish("", "fields-b", ["x".repeat(5000), String::new()]).unwrap();
    });
    let sent = start(&yaml, 1 << 16).finish().await;
    assert!(sent.result.is_none(), "{:?}", sent.result);
    let shown = sent.main.iter().flat_map(|batch| rows(batch.fields())).map(|row| row.to_string());
    let mut shown: Vec<String> = shown.collect();
    shown.sort();
    let of_topic = |queue: &str| {
        format!(
            "{{\"queue\":\"{queue}\",\"exchange\":\"amq.topic\",\"routing_key\":\"f.x.y\",\
             \"redelivered\":false,\
             \"content_type\":\"text/plain\",\"priority\":3,\"message_id\":\"m-1\",\"header.unit\":\"K\"}}"
        )
    };
    let direct = r#"{"queue":"fields-b","exchange":"","routing_key":"fields-b","redelivered":false}"#;
    assert_eq!(shown, [of_topic("fields-a"), direct.to_owned(), of_topic("fields-b")]);
    let [error] = &sent.errors[..] else { panic!("{:?}", sent.errors) };
    assert_eq!(payloads(error)[0].len(), 4096);
    assert_eq!(
        rows(error.fields())[0]["error_reason"],
        "the message has 5000 bytes, more than `max_message_bytes` (4999)"
    );
    // All is acknowledged.
    assert!(start(&yaml, 1 << 16).finish().await.payloads().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_is_settled_is_acknowledged() {
    let (amqp, yaml) = numbered(100, "settled", "");
    let source = start(&yaml, 20);
    let mut open = Vec::new();
    while open.iter().map(Batch::rows).sum::<usize>() < 100 {
        open.push(source.take_batch(WAIT).await.unwrap());
    }
    let second = open.remove(1);
    let expected = numbers(&second);
    open.into_iter().for_each(|batch| batch.settle(Outcome::Delivered));
    // The source waits for the second batch for a while, and ends without it.
    source.stop.request();
    assert!(source.finish().await.result.is_none());
    drop(second);
    let left = block_in_place(|| amqp.messages("settled").unwrap());
    let left: Vec<u32> = left.iter().map(|message| message.payload.parse().unwrap()).collect();
    assert_eq!(left, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_failed_returns_to_its_queue_and_is_delivered_again() {
    let (_amqp, yaml) = numbered(2, "failed", ", fields: [redelivered]");
    // Each batch has one message.
    let source = start(&yaml, 1);
    let mut first = source.take_batch(WAIT).await.unwrap();
    let mut second = source.take_batch(WAIT).await.unwrap();
    second.take_ack().settle(Outcome::Delivered);
    first.take_ack().fail("a test");
    let mut again = source.take_batch(WAIT).await.unwrap();
    assert_eq!(
        (payloads(&again), &rows(again.fields())[0]["redelivered"]),
        (vec!["0".to_owned()], &true.into())
    );
    again.take_ack().settle(Outcome::Delivered);
    source.stop.request();
    let sent = source.finish().await;
    assert!(sent.result.is_none() && sent.main.is_empty(), "{:?}", sent.result);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_does_not_end_while_a_message_that_failed_returns_to_its_queue() {
    let (_amqp, yaml) = numbered(1, "returning", ", end_after_idle: 100ms");
    let source = start(&yaml, 1);
    let mut batch = source.take_batch(WAIT).await.unwrap();
    batch.take_ack().fail("a test");
    let again = source.take_batch(WAIT).await.expect("the source has ended");
    assert_eq!(numbers(&again), [0]);
    again.settle(Outcome::Delivered);
    let sent = source.finish().await;
    assert!(sent.result.is_none() && sent.main.is_empty(), "{:?}", sent.result);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_read_again_after_a_message_that_failed() {
    let server = Scripted::start().await;
    let yaml = format!(
        "{{ servers: '{}', queues: q, consumer_arguments: {{ x-stream-offset: first }} }}",
        server.address()
    );
    let serving = tokio::spawn(async move {
        // A stream would take a rejection as an acknowledgement.
        let mut first = server.accept_consumer().await;
        first.write(&message(1)).await.unwrap();
        let mut second = server.accept_consumer().await;
        second.write(&message(1)).await.unwrap();
        assert_eq!(acknowledged(&mut second).await, (1, true));
        second.end().await;
    });
    let source = start(&yaml, 1 << 16);
    let mut batch = source.take_batch(WAIT).await.unwrap();
    batch.take_ack().fail("a test");
    let again = source.take_batch(WAIT).await.expect("the stream is not read again");
    assert_eq!(numbers(&again), [1]);
    again.settle(Outcome::Delivered);
    source.stop.request();
    assert!(source.finish().await.result.is_none());
    serving.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_acknowledged_although_the_server_ends_a_consumer_at_the_end_of_the_source() {
    let server = Scripted::start().await;
    let yaml = format!("{{ servers: '{}', queues: q }}", server.address());
    let (tell, ended) = oneshot::channel();
    let serving = tokio::spawn(async move {
        let mut peer = server.accept_consumer().await;
        peer.write(&message(1)).await.unwrap();
        peer.take(CANCEL).await;
        peer.send(1, CANCEL, |out| wire::short_text(b"0", out)).await;
        // The source reads it before it has something to acknowledge.
        tokio::time::sleep(Duration::from_millis(300)).await;
        tell.send(()).unwrap();
        assert_eq!(acknowledged(&mut peer).await, (1, true));
        peer.end().await;
    });
    let source = start(&yaml, 1 << 16);
    let batch = source.take_batch(WAIT).await.unwrap();
    source.stop.request();
    ended.await.unwrap();
    batch.settle(Outcome::Delivered);
    assert!(source.finish().await.result.is_none());
    serving.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_dead_letters_go_to_the_dead_letter_exchange_and_only_if_that_is_wanted() {
    let amqp = block_in_place(|| Amqp::shared().unwrap());
    for (queue, is_wanted) in [("letters-a", true), ("letters-b", false)] {
        let dead = format!("{queue}-dead");
        block_in_place(|| {
            amqp.declare(&dead, &[]).unwrap();
            amqp.declare(queue, &[("x-dead-letter-exchange", ""), ("x-dead-letter-routing-key", &dead)])
                .unwrap();
            amqp.publish("", queue, (0..4).map(|number| number.to_string())).unwrap();
        });
        let yaml =
            format!("{{ servers: '{}', queues: {queue}, reject_dead_letters: {is_wanted} }}", amqp.address());
        let source = start(&yaml, 1);
        for number in 0..4 {
            let batch = source.take_batch(WAIT).await.unwrap();
            assert_eq!(numbers(&batch), [number]);
            batch.settle(if number == 2 { Outcome::Rejected } else { Outcome::Delivered });
        }
        source.stop.request();
        assert!(source.finish().await.result.is_none());
        let letters = block_in_place(|| amqp.messages(&dead).unwrap());
        let letters: Vec<&str> = letters.iter().map(|letter| letter.payload.as_str()).collect();
        assert_eq!(letters, if is_wanted { &["2"][..] } else { &[] }, "{queue}");
        assert!(block_in_place(|| amqp.messages(queue).unwrap()).is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_cut_lose_nothing() {
    let count = 1000;
    let (amqp, yaml) = numbered(count, "cut", ", prefetch: 50");
    let yaml = yaml.replace(&amqp.address().to_string(), &amqp.relayed_address().to_string());
    let source = start(&yaml, 64);
    let found: BTreeSet<u32> =
        source.take_disturbed(count as usize, || amqp.cut()).await.into_iter().collect();
    // Messages that were on their way as a connection broke come again.
    source.stop.request();
    assert!(source.finish().await.result.is_none());
    assert!(found.into_iter().eq(0..count));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_is_not_there_ends_the_run_with_the_servers_text() {
    let amqp = block_in_place(|| Amqp::shared().unwrap());
    let yaml = format!("{{ servers: '{}', queues: nowhere }}", amqp.address());
    let error = start(&yaml, 1).finish().await.result.unwrap();
    assert_eq!(
        error.full(),
        "the server has closed the channel: NOT_FOUND - no queue 'nowhere' in vhost '/' (404)"
    );
    let yaml = format!("{{ servers: 'amqp://{}/nowhere', queues: q }}", amqp.address());
    let error = start(&yaml, 1).finish().await.result.unwrap();
    assert!(error.full().contains("NOT_ALLOWED - vhost nowhere not found (530)"), "{}", error.full());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_is_deleted_is_waited_for() {
    let (amqp, yaml) = numbered(1, "deleted", "");
    let source = start(&yaml, 1);
    source.take_batch(WAIT).await.unwrap().settle(Outcome::Delivered);
    block_in_place(|| {
        amqp.delete("deleted").unwrap();
        std::thread::sleep(Duration::from_millis(200));
        amqp.declare("deleted", &[]).unwrap();
        amqp.publish("", "deleted", ["7".to_owned()]).unwrap();
    });
    let batch = source.take_batch(WAIT).await.unwrap();
    assert_eq!(numbers(&batch), [7]);
    batch.settle(Outcome::Delivered);
    source.stop.request();
    assert!(source.finish().await.result.is_none());
}

/// Returns the acknowledgement that a client sends next: the number, and true if all up to it are meant.
async fn acknowledged(peer: &mut Peer) -> (u64, bool) {
    let arguments = peer.take(ACK).await;
    (u64::from_be_bytes(arguments[..8].try_into().unwrap()), arguments[8] == 1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_may_end_asks_the_server_and_waits_for_its_word() {
    let server = Scripted::start().await;
    let yaml = format!("{{ servers: '{}', queues: q, end_after_idle: 1ms }}", server.address());
    let serving = tokio::spawn(async move {
        let mut peer = server.accept_consumer().await;
        // There is a message that is on its way.
        peer.waiting = Some(1);
        peer.take(QOS).await;
        peer.send(1, (60, 11), |_| {}).await;
        peer.write(&message(1)).await.unwrap();
        assert_eq!(acknowledged(&mut peer).await, (1, true));
        peer.waiting = Some(0);
        peer.end().await;
    });
    let source = start(&yaml, 1 << 16);
    let batch = source.take_batch(WAIT).await.unwrap();
    assert_eq!(numbers(&batch), [1]);
    batch.settle(Outcome::Delivered);
    let sent = source.finish().await;
    assert!(sent.result.is_none() && sent.main.is_empty(), "{:?}", sent.result);
    serving.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_of_a_connection_that_broke_are_not_acknowledged_over_the_next_one() {
    let server = Scripted::start().await;
    let yaml = format!("{{ servers: '{}', queues: q }}", server.address());
    let (tell, resumed) = oneshot::channel();
    let serving = tokio::spawn(async move {
        let mut peer = server.accept_consumer().await;
        peer.write(&[message(1), message(2)].concat()).await.unwrap();
        // The messages have arrived once there is an answer to what comes after them.
        peer.send(1, CANCEL, |out| wire::short_text(b"0", out)).await;
        let mut peer = server.accept_consumer().await;
        peer.write(&message(1)).await.unwrap();
        tell.send(()).unwrap();
        assert_eq!(acknowledged(&mut peer).await, (1, true));
        peer.end().await;
    });
    let source = start(&yaml, 1 << 16);
    let mut before = Vec::new();
    resumed.await.unwrap();
    // Those of the first connection may have been sent on, and come again in any case.
    let last = loop {
        let batch = source.take_batch(WAIT).await.unwrap();
        if numbers(&batch) == [1] {
            break batch;
        }
        before.push(batch);
    };
    before.into_iter().for_each(|batch| batch.settle(Outcome::Delivered));
    last.settle(Outcome::Delivered);
    source.stop.request();
    source.finish().await;
    serving.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_keep_to_the_protocol_is_left() {
    let messages = |tags: &[u64]| tags.iter().flat_map(|tag| message(*tag)).collect::<Vec<u8>>();
    let other = {
        let mut bytes = message(1);
        // The tag of the consumer is the first text behind the class and the number of the method.
        bytes[12] = b'9';
        bytes
    };
    for (bytes, expected) in [
        (messages(&[1, 1]), "the server has sent messages whose numbers do not grow"),
        (messages(&[0]), "the server has sent messages whose numbers do not grow"),
        (messages(&[1, 2, 3]), "the server sends more messages than it may (`prefetch`)"),
        (other, "the server has sent a message for no consumer"),
        (
            b"\x03\0\x01\x7f\xff\xff\xff".to_vec(),
            "the server has sent what is no frame: a frame is longer than was agreed",
        ),
        (b"GET /".to_vec(), "the server has sent what is no frame: a frame has an unknown kind"),
    ] {
        let server = Scripted::start().await;
        let yaml = format!("{{ servers: '{}', queues: q, prefetch: 2 }}", server.address());
        let serving = tokio::spawn(async move {
            let mut peer = server.accept_consumer().await;
            peer.write(&bytes).await.unwrap();
            peer
        });
        let source = testing::start::<AmqpSource>(&yaml, 1 << 16, BTreeMap::new());
        let error = source.finish().await.result.expect(expected);
        assert_eq!(error.full(), expected);
        assert!(error.kind().is_temporary());
        drop(serving.await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_speak_the_protocol_is_named() {
    for (bytes, expected) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "a frame has an unknown kind"),
        (b"AMQP\0\x01\0\0", "the server does not speak AMQP 0.9.1"),
    ] {
        let server = Scripted::start().await;
        let address = server.address();
        let serving = tokio::spawn(async move {
            let mut peer = server.accept_silently().await;
            peer.write(bytes).await.unwrap();
            peer
        });
        let yaml = format!("{{ servers: '{address}', queues: q }}");
        let source = testing::start::<AmqpSource>(&yaml, 1, BTreeMap::new());
        let error = source.finish().await.result.unwrap();
        let expected =
            format!("cannot connect to `tcp://{address}`: the server has sent what is no frame: {expected}");
        assert_eq!(error.full(), expected);
        drop(serving.await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_without_an_end_does_not_keep_the_source_from_ending() {
    let server = Scripted::start().await;
    let yaml = format!("{{ servers: '{}', queues: q, max_message_bytes: 100 }}", server.address());
    let (tell, ready) = oneshot::channel();
    let serving = tokio::spawn(async move {
        let mut peer = server.accept_consumer().await;
        let (whole, mut end) = (message(1), Vec::new());
        wire::header(1, &[0, 0], &mut end);
        // The method alone; the header has the length of the payload, and the payload one byte.
        let method = &whole[..whole.len() - end.len() - 9];
        peer.write(method).await.unwrap();
        let mut out = Vec::new();
        wire::header(1 << 60, &[0, 0], &mut out);
        wire::body(&[b'x'; 4000], &mut out);
        peer.write(&out).await.unwrap();
        tell.send(()).unwrap();
        let mut part = Vec::new();
        wire::body(&[b'x'; 4000], &mut part);
        while peer.write(&part).await.is_ok() {}
    });
    let source = start(&yaml, 1 << 16);
    ready.await.unwrap();
    source.stop.request();
    let ended = tokio::time::timeout(WAIT, source.finish()).await;
    assert!(ended.expect("the source does not end").main.is_empty());
    serving.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_are_sent_while_nothing_is_read() {
    let server = Scripted::start().await;
    let yaml = format!("{{ servers: '{}', queues: q, heartbeat_interval: 1s }}", server.address());
    let serving = tokio::spawn(async move {
        let mut peer = server.accept_consumer().await;
        peer.write(&heartbeat()).await.unwrap();
        for _ in 0..2 {
            peer.take_heartbeat().await;
        }
    });
    let source = start(&yaml, 1);
    serving.await.unwrap();
    source.stop.request();
    source.finish().await;
}

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::block_in_place;

use thalweg_engine::testing::{self, RunningSource, messages, numbers, options, payloads, rows};
use thalweg_engine::{Component, SinkConfig, SourceConfig};
use thalweg_record::{Batch, Outcome};
use thalweg_testbed::{Mqtt, Patience};

use super::MqttSource;
use crate::scripted::{Scripted, message};
use crate::sink::MqttSink;
use crate::wire::Qos;

fn start(yaml: &str, batch_bytes: usize) -> RunningSource {
    testing::start_retried::<MqttSource>(yaml, batch_bytes)
}

/// A server with a session for a source of these options, and with numbered messages in it.
async fn numbered(count: u32, topics: &str, more: &str) -> (Mqtt, String) {
    let mqtt = Mqtt::start().unwrap();
    let yaml = format!("{{ servers: '{}', topics: '{topics}', client_id: c{more} }}", mqtt.relayed_address());
    let ending = yaml.replace(" }", ", end_after_idle: 100ms }");
    assert!(start(&ending, 1 << 16).finish().await.result.is_none());
    block_in_place(|| mqtt.publish("t/a", (0..count).map(|number| number.to_string())).unwrap());
    (mqtt, yaml)
}

#[test]
fn two_sessions_of_one_name_claim_the_same() {
    let claim = |servers: &str| {
        let yaml = format!("{{ servers: {servers}, topics: a, client_id: c }}");
        options::<MqttSource>(&yaml).claims().remove(0)
    };
    let sink = options::<MqttSink>("{ servers: 'mqtt://h:1883', topic: b, client_id: c }").claims().remove(0);
    assert!(claim("h").meets(&sink) && !claim("i").meets(&sink));
    assert!(!claim("h, auth: { user: u, password: p }").meets(&sink));
    assert!(options::<MqttSource>("{ servers: h, topics: a, qos: 0 }").claims().is_empty());
}

#[test]
fn options_that_cannot_work_are_mistakes() {
    for (yaml, expected) in [
        ("{ servers: h, topics: [], client_id: c }", "There is no topic to read."),
        ("{ servers: h, topics: 'a/#/b', client_id: c }", "`a/#/b` is no topic."),
        (
            "{ servers: h, topics: a }",
            "`client_id` is missing: a session has a name, so that a later run continues it.",
        ),
        ("{ servers: h, topics: a, client_id: c, fields: [key] }", "A message has no `key`."),
        (
            "{ servers: h, topics: a, qos: 0, session_timeout: 1h }",
            "With `qos: 0`, the server keeps no session and waits for no answer.",
        ),
        (
            "{ servers: h, topics: a, client_id: c, protocol: mqtt3.1.1, session_timeout: 1h }",
            "MQTT 3.1.1 has no `session_timeout`.",
        ),
        (
            "{ servers: h, topics: a, client_id: c, protocol: mqtt3.1.1, receive_maximum: 5 }",
            "MQTT 3.1.1 has no `receive_maximum`.",
        ),
        (
            "{ servers: h, topics: a, client_id: c, max_message_bytes: 0B }",
            "`max_message_bytes` is 0B, but must be between 1 and 1GiB.",
        ),
        (
            "{ servers: h, topics: a, client_id: c, session_timeout: 500ms }",
            "The server would lose messages when a connection breaks.",
        ),
        (
            "{ servers: h, topics: a, client_id: c, protocol: mqtt3.1.1, fields: [property.x] }",
            "A message has no `property.x`.",
        ),
    ] {
        assert_eq!(messages(options::<MqttSource>(yaml).check()), [expected], "{yaml}");
    }
    assert!(messages(options::<MqttSource>("{ servers: h, topics: a, qos: 0 }").check()).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_messages_are_fields_and_a_later_run_continues_the_session() {
    let mqtt = Mqtt::start().unwrap();
    let retained = ["-V", "5", "-t", "t/a", "-q", "1", "-m", "first", "-r"];
    let properties =
        ["-D", "publish", "content-type", "text/plain", "-D", "publish", "user-property", "unit", "K"];
    block_in_place(|| mqtt.publish_with(&[&retained[..], &properties].concat()).unwrap());
    let yaml = format!(
        "{{ servers: '{}', topics: 't/+', client_id: c, max_message_bytes: 4999, end_after_idle: 300ms, \
         fields: [topic, qos, retained, content_type, property.unit] }}",
        mqtt.address()
    );
    let sent = start(&yaml, 1 << 16).finish().await;
    assert!(sent.result.is_none(), "{:?}", sent.result);
    let shown: Vec<String> =
        sent.main.iter().flat_map(|batch| rows(batch.fields())).map(|row| row.to_string()).collect();
    assert_eq!(
        shown,
        [r#"{"topic":"t/a","qos":1,"retained":true,"content_type":"text/plain","property.unit":"K"}"#]
    );
    block_in_place(|| mqtt.publish("t/b", ["short".to_owned(), "x".repeat(5000), String::new()]).unwrap());
    let sent = start(&yaml, 1 << 16).finish().await;
    assert_eq!(sent.payloads(), ["short", ""]);
    let [error] = &sent.errors[..] else { panic!("{:?}", sent.errors) };
    assert_eq!(payloads(error)[0].len(), 4096);
    assert_eq!(
        rows(error.fields())[0]["error_reason"],
        "the message has 5000 bytes, more than `max_message_bytes` (4999)"
    );
    // All is acknowledged, and the retained message is not sent again.
    assert!(start(&yaml, 1 << 16).finish().await.payloads().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_is_settled_is_acknowledged_and_in_order() {
    for protocol in ["mqtt5", "mqtt3.1.1"] {
        let more = format!(", protocol: {protocol}");
        let (_mqtt, yaml) = numbered(100, "t/#", &more).await;
        let source = start(&yaml, 20);
        let mut open = Vec::new();
        while open.iter().map(Batch::rows).sum::<usize>() < 100 {
            open.push(source.take_batch(Duration::from_secs(60)).await.unwrap());
        }
        let first = open[0].rows() as u32;
        let second = open.remove(1);
        open.into_iter().for_each(|batch| batch.settle(Outcome::Delivered));
        // The source waits for the second batch for a while, and ends without it.
        source.stop.request();
        assert!(source.finish().await.result.is_none());
        drop(second);
        let ending = yaml.replace(" }", ", end_after_idle: 300ms }");
        let sent = start(&ending, 1 << 16).finish().await;
        let found: Vec<u32> = sent.main.iter().flat_map(numbers).collect();
        assert_eq!(found, (first..100).collect::<Vec<u32>>(), "{protocol}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_failed_is_delivered_again() {
    let (_mqtt, yaml) = numbered(2, "t/#", ", fields: [duplicate]").await;
    // Each batch has one message.
    let source = start(&yaml, 1);
    let mut first = source.take_batch(Duration::from_secs(60)).await.unwrap();
    let mut second = source.take_batch(Duration::from_secs(60)).await.unwrap();
    second.take_ack().settle(Outcome::Delivered);
    first.take_ack().fail("a test");
    let mut again = source.take_batch(Duration::from_secs(60)).await.unwrap();
    assert_eq!(
        (payloads(&again), &rows(again.fields())[0]["duplicate"]),
        (vec!["0".to_owned()], &true.into())
    );
    again.take_ack().settle(Outcome::Delivered);
    source.stop.request();
    let sent = source.finish().await;
    assert!(sent.result.is_none() && sent.main.is_empty(), "{:?}", sent.result);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_qos_2_connections_that_are_cut_repeat_nothing() {
    let count = 1000;
    // Messages of the clients of the tests have QoS 1: a sink sends these.
    let (mqtt, yaml) = numbered(0, "t/#", ", qos: 2, receive_maximum: 50").await;
    let sink = format!("{{ servers: '{}', topic: t/a, qos: 2, client_id: s }}", mqtt.address());
    let lines: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    let batch = testing::batch(lines.iter().map(String::as_str));
    testing::write_all::<crate::sink::MqttSink>(&sink, [batch]).await.unwrap();
    let source = start(&yaml, 64);
    // Of 100 messages, more than half came after those that the server had to send again. If a connection
    // breaks before them, mosquitto 2.0.11 sends a message from its beginning that it was about to release.
    let mut found = source.take_disturbed(count as usize, || mqtt.cut()).await;
    source.stop.request();
    let sent = source.finish().await;
    assert!(sent.main.is_empty(), "{:?}", sent.payloads());
    found.sort_unstable();
    assert_eq!(found, (0..count).collect::<Vec<u32>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_of_a_shared_subscription_share_messages() {
    let mqtt = Mqtt::start().unwrap();
    let yaml = |member: &str, more: &str| {
        format!("{{ servers: '{}', topics: '$share/g/t/#', client_id: {member}{more} }}", mqtt.address())
    };
    for member in ["a", "b"] {
        assert!(start(&yaml(member, ", end_after_idle: 100ms"), 1 << 16).finish().await.result.is_none());
    }
    let members = [start(&yaml("a", ""), 1 << 16), start(&yaml("b", ""), 1 << 16)];
    block_in_place(|| mqtt.publish("t/x", (0..200).map(|number| number.to_string())).unwrap());
    let patience = Patience::begin();
    let mut found = [Vec::new(), Vec::new()];
    while found.iter().map(Vec::len).sum::<usize>() < 200 {
        patience.check(|| format!("{found:?}"));
        for (member, found) in members.iter().zip(&mut found) {
            if let Some(batch) = member.take_batch(Duration::from_millis(50)).await {
                found.extend(numbers(&batch));
                batch.settle(Outcome::Delivered);
            }
        }
    }
    let mut all = found.concat();
    all.sort_unstable();
    assert_eq!(all, (0..200).collect::<Vec<u32>>());
    assert!(found.iter().all(|found| !found.is_empty()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_qos_0_are_read_while_the_source_runs() {
    let mut mqtt = Mqtt::start().unwrap();
    let yaml = format!("{{ servers: '{}', topics: t, qos: 0, fields: [qos] }}", mqtt.relayed_address());
    let source = start(&yaml, 1 << 16);
    for round in 0..2 {
        // Messages are lost until the source is subscribed, so each is sent until one arrives.
        let patience = Patience::begin();
        let batch = loop {
            patience.check(|| format!("round {round}: no message"));
            block_in_place(|| mqtt.publish("t", [round.to_string()]).unwrap());
            match source.take_batch(Duration::from_millis(50)).await {
                Some(batch) if numbers(&batch).contains(&round) => break batch,
                Some(batch) => batch.settle(Outcome::Delivered),
                None => {}
            }
        };
        assert_eq!(rows(batch.fields())[0]["qos"], 0);
        batch.settle(Outcome::Delivered);
        if round == 0 {
            block_in_place(|| {
                mqtt.kill().unwrap();
                mqtt.restart().unwrap();
            });
        }
    }
    source.stop.request();
    assert!(source.finish().await.result.is_none());
}

/// Messages of a server, as the bytes of a connection.
fn arriving(count: u16, qos: Qos, is_duplicate: bool) -> Vec<u8> {
    (1..=count).flat_map(|id| message(id, qos, is_duplicate)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_sent_on_as_a_connection_ended_is_acknowledged_over_the_next_one() {
    // More than are sent on together: the end of the connection is read before anything is waited for.
    const COUNT: u16 = 5000;
    let server = Scripted::start().await;
    let yaml = format!("{{ servers: '{}', topics: t, client_id: c }}", server.address());
    let (tell, resumed) = oneshot::channel();
    let serving = tokio::spawn(async move {
        let mut peer = server.accept_subscriber(false, Qos::AtLeastOnce).await;
        peer.write(&arriving(COUNT, Qos::AtLeastOnce, false)).await.unwrap();
        drop(peer);
        let mut peer = server.accept_subscriber(true, Qos::AtLeastOnce).await;
        peer.write(&arriving(COUNT, Qos::AtLeastOnce, true)).await.unwrap();
        tell.send(()).unwrap();
        for id in 1..=COUNT {
            assert_eq!(peer.take(0x40).await, id.to_be_bytes());
        }
    });
    let source = start(&yaml, 1 << 16);
    let (mut found, mut open) = (Vec::new(), Vec::new());
    while found.len() < usize::from(COUNT) {
        let batch = source.take_batch(Duration::from_secs(60)).await.unwrap();
        found.extend(numbers(&batch));
        open.push(batch);
    }
    resumed.await.unwrap();
    open.into_iter().for_each(|batch| batch.settle(Outcome::Delivered));
    let served = tokio::time::timeout(Duration::from_secs(60), serving).await;
    served.expect("acknowledgements are missing").unwrap();
    source.stop.request();
    assert!(source.finish().await.main.is_empty());
    assert_eq!(found, (1..=u32::from(COUNT)).collect::<Vec<u32>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_qos_0_that_came_before_the_end_of_a_connection_are_sent_on() {
    // They are still being read when the connection has ended.
    const COUNT: u16 = 3000;
    let server = Scripted::start().await;
    let yaml = format!("{{ servers: '{}', topics: t, qos: 0 }}", server.address());
    let serving = tokio::spawn(async move {
        let mut peer = server.accept_subscriber(false, Qos::AtMostOnce).await;
        peer.write(&arriving(COUNT, Qos::AtMostOnce, false)).await.unwrap();
    });
    let source = start(&yaml, 1 << 16);
    let mut found = Vec::new();
    while found.len() < usize::from(COUNT) {
        let batch = source.take_batch(Duration::from_secs(60)).await.unwrap();
        found.extend(numbers(&batch));
        batch.settle(Outcome::Delivered);
    }
    assert_eq!(found, (1..=u32::from(COUNT)).collect::<Vec<u32>>());
    serving.await.unwrap();
    source.stop.request();
    assert!(source.finish().await.main.is_empty());
}

/// A server may leave fewer messages without an acknowledgement than it is allowed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_may_end_waits_for_a_server_that_waits_for_acknowledgements() {
    let server = Scripted::start().await;
    let yaml = format!("{{ servers: '{}', topics: t, client_id: c, end_after_idle: 1ms }}", server.address());
    let serving = tokio::spawn(async move {
        let mut peer = server.accept_subscriber(false, Qos::AtLeastOnce).await;
        for id in [1, 2] {
            peer.write(&message(id, Qos::AtLeastOnce, false)).await.unwrap();
            assert_eq!(peer.take(0x40).await, id.to_be_bytes());
        }
        peer.take(0xe0).await;
    });
    let source = start(&yaml, 1 << 16);
    for id in [1, 2] {
        let batch = source.take_batch(Duration::from_secs(60)).await.unwrap();
        assert_eq!(numbers(&batch), [id]);
        // Long enough for a source that does not wait.
        tokio::time::sleep(Duration::from_millis(300)).await;
        batch.settle(Outcome::Delivered);
    }
    let sent = source.finish().await;
    assert!(sent.result.is_none() && sent.main.is_empty(), "{:?}", sent.result);
    serving.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_waits_for_a_server_which_does_not_answer_can_be_stopped() {
    // Its system accepts connections, and it does not.
    let server = Scripted::start().await;
    let source = start(&format!("{{ servers: '{}', topics: t, client_id: c }}", server.address()), 1 << 16);
    source.stop.request();
    let sent = source.finish().await;
    assert!(sent.result.is_none(), "{:?}", sent.result);
}

/// The source waited for the settlements, and they for the end of the source.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_may_end_does_so_if_messages_are_settled_only_at_the_end() {
    let (_mqtt, yaml) = numbered(30, "t/#", ", protocol: mqtt3.1.1").await;
    let ending = yaml.replace(" }", ", end_after_idle: 100ms }");
    let source = start(&ending, 1 << 16);
    let mut open = Vec::new();
    while let Some(batch) = source.take_batch(Duration::from_secs(60)).await {
        open.push(batch);
    }
    let mut seen: BTreeSet<u32> = open.iter().flat_map(numbers).collect();
    open.into_iter().for_each(|batch| batch.settle(Outcome::Delivered));
    let sent = source.finish().await;
    assert!(sent.result.is_none() && sent.main.is_empty(), "{:?}", sent.result);
    assert!(!seen.is_empty());
    // Those come that the server had not sent, or that were left to this run.
    let sent = start(&ending, 1 << 16).finish().await;
    seen.extend(sent.main.iter().flat_map(numbers));
    assert!(seen.into_iter().eq(0..30));
}

/// Returns a server, and the options of a source that ends.
async fn ending() -> (Scripted, String) {
    let server = Scripted::start().await;
    let yaml = format!("{{ servers: '{}', topics: t, client_id: c, end_after_idle: 1ms }}", server.address());
    (server, yaml)
}

/// Waits for the only message, and for the end of the input behind the source.
async fn last_batch(source: &RunningSource) -> Batch {
    let batch = source.take_batch(Duration::from_secs(60)).await.unwrap();
    assert_eq!(numbers(&batch), [1]);
    assert!(source.take_batch(Duration::from_secs(60)).await.is_none());
    batch
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_has_ended_reads_until_the_server_has_the_last_acknowledgements() {
    let (server, yaml) = ending().await;
    let (tell_ended, ended) = oneshot::channel();
    let (tell_sent, sent_more) = oneshot::channel();
    let serving = tokio::spawn(async move {
        let mut peer = server.accept_subscriber(false, Qos::AtLeastOnce).await;
        peer.write(&message(1, Qos::AtLeastOnce, false)).await.unwrap();
        peer.take(0xc0).await;
        peer.write(&[0xd0, 0]).await.unwrap();
        ended.await.unwrap();
        let more: Vec<u8> = (2..300).flat_map(|id| message(id, Qos::AtLeastOnce, false)).collect();
        peer.write(&more).await.unwrap();
        tell_sent.send(()).unwrap();
        assert_eq!(peer.take(0x40).await, 1_u16.to_be_bytes());
        // The question whether the server is there, behind the acknowledgement.
        peer.take(0xc0).await;
        peer.write(&[0xd0, 0]).await.unwrap();
        peer.take(0xe0).await;
    });
    let source = start(&yaml, 1 << 16);
    let batch = last_batch(&source).await;
    tell_ended.send(()).unwrap();
    sent_more.await.unwrap();
    batch.settle(Outcome::Delivered);
    let sent = source.finish().await;
    assert!(sent.result.is_none() && sent.main.is_empty(), "{:?}", sent.result);
    serving.await.unwrap();
}

/// The source had sent on what came over the second connection, and failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_has_ended_acknowledges_over_another_connection_and_sends_nothing_on() {
    let (server, yaml) = ending().await;
    let (tell_ended, ended) = oneshot::channel();
    let (tell_resumed, resumed) = oneshot::channel();
    let serving = tokio::spawn(async move {
        let mut peer = server.accept_subscriber(false, Qos::AtLeastOnce).await;
        peer.write(&message(1, Qos::AtLeastOnce, false)).await.unwrap();
        peer.take(0xc0).await;
        peer.write(&[0xd0, 0]).await.unwrap();
        ended.await.unwrap();
        drop(peer);
        let mut peer = server.accept_subscriber(true, Qos::AtLeastOnce).await;
        peer.write(&message(1, Qos::AtLeastOnce, true)).await.unwrap();
        peer.write(&message(2, Qos::AtLeastOnce, false)).await.unwrap();
        tell_resumed.send(()).unwrap();
        assert_eq!(peer.take(0x40).await, 1_u16.to_be_bytes());
        peer.take(0xe0).await;
    });
    let source = start(&yaml, 1 << 16);
    let batch = last_batch(&source).await;
    tell_ended.send(()).unwrap();
    resumed.await.unwrap();
    batch.settle(Outcome::Delivered);
    let sent = source.finish().await;
    assert!(sent.result.is_none() && sent.main.is_empty(), "{:?}", sent.result);
    serving.await.unwrap();
}

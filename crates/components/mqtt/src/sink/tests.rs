use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, RecordBatch, StringViewArray};
use tokio::task::block_in_place;

use thalweg_engine::testing::{self, batch, messages, open_sink, options, write_until_durable};
use thalweg_engine::{Component, Error, Rejects, Sink, SinkConfig, WriteOutcome};
use thalweg_record::{Batch, Outcome};
use thalweg_testbed::{Mqtt, MqttMessage, Outage};

use super::MqttSink;
use crate::scripted::Scripted;

/// Of a message: the topic and the payload.
type Row<'a> = (&'a str, &'a str);

fn batch_of(rows: &[Row<'_>]) -> Batch {
    let columns: [(&str, ArrayRef); 1] =
        [("place", Arc::new(rows.iter().map(|row| Some(row.0)).collect::<StringViewArray>()))];
    batch(rows.iter().map(|row| row.1)).with_fields(RecordBatch::try_from_iter(columns).unwrap()).unwrap()
}

fn payloads(messages: &[MqttMessage]) -> Vec<&str> {
    messages.iter().map(|message| message.payload.as_str()).collect()
}

/// Writes a batch of which all messages are accepted. Calls `failed` after each error.
async fn write(sink: &mut dyn Sink, batch: Batch, failed: impl FnMut(&Error)) {
    assert!(write_until_durable(sink, batch, failed).await.is_empty());
}

#[test]
fn options_that_cannot_work_are_mistakes() {
    for (yaml, expected) in [
        ("{ servers: h, topic: '' }", "`` is no topic."),
        ("{ servers: h, topic: a/# }", "`a/#` is no topic."),
        (
            "{ servers: h, topic: a, qos: 2 }",
            "`client_id` is missing: with `qos: 2`, the session has a name.",
        ),
        ("{ servers: h, topic: a, client_id: '' }", "The session has no name."),
        ("{ servers: h, topic: a, client_id: \"a\\tb\" }", "This is no name."),
        ("{ servers: h, topic: a, response_topic: a/+ }", "`a/+` is no topic."),
        ("{ servers: h, topic: a, max_age: 500ms }", "The protocol counts in seconds."),
        ("{ servers: h, topic: a, timeout: 0s }", "No server can confirm a message in no time."),
        (
            "{ servers: h, topic: a, protocol: mqtt3.1.1, properties: { a: b } }",
            "Messages of MQTT 3.1.1 have no properties.",
        ),
    ] {
        assert_eq!(messages(options::<MqttSink>(yaml).check()), [expected], "{yaml}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_message_has_follows_from_the_row_and_what_is_refused_has_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules");
    std::fs::write(&rules, "topic readwrite s/#\ntopic readwrite testbed/#\n").unwrap();
    let configuration = format!("allow_anonymous true\nacl_file {}\nmax_packet_size 2000\n", rules.display());
    let mqtt = Mqtt::start_with(&configuration, None).unwrap();
    let large = "z".repeat(3000);
    let rows: [Row<'_>; 5] =
        [("s/a", "one"), ("s/+", "to a wildcard"), ("other", "forbidden"), ("s/a", &large), ("s/b/c", "two")];
    for (qos, more) in [(0, ""), (1, ""), (2, ", client_id: c")] {
        let session = format!("session-{qos}");
        block_in_place(|| mqtt.subscribe(&session, "s/#").unwrap());
        let yaml = format!(
            "{{ servers: '{}', topic: '{{place}}', qos: {qos}, content_type: text/plain, \
             response_topic: 'r/{{place}}', properties: {{ From: 'x-{{place}}' }}, timeout: 5s{more} }}",
            mqtt.address()
        );
        // Nothing would tell that a message of QoS 0 is refused. mosquitto 2.0.11 ends the connection after
        // it has refused one.
        let rows: Vec<Row<'_>> = rows.iter().copied().filter(|row| qos > 0 || row.0 != "other").collect();
        let mut sink = open_sink::<MqttSink>(&yaml).await;
        let mut rejected = write_until_durable(&mut *sink, batch_of(&rows), |_| {}).await;
        sink.finish().await.unwrap();
        if qos > 0 {
            let refused = (2, "the server refuses the message: not authorized (0x87)".to_owned());
            assert_eq!(rejected.remove(1), refused);
        }
        let [(1, wildcard), (_, size)] = &rejected[..] else { panic!("{rejected:?}") };
        assert!(wildcard.starts_with("the topic of the message is not a text"), "{wildcard}");
        assert!(size.ends_with(" bytes, more than the server takes (2000)"), "{size}");
        let mut stored = block_in_place(|| mqtt.messages_with_properties(&session, "s/#").unwrap());
        // With QoS 1, a message whose confirmation was lost is there again.
        stored.dedup();
        assert_eq!(payloads(&stored), ["one", "two"]);
        assert_eq!((stored[1].topic.as_str(), stored[1].qos), ("s/b/c", qos));
        assert_eq!(stored[1].properties["user-properties"]["From"], "x-s/b/c");
        assert_eq!(stored[1].properties["content-type"], "text/plain");
        assert_eq!(stored[1].properties["response-topic"], "r/s/b/c");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_waits_for_a_server_that_is_away_and_no_message_is_lost() {
    let mut mqtt = Mqtt::start().unwrap();
    block_in_place(|| mqtt.subscribe("s", "t").unwrap());
    for protocol in ["mqtt5", "mqtt3.1.1"] {
        let yaml = format!(
            "{{ servers: '{}', topic: t, protocol: {protocol}, timeout: 1s, max_pending: 100 }}",
            mqtt.relayed_address()
        );
        let mut sink = open_sink::<MqttSink>(&yaml).await;
        let mut expected = BTreeSet::new();
        for round in 0..6 {
            let lines: Vec<String> = (0..300).map(|number| format!("message {round} {number:04}")).collect();
            let batch = batch(lines.iter().map(String::as_str));
            expected.extend(lines);
            let outage = match round {
                2 => Outage::Killed,
                4 => Outage::Hanging,
                _ => Outage::Cut,
            };
            let mut lost = block_in_place(|| mqtt.lose(outage).unwrap());
            write(&mut *sink, batch, |_| block_in_place(|| lost.mend().unwrap())).await;
            assert!(lost.is_over());
        }
        sink.finish().await.unwrap();
        let stored = block_in_place(|| mqtt.messages("s", "t").unwrap());
        let distinct: BTreeSet<String> = stored.into_iter().map(|message| message.payload).collect();
        assert_eq!(distinct, expected, "{protocol}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_qos_2_connections_that_are_cut_lose_and_repeat_nothing() {
    let mqtt = Arc::new(Mqtt::start().unwrap());
    block_in_place(|| mqtt.subscribe("s", "t").unwrap());
    for protocol in ["mqtt5", "mqtt3.1.1"] {
        let yaml = format!(
            "{{ servers: '{}', topic: t, protocol: {protocol}, qos: 2, client_id: c, max_pending: 50 }}",
            mqtt.relayed_address()
        );
        let mut sink = open_sink::<MqttSink>(&yaml).await;
        let cut = mqtt.clone();
        let cutting = tokio::spawn(async move {
            for _ in 0..100_000 {
                tokio::time::sleep(Duration::from_millis(30)).await;
                cut.cut();
            }
        });
        let (mut expected, mut failures) = (Vec::new(), 0);
        for round in 0..10 {
            let lines: Vec<String> = (0..500).map(|number| format!("{round} {number}")).collect();
            write(&mut *sink, batch(lines.iter().map(String::as_str)), |_| failures += 1).await;
            expected.extend(lines);
        }
        assert!(failures > 0, "no connection was cut while messages were sent");
        cutting.abort();
        sink.finish().await.unwrap();
        let stored = block_in_place(|| mqtt.messages("s", "t").unwrap());
        assert_eq!(payloads(&stored), expected, "{protocol}");
    }
}

/// It has other messages under the same numbers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_of_an_earlier_run_at_another_server_is_discarded() {
    let servers = [Scripted::start().await, Scripted::start().await];
    let [first, second] = servers.each_ref().map(Scripted::address);
    let yaml = format!("{{ servers: ['{first}', '{second}'], topic: t, qos: 2, client_id: c }}");
    let [first, second] = servers;
    let before = tokio::spawn(async move {
        assert!(first.accept(false).await.is_clean);
        assert!(!first.accept(false).await.is_clean);
    });
    let after = tokio::spawn(async move {
        assert!(!second.accept(true).await.is_clean);
        assert!(second.accept(false).await.is_clean);
        let mut peer = second.accept(false).await;
        let message = peer.take(0x34).await;
        let number = message.get(3..5).unwrap();
        peer.write(&[&[0x50, 2][..], number].concat()).await.unwrap();
        peer.take(0x62).await;
        peer.write(&[&[0x70, 2][..], number].concat()).await.unwrap();
        peer.take(0xe0).await;
    });
    let mut sink = open_sink::<MqttSink>(&yaml).await;
    before.await.unwrap();
    write(&mut *sink, batch(["x"]), |_| {}).await;
    sink.finish().await.unwrap();
    after.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_may_not_wait_longer_leave_by_errors_and_later_ones_are_sent() {
    let mut mqtt = Mqtt::start().unwrap();
    block_in_place(|| mqtt.subscribe("s", "t").unwrap());
    let yaml = format!("{{ servers: '{}', topic: t, timeout: 1s, give_up: 2s }}", mqtt.relayed_address());
    let mut sink = open_sink::<MqttSink>(&yaml).await;
    let mut refused = Vec::new();
    for text in ["before", "while it is down", "after"] {
        match text {
            "before" => {}
            "after" => block_in_place(|| mqtt.restart().unwrap()),
            _ => block_in_place(|| mqtt.kill().unwrap()),
        }
        refused.extend(write_until_durable(&mut *sink, batch([text]), |_| {}).await);
    }
    let [(0, reason)] = &refused[..] else { panic!("{refused:?}") };
    assert!(reason.starts_with("could not be sent for 2 s (`give_up`): "), "{reason}");
    assert_eq!(payloads(&block_in_place(|| mqtt.messages("s", "t").unwrap())), ["before", "after"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_sends_without_end_and_confirms_nothing_is_given_no_more_than_the_timeout() {
    let server = Scripted::start().await;
    let yaml = format!("{{ servers: '{}', topic: t, timeout: 200ms }}", server.address());
    tokio::spawn(async move {
        let mut peer = server.accept(false).await;
        let answers = [0xd0_u8, 0].repeat(8192);
        while peer.write(&answers).await.is_ok() {}
    });
    let mut sink = open_sink::<MqttSink>(&yaml).await;
    let batch = batch(["x"]);
    let mut rejects = Rejects::default();
    let written = tokio::time::timeout(Duration::from_secs(60), sink.write(&batch, &mut rejects)).await;
    let error = written.expect("the sink does not end").unwrap_err();
    assert_eq!(error.full(), "1 messages were not confirmed within 0.2 s");
    batch.settle(Outcome::Delivered);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_qos_0_are_sent_again_after_a_call_that_was_dropped() {
    let server = Scripted::start().await;
    let yaml = format!("{{ servers: '{}', topic: t, qos: 0 }}", server.address());
    let serving = tokio::spawn(async move {
        // The first connection stays open, and answers nothing.
        let _first = server.accept(false).await;
        let mut second = server.accept(false).await;
        let message = second.take(0x30).await;
        second.take(0xe0).await;
        message
    });
    let mut sink = open_sink::<MqttSink>(&yaml).await;
    let batch = batch(["x"]);
    let mut rejects = Rejects::default();
    let dropped = tokio::time::timeout(Duration::from_millis(300), sink.write(&batch, &mut rejects)).await;
    assert!(dropped.is_err());
    assert_eq!(sink.write(&batch, &mut rejects).await.unwrap(), WriteOutcome::Durable);
    batch.settle(Outcome::Delivered);
    sink.finish().await.unwrap();
    assert_eq!(serving.await.unwrap(), b"\0\x01t\0x");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_that_the_server_does_not_know_is_refused_for_good() {
    let mqtt = Mqtt::start_with("", Some(("alice", "secret"))).unwrap();
    let address = mqtt.address();
    for (auth, protocol, expected) in [
        ("{ user: alice, password: secret }", "mqtt5", None),
        ("{ user: alice, password: secret }", "mqtt3.1.1", None),
        ("{ user: alice, password: other }", "mqtt5", Some("not authorized (0x87); see `auth`")),
        ("{ user: alice, password: other }", "mqtt3.1.1", Some("not authorized (0x87); see `auth`")),
    ] {
        let yaml = format!("{{ servers: '{address}', topic: t, auth: {auth}, protocol: {protocol} }}");
        let mut sink = options::<MqttSink>(&yaml).build(&testing::context()).unwrap();
        match (sink.open(None).await, expected) {
            (Ok(()), None) => {}
            (Err(error), Some(expected)) => {
                assert!(!error.kind().is_temporary());
                assert!(error.full().ends_with(expected), "{}", error.full());
                assert!(!error.full().contains("other"), "{}", error.full());
            }
            (opened, _) => panic!("{auth}: {opened:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_tls_is_reached_if_its_certificate_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (folder.path().join("certificate.pem"), folder.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let (certificate, key) = (certificate.display(), key.display());
    let configuration = format!("allow_anonymous true\ncertfile {certificate}\nkeyfile {key}\n");
    let mqtt = Mqtt::start_with(&configuration, None).unwrap();
    let yaml = |tls: &str| format!("{{ servers: '{}', topic: t, tls: {tls} }}", mqtt.address());
    let mut sink = open_sink::<MqttSink>(&yaml(&format!("{{ ca: '{certificate}' }}"))).await;
    write(&mut *sink, batch(["over TLS"]), |error| panic!("{}", error.full())).await;
    let mut untrusting = options::<MqttSink>(&yaml("{}")).build(&testing::context()).unwrap();
    assert!(untrusting.open(None).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sink_conforms() {
    let mqtt = Mqtt::start().unwrap();
    testing::sink_conforms::<MqttSink>(&format!("{{ servers: '{}', topic: t }}", mqtt.address())).await;
}

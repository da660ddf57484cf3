use std::sync::{Arc, mpsc};
use std::time::Duration;

use arrow_array::{ArrayRef, RecordBatch, StringViewArray};
use tokio::task::block_in_place;

use thalweg_engine::testing::{self, batch, messages, open_sink, options, reasons, write_until_durable};
use thalweg_engine::{Component, Error, ErrorKind, Sink};
use thalweg_record::Batch;
use thalweg_testbed::{Nats, NatsMessage, Outage, StreamConfig};

use super::NatsSink;
use crate::scripted::{Peer, Scripted};

/// Of a message: the kind, the id and the payload.
type Row<'a> = (&'a str, Option<&'a str>, &'a str);

fn batch_of(rows: &[Row<'_>]) -> Batch {
    let columns: [(&str, ArrayRef); 2] = [
        ("kind", Arc::new(rows.iter().map(|row| Some(row.0)).collect::<StringViewArray>())),
        ("id", Arc::new(rows.iter().map(|row| row.1).collect::<StringViewArray>())),
    ];
    batch(rows.iter().map(|row| row.2)).with_fields(RecordBatch::try_from_iter(columns).unwrap()).unwrap()
}

fn payloads(messages: &[NatsMessage]) -> Vec<String> {
    messages.iter().map(NatsMessage::text).collect()
}

#[test]
fn options_that_cannot_work_are_mistakes() {
    for (yaml, expected) in [
        ("{ servers: h, subject: '' }", "`` is no subject."),
        ("{ servers: h, subject: a.*.b }", "`a.*.b` is no subject."),
        ("{ servers: h, subject: a, headers: { 'a b': x } }", "`a b` is no name of a header."),
        (
            "{ servers: h, subject: a, headers: { nats-msg-id: x } }",
            "The header `Nats-Msg-Id` is that of `message_id`.",
        ),
        (
            "{ servers: h, subject: a, message_id: x }",
            "A stream keeps one of several messages with the same id.",
        ),
        (
            "{ servers: h, subject: a, message_id: '{x}', jetstream: false }",
            "Only streams compare the ids of messages.",
        ),
        ("{ servers: h, subject: a, timeout: 0s }", "No server can confirm a message in no time."),
    ] {
        assert_eq!(messages(options::<NatsSink>(yaml).check()), [expected], "{yaml}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_message_has_follows_from_the_row_and_what_is_refused_has_its_reason() {
    let nats = Nats::start_with("max_payload: 64KB").unwrap();
    let config = StreamConfig {
        name: "S".to_owned(),
        subjects: vec!["s.>".to_owned()],
        max_message_size: 1000,
        ..StreamConfig::default()
    };
    block_in_place(|| nats.create(config).unwrap());
    let yaml = format!(
        "{{ servers: '{}', subject: 's.{{kind}}', message_id: '{{id}}', headers: {{ From: 'x-{{kind}}' }}, \
         timeout: 5s }}",
        nats.address()
    );
    let (large, huge) = ("z".repeat(2000), "z".repeat(70_000));
    let rows: [Row<'_>; 8] = [
        ("a", Some("1"), "a payload of some length"),
        ("a", None, "no id"),
        ("a b", Some("3"), "to no subject"),
        ("a", Some("4"), &large),
        ("a", Some("5"), &huge),
        ("b.c", Some("6"), ""),
        ("a", Some("1"), "an id that was there"),
        ("a", Some("7\n7"), "an id with a line break"),
    ];
    let rejected = testing::write_all::<NatsSink>(&yaml, [batch_of(&rows)]).await.unwrap();
    assert_eq!(
        reasons(&rejected),
        [
            (2, "the subject of the message is not words without spaces, joined by dots"),
            (3, "message size exceeds maximum allowed"),
            (4, "the message has 70039 bytes, more than the server takes (65536)"),
            (7, "the header `Nats-Msg-Id` has a line break"),
        ]
    );
    let stored = block_in_place(|| nats.messages("S").unwrap());
    assert_eq!(
        stored,
        [
            NatsMessage::new("s.a", "a payload of some length")
                .header("From", "x-a")
                .header("Nats-Msg-Id", "1"),
            NatsMessage::new("s.a", "no id").header("From", "x-a"),
            NatsMessage::new("s.b.c", "").header("From", "x-b.c").header("Nats-Msg-Id", "6"),
        ]
    );
    // A later run sends them again.
    testing::write_all::<NatsSink>(&yaml, [batch_of(&rows[..1])]).await.unwrap();
    assert_eq!(block_in_place(|| nats.messages("S").unwrap()).len(), 3);
}

/// Writes a batch of which all messages are accepted. Calls `failed` after each error.
async fn write(sink: &mut dyn Sink, batch: Batch, failed: impl FnMut(&Error)) {
    assert!(write_until_durable(sink, batch, failed).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_waits_for_a_server_that_is_away_and_is_stored_once_and_in_order() {
    let mut nats = Nats::start().unwrap();
    block_in_place(|| nats.create_stream("S", &["s"]).unwrap());
    let yaml =
        format!("{{ servers: '{}', subject: s, timeout: 1s, max_pending: 100 }}", nats.relayed_address());
    let mut sink = open_sink::<NatsSink>(&yaml).await;
    let mut expected = Vec::new();
    for round in 0..12 {
        let lines: Vec<String> = (0..500).map(|number| format!("message {round} {number:04}")).collect();
        let batch = batch(lines.iter().map(String::as_str));
        expected.extend(lines);
        let outage = match round {
            3 | 7 => Outage::Killed,
            5 | 9 => Outage::Hanging,
            _ => Outage::Cut,
        };
        let mut lost = block_in_place(|| nats.lose(outage).unwrap());
        let mut failures = 0;
        write(&mut *sink, batch, |_| {
            failures += 1;
            // While it hangs, some messages are sent again.
            if !lost.is_hanging() || failures == 2 {
                block_in_place(|| lost.mend().unwrap());
            }
        })
        .await;
        assert!(lost.is_over());
    }
    sink.finish().await.unwrap();
    let stored = block_in_place(|| nats.messages("S").unwrap());
    assert_all_once(payloads(&stored), expected);
}

/// A message that was lost with a connection comes behind those that follow it.
fn assert_all_once(mut stored: Vec<String>, mut expected: Vec<String>) {
    stored.sort_unstable();
    expected.sort_unstable();
    assert_eq!(stored, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_cut_at_any_moment_lose_and_repeat_nothing() {
    let nats = Arc::new(Nats::start().unwrap());
    block_in_place(|| nats.create_stream("S", &["s"]).unwrap());
    let yaml = format!("{{ servers: '{}', subject: s, max_pending: 50 }}", nats.relayed_address());
    let mut sink = open_sink::<NatsSink>(&yaml).await;
    let cut = nats.clone();
    let cutting = tokio::spawn(async move {
        for _ in 0..100_000 {
            tokio::time::sleep(Duration::from_millis(30)).await;
            cut.cut();
        }
    });
    let mut expected = Vec::new();
    for round in 0..20 {
        let lines: Vec<String> = (0..1000).map(|number| format!("{round} {number}")).collect();
        write(&mut *sink, batch(lines.iter().map(String::as_str)), |_| {}).await;
        expected.extend(lines);
    }
    cutting.abort();
    sink.finish().await.unwrap();
    let stored = block_in_place(|| nats.messages("S").unwrap());
    assert_all_once(payloads(&stored), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subject_that_no_stream_has_waits_if_it_is_the_only_one_and_is_refused_otherwise() {
    let nats = Nats::start().unwrap();
    block_in_place(|| nats.create_stream("S", &["s.a"]).unwrap());
    let address = nats.address();
    let mut sink =
        open_sink::<NatsSink>(&format!("{{ servers: '{address}', subject: t, timeout: 300ms }}")).await;
    let mut is_created = false;
    write(&mut *sink, batch(["waits"]), |error| {
        if !std::mem::replace(&mut is_created, true) {
            assert!(error.full().contains("no stream has the subject"), "{}", error.full());
            block_in_place(|| nats.create_stream("T", &["t"]).unwrap());
        }
    })
    .await;
    assert!(is_created);
    assert_eq!(payloads(&block_in_place(|| nats.messages("T").unwrap())), ["waits"]);
    let yaml = format!("{{ servers: '{address}', subject: 's.{{kind}}' }}");
    let rows = [("b", None, "to no stream"), ("a", None, "to a stream")];
    let rejected = testing::write_all::<NatsSink>(&yaml, [batch_of(&rows)]).await.unwrap();
    assert_eq!(reasons(&rejected), [(0, "no stream has the subject `s.b`")]);
    assert_eq!(payloads(&block_in_place(|| nats.messages("S").unwrap())), ["to a stream"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_full_gets_messages_when_there_is_room() {
    let nats = Nats::start().unwrap();
    let config = StreamConfig {
        name: "S".to_owned(),
        subjects: vec!["s".to_owned()],
        max_messages: 3,
        discard: thalweg_testbed::DiscardPolicy::New,
        ..StreamConfig::default()
    };
    block_in_place(|| nats.create(config).unwrap());
    let mut sink =
        open_sink::<NatsSink>(&format!("{{ servers: '{}', subject: s, timeout: 300ms }}", nats.address()))
            .await;
    let mut is_emptied = false;
    write(&mut *sink, batch(["1", "2", "3", "4"]), |error| {
        assert_eq!(error.kind(), ErrorKind::Overloaded);
        if !std::mem::replace(&mut is_emptied, true) {
            assert!(error.full().contains("maximum messages exceeded"), "{}", error.full());
            block_in_place(|| nats.purge("S").unwrap());
        }
    })
    .await;
    assert!(is_emptied);
    assert_eq!(payloads(&block_in_place(|| nats.messages("S").unwrap())), ["4"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscribers_have_messages_without_a_stream_when_they_are_acknowledged() {
    let nats = Arc::new(Nats::start().unwrap());
    let (tell, ready) = mpsc::channel();
    let known = nats.clone();
    let receiving = std::thread::spawn(move || known.receive("s.>", 3, || tell.send(()).unwrap()).unwrap());
    block_in_place(|| ready.recv().unwrap());
    let yaml = format!(
        "{{ servers: '{}', subject: 's.{{kind}}', jetstream: false, headers: {{ Id: '{{id}}' }} }}",
        nats.address()
    );
    let rows: [Row<'_>; 4] = [
        ("a", Some("1"), "first"),
        ("", Some("2"), "to no subject"),
        ("b", None, ""),
        ("a", Some("4"), "last"),
    ];
    let rejected = testing::write_all::<NatsSink>(&yaml, [batch_of(&rows)]).await.unwrap();
    assert_eq!(
        reasons(&rejected),
        [(1, "the subject of the message is not words without spaces, joined by dots")]
    );
    let received = block_in_place(|| receiving.join().unwrap());
    assert_eq!(
        received,
        [
            NatsMessage::new("s.a", "first").header("Id", "1"),
            NatsMessage::new("s.b", "").header("Id", ""),
            NatsMessage::new("s.a", "last").header("Id", "4"),
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_that_may_only_publish_needs_no_other_right_without_a_stream() {
    let users = "no_auth_user: tester\n\
         authorization { users: [{ user: tester, password: tests }, { user: alice, password: one, \
         permissions: { publish: { allow: [\"s\"] }, subscribe: { deny: [\">\"] } } }] }";
    let nats = Arc::new(Nats::start_with(users).unwrap());
    let (tell, ready) = mpsc::channel();
    let known = nats.clone();
    let receiving = std::thread::spawn(move || known.receive("s", 1, || tell.send(()).unwrap()).unwrap());
    block_in_place(|| ready.recv().unwrap());
    let yaml = |subject: &str| {
        format!(
            "{{ servers: '{}', subject: {subject}, jetstream: false, timeout: 5s, \
             auth: {{ user: alice, password: one }} }}",
            nats.address()
        )
    };
    testing::write_all::<NatsSink>(&yaml("s"), [batch(["one"])]).await.unwrap();
    assert_eq!(payloads(&block_in_place(|| receiving.join().unwrap())), ["one"]);
    let error = testing::write_all::<NatsSink>(&yaml("t"), [batch(["two"])]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Permanent);
    let expected = "the server refused messages: Permissions Violation for Publish to \"t\"";
    assert_eq!(error.full(), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_for_subscribers_waits_for_a_server_that_is_away() {
    let mut nats = Nats::start().unwrap();
    let yaml =
        format!("{{ servers: '{}', subject: s, jetstream: false, timeout: 500ms }}", nats.relayed_address());
    let mut sink = open_sink::<NatsSink>(&yaml).await;
    nats.hang().unwrap();
    let mut is_hanging = true;
    write(&mut *sink, batch(["one"]), |_| {
        if std::mem::take(&mut is_hanging) {
            nats.wake().unwrap();
        }
    })
    .await;
    nats.kill().unwrap();
    let mut is_down = true;
    write(&mut *sink, batch(["two"]), |_| {
        if std::mem::take(&mut is_down) {
            block_in_place(|| nats.restart().unwrap());
        }
    })
    .await;
    assert!(!is_hanging && !is_down);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_may_not_wait_longer_leave_by_errors_and_later_ones_are_stored() {
    let mut nats = Nats::start().unwrap();
    block_in_place(|| nats.create_stream("S", &["s"]).unwrap());
    for jetstream in [true, false] {
        let yaml = format!(
            "{{ servers: '{}', subject: s, jetstream: {jetstream}, timeout: 500ms, give_up: 1s }}",
            nats.relayed_address()
        );
        let mut sink = open_sink::<NatsSink>(&yaml).await;
        let mut refused = Vec::new();
        for text in ["before", "while it is down", "after"] {
            let rejected = write_until_durable(&mut *sink, batch([text]), |_| {}).await;
            refused.extend(rejected.into_iter().map(|(_, reason)| (text, reason)));
            match text {
                "before" => nats.kill().unwrap(),
                "while it is down" => block_in_place(|| nats.restart().unwrap()),
                _ => {}
            }
        }
        sink.finish().await.unwrap();
        let [("while it is down", reason)] = &refused[..] else { panic!("{refused:?}") };
        assert!(reason.starts_with("could not be sent for 1 s (`give_up`): "), "{reason}");
    }
    // The subject is also that of the stream, so it has what both sinks sent.
    let stored = block_in_place(|| nats.messages("S").unwrap());
    assert_eq!(payloads(&stored), ["before", "after", "before", "after"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_are_known_in_each_way_and_a_wrong_secret_ends_the_run_and_is_not_shown() {
    const SEED: &str = "SUAHKLHMY45Y3MOYAOCSJNSP6MRWP3SWQXH3JY3CYESPZ3RTDZ4TY7KBBA";
    const KEY: &str = "UCVGYVHB2DD46OI2TRMPXGT7MKJJ7KHZRGBGOUN3AZLCO3ZHDLIQBUHY";
    let users = format!(
        "no_auth_user: tester\n\
         authorization {{ users: [\
         {{ user: tester, password: tests }}, {{ user: alice, password: secret-one }}, {{ nkey: {KEY} }}] }}"
    );
    let (of_users, of_tokens) =
        (Nats::start_with(&users).unwrap(), Nats::start_with("authorization { token: token-one }").unwrap());
    block_in_place(|| of_users.create_stream("S", &["s"]).unwrap());
    let write = async |nats: &Nats, auth: &str, more: &str| {
        let yaml = format!("{{ servers: '{}', subject: s, auth: {auth}{more} }}", nats.address());
        testing::write_all::<NatsSink>(&yaml, [batch([auth])]).await
    };
    let (user, key) = ("{ user: alice, password: secret-one }", format!("{{ nkey: {SEED} }}"));
    write(&of_users, user, "").await.unwrap();
    write(&of_users, &key, "").await.unwrap();
    write(&of_tokens, "{ token: token-one }", ", jetstream: false").await.unwrap();
    for (nats, auth) in [
        (&of_users, "{ user: alice, password: wrong-one }"),
        (&of_users, "{ nkey: SUwrong-one }"),
        (&of_users, "{ credentials_file: no-such-file }"),
        (&of_tokens, "{ token: wrong-one }"),
    ] {
        let error = write(nats, auth, "").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Permanent, "{}", error.full());
        assert!(!error.full().contains("wrong-one"), "{}", error.full());
    }
    let stored = block_in_place(|| of_users.messages("S").unwrap());
    assert_eq!(payloads(&stored), [user, &key]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_encrypted_and_the_server_must_have_the_right_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (folder.path().join("ca.pem"), folder.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let (certificate, key) = (certificate.display(), key.display());
    let tls = format!("tls {{ cert_file: \"{certificate}\", key_file: \"{key}\" }}\nallow_non_tls: true");
    let nats = Nats::start_with(&tls).unwrap();
    block_in_place(|| nats.create_stream("S", &["s"]).unwrap());
    let write = async |tls: &str| {
        let yaml = format!("{{ servers: '{}', subject: s, tls: {tls} }}", nats.address());
        testing::write_all::<NatsSink>(&yaml, [batch([tls])]).await
    };
    let good = [
        format!("{{ ca: '{certificate}' }}"),
        format!("{{ ca: '{certificate}', server_name: localhost }}"),
        "{ insecure: true }".to_owned(),
    ];
    for tls in &good {
        write(tls).await.unwrap();
    }
    write("{}").await.unwrap_err();
    write(&format!("{{ ca: '{certificate}', server_name: other.example.com }}")).await.unwrap_err();
    let stored = block_in_place(|| nats.messages("S").unwrap());
    assert_eq!(payloads(&stored), good);
}

#[tokio::test]
async fn a_batch_for_subscribers_counts_when_the_server_has_answered_behind_it() {
    let server = Scripted::start().await;
    let yaml = format!("{{ servers: '{}', subject: '{{kind}}', jetstream: false }}", server.address());
    let long = "s".repeat(5000);
    let rows: [Row<'_>; 2] = [("s", None, "one"), (&long, None, "two")];
    let serve = async {
        let mut peer = server.accept().await;
        for line in ["PUB s 3", "one", "PING"] {
            assert_eq!(peer.line("").await, line);
        }
        peer.write(b"PONG\r\n").await.unwrap();
        peer
    };
    let (rejected, _peer) = tokio::join!(testing::write_all::<NatsSink>(&yaml, [batch_of(&rows)]), serve);
    let expected = "the subject has 5000 bytes, more than a server takes (4074)";
    assert_eq!(reasons(&rejected.unwrap()), [(1, expected)]);
}

/// Reads a message for a stream, and confirms it.
async fn confirm(peer: &mut Peer) {
    let line = peer.line("HPUB s ").await;
    let answer = r#"{"stream":"S","seq":1}"#;
    let reply = line.split(' ').next().unwrap();
    let message = format!("MSG {reply} 1 {}\r\n{answer}\r\n", answer.len());
    peer.write(message.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn a_hostile_server_is_a_temporary_error_of_the_sink_and_the_batch_is_stored_by_the_next_one() {
    let server = Scripted::start().await;
    let yaml = format!("{{ servers: '{}', subject: s }}", server.address());
    let serve = async {
        let mut peer = server.accept().await;
        peer.line("HPUB s ").await;
        peer.write(b"MSG s 1 9223372036854775808\r\n").await.unwrap();
        // The client connects again.
        let mut peer = server.accept().await;
        confirm(&mut peer).await;
        peer
    };
    let mut reasons = Vec::new();
    let store = async {
        let mut sink = open_sink::<NatsSink>(&yaml).await;
        write(&mut *sink, batch(["one"]), |error| reasons.push(error.full())).await;
        sink.finish().await.unwrap();
    };
    let (_peer, ()) = tokio::join!(serve, store);
    let [reason] = &reasons[..] else { panic!("{reasons:?}") };
    assert!(reason.starts_with("the connection to the server has ended: "), "{reason}");
    assert!(reason.contains("a message of an impossible size"), "{reason}");
}

#[tokio::test]
async fn answers_without_an_end_are_no_progress() {
    let server = Scripted::start().await;
    let yaml = format!("{{ servers: '{}', subject: s, timeout: 300ms }}", server.address());
    let (tell, told) = tokio::sync::oneshot::channel::<()>();
    let serve = async {
        let mut peer = server.accept().await;
        let inbox = peer.line("SUB ").await;
        let inbox = inbox.split('*').next().unwrap();
        let junk = format!("MSG {inbox}999999 1 2\r\n{{}}\r\nMSG {inbox}x 1 2\r\n{{}}\r\n").repeat(500);
        let flood = async {
            while peer.write(junk.as_bytes()).await.is_ok() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! { () = flood => {}, _ = told => {} }
    };
    let store = async {
        let mut sink = open_sink::<NatsSink>(&yaml).await;
        let mut rejects = thalweg_engine::Rejects::default();
        let error = sink.write(&batch(["one"]), &mut rejects).await.unwrap_err();
        tell.send(()).unwrap();
        error
    };
    let ((), error) = tokio::join!(serve, store);
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    assert!(error.full().starts_with("1 messages were not confirmed within 0.3 s"), "{}", error.full());
}

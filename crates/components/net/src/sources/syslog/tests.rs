use thalweg_engine::testing::{messages, options, payloads, rows};
use thalweg_record::{Batch, Outcome};
use tokio::io::AsyncWriteExt;
use tokio::net::{UdpSocket, UnixDatagram};

use super::*;
use crate::net::testing::{Server, trickle};

async fn start(yaml: &str) -> Server {
    let config: SyslogSource = options(yaml);
    assert_eq!(config.check(), []);
    let announce = Announce::new("test");
    Server::start(Syslog { config, announce: announce.clone() }, announce).await
}

/// Sends a datagram to a source with these options. Returns the batch, or the rejected payload and the
/// reason.
async fn sent(yaml: &str, datagram: &[u8]) -> Result<Batch, (String, String)> {
    let server = start(&format!("{{ address: 'udp://127.0.0.1:0', {yaml} }}")).await;
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    client.send_to(datagram, &server.address).await.unwrap();
    let batch = tokio::select! {
        mut batch = server.next() => { batch.take_ack().settle(Outcome::Delivered); Ok(batch) }
        mut batch = server.next_error() => {
            batch.take_ack().settle(Outcome::Rejected);
            let reason = rows(batch.fields())[0]["error_reason"].as_str().unwrap().to_owned();
            Err((payloads(&batch).remove(0), reason))
        }
    };
    assert!(server.stop().await.result.is_none());
    batch
}

#[tokio::test]
async fn many_fields_make_small_batches() {
    const MESSAGES: usize = 3000;
    let server = start("{ address: 'tcp://127.0.0.1:0', framing: lines, max_fields: 1024 }").await;
    let mut client = server.connect().await;
    let lines: String = (0..MESSAGES).map(|n| format!("<1>1 - - - - - [s{} a=\"b\"]\n", n % 1000)).collect();
    client.write_all(lines.as_bytes()).await.unwrap();
    let mut rows = 0;
    while rows < MESSAGES {
        let batch = server.next().await;
        assert!(batch.rows() * 1024 <= 1 << 19, "{}", batch.rows());
        rows += batch.rows();
        batch.settle(Outcome::Delivered);
    }
}

#[tokio::test]
async fn what_a_message_says_of_itself_becomes_fields() {
    let message = "<165>1 2003-10-11T22:14:15.003Z mymachine.example.com evntslog 123 ID47 [exampleSDID@32473 iut=\"3\" \
                   eventSource=\"App\\\"li\\]cation\"][other class=\"high\"] \u{feff}An application event\n";
    let batch = sent("payload: message", message.as_bytes()).await.unwrap();
    assert_eq!(payloads(&batch), ["An application event"]);
    let row = &rows(batch.fields())[0];
    for (name, expected) in [
        ("hostname", "mymachine.example.com"),
        ("appname", "evntslog"),
        ("procid", "123"),
        ("msgid", "ID47"),
        ("facility", "local4"),
        ("severity", "notice"),
        ("sd.exampleSDID@32473.iut", "3"),
        ("sd.exampleSDID@32473.eventSource", "App\"li]cation"),
        ("sd.other.class", "high"),
    ] {
        assert_eq!(row[name], expected, "{name}");
    }
    assert_eq!((row["priority"].as_i64(), row["version"].as_i64()), (Some(165), Some(1)));
    assert_eq!(row["timestamp"], 1_065_910_455_003_000_i64);
    assert_eq!(row.as_object().unwrap().len(), 12);
}

#[tokio::test]
async fn names_that_a_sender_makes_up_do_not_become_columns_without_end() {
    let server = start("{ address: 'tcp://127.0.0.1:0', max_fields: 2 }").await;
    let mut client = server.connect().await;
    let elements =
        ["[a x=\"1\" y=\"2\" z=\"3\"][b z=\"\\\"4\"]", "[a y=\"5\"]", "[c q=\"6\" q=\"7\"][a x=\"8\"]"];
    for element in elements {
        client.write_all(format!("<34>1 - h a - - {element} m\n").as_bytes()).await.unwrap();
    }
    client.shutdown().await.unwrap();
    let mut found = Vec::new();
    while found.len() < 3 {
        let batch = server.next().await;
        found.extend(rows(batch.fields()));
        batch.settle(Outcome::Delivered);
    }
    // The messages may come in several batches, each with its own two columns.
    let merged = |row: &serde_json::Value| {
        let mut merged = serde_json::Map::new();
        for (name, value) in row.as_object().unwrap() {
            if name == "sd" {
                let rest: serde_json::Value = serde_json::from_str(value.as_str().unwrap()).unwrap();
                merged.extend(rest.as_object().unwrap().clone());
            } else if let Some(name) = name.strip_prefix("sd.") {
                merged.insert(name.to_owned(), value.clone());
            }
        }
        serde_json::Value::Object(merged)
    };
    assert_eq!(merged(&found[0]), serde_json::json!({"a.x": "1", "a.y": "2", "a.z": "3", "b.z": "\"4"}));
    assert_eq!(found[0]["sd"], "{\"a.z\":\"3\",\"b.z\":\"\\\"4\"}");
    assert_eq!(merged(&found[1]), serde_json::json!({"a.y": "5"}));
    assert_eq!(merged(&found[2]), serde_json::json!({"c.q": "6", "c.q_2": "7", "a.x": "8"}));
    assert!(server.stop().await.result.is_none());
}

/// 4,000 names in as many messages made 4,000 columns of 4,000 rows.
#[test]
fn the_number_of_columns_is_bounded() {
    let text: String = (0..4000).map(|n| format!("<1>1 - - - - - [N{n} a=\"b\"]")).collect();
    let mut messages = Vec::new();
    let mut at = 0;
    for n in 0..4000 {
        let length = format!("<1>1 - - - - - [N{n} a=\"b\"]").len();
        messages.push(at..at + length);
        at += length;
    }
    let cut = crate::net::Cut { messages, ..crate::net::Cut::of(text.into_bytes().into()) };
    let mut parser = Parser::new(&SyslogSource::default());
    let mut rejected = Vec::new();
    let received =
        crate::net::Format::received(&mut parser, &cut, 0..4000, &"peer".into(), &mut rejected).unwrap();
    let fields = received.fields.unwrap();
    assert_eq!((fields.num_rows(), rejected.len()), (4000, 0));
    assert_eq!(fields.num_columns(), 9 + 64 + 1);
    assert_eq!(rows(&fields)[3999]["sd"], "{\"N3999.a\":\"b\"}");
}

#[tokio::test]
async fn the_older_form_is_understood_as_well() {
    let message = "<34>Oct 11 22:14:15 mymachine su[42]: 'su root' failed";
    let batch = sent("prefix: 'syslog.', codes: true", message.as_bytes()).await.unwrap();
    assert_eq!(payloads(&batch), [message]);
    let row = &rows(batch.fields())[0];
    assert_eq!((&row["syslog.hostname"], &row["syslog.appname"]), (&"mymachine".into(), &"su".into()));
    assert_eq!(row["syslog.procid"], "42");
    assert_eq!((row["syslog.facility"].as_i64(), row["syslog.severity"].as_i64()), (Some(4), Some(2)));
    assert!(row["syslog.timestamp"].as_i64().is_some() && row.get("syslog.version").is_none());
    let batch =
        sent("payload: message, add_fields: false, format: rfc3164", message.as_bytes()).await.unwrap();
    assert_eq!((payloads(&batch), batch.fields().num_columns()), (vec!["'su root' failed".to_owned()], 0));
}

#[tokio::test]
async fn messages_of_another_character_set_become_utf_8() {
    let batch = sent("charset: latin1, payload: message", b"<34>1 - host app - - - caf\xe9").await.unwrap();
    assert_eq!(payloads(&batch), ["caf\u{e9}"]);
    let mistakes = messages(options::<SyslogSource>("charset: utf-16").check());
    assert_eq!(mistakes, ["Syslog messages have their priority in ASCII."]);
}

#[tokio::test]
async fn a_datagram_that_is_too_long_is_an_error_with_its_first_bytes() {
    let message = format!("<34>1 - host app - - - {}", "x".repeat(6000));
    for (limit, kept, text) in [(5000, 4096, "5kB"), (100, 100, "100B")] {
        let sent = sent(&format!("max_message_bytes: {limit}"), message.as_bytes()).await;
        let Err((payload, reason)) = sent else { panic!("it is not too long for {limit} bytes") };
        assert_eq!(payload, message[..kept]);
        let expected =
            format!("is longer than `max_message_bytes` ({text}), and only its first {kept} bytes are kept");
        assert_eq!(reason, expected);
    }
}

#[tokio::test]
async fn bytes_that_are_not_text_stay_as_they_are() {
    let message = b"<34>1 2003-10-11T22:14:15Z host app - - - caf\xe9 \xff\xfe.";
    let batch = sent("payload: message", message).await.unwrap();
    assert_eq!(batch.payload().value(0), b"caf\xe9 \xff\xfe.");
    assert_eq!(rows(batch.fields())[0]["hostname"], "host");
    let batch = sent("", message).await.unwrap();
    assert_eq!(batch.payload().value(0), message);
}

#[tokio::test]
async fn what_is_no_message_of_syslog_is_an_error() {
    for (yaml, message, reason) in [
        ("", "just a text", "does not begin with a priority"),
        ("", "<34", "does not begin with a priority"),
        ("", "\u{0}", "does not begin with a priority"),
        ("format: rfc5424", "<34>Oct 11 22:14:15 mymachine su: x", "is not a syslog message of RFC 5424"),
        ("format: rfc3164", "<34>1 2003-10-11T22:14:15Z host app - - - x", "RFC 3164"),
    ] {
        let Err((payload, found)) = sent(yaml, message.as_bytes()).await else {
            panic!("`{message}` was understood");
        };
        assert!(found.contains(reason), "{found}");
        assert_eq!(payload, message.trim_end_matches('\0'));
    }
}

#[tokio::test]
async fn messages_in_a_stream_are_told_apart_in_both_ways() {
    let server = start("{ address: 'tcp://127.0.0.1:0' }").await;
    // Longer than the 1 KiB of early syslog senders.
    let long = format!("<34>1 - host app - - [a b=\"c\"] {}", "x".repeat(5000));
    let second = "<35>1 - host app - - [d e=\"f\"] two\nlines";
    let counted = format!("{} {long}{} {second}", long.len(), second.len());
    let mut client = server.connect().await;
    trickle(&mut client, counted.as_bytes(), 1000).await;
    client.shutdown().await.unwrap();
    let mut batches = vec![server.next().await];
    while batches.iter().map(Batch::rows).sum::<usize>() < 2 {
        batches.push(server.next().await);
    }
    let found: Vec<String> = batches.iter().flat_map(payloads).collect();
    assert_eq!(found, [long.as_str(), second]);
    let rows: Vec<_> = batches.iter().flat_map(|batch| rows(batch.fields())).collect();
    assert_eq!((&rows[0]["sd.a.b"], &rows[1]["sd.d.e"]), (&"c".into(), &"f".into()));
    assert!(rows[0].get("sd.d.e").is_none() && rows[0].get("timestamp").is_none());
    batches.into_iter().for_each(|batch| batch.settle(Outcome::Delivered));

    let mut client = server.connect().await;
    client.write_all(b"<34>1 - host app - - - one\nrubbish\n<34>1 - host app - - - two\n").await.unwrap();
    let (batch, error) = (server.next().await, server.next_error().await);
    assert_eq!(payloads(&batch), ["<34>1 - host app - - - one", "<34>1 - host app - - - two"]);
    assert_eq!(payloads(&error), ["rubbish"]);
    batch.settle(Outcome::Delivered);
    error.settle(Outcome::Rejected);
    assert!(server.stop().await.result.is_none());
}

#[tokio::test]
async fn programs_write_to_it_as_to_the_systems_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let server = start(&format!("{{ address: 'unixgram://{}', mode: '0666' }}", path.display())).await;
    let program = UnixDatagram::unbound().unwrap();
    program.send_to(b"<13>Feb  5 17:32:18 root: hello\0", &path).await.unwrap();
    let batch = server.next().await;
    assert_eq!(payloads(&batch), ["<13>Feb  5 17:32:18 root: hello"]);
    batch.settle(Outcome::Delivered);
    assert!(server.stop().await.result.is_none());
}

#[test]
fn what_does_not_go_together_is_refused() {
    let mistakes = |yaml: &str| messages(options::<SyslogSource>(yaml).check());
    assert_eq!(mistakes("{}"), [""; 0]);
    assert_eq!(mistakes("{ framing: lines }"), ["Each datagram is one message."]);
    assert_eq!(
        mistakes("{ add_fields: false, codes: true }"),
        ["`codes` has no effect without `add_fields`."]
    );
    assert_eq!(mistakes("{ tls: { certificate: a, key: b } }"), ["TLS is for TCP."]);
    assert_eq!(
        mistakes("{ max_message_bytes: 0 }"),
        ["`max_message_bytes` is 0B, but must be between 1 and 1GiB."]
    );
}

#[tokio::test]
async fn structured_data_has_its_keys_as_names() {
    let message = br#"<34>1 - - su - - [ex@1 a="b" c="d\"e"][x f="g"] an event"#;
    let batch = sent("payload: message, structured_data: key", message).await.unwrap();
    let row = &rows(batch.fields())[0];
    assert_eq!((&row["a"], &row["c"], &row["f"]), (&"b".into(), &"d\"e".into(), &"g".into()));
    assert_eq!(row["structured_data"], r#"[ex@1 a="b" c="d\"e"][x f="g"]"#);
    let batch = sent("structured_data: key", b"<34>1 - - - - - - x").await.unwrap();
    assert_eq!(rows(batch.fields())[0]["structured_data"], "-");
}

#[tokio::test]
async fn lines_that_are_no_syslog_are_messages_of_their_sender() {
    let options = "payload: message, format: rfc3164, others: accept";
    for (line, text, priority) in [("plain", "plain", 13), ("<34>1 - x", "1 - x", 34), ("<a>x", "<a>x", 13)] {
        let batch = sent(options, line.as_bytes()).await.unwrap();
        assert_eq!(payloads(&batch), [text]);
        let row = &rows(batch.fields())[0];
        assert_eq!((&row["priority"], &row["hostname"]), (&priority.into(), &"127.0.0.1".into()), "{line}");
        assert!(!row["timestamp"].is_null());
    }
}

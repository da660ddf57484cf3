use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use thalweg_engine::testing::{self, batch, messages, options};
use thalweg_engine::{Component, ErrorKind, Rejects, SinkConfig, WriteOutcome};
use thalweg_record::Batch;
use thalweg_testbed::{Kafka, Secured};

use super::KafkaSink;

fn text(bytes: Option<&bytes::Bytes>) -> Option<String> {
    bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// Of a message: the kind, the id, the partition, the time and the payload.
type Row<'a> = (&'a str, Option<&'a str>, Option<i64>, Option<i64>, &'a str);

fn batch_of(rows: &[Row<'_>]) -> Batch {
    let columns: [(&str, ArrayRef); 4] = [
        ("kind", Arc::new(rows.iter().map(|row| Some(row.0)).collect::<StringViewArray>())),
        ("id", Arc::new(rows.iter().map(|row| row.1).collect::<StringViewArray>())),
        ("place", Arc::new(rows.iter().map(|row| row.2).collect::<Int64Array>())),
        ("at", Arc::new(rows.iter().map(|row| row.3).collect::<Int64Array>())),
    ];
    batch(rows.iter().map(|row| row.4)).with_fields(RecordBatch::try_from_iter(columns).unwrap()).unwrap()
}

#[test]
fn options_that_cannot_work_are_mistakes() {
    for (yaml, expected) in [
        ("{ brokers: localhost, topic: a }", "A broker is a host with a port."),
        ("{ brokers: 'kafka://u:p@a:1', topic: a }", "A broker is a host with a port."),
        ("{ brokers: [], topic: a }", "There is no broker to connect to."),
        ("{ brokers: 'a:1', topic: '' }", "`` is no topic."),
        ("{ brokers: 'a:1', topic: a/b }", "`a/b` is no topic."),
        ("{ brokers: 'a:1', topic: a, timeout: 0s }", "No broker can confirm a record in no time."),
    ] {
        assert_eq!(messages(options::<KafkaSink>(yaml).check()), [expected]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_record_has_follows_from_the_message_and_what_is_refused_has_the_brokers_reason() {
    let kafka = Kafka::start(3).unwrap();
    let address = kafka.address();
    for compression in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let yaml = format!(
            "{{ brokers: '{address}', topic: '{compression}-{{kind}}', key: id, partition: place, \
             timestamp: at, headers: {{ from: 'x-{{id}}' }}, compression: {compression}, timeout: 5s }}"
        );
        let long = "z".repeat(2_000_000);
        let rows: [Row<'_>; 7] = [
            ("a", Some("one"), Some(2), Some(1_700_000_000_123), "a payload of some length"),
            ("a", None, Some(1), Some(1_700_000_000_124), "short"),
            ("a", Some("two"), Some(7), None, "to no partition"),
            ("a", Some("three"), Some(-1), None, "before the first"),
            ("no topic/", Some("four"), None, None, "to no topic"),
            ("a", Some("five"), Some(2), None, if compression == "none" { &long } else { "" }),
            ("b", Some("six"), None, None, ""),
        ];
        let rejected = testing::write_all::<KafkaSink>(&yaml, [batch_of(&rows)]).await.unwrap();
        let rejected: Vec<(u32, &str)> = rejected.iter().map(|(_, row, reason)| (*row, &**reason)).collect();
        let records = tokio::task::block_in_place(|| kafka.records(&format!("{compression}-a")).unwrap());
        let stored: Vec<_> = records
            .iter()
            .map(|record| (record.partition, text(record.key.as_ref()), text(record.value.as_ref()).unwrap()))
            .collect();
        let mut expected = vec![
            (1, None, "short".to_owned()),
            (2, Some("one".to_owned()), "a payload of some length".to_owned()),
        ];
        let mut refused = vec![2, 3, 4];
        match compression {
            "none" => refused.push(5),
            _ => expected.push((2, Some("five".to_owned()), String::new())),
        }
        assert_eq!(stored, expected, "{compression}");
        assert_eq!(rejected.iter().map(|(row, _)| *row).collect::<Vec<_>>(), refused, "{rejected:?}");
        assert_eq!(records[1].timestamp, 1_700_000_000_123);
        assert_eq!(text(records[1].header("from").unwrap()).as_deref(), Some("x-one"));
        assert!(rejected[1].1.contains("`place` is -1"), "{rejected:?}");
        assert!(rejected[2].1.contains("letters, digits"), "{rejected:?}");
        if compression == "none" {
            assert!(rejected[3].1.contains("MessageTooLarge"), "{}", rejected[3].1);
        }
        let other = tokio::task::block_in_place(|| kafka.records(&format!("{compression}-b")).unwrap());
        assert_eq!(other.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_waits_for_a_broker_that_is_killed_and_is_stored_once_and_in_order() {
    let mut kafka = Kafka::start(1).unwrap();
    let yaml = format!("{{ brokers: '{}', topic: t, timeout: 1s }}", kafka.relayed_address());
    let config = options::<KafkaSink>(&yaml);
    let mut sink = config.build(&testing::context()).unwrap();
    sink.open(None).await.unwrap();
    let mut expected = Vec::new();
    for round in 0..12 {
        let lines: Vec<String> = (0..500).map(|number| format!("message {round} {number:04}")).collect();
        let batch = batch(lines.iter().map(String::as_str));
        expected.extend(lines);
        match round {
            3 | 7 => kafka.kill().unwrap(),
            _ => kafka.cut(),
        }
        let mut rejects = Rejects::default();
        let begun = Instant::now();
        let mut is_down = matches!(round, 3 | 7);
        loop {
            match sink.write(&batch, &mut rejects).await {
                Ok(outcome) => {
                    assert_eq!(outcome, WriteOutcome::Durable);
                    break;
                }
                Err(error) => {
                    assert!(error.kind().is_temporary(), "{}", error.full());
                    assert!(begun.elapsed() < Duration::from_secs(120), "{}", error.full());
                }
            }
            if is_down {
                tokio::task::block_in_place(|| kafka.restart().unwrap());
                is_down = false;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(!is_down && rejects.take().is_empty());
        batch.settle(thalweg_record::Outcome::Delivered);
    }
    sink.finish().await.unwrap();
    let records = tokio::task::block_in_place(|| kafka.records("t").unwrap());
    let stored: Vec<String> = records.iter().map(|record| text(record.value.as_ref()).unwrap()).collect();
    assert_eq!(stored, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_are_known_by_each_mechanism_over_tls_and_a_wrong_password_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let (certificate, both) = (folder.path().join("ca.pem"), folder.path().join("broker.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&both, made.signing_key.serialize_pem() + &made.cert.pem()).unwrap();
    let kafka = Kafka::start_with(1, Some(&Secured { key_and_certificate: both })).unwrap();
    let write = async |mechanism: &str, password: &str, tls: &str| {
        let yaml = format!(
            "{{ brokers: '{}', topic: t, timeout: 5s, tls: {tls}, \
             auth: {{ user: alice, password: {password}, mechanism: {mechanism} }} }}",
            kafka.secured_address()
        );
        testing::write_all::<KafkaSink>(&yaml, [batch([mechanism])]).await
    };
    let tls = format!("{{ ca: '{}' }}", certificate.display());
    let mechanisms = ["plain", "scram_sha_256", "scram_sha_512"];
    for mechanism in mechanisms {
        write(mechanism, "secret", &tls).await.unwrap();
        let error = write(mechanism, "wrong-one", &tls).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Permanent, "{}", error.full());
        assert!(!error.full().contains("wrong-one"));
    }
    write("plain", "secret", "{ insecure: true }").await.unwrap();
    write("plain", "secret", "{}").await.unwrap_err();
    let records = tokio::task::block_in_place(|| kafka.records("t").unwrap());
    let stored: Vec<String> = records.iter().map(|record| text(record.value.as_ref()).unwrap()).collect();
    assert_eq!(stored, ["plain", "scram_sha_256", "scram_sha_512", "plain"]);
}

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray, UInt64Array};
use parking_lot::Mutex;
use thalweg_engine::testing::{self, batch, messages, open_sink, options, write_until_durable};
use thalweg_engine::{Component, ErrorKind, Rejects, Sink};
use thalweg_record::Batch;
use thalweg_testbed::{Kafka, Outage, Secured};
use tokio::sync::oneshot;
use tokio::task::block_in_place;

use super::KafkaSink;
use super::pending::Pending;
use super::records::Records;
use crate::client::{Failure, Outgoing, Producer};
use crate::session::tests::{Broker, Commit, session};

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
        ("{ brokers: 'a:1', topic: a, auth: { user: a } }", "A user has a name and a password, or a token."),
        (
            "{ brokers: 'a:1', topic: a, auth: { user: a, password: b, token_file: c } }",
            "A user has a name and a password, or a token.",
        ),
        ("{ brokers: 'a:1', topic: a, timeout: 0s }", "No broker can confirm a record in no time."),
        ("{ brokers: 'a:1', topic: a, transactional_id: '' }", "The id has 1 to 1000 bytes."),
        (
            "{ brokers: 'a:1', topic: a, transactional_id: x, acks: leader }",
            "In transactions, all replicas in sync confirm a record.",
        ),
        (
            "{ brokers: 'a:1', topic: a, transactional_id: x, concurrency: 2 }",
            "Only one batch at a time is sent in transactions.",
        ),
        (
            "{ brokers: 'a:1', topic: a, transactional_id: x, give_up: 1m }",
            "Records of transactions cannot be given up: their transaction is aborted.",
        ),
        (
            "{ brokers: 'a:1', topic: a, transactional_id: x, transaction_timeout: 1m }",
            "It is from 1 s to 40 s.",
        ),
        (
            "{ brokers: 'a:1', topic: a, transactional_id: x, transaction_interval: 6s }",
            "A transaction would last longer than half of `transaction_timeout`.",
        ),
    ] {
        assert_eq!(messages(options::<KafkaSink>(yaml).check()), [expected]);
    }
}

/// A producer that gives each record the next outcome. None: it has no outcome yet.
struct Scripted {
    outcomes: Mutex<VecDeque<Option<Result<(), Failure>>>>,
    waiting: Mutex<Vec<oneshot::Sender<Result<(), Failure>>>>,
    sent: Mutex<Vec<String>>,
}

impl Scripted {
    fn new(outcomes: impl IntoIterator<Item = Option<Result<(), Failure>>>) -> Self {
        let outcomes = Mutex::new(outcomes.into_iter().collect());
        Self { outcomes, waiting: Mutex::default(), sent: Mutex::default() }
    }
}

type Scheduled = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

impl Producer for Scripted {
    type Delivery = Scheduled;

    async fn queue(&self, record: Outgoing) -> Result<Scheduled, Failure> {
        self.sent.lock().push(String::from_utf8_lossy(&record.value).into_owned());
        let (sender, receiver) = oneshot::channel();
        match self.outcomes.lock().pop_front().unwrap_or(Some(Ok(()))) {
            Some(outcome) => sender.send(outcome).unwrap(),
            None => self.waiting.lock().push(sender),
        }
        Ok(Box::pin(async { receiver.await.unwrap() }))
    }

    async fn flush(&self) {}

    fn has_retried(&self) -> bool {
        false
    }

    async fn close(&self) {}
}

#[tokio::test(start_paused = true)]
async fn what_a_lost_producer_did_not_confirm_is_sent_by_the_next_one_in_order() {
    let mut records = Records::new(&options::<KafkaSink>("{ brokers: 'a:1', topic: t }"));
    let batch = batch(["a", "b", "c", "d", "e"]);
    let mut pending = Pending::default();
    pending.begin(&batch, || testing::context().memory.claim(1));
    let lost = || Failure::Lost("fenced".to_owned());
    let refused = Failure::Refused("too large".to_owned());
    let first = Scripted::new([Some(Ok(())), Some(Err(lost())), None, Some(Err(refused)), Some(Err(lost()))]);
    let second = Duration::from_secs(1);
    let error = pending.send(&first, &mut records, &batch, second).await.unwrap_err();
    assert_eq!(error.full(), "the broker did not take records: fenced");
    assert!(error.kind().is_temporary() && pending.take_is_lost() && !pending.take_is_lost());
    pending.recall().await;
    assert!(!pending.is_any());
    let next = Scripted::new([]);
    pending.send(&next, &mut records, &batch, second).await.unwrap();
    assert_eq!(*first.sent.lock(), ["a", "b", "c", "d", "e"]);
    assert_eq!(*next.sent.lock(), ["b", "c", "e"]);
    assert_eq!(pending.finish(), [(3, "too large".to_owned())]);
}

#[tokio::test]
async fn a_batch_of_many_records_is_confirmed_by_one_call() {
    let mut records = Records::new(&options::<KafkaSink>("{ brokers: 'a:1', topic: t }"));
    let batch = batch(std::iter::repeat_n("x", 5000));
    let mut pending = Pending::default();
    pending.begin(&batch, || testing::context().memory.claim(1));
    let producer = Scripted::new([]);
    pending.send(&producer, &mut records, &batch, Duration::from_secs(9)).await.unwrap();
    assert_eq!(producer.sent.lock().len(), 5000);
    assert!(pending.finish().is_empty());
}

#[tokio::test(start_paused = true)]
async fn records_without_an_outcome_stay_queued_and_a_later_call_waits_for_them() {
    let mut records = Records::new(&options::<KafkaSink>("{ brokers: 'a:1', topic: t }"));
    let batch = batch(["a", "b"]);
    let mut pending = Pending::default();
    pending.begin(&batch, || testing::context().memory.claim(1));
    let producer = Scripted::new([None, None]);
    for _ in 0..2 {
        let sent = pending.send(&producer, &mut records, &batch, Duration::from_secs(1)).await;
        assert_eq!(sent.unwrap_err().full(), "the broker did not confirm 2 records within 1 s");
        assert!(pending.is_any() && !pending.take_is_lost());
        pending.begin(&batch, || panic!("it is the same batch"));
    }
    assert_eq!(*producer.sent.lock(), ["a", "b"]);
    pending.refuse_rest("down");
    let reason = "down".to_owned();
    assert_eq!(pending.finish(), [(0, reason.clone()), (1, reason)]);
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
        let records = block_in_place(|| kafka.records(&format!("{compression}-a")).unwrap());
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
        let other = block_in_place(|| kafka.records(&format!("{compression}-b")).unwrap());
        assert_eq!(other.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_waits_for_a_broker_that_is_killed_and_is_stored_once_and_in_order() {
    let mut kafka = Kafka::start(1).unwrap();
    let yaml = format!("{{ brokers: '{}', topic: t, timeout: 1s }}", kafka.relayed_address());
    let mut sink = open_sink::<KafkaSink>(&yaml).await;
    let mut expected = Vec::new();
    for round in 0..12 {
        let lines: Vec<String> = (0..500).map(|number| format!("message {round} {number:04}")).collect();
        let batch = batch(lines.iter().map(String::as_str));
        expected.extend(lines);
        let outage = if matches!(round, 3 | 7) { Outage::Killed } else { Outage::Cut };
        let mut lost = block_in_place(|| kafka.lose(outage).unwrap());
        let rejected =
            write_until_durable(&mut *sink, batch, |_| block_in_place(|| lost.mend().unwrap())).await;
        assert!(lost.is_over() && rejected.is_empty());
    }
    sink.finish().await.unwrap();
    let records = block_in_place(|| kafka.records("t").unwrap());
    let stored: Vec<String> = records.iter().map(|record| text(record.value.as_ref()).unwrap()).collect();
    assert_eq!(stored, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_may_not_wait_longer_leave_by_errors_and_later_ones_are_stored() {
    let mut kafka = Kafka::start(1).unwrap();
    let yaml = format!("{{ brokers: '{}', topic: t, timeout: 1s, give_up: 3s }}", kafka.relayed_address());
    let mut sink = open_sink::<KafkaSink>(&yaml).await;
    let mut refused = Vec::new();
    for text in ["before", "while it is down", "after"] {
        let rejected = write_until_durable(&mut *sink, batch([text]), |_| {}).await;
        refused.extend(rejected.into_iter().map(|(_, reason)| (text, reason)));
        match text {
            "before" => kafka.kill().unwrap(),
            "while it is down" => block_in_place(|| kafka.restart().unwrap()),
            _ => {}
        }
    }
    sink.finish().await.unwrap();
    let [("while it is down", reason)] = &refused[..] else { panic!("{refused:?}") };
    assert!(reason.starts_with("could not be sent for 3 s (`give_up`): "), "{reason}");
    let records = block_in_place(|| kafka.records("t").unwrap());
    let stored: Vec<String> = records.iter().map(|record| text(record.value.as_ref()).unwrap()).collect();
    assert_eq!(stored, ["before", "after"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_are_known_by_each_mechanism_over_tls_and_a_wrong_password_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let (certificate, both) = (folder.path().join("ca.pem"), folder.path().join("broker.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&both, made.signing_key.serialize_pem() + &made.cert.pem()).unwrap();
    let kafka = Kafka::start_with(1, Some(&Secured { key_and_certificate: both })).unwrap();
    let write_as = async |auth: &str, text: &str, tls: &str| {
        let yaml = format!(
            "{{ brokers: '{}', topic: t, timeout: 5s, tls: {tls}, auth: {auth} }}",
            kafka.secured_address()
        );
        testing::write_all::<KafkaSink>(&yaml, [batch([text])]).await
    };
    let write = async |mechanism: &str, password: &str, tls: &str| {
        let auth = format!("{{ user: alice, password: {password}, mechanism: {mechanism} }}");
        write_as(&auth, mechanism, tls).await
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
    let token = folder.path().join("token");
    std::fs::write(&token, format!("{}\n", Secured::TOKEN)).unwrap();
    let auth = format!("{{ token_file: '{}' }}", token.display());
    write_as(&auth, "oauthbearer", &tls).await.unwrap();
    std::fs::write(&token, "e30.e30.").unwrap();
    write_as(&auth, "not valid", &tls).await.unwrap_err();
    let records = block_in_place(|| kafka.records("t").unwrap());
    let stored: Vec<String> = records.iter().map(|record| text(record.value.as_ref()).unwrap()).collect();
    assert_eq!(stored, ["plain", "scram_sha_256", "scram_sha_512", "plain", "oauthbearer"]);
}

/// Writes a batch as the engine does, and returns the rejected rows and the number of attempts, of which
/// there may be `most`.
async fn written(sink: &mut dyn Sink, batch: Batch, most: u32) -> (Vec<(u32, String)>, u32) {
    let mut attempts = 1;
    let rejected = write_until_durable(sink, batch, |_| {
        attempts += 1;
        assert!(attempts <= most);
    })
    .await;
    (rejected, attempts)
}

#[tokio::test]
async fn without_a_source_that_commits_each_batch_is_a_transaction_also_after_lost_answers() {
    let broker = Arc::new(Broker::default());
    broker.plan([Commit::Done, Commit::Unanswered, Commit::Lost, Commit::Failed]);
    let config = options::<KafkaSink>("{ brokers: 'a:1', topic: t, transactional_id: x }");
    let mut sink = super::testing::alone(&config, session(&broker, Duration::from_secs(9)));
    sink.open(None).await.unwrap();
    for (texts, expected) in [(["a", "b"], 1), (["c", "d"], 2), (["e", "f"], 2), (["g", "h"], 2)] {
        assert_eq!(written(&mut sink, batch(texts), 9).await, (vec![], expected), "{texts:?}");
    }
    assert_eq!(broker.stored(), ["a", "b", "c", "d", "e", "f", "g", "h"]);
    sink.finish().await.unwrap();
}

#[tokio::test]
async fn a_record_that_is_refused_ends_its_transaction_and_is_rejected_when_it_comes_again() {
    let broker = Arc::new(Broker::default());
    let config = options::<KafkaSink>("{ brokers: 'a:1', topic: t, transactional_id: x }");
    let mut sink = super::testing::alone(&config, session(&broker, Duration::from_secs(9)));
    sink.open(None).await.unwrap();
    let (rejected, attempts) = written(&mut sink, batch(["a", "bad", "c", "bad", "e"]), 9).await;
    // It was refused with others first, then by itself, and then it is known.
    assert_eq!(attempts, 3);
    assert_eq!(rejected, [(1, "it is bad".to_owned()), (3, "it is bad".to_owned())]);
    assert_eq!(broker.stored(), ["a", "c", "e"]);
}

#[tokio::test]
async fn a_batch_may_have_more_refused_records_than_transactions_are_aborted_in_vain() {
    let broker = Arc::new(Broker::default());
    let config = options::<KafkaSink>("{ brokers: 'a:1', topic: t, transactional_id: x }");
    let mut sink = super::testing::alone(&config, session(&broker, Duration::from_secs(9)));
    thalweg_engine::Sink::open(&mut sink, None).await.unwrap();
    let texts: Vec<String> = (0..60).flat_map(|n| [format!("good {n}"), format!("bad {n}")]).collect();
    let (rejected, _) = written(&mut sink, batch(texts.iter().map(String::as_str)), 1000).await;
    assert_eq!(rejected.len(), 60);
    assert_eq!(broker.stored(), (0..60).map(|n| format!("good {n}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_message_is_rejected_of_which_another_record_is_refused_each_time() {
    let broker = Arc::new(Broker::default());
    let config = options::<KafkaSink>("{ brokers: 'a:1', topic: t, transactional_id: x }");
    let session = session(&broker, Duration::from_secs(9));
    let mut sink = super::testing::transactional(&config, session.clone());
    sink.open(None).await.unwrap();
    let mut rejected = Vec::new();
    for attempt in 0..9 {
        let texts = [format!("good {attempt}"), format!("bad {attempt}"), format!("fine {attempt}")];
        let batch = batch(texts.iter().map(String::as_str));
        let batch = batch.with_positions(UInt64Array::from(vec![5, 6, 7])).unwrap();
        let mut rejects = Rejects::default();
        match sink.write(&batch, &mut rejects).await {
            Ok(_) => {
                session.commit(&BTreeMap::new(), None).await.unwrap();
                rejected.push((attempt, rejects.take()));
                break;
            }
            Err(error) => assert!(error.kind().is_temporary(), "{}", error.full()),
        }
        // As the source does.
        session.renew().await.unwrap();
        session.mend();
    }
    // It was refused with others first, and then three times by itself.
    assert_eq!(rejected, [(4, vec![(1, "it is bad".to_owned())])]);
    assert_eq!(broker.stored(), ["good 4", "fine 4"]);
}

#[tokio::test]
async fn a_batch_of_which_nothing_is_stored_is_no_transaction() {
    let broker = Arc::new(Broker::default());
    let config = options::<KafkaSink>("{ brokers: 'a:1', topic: 't{kind}', transactional_id: x }");
    let session = session(&broker, Duration::from_secs(9));
    let mut sink = super::testing::alone(&config, session.clone());
    sink.open(None).await.unwrap();
    let row = |kind: &'static str, text: &'static str| batch_of(&[(kind, None, None, None, text)]);
    let (rejected, attempts) = written(&mut sink, row(" no topic", "a"), 9).await;
    assert_eq!((rejected.len(), attempts, session.committed()), (1, 1, 0));
    assert_eq!(written(&mut sink, row("", "b"), 9).await, (vec![], 1));
    assert_eq!((broker.stored(), session.committed()), (vec!["b".to_owned()], 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_a_broker_refuses_leaves_its_transaction_by_errors() {
    let kafka = Kafka::start(1).unwrap();
    let yaml = format!("{{ brokers: '{}', topic: t, transactional_id: x }}", kafka.address());
    let mut sink = open_sink::<KafkaSink>(&yaml).await;
    let large = "x".repeat(2 << 20);
    let (rejected, attempts) = written(&mut *sink, batch(["a", large.as_str(), "b"]), 9).await;
    let [(1, reason)] = &rejected[..] else { panic!("{rejected:?}") };
    assert!(reason.contains("MessageTooLarge"), "{reason}");
    assert_eq!(attempts, 3);
    sink.finish().await.unwrap();
    let records = block_in_place(|| kafka.committed_records("t").unwrap());
    let stored: Vec<String> = records.iter().map(|record| text(record.value.as_ref()).unwrap()).collect();
    assert_eq!(stored, ["a", "b"]);
}

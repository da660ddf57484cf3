use std::sync::Arc;

use arrow_array::Array;
use thalweg_engine::testing::{batch, context, messages, options, refused};
use thalweg_record::{Ack, Meta};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::mpsc::error::TryRecvError;

use super::*;
use crate::net::testing::within;
use crate::replies::Answerable;

/// A server that answers each line with the line in capitals. It does not answer `silent`, sends two answers
/// to `twice`, half an answer too many to `late`, and closes the connection at `close`.
async fn server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let mut was_closed = false;
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            while stream.read_line(&mut line).await.unwrap_or(0) > 0 {
                match line.trim_end() {
                    "silent" => {}
                    "late" => {
                        stream.write_all(b"LATE\n").await.unwrap();
                        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                        stream.write_all(b"STRAY").await.unwrap();
                    }
                    "twice" => stream.write_all(b"TWICE\nAGAIN\n").await.unwrap(),
                    "close" if !was_closed => {
                        was_closed = true;
                        break;
                    }
                    _ => stream.write_all(line.to_uppercase().as_bytes()).await.unwrap(),
                }
                line.clear();
            }
        }
    });
    address
}

async fn open(yaml: &str) -> Box<dyn Sink> {
    let config: ProxyConfig = options(yaml);
    assert_eq!(config.check(), []);
    let mut sink = config.build(&context()).unwrap();
    sink.open(None).await.unwrap();
    sink
}

/// Returns messages that arrived over a connection.
fn from(connection: &str, messages: &[&str]) -> Batch {
    let payload = batch(messages).payload().clone();
    let meta = Meta { path: Some(connection.into()), ..(**batch([""]).meta()).clone() };
    assert_eq!(payload.len(), messages.len());
    Batch::new(payload, Arc::new(meta), Ack::noop())
}

#[tokio::test]
async fn answers_find_the_connection_that_the_message_came_over() {
    let mut sink = open(&format!("{{ address: {} }}", server().await)).await;
    let (one, mut to_one) = Answerable::new("10.0.0.1:1");
    let (other, mut to_other) = Answerable::new("10.0.0.2:1");
    let mut rejects = Rejects::default();
    for batch in [
        from(one.name(), &["first\n", "second\n"]),
        from(other.name(), &["third\n"]),
        batch(["nobody asked\n"]),
    ] {
        assert_eq!(within(sink.write(&batch, &mut rejects)).await.unwrap(), WriteOutcome::Durable);
    }
    assert!(rejects.take().is_empty());
    assert_eq!(
        (to_one.recv().await.unwrap(), to_one.recv().await.unwrap()),
        ("FIRST\n".into(), "SECOND\n".into())
    );
    assert_eq!(to_other.recv().await.unwrap(), "THIRD\n");
    assert_eq!(
        (to_one.try_recv(), to_other.try_recv()),
        (Err(TryRecvError::Empty), Err(TryRecvError::Empty))
    );
}

#[tokio::test]
async fn what_is_not_answered_is_rejected_and_disturbs_nothing() {
    let mut sink = open(&format!("{{ address: {}, timeout: 50ms }}", server().await)).await;
    let (client, mut answers) = Answerable::new("10.0.0.1:1");
    let mut rejects = Rejects::default();
    let batch = from(client.name(), &["one\n", "silent\n", "two\n"]);
    within(sink.write(&batch, &mut rejects)).await.unwrap();
    let rejected = rejects.take();
    assert_eq!(rejected.len(), 1);
    assert!(rejected[0].0 == 1 && rejected[0].1.contains("did not answer within 50ms"), "{rejected:?}");
    assert_eq!(
        (answers.recv().await.unwrap(), answers.recv().await.unwrap()),
        ("ONE\n".into(), "TWO\n".into())
    );
}

#[tokio::test]
async fn a_second_answer_to_a_message_is_not_the_answer_to_the_next_message() {
    let mut sink = open(&format!("{{ address: {} }}", server().await)).await;
    let (one, mut to_one) = Answerable::new("10.0.0.1:1");
    let (other, mut to_other) = Answerable::new("10.0.0.2:1");
    let mut rejects = Rejects::default();
    for batch in [from(one.name(), &["twice\n"]), from(other.name(), &["next\n"])] {
        within(sink.write(&batch, &mut rejects)).await.unwrap();
    }
    assert!(rejects.take().is_empty());
    assert_eq!(
        (to_one.recv().await.unwrap(), to_other.recv().await.unwrap()),
        ("TWICE\n".into(), "NEXT\n".into())
    );
    assert_eq!(
        (to_one.try_recv(), to_other.try_recv()),
        (Err(TryRecvError::Empty), Err(TryRecvError::Empty))
    );
}

#[tokio::test]
async fn bytes_that_arrive_between_two_messages_are_no_answer() {
    let mut sink = open(&format!("{{ address: {} }}", server().await)).await;
    let (one, mut answers) = Answerable::new("10.0.0.1:1");
    let mut rejects = Rejects::default();
    within(sink.write(&from(one.name(), &["late\n"]), &mut rejects)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    within(sink.write(&from(one.name(), &["next\n"]), &mut rejects)).await.unwrap();
    assert!(rejects.take().is_empty());
    assert_eq!([answers.recv().await.unwrap(), answers.recv().await.unwrap()], ["LATE\n", "NEXT\n"]);
}

#[tokio::test]
async fn a_connection_that_breaks_is_made_again_for_what_was_not_answered() {
    let mut sink = open(&format!("{{ address: {} }}", server().await)).await;
    let (client, mut answers) = Answerable::new("10.0.0.1:1");
    let batch = from(client.name(), &["one\n", "close\n", "two\n"]);
    let mut rejects = Rejects::default();
    let error = within(sink.write(&batch, &mut rejects)).await.unwrap_err();
    assert_eq!(error.kind(), thalweg_engine::ErrorKind::Temporary);
    within(sink.write(&batch, &mut rejects)).await.unwrap();
    let mut all = Vec::new();
    while let Ok(answer) = answers.try_recv() {
        all.push(answer);
    }
    assert_eq!(all, ["ONE\n", "CLOSE\n", "TWO\n"]);
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_an_error() {
    let address = server().await;
    let mut sink = open(&format!("{{ address: {address}, max_answer_bytes: 5 }}")).await;
    let mut rejects = Rejects::default();
    within(sink.write(&batch(["too long\n", "one\n"]), &mut rejects)).await.unwrap();
    let rejected = rejects.take();
    let reason =
        format!("the answer of `tcp://{address}` cannot be parsed: it is longer than `max_answer_bytes`");
    assert_eq!(rejected, [(0, reason)]);
}

/// An address with a password is refused, and not repeated: addresses are shown in messages.
#[test]
fn a_password_in_the_address_is_not_shown() {
    for address in ["tcp://u:SEKRET@host:1", "host:1?token=SEKRET", "tcp://host:SEKRET@1"] {
        let found = refused::<ProxyConfig>(&format!("{{ address: '{address}' }}"));
        assert!(found.contains("has only a host and a port") && !found.contains("SEKRET"), "{found}");
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    let mistakes = |yaml: &str| messages(options::<ProxyConfig>(yaml).check());
    assert_eq!(
        mistakes("{ address: 'udp://:1' }"),
        ["A proxy needs connections, which datagrams do not have."]
    );
    assert_eq!(
        mistakes("{ address: ':1', framing: { start_pattern: a } }"),
        ["The end of an answer with several lines cannot be detected."]
    );
    assert_eq!(mistakes("{ address: ':1', tls: { key: a } }"), ["`certificate` and `key` belong together."]);
}

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use thalweg_engine::testing::{batch, context, messages, options, sink_conforms};
use thalweg_engine::{ErrorKind, Rejects};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;
use crate::net::testing::within;
use crate::requests::testing::{Fake, Got, Play, numbered, open, opened, with_text, write};

/// Answers with the status of each document. `None` is a document that is stored.
fn bulk(got: &Got, mut status: impl FnMut(&str) -> Option<(u16, &'static str)>) -> Play {
    let item = |lines: &[&str]| match status(lines[1]) {
        None => json!({ "index": { "status": 201 } }),
        Some((status, reason)) => {
            json!({ "index": { "status": status, "error": { "type": "a_type", "reason": reason } } })
        }
    };
    let items: Vec<Value> = got.lines().chunks(2).map(item).collect();
    Play::answer(200, json!({ "errors": true, "items": items }).to_string())
}

fn stored(got: &Got) -> Play {
    bulk(got, |_| None)
}

#[tokio::test]
async fn it_conforms() {
    let server = Fake::start(|_, got| stored(got)).await;
    for options in ["", ", concurrency: 1", ", compression: gzip"] {
        let yaml = format!("{{ url: '{}', index: a, encode: raw, max_delay: 1ms{options} }}", server.address);
        sink_conforms::<ElasticsearchConfig>(&yaml).await;
    }
}

#[tokio::test]
async fn documents_follow_their_actions() {
    let server = Fake::start(|_, got| stored(got)).await;
    let yaml = format!(
        "{{ url: 'http://{}/base/', index: 'logs-{{s}}', id: '{{s}}-{{n}}', op: create, pipeline: p, \
         routing: '{{n}}', encode: raw, compression: gzip, auth: {{ api_key: KEY }}, max_delay: 0s }}",
        server.address
    );
    let messages = batch(["{\"a\":1}", "{\n\"a\":\r\n2}", "", "{\"a\":4}", "{\"a\":5}"]);
    let messages = with_text(messages, "s", &[Some("x"), Some("é\""), Some("x"), Some("A B"), Some("x")]);
    let messages = with_text(messages, "n", &[Some("1"), None, Some("3"), Some("4"), Some("5")]);
    let (rejected, errors) = write(&mut open::<ElasticsearchConfig>(&yaml).await, &messages).await;
    assert_eq!(errors, []);
    assert_eq!(
        rejected,
        [
            (1, "`logs-é\"` is no name of an index".to_owned()),
            (2, "the message is empty, and no document".to_owned()),
            (3, "`logs-A B` is no name of an index".to_owned()),
        ]
    );
    let got = server.got().remove(0);
    assert_eq!(got.line, format!("POST /base/_bulk?filter_path={}", READ.replace(',', "%2C")));
    assert_eq!(
        (got.header("content-type"), got.header("authorization")),
        ("application/x-ndjson", "ApiKey KEY")
    );
    assert_eq!(
        got.body,
        "{\"create\":{\"_index\":\"logs-x\",\"_id\":\"x-1\",\"routing\":\"1\",\"pipeline\":\"p\"}}\n{\"a\":1}\n\
         {\"create\":{\"_index\":\"logs-x\",\"_id\":\"x-5\",\"routing\":\"5\",\"pipeline\":\"p\"}}\n{\"a\":5}\n"
    );
}

/// A message must not be able to write an action of its own.
#[tokio::test]
async fn a_line_feed_in_a_document_begins_no_other_line() {
    let server = Fake::start(|_, got| stored(got)).await;
    let yaml = format!("{{ url: '{}', index: a, encode: raw }}", server.address);
    let hostile = "{}\n{\"delete\":{\"_index\":\"b\",\"_id\":\"1\"}}\r\n";
    write(&mut open::<ElasticsearchConfig>(&yaml).await, &batch([hostile])).await;
    assert_eq!(server.got()[0].lines().len(), 2);
}

#[tokio::test]
async fn only_documents_that_find_the_server_busy_are_sent_again() {
    let server = Fake::start(|number, got| {
        bulk(got, |document| match document {
            "{\"n\":1}" => Some((400, "no such type")),
            "{\"n\":2}" if number < 2 => Some((429, "queue is full")),
            "{\"n\":3}" => Some((409, "exists")),
            "{\"n\":4}" if number == 0 => Some((503, "no shard")),
            _ => None,
        })
    })
    .await;
    let yaml = format!("{{ url: '{}', index: a, encode: raw, max_delay: 0s }}", server.address);
    let (rejected, errors) = write(&mut open::<ElasticsearchConfig>(&yaml).await, &batch(numbered(6))).await;
    assert_eq!(rejected.len(), 1);
    assert_eq!(rejected[0].0, 1);
    assert!(
        rejected[0].1.ends_with("answered 400 for the document: a_type: no such type"),
        "{}",
        rejected[0].1
    );
    // Each round has a success, so the engine does not have to pause.
    assert_eq!(errors, []);
    let sent: Vec<usize> = server.got().iter().map(|got| got.lines().len() / 2).collect();
    assert_eq!(sent, [6, 2, 1]);
}

/// The index is no fault of the documents, unless each may have another one.
#[tokio::test]
async fn documents_wait_for_the_only_index_and_are_refused_for_one_of_several() {
    for status in [403, 404] {
        let server = Fake::start(move |number, got| {
            bulk(got, |document| match document {
                "{\"n\":0}" if number == 0 => Some((status, "no such index")),
                _ => None,
            })
        })
        .await;
        let yaml = format!("{{ url: '{}', index: a, encode: raw, max_delay: 0s }}", server.address);
        let mut sink = open::<ElasticsearchConfig>(&yaml).await;
        let (rejected, errors) = write(&mut sink, &batch(["{\"n\":0}"])).await;
        assert_eq!((rejected, errors), (vec![], vec![ErrorKind::Temporary]));
        assert_eq!(server.got().len(), 2);
    }
    let server = Fake::start(|_, got| bulk(got, |_| Some((404, "no such index")))).await;
    let yaml = format!("{{ url: '{}', index: '{{s}}', encode: raw, max_delay: 0s }}", server.address);
    let messages = with_text(batch(["{}"]), "s", &[Some("x")]);
    let (rejected, errors) = write(&mut open::<ElasticsearchConfig>(&yaml).await, &messages).await;
    assert_eq!((rejected.len(), errors), (1, vec![]));
}

/// Each kind of failure in turn, with several writers, while the server notes what it stores.
#[tokio::test]
async fn no_document_is_lost_by_any_failure() {
    let kept: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let store = kept.clone();
    let server = Fake::start(move |number, got| {
        let keep = |document: &str| {
            store.lock().insert(document.to_owned());
            None
        };
        match number % 11 {
            1 => Play::answer(500, "broken"),
            3 => Play::answer(429, "").with("retry-after", "0"),
            4 => Play::cut(),
            5 => {
                bulk(got, keep);
                Play::cut()
            }
            7 => {
                bulk(got, keep);
                Play::answer(200, "{\"errors\":false,\"items\":[]}")
            }
            8 => Play::answer(200, "{\"errors\":fal"),
            9 => bulk(got, keep).after(Duration::from_secs(2)),
            _ => bulk(got, |document| match document.len() % 7 == number % 7 {
                true => Some((429, "busy")),
                false => keep(document),
            }),
        }
    })
    .await;
    let yaml = format!(
        "{{ url: '{}', index: a, encode: raw, max_count: 7, max_delay: 3ms, timeout: 500ms }}",
        server.address
    );
    let config: ElasticsearchConfig = options(&yaml);
    let all = numbered(200);
    let mut writers = JoinSet::new();
    for chunk in all.chunks(20) {
        let (messages, config) = (batch(chunk), config.clone());
        writers.spawn(async move { write(&mut opened(&config).await, &messages).await.0 });
    }
    while let Some(rejected) = writers.join_next().await {
        assert_eq!(rejected.unwrap(), []);
    }
    assert_eq!(*kept.lock(), all.into_iter().collect::<BTreeSet<_>>());
}

#[tokio::test]
async fn messages_leave_by_errors_when_the_sink_gives_up() {
    let server = Fake::start(|_, _| Play::answer(503, "down")).await;
    let yaml =
        format!("{{ url: '{}', index: a, encode: raw, give_up: 20ms, max_delay: 0s }}", server.address);
    let (rejected, errors) = write(&mut open::<ElasticsearchConfig>(&yaml).await, &batch(["{}", "{}"])).await;
    assert!(errors.iter().all(|kind| *kind == ErrorKind::Overloaded));
    assert_eq!(rejected.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [0, 1]);
    assert!(
        rejected[0].1.starts_with("could not be sent for 0.02 s (`give_up`): `http://"),
        "{}",
        rejected[0].1
    );
    assert!(rejected[0].1.ends_with("answered 503 Service Unavailable: down"), "{}", rejected[0].1);
}

#[tokio::test]
async fn messages_wait_for_a_server_that_is_down_at_first() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let yaml = format!("{{ url: 'http://u:SEKRET@{address}', index: a, encode: raw, max_delay: 0s }}");
    let config: ElasticsearchConfig = options(&yaml);
    let mut sink = config.build(&context()).unwrap();
    let error = within(sink.open(None)).await.unwrap_err();
    assert!(
        error.kind() == ErrorKind::Temporary && error.full().contains("cannot send to"),
        "{}",
        error.full()
    );
    assert!(!error.full().contains("SEKRET"));
    let unchecked = options::<ElasticsearchConfig>(&yaml.replace("index", "check: false, index"));
    let mut sink = unchecked.build(&context()).unwrap();
    within(sink.open(None)).await.unwrap();
    let error = within(sink.write(&batch(["{}"]), &mut Rejects::default())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Temporary);
    let _server = Fake::at(TcpListener::bind(&address).await.unwrap(), |_, got| stored(got));
    assert_eq!(write(&mut sink, &batch(["{}"])).await.0, []);
}

#[tokio::test]
async fn wrong_credentials_end_the_run_before_anything_is_read() {
    let server = Fake::start(|_, got| stored(got)).await;
    let yaml = format!("{{ url: '{}', index: a, auth: {{ api_key: WRONG }} }}", server.address);
    let mut sink = options::<ElasticsearchConfig>(&yaml).build(&context()).unwrap();
    let error = within(sink.open(None)).await.unwrap_err();
    let address = &server.address;
    let text =
        format!("`http://{address}/` answered 401 Unauthorized; correct `auth`, or set `check: false`");
    assert_eq!((error.kind(), error.full()), (ErrorKind::Permanent, text));
}

#[test]
fn mistakes_are_named() {
    let mistakes = |yaml: &str| messages(options::<ElasticsearchConfig>(yaml).check());
    assert_eq!(mistakes("{ url: a, index: 'a b' }"), ["`a b` is no name of an index."]);
    assert_eq!(mistakes("{ url: a, index: '_a' }"), ["`_a` is no name of an index."]);
    assert_eq!(mistakes("{ url: 'a?b=c', index: a }"), ["The address of the server has a query."]);
    assert_eq!(mistakes("{ url: a, index: a, max_request_bytes: 0 }"), ["No message fits into a request."]);
    assert_eq!(mistakes("{ url: a, index: '{now:%Y}', auth: { api_key: b } }"), [""; 0]);
}

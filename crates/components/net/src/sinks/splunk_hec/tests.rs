use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use thalweg_engine::testing::{batch, messages, options, sink_conforms};
use thalweg_engine::{ErrorKind, Rejects};

use super::*;
use crate::net::testing::within;
use crate::requests::testing::{Fake, Got, Play, numbered, open, opened, with_text, write};

const DONE: &str = "{\"text\":\"Success\",\"code\":0}";

fn yaml(server: &Fake, options: &str) -> String {
    format!("{{ url: '{}', token: SEKRET-1, max_delay: 0s{options} }}", server.address)
}

/// Returns the events of a body.
fn events(got: &Got) -> Vec<Value> {
    got.lines().into_iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn it_conforms() {
    let server = Fake::start(|_, _| Play::answer(200, DONE)).await;
    for options in ["", ", interface: raw", ", concurrency: 1", ", compression: gzip"] {
        sink_conforms::<SplunkHecConfig>(&yaml(&server, options)).await;
    }
}

#[tokio::test]
async fn an_event_has_what_its_message_has() {
    let server = Fake::start(|_, _| Play::answer(200, DONE)).await;
    let options =
        ", index: '{team}', sourcetype: orders, host: h, indexed_fields: { region: '{region}' }, time: at";
    let lines = batch(["{\"n\": 1}", "a \"text\"\n", "", "{\"n\": 1} {\"event\": 2}"]);
    let lines = with_text(lines, "team", &[Some("a"), None, Some("a"), Some("b")]);
    let lines = with_text(lines, "region", &[Some("eu"), None, None, Some("")]);
    let lines =
        with_text(lines, "at", &[Some("2024-03-05T10:20:30.5Z"), Some("1969-12-31T00:00:00Z"), None, None]);
    let (rejected, errors) = write(&mut open::<SplunkHecConfig>(&yaml(&server, options)).await, &lines).await;
    assert_eq!((rejected, errors), (vec![(2, "the message is empty, and no event".to_owned())], vec![]));
    let got = server.got().remove(0);
    assert_eq!(
        (got.line.as_str(), got.header("authorization")),
        ("POST /services/collector/event", "Splunk SEKRET-1")
    );
    let metadata = "\"sourcetype\":\"orders\",\"host\":\"h\",\"time\":";
    assert_eq!(
        got.lines(),
        [
            format!(
                "{{\"index\":\"a\",{metadata}1709634030.500000,\"fields\":{{\"region\":\"eu\"}},\"event\":{{\"n\": 1}}}}"
            ),
            format!("{{{metadata}1700000000.000000,\"event\":\"a \\\"text\\\"\\n\"}}"),
            format!(
                "{{\"index\":\"b\",{metadata}1700000000.000000,\"event\":\"{{\\\"n\\\": 1}} {{\\\"event\\\": 2}}\"}}"
            ),
        ]
    );
    assert_eq!(events(&got).len(), 3);
}

#[tokio::test]
async fn lines_are_sent_as_they_are() {
    let server = Fake::start(|_, _| Play::answer(200, DONE)).await;
    let options = ", interface: raw, index: main, sourcetype: 'a b', compression: gzip";
    let mut sink = open::<SplunkHecConfig>(&yaml(&server, options)).await;
    let (rejected, _) = write(&mut sink, &batch(["one", " \n", "two\nthree\n"])).await;
    assert_eq!(rejected.len(), 1);
    let got = server.got().remove(0);
    assert_eq!(got.line, "POST /services/collector/raw?index=main&sourcetype=a+b");
    assert_eq!(got.body, "one\ntwo\nthree\n");
    assert_eq!(got.header("x-splunk-request-channel").len(), 36);
}

/// The collector counts from 0 or from 1, and takes none of a request with a bad event.
#[tokio::test]
async fn only_the_events_that_are_to_blame_are_refused() {
    for base in [0, 1] {
        let server = Fake::start(move |number, got| {
            if number == 0 {
                return Play::answer(503, "{\"text\":\"Server is busy\",\"code\":9}")
                    .with("retry-after", "0");
            }
            let is_bad = |event: &Value| [3, 7].contains(&event["event"]["n"].as_u64().unwrap());
            match events(got).iter().position(is_bad) {
                None => Play::answer(200, DONE),
                Some(at) => {
                    let said = json!({
                        "text": "Incorrect index", "code": 7, "invalid-event-number": at + base
                    });
                    Play::answer(400, said.to_string())
                }
            }
        })
        .await;
        let messages = with_text(batch(numbered(10)), "i", &[Some("a"); 10]);
        let mut sink = open::<SplunkHecConfig>(&yaml(&server, ", index: '{i}'")).await;
        let (rejected, errors) = write(&mut sink, &messages).await;
        assert_eq!(errors, [ErrorKind::Overloaded]);
        assert_eq!(rejected.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [3, 7]);
        assert!(rejected[0].1.contains("\"code\":7"), "{}", rejected[0].1);
        assert!(server.got().len() < 20, "{}", server.got().len());
    }
}

/// A wrong token, index or channel is no fault of the events.
#[tokio::test]
async fn events_wait_for_what_an_operator_corrects() {
    for (status, code) in [(403, 4), (401, 3), (400, 7), (400, 10), (400, 14), (500, 8), (429, 24)] {
        let server = Fake::start(move |number, _| match number {
            0 => Play::answer(status, json!({ "text": "a", "code": code }).to_string()),
            _ => Play::answer(200, DONE),
        })
        .await;
        let mut sink = open::<SplunkHecConfig>(&yaml(&server, ", index: main")).await;
        let (rejected, errors) = write(&mut sink, &batch(["{}"])).await;
        assert_eq!((rejected, errors.len()), (vec![], 1), "{status} {code}");
    }
}

/// The first request is never indexed, and a later one after two questions. On a busy machine, that may be
/// the third request.
#[tokio::test]
async fn an_event_counts_when_it_is_indexed() {
    let mut asked = 0;
    let server = Fake::start(move |number, got| {
        if !got.line.contains("/ack?channel=") {
            return Play::answer(200, json!({ "text": "Success", "code": 0, "ackId": number }).to_string());
        }
        let question: Value = serde_json::from_str(&got.body).unwrap();
        let id = question["acks"][0].as_u64().unwrap();
        asked += usize::from(id > 0);
        Play::answer(200, json!({ "acks": { id.to_string(): asked > 1 } }).to_string())
    })
    .await;
    let options = ", indexer_ack: true, ack_interval: 1ms, ack_timeout: 40ms, compression: gzip";
    let mut sink = open::<SplunkHecConfig>(&yaml(&server, options)).await;
    let (rejected, errors) = write(&mut sink, &batch(["{}"])).await;
    assert!(rejected.is_empty(), "{rejected:?}");
    assert!(!errors.is_empty() && errors.iter().all(|kind| *kind == ErrorKind::Temporary), "{errors:?}");
    let (questions, sent): (Vec<Got>, Vec<Got>) =
        server.got().into_iter().partition(|got| got.line.contains("/ack?"));
    assert_eq!(sent.len(), errors.len() + 1);
    assert!(questions.len() > 2 && questions.iter().all(|got| got.header("content-encoding").is_empty()));
    let channels: BTreeSet<String> = sent
        .iter()
        .map(|got| format!("POST /services/collector/ack?channel={}", got.header("x-splunk-request-channel")))
        .collect();
    assert_eq!(channels, questions.iter().map(|got| got.line.clone()).collect::<BTreeSet<_>>());
}

/// A collector that restarts loses what it has not indexed, and counts from 0 again in each channel. Here
/// that happens once, after the first request.
#[tokio::test]
async fn a_lost_request_is_not_confirmed_by_a_later_one() {
    let mut queues: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let indexed: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let (seen, mut has_restarted) = (indexed.clone(), false);
    let server = Fake::start(move |_, got| {
        let channel = got.header("x-splunk-request-channel").to_owned();
        if !got.line.contains("/ack?channel=") {
            let queue = queues.entry(channel).or_default();
            queue.push(got.body.clone());
            let number = queue.len() - 1;
            if !has_restarted {
                has_restarted = true;
                queues.clear();
            }
            return Play::answer(200, json!({ "text": "Success", "code": 0, "ackId": number }).to_string());
        }
        let question: Value = serde_json::from_str(&got.body).unwrap();
        let number = question["acks"][0].as_u64().unwrap();
        let queue = queues.get(&channel).map(Vec::as_slice).unwrap_or_default();
        let found = queue.get(usize::try_from(number).unwrap()).cloned();
        let is_indexed = found.is_some();
        seen.lock().extend(found);
        Play::answer(200, json!({ "acks": { number.to_string(): is_indexed } }).to_string())
    })
    .await;
    let acks = ", indexer_ack: true, ack_interval: 20ms, ack_timeout: 400ms, max_count: 1, concurrency: 4";
    let config = options::<SplunkHecConfig>(&yaml(&server, acks));
    let (mut one, mut other) = (opened(&config).await, opened(&config).await);
    let (first, second) = (batch(["one"]), batch(["two"]));
    let ((_, of_one), (_, of_other)) = tokio::join!(write(&mut one, &first), write(&mut other, &second));
    assert_eq!(indexed.lock().len(), 2, "{of_one:?} {of_other:?}");
    let got = server.got();
    let sent: Vec<&str> = got
        .iter()
        .filter(|got| !got.line.contains("/ack?"))
        .map(|got| got.header("x-splunk-request-channel"))
        .collect();
    assert_eq!(sent.iter().collect::<BTreeSet<_>>().len(), sent.len());
}

#[tokio::test]
async fn a_token_without_acknowledgement_ends_the_run() {
    let server = Fake::start(|_, _| Play::answer(200, DONE)).await;
    let mut sink = open::<SplunkHecConfig>(&yaml(&server, ", indexer_ack: true")).await;
    let error = within(sink.write(&batch(["{}"]), &mut Rejects::default())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Permanent);
    assert!(error.full().contains("enable indexer acknowledgement for the token"), "{}", error.full());
    assert_eq!(server.got().len(), 1);
}

#[tokio::test]
async fn the_token_is_in_no_reason() {
    let server = Fake::start(|_, got| {
        Play::answer(400, format!("{{\"text\":\"{}\",\"code\":6}}", got.header("authorization")))
    })
    .await;
    let (rejected, _) =
        write(&mut open::<SplunkHecConfig>(&yaml(&server, "")).await, &batch(["{}", "{}"])).await;
    assert_eq!(rejected.len(), 2);
    assert!(rejected[0].1.contains("Splunk …") && !rejected[0].1.contains("SEKRET"), "{}", rejected[0].1);
}

#[test]
fn mistakes_are_named() {
    let mistakes = |yaml: &str| messages(options::<SplunkHecConfig>(yaml).check());
    let varies = "With `raw`, all messages have the same `index`.";
    assert_eq!(mistakes("{ url: a, token: b, interface: raw, index: '{c}' }"), [varies]);
    let time = "With `raw`, messages have no `time`.";
    assert_eq!(mistakes("{ url: a, token: b, interface: raw, time: c }"), [time]);
    let auth = "The credentials of the collector are its `token`.";
    assert_eq!(mistakes("{ url: a, token: b, auth: { bearer: c } }"), [auth]);
    assert_eq!(mistakes("{ url: 'http://x:c@a', token: b }"), [auth]);
    let times = ["`ack_timeout` cannot be 0.", "`ack_interval` cannot be 0."];
    assert_eq!(mistakes("{ url: a, token: b, ack_timeout: 0s, ack_interval: 0s }"), times);
    let channel = "With `indexer_ack`, each request has a channel of its own.";
    let header = "indexer_ack: true, headers: { X-Splunk-Request-Channel: c }";
    assert_eq!(mistakes(&format!("{{ url: a, token: b, {header} }}")), [channel]);
    let compression = "The server does not take bodies in this form.";
    assert_eq!(mistakes("{ url: a, token: b, compression: zstd }"), [compression]);
    let twice = "The sink adds the path itself: `/services/collector` would be there twice.";
    assert_eq!(mistakes("{ url: 'https://h:8088/services/collector', token: b }"), [twice]);
    assert_eq!(mistakes("{ url: a, token: '' }"), ["The token is empty."]);
    let scheme = "The sink puts `Splunk` before the token itself.";
    assert_eq!(mistakes("{ url: a, token: 'Splunk b' }"), [scheme]);
    let late = "Events would be sent again before Splunk is asked whether it has them.";
    assert_eq!(mistakes("{ url: a, token: b, ack_timeout: 1s, ack_interval: 2s }"), [late]);
    let token = "`token` has a character that a header cannot have, such as a line feed.";
    assert_eq!(mistakes("{ url: a, token: \"b\\n\" }"), [token]);
}

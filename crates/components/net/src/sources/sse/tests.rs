use std::sync::{Arc, Mutex};
use std::time::Duration;

use thalweg_engine::testing::{
    Arrived, RunningSource, messages, options, payloads, rows, start, start_source_within,
};
use thalweg_engine::{ErrorKind, testing};
use thalweg_record::{Budget, Outcome};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::net::testing::within;

/// The head of an answer with events.
const EVENTS: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\r\n";

/// A server that answers each connection with the next text, and closes it. The last one stays open.
struct Server {
    address: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn start(answers: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = heads.clone();
        tokio::spawn(async move {
            let mut open = Vec::new();
            let count = answers.len();
            for (number, answer) in answers.into_iter().enumerate() {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                seen.lock().unwrap().push(String::from_utf8(head).unwrap().to_ascii_lowercase());
                stream.write_all(answer.as_bytes()).await.unwrap();
                if number + 1 == count {
                    open.push(stream);
                }
            }
            std::future::pending::<()>().await;
        });
        Self { address, heads }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

/// Takes messages until there are this many. Settles them, and returns their payloads and fields.
async fn take(source: &RunningSource, count: usize) -> (Vec<String>, Vec<serde_json::Value>) {
    let (mut texts, mut fields) = (Vec::new(), Vec::new());
    while texts.len() < count {
        let Some((_, Arrived::Messages(batch))) = within(source.main.take()).await else {
            panic!("it ended")
        };
        texts.extend(payloads(&batch));
        fields.extend(rows(batch.fields()));
        batch.settle(Outcome::Delivered);
    }
    (texts, fields)
}

#[tokio::test]
async fn a_connection_that_ends_is_opened_again_behind_the_last_event() {
    let first = format!(
        "{EVENTS}retry: 100\nid: 1\nevent: add\ndata: a\n\n:comment\n\nid: 2\ndata: b\ndata: c\n\ndata: lost"
    );
    let server = Server::start(vec![first, format!("{EVENTS}id: 3\ndata: d\n\n")]).await;
    let path = format!("http://{}/x", server.address);
    let yaml = format!("{{ url: '{path}', fields: [event, id], auth: {{ bearer: SEKRET }} }}");
    let saved = [(path.clone(), serde_json::json!("0"))].into();
    let source = start::<SseSource>(&yaml, 1 << 20, saved);
    let (texts, fields) = take(&source, 3).await;
    assert_eq!(texts, ["a", "b\nc", "d"]);
    let named = |event: &str, id: &str| serde_json::json!({ "event": event, "id": id });
    assert_eq!(fields, [named("add", "1"), named("message", "2"), named("message", "3")]);
    assert_eq!(source.positions.saved(&path), Some(serde_json::json!("3")));
    let heads = server.heads();
    assert!(
        heads[0].starts_with("get /x http/1.1\r\n") && heads[0].contains("authorization: bearer sekret\r\n")
    );
    assert!(heads[0].contains("last-event-id: 0\r\n") && heads[0].contains("accept: text/event-stream\r\n"));
    assert!(heads[1].contains("last-event-id: 2\r\n"), "{}", heads[1]);
    source.stop.request();
    assert!(within(source.finish()).await.result.is_none());
}

#[tokio::test]
async fn a_position_moves_only_with_what_is_settled() {
    let server = Server::start(vec![format!("{EVENTS}id: 1\ndata: a\n\n")]).await;
    let path = format!("http://{}/", server.address);
    let source = start::<SseSource>(&format!("{{ url: '{path}' }}"), 1 << 20, Default::default());
    let Some((_, Arrived::Messages(batch))) = within(source.main.take()).await else { panic!("it ended") };
    assert_eq!(source.positions.saved(&path), None);
    batch.settle(Outcome::Delivered);
    assert_eq!(source.positions.saved(&path), Some(serde_json::json!("1")));
    source.stop.request();
    within(source.finish()).await;
}

#[tokio::test]
async fn an_event_that_is_too_large_leaves_by_errors_in_its_place() {
    let long = "x".repeat(5000);
    let text = format!("{EVENTS}data: a\n\ndata: {long}\n\ndata: b\n\n");
    let server = Server::start(vec![text]).await;
    let yaml = format!("{{ url: '{}', max_message_bytes: 100, end_after_idle: 100ms }}", server.address);
    let sent = within(start::<SseSource>(&yaml, 1 << 20, Default::default()).finish()).await;
    assert!(sent.result.is_none());
    assert_eq!(sent.payloads(), ["a", "b"]);
    assert_eq!(payloads(&sent.errors[0]), ["x".repeat(4096)]);
    let reason = "the message has 5000 bytes, more than `max_message_bytes` (100)";
    assert_eq!(rows(sent.errors[0].fields())[0]["error_reason"], reason);
}

#[tokio::test]
async fn a_stream_without_any_sign_is_connected_again() {
    let server = Server::start(vec![EVENTS.to_owned(), format!("{EVENTS}data: a\n\n")]).await;
    // The first answer is closed by the server, the second by the source.
    let yaml =
        format!("{{ url: '{}', idle_timeout: 50ms, retry_delay: 1ms, end_after_idle: 1s }}", server.address);
    let sent = within(start::<SseSource>(&yaml, 1 << 20, Default::default()).finish()).await;
    assert!(sent.result.is_none(), "{:?}", sent.result);
    assert_eq!((sent.payloads(), server.heads().len()), (vec!["a".to_owned()], 2));
}

/// The memory is full of the first event for longer than `end_after_idle`. The comment is longer than what is
/// read of a connection at once.
#[tokio::test]
async fn a_source_that_waits_for_memory_is_not_idle() {
    let (first, comment) = ("a".repeat(40 << 10), "c".repeat(2 << 20));
    let server = Server::start(vec![format!("{EVENTS}data: {first}\n\n:{comment}\ndata: b\n\n")]).await;
    let yaml = format!("{{ url: '{}', end_after_idle: 1s, max_message_bytes: 64KiB }}", server.address);
    let source = options::<SseSource>(&yaml).build(&testing::context()).unwrap();
    let source = start_source_within(&Budget::new(64 << 10), source, 1 << 20, BTreeMap::new());
    let Some((_, Arrived::Messages(batch))) = within(source.main.take()).await else { panic!("it ended") };
    tokio::time::sleep(Duration::from_millis(1500)).await;
    batch.settle(Outcome::Delivered);
    assert_eq!(take(&source, 1).await.0, ["b"]);
    source.stop.request();
    assert!(within(source.finish()).await.result.is_none());
}

#[tokio::test]
async fn an_answer_without_events_ends_the_source() {
    let answer = |status: &str, kind: &str| {
        format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: 2\r\n\r\nno")
    };
    for (text, reason) in [
        (answer("404 Not Found", "text/plain"), "answered 404 Not Found: no"),
        (answer("200 OK", "text/html"), "answers with `text/html`, not with events"),
        (answer("302 Found", "text/html"), "answered 302 Found: no"),
    ] {
        let server = Server::start(vec![text]).await;
        let yaml = format!("{{ url: '{}' }}", server.address);
        let error =
            within(start::<SseSource>(&yaml, 1 << 20, Default::default()).finish()).await.result.unwrap();
        assert_eq!(error.kind(), ErrorKind::Permanent);
        assert!(error.full().ends_with(reason), "{}", error.full());
    }
    let server = Server::start(vec!["HTTP/1.1 204 No Content\r\n\r\n".to_owned()]).await;
    let yaml = format!("{{ url: '{}' }}", server.address);
    let sent = within(start::<SseSource>(&yaml, 1 << 20, Default::default()).finish()).await;
    assert!(sent.result.is_none() && sent.main.is_empty());
}

#[tokio::test]
async fn a_server_that_is_busy_is_asked_again() {
    let busy = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 0\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let server = Server::start(vec![busy.to_owned(), format!("{EVENTS}data: a\n\n")]).await;
    let yaml = format!("{{ url: '{}', end_after_idle: 10s, timeout: 1m }}", server.address);
    let source = testing::start_retried::<SseSource>(&yaml, 1 << 20);
    assert_eq!(take(&source, 1).await.0, ["a"]);
    source.stop.request();
    assert!(within(source.finish()).await.result.is_none());
}

#[test]
fn the_pause_has_limits() {
    let pause = |retry: &str| {
        let mut stream = event_stream::EventStream::new(10, "");
        stream.push(format!("retry: {retry}\n").as_bytes(), |_| {});
        listen::pause(&stream, Duration::from_secs(1))
    };
    assert_eq!(pause("0"), Duration::from_millis(100));
    assert_eq!(pause("2000"), Duration::from_secs(2));
    assert_eq!(pause("99999999999"), Duration::from_mins(5));
    assert_eq!(pause("x"), Duration::from_secs(1));
}

#[test]
fn the_pause_grows_while_connections_bring_nothing() {
    let grown = |pause, count| listen::grown(Duration::from_millis(pause), count).as_millis();
    assert_eq!(
        [0, 1, 2, 3, 4, 5, u32::MAX].map(|count| grown(1000, count)),
        [1000, 1000, 2000, 4000, 8000, 10_000, 10_000]
    );
    assert_eq!([0, 9].map(|count| grown(300_000, count)), [300_000, 300_000]);
}

#[test]
fn mistakes_are_named() {
    let mistakes = |yaml: &str| messages(options::<SseSource>(yaml).check());
    assert_eq!(mistakes("{ url: a, fields: [event, id] }"), [""; 0]);
    assert_eq!(mistakes("{ url: 'ws://a' }"), ["`ws` is not a scheme of HTTP."]);
    assert_eq!(mistakes("{ url: a, fields: data }"), ["An event has no `data`."]);
    assert_eq!(mistakes("{ url: a, idle_timeout: 0s }"), ["No server can answer in no time."]);
}

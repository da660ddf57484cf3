use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use thalweg_engine::ErrorKind;
use thalweg_engine::testing::{
    Arrived, RunningSource, context, messages, options, payloads, start, start_retried, start_source_within,
};
use thalweg_record::{Budget, Outcome};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::Message;

use super::*;
use crate::net::testing::within;
use crate::websocket::testing::Server;

/// Takes messages until there are this many.
async fn take(source: &RunningSource, count: usize) -> Vec<String> {
    let mut texts = Vec::new();
    while texts.len() < count {
        let Some((_, Arrived::Messages(batch))) = within(source.main.take()).await else {
            panic!("it ended")
        };
        texts.extend(payloads(&batch));
        batch.settle(Outcome::Delivered);
    }
    texts
}

#[tokio::test]
async fn messages_come_also_after_the_connection_has_ended() {
    let server = Server::start(|number, mut socket| async move {
        let said = socket.next().await.unwrap().unwrap();
        socket.send(said).await.unwrap();
        socket.send(Message::binary(format!("{number}").into_bytes())).await.unwrap();
        if number == 0 {
            socket.close(None).await.unwrap();
        }
        while let Some(Ok(_)) = socket.next().await {}
    })
    .await;
    let yaml = format!(
        "{{ url: 'ws://me:SEKRET@{}/a?b=c', send: hello, protocol: [v2, v1], headers: {{ X-A: b }} }}",
        server.address
    );
    let source = start_retried::<WebsocketClientSource>(&yaml, 1 << 20);
    assert_eq!(take(&source, 4).await, ["hello", "0", "hello", "1"]);
    source.stop.request();
    assert!(within(source.finish()).await.result.is_none());
    let got = server.got();
    let header = |name: &str| got[0].1.get(name).unwrap().to_str().unwrap().to_owned();
    assert_eq!((got.len(), got[0].0.as_str(), header("x-a")), (2, "/a?b=c", "b".to_owned()));
    assert_eq!(
        (header("sec-websocket-protocol"), header("host")),
        ("v2, v1".to_owned(), server.address.clone())
    );
    assert_eq!(header("authorization"), "Basic bWU6U0VLUkVU");
}

#[tokio::test]
async fn pings_are_sent_and_answered() {
    let server = Server::start(|_, mut socket| async move {
        socket.send(Message::Ping(Bytes::from_static(b"there?"))).await.unwrap();
        let (mut answers, mut pings) = (0, 0);
        while answers == 0 || pings == 0 {
            match socket.next().await.unwrap().unwrap() {
                Message::Pong(data) if &*data == b"there?" => answers += 1,
                Message::Ping(_) => pings += 1,
                other => panic!("{other:?} came"),
            }
        }
        socket.send(Message::text("alive")).await.unwrap();
        while let Some(Ok(_)) = socket.next().await {}
    })
    .await;
    let yaml = format!("{{ url: '{}', ping_interval: 20ms, idle_timeout: 1m }}", server.address);
    let source = start::<WebsocketClientSource>(&yaml, 1 << 20, BTreeMap::new());
    assert_eq!(take(&source, 1).await, ["alive"]);
    source.stop.request();
    assert!(within(source.finish()).await.result.is_none());
}

#[tokio::test]
async fn a_server_without_any_sign_and_one_with_a_message_that_is_too_large_are_temporary_failures() {
    let silent = Server::start(|_, socket| async move {
        let _socket = socket;
        std::future::pending::<()>().await;
    })
    .await;
    let talks = Server::start(|_, mut socket| async move {
        socket.send(Message::text("short")).await.unwrap();
        socket.send(Message::text("x".repeat(2000))).await.unwrap();
        while let Some(Ok(_)) = socket.next().await {}
    })
    .await;
    for (address, texts, reason) in [
        (&silent.address, vec![], "sent nothing for `idle_timeout`, not even the answer to a ping"),
        (&talks.address, vec!["short"], "sent a message that is too large"),
    ] {
        let yaml = format!(
            "{{ url: '{address}', max_message_bytes: 1000, ping_interval: 10ms, idle_timeout: 50ms }}"
        );
        let sent = within(start::<WebsocketClientSource>(&yaml, 1 << 20, BTreeMap::new()).finish()).await;
        let error = sent.result.as_ref().unwrap();
        assert!(error.kind().is_temporary() && error.full().contains(reason), "{}", error.full());
        assert_eq!(sent.payloads(), texts);
    }
}

/// The answers to the pings do not fit into the buffers of a connection.
#[tokio::test]
async fn a_server_that_sends_pings_and_reads_nothing_is_left() {
    let server = Server::start(|_, mut socket| async move {
        while socket.send(Message::Ping(vec![0_u8; 125].into())).await.is_ok() {}
    })
    .await;
    let yaml = format!("{{ url: '{}', timeout: 1s }}", server.address);
    let sent = within(start::<WebsocketClientSource>(&yaml, 1 << 20, BTreeMap::new()).finish()).await;
    let error = sent.result.unwrap();
    assert!(error.kind().is_temporary(), "{}", error.full());
    assert!(error.full().contains("did not take what is sent in time"), "{}", error.full());
}

/// The memory is full of the first message for longer than `end_after_idle`.
#[tokio::test]
async fn a_source_that_waits_for_memory_is_not_idle() {
    let server = Server::start(|_, mut socket| async move {
        socket.send(Message::text("a".repeat(40 << 10))).await.unwrap();
        socket.send(Message::text("b")).await.unwrap();
        while let Some(Ok(_)) = socket.next().await {}
    })
    .await;
    let yaml = format!("{{ url: '{}', end_after_idle: 1s }}", server.address);
    let source = options::<WebsocketClientSource>(&yaml).build(&context()).unwrap();
    let source = start_source_within(&Budget::new(64 << 10), source, 1, BTreeMap::new());
    let Some((_, Arrived::Messages(first))) = within(source.main.take()).await else { panic!("it ended") };
    tokio::time::sleep(Duration::from_millis(1500)).await;
    first.settle(Outcome::Delivered);
    assert_eq!(take(&source, 1).await, ["b"]);
    source.stop.request();
    assert!(within(source.finish()).await.result.is_none());
}

#[tokio::test]
async fn it_ends_after_a_time_without_messages() {
    let server = Server::start(|_, mut socket| async move {
        socket.send(Message::text("a")).await.unwrap();
        while let Some(Ok(_)) = socket.next().await {}
    })
    .await;
    let yaml = format!("{{ url: '{}', end_after_idle: 100ms }}", server.address);
    let sent = within(start::<WebsocketClientSource>(&yaml, 1 << 20, BTreeMap::new()).finish()).await;
    assert!(sent.result.is_none());
    assert_eq!(sent.payloads(), ["a"]);
}

#[tokio::test]
async fn an_answer_that_is_no_websocket_is_an_error() {
    for (status, kind) in [
        ("404 Not Found", ErrorKind::Permanent),
        ("500 Internal Server Error", ErrorKind::Temporary),
        ("503 Service Unavailable", ErrorKind::Overloaded),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
            std::future::pending::<()>().await;
        });
        let yaml = format!("{{ url: 'ws://{address}/?token=SEKRET' }}");
        let sent = within(start::<WebsocketClientSource>(&yaml, 1 << 20, BTreeMap::new()).finish()).await;
        let error = sent.result.unwrap();
        let text = format!("`ws://{address}/?…` answered {status}, not with a WebSocket");
        assert_eq!((error.kind(), error.full()), (kind, text));
    }
}

#[test]
fn mistakes_are_named() {
    let mistakes = |yaml: &str| messages(options::<WebsocketClientSource>(yaml).check());
    assert_eq!(mistakes("{ url: 'wss://a/b' }"), [""; 0]);
    assert_eq!(mistakes("{ url: 'http://a' }"), ["`http` is not a scheme of WebSocket."]);
    assert_eq!(mistakes("{ url: a, protocol: ['a', ''] }"), ["A subprotocol is a word."]);
    assert_eq!(mistakes("{ url: a, idle_timeout: 5s }"), ["The answer to a ping must come before it."]);
    assert_eq!(mistakes("{ url: a, timeout: 0s }"), ["No server can answer in no time."]);
}

use std::net::TcpStream;

use bytes::Bytes;
use thalweg_engine::testing::{batch, context, messages, options, sink_conforms};
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::tungstenite::client::client;
use tokio_tungstenite::tungstenite::http::Request;
use tokio_tungstenite::tungstenite::{Error as WebsocketError, HandshakeError, WebSocket};

use super::*;
use crate::net::testing::{LONG, rest, within};

/// Starts a server; returns the sink and its address.
async fn start(yaml: &str) -> (Websocket, String) {
    let config: WebsocketConfig = options(&format!("{{ address: 127.0.0.1:0, {yaml} }}"));
    assert_eq!(config.check(), []);
    let announce = Announce::new("test");
    let mut sink = Websocket::new(config, announce.clone());
    sink.open(None).await.unwrap();
    let address = announce.watch().borrow().clone().unwrap();
    (sink, address)
}

/// Connects as a program does, with blocking calls.
fn connect_blocking(
    address: &str,
    path: &str,
    origin: Option<&str>,
) -> Result<WebSocket<TcpStream>, Box<WebsocketError>> {
    handshake(TcpStream::connect(address).unwrap(), address, path, origin)
}

/// Performs the handshake of a client over a connection.
fn handshake(
    stream: TcpStream,
    address: &str,
    path: &str,
    origin: Option<&str>,
) -> Result<WebSocket<TcpStream>, Box<WebsocketError>> {
    stream.set_read_timeout(Some(LONG)).unwrap();
    let mut request = Request::builder()
        .uri(format!("ws://{address}{path}"))
        .header("Host", address)
        .header("Connection", "Upgrade")
        .header("Upgrade", "websocket")
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
    if let Some(origin) = origin {
        request = request.header("Origin", origin);
    }
    match client(request.body(()).unwrap(), stream) {
        Ok((socket, _)) => Ok(socket),
        Err(HandshakeError::Failure(error)) => Err(error.into()),
        Err(HandshakeError::Interrupted(_)) => panic!("it waits"),
    }
}

async fn connect(
    address: &str,
    path: &'static str,
    origin: Option<&'static str>,
) -> Result<WebSocket<TcpStream>, Box<WebsocketError>> {
    let address = address.to_owned();
    within(tokio::task::spawn_blocking(move || connect_blocking(&address, path, origin))).await.unwrap()
}

/// Waits until `count` clients are connected.
async fn until_there_are(sink: &Websocket, count: usize) {
    within(async {
        while sink.clients.count() != count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

async fn write(sink: &mut Websocket, messages: &[&[u8]]) {
    let mut rejects = Rejects::default();
    assert_eq!(sink.write(&batch(messages), &mut rejects).await.unwrap(), WriteOutcome::Durable);
    assert!(rejects.take().is_empty());
}

/// Reads `count` messages and returns the client with them.
async fn read(mut client: WebSocket<TcpStream>, count: usize) -> (WebSocket<TcpStream>, Vec<Message>) {
    let read = move || {
        let messages = (0..count).map(|_| client.read().unwrap()).collect();
        (client, messages)
    };
    within(tokio::task::spawn_blocking(read)).await.unwrap()
}

#[tokio::test]
async fn it_conforms() {
    sink_conforms::<WebsocketConfig>("{ address: 127.0.0.1:0 }").await;
    options::<WebsocketConfig>("{ address: ':1' }").build(&context()).unwrap();
}

#[tokio::test]
async fn every_client_gets_each_message_from_when_it_came() {
    let (mut sink, address) = start("path: /watch").await;
    // Without clients, a write does not wait.
    write(&mut sink, &[b"unseen"]).await;
    let one = connect(&address, "/watch", None).await.unwrap();
    until_there_are(&sink, 1).await;
    write(&mut sink, &[b"first", b"", b"\xff"]).await;
    let other = connect(&address, "/watch?x=y", None).await.unwrap();
    until_there_are(&sink, 2).await;
    write(&mut sink, &["später".as_bytes()]).await;
    let (one, messages) = read(one, 4).await;
    assert_eq!(
        messages,
        [Message::text("first"), Message::text(""), Message::binary(&b"\xff"[..]), Message::text("später")]
    );
    let (mut other, messages) = read(other, 1).await;
    assert_eq!(messages, [Message::text("später")]);
    // One client disconnects. The other receives the rest and the close frame.
    drop(one);
    write(&mut sink, &[b"gone"]).await;
    let closed = tokio::task::spawn_blocking(move || {
        let last = other.read().unwrap();
        let closed = matches!(other.read(), Ok(Message::Close(_)));
        // Answers the close frame.
        while other.read().is_ok() {}
        (last, closed)
    });
    within(sink.finish()).await.unwrap();
    assert_eq!(within(closed).await.unwrap(), (Message::text("gone"), true));
    assert_eq!(TcpStream::connect(&address).unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn a_client_whose_handshake_completes_after_the_end_is_disconnected() {
    let (mut sink, address) = start("handshake_timeout: 30s").await;
    // Clients are accepted in their order, so this one has been accepted once the other one is connected.
    let late = TcpStream::connect(&address).unwrap();
    let mut other = connect(&address, "/", None).await.unwrap();
    until_there_are(&sink, 1).await;
    let closed = tokio::task::spawn_blocking(move || {
        // All queues end together.
        let other_is_closed = matches!(other.read(), Ok(Message::Close(_)));
        while other.read().is_ok() {}
        let mut late = handshake(late, &address, "/", None).unwrap();
        let late_is_closed = matches!(late.read(), Ok(Message::Close(_)));
        while late.read().is_ok() {}
        (other_is_closed, late_is_closed)
    });
    within(sink.finish()).await.unwrap();
    assert_eq!(within(closed).await.unwrap(), (true, true));
}

#[tokio::test]
async fn what_a_client_says_is_heard_but_not_listened_to() {
    let (mut sink, address) = start("kind: binary").await;
    let mut client = connect(&address, "/", None).await.unwrap();
    until_there_are(&sink, 1).await;
    client.send(Message::text("hello")).unwrap();
    client.send(Message::Ping(Bytes::from("ping"))).unwrap();
    let (client, messages) = read(client, 1).await;
    assert_eq!(messages, [Message::Pong(Bytes::from("ping"))]);
    write(&mut sink, &[b"text"]).await;
    assert_eq!(read(client, 1).await.1, [Message::binary(&b"text"[..])]);
}

#[tokio::test]
async fn a_client_that_does_not_keep_up_is_dropped_and_holds_up_nobody() {
    let (mut sink, address) = start("max_client_bytes: 100KiB").await;
    let slow = connect(&address, "/", None).await.unwrap();
    let mut quick = connect(&address, "/", None).await.unwrap();
    until_there_are(&sink, 2).await;
    let large = vec![b'x'; 50_000];
    let mut rounds = 0;
    while sink.clients.count() == 2 {
        write(&mut sink, &[&large]).await;
        let read = tokio::task::spawn_blocking(move || (quick.read().unwrap().len(), quick));
        let (length, client) = within(read).await.unwrap();
        assert_eq!(length, 50_000);
        quick = client;
        rounds += 1;
        assert!(rounds < 10_000, "the slow one is never dropped");
    }
    write(&mut sink, &[b"still here"]).await;
    assert_eq!(read(quick, 1).await.1, [Message::text("still here")]);
    drop(slow);
}

#[tokio::test]
async fn pages_of_other_hosts_and_other_paths_are_refused() {
    let status = |refused: Result<WebSocket<TcpStream>, Box<WebsocketError>>| match refused {
        Err(error) => match *error {
            WebsocketError::Http(response) => response.status().as_u16(),
            other => panic!("{other}"),
        },
        Ok(_) => 101,
    };
    let (_own, address) = start("path: /watch").await;
    assert_eq!(status(connect(&address, "/", None).await), 404);
    assert_eq!(status(connect(&address, "/watch", Some("https://example.com")).await), 403);
    let (_any, address) = start("origins: ['*']").await;
    assert_eq!(status(connect(&address, "/", Some("https://example.com")).await), 101);
    let (_named, address) = start("origins: ['https://example.com']").await;
    assert_eq!(status(connect(&address, "/", Some("https://Example.com")).await), 101);
    assert_eq!(status(connect(&address, "/", Some("https://example.org")).await), 403);
    let (_own, address) = start("").await;
    let at = address.clone();
    let own = move || connect_blocking(&at, "/", Some(&format!("http://{at}"))).is_ok();
    assert!(within(tokio::task::spawn_blocking(own)).await.unwrap());
}

#[tokio::test]
async fn a_client_that_sends_two_origins_is_refused() {
    let (_sink, address) = start("origins: ['https://example.com']").await;
    let mut raw = tokio::net::TcpStream::connect(&address).await.unwrap();
    let head = format!(
        "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Origin: https://example.com\r\nOrigin: https://example.org\r\n\r\n"
    );
    within(raw.write_all(head.as_bytes())).await.unwrap();
    let answer = rest(&mut raw).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

#[test]
fn what_does_not_go_together_is_refused() {
    let mistakes = |yaml: &str| messages(options::<WebsocketConfig>(yaml).check());
    assert_eq!(mistakes("{ address: nowhere }"), ["`nowhere` names no port."]);
    let only = "The address of a socket has only a host and a port.";
    assert_eq!(mistakes("{ address: 'u:SEKRET@host:1' }"), [only]);
    assert_eq!(mistakes("{ address: ':1', path: watch }"), ["A path begins with `/`."]);
    assert_eq!(mistakes("{ address: ':1', encode: text }"), ["`text` needs a template."]);
}

#[tokio::test]
async fn nothing_is_read_from_a_client_that_does_not_read_its_answers() {
    let (sink, address) = start("path: /").await;
    let client = connect(&address, "/", None).await.unwrap();
    until_there_are(&sink, 1).await;
    let sent = tokio::task::spawn_blocking(move || {
        // A masked ping of 125 bytes.
        let mut ping = vec![0x89, 0xfd, 0, 0, 0, 0];
        ping.resize(6 + 125, b'x');
        let pings = ping.repeat(1000);
        let mut stream = client.get_ref();
        stream.set_write_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
        let mut sent = 0;
        while sent < 256 << 20 {
            match std::io::Write::write(&mut stream, &pings) {
                Ok(count) => sent += count,
                Err(_) => break,
            }
        }
        sent
    });
    let sent = within(sent).await.unwrap();
    assert!(sent < 256 << 20, "{sent} bytes of pings were read");
}

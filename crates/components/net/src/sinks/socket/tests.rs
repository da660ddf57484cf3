use std::time::Duration;

use thalweg_engine::testing::{batch, context, messages, options, refused, sink_conforms};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::task::JoinHandle;

use super::*;
use crate::net::testing::{rest, within};
use crate::tls::{TlsServer, test_files};

/// Accepts a connection and returns everything that it receives.
fn hear(listener: TcpListener) -> JoinHandle<String> {
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        rest(&mut stream).await
    })
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

async fn open(yaml: &str) -> Box<dyn Sink> {
    let config: SocketConfig = options(yaml);
    assert_eq!(config.check(), []);
    let mut sink = config.build(&context()).unwrap();
    sink.open(None).await.unwrap();
    sink
}

/// Writes a batch; returns the rejected messages.
async fn write(sink: &mut Box<dyn Sink>, messages: &[&str]) -> Result<Vec<(u32, String)>, Error> {
    let mut rejects = Rejects::default();
    let written = within(sink.write(&batch(messages), &mut rejects)).await?;
    assert_eq!(written, WriteOutcome::Durable);
    Ok(rejects.take())
}

#[tokio::test]
async fn it_conforms() {
    let (listener, address) = listen().await;
    let heard = hear(listener);
    sink_conforms::<SocketConfig>(&format!("{{ address: {address} }}")).await;
    let text = "a message\nanother message that is longer\n";
    assert_eq!(within(heard).await.unwrap(), text.repeat(2));
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    sink_conforms::<SocketConfig>(&format!("{{ address: 'udp://{}' }}", socket.local_addr().unwrap())).await;
    let mut datagram = [0; 100];
    let length = within(socket.recv(&mut datagram)).await.unwrap();
    assert_eq!(&datagram[..length], b"a message");
}

#[tokio::test]
async fn messages_are_told_apart_in_every_way() {
    for (framing, expected) in [
        ("{}", "one\n\ntwo\n"),
        ("{ delimiter: '--' }", "one----two--"),
        ("{ by: none }", "onetwo"),
        ("{ by: ascii, delimiter: ':' }", "3:one0:3:two"),
        ("{ by: binary_le, size: 1 }", "\u{3}one\0\u{3}two"),
        ("{ by: varint }", "\u{3}one\0\u{3}two"),
        ("{ by: binary_be, size: 2 }", "\0\u{3}one\0\0\0\u{3}two"),
        ("{ by: binary_le }", "\u{3}\0\0\0one\0\0\0\0\u{3}\0\0\0two"),
    ] {
        let (listener, address) = listen().await;
        let heard = hear(listener);
        let mut sink = open(&format!("{{ address: {address}, framing: {framing} }}")).await;
        assert_eq!(write(&mut sink, &["one", "", "two"]).await.unwrap(), []);
        sink.finish().await.unwrap();
        assert_eq!(within(heard).await.unwrap(), expected, "{framing}");
    }
}

#[tokio::test]
async fn large_and_small_messages_keep_their_order() {
    let (listener, address) = listen().await;
    let heard = hear(listener);
    let mut sink = open(&format!("{{ address: {address}, framing: {{ delimiter: '|' }} }}")).await;
    let large = "x".repeat(100_000);
    let messages: Vec<String> = (0..200)
        .map(|n| if n % 50 == 7 { large.clone() } else { format!("{n} {}", "y".repeat(n * 7)) })
        .collect();
    let texts: Vec<&str> = messages.iter().map(String::as_str).collect();
    write(&mut sink, &texts).await.unwrap();
    sink.finish().await.unwrap();
    assert!(within(heard).await.unwrap() == messages.join("|") + "|");
}

#[tokio::test]
async fn a_message_that_its_length_cannot_tell_is_rejected() {
    let (listener, address) = listen().await;
    let heard = hear(listener);
    let mut sink = open(&format!("{{ address: {address}, framing: {{ by: binary_be, size: 1 }} }}")).await;
    let rejected = write(&mut sink, &["one", &"x".repeat(256), "two"]).await.unwrap();
    assert_eq!(
        rejected,
        [(1, "has 256 bytes, which is more than a length of 1 bytes can represent".to_owned())]
    );
    sink.finish().await.unwrap();
    assert_eq!(within(heard).await.unwrap(), "\u{3}one\u{3}two");
}

#[tokio::test]
async fn a_server_that_is_down_at_first_or_goes_away_gets_it_later() {
    let (listener, address) = listen().await;
    drop(listener);
    let mut sink = open(&format!("{{ address: {address} }}")).await;
    let error = write(&mut sink, &["one"]).await.unwrap_err();
    assert_eq!(error.kind(), thalweg_engine::ErrorKind::Temporary);
    assert!(error.full().contains("no process listens there"), "{}", error.full());
    let listener = TcpListener::bind(&address).await.unwrap();
    write(&mut sink, &["one"]).await.unwrap();
    // The server closes the idle connection; the sink notices.
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut text = [0; 4];
    stream.read_exact(&mut text).await.unwrap();
    drop(stream);
    tokio::time::sleep(Duration::from_millis(20)).await;
    write(&mut sink, &["two"]).await.unwrap();
    sink.finish().await.unwrap();
    assert_eq!(within(hear(listener)).await.unwrap(), "two\n");
}

#[tokio::test]
async fn a_batch_is_safe_when_it_is_acknowledged_and_not_before() {
    let (listener, address) = listen().await;
    let mut sink =
        open(&format!("{{ address: {address}, acknowledge: \"OK\\n\", acknowledge_timeout: 100ms }}")).await;
    let answer = async |answer: &'static [u8]| {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut text = [0; 4];
        stream.read_exact(&mut text).await.unwrap();
        stream.write_all(answer).await.unwrap();
        stream
    };
    // The wrong answer, none in time, half of one and the end; then the right one, several times over the
    // same connection.
    for (given, expected) in
        [(&b"NO\n"[..], "answered `NO"), (b"", "did not acknowledge"), (b"O", "acknowledgement")]
    {
        let (written, stream) = tokio::join!(write(&mut sink, &["one"]), async {
            let stream = answer(given).await;
            if given == b"O" { None } else { Some(stream) }
        });
        let error = written.unwrap_err().full();
        assert!(error.contains(expected), "{error}");
        drop(stream);
    }
    let (written, mut stream) = tokio::join!(write(&mut sink, &["one"]), answer(b"OK\n"));
    written.unwrap();
    let (written, ()) = tokio::join!(write(&mut sink, &["two"]), async {
        let mut text = [0; 4];
        stream.read_exact(&mut text).await.unwrap();
        assert_eq!(&text, b"two\n");
        stream.write_all(b"OK\n").await.unwrap();
    });
    written.unwrap();
}

/// Reads `length` bytes of messages and answers each line feed.
async fn answer_lines(stream: &mut TcpStream, length: usize) -> String {
    let mut text = vec![0; length];
    within(stream.read_exact(&mut text)).await.unwrap();
    let lines = text.iter().filter(|&&byte| byte == b'\n').count();
    stream.write_all(&b"OK\n".repeat(lines)).await.unwrap();
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn each_message_is_acknowledged_and_only_those_that_are_not_are_sent_again() {
    let (listener, address) = listen().await;
    let mut sink = open(&format!("{{ address: {address}, acknowledge: \"OK\\n\" }}")).await;
    let messages = batch(["one", "two", "three"]);
    let mut rejects = Rejects::default();
    let (written, heard) = tokio::join!(sink.write(&messages, &mut rejects), async {
        let (mut stream, _) = listener.accept().await.unwrap();
        // The server answers two messages, and half of the third answer.
        let mut heard = answer_lines(&mut stream, 8).await;
        stream.write_all(b"O").await.unwrap();
        drop(stream);
        let (mut stream, _) = listener.accept().await.unwrap();
        heard += &answer_lines(&mut stream, 6).await;
        heard
    });
    assert_eq!((written.unwrap(), heard.as_str()), (WriteOutcome::Durable, "one\ntwo\nthree\n"));
}

#[tokio::test]
async fn the_engine_decides_about_a_batch_of_which_nothing_is_acknowledged() {
    let (listener, address) = listen().await;
    let mut sink = open(&format!("{{ address: {address}, acknowledge: \"OK\\n\" }}")).await;
    let messages = batch(["one", "two"]);
    let mut rejects = Rejects::default();
    let (written, ()) = tokio::join!(sink.write(&messages, &mut rejects), async {
        let (mut stream, _) = listener.accept().await.unwrap();
        answer_lines(&mut stream, 4).await;
        drop(stream);
        drop(listener.accept().await.unwrap());
    });
    assert_eq!(written.unwrap_err().kind(), thalweg_engine::ErrorKind::Temporary);
}

#[tokio::test]
async fn a_server_may_acknowledge_a_batch() {
    let (listener, address) = listen().await;
    let options = "acknowledge: OK, acknowledge_per: batch, framing: { by: binary_be, size: 1 }";
    let mut sink = open(&format!("{{ address: {address}, {options} }}")).await;
    let long = "x".repeat(300);
    let messages = batch(["one", &long, "two"]);
    let mut rejects = Rejects::default();
    let (written, ()) = tokio::join!(sink.write(&messages, &mut rejects), async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut text = [0; 8];
        within(stream.read_exact(&mut text)).await.unwrap();
        stream.write_all(b"OK").await.unwrap();
    });
    assert_eq!(written.unwrap(), WriteOutcome::Durable);
    assert_eq!(rejects.take().len(), 1);
}

#[tokio::test]
async fn a_message_is_rejected_once_however_often_its_batch_is_sent() {
    let (listener, address) = listen().await;
    let options = "acknowledge: OK, framing: { by: binary_be, size: 1 }";
    let mut sink = open(&format!("{{ address: {address}, {options} }}")).await;
    let long = "x".repeat(300);
    let messages = batch(["one", &long, "two"]);
    let mut rejects = Rejects::default();
    let (written, ()) = tokio::join!(sink.write(&messages, &mut rejects), async {
        // The server goes away without an answer.
        drop(listener.accept().await.unwrap());
    });
    written.unwrap_err();
    let (written, ()) = tokio::join!(sink.write(&messages, &mut rejects), async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut text = [0; 8];
        within(stream.read_exact(&mut text)).await.unwrap();
        stream.write_all(b"OKOK").await.unwrap();
    });
    assert_eq!(written.unwrap(), WriteOutcome::Durable);
    let rows: Vec<u32> = rejects.take().into_iter().map(|(row, _)| row).collect();
    assert_eq!(rows, [1]);
}

/// A peer whose answers are not read would stop reading.
#[tokio::test]
async fn acknowledgements_are_read_while_a_batch_is_written() {
    let (listener, address) = listen().await;
    let text = "acknowledged ".repeat(20);
    let mut sink = open(&format!("{{ address: {address}, acknowledge: '{text}' }}")).await;
    let messages = batch(vec![""; 100_000]);
    let mut rejects = Rejects::default();
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut read = 0;
        let mut piece = [0; 1000];
        while read < 100_000 {
            let length = stream.read(&mut piece).await.unwrap();
            read += length;
            stream.write_all(text.repeat(length).as_bytes()).await.unwrap();
        }
    };
    let write = sink.write(&messages, &mut rejects);
    let (written, ()) = within(async { tokio::join!(write, server) }).await;
    assert_eq!(written.unwrap(), WriteOutcome::Durable);
}

/// Two of ours with the same text: nothing that the sink reports as written is missing, although the receiver
/// is killed again and again.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_when_our_own_source_is_killed() {
    // No other test uses this address, so the port stays free between two receivers.
    let config: crate::sources::socket::SocketSource =
        options("{ address: 127.0.0.2:0, acknowledge: \"OK\\n\" }");
    let mut receiver = Receiver::start(&config, None).await;
    let mut sink = open(&format!("{{ address: {}, acknowledge: \"OK\\n\" }}", receiver.address)).await;
    let mut number = 0;
    let mut kills = 0;
    let mut kept = std::collections::HashSet::new();
    for _ in 0..20 {
        let texts: Vec<String> = (number..number + 3000).map(|number| format!("message {number}")).collect();
        number += 3000;
        let messages = batch(&texts);
        loop {
            let mut rejects = Rejects::default();
            let writing = sink.write(&messages, &mut rejects);
            // Killed in the middle: some messages are stored, others are in flight.
            let kill = async {
                tokio::time::sleep(Duration::from_millis(fastrand::u64(0..20))).await;
                receiver.kill().await
            };
            let (written, stored) = tokio::join!(within(writing), kill);
            kept.extend(stored);
            kills += 1;
            receiver = Receiver::start(&config, Some(&receiver.address)).await;
            if written.is_ok() {
                break;
            }
        }
        let missing = texts.iter().filter(|text| !kept.contains(*text)).count();
        assert_eq!(missing, 0, "after {kills} kills");
    }
}

/// A source of ours that stores one batch after another, slowly, and can be killed.
struct Receiver {
    address: String,
    stop: tokio::sync::oneshot::Sender<()>,
    stored: JoinHandle<Vec<String>>,
}

impl Receiver {
    async fn start(config: &crate::sources::socket::SocketSource, at: Option<&str>) -> Self {
        let (source, announce) = crate::sources::socket::for_test(config, at);
        let server = crate::net::testing::Server::start(source, announce).await;
        let address = server.address.clone();
        let (stop, mut stopped) = tokio::sync::oneshot::channel();
        let stored = tokio::spawn(async move {
            let mut stored = Vec::new();
            loop {
                tokio::select! {
                    biased;
                    _ = &mut stopped => break,
                    taken = server.source.main.take() => {
                        let Some((_, thalweg_engine::testing::Arrived::Messages(batch))) = taken else { break };
                        tokio::time::sleep(Duration::from_millis(2)).await;
                        stored.extend(thalweg_engine::testing::payloads(&batch));
                        batch.settle(thalweg_record::Outcome::Delivered);
                    }
                }
            }
            server.source.task.abort();
            let _ = server.source.task.await;
            stored
        });
        Self { address, stop, stored }
    }

    /// Ends it without a word, and returns what it has stored.
    async fn kill(&mut self) -> Vec<String> {
        let (stop, _) = tokio::sync::oneshot::channel();
        let _ = std::mem::replace(&mut self.stop, stop).send(());
        (&mut self.stored).await.unwrap()
    }
}

#[tokio::test]
async fn a_server_that_does_not_read_is_overloaded() {
    let (listener, address) = listen().await;
    let mut sink =
        open(&format!("{{ address: {address}, write_timeout: 50ms, send_buffer_size: 8KiB }}")).await;
    let large = "x".repeat(16 << 20);
    let error = write(&mut sink, &[&large]).await.unwrap_err();
    assert_eq!(error.kind(), thalweg_engine::ErrorKind::Overloaded);
    drop(listener);
}

#[tokio::test]
async fn datagrams_that_are_too_large_are_rejected_and_none_is_sent_twice() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut sink = open(&format!("{{ address: 'udp://{}' }}", socket.local_addr().unwrap())).await;
    let rejected = write(&mut sink, &["one", &"x".repeat(70_000), "two"]).await.unwrap();
    assert_eq!(rejected, [(1, "has 70000 bytes, which is too large for a datagram".to_owned())]);
    let mut buffer = [0; 100];
    for expected in ["one", "two"] {
        let length = within(socket.recv(&mut buffer)).await.unwrap();
        assert_eq!(std::str::from_utf8(&buffer[..length]), Ok(expected));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut sink = open(&format!("{{ address: 'unixgram://{}' }}", path.display())).await;
    assert!(write(&mut sink, &["one"]).await.unwrap_err().full().contains("does not exist"));
    let socket = UnixDatagram::bind(&path).unwrap();
    write(&mut sink, &["one"]).await.unwrap();
    let length = within(socket.recv(&mut buffer)).await.unwrap();
    assert_eq!(&buffer[..length], b"one");
}

#[tokio::test]
async fn unix_sockets_and_tls() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stream.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut sink = open(&format!("{{ address: 'unix://{}' }}", path.display())).await;
    write(&mut sink, &["over unix"]).await.unwrap();
    sink.finish().await.unwrap();
    assert_eq!(rest(&mut listener.accept().await.unwrap().0).await, "over unix\n");

    let (certificate, key) = test_files(folder.path());
    let tls: TlsServer =
        options(&format!("{{ certificate: {certificate}, key: {key}, client_ca: {certificate} }}"));
    let acceptor = tls.acceptor().unwrap();
    let (listener, address) = listen().await;
    let accept = async |listener: &TcpListener| {
        let (stream, _): (TcpStream, _) = listener.accept().await.unwrap();
        match acceptor.accept(stream).await {
            Ok(mut stream) => rest(&mut stream).await,
            Err(_) => String::new(),
        }
    };
    let own = format!("ca: {certificate}, certificate: {certificate}, key: {key}, server_name: localhost");
    let mut sink = open(&format!("{{ address: {address}, tls: {{ {own} }} }}")).await;
    let (heard, ()) = tokio::join!(within(accept(&listener)), async {
        write(&mut sink, &["over TLS"]).await.unwrap();
        sink.finish().await.unwrap();
    });
    assert_eq!(heard, "over TLS\n");
    // A server whose certificate no trusted authority has signed.
    let mut sink = open(&format!("{{ address: {address}, tls: {{}} }}")).await;
    let (heard, error) = tokio::join!(within(accept(&listener)), write(&mut sink, &["secret"]));
    assert_eq!(heard, "");
    let error = error.unwrap_err().full();
    assert!(error.ends_with("invalid peer certificate: UnknownIssuer"), "{error}");
}

/// An address with a password is refused, and not repeated: addresses are shown in messages.
#[test]
fn a_password_in_the_address_is_not_shown() {
    for address in ["tcp://u:SEKRET@host:1", "host:1?token=SEKRET", "tcp://host:SEKRET@1"] {
        let found = refused::<SocketConfig>(&format!("{{ address: '{address}' }}"));
        assert!(found.contains("has only a host and a port") && !found.contains("SEKRET"), "{found}");
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    let mistakes = |yaml: &str| messages(options::<SocketConfig>(yaml).check());
    assert_eq!(mistakes("{ address: 'udp://:1', acknowledge: OK }"), ["Datagrams are not acknowledged."]);
    assert_eq!(mistakes("{ address: ':1', acknowledge_per: batch }"), ["Nothing is acknowledged."]);
    assert_eq!(mistakes("{ address: 'udp://:1', framing: { by: none } }"), ["Each datagram is one message."]);
    assert_eq!(mistakes("{ address: ':1', framing: { size: 2 } }"), ["`size` is for binary lengths."]);
    assert_eq!(
        mistakes("{ address: ':1', framing: { by: binary_le, size: 3 } }"),
        ["A length has 1, 2, 4 or 8 bytes."]
    );
    assert_eq!(mistakes("{ address: 'unix://a', tls: {} }"), ["TLS is for TCP."]);
    assert_eq!(mistakes("{ address: ':1', tls: { key: a } }"), ["`certificate` and `key` belong together."]);
    assert_eq!(mistakes("{ address: ':1', encode: text }"), ["`text` needs a template."]);
}

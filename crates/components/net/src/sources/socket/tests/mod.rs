mod endings;
mod places;

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use thalweg_engine::ErrorKind;
use thalweg_engine::testing::{context, messages, options, payloads, refused, rows};
use thalweg_record::Outcome;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket, UnixDatagram, UnixStream};
use tokio_rustls::rustls::ClientConnection;

use super::*;
use crate::net::Dial;
use crate::net::testing::{Server, connect_from, is_silent, read, rest, trickle, within};
use crate::tls::{TlsClient, test_files};

async fn start(yaml: &str) -> Server {
    let config: SocketSource = options(yaml);
    assert_eq!(config.check(), []);
    let socket = Socket::new(config, &context());
    let announce = socket.announce.clone();
    Server::start(socket, announce).await
}

/// Returns the rejected messages with the reasons.
fn reasons(batch: &thalweg_record::Batch) -> Vec<(String, String)> {
    let reasons =
        rows(batch.fields()).into_iter().map(|row| row["error_reason"].as_str().unwrap().to_owned());
    payloads(batch).into_iter().zip(reasons).collect()
}

#[tokio::test]
async fn messages_come_in_pieces_and_in_several_connections() {
    let server = start("{ address: 127.0.0.1:0 }").await;
    let (mut one, mut other) = (server.connect().await, server.connect().await);
    trickle(&mut one, b"the first\nthe ", 3).await;
    let first = server.next().await;
    assert_eq!(payloads(&first), ["the first"]);
    assert_eq!(first.meta().path.as_deref(), Some(one.local_addr().unwrap().to_string().as_str()));
    other.write_all(b"another\xff\n\nlast").await.unwrap();
    drop(other);
    let between = server.next().await;
    assert_eq!(between.payload().value(0), b"another\xff");
    one.write_all(b"second\n").await.unwrap();
    let mut all = vec![between];
    while all.iter().map(thalweg_record::Batch::rows).sum::<usize>() < 4 {
        all.push(server.next().await);
    }
    let mut found: Vec<String> = all.iter().flat_map(payloads).collect();
    found.sort();
    assert_eq!(found, ["", "another\u{fffd}", "last", "the second"]);
    all.into_iter().chain([first]).for_each(|batch| batch.settle(Outcome::Delivered));
    let sent = server.stop().await;
    assert!(sent.result.is_none() && sent.main.is_empty() && sent.errors.is_empty());
}

#[tokio::test]
async fn messages_of_other_character_sets_become_utf_8() {
    let text = "\u{feff}h\u{e4}\r\n\u{a0a}\n";
    let big: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let little: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let server = start("{ address: 127.0.0.1:0, charset: utf-16 }").await;
    for bytes in [big, little] {
        let mut client = server.connect().await;
        trickle(&mut client, &bytes, 3).await;
        drop(client);
        let mut found = Vec::new();
        while found.len() < 2 {
            let batch = server.next().await;
            found.extend(payloads(&batch));
            batch.settle(Outcome::Delivered);
        }
        assert_eq!(found, ["h\u{e4}", "\u{a0a}"]);
    }
    let mut client = server.connect().await;
    client.write_all(b"\0\xd8\n\0a\0\n\0").await.unwrap();
    drop(client);
    let batch = server.next().await;
    assert_eq!(payloads(&batch), ["a"]);
    batch.settle(Outcome::Delivered);
    let sent = server.stop().await;
    assert_eq!(sent.errors.iter().flat_map(reasons).count(), 1);
    let mistakes = messages(options::<SocketSource>("{ address: 'udp://:1', charset: utf-16 }").check());
    assert_eq!(mistakes, ["Each datagram may order the bytes differently."]);
}

#[tokio::test]
async fn a_length_before_each_message_can_be_kept() {
    let server = start("{ address: 127.0.0.1:0, framing: { by: binary_be, size: 2, whole: true } }").await;
    let mut client = server.connect().await;
    trickle(&mut client, b"\0\x03one\0\x03two", 1).await;
    drop(client);
    assert_eq!(server.delivered(2).await, ["\0\u{3}one", "\0\u{3}two"]);
    assert!(server.stop().await.main.is_empty());
}

#[tokio::test]
async fn what_is_delivered_is_acknowledged_and_not_before() {
    let server = start("{ address: 127.0.0.1:0, acknowledge: \"OK\\n\" }").await;
    let mut client = server.connect().await;
    client.write_all(b"one\ntwo\n").await.unwrap();
    let mut batch = server.next().await;
    while batch.rows() < 2 {
        batch = thalweg_record::Batch::merge(vec![batch, server.next().await]).unwrap().unwrap();
    }
    assert!(is_silent(&mut client).await);
    batch.settle(Outcome::Delivered);
    assert_eq!(read(&mut client, 6).await, "OK\nOK\n");
    // The client shuts down its sending side and still gets the answer to its last message.
    client.write_all(b"three").await.unwrap();
    client.shutdown().await.unwrap();
    let batch = server.next().await;
    assert_eq!(payloads(&batch), ["three"]);
    batch.settle(Outcome::Filtered);
    assert_eq!(rest(&mut client).await, "OK\n");
}

#[tokio::test]
async fn what_failed_is_not_acknowledged_and_the_connection_is_closed() {
    let server = start("{ address: 127.0.0.1:0, acknowledge: OK }").await;
    let mut client = server.connect().await;
    client.write_all(b"one\n").await.unwrap();
    drop(server.next().await);
    assert_eq!(rest(&mut client).await, "");
}

#[tokio::test]
async fn what_was_received_can_be_acknowledged_at_once() {
    let server = start("{ address: 127.0.0.1:0, acknowledge: OK, respond: received }").await;
    let mut client = server.connect().await;
    client.write_all(b"one\n").await.unwrap();
    assert_eq!(read(&mut client, 2).await, "OK");
    server.next().await.settle(Outcome::Delivered);
}

#[tokio::test]
async fn a_stop_waits_for_what_is_to_be_acknowledged() {
    let server = start("{ address: 127.0.0.1:0, acknowledge: OK }").await;
    let mut client = server.connect().await;
    client.write_all(b"one\nand a pie").await.unwrap();
    let batch = server.next().await;
    server.source.stop.request();
    let error = server.next_error().await;
    assert_eq!(reasons(&error), [("and a pie".to_owned(), "is cut off: the run was stopped".to_owned())]);
    batch.settle(Outcome::Delivered);
    error.settle(Outcome::Rejected);
    assert_eq!(rest(&mut client).await, "OK");
    assert!(server.stop().await.result.is_none());
}

#[tokio::test]
async fn a_message_that_is_too_long_is_an_error_and_the_next_is_not() {
    let server = start("{ address: 127.0.0.1:0, max_message_bytes: 10000 }").await;
    let mut client = server.connect().await;
    client.write_all(&[b'x'; 50_000]).await.unwrap();
    client.write_all(b"\nshort\n").await.unwrap();
    let error = server.next_error().await;
    let (payload, reason) = reasons(&error).remove(0);
    assert_eq!(payload.len(), 4096);
    assert!(reason.contains("longer than `max_message_bytes` (10kB)"), "{reason}");
    error.settle(Outcome::Rejected);
    let batch = server.next().await;
    assert_eq!(payloads(&batch), ["short"]);
    batch.settle(Outcome::Delivered);
}

#[tokio::test]
async fn many_rejected_messages_leave_in_few_batches() {
    let server = start("{ address: 127.0.0.1:0, max_message_bytes: 1 }").await;
    let mut client = server.connect().await;
    client.write_all(&b"xx\n".repeat(3000)).await.unwrap();
    client.shutdown().await.unwrap();
    let (mut rows, mut batches) = (0, 0);
    while rows < 3000 {
        let error = server.next_error().await;
        (rows, batches) = (rows + error.rows(), batches + 1);
        error.settle(Outcome::Rejected);
    }
    // One for each read, which brings at least 8 KiB unless the connection is slow.
    assert!(rows == 3000 && batches < 300, "{batches} batches of {rows} rows");
}

#[tokio::test]
async fn messages_of_several_lines_are_complete_when_nothing_more_comes() {
    let yaml = "{ address: 127.0.0.1:0, framing: { start_pattern: '^\\S', timeout: 10ms } }";
    let server = start(yaml).await;
    let mut client = server.connect().await;
    client.write_all(b"one\n more\n").await.unwrap();
    let batch = server.next().await;
    assert_eq!(payloads(&batch), ["one\n more"]);
    batch.settle(Outcome::Delivered);
}

#[tokio::test]
async fn datagrams_are_messages_each_for_itself() {
    let server = start("{ address: 'udp://127.0.0.1:0', max_message_bytes: 5000 }").await;
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    client.connect(&server.address).await.unwrap();
    for datagram in [&b"one"[..], b"two\nthree\n", &[b'x'; 6000]] {
        client.send(datagram).await.unwrap();
    }
    let mut found = Vec::new();
    while found.len() < 3 {
        let batch = server.next().await;
        assert_eq!(batch.meta().path.as_deref(), Some(client.local_addr().unwrap().to_string().as_str()));
        found.extend(payloads(&batch));
        batch.settle(Outcome::Delivered);
    }
    assert_eq!(found, ["one", "two", "three"]);
    let error = server.next_error().await;
    assert_eq!(payloads(&error)[0].len(), 4096);
    error.settle(Outcome::Rejected);
    assert!(server.stop().await.result.is_none());
}

#[tokio::test]
async fn unix_sockets_have_the_permissions_asked_for_and_old_ones_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stream.sock");
    // A socket that no process listens on any more.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let yaml = format!("{{ address: 'unix://{}', mode: '0600' }}", path.display());
    let server = start(&yaml).await;
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut client = UnixStream::connect(&path).await.unwrap();
    client.write_all(b"over unix\n").await.unwrap();
    let batch = server.next().await;
    assert_eq!(payloads(&batch), ["over unix"]);
    batch.settle(Outcome::Delivered);
    // A socket in use is not removed.
    let config: SocketSource = options(&yaml);
    let other =
        thalweg_engine::testing::start_source(config.build(&context()).unwrap(), 1, Default::default());
    let error = within(other.task).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Temporary);
    assert!(error.full().contains("another program uses it"), "{}", error.full());
    assert!(server.stop().await.result.is_none());
    assert!(!path.exists());

    // Permissions that the umask removes are not granted, unless the configuration asks for them.
    let probe = folder.path().join("probe");
    std::fs::DirBuilder::new().mode(0o777).create(&probe).unwrap();
    let umask = !std::fs::metadata(&probe).unwrap().permissions().mode() & 0o777;
    let server = start(&format!("{{ address: 'unix://{}' }}", path.display())).await;
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o770 & !umask);
    assert!(server.stop().await.result.is_none());
    let server = start(&format!("{{ address: 'unix://{}', mode: '0666' }}", path.display())).await;
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
    assert!(server.stop().await.result.is_none());

    let path = folder.path().join("datagrams.sock");
    drop(std::os::unix::net::UnixDatagram::bind(&path).unwrap());
    let server = start(&format!("{{ address: 'unixgram://{}' }}", path.display())).await;
    let client = UnixDatagram::unbound().unwrap();
    client.send_to(&[b'y'; 70_000], &path).await.unwrap();
    let batch = server.next().await;
    assert_eq!(batch.payload().value(0).len(), 70_000);
    batch.settle(Outcome::Delivered);
    assert!(server.stop().await.result.is_none());
    assert!(!path.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_clients_each_get_their_own_acknowledgements() {
    let server = start("{ address: 127.0.0.1:0, acknowledge: \"+\" }").await;
    let (address, stop, task) = server.deliver();
    let clients: Vec<_> = (0..200)
        .map(|number| {
            let address = address.clone();
            tokio::spawn(async move {
                let mut client = TcpStream::connect(address).await.unwrap();
                for line in 0..10 {
                    let text = format!("client {number} line {line}\n").repeat(number % 7 + 1);
                    client.write_all(text.as_bytes()).await.unwrap();
                }
                read(&mut client, 10 * (number % 7 + 1)).await
            })
        })
        .collect();
    let mut expected = 0;
    for (number, client) in clients.into_iter().enumerate() {
        assert_eq!(within(client).await.unwrap(), "+".repeat(10 * (number % 7 + 1)));
        expected += 10 * (number % 7 + 1);
    }
    stop.request();
    let delivered = within(task).await.unwrap();
    delivered.result.unwrap();
    assert_eq!(delivered.payloads.len(), expected);
    // The order within a connection is kept.
    let of_one = |text: &&String| text.starts_with("client 3 ");
    let lines: Vec<&String> = delivered.payloads.iter().filter(of_one).collect();
    assert!(lines.is_sorted(), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_faster_than_what_is_delivered_has_to_wait() {
    let server = start("{ address: 127.0.0.1:0, end_after_idle: 1s }").await;
    let mut client = server.connect().await;
    let written = Arc::new(AtomicUsize::new(0));
    let counter = written.clone();
    let mebibytes = 96;
    let writer = tokio::spawn(async move {
        // Reads end between two messages: a source within a message is not idle anyway.
        let text = [vec![b'x'; (1 << 10) - 1], vec![b'\n']].concat().repeat(1 << 10);
        for _ in 0..mebibytes {
            client.write_all(&text).await.unwrap();
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    // Until the client makes no progress for a while.
    let mut last = usize::MAX;
    while written.load(Ordering::Relaxed) != last || last == 0 {
        last = written.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    // The test's budget is 64 MiB; the system's buffers hold some more.
    assert!(last < mebibytes, "all of it was read");
    // A source that waits for memory is not idle.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    let mut read = 0;
    while read < mebibytes << 10 {
        let batch = server.next().await;
        read += batch.rows();
        batch.settle(Outcome::Delivered);
    }
    within(writer).await.unwrap();
}

#[tokio::test]
async fn it_ends_when_nothing_came_if_that_is_wanted() {
    for yaml in [
        "{ address: 127.0.0.1:0, end_after_idle: 10ms }",
        "{ address: 'udp://127.0.0.1:0', end_after_idle: 10ms }",
    ] {
        let sent = within(start(yaml).await.source.finish()).await;
        assert!(sent.result.is_none() && sent.main.is_empty());
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    let mistakes = |yaml: &str| messages(options::<SocketSource>(yaml).check());
    assert_eq!(mistakes("{ address: 'udp://:1', acknowledge: OK }"), ["Datagrams are not acknowledged."]);
    assert_eq!(
        mistakes("{ address: 'udp://:1', framing: { start_pattern: a } }"),
        ["A message of several lines cannot be assembled from datagrams."]
    );
    assert_eq!(mistakes("{ address: 'unix://a', tls: { certificate: a, key: b } }"), ["TLS is for TCP."]);
    assert_eq!(
        mistakes("{ address: 'tcp://:1', framing: { by: binary_le, size: 3 } }"),
        ["A length has 1, 2, 4 or 8 bytes."]
    );
    assert_eq!(
        refused::<SocketSource>("{ address: nowhere }"),
        "`nowhere` names no port. For example `tcp://0.0.0.0:5880`, `udp://localhost:514`, `unix:///run/thalweg.sock` or, for datagrams, `unixgram:///dev/log`."
    );
    assert_eq!(
        refused::<SocketSource>("{}"),
        "The option `address` is missing. The address to listen on: `tcp://HOST:PORT`, `udp://HOST:PORT`, `unix:///PATH` (a stream) or `unixgram:///PATH` (datagrams). For example `address: 'tcp://0.0.0.0:5880'`."
    );
}

#[test]
fn only_clients_that_wait_for_their_acknowledgement_send_again() {
    for (yaml, resends) in [
        ("{ address: ':1' }", false),
        ("{ address: ':1', acknowledge: OK }", true),
        ("{ address: ':1', acknowledge: OK, respond: received }", false),
        ("{ address: 'udp://:1' }", false),
    ] {
        let config: SocketSource = options(yaml);
        assert_eq!((config.resends(), config.starts_over()), (resends, false), "{yaml}");
    }
}

/// More messages than are cut out of a buffer at once.
#[tokio::test(flavor = "multi_thread")]
async fn very_many_short_messages_arrive_and_are_acknowledged() {
    let server = start("{ address: 127.0.0.1:0, acknowledge: \"+\" }").await;
    let mut client = server.connect().await;
    let (_, stop, task) = server.deliver();
    client.write_all(&[b"\n".repeat(100_000), b"end".to_vec()].concat()).await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(rest(&mut client).await.len(), 100_001);
    stop.request();
    let delivered = within(task).await.unwrap();
    delivered.result.unwrap();
    assert_eq!((delivered.payloads.len(), delivered.payloads.last().unwrap().as_str()), (100_001, "end"));
}

/// The budget is 64 MiB, of which sources may fill 48 MiB.
#[tokio::test]
async fn a_message_of_more_than_half_of_the_memory_arrives() {
    let server = start("{ address: 127.0.0.1:0, max_message_bytes: 64MiB }").await;
    let mut client = server.connect().await;
    let large = [vec![b'x'; 40 << 20], b"\n".to_vec()].concat();
    let send = tokio::spawn(async move { client.write_all(&large).await });
    let batch = tokio::select! {
        batch = server.next() => batch,
        error = server.next_error() => panic!("{:?}", reasons(&error)),
    };
    assert_eq!(batch.payload().value(0).len(), 40 << 20);
    batch.settle(Outcome::Delivered);
    within(send).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_message_that_is_too_long_is_acknowledged_when_it_is_kept() {
    let server = start("{ address: 127.0.0.1:0, max_message_bytes: 5, acknowledge: \"+\" }").await;
    let mut client = server.connect().await;
    client.write_all(b"one\nfar too long\ntwo\n").await.unwrap();
    let mut batches = vec![server.next().await];
    while batches.iter().map(thalweg_record::Batch::rows).sum::<usize>() < 2 {
        batches.push(server.next().await);
    }
    let error = server.next_error().await;
    batches.into_iter().for_each(|batch| batch.settle(Outcome::Delivered));
    error.settle(Outcome::Rejected);
    assert_eq!(read(&mut client, 3).await, "+++");
}

/// The rejected message is the second of three, and its batch is sent last. Two answers before it is kept
/// would stand for the first two messages.
#[tokio::test]
async fn no_message_is_acknowledged_before_those_that_came_with_it_are_safe() {
    let server = start("{ address: 127.0.0.1:0, max_message_bytes: 5, acknowledge: \"+\" }").await;
    let (mut client, mut other) = (server.connect().await, server.connect().await);
    client.write_all(b"one\nfar too long\ntwo\n").await.unwrap();
    let (batch, error) = (server.next().await, server.next_error().await);
    assert_eq!((payloads(&batch), error.rows()), (vec!["one".to_owned(), "two".to_owned()], 1));
    batch.settle(Outcome::Delivered);
    assert!(is_silent(&mut client).await);
    error.settle(Outcome::Rejected);
    assert_eq!(read(&mut client, 3).await, "+++");
    // If the dead letter cannot be stored, none of the three is acknowledged.
    other.write_all(b"one\nfar too long\ntwo\n").await.unwrap();
    let (batch, error) = (server.next().await, server.next_error().await);
    batch.settle(Outcome::Delivered);
    error.settle(Outcome::Failed);
    assert_eq!(rest(&mut other).await, "");
}

#[test]
fn shared_options_are_read_like_own_ones() {
    let config: SocketSource = options(
        "{ address: 'localhost:1', max_connections: '5', mode: 0600, read_timeout: 5s, max_message_bytes: 4KiB }",
    );
    assert_eq!(config.listen.limits().max_connections, 5);
    assert_eq!(config.socket.unix().mode.unwrap().bits(), 0o600);
    assert_eq!(config.socket.connection().read_timeout, Duration::from_secs(5));
    assert_eq!(config.socket.max_message_bytes.bytes(), 4096);
    assert_eq!(
        refused::<SocketSource>("{ address: 'localhost:1', max_connections: 0 }"),
        "`max_connections` must be at least 1, but it is `0`."
    );
    assert_eq!(
        refused::<SocketSource>("{ address: 'localhost:1', max_conections: 5 }"),
        "Unknown option `max_conections`. Did you mean `max_connections`?"
    );
}

/// Returns a chunk of a message of GELF.
fn chunk(number: u8, count: u8, bytes: &[u8]) -> Vec<u8> {
    [b"\x1e\x0fmessage1", &[number, count][..], bytes].concat()
}

#[tokio::test]
async fn datagrams_of_gelf_are_joined_and_decompressed() {
    let server =
        start("{ address: 'udp://127.0.0.1:0', framing: { by: gelf }, max_message_bytes: 100 }").await;
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(b"{\"short_message\":\"compressed\"}").unwrap();
    let compressed = encoder.finish().unwrap();
    let (first, second) = compressed.split_at(10);
    let datagrams = [
        chunk(1, 2, second),
        b"{\"short_message\":\"plain\"}\0".to_vec(),
        chunk(0, 2, first),
        chunk(2, 2, b""),
    ];
    for datagram in &datagrams {
        client.send_to(datagram, &server.address).await.unwrap();
    }
    assert_eq!(
        server.delivered(2).await,
        ["{\"short_message\":\"plain\"}", "{\"short_message\":\"compressed\"}"]
    );
    let lost = server.next_error().await;
    let reason = "is chunk 2 of 2 of GELF, but the first chunk is 0, and there are at most 128";
    assert_eq!(reasons(&lost)[0].1, reason);
    lost.settle(Outcome::Rejected);
    assert!(server.stop().await.main.is_empty());
}

#[tokio::test]
async fn chunks_of_gelf_that_stay_alone_are_rejected() {
    let yaml = "{ address: 'udp://127.0.0.1:0', framing: { by: gelf }, end_after_idle: 100ms }";
    let server = start(yaml).await;
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    client.send_to(&chunk(0, 2, b"{"), &server.address).await.unwrap();
    let lost = server.next_error().await;
    assert_eq!(
        reasons(&lost),
        [("{".to_owned(), "1 of its 2 chunks are missing: the source ended".to_owned())]
    );
    lost.settle(Outcome::Rejected);
    assert!(server.stop().await.result.is_none());
}

#[tokio::test]
async fn a_stream_of_gelf_has_a_nul_after_each_message() {
    let server = start("{ address: 127.0.0.1:0, framing: { by: gelf } }").await;
    let mut client = server.connect().await;
    trickle(&mut client, b"{\"a\":\n1}\0{}\0", 5).await;
    drop(client);
    assert_eq!(server.delivered(2).await, ["{\"a\":\n1}", "{}"]);
    assert!(server.stop().await.main.is_empty());
}

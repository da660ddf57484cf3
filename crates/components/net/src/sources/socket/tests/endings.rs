//! Connections that break, stall or end in the middle of a message.

use super::*;

#[tokio::test]
async fn a_client_that_stalls_is_left_and_one_that_is_idle_if_that_is_wanted() {
    let server = start("{ address: 127.0.0.1:0, read_timeout: 20ms }").await;
    let (mut client, mut idle) = (server.connect().await, server.connect().await);
    client.write_all(b"one\ntw").await.unwrap();
    server.next().await.settle(Outcome::Delivered);
    let error = server.next_error().await;
    assert_eq!(reasons(&error), [("tw".to_owned(), "is cut off: nothing more arrived in time".to_owned())]);
    error.settle(Outcome::Rejected);
    assert_eq!(rest(&mut client).await, "");
    assert!(is_silent(&mut idle).await);
    let server = start("{ address: 127.0.0.1:0, idle_timeout: 20ms }").await;
    assert_eq!(rest(&mut server.connect().await).await, "");
}

#[tokio::test]
async fn a_client_that_waits_for_its_acknowledgement_is_not_idle() {
    let server = start("{ address: 127.0.0.1:0, acknowledge: OK, idle_timeout: 30ms }").await;
    let mut client = server.connect().await;
    client.write_all(b"one\n").await.unwrap();
    let batch = server.next().await;
    assert!(is_silent(&mut client).await);
    batch.settle(Outcome::Delivered);
    assert_eq!(read(&mut client, 2).await, "OK");
    assert_eq!(rest(&mut client).await, "");
}

#[tokio::test]
async fn a_client_that_stalls_gets_the_acknowledgements_of_its_earlier_messages() {
    let server = start("{ address: 127.0.0.1:0, acknowledge: OK, read_timeout: 20ms }").await;
    let mut client = server.connect().await;
    client.write_all(b"one\ntw").await.unwrap();
    let batch = server.next().await;
    let error = server.next_error().await;
    assert_eq!(reasons(&error), [("tw".to_owned(), "is cut off: nothing more arrived in time".to_owned())]);
    error.settle(Outcome::Rejected);
    batch.settle(Outcome::Delivered);
    assert_eq!(rest(&mut client).await, "OK");
}

#[tokio::test]
async fn what_a_client_leaves_unfinished_is_an_error() {
    let server = start("{ address: 127.0.0.1:0, framing: { by: ascii, delimiter: ':' } }").await;
    for (input, reason) in [
        (&b"4:abc"[..], "is cut off: the stream ended within it"),
        (b"4;abc", "has no delimiter after its length"),
    ] {
        let mut client = server.connect().await;
        client.write_all(input).await.unwrap();
        client.shutdown().await.unwrap();
        let error = server.next_error().await;
        assert_eq!(reasons(&error), [(String::from_utf8_lossy(input).into_owned(), reason.to_owned())]);
        error.settle(Outcome::Rejected);
        assert_eq!(rest(&mut client).await, "");
    }
}

#[tokio::test]
async fn tls_is_spoken_with_those_who_trust_the_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = test_files(folder.path());
    let yaml = format!(
        "{{ address: 127.0.0.1:0, acknowledge: OK, tls: {{ certificate: {certificate}, key: {key} }} }}"
    );
    let server = start(&yaml).await;
    let dial = |tls: &str| {
        let tls: TlsClient = options(tls);
        let address = server.address.parse().unwrap();
        let tls = Some(tls.connector().unwrap());
        Dial { address, timeout: Duration::from_secs(20), send_buffer: Some(65_536), tls }
    };
    // Longer than one TLS record, and longer than one read.
    let message = "x".repeat(100_000) + "\n";
    for tls in [format!("{{ ca: {certificate} }}"), "{ insecure: true }".to_owned()] {
        let mut client = dial(&tls).connect().await.unwrap();
        client.write_all(message.as_bytes()).await.unwrap();
        client.flush().await.unwrap();
        let batch = server.next().await;
        assert_eq!(batch.payload().value(0).len(), 100_000);
        batch.settle(Outcome::Delivered);
        assert_eq!(read(&mut client, 2).await, "OK");
    }
    let error = dial("{}").connect().await.unwrap_err();
    assert!(error.full().ends_with("invalid peer certificate: UnknownIssuer"), "{}", error.full());
    // A client that does not speak TLS does not disturb the others.
    let mut plain = server.connect().await;
    plain.write_all(b"plain text\n").await.unwrap();
    rest(&mut plain).await;
    assert!(server.stop().await.result.is_none());
}

/// A client that closes TLS without saying so (`close_notify`), or resets the connection, has still sent what
/// it has sent.
#[tokio::test]
async fn complete_messages_arrive_although_the_connection_breaks() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = test_files(folder.path());
    let tls = format!("tls: {{ certificate: {certificate}, key: {key} }}");
    let server = start(&format!("{{ address: 127.0.0.1:0, {tls} }}")).await;
    let tls: TlsClient = options(&format!("{{ ca: {certificate} }}"));
    let connector = tls.connector().unwrap();
    let text: String = (0..500).map(|n| format!("message {n}\n")).collect::<String>() + "unfini";
    for round in 0..20 {
        let stream = TcpStream::connect(&server.address).await.unwrap();
        let mut client = connector.connect("localhost:1", stream).await.unwrap();
        client.write_all(text.as_bytes()).await.unwrap();
        client.flush().await.unwrap();
        // Closes the socket, and says nothing before.
        drop(client);
        let mut found = Vec::new();
        while found.len() < 500 {
            let batch = tokio::select! {
                biased;
                batch = server.next() => batch,
                error = server.next_error() => panic!("round {round}: {:?} after {}", reasons(&error), found.len()),
            };
            found.extend(payloads(&batch));
            batch.settle(Outcome::Delivered);
        }
        assert_eq!(found.last().unwrap(), "message 499");
        let error = server.next_error().await;
        let (payload, reason) = reasons(&error).remove(0);
        assert!(payload == "unfini" && reason.starts_with("is cut off: the connection broke"), "{reason}");
        error.settle(Outcome::Rejected);
    }
}

#[tokio::test]
async fn a_message_in_one_segment_with_the_end_of_the_handshake_arrives_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = test_files(folder.path());
    let server =
        start(&format!("{{ address: 127.0.0.1:0, tls: {{ certificate: {certificate}, key: {key} }} }}"))
            .await;
    let tls: TlsClient = options(&format!("{{ ca: {certificate} }}"));
    let name = "localhost".try_into().unwrap();
    let mut client = ClientConnection::new(Arc::new(tls.config().unwrap()), name).unwrap();
    let mut stream = TcpStream::connect(&server.address).await.unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    while client.is_handshaking() {
        stream.write_all(&bytes).await.unwrap();
        bytes.clear();
        let mut buffer = vec![0; 16 << 10];
        let count = within(stream.read(&mut buffer)).await.unwrap();
        let mut received = &buffer[..count];
        while !received.is_empty() {
            client.read_tls(&mut received).unwrap();
            client.process_new_packets().unwrap();
        }
        while client.wants_write() && client.is_handshaking() {
            client.write_tls(&mut bytes).unwrap();
        }
    }
    client.writer().write_all(b"early\n").unwrap();
    while client.wants_write() {
        client.write_tls(&mut bytes).unwrap();
    }
    stream.write_all(&bytes).await.unwrap();
    let batch = within(server.next()).await;
    assert_eq!(payloads(&batch), ["early"]);
    batch.settle(Outcome::Delivered);
    // Not even tickets to resume the session: see `without_tickets`.
    assert!(is_silent(&mut stream).await);
}

#[tokio::test]
async fn complete_messages_arrive_although_the_connection_is_reset() {
    let server = start("{ address: 127.0.0.1:0, acknowledge: OK }").await;
    let mut client = server.connect().await;
    client.write_all(b"one\ntwo\nth").await.unwrap();
    client.set_zero_linger().unwrap();
    drop(client);
    assert_eq!(server.delivered(2).await, ["one", "two"]);
}

#[tokio::test]
async fn a_byte_now_and_then_does_not_hold_a_message_for_ever() {
    let server = start("{ address: 127.0.0.1:0, read_timeout: 200ms }").await;
    let mut client = server.connect().await;
    let slow = async {
        // Each pause is shorter than `read_timeout`.
        while client.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let error = tokio::select! {
        error = server.next_error() => error,
        () = within(slow) => panic!("the connection ended without a word"),
    };
    assert_eq!(reasons(&error)[0].1, "is cut off: nothing more arrived in time");
    error.settle(Outcome::Rejected);
}

#[tokio::test]
async fn the_oldest_incomplete_message_is_dropped_when_such_messages_use_up_the_memory() {
    let server = start("{ address: 127.0.0.1:0, max_message_bytes: 64MiB, read_timeout: 10min }").await;
    let mut clients = Vec::new();
    for letter in [b'a', b'b', b'c'] {
        let mut client = server.connect().await;
        within(client.write_all(&vec![letter; 15 << 20])).await.unwrap();
        clients.push(client);
    }
    // The budget is 64 MiB, of which sources may fill 48 MiB.
    let mut client = server.connect().await;
    let large = [vec![b'd'; 8 << 20], b"\n".to_vec()].concat();
    let send = tokio::spawn(async move {
        client.write_all(&large).await.unwrap();
        client
    });
    let error = server.next_error().await;
    let (payload, reason) = reasons(&error).remove(0);
    assert!(payload.starts_with("aaa"), "it is not the oldest: {payload:.3}");
    assert_eq!(reason, "is cut off: incomplete messages used up the memory, and it was the oldest of them");
    error.settle(Outcome::Rejected);
    let batch = server.next().await;
    assert_eq!(batch.payload().value(0).len(), 8 << 20);
    batch.settle(Outcome::Delivered);
    drop(send.await.unwrap());
}

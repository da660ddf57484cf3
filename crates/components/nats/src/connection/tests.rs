use thalweg_engine::ErrorKind;
use thalweg_engine::testing::options;
use thalweg_testbed::Patience;

use super::*;
use crate::scripted::{Peer, Scripted};

const LIMIT: usize = 1000;

fn servers(server: &Scripted) -> ServerOptions {
    options(&format!("{{ servers: '{}' }}", server.address()))
}

/// Connects to a server.
async fn connected(server: &Scripted) -> (Connection, Peer) {
    let options = servers(server);
    let (connection, peer) = tokio::join!(Connection::open(&options, LIMIT), server.accept());
    (connection.unwrap(), peer)
}

fn text(text: &str) -> Publication<'_> {
    Publication { subject: "t", reply: None, headers: &[], payload: text.as_bytes() }
}

/// Waits until this is true.
async fn until(what: &str, is_true: impl Fn() -> bool) {
    let patience = Patience::begin();
    while !is_true() {
        patience.check(|| what.to_owned());
        tokio::time::sleep(LOOK).await;
    }
}

#[tokio::test]
async fn a_server_that_sends_what_none_sends_ends_the_client_with_the_reason() {
    let server = Scripted::start().await;
    let endless = "x".repeat(100_000);
    let deep = format!("INFO {{\"connect_urls\":{}\r\n", "[".repeat(60_000));
    for (bytes, expected) in [
        (endless.as_str(), "the server sent a line of more than 65536 bytes"),
        ("MSG s 1 9223372036854775808\r\n", "an impossible size: `MSG s 1 9223372036854775808`"),
        ("MSG s 1 -5\r\n", "an impossible size: `MSG s 1 -5`"),
        ("HMSG s 1 10 5\r\n12345\r\n", "headers that are larger than their message: `HMSG s 1 10 5`"),
        (&deep, "an `INFO` that cannot be read"),
        ("HTTP/1.1 400 Bad Request\r\n", "a line that is not of NATS"),
    ] {
        let (connection, mut peer) = connected(&server).await;
        let mut subscriber = connection.subscribe("s", None, &Room::new(10, LIMIT));
        assert_eq!(peer.line("SUB ").await, "s 1");
        // The client may have gone before all is written.
        let _ = peer.write(bytes.as_bytes()).await;
        assert!(subscriber.next().await.is_none());
        let lost = connection.lost();
        assert_eq!(lost.kind(), ErrorKind::Temporary);
        assert!(lost.full().contains(expected), "{}", lost.full());
        // Nothing that waits for the client waits longer, and nothing begins to.
        let refused = connection.publish(&text("x"), Duration::MAX).await;
        assert!(matches!(refused, Err(NotSent::Lost(_))), "{refused:?}");
        assert!(!connection.connected(Duration::MAX).await);
        assert!(connection.subscribe("s", None, &Room::new(1, 1)).next().await.is_none());
        assert!(connection.request("a", b"").await.is_err());
    }
}

#[tokio::test]
async fn a_server_that_does_not_begin_as_one_is_an_error_whatever_it_sends() {
    for (bytes, expected) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "a line that is not of NATS: `HTTP/1.1 400 Bad Request`"),
        (b"PING\r\n", "something else than `INFO` at first"),
        (b"INFO {}\r\nMSG a 1 1\r\nx\r\n", "a message to no subscription"),
        (b"INFO {\"tls_required\":true}\r\nPONG\r\n", "more than `INFO` before TLS"),
        (b"-ERR 'maximum connections exceeded'\r\n", "maximum connections exceeded"),
        (b"INFO {}\r\n-ERR 'Authentication Timeout'\r\n", "Authentication Timeout"),
    ] {
        let server = Scripted::start().await;
        let options = servers(&server);
        let (opened, _peer) = tokio::join!(Connection::open(&options, LIMIT), async {
            let mut peer = server.accept_silently().await;
            peer.write(bytes).await.unwrap();
            peer
        });
        let Err(error) = opened else { panic!("{expected}") };
        assert_eq!(error.kind(), ErrorKind::Temporary);
        assert!(error.full().contains(expected), "{}", error.full());
    }
}

#[tokio::test]
async fn of_an_info_without_an_end_only_the_beginning_is_read() {
    let server = Scripted::start().await;
    let options = servers(&server);
    let (opened, all_written) = tokio::join!(Connection::open(&options, LIMIT), async {
        let mut peer = server.accept_silently().await;
        let _ = peer.write(b"INFO {\"server_id\":\"").await;
        let piece = [b'x'; 1 << 16];
        let mut written = 0_u64;
        while written < 100 << 20 && peer.write(&piece).await.is_ok() {
            written += piece.len() as u64;
        }
        written >= 100 << 20
    });
    let Err(error) = opened else { panic!("it connected") };
    assert!(error.full().ends_with("the server sent a line of more than 65536 bytes"), "{}", error.full());
    assert!(!all_written);
}

#[tokio::test]
async fn a_refused_user_ends_the_run() {
    let server = Scripted::start().await;
    let options = servers(&server);
    let (opened, _peer) = tokio::join!(Connection::open(&options, LIMIT), async {
        let mut peer = server.accept_silently().await;
        peer.write(b"INFO {}\r\n-ERR 'Authorization Violation'\r\n").await.unwrap();
        peer
    });
    let Err(error) = opened else { panic!("it connected") };
    assert_eq!(error.kind(), ErrorKind::Permanent);
    assert!(error.full().contains("refuse the user: see `auth`"), "{}", error.full());
}

#[tokio::test]
async fn messages_that_nothing_takes_are_dropped_and_counted_and_the_next_ones_arrive() {
    let server = Scripted::start().await;
    let (connection, mut peer) = connected(&server).await;
    let mut subscriber = connection.subscribe("s", None, &Room::new(10, 1 << 20));
    let other = connection.subscribe("o", None, &Room::new(10, 4));
    for number in 0..100 {
        peer.write(format!("MSG s 1 2\r\n{number:02}\r\n").as_bytes()).await.unwrap();
        // To no subscription.
        peer.write(b"MSG s 9 2\r\nxx\r\n").await.unwrap();
    }
    peer.write(b"MSG o 2 3\r\nabc\r\nMSG o 2 3\r\nabc\r\nMSG o 2 3\r\nabc\r\n").await.unwrap();
    until("90 and 2 are dropped", || connection.dropped() == 92).await;
    for number in 0..10 {
        assert_eq!(subscriber.next().await.unwrap().payload, format!("{number:02}"));
    }
    assert!(subscriber.arrived().is_none());
    peer.write(b"MSG s 1 4\r\nnext\r\n").await.unwrap();
    assert_eq!(subscriber.next().await.unwrap().payload, "next");
    drop(other);
    assert_eq!(peer.line("UNSUB ").await, "2");
}

#[tokio::test]
async fn a_server_that_asks_without_an_end_and_reads_nothing_is_followed() {
    let server = Scripted::start().await;
    let (connection, mut peer) = connected(&server).await;
    let mut subscriber = connection.subscribe("s", None, &Room::new(10, LIMIT));
    let questions = b"PING\r\n".repeat(10_000);
    for _ in 0..20 {
        peer.write(&questions).await.unwrap();
    }
    peer.write(b"MSG s 1 4\r\nnext\r\n").await.unwrap();
    assert_eq!(subscriber.next().await.unwrap().payload, "next");
    assert_eq!(peer.line("PONG").await, "");
    assert_eq!(connection.epoch(), 1);
}

#[tokio::test]
async fn a_connection_that_breaks_is_opened_again_with_its_subscriptions() {
    let server = Scripted::start().await;
    let (connection, mut peer) = connected(&server).await;
    let mut subscriber = connection.subscribe("s", Some("g"), &Room::new(10, LIMIT));
    drop(connection.subscribe("gone", None, &Room::new(10, LIMIT)));
    assert_eq!(peer.line("SUB s ").await, "g 1");
    connection.publish(&text("first"), Duration::MAX).await.unwrap();
    assert_eq!(peer.line("PUB ").await, "t 5");
    let before = connection.epoch();
    drop(peer);
    until("the connection broke", || !connection.is_connected()).await;
    assert_eq!(connection.publish(&text("x"), Duration::from_millis(1)).await, Err(NotSent::Blocked));
    let error = connection.explained(Error::temporary("no"));
    assert!(error.full().starts_with("no: "), "{}", error.full());
    let waiting = text("second");
    let (published, mut peer) = tokio::join!(connection.publish(&waiting, Duration::MAX), server.accept());
    published.unwrap();
    assert_eq!(connection.epoch(), before + 1);
    assert_eq!(peer.line("SUB ").await, "s g 1");
    // Neither the subscription that has ended nor the first message.
    assert_eq!(peer.line("").await, "PUB t 6");
    peer.write(b"MSG s 1 2\r\nok\r\n").await.unwrap();
    assert_eq!(subscriber.next().await.unwrap().payload, "ok");
    // A later server that does not speak the protocol ends the client too.
    drop(peer);
    let mut peer = server.accept_silently().await;
    peer.write(b"HTTP/1.1 200 OK\r\n").await.unwrap();
    assert!(subscriber.next().await.is_none());
    assert!(connection.lost().full().contains("not of NATS"), "{}", connection.lost().full());
}

#[tokio::test]
async fn what_was_sent_is_written_before_a_client_ends() {
    let server = Scripted::start().await;
    let (connection, mut peer) = connected(&server).await;
    connection.publish(&text("last"), Duration::MAX).await.unwrap();
    drop(connection);
    assert_eq!(peer.line("PUB ").await, "t 4");
    assert_eq!(peer.line("").await, "last");
}

#[tokio::test]
async fn a_request_has_the_answer_of_the_server_or_says_that_there_is_none() {
    let server = Scripted::start().await;
    let (connection, mut peer) = connected(&server).await;
    let mut answered = Vec::new();
    for end in ["HMSG inbox 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n", "MSG inbox 2 2\r\nok\r\n"] {
        let (answer, ()) = tokio::join!(connection.request("a.b", b"{}"), async {
            assert!(peer.line("PUB a.b _INBOX.").await.ends_with(" 2"));
            peer.write(end.as_bytes()).await.unwrap();
        });
        answered.push(answer.map(|answer| answer.payload).map_err(|error| error.full()));
    }
    assert_eq!(answered, [Err("no server answers at `a.b`".to_owned()), Ok("ok".into())]);
}

#[tokio::test]
async fn a_user_that_all_servers_refuse_later_ends_the_client_and_not_at_the_first_time() {
    let server = Scripted::start().await;
    let (connection, peer) = connected(&server).await;
    let mut subscriber = connection.subscribe("s", None, &Room::new(10, LIMIT));
    drop(peer);
    let refuse = async {
        for _ in 0..6 {
            assert!(!connection.is_lost());
            let mut peer = server.accept_silently().await;
            peer.write(b"INFO {}\r\n-ERR 'Authorization Violation'\r\n").await.unwrap();
            peer.line("PING").await;
        }
    };
    let ((), ended) = tokio::join!(refuse, subscriber.next());
    assert!(ended.is_none());
    let lost = connection.lost().full();
    assert!(lost.ends_with("the servers refuse the user: Authorization Violation"), "{lost}");
}

#[tokio::test]
async fn a_server_names_the_subjects_that_it_refuses() {
    let server = Scripted::start().await;
    let (connection, mut peer) = connected(&server).await;
    for error in [
        "Permissions Violation for Publish to \"a.b\"",
        "permissions violation for publish to \"c\"",
        "Permissions Violation for Publish to \"a.b\"",
        "Permissions Violation for Publish to \"\\u00e4\"",
        "Permissions Violation for Publish to x",
        "Permissions Violation for Publish with Reply of \"d\"",
        "\u{e4}",
        "Permissions Violation for Subscription to \"e\"",
    ] {
        peer.write(format!("-ERR '{error}'\r\n").as_bytes()).await.unwrap();
    }
    until("the subscription is refused", || connection.refused().is_some()).await;
    assert_eq!(connection.take_forbidden(), ["a.b", "c"]);
    assert!(connection.take_forbidden().is_empty());
}

#[tokio::test]
async fn a_server_that_closes_a_connection_has_said_why() {
    let server = Scripted::start().await;
    let (connection, mut peer) = connected(&server).await;
    peer.write(b"-ERR 'Maximum Payload Violation'\r\n").await.unwrap();
    drop(peer);
    until("the connection broke", || !connection.is_connected()).await;
    let error = connection.explained(Error::temporary("no")).full();
    assert!(error.starts_with("no: Maximum Payload Violation ("), "{error}");
}

#[tokio::test]
async fn a_server_that_answers_has_taken_what_was_sent_over_the_same_connection() {
    let server = Scripted::start().await;
    let (connection, mut peer) = connected(&server).await;
    connection.publish(&text("one"), Duration::MAX).await.unwrap();
    let (is_taken, ()) = tokio::join!(connection.round_trip(Duration::MAX), async {
        for line in ["PUB t 3", "one", "PING"] {
            assert_eq!(peer.line("").await, line);
        }
        peer.write(b"PONG\r\n").await.unwrap();
    });
    assert!(is_taken);
    let epoch = connection.epoch();
    let (is_taken, ()) = tokio::join!(connection.round_trip(Duration::MAX), async {
        peer.line("PING").await;
        drop(peer);
    });
    assert!(!is_taken);
    // Nor does a message go over another connection than that for which it is.
    let message = text("two");
    let blocked = connection.publish_over(epoch, &message, Duration::MAX).await;
    assert_eq!(blocked, Err(NotSent::Blocked));
    let _peer = server.accept().await;
    assert!(connection.connected(Duration::MAX).await);
    let blocked = connection.publish_over(epoch, &message, Duration::MAX).await;
    assert_eq!(blocked, Err(NotSent::Blocked));
    connection.publish_over(connection.epoch(), &message, Duration::MAX).await.unwrap();
}

#[tokio::test]
async fn one_of_the_servers_behind_a_name_is_enough() {
    let server = Scripted::start().await;
    let address = server.address();
    let port = address.rsplit(':').next().unwrap();
    // Without IPv6, the name has one address.
    let other = tokio::net::TcpListener::bind(format!("[::1]:{port}")).await;
    let closing = tokio::spawn(async move {
        if let Ok(other) = other {
            while let Ok((stream, _)) = other.accept().await {
                drop(stream);
            }
        }
    });
    let options = options(&format!("{{ servers: 'localhost:{port}' }}"));
    for _ in 0..10 {
        let (connection, _peer) = tokio::join!(Connection::open(&options, LIMIT), server.accept());
        assert_eq!(connection.unwrap().epoch(), 1);
    }
    closing.abort();
}

#[tokio::test]
async fn a_server_without_a_limit_takes_messages_of_any_size() {
    let server = Scripted::start().await;
    let options = servers(&server);
    let (connection, _peer) = tokio::join!(Connection::open(&options, LIMIT), async {
        let mut peer = server.accept_silently().await;
        peer.write(b"INFO {\"max_payload\":-1}\r\n").await.unwrap();
        peer.line("PING").await;
        peer.write(b"PONG\r\n").await.unwrap();
        peer
    });
    let large = "x".repeat(2 << 20);
    connection.unwrap().publish(&text(&large), Duration::MAX).await.unwrap();
}

//! Clients that compete for the places of a source.

use std::time::Duration;

use super::*;

#[tokio::test(start_paused = true)]
async fn silent_clients_do_not_keep_others_from_being_served() {
    let server = start("{ address: 127.0.0.1:0, max_connections: 2, read_timeout: 1h }").await;
    let (mut silent, mut within_a_message) = (server.connect().await, server.connect().await);
    within_a_message.write_all(b"the beg").await.unwrap();
    // The clock stands still until the source has read it: a paused clock does not wait for the system.
    std::thread::sleep(Duration::from_millis(50));
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    let mut new = server.connect().await;
    new.write_all(b"here\n").await.unwrap();
    let batch = server.next().await;
    assert_eq!(payloads(&batch), ["here"]);
    batch.settle(Outcome::Delivered);
    assert_eq!(rest(&mut silent).await, "");
    within_a_message.write_all(b"inning\n").await.unwrap();
    let batch = server.next().await;
    assert_eq!(payloads(&batch), ["the beginning"]);
    batch.settle(Outcome::Delivered);
}

/// A sender without acknowledgements would lose its next message.
#[tokio::test(start_paused = true)]
async fn a_sender_that_was_silent_for_long_keeps_its_place_before_clients_that_send_nothing() {
    let server = start("{ address: 127.0.0.1:0, max_connections: 3, read_timeout: 1h }").await;
    let mut sender = server.connect().await;
    sender.write_all(b"first\n").await.unwrap();
    let batch = server.next().await;
    batch.settle(Outcome::Delivered);
    tokio::time::sleep(Duration::from_hours(1)).await;
    let (mut silent, mut within_a_message) = (server.connect().await, server.connect().await);
    within_a_message.write_all(b"the beg").await.unwrap();
    let mut others = Vec::new();
    for (text, closed, part) in [("one", &mut silent, None), ("two", &mut within_a_message, Some("the beg"))]
    {
        let mut new = server.connect().await;
        new.write_all(format!("{text}\n").as_bytes()).await.unwrap();
        if let Some(part) = part {
            let rejected = server.next_error().await;
            let reason = "is cut off: another client needed its place";
            assert_eq!(reasons(&rejected), [(part.to_owned(), reason.to_owned())]);
            rejected.settle(Outcome::Rejected);
        }
        let batch = server.next().await;
        assert_eq!(payloads(&batch), [text]);
        batch.settle(Outcome::Delivered);
        assert_eq!(rest(closed).await, "");
        others.push(new);
    }
    sender.write_all(b"second\n").await.unwrap();
    assert_eq!(payloads(&server.next().await), ["second"]);
}

#[tokio::test(start_paused = true)]
async fn empty_messages_and_parts_of_messages_now_and_then_keep_no_place() {
    for text in [&b"\n"[..], b"x"] {
        let server = start("{ address: 127.0.0.1:0, max_connections: 2, read_timeout: 1h }").await;
        let (address, stop, delivered) = server.deliver();
        for _ in 0..2 {
            let mut client = TcpStream::connect(&address).await.unwrap();
            tokio::spawn(async move {
                while client.write_all(text).await.is_ok() {
                    tokio::time::sleep(Duration::from_secs(5)).await;
                }
            });
        }
        let mut new = TcpStream::connect(&address).await.unwrap();
        new.write_all(b"here\n").await.unwrap();
        // It is closed by the source, or after half an hour of being kept out.
        new.shutdown().await.unwrap();
        let _ = tokio::time::timeout(Duration::from_mins(30), new.read_u8()).await;
        stop.request();
        let payloads = within(delivered).await.unwrap().payloads;
        assert!(payloads.contains(&"here".to_owned()), "{text:?}: {payloads:?}");
    }
}

#[tokio::test]
async fn more_clients_than_may_be_connected_wait_for_their_turn() {
    let server = start("{ address: 127.0.0.1:0, max_connections: 1, acknowledge: OK }").await;
    let (mut one, mut other) = (server.connect().await, server.connect().await);
    other.write_all(b"other\n").await.unwrap();
    one.write_all(b"one\n").await.unwrap();
    let batch = server.next().await;
    assert_eq!(payloads(&batch), ["one"]);
    batch.settle(Outcome::Delivered);
    assert_eq!(read(&mut one, 2).await, "OK");
    drop(one);
    let batch = server.next().await;
    assert_eq!(payloads(&batch), ["other"]);
    batch.settle(Outcome::Delivered);
    assert_eq!(read(&mut other, 2).await, "OK");
}

/// Sends a line now and then until the source closes the connection. Returns the number of answers.
async fn chatter(mut client: TcpStream, name: usize) -> usize {
    let (mut receiver, mut sender) = client.split();
    let mut answers = Vec::new();
    tokio::select! {
        _ = receiver.read_to_end(&mut answers) => {}
        () = async {
            for line in 0.. {
                // A closed connection is noticed by the receiver.
                let _ = sender.write_all(format!("{name} {line}\n").as_bytes()).await;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        } => {}
    }
    answers.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_with_many_busy_connections_keeps_no_other_address_out() {
    for answers in ["", ", acknowledge: \"+\""] {
        let server = start(&format!("{{ address: '0.0.0.0:0', max_connections: 4{answers} }}")).await;
        let (address, stop, delivered) = server.deliver();
        let mut busy = Vec::new();
        for name in 0..24 {
            busy.push(tokio::spawn(chatter(connect_from([127, 0, 0, 1], &address).await, name)));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        let mut other = connect_from([127, 0, 0, 2], &address).await;
        other.write_all(b"here\n").await.unwrap();
        other.shutdown().await.unwrap();
        rest(&mut other).await;
        stop.request();
        let payloads = within(delivered).await.unwrap().payloads;
        assert!(payloads.contains(&"here".to_owned()), "{payloads:?}");
        for (name, client) in busy.into_iter().enumerate() {
            let answered = within(client).await.unwrap();
            let missing = (0..answered).find(|line| !payloads.contains(&format!("{name} {line}")));
            assert_eq!(missing, None, "of client {name}");
        }
    }
}

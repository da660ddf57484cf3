use std::sync::{Arc, Mutex};

use futures_util::{SinkExt, StreamExt};
use thalweg_engine::testing::{batch, context, messages, options, sink_conforms};
use tokio::net::TcpListener;

use super::*;
use crate::net::testing::within;
use crate::requests::testing::{open, write};
use crate::websocket::testing::Server;

/// A server that keeps what it reads, and answers each message with the same one. It ends the connections
/// with these numbers after their first message.
async fn recorder(ended: &'static [usize]) -> (Server, Arc<Mutex<Vec<Message>>>) {
    let kept: Arc<Mutex<Vec<Message>>> = Arc::default();
    let seen = kept.clone();
    let server = Server::start(move |number, mut socket| {
        let seen = seen.clone();
        async move {
            while let Some(Ok(message)) = socket.next().await {
                if !(message.is_text() || message.is_binary()) {
                    continue;
                }
                seen.lock().unwrap().push(message.clone());
                if ended.contains(&number) {
                    let _ = socket.close(None).await;
                    return;
                }
                if socket.send(message).await.is_err() {
                    return;
                }
            }
        }
    })
    .await;
    (server, kept)
}

/// Waits until the server has this many messages.
async fn until_there_are(kept: &Mutex<Vec<Message>>, count: usize) -> Vec<Message> {
    within(async {
        loop {
            let there = kept.lock().unwrap().clone();
            if there.len() >= count {
                return there;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
}

#[tokio::test]
async fn it_conforms() {
    let (server, _) = recorder(&[]).await;
    sink_conforms::<WebsocketClientSink>(&format!("{{ url: '{}' }}", server.address)).await;
}

#[tokio::test]
async fn messages_are_text_if_they_can_be() {
    let (server, kept) = recorder(&[]).await;
    let mut sink =
        open::<WebsocketClientSink>(&format!("{{ url: '{}', send: [login] }}", server.address)).await;
    let (rejected, errors) = write(&mut sink, &batch([&b"a"[..], b"", b"\xff"])).await;
    assert!(rejected.is_empty() && errors.is_empty());
    let expected =
        [Message::text("login"), Message::text("a"), Message::text(""), Message::binary(&b"\xff"[..])];
    assert_eq!(until_there_are(&kept, 4).await, expected);
    sink.finish().await.unwrap();
    let (server, kept) = recorder(&[]).await;
    let mut sink =
        open::<WebsocketClientSink>(&format!("{{ url: '{}', kind: binary }}", server.address)).await;
    write(&mut sink, &batch(["a"])).await;
    assert_eq!(until_there_are(&kept, 1).await, [Message::binary(&b"a"[..])]);
}

/// The answers to all messages do not fit into the buffers of a connection.
#[tokio::test]
async fn a_server_that_answers_everything_is_read_while_a_batch_is_written() {
    let (server, kept) = recorder(&[]).await;
    let mut sink = open::<WebsocketClientSink>(&format!("{{ url: '{}' }}", server.address)).await;
    let zeros = "0".repeat(200_000);
    let large: Vec<String> = (0..64).map(|number| format!("{zeros}{number}")).collect();
    let (rejected, errors) = write(&mut sink, &batch(large.iter())).await;
    assert!(rejected.is_empty() && errors.is_empty(), "{errors:?}");
    assert_eq!(until_there_are(&kept, 64).await.len(), 64);
}

/// The answers to the last messages come when the sink has no more to write.
#[tokio::test]
async fn a_server_that_answers_everything_has_read_all_when_the_sink_has_ended() {
    let (server, kept) = recorder(&[]).await;
    let mut sink = open::<WebsocketClientSink>(&format!("{{ url: '{}' }}", server.address)).await;
    let zeros = "0".repeat(100_000);
    let large: Vec<String> = (0..20).map(|number| format!("{zeros}{number}")).collect();
    write(&mut sink, &batch(large.iter())).await;
    within(sink.finish()).await.unwrap();
    assert_eq!(until_there_are(&kept, 20).await.len(), 20);
}

/// The batch takes longer than `timeout`, but none of its messages does.
#[tokio::test]
async fn a_slow_server_gets_a_large_batch_once() {
    let server = Server::start(|_, mut socket| async move {
        while let Some(Ok(_)) = socket.next().await {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    let yaml = format!("{{ url: '{}', timeout: 2s }}", server.address);
    let mut sink = open::<WebsocketClientSink>(&yaml).await;
    let large: Vec<String> = (0..60).map(|_| "0".repeat(500_000)).collect();
    let (rejected, errors) = write(&mut sink, &batch(large.iter())).await;
    assert!(rejected.is_empty() && errors.is_empty(), "{errors:?}");
}

#[tokio::test]
async fn a_server_that_sends_pings_and_reads_nothing_is_left() {
    let server = Server::start(|_, mut socket| async move {
        while socket.send(Message::Ping(vec![0_u8; 125].into())).await.is_ok() {}
    })
    .await;
    let yaml = format!("{{ url: '{}', give_up: 0s }}", server.address);
    let mut sink = open::<WebsocketClientSink>(&yaml).await;
    let large: Vec<String> = (0..40).map(|_| "0".repeat(500_000)).collect();
    let (rejected, _) = write(&mut sink, &batch(large.iter())).await;
    assert_eq!(rejected.len(), 40);
    assert!(rejected[0].1.contains("pings while it was sent to"), "{}", rejected[0].1);
}

#[tokio::test]
async fn a_connection_that_ended_is_opened_again() {
    let (server, _) = recorder(&[0, 1]).await;
    let mut sink = open::<WebsocketClientSink>(&format!("{{ url: '{}' }}", server.address)).await;
    // Messages that are written just before the end of a connection is known may be lost.
    within(async {
        while server.got().len() < 3 {
            write(&mut sink, &batch(["a"])).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    sink.finish().await.unwrap();
}

#[tokio::test]
async fn messages_leave_when_the_server_has_failed_for_too_long() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut sink = open::<WebsocketClientSink>(&format!("{{ url: '{address}', give_up: 0s }}")).await;
    let (rejected, errors) = write(&mut sink, &batch(["a", "b"])).await;
    assert!(errors.is_empty());
    let rows: Vec<u32> = rejected.iter().map(|(row, _)| *row).collect();
    assert_eq!(rows, [0, 1]);
    assert!(
        rejected[0].1.starts_with("could not be sent for 0 s (`give_up`): cannot connect to"),
        "{rejected:?}"
    );
}

#[test]
fn mistakes_are_named() {
    let mistakes = |yaml: &str| messages(options::<WebsocketClientSink>(yaml).check());
    assert_eq!(mistakes("{ url: 'wss://a/b', encode: json }"), [""; 0]);
    assert_eq!(mistakes("{ url: 'tcp://a' }"), ["`tcp` is not a scheme of WebSocket."]);
    options::<WebsocketClientSink>("{ url: a }").build(&context()).unwrap();
}

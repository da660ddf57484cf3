use bytes::Bytes;
use thalweg_engine::testing::{messages, options, payloads};
use thalweg_record::Outcome;
use tokio::io::AsyncWriteExt;

use super::*;
use crate::net::testing::{Server, is_silent, read, rest};
use crate::replies;

async fn start(yaml: &str) -> Server {
    let config: ProxySource = options(yaml);
    assert_eq!(config.check(), []);
    let announce = Announce::new("test");
    Server::start(Proxy { config, announce: announce.clone() }, announce).await
}

#[tokio::test]
async fn answers_go_back_over_the_connection_that_a_message_came_from() {
    let server = start("{ address: 127.0.0.1:0 }").await;
    let (mut one, mut other) = (server.connect().await, server.connect().await);
    one.write_all(b"from one\n").await.unwrap();
    let first = server.next().await;
    other.write_all(b"from other\n").await.unwrap();
    let second = server.next().await;
    assert_eq!(
        (payloads(&first), payloads(&second)),
        (vec!["from one\n".into()], vec!["from other\n".into()])
    );
    let path = |batch: &thalweg_record::Batch| batch.meta().path.clone().unwrap();
    assert!(replies::answer(&path(&second), Bytes::from("to other")));
    assert!(replies::answer(&path(&first), Bytes::from("to one")));
    assert_eq!((read(&mut one, 6).await, read(&mut other, 8).await), ("to one".into(), "to other".into()));
    assert!(is_silent(&mut one).await);
    // A client that has shut down its sending side still gets its answer. A closed connection is reported.
    one.write_all(b"last").await.unwrap();
    one.shutdown().await.unwrap();
    let third = server.next().await;
    assert!(replies::answer(&path(&third), Bytes::from("answer")));
    let gone = path(&third);
    [first, second, third].into_iter().for_each(|batch| batch.settle(Outcome::Delivered));
    assert_eq!(rest(&mut one).await, "answer");
    while replies::answer(&gone, Bytes::new()) {
        tokio::task::yield_now().await;
    }
    assert!(server.stop().await.result.is_none());
}

#[test]
fn what_does_not_go_together_is_refused() {
    let mistakes = |yaml: &str| messages(options::<ProxySource>(yaml).check());
    assert_eq!(
        mistakes("{ address: 'udp://:1' }"),
        ["A proxy needs connections, which datagrams do not have."]
    );
    assert_eq!(mistakes("{ address: 'unix://a', tls: { certificate: a, key: b } }"), ["TLS is for TCP."]);
}

use std::io::Write as _;
use std::time::Duration;

use reqwest::{Client, RequestBuilder, StatusCode};
use thalweg_engine::testing::{Arrived, context, messages, options, payloads, refused, rows};
use thalweg_record::Outcome;
use tokio::io::AsyncWriteExt;

use super::*;
use crate::net::testing::{Server as Running, connect_from, read, rest, trickle, within};
use crate::tls::{TlsClient, test_files};

async fn start(yaml: &str) -> Running {
    start_within(64 << 20, yaml).await
}

/// Starts the source with a memory budget of this number of bytes.
async fn start_within(memory: usize, yaml: &str) -> Running {
    let config: HttpSource = options(yaml);
    assert_eq!(config.check(), []);
    let announce = Announce::new("test");
    Running::start_within(memory, Http { config, announce: announce.clone() }, announce).await
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn client() -> Client {
    let tls: TlsClient = options("{}");
    Client::builder().tls_backend_preconfigured(tls.config().unwrap()).no_proxy().build().unwrap()
}

fn post(server: &Running, path: &str) -> RequestBuilder {
    client().post(format!("http://{}{path}", server.address))
}

/// Sends a request. Returns the status of the answer and the batch with the request's messages, which is
/// delivered.
async fn delivered(server: &Running, request: RequestBuilder) -> (StatusCode, thalweg_record::Batch) {
    let answer = tokio::spawn(request.send());
    let mut batch = server.next().await;
    batch.take_ack().settle(Outcome::Delivered);
    (within(answer).await.unwrap().unwrap().status(), batch)
}

async fn status(request: RequestBuilder) -> StatusCode {
    within(request.send()).await.unwrap().status()
}

#[tokio::test]
async fn a_body_of_another_character_set_becomes_utf_8() {
    let server = start("{ address: 127.0.0.1:0, charset: latin1 }").await;
    let (_, batch) = delivered(&server, post(&server, "/").body(b"caf\xe9\n\xfc".to_vec())).await;
    assert_eq!(payloads(&batch), ["caf\u{e9}\n\u{fc}"]);
    let server = start("{ address: 127.0.0.1:0, charset: utf-16, framing: {} }").await;
    let (_, batch) = delivered(&server, post(&server, "/").body(b"\xfe\xff\0a\0\n\0b".to_vec())).await;
    assert_eq!(payloads(&batch), ["a", "b"]);
    assert_eq!(
        messages(options::<HttpSource>("{ address: ':1', charset: utf-16, payload: request }").check()),
        ["The head of a request is in ASCII."]
    );
}

#[tokio::test]
async fn a_request_is_answered_when_its_message_is_delivered_and_not_before() {
    let server = start("{ address: 127.0.0.1:0, status: 202 }").await;
    let mut answer = tokio::spawn(post(&server, "/any").body("a message\nwith two lines").send());
    let batch = server.next().await;
    assert_eq!(payloads(&batch), ["a message\nwith two lines"]);
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut answer).await.is_err());
    batch.settle(Outcome::Delivered);
    assert_eq!(within(answer).await.unwrap().unwrap().status(), 202);
    assert!(server.stop().await.result.is_none());
}

#[tokio::test]
async fn what_is_not_delivered_is_to_be_sent_again() {
    let server = start("{ address: 127.0.0.1:0 }").await;
    for (outcome, expected) in [
        (Outcome::Failed, 503),
        (Outcome::Rejected, 200),
        (Outcome::Filtered, 200),
        (Outcome::Delivered, 200),
    ] {
        let answer = tokio::spawn(post(&server, "/").body("x").send());
        server.next().await.settle(outcome);
        assert_eq!(within(answer).await.unwrap().unwrap().status(), expected, "{outcome:?}");
    }
    let server = start("{ address: 127.0.0.1:0, respond: received }").await;
    assert_eq!(status(post(&server, "/").body("x")).await, 200);
    server.next().await.settle(Outcome::Delivered);
    let server =
        start("{ address: 127.0.0.1:0, rejected_status: 422, framing: {}, max_message_bytes: 3 }").await;
    let answer = tokio::spawn(post(&server, "/").body("one\ntoo long\ntwo").send());
    let (batch, error) = (server.next().await, server.next_error().await);
    assert_eq!((payloads(&batch), payloads(&error)), (vec!["one".into(), "two".into()], vec!["too".into()]));
    batch.settle(Outcome::Delivered);
    error.settle(Outcome::Rejected);
    assert_eq!(within(answer).await.unwrap().unwrap().status(), 422);
}

#[tokio::test]
async fn a_request_is_done_when_each_message_is_delivered_or_rejected() {
    let server = start("{ address: 127.0.0.1:0, framing: {}, max_message_bytes: 5 }").await;
    let mut answer = tokio::spawn(post(&server, "/").body("one\ntwo\ntoo long\nthree\nfour").send());
    let mut batch = server.next().await;
    let error = server.next_error().await;
    let ack = batch.take_ack();
    ack.split().reject(2);
    ack.settle(Outcome::Delivered);
    // Rejected messages must be kept as well before the client may forget it.
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut answer).await.is_err());
    error.settle(Outcome::Rejected);
    let answer = within(answer).await.unwrap().unwrap();
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["thalweg-rejected"]),
        (200, &"3".parse().unwrap())
    );
    assert_eq!(answer.text().await.unwrap(), "3 of 5 messages were rejected\n");
    // The output `errors` leads to a sink, and a transform rejects others.
    let body = "one\ntwo\ntoo long\nfar too long\nmuch too long";
    let answer = tokio::spawn(post(&server, "/").body(body).send());
    let (mut batch, error) = (server.next().await, server.next_error().await);
    let ack = batch.take_ack();
    ack.split().reject(2);
    ack.settle(Outcome::Delivered);
    error.settle(Outcome::Delivered);
    let answer = within(answer).await.unwrap().unwrap();
    assert_eq!(answer.text().await.unwrap(), "5 of 5 messages were rejected\n");
    // Only the output `errors` has some.
    let answer = tokio::spawn(post(&server, "/").body("too long\nx").send());
    let (batch, error) = (server.next().await, server.next_error().await);
    batch.settle(Outcome::Delivered);
    error.settle(Outcome::Delivered);
    let answer = within(answer).await.unwrap().unwrap();
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["thalweg-rejected"]),
        (200, &"1".parse().unwrap())
    );
    let answer = tokio::spawn(post(&server, "/").body("x").send());
    server.next().await.settle(Outcome::Delivered);
    assert!(within(answer).await.unwrap().unwrap().headers().get("thalweg-rejected").is_none());
}

/// A budget of 64 MiB, of which each of these announced 16 MiB.
#[tokio::test]
async fn what_clients_only_announce_takes_no_memory_from_others() {
    let server = start("{ address: 127.0.0.1:0 }").await;
    let mut silent = Vec::new();
    for _ in 0..14 {
        let mut client = server.connect().await;
        let head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 16777216\r\n\r\n";
        client.write_all(head).await.unwrap();
        silent.push(client);
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let short =
        tokio::time::timeout(Duration::from_secs(10), delivered(&server, post(&server, "/").body("x")));
    assert_eq!(short.await.expect("it does not wait for the others").0, 200);
}

#[tokio::test]
async fn the_oldest_incomplete_request_ends_when_such_requests_use_up_the_memory() {
    let server = start("{ address: 127.0.0.1:0, read_timeout: 10min }").await;
    let mut halves = Vec::new();
    for _ in 0..4 {
        let mut client = server.connect().await;
        let head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 16777216\r\n\r\n";
        client.write_all(head).await.unwrap();
        within(client.write_all(&vec![b'x'; 15 << 20])).await.unwrap();
        halves.push(client);
    }
    // More than is left.
    let (status, batch) = delivered(&server, post(&server, "/").body("x".repeat(16 << 20))).await;
    assert_eq!((status, batch.payload().value(0).len()), (StatusCode::OK, 16 << 20));
    assert!(rest(&mut halves.remove(0)).await.starts_with("HTTP/1.1 503 "));
}

#[tokio::test]
async fn bodies_are_cut_into_messages_and_fields_come_with_them() {
    let server = start(
        "{ address: 127.0.0.1:0, framing: {}, fields: [method, path, query, remote, user, header.x-thing, header.none] }",
    )
    .await;
    let request = post(&server, "/a/b?c=d").header("X-Thing", "thing").body("one\r\ntwo\n\nthree");
    let (status, batch) = delivered(&server, request).await;
    assert_eq!(status, 200);
    assert_eq!(payloads(&batch), ["one", "two", "", "three"]);
    for row in rows(batch.fields()) {
        assert_eq!(row["method"], "POST");
        assert_eq!(row["path"], "/a/b");
        assert_eq!(row["query"], "c=d");
        assert_eq!(row["header.x-thing"], "thing");
        assert!(row["remote"].as_str().unwrap().starts_with("127.0.0.1:"));
        assert!(row.get("user").is_none() && row.get("header.none").is_none());
    }
    // An empty body has no messages to deliver.
    assert_eq!(self::status(post(&server, "/")).await, 200);
}

/// More messages than are cut out of a buffer at once.
#[tokio::test]
async fn a_body_of_very_many_short_messages_is_answered_when_all_are_delivered() {
    let server = start("{ address: 127.0.0.1:0, framing: {} }").await;
    let mut answer = tokio::spawn(post(&server, "/").body("\n".repeat(40_000) + "end").send());
    let (mut rows, mut batches) = (0, Vec::new());
    while rows < 40_001 {
        batches.push(server.next().await);
        rows += batches.last().unwrap().rows();
    }
    let last = batches.pop().unwrap();
    assert_eq!(last.payload().value(last.rows() - 1), b"end");
    batches.into_iter().for_each(|batch| batch.settle(Outcome::Delivered));
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut answer).await.is_err());
    last.settle(Outcome::Delivered);
    assert_eq!(within(answer).await.unwrap().unwrap().status(), 200);
}

#[tokio::test]
async fn a_whole_request_can_be_the_message() {
    let server = start("{ address: 127.0.0.1:0, payload: request, methods: [] }").await;
    let (_, batch) = delivered(&server, client().get(format!("http://{}/x?y=1", server.address))).await;
    let text = payloads(&batch).remove(0);
    assert!(text.starts_with("GET /x?y=1 HTTP/1.1\r\n") && text.contains("\r\nHost: 127.0.0.1:"), "{text}");
    assert!(text.ends_with("\r\nAccept: */*\r\n\r\n"), "{text}");
    // A chunked body is shown with its length.
    let mut raw = server.connect().await;
    let request =
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n";
    trickle(&mut raw, request.as_bytes(), 7).await;
    let batch = server.next().await;
    assert_eq!(payloads(&batch), ["POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nonetwo"]);
    batch.settle(Outcome::Delivered);
}

#[tokio::test]
async fn compressed_bodies_are_decompressed() {
    let server = start("{ address: 127.0.0.1:0, max_body_bytes: 300000 }").await;
    let text = "some text ".repeat(20_000);
    let request = post(&server, "/").header("Content-Encoding", "gzip").body(gzip(text.as_bytes()));
    let (status, batch) = delivered(&server, request).await;
    assert_eq!((status, payloads(&batch)), (StatusCode::OK, vec![text.clone()]));
    let body = zstd::encode_all(text.as_bytes(), 1).unwrap();
    let (_, batch) =
        delivered(&server, post(&server, "/").header("Content-Encoding", "zstd").body(body)).await;
    assert_eq!(payloads(&batch), [text]);
    let encoded =
        |encoding: &str, body: Vec<u8>| post(&server, "/").header("Content-Encoding", encoding).body(body);
    assert_eq!(self::status(encoded("gzip", gzip(&[0; 400_000]))).await, 413);
    assert_eq!(self::status(encoded("gzip", b"not gzip".to_vec())).await, 400);
    assert_eq!(self::status(encoded("br", Vec::new())).await, 415);
}

/// Sources may fill three quarters of a budget: 768 KiB.
#[tokio::test]
async fn a_body_that_can_never_fit_into_the_memory_is_refused_at_once() {
    let server = start_within(1 << 20, "{ address: 127.0.0.1:0, read_timeout: 10min }").await;
    let most = 768 << 10;
    let expected = "a request may hold at most 768 KiB, three quarters of `memory`, and a compressed one holds \
                    its decompressed body as well; send less in one request, or raise `memory`\n";
    let zipped = |body: Vec<u8>| post(&server, "/").header("Content-Encoding", "gzip").body(body);
    for request in [
        post(&server, "/").body(vec![b'x'; most + 1]),
        zipped(gzip(&vec![b'x'; most + 1])),
        zipped(gzip(&vec![b'x'; 15 << 20])),
    ] {
        let answer = within(request.send()).await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.text().await.unwrap().as_str()), (413, expected));
    }
    // The same without a length in the head.
    let mut raw = server.connect().await;
    let head = "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    let body = format!("{:x}\r\n{}\r\n0\r\n\r\n", most + 1, "x".repeat(most + 1));
    within(raw.write_all((head.to_owned() + &body).as_bytes())).await.unwrap();
    assert!(rest(&mut raw).await.starts_with("HTTP/1.1 413 "));
    for fits in [post(&server, "/").body(vec![b'x'; most]), zipped(gzip(&vec![b'x'; most - (64 << 10)]))] {
        assert_eq!(delivered(&server, fits).await.0, 200);
    }
}

/// A budget that is smaller than what is read at once: the first piece of a body is read nevertheless.
#[tokio::test]
async fn without_memory_small_bodies_are_taken_and_others_are_refused() {
    let server = start_within(0, "{ address: 127.0.0.1:0, read_timeout: 10min }").await;
    assert_eq!(delivered(&server, post(&server, "/").body(vec![b'x'; 16 << 10])).await.0, 200);
    assert_eq!(status(post(&server, "/").body(vec![b'x'; (16 << 10) + 1])).await, 413);
    assert_eq!(status(post(&server, "/").header("Content-Encoding", "gzip").body(gzip(b"x"))).await, 413);
}

#[tokio::test]
async fn what_may_not_come_is_refused() {
    let server = start("{ address: 127.0.0.1:0, path: /logs, max_body_bytes: 1000 }").await;
    assert_eq!(status(post(&server, "/other").body("x")).await, 404);
    let url = format!("http://{}/logs", server.address);
    assert_eq!(status(client().get(&url)).await, 405);
    assert_eq!(status(post(&server, "/logs").body("x".repeat(1001))).await, 413);
    // The same without a length in the head.
    let mut raw = server.connect().await;
    let body = format!("3e9\r\n{}\r\n0\r\n\r\n", "x".repeat(1001));
    let head = "POST /logs HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    raw.write_all((head.to_owned() + &body).as_bytes()).await.unwrap();
    assert!(rest(&mut raw).await.starts_with("HTTP/1.1 413 "));
    let (status, batch) = delivered(&server, post(&server, "/logs").body("x".repeat(1000))).await;
    assert_eq!((status, batch.payload().value(0).len()), (StatusCode::OK, 1000));
    let mut rubbish = server.connect().await;
    rubbish.write_all(b"\x16\x03rubbish\r\n\r\n").await.unwrap();
    assert!(rest(&mut rubbish).await.starts_with("HTTP/1.1 400 "));
    assert!(server.stop().await.result.is_none());
}

#[tokio::test]
async fn a_client_that_stalls_or_disconnects_in_the_middle_sends_nothing() {
    let server = start("{ address: 127.0.0.1:0, read_timeout: 50ms }").await;
    let head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf";
    let mut stalled = server.connect().await;
    stalled.write_all(head).await.unwrap();
    assert!(rest(&mut stalled).await.starts_with("HTTP/1.1 408 "));
    let mut silent = server.connect().await;
    silent.write_all(b"POST / HT").await.unwrap();
    rest(&mut silent).await;
    let mut gone = server.connect().await;
    gone.write_all(head).await.unwrap();
    drop(gone);
    let (status, batch) = delivered(&server, post(&server, "/").body("whole")).await;
    assert_eq!((status, payloads(&batch)), (StatusCode::OK, vec!["whole".to_owned()]));
    assert!(server.stop().await.main.is_empty());
}

/// A connection that lost its place may finish its request, but not for as long as the client likes.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_arrive_byte_by_byte_keep_no_other_address_out() {
    let server = start("{ address: '0.0.0.0:0', max_connections: 4, read_timeout: 1h }").await;
    let (address, stop, delivered) = server.deliver();
    let mut slow = Vec::new();
    for _ in 0..24 {
        let mut client = connect_from([127, 0, 0, 1], &address).await;
        slow.push(tokio::spawn(async move {
            let head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n";
            let mut sent = client.write_all(head).await;
            while sent.is_ok() {
                tokio::time::sleep(Duration::from_millis(50)).await;
                sent = client.write_all(b"x").await;
            }
        }));
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    // They stay connected, so each one takes another place of the slow ones.
    let mut others = Vec::new();
    for last in 2..5 {
        let mut other = connect_from([127, 0, 0, last], &address).await;
        let request = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n{last}");
        other.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(read(&mut other, 12).await, "HTTP/1.1 200");
        others.push(other);
    }
    // A stopped source waits for requests that have begun.
    slow.into_iter().for_each(|client| client.abort());
    stop.request();
    assert_eq!(within(delivered).await.unwrap().payloads, ["2", "3", "4"]);
}

#[tokio::test]
async fn a_password_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users");
    std::fs::write(&file, "me:{SHA}VBPuJHI7uixaa6LQGWx4s+5GKNE=\n").unwrap();
    let yaml =
        format!("{{ address: 127.0.0.1:0, htpasswd: {}, realm: logs, fields: [user] }}", file.display());
    let server = start(&yaml).await;
    let refused = within(post(&server, "/").body("x").send()).await.unwrap();
    assert_eq!(
        (refused.status(), &refused.headers()["www-authenticate"]),
        (StatusCode::UNAUTHORIZED, &"Basic realm=\"logs\"".parse::<reqwest::header::HeaderValue>().unwrap())
    );
    assert_eq!(status(post(&server, "/").basic_auth("me", Some("wrong")).body("x")).await, 401);
    let request = post(&server, "/").basic_auth("me", Some("myPassword")).body("x");
    let (status, batch) = delivered(&server, request).await;
    assert_eq!((status, &rows(batch.fields())[0]["user"]), (StatusCode::OK, &"me".into()));
    let config: HttpSource = options("{ address: 127.0.0.1:0, htpasswd: nowhere }");
    let source =
        thalweg_engine::testing::start_source(config.build(&context()).unwrap(), 1, Default::default());
    assert_eq!(
        within(source.task).await.unwrap().unwrap_err().full(),
        "cannot read `nowhere`: it does not exist. Look for a typing error, or create it."
    );
}

#[tokio::test]
async fn tls_is_spoken() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = test_files(folder.path());
    let tls = format!("{{ certificate: {certificate}, key: {key} }}");
    let server = start(&format!("{{ address: 127.0.0.1:0, tls: {tls} }}")).await;
    let trust: TlsClient = options(&format!("{{ ca: {certificate} }}"));
    let client =
        Client::builder().tls_backend_preconfigured(trust.config().unwrap()).no_proxy().build().unwrap();
    let request = client.post(format!("https://{}/", server.address)).body("secret");
    let (status, batch) = delivered(&server, request).await;
    assert_eq!((status, payloads(&batch)), (StatusCode::OK, vec!["secret".to_owned()]));
    let untrusting = self::client().post(format!("https://{}/", server.address));
    assert!(within(untrusting.send()).await.unwrap_err().is_connect());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_clients_each_get_their_own_answer() {
    let server = start("{ address: 127.0.0.1:0, rejected_status: 422 }").await;
    let address = server.address.clone();
    let clients: Vec<_> = (0..200)
        .map(|number: usize| {
            let url = format!("http://{address}/");
            tokio::spawn(async move {
                let client = client();
                let mut found = Vec::new();
                // One connection carries all three requests.
                for round in 0..3 {
                    let answer = client.post(&url).body(format!("{number} {round}")).send().await.unwrap();
                    found.push(answer.status().as_u16());
                }
                found
            })
        })
        .collect();
    let main = server.source.main;
    let deliver = tokio::spawn(async move {
        let mut held: Vec<thalweg_record::Batch> = Vec::new();
        while let Some((_, Arrived::Messages(batch))) = main.take().await {
            held.push(batch);
            // Not in the order in which they arrived.
            if held.len() > 20 || fastrand::bool() {
                let batch = held.swap_remove(fastrand::usize(..held.len()));
                settle(batch);
            } else {
                let rest = std::mem::take(&mut held);
                rest.into_iter().for_each(settle);
            }
            while let Ok(Some((_, Arrived::Messages(batch)))) =
                tokio::time::timeout(Duration::from_millis(5), main.take()).await
            {
                settle(batch);
            }
            std::mem::take(&mut held).into_iter().for_each(settle);
        }
    });
    for (number, client) in clients.into_iter().enumerate() {
        let expected = if number % 3 == 0 { 422 } else { 200 };
        assert_eq!(within(client).await.unwrap(), [expected; 3], "{number}");
    }
    server.source.stop.request();
    within(server.source.task).await.unwrap().unwrap();
    within(deliver).await.unwrap();
}

/// Rejects the messages of every third client.
fn settle(batch: thalweg_record::Batch) {
    let text = payloads(&batch).remove(0);
    let number: usize = text.split(' ').next().unwrap().parse().unwrap();
    batch.settle(if number.is_multiple_of(3) { Outcome::Rejected } else { Outcome::Delivered });
}

#[tokio::test]
async fn a_stop_answers_what_is_under_way_and_refuses_what_comes() {
    let server = start("{ address: 127.0.0.1:0 }").await;
    let answer = tokio::spawn(post(&server, "/").body("last").send());
    let batch = server.next().await;
    server.source.stop.request();
    tokio::task::yield_now().await;
    batch.settle(Outcome::Delivered);
    assert_eq!(within(answer).await.unwrap().unwrap().status(), 200);
    assert!(server.stop().await.result.is_none());
}

#[test]
fn what_does_not_go_together_is_refused() {
    let mistakes = |yaml: &str| messages(options::<HttpSource>(yaml).check());
    assert_eq!(mistakes("{ address: nowhere }"), ["`nowhere` names no port."]);
    let only = "The address of a socket has only a host and a port.";
    assert_eq!(mistakes("{ address: 'u:SEKRET@host:1' }"), [only]);
    assert_eq!(
        mistakes("{ address: ':80', framing: {}, payload: request }"),
        ["A whole request cannot be cut into messages."]
    );
    assert_eq!(
        mistakes("{ address: ':80', fields: [header.a, 'header.a b'] }"),
        ["A request has no `header.a b`."]
    );
    assert_eq!(mistakes("{ address: ':80', methods: ['a b'] }"), ["`a b` is not a method."]);
    assert_eq!(mistakes("{ address: ':80', path: logs }"), ["A path begins with `/`."]);
    assert_eq!(
        refused::<HttpSource>("{ address: ':80', status: 500 }"),
        "`status` must be at most 299, but it is `500`."
    );
}

#[tokio::test]
async fn it_ends_when_no_request_came_although_a_client_stays_connected() {
    let server = start("{ address: 127.0.0.1:0, end_after_idle: 50ms }").await;
    let mut idle = server.connect().await;
    let client = client();
    let answer = tokio::spawn(client.post(format!("http://{}/", server.address)).body("x").send());
    let batch = server.next().await;
    // Longer than `end_after_idle`, but a request is in progress.
    tokio::time::sleep(Duration::from_millis(200)).await;
    batch.settle(Outcome::Delivered);
    assert_eq!(within(answer).await.unwrap().unwrap().status(), 200);
    assert!(within(server.source.finish()).await.result.is_none());
    assert_eq!(rest(&mut idle).await, "");
}

/// The first one counted, and a proxy may have checked the last one.
#[tokio::test]
async fn a_request_that_has_a_header_twice_is_refused() {
    let server = start("{ address: 127.0.0.1:0 }").await;
    for header in ["Host: a", "Authorization: Basic a", "Content-Type: text/plain", "Origin: null"] {
        let mut raw = server.connect().await;
        let head = format!("POST / HTTP/1.1\r\nConnection: close\r\n{header}\r\n{header}\r\n\r\n");
        within(raw.write_all(head.as_bytes())).await.unwrap();
        let answer = rest(&mut raw).await;
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains(" is there twice: "), "{answer}");
    }
    // The library itself refuses two that differ, and takes two of the same length for one.
    let mut raw = server.connect().await;
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab";
    within(raw.write_all(head.as_bytes())).await.unwrap();
    assert!(rest(&mut raw).await.starts_with("HTTP/1.1 400 "));
}

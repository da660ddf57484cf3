use arrow_array::cast::AsArray;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use reqwest::{Client as HttpClient, RequestBuilder};
use thalweg_engine::testing::{messages, options, payloads, rows};
use thalweg_record::{Batch, Outcome};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::*;
use crate::net::testing::{Server as Running, connect_from, rest, within};
use crate::tls::TlsClient;

const LOGS: &[u8] = include_bytes!("../../../../../codec/src/otlp/samples/logs.bin");
const LOGS_IN_JSON: &[u8] = include_bytes!("../../../../../codec/src/otlp/samples/logs.json");
const TRACES: &[u8] = include_bytes!("../../../../../codec/src/otlp/samples/traces.bin");
const METRICS: &[u8] = include_bytes!("../../../../../codec/src/otlp/samples/metrics.bin");

/// Starts the source with one listener.
async fn start_within(memory: usize, yaml: &str) -> Running {
    let config: OtlpSource = options(yaml);
    assert_eq!(config.check(), []);
    let (by_http, by_grpc) = (Announce::new("test"), Announce::new("test"));
    let announce = if config.grpc.is_some() { by_grpc.clone() } else { by_http.clone() };
    Running::start_within(memory, Otlp { config, by_http, by_grpc }, announce).await
}

async fn start(yaml: &str) -> Running {
    start_within(64 << 20, yaml).await
}

fn post(server: &Running, path: &str, media: &str, body: &[u8]) -> RequestBuilder {
    let tls: TlsClient = options("{}");
    let client =
        HttpClient::builder().tls_backend_preconfigured(tls.config().unwrap()).no_proxy().build().unwrap();
    client.post(format!("http://{}{path}", server.address)).header("content-type", media).body(body.to_vec())
}

fn binary(server: &Running, path: &str, body: &[u8]) -> RequestBuilder {
    post(server, path, "application/x-protobuf", body)
}

/// Sends a request whose records are one batch, which is settled so. Returns the batch, and the status and
/// body of the answer.
async fn settled(server: &Running, request: RequestBuilder, outcome: Outcome) -> (Batch, u16, Vec<u8>) {
    let answer = tokio::spawn(request.send());
    let mut batch = server.next().await;
    let ack = batch.take_ack();
    match outcome {
        Outcome::Rejected => ack.reject(1),
        outcome => ack.settle(outcome),
    }
    let answer = within(answer).await.unwrap().unwrap();
    (batch, answer.status().as_u16(), answer.bytes().await.unwrap().to_vec())
}

/// An answer by gRPC: its status, message and details, and the bytes of its message.
#[derive(Debug, PartialEq, Eq)]
struct Answered {
    status: String,
    message: String,
    has_details: bool,
    body: Vec<u8>,
}

/// A connection by HTTP/2.
type Http2 = hyper::client::conn::http2::SendRequest<Full<bytes::Bytes>>;

async fn connected(stream: TcpStream) -> Http2 {
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = within(handshake).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// Sends a request by gRPC, whose messages are these bytes.
async fn call(server: &Running, method: &str, encoding: Option<&str>, body: Vec<u8>) -> Answered {
    ask(&mut connected(server.connect().await).await, method, encoding, body).await
}

async fn ask(sender: &mut Http2, method: &str, encoding: Option<&str>, body: Vec<u8>) -> Answered {
    let mut request = hyper::Request::post(format!("http://test{method}"))
        .header("content-type", "application/grpc+proto")
        .header("te", "trailers");
    if let Some(encoding) = encoding {
        request = request.header("grpc-encoding", encoding);
    }
    let request = request.body(Full::new(bytes::Bytes::from(body))).unwrap();
    let answer = within(sender.send_request(request)).await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    assert_eq!(answer.headers()["content-type"], "application/grpc");
    let headers = answer.headers().clone();
    let body = within(answer.into_body().collect()).await.unwrap();
    let trailers = body.trailers().cloned().unwrap_or_default();
    let text = |name: &str| {
        let value = headers.get(name).or_else(|| trailers.get(name));
        value.map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
    };
    Answered {
        status: text("grpc-status"),
        message: text("grpc-message"),
        has_details: headers.contains_key("grpc-status-details-bin"),
        body: body.to_bytes().to_vec(),
    }
}

/// Puts what gRPC needs before a message.
fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    [&[flag], &(message.len() as u32).to_be_bytes()[..], message].concat()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn requests_of_each_signal_are_answered_when_their_records_are_delivered() {
    let server = start("{ http: '127.0.0.1:0' }").await;
    for (path, body, name, rows) in [
        ("/v1/logs", LOGS, "logs", 4),
        ("/v1/traces", TRACES, "traces", 3),
        ("/v1/metrics", METRICS, "metrics", 8),
    ] {
        let mut answer = tokio::spawn(binary(&server, path, body).send());
        let batch = server.next().await;
        let signal = batch.column("signal").unwrap();
        assert_eq!((signal.as_string_view().value(0), batch.rows()), (name, rows));
        assert!(tokio::time::timeout(std::time::Duration::from_millis(20), &mut answer).await.is_err());
        batch.settle(Outcome::Delivered);
        let answer = within(answer).await.unwrap().unwrap();
        assert_eq!(answer.status().as_u16(), 200);
        assert_eq!(answer.headers()["content-type"], "application/x-protobuf");
        assert!(answer.bytes().await.unwrap().is_empty());
    }
    assert!(server.stop().await.result.is_none());
}

#[tokio::test]
async fn json_and_compressed_requests_are_the_same() {
    let server = start("{ http: '127.0.0.1:0' }").await;
    let (plain, ..) = settled(&server, binary(&server, "/v1/logs", LOGS), Outcome::Delivered).await;
    let request = post(&server, "/v1/logs", "application/json; charset=utf-8", LOGS_IN_JSON);
    let (json, status, body) = settled(&server, request, Outcome::Delivered).await;
    assert_eq!((status, body.as_slice()), (200, &b"{}"[..]));
    let request = binary(&server, "/v1/logs", &gzip(LOGS)).header("content-encoding", "gzip");
    let (zipped, ..) = settled(&server, request, Outcome::Delivered).await;
    for other in [&json, &zipped] {
        assert_eq!((other.fields(), payloads(other)), (plain.fields(), payloads(&plain)));
    }
    assert_eq!(payloads(&plain)[0], "order o-1 taken");
}

#[tokio::test]
async fn an_answer_says_how_many_records_were_rejected_or_to_send_them_again() {
    let server = start("{ http: '127.0.0.1:0' }").await;
    let (_, status, body) = settled(&server, binary(&server, "/v1/logs", LOGS), Outcome::Rejected).await;
    let reason = "1 of 4 records were rejected; the server keeps them with their reasons";
    let read = thalweg_codec::otlp::answer::partial_success(&body).unwrap();
    assert_eq!((status, read.rejected, read.reason.as_slice()), (200, 1, reason.as_bytes()));
    let answer = tokio::spawn(binary(&server, "/v1/logs", LOGS).send());
    server.next().await.settle(Outcome::Failed);
    let answer = within(answer).await.unwrap().unwrap();
    assert_eq!(answer.status().as_u16(), 503);
    assert_eq!(answer.headers()["retry-after"], "5");
    // A trace id of two bytes, and a record that is right.
    let mixed = b"\x0a\x0e\x12\x0c\x12\x04\x4a\x02ab\x12\x04\x1a\x02ok";
    let answer = tokio::spawn(binary(&server, "/v1/logs", mixed).send());
    let (batch, error) = (server.next().await, server.next_error().await);
    assert_eq!((batch.rows(), error.rows()), (1, 1));
    let reason = &rows(error.fields())[0]["error_reason"];
    assert_eq!(reason, "the field `trace_id` has 2 bytes, not 16");
    batch.settle(Outcome::Delivered);
    error.settle(Outcome::Rejected);
    let answer = within(answer).await.unwrap().unwrap().bytes().await.unwrap();
    assert_eq!(thalweg_codec::otlp::answer::partial_success(&answer).unwrap().rejected, 1);
}

#[tokio::test]
async fn what_is_no_request_is_refused_with_the_reason() {
    let server = start("{ http: '127.0.0.1:0', signals: [logs, metrics], max_body_bytes: 1000 }").await;
    let json = "application/json";
    let bad =
        r#"{"code":3,"message":"the request is not valid: invalid type: sequence, expected an object at"#;
    for (request, status, expected) in [
        (
            binary(&server, "/v1/logs", b"\x0a\x05"),
            400,
            "the request is not valid: it is cut off at its byte 2",
        ),
        (post(&server, "/v1/logs", json, b"[]"), 400, bad),
        (binary(&server, "/v1/logs", &[0; 1001]), 413, "a body may have at most 1kB"),
        (binary(&server, "/v1/traces", TRACES), 404, "this server takes no traces"),
        (binary(&server, "/other", b""), 404, "there is nothing at this path"),
        (post(&server, "/v1/logs", "text/plain", b""), 415, "the `Content-Type` is"),
        (binary(&server, "/v1/logs", b"x").header("content-encoding", "gzip"), 400, "cannot be decompressed"),
    ] {
        let answer = within(request.send()).await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{expected}");
        let body = answer.bytes().await.unwrap();
        assert!(String::from_utf8_lossy(&body).contains(expected), "{body:?}");
    }
    // A request without records is answered at once.
    assert_eq!(within(binary(&server, "/v1/logs", b"").send()).await.unwrap().status().as_u16(), 200);
    assert!(server.stop().await.main.is_empty());
}

#[tokio::test]
async fn a_sender_that_stalls_may_send_its_request_again() {
    let server = start("{ http: '127.0.0.1:0', read_timeout: 50ms }").await;
    let mut stalled = server.connect().await;
    let head = "POST /v1/logs HTTP/1.1\r\nhost: h\r\ncontent-type: application/x-protobuf\r\n";
    stalled.write_all(format!("{head}content-length: 10\r\n\r\nhalf").as_bytes()).await.unwrap();
    assert!(rest(&mut stalled).await.starts_with("HTTP/1.1 503 "));
    assert!(server.stop().await.main.is_empty());
}

#[tokio::test]
async fn a_sender_waits_for_memory_only_for_a_while() {
    let server = start_within(32 << 10, "{ http: '127.0.0.1:0', memory_timeout: 50ms }").await;
    let first = tokio::spawn(binary(&server, "/v1/logs", LOGS).send());
    let held = server.next().await;
    let mut answers = Vec::new();
    // The batch holds the share of the source, and the budget has room for one more at most.
    for _ in 0..2 {
        let request = binary(&server, "/v1/traces", TRACES).timeout(std::time::Duration::from_secs(5));
        answers.push(tokio::spawn(request.send()));
    }
    let mut refused = 0;
    for answer in answers {
        if let Ok(Ok(answer)) = within(answer).await
            && answer.status().as_u16() == 429
        {
            assert_eq!(answer.headers()["retry-after"], "5");
            refused += 1;
        }
    }
    assert!(refused > 0);
    held.settle(Outcome::Delivered);
    assert_eq!(within(first).await.unwrap().unwrap().status().as_u16(), 200);
}

#[tokio::test]
async fn grpc_is_spoken() {
    let server = start("{ grpc: '127.0.0.1:0' }").await;
    let logs = Signal::Logs.method();
    for (encoding, body) in
        [(None, framed(0, LOGS)), (Some("gzip"), framed(1, &gzip(LOGS))), (Some("gzip"), framed(0, LOGS))]
    {
        let answered = async { call(&server, logs, encoding, body).await };
        let deliver = async {
            let batch = server.next().await;
            assert_eq!(payloads(&batch)[0], "order o-1 taken");
            batch.settle(Outcome::Delivered);
        };
        let (answered, ()) = tokio::join!(answered, deliver);
        let expected =
            Answered { status: "0".into(), message: String::new(), has_details: false, body: vec![0; 5] };
        assert_eq!(answered, expected);
    }
    let answered = async { call(&server, logs, None, framed(0, LOGS)).await };
    let (again, ()) = tokio::join!(answered, async { server.next().await.settle(Outcome::Failed) });
    assert_eq!(
        (again.status.as_str(), again.message.as_str(), again.has_details),
        ("14", "the messages could not be delivered", true)
    );
    let answered = async { call(&server, logs, None, framed(0, LOGS)).await };
    let reject = async {
        let ack = server.next().await.take_ack();
        ack.reject(2);
    };
    let (partial, ()) = tokio::join!(answered, reject);
    let read = thalweg_codec::otlp::answer::partial_success(&partial.body[5..]).unwrap();
    assert_eq!((partial.status.as_str(), read.rejected), ("0", 2));
    for (method, encoding, body, status, message) in [
        (logs, None, framed(0, b"\x0a\x05"), "3", "the request is not valid: it is cut off at its byte 2"),
        (logs, None, b"\0\0".to_vec(), "3", "the message is cut off"),
        (logs, Some("br"), framed(1, b""), "12", "a message may be compressed with gzip or zstd"),
        ("/a.B/C%25", None, framed(0, b""), "12", "there is no method `/a.B/C%2525`"),
    ] {
        let answered = call(&server, method, encoding, body).await;
        assert_eq!((answered.status.as_str(), answered.message.as_str()), (status, message));
    }
    assert!(server.stop().await.result.is_none());
}

#[tokio::test]
async fn requests_of_one_connection_are_answered_independently() {
    let server = start("{ grpc: '127.0.0.1:0' }").await;
    let sender = connected(server.connect().await).await;
    let send = |body: &[u8]| {
        let request = hyper::Request::post(format!("http://test{}", Signal::Logs.method()))
            .header("content-type", "application/grpc")
            .body(Full::new(bytes::Bytes::from(framed(0, body))))
            .unwrap();
        let mut sender = sender.clone();
        tokio::spawn(async move { sender.send_request(request).await.map(|answer| answer.status()) })
    };
    let first = send(LOGS);
    let held = server.next().await;
    let second = send(LOGS);
    server.next().await.settle(Outcome::Delivered);
    assert_eq!(within(second).await.unwrap().unwrap().as_u16(), 200);
    assert!(!first.is_finished());
    // A stopped source answers what is in progress.
    server.source.stop.request();
    held.settle(Outcome::Delivered);
    assert_eq!(within(first).await.unwrap().unwrap().as_u16(), 200);
    assert!(server.stop().await.result.is_none());
}

/// A connection that lost its place ends although its client never begins HTTP/2.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_send_nothing_keep_no_other_address_out() {
    let server = start("{ grpc: '0.0.0.0:0', max_connections: 4 }").await;
    let (address, stop, delivered) = server.deliver();
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(connect_from([127, 0, 0, 1], &address).await);
    }
    // They stay connected, so each one takes another place of the silent ones.
    let mut others = Vec::new();
    for last in 2..5 {
        let mut other = connected(connect_from([127, 0, 0, last], &address).await).await;
        let answered = within(ask(&mut other, Signal::Logs.method(), None, framed(0, LOGS))).await;
        assert_eq!(answered.status, "0");
        others.push(other);
    }
    stop.request();
    assert_eq!(within(delivered).await.unwrap().payloads.len(), 12);
}

#[tokio::test]
async fn it_ends_when_neither_listener_has_activity() {
    let server = start("{ http: '127.0.0.1:0', grpc: '127.0.0.1:0', end_after_idle: 50ms }").await;
    let answered = async { call(&server, Signal::Logs.method(), None, framed(0, LOGS)).await };
    let (answered, ()) = tokio::join!(answered, async { server.next().await.settle(Outcome::Delivered) });
    assert_eq!(answered.status, "0");
    assert!(within(server.source.finish()).await.result.is_none());
}

#[test]
fn addresses_and_fields_are_known_before_the_run() {
    let mistakes = |yaml: &str| messages(options::<OtlpSource>(yaml).check());
    assert_eq!(mistakes("{ http: nowhere }"), ["`nowhere` names no port."]);
    assert_eq!(mistakes("{ http: ':1', grpc: ':1' }"), ["HTTP and gRPC cannot have one address."]);
    assert_eq!(mistakes("{ http: '[::]:1', grpc: '0.0.0.0:1' }"), [""; 0]);
    assert_eq!(mistakes("{ read_timeout: 0s }"), ["No client can send a request in no time."]);
    let config: OtlpSource = options("{}");
    let both = (Some("127.0.0.1:4318".to_owned()), Some("127.0.0.1:4317".to_owned()));
    assert_eq!((config.check(), config.addresses()), (vec![], both));
    let only: OtlpSource = options("{ grpc: ':1' }");
    assert_eq!(only.addresses(), (None, Some(":1".to_owned())));
}

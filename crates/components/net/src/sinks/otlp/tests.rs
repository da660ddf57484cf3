use arrow_array::Array;
use arrow_buffer::Buffer;
use thalweg_codec::otlp::{Decoder, Records, request_of_json};
use thalweg_engine::testing::{batch, messages, options, payloads, sink_conforms};
use thalweg_record::Budget;

use super::*;
use crate::requests::testing::{Fake, Play, open, with_text, write};

const METRICS: &[u8] = include_bytes!("../../../../../codec/src/otlp/samples/all_metrics.bin");

fn yaml(server: &Fake, rest: &str) -> String {
    format!("{{ url: '{}', max_delay: 0s{rest} }}", server.address)
}

/// Returns the records of a request as a batch.
fn decoded(signal: Signal, request: &[u8]) -> Batch {
    let mut decoder =
        Decoder::new(signal, Buffer::from_vec(request.to_vec()), &Budget::new(64 << 20)).unwrap();
    let Records { payload, fields } = decoder.part().unwrap().unwrap().records;
    batch(vec![""; payload.len()]).with_payload(payload).unwrap().with_fields(fields).unwrap()
}

#[tokio::test]
async fn it_conforms() {
    let server = Fake::start(|_, _| Play::answer(200, "")).await;
    for rest in ["", ", compression: gzip", ", concurrency: 1", ", resource: { service.name: shop }"] {
        sink_conforms::<OtlpConfig>(&yaml(&server, rest)).await;
    }
}

#[tokio::test]
async fn what_was_received_is_sent_as_it_came() {
    let server = Fake::start(|_, _| Play::answer(200, "")).await;
    let mut sink = open::<OtlpConfig>(&yaml(&server, ", compression: gzip")).await;
    assert_eq!(write(&mut sink, &decoded(Signal::Metrics, METRICS)).await, (vec![], vec![]));
    let got = server.got().remove(0);
    assert_eq!(
        (got.line.as_str(), got.header("content-type")),
        ("POST /v1/metrics", "application/x-protobuf")
    );
    assert_eq!(got.bytes, METRICS);
}

#[tokio::test]
async fn messages_of_several_signals_are_requests_of_their_own() {
    let server = Fake::start(|_, _| Play::answer(200, "")).await;
    let yaml = format!("{{ url: '{}/otel/', max_delay: 0s, attributes: user }}", server.address);
    let mut sink = open::<OtlpConfig>(&yaml).await;
    let lines = batch(["one", "two", "three", "four"]);
    let signals = [Some("traces"), None, Some("profiles"), Some("logs")];
    let lines = with_text(with_text(lines, "signal", &signals), "name", &[Some("span"), None, None, None]);
    let lines = with_text(lines, "user", &[Some("ada"), None, None, None]);
    let (rejected, errors) = write(&mut sink, &lines).await;
    assert!(errors.is_empty());
    let reason = "`signal` is not `logs`, `metrics` or `traces`: `profiles`".to_owned();
    assert_eq!(rejected, [(2, reason)]);
    let mut got = server.got();
    got.sort_by(|one, other| one.line.cmp(&other.line));
    assert_eq!((got[0].line.as_str(), got[1].line.as_str()), ("POST /otel/v1/logs", "POST /otel/v1/traces"));
    // A message with a signal has the columns of OTLP, so its payload is no body.
    assert_eq!(payloads(&decoded(Signal::Logs, &got[0].bytes)), ["two", ""]);
    let spans = decoded(Signal::Traces, &got[1].bytes);
    let attributes = spans.column("attributes").unwrap();
    let attributes = arrow_array::cast::AsArray::as_string_view(&attributes).value(0).to_owned();
    assert_eq!((payloads(&spans), attributes.as_str()), (vec!["span".to_owned()], r#"{"user":"ada"}"#));
}

#[tokio::test]
async fn a_request_waits_for_a_receiver_with_too_much_to_do() {
    let server = Fake::start(|number, _| match number {
        0 => Play::answer(429, "later").with("retry-after", "0"),
        1 => Play::answer(503, "").with("retry-after", "0"),
        2 => Play::answer(404, "no such path"),
        3 => Play::cut(),
        _ => Play::answer(200, ""),
    })
    .await;
    let mut sink = open::<OtlpConfig>(&yaml(&server, "")).await;
    let (rejected, errors) = write(&mut sink, &batch(["x"])).await;
    assert_eq!((rejected.len(), errors.len(), server.got().len()), (0, 4, 5));
    assert_eq!(payloads(&decoded(Signal::Logs, &server.got()[4].bytes)), ["x"]);
}

#[tokio::test]
async fn a_bad_record_leaves_alone_with_the_reason_of_the_status() {
    // A status with the message `bad`.
    let server = Fake::start(|_, got| match got.body.contains("worst") {
        true => Play::answer(400, "\u{8}\u{3}\u{12}\u{3}bad").with("content-type", "application/x-protobuf"),
        false => Play::answer(200, ""),
    })
    .await;
    let mut sink = open::<OtlpConfig>(&yaml(&server, "")).await;
    let (rejected, errors) = write(&mut sink, &batch(["one", "worst", "three"])).await;
    let reason = format!("`http://{}/` answered 400 Bad Request: bad", server.address);
    assert_eq!((rejected, errors), (vec![(1, reason)], vec![]));
}

#[tokio::test]
async fn records_that_a_receiver_rejects_of_an_accepted_request_are_rejected_if_they_are_all() {
    // `rejected` is 2, the reason `no`.
    let server = Fake::start(|_, _| Play::answer(200, "\n\u{6}\u{8}\u{2}\u{12}\u{2}no")).await;
    let mut sink = open::<OtlpConfig>(&yaml(&server, "")).await;
    let (rejected, _) = write(&mut sink, &batch(["one", "two"])).await;
    let reason = format!("`http://{}/` rejected the record: no", server.address);
    assert_eq!(rejected, [(0, reason.clone()), (1, reason)]);
    // Of three, they are not known, and all count as delivered.
    assert_eq!(write(&mut sink, &batch(["one", "two", "three"])).await, (vec![], vec![]));
    assert_eq!(server.got().len(), 2);
}

#[test]
fn what_cannot_be_configured_is_named() {
    let mistakes = |yaml: &str| messages(options::<OtlpConfig>(yaml).check());
    assert_eq!(mistakes("{ url: 'http://h', resource: { '': a } }"), ["An attribute has a name."]);
    assert_eq!(mistakes("{ url: 'ftp://h' }"), ["`ftp` is not a scheme of HTTP."]);
    for path in ["/v1/logs", "/v1/metrics", "/otlp/v1/traces/"] {
        let added = path.trim_start_matches("/otlp").trim_end_matches('/');
        let twice = format!("The sink adds the path itself: `{added}` would be there twice.");
        assert_eq!(mistakes(&format!("{{ url: 'http://h{path}' }}")), [twice]);
    }
    assert_eq!(mistakes("{ url: 'http://h/otlp' }"), [""; 0]);
    assert_eq!(mistakes("{ url: 'http://h?a=b' }"), ["The address of the server has a query."]);
    assert_eq!(mistakes("{ url: h, timeout: 0s }"), ["No server can answer in no time."]);
}

#[test]
fn what_is_probably_not_meant_is_remarked() {
    let remarks = |yaml: &str| messages(options::<OtlpConfig>(yaml).remarks());
    let grpc = "4317 is usually the port of gRPC, but the sink sends by HTTP.";
    assert_eq!(remarks("{ url: 'http://h:4317' }"), [grpc]);
    let long = "`timeout` is 30d, and until then nothing happens if a server hangs.";
    assert_eq!(remarks("{ url: 'http://h:4318', timeout: 30d }"), [long]);
    assert_eq!(remarks("{ url: 'http://h:4318' }"), [""; 0]);
}

#[test]
fn a_request_of_json_is_sent_as_well() {
    let json = br#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"x"}}]}]}]}"#;
    let request = request_of_json(Signal::Logs, json).unwrap();
    assert_eq!(payloads(&decoded(Signal::Logs, &request)), ["x"]);
}

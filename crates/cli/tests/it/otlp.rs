//! Requests of OpenTelemetry's SDK, through two runs into a file.

use std::io::{Read, Write};

use crate::common::House;
use crate::network::Server;
use crate::services::listening;

const LOGS: &[u8] = include_bytes!("../../../codec/src/otlp/samples/logs.bin");
const METRICS: &[u8] = include_bytes!("../../../codec/src/otlp/samples/metrics.bin");
const TRACES: &[u8] = include_bytes!("../../../codec/src/otlp/samples/traces.bin");

/// Sends a request and returns the answer.
fn post(server: &Server, path: &str, body: &[u8]) -> String {
    let mut stream = server.connect();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-type: application/x-protobuf\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn stop(server: Server) -> String {
    let id = rustix::process::Pid::from_child(&server.child);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    server.end()
}

/// Writes each record.
const RECEIVER: &str = "\
sources: { in: { otlp: { http: '127.0.0.1:0' } } }
pipelines: { main: { from: in, to: all } }
sinks: { all: { file: { path: out/all.jsonl, encode: json } } }
";

/// The answer of the first run is that of the second, which has written what it confirms.
#[test]
fn logs_metrics_and_traces_pass_through_two_runs_and_are_answered_when_they_are_written() {
    let house = House::with(&[("receiver.yaml", RECEIVER)]);
    let receiver = Server::begin(house.command(&["run", "receiver.yaml", "--state", "receiver"]));
    let relay = format!(
        "sources: {{ in: {{ otlp: {{ http: '127.0.0.1:0' }} }} }}\n\
         pipelines: {{ main: {{ from: in, to: next }} }}\n\
         sinks: {{ next: {{ otlp: {{ url: 'http://{}', max_delay: 0s, compression: gzip }} }} }}\n",
        receiver.address
    );
    house.write("relay.yaml", relay.as_bytes());
    let relay = Server::begin(house.command(&["run", "relay.yaml", "--state", "relay"]));
    for (path, body) in [("/v1/logs", LOGS), ("/v1/metrics", METRICS), ("/v1/traces", TRACES)] {
        let answer = post(&relay, path, body);
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{path}: {answer}");
    }
    let refused = post(&relay, "/v1/logs", b"\x0a\x05");
    assert!(
        refused.starts_with("HTTP/1.1 400 ") && refused.contains("it is cut off at its byte 2"),
        "{refused}"
    );
    stop(relay);
    stop(receiver);
    let lines = house.lines("out/all.jsonl");
    let records: Vec<serde_json::Value> =
        lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |signal: &str| records.iter().filter(|record| record["signal"] == signal).count();
    assert_eq!((of("logs"), of("metrics"), of("traces")), (4, 8, 3));
    let first = &records[0];
    assert_eq!(first["time_unix_nano"], "2023-11-14T22:13:20.123456789Z");
    assert_eq!((&first["body"], &first["severity_number"]), (&"order o-1 taken".into(), &9.into()));
    assert_eq!(first["resource_attributes"]["service.name"], "shop");
    assert_eq!(first["attributes"]["price"], 9.5);
    let span = records.iter().find(|record| record["name"] == "GET /orders").unwrap();
    assert_eq!((&span["kind"], &span["status_code"]), (&"server".into(), &"ok".into()));
    assert_eq!(span["events"][0]["attributes"]["size"], 12);
    let point = records.iter().find(|record| record["name"] == "duration").unwrap();
    assert_eq!(
        (&point["count"], &point["max"], &point["type"]),
        (&4.into(), &4000.0.into(), &"histogram".into())
    );
}

#[test]
fn the_metrics_of_a_run_are_exported_by_the_pipeline_of_the_page() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cookbook/opentelemetry.md");
    let page = std::fs::read_to_string(page).unwrap();
    let export = page.split("```").find(|block| block.contains("prometheus_scrape: {")).unwrap();
    let watched = "sources: { in: { generate: { message: x, rate: 100 } } }\n\
                   pipelines: { main: { from: in, to: out } }\nsinks: { out: discard }\n";
    let house = House::with(&[("receiver.yaml", RECEIVER), ("c.yaml", watched)]);
    let receiver = Server::begin(house.command(&["run", "receiver.yaml", "--state", "receiver"]));
    let (service, _log, address) = listening(&house, &[]);
    let export = export.trim_start_matches("yaml").replace(", every: 15s", "");
    let export = export.replace("127.0.0.1:9598", &address);
    house.write("export.yaml", export.replace("collector.example.com:4318", &receiver.address).as_bytes());
    let done = house.run_well(&["run", "export.yaml", "--strict"]);
    assert!(!done.err.contains("dead letter"), "{}", done.err);
    service.stop();
    stop(receiver);
    let lines = house.lines("out/all.jsonl");
    let points: Vec<serde_json::Value> =
        lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let point = |name: &str| points.iter().find(|point| point["name"] == name).unwrap();
    let limit = point("thalweg_budget_limit_bytes");
    assert_eq!((&limit["signal"], &limit["type"]), (&"metrics".into(), &"gauge".into()));
    assert!(limit["as_double"].as_f64().unwrap() > 0.0, "{limit}");
    assert_eq!(limit["resource_attributes"]["service.name"], "thalweg");
    let edge = point("thalweg_edge_messages_total");
    assert_eq!((&edge["type"], &edge["is_monotonic"]), (&"sum".into(), &true.into()));
    assert_eq!(
        (&edge["aggregation_temporality"], &edge["attributes"]["from"]),
        (&"cumulative".into(), &"in".into())
    );
}

//! A run sends its metrics and traces to a receiver of OpenTelemetry: a second run, or one that is dead.

use std::collections::BTreeSet;
use std::io::{BufReader, Read};
use std::net::TcpListener;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use thalweg_testbed::Patience;

use crate::common::{House, said};
use crate::network::Server;
use crate::services::{Service, asked, line_of};

/// Writes each record.
const RECEIVER: &str = "\
sources: { in: { otlp: { http: '127.0.0.1:0' } } }
pipelines: { main: { from: in, to: all } }
sinks: { all: { file: { path: out/all.jsonl, encode: json } } }
";

const RUN: &str = "\
sources: { in: { generate: { message: 'CONTENT-1a2b3c', count: 1000 } } }
pipelines: { main: { from: in, transforms: [set: { a: '1' }], to: out } }
sinks: { out: { file: { path: out.txt } } }
";

const SHORT: &str = "\
sources: { in: { generate: { message: a, count: 1 } } }
pipelines: { main: { from: in, to: out } }
sinks: { out: discard }
";

/// Messages until the run is stopped.
const ENDLESS: &str = "\
sources: { in: { generate: { message: 'a', rate: 100 } } }
pipelines: { main: { from: in, to: out } }
sinks: { out: discard }
";

/// The records that a receiver wrote.
fn records(house: &House) -> Vec<Value> {
    house.lines("out/all.jsonl").iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn metrics_at_the_end_of_a_run_and_traces_of_its_batches_arrive_without_its_messages() {
    let house = House::with(&[("receiver.yaml", RECEIVER), ("c.yaml", RUN)]);
    let receiver = Server::begin(house.command(&["run", "receiver.yaml", "--state", "receiver"]));
    let telemetry = format!("--telemetry=http://{}", receiver.address);
    let mut run = house.command(&["run", "c.yaml", &telemetry]);
    run.env("OTEL_TRACES_SAMPLER", "always_on").env("OTEL_SERVICE_NAME", "shop");
    let ended = said(run.output().unwrap());
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(!ended.err.contains("telemetry"), "{}", ended.err);
    kill_process(Pid::from_child(&receiver.child), Signal::TERM).unwrap();
    receiver.end();

    assert!(!house.read("out/all.jsonl").contains("CONTENT"), "messages were sent");
    let records = records(&house);
    for record in &records {
        assert_eq!(record["resource_attributes"]["service.name"], "shop", "{record}");
        assert_eq!(record["scope_name"], "thalweg", "{record}");
    }
    // The last is that at the end.
    let point = |name: &str, component: &str| {
        let is_it =
            |record: &&Value| record["name"] == name && record["attributes"]["component"] == component;
        records.iter().rfind(is_it).unwrap_or_else(|| panic!("no {name} of {component}"))
    };
    let sent = point("thalweg_component_sent_messages", "out");
    assert_eq!((&sent["type"], &sent["as_int"]), (&"sum".into(), &1000.into()));
    assert_eq!((&sent["is_monotonic"], &sent["unit"]), (&true.into(), &Value::Null));
    let bytes = point("thalweg_component_received_bytes", "out");
    assert_eq!((&bytes["unit"], &bytes["as_int"]), (&"By".into(), &14_000.into()));
    let latency = point("thalweg_source_latency_seconds", "in");
    assert_eq!((&latency["type"], &latency["unit"]), (&"histogram".into(), &"s".into()));
    assert!(records.iter().all(|record| record["name"] != "thalweg_component_sent_messages_total"));

    let spans = records.iter().filter(|record| record["signal"] == "traces");
    let (batches, stages): (Vec<&Value>, Vec<&Value>) =
        spans.partition(|span| span["parent_span_id"].is_null());
    assert_eq!(batches.len() as u64, latency["count"].as_u64().unwrap());
    let messages = |spans: &[&Value], component: &str| -> u64 {
        let of = spans.iter().filter(|span| span["attributes"]["component"] == component);
        of.map(|span| span["attributes"]["messages"].as_u64().unwrap()).sum()
    };
    assert_eq!(messages(&batches, "in"), 1000);
    assert_eq!((messages(&stages, "main.set"), messages(&stages, "out")), (1000, 1000));
    let identifiers: BTreeSet<&str> = batches.iter().map(|span| span["span_id"].as_str().unwrap()).collect();
    for stage in stages {
        assert!(identifiers.contains(stage["parent_span_id"].as_str().unwrap()), "{stage}");
    }
    assert!(batches.iter().all(|batch| batch["attributes"]["outcome"] == "delivered"), "{batches:?}");
}

/// The receiver accepts connections and never answers.
#[test]
fn a_run_ends_well_although_its_receiver_never_answers_and_tells_no_secret() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("--telemetry=http://user:PASS-1a2b3c@{}", silent.local_addr().unwrap());
    let house = House::with(&[("c.yaml", RUN)]);
    let mut run = house.command(&["run", "c.yaml", &endpoint]);
    run.env("OTEL_EXPORTER_OTLP_HEADERS", "api-key=KEY-4d5e6f");
    let ended = said(run.output().unwrap());
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert_eq!(house.lines("out.txt").len(), 1000);
    assert_eq!(ended.err.matches("telemetry is not sent").count(), 1, "{}", ended.err);
    assert!(!ended.err.contains("PASS-1a2b3c") && !ended.err.contains("KEY-4d5e6f"), "{}", ended.err);
}

#[test]
fn a_dead_receiver_is_logged_once_and_counted_each_time() {
    let house = House::with(&[("c.yaml", ENDLESS)]);
    let mut command = house.command(&["run", "c.yaml", "--log-format", "json", "--listen", "127.0.0.1:0"]);
    command.arg("--telemetry=http://127.0.0.1:1");
    command.env("OTEL_METRIC_EXPORT_INTERVAL", "50");
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let service = Service::of(child);
    let line = line_of(&mut log, |line| line["event"] == "listening");
    let address = line["message"].as_str().and_then(|text| text.split('/').nth(2)).unwrap().to_owned();
    let rest = std::thread::spawn(move || {
        let mut rest = String::new();
        log.read_to_string(&mut rest).unwrap();
        rest
    });
    let patience = Patience::begin();
    loop {
        let (_, metrics) = asked(&address, "/metrics");
        let failures =
            metrics.lines().find_map(|line| line.strip_prefix("thalweg_telemetry_failures_total "));
        if failures.unwrap().parse::<u64>().unwrap() >= 3 {
            assert!(metrics.contains("\nthalweg_telemetry_traces_dropped_total 0\n"), "{metrics}");
            break;
        }
        patience.check(|| metrics.clone());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(service.stop(), Some(0));
    let log = rest.join().unwrap();
    assert_eq!(log.matches("telemetry is not sent").count(), 1, "{log}");
    assert!(log.contains("the connection was refused"), "{log}");
}

#[test]
fn variables_of_the_environment_count_only_on_request() {
    let house = House::with(&[("c.yaml", SHORT)]);
    let run = |arguments: &[&str], variable: (&str, &str)| {
        said(house.command(arguments).env(variable.0, variable.1).output().unwrap())
    };
    let protocol = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    assert_eq!(run(&["run", "c.yaml"], protocol).code, Some(0));
    let refused = run(&["run", "c.yaml", "--telemetry"], protocol);
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(refused.err.contains("`OTEL_EXPORTER_OTLP_PROTOCOL` is `grpc`"), "{}", refused.err);
    let off = run(&["run", "c.yaml", "--telemetry=http://127.0.0.1:1"], ("OTEL_SDK_DISABLED", "true"));
    assert!(off.code == Some(0) && !off.err.contains("telemetry"), "{}", off.err);
    let dry = run(&["run", "c.yaml", "--dry-run", "--telemetry=http://127.0.0.1:1"], ("A", "B"));
    assert!(dry.code == Some(0) && !dry.err.contains("telemetry"), "{}", dry.err);
}

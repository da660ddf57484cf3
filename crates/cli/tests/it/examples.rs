//! Every example runs as it is and writes something; every configuration in the repository is valid.

use std::fs;
use std::path::{Path, PathBuf};

use thalweg_testkit::servers::{Mood, Server, System};

use crate::common::{self, House};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

fn configurations(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "yaml")).collect();
    // The slim build has no images.
    found.retain(|path| cfg!(feature = "images") || !path.ends_with("photos.yaml"));
    found.sort();
    found
}

#[test]
fn every_example_runs_and_loses_nothing() {
    let house = House::with(&[]);
    let folder = house.path();
    for data in ["data", "data/photos"] {
        fs::create_dir(folder.join(data)).unwrap();
        for entry in fs::read_dir(examples().join(data)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                fs::copy(&path, folder.join(data).join(path.file_name().unwrap())).unwrap();
            }
        }
    }
    let all = configurations(&examples());
    assert!(all.len() >= 6);
    for path in all {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# "), "{name} opens with a line that says what it shows");
        fs::write(folder.join(&name), text).unwrap();
        house.run_well(&["run", &name]);
    }
    let listing = |sub: &str| fs::read_dir(folder.join("out").join(sub)).unwrap().count();
    for sub in ["weather", "packages", "flights", "balance", "errors"] {
        assert!(listing(sub) > 0, "{sub}");
    }
    if cfg!(not(feature = "images")) {
        return;
    }
    for sub in ["photos/small", "photos/aside"] {
        assert!(listing(sub) > 0, "{sub}");
    }
    fs::copy(examples().join("photos-service.yml"), folder.join("photos-service.yml")).unwrap();
    let ran = house.run(&["run", "photos-service.yml", "photos:archive"]);
    assert_eq!((ran.code, listing("photos/archive")), (Some(1), 2), "{}{}", ran.out, ran.err);
}

#[test]
fn every_configuration_in_the_repository_is_right() {
    let root = examples().join("..");
    let folders = [examples(), root.join("bench/cases")];
    for path in folders.iter().flat_map(|folder| configurations(folder)) {
        let folder = path.parent().unwrap();
        let mut command = common::command(folder, &["check", path.to_str().unwrap()]);
        command.env("INPUT", "in").env("OUTPUT", "out").env("COUNT", "1");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", common::said(output).err);
    }
}

#[test]
fn every_components_example_runs_in_an_empty_folder() {
    let known = House::with(&[]).run_well(&["components", "--json"]).out;
    let known: Vec<serde_json::Value> = serde_json::from_str(&known).unwrap();
    assert!(known.len() > 20);
    for component in known {
        let (example, _broker) = with_broker(component["example"].as_str().unwrap());
        let (example, _system) = with_system(component["name"].as_str().unwrap(), &example);
        let house = House::with(&[("example.yaml", &example)]);
        // Some examples wait for a client, and some need a file that an empty folder does not have. They are
        // only checked.
        let waits = example.trim_start().starts_with("# Runs until it is stopped.");
        if waits || needs_file(&component) {
            house.run_well(&["check", "example.yaml"]);
            continue;
        }
        // `encode: json` writes columns only, so a source of a broker would drop its payload.
        let is_broker = ["amqp", "aws_kinesis_streams", "aws_sqs", "kafka", "mqtt", "nats", "redis"]
            .iter()
            .any(|name| component["name"] == *name);
        let drops = is_broker && example.contains("end_after_idle") && example.contains("encode: json");
        assert!(!drops || example.contains("parse_json"), "{}", component["name"]);
        let said = house.run_well(&["run", "--strict", "example.yaml"]);
        assert!(said.err.contains("done in"), "{}: {}", component["name"], said.err);
    }
}

/// True for a component that reads a file of its own: a database, a descriptor set, or a table.
fn needs_file(component: &serde_json::Value) -> bool {
    ["geoip", "join", "parse_protobuf"].iter().any(|name| component["name"] == *name)
}

/// The brokers in examples, and those that stand for them here, which live as long as they are held. They
/// have what the examples of the sources read.
fn with_broker(example: &str) -> (String, Option<Box<dyn std::any::Any>>) {
    const AMAZON: &str = "127.0.0.1:4566";
    const AMQP: &str = "127.0.0.1:5672";
    const KAFKA: &str = "127.0.0.1:9092";
    const MQTT: &str = "127.0.0.1:1883";
    const NATS: &str = "127.0.0.1:4222";
    const REDIS: &str = "127.0.0.1:6379";
    const POSTGRES: &str = "127.0.0.1:5432";
    if cfg!(feature = "aws") && example.contains(AMAZON) {
        let amazon = thalweg_testkit::amazon::AmazonServer::start().unwrap();
        amazon.create_queue("orders.fifo");
        amazon.create_topic("orders");
        amazon.enqueue("orders", (0..10).map(|number| format!("order {number}")));
        amazon.create_stream("events", 2);
        amazon.put_records("events", (0..10).map(|number| ("k", format!("event {number}"))));
        amazon.create_delivery_stream("archive");
        return (example.replace(AMAZON, &amazon.address().to_string()), Some(Box::new(amazon)));
    }
    if cfg!(feature = "kafka") && example.contains(KAFKA) {
        let kafka = thalweg_testbed::Kafka::start(2).unwrap();
        let event = |number| thalweg_testbed::Record::new("events", format!("event {number}"));
        kafka.store((0..100).map(event)).unwrap();
        return (example.replace(KAFKA, &kafka.address().to_string()), Some(Box::new(kafka)));
    }
    if cfg!(feature = "amqp") && example.contains(AMQP) {
        let amqp = thalweg_testbed::Amqp::shared().unwrap();
        amqp.declare("orders", &[]).unwrap();
        amqp.publish("", "orders", (0..100).map(|number| format!("order {number}"))).unwrap();
        return (example.replace(AMQP, &amqp.address().to_string()), Some(Box::new(amqp)));
    }
    if cfg!(feature = "mqtt") && example.contains(MQTT) {
        let mqtt = thalweg_testbed::Mqtt::start().unwrap();
        mqtt.publish_with(&["-t", "sensors/kitchen", "-q", "1", "-m", "21.5", "-r"]).unwrap();
        return (example.replace(MQTT, &mqtt.address().to_string()), Some(Box::new(mqtt)));
    }
    if cfg!(feature = "nats") && example.contains(NATS) {
        let nats = thalweg_testbed::Nats::start().unwrap();
        nats.create_stream("EVENTS", &["events.>"]).unwrap();
        let event = |number| thalweg_testbed::NatsMessage::new("events.shop", format!("event {number}"));
        nats.store((0..100).map(event)).unwrap();
        return (example.replace(NATS, &nats.address().to_string()), Some(Box::new(nats)));
    }
    if cfg!(feature = "redis") && example.contains(REDIS) {
        let redis = thalweg_testbed::Redis::start().unwrap();
        let event = |_| vec!["XADD", "events", "*", "payload", "event", "service", "shop"];
        redis.call_all((0..100).map(event)).unwrap();
        return (example.replace(REDIS, &redis.address().to_string()), Some(Box::new(redis)));
    }
    if cfg!(feature = "postgres") && example.contains(POSTGRES) {
        let postgres = thalweg_testbed::Postgres::start().unwrap();
        let tables = "CREATE TABLE events (id bigserial PRIMARY KEY, name text NOT NULL, at timestamptz DEFAULT now());
                      INSERT INTO events (name) SELECT 'event ' || n FROM generate_series(1, 100) AS n;
                      CREATE TABLE visits (id bigint PRIMARY KEY, service text);
                      GRANT ALL ON events, visits TO thalweg; GRANT ALL ON SCHEMA public TO thalweg";
        postgres.run_in("shop", tables).unwrap();
        return (example.replace(POSTGRES, &postgres.address().to_string()), Some(Box::new(postgres)));
    }
    (example.to_owned(), None)
}

/// The systems that sinks write to, and sources ask, by HTTP in examples, each with its address there.
const SYSTEMS: [(&str, System, &str); 10] = [
    ("clickhouse", System::Lines, "127.0.0.1:8123"),
    ("datadog_logs", System::Datadog, "127.0.0.1:10518"),
    ("elasticsearch", System::Elasticsearch, "127.0.0.1:9200"),
    ("http_client", System::Items, "127.0.0.1:8000"),
    ("influxdb", System::Influxdb, "127.0.0.1:8086"),
    ("loki", System::Loki, "127.0.0.1:3100"),
    ("otlp", System::Otlp, "127.0.0.1:4318"),
    ("prometheus_remote_write", System::Prometheus, "127.0.0.1:9090"),
    ("prometheus_scrape", System::Metrics, "127.0.0.1:9100"),
    ("splunk_hec", System::Splunk, "127.0.0.1:8088"),
];

/// The server that stands for a system in an example.
fn with_system(name: &str, example: &str) -> (String, Option<Server>) {
    // The source of the name `otlp` sends to no system.
    let is_it = |system: &str, shown: &str| system == name && (name != "otlp" || example.contains(shown));
    let Some((_, system, shown)) = SYSTEMS.iter().find(|(system, _, shown)| is_it(system, shown)) else {
        return (example.to_owned(), None);
    };
    assert!(example.contains(shown), "{name}");
    let server = Server::system(*system, Mood::Well).unwrap();
    (example.replace(shown, &server.address()), Some(server))
}

/// A budget that is too small for a component is a mistake that says how much it needs. All others work.
#[test]
fn every_components_example_ends_with_almost_no_memory() {
    let known = House::with(&[]).run_well(&["components", "--json"]).out;
    let known: Vec<serde_json::Value> = serde_json::from_str(&known).unwrap();
    for component in known {
        let (example, _broker) = with_broker(component["example"].as_str().unwrap());
        let (example, _system) = with_system(component["name"].as_str().unwrap(), &example);
        // The example of this sink sends to a source of the same run, whose memory it holds.
        let is_loop = component["name"] == "http" && example.contains("received:");
        let waits = example.trim_start().starts_with("# Runs until it is stopped.");
        if waits || is_loop || needs_file(&component) {
            continue;
        }
        let house = House::with(&[("example.yaml", &format!("memory: 1KiB\n{example}"))]);
        let ran = house.run(&["run", "example.yaml"]);
        let minimum = ["of memory for a file, but `memory` is 1KiB", "set `memory` to at least "];
        let names_minimum = minimum.iter().any(|minimum| ran.err.contains(minimum));
        assert!(ran.code == Some(0) || names_minimum, "{}: {}", component["name"], ran.err);
    }
}

//! A secret is planted in each option of each registered component, and everything that the program prints,
//! stores and serves is searched for it. See docs/decisions/076.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use thalweg_engine::{Flow, Role};

use crate::common::{self, House};
use crate::secrets::{search, search_files};

/// A component, one of its options (none for the component as a whole), and what stands there.
struct Place {
    role: Role,
    takes: Option<Flow>,
    name: &'static str,
    option: Option<String>,
    value: String,
    /// The other options.
    rest: String,
}

/// The values that are planted in an option.
fn values(option: &str) -> Vec<&'static str> {
    let mut values = vec!["'${PLANTED}'"];
    values.extend(match option {
        "address" | "url" => &[
            "'http://USER-88d1e2:PASS-c4fe17@127.0.0.1:1/${PLANTED}?t=QUERY-90ab3f'",
            "'webdav://USER-88d1e2:PASS-c4fe17@127.0.0.1:1/a?token=QUERY-90ab3f'",
            "'s3://b/k?endpoint=http://127.0.0.1:1&region=eu&access_key_id=USER-88d1e2&secret_access_key=PASS-c4fe17'",
            "'tcp://USER-88d1e2:PASS-c4fe17@127.0.0.1:1'",
            "'${PLANTED}:1'",
        ][..],
        "headers" => &["{ X-Api-Key: HEADER-1b2c3d, X-Other: 'Bearer ${PLANTED}' }"],
        "auth" => &[
            "{ bearer: BEARER-77aa00 }",
            "{ user: alice, password: PASS-c4fe17 }",
            "{ user: alice, password: '${PLANTED}', other: 1 }",
        ],
        "tls" => &["{ certificate: '${PLANTED}', key: '${PLANTED}', ca: '${PLANTED}', other: '${PLANTED}' }"],
        _ => &[],
    });
    values
}

/// A value for an option that must be there.
fn needed(role: Role, name: &str, option: &str, schema: &Value) -> String {
    match (role, name, option) {
        (Role::Sink, "http", "address") => "'http://127.0.0.1:1/in'".to_owned(),
        // Without a region, no credentials are looked for.
        (_, "aws_kinesis_streams" | "aws_sqs", _) => "logs".to_owned(),
        (_, "aws_sns", _) => "'arn:aws:sns::123456789012:logs'".to_owned(),
        (_, "kafka", "brokers") => "'127.0.0.1:1'".to_owned(),
        (_, "kafka", _) => "logs".to_owned(),
        (Role::Sink, "clickhouse" | "elasticsearch" | "influxdb" | "loki", "url")
        | (Role::Sink, "datadog_logs" | "otlp" | "prometheus_remote_write" | "splunk_hec", "url")
        | (Role::Source, "http_client" | "prometheus_scrape" | "sse", "url") => {
            "'http://127.0.0.1:1'".to_owned()
        }
        (_, "websocket_client", "url") => "'ws://127.0.0.1:1'".to_owned(),
        (Role::Sink, "loki", "labels") => "{ job: test }".to_owned(),
        (Role::Sink, "clickhouse" | "elasticsearch", _) => "logs".to_owned(),
        (_, "postgres", "server") => "'127.0.0.1:1'".to_owned(),
        (_, "postgres", "table") => "logs".to_owned(),
        (_, "amqp" | "mqtt" | "nats", "servers") => "'127.0.0.1:1'".to_owned(),
        (_, "amqp" | "mqtt" | "nats", _) => "logs".to_owned(),
        (_, "redis", "servers") => "'127.0.0.1:1'".to_owned(),
        (_, "redis", "command") => "rpush".to_owned(),
        (_, "redis", _) => "logs".to_owned(),
        (_, "socket" | "proxy", "address") => "'tcp://127.0.0.1:1'".to_owned(),
        (Role::Sink, "websocket", _) | (Role::Source, _, "address") => "'127.0.0.1:0'".to_owned(),
        (Role::Source, _, _) => "rows.csv".to_owned(),
        _ => match &schema["examples"][0] {
            Value::Null => "out/x".to_owned(),
            example => example.to_string(),
        },
    }
}

/// All places where a configuration may have a secret.
fn places() -> Vec<Place> {
    let house = House::with(&[]);
    let mut places = Vec::new();
    for known in thalweg_components::registry().iter() {
        let shown = house.run_well(&["components", known.name, "--json"]).out;
        let shown: Value = serde_json::from_str(&shown).unwrap();
        let all = shown.as_array().cloned().unwrap_or_else(|| vec![shown]);
        let of_role = all.iter().find(|shown| shown["role"] == known.role.name()).unwrap();
        let schema = &of_role["schema"];
        let place = |option: Option<&str>, value: &str| {
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let rest = required.filter(|needs| Some(*needs) != option).map(|needs| {
                let value = needed(known.role, known.name, needs, &schema["properties"][needs]);
                format!(", {needs}: {value}")
            });
            let (option, value, rest) = (option.map(str::to_owned), value.to_owned(), rest.collect());
            Place { role: known.role, takes: known.takes, name: known.name, option, value, rest }
        };
        for option in schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()) {
            places.extend(values(option).into_iter().map(|value| place(Some(option), value)));
        }
        for value in ["'${PLANTED}'", "['${PLANTED}']", "{ a: '${PLANTED}' }"] {
            places.push(place(None, value));
        }
    }
    places
}

impl Place {
    /// True if the value belongs to a connection, so that no output may have it.
    fn is_of_a_connection(&self) -> bool {
        // A URL without a scheme is a path, and a dead letter has the path of its file.
        let is_path = self.option.as_deref() == Some("url") && self.value.starts_with("'${");
        let of_connections = ["address", "url", "headers", "auth", "tls", "htpasswd"];
        self.option.as_deref().is_some_and(|option| of_connections.contains(&option)) && !is_path
    }

    fn configuration(&self) -> String {
        let options = match &self.option {
            Some(option) => format!("{{ {option}: {}{} }}", self.value, self.rest),
            None => self.value.clone(),
        };
        let component = format!("{{ {}: {options} }}", self.name);
        let gives_files = ["files", "objects", "remote_files", "http_upload"].contains(&self.name);
        let files = "{ files: { path: rows.csv } }".to_owned();
        let (source, transforms, sink) = match (self.role, self.takes) {
            (Role::Source, _) if gives_files => {
                (component, String::new(), "{ directory: { path: out } }".to_owned())
            }
            (Role::Source, _) => (component, String::new(), "discard".to_owned()),
            (Role::Transform, Some(Flow::Files)) => {
                let sink = if ["csv", "lines"].contains(&self.name) {
                    "discard"
                } else {
                    "{ directory: { path: out } }"
                };
                (files, format!(" transforms: [ {component} ],"), sink.to_owned())
            }
            (Role::Transform, _) => (
                "{ generate: { lines: ['{\"a\": 1}'] } }".to_owned(),
                format!(" transforms: [ parse_json: {{}}, {component} ],"),
                "discard".to_owned(),
            ),
            (Role::Sink, Some(Flow::Files)) => (files, String::new(), component),
            (Role::Sink, _) => {
                ("{ generate: { lines: ['{\"a\": 1}'] } }".to_owned(), String::new(), component)
            }
        };
        format!(
            "sources: {{ in: {source} }}\npipelines: {{ main: {{ from: in,{transforms} to: out }} }}\n\
             sinks: {{ out: {sink} }}\n"
        )
    }

    fn house(&self) -> House {
        House::with(&[("c.yaml", &self.configuration()), ("rows.csv", "a,b\n1,2\n")])
    }

    fn what(&self) -> String {
        format!("{} {:?}: {}", self.name, self.option, self.value)
    }
}

fn check(place: &Place) {
    let house = place.house();
    for arguments in [&["check", "c.yaml"][..], &["check", "c.yaml", "--plan", "--json"]] {
        let mut command = house.command(arguments);
        let said = common::said(command.env("PLANTED", "VARIABLE-7f3a91").output().unwrap());
        search(&format!("check of {}", place.what()), &(said.out + &said.err));
    }
}

fn ask(address: &str, path: &str) -> String {
    let mut answer = String::new();
    if let Ok(mut stream) = TcpStream::connect(address) {
        // The run may end meanwhile.
        let _ = write!(stream, "GET {path} HTTP/1.0\r\n\r\n")
            .and_then(|()| stream.read_to_string(&mut answer).map(drop));
    }
    answer
}

/// Runs it until it has tried to connect, and stops it. An error of a connection is temporary: the program
/// retries without end, and still does so after SIGTERM unless `--drain-timeout` limits that.
fn run(place: &Place) {
    let house = place.house();
    let arguments =
        ["run", "c.yaml", "--json", "--state", "kept", "--listen", "127.0.0.1:0", "--drain-timeout", "0"];
    let mut command = house.command(&arguments);
    command.env("PLANTED", "VARIABLE-7f3a91").env("THALWEG_LOG", "trace").stderr(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let (mut said, mut served) = (String::new(), String::new());
    loop {
        let start = said.len();
        if log.read_line(&mut said).unwrap() == 0 {
            break;
        }
        let Ok(event) = serde_json::from_str::<Value>(&said[start..]) else { continue };
        if event["event"] == "listening" {
            let address =
                event["message"].as_str().and_then(|text| text.split('/').nth(2)).unwrap().to_owned();
            // Connections to port 1 are refused at once.
            std::thread::sleep(Duration::from_millis(300));
            served = ask(&address, "/health") + &ask(&address, "/metrics");
            let id = rustix::process::Pid::from_child(&child);
            // It may have ended by itself.
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
    }
    let mut printed = String::new();
    child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    child.wait().unwrap();
    search(&format!("the log of {}", place.what()), &said);
    search(&format!("what is served of {}", place.what()), &served);
    search(&format!("standard output of {}", place.what()), &printed);
    for folder in ["kept", "out"].map(|name| house.path().join(name)).iter().filter(|path| path.is_dir()) {
        search_files(folder);
    }
    let mut command = house.command(&["errors", "list", "c.yaml", "--state", "kept", "--json"]);
    let said = common::said(command.env("PLANTED", "VARIABLE-7f3a91").output().unwrap());
    search(&format!("the dead letters of {}", place.what()), &(said.out + &said.err));
}

/// Works on all places, several at a time.
fn each(places: &[Place], work: fn(&Place)) {
    let part = places.len().div_ceil(4).max(1);
    std::thread::scope(|scope| {
        places.chunks(part).for_each(|places| drop(scope.spawn(|| places.iter().for_each(work))));
    });
}

#[test]
fn no_option_of_any_component_is_shown_with_its_secret() {
    let places = places();
    assert!(places.len() > 300, "{}", places.len());
    each(&places, check);
}

#[test]
fn no_connection_of_any_component_tells_its_secret() {
    let places: Vec<Place> = places().into_iter().filter(Place::is_of_a_connection).collect();
    assert!(places.len() > 40, "{}", places.len());
    each(&places, run);
}

//! The HTTP API of a run, its socket, and the commands that use them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use thalweg_testbed::Patience;

use crate::common::House;

/// The lines of the source `in`, which come in turn without end. A prime number.
const LINES: usize = 997;

/// A source of numbered lines, and another one whose messages are rejected by turns.
pub fn configuration() -> String {
    let lines: Vec<String> = (0..LINES).map(|line| format!("'{line}'")).collect();
    format!(
        "\
sources:
  in: {{ generate: {{ lines: [{}], count: 1000000000, rate: 500 }} }}
  mixed: {{ generate: {{ lines: ['{{\"n\": 1}}', 'no JSON'], count: 1000000000, rate: 100 }} }}
pipelines:
  main: {{ from: in, to: out }}
  parsed: {{ from: mixed, transforms: [parse_json], to: other }}
sinks:
  out: {{ file: {{ path: out.txt, atomic: false }} }}
  other: discard
",
        lines.join(", ")
    )
}

/// A run that listens, and is killed if its test fails.
pub struct Running {
    child: Child,
    log: BufReader<ChildStderr>,
    pub address: String,
    socket: PathBuf,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    pub fn start(house: &House, options: &[&str]) -> Self {
        Self::at(house, "127.0.0.1:0", "state", options)
    }

    fn at(house: &House, listen: &str, state: &str, options: &[&str]) -> Self {
        let mut command = house.command(&["run", "c.yaml", "--json", "--listen", listen, "--state", state]);
        let mut child = command.args(options).stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let socket = house.path().join(state).join("control.sock");
        let mut running = Self { child, log, address: String::new(), socket };
        let said = running.event("listening");
        let port = said["message"].as_str().unwrap().split('/').nth(2).unwrap().rsplit(':').next().unwrap();
        running.address = format!("127.0.0.1:{port}");
        let patience = Patience::begin();
        while running.get("/ready").0 != 200 {
            patience.check(|| "the run is not ready".to_owned());
        }
        running
    }

    /// Reads the log up to an event.
    fn event(&mut self, name: &str) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.log.read_line(&mut line).unwrap() > 0, "it ended without `{name}`");
            let line: Value = serde_json::from_str(&line).unwrap();
            if line["event"] == name {
                return line;
            }
        }
    }

    pub fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).unwrap()
    }

    /// Returns the status and the body of an answer.
    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
        let mut all = format!("Host: {}\r\n", self.address);
        if headers.iter().any(|(name, _)| *name == "Host") {
            all.clear();
        }
        headers.iter().for_each(|(name, value)| all += &format!("{name}: {value}\r\n"));
        exchange(self.connect(), method, path, &all, body)
    }

    pub fn get(&self, path: &str) -> (u16, String) {
        self.ask("GET", path, &[], "")
    }

    pub fn value(&self, path: &str) -> Value {
        let (status, body) = self.get(path);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    pub fn post(&self, path: &str, body: &str) -> (u16, Value) {
        let (status, body) = self.ask("POST", path, &[("Content-Type", "application/json")], body);
        (status, serde_json::from_str(&body).unwrap())
    }

    /// The value of a counter of a component.
    fn counter(&self, component: &str, counter: &str) -> u64 {
        let stats = self.value("/api/v1/stats");
        named(&stats["components"], "name", component)[counter].as_u64().unwrap()
    }

    fn source(&self, name: &str) -> String {
        let stats = self.value("/api/v1/stats");
        named(&stats["sources"], "name", name)["state"].as_str().unwrap().to_owned()
    }

    /// Waits until a counter is higher than it was.
    fn grows(&self, component: &str, counter: &str) {
        let (patience, first) = (Patience::begin(), self.counter(component, counter));
        while self.counter(component, counter) == first {
            patience.check(|| format!("`{counter}` of `{component}` stays {first}"));
        }
    }

    /// Waits until a counter no longer grows.
    fn rests(&self, component: &str, counter: &str) {
        let patience = Patience::begin();
        let mut last = self.counter(component, counter);
        let mut same = 0;
        while same < 20 {
            std::thread::sleep(Duration::from_millis(10));
            let now = self.counter(component, counter);
            same = if now == last { same + 1 } else { 0 };
            last = now;
            patience.check(|| format!("`{counter}` of `{component}` still grows: {now}"));
        }
    }

    /// Asks the run to stop, and returns its summary.
    pub fn stop(mut self) -> Value {
        assert_eq!(self.post("/api/v1/stop", ""), (200, json!({ "stopping": true })));
        let summary = self.event("summary");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        assert!(!self.socket.exists());
        summary
    }
}

fn named<'v>(list: &'v Value, key: &str, name: &str) -> &'v Value {
    let found = list.as_array().unwrap().iter().find(|entry| entry[key] == name);
    found.unwrap_or_else(|| panic!("no `{name}` in {list}"))
}

/// Sends a request, and returns the status and the body of its answer.
pub fn exchange(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> (u16, String) {
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n");
    stream.write_all((head + body).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer}"));
    let lower = head.to_lowercase();
    assert!(
        lower.contains("cache-control: no-store") && lower.contains("x-content-type-options: nosniff"),
        "{head}"
    );
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Asserts that the file has the numbered lines in turn: none is missing, and none is there twice.
fn has_each_line_once(house: &House) -> usize {
    let lines = house.lines("out.txt");
    for (at, line) in lines.iter().enumerate() {
        assert_eq!(*line, (at % LINES).to_string(), "line {at} of {}", lines.len());
    }
    lines.len()
}

#[test]
fn a_paused_source_reads_nothing_and_loses_nothing() {
    let house = House::with(&[("c.yaml", &configuration())]);
    let running = Running::start(&house, &[]);
    running.grows("out", "rows_out");
    for _ in 0..2 {
        assert_eq!(
            running.post("/api/v1/sources/in/pause", ""),
            (200, json!({ "source": "in", "state": "paused" }))
        );
        running.rests("in", "rows_in");
        running.rests("out", "rows_out");
        // The other source goes on.
        running.grows("mixed", "rows_in");
        assert_eq!(running.source("in"), "paused");
        assert!(running.get("/metrics").1.contains("thalweg_source_paused{component=\"in\"} 1\n"));
        assert_eq!(running.post("/api/v1/sources/in/resume", "{}").1["state"], "running");
        running.grows("out", "rows_out");
    }
    let (status, answer) = running.post("/api/v1/sources/none/pause", "");
    assert!(status == 404 && answer["error"] == "no source has this name; there are: in, mixed", "{answer}");
    let summary = running.stop();
    let read = named(&summary["components"], "name", "in")["rows_in"].as_u64().unwrap();
    assert_eq!(has_each_line_once(&house) as u64, read);
}

#[test]
fn a_run_that_stops_ends_also_if_a_source_is_paused() {
    let house = House::with(&[("c.yaml", &configuration())]);
    let running = Running::start(&house, &[]);
    running.post("/api/v1/sources/in/pause", "");
    running.rests("in", "rows_in");
    running.stop();
    has_each_line_once(&house);
}

#[test]
fn a_drained_source_ends_alone() {
    let house = House::with(&[("c.yaml", &configuration())]);
    let running = Running::start(&house, &[]);
    running.grows("out", "rows_out");
    let (status, answer) = running.post("/api/v1/sources/in/drain", "");
    assert!(status == 200 && ["draining", "ended"].contains(&answer["state"].as_str().unwrap()), "{answer}");
    let patience = Patience::begin();
    while running.source("in") != "ended" {
        patience.check(|| "the source does not end".to_owned());
    }
    running.grows("mixed", "rows_in");
    running.post("/api/v1/sources/in/resume", "");
    assert_eq!(running.source("in"), "ended");
    running.stop();
    has_each_line_once(&house);
}

#[test]
fn counters_edges_and_latencies_are_those_of_the_run() {
    let house = House::with(&[("c.yaml", &configuration())]);
    let running = Running::start(&house, &[]);
    running.grows("out", "rows_out");
    let about = running.value("/api/v1");
    assert_eq!(about["pid"], running.child.id());
    assert_eq!(about["configurations"], json!(["c.yaml"]));
    assert_eq!((&about["started"], &about["stopping"]), (&json!(true), &json!(false)));
    let graph = running.value("/api/v1/graph");
    assert_eq!(named(&graph["sources"], "name", "in")["kind"], "generate");
    // Options may have secrets.
    assert!(!graph.to_string().contains("out.txt"), "{graph}");
    let patience = Patience::begin();
    let stats = loop {
        let stats = running.value("/api/v1/stats");
        if named(&stats["latencies"], "source", "in")["total"].as_u64().unwrap() > 0 {
            break stats;
        }
        patience.check(|| format!("no latency: {stats}"));
    };
    let edges = stats["edges"].as_array().unwrap();
    let edge = edges.iter().find(|edge| edge["from"] == "in" && edge["output"] == "main").unwrap();
    assert!(edge["messages"].as_u64().unwrap() > 0, "{edge}");
    assert!(stats["budget"]["limit"].as_u64().unwrap() > 0, "{stats}");
    for holder in ["in", "out", "dead letters", "other work"] {
        assert!(named(&stats["budget"]["holders"], "name", holder)["bytes"].is_u64(), "{stats}");
    }
    assert!(stats["dead_letters"]["full"].is_null(), "{stats}");
    let (_, metrics) = running.get("/metrics");
    for line in [
        "thalweg_source_latency_seconds_bucket{component=\"in\",le=\"+Inf\"} ",
        "thalweg_source_latency_seconds_count{component=\"in\"} ",
        "thalweg_source_oldest_unsettled_seconds{component=\"in\"} ",
        "thalweg_edge_messages_total{from=\"in\",output=\"main\",to=\"out\"} ",
        "thalweg_budget_held_bytes{holder=\"in\"} ",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let description = running.value("/api/v1/openapi.json");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operating/api.md");
    let page = std::fs::read_to_string(page).unwrap();
    for path in description["paths"].as_object().unwrap().keys() {
        assert!(page.contains(path), "docs/operating/api.md has no `{path}`");
    }
    running.stop();
}

#[test]
fn a_tap_shows_messages_and_rejects() {
    let house = House::with(&[("c.yaml", &configuration())]);
    let running = Running::start(&house, &[]);
    let said = house.run_well(&[
        "tap",
        "state",
        "mixed",
        "parsed.parse_json.errors",
        "--rate",
        "1000",
        "--limit",
        "40",
        "--json",
    ]);
    let messages: Vec<Value> = said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |edge: &'static str| messages.iter().filter(move |message| message["edge"] == edge);
    assert!(of("mixed").any(|message| message["payload"] == "{\"n\": 1}"), "{}", said.out);
    assert!(of("mixed").any(|message| message["payload"] == "no JSON"), "{}", said.out);
    let rejected = of("parsed.parse_json").next().unwrap_or_else(|| panic!("{}", said.out));
    assert_eq!((&rejected["output"], &rejected["payload"]), (&json!("errors"), &json!("no JSON")));
    assert!(!rejected["reason"].as_str().unwrap().is_empty(), "{rejected}");
    let plain = house.run_well(&["tap", &running.address, "out", "--limit", "2"]).out;
    assert!(plain.lines().count() == 2 && plain.lines().all(|line| line.contains(" out ")), "{plain}");
    let unknown = house.run(&["tap", "state", "none"]);
    assert!(
        unknown.code == Some(3) && unknown.err.contains("nothing has such a name; there are: in, "),
        "{}",
        unknown.err
    );
    let events = {
        let mut stream = running.connect();
        write!(stream, "GET /api/v1/tap?edge=in&format=sse HTTP/1.0\r\n\r\n").unwrap();
        let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.to_lowercase() == "content-type: text/event-stream"));
        lines.find(|line| line.starts_with("data: {")).unwrap()
    };
    assert!(events.contains("\"edge\":\"in\""), "{events}");
    for (query, status) in
        [("", 400), ("?edge=in&rate=0", 400), ("?edge=in&colour=red", 400), ("?edge=none", 404)]
    {
        assert_eq!(running.get(&format!("/api/v1/tap{query}")).0, status, "{query}");
    }
    running.stop();
}

#[test]
fn a_client_of_a_tap_that_reads_nothing_does_not_slow_the_run_and_taps_are_limited() {
    let text = "sources: { in: { generate: { message: '%30000s' } } }\n\
                pipelines: { main: { from: in, to: out } }\nsinks: { out: discard }\n";
    let house = House::with(&[("c.yaml", text)]);
    let running = Running::start(&house, &[]);
    let mut slow = Vec::new();
    let patience = Patience::begin();
    let refused = loop {
        let mut stream = running.connect();
        write!(stream, "GET /api/v1/tap?edge=in&rate=1000&max_bytes=32768 HTTP/1.0\r\n\r\n").unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).unwrap();
        match std::str::from_utf8(&start[9..]).unwrap() {
            "200" => slow.push(stream),
            other => break other.to_owned(),
        }
        patience.check(|| format!("{} taps", slow.len()));
    };
    assert_eq!((refused.as_str(), slow.len()), ("429", 16));
    let first = running.counter("out", "rows_in");
    let patience = Patience::begin();
    while running.counter("out", "rows_in") < first + 5_000 {
        patience.check(|| "the run does not go on".to_owned());
    }
    drop(slow);
    // The places are free again, once the run has noticed.
    let patience = Patience::begin();
    while house.run(&["tap", "state", "in", "--limit", "1"]).code != Some(0) {
        patience.check(|| "the taps of clients that are gone stay".to_owned());
    }
    running.stop();
}

#[test]
fn a_token_is_asked_for_and_never_shown() {
    const TOKEN: &str = "correct-horse-battery";
    let house = House::with(&[("c.yaml", &configuration()), ("token", TOKEN)]);
    let running = Running::start(&house, &["--api-token-file", "token"]);
    let with = |token: &str| {
        let header = format!("Bearer {token}");
        running.ask("GET", "/api/v1", &[("Authorization", header.as_str())], "")
    };
    assert_eq!(running.get("/api/v1").0, 401);
    assert_eq!(with("correct-horse-batterx").0, 401);
    let (status, answer) = with(TOKEN);
    assert!(status == 200 && !answer.contains(TOKEN), "{answer}");
    assert_eq!(running.get("/metrics").0, 200);
    let refused = house.run(&["source", "pause", "in", &running.address]);
    assert!(refused.code == Some(3) && refused.err.contains("--token-file"), "{}", refused.err);
    let paused = house.run_well(&["source", "pause", "in", &running.address, "--token-file", "token"]);
    assert_eq!(paused.out, "in: paused\n");
    // The socket is for the user of the run alone, and needs none.
    assert_eq!(house.run_well(&["source", "resume", "in", "state"]).out, "in: running\n");
    let short = House::with(&[("c.yaml", &configuration()), ("token", "short")]);
    let said = short.run(&["run", "c.yaml", "--listen", "127.0.0.1:0", "--api-token-file", "token"]);
    assert!(said.code == Some(3) && said.err.contains("needs 16"), "{}", said.err);
    assert!(!said.err.contains("short"), "{}", said.err);
}

#[test]
fn an_address_of_the_network_has_metrics_and_no_api_without_a_token() {
    let house = House::with(&[("c.yaml", &configuration())]);
    let running = Running::at(&house, "0.0.0.0:0", "state", &[]);
    let (status, answer) = running.get("/api/v1/stats");
    assert!(status == 403 && answer.contains("--api-token-file"), "{answer}");
    assert_eq!(running.post("/api/v1/stop", "").0, 403);
    assert_eq!((running.get("/metrics").0, running.get("/").0, running.get("/health").0), (200, 200, 200));
}

#[test]
fn requests_of_other_sites_and_wrong_ones_are_refused() {
    let house = House::with(&[("c.yaml", &configuration())]);
    let running = Running::start(&house, &[]);
    let json = ("Content-Type", "application/json");
    let own = format!("http://{}", running.address);
    let status = |headers: &[(&str, &str)], body: &str| {
        running.ask("POST", "/api/v1/sources/mixed/pause", headers, body).0
    };
    assert_eq!(status(&[json, ("Host", "evil.example")], ""), 403);
    assert_eq!(status(&[json, ("Origin", "http://evil.example")], ""), 403);
    assert_eq!(status(&[json, ("Sec-Fetch-Site", "cross-site")], ""), 403);
    assert_eq!(status(&[json, ("Host", "127.0.0.1"), ("Host", "evil.example")], ""), 400);
    assert_eq!(status(&[json, json], ""), 400);
    let twice = running.post("/api/v1/dead_letters/discard", r#"{"all":false,"all":true}"#);
    assert_eq!(twice.0, if cfg!(target_os = "linux") { 400 } else { 501 });
    assert_eq!(status(&[("Content-Type", "text/plain")], ""), 415);
    assert_eq!(status(&[], ""), 415);
    assert_eq!(status(&[json], &"x".repeat((64 << 10) + 1)), 413);
    assert_eq!(running.source("mixed"), "running");
    assert_eq!(status(&[json, ("Origin", own.as_str())], ""), 200);
    assert_eq!(running.ask("GET", "/api/v1/stop", &[], "").0, 405);
    assert_eq!(running.get("/api/v1/nothing").0, 404);
    assert_eq!(running.get("/nothing").0, 404);
    for level in ["debug", "warn"] {
        let answer = running.post("/api/v1/log_level", &json!({ "level": level }).to_string());
        assert_eq!(answer, (200, json!({ "level": level })));
    }
    assert_eq!(running.post("/api/v1/log_level", "{\"level\":\"x=loud\"}").0, 400);
    // Monitoring asks under any name.
    assert_eq!(running.ask("GET", "/metrics", &[("Host", "evil.example")], "").0, 200);
    running.stop();
}

#[test]
fn the_socket_is_private_replaces_that_of_a_killed_run_and_goes_with_its_run() {
    let house = House::with(&[("c.yaml", &configuration())]);
    let mut killed = Running::start(&house, &[]);
    let socket = killed.socket.clone();
    let ask = || exchange(UnixStream::connect(&socket).unwrap(), "GET", "/api/v1", "Host: localhost\r\n", "");
    let found = std::fs::symlink_metadata(&socket).unwrap();
    assert!(found.file_type().is_socket() && found.permissions().mode() & 0o777 == 0o600);
    assert_eq!(ask().0, 200);
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    assert!(socket.exists());
    assert!(house.run_well(&["ps"]).out.starts_with("no runs\n"));
    let running = Running::start(&house, &[]);
    let about: Value = serde_json::from_str(&ask().1).unwrap();
    assert_eq!(about["pid"], running.child.id());
    running.stop();
    assert!(!socket.exists());
}

#[test]
fn a_state_directory_with_a_long_path_has_a_socket_too() {
    let house = House::with(&[("c.yaml", &configuration())]);
    let state = format!("{}/{}", "d".repeat(100), "e".repeat(100));
    std::fs::create_dir(house.path().join("d".repeat(100))).unwrap();
    let running = Running::at(&house, "127.0.0.1:0", &state, &[]);
    assert_eq!(house.run_well(&["source", "pause", "mixed", &state]).out, "mixed: paused\n");
    running.stop();
}

#[test]
fn runs_are_listed_and_shown_in_the_terminal() {
    let house = House::with(&[("c.yaml", &configuration())]);
    assert!(house.run_well(&["ps"]).out.starts_with("no runs\n"));
    let none = house.run(&["top"]);
    assert!(none.code == Some(2) && none.err.contains("no run"), "{}", none.err);
    let running = Running::start(&house, &[]);
    running.grows("out", "rows_out");
    let listed = house.run_well(&["ps"]).out;
    let pid = running.child.id().to_string();
    assert!(
        listed.lines().nth(1).is_some_and(|line| line.starts_with(&pid) && line.contains("c.yaml")),
        "{listed}"
    );
    let json: Value = serde_json::from_str(&house.run_well(&["ps", "--json", "."]).out).unwrap();
    assert_eq!(json["about"]["pid"], running.child.id());
    // Without a place, the only run that is found.
    for arguments in [&["top"][..], &["top", "state"], &["top", running.address.as_str()]] {
        let shown = house.run_well(arguments).out;
        assert!(shown.starts_with("c.yaml  running, pid "), "{shown}");
        for name in ["\nin ", "\nmixed ", "\nparsed.parse_json ", "\nout "] {
            assert!(shown.contains(name), "{name}: {shown}");
        }
        assert!(!shown.contains('\u{1b}'), "{shown}");
    }
    assert_eq!(house.run_well(&["source", "drain", "in"]).out.split(": ").next(), Some("in"));
    running.stop();
    let gone = house.run(&["top", "state"]);
    assert!(gone.code == Some(3) && gone.err.contains("does not answer"), "{}", gone.err);
}

#[test]
fn a_stop_ends_repeated_runs_and_a_signal_does_the_rest() {
    let house = House::with(&[("c.yaml", &configuration())]);
    let mut running = Running::start(&house, &["--repeat"]);
    assert_eq!(running.post("/api/v1/stop", "").0, 200);
    running.event("stopping");
    running.event("summary");
    assert_eq!(running.child.wait().unwrap().code(), Some(0));
    let mut signalled = Running::start(&house, &[]);
    kill_process(Pid::from_child(&signalled.child), Signal::TERM).unwrap();
    assert_eq!(signalled.child.wait().unwrap().code(), Some(0));
    assert!(!signalled.socket.exists());
}

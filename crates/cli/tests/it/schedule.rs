//! Runs on a schedule, what the process says between them, and the history that runs leave.
//!
//! The schedules of these tests have seconds. No test asserts when a run begins.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use serde_json::{Value, json};
use thalweg_testbed::Patience;

use crate::api::exchange;
use crate::common::{House, said};
use crate::services::{Service, asked, line_of, listening};

const EVERY_SECOND: &str = "* * * * * *";
/// It does not come while a test runs, unless the year changes.
const YEARLY: &str = "'@yearly'";

/// Copies new lines of a file in each run.
fn copying(schedule: &str) -> String {
    format!(
        "\
schedule: {schedule}
state: state
sources: {{ in: {{ file: {{ path: in.txt }} }} }}
pipelines: {{ main: {{ from: in, to: out }} }}
sinks: {{ out: {{ file: {{ path: out.txt, atomic: false }} }} }}
"
    )
}

/// A run that lasts for at least three seconds, so that times of [`EVERY_SECOND`] pass meanwhile.
fn slow(options: &str) -> String {
    format!(
        "\
schedule: {{ cron: '{EVERY_SECOND}'{options} }}
sources: {{ in: {{ generate: {{ lines: [a], count: 31, rate: 10 }} }} }}
pipelines: {{ main: {{ from: in, to: out }} }}
sinks: {{ out: discard }}
"
    )
}

/// A run that fails.
fn failing(options: &str) -> String {
    format!(
        "\
schedule: {{ cron: '{EVERY_SECOND}'{options} }}
state: state
sources: {{ in: {{ exec: {{ command: [/bin/sh, -c, 'exit 7'] }} }} }}
pipelines: {{ main: {{ from: in, to: out }} }}
sinks: {{ out: discard }}
"
    )
}

const ENDLESS: &str = "\
sources: { in: { generate: { lines: [a], count: 1000000000, rate: 200 } } }
pipelines: { main: { from: in, to: out } }
sinks: { out: discard }
";

/// The records of the state directory, the latest first.
fn records(house: &House) -> Vec<Value> {
    let listed = house.run(&["runs", "list", "state", "--limit", "1000", "--json"]);
    let is_ready = listed.code == Some(0);
    let lines = listed.out.lines().filter(|_| is_ready);
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits until the records are as wanted.
fn until(house: &House, is_reached: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let patience = Patience::begin();
    loop {
        let records = records(house);
        if is_reached(&records) {
            return records;
        }
        patience.check(|| format!("{records:?}"));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn with_outcome(records: &[Value], outcome: &str) -> usize {
    records.iter().filter(|record| record["outcome"] == outcome).count()
}

fn read(records: &[Value]) -> u64 {
    records.iter().map(|record| record["read"].as_u64().unwrap()).sum()
}

/// Starts a service that listens, and returns its address. Its log is not needed, and read: a full pipe would
/// block the service.
fn started(house: &House, arguments: &[&str]) -> (Service, String) {
    let (service, log, address) = listening(house, arguments);
    dropped(log);
    (service, address)
}

/// Reads the rest of a log on a thread.
fn dropped(mut log: impl Read + Send + 'static) {
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
}

/// Returns the status and the body of an answer of the API.
fn api(address: &str, method: &str, path: &str) -> (u16, Value) {
    sent(address, method, path, "")
}

/// As [`api`], with this body.
fn sent(address: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
    let headers = format!("Host: {address}\r\nContent-Type: application/json\r\n");
    let stream = TcpStream::connect(address).unwrap();
    let (status, body) = exchange(stream, method, path, &headers, body);
    (status, serde_json::from_str(&body).unwrap())
}

/// The value of a metric. None if there is none, or a run ended while it was asked.
fn metric(address: &str, name: &str) -> Option<u64> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// Waits until a metric has at least this value, and returns it.
fn until_metric(address: &str, name: &str, least: u64) -> u64 {
    let patience = Patience::begin();
    loop {
        let value = metric(address, name);
        if let Some(value) = value.filter(|value| *value >= least) {
            return value;
        }
        patience.check(|| format!("`{name}` is {value:?}"));
        std::thread::sleep(Duration::from_millis(20));
    }
}

const SUCCEEDED: &str = "thalweg_scheduled_runs_total{outcome=\"succeeded\"}";
const FAILED: &str = "thalweg_scheduled_runs_total{outcome=\"failed\"}";
const SKIPPED: &str = "thalweg_scheduled_runs_total{outcome=\"skipped\"}";

#[test]
fn each_run_of_a_schedule_goes_on_where_the_last_one_ended() {
    let house = House::with(&[("c.yaml", &copying(&format!("'{EVERY_SECOND}'"))), ("in.txt", "1\n2\n3\n")]);
    let (service, address) = started(&house, &[]);
    until(&house, |records| with_outcome(records, "done") > 0 && read(records) == 3);
    let mut input = File::options().append(true).open(house.path().join("in.txt")).unwrap();
    input.write_all(b"4\n").unwrap();
    let found = until(&house, |records| with_outcome(records, "done") > 2 && read(records) == 4);
    assert_eq!(with_outcome(&found, "failed") + with_outcome(&found, "interrupted"), 0, "{found:?}");
    until_metric(&address, SUCCEEDED, 3);
    assert_eq!(service.stop(), Some(0));
    assert_eq!(house.lines("out.txt"), ["1", "2", "3", "4"]);
    assert_eq!(with_outcome(&records(&house), "running"), 0);
}

#[test]
fn a_process_that_waits_says_so_and_ends_at_once() {
    let config = copying(&format!("{{ cron: {YEARLY}, timezone: Europe/Berlin }}"));
    let house = House::with(&[("c.yaml", &config), ("in.txt", "1\n")]);
    let (service, address) = started(&house, &[]);
    for path in ["/health", "/ready"] {
        let (status, body) = asked(&address, path);
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &body["status"]), (200, &"waiting".into()));
        let next = body["next_run"].as_str().unwrap();
        assert!(next.ends_with("-01-01T00:00:00+01:00"), "{next}");
    }
    let (status, about) = api(&address, "GET", "/api/v1");
    assert_eq!((status, &about["started"]), (200, &false.into()));
    assert!(about["next_run"].as_str().unwrap().ends_with("+01:00"), "{about}");
    let (status, refused) = api(&address, "GET", "/api/v1/stats");
    assert!(status == 409 && refused["error"].as_str().unwrap().starts_with("no run is active"), "{refused}");
    for path in ["/api/v1/graph", "/api/v1/dead_letters", "/api/v1/tap?edge=in"] {
        assert_eq!(api(&address, "GET", path).0, 409, "{path}");
    }
    assert_eq!(api(&address, "POST", "/api/v1/sources/in/pause").0, 409);
    assert_eq!(api(&address, "GET", "/api/v1/runs"), (200, json!({ "runs": [] })));
    assert!(metric(&address, "thalweg_next_run_timestamp_seconds").is_some());
    assert_eq!((metric(&address, SUCCEEDED), metric(&address, FAILED)), (Some(0), Some(0)));
    assert_eq!(sent(&address, "POST", "/api/v1/log_level", "{\"level\":\"info\"}").0, 200);
    assert_eq!(api(&address, "POST", "/api/v1/stop"), (200, json!({ "stopping": true })));
    assert_eq!(service.ended(), Some(0));
    let (service, mut log, _) = listening(&house, &[]);
    assert_eq!(service.stop(), Some(0));
    let mut rest = String::new();
    log.read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("summary"), "{rest}");
    assert!(!house.path().join("out.txt").exists() && !house.path().join("state").exists());
}

/// Receives messages for the service manager until they are as wanted.
fn received(socket: &UnixDatagram, is_enough: impl Fn(&str) -> bool) -> String {
    let mut received = String::new();
    let mut message = [0; 4096];
    while !is_enough(&received) {
        let length = socket.recv(&mut message).unwrap_or_else(|error| panic!("{error}: {received}"));
        received += std::str::from_utf8(&message[..length]).unwrap();
        received.push('\n');
    }
    received
}

#[test]
fn a_service_that_waits_for_its_first_run_is_ready_for_systemd() {
    let house = House::with(&[("c.yaml", &copying(YEARLY)), ("in.txt", "1\n")]);
    let path = house.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut command = house.command(&["run", "c.yaml", "--quiet"]);
    let service = Service::of(command.env("NOTIFY_SOCKET", &path).spawn().unwrap());
    received(&socket, |received| {
        received.contains("READY=1\n") && received.contains("STATUS=waiting: the next run begins at ")
    });
    assert_eq!(service.stop(), Some(0));
}

#[test]
fn a_schedule_whose_address_is_taken_is_a_failed_start() {
    let house = House::with(&[("c.yaml", &copying(YEARLY)), ("in.txt", "1\n")]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let path = house.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let mut command = house.command(&["run", "c.yaml", "--listen", &address]);
    let ended = said(command.env("NOTIFY_SOCKET", &path).output().unwrap());
    assert!(ended.code != Some(0) && ended.err.contains("cannot listen on "), "{}", ended.err);
    socket.set_nonblocking(true).unwrap();
    let mut message = [0; 4096];
    while let Ok(length) = socket.recv(&mut message) {
        let text = std::str::from_utf8(&message[..length]).unwrap();
        assert!(!text.contains("READY=1"), "{text}");
    }
}

#[test]
fn a_secret_that_is_being_replaced_fails_a_run_and_not_the_process() {
    let config = "\
schedule: '* * * * * *'
sources: { in: { generate: { lines: [a], count: 1 } } }
pipelines: { main: { from: in, transforms: [filter: \"payload <> '${file:secret}'\"], to: out } }
sinks: { out: discard }
";
    let house = House::with(&[("c.yaml", config), ("secret", "first-1a2b3c\n")]);
    let (service, address) = started(&house, &[]);
    until_metric(&address, SUCCEEDED, 1);
    std::fs::remove_file(house.path().join("secret")).unwrap();
    until_metric(&address, FAILED, 1);
    house.write("secret", b"second-4d5e6f\n");
    let succeeded = until_metric(&address, SUCCEEDED, 1);
    until_metric(&address, SUCCEEDED, succeeded + 2);
    assert_eq!(service.stop(), Some(0));
}

#[test]
fn a_repeated_run_that_cannot_begin_is_tried_again_and_is_not_ready_for_systemd() {
    let house = House::with(&[("c.yaml", ENDLESS)]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let options = ["run", "c.yaml", "--quiet", "--listen", address.as_str(), "--repeat"];
    let tried = house.run(&[&options[..], &["--iterations", "3", "--sleep", "0"]].concat());
    let errors = tried.err.lines().filter(|line| line.starts_with("error: ")).count();
    assert!(tried.code != Some(0) && errors == 3, "{}", tried.err);
    let path = house.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut command = house.command(&[&options[..], &["--sleep", "1h"]].concat());
    let service = Service::of(command.env("NOTIFY_SOCKET", &path).spawn().unwrap());
    let received = received(&socket, |received| received.contains("STATUS=waiting: "));
    assert!(!received.contains("READY=1"), "{received}");
    assert_ne!(service.stop(), Some(0));
}

#[test]
fn times_that_come_while_a_run_is_active_are_skipped_with_a_warning() {
    let house = House::with(&[("c.yaml", &slow(""))]);
    let (service, mut log, address) = listening(&house, &[]);
    // On a slow machine, a run also begins late, with another warning.
    line_of(&mut log, |line| {
        let text = line["message"].as_str().unwrap_or_default();
        line["level"] == "warn"
            && text.starts_with("skipped ")
            && text.ends_with(" of the schedule: one is still active")
    });
    dropped(log);
    until_metric(&address, SKIPPED, 2);
    assert_eq!(service.stop(), Some(0));
}

#[test]
fn one_time_that_comes_while_a_run_is_active_is_queued() {
    let house = House::with(&[("c.yaml", &slow(", overlap: queue"))]);
    let (service, address) = started(&house, &[]);
    until_metric(&address, SUCCEEDED, 2);
    // One of the times that a run passes is queued, and the others are not.
    until_metric(&address, SKIPPED, 2);
    assert_eq!(service.stop(), Some(0));
}

#[test]
fn a_failed_run_is_followed_by_the_next_one_unless_the_schedule_stops() {
    let house = House::with(&[("c.yaml", &failing(", on_failure: continue"))]);
    let (service, address) = started(&house, &[]);
    let found = until(&house, |records| with_outcome(records, "failed") > 1);
    let error = found.last().unwrap()["error"].as_str().unwrap();
    assert!(error.contains('7'), "{error}");
    until_metric(&address, FAILED, 2);
    drop(service);
    let house = House::with(&[("c.yaml", &failing(", on_failure: stop"))]);
    let stopped = house.run(&["run", "c.yaml", "--quiet"]);
    assert!(stopped.code == Some(3) && stopped.err.contains("error: "), "{}", stopped.err);
    let found = records(&house);
    assert_eq!((found.len(), with_outcome(&found, "failed")), (1, 1), "{found:?}");
}

#[test]
fn a_killed_run_was_interrupted_and_the_next_start_completes_its_record() {
    let house = House::with(&[("c.yaml", ENDLESS)]);
    let state = ["--state", "state"];
    let (service, address) = started(&house, &state);
    until(&house, |records| with_outcome(records, "running") == 1);
    assert_eq!(api(&address, "GET", "/api/v1/runs").1["runs"][0]["outcome"], "running");
    drop(service);
    let found = until(&house, |records| with_outcome(records, "interrupted") == 1);
    assert_eq!((&found[0]["id"], &found[0]["ended"]), (&1.into(), &Value::Null));
    assert!(house.path().join("state/runs/1.running").exists());
    let (service, address) = started(&house, &state);
    until(&house, |records| with_outcome(records, "running") == 1);
    assert!(house.path().join("state/runs/1.json").exists());
    let (status, shown) = api(&address, "GET", "/api/v1/runs/1");
    assert_eq!((status, &shown["outcome"]), (200, &"interrupted".into()));
    assert_eq!(api(&address, "GET", "/api/v1/runs?limit=1").1["runs"].as_array().unwrap().len(), 1);
    assert_eq!(api(&address, "GET", "/api/v1/runs/3").0, 404);
    assert_eq!(api(&address, "GET", "/api/v1/runs/x").0, 404);
    let read =
        "thalweg_component_received_messages_total{component=\"in\",kind=\"generate\",role=\"source\"}";
    until_metric(&address, read, 1);
    assert_eq!(service.stop(), Some(0));
    let found = records(&house);
    assert_eq!((found.len(), &found[0]["outcome"]), (2, &"stopped".into()));
    let listed = house.run_well(&["runs", "list"]).out;
    assert!(listed.starts_with("ID  STARTED (UTC)") && listed.contains("  interrupted  –  "), "{listed}");
    let shown = house.run_well(&["runs", "show", "2"]).out;
    assert!(shown.contains("outcome        stopped\n") && shown.contains("\nCOMPONENT  KIND "), "{shown}");
    let shown: Value =
        serde_json::from_str(&house.run_well(&["runs", "show", "2", "state", "--json"]).out).unwrap();
    assert_eq!(shown["components"][0]["name"], "in");
    assert!(shown["components"][0]["rows_in"].as_u64() > Some(0), "{shown}");
    let none = house.run(&["runs", "show", "9"]);
    assert!(none.code == Some(2) && none.err.contains("there is no run 9"), "{}", none.err);
    let nowhere = house.run(&["runs", "list", "in"]);
    assert!(
        nowhere.code == Some(2) && nowhere.err.contains("no run has left a record in `in`"),
        "{}",
        nowhere.err
    );
}

#[test]
fn a_record_has_the_digest_of_the_configuration_and_no_secret() {
    let config = "\
sources: { in: { exec: { command: [/bin/sh, -c, 'echo \"$PLANTED\" >&2; exit 1'] } } }
pipelines: { main: { from: in, transforms: [filter: \"payload <> '${PLANTED}'\"], to: out } }
sinks: { out: discard }
";
    let house = House::with(&[("c.yaml", config)]);
    let mut command = house.command(&["run", "c.yaml", "--state", "state", "--quiet"]);
    command.env("PLANTED", "planted-1a2b3c").output().unwrap();
    let record = &records(&house)[0];
    assert!(record["outcome"] == "failed" && record["error"].is_string(), "{record}");
    let digest = record["configuration_digest"].as_str().unwrap();
    assert!(digest.starts_with("sha256:") && digest.len() == 71, "{digest}");
    assert!(!house.read("state/runs/1.json").contains("planted-1a2b3c"));
    // Runs without checkpoints and dry runs leave none.
    let house = House::with(&[("c.yaml", ENDLESS)]);
    house.run_well(&["run", "c.yaml", "--quiet", "--limit", "3"]);
    house.run_well(&["run", "c.yaml", "--quiet", "--limit", "3", "--state", "state", "--dry-run"]);
    assert!(records(&house).is_empty());
}

#[test]
fn a_schedule_that_makes_no_sense_is_refused_and_may_be_set_aside() {
    let house = House::with(&[("c.yaml", &copying(YEARLY)), ("in.txt", "1\n")]);
    let repeated = house.run(&["run", "c.yaml", "--repeat"]);
    assert!(repeated.code == Some(2) && repeated.err.contains("`--schedule off`"), "{}", repeated.err);
    let wrong = house.run(&["run", "c.yaml", "--schedule", "61 * * * *"]);
    assert!(wrong.code == Some(2) && wrong.err.contains("`61` is not a minute"), "{}", wrong.err);
    let dry = house.run_well(&["run", "c.yaml", "--dry-run", "--quiet"]);
    assert!(dry.out.contains("\"out\""), "{}", dry.out);
    house.run_well(&["run", "c.yaml", "--schedule", "off", "--quiet"]);
    assert_eq!(house.lines("out.txt"), ["1"]);
    assert_eq!(read(&records(&house)), 1);
    house.write("c.yaml", copying("{ cron: '@daily', timezone: Berlin }").as_bytes());
    let checked = house.run(&["check", "c.yaml"]);
    assert!(
        checked.code == Some(2) && checked.err.contains("`Berlin` is not a time zone"),
        "{}",
        checked.err
    );
}

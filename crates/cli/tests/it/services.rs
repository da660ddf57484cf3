//! A service: what it tells systemd, monitoring, and those who look for a fault.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use thalweg_testbed::Patience;

use crate::common::House;

/// A process that is killed if its test fails.
pub struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Service {
    pub fn of(child: Child) -> Self {
        Self(child)
    }

    pub fn stop(self) -> Option<i32> {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        self.ended()
    }

    /// Waits until it ends by itself.
    pub fn ended(mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

const ENDLESS: &str = "\
sources: { in: { generate: { message: '%8d', rate: 200 } } }
pipelines: { main: { from: in, to: out } }
sinks: { out: discard }
";

/// Messages that cannot be processed, until the dead letters are full.
const FULL: &str = "\
sources: { in: { generate: { message: 'no JSON', rate: 100 } } }
pipelines: { main: { from: in, transforms: [parse_json], to: out } }
sinks: { out: discard }
dead_letters: { max_count: 40 }
";

/// Starts a service that listens, and returns its log and its address.
pub fn listening(house: &House, arguments: &[&str]) -> (Service, BufReader<ChildStderr>, String) {
    let mut command = house.command(&["run", "c.yaml", "--log-format", "json", "--listen", "127.0.0.1:0"]);
    let mut child = command.args(arguments).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let service = Service(child);
    let line = line_of(&mut log, |line| line["event"] == "listening");
    let address = line["message"].as_str().and_then(|text| text.split('/').nth(2)).unwrap().to_owned();
    (service, log, address)
}

/// Reads the log up to a line.
pub fn line_of(log: &mut impl BufRead, is_it: impl Fn(&Value) -> bool) -> Value {
    loop {
        let mut line = String::new();
        assert!(log.read_line(&mut line).unwrap() > 0, "it ended");
        let line = serde_json::from_str(&line).unwrap();
        if is_it(&line) {
            return line;
        }
    }
}

/// Returns the status and the body of an answer.
pub fn asked(address: &str, path: &str) -> (u16, String) {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Runs a service that tells `address` how it goes, and compares what the socket receives.
fn tells(house: &House, socket: &UnixDatagram, address: &str) {
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let lines = |until: &str| {
        let mut received: Vec<String> = Vec::new();
        let mut message = [0; 4096];
        while !received.iter().any(|line| line == until) {
            let length = socket.recv(&mut message).unwrap_or_else(|error| panic!("no {until}: {error}"));
            let text = std::str::from_utf8(&message[..length]).unwrap();
            received.extend(text.lines().map(str::to_owned));
        }
        received
    };
    let mut command = house.command(&["run", "c.yaml", "--quiet"]);
    command.env("NOTIFY_SOCKET", address).env("WATCHDOG_USEC", "2000000");
    let service = Service(command.spawn().unwrap());
    let until_ready = lines("READY=1");
    assert!(!until_ready.contains(&"STOPPING=1".to_owned()), "{until_ready:?}");
    lines("WATCHDOG=1");
    assert_eq!(service.stop(), Some(0));
    let until_stopping = lines("STOPPING=1");
    assert!(!until_stopping.contains(&"READY=1".to_owned()), "{until_stopping:?}");
}

#[test]
fn systemd_is_told_that_a_service_is_ready_and_alive_and_that_it_stops() {
    let house = House::with(&[("c.yaml", ENDLESS)]);
    let path = house.path().join("notify");
    tells(&house, &UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap());
    let name = format!("thalweg-it-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    tells(&house, &UnixDatagram::bind_addr(&address).unwrap(), &format!("@{name}"));
}

#[test]
fn a_job_is_ready_even_if_it_ends_at_once_and_one_that_cannot_start_is_not() {
    let text = "sources: { in: { generate: { lines: [a], count: 1 } } }\n\
                pipelines: { main: { from: in, to: out } }\nsinks: { out: discard }\n";
    let house = House::with(&[("c.yaml", text), ("wrong.yaml", "sources: {}\n")]);
    let path = house.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_nonblocking(true).unwrap();
    let received = |config: &str| {
        let mut command = house.command(&["run", config, "--quiet"]);
        command.env("NOTIFY_SOCKET", &path).output().unwrap();
        let mut text = String::new();
        let mut message = [0; 4096];
        while let Ok(length) = socket.recv(&mut message) {
            text += std::str::from_utf8(&message[..length]).unwrap();
            text.push('\n');
        }
        text
    };
    assert!(received("c.yaml").contains("READY=1\n"));
    assert!(!received("wrong.yaml").contains("READY=1"));
}

#[test]
fn full_dead_letters_are_no_health_and_are_listed_while_the_run_waits() {
    let house = House::with(&[("c.yaml", FULL)]);
    let (service, _log, address) = listening(&house, &["--state", "state"]);
    while asked(&address, "/ready") != (200, "{\"status\":\"ready\"}\n".to_owned()) {}
    let health = loop {
        match asked(&address, "/health") {
            (200, body) => assert_eq!(body, "{\"status\":\"ok\",\"problems\":[]}\n"),
            (_, body) => break body,
        }
    };
    let health: Value = serde_json::from_str(&health).unwrap();
    assert_eq!(
        (&health["status"], &health["problems"][0]["component"]),
        (&"failing".into(), &"dead letters".into())
    );
    let reason = health["problems"][0]["reason"].as_str().unwrap();
    assert!(reason.starts_with("the dead letters are full"), "{reason}");
    assert!(asked(&address, "/metrics").1.contains("\nthalweg_dead_letters_full 1\n"));
    // It still takes input, as far as there is room.
    assert_eq!(asked(&address, "/ready").0, 200);
    let state = ["c.yaml", "--state", "state"];
    let listed = house.run_well(&[&["errors", "list"][..], &state].concat()).out;
    assert!(listed.contains("main.parse_json") && listed.contains(" dead letters\n"), "{listed}");
    let shown = house.run_well(&[&["errors", "show", "1"][..], &state, &["--payload"]].concat()).out;
    assert_eq!(shown, "no JSON");
    let none = house.run(&[&["errors", "show", "4000"][..], &state].concat());
    assert!(none.code == Some(2) && none.err.contains("there is no dead letter 4000"), "{}", none.err);
    // Only one process replays them.
    let replayed = house.run(&["errors", "replay", "c.yaml", "--state", "state"]);
    assert!(replayed.code == Some(3) && replayed.err.contains("another run is using it"), "{}", replayed.err);
    let count = |text: &str| text.lines().next_back().map(str::to_owned);
    let before = count(&listed);
    service.stop();
    assert_eq!(count(&house.run_well(&[&["errors", "list"][..], &state].concat()).out), before);
}

/// The value of a metric without labels; 0 if there is none.
fn metric(address: &str, name: &str) -> u64 {
    let (_, metrics) = asked(address, "/metrics");
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_default().parse().unwrap_or_default()
}

#[test]
fn a_run_whose_dead_letters_are_full_goes_on_once_some_are_removed() {
    let house = House::with(&[("c.yaml", FULL)]);
    let (service, _log, address) = listening(&house, &["--state", "state"]);
    let value = |name: &str| metric(&address, name);
    let patience = Patience::begin();
    let mut kept = 0;
    for _ in 0..3 {
        while value("thalweg_dead_letters_full") == 0 || value("thalweg_dead_letters_total") <= kept {
            patience.check(|| "the dead letters are not full".to_owned());
        }
        kept = value("thalweg_dead_letters_total");
        let cleared = house.run_well(&["errors", "clear", "c.yaml", "--state", "state", "--yes"]).err;
        assert!(cleared.starts_with("removed ") && cleared.ends_with(" dead letters\n"), "{cleared}");
    }
    service.stop();
    // Numbers are not used again, and what was removed is gone.
    let first = house.run(&["errors", "show", "1", "c.yaml", "--state", "state"]);
    assert!(first.code == Some(2) && first.err.contains("there is no dead letter 1"), "{}", first.err);
}

/// None of the messages is acknowledged before all of them are kept.
#[test]
fn a_batch_with_more_dead_letters_than_may_be_kept_passes_as_some_are_removed() {
    const MESSAGES: u64 = 50;
    let text = "dead_letters: { max_count: 10, when_full: wait }\n\
                sources: { in: { file: { path: in.jsonl, follow: true } } }\n\
                pipelines: { main: { from: in, to: out, transforms: [parse_json] } }\nsinks: { out: discard }\n";
    let house = House::with(&[("c.yaml", text), ("in.jsonl", &"broken\n".repeat(MESSAGES as usize))]);
    let (service, _log, address) = listening(&house, &["--state", "state"]);
    let value = |name: &str| metric(&address, name);
    let patience = Patience::begin();
    // The letters of a batch are counted once all of them are kept.
    while value("thalweg_dead_letters_total") < MESSAGES {
        patience.check(|| "the letters are not kept".to_owned());
        if value("thalweg_dead_letters_full") == 1 {
            house.run(&["errors", "clear", "c.yaml", "--state", "state", "--yes"]);
        }
    }
    service.stop();
}

/// A checkpoint had the good half of a batch in the output, and the next run wrote it again.
#[test]
fn what_a_run_wrote_while_its_dead_letters_were_full_is_not_written_again_by_the_next_one() {
    let configuration = |follow: bool, letters: u32| {
        format!(
            "dead_letters: {{ max_count: {letters}, when_full: wait }}\n\
             sources: {{ in: {{ file: {{ path: in.jsonl, follow: {follow} }} }} }}\n\
             pipelines: {{ main: {{ from: in, to: out, transforms: [parse_json] }} }}\n\
             sinks: {{ out: {{ file: {{ path: out.jsonl, atomic: false }} }} }}\n"
        )
    };
    let good: Vec<String> = (0..100).map(|number| format!("{{\"n\":{number}}}")).collect();
    let input: String = good.iter().map(|line| format!("{line}\nbroken\n")).collect();
    let house = House::with(&[("c.yaml", &configuration(true, 10)), ("in.jsonl", &input)]);
    let arguments = ["run", "c.yaml", "--state", "state", "--log-format", "json", "--drain-timeout", "1s"];
    let mut command = house.command(&arguments);
    let mut child = command.env("THALWEG_LOG", "debug").stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let service = Service(child);
    let is_held = |line: &Value| line["message"].as_str().is_some_and(|text| text.contains("messages move"));
    line_of(&mut log, is_held);
    assert_eq!(service.stop(), Some(3));
    assert_eq!(house.lines("out.jsonl"), good);
    house.write("c.yaml", configuration(false, 1000).as_bytes());
    house.run_well(&["run", "c.yaml", "--state", "state"]);
    assert_eq!(house.lines("out.jsonl"), good);
}

#[test]
fn a_line_of_the_log_names_the_component_and_the_time() {
    let house = House::with(&[(
        "c.yaml",
        "sources: { in: { generate: { message: x, rate: 100 } } }\n\
         pipelines: { main: { from: in, to: { failover: [broken, out] } } }\n\
         sinks: { broken: { file: { path: taken } }, out: discard }\n",
    )]);
    std::fs::create_dir(house.path().join("taken")).unwrap();
    let (service, mut log, _) = listening(&house, &[]);
    let line = line_of(&mut log, |line| line["component"] == "broken");
    assert_eq!((&line["event"], &line["level"]), (&"log".into(), &"warn".into()));
    assert!(line["message"].as_str().unwrap().starts_with("`broken` failed "), "{line}");
    assert!(line["module"].as_str().unwrap().starts_with("thalweg_"), "{line}");
    let time = line["time"].as_str().unwrap();
    assert!(time.len() == 24 && time.ends_with('Z'), "{time}");
    service.stop();
}

#[test]
fn every_metric_is_on_its_page() {
    let house = House::with(&[("c.yaml", FULL)]);
    let (service, _log, address) = listening(&house, &["--state", "state"]);
    let (_, served) = asked(&address, "/metrics");
    service.stop();
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operating/metrics.md");
    let page = std::fs::read_to_string(page).unwrap();
    let names: BTreeSet<&str> =
        served.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(names.len() > 10, "{served}");
    for name in names {
        assert!(page.contains(&format!("| `{name}` |")), "docs/operating/metrics.md has no `{name}`");
    }
}

#[test]
fn the_limits_of_a_run_are_shown_to_those_who_ask() {
    let text = "sources: { in: { generate: { lines: [a], count: 1 } } }\n\
                pipelines: { main: { from: in, to: out } }\nsinks: { out: discard }\n";
    let house = House::with(&[("c.yaml", text)]);
    assert!(!house.run_well(&["run", "c.yaml"]).err.contains("limits: "));
    let said = house.run_well(&["run", "c.yaml", "-v", "--memory", "32MiB", "--threads", "2"]).err;
    assert!(said.contains("limits: 32.0 MiB in flight, 2 threads, "), "{said}");
}

#[test]
fn a_support_bundle_has_no_secret_and_no_data() {
    const PLANTED: [&str; 5] =
        ["VARIABLE-1a2b3c", "FILE-4d5e6f", "PASS-7a8b9c", "TOKEN-0d1e2f", "INPUT-3a4b5c"];
    let house = House::with(&[
        (
            "c.yaml",
            "\
sources: { in: { file: { path: in.txt } } }
pipelines: { main: { from: in, transforms: [parse_json, filter: \"a != '${PLANTED}'\"], to: [far, near] } }
sinks:
  far: { http: { url: 'http://user:PASS-7a8b9c@127.0.0.1:1/in?token=TOKEN-0d1e2f', headers: { X-Key: '${file:secret}' } } }
  near: { http: { url: 'http://127.0.0.1:1/', auth: { user: bob, password: q9Z } } }
",
        ),
        ("wrong.yaml", "sources: { in: { http: { addres: x } } }\n"),
        ("secret", "FILE-4d5e6f\n"),
        ("in.txt", "INPUT-3a4b5c\n"),
    ]);
    let started = |arguments: &[&str]| {
        let mut command = house.command(arguments);
        command.env("PLANTED", PLANTED[0]);
        command
    };
    // A dead letter with the input is in the state.
    let drained = ["run", "c.yaml", "--state", "state", "--quiet", "--drain-timeout", "0"];
    started(&drained).output().unwrap();
    let bundle =
        ["support-bundle", "c.yaml", "--state", "state", "-o", "b.tar.gz", "--metrics", "127.0.0.1:1"];
    let said = started(&bundle).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let said = String::from_utf8(said.stdout).unwrap();
    let archive = house.path().join("b.tar.gz");
    assert_eq!(std::fs::metadata(&archive).unwrap().permissions().mode() & 0o777, 0o600);
    let tar = |options: &str| {
        let output = Command::new("tar").args([options, "-f"]).arg(&archive).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let (names, texts) = (tar("-tz"), tar("-xzO"));
    for name in
        ["version.txt", "host.json", "configuration-1.yaml", "plan-1.txt", "state-1.json", "metrics.txt"]
    {
        assert!(names.contains(&format!("thalweg-support/{name}\n")), "{names}");
        assert!(said.contains(&format!("  {name}\n")), "{said}");
    }
    for part in
        ["parse_json", "How it will run", "${PLANTED}", "${file:secret}", "\"kernel\"", "inventory", "bob"]
    {
        assert!(texts.contains(part), "{part}: {texts}");
    }
    for secret in PLANTED {
        assert!(!texts.contains(secret) && !said.contains(secret), "{secret}: {texts}");
    }
    assert!(!texts.contains("q9Z"), "{texts}");
    let again = started(&bundle).output().unwrap();
    assert_eq!(again.status.code(), Some(2));
    let wrong = house.run_well(&["support-bundle", "wrong.yaml", "-o", "wrong.tar.gz"]).out;
    assert!(wrong.contains("mistakes-1.txt"), "{wrong}");
}

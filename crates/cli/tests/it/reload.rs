//! A configuration that changes while it runs: `--watch`, `thalweg reload`, SIGHUP and the API.

use std::fs::File;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use serde_json::Value;
use thalweg_testbed::Patience;

use crate::common::House;
use crate::services::{Service, asked, line_of, listening};

/// A source that listens, and a file that is followed. Nothing connects the two.
fn configuration(port: u16, output: &str) -> String {
    format!(
        "\
sources:
  asked: {{ socket: {{ address: 'tcp://127.0.0.1:{port}' }} }}
  lines: {{ file: {{ path: in.txt, follow: true }} }}
pipelines:
  one: {{ from: asked, to: answers }}
  two: {{ from: lines, to: copies }}
sinks:
  answers: {{ file: {{ path: answers.txt, atomic: false }} }}
  copies: {{ file: {{ path: {output}, atomic: false }} }}
"
    )
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let patience = Patience::begin();
    while !holds() {
        patience.check(|| what.to_owned());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn lines_of(house: &House, name: &str) -> usize {
    std::fs::read_to_string(house.path().join(name)).map_or(0, |text| text.lines().count())
}

fn append(house: &House, lines: std::ops::Range<usize>) {
    let mut file = File::options().append(true).open(house.path().join("in.txt")).unwrap();
    lines.for_each(|line| writeln!(file, "{line}").unwrap());
}

fn numbers(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| number.to_string()).collect()
}

#[test]
fn a_changed_file_is_followed_and_mistakes_change_nothing() {
    let port = free_port();
    let house = House::with(&[("c.yaml", &configuration(port, "old.txt")), ("in.txt", "")]);
    let (service, mut log, address) = listening(&house, &["--state", "state", "--watch"]);
    append(&house, 0..100);
    until("the first lines arrive", || lines_of(&house, "old.txt") == 100);
    // A connection to the part that is kept lasts.
    until("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let mut kept = TcpStream::connect(("127.0.0.1", port)).unwrap();
    house.write("c.yaml", configuration(port, "new.txt").as_bytes());
    let reloaded = line_of(&mut log, |line| line["event"] == "reloaded");
    let text = "reloaded: 1 changed (copies); 2 restarted (two, lines); 3 kept";
    assert_eq!(reloaded["message"], text);
    append(&house, 100..200);
    until("the next lines arrive", || lines_of(&house, "new.txt") == 100);
    assert_eq!((house.lines("old.txt"), house.lines("new.txt")), (numbers(0..100), numbers(100..200)));
    writeln!(kept, "still here").unwrap();
    until("the connection is read", || lines_of(&house, "answers.txt") == 1);
    // A mistake is in the log, and for clients.
    house.write("c.yaml", b"sources: { lines: { fil: { path: in.txt } } }\n");
    line_of(&mut log, |line| line.to_string().contains("not reloaded, and the run goes on as it was"));
    let about: Value = serde_json::from_str(&asked(&address, "/api/v1").1).unwrap();
    assert!(about["reload"]["failure"].as_str().unwrap().contains("c.yaml:1:"), "{about}");
    let said = house.run(&["reload", &address]);
    assert_eq!(said.code, Some(3));
    assert!(said.err.contains("the configuration cannot be used: c.yaml:1:"), "{}", said.err);
    append(&house, 200..300);
    until("lines still arrive", || lines_of(&house, "new.txt") == 200);
    assert_eq!(service.stop(), Some(0));
    assert_eq!(house.lines("new.txt"), numbers(100..300));
}

#[test]
fn a_client_sees_the_difference_and_a_source_that_listens_refuses_no_connection() {
    let port = free_port();
    let house = House::with(&[("c.yaml", &configuration(port, "old.txt")), ("in.txt", "")]);
    let (service, _log, address) = listening(&house, &["--state", "state", "--watch"]);
    until("it is ready", || asked(&address, "/ready").0 == 200);
    until("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    assert_eq!(house.run_well(&["reload", &address, "--dry-run"]).out, "nothing has changed\n");
    let next = configuration(port, "old.txt").replace("answers.txt", "others.txt");
    house.write("c.yaml", next.as_bytes());
    let expected = "1 changed (answers); 2 restarted (one, asked); 3 kept\n";
    assert_eq!(house.run_well(&["reload", &address, "--dry-run"]).out, expected);
    let is_over = Arc::new(AtomicBool::new(false));
    let client = std::thread::spawn({
        let is_over = is_over.clone();
        move || {
            let mut sent = 0;
            while !is_over.load(SeqCst) {
                let mut connection = TcpStream::connect(("127.0.0.1", port)).expect("it is not refused");
                sent += usize::from(writeln!(connection, "{sent}").is_ok());
                std::thread::sleep(Duration::from_millis(5));
            }
            sent
        }
    });
    let answer = house.run_well(&["reload", &address]).out;
    // The file may have been found first.
    assert!([expected, "nothing has changed\n"].contains(&&*answer), "{answer}");
    until("the new sink gets lines", || lines_of(&house, "others.txt") > 5);
    is_over.store(true, SeqCst);
    assert!(client.join().unwrap() > 5);
    assert_eq!(service.stop(), Some(0));
}

#[test]
fn an_address_that_another_program_has_is_found_before_anything_stops() {
    let port = free_port();
    let house = House::with(&[("c.yaml", &configuration(port, "old.txt")), ("in.txt", "")]);
    let (service, _log, address) = listening(&house, &["--state", "state", "--watch"]);
    until("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    house.write("c.yaml", configuration(other.local_addr().unwrap().port(), "old.txt").as_bytes());
    let said = house.run(&["reload", &address]);
    assert_eq!(said.code, Some(3));
    assert!(said.err.contains("`asked` cannot listen on"), "{}", said.err);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
    assert_eq!(service.stop(), Some(0));
}

#[test]
fn an_address_that_was_given_up_can_be_taken_again_at_once() {
    let (port, other) = (free_port(), free_port());
    let house = House::with(&[("c.yaml", &configuration(port, "old.txt")), ("in.txt", "")]);
    let (service, _log, address) = listening(&house, &["--state", "state", "--watch"]);
    until("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    for port in [other, port] {
        house.write("c.yaml", configuration(port, "old.txt").as_bytes());
        house.run_well(&["reload", &address]);
        until("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    }
    assert_eq!(service.stop(), Some(0));
}

#[test]
fn a_pipe_in_place_of_the_file_does_not_hold_reloads_up() {
    let port = free_port();
    let text = configuration(port, "old.txt");
    let house = House::with(&[("c.yaml", &text), ("in.txt", "")]);
    let (service, _log, address) = listening(&house, &["--state", "state", "--watch"]);
    until("it is ready", || asked(&address, "/ready").0 == 200);
    let path = house.path().join("c.yaml");
    std::fs::remove_file(&path).unwrap();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let said = house.run(&["reload", &address]);
    assert_eq!(said.code, Some(3));
    assert!(said.err.contains("`c.yaml` is not a regular file"), "{}", said.err);
    std::fs::remove_file(&path).unwrap();
    house.write("c.yaml", text.as_bytes());
    assert_eq!(house.run_well(&["reload", &address]).out, "nothing has changed\n");
    assert_eq!(service.stop(), Some(0));
}

#[test]
fn a_run_that_does_not_watch_says_so_and_one_without_state_refuses_to_read_again() {
    let port = free_port();
    let house = House::with(&[("c.yaml", &configuration(port, "old.txt")), ("in.txt", "")]);
    let (service, _log, address) = listening(&house, &[]);
    until("it is ready", || asked(&address, "/ready").0 == 200);
    let said = house.run(&["reload", &address]);
    assert_eq!(said.code, Some(3));
    assert!(said.err.contains("start it with `--watch`"), "{}", said.err);
    assert_eq!(service.stop(), Some(0));
    let (service, _log, address) = listening(&house, &["--watch"]);
    until("it is ready", || asked(&address, "/ready").0 == 200);
    house.write("c.yaml", configuration(port, "new.txt").as_bytes());
    let said = house.run(&["reload", &address]);
    assert_eq!(said.code, Some(3));
    assert!(said.err.contains("`lines` would read its input again from the beginning"), "{}", said.err);
    assert_eq!(service.stop(), Some(0));
}

#[test]
fn systemd_is_told_of_a_reload_by_a_signal() {
    let house = House::with(&[("c.yaml", &configuration(free_port(), "old.txt")), ("in.txt", "")]);
    let path = house.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let next = |wanted: &str| {
        let mut message = [0; 4096];
        loop {
            let length = socket.recv(&mut message).unwrap();
            let text = String::from_utf8_lossy(&message[..length]).into_owned();
            if text.lines().any(|line| line == wanted) {
                return text;
            }
        }
    };
    let mut command = house.command(&["run", "c.yaml", "--quiet", "--state", "state", "--watch"]);
    let child = command.env("NOTIFY_SOCKET", &path).spawn().unwrap();
    let process = rustix::process::Pid::from_child(&child);
    let service = Service::of(child);
    next("READY=1");
    rustix::process::kill_process(process, rustix::process::Signal::HUP).unwrap();
    assert!(next("RELOADING=1").contains("MONOTONIC_USEC="));
    next("READY=1");
    assert_eq!(service.stop(), Some(0));
}

//! `thalweg run`: its output, how it ends, and how it is stopped.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::common::{self, House};
use rustix::process::{Pid, Signal, kill_process};
use thalweg_job::signals::ONE_REQUEST;

const LINES: &str = "\
sources: { in: stdin }
pipelines: { main: { from: in, transforms: [ { filter: \"payload LIKE '%7%'\" } ], to: out } }
sinks: { out: stdout }
";

const OFFENDING: &str = "\
sources: { in: { generate: { lines: ['{\"n\": 1}', 'rubbish', '{\"n\": 2}'] } } }
pipelines: { main: { from: in, transforms: [ parse_json ], to: out } }
sinks: { out: { file: { path: out.jsonl, encode: json } } }
";

const ENDLESS: &str = "\
sources: { in: { generate: { message: '%8d', rate: 200 } } }
pipelines: { main: { from: in, to: out } }
sinks: { out: { file: { path: out.txt, atomic: false } } }
";

#[test]
fn lines_go_through_a_shell_pipe() {
    let house = House::with(&[("c.yaml", LINES)]);
    let numbers: String = (0..100_000).map(|n| format!("{n}\n")).collect();
    let said = house.run_with_input(&["run", "c.yaml"], numbers.as_bytes());
    assert_eq!(said.code, Some(0), "{}", said.err);
    let expected: String = (0..100_000).map(|n| format!("{n}\n")).filter(|line| line.contains('7')).collect();
    assert!(said.out == expected, "{} bytes instead of {}", said.out.len(), expected.len());
    assert!(said.err.contains("100,000 messages"), "{}", said.err);
}

#[test]
fn quiet_says_nothing() {
    let house = House::with(&[("c.yaml", LINES)]);
    let said = house.run_with_input(&["run", "c.yaml", "--quiet"], b"7\n8\n");
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (Some(0), "7\n", ""));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let house = House::with(&[(
        "c.yaml",
        "\
sources: { in: { generate: { message: '%20s' } } }
pipelines: { main: { from: in, to: out } }
sinks: { out: stdout }
",
    )]);
    let mut child =
        house.command(&["run", "c.yaml"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.len(), 21);
    let said = common::said(child.wait_with_output().unwrap());
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
}

#[test]
fn a_reader_that_goes_away_is_a_failure_of_a_run_with_another_sink() {
    let house = House::with(&[(
        "c.yaml",
        "\
sources: { in: { generate: { message: '%20s' } } }
pipelines: { main: { from: in, to: [ out, file ] } }
sinks: { out: stdout, file: { file: { path: out.txt } } }
",
    )]);
    let mut child =
        house.command(&["run", "c.yaml"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let said = common::said(child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(3), "{}", said.err);
    assert!(said.err.contains("the reader of the output has gone away"), "{}", said.err);
}

#[test]
fn errors_count_when_strict() {
    let house = House::with(&[("c.yaml", OFFENDING)]);
    let said = house.run(&["run", "c.yaml"]);
    assert_eq!(said.code, Some(0));
    let hint = "1 message could not be processed: `thalweg errors list c.yaml` shows them";
    assert!(said.err.contains(hint), "{}", said.err);
    assert_eq!(house.read("out.jsonl"), "{\"n\":1}\n{\"n\":2}\n");
    assert_eq!(house.run(&["run", "c.yaml", "--strict"]).code, Some(1));
}

/// It was called a file.
#[test]
fn a_rejected_row_of_a_file_is_not_called_a_file() {
    let config = "\
sources: { in: { files: { path: a.csv } } }
pipelines: { main: { from: in, transforms: [csv: {}], to: out } }
sinks: { out: { file: { path: out.jsonl, encode: json } } }
";
    let house = House::with(&[("c.yaml", config), ("a.csv", "a,b\n1,2\n3\n")]);
    let said = house.run(&["run", "c.yaml"]);
    assert_eq!(said.code, Some(0));
    assert!(said.err.contains("  1 file or message could not be processed: "), "{}", said.err);
}

#[test]
fn a_run_that_fails_says_why() {
    let house = House::with(&[(
        "c.yaml",
        "\
sources: { in: { file: { path: nowhere/in.txt } } }
pipelines: { main: { from: in, to: out } }
sinks: { out: discard }
",
    )]);
    let said = house.run(&["run", "c.yaml"]);
    assert_eq!(said.code, Some(3));
    assert!(
        said.err.contains("error: the source `in` failed") && said.err.contains("nowhere/in.txt"),
        "{}",
        said.err
    );
    let said = house.run(&["run", "c.yaml", "--json"]);
    assert_eq!(said.code, Some(3));
    let last: serde_json::Value = serde_json::from_str(said.err.lines().last().unwrap()).unwrap();
    assert!(last["failure"].as_str().unwrap().contains("nowhere/in.txt"), "{last}");
}

#[test]
fn only_the_pipelines_that_are_named_run() {
    let house = House::with(&[(
        "c.yaml",
        "\
sources: { in: { generate: { lines: [a, b] } } }
pipelines:
  one: { from: in, to: first }
  two: { from: in, to: second }
sinks:
  first: { file: { path: first.txt } }
  second: { file: { path: second.txt } }
",
    )]);
    assert_eq!(house.run(&["run", "c.yaml", "two"]).code, Some(0));
    assert_eq!(house.read("second.txt"), "a\nb\n");
    assert!(!house.path().join("first.txt").exists());
}

#[test]
fn a_run_with_state_continues() {
    let house = House::with(&[
        ("in.txt", "one\n"),
        (
            "c.yaml",
            "\
state: kept
sources: { in: { file: { path: in.txt } } }
pipelines: { main: { from: in, to: out } }
sinks: { out: { file: { path: out.txt } } }
",
        ),
    ]);
    assert_eq!(house.run(&["run", "c.yaml"]).code, Some(0));
    house.write("in.txt", b"one\ntwo\n");
    let said = house.run(&["run", "c.yaml"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(house.read("out.txt"), "one\ntwo\n");
    assert!(said.err.contains("1 message "), "{}", said.err);
    assert!(house.path().join("kept").is_dir());
}

#[test]
fn the_summary_in_json_tells_all() {
    let house = House::with(&[("c.yaml", OFFENDING)]);
    let said = house.run(&["run", "c.yaml", "--json"]);
    let summary: serde_json::Value = serde_json::from_str(said.err.lines().last().unwrap()).unwrap();
    assert_eq!(summary["event"], "summary");
    assert_eq!((&summary["messages"], &summary["dead_letters"]), (&3.into(), &1.into()));
    assert_eq!(summary["components"][1]["errors"], 1);
}

/// Starts an endless run and waits, without a timeout, until it has written something or has ended.
fn started(house: &House, arguments: &[&str]) -> Child {
    let mut child = house.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let written = || std::fs::metadata(house.path().join("out.txt")).is_ok_and(|file| file.len() > 0);
    while !written() {
        assert!(child.try_wait().unwrap().is_none(), "it ended and nothing was written");
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn a_signal_drains_and_that_is_done() {
    let house = House::with(&[("c.yaml", ENDLESS)]);
    for kind in [Signal::TERM, Signal::INT] {
        let child = started(&house, &["run", "c.yaml"]);
        signal(&child, kind);
        let said = common::said(child.wait_with_output().unwrap());
        assert_eq!(said.code, Some(0), "{}", said.err);
        assert!(said.err.contains("stopping: data in flight") && said.err.contains("stopped after"));
        let lines = house.read("out.txt").lines().count();
        let messages = format!(" {} message", lines);
        assert!(said.err.contains(&messages), "{lines} lines were written: {}", said.err);
        std::fs::remove_file(house.path().join("out.txt")).unwrap();
    }
}

#[test]
fn a_second_signal_ends_what_cannot_drain() {
    // No process reads its output, so the sink waits without end.
    let house = House::with(&[(
        "c.yaml",
        "\
sources: { in: { generate: { message: '%99s' } } }
pipelines: { main: { from: in, to: out } }
sinks: { out: stdout }
",
    )]);
    let mut command = house.command(&["run", "c.yaml"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    std::thread::sleep(Duration::from_millis(500));
    signal(&child, Signal::TERM);
    said.read_line(&mut line).unwrap();
    assert!(line.starts_with("stopping: "), "{line}");
    std::thread::sleep(2 * ONE_REQUEST);
    assert!(child.try_wait().unwrap().is_none(), "it ended though nothing was read");
    signal(&child, Signal::TERM);
    let status = child.wait().unwrap();
    said.read_to_string(&mut line).unwrap();
    assert_eq!(status.code(), Some(3), "{line}");
    assert!(line.contains("stopped"), "{line}");
}

/// Waits until the program counts signals. A signal between the installation of its handler and the moment at
/// which the handler knows what to do is lost, so this waits for the handler that is installed last.
fn wait_for_handlers(child: &Child) {
    let status = format!("/proc/{}/status", child.id());
    let caught = || {
        let status = std::fs::read_to_string(&status).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap()
    };
    while caught() & 1 << (Signal::XFSZ.as_raw() - 1) == 0 {
        std::thread::yield_now();
    }
}

/// The standard input stays open, so the program still reads its configuration when the signal arrives.
#[test]
fn a_signal_before_the_run_begins_ends_it_with_a_word() {
    let house = House::with(&[]);
    let mut outcomes = Vec::new();
    for arguments in [&["run", "-"][..], &["run", "-", "--json"], &["errors", "replay", "-"], &["check", "-"]]
    {
        let mut command = house.command(arguments);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        wait_for_handlers(&child);
        signal(&child, Signal::TERM);
        let said = common::said(child.wait_with_output().unwrap());
        drop(input);
        // The line of JSON also has the time.
        let line = serde_json::from_str::<serde_json::Value>(&said.err);
        let text = line.map_or(said.err, |line| format!("{}: {}", line["event"], line["message"]));
        outcomes.push((said.code.unwrap(), text));
    }
    let stopped = "stopped before the run began";
    let expected = [
        (0, format!("{stopped}\n")),
        (0, format!("\"stopped\": \"{stopped}\"")),
        (3, format!("{stopped}\n")),
        (143, String::new()),
    ];
    assert_eq!(outcomes, expected);
}

/// The handlers are there before the configuration is read, so the signal is one of the run.
#[test]
fn a_signal_at_the_very_start_stops_the_run_as_any_other() {
    let house = House::with(&[("c.yaml", ENDLESS)]);
    for _ in 0..10 {
        let child = house.command(&["run", "c.yaml"]).stderr(Stdio::piped()).spawn().unwrap();
        wait_for_handlers(&child);
        signal(&child, Signal::TERM);
        let said = common::said(child.wait_with_output().unwrap());
        assert_eq!(said.code, Some(0), "{}", said.err);
        assert!(said.err.contains("stopped "), "{}", said.err);
    }
}

/// `timeout` and `npm` send a signal to the process and again to its group.
#[test]
fn signals_that_follow_at_once_are_one_request() {
    let house = House::with(&[("c.yaml", FLOOD)]);
    let mut child = flooding(&house, &["run", "c.yaml"]);
    signal(&child, Signal::INT);
    signal(&child, Signal::TERM);
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.starts_with("stopping: "), "{line}");
    // It drains as soon as it is read.
    let mut out = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut out).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(out.last(), Some(&b'\n'));
}

#[test]
fn a_file_of_the_largest_size_is_an_error_with_a_message() {
    let house = House::with(&[("c.yaml", ENDLESS)]);
    let program = env!("CARGO_BIN_EXE_thalweg");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -f 8; exec \"$0\" run c.yaml", program]).current_dir(house.path());
    let said = common::said(command.output().unwrap());
    assert_eq!(said.code, Some(3), "{}", said.err);
    assert!(said.err.contains("larger than the system allows"), "{}", said.err);
}

/// Writes to the standard output, which the test does not read: the sink waits without end once the pipe is
/// full.
const FLOOD: &str = "\
sources: { in: { generate: { message: '%99s' } } }
pipelines: { main: { from: in, to: out } }
sinks: { out: stdout }
";

/// Starts a run of [`FLOOD`], and waits until it writes.
fn flooding(house: &House, arguments: &[&str]) -> Child {
    let mut child = house.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    // The pipe fills.
    std::thread::sleep(Duration::from_millis(300));
    child
}

#[test]
fn too_few_descriptors_are_an_error_at_the_start() {
    let house = House::with(&[(
        "c.yaml",
        "sources: { in: { generate: { count: 1 } } }\npipelines: { main: { from: in, \
                                          to: out } }\nsinks: { out: { discard: {} } }\n",
    )]);
    let mut command = std::process::Command::new("sh");
    let program = env!("CARGO_BIN_EXE_thalweg");
    command.args(["-c", "ulimit -n 16; exec \"$0\" run c.yaml", program]).current_dir(house.path());
    let said = common::said(command.output().unwrap());
    assert_eq!(said.code, Some(3), "{}", said.err);
    assert!(said.err.contains("may have 16 files open, and a run needs at least 32"), "{}", said.err);
}

#[test]
fn a_repeated_run_that_cannot_drain_ends_after_a_signal() {
    let house = House::with(&[("c.yaml", FLOOD)]);
    let mut child = flooding(&house, &["run", "c.yaml", "--repeat", "--drain-timeout", "0"]);
    signal(&child, Signal::TERM);
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut text = String::new();
    while !text.contains("error: the drain timeout of 0 s expired") {
        assert!(said.read_line(&mut text).unwrap() > 0, "it never says that it failed: {text}");
    }
    // A second run would end because its reader is gone, with exit code 0.
    std::thread::sleep(Duration::from_millis(300));
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

#[test]
fn a_quiet_run_that_is_ended_at_once_says_why_it_failed() {
    let house = House::with(&[("c.yaml", FLOOD)]);
    let mut child = flooding(&house, &["run", "c.yaml", "--quiet"]);
    signal(&child, Signal::TERM);
    std::thread::sleep(2 * ONE_REQUEST);
    signal(&child, Signal::TERM);
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "error: stopped: a component was still waiting for something\n");
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

/// Starts `c.yaml` with `--listen`. Returns the rest of what it says, and the address.
fn listening(house: &House) -> (Child, BufReader<std::process::ChildStderr>, String) {
    let mut command = house.command(&["run", "c.yaml", "--json", "--listen", "127.0.0.1:0"]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let address = address_in(&mut said);
    (child, said, address)
}

/// Reads until the program says where it listens.
fn address_in(said: &mut impl BufRead) -> String {
    loop {
        let mut line = String::new();
        assert!(said.read_line(&mut line).unwrap() > 0, "it ended");
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        if event["event"] == "listening" {
            let url = event["message"].as_str().unwrap();
            let address = url.strip_prefix("listening: http://").unwrap().strip_suffix("/metrics").unwrap();
            return address.to_owned();
        }
    }
}

fn asked(address: &str, path: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The connections that `--listen` serves at the same time.
const SERVED: usize = 64;

#[test]
fn silent_connections_take_no_more_descriptors_than_allowed_and_others_are_answered() {
    let house = House::with(&[("c.yaml", ENDLESS)]);
    let (mut child, mut said, address) = listening(&house);
    let silent: Vec<_> = (0..SERVED + 20).map(|_| std::net::TcpStream::connect(&address).unwrap()).collect();
    // The silent ones are closed after a time limit.
    assert!(asked(&address, "/health").starts_with("HTTP/1.1 200 "));
    let folder = format!("/proc/{}/fd", child.id());
    let is_socket = |entry: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_link(entry.unwrap().path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
    };
    // Beside them, the listener and a few of the program itself.
    let sockets =
        std::fs::read_dir(folder).unwrap().filter_map(|entry| is_socket(entry).then_some(())).count();
    assert!(sockets <= SERVED + 8, "{sockets} sockets are open");
    drop(silent);
    signal(&child, Signal::TERM);
    std::io::copy(&mut said, &mut std::io::sink()).unwrap();
    child.wait().unwrap();
}

#[test]
fn others_are_told_how_it_goes() {
    let house = House::with(&[(
        "c.yaml",
        "\
sources:
  in: { generate: { message: '%99s', rate: 100 } }
pipelines:
  main: { from: in, to: out }
  other: { from: in, to: { failover: [broken, whole] } }
sinks:
  out: { file: { path: out.txt, atomic: false } }
  broken: { file: { path: taken } }
  whole: discard
",
    )]);
    std::fs::create_dir(house.path().join("taken")).unwrap();
    let (mut child, mut said, address) = listening(&house);
    let ask = |path: &str| asked(&address, path);
    let counter = "thalweg_component_sent_messages_total{component=\"out\",kind=\"file\",role=\"sink\"} ";
    let count = || {
        let answer = ask("/metrics");
        let line = answer.lines().find_map(|line| line.strip_prefix(counter)).expect("the counter is there");
        line.parse::<u64>().unwrap()
    };
    let first = count();
    while count() == first {}
    let taken = "{\"component\":\"broken\",\"kind\":\"file\",\"reason\":\"";
    while !ask("/health").contains(taken) {}
    assert!(ask("/health").starts_with("HTTP/1.1 503 "), "{}", ask("/health"));
    assert!(ask("/nothing").starts_with("HTTP/1.1 404 "));
    signal(&child, Signal::TERM);
    std::io::copy(&mut said, &mut std::io::sink()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn log_records_arrive_as_messages_and_the_run_still_ends() {
    let configuration = "
sources:
  lines: { generate: { lines: [one, two] } }
  own: { internal_logs: { level: warn } }
pipelines:
  main: { from: lines, to: { failover: [broken, out] } }
  diary: { from: own, to: log }
sinks:
  broken: { file: { path: taken } }
  out: { file: { path: out.txt } }
  log: { file: { path: log.jsonl, encode: json } }
";
    let house = House::with(&[("c.yaml", configuration)]);
    std::fs::create_dir(house.path().join("taken")).unwrap();
    let said = house.run_well(&["run", "c.yaml"]);
    assert_eq!(house.read("out.txt"), "one\ntwo\n");
    let log = house.lines("log.jsonl");
    assert_eq!(log.len(), 1, "{log:?}");
    let record: serde_json::Value = serde_json::from_str(&log[0]).unwrap();
    assert_eq!(record["level"], "warn");
    assert!(record["message"].as_str().unwrap().contains("`broken`"), "{record}");
    // The warning is still shown on the standard error output.
    assert!(said.err.contains("take the other route"), "{}", said.err);
}

#[test]
fn a_log_that_nothing_is_written_to_ends_with_the_run_and_alone_when_it_is_told_to() {
    let configuration = "
sources: { lines: { generate: { lines: [one] } }, own: { internal_logs: {} } }
pipelines: { main: { from: [lines, own], to: out } }
sinks: { out: { file: { path: out.txt.gz, compression: gzip } } }
";
    let house = House::with(&[("c.yaml", configuration)]);
    house.run_well(&["run", "c.yaml", "--quiet"]);
}

/// All 5,000 messages were one batch, so a stopped run delivered all of them or, after the drain timeout,
/// none.
#[test]
fn a_run_behind_a_slow_limit_is_stopped_soon_and_the_next_one_continues() {
    let configuration = |rate: u32| {
        format!(
            "sources: {{ in: {{ file: {{ path: in.txt }} }} }}\n\
             pipelines: {{ main: {{ from: in, transforms: [ {{ limit: {{ rate: {rate}, burst: 1 }} }} ], to: out }} }}\n\
             sinks: {{ out: {{ file: {{ path: out.txt, atomic: false }} }} }}\n"
        )
    };
    let lines: String = (0..5_000).map(|number| format!("line {number}\n")).collect();
    let house = House::with(&[("in.txt", &lines), ("c.yaml", &configuration(500))]);
    for run in 0..2 {
        let before = if run == 0 { 0 } else { house.lines("out.txt").len() };
        let child = started(&house, &["run", "c.yaml", "--state", "state"]);
        while house.lines("out.txt").len() < before + 200 {
            std::thread::sleep(Duration::from_millis(10));
        }
        signal(&child, Signal::TERM);
        let said = common::said(child.wait_with_output().unwrap());
        assert_eq!(said.code, Some(0), "{}", said.err);
        let written = house.lines("out.txt").len();
        assert!((before + 200..5_000).contains(&written), "{written}: {}", said.err);
    }
    house.write("c.yaml", configuration(1_000_000).as_bytes());
    house.run_well(&["run", "c.yaml", "--state", "state"]);
    assert!(house.read("out.txt") == lines);
}

#[test]
fn a_measurement_is_told_in_words_in_json_and_not_at_all() {
    let configuration = "
sources: { lines: { generate: { message: '%100s', count: 50000 } } }
pipelines: { main: { from: lines, to: rate } }
sinks: { rate: { measure: { every: 0s } } }
";
    let house = House::with(&[("c.yaml", configuration)]);
    let said = house.run_well(&["run", "c.yaml"]).err;
    let line = said.lines().find(|line| line.starts_with("`rate`: ")).unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains("in all 50000 messages, 4.8 MiB in "), "{line}");
    let said = house.run_well(&["run", "c.yaml", "--json"]).err;
    let objects: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
    let measured = objects.iter().find(|object| object["event"] == "measure").unwrap();
    assert_eq!((&measured["name"], &measured["all_messages"]), (&"rate".into(), &50000.into()));
    assert_eq!(house.run_well(&["run", "c.yaml", "--quiet"]).err, "");
}

#[test]
fn a_hang_up_lets_a_file_that_was_moved_away_be_begun_anew() {
    let house = House::with(&[("c.yaml", ENDLESS)]);
    let child = started(&house, &["run", "c.yaml"]);
    let (written, moved) = (house.path().join("out.txt"), house.path().join("moved.txt"));
    std::fs::rename(&written, &moved).unwrap();
    signal(&child, Signal::HUP);
    while !written.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    signal(&child, Signal::TERM);
    let said = common::said(child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.err.contains("reopening: sinks continue in new files"), "{}", said.err);
    assert!(house.read("moved.txt").ends_with('\n') && house.read("out.txt").ends_with('\n'));
}

#[test]
fn pieces_of_a_file_in_the_current_folder_are_replaced_by_those_of_the_next_run() {
    let lines: String = (0..50_000).map(|number| format!("{number}\n")).collect();
    let configuration = "sources: { s: { file: { path: in.txt } } }
pipelines: { main: { from: s, to: o } }
sinks: { o: { file: { path: out.txt, rotate: { size: 100KiB } } } }
";
    let house = House::with(&[("in.txt", &lines), ("c.yaml", configuration)]);
    for _ in 0..2 {
        house.run_well(&["run", "c.yaml", "--quiet"]);
        let names = std::fs::read_dir(house.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut pieces: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        pieces.retain(|name| name.starts_with("out-"));
        pieces.sort();
        let read: String = pieces.iter().map(|piece| house.read(piece)).collect();
        assert!(read == lines, "{} bytes in {pieces:?}", read.len());
    }
}

#[test]
fn a_repetition_of_failed_runs_has_failed() {
    let configuration = "sources: { s: { file: { path: missing.txt } } }
pipelines: { main: { from: s, to: o } }
sinks: { o: discard }
";
    let house = House::with(&[("c.yaml", configuration)]);
    let said = house.run(&["run", "c.yaml", "--repeat", "--sleep", "1ms", "--iterations", "2", "--quiet"]);
    assert_eq!(said.code, Some(3), "{}", said.err);
}

#[test]
fn the_password_and_the_query_of_an_address_are_not_shown() {
    let configuration = "sources: { s: { generate: { lines: [a] } } }
pipelines: { main: { from: s, to: { failover: [b, o] } } }
sinks: { b: { http: { url: 'http://me:pw1secret@127.0.0.1:1/x?token=pw2secret' } }, o: discard }
";
    let house = House::with(&[("c.yaml", configuration)]);
    for json in [&["run", "c.yaml"][..], &["run", "c.yaml", "--json"]] {
        let said = house.run_well(json);
        assert!(said.err.contains("127.0.0.1:1/x") && !said.err.contains("secret"), "{}", said.err);
    }
}

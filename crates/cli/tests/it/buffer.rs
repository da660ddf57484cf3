//! Buffers before sinks: what waits on the disk is not lost, and nothing else waits for a dead sink.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use crate::common::{House, Said, said};
use crate::delivery::{kill_and_run, numbered_lines, numbers};

const LINES: usize = 75_000;

/// A configuration of numbered lines into the sinks `dead` and `well`. No server listens to the first, which
/// has a buffer with these options.
fn configuration(buffer: &str, takes_errors: bool) -> String {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (pipeline, sink) = match takes_errors {
        true => (
            "  lost: { from: dead.errors, to: gone }\n",
            "  gone: { file: { path: lost.jsonl, atomic: false } }\n",
        ),
        false => ("", ""),
    };
    format!(
        "memory: 8MiB\nsources: {{ in: {{ file: {{ path: in.jsonl }} }} }}\n\
         pipelines:\n  main: {{ from: in, to: [dead, well] }}\n{pipeline}\
         sinks:\n  dead: {{ http: {{ url: 'http://{address}' }}, buffer: {{ {buffer} }} }}\n\
         \x20 well: {{ file: {{ path: well.jsonl, atomic: false }} }}\n{sink}"
    )
}

fn start(house: &House) -> Child {
    let mut command = house.command(&["run", "c.yaml", "--state", "state", "--quiet"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until a file has this number of lines, while the run goes on.
fn wait_for_lines(house: &House, run: &mut Child, name: &str, count: usize) {
    let lines = || {
        let file = std::fs::File::open(house.path().join(name));
        file.map_or(0, |file| BufReader::new(file).split(b'\n').count())
    };
    while lines() < count {
        assert!(run.try_wait().unwrap().is_none(), "the run has ended");
        sleep(Duration::from_millis(20));
    }
}

fn stop(run: Child) -> Said {
    assert!(Command::new("kill").args(["-TERM", &run.id().to_string()]).status().unwrap().success());
    said(run.wait_with_output().unwrap())
}

/// The number of messages in the buffer `dead`, as it is listed.
fn listed(house: &House) -> u64 {
    let said = house.run_well(&["buffer", "list", "c.yaml", "--state", "state", "--json"]);
    let buffer: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(buffer["buffer"], "dead");
    buffer["messages"].as_u64().unwrap()
}

#[test]
fn a_dead_sink_behind_a_buffer_holds_nothing_up_and_gets_everything_later() {
    let config = configuration("disk: 256MiB", false);
    let house = House::with(&[("c.yaml", &config)]);
    numbered_lines(&house.path().join("in.jsonl"), LINES);
    let mut run = start(&house);
    wait_for_lines(&house, &mut run, "well.jsonl", LINES);
    let ended = stop(run);
    assert_eq!(ended.code, Some(0), "{}", ended.err);

    assert_eq!(listed(&house), LINES as u64);
    let checked = house.run_well(&["buffer", "check", "c.yaml", "--state", "state"]).out;
    assert_eq!(checked, "dead: 75,000 messages can be read\n");
    let dumped = house.run_well(&["buffer", "dump", "--state", "state", "--payload"]).out;
    assert!(dumped == house.read("in.jsonl"), "other messages wait than were sent");
    let first =
        house.run_well(&["buffer", "dump", "--state", "state", "--buffer", "dead", "--limit", "1"]).out;
    let first: Value = serde_json::from_str(&first).unwrap();
    assert_eq!((&first["source"], &first["path"]), (&"in".into(), &"in.jsonl".into()));

    // The sink works now.
    let sinks =
        "sinks: { dead: { file: { path: late.jsonl }, buffer: { disk: 256MiB } }, well: { discard: {} } }\n";
    let (head, _) = config.split_once("sinks:").unwrap();
    house.write("c.yaml", format!("{head}{sinks}").as_bytes());
    let replayed = house.run_well(&["buffer", "replay", "c.yaml", "--state", "state", "--json"]);
    let event = replayed.err.lines().last().unwrap_or_default();
    assert_eq!(event, "{\"event\":\"replayed\",\"messages\":75000}");
    assert_eq!(numbers(&house, "late.jsonl"), (0..LINES).collect::<Vec<_>>());
    assert_eq!(listed(&house), 0);
}

#[test]
fn kill_9_at_any_moment_loses_nothing_that_waits_in_a_buffer() {
    let house = House::with(&[(
        "pipeline.yaml",
        "memory: 4MiB\n\
         sources: { in: { file: { path: in.jsonl } } }\n\
         pipelines:\n  main:\n    from: in\n    transforms: [parse_json: {}, limit: { rate: 20000, burst: 1000 }]\n    to: out\n\
         sinks: { out: { file: { path: out.jsonl, encode: json }, buffer: { disk: 16MiB } } }\n",
    )]);
    numbered_lines(&house.path().join("in.jsonl"), LINES);
    let killed = kill_and_run(&house, 10, &["run", "pipeline.yaml", "--state", "state", "--quiet"]);
    let mut found = numbers(&house, "out.jsonl");
    let all = found.len();
    found.sort_unstable();
    found.dedup();
    println!("killed {killed} times; {} of {all} records were delivered twice", all - found.len());
    assert_eq!(found, (0..LINES).collect::<Vec<_>>());
    let listed = house.run_well(&["buffer", "list", "--state", "state"]).out;
    assert_eq!(listed, "out: empty\n");
}

#[test]
fn a_full_buffer_drops_new_messages_which_leave_by_errors() {
    let config = configuration("disk: 16MiB, when_full: drop_newest", true);
    let house = House::with(&[("c.yaml", &config)]);
    let lines = 4 * LINES;
    numbered_lines(&house.path().join("in.jsonl"), lines);
    let mut run = start(&house);
    wait_for_lines(&house, &mut run, "well.jsonl", lines);
    let ended = stop(run);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let kept = house.run_well(&["buffer", "dump", "--state", "state", "--payload"]).out;
    house.write("kept.jsonl", kept.as_bytes());
    let (kept, lost) = (numbers(&house, "kept.jsonl"), numbers(&house, "lost.jsonl"));
    assert!(!kept.is_empty() && !lost.is_empty(), "{} and {}", kept.len(), lost.len());
    let mut all = [kept, lost].concat();
    all.sort_unstable();
    assert_eq!(all, (0..lines).collect::<Vec<_>>());
}

#[test]
fn a_full_buffer_ends_the_run_if_it_is_told_to() {
    let house = House::with(&[("c.yaml", &configuration("disk: 16MiB, when_full: error", false))]);
    numbered_lines(&house.path().join("in.jsonl"), 4 * LINES);
    let ended = house.run(&["run", "c.yaml", "--state", "state", "--quiet"]);
    assert_eq!(ended.code, Some(3), "{}", ended.err);
    let reason = "the buffer of `dead` is full: it holds 16MiB, and `when_full: error` ends the run";
    assert!(ended.err.contains(reason), "{}", ended.err);
}

#[test]
fn a_disk_that_is_full_for_a_while_holds_the_input_up() {
    let house = House::with(&[(
        "c.yaml",
        "sources: { in: { file: { path: in.jsonl } } }\npipelines: { main: { from: in, to: out } }\n\
         sinks: { out: { file: { path: out.jsonl }, buffer: { disk: 64MiB } } }\n",
    )]);
    numbered_lines(&house.path().join("in.jsonl"), LINES);
    let mut command = house.command(&["run", "c.yaml", "--state", "state", "--quiet"]);
    let command = command.env("THALWEG_FAILPOINTS", "sink.write.before=full@2;sink.flush.before=full@1");
    let ended = said(command.output().unwrap());
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert_eq!(numbers(&house, "out.jsonl"), (0..LINES).collect::<Vec<_>>());
}

#[test]
fn a_buffer_in_memory_delivers_all_and_needs_no_state() {
    let house = House::with(&[(
        "c.yaml",
        "memory: 64MiB\nsources: { in: { file: { path: in.jsonl } } }\npipelines: { main: { from: in, to: out } }\n\
         sinks: { out: { file: { path: out.jsonl }, buffer: { memory: 16MiB } } }\n",
    )]);
    numbered_lines(&house.path().join("in.jsonl"), LINES);
    house.run_well(&["run", "c.yaml", "--quiet"]);
    assert_eq!(numbers(&house, "out.jsonl"), (0..LINES).collect::<Vec<_>>());
}

#[test]
fn what_is_wrong_with_a_buffer_is_said_where_it_is() {
    for (buffer, expected) in [
        ("{ }", "A buffer needs a size."),
        ("{ disk: 1GiB, memory: 1MiB }", "A buffer is in memory or on disk, not both."),
        ("{ disk: 1MiB }", "This disk buffer is too small."),
        ("{ memory: 1MiB, when_full: error }", "`when_full` is an option of disk buffers."),
        ("{ memory: 200MiB }", "The buffers in memory hold up to 200MiB, and `memory` is 256MiB."),
        ("{ disk: 1GiB, when_full: block }", "`block` is called `wait` here."),
    ] {
        let config = format!(
            "sources: {{ in: {{ stdin: {{}} }} }}\npipelines: {{ main: {{ from: in, to: out }} }}\n\
             sinks: {{ out: {{ stdout: {{}}, buffer: {buffer} }} }}\n"
        );
        let ended = House::with(&[("c.yaml", &config)]).run(&["check", "c.yaml"]);
        assert_eq!(ended.code, Some(2), "{buffer}: {}", ended.err);
        assert!(ended.err.contains(expected), "{buffer}: {}", ended.err);
    }
}

#[test]
fn a_plan_warns_of_a_sink_without_a_buffer_beside_one_that_has_one() {
    let house = House::with(&[("c.yaml", &configuration("disk: 64MiB", false))]);
    let shown = house.run_well(&["check", "c.yaml", "--plan"]).out;
    let warning =
        "remark: `well` of `main` has no buffer on disk: while it does not work, nothing reaches the buffers";
    assert!(shown.contains(warning), "{shown}");
    assert!(!house.run_well(&["check", "c.yaml"]).out.contains("has no buffer on disk"));
}

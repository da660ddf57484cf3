//! Promises with a bound, and what happens at the bound: records that are repeated or torn, letters that do
//! not fit.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use thalweg_engine::Store;
use thalweg_testkit::program::{Launch, Letter, Program, Running};
use thalweg_testkit::read;
use thalweg_testkit::servers::{Mood, Server};

use crate::PROGRAM;

const LINES: usize = 900;

fn program(config: &str) -> Program {
    let program = Program::new(Path::new(PROGRAM)).unwrap();
    program.write("pipeline.yaml", config).unwrap();
    program
}

fn start(program: &Program, failpoints: &str) -> Running {
    program.start(&Launch::of("pipeline.yaml").with_failpoints(failpoints)).unwrap()
}

/// The position of the source `in` in the last checkpoint.
fn position(program: &Program) -> Option<serde_json::Value> {
    let positions = Store::open(&program.path("state")).unwrap().positions("in").unwrap();
    positions.into_values().next()
}

fn text(program: &Program, name: &str) -> String {
    fs::read_to_string(program.path(name)).unwrap_or_default()
}

/// Waits until a file has this text.
fn wait_for(program: &Program, running: &mut Running, name: &str, expected: &str) {
    while !text(program, name).contains(expected) {
        assert!(running.runs_for(Duration::from_millis(5)), "it ended: {}", running.log());
    }
}

#[test]
fn what_was_sent_since_the_last_checkpoint_is_sent_again_and_nothing_else() {
    let server = Server::http(Mood::Well).unwrap();
    let lines: Vec<String> = (0..LINES).map(|number| number.to_string()).collect();
    let program = program(&format!(
        "sources: {{ in: {{ generate: {{ lines: ['{}'], rate: 600 }} }} }}\n\
         pipelines: {{ main: {{ from: in, to: out }} }}\n\
         sinks: {{ out: {{ http: {{ url: 'http://{}/', batch: lines }} }} }}\n",
        lines.join("', '"),
        server.address()
    ));
    let ended = start(&program, "checkpoint.before=kill@2").wait().unwrap();
    assert_eq!(ended.signal, Some(9), "{}", ended.log);
    let covered = position(&program).and_then(|position| position["made"].as_u64()).unwrap();
    assert!(start(&program, "").wait().unwrap().is_done());
    let received = String::from_utf8(server.received().unwrap()).unwrap();
    let mut times = vec![0; LINES];
    received.lines().for_each(|line| times[line.parse::<usize>().unwrap()] += 1);
    let (before, since) = times.split_at(usize::try_from(covered).unwrap());
    assert!(!before.is_empty() && before.iter().all(|times| *times == 1), "{covered}: {times:?}");
    assert!(since.contains(&2) && since.iter().all(|times| [1, 2].contains(times)), "{covered}: {times:?}");
}

/// The writer keeps the pipe open while its reader is killed and started again.
#[test]
fn a_record_that_a_killed_run_had_read_in_part_is_torn() {
    let program = program(
        "sources: { in: { stdin: {} } }\npipelines: { main: { from: in, to: out } }\n\
         sinks: { out: { file: { path: out.txt } } }\n",
    );
    assert!(Command::new("mkfifo").arg(program.path("pipe")).status().unwrap().success());
    let pipe = OpenOptions::new().read(true).write(true).open(program.path("pipe")).unwrap();
    let start = || {
        let launch = Launch { stdin: Some("pipe".to_owned()), ..Launch::of("pipeline.yaml") };
        program.start(&launch).unwrap()
    };
    write(&pipe, "one\ntwo\nhal");
    let mut running = start();
    wait_for(&program, &mut running, "out.txt.part", "two\n");
    running.signal(Signal::KILL);
    running.wait().unwrap();
    let mut running = start();
    write(&pipe, "f\nthree\n");
    wait_for(&program, &mut running, "out.txt.part", "three\n");
    drop(pipe);
    assert!(running.wait().unwrap().is_done());
    assert_eq!(text(&program, "out.txt"), "one\ntwo\nf\nthree\n");
}

fn write(mut pipe: &File, text: &str) {
    std::io::Write::write_all(&mut pipe, text.as_bytes()).unwrap();
}

#[test]
fn what_a_checkpoint_has_of_a_followed_file_stays_when_the_file_is_deleted() {
    let program = program(
        "sources: { in: { file: { path: 'in/*.txt', follow: true, poll_interval: 10ms } } }\n\
         pipelines: { main: { from: in, to: out } }\nsinks: { out: { file: { path: out.txt } } }\n",
    );
    program.write("in/a.txt", "one\ntwo\n").unwrap();
    // The first checkpoint may have only the state of the sink.
    while !program.path("state").exists() || position(&program).is_none() {
        let ended = start(&program, "checkpoint.after=kill@1").wait().unwrap();
        assert_eq!(ended.signal, Some(9), "{}", ended.log);
    }
    fs::remove_file(program.path("in/a.txt")).unwrap();
    program.write("in/b.txt", "three\n").unwrap();
    let mut running = start(&program, "");
    wait_for(&program, &mut running, "out.txt.part", "three\n");
    running.signal(Signal::TERM);
    assert!(running.wait().unwrap().is_done());
    assert_eq!(text(&program, "out.txt"), "one\ntwo\nthree\n");
}

#[test]
fn a_command_runs_again_for_a_file_that_no_checkpoint_covers() {
    let program = program(
        "sources: { in: { files: { path: in } } }\npipelines:\n  main:\n    from: in\n    transforms:\n      \
         - exec: { command: /bin/sh, args: ['-c', 'echo ran >> ran'] }\n    to: out\n\
         sinks: { out: { directory: { path: out } } }\n",
    );
    program.write("in/a.txt", "one\n").unwrap();
    let ended = start(&program, "checkpoint.before=kill@1").wait().unwrap();
    assert_eq!(ended.signal, Some(9), "{}", ended.log);
    // On a busy machine, the first checkpoint comes before the command.
    let before = std::fs::read_to_string(program.path("ran")).unwrap_or_default();
    for _ in 0..2 {
        assert!(start(&program, "").wait().unwrap().is_done());
        assert_eq!(
            (text(&program, "ran"), text(&program, "out/a.txt")),
            (format!("{before}ran\n"), "one\n".into())
        );
    }
}

/// A command for each file makes the run long enough for several checkpoints.
#[test]
fn a_killed_run_of_objects_in_a_folder_continues_after_those_of_its_checkpoint() {
    let program = program(
        "sources: { in: { objects: { url: in/ } } }\npipelines:\n  main:\n    from: in\n    transforms:\n      \
         - exec: { command: /bin/sh, args: ['-c', 'sleep 0.1; echo ran >> ran'], one_at_a_time: true }\n      \
         - lines: {}\n    to: out\nsinks: { out: { file: { path: out.txt } } }\n",
    );
    let names: Vec<String> = (10..30).map(|number| number.to_string()).collect();
    names.iter().for_each(|name| program.write(&format!("in/{name}"), format!("{name}\n")).unwrap());
    let ended = start(&program, "checkpoint.after=kill@2").wait().unwrap();
    assert_eq!(ended.signal, Some(9), "{}", ended.log);
    assert!(start(&program, "").wait().unwrap().is_done());
    assert_eq!(text(&program, "out.txt").lines().collect::<Vec<_>>(), names);
    let ran = text(&program, "ran").lines().count();
    assert!(ran < 2 * names.len(), "the files of the checkpoint came again: {ran} commands ran");
}

#[test]
fn a_transform_without_a_state_starts_afresh() {
    let program = program(
        "sources: { in: { generate: { lines: [a, b, a] } } }\npipelines:\n  main:\n    from: in\n    \
         transforms:\n      - dedupe: {}\n      - add_sequence: { into: n }\n    to: out\n\
         sinks: { out: { file: { path: out.txt, encode: { format: csv, fields: [payload, n] } } } }\n",
    );
    for _ in 0..2 {
        let launch = Launch { state: None, ..Launch::of("pipeline.yaml") };
        assert!(program.start(&launch).unwrap().wait().unwrap().is_done());
        assert_eq!(text(&program, "out.txt"), "payload,n\na,0\nb,1\n");
    }
}

#[test]
fn a_run_that_is_asked_to_stop_tries_again_until_its_server_is_back() {
    // No other test uses this address, so the port stays free.
    let listener = TcpListener::bind("127.0.0.2:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let program = program(&format!(
        "sources: {{ in: {{ file: {{ path: in.txt }} }} }}\npipelines: {{ main: {{ from: in, to: out }} }}\n\
         sinks: {{ out: {{ socket: {{ address: 'tcp://{address}' }} }} }}\n"
    ));
    program.write("in.txt", "one\ntwo\n").unwrap();
    let mut running = start(&program, "");
    // The source has sent its messages when they wait for the sink.
    while !running.log().contains(&address.to_string()) {
        assert!(running.runs_for(Duration::from_millis(5)), "it ended: {}", running.log());
    }
    running.signal(Signal::TERM);
    while !running.log().contains("stopping: ") {
        assert!(running.runs_for(Duration::from_millis(5)), "it ended: {}", running.log());
    }
    let listener = TcpListener::bind(address).unwrap();
    let mut received = String::new();
    listener.accept().unwrap().0.read_to_string(&mut received).unwrap();
    let ended = running.wait().unwrap();
    assert!(ended.is_done(), "{}", ended.log);
    assert_eq!(received, "one\ntwo\n");
}

#[test]
fn a_limit_holds_while_a_run_drains() {
    let config = |rate: u32| {
        format!(
            "sources: {{ in: {{ file: {{ path: in.txt }} }} }}\npipelines:\n  main:\n    from: in\n    \
             transforms:\n      - limit: {{ rate: {rate}, burst: 1 }}\n    to: out\n\
             sinks: {{ out: {{ file: {{ path: out.txt }} }} }}\n"
        )
    };
    let program = program(&config(5));
    program.write("in.txt", (0..1000).map(|number| format!("line {number}\n")).collect::<String>()).unwrap();
    let arguments = vec!["--drain-timeout".to_owned(), "1s".to_owned()];
    let mut running = program.start(&Launch { arguments, ..Launch::of("pipeline.yaml") }).unwrap();
    wait_for(&program, &mut running, "out.txt.part", "line 2\n");
    running.signal(Signal::TERM);
    let ended = running.wait().unwrap();
    assert!(ended.code == Some(3) && ended.log.contains("the drain timeout of 1 s expired"), "{}", ended.log);
    // Far from all, even if the machine stood still for a while.
    assert!(text(&program, "out.txt.part").lines().count() < 500);
    program.write("pipeline.yaml", config(1_000_000)).unwrap();
    assert!(start(&program, "").wait().unwrap().is_done());
    let output = text(&program, "out.txt");
    assert_eq!(output.lines().collect::<HashSet<_>>().len(), 1000);
}

#[test]
fn a_job_without_a_state_replaces_its_output() {
    for sink in ["file: { path: out/all.txt", "objects: { url: out/all.txt"] {
        for rotate in ["", ", rotate: { size: 2B }"] {
            let program = program(&format!(
                "sources: {{ in: {{ generate: {{ lines: [a, b] }} }} }}\npipelines: {{ main: {{ from: in, to: out }} }}\n\
                 sinks: {{ out: {{ {sink}{rotate} }} }} }}\n"
            ));
            for _ in 0..2 {
                let launch = Launch { state: None, ..Launch::of("pipeline.yaml") };
                assert!(program.start(&launch).unwrap().wait().unwrap().is_done());
                let written = read::contents(&program.path("out"), true).unwrap().concat();
                assert_eq!(String::from_utf8(written).unwrap(), "a\nb\n", "{sink}{rotate}");
            }
        }
    }
}

const INPUT: usize = 30_000;

/// A third of the lines are no JSON and become dead letters.
fn with_letters(options: &str) -> Program {
    let program = program(&letters_config(options));
    let line = |number: usize| match number % 3 {
        0 => format!("no {number}\n"),
        _ => format!("{{\"n\":{number}}}\n"),
    };
    program.write("in.txt", (0..INPUT).map(line).collect::<String>()).unwrap();
    program
}

fn letters_config(options: &str) -> String {
    format!(
        "memory: 300KiB\n{options}\nsources: {{ in: {{ file: {{ path: in.txt }} }} }}\n\
         pipelines: {{ main: {{ from: in, transforms: [parse_json], to: out }} }}\n\
         sinks: {{ out: {{ file: {{ path: out.txt }} }} }}\n"
    )
}

/// Every message is in the output or in the dead letters, and no letter is there twice. Returns the number of
/// lines of the output.
fn check_letters(program: &Program) -> usize {
    let letters = program.dead_letters().unwrap();
    let different: HashSet<&Letter> = letters.iter().collect();
    assert_eq!((letters.len(), different.len()), (INPUT / 3, INPUT / 3));
    let output = text(program, "out.txt");
    assert_eq!(output.lines().collect::<HashSet<_>>().len(), INPUT - INPUT / 3);
    output.lines().count()
}

#[test]
fn a_letter_of_a_killed_run_is_there_once() {
    let program = with_letters("");
    for kill in
        ["letters.before=kill@2", "letters.after=kill@2", "checkpoint.before=kill@1", "letters.after=kill@1"]
    {
        let ended = start(&program, kill).wait().unwrap();
        assert_eq!(ended.signal, Some(9), "{kill}: {}", ended.log);
    }
    assert!(start(&program, "").wait().unwrap().is_done());
    assert_eq!(check_letters(&program), INPUT - INPUT / 3);
}

#[test]
fn a_run_whose_dead_letters_are_full_says_so_and_acknowledges_nothing_more() {
    for when_full in ["wait", "error"] {
        let program = with_letters(&format!("dead_letters: {{ max_count: 5, when_full: {when_full} }}"));
        let mut running = start(&program, "");
        let told = "the dead letters are full: 5 letters";
        while !running.log().contains(told) && running.runs_for(Duration::from_millis(5)) {}
        // With `fail` it ends by itself.
        running.signal(Signal::TERM);
        let ended = running.wait().unwrap();
        assert!(ended.code == Some(3) && ended.log.contains(told), "{when_full}: {}", ended.log);
        program.write("pipeline.yaml", letters_config("")).unwrap();
        assert!(start(&program, "").wait().unwrap().is_done());
        check_letters(&program);
    }
}

#[test]
fn letters_of_several_runs_without_a_state_are_kept() {
    let program = with_letters("");
    for runs in 1..=2 {
        let launch = Launch { state: None, ..Launch::of("pipeline.yaml") };
        assert!(program.start(&launch).unwrap().wait().unwrap().is_done());
        let listed = ["errors", "list", "pipeline.yaml", "--limit", "1000000", "--json"];
        let listed = program.output(&listed).unwrap();
        assert_eq!(String::from_utf8(listed.stdout).unwrap().lines().count(), runs * INPUT / 3);
    }
    assert_eq!(text(&program, "out.txt").lines().count(), INPUT - INPUT / 3);
}

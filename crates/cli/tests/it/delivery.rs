//! Nothing is lost, whatever happens to the process; and every budget works.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use crate::common::{self, House};

const LINES: usize = 300_000;

pub fn numbered_lines(path: &Path, count: usize) {
    let mut file = std::io::BufWriter::new(fs::File::create(path).unwrap());
    for number in 0..count {
        writeln!(file, r#"{{"n":{number},"text":"some text to make the line a little longer"}}"#).unwrap();
    }
    file.flush().unwrap();
}

pub fn numbers(house: &House, name: &str) -> Vec<usize> {
    let parse = |line: String| {
        let digits = line.strip_prefix(r#"{"n":"#).and_then(|rest| rest.split(',').next().map(str::to_owned));
        digits.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("a torn line: {line:?}"))
    };
    house.lines(name).into_iter().map(parse).collect()
}

/// Runs a configuration and kills it at random moments, until it ends by itself. Returns the number of kills.
fn run_through_kills(house: &House, kills: usize) -> usize {
    kill_and_run(house, kills, &["run", "pipeline.yaml", "--state", "state", "--quiet"])
}

pub fn kill_and_run(house: &House, kills: usize, arguments: &[&str]) -> usize {
    let mut killed = 0;
    let mut random = 0x9E37_79B9_7F4A_7C15u64 ^ u64::from(std::process::id());
    loop {
        let mut command = house.command(arguments);
        let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
        if killed < kills {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            std::thread::sleep(Duration::from_millis(20 + (random >> 33) % 700));
            if child.try_wait().unwrap().is_none() {
                child.kill().unwrap();
                child.wait().unwrap();
                killed += 1;
                continue;
            }
        }
        let output = common::said(child.wait_with_output().unwrap());
        assert_eq!(output.code, Some(0), "{}", output.err);
        return killed;
    }
}

#[test]
fn kill_9_at_any_moment_and_a_restart_lose_no_record() {
    let house = House::with(&[]);
    let folder = house.path();
    numbered_lines(&folder.join("in.jsonl"), LINES);
    // The rate makes the run long enough to be killed twenty times in the middle of its work.
    fs::write(
        folder.join("pipeline.yaml"),
        "memory: 4MiB\n\
         sources: { in: { file: { path: in.jsonl } } }\n\
         pipelines:\n  main:\n    from: in\n    transforms: [parse_json: {}, limit: { rate: 15000, burst: 1000 }]\n    to: out\n\
         sinks: { out: { file: { path: out.jsonl, encode: json } } }\n",
    )
    .unwrap();
    let killed = run_through_kills(&house, 20);
    let found = numbers(&house, "out.jsonl");
    let mut distinct = found.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let twice = found.len() - distinct.len();
    println!("killed {killed} times; {} of {} records were delivered twice", twice, found.len());
    assert_eq!(killed, 20, "the run ended before it could be killed often enough");
    assert_eq!(distinct, (0..LINES).collect::<Vec<_>>());
    assert!(twice < LINES, "{twice} records were delivered twice");
    assert!(!folder.join("out.jsonl.part").exists());
}

#[test]
fn compressed_output_survives_kill_9_as_well() {
    let house = House::with(&[]);
    let folder = house.path();
    numbered_lines(&folder.join("in.jsonl"), LINES / 4);
    fs::write(
        folder.join("pipeline.yaml"),
        "memory: 4MiB\n\
         sources: { in: { file: { path: in.jsonl } } }\n\
         pipelines:\n  main:\n    from: in\n    transforms: [limit: { rate: 40000, burst: 10000 }]\n    to: out\n\
         sinks: { out: { file: { path: out.jsonl.gz, compression: gzip } } }\n",
    )
    .unwrap();
    let killed = run_through_kills(&house, 5);
    let copy = "sources: { in: { file: { path: out.jsonl.gz } } }\n\
                pipelines: { main: { from: in, to: out } }\n\
                sinks: { out: { file: { path: out.jsonl } } }\n";
    fs::write(folder.join("unpack.yaml"), copy).unwrap();
    house.run_well(&["run", "unpack.yaml", "--quiet"]);
    let mut found = numbers(&house, "out.jsonl");
    found.sort_unstable();
    found.dedup();
    println!("killed {killed} times");
    assert_eq!(found, (0..LINES / 4).collect::<Vec<_>>());
}

#[test]
fn a_run_that_continues_reads_only_what_is_new() {
    let house = House::with(&[]);
    let folder = house.path();
    fs::write(
        folder.join("pipeline.yaml"),
        "sources: { in: { file: { path: in.log } } }\n\
         pipelines: { main: { from: in, to: out } }\n\
         sinks: { out: { file: { path: out.log } } }\n",
    )
    .unwrap();
    let arguments = ["run", "pipeline.yaml", "--state", "state", "--quiet"];
    fs::write(folder.join("in.log"), "one\ntwo\n").unwrap();
    house.run_well(&arguments);
    house.run_well(&arguments);
    assert_eq!(house.lines("out.log"), ["one", "two"]);
    fs::OpenOptions::new().append(true).open(folder.join("in.log")).unwrap().write_all(b"three\n").unwrap();
    house.run_well(&arguments);
    assert_eq!(house.lines("out.log"), ["one", "two", "three"]);
}

#[test]
fn order_is_kept_with_many_copies_and_any_budget() {
    let house = House::with(&[]);
    let folder = house.path();
    numbered_lines(&folder.join("in.jsonl"), 100_000);
    for memory in ["1B", "10kB", "300KiB", "64MiB"] {
        fs::write(
            folder.join("pipeline.yaml"),
            format!(
                "memory: {memory}\n\
                 sources: {{ in: {{ file: {{ path: in.jsonl }} }} }}\n\
                 pipelines:\n  main:\n    from: in\n    concurrency: 7\n\
                 \x20   transforms: [parse_json: {{}}, filter: \"n % 3 = 0\"]\n    to: [out, copy]\n\
                 sinks:\n  out: {{ file: {{ path: out.jsonl, encode: json }} }}\n  copy: {{ file: {{ path: copy.jsonl }} }}\n"
            ),
        )
        .unwrap();
        house.run_well(&["run", "pipeline.yaml", "--quiet"]);
        let expected: Vec<usize> = (0..100_000).filter(|n| n % 3 == 0).collect();
        assert_eq!(numbers(&house, "out.jsonl"), expected, "with {memory}");
        assert_eq!(numbers(&house, "copy.jsonl"), expected, "with {memory}");
    }
}

#[test]
fn each_message_of_a_failover_reaches_a_sink() {
    let house = House::with(&[]);
    let folder = house.path();
    numbered_lines(&folder.join("in.jsonl"), 1000);
    fs::create_dir(folder.join("taken")).unwrap();
    fs::write(
        folder.join("pipeline.yaml"),
        "sources: { in: { file: { path: in.jsonl } } }\n\
         pipelines: { main: { from: in, to: { failover: [broken, whole] } } }\n\
         sinks:\n  broken: { file: { path: taken } }\n  whole: { file: { path: out.jsonl } }\n",
    )
    .unwrap();
    house.run_well(&["run", "pipeline.yaml", "--quiet"]);
    assert_eq!(numbers(&house, "out.jsonl"), (0..1000).collect::<Vec<_>>());
}

#[test]
fn messages_that_a_sink_wrote_but_could_not_flush_go_to_the_next_sink() {
    if !Path::new("/dev/full").exists() {
        println!("not shown: there is no /dev/full");
        return;
    }
    let house = House::with(&[]);
    let folder = house.path();
    numbered_lines(&folder.join("in.jsonl"), 100_000);
    // Compressed data is durable only after a flush, which fails here.
    fs::write(
        folder.join("pipeline.yaml"),
        "memory: 1MiB\n\
         sources: { in: { file: { path: in.jsonl } } }\n\
         pipelines: { main: { from: in, to: { failover: [full, whole] } } }\n\
         sinks:\n  full: { file: { path: /dev/full, atomic: false, compression: gzip } }\n  whole: { file: { path: out.jsonl } }\n",
    )
    .unwrap();
    house.run_well(&["run", "pipeline.yaml", "--quiet"]);
    assert_eq!(numbers(&house, "out.jsonl"), (0..100_000).collect::<Vec<_>>());
}

#[test]
fn pipelines_can_be_led_to_like_sinks() {
    let house = House::with(&[(
        "c.yaml",
        "
sources: { in: { generate: { lines: [a, b, c, d] } } }
pipelines:
  main: { from: in, to: [all, turns] }
  turns: { to: { round_robin: [first, second] } }
  first: { transforms: [ set: { n: \"'first'\" } ], to: out }
  second: { to: { failover: [third, spare] } }
  third: { transforms: [ set: { n: \"'third'\" } ], to: out }
sinks:
  all: { file: { path: all.txt } }
  out: { file: { path: out.jsonl, encode: { format: json, fields: [payload, n] } } }
  spare: { file: { path: spare.txt } }
",
    )]);
    house.run_well(&["run", "c.yaml", "--quiet"]);
    assert_eq!(house.read("all.txt"), "a\nb\nc\nd\n");
    let mut lines: Vec<String> = house.read("out.jsonl").lines().map(str::to_owned).collect();
    lines.sort();
    let line = |payload, n| format!("{{\"payload\":\"{payload}\",\"n\":\"{n}\"}}");
    assert_eq!(lines, [line("a", "first"), line("b", "third"), line("c", "first"), line("d", "third")]);
    assert_eq!(house.read("spare.txt"), "");
}

#[test]
fn messages_that_a_pipeline_of_a_failover_does_not_deliver_continue_unchanged() {
    let house = House::with(&[(
        "c.yaml",
        "
sources: { in: { file: { path: in.jsonl } } }
pipelines:
  main: { from: in, to: { failover: [changed, whole] } }
  changed: { transforms: [ parse_json, encode: csv ], to: broken }
sinks:
  broken: { file: { path: taken } }
  whole: { file: { path: out.jsonl } }
",
    )]);
    numbered_lines(&house.path().join("in.jsonl"), 10_000);
    fs::create_dir(house.path().join("taken")).unwrap();
    house.run_well(&["run", "c.yaml", "--quiet"]);
    assert_eq!(numbers(&house, "out.jsonl"), (0..10_000).collect::<Vec<_>>());
}

#[test]
fn messages_beyond_the_capacity_of_a_route_take_the_next_one() {
    let house = House::with(&[(
        "c.yaml",
        "
memory: 1MiB
sources: { in: { file: { path: in.jsonl } } }
pipelines:
  main: { from: in, to: { failover: { to: [slow, fast], timeout: 0s } } }
  slow: { transforms: [ limit: { rate: 2000 } ], to: few }
sinks:
  few: { file: { path: few.jsonl } }
  fast: { file: { path: fast.jsonl } }
",
    )]);
    numbered_lines(&house.path().join("in.jsonl"), 100_000);
    house.run_well(&["run", "c.yaml", "--quiet"]);
    let (few, fast) = (numbers(&house, "few.jsonl"), numbers(&house, "fast.jsonl"));
    assert!(!few.is_empty() && !fast.is_empty(), "{} and {}", few.len(), fast.len());
    let mut all = [few, fast].concat();
    all.sort();
    assert_eq!(all, (0..100_000).collect::<Vec<_>>());
}

#[test]
fn a_pipeline_that_is_named_brings_where_it_leads_but_not_what_else_leads_there() {
    let house = House::with(&[(
        "c.yaml",
        "
sources:
  a: { generate: { lines: [a] } }
  b: { generate: { lines: [b] } }
pipelines:
  first: { from: a, to: both }
  second: { from: b, to: both }
  both: { to: out }
sinks: { out: { file: { path: out.txt } } }
",
    )]);
    house.run_well(&["run", "c.yaml", "first", "--quiet"]);
    assert_eq!(house.read("out.txt"), "a\n");
    house.run_well(&["run", "c.yaml", "both", "--quiet"]);
    assert_eq!(house.lines("out.txt").len(), 2);
}

#[test]
fn spooled_messages_survive_kill_9_of_the_writer_and_of_the_reader() {
    let house = House::with(&[]);
    let folder = house.path();
    numbered_lines(&folder.join("in.jsonl"), LINES / 4);
    fs::write(
        folder.join("in.yaml"),
        "memory: 4MiB\n\
         sources: { in: { file: { path: in.jsonl } } }\n\
         pipelines:\n  main:\n    from: in\n    transforms: [parse_json: {}, limit: { rate: 20000, burst: 1000 }]\n    to: spool\n\
         sinks: { spool: { spool: { path: spool, max_file_bytes: 1MiB, max_file_age: 300ms } } }\n",
    )
    .unwrap();
    fs::write(
        folder.join("out.yaml"),
        "memory: 4MiB\n\
         sources: { spool: { spool: { path: spool, follow: false, poll_interval: 20ms, rate: 20000 } } }\n\
         pipelines: { main: { from: spool, to: out } }\n\
         sinks: { out: { file: { path: out.jsonl, encode: json } } }\n",
    )
    .unwrap();
    let read = || kill_and_run(&house, 8, &["run", "out.yaml", "--state", "state-out", "--quiet"]);
    let killed = std::thread::scope(|scope| {
        let writing =
            scope.spawn(|| kill_and_run(&house, 8, &["run", "in.yaml", "--state", "state-in", "--quiet"]));
        // Both run at the same time once there is something to read. The reader ends when it finds nothing.
        while !folder.join("spool/00000001.spool").exists() && !writing.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let reading = read();
        writing.join().unwrap() + reading
    });
    let killed = killed + read();
    let mut found = numbers(&house, "out.jsonl");
    let all = found.len();
    found.sort_unstable();
    found.dedup();
    println!("killed {killed} times; {} of {all} records were delivered twice", all - found.len());
    let missing: Vec<usize> = (0..LINES / 4).filter(|number| found.binary_search(number).is_err()).collect();
    assert!(missing.is_empty(), "{} are missing, among them {:?}", missing.len(), missing.first());
    let left: Vec<_> =
        fs::read_dir(folder.join("spool")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn messages_that_a_sink_could_not_accept_return_from_the_spool() {
    let house = House::with(&[]);
    let folder = house.path();
    numbered_lines(&folder.join("in.jsonl"), 1000);
    fs::create_dir(folder.join("taken")).unwrap();
    let configuration = "sources:\n  in: { file: { path: in.jsonl } }\n  kept: { spool: { path: spool, ends_with_others: true } }\n\
         pipelines:\n  main: { from: in, transforms: [parse_json: {}], to: { failover: [broken, spool] } }\n  again: { from: kept, to: out }\n\
         sinks:\n  broken: { file: { path: taken } }\n  spool: { spool: { path: spool, max_file_age: 50ms } }\n  out: { file: { path: out.jsonl, encode: json } }\n";
    fs::write(folder.join("pipeline.yaml"), configuration).unwrap();
    // The job ends although one source waits for more. The next run delivers the messages that it did not
    // read.
    house.run_well(&["run", "pipeline.yaml", "--quiet", "--state", "state"]);
    fs::write(
        folder.join("rest.yaml"),
        "sources: { kept: { spool: { path: spool, follow: false } } }\n\
         pipelines: { again: { from: kept, to: out } }\n\
         sinks: { out: { file: { path: out.jsonl, encode: json, existing: append } } }\n",
    )
    .unwrap();
    house.run_well(&["run", "rest.yaml", "--quiet"]);
    let mut found = numbers(&house, "out.jsonl");
    found.sort_unstable();
    found.dedup();
    assert_eq!(found, (0..1000).collect::<Vec<_>>());
}

//! Transforms that count agree with what is in the output, whenever a run is killed.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use rustix::process::Signal;
use thalweg_testkit::program::{Launch, PATIENCE, Program};
use thalweg_testkit::read;

use crate::PROGRAM;

/// A run takes a second, so that there are some checkpoints in it on a busy machine too.
const LINES: usize = 4000;

/// Runs a pipeline of `LINES` numbered lines, kills it at a failpoint, and runs it to its end. Returns the
/// lines of its output.
fn killed_at(failpoint: &str, transforms: &str, sink: &str) -> Vec<String> {
    let program = Program::new(Path::new(PROGRAM)).unwrap();
    let lines: Vec<String> = (0..LINES).map(|number| format!("'{number}'")).collect();
    let lines = lines.join(", ");
    let config = format!(
        "memory: 1MiB\nsources: {{ in: {{ generate: {{ lines: [{lines}], rate: 4000 }} }} }}\n\
         pipelines: {{ main: {{ from: in, to: out, transforms: [{transforms}] }} }}\n\
         sinks: {{ out: {{ {sink} }} }}\n"
    );
    program.write("pipeline.yaml", config).unwrap();
    let killed =
        program.start(&Launch::of("pipeline.yaml").with_failpoints(failpoint)).unwrap().wait().unwrap();
    assert_eq!(killed.signal, Some(9), "{failpoint}: {}", killed.log);
    let ended = program.start(&Launch::of("pipeline.yaml")).unwrap().wait().unwrap();
    assert!(ended.is_done(), "{failpoint}: {}", ended.log);
    let mut files = read::files(&program.path("out")).unwrap();
    files.sort();
    assert!(files.iter().all(|path| !read::is_unfinished(path)), "{failpoint}: {files:?}");
    let texts = files.iter().map(|path| fs::read_to_string(path).unwrap());
    texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Each line is there once, in order, with the number that it had at first.
#[test]
fn messages_keep_their_numbers_when_a_sink_that_collects_is_killed() {
    let transforms = "{ add_sequence: {} }, \
                      { encode: { format: text, template: '{sequence} {payload}' } }";
    let expected: Vec<String> = (0..LINES).map(|number| format!("{number} {number}")).collect();
    for sink in [
        "objects: { url: out/all.txt }",
        "objects: { url: out/all.txt, part_size: 4KiB }",
        "objects: { url: out/all.txt, rotate: { every: 70ms } }",
        "objects: { url: out/all.txt, rotate: { size: 3KiB } }",
    ] {
        for failpoint in [
            "checkpoint.after=kill@4",
            "checkpoint.before=kill@5",
            "rename.after=kill",
            "sink.finish.after=kill",
        ] {
            let found = killed_at(failpoint, transforms, sink);
            assert!(found == expected, "{sink}, {failpoint}: {} lines", found.len());
        }
    }
}

/// A batch that is divided between two files is not there twice.
#[test]
fn packed_files_have_each_message_once_when_a_run_is_killed() {
    let expected: Vec<String> = (0..LINES).map(|number| number.to_string()).collect();
    for sink in ["directory: { path: out }", "objects: { url: out/ }"] {
        for failpoint in ["checkpoint.after=kill@4", "checkpoint.before=kill@5", "rename.after=kill@7"] {
            let transforms = "{ pack: { name: 'p-{number:5}.txt', max_count: 300 } }";
            let found = killed_at(failpoint, transforms, sink);
            assert!(found == expected, "{sink}, {failpoint}: {} lines", found.len());
        }
    }
}

/// Open windows are in the checkpoint, and results leave once.
#[test]
fn messages_are_counted_once_when_a_run_is_killed() {
    let windows: Vec<String> = (0..LINES)
        .step_by(300)
        .map(|first| {
            let last = (first + 300).min(LINES) - 1;
            format!("{first} {last} {}", last - first + 1)
        })
        .collect();
    let one = vec![format!("0 {} {LINES}", LINES - 1)];
    for (options, expected) in
        [("max_count: 300,", windows), ("", one.clone()), ("session_timeout: 1d,", one)]
    {
        let transforms = format!(
            "{{ aggregate: {{ {options} values: {{ a: first(payload), z: last(payload), n: count(*) }} }} }}, \
             {{ encode: {{ format: text, template: '{{a}} {{z}} {{n}}' }} }}"
        );
        for sink in ["file: { path: out/all.txt }", "objects: { url: out/all.txt, part_size: 4KiB }"] {
            for failpoint in
                ["checkpoint.after=kill@4", "checkpoint.before=kill@5", "pre_commit.after=kill@3"]
            {
                let found = killed_at(failpoint, &transforms, sink);
                assert!(found == expected, "{options} {sink}, {failpoint}: {found:?}");
            }
        }
    }
}

/// Open groups are in the checkpoint, and merged messages leave once.
#[test]
fn messages_are_merged_once_when_a_run_is_killed() {
    let groups: Vec<String> = (0..LINES)
        .step_by(300)
        .map(|first| {
            let last = (first + 300).min(LINES) - 1;
            (first..=last).map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
        })
        .collect();
    for options in ["max_count: 300", "starts_when: 'CAST(payload AS BIGINT) % 300 = 0'"] {
        let transforms = format!("{{ reduce: {{ {options}, merge: {{ payload: concat }} }} }}");
        for sink in ["file: { path: out/all.txt }", "objects: { url: out/all.txt, part_size: 4KiB }"] {
            for failpoint in
                ["checkpoint.after=kill@4", "checkpoint.before=kill@5", "pre_commit.after=kill@3"]
            {
                let found = killed_at(failpoint, &transforms, sink);
                assert!(found == groups, "{options} {sink}, {failpoint}: {} lines", found.len());
            }
        }
    }
}

/// The messages so far are in the checkpoint, and the output of a killed run leaves again as a whole.
#[test]
fn messages_are_sorted_once_when_a_run_is_killed() {
    let mut expected: Vec<String> = (0..LINES).map(|number| number.to_string()).collect();
    expected.sort();
    let transforms = "{ sort: { by: payload } }";
    for sink in ["file: { path: out/all.txt }", "objects: { url: out/all.txt, part_size: 4KiB }"] {
        for failpoint in ["checkpoint.after=kill@4", "checkpoint.before=kill@5", "pre_commit.after=kill@3"] {
            let found = killed_at(failpoint, transforms, sink);
            assert!(found == expected, "{sink}, {failpoint}: {} lines", found.len());
        }
    }
}

/// No message comes after the one that waits, so its window ends by the clock.
#[test]
fn a_client_is_answered_when_the_results_of_its_window_are_delivered() {
    let program = Program::new(Path::new(PROGRAM)).unwrap();
    let config = "sources: { in: { http: { address: '127.0.0.1:0' } } }\n\
                  pipelines: { main: { from: in, to: out, transforms: [\
                  { aggregate: { every: 1s, values: { n: count(*) } } }, \
                  { encode: { format: text, template: 'n={n}' } }] } }\n\
                  sinks: { out: { file: { path: out.txt, atomic: false } } }\n";
    program.write("pipeline.yaml", config).unwrap();
    let mut running = program.start(&Launch::of("pipeline.yaml")).unwrap();
    let mut client = TcpStream::connect(running.address().unwrap()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = b"POST / HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello";
    client.write_all(request).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(fs::read_to_string(program.path("out.txt")).unwrap(), "n=1\n");
    running.signal(Signal::TERM);
    running.wait().unwrap();
}

/// A table that is full has a part of a batch, and the unfinished one after it the rest.
#[test]
fn a_batch_that_a_limit_divides_between_two_tables_is_there_once() {
    const ROWS: usize = 60_000;
    let text = "x".repeat(40);
    let line = |n: usize| format!("{{\"n\":{n},\"group\":\"g{}\",\"text\":\"{text}\"}}\n", n % 3);
    let lines: Vec<String> = (0..ROWS).map(line).collect();
    for sink in [
        "file: { path: out/all.parquet, rotate: { every: 150ms }, encode: parquet }",
        "objects: { url: out/all.parquet, rotate: { every: 150ms }, encode: parquet }",
        "objects: { url: out/, name: '{group}/{number}.parquet', rotate: { every: 150ms }, encode: parquet }",
    ] {
        let program = Program::new(Path::new(PROGRAM)).unwrap();
        program.write("in.jsonl", lines.concat()).unwrap();
        let config = format!(
            "memory: 2MiB\nsources: {{ in: {{ file: {{ path: in.jsonl }} }} }}\n\
             pipelines: {{ main: {{ from: in, to: out, transforms: [ parse_json: {{}}, \
             limit: {{ rate: 20000, burst: 300 }} ] }} }}\n\
             sinks: {{ out: {{ {sink} }} }}\n"
        );
        program.write("pipeline.yaml", config).unwrap();
        for time in 1..=2 {
            let launch = Launch::of("pipeline.yaml").with_failpoints(format!("commit.after=kill@{time}"));
            let killed = program.start(&launch).unwrap().wait().unwrap();
            assert_eq!(killed.signal, Some(9), "{sink}: {}", killed.log);
        }
        let ended = program.start(&Launch::of("pipeline.yaml")).unwrap().wait().unwrap();
        assert!(ended.is_done(), "{sink}: {}", ended.log);
        let rows = read::contents(&program.path("out"), false).unwrap().concat();
        let rows = String::from_utf8(rows).unwrap();
        let number = |row: &str| row.split_once("\"n\":")?.1.split([',', '}']).next()?.parse::<usize>().ok();
        let mut numbers: Vec<usize> = rows.lines().filter_map(number).collect();
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(0..ROWS), "{sink}: {} rows", numbers.len());
    }
}

/// Messages that a checkpoint covers are in the state until their object or file is complete.
#[test]
fn a_state_with_unfinished_output_of_a_renamed_component_is_refused() {
    for (transforms, sink, renamed) in [
        ("", "objects: { url: out/all.txt }", ("out", "other")),
        ("{ pack: { name: p, max_file_bytes: 1GiB } }", "directory: { path: out }", ("main", "other")),
    ] {
        let program = Program::new(Path::new(PROGRAM)).unwrap();
        let config = |main: &str, out: &str| {
            format!(
                "sources: {{ in: {{ generate: {{ lines: [a, b], count: 9000, rate: 4000 }} }} }}\n\
                 pipelines: {{ {main}: {{ from: in, to: {out}, transforms: [{transforms}] }} }}\n\
                 sinks: {{ {out}: {{ {sink} }} }}\n"
            )
        };
        program.write("pipeline.yaml", config("main", "out")).unwrap();
        let killed = Launch::of("pipeline.yaml").with_failpoints("checkpoint.after=kill@5");
        assert_eq!(program.start(&killed).unwrap().wait().unwrap().signal, Some(9));
        let (main, out) = if renamed.0 == "main" { (renamed.1, "out") } else { ("main", renamed.1) };
        program.write("pipeline.yaml", config(main, out)).unwrap();
        let refused = program.start(&Launch::of("pipeline.yaml")).unwrap().wait().unwrap();
        assert_eq!(refused.code, Some(3), "{}", refused.log);
        assert!(refused.log.contains("the state has unfinished output of `"), "{}", refused.log);
        program.write("pipeline.yaml", config("main", "out")).unwrap();
        let ended = program.start(&Launch::of("pipeline.yaml")).unwrap().wait().unwrap();
        assert!(ended.is_done(), "{}", ended.log);
        let lines = || {
            let texts = read::contents(&program.path("out"), false).unwrap().concat();
            texts.iter().filter(|byte| **byte == b'\n').count()
        };
        assert_eq!(lines(), 9000);
        // Nothing is unfinished, so the name may change.
        program.write("pipeline.yaml", config(main, out)).unwrap();
        let ended = program.start(&Launch::of("pipeline.yaml")).unwrap().wait().unwrap();
        assert!(ended.is_done(), "{}", ended.log);
        assert_eq!(lines(), 9000);
    }
}

//! A named pipe that several runs read, one after the other.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use thalweg_testkit::read;

use crate::common::House;

const CONFIG: &str = "sources: { in: { pipe: { path: in.pipe } } }\n\
                      pipelines: { main: { from: in, to: out } }\nsinks: { out: { file: { path: out, atomic: false } } }\n";

/// Starts a run that reads the pipe.
fn start(house: &House) -> Child {
    let mut command = house.command(&["run", "pipeline.yaml", "--state", "state"]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Opens the pipe for writing, once it exists; also for reading, so that it is never without a reader.
fn writer(house: &House) -> File {
    let path = house.path().join("in.pipe");
    while !path.exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// Waits until the output has this many lines.
fn wait_for(house: &House, lines: usize) {
    while !house.path().join("out").exists() || house.lines("out").len() < lines {
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn end(child: &mut Child, signal: &str) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    child.wait().unwrap();
}

#[test]
fn a_message_of_which_a_stopped_run_has_read_a_part_is_whole() {
    let house = House::with(&[("pipeline.yaml", CONFIG)]);
    let mut run = start(&house);
    let mut pipe = writer(&house);
    pipe.write_all(b"one\ntwo\nthr").unwrap();
    wait_for(&house, 2);
    end(&mut run, "-TERM");
    let mut run = start(&house);
    pipe.write_all(b"ee\nfour\n").unwrap();
    wait_for(&house, 4);
    end(&mut run, "-TERM");
    assert_eq!(house.lines("out"), ["one", "two", "three", "four"]);
}

#[test]
fn a_run_without_state_delivers_the_part_of_a_message_that_it_has_read() {
    let house = House::with(&[("pipeline.yaml", CONFIG)]);
    let mut command = house.command(&["run", "pipeline.yaml"]);
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut pipe = writer(&house);
    pipe.write_all(b"one\ntwo\nthr").unwrap();
    wait_for(&house, 2);
    end(&mut run, "-TERM");
    assert_eq!(house.lines("out"), ["one", "two", "thr"]);
}

#[test]
fn the_rest_of_a_message_that_is_too_long_is_no_message_of_the_next_run() {
    let config = CONFIG.replace("path: in.pipe }", "path: in.pipe, max_message_bytes: 10B }");
    let house = House::with(&[("pipeline.yaml", &config)]);
    let mut run = start(&house);
    let mut pipe = writer(&house);
    pipe.write_all(b"one\n0123456789abcdef").unwrap();
    wait_for(&house, 1);
    std::thread::sleep(Duration::from_millis(100));
    end(&mut run, "-TERM");
    let mut run = start(&house);
    pipe.write_all(b"ghi\ntwo\n").unwrap();
    wait_for(&house, 2);
    end(&mut run, "-TERM");
    assert_eq!(house.lines("out"), ["one", "two"]);
}

#[test]
fn everything_that_is_written_while_runs_are_stopped_arrives_once() {
    let house = House::with(&[("pipeline.yaml", CONFIG)]);
    let mut run = start(&house);
    let mut pipe = writer(&house);
    let writing = std::thread::spawn(move || {
        for number in 0..300_000 {
            pipe.write_all(format!("line {number}\n").as_bytes()).unwrap();
        }
        pipe
    });
    for pause in [30, 10, 50, 20] {
        std::thread::sleep(Duration::from_millis(pause));
        end(&mut run, "-TERM");
        run = start(&house);
    }
    let _pipe = writing.join().unwrap();
    wait_for(&house, 300_000);
    end(&mut run, "-TERM");
    let lines = house.lines("out");
    assert!((0..300_000).map(|number| format!("line {number}")).eq(lines.iter().cloned()), "{}", lines.len());
}

#[test]
fn the_rest_of_a_message_that_a_killed_run_has_read_is_an_error() {
    let house = House::with(&[("pipeline.yaml", CONFIG)]);
    let mut run = start(&house);
    let mut pipe = writer(&house);
    pipe.write_all(b"one\ntw").unwrap();
    wait_for(&house, 1);
    end(&mut run, "-KILL");
    let mut run = start(&house);
    pipe.write_all(b"o\nthree\nfour\n").unwrap();
    wait_for(&house, 3);
    end(&mut run, "-TERM");
    assert_eq!(house.lines("out"), ["one", "three", "four"]);
    let letters = house.run_well(&["errors", "list", "pipeline.yaml", "--state", "state"]).out;
    assert!(letters.contains("a run that was killed may have read its beginning"), "{letters}");
}

/// Nothing can be appended to a compressed member that was cut off, and no sender sends its messages again.
#[test]
fn messages_of_a_compressed_file_are_kept_when_a_run_is_killed() {
    let suffixes = [("gzip", "gz"), ("zstd", "zst")];
    for (compression, suffix) in suffixes {
        let (name, part) = (format!("out.{suffix}"), format!("out.{suffix}.part"));
        let sink = format!("path: {name}, compression: {compression}");
        let house = House::with(&[("pipeline.yaml", &CONFIG.replace("path: out, atomic: false", &sink))]);
        let mut run = start(&house);
        let mut pipe = writer(&house);
        // Numbers that can hardly be compressed: an encoder holds some of them.
        let mut number = 1u128;
        let mut next = || {
            number = number.wrapping_mul(0xDA94_2042_E4DD_58B5_9E37_79B9_7F4A_7C15);
            number
        };
        let size = || std::fs::metadata(house.path().join(&part)).map_or(0, |found| found.len());
        while size() < 100_000 {
            let lines: String = (0..100).map(|_| format!("{:032x}\n", next())).collect();
            pipe.write_all(lines.as_bytes()).unwrap();
        }
        end(&mut run, "-KILL");
        let written = read::content(&house.path().join(&part)).unwrap();
        let whole = written.iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
        let mut run = start(&house);
        pipe.write_all(b"end\nend\n").unwrap();
        let has_end = || read::content(&house.path().join(&part)).unwrap().ends_with(b"end\n");
        while !has_end() {
            std::thread::sleep(Duration::from_millis(5));
        }
        end(&mut run, "-TERM");
        let found = read::content(&house.path().join(&name)).unwrap();
        assert!(found.starts_with(&written[..whole]), "{compression}: {whole} bytes, then {}", found.len());
    }
}

//! `copy` from the standard input and to the standard output.

use std::io::{Read, Write};
use std::process::Stdio;

use crate::common::House;

const PEOPLE: &str = "name,age\nAda,36\n\"Bo\nb\",7\n";
const PEOPLE_JSON: &str = "{\"name\":\"Ada\",\"age\":\"36\"}\n{\"name\":\"Bo\\nb\",\"age\":\"7\"}\n";

#[test]
fn rows_go_from_stream_to_stream() {
    let house = House::with(&[]);
    let arguments = ["copy", "-", "-", "--parse", "csv", "--encode", "json"];
    let said = house.run_with_input(&arguments, PEOPLE.as_bytes());
    assert_eq!((said.code, said.out.as_str()), (Some(0), PEOPLE_JSON), "{}", said.err);
    assert!(said.err.contains("2 rows copied"), "{}", said.err);
}

#[test]
fn rows_go_between_streams_and_files() {
    let house = House::with(&[("people.csv", PEOPLE)]);
    let arguments = ["copy", "people.csv", "-", "--parse", "csv", "--where", "name = 'Ada'", "--quiet"];
    assert_eq!(house.run_well(&arguments).out, "name,age\nAda,36\n");
    let arguments = ["copy", "-", "people.jsonl", "--parse", "csv", "--encode", "json", "--quiet"];
    let said = house.run_with_input(&arguments, PEOPLE.as_bytes());
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    assert_eq!(house.read("people.jsonl"), PEOPLE_JSON);
}

#[test]
fn bytes_go_between_streams_and_files() {
    let house = House::with(&[]);
    // More than one part.
    let bytes: Vec<u8> = (0..20_000_000_u32).map(|number| (number % 251) as u8).collect();
    let said = house.run_with_input(&["copy", "-", "out/copy.bin"], &bytes);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.err.contains("19.1 MiB copied"), "{}", said.err);
    assert!(std::fs::read(house.path().join("out/copy.bin")).unwrap() == bytes);
    let output = house.command(&["copy", "out/copy.bin", "-"]).output().unwrap();
    assert!(output.stdout == bytes);
    let said = house.run_with_input(&["copy", "-", "empty"], b"");
    assert_eq!((said.code, house.read("empty").as_str()), (Some(0), ""));
    let said = house.run_with_input(&["copy", "-", "-", "--quiet"], b"a\0b");
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (Some(0), "a\0b", ""));
}

/// A read that waited for more input was only given up when the time to drain was over.
#[test]
fn a_copy_of_an_idle_input_ends_when_it_is_asked_to() {
    let house = House::with(&[]);
    let arguments = ["copy", "-", "-", "--parse", "csv", "--encode", "json"];
    let mut child = house.command(&arguments);
    let mut child =
        child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(PEOPLE.as_bytes()).unwrap();
    while rustix::io::ioctl_fionread(&input).unwrap() > 0 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), PEOPLE_JSON, "{said}");
    assert!(!said.contains("drain"), "{said}");
    drop(input);
}

#[test]
fn a_reader_that_goes_away_ends_the_copy_quietly() {
    let house = House::with(&[]);
    house.write("large", &vec![b'\n'; 10_000_000]);
    for arguments in [&["copy", "large", "-"][..], &["copy", "large", "-", "--parse", "lines"]] {
        let mut child =
            house.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (output.status.code(), String::from_utf8(output.stderr).unwrap()),
            (Some(0), String::new())
        );
    }
}

#[test]
#[cfg(unix)]
fn a_signal_ends_a_copy_whose_reader_takes_nothing() {
    let house = House::with(&[]);
    house.write("large", &vec![b'\n'; 10_000_000]);
    let mut child =
        house.command(&["copy", "large", "-"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    output.read_exact(&mut [0; 10]).unwrap();
    let id = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    // The pipe stays open and full.
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

#[test]
fn options_that_mean_nothing_for_a_stream_are_refused() {
    let house = House::with(&[("a", "")]);
    for (arguments, reason) in [
        (&["copy", "-", "b", "--include", "*"][..], "`--include` cannot be used with `-`"),
        (&["copy", "a", "-", "--state", "s"], "`--state` cannot be used with `-`"),
        (&["copy", "-", "b/"], "`b/` must name an object"),
        (&["copy", "a", "-", "--parse", "lines", "--encode", "parquet"], "Parquet cannot be written"),
        (&["copy", "-", "b", "--print-config"], "has no configuration for `-`"),
    ] {
        let said = house.run(arguments);
        assert_eq!(said.code, Some(2), "{arguments:?}");
        assert!(said.err.contains(reason), "{arguments:?}: {}", said.err);
    }
}

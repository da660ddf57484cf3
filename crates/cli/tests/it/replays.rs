//! `thalweg errors replay` beside the state of a run: which transforms share it, and which do not.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

use thalweg_testbed::Patience;

use crate::common::House;
use crate::services::Service;

fn append(house: &House, name: &str, text: &str) {
    let mut file = OpenOptions::new().append(true).open(house.path().join(name)).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// Replays all dead letters, or those of a component.
fn replayed(house: &House, of: &[&str]) -> String {
    house.run_well(&[&["errors", "replay", "c.yaml"][..], of].concat()).err
}

/// Counts requests by the minute, and copies them.
fn minutes(follow: bool, copied: &str) -> String {
    format!(
        "state: kept
sources: {{ in: {{ file: {{ path: in.jsonl, follow: {follow} }} }} }}
pipelines:
  main:
    from: in
    transforms:
      - parse_json: {{ types: {{ t: timestamp }} }}
      - aggregate: {{ by: host, every: 1m, time: t, values: {{ n: count(*) }} }}
      - encode: {{ format: text, template: '{{window_start:%H:%M}} {{host}} {{n}}' }}
    to: minutes
  copied:
    from: in
    transforms: [ parse_json, {copied} ]
    to: copy
sinks:
  minutes: {{ file: {{ path: minutes.txt, atomic: false }} }}
  copy: {{ file: {{ path: copy.jsonl, atomic: false, encode: json }} }}
"
    )
}

fn requests(times: &[&str]) -> String {
    times.iter().map(|time| format!("{{\"t\":\"2026-01-01T{time}Z\",\"host\":\"a\"}}\n")).collect()
}

/// The run was killed after it had kept the letters and before a checkpoint: the next one reads all messages
/// again.
#[test]
fn letters_of_messages_that_come_again_are_left_to_the_next_run() {
    let text = |parse: &str| {
        format!(
            "state: kept\nsources: {{ in: {{ file: {{ path: in.txt }} }} }}\n\
             pipelines: {{ main: {{ from: in, transforms: [{parse}], to: out }} }}\n\
             sinks: {{ out: {{ file: {{ path: out.txt, atomic: false }} }} }}\n"
        )
    };
    let house = House::with(&[("c.yaml", &text("parse_json")), ("in.txt", "one\ntwo\n")]);
    let mut killed = house.command(&["run", "c.yaml", "--quiet"]);
    killed.env("THALWEG_FAILPOINTS", "checkpoint.before=kill@1");
    assert!(!killed.status().unwrap().success());
    house.write("c.yaml", text("filter: 'true'").as_bytes());
    let said = replayed(&house, &[]);
    assert_eq!(said, "  2 left to the next run, which reads their messages again\n");
    house.run_well(&["run", "c.yaml"]);
    assert_eq!(house.read("out.txt"), "one\ntwo\n");
    let listed = house.run_well(&["errors", "list", "c.yaml"]);
    assert!(listed.out.is_empty() || listed.out.contains("no dead letters"), "{}", listed.out);
}

/// The letters were late again, and the end of the replay ended the window of the service. Letters of another
/// pipeline were refused, because their run has no windows.
#[test]
fn a_replay_leaves_the_windows_of_the_service_open_and_no_letter_is_late() {
    let house = House::with(&[
        ("c.yaml", &minutes(true, "{ cast: { host: int } }")),
        ("in.jsonl", &requests(&["00:00:05", "00:01:05", "00:00:30"])),
    ]);
    let service = Service::of(house.command(&["run", "c.yaml", "--quiet"]).spawn().unwrap());
    let patience = Patience::begin();
    while std::fs::read(house.path().join("minutes.txt")).unwrap_or_default().is_empty() {
        patience.check(|| "no window has ended".to_owned());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(service.stop(), Some(0));
    assert_eq!(house.read("minutes.txt"), "00:00 a 1\n");

    house.write("c.yaml", minutes(false, "{ set: { host: \"upper(host)\" } }").as_bytes());
    let said = replayed(&house, &["--component", "copied"]);
    assert!(said.contains("3 dead letters: 3 processed\n"), "{said}");
    assert_eq!(house.lines("copy.jsonl").len(), 3);
    assert_eq!(house.read("minutes.txt"), "00:00 a 1\n");
    let said = replayed(&house, &[]);
    assert!(said.contains("1 dead letter: 1 processed\n") && !said.contains("rejected"), "{said}");
    assert_eq!(house.read("minutes.txt"), "00:00 a 1\n00:00 a 1\n");

    append(&house, "in.jsonl", &requests(&["00:01:40", "00:02:05"]));
    house.run_well(&["run", "c.yaml", "--quiet"]);
    assert_eq!(house.lines("minutes.txt"), ["00:00 a 1", "00:00 a 1", "00:01 a 2", "00:02 a 1"]);
}

/// A configuration with a state and these transforms.
fn configuration(transforms: &str) -> String {
    format!(
        "state: kept
sources: {{ in: {{ file: {{ path: in.jsonl }} }} }}
pipelines: {{ main: {{ from: in, transforms: [ {transforms} ], to: out }} }}
sinks: {{ out: {{ file: {{ path: out.jsonl, encode: json }} }} }}
"
    )
}

#[test]
fn a_replay_continues_the_keys_and_the_numbers_of_the_runs_around_it() {
    let last = "parse_json, { dedupe: { keys: n } }, add_sequence";
    let house = House::with(&[
        ("c.yaml", &configuration(last)),
        ("in.jsonl", "{\"n\":1}\n{\"n\":1\n{\"n\":2\n{\"n\":2\n"),
    ]);
    house.run_well(&["run", "c.yaml", "--quiet"]);
    let mended = format!("{{ set: {{ payload: \"payload || '}}'\" }} }}, {last}");
    house.write("c.yaml", configuration(&mended).as_bytes());
    let said = replayed(&house, &[]);
    assert!(said.contains("3 dead letters: 3 processed\n"), "{said}");
    append(&house, "in.jsonl", "{\"n\":2\n{\"n\":3\n");
    house.run_well(&["run", "c.yaml", "--quiet"]);
    let expected = ["{\"n\":1,\"sequence\":0}", "{\"n\":2,\"sequence\":1}", "{\"n\":3,\"sequence\":2}"];
    assert_eq!(house.lines("out.jsonl"), expected);
}

#[test]
fn a_letter_that_failed_behind_dedupe_is_not_taken_for_a_repetition_of_itself() {
    let house = House::with(&[
        ("c.yaml", &configuration("dedupe, parse_json")),
        ("in.jsonl", "rubbish\nrubbish\n{\"n\":1}\n"),
    ]);
    house.run_well(&["run", "c.yaml", "--quiet"]);
    house.write("c.yaml", configuration("dedupe, { set: { text: payload } }").as_bytes());
    let said = replayed(&house, &[]);
    assert!(said.contains("1 dead letter: 1 processed\n"), "{said}");
    append(&house, "in.jsonl", "rubbish\n");
    house.run_well(&["run", "c.yaml", "--quiet"]);
    assert_eq!(house.lines("out.jsonl"), ["{\"n\":1}", "{\"text\":\"rubbish\"}"]);
}

/// The letters that were rejected again had no room, and the replay failed.
#[test]
fn letters_that_are_rejected_again_have_room_although_the_dead_letters_are_full() {
    let full = format!("dead_letters: {{ max_count: 2 }}\n{}", configuration("parse_json"));
    let house = House::with(&[("c.yaml", &full), ("in.jsonl", "rubbish\nmore\n")]);
    house.run_well(&["run", "c.yaml", "--quiet"]);
    let said = replayed(&house, &[]);
    assert!(said.contains("2 dead letters: 0 processed\n  2 rejected again"), "{said}");
    let listed = house.run_well(&["errors", "list", "c.yaml"]).out;
    assert!(listed.ends_with("\n2 dead letters\n"), "{listed}");
}

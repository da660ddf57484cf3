//! `--limit`: each source ends after a number of messages or files.

use crate::common::House;

const LINES: &str = "sources: { in: { file: { path: in.log } } }\npipelines: { main: { from: in, to: out } }\nsinks: { out: { file: { path: out.log } } }\n";

fn numbers(range: std::ops::RangeInclusive<u32>) -> String {
    range.map(|number| format!("{number}\n")).collect()
}

#[test]
fn runs_with_state_go_on_after_the_limit() {
    let house = House::with(&[("c.yaml", LINES), ("in.log", &numbers(1..=10))]);
    let run = ["run", "c.yaml", "--state", "state", "--limit", "4", "--json"];
    for expected in [4, 8, 10, 10] {
        house.run_well(&run);
        assert_eq!(house.read("out.log"), numbers(1..=expected));
    }
}

#[test]
fn a_limited_run_is_done_not_stopped() {
    let house = House::with(&[("c.yaml", LINES), ("in.log", &numbers(1..=10))]);
    let said = house.run_well(&["run", "c.yaml", "--limit", "3"]);
    assert!(said.err.contains("done in") && said.err.contains("3 messages"), "{}", said.err);
    assert_eq!(house.read("out.log"), numbers(1..=3));
    assert!(!house.path().join("out.log.part").exists());
}

#[test]
fn a_source_of_many_messages_ends_at_the_limit() {
    let text = "sources: { in: { generate: { lines: [x], count: 1000000 } } }\npipelines: { main: { from: in, to: out } }\nsinks: { out: { stdout: {} } }\n";
    let house = House::with(&[("c.yaml", text)]);
    assert_eq!(house.run_well(&["run", "c.yaml", "--limit", "100000", "--quiet"]).out, "x\n".repeat(100_000));
}

#[test]
fn rejected_messages_count() {
    let text = LINES.replace("in.log", "in.log, max_message_bytes: 3");
    let house = House::with(&[("c.yaml", &text), ("in.log", "a\nlonger\nb\nc\n")]);
    house.run_well(&["run", "c.yaml", "--limit", "3", "--quiet"]);
    assert_eq!(house.read("out.log"), "a\nb\n");
}

#[test]
fn files_are_counted_where_a_source_sends_files() {
    let text = "sources: { in: { files: { path: in/ } } }\npipelines: { main: { from: in, to: out } }\nsinks: { out: { directory: { path: out } } }\n";
    let house = House::with(&[("c.yaml", text)]);
    std::fs::create_dir(house.path().join("in")).unwrap();
    (0..50).for_each(|number| house.write(&format!("in/{number:02}"), b"x"));
    let written = || std::fs::read_dir(house.path().join("out")).unwrap().count();
    for expected in [7, 14, 21] {
        house.run_well(&["run", "c.yaml", "--state", "state", "--limit", "7", "--quiet"]);
        assert_eq!(written(), expected);
    }
}

#[test]
fn a_spool_keeps_what_was_not_read() {
    let fill = "sources: { in: { file: { path: in.log } } }\npipelines: { main: { from: in, to: out } }\nsinks: { out: { spool: { path: spool } } }\n";
    let drain = "sources: { in: { spool: { path: spool, follow: false } } }\npipelines: { main: { from: in, to: out } }\nsinks: { out: { stdout: {} } }\n";
    let house = House::with(&[("fill.yaml", fill), ("drain.yaml", drain), ("in.log", &numbers(1..=10))]);
    house.run_well(&["run", "fill.yaml", "--quiet"]);
    let run = ["run", "drain.yaml", "--state", "state", "--limit", "6", "--quiet"];
    assert_eq!(house.run_well(&run).out, numbers(1..=6));
    assert_eq!(house.run_well(&run).out, numbers(7..=10));
}

#[test]
fn a_pipe_ends_after_its_limit() {
    let house = House::with(&[("in.log", &numbers(1..=10))]);
    let said = house.run_well(&["pipe", "--limit", "2", "-i", "in.log", "filter payload > '3'"]);
    assert_eq!(said.out, "");
    let said = house.run_with_input(&["pipe", "--limit", "2"], numbers(1..=10).as_bytes());
    assert_eq!((said.code, said.out.as_str()), (Some(0), "1\n2\n"));
}

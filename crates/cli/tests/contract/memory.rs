//! The bound of the memory, with inputs that take far more of it than their text: many fields, long names,
//! many short messages, many rejected ones.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::path::Path;

use rustix::process::Signal;
use thalweg_testkit::cases::messages;
use thalweg_testkit::program::{Launch, Program};

use crate::PROGRAM;

/// The budget of a run, and the memory that it may take beside it, in KiB. That is 4 MiB more than in the
/// testkit's `scenario`: on a busy machine, the allocator kept 33 MiB of what threads had freed in one of
/// twenty runs with hundreds of thousands of rejected messages, 49 MiB in sum.
const BUDGET: u64 = 32 << 10;
const BESIDE: u64 = 52 << 10;

/// Runs an input through these transforms, and checks the most memory that was resident.
fn check(source: &str, transforms: &str, sink: &str, input: &str) {
    check_with(BUDGET, source, transforms, sink, input);
}

/// The same with a budget in KiB.
fn check_with(budget: u64, source: &str, transforms: &str, sink: &str, input: &str) {
    let program = Program::new(Path::new(PROGRAM)).unwrap();
    let config = format!(
        "memory: {budget}KiB\nunknown_fields: accept\nsources: {{ in: {{ {source} }} }}\npipelines: {{ main: {{ from: in, transforms: \
         {transforms}, to: out }} }}\nsinks: {{ out: {{ {sink} }} }}\n",
    );
    program.write("pipeline.yaml", config).unwrap();
    program.write("in", input).unwrap();
    let ended = program.start(&Launch::of("pipeline.yaml")).unwrap().wait().unwrap();
    assert!(matches!(ended.code, Some(0 | 1)), "{transforms}: {}", ended.log);
    assert!(ended.peak_kib <= budget + BESIDE, "{budget} KiB, {transforms}: {} KiB", ended.peak_kib);
}

const FILE: &str = "file: { path: in }";
const NOWHERE: &str = "discard: {}";
const JSON: &str = "file: { path: out, encode: json }";

#[test]
fn many_different_fields_stay_within_the_budget() {
    let mut lines = String::new();
    for number in 0..400_000 {
        writeln!(lines, "{{\"k{}\":1}}", number % 1024).unwrap();
    }
    check(FILE, "[parse_json: {}]", NOWHERE, &lines);
}

#[test]
fn messages_of_thousands_of_fields_stay_within_the_budget() {
    let line = |names: &mut dyn Iterator<Item = String>| {
        let members: Vec<String> = names.map(|name| format!("\"{name}\":\"v\"")).collect();
        format!("{{{}}}\n", members.join(","))
    };
    let same = line(&mut (0..20_000).map(|number| format!("f{number}"))).repeat(30);
    let differing: String =
        (0..30).map(|record| line(&mut (0..2000).map(|number| format!("f{number}_{record}")))).collect();
    for budget in [8 << 10, 32 << 10] {
        for transform in
            ["set: { x: \"'a'\" }", "set: { x: 'CAST(payload AS BIGINT)' }", "encode: json", "encode: csv"]
        {
            let transforms = format!("[parse_json: {{ max_fields: 65536 }}, {transform}]");
            check_with(budget, FILE, &transforms, NOWHERE, &same);
            check_with(budget, FILE, &transforms, NOWHERE, &differing);
        }
    }
}

#[test]
fn an_outer_key_that_is_part_of_a_thousand_names_stays_within_the_budget() {
    let members: Vec<String> = (0..1000).map(|number| format!("\"{number}\":1")).collect();
    let line = format!("{{\"{}\":{{{}}}}}\n", "k".repeat(500_000), members.join(","));
    check(FILE, "[parse_json: { flatten: true }]", JSON, &line);
}

#[test]
fn short_records_below_a_long_header_stay_within_the_budget() {
    let header: Vec<String> = (0..4000).map(|number| format!("{}{number}", "c".repeat(200))).collect();
    let record = vec!["1"; 4000].join(",");
    let full = format!("{}\n{}", header.join(","), format!("{record}\n").repeat(100));
    check(FILE, "[parse_csv: { header: true }]", JSON, &full);
    let short = format!("{}\n{}", header.join(","), "1,2\n".repeat(300_000));
    check("files: { path: in }", "[csv: {}]", NOWHERE, &short);
}

#[test]
fn many_rejected_messages_stay_within_the_budget() {
    check(FILE, "[parse_json: {}]", NOWHERE, &"x\n".repeat(600_000));
    check_with(16 << 10, FILE, "[parse_json: {}]", NOWHERE, &"x\n".repeat(900_000));
    let parts = format!("{}\n", "a,".repeat(400_000));
    check(FILE, "[split: { delimiter: ',' }, parse_json: {}]", NOWHERE, &parts);
}

#[test]
fn many_empty_messages_stay_within_the_budget() {
    check(FILE, "[set: { a: '1' }]", JSON, &"\n".repeat(4_000_000));
}

#[test]
fn long_texts_of_short_messages_stay_within_the_budget() {
    check(FILE, "[template: { template: \"{{ 'x' * 4000000 }}\" }]", NOWHERE, &"x\n".repeat(200));
}

#[test]
fn what_templates_make_on_the_way_stays_within_the_budget() {
    for (budget, template) in [
        (
            32 << 10,
            "{% set s = namespace(x=[]) %}{% for i in range(100) %}{% set s.x = s.x + [payload * 1200000] %}{% endfor %}",
        ),
        (8 << 10, "{{ (payload * 1000000)|list|length }}"),
        (
            1 << 10,
            "{{ ((payload ~ 'abcdefghijklmnopqrstuvwxyz,') * 400000)|split(',')|map('upper')|list|length }}",
        ),
        (1 << 10, "{{ payload * 1000000 }}"),
    ] {
        let transforms = format!("[template: {{ template: \"{template}\" }}]");
        check_with(budget, FILE, &transforms, JSON, &"x\n".repeat(40));
    }
}

#[test]
fn long_results_of_expressions_stay_within_the_budget() {
    for (budget, expression) in [
        (32 << 10, "repeat(payload, 16000000)"),
        (1 << 10, "repeat(payload, 1000000)"),
        (1 << 10, "lpad(payload, 1000000, 'ab')"),
        (1 << 10, "length(lpad(payload, 8000000, 'ab') || rpad(payload, 8000000, 'ab'))"),
    ] {
        let transforms = format!("[set: {{ a: \"{expression}\", b: \"{expression}\" }}]");
        check_with(budget, FILE, &transforms, JSON, &"x\n".repeat(60));
    }
}

#[test]
fn texts_that_are_joined_stay_within_the_budget() {
    let chain = vec!["s"; 30].join(" || ");
    let line = |bytes: usize| format!("{{\"s\":\"{}\"}}\n", "x".repeat(bytes)).repeat(20);
    for budget in [8 << 10, 32 << 10] {
        let join = |set: &str| format!("[parse_json: {{}}, set: {{ {set} }}]");
        check_with(budget, FILE, &join(&format!("x: \"{chain}\"")), NOWHERE, &line(400_000));
        let doubled = "a: s || s, b: a || a, c: b || b, d: c || c, e: d || d, f: e || e";
        check_with(budget, FILE, &join(doubled), NOWHERE, &line(200_000));
    }
}

#[test]
fn a_large_unfinished_file_in_the_state_stays_within_the_budget() {
    let lines = "a line of a text that is long enough\n".repeat(6_000_000);
    let transforms = "[pack: { name: 'p-{number}', max_file_bytes: 2GiB }]";
    check_with(1 << 10, FILE, transforms, "directory: { path: out }", &lines);
}

#[test]
fn many_compressed_files_stay_within_the_budget() {
    let mut lines = String::new();
    for number in 0..50_000 {
        writeln!(lines, "{{\"file\":\"f{}\",\"n\":{number}}}", number % 500).unwrap();
    }
    let sink = "file: { path: 'out/{file}', encode: json, compression: zstd }";
    check(FILE, "[parse_json: {}]", sink, &lines);
}

#[test]
fn captures_of_a_pattern_stay_within_the_budget() {
    let line =
        "10.0.0.1 - ann [10/Oct/2000:13:55:36 -0700] \"GET /index.html HTTP/1.0\" 200 2326 \"-\" \"-\"\n";
    check(FILE, "[parse_grok: { pattern: ['%{COMBINEDAPACHELOG}'] }]", JSON, &line.repeat(50_000));
}

#[test]
fn frames_with_a_large_window_and_patterns_with_many_groups_stay_within_the_budget() {
    let program = Program::new(Path::new(PROGRAM)).unwrap();
    // A frame with a window of 128 MiB, and blocks that repeat a byte.
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0, 17 << 3];
    let mut block = |count: u32, byte: u8, last: u32| {
        frame.extend_from_slice(&(last | 1 << 1 | count << 3).to_le_bytes()[..3]);
        frame.push(byte);
    };
    for _ in 0..1200 {
        block(100_000, b'x', 0);
        block(1, b'\n', 0);
    }
    block(1, b'\n', 1);
    program.write("in/a.zst", frame).unwrap();
    let config = "memory: 32MiB\nsources: { in: { files: { path: in } } }\npipelines: { main: { from: in, transforms: \
                  [lines: {}], to: out } }\nsinks: { out: { discard: {} } }\n";
    program.write("pipeline.yaml", config).unwrap();
    let ended = program.start(&Launch::of("pipeline.yaml")).unwrap().wait().unwrap();
    assert!(ended.peak_kib <= BUDGET + BESIDE, "{} KiB: {}", ended.peak_kib, ended.log);
    let letters = program.dead_letters().unwrap();
    assert_eq!(letters.len(), 1, "{}", ended.log);

    let groups: Vec<String> = (0..100).map(|number| format!(r"(?P<w{number}>\w+)")).collect();
    let config = format!(
        "memory: 32MiB\nsources: {{ in: {{ generate: {{ message: '{}', count: 9 }} }} }}\npipelines: {{ main: {{ from: in, \
         transforms: [parse_regex: {{ pattern: '{}' }}], to: out }} }}\nsinks: {{ out: {{ discard: {{}} }} }}\n",
        vec!["word"; 100].join(" "),
        groups.join(" "),
    );
    program.write("pipeline.yaml", config).unwrap();
    let ended =
        program.start(&Launch { state: None, ..Launch::of("pipeline.yaml") }).unwrap().wait().unwrap();
    assert!(ended.log.contains("to find its 100 groups"), "{}", ended.log);
    assert!(ended.peak_kib <= BUDGET + BESIDE, "{} KiB: {}", ended.peak_kib, ended.log);
}

/// A long text, an object of many members, and deep nesting: a few of each, so that the walk stays short.
fn hostile() -> String {
    let text = "a \"b\", c=d [x] <y> ".repeat(50_000);
    let members: Vec<String> = (0..10_000).map(|number| format!("\"k{number}\":{number}")).collect();
    let numbers: Vec<String> = (0..100_000).map(|number| number.to_string()).collect();
    let lines = [
        text,
        format!("{{{}}}", members.join(",")),
        format!("{}1{}", "{\"a\":".repeat(1000), "}".repeat(1000)),
        format!("{}{}", "[".repeat(1000), "]".repeat(1000)),
        format!("{{\"s\":\"{}\"}}", "x".repeat(1_000_000)),
        format!("[{}]", numbers.join(",")),
    ];
    (lines.join("\n") + "\n").repeat(4)
}

#[test]
fn every_transform_stays_within_the_budget_with_hostile_messages() {
    let input = hostile();
    // Each output of a route needs a pipeline of its own.
    let routes = ["route", "route_by"];
    let folder = tempfile::tempdir().unwrap();
    for case in messages::ALL.iter().filter(|case| !routes.contains(&case.component)) {
        let sink = if case.component == "pack" { "directory: { path: out }" } else { JSON };
        let options = case.options_in(folder.path()).unwrap();
        check_with(8 << 10, FILE, &format!("[{}: {options}]", case.component), sink, &input);
    }
}

/// Returns the most memory that was resident, in KiB, after this number of requests, each on its own
/// connection.
fn peak_after(requests: usize) -> u64 {
    let program = Program::new(Path::new(PROGRAM)).unwrap();
    let config = "memory: 4MiB\nsources: { in: { http: { address: '127.0.0.1:0' } } }\n\
                  pipelines: { main: { from: in, to: out } }\nsinks: { out: { discard: {} } }\n";
    program.write("pipeline.yaml", config).unwrap();
    // With a state, each answer would wait for a checkpoint.
    let launch = Launch { state: None, ..Launch::of("pipeline.yaml") };
    let mut running = program.start(&launch).unwrap();
    let address = running.address().unwrap();
    for number in 0..requests {
        let mut client = TcpStream::connect(&address).unwrap();
        let head =
            format!("POST /{number} HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: 5\r\n\r\n");
        client.write_all((head + "hello").as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    running.signal(Signal::TERM);
    running.wait().unwrap().peak_kib
}

#[test]
fn a_source_that_has_served_many_clients_keeps_nothing_of_them() {
    let (few, many) = (peak_after(500), peak_after(5000));
    // Less than half a KiB for each of the further connections.
    assert!(many <= few + 2048, "{few} KiB after 500 connections, {many} KiB after 5000");
}

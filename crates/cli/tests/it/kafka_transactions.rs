//! Copies from topics to topics in transactions, as users have them.

use std::collections::BTreeSet;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use thalweg_testbed::{ConsumerRecord, Kafka, Patience, Record};

use crate::common::House;

const RECORDS: u32 = 24_000;
const PARTITIONS: u32 = 4;

/// The records of a topic, by the numbers that they begin with.
fn numbers(records: &[ConsumerRecord]) -> Vec<u32> {
    let text =
        |record: &ConsumerRecord| String::from_utf8_lossy(record.value.as_deref().unwrap()).into_owned();
    records.iter().map(|record| text(record)[..6].parse().unwrap()).collect()
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// A member of the group that copies slowly, so that it is interrupted in the middle of transactions.
fn member(house: &House, kafka: &Kafka, run: usize) -> Child {
    let brokers = kafka.relayed_address();
    let config = format!(
        "memory: 1MiB\n\
         sources: {{ in: {{ kafka: {{ brokers: '{brokers}', topics: numbers, group: g, session_timeout: 6s }} }} }}\n\
         pipelines: {{ main: {{ from: in, transforms: [limit: {{ rate: 600, burst: 100 }}], to: out }} }}\n\
         sinks:\n  out:\n    kafka: {{ brokers: '{brokers}', topic: copies, timeout: 5s, transactional_id: copy-{run} }}\n"
    );
    let name = format!("member-{run}.yaml");
    house.write(&name, config.as_bytes());
    let mut command = house.command(&["run", &name, "--quiet"]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Members of a group are killed, stopped until they are taken for dead, and started; connections are cut,
/// and the broker crashes.
#[test]
fn members_that_copy_in_transactions_store_each_record_once() {
    let mut kafka = Kafka::start(PARTITIONS).unwrap();
    let padding = "x".repeat(90);
    let record = |number: u32| {
        Record::new("numbers", format!("{number:06} {padding}"))
            .partition((number % PARTITIONS).cast_signed())
    };
    kafka.store((0..RECORDS).map(record)).unwrap();
    let house = House::with(&[]);
    let mut members: Vec<Child> = (0..2).map(|run| member(&house, &kafka, run)).collect();
    let patience = Patience::begin();
    let mut faults = 0;
    loop {
        std::thread::sleep(Duration::from_millis(1500));
        match faults {
            0 | 6 => {
                let run = faults % members.len();
                members[run].kill().unwrap();
                members[run].wait().unwrap();
                members[run] = member(&house, &kafka, run);
            }
            1 | 5 => kafka.cut(),
            2 => members.push(member(&house, &kafka, 2)),
            3 => {
                signal(&members[1], Signal::STOP);
                // Longer than its session: its partitions go to others, and what it commits then is refused.
                std::thread::sleep(Duration::from_secs(9));
                signal(&members[1], Signal::CONT);
            }
            4 => {
                kafka.kill().unwrap();
                kafka.restart().unwrap();
            }
            _ => {}
        }
        faults += 1;
        // The broker may not be ready yet.
        let Ok(records) = kafka.committed_records("copies") else { continue };
        let copied = numbers(&records);
        let distinct: BTreeSet<u32> = copied.iter().copied().collect();
        assert_eq!(copied.len(), distinct.len(), "records are there twice after {faults} faults");
        if distinct.len() == RECORDS as usize && faults > 7 {
            break;
        }
        patience.check(|| format!("{} of {RECORDS} records", distinct.len()));
    }
    for member in &mut members {
        signal(member, Signal::TERM);
        assert_eq!(member.wait().unwrap().code(), Some(0));
    }
    let copied = numbers(&kafka.committed_records("copies").unwrap());
    let sent = kafka.records("copies").unwrap().len();
    println!("{} of {sent} records are of aborted transactions", sent - copied.len());
    let distinct: BTreeSet<u32> = copied.iter().copied().collect();
    assert_eq!((copied.len(), distinct), (RECORDS as usize, (0..RECORDS).collect()));
    let committed = kafka.committed("g", "numbers", PARTITIONS).unwrap();
    assert_eq!(committed, vec![Some(i64::from(RECORDS / PARTITIONS)); PARTITIONS as usize]);
}

/// Offsets cover what no sink gets as well, and a second run finds nothing to do.
#[test]
fn filtered_messages_are_committed_too_and_each_batch_of_a_file_is_a_transaction() {
    let kafka = Kafka::start(1).unwrap();
    let brokers = kafka.address();
    let house = House::with(&[
        (
            "fill.yaml",
            &format!(
                "sources: {{ in: {{ file: {{ path: in.jsonl }} }} }}\n\
                 pipelines: {{ main: {{ from: in, to: out }} }}\n\
                 sinks: {{ out: {{ kafka: {{ brokers: '{brokers}', topic: all, transactional_id: fill }} }} }}\n"
            ),
        ),
        (
            "copy.yaml",
            &format!(
                "sources:\n  in:\n    kafka: {{ brokers: '{brokers}', topics: all, group: g, end_after_idle: 2s }}\n\
                 pipelines: {{ main: {{ from: in, transforms: [parse_json: {{}}, filter: 'n % 2 = 0'], to: out }} }}\n\
                 sinks: {{ out: {{ kafka: {{ brokers: '{brokers}', topic: even, transactional_id: copy }} }} }}\n"
            ),
        ),
    ]);
    let lines = |numbers: std::ops::Range<u32>| numbers.map(|n| format!("{{\"n\": {n}}}"));
    house.write("in.jsonl", lines(0..3001).map(|line| line + "\n").collect::<String>().as_bytes());
    house.run_well(&["run", "fill.yaml"]);
    let texts = |topic: &str| -> Vec<String> {
        let records = kafka.committed_records(topic).unwrap();
        records
            .iter()
            .map(|record| String::from_utf8_lossy(record.value.as_deref().unwrap()).into_owned())
            .collect()
    };
    assert_eq!(texts("all"), lines(0..3001).collect::<Vec<_>>());
    for _ in 0..2 {
        house.run_well(&["run", "copy.yaml"]);
        assert_eq!(texts("even"), lines(0..3001).step_by(2).collect::<Vec<_>>());
    }
    // Records of transactions have offsets that are not counted by their number.
    let [Some(committed)] = kafka.committed("g", "all", 1).unwrap()[..] else { panic!() };
    assert!(committed >= 3001, "{committed}");
}

/// The first thing that the program sends after a pause are offsets: no message passes the filter.
#[test]
fn a_program_whose_id_the_broker_has_forgotten_continues() {
    let kafka = Kafka::start_forgetful(1).unwrap();
    let brokers = kafka.address();
    let config = format!(
        "sources: {{ in: {{ kafka: {{ brokers: '{brokers}', topics: numbers, group: g }} }} }}\n\
         pipelines: {{ main: {{ from: in, transforms: [filter: \"payload != 'x'\"], to: out }} }}\n\
         sinks: {{ out: {{ kafka: {{ brokers: '{brokers}', topic: copies, transactional_id: copy }} }} }}\n"
    );
    let house = House::with(&[("copy.yaml", &config)]);
    kafka.store([Record::new("numbers", "x")]).unwrap();
    let log = std::fs::File::create(house.path().join("log")).unwrap();
    let mut command = house.command(&["run", "copy.yaml"]);
    let mut program = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
    let patience = Patience::begin();
    for stored in 1.. {
        while kafka.committed("g", "numbers", 1).ok() != Some(vec![Some(stored)]) {
            let ended = program.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?}\n{}", house.read("log"));
            patience.check(|| house.read("log"));
            std::thread::sleep(Duration::from_millis(100));
        }
        if house.read("log").contains("has forgotten the `transactional_id`") {
            break;
        }
        std::thread::sleep(Kafka::FORGOTTEN);
        kafka.store([Record::new("numbers", "x")]).unwrap();
    }
    signal(&program, Signal::TERM);
    assert_eq!(program.wait().unwrap().code(), Some(0));
}

/// A graph whose messages could leave something outside of the transactions is refused.
#[test]
fn graphs_that_do_not_fit_into_transactions_are_refused_with_the_place() {
    let graph = |source: &str, pipelines: &str, sinks: &str| {
        format!(
            "state: state\n\
             sources:\n  in: {{ kafka: {{ brokers: ['a:1', 'b:1'], topics: t, group: g{source} }} }}\n  \
             other: {{ generate: {{ message: hello, count: 1 }} }}\n\
             pipelines:\n  {pipelines}\n  rest: {{ from: other, to: void }}\n\
             sinks:\n  void: {{ discard: {{}} }}\n  \
             out: {{ kafka: {{ brokers: 'b:1', topic: copies, transactional_id: x }}{sinks} }}\n"
        )
    };
    let straight = "main: { from: in, to: out }";
    let twins = |broker: &str, id: &str| {
        let twin =
            format!("  twin: {{ kafka: {{ brokers: '{broker}', topic: t, transactional_id: {id} }} }}\n");
        graph("", "main: { from: in, to: out }\n  more: { from: other, to: twin }", "") + &twin
    };
    for (text, expected) in [
        (graph("", straight, ""), ""),
        (graph(", isolation: read_uncommitted", straight, ""), "reads committed records"),
        (graph("", "main: { from: in, to: [out, void] }", ""), "`void` gets messages of `in`"),
        (
            graph("", "main: { from: in, to: out }\n  bad: { from: out.errors, to: void }", ""),
            "`void` gets messages of `in`",
        ),
        (graph("", "main: { from: [in, other], to: out }", ""), "it can take no messages of `other`"),
        (graph("", "main: { from: in, to: { failover: [out, void] } }", ""), "`main` has a failover"),
        (
            graph("", "main: { from: in, transforms: [dedupe: {}], to: out }", ""),
            "`main.dedupe` remembers earlier messages",
        ),
        (graph("", "main: { from: in, transforms: [limit: { rate: 9 }], to: out }", ""), ""),
        (graph("", straight, ", buffer: { disk: 16MiB }"), "`out` has a buffer on disk"),
        (twins("b:1", "x"), "`twin` has the `transactional_id` of `out`"),
        (twins("b:1", "x"), "x.yaml:12:"),
        (twins("b:1", "y"), ""),
        (twins("c:1", "x"), ""),
    ] {
        let house = House::with(&[("x.yaml", &text)]);
        let said = house.run(&["check", "x.yaml"]);
        // Lines are wrapped.
        let err = said.err.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
        assert_eq!(said.code == Some(0), expected.is_empty(), "{text}\n{err}");
        assert!(err.contains(expected), "{text}\n{err}");
    }
}

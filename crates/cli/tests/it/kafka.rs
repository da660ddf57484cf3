//! Runs that share a topic, and a broker that fails, as users have them.

use std::collections::BTreeSet;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use thalweg_testbed::{Kafka, Record};

use crate::common::{self, House};

const RECORDS: u32 = 30_000;
const PARTITIONS: u32 = 6;

/// The lines in the output of all runs.
fn delivered(house: &House, runs: usize) -> Vec<String> {
    let names = (0..runs).map(|run| format!("out-{run}.txt"));
    names.filter(|name| house.path().join(name).exists()).flat_map(|name| house.lines(&name)).collect()
}

fn member(house: &House, kafka: &Kafka, run: usize) -> Child {
    let config = format!(
        "memory: 2MiB\n\
         sources: {{ in: {{ kafka: {{ brokers: '{}', topics: numbers, group: g, session_timeout: 6s }} }} }}\n\
         pipelines: {{ main: {{ from: in, transforms: [limit: {{ rate: 2000, burst: 200 }}], to: out }} }}\n\
         sinks: {{ out: {{ file: {{ path: out-{run}.txt, atomic: false }} }} }}\n",
        kafka.relayed_address()
    );
    house.write(&format!("member-{run}.yaml"), config.as_bytes());
    let name = format!("member-{run}.yaml");
    let mut command = house.command(&["run", &name, "--state", &format!("state-{run}"), "--quiet"]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Members of a group are killed and started, connections are cut, and the broker crashes.
#[test]
fn members_of_a_group_that_are_killed_lose_no_record() {
    let mut kafka = Kafka::start(PARTITIONS).unwrap();
    let record = |number: u32| {
        Record::new("numbers", number.to_string()).partition((number % PARTITIONS).cast_signed())
    };
    kafka.store((0..RECORDS).map(record)).unwrap();
    let house = House::with(&[]);
    let mut members: Vec<Child> = (0..2).map(|run| member(&house, &kafka, run)).collect();
    let begun = Instant::now();
    let mut faults = 0;
    loop {
        std::thread::sleep(Duration::from_millis(1500));
        let run = faults % members.len();
        match faults {
            0 | 3 | 6 => {
                members[run].kill().unwrap();
                members[run].wait().unwrap();
                members[run] = member(&house, &kafka, run);
            }
            1 | 5 => kafka.cut(),
            2 => members.push(member(&house, &kafka, 2)),
            4 => {
                kafka.kill().unwrap();
                kafka.restart().unwrap();
            }
            _ => {}
        }
        faults += 1;
        // The last line of a run may not be whole yet.
        let lines = delivered(&house, members.len());
        let distinct: BTreeSet<u32> = lines.iter().filter_map(|line| line.parse().ok()).collect();
        if distinct.len() == RECORDS as usize && faults > 7 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(300), "{} records after 300 s", distinct.len());
    }
    for member in &mut members {
        let id = rustix::process::Pid::from_child(member);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        assert_eq!(member.wait().unwrap().code(), Some(0));
    }
    let all = delivered(&house, members.len());
    let distinct: BTreeSet<u32> = all.iter().map(|line| line.parse().unwrap()).collect();
    println!("{} of {RECORDS} records were delivered twice", all.len() - distinct.len());
    assert_eq!(distinct, (0..RECORDS).collect());
    let committed = kafka.committed("g", "numbers", PARTITIONS).unwrap();
    assert_eq!(committed, vec![Some(i64::from(RECORDS / PARTITIONS)); PARTITIONS as usize]);
}

/// The sink waits for a broker that is down, within its memory, and stores what it got in order.
#[test]
fn a_sink_waits_for_a_broker_that_is_down_without_loss_and_within_the_memory() {
    let mut kafka = Kafka::start(1).unwrap();
    let house = House::with(&[(
        "send.yaml",
        &format!(
            "memory: 8MiB\n\
             sources: {{ in: {{ file: {{ path: in.txt }} }} }}\n\
             pipelines: {{ main: {{ from: in, transforms: [limit: {{ rate: 40000, burst: 4000 }}], to: out }} }}\n\
             sinks: {{ out: {{ kafka: {{ brokers: '{}', topic: t, timeout: 1s, compression: lz4 }} }} }}\n",
            kafka.relayed_address()
        ),
    )]);
    let lines: Vec<String> =
        (0..200_000).map(|number| format!("{number:08} and some text that makes it longer\n")).collect();
    house.write("in.txt", lines.concat().as_bytes());
    let mut command = house.command(&["run", "send.yaml", "--quiet"]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    for fault in 0..6 {
        std::thread::sleep(Duration::from_millis(700));
        match fault {
            2 => {
                kafka.kill().unwrap();
                std::thread::sleep(Duration::from_secs(3));
                let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
                let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
                let kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
                assert!(kib < (8 + 48) << 10, "{kib} KiB were resident");
                assert!(child.try_wait().unwrap().is_none(), "it ended without its broker");
                kafka.restart().unwrap();
            }
            _ => kafka.cut(),
        }
    }
    let ended = common::said(child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let records = kafka.records("t").unwrap();
    let numbers: Vec<u32> = records
        .iter()
        .map(|record| String::from_utf8_lossy(record.value.as_deref().unwrap())[..8].parse().unwrap())
        .collect();
    assert!(numbers.iter().copied().eq(0..200_000), "{} records, first {:?}", numbers.len(), numbers.first());
}

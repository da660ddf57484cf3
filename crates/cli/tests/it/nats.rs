//! Runs that share a consumer, and a server that fails, as users have them.

use std::collections::BTreeSet;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use thalweg_testbed::{Nats, NatsMessage};

use crate::common::{self, House};

const MESSAGES: u32 = 30_000;

/// The lines in the output of all runs.
fn delivered(house: &House, runs: usize) -> Vec<String> {
    let names = (0..runs).map(|run| format!("out-{run}.txt"));
    names.filter(|name| house.path().join(name).exists()).flat_map(|name| house.lines(&name)).collect()
}

fn member(house: &House, nats: &Nats, run: usize) -> Child {
    let config = format!(
        "memory: 2MiB\n\
         sources: {{ in: {{ nats: {{ servers: '{}', stream: NUMBERS, consumer: c, ack_timeout: 2s }} }} }}\n\
         pipelines: {{ main: {{ from: in, transforms: [limit: {{ rate: 2000, burst: 200 }}], to: out }} }}\n\
         sinks: {{ out: {{ file: {{ path: out-{run}.txt }} }} }}\n",
        nats.relayed_address()
    );
    let name = format!("member-{run}.yaml");
    house.write(&name, config.as_bytes());
    let mut command = house.command(&["run", &name, "--state", &format!("state-{run}"), "--quiet"]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Processes are killed and started, connections are cut, and the server crashes and hangs.
#[test]
fn processes_that_share_a_consumer_and_are_killed_lose_no_message() {
    let mut nats = Nats::start().unwrap();
    nats.create_stream("NUMBERS", &["numbers"]).unwrap();
    nats.store((0..MESSAGES).map(|number| NatsMessage::new("numbers", number.to_string()))).unwrap();
    let house = House::with(&[]);
    let mut members: Vec<Child> = (0..2).map(|run| member(&house, &nats, run)).collect();
    let begun = Instant::now();
    let mut faults = 0;
    loop {
        std::thread::sleep(Duration::from_millis(1500));
        let run = faults % members.len();
        match faults {
            0 | 3 | 6 => {
                members[run].kill().unwrap();
                members[run].wait().unwrap();
                members[run] = member(&house, &nats, run);
            }
            1 | 5 => nats.cut(),
            2 => members.push(member(&house, &nats, 2)),
            4 => {
                nats.kill().unwrap();
                nats.restart().unwrap();
            }
            7 => {
                nats.hang().unwrap();
                std::thread::sleep(Duration::from_secs(4));
                nats.wake().unwrap();
            }
            _ => {}
        }
        faults += 1;
        // The last line of a run may not be whole yet.
        let lines = delivered(&house, members.len());
        let distinct: BTreeSet<u32> = lines.iter().filter_map(|line| line.parse().ok()).collect();
        if distinct.len() == MESSAGES as usize && faults > 8 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(300), "{} messages after 300 s", distinct.len());
    }
    for member in &mut members {
        let id = rustix::process::Pid::from_child(member);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        assert_eq!(member.wait().unwrap().code(), Some(0));
    }
    let all = delivered(&house, members.len());
    let distinct: BTreeSet<u32> = all.iter().map(|line| line.parse().unwrap()).collect();
    println!("{} of {MESSAGES} messages were delivered twice", all.len() - distinct.len());
    assert_eq!(distinct, (0..MESSAGES).collect());
    let state = nats.consumer("NUMBERS", "c").unwrap();
    assert_eq!((state.pending, state.ack_pending), (0, 0));
}

/// The sink waits for a server that is down, within its memory, and stores what it got once and in order.
#[test]
fn a_sink_waits_for_a_server_that_is_down_without_loss_and_within_the_memory() {
    let mut nats = Nats::start().unwrap();
    nats.create_stream("S", &["s"]).unwrap();
    let house = House::with(&[(
        "send.yaml",
        &format!(
            "memory: 8MiB\n\
             sources: {{ in: {{ file: {{ path: in.txt }} }} }}\n\
             pipelines: {{ main: {{ from: in, transforms: [limit: {{ rate: 40000, burst: 4000 }}], to: out }} }}\n\
             sinks: {{ out: {{ nats: {{ servers: '{}', subject: s, timeout: 1s }} }} }}\n",
            nats.relayed_address()
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
                nats.kill().unwrap();
                std::thread::sleep(Duration::from_secs(3));
                let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
                let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
                let kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
                assert!(kib < (8 + 48) << 10, "{kib} KiB were resident");
                assert!(child.try_wait().unwrap().is_none(), "it ended without its server");
                nats.restart().unwrap();
            }
            _ => nats.cut(),
        }
    }
    let ended = common::said(child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let numbers: Vec<u32> =
        nats.messages("S").unwrap().iter().map(|message| message.text()[..8].parse().unwrap()).collect();
    assert!(
        numbers.iter().copied().eq(0..200_000),
        "{} messages, first {:?}",
        numbers.len(),
        numbers.first()
    );
}

//! Runs that share a group, and a server that fails, as users have them.

use std::collections::BTreeSet;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use thalweg_testbed::Redis;

use crate::common::{self, House};

const MESSAGES: u32 = 12_000;

/// The lines in the output of all runs.
fn delivered(house: &House, runs: usize) -> Vec<String> {
    let names = (0..runs).map(|run| format!("out-{run}.txt"));
    names.filter(|name| house.path().join(name).exists()).flat_map(|name| house.lines(&name)).collect()
}

fn member(house: &House, redis: &Redis, run: usize) -> Child {
    let config = format!(
        "memory: 2MiB\n\
         sources: {{ in: {{ redis: {{ servers: '{}', stream: numbers, group: g, consumer: 'c{run}', \
         claim_after: 2s, timeout: 2s }} }} }}\n\
         pipelines: {{ main: {{ from: in, transforms: [limit: {{ rate: 1000, burst: 100 }}], to: out }} }}\n\
         sinks: {{ out: {{ file: {{ path: out-{run}.txt }} }} }}\n",
        redis.relayed_address()
    );
    let name = format!("member-{run}.yaml");
    house.write(&name, config.as_bytes());
    let mut command = house.command(&["run", &name, "--state", &format!("state-{run}"), "--quiet"]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Processes are killed and started, one for good; connections are cut, and the server crashes and hangs.
#[test]
fn processes_that_share_a_group_and_are_killed_lose_no_entry() {
    let mut redis = Redis::start().unwrap();
    let numbers: Vec<String> = (0..MESSAGES).map(|number| number.to_string()).collect();
    redis.call(&["XGROUP", "CREATE", "numbers", "g", "0", "MKSTREAM"]).unwrap();
    redis
        .call_all(numbers.iter().map(|number| vec!["XADD", "numbers", "*", "payload", number.as_str()]))
        .unwrap();
    let house = House::with(&[]);
    let mut members: Vec<Child> = (0..3).map(|run| member(&house, &redis, run)).collect();
    let begun = Instant::now();
    let mut faults = 0;
    loop {
        std::thread::sleep(Duration::from_millis(700));
        match faults {
            0 | 4 => {
                let run = faults / 4;
                members[run].kill().unwrap();
                members[run].wait().unwrap();
                members[run] = member(&house, &redis, run);
            }
            1 | 5 => redis.cut(),
            2 => {
                redis.kill().unwrap();
                redis.restart().unwrap();
            }
            3 => {
                members[2].kill().unwrap();
                members[2].wait().unwrap();
            }
            6 => {
                redis.hang().unwrap();
                std::thread::sleep(Duration::from_secs(3));
                redis.wake().unwrap();
            }
            _ => {}
        }
        faults += 1;
        // The last line of a run may not be whole yet.
        let lines = delivered(&house, members.len());
        let distinct: BTreeSet<u32> = lines.iter().filter_map(|line| line.parse().ok()).collect();
        let is_done = distinct.len() == MESSAGES as usize && redis.pending("numbers", "g").unwrap() == 0;
        if is_done && faults > 7 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(300), "{} messages after 300 s", distinct.len());
    }
    for member in &mut members[..2] {
        let id = rustix::process::Pid::from_child(member);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        assert_eq!(member.wait().unwrap().code(), Some(0));
    }
    let all = delivered(&house, members.len());
    let distinct: BTreeSet<u32> = all.iter().map(|line| line.parse().unwrap()).collect();
    println!("{} of {MESSAGES} messages were delivered twice", all.len() - distinct.len());
    assert_eq!(distinct, (0..MESSAGES).collect());
}

/// The sink waits for a server that is down, within its memory, and stores all that it got.
#[test]
fn a_sink_waits_for_a_redis_server_that_is_down_without_loss_and_within_the_memory() {
    const LINES: u32 = 60_000;
    let mut redis = Redis::start().unwrap();
    let house = House::with(&[(
        "send.yaml",
        &format!(
            "memory: 8MiB\n\
             sources: {{ in: {{ file: {{ path: in.txt }} }} }}\n\
             pipelines: {{ main: {{ from: in, transforms: [limit: {{ rate: 20000, burst: 2000 }}], to: out }} }}\n\
             sinks: {{ out: {{ redis: {{ servers: '{}', command: rpush, key: l, timeout: 1s }} }} }}\n",
            redis.relayed_address()
        ),
    )]);
    let lines: Vec<String> =
        (0..LINES).map(|number| format!("{number:08} and some text that makes it longer\n")).collect();
    house.write("in.txt", lines.concat().as_bytes());
    let mut command = house.command(&["run", "send.yaml", "--quiet"]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    for fault in 0..4 {
        std::thread::sleep(Duration::from_millis(500));
        match fault {
            2 => {
                redis.kill().unwrap();
                std::thread::sleep(Duration::from_secs(2));
                let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
                let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
                let kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
                assert!(kib < (8 + 48) << 10, "{kib} KiB were resident");
                assert!(child.try_wait().unwrap().is_none(), "it ended without its server");
                redis.restart().unwrap();
            }
            _ => redis.cut(),
        }
    }
    let ended = common::said(child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let stored = redis.call(&["LRANGE", "l", "0", "-1"]).unwrap().texts();
    // A message that was sent when a connection broke may be there twice.
    let mut seen = BTreeSet::new();
    let numbers = stored.iter().map(|line| line[..8].parse::<u32>().unwrap());
    let first: Vec<u32> = numbers.filter(|number| seen.insert(*number)).collect();
    println!("{} of {LINES} messages were stored twice", stored.len() - first.len());
    assert!(first.iter().copied().eq(0..LINES), "{} messages, first {:?}", first.len(), first.first());
}

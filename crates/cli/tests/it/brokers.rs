//! Promises that hold for every broker: runs that share the messages lose none when they are killed, and a
//! sink waits for a broker that is down.

use std::collections::BTreeSet;
use std::fs::File;
use std::process::{Child, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use thalweg_testbed::{Patience, Server};

use crate::common::{self, House};

/// Whether a broker hangs for some seconds while runs share its messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Hangs {
    No,
    Yes,
}

/// Runs that share the messages of a broker. Dropping it kills them.
struct Members<'a> {
    house: &'a House,
    /// Returns the source of a run.
    source: &'a dyn Fn(usize) -> String,
    children: Vec<Child>,
}

impl Members<'_> {
    /// Starts one more run.
    fn add(&mut self) {
        let child = self.spawn(self.children.len());
        self.children.push(child);
    }

    /// Kills a run, and starts it again.
    fn replace(&mut self, run: usize) {
        self.children[run].kill().unwrap();
        self.children[run].wait().unwrap();
        self.children[run] = self.spawn(run);
    }

    fn spawn(&self, run: usize) -> Child {
        // A file that is being written would have another name without `atomic: false`.
        let config = format!(
            "memory: 2MiB\n\
             sources: {{ in: {{ {} }} }}\n\
             pipelines: {{ main: {{ from: in, transforms: [limit: {{ rate: 2000, burst: 200 }}], to: out }} }}\n\
             sinks: {{ out: {{ file: {{ path: out-{run}.txt, atomic: false }} }} }}\n",
            (self.source)(run)
        );
        let name = format!("member-{run}.yaml");
        self.house.write(&name, config.as_bytes());
        let log = self.house.path().join(format!("member-{run}.log"));
        let log = File::options().create(true).append(true).open(log).unwrap();
        let mut command = self.house.command(&["run", &name, "--state", &format!("state-{run}")]);
        command.stdout(Stdio::null()).stderr(log).spawn().unwrap()
    }

    /// Returns the lines in the output of all runs.
    fn delivered(&self) -> Vec<String> {
        let names = (0..self.children.len()).map(|run| format!("out-{run}.txt"));
        let exist = names.filter(|name| self.house.path().join(name).exists());
        exist.flat_map(|name| self.house.lines(&name)).collect()
    }

    /// Returns what each run has printed, and how it ended if it did.
    fn described(&mut self) -> String {
        let ended: Vec<Option<ExitStatus>> =
            self.children.iter_mut().map(|child| child.try_wait().unwrap()).collect();
        let logs = ended.into_iter().enumerate().map(|(run, ended)| {
            let state = ended.map_or_else(|| "runs".to_owned(), |status| format!("ended with {status}"));
            format!("member {run} {state}; it printed:\n{}\n", self.house.read(&format!("member-{run}.log")))
        });
        logs.collect()
    }

    /// Asserts that no run has ended.
    fn assert_running(&mut self) {
        let are_running = self.children.iter_mut().all(|child| child.try_wait().unwrap().is_none());
        assert!(are_running, "{}", self.described());
    }

    /// Stops all runs as a user does, and asserts that they succeed.
    fn stop(&mut self) {
        for run in 0..self.children.len() {
            kill_process(Pid::from_child(&self.children[run]), Signal::TERM).unwrap();
            let status = self.children[run].wait().unwrap();
            assert!(status.success(), "{}", self.described());
        }
    }
}

impl Drop for Members<'_> {
    fn drop(&mut self) {
        for child in &mut self.children {
            // Those that were stopped have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts runs that share `count` messages, which are the numbers from 0. Kills and starts them, cuts their
/// connections, and lets the broker crash and, if `hangs`, hang, until all messages were delivered. `source`
/// returns the source of a run, and `progress` tells how far the broker is.
pub fn members_that_are_killed_lose_nothing<K>(
    broker: &mut Server<K>,
    hangs: Hangs,
    count: u32,
    source: impl Fn(usize) -> String,
    progress: impl Fn(&Server<K>) -> String,
) {
    let house = House::with(&[]);
    let mut members = Members { house: &house, source: &source, children: Vec::new() };
    members.add();
    members.add();
    let patience = Patience::begin();
    for fault in 0_usize.. {
        std::thread::sleep(Duration::from_millis(1500));
        members.assert_running();
        match fault {
            0 | 3 | 6 => members.replace(fault % members.children.len()),
            1 | 5 => broker.cut(),
            2 => members.add(),
            4 => {
                broker.kill().unwrap();
                broker.restart().unwrap();
            }
            7 if hangs == Hangs::Yes => {
                broker.hang().unwrap();
                std::thread::sleep(Duration::from_secs(4));
                broker.wake().unwrap();
            }
            _ => {}
        }
        // The last line of a run may not be whole yet.
        let lines = members.delivered();
        let distinct: BTreeSet<u32> = lines.iter().filter_map(|line| line.parse().ok()).collect();
        if distinct.len() == count as usize && fault > 7 {
            break;
        }
        let seen = distinct.len();
        patience
            .check(|| format!("{seen} of {count} messages; {}; {}", progress(broker), members.described()));
    }
    members.stop();
    let all = members.delivered();
    let distinct: BTreeSet<u32> = all.iter().map(|line| line.parse().unwrap()).collect();
    println!("{} of {count} messages were delivered twice", all.len() - distinct.len());
    assert!(distinct.iter().copied().eq(0..count), "{} of {count} messages", distinct.len());
}

/// Runs a source until no message has come for a moment.
pub fn read_to_the_end(house: &House, source: &str) {
    let config = format!(
        "sources: {{ in: {{ {} }} }}\n\
         pipelines: {{ main: {{ from: in, to: out }} }}\n\
         sinks: {{ out: {{ file: {{ path: rest.txt }} }} }}\n",
        source.replace(" }", ", end_after_idle: 100ms }")
    );
    house.write("rest.yaml", config.as_bytes());
    house.run_well(&["run", "rest.yaml", "--quiet"]);
}

/// The lines of [`a_sink_waits`].
const LINES: u32 = 200_000;

/// Sends numbered lines to a sink, of which `sink` is the configuration, while connections are cut and the
/// broker is down for a while. Asserts that the run succeeds, and that it keeps within its memory.
pub fn a_sink_waits<K>(broker: &mut Server<K>, sink: &str) {
    let config = format!(
        "memory: 8MiB\n\
         sources: {{ in: {{ file: {{ path: in.txt }} }} }}\n\
         pipelines: {{ main: {{ from: in, transforms: [limit: {{ rate: 40000, burst: 4000 }}], to: out }} }}\n\
         sinks: {{ out: {{ {sink} }} }}\n"
    );
    let house = House::with(&[("send.yaml", &config)]);
    let lines: Vec<String> =
        (0..LINES).map(|number| format!("{number:08} and some text that makes it longer\n")).collect();
    house.write("in.txt", lines.concat().as_bytes());
    let mut command = house.command(&["run", "send.yaml", "--quiet"]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    for fault in 0..6 {
        std::thread::sleep(Duration::from_millis(700));
        match fault {
            2 => {
                broker.kill().unwrap();
                std::thread::sleep(Duration::from_secs(3));
                let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
                let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
                let kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
                assert!(kib < (8 + 48) << 10, "{kib} KiB were resident");
                assert!(child.try_wait().unwrap().is_none(), "it ended without its broker");
                broker.restart().unwrap();
            }
            _ => broker.cut(),
        }
    }
    let ended = common::said(child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(0), "{}", ended.err);
}

/// Asserts that a broker has the lines of [`a_sink_waits`], each once and in order.
pub fn assert_all_in_order<T: AsRef<[u8]>>(stored: impl IntoIterator<Item = T>) {
    assert_all(stored.into_iter().map(number).collect());
}

/// As [`assert_all_in_order`], for a broker that may take later lines while it refuses some for a moment.
pub fn assert_all_once<T: AsRef<[u8]>>(stored: impl IntoIterator<Item = T>) {
    let mut numbers: Vec<u32> = stored.into_iter().map(number).collect();
    numbers.sort_unstable();
    assert_all(numbers);
}

fn number(line: impl AsRef<[u8]>) -> u32 {
    std::str::from_utf8(&line.as_ref()[..8]).unwrap().parse().unwrap()
}

fn assert_all(numbers: Vec<u32>) {
    let wrong = numbers.iter().copied().zip(0..).find(|(number, place)| number != place);
    assert!(numbers.len() == LINES as usize && wrong.is_none(), "{} messages, {wrong:?}", numbers.len());
}

//! Every source into every sink that fits, interrupted three times and restarted.
//!
//! A suite interrupts one component at a time, with a partner that is simple. Here the holes between two
//! components show, such as a sink that cuts off what its source does not send again. The interruptions
//! follow from a seed, so that a failure can be repeated.

use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fastrand::Rng;
use thalweg_engine::Flow;
use thalweg_runtime::Failpoint;

use crate::cases::{feeds, outlets};
use crate::disk::SmallDisk;
use crate::feed::{Feed, Nature};
use crate::outlet::Outlet;
use crate::records::Records;
use crate::scenario::{Action, Interruption, Scenario, Verdict, When};

/// The scenarios that run at the same time. They mostly wait.
const PARALLEL: usize = 4;

/// A source into a sink.
pub struct Pair {
    /// The beginning.
    pub feed: Feed,
    /// The end.
    pub outlet: Outlet,
}

impl Pair {
    /// The name of the case.
    pub fn name(&self) -> String {
        format!("{} -> {}", self.feed.name, self.outlet.name)
    }
}

/// Returns every source with every sink that takes what it gives.
pub fn pairs() -> Vec<Pair> {
    let sinks = || outlets::all().into_iter().chain(outlets::of_files());
    let mut pairs: Vec<Pair> = feeds::all()
        .into_iter()
        .flat_map(|feed| sinks().map(move |outlet| Pair { feed, outlet }))
        .filter(|pair| fits(&pair.feed, &pair.outlet))
        .collect();
    pairs.push(Pair { feed: feeds::proxy(), outlet: outlets::proxy() });
    pairs
}

/// Returns the pairs that take too long for every test: with a server that hangs, and with object stores.
pub fn slow() -> Vec<Pair> {
    let sinks = outlets::hanging().into_iter().chain(outlets::stored());
    let feeds = [feeds::file(), feeds::files()].into_iter().chain(feeds::stored());
    let pairs = sinks.flat_map(|outlet| feeds.clone().map(move |feed| Pair { feed, outlet }));
    pairs.filter(|pair| fits(&pair.feed, &pair.outlet)).collect()
}

fn fits(feed: &Feed, outlet: &Outlet) -> bool {
    let is_of_files = outlet.takes == Flow::Files;
    // A file of CSV or Avro as a whole is not in the form of the records; a sink that removes files needs
    // files on disk.
    let is_plain = feed.flow == Flow::Files && !["files, csv", "files, avro"].contains(&feed.name);
    // The sink answers when its one object, or a packed file, is complete. A sender that waits for the answer
    // sends nothing that would complete it.
    let collects = ["objects", "directory, pack"].contains(&outlet.name);
    if feed.nature == Nature::Acknowledged && collects {
        return false;
    }
    // A run that never ends by itself leaves its one object unfinished for the next run.
    if feed.name == "file, follow" && outlet.name == "objects" {
        return false;
    }
    !is_of_files || is_plain && (outlet.component != "remove" || feed.component == "files")
}

/// How a matrix runs.
pub struct Matrix<'a> {
    /// The program.
    pub binary: &'a Path,
    /// The seed of the interruptions and disturbances.
    pub seed: u64,
    /// The number of records of each pair.
    pub records: u64,
    /// Messages a second.
    pub rate: Option<u64>,
    /// The budget.
    pub memory: &'a str,
    /// True if disks get full and clocks jump as well.
    pub is_soak: bool,
}

/// The results of a matrix.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// The number of pairs.
    pub pairs: u64,
    /// The sum of all verdicts.
    pub sum: Verdict,
    /// The records that were sent.
    pub records: u64,
    /// Each pair that is broken, with what is broken.
    pub broken: Vec<(String, String)>,
}

impl Matrix<'_> {
    /// Runs the pairs, and calls `done` with the verdict of each.
    pub fn run(&self, pairs: &[Pair], done: &(dyn Fn(&Pair, &Verdict) + Sync)) -> Totals {
        let totals = Mutex::new(Totals::default());
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..PARALLEL {
                scope.spawn(|| {
                    while let Some(pair) = pairs.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let (verdict, records) = self.run_pair(pair);
                        done(pair, &verdict);
                        totals.lock().unwrap_or_else(PoisonError::into_inner).add(pair, verdict, records);
                    }
                });
            }
        });
        totals.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_pair(&self, pair: &Pair) -> (Verdict, u64) {
        // Each pair has random numbers of its own: which thread takes it must not matter.
        let name =
            pair.name().bytes().fold(0, |hash: u64, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        let mut random = Rng::with_seed(self.seed ^ name);
        let records = Records::new(self.records.min(pair.feed.most));
        let mut scenario = Scenario::new(self.binary, &pair.feed, &pair.outlet);
        (scenario.records, scenario.rate, scenario.memory) = (records, self.rate, self.memory);
        if self.is_soak {
            disturb(&mut scenario, &mut random);
        }
        let time = self.rate.map_or(1000, |rate| 1000 * records.count / rate);
        let interruptions: Vec<Interruption> = (0..3).map(|_| interruption(&mut random, time)).collect();
        (scenario.run(&interruptions), records.count)
    }
}

/// Half of them at a failpoint, half at a moment within the time of a run, in milliseconds.
fn interruption(random: &mut Rng, time: u64) -> Interruption {
    let action = if random.u8(..4) == 0 { Action::Term } else { Action::Kill };
    if random.bool() {
        return Interruption {
            action,
            when: When::After(Duration::from_millis(random.u64(5..time.max(10)))),
        };
    }
    let point = Failpoint::ALL[random.usize(..Failpoint::ALL.len())];
    let action = if random.u8(..6) == 0 { Action::Full } else { action };
    Interruption { action, when: When::At(point, random.u64(1..8)) }
}

/// Fills the disk, or lets the clock jump, in some scenarios.
fn disturb(scenario: &mut Scenario<'_>, random: &mut Rng) {
    let is_local = scenario.outlet.server.is_none() && scenario.outlet.name != "stdout";
    // S3 refuses requests of another date.
    let is_dated = scenario.outlet.name.contains("S3") || scenario.feed.name.contains("S3");
    let bytes = scenario.records.count * 20;
    match random.u8(..8) {
        0 if is_local => scenario.max_file = Some(bytes),
        1 if is_local && SmallDisk::is_possible() => scenario.disk = Some(bytes),
        2 if !is_dated => scenario.variables = jumps(),
        _ => {}
    }
}

/// The variables with which libfaketime lets the clock of each run jump. None if it is not installed.
pub fn jumps() -> Vec<Vec<(String, String)>> {
    let places =
        ["/usr/lib/x86_64-linux-gnu/faketime", "/usr/lib/aarch64-linux-gnu/faketime", "/usr/lib/faketime"];
    let library =
        places.iter().map(|place| Path::new(place).join("libfaketime.so.1")).find(|path| path.exists());
    let Some(library) = library else { return Vec::new() };
    let jump = |by: &str| {
        vec![
            ("LD_PRELOAD".to_owned(), library.display().to_string()),
            ("FAKETIME".to_owned(), by.to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC".to_owned(), "1".to_owned()),
        ]
    };
    vec![jump("+0"), jump("+10d"), jump("-1d"), jump("+0")]
}

impl Totals {
    fn add(&mut self, pair: &Pair, verdict: Verdict, records: u64) {
        self.pairs += 1;
        self.records += records;
        self.sum.runs += verdict.runs;
        self.sum.interrupted += verdict.interrupted;
        self.sum.leftovers += verdict.leftovers;
        self.sum.peak_kib = self.sum.peak_kib.max(verdict.peak_kib);
        self.sum.tally.add(&verdict.tally);
        self.broken.extend(verdict.broken.map(|broken| (pair.name(), broken)));
    }

    /// Adds those of another round.
    pub fn join(&mut self, other: Totals) {
        self.pairs += other.pairs;
        self.records += other.records;
        self.sum.runs += other.sum.runs;
        self.sum.interrupted += other.sum.interrupted;
        self.sum.leftovers += other.sum.leftovers;
        self.sum.peak_kib = self.sum.peak_kib.max(other.sum.peak_kib);
        self.sum.tally.add(&other.sum.tally);
        self.broken.extend(other.broken);
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Verdict { runs, interrupted, tally, leftovers, peak_kib, .. } = &self.sum;
        writeln!(
            f,
            "| pairs | runs | interrupted | records | missing | torn | repeated | out of order | left behind | peak |"
        )?;
        writeln!(f, "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")?;
        write!(
            f,
            "| {} | {runs} | {interrupted} | {} | {} | {} | {} | {} | {leftovers} | {} MiB |",
            self.pairs,
            self.records,
            tally.missing_count,
            tally.torn_count,
            tally.repeated_count,
            tally.late_count,
            peak_kib / 1024
        )
    }
}

//! The seed's job in the seed's modes: a table is read in slices, its rows are written as JSON and uploaded.
//!
//! The seed's modes are settings here. They get as much memory as they want, as the seed's programs did.
//! `auto` has no settings and a small budget.

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::place::{LATENCY, SOURCE, Testbed, target as target_of};
use super::rows::{Rows, TYPES};
use super::{MEMORY, megabytes, pure, target};
use crate::contest::{Contender, Contest};
use crate::measure::Run;

/// The key of the output; a local file of that name has the same content.
const TARGET: &str = "rows.jsonl";

/// The upload connections of the bare client, as many as in the seed's parallel modes.
const UPLOADING: usize = 10;

/// The most time of `auto`, as a multiple of the fastest other mode's time.
const MOST_TIMES: f64 = 1.1;

/// The most resident bytes of `auto`.
const MOST_RESIDENT: u64 = 128 << 20;

/// One of the seed's modes.
pub(super) struct Mode {
    pub name: &'static str,
    readers: usize,
    writers: usize,
    queue: usize,
    /// The number of batches processed at the same time; `None` leaves it open.
    concurrency: Option<usize>,
    /// The time of the seed in seconds, for an object of unknown size on its author's machine.
    pub seed: u32,
}

const fn mode(name: &'static str, readers: usize, writers: usize, queue: usize, seed: u32) -> Mode {
    Mode { name, readers, writers, queue, concurrency: None, seed }
}

pub(super) const MODES: [Mode; 7] = [
    Mode { concurrency: Some(1), ..mode("sequential", 1, 1, 0, 73) },
    // The faster of the seed's two versions without a channel: 29 s asynchronous, 32 s with blocking threads
    // (`BLOCKING`).
    mode("parallel 10, no channel", 10, 10, 0, 29),
    mode("channel of 100, 8 + 10", 8, 10, 100, 146),
    mode("channel of 100, 5 + 10", 5, 10, 100, 60),
    mode("channel of 100, 8 + 15", 8, 15, 100, 58),
    mode("channel of 100, 1 + 1", 1, 1, 100, 254),
    mode("channel unbounded, 8 + 15", 8, 15, 1_000_000, 54),
];

/// The time of the seed's mode with blocking threads, in seconds. Its settings are those of the second mode:
/// thalweg's requests block no thread.
pub(super) const BLOCKING: u32 = 32;

const SLICES: [&str; 2] = ["1MiB", "16MiB"];

/// A line of the table.
struct Row {
    name: &'static str,
    slice: &'static str,
    seed: Option<u32>,
    work: Work,
    /// The CPU time of the server in the last round.
    server: Cell<Duration>,
}

/// The work of a line.
enum Work {
    /// Runs thalweg with a configuration.
    Job(PathBuf),
    /// Uploads the expected output of the job with the bare client.
    Upload,
}

/// Prints one table for each of `ways`: true for the slow connection, false for the fast one.
///
/// # Errors
/// Returns an error if a program fails or an output is wrong.
pub fn run(contest: &Contest, rows: &Rows, place: &Testbed, ways: &[bool]) -> Result<(), String> {
    // The file that the bare client uploads.
    pure::write(contest, rows, &contest.path(TARGET))?;
    for &is_slow in ways {
        let way = match is_slow {
            true => format!("with {} ms more for each request", LATENCY.as_millis()),
            false => "without latency".to_owned(),
        };
        println!("  An object of CSV to one of JSON, {way}");
        println!(
            "    {:<26}{:>8}{:>10}{:>10}{:>10}{:>10}{:>9}{:>9}",
            "", "slices", "wall s", "CPU s", "server s", "peak MiB", "MB/s in", "the seed"
        );
        table(contest, rows, place, is_slow)?;
    }
    let seed = "an object of unknown size on its author's machine and network; 300 MiB with a channel, 1 to 2 GiB without";
    println!("  the seed: {seed}\n");
    Ok(())
}

fn table(contest: &Contest, rows: &Rows, place: &Testbed, is_slow: bool) -> Result<(), String> {
    let mut lines = Vec::new();
    let mut add = |name, slice, seed, text: String| {
        let configuration = contest.path(&format!("{} {is_slow}.yaml", lines.len()));
        fs::write(&configuration, text).map_err(|error| error.to_string())?;
        lines.push(Row { name, slice, seed, work: Work::Job(configuration), server: Cell::default() });
        Ok::<_, String>(())
    };
    for slice in SLICES {
        for mode in &MODES {
            add(mode.name, slice, Some(mode.seed), mode.configuration(place, slice, is_slow))?;
        }
    }
    add("auto", "its own", None, of(place, is_slow))?;
    let (name, server) = ("bare client, upload alone", Cell::default());
    lines.push(Row { name, slice: "", seed: None, work: Work::Upload, server });

    let output = place.path(TARGET);
    let contenders: Vec<Contender> = lines
        .iter()
        .map(|line| {
            let command = || {
                place.spent();
                match &line.work {
                    Work::Job(configuration) => {
                        let mut command = contest.thalweg_with(configuration);
                        command.arg("--strict").envs(place.server.env());
                        command
                    }
                    Work::Upload => {
                        let json = contest.path(TARGET).display().to_string();
                        place.bare(is_slow, "put", &json, &target_of(TARGET), UPLOADING)
                    }
                }
            };
            Contender::new(line.name, command).writing(&output).checked(|output| {
                line.server.set(place.spent());
                rows.json.compare(output)
            })
        })
        .collect();
    let runs = contest.compare_cold(&contenders)?;
    for (line, run) in lines.iter().zip(&runs) {
        print(line, rows.input.bytes, run);
    }
    judge(&lines, &runs);
    Ok(())
}

fn print(line: &Row, bytes: u64, run: &Run) {
    println!(
        "    {:<26}{:>8}{:>10.2}{:>10.2}{:>10.2}{:>10}{:>9.0}{:>9}",
        line.name,
        line.slice,
        run.wall.as_secs_f64(),
        run.cpu.as_secs_f64(),
        line.server.get().as_secs_f64(),
        run.peak_rss >> 20,
        megabytes(bytes, run),
        line.seed.map_or_else(String::new, |seconds| format!("[{seconds} s]")),
    );
}

/// Reports how `auto`, which follows the other modes, compares with the fastest of them.
fn judge(lines: &[Row], runs: &[Run]) {
    let Some((others, [auto, ..])) = runs.split_at_checked(MODES.len() * SLICES.len()) else { return };
    let Some((best, run)) = lines.iter().zip(others).min_by_key(|(_, run)| run.wall) else { return };
    let times = auto.wall.as_secs_f64() / run.wall.as_secs_f64();
    target(
        times <= MOST_TIMES,
        format!(
            "auto: {times:.2} times the fastest other mode ({}, {}); to reach: {MOST_TIMES}",
            best.name, best.slice
        ),
    );
    target(
        auto.peak_rss < MOST_RESIDENT,
        format!(
            "auto: peak {} MiB with a budget of {MEMORY}; to reach: less than {} MiB",
            auto.peak_rss >> 20,
            MOST_RESIDENT >> 20
        ),
    );
    println!();
}

impl Mode {
    fn configuration(&self, place: &Testbed, slice: &str, is_slow: bool) -> String {
        self.configured(&place.url(SOURCE, is_slow), &place.url(TARGET, is_slow), slice)
    }

    /// Returns the configuration that copies rows from one URL to another.
    pub(super) fn configured(&self, from: &str, to: &str, slice: &str) -> String {
        let reading = format!(", slice: {slice}, readers: {}, queue: {}", self.readers, self.queue);
        let concurrency = self.concurrency.map_or_else(String::new, |many| format!(", concurrency: {many}"));
        let writing = format!(", writers: {}", self.writers);
        text((from, to), "4GiB", &reading, &concurrency, &writing)
    }
}

fn of(place: &Testbed, is_slow: bool) -> String {
    adaptive(&place.url(SOURCE, is_slow), &place.url(TARGET, is_slow))
}

/// Returns the configuration without settings, which adapts.
pub(super) fn adaptive(from: &str, to: &str) -> String {
    text((from, to), MEMORY, "", "", "")
}

fn text((from, to): (&str, &str), memory: &str, reading: &str, concurrency: &str, writing: &str) -> String {
    format!(
        r#"memory: {memory}
sources:
  table: {{ objects: {{ url: "{from}"{reading} }} }}
pipelines:
  main: {{ from: table, transforms: [csv: {{ types: {TYPES} }}], to: rows{concurrency} }}
sinks:
  rows: {{ objects: {{ url: "{to}", encode: json{writing} }} }}
"#
    )
}

//! The seed's table on azurite, a server of the kind that the seed used: every row, without and with latency.
//! A second table fetches one object.
//!
//! azurite stores blobs in files of its own form, so the output of a run is fetched to be checked, outside of
//! the measured time. It runs on one core, which the copying program does not get: its CPU time is a column.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use thalweg_testbed::{Azure, Fault, Proxy, Rule};

use super::modes::{self, BLOCKING, MODES};
use super::place::{BUCKET, LATENCY, SOURCE, cpu_of};
use super::rows::Rows;
use super::{MEMORY, bare, megabytes};
use crate::contest::{Contender, Contest};
use crate::measure::Run;
use crate::table::Table;

/// The largest object, in bytes: azurite stores about 100 MB a second.
const LARGEST: u64 = 128 << 20;

/// The key of the output.
const TARGET: &str = "rows.jsonl";

/// The size of read requests, as in the seed.
const SLICE: &str = "1MiB";

/// Prints the tables.
///
/// # Errors
/// Returns an error if the server or a program fails, or if an output is wrong.
pub fn run(contest: &Contest) -> Result<(), String> {
    let path = contest.path("azure.csv");
    let rows = Rows::make(&path, contest.size.min(LARGEST)).map_err(|error| error.to_string())?;
    let place = Place::start(contest, &rows)?;
    modes(contest, &rows, &place)?;
    get(contest, &rows, &place)
}

/// The server, and a slow connection to it.
struct Place {
    server: Azure,
    slow: Proxy,
    taken: Cell<Duration>,
}

impl Place {
    fn start(contest: &Contest, rows: &Rows) -> Result<Self, String> {
        let server = Azure::start().map_err(|error| error.to_string())?;
        server.create_public_container(BUCKET).map_err(|error| error.to_string())?;
        let slow = Proxy::start(server.address()).map_err(|error| error.to_string())?;
        slow.set([Rule::new(Fault::Delay(LATENCY))]);
        let place = Self { server, slow, taken: Cell::default() };
        let mut upload = place.copy(contest, &rows.path.display().to_string(), &place.url(SOURCE, false));
        crate::measure::run(&mut upload)?;
        Ok(place)
    }

    fn url(&self, key: &str, is_slow: bool) -> String {
        if is_slow {
            self.slow.clear();
            return self.server.url_through(&self.slow, BUCKET, key);
        }
        self.server.url(BUCKET, key)
    }

    fn copy(&self, contest: &Contest, from: &str, to: &str) -> Command {
        let mut command = Command::new(&contest.thalweg);
        command.args(["copy", "--quiet", "--no-resume", from, to]).envs(self.server.env());
        command
    }

    /// Returns the CPU time of the server since the last call.
    fn spent(&self) -> Duration {
        let now = cpu_of(self.server.process_id());
        now.saturating_sub(self.taken.replace(now))
    }
}

/// Names of rows, and their times in seconds in the seed.
type Names = Vec<(&'static str, Option<u32>)>;

/// A line of the table.
struct Line {
    /// The rows of the seed with these settings, and their times in seconds.
    names: Names,
    configuration: PathBuf,
    server: Cell<Duration>,
}

fn modes(contest: &Contest, rows: &Rows, place: &Place) -> Result<(), String> {
    let title = format!(
        "DataTransfer's modes: an object of {} MiB of CSV on azurite becomes one of JSON; medians of {} runs in turn",
        rows.input.bytes >> 20,
        contest.rounds
    );
    let columns = ["wall, s", "CPU, s", "server, s", "peak, MiB", "MB/s in", "the seed, s"];
    let mut table = Table::new("datatransfer", "modes", title, "connection", &columns);
    for is_slow in [false, true] {
        let case = match is_slow {
            true => format!("{} ms more for each request", LATENCY.as_millis()),
            false => "without latency".to_owned(),
        };
        let lines = lines(contest, place, is_slow)?;
        let runs = measured(contest, rows, place, &lines)?;
        for (line, run) in lines.iter().zip(&runs) {
            for (name, seed) in &line.names {
                table.row(&case, name, &figures(rows.input.bytes, run, line.server.get(), *seed));
            }
        }
    }
    table.plot("wall, s");
    table.plot("CPU, s");
    table.plot("peak, MiB");
    table.note("The seed: an object of unknown size on its author's machine; 300 MiB with a channel, 1 to 2 GiB without.");
    table.note("Modes have as much memory as they want, `auto` has 64 MiB. `sync` has the figures of `async`: no thread waits for a request.");
    table.finish()
}

fn figures(bytes: u64, run: &Run, server: Duration, seed: Option<u32>) -> [Option<f64>; 6] {
    [
        Some(run.wall.as_secs_f64()),
        Some(run.cpu.as_secs_f64()),
        Some(server.as_secs_f64()),
        Some((run.peak_rss >> 20) as f64),
        Some(megabytes(bytes, run)),
        seed.map(f64::from),
    ]
}

fn lines(contest: &Contest, place: &Place, is_slow: bool) -> Result<Vec<Line>, String> {
    let (from, to) = (place.url(SOURCE, is_slow), place.url(TARGET, is_slow));
    let mut all: Vec<(Names, String)> = Vec::new();
    for (number, mode) in MODES.iter().enumerate() {
        let names = match number {
            1 => vec![("parallel 10, sync", Some(BLOCKING)), ("parallel 10, async", Some(mode.seed))],
            _ => vec![(mode.name, Some(mode.seed))],
        };
        all.push((names, mode.configured(&from, &to, SLICE)));
    }
    all.push((vec![("auto", None)], modes::adaptive(&from, &to)));
    let line = |(number, (names, text)): (usize, (Names, String))| {
        let configuration = contest.path(&format!("azure {number} {is_slow}.yaml"));
        fs::write(&configuration, text).map_err(|error| error.to_string())?;
        Ok(Line { names, configuration, server: Cell::default() })
    };
    all.into_iter().enumerate().map(line).collect()
}

fn measured(contest: &Contest, rows: &Rows, place: &Place, lines: &[Line]) -> Result<Vec<Run>, String> {
    let fetched = contest.path("azure.jsonl");
    let contender = |line: &'_ Line| {
        let configuration = line.configuration.clone();
        let command = move || {
            place.spent();
            let mut command = contest.thalweg_with(&configuration);
            command.arg("--strict").envs(place.server.env());
            command
        };
        (line.names[0].0, command)
    };
    let contenders: Vec<Contender> = lines
        .iter()
        .map(|line| {
            let (name, command) = contender(line);
            Contender::new(name, command).writing(&fetched).checked(|fetched| {
                line.server.set(place.spent());
                check(contest, rows, place, fetched)
            })
        })
        .collect();
    contest.compare_cold(&contenders)
}

fn check(contest: &Contest, rows: &Rows, place: &Place, fetched: &Path) -> Result<(), String> {
    let url = place.url(TARGET, false);
    crate::measure::run(&mut place.copy(contest, &url, &fetched.display().to_string()))?;
    rows.json.compare(fetched)
}

/// Fetches one object, beside a client that only moves bytes.
fn get(contest: &Contest, rows: &Rows, place: &Place) -> Result<(), String> {
    let title = format!(
        "An object of {} MiB on azurite becomes a file; medians of {} runs in turn",
        rows.input.bytes >> 20,
        contest.rounds
    );
    let columns = ["wall, s", "CPU, s", "peak, MiB", "MB/s"];
    let mut table = Table::new("datatransfer", "get", title, "server", &columns);
    let output = contest.path("fetched.csv");
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let target = format!("/{}/{BUCKET}/{SOURCE}", place.server.account());
    let (url, to) = (place.url(SOURCE, false), output.display().to_string());
    let bare = |connections: usize| {
        let mut command = Command::new(&program);
        command.args([bare::COMMAND, "get", &place.server.address().to_string(), &target, &to]);
        command.arg(connections.to_string());
        command
    };
    let contenders = [
        Contender::new("thalweg", || {
            let mut command = place.copy(contest, &url, &to);
            command.args(["--memory", MEMORY]);
            command
        }),
        Contender::new("bare client, 1 connection", || bare(1)),
        Contender::new("bare client, 4", || bare(4)),
    ]
    .map(|contender| contender.writing(&output).checked(|output| rows.input.compare(output)));
    let runs = contest.compare(&contenders)?;
    for (contender, run) in contenders.iter().zip(&runs) {
        let rate = Some(megabytes(rows.input.bytes, run));
        let (wall, cpu) = (Some(run.wall.as_secs_f64()), Some(run.cpu.as_secs_f64()));
        table.row("azurite", contender.name, &[wall, cpu, Some((run.peak_rss >> 20) as f64), rate]);
    }
    table.plot("MB/s");
    table.finish()
}

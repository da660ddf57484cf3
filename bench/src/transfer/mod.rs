//! Measures the copying of one large object: the seed's job in each of the seed's modes, the transformation
//! alone, and plain copies beside a bare client. The *seed* is the program whose modes and times the tables
//! quote.
//!
//! The server, the delaying proxy and the copying program share the cores of this machine. A separate table
//! therefore shows the cost of the transformation without a server, and the bare client shows the rate of the
//! server.

mod azure;
mod bare;
mod connection;
mod modes;
mod place;
mod plain;
mod pure;
mod rows;

use crate::contest::Contest;
use crate::measure::Run;
use crate::report::finding;
use place::Testbed;
use rows::Rows;

pub use bare::{COMMAND as BARE, run as bare};
pub use pure::{COMMAND as COUNT, count};

/// The memory budget of the runs that choose their own settings.
const MEMORY: &str = "64MiB";

/// Prints the named tables (`azure`, `pure`, `modes`, `latency`, `plain`), or all tables. `azure` is the
/// table of the seed.
///
/// # Errors
/// Returns an error if the server or a program fails, or if an output is wrong.
pub fn run(contest: &Contest, named: &[&str]) -> Result<(), String> {
    let wanted = |name: &str| named.is_empty() || named.contains(&name);
    if wanted("azure") {
        azure::run(contest)?;
    }
    if named == ["azure"] {
        return Ok(());
    }
    let rows = Rows::make(&contest.path("rows.csv"), contest.size).map_err(|error| error.to_string())?;
    let place = Testbed::start(&rows)?;
    println!(
        "Copying: an object of {} MiB, {} rows of five columns; medians of {} runs in turn, start and stop included",
        rows.input.bytes >> 20,
        rows.input.lines - 1,
        contest.rounds
    );
    println!("On this machine: {}; {}.", machine(), place.version());
    println!(
        "The server stores objects in {}; the output of each run is compared with the expected output.\n",
        place.folder()
    );
    let modes: Vec<bool> = [("modes", false), ("latency", true)]
        .iter()
        .filter(|(name, _)| wanted(name))
        .map(|(_, is)| *is)
        .collect();
    if wanted("pure") {
        pure::run(contest, &rows)?;
    }
    if !modes.is_empty() {
        modes::run(contest, &rows, &place, &modes)?;
    }
    if wanted("plain") {
        plain::run(contest, &rows, &place)?;
    }
    Ok(())
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let described = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = described.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    format!("{cores} cores, {}", model.unwrap_or("of an unknown model"))
}

/// Returns the rate in millions of bytes per second.
fn megabytes(bytes: u64, run: &Run) -> f64 {
    bytes as f64 / run.wall.as_secs_f64() / 1e6
}

/// Prints a run beside other runs that move the same number of bytes.
fn print(name: &str, bytes: u64, run: &Run) {
    println!(
        "    {name:<26}{:>8.2} s{:>8.2} s of CPU   peak {:>5} MiB{:>8.0} MB/s",
        run.wall.as_secs_f64(),
        run.cpu.as_secs_f64(),
        run.peak_rss >> 20,
        megabytes(bytes, run)
    );
}

/// Prints whether a target is reached.
fn target(is_reached: bool, text: String) {
    finding(format!("{} {text}", if is_reached { '✓' } else { '✗' }));
}

//! The copying of one large object: the seed's job in each of the seed's modes, the transformation alone, and plain copies
//! beside a client that does nothing else.
//!
//! The server, the proxy that delays and whoever copies share the cores of this machine. So a table of its own says what
//! the transformation costs without a server, and a client that only moves bytes says what the server can do.

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

/// The memory of whoever finds out by itself what is best.
const MEMORY: &str = "64MiB";

/// Prints the tables that are named (`pure`, `modes`, `latency`, `plain`), or all.
///
/// # Errors
/// If the server or a program fails, or what one wrote is wrong.
pub fn run(contest: &Contest, named: &[&str]) -> Result<(), String> {
    let wanted = |name: &str| named.is_empty() || named.contains(&name);
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
        "What the server stores is in {}; what each run wrote is compared with what is right.\n",
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

/// Millions of bytes in a second.
fn megabytes(bytes: u64, run: &Run) -> f64 {
    bytes as f64 / run.wall.as_secs_f64() / 1e6
}

/// Prints a run beside others that move as many bytes.
fn print(name: &str, bytes: u64, run: &Run) {
    println!(
        "    {name:<26}{:>8.2} s{:>8.2} s of CPU   peak {:>5} MiB{:>8.0} MB/s",
        run.wall.as_secs_f64(),
        run.cpu.as_secs_f64(),
        run.peak_rss >> 20,
        megabytes(bytes, run)
    );
}

/// Prints whether what is to be reached is.
fn target(is_reached: bool, text: String) {
    finding(format!("{} {text}", if is_reached { '✓' } else { '✗' }));
}

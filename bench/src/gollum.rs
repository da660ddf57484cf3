//! gollum's own performance table, with its configurations as published. They are run by thalweg, by gollum
//! itself if its program is available, and by Benthos if it has a configuration for the same work.

use std::path::PathBuf;
use std::process::Command;

use crate::contest::{Contender, Contest};
use crate::measure::Run;
use crate::report::{finding, grouped, per_second};

/// A configuration of the table.
struct Row {
    title: &'static str,
    /// The file in `gollum`.
    file: &'static str,
    /// The number of messages that it creates.
    messages: u64,
    /// True if the current gollum reads it.
    is_current: bool,
    /// The configuration of Benthos for the same work, and the divisor for its number of messages. With fewer
    /// messages Benthos takes about as long.
    benthos: Option<(&'static str, u64)>,
}

const fn row(title: &'static str, file: &'static str, messages: u64) -> Row {
    Row { title, file, messages, is_current: true, benthos: None }
}

const PLAIN: u64 = 10_000_000;
const JSON: u64 = 1_000_000;

const ROWS: [Row; 9] = [
    Row { benthos: Some(("generate.yaml", 10)), ..row("raw pipeline", "v050-raw.conf", PLAIN) },
    row("basic formatting", "v050-format.conf", PLAIN),
    row("8 consumers with formatting", "v050-multi.conf", 8 * PLAIN),
    Row { benthos: Some(("gollum-json.yaml", 10)), ..row("JSON pipeline", "v060-json.conf", JSON) },
    Row { is_current: false, ..row("JSON pipeline, as of v0.5.0", "v050-json.conf", JSON) },
    // gollum's document swaps the message contents of two rows for v0.4.6: here JSON is not parsed,
    Row { is_current: false, ..row("raw pipeline, as of v0.4.6", "v046-raw.conf", PLAIN) },
    Row { is_current: false, ..row("basic formatting, as of v0.4.6", "v046-format.conf", PLAIN) },
    Row { is_current: false, ..row("8 consumers, as of v0.4.6", "v046-multi.conf", 8 * PLAIN) },
    // and here a million messages that are not JSON are rejected and kept as errors.
    Row { is_current: false, ..row("JSON pipeline, as of v0.4.6", "v046-json.conf", JSON) },
];

/// Prints all rows.
///
/// # Errors
/// Returns an error if a program fails.
pub fn run(contest: &Contest) -> Result<(), String> {
    println!(
        "gollum's table: its configurations unchanged, medians of {} runs in turn, start and stop included\n",
        contest.rounds
    );
    println!(
        "  {:<32}{:>14}{:>16}{:>12}{:>10}",
        "", "messages/s", "per CPU-second", "per s, KiB", "peak MiB"
    );
    let gollum = std::env::var_os("GOLLUM").map(PathBuf::from).filter(|path| path.exists());
    for row in &ROWS {
        compare(contest, row, gollum.as_ref())?;
    }
    if gollum.is_none() {
        println!("  gollum was not measured: set GOLLUM to its program (it cannot be had from a registry)");
    }
    println!();
    Ok(())
}

fn compare(contest: &Contest, row: &Row, gollum: Option<&PathBuf>) -> Result<(), String> {
    let file = contest.gollum(row.file)?;
    let mut contenders = vec![Contender::new("thalweg", || contest.thalweg_with(&file))];
    let mut messages = vec![row.messages];
    if let Some(program) = gollum.filter(|_| row.is_current) {
        let file = &file;
        contenders.push(Contender::new("gollum", move || {
            let mut command = Command::new(program);
            command.arg("-c").arg(file).arg("-ll").arg("1");
            command
        }));
        messages.push(row.messages);
    }
    if let Some((case, fewer)) = row.benthos {
        let count = row.messages / fewer;
        if let Some(peer) = contest.benthos(case, vec![("COUNT", count.to_string())]) {
            contenders.push(peer);
            messages.push(count);
        }
    }
    let runs = contest.compare(&contenders)?;
    println!("  {}", row.title);
    for ((contender, run), &messages) in contenders.iter().zip(&runs).zip(&messages) {
        print(contender.name, messages, run);
    }
    let ours = per_second(row.messages, &runs[0]);
    for ((contender, run), &messages) in contenders.iter().zip(&runs).zip(&messages).skip(1) {
        finding(format!("{:.1} times {}", ours / per_second(messages, run), contender.name));
    }
    Ok(())
}

/// Prints a line of figures: messages per second, per second of CPU, and per second and KiB of resident
/// memory.
fn print(name: &str, messages: u64, run: &Run) {
    let rate = per_second(messages, run);
    let work = messages as f64 / run.cpu.as_secs_f64();
    let memory = rate / (run.peak_rss as f64 / 1024.0);
    println!(
        "    {name:<30}{:>14}{:>16}{:>12}{:>10}",
        grouped(rate),
        grouped(work),
        grouped(memory),
        run.peak_rss >> 20
    );
}

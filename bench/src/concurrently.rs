//! The tables of Concurrently, row by row: Ruby's figures, and ours in Rust and in Python on both event
//! loops.
//!
//! All contenders run on this machine, one program after the other, each with medians of rounds in turn.
//! Figures are executions per second of CPU time, so other load on the machine matters less. Garbage is not
//! collected meanwhile, as in Concurrently's own measurements.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::evaluations;
use crate::table::Table;

const RATE: &str = "thousands/s";
const RUBY: &str = "Ruby's Concurrently";

/// The rows: the name of a figure, and what it measures.
const ROWS: [(&str, &str); 16] = [
    ("plain", "plain call"),
    ("fiber", "Fiber.new"),
    ("call", "call"),
    ("call_nonblock", "call_nonblock"),
    ("call_detached, scheduled", "call_detached, only scheduled"),
    ("call_and_forget, scheduled", "call_and_forget, only scheduled"),
    ("call_detached", "call_detached, awaited"),
    ("call_and_forget", "call_and_forget, run"),
    ("call, waits", "call that waits"),
    ("call_nonblock, waits", "call_nonblock that waits"),
    ("call_detached, waits", "call_detached that waits"),
    ("call_and_forget, waits", "call_and_forget that waits"),
    ("wait", "wait"),
    ("await_readable", "await_readable"),
    ("await_writable", "await_writable"),
    ("call, pipe", "call that awaits a pipe"),
];

/// The figures of one contender: names, and nanoseconds of one execution.
type Figures = Vec<(String, f64)>;

/// Measures and prints the table.
///
/// # Errors
/// The table cannot be saved, or the system has no descriptors left.
pub fn run(quick: bool) -> Result<(), String> {
    let (rounds, round) =
        if quick { (1, Duration::from_millis(20)) } else { (7, Duration::from_millis(200)) };
    let title = format!("Concurrently: executions per second of CPU time, medians of {rounds} rounds");
    let mut table = Table::new("concurrently", "calls", title, "call", &[RATE, "× Ruby"]);
    let mut contenders = vec![("thalweg, Rust", evaluations::beside_ruby(rounds, round)?)];
    match python(rounds, round) {
        Ok((ours, asyncio)) => {
            contenders.push(("thalweg, Python, `run`", ours));
            contenders.push(("thalweg, Python, `asyncio.run`", asyncio));
        }
        Err(reason) => table.note(format!("Python was not run: {reason}")),
    }
    match ruby(rounds, round) {
        Ok(figures) => contenders.push((RUBY, figures)),
        Err(reason) => table.note(format!("Ruby's Concurrently was not run: {reason}")),
    }
    fill(&mut table, &contenders);
    table.plot(RATE);
    table.finish()
}

fn fill(table: &mut Table, contenders: &[(&str, Figures)]) {
    let of = |figures: &Figures, name: &str| {
        figures.iter().find(|(known, _)| known == name).map(|(_, nanoseconds)| 1e6 / nanoseconds)
    };
    let theirs = contenders.iter().find(|(contender, _)| *contender == RUBY).map(|(_, figures)| figures);
    for (name, description) in ROWS {
        let ruby = theirs.and_then(|figures| of(figures, name));
        for (contender, figures) in contenders {
            if let Some(rate) = of(figures, name) {
                table.row(description, contender, &[Some(rate), ruby.map(|ruby| rate / ruby)]);
            }
        }
    }
    for (name, description) in
        [("create_task, waits", "asyncio.create_task that waits"), ("sleep", "asyncio.sleep(0)")]
    {
        for (contender, figures) in contenders {
            if let Some(rate) = of(figures, name) {
                table.row(description, contender, &[Some(rate), None]);
            }
        }
    }
}

/// Runs Concurrently and returns its figures.
///
/// # Errors
/// Ruby or the gem is not installed.
pub fn ruby(rounds: usize, round: Duration) -> Result<Figures, String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/concurrently/calls.rb");
    let lines = figures_of("ruby".into(), script, rounds, round)?;
    Ok(lines.into_iter().map(|(names, figure)| (names.join("\t"), figure)).collect())
}

/// Runs the Python package: the figures on our event loop, and those on asyncio's.
fn python(rounds: usize, round: Duration) -> Result<(Figures, Figures), String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../python/bench/concurrently.py");
    let lines = figures_of(interpreter(), script, rounds, round)?;
    let of = |event_loop: &str| {
        let own = lines.iter().filter(|(names, _)| names.first().is_some_and(|first| first == event_loop));
        own.filter_map(|(names, figure)| Some((names.get(1)?.clone(), *figure))).collect()
    };
    Ok((of("thalweg"), of("asyncio")))
}

/// The interpreter that has the package: that of `make wheel`, unless `PYTHON` names another.
fn interpreter() -> PathBuf {
    if let Some(named) = std::env::var_os("PYTHON") {
        return named.into();
    }
    let folder =
        std::env::current_exe().ok().and_then(|program| Some(program.parent()?.parent()?.to_owned()));
    let beside = folder.map(|target| target.join("python/bin/python")).filter(|python| python.exists());
    beside.unwrap_or_else(|| "python3".into())
}

/// Runs a script that prints names and nanoseconds, separated by tabs.
fn figures_of(
    program: PathBuf,
    script: &str,
    rounds: usize,
    round: Duration,
) -> Result<Vec<(Vec<String>, f64)>, String> {
    let shown = program.display().to_string();
    let seconds = format!("{}", round.as_secs_f64());
    let output = Command::new(program).args([script, &seconds, &rounds.to_string()]).output();
    let output = output.map_err(|error| format!("`{shown}` cannot be started: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(said.lines().last().unwrap_or("it failed without saying why").to_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let figure = |line: &str| {
        let (names, figure) = line.rsplit_once('\t')?;
        Some((names.split('\t').map(str::to_owned).collect(), figure.parse().ok()?))
    };
    Ok(text.lines().filter_map(figure).collect())
}

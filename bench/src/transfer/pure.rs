//! The transformation without a server: from a file, with the output discarded or written to a file.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::Read;
use std::path::Path;

use super::rows::{Rows, TYPES};
use super::{MEMORY, megabytes, print, target};
use crate::contest::{Contender, Contest};

/// The argument that makes this program only count line feeds.
pub const COMMAND: &str = "count";

/// The least rate in millions of input bytes per second, on two cores or more.
const LEAST: f64 = 300.0;

/// Prints the table.
///
/// # Errors
/// Returns an error if a program fails or its output is wrong.
pub fn run(contest: &Contest, rows: &Rows) -> Result<(), String> {
    let (to_nowhere, to_file) = (contest.path("nowhere.yaml"), contest.path("file.yaml"));
    let (output, copy) = (contest.path("rows.jsonl"), contest.path("copy.csv"));
    fs::write(&to_nowhere, configuration(rows, ", encode: json", "discard"))
        .and_then(|()| fs::write(&to_file, configuration(rows, "", &file(&output))))
        .map_err(|error| error.to_string())?;
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let contenders = [
        Contender::new("to nowhere", || contest.thalweg_with(&to_nowhere)),
        Contender::new("to a file", || contest.thalweg_with(&to_file))
            .writing(&output)
            .checked(|output| rows.json.compare(output)),
        Contender::new("its line feeds, one core", || {
            let mut command = std::process::Command::new(&program);
            command.arg(COMMAND).arg(&rows.path);
            command
        }),
        Contender::shell(
            "cat, file to file",
            format!("cat '{}' > '{}'", rows.path.display(), copy.display()),
        )
        .writing(&copy),
    ];
    let runs = contest.compare(&contenders)?;
    println!("  A file of CSV to JSON with a budget of {MEMORY}, beside a reader and a copier of the file");
    for (contender, run) in contenders.iter().zip(&runs) {
        print(contender.name, rows.input.bytes, run);
    }
    for (contender, run) in contenders.iter().zip(&runs).take(2) {
        let rate = megabytes(rows.input.bytes, run);
        target(rate >= LEAST, format!("{}: {rate:.0} MB/s of input; to reach: {LEAST}", contender.name));
    }
    println!();
    fs::remove_file(&copy).and_then(|()| fs::remove_file(&output)).map_err(|error| error.to_string())
}

/// Writes the expected output of the job, without measuring.
///
/// # Errors
/// As for [`run`].
pub fn write(contest: &Contest, rows: &Rows, output: &Path) -> Result<(), String> {
    let to_file = contest.path("file.yaml");
    fs::write(&to_file, configuration(rows, "", &file(output))).map_err(|error| error.to_string())?;
    crate::measure::run(&mut contest.thalweg_with(&to_file))?;
    rows.json.compare(output)
}

fn file(output: &Path) -> String {
    format!("{{ file: {{ path: \"{}\", encode: json, fsync: never }} }}", output.display())
}

fn configuration(rows: &Rows, encode: &str, sink: &str) -> String {
    let input = rows.path.display();
    format!(
        r#"memory: {MEMORY}
sources:
  table: {{ objects: {{ url: "{input}" }} }}
pipelines:
  main: {{ from: table, transforms: [csv: {{ types: {TYPES} }}{encode}], to: rows }}
sinks:
  rows: {sink}
"#
    )
}

/// Reads a file and counts its line feeds, nothing else. No reader of lines can be faster on one core.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub fn count(path: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{path}: {error}");
    let mut file = File::open(path).map_err(failed)?;
    let (mut buffer, mut lines) = (vec![0; 256 << 10], 0);
    loop {
        match file.read(&mut buffer).map_err(failed)? {
            0 => break,
            many => lines += memchr::memchr_iter(b'\n', &buffer[..many]).count(),
        }
    }
    black_box(lines);
    Ok(())
}

//! capyfile's table: files are read, checked and written by its own definition. thalweg runs beside `cp -r`,
//! and beside capyfile itself if its program is available. Further tables are the same checks inside the
//! process, pictures, and a million files.

mod go;
mod inside;
mod pictures;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::contest::{Contender, Contest};
use crate::measure::{Run, run as measure};
use crate::report::finding;
use crate::table::Table;

/// A row of the table: files of one of four size classes.
struct Row {
    title: &'static str,
    seed: u64,
    count: usize,
    sizes: std::ops::RangeInclusive<usize>,
}

const ROWS: [Row; 4] = [
    Row { title: "500 files of 1 to 10 KB", seed: 1, count: 500, sizes: 1024..=10_240 },
    Row { title: "50 files of 1 to 10 KB", seed: 2, count: 50, sizes: 1024..=10_240 },
    Row { title: "500 files of 0.1 to 1 MB", seed: 3, count: 500, sizes: 102_400..=1_048_576 },
    Row { title: "50 files of 0.1 to 1 MB", seed: 5, count: 50, sizes: 102_400..=1_048_576 },
];

/// A folder in memory, if the system has one.
const TMPFS: &str = "/dev/shm";

/// Prints all tables.
///
/// # Errors
/// Returns an error if a program fails.
pub fn run(contest: &Contest) -> Result<(), String> {
    let title = format!(
        "Files: read, check size, check type, write; medians of {} runs in turn, start and stop included",
        contest.rounds
    );
    let columns = ["wall, ms", "CPU, ms", "peak, MiB", "times cp -r", "ms over cp -r"];
    let mut table = Table::new("capyfile", "copies", title, "files", &columns);
    table.plot("wall, ms");
    let capyfile = std::env::var_os("CAPYFILE").map(PathBuf::from).filter(|path| path.exists());
    let memory = Path::new(TMPFS).join(format!("thalweg-bench-{}", std::process::id()));
    for (place, folder) in [("in memory (tmpfs)", memory.clone()), ("on disk", contest.path("files"))] {
        if Path::new(TMPFS).exists() || place == "on disk" {
            for row in &ROWS {
                copy(contest, (place, row), &folder, capyfile.as_deref(), &mut table)?;
            }
        }
    }
    if capyfile.is_none() {
        table.note("capyfile was not measured: set CAPYFILE to the path of its `capycmd`.");
    }
    table.finish()?;
    inside::run(contest)?;
    pictures::run(contest, capyfile.as_deref())?;
    million(contest, &memory)?;
    for folder in [memory, contest.path("files")] {
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

fn copy(
    contest: &Contest,
    (place, row): (&str, &Row),
    folder: &Path,
    capyfile: Option<&Path>,
    table: &mut Table,
) -> Result<(), String> {
    let (input, output) = (folder.join("in"), folder.join("out"));
    make(&input, row).map_err(|error| error.to_string())?;
    let glob = format!("{}/*", input.display());
    let variables = [("IN_GLOB", glob), ("OUT_DIR", output.display().to_string())];
    let mut contenders = contenders(contest, "copy", &variables, capyfile);
    contenders.push(Contender::new("cp -r", || {
        let mut command = Command::new("cp");
        command.arg("-r").arg(&input).arg(&output);
        command
    }));
    let contenders: Vec<Contender> =
        contenders.into_iter().map(|contender| contender.writing(&output)).collect();
    let runs = contest.compare(&contenders)?;
    let milliseconds = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    let limit = runs.last().map_or(0.0, |run| milliseconds(run.wall));
    for (contender, run) in contenders.iter().zip(&runs) {
        let wall = milliseconds(run.wall);
        table.row(
            format!("{}, {place}", row.title),
            contender.name,
            &[wall, milliseconds(run.cpu), (run.peak_rss >> 20) as f64, wall / limit, wall - limit].map(Some),
        );
    }
    fs::remove_dir_all(folder).map_err(|error| error.to_string())
}

/// Returns thalweg, and capyfile in each of its modes, with one of its definitions.
fn contenders<'a>(
    contest: &'a Contest,
    processor: &'static str,
    variables: &'a [(&'a str, String)],
    capyfile: Option<&'a Path>,
) -> Vec<Contender<'a>> {
    let definition = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("capyfile/{processor}.yml"));
    let variables = move || variables.iter().map(|(name, value)| (*name, value));
    let ours = definition.clone();
    let mut contenders = vec![Contender::new("thalweg", move || {
        let mut command = contest.thalweg_with(&ours);
        command.arg(format!("bench:{processor}")).envs(variables());
        command
    })];
    const MODES: [(&str, &[&str]); 3] = [
        ("capyfile", &[]),
        ("capyfile event", &["-c", "-m", "event"]),
        ("capyfile lock", &["-c", "-m", "lock"]),
    ];
    for (name, mode) in MODES {
        if let Some(program) = capyfile {
            let definition = definition.clone();
            contenders.push(Contender::new(name, move || {
                let mut command = Command::new(program);
                command
                    .arg("-f")
                    .arg(&definition)
                    .args(mode)
                    .arg(format!("bench:{processor}"))
                    .envs(variables());
                command
            }));
        }
    }
    contenders
}

fn told_of_capyfile(runs: &[Run]) {
    let modes = runs.get(1..4).filter(|_| runs.len() > 4).unwrap_or_default();
    if let Some(best) = modes.iter().map(|run| run.wall).min() {
        finding(format!(
            "{:.1} times as fast as capyfile's best mode",
            best.as_secs_f64() / runs[0].wall.as_secs_f64()
        ));
    }
}

fn print(name: &str, run: &Run) {
    println!(
        "      {name:<16}{:>9.1} ms   {:>7.1} ms of CPU   peak {:>4} MiB",
        run.wall.as_secs_f64() * 1e3,
        run.cpu.as_secs_f64() * 1e3,
        run.peak_rss >> 20
    );
}

/// Creates files of random bytes and random sizes.
fn make(folder: &Path, row: &Row) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut random = fastrand::Rng::with_seed(row.seed);
    for number in 0..row.count {
        let mut content = vec![0; random.usize(row.sizes.clone())];
        random.fill(&mut content);
        fs::write(folder.join(format!("file_{number:04}.bin")), content)?;
    }
    Ok(())
}

/// Measures a million empty files.
fn million(contest: &Contest, folder: &Path) -> Result<(), String> {
    let (folders, each) = if contest.rounds == 1 { (10, 1000) } else { (100, 10_000) };
    println!("Files without content, listed and checked: what a million takes of memory\n");
    for (folders, each) in [(1, each), (folders, each)] {
        for number in 0..folders {
            let folder = folder.join(format!("many/{number:02}"));
            fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
            for number in 0..each {
                fs::File::create(folder.join(number.to_string())).map_err(|error| error.to_string())?;
            }
        }
        let input = folder.join("many").display().to_string();
        let run = measure(&mut contest.thalweg("check.yaml", &[("INPUT", input)]))?;
        println!(
            "  {:>9} files {:>8.2} s, {:.2} µs each, peak {} MiB",
            folders * each,
            run.wall.as_secs_f64(),
            run.wall.as_secs_f64() * 1e6 / (folders * each) as f64,
            run.peak_rss >> 20
        );
        fs::remove_dir_all(folder.join("many")).map_err(|error| error.to_string())?;
    }
    println!();
    Ok(())
}

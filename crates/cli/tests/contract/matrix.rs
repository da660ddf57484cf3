//! Every source into every sink, interrupted and restarted.

use std::path::Path;
use std::time::{Duration, Instant};

use thalweg_testkit::disk::SmallDisk;
use thalweg_testkit::matrix::{self, Matrix, Pair, Totals};
use thalweg_testkit::suite::Report;

use crate::holes::KNOWN_HOLES;
use crate::{PROGRAM, tables};

/// The seed of `make test`. Another one is tested by `make soak`.
const SEED: u64 = 18;

/// The pairs, or those whose names contain the value of `CASE`: to repeat a failure.
fn pairs() -> Vec<Pair> {
    let wanted = std::env::var("CASE").unwrap_or_default();
    matrix::pairs().into_iter().filter(|pair| pair.name().contains(&wanted)).collect()
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn every_source_into_every_sink() {
    let seed = number("SEED").unwrap_or(SEED);
    let matrix = Matrix {
        binary: Path::new(PROGRAM),
        seed,
        records: 1000,
        rate: Some(5000),
        memory: "300KiB",
        is_soak: false,
    };
    let totals = matrix.run(&pairs(), &|_, _| {});
    println!("seed {seed}\n{totals}");
    let mut report = Report::new("matrix", KNOWN_HOLES);
    for pair in pairs() {
        let name = pair.name();
        let broken = totals.broken.iter().find(|(broken, _)| *broken == name);
        report.note(&name, "three interruptions", broken.map(|(_, broken)| format!("{broken}; SEED={seed}")));
    }
    report.finish(&tables());
}

/// Runs the matrix again and again: at least ten million records through kills, full disks, failing servers
/// and jumps of the clock. `THALWEG_SOAK_SECONDS` says for how long, and `SEED` which seed is the first.
#[test]
#[ignore = "takes as long as it is asked to: `make soak`"]
fn soak() {
    let time = Duration::from_secs(number("THALWEG_SOAK_SECONDS").unwrap_or(600));
    let wanted = number("THALWEG_SOAK_RECORDS").unwrap_or(10_000_000);
    let mut seed = number("SEED").unwrap_or_else(|| u64::from(std::process::id()) << 20 | 1);
    if matrix::jumps().is_empty() {
        println!("libfaketime is not installed: clocks do not jump");
    }
    if !SmallDisk::is_possible() {
        println!("no file system can be mounted: disks get full only by `ulimit -f` and failpoints");
    }
    let (begun, mut totals) = (Instant::now(), Totals::default());
    while begun.elapsed() < time || totals.records < wanted {
        let matrix = Matrix {
            binary: Path::new(PROGRAM),
            seed,
            records: 60_000,
            rate: Some(60_000),
            memory: "4MiB",
            is_soak: true,
        };
        let pairs: Vec<Pair> = pairs().into_iter().chain(matrix::slow()).collect();
        println!("round with SEED={seed}");
        totals.join(matrix.run(&pairs, &|pair, verdict| {
            if let Some(broken) = &verdict.broken {
                println!("{}: {broken}; SEED={seed}", pair.name());
            }
        }));
        println!("{totals}");
        seed += 1;
    }
    let sum = &totals.sum.tally;
    assert!(sum.missing_count == 0 && sum.torn_count == 0, "records are missing or torn: see above");
    assert!(totals.broken.is_empty(), "{} pairs are broken: see above", totals.broken.len());
}

//! Runs every target for `THALWEG_FUZZ_SECONDS` (2), two at a time, each in a process of its own.
//!
//! `THALWEG_FUZZ_TARGET` names one target, and `THALWEG_FUZZ_SEED` repeats a run. An input that fails is
//! kept, and the message names the command that repeats it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use thalweg_fuzz::{Target, seeds, targets};

const PROGRAM: &str = env!("CARGO_BIN_EXE_thalweg-fuzz");
/// How long one input may take, in seconds, before its process is ended.
const PATIENCE: u64 = 60;

fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn number(name: &str, default: u64) -> u64 {
    setting(name).map_or(default, |value| value.parse().expect("a number"))
}

#[test]
fn no_target_breaks_a_promise() {
    let only = setting("THALWEG_FUZZ_TARGET");
    let chosen = targets::ALL.iter().filter(|target| only.as_deref().is_none_or(|name| name == target.name));
    let (waiting, failures) = (Mutex::new(chosen), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().unwrap().next();
                    let Some(target) = next else { break };
                    match run(target) {
                        Ok(said) => print!("{said}"),
                        Err(failure) => failures.lock().unwrap().push(failure),
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Runs a target and returns what it printed.
fn run(target: &Target) -> Result<String, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz");
    fs::create_dir_all(&folder).expect("a folder");
    let current = folder.join(format!("{}.current", target.name));
    let (seconds, seed) = (number("THALWEG_FUZZ_SECONDS", 2), number("THALWEG_FUZZ_SEED", 1));
    let child = Command::new(PROGRAM)
        .args(["run", target.name, &seconds.to_string(), &seed.to_string()])
        .arg(&current)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let output = finished(child, &current);
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let kept: PathBuf = folder.join(format!("{}.failed", target.name));
    fs::rename(&current, &kept).expect("the input is kept");
    Err(format!(
        "{}: {}\n{}repeat it with\n    cargo run --release -p thalweg-fuzz -- repeat {} {}\n",
        target.name,
        output.status,
        String::from_utf8_lossy(&output.stderr),
        target.name,
        kept.display()
    ))
}

/// Waits for a child, and ends it if one input takes too long.
fn finished(mut child: Child, current: &Path) -> Output {
    let (mut last, mut since) = (None, Instant::now());
    while child.try_wait().expect("a child").is_none() {
        std::thread::sleep(Duration::from_millis(50));
        let modified = fs::metadata(current).and_then(|metadata| metadata.modified()).ok();
        if modified != last {
            (last, since) = (modified, Instant::now());
        } else if since.elapsed() > Duration::from_secs(PATIENCE) {
            child.kill().expect("the child ends");
        }
    }
    child.wait_with_output().expect("its output")
}

#[test]
fn every_target_has_seeds_and_no_folder_of_seeds_is_without_a_target() {
    for target in targets::ALL {
        let seeds = seeds::read(target.name).unwrap_or_default();
        assert!(
            !seeds.is_empty(),
            "`crates/fuzz/seeds/{}` is empty: give it inputs of the format",
            target.name
        );
        for (name, seed) in seeds {
            assert!(
                seed.len() <= target.longest,
                "`{}/{name}` is longer than the target allows",
                target.name
            );
        }
    }
    let known: BTreeSet<&str> = targets::ALL.iter().map(|target| target.name).collect();
    for folder in fs::read_dir(seeds::folder("")).unwrap() {
        let name = folder.unwrap().file_name();
        assert!(known.contains(name.to_str().unwrap()), "{name:?} has seeds and no target");
    }
}

#[test]
fn every_component_that_parses_has_a_target() {
    let covered: BTreeSet<&str> = targets::ALL.iter().flat_map(|target| target.components).copied().collect();
    let registry = thalweg_components::registry();
    let parses = |name: &&str| {
        ["parse_", "split", "decode_", "decompress", "convert_", "strip_", "check_type"]
            .iter()
            .any(|begin| name.starts_with(begin))
    };
    let known: BTreeSet<&str> = registry.iter().map(|definition| definition.name).collect();
    let without: Vec<_> =
        known.iter().copied().filter(parses).filter(|name| !covered.contains(name)).collect();
    assert!(without.is_empty(), "no fuzz target covers {without:?}: add one to `crates/fuzz/src/targets`");
    let unknown: Vec<_> = covered.difference(&known).collect();
    assert!(unknown.is_empty(), "no components are called {unknown:?}");
}

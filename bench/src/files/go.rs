//! capyfile's own Go benchmark, run with the numbers of each of the seed's examples.
//!
//! The sizes and the number of files are constants in capyfile's source, and its timer also counts the
//! creation of the files. Go's option `-overlay` replaces the source file during the build, so that the
//! folder of capyfile stays as it is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The variable with the folder of capyfile's source.
pub const SOURCE: &str = "CAPYFILE_SOURCE";

/// The file with the benchmarks.
const FILE: &str = "capysvc/service_definition_test.go";

/// The repetitions of a benchmark, and the time of each.
const REPETITIONS: [&str; 4] = ["-count", "5", "-benchtime", "200ms"];

/// The cost of one operation: all files of an example pass all checks once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// The time in nanoseconds.
    pub nanoseconds: f64,
    /// The allocated bytes.
    pub bytes: f64,
    /// The number of allocations.
    pub allocations: f64,
}

impl Cost {
    /// Returns the figures of a line.
    pub fn figures(self) -> [Option<f64>; 3] {
        [Some(self.nanoseconds), Some(self.bytes), Some(self.allocations)]
    }

    /// Returns the median of each figure.
    pub fn median(costs: &[Self]) -> Option<Self> {
        let of = |figure: fn(&Self) -> f64| {
            let mut figures: Vec<f64> = costs.iter().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            figures.get(figures.len() / 2).copied()
        };
        Some(Self {
            nanoseconds: of(|cost| cost.nanoseconds)?,
            bytes: of(|cost| cost.bytes)?,
            allocations: of(|cost| cost.allocations)?,
        })
    }
}

/// Returns the folder of capyfile's source, if it is known and Go is there.
pub fn source() -> Option<PathBuf> {
    let folder = std::env::var_os(SOURCE).map(PathBuf::from)?;
    let has_go = Command::new("go").arg("version").output().is_ok_and(|output| output.status.success());
    (has_go && folder.join(FILE).is_file()).then_some(folder)
}

/// Runs the benchmark of a mode, `Event` or `Lock`, with `each` files of each of five sizes, which are
/// multiples of `kib` KiB. `scratch` is a folder for its source.
///
/// # Errors
/// If the benchmark cannot be run, or its source is not that of version 1.2.5.
pub fn run(source: &Path, scratch: &Path, mode: &str, each: usize, kib: usize) -> Result<Cost, String> {
    let overlay = overlay(source, scratch, each, kib)?;
    let output = Command::new("go")
        .current_dir(source)
        .args(["test", "-overlay"])
        .arg(overlay)
        .args(["-run", "^$", "-benchmem", "-bench", &format!("{mode}Mode$")])
        .args(REPETITIONS)
        .arg("./capysvc")
        .output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let costs: Vec<Cost> = text.lines().filter_map(cost).collect();
    Cost::median(&costs).ok_or_else(|| {
        let said = String::from_utf8_lossy(&output.stderr);
        format!("capyfile's benchmark printed no result: {text}{said}")
    })
}

/// Writes the source of the benchmark with other numbers, and the file that `-overlay` takes.
fn overlay(source: &Path, scratch: &Path, each: usize, kib: usize) -> Result<PathBuf, String> {
    let original = fs::canonicalize(source.join(FILE)).map_err(|error| error.to_string())?;
    let text = fs::read_to_string(&original).map_err(|error| error.to_string())?;
    let sizes: Vec<String> = [1, 3, 5, 7, 10].iter().map(|factor| (factor * kib).to_string()).collect();
    let mut changed = text;
    for (from, to) in [
        ("sizes := []int{1, 3, 5, 7, 10}", format!("sizes := []int{{{}}}", sizes.join(", "))),
        ("filesPerSize := 100", format!("filesPerSize := {each}")),
        // The creation of the files does not count.
        ("for i := 0; i < b.N; i++ {", "b.ResetTimer()\n\tfor i := 0; i < b.N; i++ {".to_owned()),
    ] {
        if !changed.contains(from) {
            return Err(format!("`{}` has no `{from}`: it is not capyfile 1.2.5", original.display()));
        }
        changed = changed.replace(from, &to);
    }
    fs::create_dir_all(scratch).map_err(|error| error.to_string())?;
    let (edited, overlay) = (scratch.join("edited_test.go"), scratch.join("overlay.json"));
    fs::write(&edited, changed).map_err(|error| error.to_string())?;
    let map =
        serde_json::json!({ "Replace": { original.display().to_string(): edited.display().to_string() } });
    fs::write(&overlay, map.to_string()).map_err(|error| error.to_string())?;
    Ok(overlay)
}

/// Reads a line of a result: the name, the number of operations, and three figures with their units.
fn cost(line: &str) -> Option<Cost> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, _, nanoseconds, "ns/op", bytes, "B/op", allocations, "allocs/op"] = words[..] else {
        return None;
    };
    let number = |text: &str| text.parse().ok();
    let cost = || {
        Some(Cost {
            nanoseconds: number(nanoseconds)?,
            bytes: number(bytes)?,
            allocations: number(allocations)?,
        })
    };
    name.starts_with("Benchmark").then(cost).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_go_are_read() {
        let line = "BenchmarkService_RunProcessorConcurrentlyInLockMode-2 \t 618\t 1886870 ns/op\t 2577517 B/op\t 36778 allocs/op";
        let expected = Cost { nanoseconds: 1_886_870.0, bytes: 2_577_517.0, allocations: 36_778.0 };
        assert_eq!(cost(line), Some(expected));
        assert_eq!(cost("ok  \tcapyfile/capysvc\t2.1s"), None);
        let other = Cost { nanoseconds: 1.0, bytes: 9e9, allocations: 1.0 };
        assert_eq!(Cost::median(&[expected, other, expected]), Some(expected));
        assert_eq!(Cost::median(&[]), None);
    }
}

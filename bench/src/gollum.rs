//! gollum's own history of performance: four workloads in three versions, with its configurations as
//! published. thalweg runs each of them, and so does gollum of that version, if its program is named. Benthos
//! runs those that it has a configuration for.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::contest::{Contender, Contest};
use crate::measure::Run;
use crate::report::per_second;
use crate::table::Table;

/// A version of gollum.
struct Version {
    name: &'static str,
    /// The variable with the path of its program.
    program: &'static str,
}

const VERSIONS: [Version; 3] = [
    Version { name: "0.6", program: "GOLLUM_06" },
    Version { name: "0.5", program: "GOLLUM_05" },
    Version { name: "0.4", program: "GOLLUM_04" },
];

/// A workload of the history.
struct Workload {
    title: &'static str,
    /// The files in `gollum`, for the versions above.
    files: [&'static str; 3],
    /// The number of messages that it creates.
    messages: u64,
    /// The configuration of Benthos for the same work, and the divisor for its number of messages. With fewer
    /// messages Benthos takes about as long.
    benthos: Option<(&'static str, u64)>,
}

const PLAIN: u64 = 10_000_000;

const WORKLOADS: [Workload; 4] = [
    Workload {
        title: "raw pipeline",
        files: ["v050-raw.conf", "v050-raw.conf", "v046-raw.conf"],
        messages: PLAIN,
        benthos: Some(("generate.yaml", 10)),
    },
    Workload {
        title: "basic formatting",
        files: ["v050-format.conf", "v050-format.conf", "v046-format.conf"],
        messages: PLAIN,
        benthos: None,
    },
    Workload {
        title: "8 consumers",
        files: ["v050-multi.conf", "v050-multi.conf", "v046-multi.conf"],
        messages: 8 * PLAIN,
        benthos: None,
    },
    // The published configurations of 0.4 swap the messages of this workload and the first.
    Workload {
        title: "JSON pipeline",
        files: ["v060-json.conf", "v050-json.conf", "v046-json.conf"],
        messages: 1_000_000,
        benthos: Some(("gollum-json.yaml", 10)),
    },
];

const COLUMNS: [&str; 7] =
    ["user, s", "system, s", "CPU, %", "messages/s", "messages per CPU-second", "times the peer", "peak MiB"];

/// Measures and prints all rows.
///
/// # Errors
/// Returns an error if a program fails.
pub fn run(contest: &Contest) -> Result<(), String> {
    let title = format!(
        "gollum's history: its configurations unchanged, medians of {} runs in turn, start and stop included",
        contest.rounds
    );
    let mut table = Table::new("gollum", "history", title, "test", &COLUMNS);
    for workload in &WORKLOADS {
        for (version, file) in VERSIONS.iter().zip(workload.files) {
            compare(contest, &mut table, workload, version, file)?;
        }
    }
    table.plot("messages/s");
    table.plot("messages per CPU-second");
    for version in VERSIONS.iter().filter(|version| program(version).is_none()) {
        let Version { name, program } = version;
        table.note(format!(
            "gollum {name} was not measured: set `{program}` to its program (no registry has it)."
        ));
    }
    table.note(
        "8 consumers: in gollum the first consumer to end stops the others, so it sends up to 5 % fewer messages than are counted here.",
    );
    table.finish()
}

/// Returns the program of a version. `GOLLUM` is another name of the newest.
fn program(version: &Version) -> Option<PathBuf> {
    let named = std::env::var_os(version.program);
    let named = named.or_else(|| std::env::var_os("GOLLUM").filter(|_| version.name == VERSIONS[0].name));
    named.map(PathBuf::from).filter(|path| path.exists())
}

fn gollum(program: &Path, file: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("-c").arg(file).arg("-ll").arg("1");
    command
}

fn compare(
    contest: &Contest,
    table: &mut Table,
    workload: &Workload,
    version: &Version,
    file: &str,
) -> Result<(), String> {
    let file = &contest.gollum(file)?;
    let program = program(version);
    let ours = || {
        let mut command = contest.thalweg_with(file);
        command.arg("--gollum").arg(version.name);
        command
    };
    let mut contenders = vec![Contender::new("thalweg", ours)];
    let mut messages = vec![workload.messages];
    if let Some(program) = &program {
        contenders.push(Contender::new("gollum", move || gollum(program, file)));
        messages.push(workload.messages);
    }
    // Benthos has no versions here, so it stands beside the newest.
    let benthos = workload.benthos.filter(|_| version.name == VERSIONS[0].name);
    if let Some((case, fewer)) = benthos {
        let count = workload.messages / fewer;
        if let Some(peer) = contest.benthos(case, vec![("COUNT", count.to_string())]) {
            contenders.push(peer);
            messages.push(count);
        }
    }
    let runs = contest.compare(&contenders)?;
    let case = format!("{}, {}", workload.title, version.name);
    let ours = per_second(workload.messages, &runs[0]);
    for ((contender, run), &messages) in contenders.iter().zip(&runs).zip(&messages) {
        let is_peer = contender.name != "thalweg";
        table.row(&case, contender.name, &figures(run, messages, is_peer.then_some(ours)));
    }
    Ok(())
}

/// Returns the figures of a run, in the order of the columns. `ours` is thalweg's rate, for the ratio.
fn figures(run: &Run, messages: u64, ours: Option<f64>) -> [Option<f64>; 7] {
    let (cpu, user, wall) = (run.cpu.as_secs_f64(), run.user.as_secs_f64(), run.wall.as_secs_f64());
    let rate = per_second(messages, run);
    [
        Some(user),
        Some(cpu - user),
        Some(100.0 * cpu / wall),
        Some(rate),
        Some(messages as f64 / cpu),
        ours.map(|ours| ours / rate),
        Some((run.peak_rss >> 20) as f64),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn figures_are_those_of_the_history() {
        let run = Run {
            wall: Duration::from_secs(2),
            cpu: Duration::from_secs(3),
            user: Duration::from_millis(2_500),
            peak_rss: 20 << 20,
        };
        let expected = [2.5, 0.5, 150.0, 500.0, 1000.0 / 3.0].map(Some);
        let given = figures(&run, 1000, Some(5000.0));
        assert_eq!(given[..5], expected);
        assert_eq!(given[5..], [Some(10.0), Some(20.0)]);
        assert_eq!(figures(&run, 1000, None)[5], None);
    }

    #[test]
    fn each_version_has_all_workloads() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("gollum");
        for file in WORKLOADS.iter().flat_map(|workload| workload.files) {
            assert!(folder.join(file).is_file(), "{file}");
        }
    }
}

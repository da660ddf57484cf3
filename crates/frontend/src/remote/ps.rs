//! `thalweg ps`: lists the runs whose state directories are found.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use thalweg_redact::foreign;

use super::client::{BETWEEN_RUNS, Client, Place, TIMEOUT};
use super::find;
use crate::exit::{CommandError, Exit};
use crate::format::{self, clock, count};
use crate::print;

/// Where to look for runs.
#[derive(Debug, Clone, Default)]
pub struct PsOptions {
    /// The folders. If empty: the current one, and the one of services.
    pub folders: Vec<PathBuf>,
    /// True if each run is printed as JSON.
    pub json: bool,
}

/// A run that answered.
struct Found {
    folder: PathBuf,
    about: Value,
    stats: Value,
}

/// Lists runs, a line each.
///
/// # Errors
/// If the output cannot be written. A run that does not answer is left out.
pub fn ps(options: &PsOptions) -> Result<Exit, CommandError> {
    let folders = if options.folders.is_empty() { find::usual() } else { options.folders.clone() };
    let found: Vec<Found> = find::running(&folders).into_iter().filter_map(asked).collect();
    if options.json {
        for Found { folder, about, stats } in found {
            let line = json!({ "folder": folder.to_string_lossy(), "about": about, "stats": stats });
            print::json(&format!("{line}\n"))?;
        }
    } else if found.is_empty() {
        print::show(&format!("no runs\n{BETWEEN_RUNS}\n"))?;
    } else {
        print::show(&table(&found))?;
    }
    Ok(Exit::Done)
}

fn asked(folder: PathBuf) -> Option<Found> {
    let client = Client { place: Place::Folder(folder.clone()), token: None };
    let value = |path| serde_json::from_str(&client.ask("GET", path, TIMEOUT).ok()?.body).ok();
    Some(Found { about: value("/api/v1")?, stats: value("/api/v1/stats")?, folder })
}

fn table(found: &[Found]) -> String {
    let head = ["PID", "UP", "STATE", "READ", "DEAD LETTERS", "CONFIGURATION", "FOLDER"].map(str::to_owned);
    format::table(&[head].into_iter().chain(found.iter().map(row)).collect::<Vec<_>>())
}

fn row(found: &Found) -> [String; 7] {
    let Found { folder, about, stats } = found;
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let components = stats["components"].as_array().map(Vec::as_slice).unwrap_or_default();
    let sources = components.iter().filter(|component| component["role"] == "source");
    let read: u64 = sources.map(|component| number(&component["rows_in"])).sum();
    let up = Duration::try_from_secs_f64(about["uptime_s"].as_f64().unwrap_or_default());
    [
        number(&about["pid"]).to_string(),
        clock(up.unwrap_or_default()),
        state(about).to_owned(),
        count(read),
        count(number(&stats["dead_letters"]["kept"])),
        foreign(about["configurations"][0].as_str().unwrap_or("–")).into_owned(),
        foreign(&folder.display().to_string()).into_owned(),
    ]
}

/// The state of a run, in one word.
pub(super) fn state(about: &Value) -> &'static str {
    match (about["stopping"] == true, about["started"] == true) {
        (true, _) => "stopping",
        (false, false) => "starting",
        (false, true) => "running",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let found = Found {
            folder: "state".into(),
            about: json!({
                "pid": 123, "uptime_s": 62.5, "started": true, "stopping": false,
                "configurations": ["orders.yaml"],
            }),
            stats: json!({
                "components": [{ "role": "source", "rows_in": 12_345 }, { "role": "sink", "rows_in": 1 }],
                "dead_letters": { "kept": 2 },
            }),
        };
        let shown = "\
PID  UP    STATE    READ    DEAD LETTERS  CONFIGURATION  FOLDER
123  1:02  running  12,345  2             orders.yaml    state
";
        assert_eq!(table(&[found]), shown);
    }
}

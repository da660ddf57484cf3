//! `thalweg runs list`.

use std::path::PathBuf;

use thalweg_job::RunRecord;

use super::{counted, history, started, took};
use crate::exit::{CommandError, Exit};
use crate::format;
use crate::print;

/// The runs to list.
#[derive(Debug, Clone, Default)]
pub struct RunListOptions {
    /// The state directory. Without it, the only one that is found.
    pub state: Option<PathBuf>,
    /// The most that are listed.
    pub limit: usize,
    /// True if each is printed as JSON.
    pub json: bool,
}

/// Lists runs, the latest first.
///
/// # Errors
/// If the history cannot be read, or the output cannot be written. A record that cannot be read is a warning.
pub fn list(options: &RunListOptions) -> Result<Exit, CommandError> {
    let mut rows = Vec::new();
    for record in history(options.state.as_deref())?.records()?.take(options.limit) {
        match record {
            Ok(record) if options.json => print::out(&format!("{}\n", record.brief()))?,
            Ok(record) => rows.push(row(&record)),
            Err(error) => print::err(&format!("warning: {}\n", error.full())),
        }
    }
    if !options.json {
        print::show(&table(rows))?;
    }
    Ok(Exit::Done)
}

fn table(rows: Vec<[String; 7]>) -> String {
    let head =
        ["ID", "STARTED (UTC)", "TOOK", "OUTCOME", "READ", "WRITTEN", "DEAD LETTERS"].map(str::to_owned);
    format::table(&[head].into_iter().chain(rows).collect::<Vec<_>>())
}

fn row(record: &RunRecord) -> [String; 7] {
    [
        record.id.to_string(),
        started(record),
        took(record),
        record.outcome.name().to_owned(),
        counted(record, record.read),
        counted(record, record.written),
        counted(record, record.dead_letters),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn a_run_is_a_row_and_what_is_not_known_is_a_dash() {
        let mut value = json!({
            "id": 17, "outcome": "done", "started": "2026-11-27T02:30:00.123Z", "ended": null,
            "elapsed_seconds": 62.5, "configuration": "c.yaml", "configuration_digest": "sha256:0",
            "version": "1", "item": "message", "read": 12_345, "bytes_read": 1, "written": 12_340,
            "bytes_written": 1, "dead_letters": 5, "dead_letters_dropped": 0, "error": null,
        });
        let done = row(&from_value(value.clone()).unwrap());
        value["outcome"] = "interrupted".into();
        value["elapsed_seconds"] = json!(null);
        let interrupted = row(&from_value(value).unwrap());
        let shown = "\
ID  STARTED (UTC)        TOOK       OUTCOME      READ    WRITTEN  DEAD LETTERS
17  2026-11-27 02:30:00  1 min 2 s  done         12,345  12,340   5
17  2026-11-27 02:30:00  –          interrupted  –       –        –
";
        assert_eq!(table(vec![done, interrupted]), shown);
    }
}

//! `thalweg runs show`.

use std::path::PathBuf;

use serde_json::json;
use thalweg_job::{ComponentRecord, RunRecord};
use thalweg_redact::foreign;

use super::{counted, history, started, took};
use crate::exit::{CommandError, Exit};
use crate::format::{self, bytes, count};
use crate::print;

/// The run to show.
#[derive(Debug, Clone, Default)]
pub struct RunShowOptions {
    /// Its number.
    pub id: u64,
    /// The state directory. Without it, the only one that is found.
    pub state: Option<PathBuf>,
    /// True if it is printed as JSON.
    pub json: bool,
}

/// Shows one run as a whole.
///
/// # Errors
/// If there is no such run, it cannot be read, or the output cannot be written.
pub fn show(options: &RunShowOptions) -> Result<Exit, CommandError> {
    let Some(record) = history(options.state.as_deref())?.record(options.id)? else {
        let reason = format!("there is no run {}; `thalweg runs list` shows which there are", options.id);
        return Err(CommandError::Usage(reason));
    };
    match options.json {
        true => print::out(&format!("{}\n", json!(record)))?,
        false => print::show(&text(&record))?,
    }
    Ok(Exit::Done)
}

fn text(record: &RunRecord) -> String {
    let counts = |number, size| {
        let plural = if number == 1 { "" } else { "s" };
        format!("{} {}{plural}, {}", counted(record, number), record.item, bytes(size))
    };
    let mut lines = vec![
        ("run", record.id.to_string()),
        ("configuration", record.configuration.clone()),
        ("digest", record.configuration_digest.clone()),
        ("version", record.version.clone()),
        ("outcome", record.outcome.name().to_owned()),
        ("started", format!("{} UTC", started(record))),
        ("took", took(record)),
        ("read", counts(record.read, record.bytes_read)),
        ("written", counts(record.written, record.bytes_written)),
        ("dead letters", counted(record, record.dead_letters)),
    ];
    if record.dead_letters_dropped > 0 {
        lines.push(("dropped", count(record.dead_letters_dropped)));
    }
    lines.extend(record.error.clone().map(|error| ("error", error)));
    let lines = lines.into_iter().map(|(name, value)| [name.to_owned(), foreign(&value).into_owned()]);
    let mut text = format::table(&lines.collect::<Vec<_>>());
    if !record.components.is_empty() {
        let head = ["COMPONENT", "KIND", "IN", "BYTES IN", "OUT", "BYTES OUT", "ERRORS"].map(str::to_owned);
        let rows = record.components.iter().map(row);
        text.push('\n');
        text += &format::table(&[head].into_iter().chain(rows).collect::<Vec<_>>());
    }
    text
}

fn row(component: &ComponentRecord) -> [String; 7] {
    let ComponentRecord { name, kind, rows_in, bytes_in, rows_out, bytes_out, errors, .. } = component;
    [
        foreign(name).into_owned(),
        foreign(kind).into_owned(),
        count(*rows_in),
        bytes(*bytes_in),
        count(*rows_out),
        bytes(*bytes_out),
        count(*errors),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;

    #[test]
    fn a_run_is_shown_with_its_components() {
        let component = json!({
            "name": "in", "kind": "file", "role": "source", "rows_in": 3, "bytes_in": 30, "rows_out": 3,
            "bytes_out": 30, "errors": 0,
        });
        let record = json!({
            "id": 17, "outcome": "failed", "started": "2026-11-27T02:30:00.123Z", "ended": null,
            "elapsed_seconds": 2.5, "configuration": "c.yaml", "configuration_digest": "sha256:0",
            "version": "1", "item": "message", "read": 3, "bytes_read": 30, "written": 1,
            "bytes_written": 20, "dead_letters": 1, "dead_letters_dropped": 0,
            "error": "`out` failed:\u{1b}[1m full", "components": [component],
        });
        let shown = "\
run            17
configuration  c.yaml
digest         sha256:0
version        1
outcome        failed
started        2026-11-27 02:30:00 UTC
took           2.50 s
read           3 messages, 30 B
written        1 message, 20 B
dead letters   1
error          `out` failed:\\u{1b}[1m full

COMPONENT  KIND  IN  BYTES IN  OUT  BYTES OUT  ERRORS
in         file  3   30 B      3    30 B       0
";
        assert_eq!(text(&from_value(record).unwrap()), shown);
    }
}

//! The summary of a run, for people.

use std::collections::BTreeSet;
use std::time::Duration;

use thalweg_engine::{ComponentCounts, Summary};
use thalweg_job::{Outcome, peak_memory, summary_input};
use thalweg_redact::foreign;

use crate::format::{bytes, bytes_of, count, counted, excerpt, headline, per_second, rate};
use crate::paint::Paint;

/// The parts of a summary beside the counters.
pub struct Ending {
    /// The command that shows the dead letters. `None` after a dry run, which keeps none.
    pub errors_command: Option<String>,
    /// True if it also says how the engine handed batches over.
    pub verbose: bool,
}

/// The summary as text.
pub fn text(outcome: &Outcome, ending: &Ending, paint: Paint) -> String {
    let summary = &outcome.summary;
    let mut text = table(&summary.components, summary.elapsed, paint);
    let mut line = |parts: &[String]| text.push_str(&format!("  {}\n", parts.join(" · ")));
    let (messages, size) = summary_input(summary);
    let each = |number| rate(number, summary.elapsed);
    line(&[
        headline(summary, paint),
        counted(messages, summary.item),
        bytes(size),
        per_second(each(messages)),
        format!("{}/s", bytes(each(size) as u64)),
    ]);
    let budget = bytes_of(summary.budget_peak as u64, summary.budget_limit as u64);
    let mut memory = vec![format!("at most {budget} in flight")];
    memory.extend(peak_memory().map(|peak| format!("{} for the whole process", bytes(peak))));
    line(&memory);
    let sum = |counter: fn(&ComponentCounts) -> u64| summary.components.iter().map(counter).sum::<u64>();
    let (at_once, queued) = (sum(|counts| counts.taken_at_once), sum(|counts| counts.queued));
    if ending.verbose && at_once + queued > 0 {
        line(&[
            format!("{} of batches", counted(at_once + queued, "hand-over")),
            format!("{} taken at once", count(at_once)),
            format!("{} queued", count(queued)),
        ]);
    }
    if outcome.retries.count > 0 {
        let times = counted(outcome.retries.count, "time");
        let last = foreign(outcome.retries.last.as_deref().unwrap_or_default());
        line(&[format!("retried {times}, the last: {last}")]);
    }
    for missing in missing_fields(&summary.components, paint) {
        line(&[missing]);
    }
    dropped(&summary.components, paint).into_iter().for_each(|text| line(&[text]));
    match &ending.errors_command {
        Some(command) => dead_letters(summary, command, paint).into_iter().for_each(|text| line(&[text])),
        None => line(&[paint.bold("a dry run: nothing was written, removed or acknowledged")]),
    }
    text
}

/// The lines about fields that no message had, as text, and how many messages the sink `shows` did not show
/// among those that could not be processed.
pub fn hints(outcome: &Outcome, shows: Option<&str>, paint: Paint) -> String {
    let components = &outcome.summary.components;
    let sink = components.iter().find(|counts| shows == Some(counts.name.as_str()));
    let rejected = outcome.rejected();
    let hidden = sink.map_or(0, |sink| rejected.saturating_sub(sink.rows_in));
    let rejected = paint.yellow(&format!("{} could not be processed", counted(rejected, "message")));
    let hidden = (hidden > 0).then(|| format!("{rejected}: {} are not shown", count(hidden)));
    missing_fields(components, paint).into_iter().chain(hidden).map(|line| line + "\n").collect()
}

/// The most lines about fields that no message had.
const MOST_HINTS: usize = 10;
/// The most characters of the name of a field.
const LONGEST_NAME: usize = 60;

/// The lines about fields that no message had.
pub(crate) fn missing_fields(components: &[ComponentCounts], paint: Paint) -> Vec<String> {
    let name_of = |name: &str| excerpt(&foreign(name), LONGEST_NAME);
    let mut named = BTreeSet::new();
    let of = |counts: &ComponentCounts| {
        // A later component that names it too has the same mistake.
        let first = counts.missing_fields.iter().filter(|field| named.insert(field.name.clone()));
        let found = first.map(|field| {
            let missing = paint.yellow(&format!("no message had a field `{}`", name_of(&field.name)));
            match &field.similar {
                Some(similar) => {
                    format!("{}: {missing}; did you mean `{}`?", counts.name, name_of(similar))
                }
                None if field.may_be_text => {
                    let name = name_of(&field.name);
                    format!("{}: {missing}; a text is written `\"'{name}'\"`", counts.name)
                }
                None => format!("{}: {missing}", counts.name),
            }
        });
        found.collect::<Vec<_>>()
    };
    let mut lines: Vec<String> = components.iter().flat_map(of).collect();
    if let more @ 1.. = lines.len().saturating_sub(MOST_HINTS) {
        lines.truncate(MOST_HINTS);
        lines.push(format!("and {} that no message had", counted(more as u64, "more field")));
    }
    lines
}

/// The lines about dead letters, if there are any.
fn dead_letters(summary: &Summary, errors_command: &str, paint: Paint) -> Vec<String> {
    let mut lines = Vec::new();
    if summary.dead_letters > 0 {
        let letters = match (summary.item, summary.reads_out_of_files, summary.dead_letters) {
            ("file", true, 1) => "1 file or message".to_owned(),
            ("file", true, letters) => format!("{} files or messages", count(letters)),
            (item, _, letters) => counted(letters, item),
        };
        let letters = paint.yellow(&format!("{letters} could not be processed"));
        lines.push(format!("{letters}: `{errors_command}` shows them"));
    }
    if summary.dead_letters_dropped > 0 {
        let dropped =
            paint.yellow(&format!("{} dropped", counted(summary.dead_letters_dropped, "dead letter")));
        lines.push(format!(
            "{dropped}, the oldest first: `dead_letters` in the configuration says how many are kept"
        ));
    }
    lines
}

/// A line for each full buffer that dropped messages.
fn dropped(components: &[ComponentCounts], paint: Paint) -> Vec<String> {
    let dropped = components.iter().filter_map(|counts| {
        let dropped = counted(*counts.details.get("buffer_dropped_total")?, "message");
        let dropped = paint.yellow(&format!("{dropped} dropped"));
        Some(format!("{}: {dropped}, because the buffer was full", counts.name))
    });
    dropped.collect()
}

/// A line for each component, in columns.
fn table(components: &[ComponentCounts], elapsed: Duration, paint: Paint) -> String {
    let heading = ["", "", "in", "out", "errors", "bytes in", "rate", "busy"].map(str::to_owned);
    let rows = components.iter().map(|counts| {
        // The name of a transform contains its kind, so the kind is omitted.
        let said = counts.name.rsplit('.').next().is_some_and(|last| last.starts_with(counts.kind));
        [
            counts.name.clone(),
            if said { String::new() } else { counts.kind.to_owned() },
            count(counts.rows_in),
            count(counts.rows_out),
            count(counts.errors),
            bytes(counts.bytes_in),
            per_second(rate(counts.rows_in, elapsed)),
            // A source's time includes its waits.
            if counts.role == "source" { String::new() } else { cores(counts.busy(), elapsed) },
        ]
    });
    aligned(&std::iter::once(heading).chain(rows).collect::<Vec<_>>(), paint)
}

/// How many cores were busy on average: `1.87 cores`.
fn cores(busy: Duration, elapsed: Duration) -> String {
    let share = busy.as_secs_f64() / elapsed.as_secs_f64();
    if share.is_finite() { format!("{share:.2} cores") } else { "–".to_owned() }
}

/// Aligns the columns of rows, the first of which is the heading. Names are to the left, and empty columns
/// are left out.
fn aligned(rows: &[[String; 8]], paint: Paint) -> String {
    let mut widths = [0; 8];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (at, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            if width == 0 {
                continue;
            }
            let cell_text = if at < 2 { format!("{cell:width$}") } else { format!("{cell:>width$}") };
            let cell_text = match at {
                _ if number == 0 => paint.dim(&cell_text),
                0 => paint.cyan(&cell_text),
                1 => paint.dim(&cell_text),
                4 if cell != "0" => paint.yellow(&cell_text),
                _ => cell_text,
            };
            text.push_str("  ");
            text.push_str(&cell_text);
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

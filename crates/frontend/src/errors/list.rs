//! `thalweg errors list`.

use std::collections::BTreeMap;

use crate::exit::{CommandError, Exit};
use crate::format::{bytes, count, counted, excerpt, moment, paragraphs};
use crate::paint::Paint;
use crate::print;
use thalweg_engine::{DeadLetter, DeadLetterId};
use thalweg_redact::{for_terminal, foreign};

use super::lines::Lines;
use super::{Filter, Shown, StateLocation, json_of, nothing_in};

/// The dead letters to list.
#[derive(Debug, Clone, Default)]
pub struct ListOptions {
    /// Where they are.
    pub location: StateLocation,
    /// Which of them.
    pub filter: Filter,
    /// The most that are listed.
    pub limit: u64,
    /// True if each is printed as JSON.
    pub json: bool,
}

/// Lists dead letters, oldest first.
///
/// # Errors
/// If the state directory or the configuration cannot be read, or the output cannot be written.
pub fn list(options: &ListOptions) -> Result<Exit, CommandError> {
    let state_dir = options.location.state_dir()?;
    let folder = &state_dir.folder;
    let shown = Shown::find(&state_dir)?;
    let paint = Paint::stdout();
    let width = print::width().clamp(40, 160);
    let mut by_component: BTreeMap<String, u64> = BTreeMap::new();
    let mut all = 0;
    let mut lines = Lines::default();
    for found in shown.iter().flat_map(Shown::letters) {
        let (id, letter) = found?;
        if !options.filter.takes(&letter) {
            continue;
        }
        *by_component.entry(letter.component.clone()).or_default() += 1;
        all += 1;
        if all <= options.limit {
            match options.json {
                true => print::json(&json_of(id, &letter)?)?,
                false => print::show(&brief(id, &letter, &lines.place_of(&letter), width, paint))?,
            }
        }
    }
    if options.json {
        return Ok(Exit::Done);
    }
    let dropped = match &shown {
        Some(shown) => shown.dropped()?,
        None => 0,
    };
    let dropped = dropped_of(dropped);
    if all == 0 {
        print::show(&format!("{}{dropped}", nothing_in(folder, &options.filter)))?;
        return Ok(Exit::Done);
    }
    let parts = by_component.iter().map(|(component, number)| format!("{} of `{component}`", count(*number)));
    let parts: Vec<String> = parts.collect();
    let of_what = if parts.len() > 1 { format!(": {}", parts.join(", ")) } else { String::new() };
    print::show(&format!("{}{of_what}\n", counted(all, "dead letter")))?;
    if all > options.limit {
        print::out(&format!("the first {} are shown; `--limit` shows more\n", count(options.limit)))?;
    }
    print::out(&dropped)?;
    Ok(Exit::Done)
}

/// A line with the number of dropped dead letters, if there are any.
fn dropped_of(dropped: u64) -> String {
    match dropped {
        0 => String::new(),
        _ => format!("{} older ones were dropped: there were too many\n", count(dropped)),
    }
}

fn payload_of(letter: &DeadLetter) -> String {
    String::from_utf8_lossy(&letter.payload_bytes()).into_owned()
}

fn brief(id: DeadLetterId, letter: &DeadLetter, place: &str, width: usize, paint: Paint) -> String {
    const INDENT: usize = 6;
    let reason = paragraphs(&for_terminal(&letter.reason, false), width, INDENT);
    let payload = excerpt(&payload_of(letter), width - INDENT - 1);
    let payload = match &letter.file {
        Some(file) => format!("file {} of {}", foreign(&file.name), bytes(file.size)),
        None if payload.is_empty() => "(empty)".to_owned(),
        None => payload,
    };
    format!(
        "{}  {}  {}  {}\n{reason}{:INDENT$}{}\n",
        paint.bold(&format!("{id:>4}")),
        moment(letter.time_us),
        paint.cyan(&letter.component),
        foreign(place),
        "",
        paint.dim(&payload),
    )
}

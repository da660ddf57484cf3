//! `thalweg errors replay`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use thalweg_engine::replay::replay;
use thalweg_engine::{DeadLetter, DeadLetterId, StateDir};

use super::{Filter, nothing_in, open};
use crate::commands::cores;
use crate::drive::{RunOptions, drive};
use crate::exit::{CliError, Exit};
use crate::format::{count, counted};
use crate::load::{Configuration, state_folder};
use crate::paint::Paint;
use crate::print;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The configuration to process them with.
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// The state folder, if the run was given one.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    #[command(flatten)]
    filter: Filter,
    /// At most so many, the oldest first.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print what became of them as JSON.
    #[arg(long)]
    json: bool,
}

/// What became of letters that were processed again.
#[derive(Default)]
struct ReplayOutcome {
    delivered: u64,
    rejected: u64,
    unsettled: u64,
    left: Vec<(DeadLetterId, String)>,
    failure: Option<String>,
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, CliError> {
    let configuration = Configuration { path: &arguments.config };
    let graph = configuration.graph(&thalweg_components::registry())?;
    let (folder, positions) =
        state_folder(&configuration.folder(), graph.state.as_deref(), arguments.state.as_deref());
    let manner =
        RunOptions { cores: cores(), json: false, quiet: arguments.json, continues: true, listen: None };
    let mut fate = ReplayOutcome::default();
    // Those that are rejected again get higher numbers, and are not for this time.
    let mut after = 0;
    let mut left_over = arguments.limit.unwrap_or(u64::MAX);
    let Some(last) = last_letter(&folder)? else {
        print::err(&nothing_in(&folder, &arguments.filter));
        return Ok(Exit::Done);
    };
    while fate.failure.is_none() && left_over > 0 {
        // As much at a time as may be in memory twice: here, and in the run.
        let portion =
            portion(&folder, (after, last), &arguments.filter, left_over, graph.memory.bytes() / 4)?;
        let Some((id, _)) = portion.last() else { break };
        after = *id;
        left_over -= portion.len() as u64;
        let plan = replay(&graph, portion);
        fate.left.extend(plan.left);
        for run in plan.runs {
            if fate.failure.is_some() {
                fate.unsettled += run.len() as u64;
                continue;
            }
            if let Some(store) = open(&folder)? {
                run.forget(&store)?;
            }
            let state_dir = StateDir { folder: folder.clone(), positions };
            let outcome = drive(&run.graph, state_dir, manner, None)?;
            let safe = run.safe(&outcome.summary);
            if let Some(store) = open(&folder)? {
                store.remove_letters(&safe)?;
                run.forget(&store)?;
            }
            let rejected = outcome.summary.dead_letters.min(safe.len() as u64);
            fate.rejected += rejected;
            fate.delivered += safe.len() as u64 - rejected;
            fate.unsettled += (run.len() - safe.len()) as u64;
            let stopped = outcome.summary.stopped.then(|| "it was told to stop".to_owned());
            fate.failure = outcome.summary.failure.map(|failure| failure.to_string()).or(stopped);
        }
    }
    tell(&fate, &folder, arguments);
    match fate.failure {
        Some(failure) => Err(CliError::Failed(failure)),
        None => Ok(Exit::Done),
    }
}

fn last_letter(folder: &Path) -> Result<Option<DeadLetterId>, CliError> {
    Ok(match open(folder)? {
        Some(store) => store.last_letter(),
        None => None,
    })
}

type Letters = Vec<(DeadLetterId, DeadLetter)>;

/// The next letters, as many as `most` and as large as `bytes` allow.
fn portion(
    folder: &Path,
    (after, last): (DeadLetterId, DeadLetterId),
    filter: &Filter,
    most: u64,
    bytes: u64,
) -> Result<Letters, CliError> {
    let mut letters = Vec::new();
    let mut size = 0;
    let store = open(folder)?;
    for found in store.iter().flat_map(|store| store.letters_after(after)) {
        let (id, letter) = found?;
        if id > last || size > bytes || letters.len() as u64 >= most {
            break;
        }
        if filter.takes(&letter) {
            size += letter.size() as u64;
            letters.push((id, letter));
        }
    }
    Ok(letters)
}

fn tell(fate: &ReplayOutcome, folder: &Path, arguments: &Arguments) {
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for (_, reason) in &fate.left {
        *reasons.entry(reason).or_default() += 1;
    }
    if arguments.json {
        let left: Vec<_> =
            fate.left.iter().map(|(id, reason)| json!({ "id": id, "reason": reason })).collect();
        let line = json!({
            "event": "replayed",
            "processed": fate.delivered,
            "rejected_again": fate.rejected,
            "unsettled": fate.unsettled,
            "left": left,
        });
        print::err(&format!("{line}\n"));
        return;
    }
    let paint = Paint::stderr();
    let all = fate.delivered + fate.rejected + fate.unsettled + fate.left.len() as u64;
    if all == 0 {
        print::err(&nothing_in(folder, &arguments.filter));
        return;
    }
    print::err(&format!("{}: {} processed\n", counted(all, "dead letter"), count(fate.delivered)));
    if fate.rejected > 0 {
        let again = paint.yellow(&format!("{} rejected again", count(fate.rejected)));
        print::err(&format!("  {again}, and kept as new dead letters\n"));
    }
    if fate.unsettled > 0 {
        print::err(&format!("  {} not processed, and kept\n", paint.yellow(&count(fate.unsettled))));
    }
    for (reason, number) in reasons {
        print::err(&format!("  {} cannot be processed again: {reason}\n", paint.yellow(&count(number))));
    }
}

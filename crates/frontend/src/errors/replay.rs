//! `thalweg errors replay`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::exit::{CommandError, Exit};
use crate::format::{count, counted};
use crate::paint::Paint;
use crate::print;
use crate::screen::{Screen, Show};
use serde_json::json;
use thalweg_engine::replay::{ReplayRun, replay as plan_of};
use thalweg_engine::{DeadLetter, DeadLetterId, StateDir};
use thalweg_job::{Configuration, Outcome, Overrides, Phase, RunOptions, Signals, run_graph};

use super::{Filter, nothing_in, open};

/// The dead letters to replay.
#[derive(Debug, Clone, Default)]
pub struct ReplayOptions {
    /// The configuration to replay them with.
    pub config: PathBuf,
    /// The state folder, if the run was given one.
    pub state: Option<PathBuf>,
    /// Which of them.
    pub filter: Filter,
    /// The most that are replayed, the oldest first; all if `None`.
    pub limit: Option<u64>,
    /// True if the outcome is printed as JSON.
    pub json: bool,
}

/// The outcomes of replayed dead letters.
#[derive(Default)]
struct ReplayOutcome {
    delivered: u64,
    rejected: u64,
    unsettled: u64,
    /// Those whose messages the next run processes again.
    again: u64,
    left: Vec<(DeadLetterId, String)>,
    failure: Option<String>,
}

/// Replays dead letters in the pipelines that rejected them.
///
/// # Errors
/// If the state directory or the configuration cannot be read, or the output cannot be written.
pub fn replay(options: &ReplayOptions) -> Result<Exit, CommandError> {
    let overrides = Overrides { state: options.state.clone(), ..Overrides::default() };
    let configuration = Configuration::open(&options.config)?;
    let of_service =
        || CommandError::Usage("dead letters of a service cannot be replayed: run it again".to_owned());
    if configuration.service()?.is_some() {
        return Err(of_service());
    }
    let job = configuration.job(&thalweg_job::registry(), &overrides)?;
    // Only services have several phases.
    let [phase] = &job.phases[..] else { return Err(of_service()) };
    let mut outcome = ReplayOutcome::default();
    if let Some(last) = last_letter(&phase.state_dir)? {
        replay_all(options, phase, last, &mut outcome)?;
    }
    tell(&outcome, &phase.state_dir.folder, options);
    match outcome.failure {
        Some(failure) => Err(CommandError::Failed(failure)),
        None => Ok(Exit::Done),
    }
}

/// Replays the dead letters up to `last`. Those that are rejected again get higher numbers, so they are not
/// replayed twice.
fn replay_all(
    options: &ReplayOptions,
    phase: &Phase,
    last: DeadLetterId,
    outcome: &mut ReplayOutcome,
) -> Result<(), CommandError> {
    // One value for all runs, so that a signal between two of them counts.
    let signals = Some(Signals::new()?);
    let run_options = RunOptions { signals, ..RunOptions::default() };
    // The run was killed, or stopped before all was delivered: its messages come again, and a letter that is
    // processed here as well would be delivered twice.
    let again: BTreeSet<DeadLetterId> = match open(&phase.state_dir)? {
        Some(store) => store.uncovered_letters()?.into_iter().collect(),
        None => BTreeSet::new(),
    };
    outcome.again = again.len() as u64;
    let mut after = 0;
    let mut left_over = options.limit.unwrap_or(u64::MAX);
    while outcome.failure.is_none() && left_over > 0 {
        // A portion is in memory twice: here and in the run.
        let bytes = phase.graph.memory.bytes() / 4;
        let portion = portion(&phase.state_dir, (after, last), (&options.filter, &again), left_over, bytes)?;
        let Some((id, _)) = portion.last() else { break };
        after = *id;
        left_over -= portion.len() as u64;
        let plan = plan_of(&phase.graph, portion);
        outcome.left.extend(plan.left);
        for run in plan.runs {
            replay_one(options, run_options.clone(), &phase.state_dir, &run, outcome)?;
        }
    }
    Ok(())
}

/// Replays the dead letters of one pipeline, unless an earlier run failed.
fn replay_one(
    options: &ReplayOptions,
    run_options: RunOptions,
    state_dir: &StateDir,
    replayed: &ReplayRun,
    outcome: &mut ReplayOutcome,
) -> Result<(), CommandError> {
    if outcome.failure.is_some() {
        outcome.unsettled += replayed.len() as u64;
        return Ok(());
    }
    if let Some(store) = open(state_dir)? {
        replayed.forget(&store)?;
    }
    let run_options = RunOptions { replayed: Some(replayed.replayed.clone()), ..run_options };
    let mut screen = Screen::new(Show { quiet: options.json, ..Show::default() });
    let Outcome { summary, .. } =
        run_graph(replayed.graph.clone(), state_dir.clone(), run_options, &mut screen)?;
    let settled = replayed.safe(&summary);
    if let Some(store) = open(state_dir)? {
        store.remove_letters(&settled)?;
        replayed.forget(&store)?;
    }
    let rejected = summary.dead_letters.min(settled.len() as u64);
    outcome.rejected += rejected;
    outcome.delivered += settled.len() as u64 - rejected;
    outcome.unsettled += (replayed.len() - settled.len()) as u64;
    let stopped = summary.stopped.then(|| "it was stopped".to_owned());
    outcome.failure = summary.failure.map(|failure| failure.to_string()).or(stopped);
    Ok(())
}

fn last_letter(state_dir: &StateDir) -> Result<Option<DeadLetterId>, CommandError> {
    Ok(match open(state_dir)? {
        Some(store) => store.last_letter(),
        None => None,
    })
}

type DeadLetters = Vec<(DeadLetterId, DeadLetter)>;

/// The next dead letters, without those that come again: at most `most`, and about `bytes` in size.
fn portion(
    state_dir: &StateDir,
    (after, last): (DeadLetterId, DeadLetterId),
    (filter, again): (&Filter, &BTreeSet<DeadLetterId>),
    most: u64,
    bytes: u64,
) -> Result<DeadLetters, CommandError> {
    let mut letters = Vec::new();
    let mut size = 0;
    let store = open(state_dir)?;
    for found in store.iter().flat_map(|store| store.letters_after(after)) {
        let (id, letter) = found?;
        if id > last || size > bytes || letters.len() as u64 >= most {
            break;
        }
        if filter.takes(&letter) && !again.contains(&id) {
            size += letter.size() as u64;
            letters.push((id, letter));
        }
    }
    Ok(letters)
}

fn tell(outcome: &ReplayOutcome, folder: &Path, options: &ReplayOptions) {
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for (_, reason) in &outcome.left {
        *reasons.entry(reason).or_default() += 1;
    }
    if options.json {
        let left: Vec<_> =
            outcome.left.iter().map(|(id, reason)| json!({ "id": id, "reason": reason })).collect();
        let line = json!({
            "event": "replayed",
            "processed": outcome.delivered,
            "rejected_again": outcome.rejected,
            "unsettled": outcome.unsettled,
            "again": outcome.again,
            "left": left,
        });
        print::err_json(&format!("{line}\n"));
        return;
    }
    let paint = Paint::stderr();
    let all = outcome.delivered + outcome.rejected + outcome.unsettled + outcome.left.len() as u64;
    let coming = match outcome.again {
        0 => String::new(),
        again => format!(
            "  {} left to the next run, which reads their messages again\n",
            paint.yellow(&count(again))
        ),
    };
    if all == 0 {
        let nothing = nothing_in(folder, &options.filter);
        print::err(if coming.is_empty() { &nothing } else { &coming });
        return;
    }
    print::err(&format!("{}: {} processed\n", counted(all, "dead letter"), count(outcome.delivered)));
    if outcome.rejected > 0 {
        let again = paint.yellow(&format!("{} rejected again", count(outcome.rejected)));
        print::err(&format!("  {again}, and kept as new dead letters\n"));
    }
    if outcome.unsettled > 0 {
        print::err(&format!("  {} not processed, and kept\n", paint.yellow(&count(outcome.unsettled))));
    }
    for (reason, number) in reasons {
        print::err(&format!("  {} cannot be processed again: {reason}\n", paint.yellow(&count(number))));
    }
    print::err(&coming);
}

//! `thalweg buffer replay`.

use std::path::PathBuf;

use serde_json::json;
use thalweg_job::{Configuration, Outcome, Overrides, RunOptions, Signals, run_graph};

use crate::exit::{CommandError, Exit};
use crate::format::counted;
use crate::print;
use crate::screen::{Screen, Show};

/// The buffers to deliver.
#[derive(Debug, Clone, Default)]
pub struct ReplayOptions {
    /// The configuration that they belong to.
    pub config: PathBuf,
    /// The state folder, if the run was given one.
    pub state: Option<PathBuf>,
    /// True if the outcome is printed as JSON.
    pub json: bool,
}

/// Delivers what is in the buffers of a configuration, and ends when they are empty. Its sources do not run.
///
/// # Errors
/// If the configuration has no buffers, or the run fails.
pub fn replay(options: &ReplayOptions) -> Result<Exit, CommandError> {
    let overrides = Overrides { state: options.state.clone(), ..Overrides::default() };
    let mut job = Configuration::open(&options.config)?.job(&thalweg_job::registry(), &overrides)?;
    let no_buffers = || {
        let config = options.config.display();
        CommandError::Usage(format!("`{config}` has no buffers on disk (`buffer: {{ disk: … }}`)"))
    };
    let phase = job.phases.first_mut().ok_or_else(no_buffers)?;
    if !phase.graph.keep_behind_buffers() {
        return Err(no_buffers());
    }
    let run_options = RunOptions { signals: Some(Signals::new()?), ..RunOptions::default() };
    let mut screen = Screen::new(Show { quiet: options.json, ..Show::default() });
    let Outcome { summary, .. } =
        run_graph(phase.graph.clone(), phase.state_dir.clone(), run_options, &mut screen)?;
    let readers = summary.components.iter().filter(|counts| counts.name.ends_with(".buffered"));
    let sent = readers.map(|counts| counts.rows_out).sum::<u64>();
    match options.json {
        true => print::err_json(&format!("{}\n", json!({ "event": "replayed", "messages": sent }))),
        false => print::err(&format!("{} sent from the buffers\n", counted(sent, "message"))),
    }
    match summary.failure {
        Some(failure) => Err(CommandError::Failed(failure.to_string())),
        None => Ok(Exit::Done),
    }
}

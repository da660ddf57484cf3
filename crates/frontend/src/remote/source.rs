//! `thalweg source`: pauses, resumes and drains one source of a run.

use serde_json::Value;
use thalweg_redact::{foreign, percent_encoded};

use super::RunTarget;
use crate::exit::{CommandError, Exit};
use crate::print;

/// A request to a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceAction {
    /// To read nothing until it is resumed.
    Pause,
    /// To read on.
    Resume,
    /// To stop for the rest of the run.
    Drain,
}

/// A request to a source of a run.
#[derive(Debug, Clone)]
pub struct SourceOptions {
    /// Its run.
    pub target: RunTarget,
    /// Its name.
    pub name: String,
    /// The request.
    pub action: SourceAction,
}

/// Sends a request to a source, and prints its state.
///
/// # Errors
/// If the run does not answer, or has no such source.
pub fn source(options: &SourceOptions) -> Result<Exit, CommandError> {
    let SourceOptions { target, name, action } = options;
    let action = match action {
        SourceAction::Pause => "pause",
        SourceAction::Resume => "resume",
        SourceAction::Drain => "drain",
    };
    let path = format!("/api/v1/sources/{}/{action}", percent_encoded(name));
    let answer = target.client()?.value("POST", &path)?;
    let state = answer.get("state").and_then(Value::as_str).unwrap_or("unknown");
    print::show(&format!("{name}: {}\n", foreign(state)))?;
    Ok(Exit::Done)
}

//! The end of a command: its exit code, and its error message.

use serde_json::json;
use thalweg_config::Diagnostics;
use thalweg_job::{LoadError, RunError};

use crate::paint::Paint;
use crate::print;

/// The exit code of a wrong command line or configuration.
pub const WRONG: u8 = 2;
/// The exit code of an attempt that failed.
const FAILED: u8 = 3;

/// The exit code of a command that completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// Done, with errors that count.
    Errors = 1,
    /// The configuration is wrong, which was already printed.
    Mistakes = 2,
}

/// Why a command failed.
#[derive(Debug)]
pub enum CommandError {
    /// The configuration is wrong.
    Mistakes(Diagnostics),
    /// The command line is wrong: a sentence.
    Usage(String),
    /// An attempt failed: a sentence.
    Failed(String),
    /// An attempt failed, which was already printed.
    AlreadyReported,
    /// The reader of the output is gone. This is no error.
    ReaderGone,
}

impl From<LoadError> for CommandError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Mistakes(mistakes) => CommandError::Mistakes(mistakes),
            LoadError::System(error) => error.into(),
            error if error.is_usage() => CommandError::Usage(error.to_string()),
            error => CommandError::Failed(error.to_string()),
        }
    }
}

impl From<RunError> for CommandError {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Load(error) => error.into(),
            abandoned @ RunError::Abandoned => CommandError::Failed(abandoned.to_string()),
        }
    }
}

impl From<thalweg_engine::Error> for CommandError {
    fn from(error: thalweg_engine::Error) -> Self {
        CommandError::Failed(error.full())
    }
}

impl From<std::io::Error> for CommandError {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => CommandError::ReaderGone,
            _ => CommandError::Failed(error.to_string()),
        }
    }
}

/// Prints why a command failed, as JSON or for people.
pub fn tell(failure: &CommandError, json: bool) {
    let line = |event: &str, content: serde_json::Value| {
        let mut line = json!({ "event": event });
        let key = if event == "mistakes" { "mistakes" } else { "message" };
        line[key] = content;
        print::err(&format!("{line}\n"));
    };
    match failure {
        CommandError::Mistakes(diagnostics) if json => line("mistakes", json!(diagnostics)),
        CommandError::Mistakes(diagnostics) => print::err(&diagnostics.render(Paint::stderr().is_on())),
        CommandError::Usage(text) | CommandError::Failed(text) if json => {
            line("failed", text.as_str().into())
        }
        CommandError::Usage(text) | CommandError::Failed(text) => {
            print::err(&format!("{} {}\n", Paint::stderr().red("error:"), text.trim_end_matches('.')));
        }
        CommandError::AlreadyReported | CommandError::ReaderGone => {}
    }
}

/// Prints why a command failed, if it did, and returns its exit code.
pub fn report(result: Result<Exit, CommandError>, json: bool) -> u8 {
    let failure = match result {
        Ok(exit) => return exit as u8,
        Err(failure) => failure,
    };
    tell(&failure, json);
    match failure {
        CommandError::Mistakes(_) | CommandError::Usage(_) => WRONG,
        CommandError::Failed(_) | CommandError::AlreadyReported => FAILED,
        CommandError::ReaderGone => 0,
    }
}

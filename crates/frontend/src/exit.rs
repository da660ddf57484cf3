//! The end of a command: its exit code, and its error message.

use serde_json::json;
use thalweg_config::Diagnostics;
use thalweg_job::{LoadError, RunError, Signal, signals};
use thalweg_redact::for_terminal;

use crate::paint::Paint;
use crate::print;

/// The exit code of a wrong command line or configuration.
pub const WRONG: u8 = 2;
/// The exit code of an attempt that failed.
const FAILED: u8 = 3;
/// Shells add the number of the signal to this.
const SIGNALLED: u8 = 128;

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

/// The effect of a signal before the command heeds signals: while it reads its configuration, for example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Early {
    /// The command ends as if the signal had arrived during its run, which stops without an error.
    Done,
    /// The same, of a command that failed if it was stopped.
    Failed,
    /// The process ends as programs do that heed no signals.
    Dies,
}

/// Says what a signal does before the command heeds signals.
pub fn until_heeded(early: Early, json: bool) {
    signals::until_heeded(move |signal, number| {
        let code = match (early, signal) {
            (Early::Dies, _) => return Some(SIGNALLED.saturating_add(number)),
            (Early::Done, Signal::End) => Exit::Done as u8,
            (Early::Failed, Signal::End) => FAILED,
            #[cfg(unix)]
            (_, Signal::Reopen) => return None,
        };
        print::err(&print::event(json, false, "stopped", "stopped before the run began"));
        Some(code)
    });
}

/// Prints why a command failed, as JSON or for people.
pub fn tell(failure: &CommandError, json: bool) {
    let line = |event: &str, content: serde_json::Value| {
        let mut line = json!({ "event": event });
        let key = if event == "mistakes" { "mistakes" } else { "message" };
        line[key] = content;
        print::err_json(&format!("{line}\n"));
    };
    match failure {
        CommandError::Mistakes(diagnostics) if json => line("mistakes", json!(diagnostics)),
        CommandError::Mistakes(diagnostics) => print::err(&diagnostics.render(Paint::stderr().is_on())),
        CommandError::Usage(text) | CommandError::Failed(text) if json => {
            line("failed", text.as_str().into())
        }
        CommandError::Usage(text) | CommandError::Failed(text) => {
            let text = for_terminal(text.trim_end_matches('.'), false);
            print::err(&format!("{} {text}\n", Paint::stderr().red("error:")));
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

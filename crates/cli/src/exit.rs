//! How a command ends: its exit code, and what it says if it could not do what it was asked.

use serde_json::json;
use thalweg_config::Diagnostics;

use crate::paint::Paint;
use crate::print;

/// The exit code where the command line or the configuration is wrong.
pub const WRONG: u8 = 2;
/// The exit code where it was tried and failed.
const FAILED: u8 = 3;

/// The exit code of a command that came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// Done, but with errors that `--strict` counts.
    Errors = 1,
    /// The configuration is wrong, and that was told already.
    LoadError = 2,
}

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub enum CliError {
    /// The configuration is wrong.
    Mistakes(Diagnostics),
    /// The command line is wrong: a sentence.
    Usage(String),
    /// It was tried and failed: a sentence.
    Failed(String),
    /// It failed, and that was told already.
    AlreadyReported,
    /// Whoever reads the output has gone away, which is not worth a word.
    NobodyReads,
}

impl From<thalweg_engine::Error> for CliError {
    fn from(error: thalweg_engine::Error) -> Self {
        CliError::Failed(error.full())
    }
}

impl From<thalweg_engine::RunFailure> for CliError {
    fn from(failure: thalweg_engine::RunFailure) -> Self {
        CliError::Failed(failure.to_string())
    }
}

impl From<std::io::Error> for CliError {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => CliError::NobodyReads,
            _ => CliError::Failed(error.to_string()),
        }
    }
}

/// Says why a command failed, in JSON if that was asked for.
pub fn tell(failure: &CliError, json: bool) {
    let line = |event: &str, what: serde_json::Value| {
        let mut line = json!({ "event": event });
        let key = if event == "mistakes" { "mistakes" } else { "message" };
        line[key] = what;
        print::err(&format!("{line}\n"));
    };
    match failure {
        CliError::Mistakes(diagnostics) if json => line("mistakes", json!(diagnostics)),
        CliError::Mistakes(diagnostics) => print::err(&diagnostics.render(Paint::stderr().is_on())),
        CliError::Usage(text) | CliError::Failed(text) if json => line("failed", text.as_str().into()),
        CliError::Usage(text) | CliError::Failed(text) => {
            print::err(&format!("{} {}\n", Paint::stderr().red("error:"), text.trim_end_matches('.')));
        }
        CliError::AlreadyReported | CliError::NobodyReads => {}
    }
}

/// Says what has to be said, in JSON if that was asked for, and gives the exit code.
pub fn report(result: Result<Exit, CliError>, json: bool) -> u8 {
    let failure = match result {
        Ok(exit) => return exit as u8,
        Err(failure) => failure,
    };
    tell(&failure, json);
    match failure {
        CliError::Mistakes(_) | CliError::Usage(_) => WRONG,
        CliError::Failed(_) | CliError::AlreadyReported => FAILED,
        CliError::NobodyReads => 0,
    }
}

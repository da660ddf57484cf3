//! For tests that run the binary as a user does.
#![allow(dead_code)] // Each test program uses a part of this.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The binary, in a folder, with nothing of the tester's surroundings that could change what it prints.
pub fn thalweg(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    command.env("NO_COLOR", "1").env_remove("THALWEG_LOG").env_remove("RUST_BACKTRACE");
    command
}

/// Runs it to its end.
pub fn run(folder: &Path, arguments: &[&str]) -> Output {
    thalweg(folder, arguments).output().expect("the binary starts")
}

/// What it wrote to standard error.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs it and wants it to end well.
pub fn run_well(folder: &Path, arguments: &[&str]) -> Output {
    let output = run(folder, arguments);
    assert!(output.status.success(), "{arguments:?} ended with {}: {}", output.status, stderr(&output));
    output
}

/// The lines of a file.
pub fn lines(path: impl AsRef<Path>) -> Vec<String> {
    let path = path.as_ref();
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
}

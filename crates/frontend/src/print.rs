//! Writes to the two standard outputs. It does not panic if their reader is gone.

use std::io::{self, Write};

/// Writes to the standard output.
///
/// # Errors
/// Those of writing; see [`CommandError::NobodyReads`](crate::CommandError::NobodyReads).
pub fn out(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Writes to the standard error output. An error is ignored, because no other output could report it.
pub fn err(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// The width of the terminal in columns: `COLUMNS`, or what the terminal reports, or 80.
#[must_use]
pub fn width() -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = || terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    columns.or_else(terminal).filter(|width| *width > 0).unwrap_or(80)
}

//! Writing to the two outputs without ever panicking: whoever reads them may have gone away.

use std::io::{self, Write};

/// Writes to the standard output.
///
/// # Errors
/// Those of writing; see [`CliError::NobodyReads`](crate::exit::CliError::NobodyReads).
pub fn out(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Writes to the standard error output. If nobody reads that, there is nobody left to tell.
pub fn err(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// How wide the terminal is, `COLUMNS` going before what it says itself; 80 where nothing is known.
pub fn width() -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = || terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    columns.or_else(terminal).filter(|width| *width > 0).unwrap_or(80)
}

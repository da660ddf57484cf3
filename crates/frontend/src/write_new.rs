//! Writes a configuration to a new file.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;

use crate::exit::CommandError;
use crate::print;

/// Writes a configuration to a file that must not exist, and says how to run it.
///
/// # Errors
/// If it exists, or cannot be written.
pub fn write_new(path: &Path, text: &str) -> Result<(), CommandError> {
    let shown = path.display();
    let written = OpenOptions::new().write(true).create_new(true).open(path);
    let written = written.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            CommandError::Usage(format!("`{shown}` exists, and is left as it is; name another file"))
        }
        _ => CommandError::Failed(format!("`{shown}` cannot be written: {error}")),
    })?;
    print::err(&format!("wrote {shown}; `thalweg run {shown}` runs it\n"));
    Ok(())
}

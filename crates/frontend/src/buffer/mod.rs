//! Buffers on disk: messages that wait before a sink or a pipeline.
//!
//! All commands but `replay` only read, also while a run writes.

mod check;
mod dump;
mod list;
mod replay;

use std::path::{Path, PathBuf};

use thalweg_engine::{FoundBuffer, find_buffers};

use crate::errors::StateLocation;
use crate::exit::CommandError;

pub use check::check;
pub use dump::{DumpOptions, dump};
pub use list::list;
pub use replay::{ReplayOptions, replay};

/// The buffers that a command is about.
#[derive(Debug, Clone, Default)]
pub struct BufferOptions {
    /// The state directory that they are in.
    pub location: StateLocation,
    /// Only the buffer of this sink or pipeline.
    pub name: Option<String>,
    /// True if the outcome is printed as JSON.
    pub json: bool,
}

impl BufferOptions {
    /// Returns the state directory, and the buffers that were chosen.
    fn find(&self) -> Result<(PathBuf, Vec<FoundBuffer>), CommandError> {
        let folder = self.location.state_dir()?.folder;
        let mut found = find_buffers(&folder)?;
        if let Some(name) = &self.name {
            found.retain(|buffer| buffer.name == *name);
            if found.is_empty() {
                let shown = folder.display();
                return Err(CommandError::Usage(format!("there is no buffer of `{name}` in `{shown}`")));
            }
        }
        Ok((folder, found))
    }
}

/// The message if there are no buffers.
fn nothing_in(folder: &Path) -> String {
    format!("there are no buffers in `{}`\n", folder.display())
}

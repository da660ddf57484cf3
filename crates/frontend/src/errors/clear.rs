//! `thalweg errors clear`, also during a run: its process removes the letters then.

use std::io::{IsTerminal, stdin};

use crate::exit::{CommandError, Exit};
use crate::format::counted;
use crate::print;

use super::{Filter, Shown, StateLocation, nothing_in};

/// The dead letters to remove.
#[derive(Debug, Clone, Default)]
pub struct ClearOptions {
    /// Where they are.
    pub location: StateLocation,
    /// Which of them.
    pub filter: Filter,
    /// The most that are removed, the oldest first; all if `None`.
    pub limit: Option<u64>,
    /// True if the user is not asked.
    pub yes: bool,
}

/// Removes dead letters, after asking on a terminal. Without one, only if the user has said yes.
///
/// # Errors
/// If the state directory or the configuration cannot be read, or the output cannot be written.
pub fn clear(options: &ClearOptions) -> Result<Exit, CommandError> {
    let state_dir = options.location.state_dir()?;
    let folder = &state_dir.folder;
    let Some(shown) = Shown::find(&state_dir)? else {
        print::err(&nothing_in(folder, &options.filter));
        return Ok(Exit::Done);
    };
    let mut ids = Vec::new();
    for found in shown.letters() {
        let (id, letter) = found?;
        if options.filter.takes(&letter) && options.limit.is_none_or(|limit| (ids.len() as u64) < limit) {
            ids.push(id);
        }
    }
    if ids.is_empty() {
        forget_dropped(&shown, options)?;
        print::err(&nothing_in(folder, &options.filter));
        return Ok(Exit::Done);
    }
    let letters = counted(ids.len() as u64, "dead letter");
    if !options.yes && !stdin().is_terminal() {
        return Err(CommandError::Usage(format!(
            "{letters} would be removed from `{}`, and there is no terminal to ask on; `--yes` removes without asking",
            folder.display()
        )));
    }
    if !options.yes {
        print::err(&format!("remove {letters} from `{}`? This cannot be undone. [y/N] ", folder.display()));
        let mut answer = String::new();
        stdin().read_line(&mut answer)?;
        if !matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
            print::err("nothing was removed\n");
            return Ok(Exit::Done);
        }
    }
    // A run may have dropped some of them meanwhile.
    let removed = shown.remove(&ids)?;
    forget_dropped(&shown, options)?;
    print::err(&format!("removed {}\n", counted(removed, "dead letter")));
    Ok(Exit::Done)
}

/// Resets the count of dropped dead letters once all dead letters were removed: the user has seen the count.
fn forget_dropped(shown: &Shown, options: &ClearOptions) -> Result<(), CommandError> {
    if options.filter.component.is_none() && options.limit.is_none() && shown.dropped()? > 0 {
        shown.forget_dropped()?;
    }
    Ok(())
}

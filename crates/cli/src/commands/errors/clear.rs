//! `thalweg errors clear`.

use std::io::{IsTerminal, stdin};

use clap::Args;
use thalweg_engine::Store;
use thalweg_frontend::format::counted;
use thalweg_frontend::{CommandError, Exit, print};

use super::{Filter, StateLocation, nothing_in, open};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    place: StateLocation,
    #[command(flatten)]
    filter: Filter,
    /// Only the oldest so many.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, CommandError> {
    let folder = arguments.place.folder()?;
    let Some(store) = open(&folder)? else {
        print::err(&nothing_in(&folder, &arguments.filter));
        return Ok(Exit::Done);
    };
    let mut ids = Vec::new();
    for found in store.letters() {
        let (id, letter) = found?;
        if arguments.filter.takes(&letter) && arguments.limit.is_none_or(|limit| (ids.len() as u64) < limit) {
            ids.push(id);
        }
    }
    if ids.is_empty() {
        forget_dropped(&store, arguments)?;
        print::err(&nothing_in(&folder, &arguments.filter));
        return Ok(Exit::Done);
    }
    let letters = counted(ids.len() as u64, "dead letter");
    if !arguments.yes && stdin().is_terminal() {
        print::err(&format!(
            "remove {letters} from `{}`? They cannot be brought back. [y/N] ",
            folder.display()
        ));
        let mut answer = String::new();
        stdin().read_line(&mut answer)?;
        if !matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
            print::err("nothing was removed\n");
            return Ok(Exit::Done);
        }
    }
    store.remove_letters(&ids)?;
    forget_dropped(&store, arguments)?;
    print::err(&format!("removed {letters}\n"));
    Ok(Exit::Done)
}

/// Resets the count of dropped letters after all letters were removed: the user has seen it.
fn forget_dropped(store: &Store, arguments: &Arguments) -> Result<(), CommandError> {
    if arguments.filter.component.is_none() && arguments.limit.is_none() && store.tally().dropped > 0 {
        store.forget_dropped()?;
    }
    Ok(())
}

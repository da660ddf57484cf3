//! Commands for a run in another process: `tap`, `top`, `ps`, `source` and `reload`.
//!
//! A run is found by its address (`--listen`), by its state directory, or, without either, as the only one
//! below the current folder or the folder of services.

pub(crate) mod client;
pub(crate) mod find;
mod ps;
mod reload;
mod source;
mod tap;
mod top;

use std::path::{Path, PathBuf};

pub use ps::{PsOptions, ps};
pub use reload::{ReloadOptions, reload};
pub use source::{SourceAction, SourceOptions, source};
pub use tap::{TapOptions, tap};
pub use top::top;

use crate::api::{Token, socket};
use crate::exit::CommandError;
use client::{Client, Place};

/// Which run a command is for.
#[derive(Debug, Clone, Default)]
pub struct RunTarget {
    /// Its address or its state directory. Without it, the only run that is found.
    pub place: Option<String>,
    /// The file with the token of its API, if it needs one.
    pub token_file: Option<PathBuf>,
}

impl RunTarget {
    pub(crate) fn client(&self) -> Result<Client, CommandError> {
        let place = match &self.place {
            Some(place) => Place::parse(place)?,
            None => Place::Folder(only_run()?),
        };
        let token = self.token_file.as_deref().map(Token::read).transpose()?;
        Ok(Client { place, token })
    }
}

/// True if an argument can only be an address or a state directory, and not the name of a component.
fn is_place(text: &str) -> bool {
    text.contains(['/', ':']) || socket::is_in(Path::new(text))
}

/// The state directory of the only run that is found.
fn only_run() -> Result<PathBuf, CommandError> {
    let none = "no run with a state directory is found in this folder: give its state directory, or its address \
                (`--listen` of `run`)";
    find::only(find::running(&find::usual()), none, "runs")
}

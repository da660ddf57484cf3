//! Dead letters: messages and files that no component could process, and why.

mod clear;
mod list;
mod replay;
mod show;

use std::path::{Path, PathBuf};

use serde_json::json;
use thalweg_engine::{DeadLetter, DeadLetterId, Store};
use thalweg_job::{Configuration, state_folder};

use crate::exit::CommandError;

pub use clear::{ClearOptions, clear};
pub use list::{ListOptions, list};
pub use replay::{ReplayOptions, replay};
pub use show::{ShowOptions, show};

/// Where dead letters are.
#[derive(Debug, Clone, Default)]
pub struct StateLocation {
    /// The configuration whose run rejected them; the current directory if `None`.
    pub config: Option<PathBuf>,
    /// The state folder, if the run was given one.
    pub state: Option<PathBuf>,
}

/// Selects dead letters.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only dead letters of this component (`main.parse_json`), or of this pipeline (`main`).
    pub component: Option<String>,
}

impl StateLocation {
    fn folder(&self) -> Result<PathBuf, CommandError> {
        match (&self.config, &self.state) {
            (Some(path), None) => Ok(Configuration::open(path)?.state_folder(None)?),
            (_, state) => Ok(state_folder(Path::new(""), None, state.as_deref()).folder),
        }
    }
}

impl Filter {
    fn takes(&self, letter: &DeadLetter) -> bool {
        self.component.as_deref().is_none_or(|wanted| {
            let rest = letter.component.strip_prefix(wanted);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }
}

/// Opens the store, if there is one. Looking for dead letters must create nothing.
fn open(folder: &Path) -> Result<Option<Store>, CommandError> {
    if !folder.join("keyspaces").exists() {
        return Ok(None);
    }
    Ok(Some(Store::open(folder)?))
}

/// The message if there is nothing to list, remove or process.
fn nothing_in(folder: &Path, filter: &Filter) -> String {
    let folder = folder.display();
    match &filter.component {
        Some(component) => format!("there are no dead letters of `{component}` in `{folder}`\n"),
        None => format!("there are no dead letters in `{folder}`\n"),
    }
}

fn json_of(id: DeadLetterId, letter: &DeadLetter) -> Result<String, CommandError> {
    let failed = |error: serde_json::Error| CommandError::Failed(error.to_string());
    let mut line = json!({ "id": id });
    let letter = serde_json::to_value(letter).map_err(failed)?;
    if let (Some(line), serde_json::Value::Object(letter)) = (line.as_object_mut(), letter) {
        line.extend(letter);
    }
    Ok(format!("{line}\n"))
}

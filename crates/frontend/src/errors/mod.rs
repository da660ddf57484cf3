//! Dead letters: messages and files that no component could process, and why.

mod clear;
mod lines;
mod list;
mod replay;
mod show;

use std::path::{Path, PathBuf};

use serde_json::json;
#[cfg(target_os = "linux")]
use thalweg_engine::RunningLetters;
use thalweg_engine::{DeadLetter, DeadLetterId, Error, StateDir, Store};
use thalweg_job::{Configuration, HIDDEN};
use thalweg_redact::redacted;

use crate::exit::CommandError;

pub use clear::{ClearOptions, clear};
pub use list::{ListOptions, list};
pub use replay::{ReplayOptions, replay};
pub use show::{ShowOptions, show};

/// How deep below a directory its stores may be.
const STORES_BELOW: usize = 2;

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
    pub(crate) fn state_dir(&self) -> Result<StateDir, CommandError> {
        let state_dir = match (&self.config, &self.state) {
            (Some(path), state) => Configuration::open(path)?.state_dir(state.as_deref())?,
            (None, state) => {
                let folder = state.clone().unwrap_or_else(|| PathBuf::from(HIDDEN));
                StateDir { folder, positions: false, owner: None }
            }
        };
        let mut stores = Vec::new();
        find_stores(&state_dir.folder, STORES_BELOW, &mut stores);
        match &stores[..] {
            [] => Ok(state_dir),
            [folder] => Ok(StateDir { folder: folder.clone(), ..state_dir }),
            several => {
                let several: Vec<String> =
                    several.iter().map(|folder| format!("`--state {}`", folder.display())).collect();
                Err(CommandError::Usage(format!(
                    "`{}` has the dead letters of several runs. Give one of them: {}",
                    state_dir.folder.display(),
                    several.join(", ")
                )))
            }
        }
    }
}

/// Collects the directories of stores at or below a directory, in the order of their names. A run may have a
/// directory for each configuration, and one for each phase below that.
fn find_stores(folder: &Path, levels: usize, stores: &mut Vec<PathBuf>) {
    if Store::exists(folder) {
        return stores.push(folder.to_owned());
    }
    let Some(levels) = levels.checked_sub(1) else { return };
    let below = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut below: Vec<PathBuf> = below.filter(|path| path.is_dir()).collect();
    below.sort();
    below.iter().for_each(|folder| find_stores(folder, levels, stores));
}

impl Filter {
    pub(crate) fn takes(&self, letter: &DeadLetter) -> bool {
        self.component.as_deref().is_none_or(|wanted| {
            let rest = letter.component.strip_prefix(wanted);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }
}

/// Opens the store, if there is one. Looking for dead letters must create nothing.
fn open(state_dir: &StateDir) -> Result<Option<Store>, CommandError> {
    if !Store::exists(&state_dir.folder) {
        return Ok(None);
    }
    Ok(Some(Store::open_for(&state_dir.folder, state_dir.owner.as_ref())?))
}

/// As [`open`]. Root may look for the dead letters of any user, as an administrator does.
fn open_to_show(state_dir: &StateDir) -> Result<Option<Store>, CommandError> {
    if !Store::exists(&state_dir.folder) {
        return Ok(None);
    }
    Ok(Some(Store::open_to_show(&state_dir.folder, state_dir.owner.as_ref())?))
}

/// Dead letters that can be shown and removed.
enum Shown {
    /// No run uses the store.
    Closed(Box<Store>),
    /// The process of a run answers.
    #[cfg(target_os = "linux")]
    Running(RunningLetters),
}

impl Shown {
    /// Finds the dead letters, if there are any. Looking for them must create nothing.
    fn find(state_dir: &StateDir) -> Result<Option<Self>, CommandError> {
        #[cfg(target_os = "linux")]
        if let Some(running) = RunningLetters::find(&state_dir.folder, state_dir.owner.as_ref())? {
            return Ok(Some(Self::Running(running)));
        }
        Ok(open_to_show(state_dir)?.map(|store| Self::Closed(Box::new(store))))
    }

    /// The letters, oldest first.
    fn letters(&self) -> Box<dyn Iterator<Item = Result<(DeadLetterId, DeadLetter), Error>> + '_> {
        match self {
            Self::Closed(store) => Box::new(store.letters()),
            #[cfg(target_os = "linux")]
            Self::Running(running) => Box::new(running.letters()),
        }
    }

    /// The letter with this number.
    fn letter(&self, id: DeadLetterId) -> Result<Option<DeadLetter>, Error> {
        match self {
            Self::Closed(store) => store.letter(id),
            #[cfg(target_os = "linux")]
            Self::Running(running) => running.letter(id),
        }
    }

    /// Removes letters, and returns how many of them there were.
    fn remove(&self, ids: &[DeadLetterId]) -> Result<u64, Error> {
        match self {
            Self::Closed(store) => store.remove_letters(ids),
            #[cfg(target_os = "linux")]
            Self::Running(running) => running.remove(ids),
        }
    }

    /// Resets the number of letters that were dropped.
    fn forget_dropped(&self) -> Result<(), Error> {
        match self {
            Self::Closed(store) => store.forget_dropped(),
            #[cfg(target_os = "linux")]
            Self::Running(running) => running.forget_dropped(),
        }
    }

    /// The number of letters that were dropped.
    fn dropped(&self) -> Result<u64, Error> {
        match self {
            Self::Closed(store) => Ok(store.tally().dropped),
            #[cfg(target_os = "linux")]
            Self::Running(running) => running.dropped(),
        }
    }
}

/// The message if there is nothing to list, remove or process.
fn nothing_in(folder: &Path, filter: &Filter) -> String {
    let folder = folder.display();
    let of = filter.component.as_ref().map(|component| format!(" of `{component}`")).unwrap_or_default();
    redacted(&format!("there are no dead letters{of} in `{folder}`\n")).into_owned()
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

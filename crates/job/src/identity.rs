//! The identity of a configuration: which state is its own.
//!
//! See docs/decisions/075-state-belongs-to-one-configuration.md.

use std::io;
use std::path::{Path, PathBuf};

use thalweg_engine::{Owner, StateDir};

/// The folder of dead letters of runs without a state directory. Each configuration has one in it.
pub const HIDDEN: &str = ".thalweg";

/// The identity of a configuration.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The name of its folder in the hidden one.
    name: PathBuf,
    /// `None` if nothing tells it from others: it came from the standard input or from Python.
    owner: Option<Owner>,
}

impl Identity {
    /// The configuration in a file.
    ///
    /// # Errors
    /// If the working directory is unknown.
    pub fn of_file(path: &Path) -> io::Result<Self> {
        let name = path.file_name().map_or_else(|| readable(&path.to_string_lossy()), PathBuf::from);
        Ok(Self { name, owner: Some(Owner::of_file(path)?) })
    }

    /// A configuration with an address instead of a file. `name` has no secrets.
    #[must_use]
    pub fn of_address(name: &str) -> Self {
        Self { name: readable(name), owner: Some(Owner::named(name.to_owned())) }
    }

    /// A configuration that nothing tells from others.
    #[must_use]
    pub fn unknown(name: &str) -> Self {
        Self { name: readable(name), owner: None }
    }

    /// The state directory of a run: `given`, else `configured` (relative to `folder`). Without either, only
    /// dead letters are kept, in a hidden folder.
    #[must_use]
    pub fn state_dir(&self, folder: &Path, configured: Option<&Path>, given: Option<&Path>) -> StateDir {
        let owner = self.owner.clone();
        match (given, configured) {
            (Some(given), _) => StateDir { folder: given.to_owned(), positions: true, owner },
            (None, Some(configured)) => StateDir { folder: folder.join(configured), positions: true, owner },
            (None, None) => {
                StateDir { folder: folder.join(HIDDEN).join(&self.name), positions: false, owner }
            }
        }
    }
}

/// The name of a file that resembles a text.
fn readable(text: &str) -> PathBuf {
    let plain = |c: char| if c.is_alphanumeric() || matches!(c, '.' | '_') { c } else { '-' };
    PathBuf::from(text.chars().map(plain).collect::<String>().trim_start_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_directory_that_is_given_goes_before_the_configured_one() {
        let place = |configured: Option<&str>, given: Option<&str>| {
            let identity = Identity::of_file(Path::new("conf/a.yaml")).unwrap();
            let state =
                identity.state_dir(Path::new("conf"), configured.map(Path::new), given.map(Path::new));
            (state.folder.display().to_string(), state.positions)
        };
        assert_eq!(place(None, None), ("conf/.thalweg/a.yaml".to_owned(), false));
        assert_eq!(place(Some("state"), None), ("conf/state".to_owned(), true));
        assert_eq!(place(Some("/state"), None), ("/state".to_owned(), true));
        assert_eq!(place(Some("state"), Some("given")), ("given".to_owned(), true));
    }

    #[test]
    fn each_configuration_has_its_own_hidden_folder() {
        let hidden = |identity: Identity| identity.state_dir(Path::new(""), None, None).folder;
        assert_eq!(hidden(Identity::unknown("standard input")), Path::new(".thalweg/standard-input"));
        let address = Identity::of_address("https://host/../s.yml");
        assert_eq!(hidden(address), Path::new(".thalweg/https---host-..-s.yml"));
    }
}

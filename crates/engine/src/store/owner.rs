//! The configuration that a state directory belongs to.
//!
//! Checkpoints and dead letters name components, and two configurations may use the same names. So the store
//! records its configuration in a plain file, and refuses another one. A file beside the database was chosen
//! over an entry in it: a person can read it, and deletes it to hand the directory over.
//!
//! The configuration is known by its path, not by its content, because users edit configurations. A path
//! where nothing is left belongs to a configuration that was moved, and the next one takes its place.
//!
//! See docs/decisions/075-state-belongs-to-one-configuration.md.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use thalweg_runtime::private::{open_regular, open_regular_with, private_file};

use super::faults::Faults;
use crate::Error;

/// The name of the file, in the state directory.
pub(super) const NAME: &str = "owner";
/// The name of the file while it is written.
const UNFINISHED: &str = "owner.part";

/// The longest path or address that is read, in bytes.
const LONGEST: u64 = 8 << 10;

/// The identity of a configuration: its absolute path or its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner(String);

impl Owner {
    /// The configuration in this file.
    ///
    /// # Errors
    /// If the working directory is unknown.
    pub fn of_file(path: &Path) -> io::Result<Self> {
        Ok(Self(std::path::absolute(path)?.to_string_lossy().into_owned()))
    }

    /// A configuration without a file, such as one at an address. `name` has no secrets.
    pub fn named(name: String) -> Self {
        Self(name)
    }

    fn is(&self, other: &Self) -> bool {
        let real = |owner: &Self| fs::canonicalize(&owner.0).ok();
        self == other || real(self).is_some_and(|path| real(other) == Some(path))
    }

    /// True if the configuration had a file that no longer exists.
    fn is_gone(&self) -> bool {
        let path = Path::new(&self.0);
        path.is_absolute() && path.try_exists().is_ok_and(|exists| !exists)
    }
}

/// Refuses a directory that belongs to another configuration. Changes nothing.
pub(super) fn check(folder: &Path, owner: &Owner, faults: &Faults) -> Result<(), Error> {
    match other(folder, owner).map_err(|error| faults.unopened(&error.to_string()))? {
        Some(known) => Err(faults.owned(&known.0, &owner.0, &folder.join(NAME))),
        None => Ok(()),
    }
}

/// Refuses a directory that is opened only for dead letters, and belongs to another configuration. One that
/// cannot be read is reported when it is opened.
pub(super) fn check_letters(folder: &Path, owner: &Owner, faults: &Faults) -> Result<(), Error> {
    match other(folder, owner) {
        Ok(Some(known)) => Err(faults.copied(&known.0, &owner.0, &folder.join(NAME))),
        Ok(None) | Err(_) => Ok(()),
    }
}

/// Returns the owner of a directory, if that is another configuration that still exists.
fn other(folder: &Path, owner: &Owner) -> io::Result<Option<Owner>> {
    Ok(read(folder)?.filter(|known| !known.is(owner) && !known.is_gone()))
}

/// Records the owner of a directory.
pub(super) fn record(folder: &Path, owner: &Owner) -> io::Result<()> {
    let known = read(folder)?;
    if known.as_ref() == Some(owner) {
        return Ok(());
    }
    if let Some(known) = known.filter(Owner::is_gone) {
        let (folder, gone) = (folder.display(), &known.0);
        tracing::warn!(
            "the state in `{folder}` belonged to `{gone}`, which is gone: `{}` continues it",
            owner.0
        );
    }
    let unfinished: PathBuf = folder.join(UNFINISHED);
    let mut options = private_file();
    let mut file = open_regular_with(options.write(true).create(true).truncate(true), &unfinished)?;
    file.write_all(format!("{}\n", owner.0).as_bytes())?;
    fs::rename(unfinished, folder.join(NAME))
}

fn read(folder: &Path) -> io::Result<Option<Owner>> {
    let mut text = Vec::new();
    match open_regular(&folder.join(NAME)).and_then(|file| file.take(LONGEST).read_to_end(&mut text)) {
        Ok(_) => {
            // Not all that a damaged file has may be shown on a terminal.
            let text = String::from_utf8_lossy(&text).replace(|character: char| character.is_control(), "");
            Ok((!text.is_empty()).then_some(Owner(text)))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;

    #[test]
    fn another_configuration_is_refused_until_the_owner_is_gone_or_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a.yaml"), folder.path().join("b.yaml"));
        for path in [&a, &b] {
            fs::write(path, "").unwrap();
        }
        let state = folder.path().join("state");
        let open = |path: &Path| Store::open_for(&state, Some(&Owner::of_file(path).unwrap())).map(drop);
        open(&a).unwrap();
        open(&a).unwrap();
        let error = open(&b).unwrap_err().full().replace(&folder.path().display().to_string(), "F");
        assert_eq!(
            error,
            "the state in `F/state` belongs to another configuration: to `F/a.yaml`, and this is `F/b.yaml`. Give \
             this one another directory. If it takes the place of the other, delete `F/state/owner`: it then \
             continues with those checkpoints and dead letters"
        );
        let letters = |path: &Path| Store::check_letters(&state, &Owner::of_file(path).unwrap());
        letters(&a).unwrap();
        let error = letters(&b).unwrap_err().full().replace(&folder.path().display().to_string(), "F");
        assert_eq!(
            error,
            "the dead letters in `F/state` belong to another configuration: to `F/a.yaml`, and this is `F/b.yaml`. If \
             the directory was copied with the configuration, remove it. If this configuration takes the place of the \
             other, delete `F/state/owner`: it then continues with those dead letters"
        );
        Store::check_letters(&folder.path().join("none"), &Owner::of_file(&b).unwrap()).unwrap();
        fs::remove_file(state.join(NAME)).unwrap();
        open(&b).unwrap();
        open(&a).unwrap_err();
        fs::remove_file(&b).unwrap();
        open(&a).unwrap();
        let link = folder.path().join("link.yaml");
        std::os::unix::fs::symlink(&a, &link).unwrap();
        open(&link).unwrap();
        Store::open_for(&state, None).map(drop).unwrap();
    }
}

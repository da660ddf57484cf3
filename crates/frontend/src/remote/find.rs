//! Finds state directories: those of runs by their sockets.

use std::fs;
use std::path::{Path, PathBuf};

use crate::api::socket;
use crate::exit::CommandError;

/// The state directories of services are below this one.
const SERVICES: &str = "/var/lib/thalweg";
/// How deep below a folder a state directory may be.
const LEVELS: usize = 4;
/// At most this many folders are looked at.
const MOST_FOLDERS: usize = 10_000;

/// The folders in which state directories are looked for.
pub(crate) fn usual() -> Vec<PathBuf> {
    [".", SERVICES].map(PathBuf::from).to_vec()
}

/// Returns the state directories in these folders whose runs accept clients, each once.
pub(super) fn running(folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = directories(folders, &socket::is_in);
    found.retain(|folder| socket::connect(folder).is_ok());
    found
}

/// Returns the directories in these folders that are of a kind, each once.
pub(crate) fn directories(folders: &[PathBuf], is_one: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut left = MOST_FOLDERS;
    let mut found = Vec::new();
    for folder in folders {
        collect(folder, is_one, LEVELS, &mut left, &mut found);
    }
    let mut known = std::collections::BTreeSet::new();
    found.retain(|folder| known.insert(folder.canonicalize().unwrap_or_else(|_| folder.clone())));
    found
}

/// Returns the only one of these directories. `none` is the message if there is none, and `what` they are
/// directories of.
pub(crate) fn only(mut found: Vec<PathBuf>, none: &str, what: &str) -> Result<PathBuf, CommandError> {
    match (found.pop(), &found[..]) {
        (Some(folder), []) => Ok(folder),
        (None, _) => Err(CommandError::Usage(none.to_owned())),
        (Some(last), others) => {
            let all = others.iter().chain([&last]).map(|folder| format!("`{}`", folder.display()));
            let all: Vec<_> = all.collect();
            Err(CommandError::Usage(format!("there are several {what}; give one of {}", all.join(", "))))
        }
    }
}

/// Collects directories of a kind, in the order of their names. Links are not followed.
fn collect(
    folder: &Path,
    is_one: &dyn Fn(&Path) -> bool,
    levels: usize,
    left: &mut usize,
    found: &mut Vec<PathBuf>,
) {
    if *left == 0 {
        return;
    }
    *left -= 1;
    if is_one(folder) {
        found.push(folder.to_owned());
    }
    let Some(levels) = levels.checked_sub(1) else { return };
    let below = fs::read_dir(folder).into_iter().flatten().flatten();
    let below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut below: Vec<_> = below.take(*left).map(|entry| entry.path()).collect();
    below.sort();
    below.iter().for_each(|folder| collect(folder, is_one, levels, left, found));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::socket::SocketFile;

    #[test]
    fn runs_are_found_once_and_killed_ones_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str| {
            let folder = folder.path().join(name);
            fs::create_dir_all(&folder).unwrap();
            folder
        };
        let (deep, near, killed) = (of("a/.thalweg/x"), of("b"), of("c"));
        let _deep = SocketFile::create(&deep).unwrap();
        let _near = SocketFile::create(&near).unwrap();
        let (_file, listener) = SocketFile::create(&killed).unwrap();
        drop(listener);
        std::os::unix::fs::symlink(&near, folder.path().join("link")).unwrap();
        let found = running(&[folder.path().to_owned(), near.clone(), folder.path().join("none")]);
        assert_eq!(found, [deep, near]);
    }
}

//! The rights of a state directory.
//!
//! The files have fixed names, and the database follows links. So only the user of the run may write to the
//! directory, and read it.
//!
//! See docs/decisions/113-a-state-has-one-user.md.

use std::fs::File;
use std::path::Path;

use thalweg_runtime::private::{check_own, close_to_others};

use super::faults::Faults;
use super::{LOCK, inventory};
use crate::Error;

/// Refuses a directory that belongs to another user or that others may write to.
pub(super) fn check(folder: &Path, faults: &Faults) -> Result<(), Error> {
    check_own(folder).map_err(|error| faults.unopened(&error.to_string()))
}

/// Closes to others what the database has created, with the usual rights: its files, and the directory with
/// its tables. The inventory closes each journal. Where that fails, there are no rights, or none to change.
pub(super) fn close_files(folder: &Path) {
    for name in [inventory::VERSION, LOCK, inventory::KEYSPACES] {
        let closed = File::open(folder.join(name)).and_then(|file| close_to_others(&file));
        if let Err(error) = closed {
            tracing::debug!("`{}` cannot be closed to others: {error}", folder.join(name).display());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io;
    use std::os::unix::fs::PermissionsExt;

    use super::super::tests::letter;
    use super::super::{Owner, Store};
    use super::*;
    use crate::DeadLetterLimits;

    /// Modes of the files and directories in a state directory, except those of the tables, which are in a
    /// directory of theirs.
    fn modes(folder: &Path) -> Vec<(String, u32)> {
        let of = |entry: io::Result<fs::DirEntry>| {
            let entry = entry.unwrap();
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            (entry.file_name().to_string_lossy().into_owned(), mode)
        };
        fs::read_dir(folder).unwrap().map(of).collect()
    }

    #[test]
    fn no_file_of_a_state_can_be_read_by_others() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let store = Store::open(&state).unwrap();
        store.add_letters(&[letter(b"text")], &DeadLetterLimits::default()).unwrap();
        let open = |found: &[(String, u32)]| found.iter().any(|(_, mode)| mode & 0o077 != 0);
        assert!(!open(&modes(&state)), "{:?}", modes(&state));
        drop(store);
        // As an earlier version left them.
        for (name, mode) in [("version", 0o644), ("0.jnl", 0o644), ("keyspaces", 0o755)] {
            fs::set_permissions(state.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let _store = Store::open(&state).unwrap();
        assert!(!open(&modes(&state)), "{:?}", modes(&state));
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        drop(Store::open(&state).unwrap());
        let owner = Owner::named("x".to_owned());
        let refused =
            |opened: Result<(), Error>| opened.unwrap_err().full().replace(state.to_str().unwrap(), "S");
        for mode in [0o777, 0o1777] {
            fs::set_permissions(&state, fs::Permissions::from_mode(mode)).unwrap();
            let reason = "the state in `S` cannot be opened: others may write to `S` and replace the files in it: run \
                          `chmod go-w` on it, or use another directory, such as a new one in it";
            assert_eq!(refused(Store::open(&state).map(drop)), reason);
            assert_eq!(refused(Store::check_letters(&state, &owner)), reason);
        }
        fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can give a directory to another user");
            return;
        }
        std::os::unix::fs::chown(&state, Some(65534), None).unwrap();
        let reason = "the state in `S` cannot be opened: `S` belongs to another user (uid 65534), who could replace the \
                      files in it: run as that user, or use another directory";
        assert_eq!(refused(Store::open(&state).map(drop)), reason);
        assert_eq!(Store::open_to_show(&state, Some(&owner)).unwrap().letters().count(), 0);
        assert!(!state.join("owner").exists());
    }
}

//! The rights of a state directory.
//!
//! The files have fixed names, and the database follows links. So only the user of the run may write to the
//! directory, and read it.
//!
//! See docs/decisions/113-a-state-has-one-user.md.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
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

/// Gives what root creates in the directory of another user to that user when it is dropped, after the
/// database is closed. Opening a database writes manifests, and removing letters writes tables: their user
/// could not read these, and the next run would take them for damaged.
///
/// To take on the identity of the user instead was rejected: a service whose user is made by systemd has its
/// state below a directory that only root may enter.
pub(super) struct GivenBack {
    folder: PathBuf,
    user: u32,
    group: u32,
}

impl GivenBack {
    /// For root and a directory of another user; None otherwise.
    pub(super) fn of(folder: &Path) -> Option<Self> {
        let found = fs::metadata(folder).ok()?;
        let is_foreign = rustix::process::geteuid().is_root() && found.uid() != 0;
        is_foreign.then(|| Self { folder: folder.to_owned(), user: found.uid(), group: found.gid() })
    }

    fn give(&self, folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.give(&entry.path())?;
            }
            if kind.is_dir() || kind.is_file() {
                self.give_one(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Gives a file or a directory to the user. Neither what a link leads to, nor a file that has another
    /// name: the user may have linked a file of root here.
    fn give_one(&self, path: &Path) -> io::Result<()> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let file = File::options().read(true).custom_flags(flags).open(path)?;
        let found = file.metadata()?;
        if found.uid() == 0 && (found.is_dir() || found.nlink() == 1) {
            fchown(&file, Some(self.user), Some(self.group))?;
        }
        Ok(())
    }
}

impl Drop for GivenBack {
    fn drop(&mut self) {
        if let Err(error) = self.give(&self.folder) {
            tracing::warn!(
                "files in `{}` belong to root now, and its user cannot read them: run `chown -R {}:{}` on it ({error})",
                self.folder.display(),
                self.user,
                self.group
            );
        }
    }
}

#[cfg(test)]
mod tests {
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

    /// The user of these files could not read those that root had created, and the next run called the state
    /// damaged.
    #[test]
    fn what_root_changes_in_the_state_of_a_user_belongs_to_that_user() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can give a directory to another user");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let store = Store::open(&state).unwrap();
        store.add_letters(&[letter(b"one"), letter(b"two")], &DeadLetterLimits::default()).unwrap();
        drop(store);
        let below = || {
            let (mut found, mut folders) = (vec![state.clone()], vec![state.clone()]);
            while let Some(folder) = folders.pop() {
                for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                    folders.extend(entry.file_type().unwrap().is_dir().then(|| entry.path()));
                    found.push(entry.path());
                }
            }
            found
        };
        below().iter().for_each(|path| std::os::unix::fs::lchown(path, Some(65534), Some(65534)).unwrap());
        // A file of root that the user has linked here. Symbolic links are refused before.
        let linked = folder.path().join("linked");
        fs::write(&linked, "").unwrap();
        fs::hard_link(&linked, state.join("linked")).unwrap();
        let store = Store::open_to_show(&state, None).unwrap();
        store.remove_letters(&[1]).unwrap();
        store.note_durably("x", &[("y".to_owned(), Some(1.into()))]).unwrap();
        drop(store);
        let of_root = |path: &PathBuf| fs::symlink_metadata(path).unwrap().uid() == 0;
        let left: Vec<PathBuf> = below().into_iter().filter(of_root).collect();
        assert_eq!(left, [state.join("linked")]);
        assert!(of_root(&linked));
    }
}

//! The temporary files of a run.
//!
//! Each run that needs temporary files has a directory for them, with a lock that the system releases when
//! the process ends, even by `kill -9`. A free lock therefore marks the leftovers of a killed run, and the
//! next run removes them. Directories named by process number were rejected: process numbers are reused.
//!
//! See docs/decisions/023-a-run-locks-its-temporary-directory.md.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use thalweg_record::Temporary;
use thalweg_runtime::private::{check_trusted, create_private, create_private_new, open_regular};

/// The name of the locked file in each run's directory.
const LOCK: &str = "lock";
/// The start of the names of the runs' directories.
const PREFIX: &str = "run-";

/// Creates files that belong to the run and are removed when it ends. Clones create them in the same
/// directory, which is removed with the last clone and the last file.
#[derive(Debug, Clone)]
pub struct Temporaries(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The directory that contains the directories of all runs of this user.
    root: PathBuf,
    /// True if it has its usual name, which others know.
    is_usual: bool,
    run: Mutex<Option<Folder>>,
    made: AtomicU64,
}

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// Held until the run ends.
    _lock: File,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(folder) = self.run.get_mut() {
            // If this fails, the next run removes the directory.
            let _ = fs::remove_dir_all(&folder.path);
        }
    }
}

impl Temporaries {
    /// Creates files in the run's own directory below `root`, or below the system's temporary directory. The
    /// directory is created with the first file.
    pub fn new(root: Option<&Path>) -> Self {
        let is_usual = root.is_none();
        let root = match root {
            Some(root) => root.to_owned(),
            None => std::env::temp_dir().join(format!("thalweg-{}", rustix::process::getuid().as_raw())),
        };
        Self(Arc::new(Shared { root, is_usual, run: Mutex::default(), made: AtomicU64::new(0) }))
    }

    /// Returns a new, empty file and its path. The file is removed when the last holder of the path drops it.
    /// Its name ends with `suffix`.
    pub fn create(&self, suffix: &str) -> io::Result<(File, Arc<Temporary>)> {
        let path = self.path(suffix)?;
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        Ok((file, Temporary::within(path, self.0.clone())))
    }

    /// Reserves a path for a file that the caller creates. The file is removed when the last holder of the
    /// path drops it.
    pub fn reserve(&self, suffix: &str) -> io::Result<Arc<Temporary>> {
        Ok(Temporary::within(self.path(suffix)?, self.0.clone()))
    }

    fn path(&self, suffix: &str) -> io::Result<PathBuf> {
        let number = self.0.made.fetch_add(1, Ordering::Relaxed);
        let mut run = self.0.run.lock();
        let folder = match &mut *run {
            Some(folder) => folder,
            none => none.insert(Folder::new(&self.0)?),
        };
        Ok(folder.path.join(format!("{number:x}{suffix}")))
    }

    /// Removes the directories of killed runs. Directories that cannot be removed are skipped.
    pub fn sweep(&self) {
        // A run that needs temporary files says why the directory is refused.
        if self.0.check().is_err() {
            return;
        }
        let Ok(entries) = fs::read_dir(&self.0.root) else { return };
        for entry in entries.flatten().filter(|entry| is_of_run(&entry.file_name())) {
            let folder = entry.path();
            match open_regular(&folder.join(LOCK)) {
                Ok(lock) if lock.try_lock().is_ok() => {
                    let _ = fs::remove_dir_all(&folder);
                }
                // A run was killed before it created its lock. `remove_dir` removes only empty directories.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let _ = fs::remove_dir(&folder);
                }
                _ => {}
            }
        }
    }
}

/// True if a directory's name is one that a run gives. Others in the same place, such as a state directory,
/// which has a file of the same name as the lock, are not touched.
fn is_of_run(name: &OsStr) -> bool {
    let is_hexadecimal = |part: &str| part.bytes().all(|digit| digit.is_ascii_hexdigit());
    let parts = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-'));
    parts.is_some_and(|(process, random)| {
        !process.is_empty() && random.len() == 8 && is_hexadecimal(process) && is_hexadecimal(random)
    })
}

impl Shared {
    /// Refuses a directory in which another user could replace temporary files.
    fn check(&self) -> io::Result<()> {
        // Anyone may create a link with the usual name.
        if self.is_usual && fs::symlink_metadata(&self.root)?.is_symlink() {
            let shown = self.root.display();
            return Err(io::Error::other(format!(
                "`{shown}` is a link, where a directory is needed: remove it, or use another directory"
            )));
        }
        check_trusted(&self.root)
    }
}

impl Folder {
    fn new(shared: &Shared) -> io::Result<Self> {
        let root = &shared.root;
        create_private(root)?;
        shared.check().map_err(|error| {
            io::Error::other(format!("the directory for temporary files is refused: {error} (`temporary`)"))
        })?;
        loop {
            let path = root.join(format!("{PREFIX}{:x}-{:08x}", std::process::id(), fastrand::u32(..)));
            match create_private_new(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            let lock = match File::create_new(path.join(LOCK)) {
                // Another run that is sweeping removed the empty directory.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                lock => lock?,
            };
            match lock.try_lock() {
                Ok(()) if path.join(LOCK).exists() => return Ok(Self { path, _lock: lock }),
                // Another run that was sweeping removed the directory between the two steps above.
                Ok(()) => continue,
                // Another run that is sweeping locked the directory just now, and took it for that of a
                // killed run.
                Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_leaves_behind_is_swept_and_what_one_has_in_use_is_not() {
        let root = tempfile::tempdir().unwrap();
        let dead = root.path().join("run-1a-0123abcd");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join(LOCK), "").unwrap();
        fs::write(dead.join("0.png"), "left behind").unwrap();
        // Of a run that was killed before it created its lock.
        let young = root.path().join("run-1b-0123abcd");
        fs::create_dir(&young).unwrap();
        let others =
            ["not-ours", "run-1", "run-1a-0123", "run-1a-0123abcd.old"].map(|name| root.path().join(name));
        for other in &others {
            fs::create_dir(other).unwrap();
            // As a state directory has.
            fs::write(other.join(LOCK), "").unwrap();
        }
        let running = Temporaries::new(Some(root.path()));
        let (_, kept) = running.create(".png").unwrap();
        Temporaries::new(Some(root.path())).sweep();
        assert!(!dead.exists() && !young.exists() && kept.path().exists());
        assert!(others.iter().all(|other| other.join(LOCK).exists()));
        let path = kept.path().to_owned();
        drop(kept);
        assert!(!path.exists());
        // A sink may read a file when the transform that made it has ended.
        let (_, kept) = running.create(".png").unwrap();
        drop(running);
        assert!(kept.path().exists());
        drop(kept);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), others.len());
    }

    #[test]
    fn a_directory_of_another_user_and_a_link_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let open = root.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::write(open.join("file"), "").unwrap();
        fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let error = Temporaries::new(Some(&open)).create("").unwrap_err().to_string();
        let error = error.replace(&root.path().display().to_string(), "ROOT");
        assert_eq!(
            error,
            "the directory for temporary files is refused: others may write to `ROOT/open` and replace the files in \
             it: run `chmod go-w` or `chmod +t` on it, or use another directory (`temporary`)"
        );
        let link = root.path().join("link");
        std::os::unix::fs::symlink(root.path(), &link).unwrap();
        let usual = Shared { root: link, is_usual: true, run: Mutex::default(), made: AtomicU64::new(0) };
        assert!(Temporaries(Arc::new(usual)).create("").unwrap_err().to_string().contains("is a link"));
    }

    #[test]
    fn a_pipe_in_place_of_a_lock_does_not_block_a_start() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("run-x");
        fs::create_dir(&folder).unwrap();
        let pipe = folder.join(LOCK);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        Temporaries::new(Some(root.path())).sweep();
        assert!(pipe.exists());
    }

    #[test]
    fn nothing_is_made_before_it_is_needed() {
        let root = tempfile::tempdir().unwrap();
        let below = root.path().join("below");
        let temporaries = Temporaries::new(Some(&below));
        temporaries.sweep();
        assert!(!below.exists());
        let reserved = temporaries.reserve("-out").unwrap();
        assert!(below.exists() && !reserved.path().exists());
        assert!(reserved.path().to_string_lossy().ends_with("-out"));
    }
}

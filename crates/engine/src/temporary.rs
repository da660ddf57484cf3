//! The temporary files of a run.
//!
//! Each run that needs temporary files has a directory for them, with a lock that the system releases when
//! the process ends, even by `kill -9`. A free lock therefore marks the leftovers of a killed run, and the
//! next run removes them. Directories named by process number were rejected: process numbers are reused.
//!
//! See docs/decisions/023-a-run-locks-its-temporary-directory.md.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use thalweg_record::Temporary;

/// The name of the locked file in each run's directory.
const LOCK: &str = "lock";
/// The start of the names of the runs' directories.
const PREFIX: &str = "run-";

/// Creates files that belong to the run and are removed when it ends. Clones create them in the same
/// directory.
#[derive(Debug, Clone)]
pub struct Temporaries(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The directory that contains the directories of all runs of this user.
    root: PathBuf,
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
        let root = match root {
            Some(root) => root.to_owned(),
            None => std::env::temp_dir().join(format!("thalweg-{}", rustix::process::getuid().as_raw())),
        };
        Self(Arc::new(Shared { root, run: Mutex::default(), made: AtomicU64::new(0) }))
    }

    /// Returns a new, empty file and its path. The file is removed when the last holder of the path drops it.
    /// Its name ends with `suffix`.
    pub fn create(&self, suffix: &str) -> io::Result<(File, Arc<Temporary>)> {
        let path = self.path(suffix)?;
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        Ok((file, Temporary::new(path)))
    }

    /// Reserves a path for a file that the caller creates. The file is removed when the last holder of the
    /// path drops it.
    pub fn reserve(&self, suffix: &str) -> io::Result<Arc<Temporary>> {
        Ok(Temporary::new(self.path(suffix)?))
    }

    fn path(&self, suffix: &str) -> io::Result<PathBuf> {
        let number = self.0.made.fetch_add(1, Ordering::Relaxed);
        let mut run = self.0.run.lock();
        let folder = match &mut *run {
            Some(folder) => folder,
            none => none.insert(Folder::new(&self.0.root)?),
        };
        Ok(folder.path.join(format!("{number:x}{suffix}")))
    }

    /// Removes the directories of killed runs. Directories that cannot be removed are skipped.
    pub fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.0.root) else { return };
        for entry in entries.flatten() {
            let folder = entry.path();
            match File::open(folder.join(LOCK)) {
                Ok(lock) if lock.try_lock().is_ok() => {
                    let _ = fs::remove_dir_all(&folder);
                }
                // A run was killed before it created its lock. `remove_dir` removes only empty directories.
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound
                        && entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) =>
                {
                    let _ = fs::remove_dir(&folder);
                }
                _ => {}
            }
        }
    }
}

impl Folder {
    fn new(root: &Path) -> io::Result<Self> {
        make_private(root)?;
        loop {
            let path = root.join(format!("{PREFIX}{:x}-{:08x}", std::process::id(), fastrand::u32(..)));
            match make_private_new(&path) {
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

/// Creates a directory that only this user may read, and its parents.
fn make_private(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

fn make_private_new(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_leaves_behind_is_swept_and_what_one_has_in_use_is_not() {
        let root = tempfile::tempdir().unwrap();
        let dead = root.path().join("run-dead");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join(LOCK), "").unwrap();
        fs::write(dead.join("0.png"), "left behind").unwrap();
        // Of a run that was killed before it created its lock.
        let young = root.path().join("run-young");
        fs::create_dir(&young).unwrap();
        let other = root.path().join("not-ours");
        fs::create_dir(&other).unwrap();
        let running = Temporaries::new(Some(root.path()));
        let (_, kept) = running.create(".png").unwrap();
        Temporaries::new(Some(root.path())).sweep();
        assert!(!dead.exists() && !young.exists() && other.exists() && kept.path().exists());
        let path = kept.path().to_owned();
        drop(kept);
        assert!(!path.exists());
        drop(running);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
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

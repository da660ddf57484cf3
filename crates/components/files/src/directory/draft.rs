//! A file that is being written and has no name yet.
//!
//! If the file system supports unnamed files (Linux's `O_TMPFILE`), a killed process leaves nothing behind.
//! Elsewhere the draft has a hidden name until it is published, and a draft that replaces a file has one for
//! a moment. Sources skip such names ([`thalweg_beneath::unfinished`]).
//!
//! See docs/decisions/035-a-file-has-no-name-until-it-is-complete.md.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use thalweg_beneath::place_if_free;
use thalweg_beneath::unfinished::{hidden_name, link_unnamed, unnamed};
use thalweg_runtime::Failpoint;
use xxhash_rust::xxh3::xxh3_64;

/// See the [module](self).
pub struct Draft {
    /// The file to write to.
    pub file: File,
    folder: PathBuf,
    /// The hidden name, if it has one.
    hidden: Option<PathBuf>,
    /// The existing file that the draft links to, if there is one.
    of: Option<PathBuf>,
}

impl Draft {
    /// Creates a draft of a file in this folder. `mode`: the permissions of the file that it is a copy of.
    /// Others get no further permissions.
    pub fn new(folder: &Path, mode: Option<u32>) -> io::Result<Self> {
        let folder = folder.to_owned();
        let mode = mode.unwrap_or(0o666) & 0o066 | 0o600;
        if let Some(file) = unnamed(&folder, mode)? {
            return Ok(Self { file, folder, hidden: None, of: None });
        }
        let hidden = hidden_in(&folder);
        let file = File::options().read(true).write(true).create_new(true).mode(mode).open(&hidden)?;
        Ok(Self { file, folder, hidden: Some(hidden), of: None })
    }

    /// Creates a draft from an existing file, which should be on the same file system: publishing adds a
    /// second name for the same content. If the link cannot be created, [`publish`](Self::publish) returns
    /// the error.
    pub fn over(path: &Path, folder: &Path) -> io::Result<Self> {
        let (folder, of) = (folder.to_owned(), Some(path.to_owned()));
        // The folder must exist. Whether it accepts the link shows only on publishing.
        std::fs::metadata(&folder)?;
        Ok(Self { file: File::open(path)?, folder, hidden: None, of })
    }

    /// True if the draft links to an existing file.
    pub fn is_over(&self) -> bool {
        self.of.is_some()
    }

    /// Gives the draft its final name. An existing file of that name stays, unless `replaces` is true.
    ///
    /// # Errors
    /// `AlreadyExists` if a file of that name exists and `replaces` is false.
    pub fn publish(&mut self, to: &Path, replaces: bool) -> io::Result<()> {
        Failpoint::RenameBefore.check()?;
        self.give_name(to, replaces)?;
        Failpoint::RenameAfter.pass();
        Ok(())
    }

    fn give_name(&mut self, to: &Path, replaces: bool) -> io::Result<()> {
        let Some(hidden) = &self.hidden else {
            return match self.link(to) {
                Err(error) if replaces && error.kind() == io::ErrorKind::AlreadyExists => {
                    // A link cannot replace a file, but a rename can.
                    let hidden = self.link_hidden(to)?;
                    let renamed = fs::rename(&hidden, to);
                    // The hidden name still exists if the rename failed, and also if both names already
                    // belong to one file.
                    let _ = fs::remove_file(&hidden);
                    renamed
                }
                linked => linked,
            };
        };
        if replaces {
            fs::rename(hidden, to)?;
        } else {
            place_if_free(hidden, to)?;
        }
        self.hidden = None;
        Ok(())
    }

    /// Gives the draft a hidden name, which belongs to its final name. So the next file of that name finds
    /// and removes what a killed run left. The lock shows that the owner of the hidden name still runs.
    fn link_hidden(&self, to: &Path) -> io::Result<PathBuf> {
        if !is_lockable(&self.file) {
            // The file system has no locks.
            return self.link_at(hidden_in(&self.folder));
        }
        let name = to.file_name().unwrap_or_default().as_bytes();
        let hidden = self.folder.join(hidden_name(xxh3_64(name)));
        let is_left = || File::open(&hidden).is_ok_and(|left| is_lockable(&left));
        match self.link(&hidden) {
            Ok(()) => Ok(hidden),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_left() => {
                fs::remove_file(&hidden)?;
                self.link_at(hidden)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.link_at(hidden_in(&self.folder))
            }
            Err(error) => Err(error),
        }
    }

    fn link_at(&self, hidden: PathBuf) -> io::Result<PathBuf> {
        self.link(&hidden).map(|()| hidden)
    }

    fn link(&self, to: &Path) -> io::Result<()> {
        if let Some(of) = &self.of {
            return fs::hard_link(of, to);
        }
        link_unnamed(&self.file, to)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(hidden) = &self.hidden {
            let _ = fs::remove_file(hidden);
        }
    }
}

/// True if a file could be locked: no other task or process writes it. The lock ends with the open file.
fn is_lockable(file: &File) -> bool {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Returns a random hidden name. It is short, so that a long final name cannot make it too long.
fn hidden_in(folder: &Path) -> PathBuf {
    folder.join(hidden_name(fastrand::u64(..)))
}

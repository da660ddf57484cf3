//! A file that is being written and has no name yet.
//!
//! Where the file system knows files without a name (Linux's `O_TMPFILE`), nothing is left of it if the process is killed.
//! Elsewhere it has a hidden name until it gets its own.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

/// See the [module](self).
pub struct Draft {
    /// What is written to.
    pub file: File,
    folder: PathBuf,
    /// The hidden name, if it has one.
    hidden: Option<PathBuf>,
}

impl Draft {
    /// A draft of a file in this folder.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let folder = folder.to_owned();
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::openat(CWD, &folder, flags, Mode::from_raw_mode(0o666)) {
            Ok(file) => Ok(Self { file: file.into(), folder, hidden: None }),
            // Also what systems say that take it for an attempt to write to the folder.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                let hidden = hidden_in(&folder);
                let file = File::options().read(true).write(true).create_new(true).open(&hidden)?;
                Ok(Self { file, folder, hidden: Some(hidden) })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A draft over the content of a file on the same file system, if that is possible.
    pub fn over(path: &Path, folder: &Path) -> io::Result<Self> {
        let folder = folder.to_owned();
        let hidden = hidden_in(&folder);
        fs::hard_link(path, &hidden)?;
        Ok(Self { file: File::open(&hidden)?, folder, hidden: Some(hidden) })
    }

    /// Gives it its name. A file that has that name already stays, unless it is to be replaced.
    ///
    /// # Errors
    /// `AlreadyExists` if it is not.
    pub fn publish(&mut self, to: &Path, replaces: bool) -> io::Result<()> {
        let Some(hidden) = &self.hidden else {
            return match self.link(to) {
                Err(error) if replaces && error.kind() == io::ErrorKind::AlreadyExists => {
                    // A link cannot replace, but a rename can.
                    let hidden = hidden_in(&self.folder);
                    self.link(&hidden)?;
                    fs::rename(&hidden, to).inspect_err(|_| drop(fs::remove_file(&hidden)))
                }
                linked => linked,
            };
        };
        if replaces {
            fs::rename(hidden, to)?;
        } else {
            match rustix::fs::renameat_with(CWD, hidden, CWD, to, RenameFlags::NOREPLACE) {
                // File systems that do not know how to do this at once know links.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    fs::hard_link(hidden, to)?;
                    fs::remove_file(hidden)?;
                }
                renamed => renamed?,
            }
        }
        self.hidden = None;
        Ok(())
    }

    fn link(&self, to: &Path) -> io::Result<()> {
        let unnamed = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        Ok(rustix::fs::linkat(CWD, unnamed.as_str(), CWD, to, AtFlags::SYMLINK_FOLLOW)?)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(hidden) = &self.hidden {
            let _ = fs::remove_file(hidden);
        }
    }
}

/// Short enough whatever the name is.
fn hidden_in(folder: &Path) -> PathBuf {
    folder.join(format!(".thalweg-{:016x}", fastrand::u64(..)))
}

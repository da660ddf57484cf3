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
    /// The file that it becomes another name of, if it is one.
    of: Option<PathBuf>,
}

impl Draft {
    /// A draft of a file in this folder.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let folder = folder.to_owned();
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::openat(CWD, &folder, flags, Mode::from_raw_mode(0o666)) {
            Ok(file) => Ok(Self { file: file.into(), folder, hidden: None, of: None }),
            // Also what systems say that take it for an attempt to write to the folder.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                let hidden = hidden_in(&folder);
                let file = File::options().read(true).write(true).create_new(true).open(&hidden)?;
                Ok(Self { file, folder, hidden: Some(hidden), of: None })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A draft that is a file which lies elsewhere, on the same file system as a rule: it gets another name of the same
    /// content. If that cannot be, [`publish`](Self::publish) says so.
    pub fn over(path: &Path, folder: &Path) -> io::Result<Self> {
        let (folder, of) = (folder.to_owned(), Some(path.to_owned()));
        // There must be a folder; whether it takes the link is seen when it has its name.
        std::fs::metadata(&folder)?;
        Ok(Self { file: File::open(path)?, folder, hidden: None, of })
    }

    /// Whether it is of a file that lies elsewhere.
    pub fn is_over(&self) -> bool {
        self.of.is_some()
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
                    let renamed = fs::rename(&hidden, to);
                    // It is still there if that failed, and also if both are names of one file already.
                    let _ = fs::remove_file(&hidden);
                    renamed
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
        if let Some(of) = &self.of {
            return fs::hard_link(of, to);
        }
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

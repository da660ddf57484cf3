//! A small file system, which gets full.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small file system in memory, mounted until the value is dropped. Needs the rights of root.
#[derive(Debug)]
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// True if this process may mount.
    pub fn is_possible() -> bool {
        rustix::process::geteuid().is_root()
            && tempfile::tempdir()
                .is_ok_and(|folder| Self::mount(&folder.path().join("disk"), 1 << 16).is_ok())
    }

    /// Mounts one at a folder, which is made.
    ///
    /// # Errors
    /// If it cannot be mounted.
    pub fn mount(at: &Path, bytes: u64) -> io::Result<Self> {
        std::fs::create_dir_all(at)?;
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"]).arg(at))?;
        Ok(Self(at.to_owned()))
    }

    /// Makes room.
    ///
    /// # Errors
    /// If it cannot be mounted again.
    pub fn grow(&self) -> io::Result<()> {
        run(Command::new("mount").args(["-o", "remount,size=4g"]).arg(&self.0))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a process that still has a file open there must not keep the folder from being removed.
        let _ = run(Command::new("umount").arg("--lazy").arg(&self.0));
    }
}

fn run(command: &mut Command) -> io::Result<()> {
    let output = command.output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

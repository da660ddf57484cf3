//! The names of files that we have not finished.
//!
//! Some file systems do not have files without a name, and a file can be replaced only by one with a name. So
//! a file may have a hidden name before it has its final one. A process that is killed leaves it there. It is
//! in the folder of the final name, which others may read: listings skip it.
//!
//! Where files without a name exist, a killed process leaves nothing.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

/// The beginning of a name for a moment.
const HIDDEN: &str = ".thalweg-";
/// The end of the name of an object that is being uploaded to a folder.
const PART: &str = ".part";
/// The number of hexadecimal digits in both kinds of names.
const DIGITS: usize = 16;

/// Returns a hidden name.
#[must_use]
pub fn hidden_name(number: u64) -> String {
    format!("{HIDDEN}{number:0DIGITS$x}")
}

/// True if a name is that of an object that is being uploaded to a folder: `.NAME.ID.part`.
#[must_use]
pub fn is_part(name: &str) -> bool {
    let Some(rest) = name.strip_prefix('.').and_then(|name| name.strip_suffix(PART)) else { return false };
    rest.rsplit_once('.').is_some_and(|(_, id)| is_number(id))
}

/// Creates a file without a name in a folder, with these permissions. Returns `None` if the file system has
/// no such files.
///
/// # Errors
/// Those of the folder.
pub fn unnamed(folder: &Path, mode: u32) -> io::Result<Option<File>> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::openat(CWD, folder, flags, Mode::from_raw_mode(mode)) {
        Ok(file) => Ok(Some(file.into())),
        // Some systems report an attempt to write to the folder itself.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Gives a file without a name its name.
///
/// # Errors
/// `AlreadyExists` if there is a file of that name.
pub fn link_unnamed(file: &File, to: &Path) -> io::Result<()> {
    let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::linkat(CWD, unnamed.as_str(), CWD, to, AtFlags::SYMLINK_FOLLOW)?)
}

/// True if a name is one that only files have which we did not finish.
#[must_use]
pub fn is_unfinished(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    name.strip_prefix(HIDDEN).is_some_and(is_number) || is_part(name)
}

fn is_number(text: &str) -> bool {
    text.len() == DIGITS && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_we_make_are_taken_for_unfinished() {
        for ours in [hidden_name(0).as_str(), hidden_name(u64::MAX).as_str(), ".b.c.0123456789abcdef.part"] {
            assert!(is_unfinished(OsStr::new(ours)), "{ours}");
        }
        for other in [
            "b.0123456789abcdef.part",
            ".b.0123456789abcde.part",
            ".b.0123456789abcdeF.part",
            ".b.part",
            "",
            ".thalweg",
            ".thalweg-",
            ".thalweg-0123456789abcdef0",
            ".thalweg-0123456789abcdeF",
            "thalweg-0123456789abcdef",
        ] {
            assert!(!is_unfinished(OsStr::new(other)), "{other}");
        }
    }
}

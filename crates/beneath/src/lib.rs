//! Files in folders that other users may write to.
//!
//! A source lists a folder, and opens later what it has found. Meanwhile another user of the folder can put a
//! link to a file that he may not read in the place of a file, or of a folder on its path. So a path is
//! checked by opening it: the kernel resolves it without links, and not above the folder. If the path has a
//! link that leads to a place in the folder, that place is opened in the same way.
//!
//! Rejected: comparing the inode of the opened file with the listed one. A log that was rotated in between
//! would be an error, and a folder in the path could still be another one.
//!
//! The path of the folder itself is the user's own choice, and may have links.
//!
//! Copies of such files have no further permissions than the files: see [`CopyOf`].

mod copied;
mod placing;

pub mod unfinished;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

pub use copied::{CopyOf, make_folder};
pub use placing::place_if_free;

/// Which symbolic links are followed below a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// None.
    Refused,
    /// Those that stay in the folder.
    Inside,
    /// All of them.
    Followed,
}

/// A folder that was listed. Its files are opened through it.
#[derive(Debug, Clone)]
pub struct Beneath {
    folder: Arc<Path>,
    links: Links,
    /// The open folder, if it is held. Clones share it.
    held: Option<Arc<OnceLock<OwnedFd>>>,
}

/// A name in a folder that is held open. So no other user can exchange a folder of its path.
#[derive(Debug)]
pub struct Place {
    folder: OwnedFd,
    name: OsString,
}

/// The error for a path that has a link which is not followed.
#[derive(Debug)]
struct LinkOut;

impl std::error::Error for LinkOut {}

impl std::fmt::Display for LinkOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "its path has a symbolic link that leads out of the folder that is read, or is not followed",
        )
    }
}

/// True if a path was not opened because it has a link that is not followed.
#[must_use]
pub fn is_link_out(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<LinkOut>())
}

impl Beneath {
    /// Creates the opener of what is found in a folder.
    #[must_use]
    pub fn new(folder: impl Into<Arc<Path>>, links: Links) -> Self {
        Self { folder: folder.into(), links, held: None }
    }

    /// Holds the folder open from the first file on, so that each file takes one call less. For the files of
    /// one listing: if the path later leads to another folder, files are still opened in the listed one.
    #[must_use]
    pub fn held(self) -> Self {
        Self { held: Some(Arc::default()), ..self }
    }

    /// Creates the opener of paths that a user has written. Such a path may have links.
    #[must_use]
    pub fn chosen() -> Self {
        Self::new(Path::new("/"), Links::Followed)
    }

    /// Returns the folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns which links are followed.
    #[must_use]
    pub fn links(&self) -> Links {
        self.links
    }

    /// Opens a file for reading. A pipe does not block.
    ///
    /// # Errors
    /// If it cannot be opened or is not a regular file; see also [`is_link_out`].
    pub fn open(&self, path: &Path) -> io::Result<File> {
        Ok(self.open_with_metadata(path)?.0)
    }

    /// Opens a file for reading, and returns the metadata that the check of its type needs anyway.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with_metadata(&self, path: &Path) -> io::Result<(File, Metadata)> {
        let file = File::from(self.opened(path, OFlags::RDONLY | OFlags::NONBLOCK)?);
        let metadata = file.metadata()?;
        match metadata.file_type() {
            found if found.is_file() => Ok((file, metadata)),
            found if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a pipe or a device, not a file")),
        }
    }

    /// Returns the metadata of a file, or of anything else, without opening it.
    ///
    /// # Errors
    /// If it does not exist; see also [`is_link_out`].
    pub fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        File::from(self.opened(path, OFlags::PATH)?).metadata()
    }

    /// Returns the place of a file, to remove or replace it. If the file is a link, it is the place of the
    /// link.
    ///
    /// # Errors
    /// If its folder does not exist; see also [`is_link_out`].
    pub fn place(&self, path: &Path) -> io::Result<Place> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        let parent = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        Ok(Place { folder: self.opened(parent, OFlags::PATH | OFlags::DIRECTORY)?, name })
    }

    /// Returns the place of the file that a path leads to, through links that are followed.
    ///
    /// # Errors
    /// As [`place`](Self::place), and if the file does not exist.
    pub fn resolved_place(&self, path: &Path) -> io::Result<Place> {
        self.metadata(path)?;
        let whole = fs::canonicalize(path)?;
        Self::new(fs::canonicalize(present(&self.folder))?, self.links).place(&whole)
    }

    fn opened(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        if self.links == Links::Followed {
            return Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?);
        }
        let Some(below) = below(path, &self.folder) else { return Err(link_out()) };
        match self.without_links(below, flags) {
            Err(Errno::LOOP) if self.links == Links::Inside => {}
            Err(Errno::LOOP | Errno::XDEV) => return Err(link_out()),
            opened => return Ok(opened?),
        }
        let (whole, folder) = (fs::canonicalize(path)?, fs::canonicalize(present(&self.folder))?);
        let Ok(below) = whole.strip_prefix(&folder) else { return Err(link_out()) };
        match without_links(open_folder(&folder)?.as_fd(), below, flags) {
            // Another link was put there meanwhile.
            Err(Errno::LOOP | Errno::XDEV) => Err(link_out()),
            opened => Ok(opened?),
        }
    }

    fn without_links(&self, below: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let Some(held) = &self.held else {
            return without_links(open_folder(&self.folder)?.as_fd(), below, flags);
        };
        let folder = match held.get() {
            Some(folder) => folder,
            // If two threads open the folder at once, one of the two is closed again.
            None => {
                let opened = open_folder(&self.folder)?;
                held.get_or_init(|| opened)
            }
        };
        without_links(folder.as_fd(), below, flags)
    }
}

impl Place {
    /// Returns a path that leads to the place while this value exists.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder_path().join(&self.name)
    }

    /// Returns a path that leads to its folder while this value exists.
    #[must_use]
    pub fn folder_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.folder.as_raw_fd()))
    }

    /// Returns the name in its folder.
    #[must_use]
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// Checks that there is something.
    ///
    /// # Errors
    /// If there is not.
    pub fn check(&self) -> io::Result<()> {
        rustix::fs::statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(())
    }

    /// Returns the metadata of the file, or of the file that the link leads to.
    ///
    /// # Errors
    /// If there is none.
    pub fn metadata(&self) -> io::Result<Metadata> {
        fs::metadata(self.path())
    }

    /// Removes the file, or the link.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove(&self) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::empty())?)
    }
}

fn link_out() -> io::Error {
    io::Error::other(LinkOut)
}

/// The path of a folder for the system, which does not take an empty one.
fn present(folder: &Path) -> &Path {
    if folder == Path::new("") { Path::new(".") } else { folder }
}

/// Returns a path relative to a folder that it is in. Paths found in the working directory may lack its `./`.
fn below<'p>(path: &'p Path, folder: &Path) -> Option<&'p Path> {
    let below = match path.strip_prefix(folder) {
        Ok(below) => below,
        Err(_) if present(folder) == Path::new(".") && path.is_relative() => path,
        Err(_) => return None,
    };
    below.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)).then_some(below)
}

/// Opens a folder to open files in it.
fn open_folder(folder: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, present(folder), flags, Mode::empty())
}

/// Opens what is at a path below a folder, if no part of the path is a link: [`Errno::LOOP`] otherwise.
fn without_links(folder: BorrowedFd<'_>, below: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    /// True after the kernel has said that it does not have the call (before Linux 5.6).
    static IS_OLD: AtomicBool = AtomicBool::new(false);
    let below = present(below);
    if !IS_OLD.load(Relaxed) {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match rustix::fs::openat2(folder, below, flags, Mode::empty(), resolve) {
            Err(Errno::NOSYS) => IS_OLD.store(true, Relaxed),
            // Also the answer of some sandboxes to calls that they do not know.
            Err(Errno::PERM) => {}
            opened => return opened,
        }
    }
    step_by_step(folder, below, flags)
}

/// Does the same with one call for each part of the path.
fn step_by_step(folder: BorrowedFd<'_>, below: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let of_folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut reached: Option<OwnedFd> = None;
    let mut parts = below.components().map(Component::as_os_str).peekable();
    while let Some(part) = parts.next() {
        let flags = if parts.peek().is_some() { of_folder } else { flags | OFlags::NOFOLLOW };
        let folder = reached.as_ref().map_or(folder, AsFd::as_fd);
        let opened = rustix::fs::openat(folder, part, flags, Mode::empty());
        let is_link = match &opened {
            // A link is no folder.
            Err(Errno::NOTDIR) => is_link(&rustix::fs::statat(folder, part, AtFlags::SYMLINK_NOFOLLOW)?),
            // With `PATH`, a link can be opened.
            Ok(opened) => flags.contains(OFlags::PATH) && is_link(&rustix::fs::fstat(opened.as_fd())?),
            Err(_) => false,
        };
        reached = Some(if is_link { Err(Errno::LOOP) } else { opened }?);
    }
    reached.ok_or(Errno::NOENT)
}

fn is_link(found: &rustix::fs::Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::Symlink
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A folder `in` with files, folders, and links to all kinds of places, beside a secret.
    fn inbox() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let inbox = folder.path().join("in");
        fs::create_dir_all(inbox.join("sub")).unwrap();
        fs::create_dir(folder.path().join("out")).unwrap();
        for (path, content) in [("in/a", "a"), ("in/sub/b", "b"), ("out/b", "secret")] {
            fs::write(folder.path().join(path), content).unwrap();
        }
        let out = folder.path().join("out");
        for (to, link) in [
            (Path::new("sub/b"), "inside"),
            (&inbox.join("a"), "absolute"),
            (Path::new("sub"), "folder"),
            (Path::new("../out/b"), "leaves"),
            (&out.join("b"), "leaves-too"),
            (&out, "away"),
            (Path::new("../in/a"), "returns"),
            (Path::new("none"), "broken"),
            (Path::new("loop"), "loop"),
        ] {
            symlink(to, inbox.join(link)).unwrap();
        }
        (folder, inbox)
    }

    fn read(beneath: &Beneath, path: &Path) -> String {
        match beneath.open(path) {
            Ok(mut file) => {
                let mut text = String::new();
                file.read_to_string(&mut text).unwrap();
                text
            }
            Err(error) if is_link_out(&error) => "link out".to_owned(),
            Err(error) => format!("{:?}", error.kind()),
        }
    }

    #[test]
    fn a_path_is_opened_as_far_as_its_links_are_followed() {
        let (_folder, inbox) = inbox();
        let all = |links| {
            let beneath = Beneath::new(inbox.as_path(), links);
            let names =
                ["a", "sub/b", "inside", "absolute", "folder/b", "returns", "leaves", "leaves-too", "away/b"];
            names.map(|name| read(&beneath, &inbox.join(name)))
        };
        let out = "link out";
        assert_eq!(all(Links::Refused), ["a", "b", out, out, out, out, out, out, out]);
        assert_eq!(all(Links::Inside), ["a", "b", "b", "a", "b", "a", out, out, out]);
        assert_eq!(all(Links::Followed), ["a", "b", "b", "a", "b", "a", "secret", "secret", "secret"]);
        let beneath = Beneath::new(inbox.as_path(), Links::Inside);
        assert_eq!(read(&beneath, &inbox.join("broken")), "NotFound");
        assert_eq!(read(&beneath, &inbox.join("none")), "NotFound");
        assert_eq!(read(&beneath, &inbox.join("loop")), "FilesystemLoop");
        assert_eq!(read(&beneath, &inbox.join("sub")), "IsADirectory");
        assert_eq!(read(&beneath, &inbox.join("../out/b")), out);
        assert_eq!(read(&beneath, Path::new("/etc/hostname")), out);
    }

    #[test]
    fn each_part_is_checked_where_the_kernel_cannot_check_the_whole() {
        let (_folder, inbox) = inbox();
        for flags in [OFlags::RDONLY, OFlags::PATH] {
            let opened = |name: &str| {
                let folder = File::open(&inbox).unwrap();
                step_by_step(folder.as_fd(), Path::new(name), flags | OFlags::CLOEXEC).map(drop)
            };
            for name in ["a", "sub/b", ".", "sub"] {
                assert_eq!(opened(name), Ok(()), "{name}");
            }
            for name in ["inside", "folder/b", "away/b", "leaves", "loop", "broken"] {
                assert_eq!(opened(name), Err(Errno::LOOP), "{name}");
            }
            assert_eq!((opened("none"), opened("a/b")), (Err(Errno::NOENT), Err(Errno::NOTDIR)));
        }
    }

    #[test]
    fn a_pipe_does_not_block() {
        let (_folder, inbox) = inbox();
        let pipe = inbox.join("pipe");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, 0o600.into(), 0).unwrap();
        for links in [Links::Inside, Links::Followed] {
            assert_eq!(read(&Beneath::new(inbox.as_path(), links), &pipe), "InvalidInput");
        }
    }

    #[test]
    fn a_place_stays_when_its_folder_is_exchanged_and_a_link_to_a_folder_is_none() {
        let (folder, inbox) = inbox();
        let beneath = Beneath::new(inbox.as_path(), Links::Inside);
        assert!(is_link_out(&beneath.place(&inbox.join("away/b")).unwrap_err()));
        let place = beneath.place(&inbox.join("sub/b")).unwrap();
        fs::rename(inbox.join("sub"), inbox.join("former")).unwrap();
        symlink(folder.path().join("out"), inbox.join("sub")).unwrap();
        assert_eq!(fs::read_to_string(place.path()).unwrap(), "b");
        place.check().unwrap();
        place.remove().unwrap();
        assert_eq!(place.check().unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(folder.path().join("out/b").exists() && !inbox.join("former/b").exists());
        // The link goes, not the file that it leads to.
        beneath.place(&inbox.join("absolute")).unwrap().remove().unwrap();
        assert!(inbox.join("a").exists() && !inbox.join("absolute").is_symlink());
        symlink(inbox.join("a"), inbox.join("absolute")).unwrap();
        assert_eq!(beneath.resolved_place(&inbox.join("absolute")).unwrap().name(), "a");
        assert!(is_link_out(&beneath.resolved_place(&inbox.join("leaves")).unwrap_err()));
    }

    #[test]
    fn a_held_folder_stays_when_its_path_leads_to_another_and_links_are_refused_all_the_same() {
        let (folder, inbox) = inbox();
        let once = Beneath::new(inbox.as_path(), Links::Inside);
        let held = once.clone().held();
        let names = ["a", "sub/b", "inside", "leaves", "away/b"];
        let expected = ["a", "b", "b", "link out", "link out"];
        assert_eq!(names.map(|name| read(&once, &inbox.join(name))), expected);
        assert_eq!(names.map(|name| read(&held, &inbox.join(name))), expected);
        fs::rename(&inbox, folder.path().join("former")).unwrap();
        fs::create_dir(&inbox).unwrap();
        fs::write(inbox.join("a"), "other").unwrap();
        assert_eq!(read(&once, &inbox.join("a")), "other");
        assert_eq!(["a", "sub/b"].map(|name| read(&held.clone(), &inbox.join(name))), ["a", "b"]);
    }

    #[test]
    fn files_of_the_working_directory_are_below_it() {
        for (path, folder, expected) in [
            ("x/y", "", Some("x/y")),
            ("./x", ".", Some("x")),
            ("x", ".", Some("x")),
            ("/x", ".", None),
            ("in/../x", "in", None),
            ("in", "in", Some("")),
        ] {
            assert_eq!(below(Path::new(path), Path::new(folder)), expected.map(Path::new), "{path} {folder}");
        }
    }
}

//! The initial content of a piece: what is kept of a file that earlier runs left.
//!
//! A run that continues another cuts the file to the length that is covered by the saved positions, because
//! the sources send everything after it again. Where they do not ([`Beyond::Whole`]), a cut would remove the
//! only copy of a message, so all whole messages stay.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;
use thalweg_codec::compress::Compression;

use super::ending::has_ending;
use super::names;
use super::piece::PieceOptions;
use super::recovering::recover;

/// The initial content of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beginning {
    /// Empty. A finished file of the same name stays until this piece is finished, and is then replaced if
    /// `replaces` is true.
    New { replaces: bool },
    /// Empty, with a name that no file has: it is created only if that is so.
    Free,
    /// The content of a finished file, or the whole messages of the unfinished file of an interrupted run.
    Append,
    /// The file of an earlier run that did not finish it, and saved this length as durable.
    Continue {
        length: u64,
        beyond: Beyond,
        /// The inode of the file, if it is known. A finished file with another inode is not this file, unless
        /// it is a copy.
        inode: Option<u64>,
        /// The checksum by which a copy of the file is known: see [`super::ending`].
        ending: Option<u64>,
    },
}

/// The treatment of the bytes of a continued file after the saved length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beyond {
    /// They are cut off: the sources send their messages again.
    Cut,
    /// Whole messages are kept: no source sends them again.
    Whole,
}

/// Finds out what to keep of the file of a piece.
pub(super) struct Opening<'a> {
    /// The final name of the piece.
    pub(super) path: &'a Path,
    /// Its present name.
    pub(super) now: PathBuf,
    pub(super) options: &'a PieceOptions,
}

impl Opening<'_> {
    /// Gives the file its present name, and returns the length to keep of it, or `None` for all of it.
    /// `exists` says whether there is a file with the final name.
    pub(super) fn prepare(&mut self, beginning: Beginning, exists: bool) -> io::Result<Option<u64>> {
        let there = |path: &Path| Ok::<_, io::Error>(self.options.atomic && is_there(path)?);
        let continued = names::continued(self.path);
        let (was_continued, was_new) = (there(&continued)?, there(&self.now)?);
        match beginning {
            Beginning::New { .. } => {
                if was_continued {
                    fs::rename(&continued, &self.now)?;
                }
                Ok(Some(0))
            }
            Beginning::Free if exists || was_continued => Err(io::ErrorKind::AlreadyExists.into()),
            Beginning::Free => Ok(Some(0)),
            Beginning::Append if exists => self.append(continued),
            Beginning::Append if was_continued => {
                self.now = continued;
                self.sound_length().map(Some)
            }
            Beginning::Append if was_new => self.sound_length().map(Some),
            Beginning::Append => Ok(Some(0)),
            Beginning::Continue { length, beyond, .. } if was_new || was_continued => {
                if was_continued {
                    self.now = continued;
                }
                self.kept(length, beyond).map(Some)
            }
            Beginning::Continue { length, beyond, inode, ending }
                if exists && (self.has_inode(inode) || has_ending(self.path, length, ending)) =>
            {
                self.take_back(continued)?;
                self.kept(length, beyond).map(Some)
            }
            Beginning::Continue { length, .. } => {
                if exists {
                    warn_other(self.path);
                } else if length > 0 {
                    warn_missing(self.path);
                }
                if exists { self.append(continued) } else { Ok(Some(0)) }
            }
        }
    }

    /// Appends to a finished file. It is complete; an unfinished file beside it is from a run that was
    /// replacing it.
    fn append(&mut self, continued: PathBuf) -> io::Result<Option<u64>> {
        self.take_back(continued)?;
        self.finished_length()
    }

    fn has_inode(&self, inode: Option<u64>) -> bool {
        inode.is_none_or(|inode| fs::metadata(self.path).is_ok_and(|found| found.ino() == inode))
    }

    /// Makes a finished file writable again, under its name of a continued file.
    fn take_back(&mut self, continued: PathBuf) -> io::Result<()> {
        if self.options.atomic {
            fs::rename(self.path, &continued)?;
            self.now = continued;
        }
        Ok(())
    }

    /// Returns the length to keep of an unfinished file of which `length` bytes are covered.
    fn kept(&self, length: u64, beyond: Beyond) -> io::Result<u64> {
        match beyond {
            Beyond::Whole => sound_length(&self.now, length, self.options),
            Beyond::Cut => Ok(length),
        }
    }

    /// Returns the length to keep of a finished file, or `None` for all of it. With `atomic: false` the last
    /// compressed member of the file may be torn, and appending to a torn member would make it unreadable.
    fn finished_length(&self) -> io::Result<Option<u64>> {
        let is_sure = self.options.atomic || self.options.compression == Compression::None;
        if is_sure { Ok(None) } else { self.sound_length().map(Some) }
    }

    fn sound_length(&self) -> io::Result<u64> {
        sound_length(&self.now, 0, self.options)
    }
}

/// Warns that messages are gone which no source sends again.
pub(super) fn warn_missing(path: &Path) {
    tracing::warn!(
        "the file of `{}` that this run should continue is missing: what it contained is not written again.",
        path.display()
    );
}

/// Warns that a file stays as it is, although the former run may have written it: as a copy of which nothing
/// tells it from a file of another program.
pub(super) fn warn_other(path: &Path) {
    tracing::warn!(
        "`{}` is not the file that the former run wrote, or is a copy that cannot be recognised: nothing is \
         removed from it, and messages since the last checkpoint may be written twice.",
        path.display()
    );
}

/// Returns the length of the whole messages in a file left by an interrupted run, of which the first `least`
/// bytes are known to be whole. Those of a torn compressed member get a whole one.
fn sound_length(path: &Path, least: u64, options: &PieceOptions) -> io::Result<u64> {
    let mut file = open_file(path, OpenOptions::new().read(true))?;
    let mut end = file.metadata()?.len();
    if end <= least {
        return Ok(least);
    }
    if options.compression != Compression::None {
        file.seek(SeekFrom::Start(least))?;
        let complete = least + options.compression.complete(file)?;
        return if complete < end { recover(path, complete, options) } else { Ok(complete) };
    }
    let delimiter = options.delimiter.as_slice();
    if delimiter.is_empty() {
        return Ok(end);
    }
    // Searches backwards in blocks that overlap by one byte less than a delimiter.
    let mut block = vec![0; 64 << 10];
    while end.saturating_sub(least) >= delimiter.len() as u64 {
        let length = (block.len() as u64).min(end - least);
        let start = end - length;
        let Some(piece) = block.get_mut(..usize::try_from(length).unwrap_or(0)) else { break };
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(piece)?;
        if let Some(at) = memchr::memmem::rfind(piece, delimiter) {
            return Ok(start + (at + delimiter.len()) as u64);
        }
        if start == least {
            break;
        }
        end = start + delimiter.len() as u64 - 1;
    }
    Ok(least)
}

/// Turns a `.continued.part` file back into the finished file of `length` bytes. It was left by a run that
/// was interrupted before it saved the length of its additions.
pub(super) fn restore(path: PathBuf, length: u64, beyond: Beyond, options: &PieceOptions) -> io::Result<()> {
    let path = target(path);
    let continued = names::continued(&path);
    if fs::symlink_metadata(&continued).is_err() || fs::symlink_metadata(&path).is_ok() {
        return Ok(());
    }
    let length = match beyond {
        Beyond::Cut => length,
        Beyond::Whole => sound_length(&continued, length, options)?,
    };
    let file = open_file(&continued, OpenOptions::new().append(true))?;
    if file.metadata()?.len() > length {
        file.set_len(length)?;
    }
    fs::rename(&continued, &path)
}

/// Opens a file of the sink. A link, or a pipe or device in its place, is an error that names it: opening a
/// pipe waits for its other end, also when the run is to stop.
pub(super) fn open_file(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = options.custom_flags(flags).open(path).map_err(|error| {
        let is_other = error.raw_os_error() == Some(Errno::NXIO.raw_os_error());
        if is_other || error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) {
            return not_a_file(path);
        }
        error
    })?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_a_file(path)) }
}

/// True if there is a file with this name. Another thing of this name is an error.
fn is_there(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => Ok(true),
        Ok(_) => Err(not_a_file(path)),
        Err(_) => Ok(false),
    }
}

/// The error for a name that something else than a file has.
pub(super) fn not_a_file(path: &Path) -> io::Error {
    let kind = match fs::symlink_metadata(path).map(|found| found.file_type()) {
        Ok(found) if found.is_symlink() => "a symbolic link",
        Ok(found) if found.is_dir() => "a folder",
        Ok(found) if found.is_fifo() => "a pipe",
        Ok(found) if found.is_socket() => "a socket",
        _ => "a device",
    };
    let text = format!("`{}` is {kind}, not a file: remove it, or choose another name", path.display());
    io::Error::new(io::ErrorKind::InvalidFilename, text)
}

/// Refuses links in the part of a path that comes from a message, below the folder `root`: they could lead
/// out of it.
pub(super) fn refuse_links(path: &Path, root: &Path) -> io::Result<()> {
    for part in path.ancestors().take_while(|part| *part != root && *part != Path::new("")) {
        if fs::symlink_metadata(part).is_ok_and(|found| found.is_symlink()) {
            return Err(not_a_file(part));
        }
    }
    Ok(())
}

/// Follows a link, so that its target is replaced and not the link itself.
pub(super) fn target(path: PathBuf) -> PathBuf {
    match fs::symlink_metadata(&path) {
        Ok(found) if found.is_symlink() => fs::canonicalize(&path).unwrap_or(path),
        _ => path,
    }
}

/// Creates a folder and its missing parents.
pub(super) fn create_folders(folder: &Path, mode: Option<u32>) -> io::Result<()> {
    let Some(mode) = mode else { return fs::create_dir_all(folder) };
    let new: Vec<&Path> =
        folder.ancestors().take_while(|folder| *folder != Path::new("") && !folder.exists()).collect();
    fs::create_dir_all(folder)?;
    // The deepest folder first: a folder without permission to enter would block access to those below it.
    new.into_iter().try_for_each(|folder| set_mode(&File::open(folder)?, mode))
}

/// Sets the permissions of a file or folder.
pub(super) fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    file.set_permissions(fs::Permissions::from_mode(mode))
}

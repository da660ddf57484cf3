//! Writing into a folder: a draft beside its target, which is renamed to the target when it is complete.
//!
//! A draft that a later process may resume has a hidden name. Other drafts have no name, if the file system
//! supports that: a killed process leaves nothing behind.
//!
//! See docs/decisions/035-a-file-has-no-name-until-it-is-complete.md.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, OFlags};
use thalweg_beneath::place_if_free;
use thalweg_beneath::unfinished::{is_part, link_unnamed, unnamed};

use super::spot::{Spot, sync_folder};
use super::{OnExisting, UploadedPart, Writing};

/// The maximum length of a file name on the usual file systems, in bytes.
const LONGEST_NAME: usize = 255;
const END: &str = ".part";
const ID_DIGITS: usize = 16;
/// How many bytes are read again at a time.
const BLOCK: usize = 1 << 20;

/// The smallest hole that is kept, in bytes.
const HOLE: usize = 64 << 10;

/// An open draft. Clones are the same draft.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    file: Arc<File>,
    /// The hidden name. A draft without a name has it for a moment, if it replaces a file.
    path: PathBuf,
    target: Spot,
    is_unnamed: bool,
    /// True if another process has written to it before. After a power cut, some of those writes may be
    /// missing.
    is_resumed: bool,
}

impl Draft {
    /// Creates the draft with this id, with the permissions of `writing`.
    pub(crate) fn create(target: &Spot, id: &str, writing: &Writing) -> io::Result<Self> {
        target.make_folder(writing.copy.as_deref())?;
        let path = path_of(target.path(), id)?;
        let file = Arc::new(target.with(|at| new_file(&path_of(at, id)?, writing))?);
        Ok(Self { file, path, target: target.clone(), is_unnamed: false, is_resumed: false })
    }

    /// Creates the draft of a file that is written at once, without a name if possible.
    pub(crate) fn create_whole(target: &Spot, writing: &Writing) -> io::Result<(Self, String)> {
        let id = id_of(target.path());
        let path = path_of(target.path(), &id)?;
        target.make_folder(writing.copy.as_deref())?;
        let unnamed = target.with(|at| {
            remove_left(&path_of(at, &id)?)?;
            let folder = at.parent().unwrap_or(at);
            unnamed(folder, mode_of(folder, writing))
        })?;
        let Some(file) = unnamed else { return Self::create_named(target, writing) };
        let (file, target) = (Arc::new(file), target.clone());
        // Another process may have a draft with the id of the target.
        Ok((Self { file, path, target, is_unnamed: true, is_resumed: false }, random_id()))
    }

    /// Creates a draft with a name. Its id belongs to the target, so the next write of the target finds and
    /// removes what a killed process left. A lock shows that the owner of a draft runs.
    pub(super) fn create_named(target: &Spot, writing: &Writing) -> io::Result<(Self, String)> {
        let id = id_of(target.path());
        let path = path_of(target.path(), &id)?;
        let created = target.with(|at| {
            let path = path_of(at, &id)?;
            Ok(new_file(&path, writing).ok().filter(|file| locks(file) && is_at(file, &path)))
        });
        match created? {
            Some(file) => {
                let (file, target) = (Arc::new(file), target.clone());
                Ok((Self { file, path, target, is_unnamed: false, is_resumed: false }, id))
            }
            // Another process writes the same target.
            None => {
                let id = random_id();
                Ok((Self::create(target, &id, writing)?, id))
            }
        }
    }

    /// Opens an existing draft; returns `None` if it does not exist.
    pub(crate) fn open(target: &Spot, id: &str) -> io::Result<Option<Self>> {
        let path = path_of(target.path(), id)?;
        let no_link = OFlags::NOFOLLOW.bits().cast_signed();
        let open = |path: &Path| OpenOptions::new().read(true).write(true).custom_flags(no_link).open(path);
        match target.with(|at| open(&path_of(at, id)?)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => {
                let file = Arc::new(opened?);
                Ok(Some(Self { file, path, target: target.clone(), is_unnamed: false, is_resumed: true }))
            }
        }
    }

    /// Writes bytes. Blocks of zeros become holes, so that a sparse file stays sparse.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut at = offset;
        for run in bytes.chunks(HOLE).collect::<Vec<_>>().chunk_by(|one, next| is_zero(one) == is_zero(next))
        {
            let length: usize = run.iter().map(|block| block.len()).sum();
            let from = usize::try_from(at - offset).unwrap_or(usize::MAX);
            let run = bytes.get(from..from + length).unwrap_or_default();
            if !is_zero(run) || !make_hole(&self.file, at, length as u64)? {
                self.file.write_all_at(run, at)?;
            }
            at += length as u64;
        }
        // A part of a removed draft must not count as written: no later run could find it.
        match self.file.metadata()?.nlink() {
            0 if !self.is_unnamed => {
                Err(io::Error::other("its draft was removed while it was being written"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the CRC-32C of the bytes in a range of the draft.
    pub(crate) fn crc32c(&self, range: Range<u64>) -> io::Result<u32> {
        crc32c_of(&self.file, range, &mut vec![0; BLOCK])
    }

    /// Puts the bytes onto the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Replaces the target by the draft, durably.
    pub(crate) fn complete(&self, parts: &[UploadedPart], on_existing: &OnExisting) -> io::Result<()> {
        self.target.with(|target| {
            let path = target.with_file_name(self.path.file_name().unwrap_or_default());
            let size = parts.iter().map(|part| part.size).sum::<u64>();
            let is_there = || std::fs::metadata(target).is_ok_and(|target| target.len() == size);
            // Otherwise this upload has completed it before.
            if !(self.was_completed(&path)? && is_there()) {
                self.check(parts, size)?;
                self.file.sync_all()?;
                self.move_to(target, &path, on_existing)?;
            }
            sync_folder(target)
        })
    }

    /// Checks that the draft consists of these parts.
    fn check(&self, parts: &[UploadedPart], size: u64) -> io::Result<()> {
        let mut found = self.file.metadata()?.len();
        if self.is_resumed && found > size {
            // A killed process wrote parts that it did not record.
            self.file.set_len(size)?;
            found = size;
        }
        if found != size {
            let why = format!("the draft has {found} bytes, and its parts have {size}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        if self.is_resumed
            && let Some(part) = first_other(&self.file, parts)?
        {
            let why = format!("the draft does not contain the bytes of part {part}: restart the upload");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(())
    }

    /// Gives the draft, which has the hidden name `path` or none, the name of the target.
    fn move_to(&self, target: &Path, path: &Path, on_existing: &OnExisting) -> io::Result<()> {
        match (self.is_unnamed, on_existing) {
            (true, OnExisting::Keep) => link_unnamed(&self.file, target),
            (true, _) => self.link_or_replace(target, path),
            (false, OnExisting::Keep) => place_if_free(path, target),
            (false, _) => std::fs::rename(path, target),
        }
    }

    /// True if the draft has the name of the target, or had it.
    fn was_completed(&self, path: &Path) -> io::Result<bool> {
        Ok(if self.is_unnamed { self.file.metadata()?.nlink() > 0 } else { !path.exists() })
    }

    /// Gives a draft without a name the name of the target. A link cannot replace a file, but a rename can:
    /// the draft gets a hidden name first, with a lock as in [`create_named`](Self::create_named).
    fn link_or_replace(&self, target: &Path, path: &Path) -> io::Result<()> {
        let is_taken = |linked: &io::Result<()>| {
            linked.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists)
        };
        let linked = link_unnamed(&self.file, target);
        if !is_taken(&linked) {
            return linked;
        }
        // Some file systems have no locks. Then a hidden name that a killed process leaves stays.
        let _ = locks(&self.file);
        let mut hidden = path.to_owned();
        let mut linked = link_unnamed(&self.file, &hidden);
        if is_taken(&linked) {
            hidden = path_of(target, &random_id())?;
            linked = link_unnamed(&self.file, &hidden);
        }
        linked?;
        let renamed = std::fs::rename(&hidden, target);
        if renamed.is_err() {
            // The error of the rename matters.
            let _ = std::fs::remove_file(&hidden);
        }
        renamed
    }
}

/// Returns an id that no other draft has. With 64 random bits, a second try is not worth its code.
pub(crate) fn random_id() -> String {
    format!("{:0ID_DIGITS$x}", fastrand::u64(..))
}

/// Returns the id that belongs to a target.
fn id_of(target: &Path) -> String {
    format!("{:0ID_DIGITS$x}", crc32c::crc32c(target.as_os_str().as_bytes()))
}

/// Removes the draft that a killed process left, unless another process writes it.
fn remove_left(path: &Path) -> io::Result<()> {
    match File::open(path) {
        Ok(left) if locks(&left) && is_at(&left, path) => std::fs::remove_file(path),
        _ => Ok(()),
    }
}

/// True if all bytes are zero.
fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Turns a range of a file into a hole, and makes the file at least as long. Returns false if the file system
/// has no holes.
#[cfg(target_os = "linux")]
fn make_hole(file: &File, offset: u64, length: u64) -> io::Result<bool> {
    use rustix::fs::{FallocateFlags, fallocate};
    if length < HOLE as u64 {
        return Ok(false);
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    if fallocate(file, flags, offset, length).is_err() {
        return Ok(false);
    }
    // Other parts are written at the same time, so the length must not be set.
    if file.metadata()?.len() < offset + length {
        file.write_all_at(&[0], offset + length - 1)?;
    }
    Ok(true)
}

/// Holes are not supported on this system.
#[cfg(not(target_os = "linux"))]
fn make_hole(_: &File, _: u64, _: u64) -> io::Result<bool> {
    Ok(false)
}

fn new_file(path: &Path, writing: &Writing) -> io::Result<File> {
    let mode = mode_of(path.parent().unwrap_or(path), writing);
    OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path)
}

/// Returns the permissions of a draft in a folder.
fn mode_of(folder: &Path, writing: &Writing) -> u32 {
    let mode = writing.mode.unwrap_or(0o666);
    let mode = writing.copy.as_ref().map_or(mode, |copy| copy.mode_in(folder, mode));
    // The owner may write: a later run may have to resume.
    mode & 0o066 | 0o600
}

/// Locks the file. Returns false if another process writes it. The lock ends with the open file.
fn locks(file: &File) -> bool {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// True if the path is still that of the open file: its owner may have given it another name since.
fn is_at(file: &File, path: &Path) -> bool {
    let same = |one: &Metadata, other: &Metadata| (one.dev(), one.ino()) == (other.dev(), other.ino());
    matches!((file.metadata(), std::fs::metadata(path)), (Ok(one), Ok(other)) if same(&one, &other))
}

/// True if a file consists of these parts.
pub(crate) fn is_of(target: &Spot, parts: &[UploadedPart]) -> io::Result<bool> {
    match target.with(|at| File::open(at)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        opened => {
            let file = opened?;
            let size = parts.iter().map(|part| part.size).sum::<u64>();
            Ok(file.metadata()?.len() == size && first_other(&file, parts)?.is_none())
        }
    }
}

/// Reads all parts again. Returns the number of the first part that the file does not contain.
fn first_other(file: &File, parts: &[UploadedPart]) -> io::Result<Option<u32>> {
    let mut buffer = vec![0; BLOCK];
    let mut position = 0;
    for part in parts {
        let end = position + part.size;
        if crc32c_of(file, position..end, &mut buffer)? != part.crc32c {
            return Ok(Some(part.number));
        }
        position = end;
    }
    Ok(None)
}

fn crc32c_of(file: &File, range: Range<u64>, buffer: &mut [u8]) -> io::Result<u32> {
    let (mut position, mut crc) = (range.start, 0);
    while position < range.end {
        let most = usize::try_from(range.end - position).unwrap_or(usize::MAX).min(buffer.len());
        let into = buffer.get_mut(..most).unwrap_or_default();
        file.read_exact_at(into, position)?;
        crc = crc32c::crc32c_append(crc, into);
        position += most as u64;
    }
    Ok(crc)
}

/// Removes a draft. It is no error if there is none, also where none can be: in a folder that is a file, or
/// on a file system that is read-only.
pub(crate) fn remove(target: &Spot, id: &str) -> io::Result<()> {
    let is_absent =
        |error: &io::Error| matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
    let removed = target.with(|at| {
        let path = path_of(at, id)?;
        let removed = std::fs::remove_file(&path);
        // A file system that is read-only says so before it looks for the file.
        if removed.is_err() {
            path.symlink_metadata()?;
        }
        removed
    });
    match removed {
        Err(error) if is_absent(&error) => Ok(()),
        removed => removed,
    }
}

/// Returns the path of a draft. An id from outside must not lead to another folder.
fn path_of(target: &Path, id: &str) -> io::Result<PathBuf> {
    let name = target.file_name().and_then(|name| name.to_str());
    let (Some(name), true) = (name, is_part(&format!("..{id}{END}"))) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "this is not the name of a file"));
    };
    let room = LONGEST_NAME - ID_DIGITS - END.len() - 2;
    let end = (0..=room.min(name.len())).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    Ok(target.with_file_name(format!(".{}.{id}{END}", name.get(..end).unwrap_or_default())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_become_holes_and_replace_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let target = Spot::new(folder.path().join("a"), None);
        let draft = Draft::create(&target, &random_id(), &Writing::default()).unwrap();
        let mut content = vec![0_u8; 4 << 20];
        draft.write(0, &content).unwrap();
        assert_eq!(draft.file.metadata().unwrap().len(), 4 << 20);
        content[2 << 20] = 7;
        content.extend(b"end");
        draft.write(0, &content).unwrap();
        let blocks = draft.file.metadata().unwrap().blocks();
        if cfg!(target_os = "linux") {
            assert!(blocks * 512 < 512 << 10, "{blocks} blocks");
        }
        let half = vec![0_u8; 1 << 20];
        draft.write(2 << 20, &half).unwrap();
        content[2 << 20] = 0;
        assert_eq!(std::fs::read(&draft.path).unwrap(), content);
    }

    #[test]
    fn a_part_of_a_draft_that_was_removed_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let target = Spot::new(folder.path().join("below/a"), None);
        let draft = Draft::create(&target, &random_id(), &Writing::default()).unwrap();
        draft.write(0, b"one").unwrap();
        std::fs::remove_dir_all(folder.path().join("below")).unwrap();
        let error = draft.write(3, b"two").unwrap_err();
        assert_eq!(error.to_string(), "its draft was removed while it was being written");
    }

    #[test]
    fn a_draft_is_known_by_its_name() {
        let path = path_of(Path::new("/a/b.c"), "0123456789abcdef").unwrap();
        assert_eq!(path, Path::new("/a/.b.c.0123456789abcdef.part"));
        assert!(is_part(path.file_name().and_then(|name| name.to_str()).unwrap()));
    }

    #[test]
    fn a_long_name_is_cut_between_letters() {
        let name = path_of(&Path::new("/").join("ä".repeat(127)), "0123456789abcdef").unwrap();
        assert!(name.file_name().unwrap().len() <= LONGEST_NAME);
    }
}

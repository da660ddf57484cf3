//! Writes one file.
//!
//! While it is being written, the file has one of two names. A new file is `NAME.part`: if the process is
//! killed, a run that receives the messages again may start it from scratch. A file that was finished before
//! and is continued is `NAME.continued.part`: no source sends its earlier messages again, so it must never be
//! started from scratch.

use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use chrono::{Local, NaiveDateTime};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::ending::ending;
use super::identity::Identity;
use super::names::{self, Names, Style};
use super::opening::{
    Beginning, Opening, create_folders, not_a_file, open_file, refuse_links, set_mode, target,
};
use thalweg_beneath::place_if_free;
use thalweg_codec::compress::{Compression, Encoder};
use thalweg_record::{Budget, Lease};
use thalweg_runtime::Failpoint;

/// How pieces are written, the same for all pieces of a sink.
#[derive(Debug, Clone)]
pub(super) struct PieceOptions {
    pub(super) compression: Compression,
    pub(super) level: Option<i32>,
    /// Whether a file is called `NAME.part` until it is finished.
    pub(super) atomic: bool,
    /// The permissions of new files.
    pub(super) mode: Option<u32>,
    /// The permissions of new folders.
    pub(super) folder_mode: Option<u32>,
    /// The naming scheme of the pieces.
    pub(super) style: Style,
    /// The bytes after each message.
    pub(super) delimiter: Vec<u8>,
    /// The memory of encoders is claimed from it.
    pub(super) budget: Budget,
    /// The constant folder of names that depend on messages. Below it no link is followed, and only files are
    /// written to.
    pub(super) root: Option<PathBuf>,
    /// The names that depend on messages.
    pub(super) names: Option<Names>,
}

pub(super) struct Piece {
    pub(super) number: Option<u32>,
    /// The time stamp beside the number in its name.
    pub(super) stamp: Option<String>,
    /// Its final name.
    path: PathBuf,
    /// Its present name.
    now: PathBuf,
    /// True if it may replace a finished file.
    replaces: bool,
    /// `None` while the file is suspended.
    file: Option<File>,
    /// A device or a pipe: it has no length and cannot be renamed.
    special: bool,
    length: u64,
    /// The file. `None` for a device or a pipe.
    identity: Option<Identity>,
    /// The checksum of its bytes up to a length: see [`super::ending`].
    ending: Cell<(u64, Option<u64>)>,
    /// The current member, and its share of the budget.
    encoder: Option<(Encoder, Lease)>,
    out: Vec<u8>,
    pub(super) begun: Instant,
    /// The same moment in local time.
    pub(super) begun_at: NaiveDateTime,
    pub(super) written: Instant,
    /// True if it has messages.
    pub(super) has_rows: bool,
    /// True if it has plain text of an earlier run, whose header was not looked at yet.
    is_continued: bool,
    /// True if some of it may not be on the disk yet.
    dirty: bool,
}

impl Piece {
    /// Creates a piece and opens its file.
    pub(super) fn begin(
        name: &str,
        number: Option<u32>,
        stamp: Option<String>,
        beginning: Beginning,
        options: &PieceOptions,
    ) -> io::Result<Self> {
        let path = options.style.path(name, number, stamp.as_deref());
        let path = match &options.root {
            Some(root) => refuse_links(&path, root).map(|()| path)?,
            None => target(path),
        };
        let existing = fs::metadata(&path).ok();
        let special = existing.as_ref().is_some_and(|found| !found.is_file() && !found.is_dir());
        if existing.as_ref().is_some_and(fs::Metadata::is_dir) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if special && options.root.is_some() {
            return Err(not_a_file(&path));
        }
        let now = if options.atomic && !special { names::part(&path) } else { path.clone() };
        let moment = Instant::now();
        let mut piece = Self {
            number,
            stamp,
            path,
            now,
            replaces: number.is_none() || beginning == (Beginning::New { replaces: true }),
            file: None,
            special,
            length: 0,
            identity: None,
            ending: Cell::default(),
            encoder: None,
            out: Vec::new(),
            begun: moment,
            begun_at: Local::now().naive_local(),
            written: moment,
            has_rows: false,
            is_continued: false,
            dirty: false,
        };
        if special {
            piece.file = Some(open_special(&piece.now)?);
            return Ok(piece);
        }
        create_folders(names::folder(&piece.path), options.folder_mode)?;
        let opened = piece.open(beginning, existing.is_some(), options);
        // Only a file that this call has created is removed.
        if opened.is_err() && beginning == Beginning::Free && piece.identity.is_some() {
            fs::remove_file(&piece.now)?;
        }
        opened.map(|()| piece)
    }

    fn open(&mut self, beginning: Beginning, exists: bool, options: &PieceOptions) -> io::Result<()> {
        let mut opening = Opening { path: &self.path, now: self.now.clone(), options };
        let keep = opening.prepare(beginning, exists)?;
        self.now = opening.now;
        // `append` makes every write go to the end of the file. It excludes `truncate`, hence `set_len`
        // below.
        let is_exclusive = beginning == Beginning::Free;
        let mut opening = OpenOptions::new();
        let file = open_file(&self.now, opening.append(true).create(true).create_new(is_exclusive))?;
        let metadata = file.metadata()?;
        self.identity = Some(Identity::of(&metadata));
        let found = metadata.len();
        let length = match keep {
            Some(keep) if keep < found => {
                Failpoint::TruncateBefore.check()?;
                file.set_len(keep)?;
                Failpoint::TruncateAfter.pass();
                keep
            }
            Some(keep) if keep > found => {
                tracing::warn!(
                    "`{}` has {found} bytes, but {keep} were written to it by a former run: the machine \
                     may have stopped before they were on disk.",
                    self.now.display()
                );
                found
            }
            _ => found,
        };
        if let (Some(mode), 0) = (options.mode, length) {
            set_mode(&file, mode)?;
        }
        self.file = Some(file);
        self.length = length;
        self.has_rows = length > 0;
        self.is_continued = length > 0 && options.compression == Compression::None;
        Ok(())
    }

    /// True once for a file that has plain text of an earlier run.
    pub(super) fn take_continued(&mut self) -> bool {
        std::mem::take(&mut self.is_continued)
    }

    /// Its present name.
    pub(super) fn now(&self) -> &Path {
        &self.now
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Its length in bytes, including the bytes not written yet.
    pub(super) fn length(&self) -> u64 {
        self.length + self.out.len() as u64
    }

    /// Its file, which a later run knows again under any name.
    pub(super) fn identity(&self) -> Option<Identity> {
        self.identity
    }

    /// Returns the checksum of its bytes, by which a later run knows a copy of the file. `None` if the file
    /// is too short, cannot be read or was moved away, or some bytes are not written yet.
    pub(super) fn ending(&self) -> Option<u64> {
        if self.special || self.owes() {
            return None;
        }
        let (length, known) = self.ending.get();
        if length == self.length {
            return known;
        }
        // Another program may have moved the file away, and created one with its name.
        let is_own =
            |file: &File| file.metadata().is_ok_and(|found| self.identity == Some(Identity::of(&found)));
        let file = open_file(&self.now, OpenOptions::new().read(true)).ok().filter(is_own);
        let found = file.and_then(|file| ending(&file, self.length).ok().flatten());
        self.ending.set((self.length, found));
        found
    }

    /// True if nothing was ever written to it.
    pub(super) fn is_empty(&self) -> bool {
        self.length() == 0 && self.encoder.is_none()
    }

    /// True if it is a device or a pipe, whose state cannot be saved.
    pub(super) fn is_special(&self) -> bool {
        self.special
    }

    /// True if some compressed data is not written yet.
    pub(super) fn owes(&self) -> bool {
        self.encoder.is_some() || !self.out.is_empty()
    }

    /// True if it has an encoder, which takes much memory.
    pub(super) fn has_encoder(&self) -> bool {
        self.encoder.is_some()
    }

    /// True if some of it may not be on the disk yet.
    pub(super) fn is_dirty(&self) -> bool {
        self.dirty && !self.special
    }

    /// Notes that all of it is on the disk.
    pub(super) fn note_synced(&mut self) {
        self.dirty = false;
    }

    /// True if its file was removed while it was being written, so that nothing that is written to it can be
    /// found again.
    pub(super) fn is_removed(&self) -> bool {
        let metadata = self.file.as_ref().and_then(|file| file.metadata().ok());
        !self.special && metadata.is_some_and(|metadata| metadata.nlink() == 0)
    }

    /// Opens the file again, if it was closed temporarily.
    pub(super) fn resume(&mut self) -> io::Result<()> {
        self.file().map(drop)
    }

    fn file(&mut self) -> io::Result<&mut File> {
        let file = match self.file.take() {
            Some(file) => file,
            None => open_file(&self.now, OpenOptions::new().append(true))?,
        };
        Ok(self.file.insert(file))
    }

    /// Returns the writer for messages, which compresses them if the sink is configured so.
    pub(super) fn writer(&mut self, options: &PieceOptions) -> io::Result<PieceWriter<'_>> {
        if self.encoder.is_none()
            && let Some(encoder) = options.compression.begin(options.level)?
        {
            let lease = options.budget.claim(options.compression.encoder_memory(options.level));
            self.encoder = Some((encoder, lease));
        }
        self.written = Instant::now();
        Ok(PieceWriter(self))
    }

    /// Cuts the file to its first `length` bytes.
    pub(super) fn truncate(&mut self, length: u64) -> io::Result<()> {
        if !self.special {
            self.file()?.set_len(length)?;
            self.length = length;
            // Other bytes may be written up to the same length.
            self.ending.take();
            self.has_rows = length > 0;
        }
        Ok(())
    }

    /// Writes the compressed data that is available. Bytes that cannot be written are kept for the next call.
    pub(super) fn drain(&mut self) -> io::Result<()> {
        if let Some((encoder, _)) = &mut self.encoder {
            encoder.take(&mut self.out);
        }
        let mut done = 0;
        let mut result = Ok(());
        while let Some(rest) = self.out.get(done..).filter(|rest| !rest.is_empty()) {
            // The borrow of `out` must end before the file can be reopened.
            let file = match &mut self.file {
                Some(file) => file,
                None => match open_file(&self.now, OpenOptions::new().append(true)) {
                    Ok(file) => self.file.insert(file),
                    Err(error) => {
                        result = Err(error);
                        break;
                    }
                },
            };
            match file.write(rest) {
                Ok(0) => result = Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => done += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => result = Err(error),
            }
            if result.is_err() {
                break;
            }
        }
        self.dirty |= done > 0;
        self.length += done as u64;
        self.out.drain(..done);
        result
    }

    /// Ends the compressed member and writes all pending data.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if let Some((encoder, _lease)) = self.encoder.take() {
            encoder.end(&mut self.out)?;
        }
        self.drain()
    }

    /// Waits until all data is on the disk.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.dirty && !self.special {
            self.file()?.sync_all()?;
            self.dirty = false;
        }
        Ok(())
    }

    /// Closes the file temporarily.
    pub(super) fn suspend(&mut self) {
        if !self.special {
            self.file = None;
        }
    }

    /// Renames the file to its final name. The caller has flushed it.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.suspend();
        if self.now == self.path {
            return Ok(());
        }
        Failpoint::RenameBefore.check()?;
        let renamed = match self.replaces {
            true => fs::rename(&self.now, &self.path),
            false => place_if_free(&self.now, &self.path),
        };
        if let Err(error) = renamed {
            // Another name of this run may have turned the path into a folder: `a` and `a/b`.
            if error.kind() != io::ErrorKind::IsADirectory {
                return Err(error);
            }
            let name = self.path.to_string_lossy().into_owned();
            let style = Style::default();
            let path = style.path(&name, Some(style.last(&name)? + 1), None);
            tracing::warn!("`{name}` has become a folder: the file is called `{}`.", path.display());
            place_if_free(&self.now, &path)?;
            self.path = path;
        }
        self.now.clone_from(&self.path);
        Failpoint::RenameAfter.pass();
        Ok(())
    }

    /// Gives the piece another name, for when it is finished. The caller has chosen a free one.
    pub(super) fn renumber(&mut self, number: u32, path: PathBuf) {
        self.number = Some(number);
        self.path = path;
    }

    /// Removes the file.
    pub(super) fn discard(self) -> io::Result<()> {
        if self.special { Ok(()) } else { fs::remove_file(&self.now) }
    }
}

/// Opens a device or a pipe. Opening a pipe that no program reads would wait for ever, also when the run is
/// to stop; the engine tries a temporary error again instead.
fn open_special(path: &Path) -> io::Result<File> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new().write(true).custom_flags(flags).open(path).map_err(|error| match error
        .raw_os_error()
    {
        Some(code) if code == Errno::NXIO.raw_os_error() => {
            io::Error::new(io::ErrorKind::WouldBlock, "no program reads this pipe yet")
        }
        _ => error,
    })?;
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags.difference(OFlags::NONBLOCK))?;
    Ok(file)
}

/// Writes to a piece's file, or to its encoder, whose output stays in memory.
pub(super) struct PieceWriter<'a>(&'a mut Piece);

impl Write for PieceWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = &mut *self.0;
        if let Some((encoder, _)) = &mut piece.encoder {
            return encoder.write(bytes);
        }
        let written = piece.file()?.write(bytes)?;
        piece.length += written as u64;
        piece.dirty = true;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

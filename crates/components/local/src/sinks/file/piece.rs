//! One file being written.
//!
//! While it is written it has one of two names. A new one is `NAME.part`: if the process is killed, a run that
//! gets its messages again may begin it anew. One that continues a file which was finished before is
//! `NAME.continued.part`: it has what nobody will send again, so nobody may begin it anew.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use chrono::{Local, NaiveDateTime};

use super::names::{self, Style};
use thalweg_codec::compress::{Compression, Encoder};

/// How pieces are written, the same for all of a sink.
#[derive(Debug, Clone)]
pub(super) struct PieceOptions {
    pub(super) compression: Compression,
    pub(super) level: Option<i32>,
    /// Whether a file is called `NAME.part` until it is finished.
    pub(super) atomic: bool,
    /// Permissions of new files.
    pub(super) mode: Option<u32>,
    /// Permissions of new folders.
    pub(super) folder_mode: Option<u32>,
    /// How pieces are called.
    pub(super) style: Style,
    /// What ends a message.
    pub(super) delimiter: Vec<u8>,
}

/// How a piece begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beginning {
    /// Empty. A finished file of its name stays until this one is finished.
    New,
    /// After what a finished file has, or what a run that broke off left, unless all of that is `resent`.
    Append { resent: bool },
    /// After the first bytes of what a former run wrote, which has put down that many as safe.
    /// Whether it had finished the file as well.
    Continue { length: u64, finished: bool },
}

pub(super) struct Piece {
    pub(super) number: Option<u32>,
    /// What stands beside the number in its name.
    pub(super) stamp: Option<String>,
    /// Its name when it is finished.
    path: PathBuf,
    /// Its name now.
    now: PathBuf,
    /// None while it is suspended.
    file: Option<File>,
    /// A device or a pipe: it has no length and cannot be renamed.
    special: bool,
    length: u64,
    encoder: Option<Encoder>,
    out: Vec<u8>,
    pub(super) begun: Instant,
    /// The same, on the clock on the wall.
    pub(super) begun_at: NaiveDateTime,
    pub(super) written: Instant,
    /// Whether it has messages.
    pub(super) has_rows: bool,
    /// Whether the disk may not have all of it yet.
    dirty: bool,
}

impl Piece {
    /// Begins it; the file is open then.
    pub(super) fn begin(
        name: &str,
        number: Option<u32>,
        stamp: Option<String>,
        beginning: Beginning,
        manner: &PieceOptions,
    ) -> io::Result<Self> {
        let path = target(manner.style.path(name, number, stamp.as_deref()));
        let existing = fs::metadata(&path).ok();
        let special = existing.as_ref().is_some_and(|found| !found.is_file() && !found.is_dir());
        if existing.as_ref().is_some_and(fs::Metadata::is_dir) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let now = if manner.atomic && !special { names::part(&path) } else { path.clone() };
        let moment = Instant::now();
        let mut piece = Self {
            number,
            stamp,
            path,
            now,
            file: None,
            special,
            length: 0,
            encoder: None,
            out: Vec::new(),
            begun: moment,
            begun_at: Local::now().naive_local(),
            written: moment,
            has_rows: false,
            dirty: false,
        };
        if special {
            piece.file = Some(OpenOptions::new().write(true).open(&piece.now)?);
            return Ok(piece);
        }
        create_folders(names::folder(&piece.path), manner.folder_mode)?;
        piece.open(beginning, existing.is_some(), manner)?;
        Ok(piece)
    }

    fn open(&mut self, beginning: Beginning, exists: bool, manner: &PieceOptions) -> io::Result<()> {
        let there = |path: &Path| manner.atomic && fs::symlink_metadata(path).is_ok();
        let continued = names::continued(&self.path);
        let (was_continued, was_new) = (there(&continued), there(&self.now));
        let keep = match beginning {
            Beginning::New => {
                if was_continued {
                    fs::rename(&continued, &self.now)?;
                }
                Some(0)
            }
            // A finished file is all there is: an unfinished one beside it is of a run that was to replace it.
            Beginning::Append { .. } if exists => {
                self.take_back(continued, manner)?;
                self.finished_length(manner)?
            }
            Beginning::Append { .. } if was_continued => {
                self.now = continued;
                Some(self.sound_length(manner)?)
            }
            Beginning::Append { resent: false } if was_new => Some(self.sound_length(manner)?),
            Beginning::Append { .. } => Some(0),
            Beginning::Continue { length, .. } if was_new || was_continued => {
                if was_continued {
                    self.now = continued;
                }
                Some(length)
            }
            Beginning::Continue { length, finished } if exists => {
                self.take_back(continued, manner)?;
                // What was added to a finished file was not added by us.
                if finished { self.finished_length(manner)? } else { Some(length) }
            }
            Beginning::Continue { length, finished } => {
                if length > 0 && !finished {
                    tracing::warn!(
                        "`{}`, which this run was to continue, is gone: it begins again empty.",
                        self.path.display()
                    );
                }
                Some(0)
            }
        };
        let mut options = OpenOptions::new();
        // Not `truncate`: that would need no `append`, which is what makes every write go to the end.
        let file = options.append(true).create(true).open(&self.now)?;
        let found = file.metadata()?.len();
        let length = match keep {
            Some(keep) if keep < found => {
                file.set_len(keep)?;
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
        if let (Some(mode), 0) = (manner.mode, length) {
            set_mode(&file, mode)?;
        }
        self.file = Some(file);
        self.length = length;
        self.has_rows = length > 0;
        Ok(())
    }

    /// Takes a finished file back, to be written again.
    fn take_back(&mut self, continued: PathBuf, manner: &PieceOptions) -> io::Result<()> {
        if manner.atomic {
            fs::rename(&self.path, &continued)?;
            self.now = continued;
        }
        Ok(())
    }

    /// How much of a finished file to keep, if not all. One that was written under its own name may have been
    /// torn off all the same; what is added to a torn member could not be read.
    fn finished_length(&self, manner: &PieceOptions) -> io::Result<Option<u64>> {
        let is_sure = manner.atomic || manner.compression == Compression::None;
        if is_sure { Ok(None) } else { self.sound_length(manner).map(Some) }
    }

    /// How much of a file left by a run that broke off is whole messages.
    fn sound_length(&self, manner: &PieceOptions) -> io::Result<u64> {
        let mut file = File::open(&self.now)?;
        if manner.compression != Compression::None {
            return manner.compression.complete(file);
        }
        let mut end = file.metadata()?.len();
        let delimiter = manner.delimiter.as_slice();
        if delimiter.is_empty() {
            return Ok(end);
        }
        // Backwards in blocks that overlap by a delimiter less one byte.
        let mut block = vec![0; 64 << 10];
        while end >= delimiter.len() as u64 {
            let length = (block.len() as u64).min(end);
            let start = end - length;
            let Some(piece) = block.get_mut(..usize::try_from(length).unwrap_or(0)) else { break };
            file.seek(SeekFrom::Start(start))?;
            file.read_exact(piece)?;
            if let Some(at) = memchr::memmem::rfind(piece, delimiter) {
                return Ok(start + (at + delimiter.len()) as u64);
            }
            if start == 0 {
                break;
            }
            end = start + delimiter.len() as u64 - 1;
        }
        Ok(0)
    }

    /// Its name now.
    pub(super) fn now(&self) -> &Path {
        &self.now
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The bytes in it, with those that are still to be written.
    pub(super) fn length(&self) -> u64 {
        self.length + self.out.len() as u64
    }

    /// Whether nothing was ever written to it.
    pub(super) fn is_empty(&self) -> bool {
        self.length() == 0 && self.encoder.is_none()
    }

    /// Whether it is one whose state can be kept.
    pub(super) fn is_special(&self) -> bool {
        self.special
    }

    /// Whether something is compressed but not written.
    pub(super) fn owes(&self) -> bool {
        self.encoder.is_some() || !self.out.is_empty()
    }

    fn file(&mut self) -> io::Result<&mut File> {
        let file = match self.file.take() {
            Some(file) => file,
            None => OpenOptions::new().append(true).open(&self.now)?,
        };
        Ok(self.file.insert(file))
    }

    /// What to write messages to, which compresses them if they are to be.
    pub(super) fn writer(&mut self, manner: &PieceOptions) -> io::Result<PieceWriter<'_>> {
        if self.encoder.is_none() {
            self.encoder = manner.compression.begin(manner.level)?;
        }
        self.written = Instant::now();
        Ok(PieceWriter(self))
    }

    /// Takes back what was written after the first `length` bytes.
    pub(super) fn truncate(&mut self, length: u64) -> io::Result<()> {
        if !self.special {
            self.file()?.set_len(length)?;
            self.length = length;
            self.has_rows = length > 0;
        }
        Ok(())
    }

    /// Writes what is compressed by now. What could not be written is kept for the next time.
    pub(super) fn drain(&mut self) -> io::Result<()> {
        if let Some(encoder) = &mut self.encoder {
            encoder.take(&mut self.out);
        }
        let mut done = 0;
        let mut result = Ok(());
        while let Some(rest) = self.out.get(done..).filter(|rest| !rest.is_empty()) {
            // The borrow of `out` must end before the file can be reopened.
            let file = match &mut self.file {
                Some(file) => file,
                None => match OpenOptions::new().append(true).open(&self.now) {
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

    /// Ends the compressed member and writes all there is.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if let Some(encoder) = self.encoder.take() {
            encoder.end(&mut self.out)?;
        }
        self.drain()
    }

    /// Waits until the disk has it.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.dirty && !self.special {
            self.file()?.sync_all()?;
            self.dirty = false;
        }
        Ok(())
    }

    /// Closes the file for now.
    pub(super) fn suspend(&mut self) {
        if !self.special {
            self.file = None;
        }
    }

    /// Gives it its name. It was flushed before.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.suspend();
        if self.now == self.path {
            return Ok(());
        }
        if let Err(error) = fs::rename(&self.now, &self.path) {
            // Another name of this run may have made a folder of it: `a` and `a/b`.
            if error.kind() != io::ErrorKind::IsADirectory {
                return Err(error);
            }
            let name = self.path.to_string_lossy().into_owned();
            let style = Style::default();
            let path = style.path(&name, Some(style.last(&name)? + 1), None);
            tracing::warn!("`{name}` has become a folder: the file is called `{}`.", path.display());
            fs::rename(&self.now, &path)?;
            self.path = path;
        }
        self.now.clone_from(&self.path);
        Ok(())
    }

    /// Removes it.
    pub(super) fn discard(self) -> io::Result<()> {
        if self.special { Ok(()) } else { fs::remove_file(&self.now) }
    }
}

/// A link is followed, so that the file that it points to is replaced and not the link.
fn target(path: PathBuf) -> PathBuf {
    match fs::symlink_metadata(&path) {
        Ok(found) if found.is_symlink() => fs::canonicalize(&path).unwrap_or(path),
        _ => path,
    }
}

/// Makes a finished file again of one that a run continued and broke off, before that run had put down
/// anything of what it added.
pub(super) fn restore(path: PathBuf, length: u64) -> io::Result<()> {
    let path = target(path);
    let continued = names::continued(&path);
    if fs::symlink_metadata(&continued).is_err() || fs::symlink_metadata(&path).is_ok() {
        return Ok(());
    }
    let file = OpenOptions::new().append(true).open(&continued)?;
    if file.metadata()?.len() > length {
        file.set_len(length)?;
    }
    fs::rename(&continued, &path)
}

/// Makes a folder and those that it is in, as far as they are not there.
fn create_folders(folder: &Path, mode: Option<u32>) -> io::Result<()> {
    let Some(mode) = mode else { return fs::create_dir_all(folder) };
    let new: Vec<&Path> =
        folder.ancestors().take_while(|folder| *folder != Path::new("") && !folder.exists()).collect();
    fs::create_dir_all(folder)?;
    // The deepest first: nothing can be changed below one that may not be entered.
    new.into_iter().try_for_each(|folder| set_mode(&File::open(folder)?, mode))
}

#[cfg(unix)]
fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(fs::Permissions::from_mode(mode))
}

#[cfg(not(unix))]
fn set_mode(_: &File, _: u32) -> io::Result<()> {
    Ok(())
}

/// Writes to a piece's file, or to its encoder, whose output stays in memory.
pub(super) struct PieceWriter<'a>(&'a mut Piece);

impl Write for PieceWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = &mut *self.0;
        if let Some(encoder) = &mut piece.encoder {
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

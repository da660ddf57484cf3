//! Writes one file.
//!
//! While it is being written, the file has one of two names. A new file is `NAME.part`: if the process is
//! killed, a run that receives the messages again may start it from scratch. A file that was finished before
//! and is continued is `NAME.continued.part`: no source sends its earlier messages again, so it must never be
//! started from scratch.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use chrono::{Local, NaiveDateTime};

use super::names::{self, Style};
use thalweg_codec::compress::{Compression, Encoder};

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
}

/// The initial content of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beginning {
    /// Empty. A finished file of the same name stays until this piece is finished.
    New,
    /// The content of a finished file, or of the unfinished file of an interrupted run. If `resent` is true,
    /// the sources send the messages of such a `.part` file again, so its content is dropped.
    Append { resent: bool },
    /// The first `length` bytes of a file from an earlier run, which saved this length as durable. `finished`
    /// is true if that run also finished the file.
    Continue { length: u64, finished: bool },
}

pub(super) struct Piece {
    pub(super) number: Option<u32>,
    /// The time stamp beside the number in its name.
    pub(super) stamp: Option<String>,
    /// Its final name.
    path: PathBuf,
    /// Its present name.
    now: PathBuf,
    /// `None` while the file is suspended.
    file: Option<File>,
    /// A device or a pipe: it has no length and cannot be renamed.
    special: bool,
    length: u64,
    encoder: Option<Encoder>,
    out: Vec<u8>,
    pub(super) begun: Instant,
    /// The same moment in local time.
    pub(super) begun_at: NaiveDateTime,
    pub(super) written: Instant,
    /// True if it has messages.
    pub(super) has_rows: bool,
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
        let path = target(options.style.path(name, number, stamp.as_deref()));
        let existing = fs::metadata(&path).ok();
        let special = existing.as_ref().is_some_and(|found| !found.is_file() && !found.is_dir());
        if existing.as_ref().is_some_and(fs::Metadata::is_dir) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let now = if options.atomic && !special { names::part(&path) } else { path.clone() };
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
        create_folders(names::folder(&piece.path), options.folder_mode)?;
        piece.open(beginning, existing.is_some(), options)?;
        Ok(piece)
    }

    fn open(&mut self, beginning: Beginning, exists: bool, options: &PieceOptions) -> io::Result<()> {
        let there = |path: &Path| options.atomic && fs::symlink_metadata(path).is_ok();
        let continued = names::continued(&self.path);
        let (was_continued, was_new) = (there(&continued), there(&self.now));
        let keep = match beginning {
            Beginning::New => {
                if was_continued {
                    fs::rename(&continued, &self.now)?;
                }
                Some(0)
            }
            // A finished file is complete. An unfinished file beside it is from a run that was replacing it.
            Beginning::Append { .. } if exists => {
                self.take_back(continued, options)?;
                self.finished_length(options)?
            }
            Beginning::Append { .. } if was_continued => {
                self.now = continued;
                Some(self.sound_length(options)?)
            }
            Beginning::Append { resent: false } if was_new => Some(self.sound_length(options)?),
            Beginning::Append { .. } => Some(0),
            Beginning::Continue { length, .. } if was_new || was_continued => {
                if was_continued {
                    self.now = continued;
                }
                Some(length)
            }
            Beginning::Continue { length, finished } if exists => {
                self.take_back(continued, options)?;
                // A finished file was complete: any additional bytes were written by another program.
                if finished { self.finished_length(options)? } else { Some(length) }
            }
            Beginning::Continue { length, finished } => {
                if length > 0 && !finished {
                    tracing::warn!(
                        "`{}`, which this run should continue, is missing: it is created again, empty.",
                        self.path.display()
                    );
                }
                Some(0)
            }
        };
        let mut open = OpenOptions::new();
        // `append` makes every write go to the end of the file. It excludes `truncate`, hence `set_len`
        // below.
        let file = open.append(true).create(true).open(&self.now)?;
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
        if let (Some(mode), 0) = (options.mode, length) {
            set_mode(&file, mode)?;
        }
        self.file = Some(file);
        self.length = length;
        self.has_rows = length > 0;
        Ok(())
    }

    /// Makes a finished file writable again, under its name of a continued file.
    fn take_back(&mut self, continued: PathBuf, options: &PieceOptions) -> io::Result<()> {
        if options.atomic {
            fs::rename(&self.path, &continued)?;
            self.now = continued;
        }
        Ok(())
    }

    /// Returns the length to keep of a finished file, or `None` for all of it. With `atomic: false` the last
    /// compressed member of the file may be torn, and appending to a torn member would make it unreadable.
    fn finished_length(&self, options: &PieceOptions) -> io::Result<Option<u64>> {
        let is_sure = options.atomic || options.compression == Compression::None;
        if is_sure { Ok(None) } else { self.sound_length(options).map(Some) }
    }

    /// Returns the number of bytes of whole messages in a file left by an interrupted run.
    fn sound_length(&self, options: &PieceOptions) -> io::Result<u64> {
        let mut file = File::open(&self.now)?;
        if options.compression != Compression::None {
            return options.compression.complete(file);
        }
        let mut end = file.metadata()?.len();
        let delimiter = options.delimiter.as_slice();
        if delimiter.is_empty() {
            return Ok(end);
        }
        // Searches backwards in blocks that overlap by one byte less than a delimiter.
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

    fn file(&mut self) -> io::Result<&mut File> {
        let file = match self.file.take() {
            Some(file) => file,
            None => OpenOptions::new().append(true).open(&self.now)?,
        };
        Ok(self.file.insert(file))
    }

    /// Returns the writer for messages, which compresses them if the sink is configured so.
    pub(super) fn writer(&mut self, options: &PieceOptions) -> io::Result<PieceWriter<'_>> {
        if self.encoder.is_none() {
            self.encoder = options.compression.begin(options.level)?;
        }
        self.written = Instant::now();
        Ok(PieceWriter(self))
    }

    /// Cuts the file to its first `length` bytes.
    pub(super) fn truncate(&mut self, length: u64) -> io::Result<()> {
        if !self.special {
            self.file()?.set_len(length)?;
            self.length = length;
            self.has_rows = length > 0;
        }
        Ok(())
    }

    /// Writes the compressed data that is available. Bytes that cannot be written are kept for the next call.
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

    /// Ends the compressed member and writes all pending data.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if let Some(encoder) = self.encoder.take() {
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
        if let Err(error) = fs::rename(&self.now, &self.path) {
            // Another name of this run may have turned the path into a folder: `a` and `a/b`.
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

    /// Removes the file.
    pub(super) fn discard(self) -> io::Result<()> {
        if self.special { Ok(()) } else { fs::remove_file(&self.now) }
    }
}

/// Follows a link, so that its target is replaced and not the link itself.
fn target(path: PathBuf) -> PathBuf {
    match fs::symlink_metadata(&path) {
        Ok(found) if found.is_symlink() => fs::canonicalize(&path).unwrap_or(path),
        _ => path,
    }
}

/// Turns a `.continued.part` file back into the finished file of `length` bytes. It was left by a run that
/// was interrupted before it saved the length of its additions.
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

/// Creates a folder and its missing parents.
fn create_folders(folder: &Path, mode: Option<u32>) -> io::Result<()> {
    let Some(mode) = mode else { return fs::create_dir_all(folder) };
    let new: Vec<&Path> =
        folder.ancestors().take_while(|folder| *folder != Path::new("") && !folder.exists()).collect();
    fs::create_dir_all(folder)?;
    // The deepest folder first: a folder without permission to enter would block access to those below it.
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

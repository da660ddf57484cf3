//! Reads the bytes of a file on an edge, wherever they are stored.
//!
//! See docs/decisions/031-remote-files-are-read-like-local-ones.md.

use std::fs;
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_buffer::Buffer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use thalweg_beneath::Place;
use thalweg_engine::{Error, ErrorKind, FileError, SourceOutput, Temporaries};
use thalweg_record::{Content, File, FileState, OpenContent, Origin, ReadRanges, Temporary};

use thalweg_stream::io_error::io_error;

/// An open file, ready to be read.
pub enum Opened {
    /// A file of the file system.
    File(fs::File),
    /// A buffer in memory.
    Memory(Cursor<InMemory>),
    /// Remote content that is fetched as it is read.
    Ranges(Ranged),
    /// The standard input, which is read once.
    Stream(Stream),
}

/// The path of the standard input, as the content of a file. It may be a pipe, so it has no known size and is
/// read once. Only readers that go through it once may get such a file.
pub const STDIN: &str = "/dev/stdin";

/// A file that cannot be read at a position, such as a pipe.
pub struct Stream {
    /// Bytes that were read, and will be read again.
    front: Vec<u8>,
    /// How many of them were read again.
    taken: usize,
    file: fs::File,
    /// The output of the run that ends a wait for bytes when it stops.
    run: Option<Box<SourceOutput>>,
}

/// The time after which a wait for bytes looks whether the run stops.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

impl Stream {
    fn new(file: fs::File) -> Self {
        Self { front: Vec::new(), taken: 0, file, run: None }
    }

    /// Waits for bytes or the end. Returns false if the run stops first. (Rejected: a thread that reads, as
    /// that of the source `stdin`. Each byte would be copied once more.)
    fn wait(&self) -> io::Result<bool> {
        let Some(run) = &self.run else { return Ok(true) };
        while !run.is_stopping() {
            match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&LOOK)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }

    fn read_more(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.wait()? { self.file.read(into) } else { Ok(0) }
    }

    /// Returns the first bytes. They stay to be read.
    fn head(&mut self, most: usize) -> io::Result<Vec<u8>> {
        while self.front.len() < most {
            let mut piece = vec![0; most - self.front.len()];
            match self.read_more(&mut piece) {
                Ok(0) => break,
                Ok(read) => self.front.extend_from_slice(piece.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.front.get(..most).unwrap_or(&self.front).to_vec())
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut front = self.front.get(self.taken..).unwrap_or_default();
        if front.is_empty() {
            return self.read_more(into);
        }
        let read = front.read(into)?;
        self.taken += read;
        Ok(read)
    }
}

/// A read position in content that is read in ranges. The content fetches pieces that are worth a request.
pub struct Ranged {
    ranges: Arc<dyn ReadRanges>,
    position: u64,
}

/// A buffer that a cursor can read.
pub struct InMemory(Buffer);

impl AsRef<[u8]> for InMemory {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Opens a file at its beginning.
///
/// # Errors
/// A rejection with the reason, for example that the file no longer exists.
pub fn open(file: &File) -> Result<Opened, FileError> {
    match file.content() {
        Content::Path(path) if path == Path::new(STDIN) => {
            let stdin = fs::File::open(path).map_err(|error| unreadable(&error))?;
            Ok(Opened::Stream(Stream::new(stdin)))
        }
        Content::Path(path) => open_found(file, path).map(Opened::File),
        Content::Temporary(temporary) => open_path(temporary.path()),
        Content::Memory(buffer) => Ok(Opened::Memory(Cursor::new(InMemory(buffer.clone())))),
        Content::Ranges(ranges) => Ok(Opened::Ranges(Ranged { ranges: ranges.clone(), position: 0 })),
    }
}

/// Opens a file of the file system, unless it is open, and keeps it open for the next transforms that only
/// read. Other content stays as it is.
///
/// # Errors
/// As [`open`].
pub fn keep_open(file: &mut File) -> Result<(), FileError> {
    if file.open_content().is_some() {
        return Ok(());
    }
    let opened = match file.content() {
        Content::Path(path) => file.origin().opening(path).open_with_metadata(path),
        Content::Temporary(temporary) => fs::File::open(temporary.path()).and_then(|file| {
            let metadata = file.metadata()?;
            Ok((file, metadata))
        }),
        Content::Memory(_) | Content::Ranges(_) => return Ok(()),
    };
    let (opened, metadata) = opened.map_err(|error| unreadable(&error))?;
    file.keep_open(OpenContent { file: opened, metadata });
    Ok(())
}

/// Returns the size of a file in bytes. Of content that is open, it is that of the moment when it was opened.
///
/// # Errors
/// As [`open`].
pub fn size(file: &mut File) -> Result<u64, FileError> {
    keep_open(file)?;
    match file.open_content() {
        Some(open) => Ok(open.metadata.len()),
        None => open(file)?.size().map_err(|error| unreadable(&error)),
    }
}

/// Returns the first `most` bytes of a file, or all of a shorter one.
///
/// # Errors
/// As [`open`].
pub fn head(file: &File, most: usize) -> Result<Vec<u8>, FileError> {
    let head = match file.open_content() {
        Some(open) => head_of(open, most),
        None => open(file)?.head(most),
    };
    head.map_err(|error| unreadable(&error))
}

fn head_of(open: &OpenContent, most: usize) -> io::Result<Vec<u8>> {
    // Some file systems say of files with content that they are empty.
    let size = usize::try_from(open.metadata.len()).ok().filter(|&size| size > 0);
    let mut head = vec![0; size.unwrap_or(most).min(most)];
    let filled = fill(&open.file, &mut head)?;
    head.truncate(filled);
    Ok(head)
}

/// Fills `into` with the first bytes of a file, whose position stays. Returns their number, which is less
/// only if the file is shorter.
///
/// # Errors
/// If the file cannot be read.
pub fn fill(from: &fs::File, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(free) = into.get_mut(filled..).filter(|free| !free.is_empty()) {
        match from.read_at(free, filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Opens the content of a file at a path. No link is followed that its source would not follow.
///
/// # Errors
/// As [`open`].
pub fn open_found(file: &File, path: &Path) -> Result<fs::File, FileError> {
    file.origin().opening(path).open(path).map_err(|error| unreadable(&error))
}

/// Opens a file at a path of our own.
///
/// # Errors
/// As [`open`].
pub fn open_path(path: &Path) -> Result<Opened, FileError> {
    let opened = fs::File::open(path).map_err(|error| unreadable(&error))?;
    Ok(Opened::File(opened))
}

/// A file of the file system as it was found, to notice that it grows.
pub struct AsFound(Option<(PathBuf, u64)>);

impl AsFound {
    /// Returns the path and the size that the source found.
    pub fn of(file: &File) -> Self {
        Self(match file.content() {
            Content::Path(path) if path != Path::new(STDIN) => Some((path.clone(), file.origin().size)),
            _ => None,
        })
    }

    /// Warns if the file, which was read to its end, has become larger since it was found.
    pub fn warn_if_grown(&self) {
        if let Some((path, size)) = &self.0 {
            self.warn_if_larger(fs::metadata(path).map_or(*size, |found| found.len()));
        }
    }

    /// Warns if this many bytes, which were read to the end of the file, are more than it had when it was
    /// found.
    pub fn warn_if_larger(&self, now: u64) {
        let Some((path, size)) = &self.0 else { return };
        if now > *size {
            tracing::warn!(
                "`{}` grew while it was read, from {size} to {now} bytes: a program still writes to it, and its end \
                 may be torn. Set `min_age` of the source `files` to more than the longest pause of that program",
                path.display()
            );
        }
    }
}

/// True if the file at a path is no longer the one that its source found: it was replaced, or changed by
/// others. False if it is not known how the file was found.
pub fn is_other(origin: &Origin, path: &Path, place: &Place) -> bool {
    origin.path.as_deref() == Some(path)
        && origin
            .state()
            .is_some_and(|known| place.metadata().ok().is_none_or(|found| FileState::of(&found) != known))
}

/// Creates a temporary file for a new version of a file. It gets the extension of `name`, because some
/// programs depend on it.
///
/// # Errors
/// A failure of the run, because the file itself is valid.
pub fn temporary_for(name: &Path, temporary: &Temporaries) -> Result<(fs::File, Arc<Temporary>), FileError> {
    temporary.create(&suffix_of(name)).map_err(|error| unwritable(&error))
}

/// Returns the extension of a name with its dot. Returns nothing unless the extension is at most 16 ASCII
/// letters and digits.
pub fn suffix_of(name: &Path) -> String {
    let usual = |extension: &&str| {
        extension.len() <= 16 && extension.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    let extension = name.extension().and_then(|extension| extension.to_str()).filter(usual);
    extension.map(|extension| format!(".{extension}")).unwrap_or_default()
}

/// Returns the error for a temporary file that cannot be written. Temporary errors are retried. The file is
/// never rejected for it.
pub fn unwritable(error: &io::Error) -> FileError {
    let message =
        format!("cannot write a temporary file: {error}. The option `temporary` names their folder.");
    FileError::Failed(match io_error("write", "", error).kind() {
        ErrorKind::Permanent => Error::permanent(message),
        _ => Error::temporary(message),
    })
}

/// Makes sure that a file has a path: content in memory or on a server is written to a temporary file.
///
/// # Errors
/// If the content cannot be read, or the temporary file cannot be written.
pub fn put_on_disk(file: &mut File, temporary: &Temporaries) -> Result<(), FileError> {
    if let Content::Path(_) | Content::Temporary(_) = file.content() {
        return Ok(());
    }
    let mut from = open(file)?;
    let (mut written, held) = temporary_for(Path::new(file.name()), temporary)?;
    let size = copy(&mut from, &mut written, unwritable)?;
    let mime = file.mime().cloned();
    file.set_content(Content::Temporary(held), size);
    if let Some(mime) = mime {
        file.set_mime(mime);
    }
    Ok(())
}

/// Returns the rejection of a file that cannot be read.
pub fn unreadable(error: &io::Error) -> FileError {
    let why = match error.kind() {
        io::ErrorKind::NotFound => "it is no longer there".to_owned(),
        _ => error.to_string(),
    };
    FileError::coded("FILE_CAN_NOT_BE_OPENED", format!("the file cannot be read: {why}"))
}

/// Copies everything that is left to read, and returns the number of bytes. `unwritable` creates the error
/// for a failed write.
///
/// # Errors
/// A rejection of the file if reading fails, or the error from `unwritable` if writing fails.
pub fn copy(
    from: &mut impl Read,
    to: &mut impl Write,
    unwritable: impl Fn(&io::Error) -> FileError,
) -> Result<u64, FileError> {
    let mut piece = vec![0; 64 << 10];
    let mut copied = 0;
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(copied),
            Ok(read) => {
                to.write_all(piece.get(..read).unwrap_or_default()).map_err(|error| unwritable(&error))?;
                copied += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(&error)),
        }
    }
}

impl Opened {
    /// Ends a wait for the standard input when the run stops, as if the input had ended there. Other content
    /// is always read to its end.
    #[must_use]
    pub fn ended_with(self, out: &SourceOutput) -> Self {
        match self {
            Opened::Stream(stream) => Opened::Stream(Stream { run: Some(Box::new(out.clone())), ..stream }),
            other => other,
        }
    }

    /// Returns the current size in bytes.
    ///
    /// # Errors
    /// If the system does not report it.
    pub fn size(&self) -> io::Result<u64> {
        match self {
            Opened::File(file) => Ok(file.metadata()?.len()),
            Opened::Memory(memory) => Ok(memory.get_ref().as_ref().len() as u64),
            Opened::Ranges(ranged) => Ok(ranged.ranges.length()),
            Opened::Stream(stream) => Ok(stream.file.metadata()?.len()),
        }
    }

    /// Reads up to `most` bytes from the beginning, and rewinds.
    ///
    /// # Errors
    /// If the bytes cannot be read.
    pub fn head(&mut self, most: usize) -> io::Result<Vec<u8>> {
        if let Opened::Stream(stream) = self {
            return stream.head(most);
        }
        let mut head = Vec::with_capacity(most);
        self.by_ref().take(most as u64).read_to_end(&mut head)?;
        self.rewind()?;
        Ok(head)
    }
}

impl Read for Opened {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Opened::File(file) => file.read(into),
            Opened::Memory(memory) => memory.read(into),
            Opened::Ranges(ranged) => {
                let read = ranged.ranges.read_at(ranged.position, into)?;
                ranged.position += read as u64;
                Ok(read)
            }
            Opened::Stream(stream) => stream.read(into),
        }
    }
}

impl Seek for Opened {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            Opened::File(file) => file.seek(to),
            Opened::Memory(memory) => memory.seek(to),
            Opened::Ranges(ranged) => {
                let position = match to {
                    SeekFrom::Start(position) => Some(position),
                    SeekFrom::Current(by) => ranged.position.checked_add_signed(by),
                    SeekFrom::End(by) => ranged.ranges.length().checked_add_signed(by),
                };
                ranged.position = position.ok_or(io::ErrorKind::InvalidInput)?;
                Ok(ranged.position)
            }
            // Nothing was read of it yet.
            Opened::Stream(_) if to == SeekFrom::Start(0) => Ok(0),
            Opened::Stream(_) => Err(io::ErrorKind::NotSeekable.into()),
        }
    }
}

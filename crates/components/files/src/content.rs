//! The bytes of a file on its way, wherever they are.

use std::fs;
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use arrow_buffer::Buffer;
use thalweg_engine::{Error, ErrorKind, FileError, Temporaries};
use thalweg_record::{Content, File, ReadRanges, Temporary};

use thalweg_stream::io_error::io_error;

/// What a file is read from.
pub enum Opened {
    /// A file of the system's.
    File(fs::File),
    /// Memory.
    Memory(Cursor<InMemory>),
    /// What is fetched as it is read.
    Ranges(Ranged),
}

/// A place in something that is read in ranges. What is read is asked for in pieces that are worth a request.
pub struct Ranged {
    ranges: Arc<dyn ReadRanges>,
    position: u64,
}

/// A buffer, as what a cursor can move over.
pub struct InMemory(Buffer);

impl AsRef<[u8]> for InMemory {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Opens a file to read it from its beginning.
///
/// # Errors
/// A rejection that says why it cannot be read: it has gone, say.
pub fn open(file: &File) -> Result<Opened, FileError> {
    match file.content() {
        Content::Path(path) => open_path(path),
        Content::Temporary(temporary) => open_path(temporary.path()),
        Content::Memory(buffer) => Ok(Opened::Memory(Cursor::new(InMemory(buffer.clone())))),
        Content::Ranges(ranges) => Ok(Opened::Ranges(Ranged { ranges: ranges.clone(), position: 0 })),
    }
}

/// Opens a file at a path.
///
/// # Errors
/// As [`open`].
pub fn open_path(path: &Path) -> Result<Opened, FileError> {
    let opened = fs::File::open(path).map_err(|error| unreadable(&error))?;
    Ok(Opened::File(opened))
}

/// A new temporary file for what becomes of a file, with the extension of its name: there are programs that go by it.
///
/// # Errors
/// A failure: it is not the file's fault.
pub fn temporary_for(name: &Path, temporary: &Temporaries) -> Result<(fs::File, Arc<Temporary>), FileError> {
    temporary.create(&suffix_of(name)).map_err(|error| unwritable(&error))
}

/// The extension of a name with its dot, if it is a usual one.
pub fn suffix_of(name: &Path) -> String {
    let usual = |extension: &&str| {
        extension.len() <= 16 && extension.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    let extension = name.extension().and_then(|extension| extension.to_str()).filter(usual);
    extension.map(|extension| format!(".{extension}")).unwrap_or_default()
}

/// Why a temporary file cannot be written. What can pass is tried again; it is never the file's fault.
pub fn unwritable(error: &io::Error) -> FileError {
    let message = format!(
        "cannot write a temporary file: {error}. `temporary` in the configuration says where they are."
    );
    FileError::Failed(match io_error("write", "", error).kind() {
        ErrorKind::Permanent => Error::permanent(message),
        _ => Error::temporary(message),
    })
}

/// Sees to it that the file has a path: one in memory is written to a temporary file.
///
/// # Errors
/// If that cannot be written.
pub fn put_on_disk(file: &mut File, temporary: &Temporaries) -> Result<(), FileError> {
    let Content::Memory(buffer) = file.content() else { return Ok(()) };
    let (mut written, held) = temporary_for(Path::new(file.name()), temporary)?;
    io::Write::write_all(&mut written, buffer).map_err(|error| unwritable(&error))?;
    let (size, mime) = (buffer.len() as u64, file.mime().cloned());
    file.set_content(Content::Temporary(held), size);
    if let Some(mime) = mime {
        file.set_mime(mime);
    }
    Ok(())
}

/// Why a file cannot be read.
pub fn unreadable(error: &io::Error) -> FileError {
    let why = match error.kind() {
        io::ErrorKind::NotFound => "it is no longer there".to_owned(),
        _ => error.to_string(),
    };
    FileError::coded("FILE_CAN_NOT_BE_OPENED", format!("the file cannot be read: {why}"))
}

/// Copies what is left to read; gives how many bytes that were. `unwritable` says what is told if they cannot be written.
///
/// # Errors
/// That they cannot be read, which is the file's fault, or what `unwritable` makes of it.
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
    /// How many bytes it has now.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn size(&self) -> io::Result<u64> {
        match self {
            Opened::File(file) => Ok(file.metadata()?.len()),
            Opened::Memory(memory) => Ok(memory.get_ref().as_ref().len() as u64),
            Opened::Ranges(ranged) => Ok(ranged.ranges.length()),
        }
    }

    /// Reads at most so many of the first bytes.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn head(&mut self, most: usize) -> io::Result<Vec<u8>> {
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
        }
    }
}

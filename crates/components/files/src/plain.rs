//! The bytes of a file on its way, decompressed, in pieces as large as the budget allows.

use std::io::{self, ErrorKind, Read, Seek, SeekFrom};

use arrow_buffer::Buffer;
use thalweg_engine::FileError;
use thalweg_record::{Content, File};

use crate::ahead::Ahead;
use crate::content::{Opened, open, unreadable};
use thalweg_codec::decompress::{Compression, Damage, Decoder};
use thalweg_stream::arenas::Arenas;
use thalweg_stream::taker::Taker;

/// How many of the first bytes tell how a file is compressed.
const TELLING: usize = 4;

/// Reads a file from its beginning to its end.
pub struct Plain {
    from: From,
    /// What was read but not used.
    carry: Vec<u8>,
    /// Why reading came to an early end.
    failure: Option<io::Error>,
    is_end: bool,
}

enum From {
    Plain(Opened),
    Packed(Box<Decoder<Opened>>),
    /// What is fetched in parts, many of them at the same time.
    Ahead(Box<Ahead>),
    /// The same, while it is not known whether it is compressed.
    Untold(Box<Ahead>, Opened),
    Nothing,
}

impl Plain {
    /// Opens a file that is compressed so, and passes over so many of its plain bytes. `budget` is the memory of the whole
    /// process, in bytes.
    ///
    /// # Errors
    /// A rejection that says why it cannot be read.
    pub fn open(file: &File, compression: Compression, from: u64, budget: usize) -> Result<Self, FileError> {
        let mut opened = open(file)?;
        if let (Content::Ranges(ranges), Compression::Auto, 0) = (file.content(), compression, from)
            && ranges.pace().slice.is_none_or(|slice| slice >= TELLING)
        {
            // Its first slice tells, so that it is not asked for twice.
            let ahead = Ahead::new(ranges.clone(), 0, budget);
            return Ok(Self::reading(From::Untold(Box::new(ahead), opened)));
        }
        let head = match compression {
            Compression::Auto => opened.head(TELLING).map_err(|error| unreadable(&error))?,
            _ => Vec::new(),
        };
        Ok(Self::reading(match (compression.of(&head).flatten(), file.content()) {
            (Some(format), _) => {
                let mut decoder = Decoder::new(format, opened);
                let passed = io::copy(&mut decoder.by_ref().take(from), &mut io::sink());
                passed.map_err(|error| unreadable(&error))?;
                From::Packed(Box::new(decoder))
            }
            (None, Content::Ranges(ranges)) => {
                From::Ahead(Box::new(Ahead::new(ranges.clone(), from, budget)))
            }
            (None, _) => {
                opened.seek(SeekFrom::Start(from)).map_err(|error| unreadable(&error))?;
                From::Plain(opened)
            }
        }))
    }

    fn reading(from: From) -> Self {
        Self { from, carry: Vec::new(), failure: None, is_end: false }
    }

    /// The bytes that were not used, and more after them. Waits until the budget has room.
    pub async fn more(&mut self, arenas: &mut Arenas, out: &impl Taker) -> Buffer {
        if let Some(buffer) = self.slice(out).await {
            return buffer;
        }
        let mut arena = arenas.take(self.carry.len(), out).await;
        let mut filled = self.carry.len();
        if let Some(front) = arena.get_mut(..filled) {
            front.copy_from_slice(&self.carry);
        }
        self.carry.clear();
        while let Some(free) = arena.get_mut(filled..).filter(|free| !free.is_empty()) {
            match self.read(free) {
                Ok(0) => {
                    self.is_end = true;
                    break;
                }
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failure = Some(error);
                    break;
                }
            }
        }
        arenas.freeze(arena, filled)
    }

    /// The next slice, where it comes in slices.
    async fn slice(&mut self, out: &impl Taker) -> Option<Buffer> {
        let (From::Ahead(ahead) | From::Untold(ahead, _)) = &mut self.from else { return None };
        let more = ahead.more(&self.carry, out).await;
        self.carry.clear();
        self.is_end = ahead.is_end();
        let buffer = more.unwrap_or_else(|error| {
            self.failure = Some(error);
            Buffer::from_vec(Vec::<u8>::new())
        });
        if !matches!(self.from, From::Untold(..)) {
            return Some(buffer);
        }
        let From::Untold(ahead, opened) = std::mem::replace(&mut self.from, From::Nothing) else {
            return None;
        };
        match Compression::Auto.of(buffer.get(..TELLING).unwrap_or(&buffer)).flatten() {
            None => {
                self.from = From::Ahead(ahead);
                Some(buffer)
            }
            // What comes in slices is of no use then: what they unpack to may be of any size.
            Some(format) => {
                self.is_end = false;
                self.from = From::Packed(Box::new(Decoder::new(format, opened)));
                None
            }
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.from {
            From::Plain(opened) => opened.read(into),
            From::Packed(decoder) => decoder.read(into),
            // Its slices are taken as they are.
            From::Ahead(_) | From::Untold(..) | From::Nothing => Ok(0),
        }
    }

    /// Whether what [`more`](Self::more) gave last is the end of the file.
    pub fn is_end(&self) -> bool {
        self.is_end
    }

    /// Keeps what was not used for the next piece.
    pub fn carry(&mut self, rest: &[u8]) {
        self.carry.extend_from_slice(rest);
    }

    /// Why the file cannot be read on, if that is so.
    ///
    /// # Errors
    /// A rejection that says it.
    pub fn check(&self) -> Result<(), FileError> {
        let Some(error) = &self.failure else { return Ok(()) };
        let why = Damage::of(error).map_or_else(|| error.to_string(), ToString::to_string);
        Err(FileError::rejected(format!(
            "the file cannot be read to its end: {why}. The messages before that were sent on."
        )))
    }
}

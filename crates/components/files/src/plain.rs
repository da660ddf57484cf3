//! Reads a file's bytes, decompressed, in pieces as large as the budget allows.

use std::io::{self, ErrorKind, Read, Seek, SeekFrom};

use arrow_buffer::Buffer;
use thalweg_engine::FileError;
use thalweg_record::{Content, File};

use crate::ahead::Ahead;
use crate::content::{AsFound, Opened, open, unreadable};
use thalweg_codec::decompress::{Compression, Damage, Decoder};
use thalweg_engine::SourceOutput;
use thalweg_stream::arenas::Arenas;

/// The number of leading bytes that identify the compression format.
const TELLING: usize = 4;

/// Reads a file from a position to its end.
pub struct Plain {
    from: From,
    /// Bytes that were read but not used.
    carry: Vec<u8>,
    /// The error that ended reading early.
    failure: Option<io::Error>,
    is_end: bool,
    as_found: AsFound,
}

enum From {
    Plain(Opened),
    Packed(Box<Decoder<Opened>>),
    /// Fetches slices in parallel.
    Ahead(Box<Ahead>),
    /// Like `Ahead`, while the compression is unknown.
    Undetected(Box<Ahead>, Opened),
    Nothing,
}

impl Plain {
    /// Opens a file with this compression, and skips `from` of its decompressed bytes. `budget` is the memory
    /// of the whole process, in bytes. If the run of `out` stops, the standard input ends.
    ///
    /// # Errors
    /// A rejection with the reason why the file cannot be read.
    pub fn open(
        file: &File,
        compression: Compression,
        from: u64,
        budget: usize,
        out: &SourceOutput,
    ) -> Result<Self, FileError> {
        let mut opened = open(file)?.ended_with(out);
        if let (Content::Ranges(ranges), Compression::Auto, 0) = (file.content(), compression, from)
            && ranges.pace().slice.is_none_or(|slice| slice >= TELLING)
        {
            // The first slice shows the compression, so that no extra request is needed.
            let ahead = Ahead::new(ranges.clone(), 0, budget);
            return Ok(Self::reading(From::Undetected(Box::new(ahead), opened), file));
        }
        let head = match compression {
            Compression::Auto => opened.head(TELLING).map_err(|error| unreadable(&error))?,
            _ => Vec::new(),
        };
        let reader = match (compression.of(&head).flatten(), file.content()) {
            (Some(format), _) => {
                let mut decoder = Decoder::new(format, opened).within(budget);
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
        };
        Ok(Self::reading(reader, file))
    }

    fn reading(from: From, file: &File) -> Self {
        let as_found = AsFound::of(file);
        Self { from, carry: Vec::new(), failure: None, is_end: false, as_found }
    }

    /// Returns the unused bytes, followed by more. Waits until the budget has capacity.
    pub async fn more(&mut self, arenas: &mut Arenas, out: &SourceOutput) -> Buffer {
        if matches!(self.from, From::Ahead(_) | From::Undetected(..)) {
            // A share that holds memory may have to wait for more until others return theirs. Waiting for a
            // slice while holding an arena for something else might never end.
            arenas.clear();
        }
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
                    self.as_found.warn_if_grown();
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
        let buffer = arenas.freeze(arena, filled);
        if self.is_end || self.failure.is_some() {
            // Another worker of the same share may wait for memory until this one returns all of its own.
            arenas.clear();
        }
        buffer
    }

    /// Returns the next slice, if the content is read in slices.
    async fn slice(&mut self, out: &SourceOutput) -> Option<Buffer> {
        let (From::Ahead(ahead) | From::Undetected(ahead, _)) = &mut self.from else { return None };
        let buffer = match ahead.more(&self.carry, out).await {
            Ok(buffer) => buffer,
            // The reader has already searched the unused bytes, so they must stay in the buffer.
            Err(error) => {
                self.failure = Some(error);
                Buffer::from(self.carry.as_slice())
            }
        };
        self.carry.clear();
        self.is_end = ahead.is_end();
        if !matches!(self.from, From::Undetected(..)) {
            return Some(buffer);
        }
        let From::Undetected(ahead, opened) = std::mem::replace(&mut self.from, From::Nothing) else {
            return None;
        };
        match Compression::Auto.of(buffer.get(..TELLING).unwrap_or(&buffer)).flatten() {
            None => {
                self.from = From::Ahead(ahead);
                Some(buffer)
            }
            // Drops the slices: decompressed, one may have any size. Decompression reads the content in
            // sequence.
            Some(format) => {
                self.is_end = false;
                self.from =
                    From::Packed(Box::new(Decoder::new(format, opened).within(out.share().budget().limit())));
                None
            }
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.from {
            From::Plain(opened) => opened.read(into),
            From::Packed(decoder) => decoder.read(into),
            // The slices of this content are used without a copy.
            From::Ahead(_) | From::Undetected(..) | From::Nothing => Ok(0),
        }
    }

    /// True if the last buffer from [`more`](Self::more) reaches the end of the file.
    pub fn is_end(&self) -> bool {
        self.is_end
    }

    /// Keeps unused bytes for the next piece.
    pub fn carry(&mut self, rest: &[u8]) {
        self.carry.extend_from_slice(rest);
    }

    /// Checks that no read has failed.
    ///
    /// # Errors
    /// A rejection with the reason why the rest of the file cannot be read.
    pub fn check(&self) -> Result<(), FileError> {
        let Some(error) = &self.failure else { return Ok(()) };
        let why = Damage::of(error).map_or_else(|| error.to_string(), ToString::to_string);
        Err(FileError::rejected(format!(
            "the file cannot be read to its end: {why}. The messages before that were sent."
        )))
    }
}

//! The bytes of a file on its way, decompressed, in pieces as large as the budget allows.

use std::io::{self, ErrorKind, Read};

use arrow_buffer::Buffer;
use thalweg_engine::Trouble;
use thalweg_record::File;

use super::arenas::Arenas;
use super::content::{Opened, open, unreadable};
use super::decompress::{Compression, Damage, Decoder};
use super::taker::Taker;

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
}

impl Plain {
    /// Opens a file that is compressed so.
    ///
    /// # Errors
    /// A rejection that says why it cannot be read.
    pub fn open(file: &File, compression: Compression) -> Result<Self, Trouble> {
        let mut opened = open(file)?;
        let head = match compression {
            Compression::Auto => opened.head(TELLING).map_err(|error| unreadable(&error))?,
            _ => Vec::new(),
        };
        let from = match compression.of(&head).flatten() {
            Some(format) => From::Packed(Box::new(Decoder::new(format, opened))),
            None => From::Plain(opened),
        };
        Ok(Self { from, carry: Vec::new(), failure: None, is_end: false })
    }

    /// The bytes that were not used, and more after them. Waits until the budget has room.
    pub async fn more(&mut self, arenas: &mut Arenas, out: &impl Taker) -> Buffer {
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

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.from {
            From::Plain(opened) => opened.read(into),
            From::Packed(decoder) => decoder.read(into),
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
    pub fn check(&self) -> Result<(), Trouble> {
        let Some(error) = &self.failure else { return Ok(()) };
        let why = Damage::of(error).map_or_else(|| error.to_string(), ToString::to_string);
        Err(Trouble::rejected(format!(
            "the file cannot be read to its end: {why}. The messages before that were sent on."
        )))
    }
}

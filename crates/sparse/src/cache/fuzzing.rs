//! The parser of journals, for its fuzz target: with right checksums, which no mutation finds.

use std::fs::File;
use std::io;

use super::journal::{Header, notes};

/// Parses the bytes of a head, after adding the checksum. Returns false if they are not a head.
pub fn header(bytes: &[u8]) -> bool {
    Header::sealed(bytes).is_some()
}

/// Reads the head and the notes of a journal, and returns the number of notes.
///
/// # Errors
/// If the file cannot be read.
pub fn journal(file: &File) -> io::Result<usize> {
    let Some(header) = Header::read(file)? else { return Ok(0) };
    Ok(notes(file, header.number, header.bytes)?.0.len())
}

//! The line of a file that a dead letter comes from.
//!
//! A letter has the offset at which its message begins, because sources read in parallel and resume anywhere.
//! People and editors want the line. It is counted in the file when the letter is shown. (Rejected: to count
//! while reading; all messages would pay for the few that are rejected.)
//!
//! The payload must still be at the offset: the file may be compressed, or another one by now.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use thalweg_engine::DeadLetter;

/// At most this many bytes are read to count lines, in one command.
const MOST_READ: u64 = 4 << 30;
/// At most this many bytes of a payload are compared.
const MOST_COMPARED: usize = 4096;

/// Counts lines in files.
#[derive(Default)]
pub(super) struct Lines {
    /// For each file, an offset and the line that it is in.
    known: HashMap<String, (u64, u64)>,
    read: u64,
}

impl Lines {
    /// Returns the origin of a letter: `access.log:17` is a line, and `access.log@1234` an offset in bytes.
    pub(super) fn place_of(&mut self, letter: &DeadLetter) -> String {
        let from = letter.path.as_ref().unwrap_or(&letter.source);
        match (self.line_of(letter), letter.position) {
            (Some(line), _) => format!("{from}:{line}"),
            (None, Some(position)) => format!("{from}@{position}"),
            (None, None) => from.clone(),
        }
    }

    /// Returns the line that a letter begins at, from 1 on, if the file still has it.
    pub(super) fn line_of(&mut self, letter: &DeadLetter) -> Option<u64> {
        let (path, position) = (letter.path.as_ref()?, letter.position?);
        let (start, line) = self.known.get(path).copied().filter(|(at, _)| *at <= position).unwrap_or((0, 1));
        let bytes = position - start;
        if self.read.saturating_add(bytes) > MOST_READ {
            return None;
        }
        let file = File::open(path).ok().filter(|file| file.metadata().is_ok_and(|found| found.is_file()))?;
        if !has_payload(&file, letter, position).ok()? {
            return None;
        }
        self.read += bytes;
        let line = line + newlines(file, start, bytes).ok()?;
        self.known.insert(path.clone(), (position, line));
        Some(line)
    }
}

/// True if a file has the payload of a letter at an offset, where a line begins.
fn has_payload(mut file: &File, letter: &DeadLetter, position: u64) -> io::Result<bool> {
    let payload = letter.payload_bytes();
    let wanted = payload.get(..MOST_COMPARED).unwrap_or(&payload);
    if wanted.is_empty() {
        return Ok(false);
    }
    let mut found = Vec::new();
    let before = position.saturating_sub(1);
    file.seek(SeekFrom::Start(before))?;
    file.take(wanted.len() as u64 + position - before).read_to_end(&mut found)?;
    if position == 0 {
        return Ok(found == wanted);
    }
    Ok(found.split_first().is_some_and(|(first, rest)| *first == b'\n' && rest == wanted))
}

/// Counts the line feeds in a part of a file.
fn newlines(mut file: File, start: u64, bytes: u64) -> io::Result<u64> {
    file.seek(SeekFrom::Start(start))?;
    let mut reader = BufReader::with_capacity(256 << 10, file.take(bytes));
    let mut count = 0;
    loop {
        let piece = reader.fill_buf()?;
        if piece.is_empty() {
            return Ok(count);
        }
        count += piece.iter().filter(|byte| **byte == b'\n').count() as u64;
        let length = piece.len();
        reader.consume(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(path: &std::path::Path, position: u64, payload: &str) -> DeadLetter {
        let letter = serde_json::json!({
            "time_us": 0, "component": "main.parse_json", "reason": "", "source": "in",
            "path": path.to_string_lossy(), "position": position, "payload": payload,
        });
        serde_json::from_value(letter).unwrap()
    }

    #[test]
    fn a_line_is_counted_where_the_payload_still_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        std::fs::write(&path, "one\ntwo\n\nthree\n").unwrap();
        let mut lines = Lines::default();
        for (position, payload, line) in [
            (4, "two", Some(2)),
            (9, "three", Some(4)),
            (0, "one", Some(1)),
            (5, "wo", None),
            (4, "tow", None),
        ] {
            assert_eq!(lines.line_of(&letter(&path, position, payload)), line, "{payload}");
        }
        let place = lines.place_of(&letter(&path, 9, "three"));
        assert_eq!(place, format!("{}:4", path.display()));
        let gone = folder.path().join("gone");
        assert_eq!(lines.place_of(&letter(&gone, 9, "x")), format!("{}@9", gone.display()));
    }
}

//! Writes a batch to its files, completely or not at all.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use arrow_array::{Array, BinaryViewArray};
use thalweg_engine::Error;

use super::super::piece::Piece;
use super::{Compression, Files, Stream, Undo};
use thalweg_stream::io_error::io_error;

impl Files {
    /// Writes the rows of a batch that belong to a stream, given as ranges (start, length).
    pub(in crate::sinks::file) fn write(
        &mut self,
        slot: usize,
        payload: &BinaryViewArray,
        ranges: &[(u32, u32)],
        header: &dyn Fn() -> Option<Vec<u8>>,
    ) -> Result<(), Error> {
        self.admit(slot);
        self.reopen_current(slot)?;
        self.make_room(slot);
        let mut stream = self.lift(slot)?;
        if let Err(error) = self.note(&mut stream) {
            self.streams[slot] = Some(stream);
            return Err(error);
        }
        if let Some(piece) = &stream.current {
            let length = piece.length();
            let next = stream.next;
            self.undo.push(Undo { slot, ended: stream.ended.len(), length, next });
        }
        let result = self.write_stream(&mut stream, payload, ranges, header);
        self.streams[slot] = Some(stream);
        result
    }

    fn write_stream(
        &mut self,
        stream: &mut Stream,
        payload: &BinaryViewArray,
        ranges: &[(u32, u32)],
        header: &dyn Fn() -> Option<Vec<u8>>,
    ) -> Result<(), Error> {
        self.write_header(stream, header)?;
        for &(start, length) in ranges {
            let (start, length) = (start as usize, length as usize);
            let mut rows = payload.slice(start, length);
            // The size of compressed output is not known in advance, so a compressed file is checked after
            // the batch.
            while let (Some(size), Compression::None) = (self.settings.size, self.settings.pieces.compression)
            {
                let Some(piece) = &mut stream.current else { break };
                let taken = piece.length() + self.delimited.waiting() as u64;
                let mut fitting = self.delimited.fitting(&rows, size.saturating_sub(taken));
                if fitting == rows.len() {
                    break;
                }
                if fitting == 0 && !piece.has_rows {
                    fitting = 1;
                }
                piece.has_rows |= fitting > 0;
                let result = piece.writer(&self.settings.pieces).and_then(|mut writer| {
                    self.delimited.write(&rows.slice(0, fitting), &mut writer)?;
                    self.delimited.flush(&mut writer)
                });
                result.map_err(|error| write_error(piece.now(), &error))?;
                rows = rows.slice(fitting, rows.len() - fitting);
                if rows.is_empty() {
                    break;
                }
                self.end_piece(stream);
                self.begin_piece(stream)?;
                self.write_header(stream, header)?;
            }
            let Some(piece) = &mut stream.current else { continue };
            piece.has_rows |= !rows.is_empty();
            let written = piece
                .writer(&self.settings.pieces)
                .and_then(|mut writer| self.delimited.write(&rows, &mut writer));
            written.map_err(|error| write_error(piece.now(), &error))?;
        }
        let Some(piece) = &mut stream.current else { return Ok(()) };
        let flushed =
            piece.writer(&self.settings.pieces).and_then(|mut writer| self.delimited.flush(&mut writer));
        flushed.map_err(|error| write_error(piece.now(), &error))?;
        check_present(piece)
    }

    fn write_header(
        &mut self,
        stream: &mut Stream,
        header: &dyn Fn() -> Option<Vec<u8>>,
    ) -> Result<(), Error> {
        let Some(piece) = &mut stream.current else { return Ok(()) };
        let is_continued = piece.take_continued();
        if !is_continued && !piece.is_empty() {
            return Ok(());
        }
        let Some(header) = header() else { return Ok(()) };
        if is_continued {
            return check_header(piece.now(), &header, &self.settings.pieces.delimiter);
        }
        let written = piece
            .writer(&self.settings.pieces)
            .and_then(|mut writer| self.delimited.message(&header, &mut writer));
        written.map_err(|error| write_error(piece.now(), &error))
    }

    /// Sets the piece aside, to be finished after the batch.
    pub(super) fn end_piece(&mut self, stream: &mut Stream) {
        self.unsettled |= stream.current.is_some();
        stream.set_aside();
    }

    /// Completes a batch: its undo records are dropped.
    pub(in crate::sinks::file) fn commit(&mut self) {
        for undo in std::mem::take(&mut self.undo) {
            let Ok(mut stream) = self.lift(undo.slot) else { continue };
            let pieces = stream.ended.iter_mut().skip(undo.ended).chain(&mut stream.current);
            for piece in pieces {
                if piece.drain().is_err() {
                    self.unsettled = true;
                }
            }
            if let (Some(size), Some(piece)) = (self.settings.size, &stream.current)
                && piece.length() >= size
            {
                self.end_piece(&mut stream);
            }
            self.streams[undo.slot] = Some(stream);
        }
        // An error here does not concern this batch: the next call meets it again, and reports it.
        let _ = self.settle();
    }

    /// Undoes the writes of the batch.
    pub(in crate::sinks::file) fn roll_back(&mut self) -> Result<(), Error> {
        let mut result = Ok(());
        let undo = std::mem::take(&mut self.undo);
        if self.settings.pieces.compression != Compression::None {
            // Encoders fail only when memory is exhausted, which ends the run. A later run cuts the file.
            return Ok(());
        }
        for undo in undo.into_iter().rev() {
            let mut stream = self.lift(undo.slot)?;
            let mut pieces = stream.ended.split_off(undo.ended.min(stream.ended.len()));
            pieces.extend(stream.current.take());
            let mut pieces = pieces.into_iter();
            stream.current = pieces.next();
            stream.next = undo.next;
            stream.forget_name();
            if let Some(piece) = &mut stream.current
                && let Err(error) = piece.truncate(undo.length)
            {
                result = Err(io_error("take back an unfinished write to", piece.now(), &error));
            }
            for piece in pieces {
                // A file that stays is empty for the next run, which removes it.
                let _ = self.discard(piece);
            }
            result = result.and(self.lead_to_last(&stream));
            self.streams[undo.slot] = Some(stream);
        }
        result
    }
}

/// Checks that a file of an earlier run has the columns of this run: its lines would otherwise have values
/// under the names of others.
fn check_header(path: &Path, header: &[u8], delimiter: &[u8]) -> Result<(), Error> {
    let failed = |error: io::Error| write_error(path, &error);
    let mut found = Vec::new();
    let file = BufReader::new(File::open(path).map_err(failed)?);
    let longest = (header.len() + delimiter.len()).max(LONGEST_SHOWN) as u64;
    file.take(longest).read_to_end(&mut found).map_err(failed)?;
    if found.strip_prefix(header).is_some_and(|rest| rest.starts_with(delimiter)) {
        return Ok(());
    }
    let line = found.split(|byte| delimiter.first() == Some(byte)).next().unwrap_or_default();
    let shown = |text: &[u8]| String::from_utf8_lossy(text.get(..LONGEST_SHOWN).unwrap_or(text)).into_owned();
    Err(Error::permanent(format!(
        "`{}` begins with the line `{}`, and the columns of this run are `{}`: list the columns of the file in \
         `fields` of `encode`, or write another file",
        path.display(),
        shown(line),
        shown(header)
    )))
}

/// The longest part of a header in a message, in bytes.
const LONGEST_SHOWN: usize = 200;

/// Stops the run if a file was removed while it was being written, before a checkpoint covers messages that
/// no reader can find again.
pub(super) fn check_present(piece: &Piece) -> Result<(), Error> {
    if piece.is_removed() { Err(removed_error(piece.now())) } else { Ok(()) }
}

pub(super) fn removed_error(path: &Path) -> Error {
    Error::permanent(format!(
        "`{}` was removed while the sink was writing to it: the messages in it are lost. Find out what removes \
         it, and restart; with `--state` the run resumes after the last checkpoint.",
        path.display()
    ))
}

/// Stops the run if the disk is full: further messages are safer at their source than in memory.
pub(super) fn write_error(path: &Path, error: &io::Error) -> Error {
    let reason = match error.kind() {
        io::ErrorKind::StorageFull => "no space is left on its disk",
        io::ErrorKind::QuotaExceeded => "the quota of disk space is used up",
        io::ErrorKind::FileTooLarge => "it would become larger than the system allows (see `ulimit -f`)",
        _ => return io_error("write to", path, error),
    };
    Error::permanent(format!(
        "cannot write to `{}`: {reason}. Earlier messages are kept. Free some space and restart; with `--state` the \
         run resumes from there.",
        path.display()
    ))
}

//! Limits the number of open files, and the memory of encoders.
//!
//! A system limits the number of open files of a process, and an encoder takes up to hundreds of mebibytes.
//! With a file for each value of a field both grow with the data. The least recently used file is therefore
//! closed, and the least recently used compressed member ended, before another one is begun.

use std::io;

use thalweg_engine::Error;

use super::super::Fsync;
use super::{Compression, Files};
use thalweg_stream::io_error::io_error;

/// Returns the number of files that a sink may keep open: `wanted`, but at most a quarter of what the system
/// allows the process, which has other files and connections too.
pub(in crate::sinks::file) fn most_open(wanted: usize) -> usize {
    let allowed = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let allowed = allowed.and_then(|allowed| usize::try_from(allowed).ok()).unwrap_or(usize::MAX);
    wanted.min(allowed / 4).max(1)
}

/// True for `ENFILE` (the limit of the system) and `EMFILE` (the limit of the process), which have no
/// `ErrorKind`.
fn is_too_many(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(23 | 24))
}

impl Files {
    /// Marks a stream's file as used. If too many files are open, the least recently used one is closed.
    pub(super) fn admit(&mut self, slot: usize) {
        if self.open.last() == Some(&slot) {
            return;
        }
        self.touch(slot);
        if self.open.len() > self.settings.most_open {
            self.close_oldest();
        }
    }

    fn touch(&mut self, slot: usize) {
        self.open.retain(|&open| open != slot);
        self.open.push(slot);
    }

    /// Closes the least recently used file. Returns false if none is open.
    pub(super) fn close_oldest(&mut self) -> bool {
        if self.open.is_empty() {
            return false;
        }
        let oldest = self.open.remove(0);
        let fsync = self.settings.fsync;
        if let Some(piece) = self.streams[oldest].as_mut().and_then(|stream| stream.current.as_mut()) {
            // Data that cannot be written now is kept; the next call reports the error.
            let result = if piece.owes() { piece.flush() } else { Ok(()) };
            let result = result.and_then(|()| if fsync == Fsync::Flush { piece.sync() } else { Ok(()) });
            self.unsettled |= result.is_err();
            piece.suspend();
        }
        true
    }

    /// Does something that opens a file. If too many files are open for the system, closes one after the
    /// other and retries.
    pub(super) fn with_descriptors<T>(
        &mut self,
        mut work: impl FnMut(&mut Self) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match work(self) {
                Err(error) if is_too_many(&error) && self.close_oldest() => {}
                result => return result,
            }
        }
    }

    /// Opens the file of a stream again, if it was closed to stay within the limit.
    pub(super) fn reopen_current(&mut self, slot: usize) -> Result<(), Error> {
        let mut stream = self.lift(slot)?;
        let opened = match &mut stream.current {
            Some(piece) => self.with_descriptors(|_| piece.resume()),
            None => Ok(()),
        };
        let result = match &stream.current {
            Some(piece) => opened.map_err(|error| io_error("open", piece.now(), &error)),
            None => Ok(()),
        };
        self.streams[slot] = Some(stream);
        self.touch(slot);
        result
    }

    /// Ends the members of other streams until the memory of the budget suffices for another encoder. All
    /// encoders together get half of it; the rest is for the messages in flight.
    pub(super) fn make_room(&mut self, slot: usize) {
        let pieces = &self.settings.pieces;
        if pieces.compression == Compression::None {
            return;
        }
        let has_encoder = |files: &Self, slot: usize| {
            let stream = files.streams.get(slot).and_then(Option::as_ref);
            stream.and_then(|stream| stream.current.as_ref()).is_some_and(|piece| piece.has_encoder())
        };
        if has_encoder(self, slot) {
            return;
        }
        let size = pieces.compression.encoder_memory(pieces.level);
        let budget = pieces.budget.clone();
        let with_encoder: Vec<usize> =
            self.open.iter().copied().filter(|&open| open != slot && has_encoder(self, open)).collect();
        let mut count = with_encoder.len();
        for other in with_encoder {
            let all = size.saturating_mul(count + 1);
            if all <= budget.limit() / 2 && budget.used().saturating_add(size) <= budget.limit() {
                return;
            }
            let piece = self.streams[other].as_mut().and_then(|stream| stream.current.as_mut());
            // Data that cannot be written now is kept; the next call reports the error.
            self.unsettled |= piece.is_some_and(|piece| piece.flush().is_err());
            count -= 1;
        }
    }
}

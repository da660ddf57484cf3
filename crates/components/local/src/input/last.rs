//! The bytes that a pipe contains when the run is asked to stop.
//!
//! Its writers may have ended, and what they wrote is lost when the last reader closes the pipe. So a stopped
//! run still reads the bytes that the pipe has at that moment, and no more: a writer that goes on would keep
//! the run from ending. A file or a terminal is not read to its end.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::poll::{PollFd, PollFlags, poll};

/// How long to wait for input before the request to stop is looked at, in milliseconds.
const LOOK: u8 = 20;

/// The number of bytes that may still be read from an input.
#[derive(Debug, Default)]
pub(crate) struct Last {
    /// True if the run was asked to stop.
    is_ended: Arc<AtomicBool>,
    /// The number of bytes that are left since then.
    left: Option<u64>,
}

impl Last {
    /// The flag that asks the input to end.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        self.is_ended.clone()
    }

    /// Returns the number of bytes that may be read of an input, at most `most`. Zero if the run was asked to
    /// stop and everything that the input had then is read.
    ///
    /// # Errors
    /// The system does not say how much the input has.
    pub(crate) fn most(&mut self, file: Option<&File>, most: usize) -> io::Result<usize> {
        if self.left.is_none() && self.is_ended.load(Ordering::Relaxed) {
            self.left = Some(file.map_or(Ok(0), available)?);
        }
        let left = self.left.map(|left| usize::try_from(left).unwrap_or(usize::MAX));
        Ok(left.map_or(most, |left| left.min(most)))
    }

    /// Waits a moment for input, or not at all if the run was asked to stop. True if there is none.
    pub(crate) fn is_idle(&self, file: &File) -> io::Result<bool> {
        let wait = if self.left.is_some() { 0 } else { LOOK };
        Ok(poll(&mut [PollFd::new(file.as_fd(), PollFlags::POLLIN)], wait)? == 0)
    }

    /// True if the run was asked to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.left.is_some()
    }

    /// Records that bytes were read.
    pub(crate) fn note(&mut self, read: usize) {
        self.left = self.left.map(|left| left.saturating_sub(read as u64));
    }
}

/// Returns the number of bytes that a pipe or a socket has. Zero for other files.
fn available(file: &File) -> io::Result<u64> {
    let kind = file.metadata()?.file_type();
    if kind.is_fifo() || kind.is_socket() { Ok(rustix::io::ioctl_fionread(file)?) } else { Ok(0) }
}

/// True if no writer has a pipe open, and all of it is read.
pub(crate) fn is_at_end(file: &File) -> io::Result<bool> {
    let mut polled = [PollFd::new(file.as_fd(), PollFlags::POLLIN)];
    poll(&mut polled, 0_u8)?;
    let [polled] = polled;
    let found = polled.revents().unwrap_or(PollFlags::empty());
    Ok(found.contains(PollFlags::POLLHUP) && !found.contains(PollFlags::POLLIN))
}

/// An input that was opened before the program started, such as the standard input.
pub(crate) struct Opened {
    file: File,
    last: Last,
}

impl Opened {
    /// Reads a file. The second value is the flag that asks the input to end.
    pub(crate) fn new(file: File) -> (Self, Arc<AtomicBool>) {
        let last = Last::default();
        let flag = last.flag();
        (Self { file, last }, flag)
    }
}

impl Read for Opened {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let most = self.last.most(Some(&self.file), into.len())?;
            let Some(into) = into.get_mut(..most).filter(|into| !into.is_empty()) else { return Ok(0) };
            if self.last.is_idle(&self.file)? {
                if self.last.is_stopping() {
                    return Ok(0);
                }
                continue;
            }
            let read = self.file.read(into)?;
            self.last.note(read);
            return Ok(read);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::OwnedFd;

    use super::*;

    fn rest(mut input: impl Read) -> String {
        let mut text = String::new();
        input.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn a_stopped_run_reads_what_a_pipe_has_and_waits_for_no_more() {
        for has_writer in [true, false] {
            let (reader, mut writer) = io::pipe().unwrap();
            writer.write_all(b"one\ntwo\nthr").unwrap();
            let writer = has_writer.then_some(writer);
            let (mut input, flag) = Opened::new(File::from(OwnedFd::from(reader)));
            let mut first = [0; 4];
            input.read_exact(&mut first).unwrap();
            flag.store(true, Ordering::Relaxed);
            assert_eq!(rest(&mut input), "two\nthr");
            // The writer goes on, and the run does not.
            if let Some(mut writer) = writer {
                writer.write_all(b"ee\n").unwrap();
            }
            assert_eq!(rest(&mut input), "");
        }
    }

    #[test]
    fn a_stopped_run_does_not_read_a_file_to_its_end() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"one\n").unwrap();
        io::Seek::rewind(&mut file).unwrap();
        let (input, flag) = Opened::new(file);
        flag.store(true, Ordering::Relaxed);
        assert_eq!(rest(input), "");
    }
}

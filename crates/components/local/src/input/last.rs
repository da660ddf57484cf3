//! The bytes that a pipe contains when the run is asked to stop.
//!
//! Its writers may have ended, and what they wrote is lost when the last reader closes the pipe. So a stopped
//! run still reads the bytes that the pipe has at that moment, and no more: a writer that goes on would keep
//! the run from ending. A file or a terminal is not read to its end.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::poll::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;

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
    /// The same pipe, opened once more.
    unwaiting: Option<File>,
    last: Last,
}

impl Opened {
    /// Reads a file. The second value is the flag that asks the input to end.
    pub(crate) fn new(file: File) -> (Self, Arc<AtomicBool>) {
        let last = Last::default();
        let flag = last.flag();
        (Self { unwaiting: unwaiting(&file), file, last }, flag)
    }
}

/// Opens a pipe once more, so that reads fail with [`WouldBlock`](io::ErrorKind::WouldBlock) while it is
/// empty. Another process that reads the pipe may take what `poll` has announced, and a read would then wait
/// for a writer. The open file is shared with that process, which need not expect such errors, so its flags
/// are not changed. (Rejected: `RWF_NOWAIT`. The system does not take it for named pipes, and for others only
/// since Linux 6.5.) None for other files, and if the pipe belongs to another user or the system has no
/// `/proc`: reads wait then.
///
/// Only for reading. `poll` does not know of this file whether a named pipe had a writer before.
fn unwaiting(file: &File) -> Option<File> {
    file.metadata().ok().filter(|found| found.file_type().is_fifo())?;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    options.open(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()
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
            let read = self.unwaiting.as_ref().unwrap_or(&self.file).read(into)?;
            self.last.note(read);
            return Ok(read);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::super::Patient;
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

    /// Both saw that there was a byte, and the one that came too late waited for the next.
    #[test]
    fn of_two_readers_of_a_pipe_none_waits_for_what_the_other_took() {
        let (reader, mut writer) = io::pipe().unwrap();
        let file = File::from(OwnedFd::from(reader));
        let (done, ended) = mpsc::channel();
        let flags = [(); 2].map(|()| {
            let (input, flag) = Opened::new(file.try_clone().unwrap());
            let done = done.clone();
            thread::spawn(move || done.send(rest(Patient(input)).len()));
            flag
        });
        for _ in 0..100 {
            writer.write_all(b"x").unwrap();
            while available(&file).unwrap() > 0 {
                thread::yield_now();
            }
        }
        flags.iter().for_each(|flag| flag.store(true, Ordering::Relaxed));
        let read = [(); 2].map(|()| ended.recv_timeout(Duration::from_secs(60)).unwrap());
        assert_eq!(read.iter().sum::<usize>(), 100);
        // For others that share it, it is as it was.
        assert!(!rustix::fs::fcntl_getfl(&file).unwrap().contains(OFlags::NONBLOCK));
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

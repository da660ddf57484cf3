//! The system calls of an event loop: epoll, poll, an event counter to wake it, and the clock.
//!
//! Libraries over epoll were rejected. `mio` is edge-triggered, but asyncio's callbacks may read a part of
//! what there is and expect to be called again. `polling` rearms a descriptor after each event, by one more
//! call.

#![allow(unsafe_code, reason = "system calls")]

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// The bits of epoll and poll for reading.
pub const READ: u32 = libc::EPOLLIN as u32;
/// The bits of epoll and poll for writing.
pub const WRITE: u32 = libc::EPOLLOUT as u32;
/// Set by poll for a descriptor that is not open.
const NOT_OPEN: u32 = libc::POLLNVAL as u32;

/// Turns a result of the system into an error if it is negative.
fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// True if bits that epoll or poll returned mean that `wanted` is possible. Errors and closed peers end both
/// waits.
pub fn allows(found: u32, wanted: u32) -> bool {
    found & !((READ | WRITE) & !wanted) != 0
}

/// Returns the exception for an error of the system, with its number.
pub fn os_error(error: &io::Error) -> PyErr {
    match error.raw_os_error() {
        Some(number) => {
            let text = error.to_string();
            let text = text.split(" (os error").next().unwrap_or_default().to_owned();
            PyOSError::new_err((number, text))
        }
        None => PyOSError::new_err(error.to_string()),
    }
}

/// An instance of epoll, level-triggered. An event carries its descriptor.
pub struct Epoll(OwnedFd);

/// An event of epoll.
#[derive(Debug, Clone, Copy)]
pub struct Event {
    /// The descriptor that was watched.
    pub descriptor: RawFd,
    /// The bits of reads and writes that are possible.
    pub found: u32,
}

impl Epoll {
    /// Creates an instance.
    ///
    /// # Errors
    /// The process or the system has too many descriptors.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call takes no pointers; the descriptor that it returns is owned by nothing else.
        unsafe { checked(libc::epoll_create1(libc::EPOLL_CLOEXEC)).map(|fd| Self(OwnedFd::from_raw_fd(fd))) }
    }

    /// The descriptor of the instance, which is readable while there are events.
    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn control(&self, operation: c_int, descriptor: RawFd, wanted: u32) -> io::Result<()> {
        let mut event = libc::epoll_event { events: wanted, u64: descriptor as u64 };
        // SAFETY: the event is alive during the call, which keeps no pointer to it.
        unsafe {
            checked(libc::epoll_ctl(self.descriptor(), operation, descriptor, &raw mut event)).map(drop)
        }
    }

    /// Watches a descriptor for `wanted`; with 0, stops watching it.
    ///
    /// The system forgets a descriptor that was closed, and its number is used again. So what the system
    /// knows decides whether it is added or changed, and `is_known` is only the likelier case.
    ///
    /// # Errors
    /// `EPERM` for a descriptor that is always ready, such as one of a regular file; `EBADF` for one that is
    /// not open.
    pub fn watch(&self, descriptor: RawFd, wanted: u32, is_known: bool) -> io::Result<()> {
        if wanted == 0 {
            return self.control(libc::EPOLL_CTL_DEL, descriptor, 0);
        }
        let (first, second, unless) = if is_known {
            (libc::EPOLL_CTL_MOD, libc::EPOLL_CTL_ADD, libc::ENOENT)
        } else {
            (libc::EPOLL_CTL_ADD, libc::EPOLL_CTL_MOD, libc::EEXIST)
        };
        match self.control(first, descriptor, wanted) {
            Err(error) if error.raw_os_error() == Some(unless) => self.control(second, descriptor, wanted),
            result => result,
        }
    }

    /// Appends events to `events`. Waits at most `milliseconds` for the first one; -1 is for ever.
    ///
    /// # Errors
    /// `EINTR` if a signal arrived.
    pub fn wait(&self, events: &mut Vec<Event>, milliseconds: c_int) -> io::Result<()> {
        const AT_ONCE: usize = 256;
        let mut buffer = [libc::epoll_event { events: 0, u64: 0 }; AT_ONCE];
        // SAFETY: the buffer has room for as many events as the call may write.
        let count = unsafe {
            checked(libc::epoll_wait(self.descriptor(), buffer.as_mut_ptr(), AT_ONCE as c_int, milliseconds))?
        };
        let count = usize::try_from(count).unwrap_or_default();
        events.extend(
            buffer
                .iter()
                .take(count)
                .map(|event| Event { descriptor: event.u64 as RawFd, found: event.events }),
        );
        Ok(())
    }
}

/// Returns for each descriptor what is possible with it now, of what is wanted, without waiting.
///
/// # Errors
/// `ENOMEM`. A descriptor that is not open gives an error of its own.
pub fn possible(wanted: &[(RawFd, u32)]) -> io::Result<Vec<io::Result<bool>>> {
    let ask = |&(fd, wanted): &(RawFd, u32)| libc::pollfd { fd, events: wanted as i16, revents: 0 };
    let mut asked: Vec<libc::pollfd> = wanted.iter().map(ask).collect();
    loop {
        // SAFETY: the pointer is to as many entries as the call reads.
        match checked(unsafe { libc::poll(asked.as_mut_ptr(), asked.len() as libc::nfds_t, 0) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => {
                result?;
                break;
            }
        }
    }
    let answer = |asked: &libc::pollfd| {
        let found = u32::from(asked.revents.cast_unsigned());
        if found & NOT_OPEN != 0 { Err(io::Error::from_raw_os_error(libc::EBADF)) } else { Ok(found != 0) }
    };
    Ok(asked.iter().map(answer).collect())
}

/// Wakes an event loop that waits in another thread.
pub struct Bell(OwnedFd);

impl Bell {
    /// Creates one.
    ///
    /// # Errors
    /// The process or the system has too many descriptors.
    pub fn new() -> io::Result<Self> {
        let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
        // SAFETY: the call takes no pointers; the descriptor that it returns is owned by nothing else.
        unsafe { checked(libc::eventfd(0, flags)).map(|fd| Self(OwnedFd::from_raw_fd(fd))) }
    }

    /// Its descriptor, which is readable once it rang.
    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Rings. Fails only if it rang already so often that its counter is full.
    pub fn ring(&self) {
        let one = 1u64;
        // SAFETY: the pointer is to the eight bytes of a live number.
        unsafe { libc::write(self.descriptor(), (&raw const one).cast(), size_of::<u64>()) };
    }

    /// Silences it.
    pub fn silence(&self) {
        let mut count = 0u64;
        // SAFETY: the pointer is to the eight bytes of a live number.
        unsafe { libc::read(self.descriptor(), (&raw mut count).cast(), size_of::<u64>()) };
    }
}

/// The time of `time.monotonic()`, in seconds.
pub fn now() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live value of the right type. The clock exists, so the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    // Computed as the interpreter does, so that both are equal to the last digit. The sum lasts for 292
    // years.
    (time.tv_sec * 1_000_000_000 + time.tv_nsec) as f64 / 1e9
}

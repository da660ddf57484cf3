//! The readers and writers that a program has registered on its event loop, and the loop's wait for them.

use std::collections::HashMap;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;

use super::job::Job;
use super::system::{Bell, Epoll, Event, READ, WRITE, allows};

/// A registered handle: one of ours, or one of asyncio's classes.
pub enum Registered {
    /// Ours.
    Own(Py<super::handle::Handle>),
    /// One of asyncio.
    Foreign(Py<PyAny>),
}

impl Registered {
    /// The Python object.
    pub fn object(&self, py: Python<'_>) -> Py<PyAny> {
        match self {
            Self::Own(handle) => handle.clone_ref(py).into_any(),
            Self::Foreign(handle) => handle.clone_ref(py),
        }
    }

    fn job(&self, py: Python<'_>) -> Job {
        match self {
            Self::Own(handle) => Job::Handle(handle.clone_ref(py)),
            Self::Foreign(handle) => Job::Foreign(handle.clone_ref(py)),
        }
    }
}

/// The reader and the writer of a descriptor.
#[derive(Default)]
pub struct Watched {
    reader: Option<Registered>,
    writer: Option<Registered>,
}

impl Watched {
    /// The bits of epoll for which there is a handle.
    pub fn mask(&self) -> u32 {
        self.reader.as_ref().map_or(0, |_| READ) | self.writer.as_ref().map_or(0, |_| WRITE)
    }

    /// The handle for reading or writing.
    pub fn of(&self, mask: u32) -> Option<&Registered> {
        if mask == WRITE { self.writer.as_ref() } else { self.reader.as_ref() }
    }

    fn place(&mut self, mask: u32) -> &mut Option<Registered> {
        if mask == WRITE { &mut self.writer } else { &mut self.reader }
    }
}

/// The descriptors of an event loop.
pub struct Poller {
    epoll: Arc<Epoll>,
    bell: Bell,
    /// The descriptor of the epoll of evaluations, once it is watched.
    nested: Option<RawFd>,
    watched: HashMap<RawFd, Watched>,
}

impl Poller {
    /// Creates it.
    ///
    /// # Errors
    /// The process or the system has too many descriptors.
    pub fn new() -> io::Result<Self> {
        let (epoll, bell) = (Epoll::new()?, Bell::new()?);
        epoll.watch(bell.descriptor(), READ, false)?;
        Ok(Self { epoll: Arc::new(epoll), bell, nested: None, watched: HashMap::new() })
    }

    /// Wakes the loop.
    pub fn ring(&self) {
        self.bell.ring();
    }

    /// The descriptor to wait on.
    pub fn epoll(&self) -> &Arc<Epoll> {
        &self.epoll
    }

    /// Watches the epoll of evaluations as well.
    ///
    /// # Errors
    /// The system has no memory left.
    pub fn nest(&mut self, descriptor: RawFd) -> io::Result<()> {
        if self.nested != Some(descriptor) {
            self.epoll.watch(descriptor, READ, false)?;
            self.nested = Some(descriptor);
        }
        Ok(())
    }

    /// The handles by descriptor.
    pub fn watched(&self) -> &HashMap<RawFd, Watched> {
        &self.watched
    }

    /// Sets the reader or writer of a descriptor, and returns the previous one.
    ///
    /// # Errors
    /// `EPERM` for a regular file; `EBADF`.
    pub fn set(
        &mut self,
        descriptor: RawFd,
        mask: u32,
        handle: Registered,
    ) -> io::Result<Option<Registered>> {
        let before = self.watched.get(&descriptor).map_or(0, Watched::mask);
        // Even if it is watched: the number may be that of a descriptor that was closed and opened.
        self.epoll.watch(descriptor, before | mask, before != 0)?;
        Ok(self.watched.entry(descriptor).or_default().place(mask).replace(handle))
    }

    /// Removes the reader or writer of a descriptor, and returns it.
    pub fn unset(&mut self, descriptor: RawFd, mask: u32) -> Option<Registered> {
        let watched = self.watched.get_mut(&descriptor)?;
        let before = watched.place(mask).take()?;
        let left = watched.mask();
        if left == 0 {
            self.watched.remove(&descriptor);
        }
        // It fails if the descriptor was closed before it was removed, and then there is nothing to undo.
        let _ = self.epoll.watch(descriptor, left, true);
        Some(before)
    }

    /// Returns what the handles for these events have to run, and whether evaluations have events of their
    /// own.
    pub fn jobs(&self, py: Python<'_>, events: &[Event]) -> (Vec<Job>, bool) {
        let mut jobs = Vec::with_capacity(events.len());
        let mut is_nested = false;
        for event in events {
            if event.descriptor == self.bell.descriptor() {
                self.bell.silence();
            } else if Some(event.descriptor) == self.nested {
                is_nested = true;
            } else if let Some(watched) = self.watched.get(&event.descriptor) {
                for (mask, handle) in [(READ, &watched.reader), (WRITE, &watched.writer)] {
                    if let Some(handle) = handle.as_ref().filter(|_| allows(event.found, mask)) {
                        jobs.push(handle.job(py));
                    }
                }
            }
        }
        (jobs, is_nested)
    }

    /// Visits the handles.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        for handle in self.watched.values().flat_map(|watched| [&watched.reader, &watched.writer]).flatten() {
            match handle {
                Registered::Own(handle) => visit.call(handle)?,
                Registered::Foreign(handle) => visit.call(handle)?,
            }
        }
        Ok(())
    }
}

//! Reading an open file: held bytes immediately, the rest once it is fetched.

use parking_lot::RwLock;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use thalweg_sparse::{Advance, Origin, Pin, RemoteFile, RemoteOptions, Span};

use super::error::to_py_error;
use crate::errors::configuration_error;
use crate::fresh::{LONG, bytes_with};
use crate::runtime::{runtime, wait};

/// All bytes of one read are held at once. One read may use at most a quarter of a limited memory.
const SHARE: usize = 4;
/// The minimum size of such a read, in bytes, whatever the limit.
const PIECE: usize = 1 << 20;

/// An open file, until it is closed.
pub struct Opened {
    url: String,
    options: RemoteOptions,
    /// The maximum number of bytes to read at once.
    piece: usize,
    /// The file, and the id of the process that opened it. A thread must not release the interpreter lock
    /// while it holds this lock.
    file: RwLock<Option<(u32, RemoteFile)>>,
}

impl Opened {
    /// Opens a file.
    ///
    /// # Errors
    /// `ConfigurationError` if `url` is not a valid URL; `FileNotFoundError`, `PermissionError`, `OSError`.
    pub fn new(py: Python<'_>, url: String, options: RemoteOptions) -> PyResult<Self> {
        let file = open(py, &url, &options)?;
        let limit = options.pool.as_ref().map(|pool| pool.statistics().limit);
        let piece = limit.map_or(usize::MAX, |limit| (limit / SHARE).max(PIECE));
        Ok(Self { url, options, piece, file: RwLock::new(Some((std::process::id(), file))) })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn is_closed(&self) -> bool {
        self.file.read().is_none()
    }

    /// Cancels fetches in flight, and releases the memory.
    pub fn close(&self, py: Python<'_>) {
        let closed = self.file.write().take();
        py.detach(|| end(closed));
    }

    /// Calls `at` with the file, keeping the interpreter lock.
    ///
    /// # Errors
    /// `ValueError` if the file is closed.
    #[inline]
    pub fn look<T>(&self, at: impl FnOnce(&RemoteFile) -> T) -> PyResult<T> {
        match &*self.file.read() {
            Some((_, file)) => Ok(at(file)),
            None => Err(closed()),
        }
    }

    /// Returns the file for fetching. After a `fork` it is opened again, because requests belong to the
    /// parent process.
    ///
    /// # Errors
    /// Those of [`look`](Self::look) and of opening.
    pub fn file(&self, py: Python<'_>) -> PyResult<RemoteFile> {
        let process = std::process::id();
        let opened = self.file.read().as_ref().map(|(of, file)| (*of == process).then(|| file.clone()));
        if let Some(file) = opened.ok_or_else(closed)? {
            return Ok(file);
        }
        let file = open(py, &self.url, &self.options)?;
        std::mem::forget(self.file.write().replace((process, file.clone())));
        Ok(file)
    }

    /// Cuts off a range at the end of the file.
    ///
    /// # Errors
    /// `ValueError` if the file is closed.
    pub fn clipped(&self, position: u64, length: u64) -> PyResult<Span> {
        self.look(|file| within(file, position, length))
    }

    /// Cuts off ranges at the end of the file.
    ///
    /// # Errors
    /// `ValueError` if the file is closed.
    pub fn clipped_all(&self, spans: &[Span]) -> PyResult<Vec<Span>> {
        self.look(|file| spans.iter().map(|span| within(file, span.position, span.length)).collect())
    }

    /// Returns the bytes of a range, cut off at the end of the file.
    ///
    /// # Errors
    /// `ValueError` if the file is closed; `OSError` and its subclasses if the bytes cannot be fetched.
    #[inline]
    pub fn read<'py>(&self, py: Python<'py>, position: u64, length: u64) -> PyResult<Bound<'py, PyBytes>> {
        let held = self.look(|file| {
            let span = within(file, position, length);
            if span.length > LONG as u64 {
                return Err(span);
            }
            let mut ahead = None;
            let read = bytes_with(py, span.length as usize, |bytes| match bytes.is_empty() {
                true => Ok(()),
                false => file.read_held(position, bytes).map(|found| ahead = found).ok_or(span),
            });
            Ok((read, ahead))
        })?;
        let span = match held {
            Ok((read, ahead)) => match read? {
                Ok(bytes) => {
                    self.advance(ahead)?;
                    return Ok(bytes);
                }
                Err(span) => span,
            },
            Err(span) => span,
        };
        let file = self.file(py)?;
        bytes_with(py, usize::try_from(span.length)?, |bytes| self.fill(py, &file, position, bytes))?
    }

    /// Fills a buffer, up to the end of the file. Returns the number of bytes.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn read_into(&self, py: Python<'_>, position: u64, into: &mut [u8]) -> PyResult<usize> {
        let length = self.clipped(position, into.len() as u64)?.length as usize;
        let into = into.get_mut(..length).unwrap_or_default();
        if into.is_empty() {
            return Ok(0);
        }
        if length <= LONG
            && let Some(ahead) = self.look(|file| file.read_held(position, into))?
        {
            self.advance(ahead)?;
        } else {
            self.fill(py, &self.file(py)?, position, into)?;
        }
        Ok(length)
    }

    /// Returns the bytes of each range. The ranges are fetched together.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn read_ranges<'py>(&self, py: Python<'py>, spans: &[Span]) -> PyResult<Bound<'py, PyList>> {
        let read = PyList::empty(py);
        let most = self.piece as u64;
        let mut rest = spans;
        while !rest.is_empty() {
            let mut sum: u64 = 0;
            let fits = |span: &&Span| {
                sum = sum.saturating_add(span.length);
                sum <= most
            };
            let (together, behind) = rest.split_at(rest.iter().take_while(fits).count().max(1));
            rest = behind;
            let clipped = self.clipped_all(together)?;
            let _pins = match together.len() {
                1 => Vec::new(),
                _ => ensure(py, &self.file(py)?, &clipped)?,
            };
            for span in clipped {
                read.append(self.read(py, span.position, span.length)?)?;
            }
        }
        Ok(read)
    }

    /// Fills all of `into`, without the interpreter lock.
    fn fill(&self, py: Python<'_>, file: &RemoteFile, position: u64, into: &mut [u8]) -> PyResult<()> {
        let runtime = runtime()?;
        let mut position = position;
        for part in into.chunks_mut(self.piece) {
            let span = Span::new(position, part.len() as u64);
            position += span.length;
            let held = py.detach(|| {
                let ahead = file.read_held(span.position, part)?;
                if let Some(ahead) = ahead {
                    let _within = runtime.enter();
                    file.advance(ahead);
                }
                Some(())
            });
            if held.is_some() {
                continue;
            }
            let _pins = ensure(py, file, &[span])?;
            if py.detach(|| file.held().read(span.position, part)).is_err() {
                // The file has changed and was restarted meanwhile.
                let file = file.clone();
                let read = wait(py, async move { file.read(span.position, span.length as usize).await })?;
                part.copy_from_slice(&read.map_err(|error| to_py_error(&error))?);
            }
        }
        Ok(())
    }

    fn advance(&self, ahead: Option<Advance>) -> PyResult<()> {
        let Some(ahead) = ahead else { return Ok(()) };
        let runtime = runtime()?;
        let _within = runtime.enter();
        self.look(|file| file.advance(ahead))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        end(self.file.get_mut().take());
    }
}

/// Drops a file that this process opened. A file of the parent process is leaked: its threads do not exist
/// here, so closing would wait for ever.
fn end(opened: Option<(u32, RemoteFile)>) {
    if opened.as_ref().is_some_and(|(process, _)| *process != std::process::id()) {
        std::mem::forget(opened);
    }
}

fn closed() -> PyErr {
    PyValueError::new_err("the file is closed")
}

fn open(py: Python<'_>, url: &str, options: &RemoteOptions) -> PyResult<RemoteFile> {
    let origin = Origin::from_url(url).map_err(|error| configuration_error(py, &error.to_string()))?;
    let options = options.clone();
    wait(py, async move { RemoteFile::open(origin, options).await })?.map_err(|error| to_py_error(&error))
}

fn within(file: &RemoteFile, position: u64, length: u64) -> Span {
    Span::new(position, length.min(file.length().saturating_sub(position)))
}

/// Fetches ranges. They stay held while the returned pins exist.
fn ensure(py: Python<'_>, file: &RemoteFile, spans: &[Span]) -> PyResult<Vec<Pin>> {
    let pins = spans.iter().map(|span| file.held().pin(span.position, span.length)).collect();
    if spans.iter().any(|span| span.length > 0 && !file.held().has(span.position, span.length)) {
        let (file, spans) = (file.clone(), spans.to_vec());
        wait(py, async move { file.fetch(&spans).await })?.map_err(|error| to_py_error(&error))?;
    }
    Ok(pins)
}

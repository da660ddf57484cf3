//! The class `RemoteFile`: a file object, and more.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::exceptions::{PyStopIteration, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use super::error::to_py_error;
use super::opened::Opened;
use super::options::Given;
use super::{future, lines, statistics};
use crate::buffer::Buffer;
use crate::natural::Natural;
use crate::pairs;
use crate::runtime::runtime;
use crate::sparse::{Pool, spans};

/// A remote file, as a file object for binary reading. Only the parts that are read are fetched.
///
/// `url` is `https://…`, `s3://BUCKET/KEY`, `gs://BUCKET/KEY`, `az://CONTAINER/KEY`, `file:///PATH` or a
/// path. Opening the file requests its length and state. If that or a later fetch fails, `FileNotFoundError`,
/// `PermissionError` or another `OSError` is raised. Held bytes are returned immediately. A read that has to
/// fetch releases the interpreter lock, and Ctrl-C ends its wait. Threads may share the file but not its
/// position: they use `read_at`.
///
/// `cache` is a directory that keeps fetched ranges for the next time, up to `max_cache_bytes` bytes.
/// `memory` limits the bytes held in memory; a `pool` does so for several files together. Temporary errors
/// are retried until `attempts` attempts in a row have returned no data. An attempt fails after `silence`
/// seconds without a byte. `concurrency` is the number of requests in flight at once; by default it adapts.
/// `on_change` says what happens if the file changes while it is read: an error (`fail`), or a restart from
/// the new state (`restart`). Two requests are merged into one if that fetches at most `widest_gap` unneeded
/// bytes. A request is at most `longest` bytes long, and at least `shortest` unless the file ends.
/// `read_ahead` is the number of bytes to read ahead for sequential reads. A file of at most `whole` bytes is
/// fetched as a whole if its server does not support ranges.
#[pyclass(frozen, subclass, weakref, module = "thalweg")]
pub struct RemoteFile {
    opened: Opened,
    given: Given,
    /// The position of the next read.
    position: AtomicU64,
}

impl RemoteFile {
    fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    fn go_to(&self, position: u64) {
        self.position.store(position, Ordering::Relaxed);
    }

    fn unsupported(py: Python<'_>, what: &str) -> PyErr {
        let made = || py.import("io")?.getattr("UnsupportedOperation")?.call1((what,));
        made().map_or_else(|error| error, PyErr::from_value)
    }
}

/// Converts a size argument of a file method: `None` or a negative number means all.
fn most(size: Option<i64>) -> u64 {
    size.map_or(u64::MAX, |size| u64::try_from(size).unwrap_or(u64::MAX))
}

#[pymethods]
impl RemoteFile {
    #[new]
    #[pyo3(signature = (
        url, *, cache = None, max_cache_bytes = None, memory = Some(Natural::from(67_108_864)), pool = None,
        attempts = Natural::from(6), silence = 20.0, concurrency = None, on_change = "fail",
        widest_gap = Natural::from(262_144), longest = Natural::from(8_388_608), shortest = Natural::from(16_384),
        read_ahead = Natural::from(16_777_216), whole = Natural::from(67_108_864)
    ), text_signature = "(url, *, cache=None, max_cache_bytes=None, memory=67108864, pool=None, attempts=6, \
        silence=20.0, concurrency=None, on_change='fail', widest_gap=262144, longest=8388608, shortest=16384, \
        read_ahead=16777216, whole=67108864)")]
    #[allow(clippy::too_many_arguments, reason = "in Python they have names")]
    fn new(
        py: Python<'_>,
        url: &Bound<'_, PyAny>,
        cache: Option<PathBuf>,
        max_cache_bytes: Option<Natural>,
        memory: Option<Natural>,
        pool: Option<&Bound<'_, Pool>>,
        attempts: Natural,
        silence: f64,
        concurrency: Option<Natural>,
        on_change: &str,
        widest_gap: Natural,
        longest: Natural,
        shortest: Natural,
        read_ahead: Natural,
        whole: Natural,
    ) -> PyResult<Self> {
        let url: String = py.import("os")?.call_method1("fspath", (url,))?.extract()?;
        let on_change = on_change.to_owned();
        let given = Given {
            cache,
            max_cache_bytes: max_cache_bytes.map(|limit| limit.option(py, "max_cache_bytes")).transpose()?,
            memory: memory.map(|memory| memory.option(py, "memory")).transpose()?,
            attempts: attempts.option(py, "attempts")?,
            silence,
            concurrency: concurrency.map(|requests| requests.option(py, "concurrency")).transpose()?,
            on_change,
            widest_gap: widest_gap.option(py, "widest_gap")?,
            longest: longest.option(py, "longest")?,
            shortest: shortest.option(py, "shortest")?,
            read_ahead: read_ahead.option(py, "read_ahead")?,
            whole: whole.option(py, "whole")?,
        };
        let opened = Opened::new(py, url, given.options(py, pool.map(Bound::get))?)?;
        Ok(Self { opened, given, position: AtomicU64::new(0) })
    }

    /// The name in messages: the URL without possible secrets.
    #[getter]
    fn name(&self) -> PyResult<String> {
        self.opened.look(|file| file.name().to_owned())
    }

    /// The length of the file, in bytes.
    #[getter]
    fn size(&self) -> PyResult<u64> {
        self.opened.look(thalweg_sparse::RemoteFile::length)
    }

    /// The entity tag, if the server sends one.
    #[getter]
    fn etag(&self) -> PyResult<Option<String>> {
        self.opened.look(|file| file.fingerprint().etag)
    }

    /// When the file was last changed, in seconds since 1970, if known.
    #[getter]
    fn modified(&self) -> PyResult<Option<f64>> {
        self.opened.look(|file| file.fingerprint().modified.map(|modified| modified as f64 / 1e9))
    }

    #[getter]
    fn mode(&self) -> &'static str {
        "rb"
    }

    /// True once the file is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.opened.is_closed()
    }

    /// Returns the ranges that are held in memory.
    fn held<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        pairs::list(py, &self.opened.look(|file| file.held().blocks())?)
    }

    /// Returns the statistics: requests, retried requests, fetched bytes, bytes fetched ahead, bytes from the
    /// cache, restarts, and held bytes; also recent values of the seconds to the first byte of a reply
    /// (`latency`) and of the bytes per second of one request (`bandwidth`).
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        statistics::dictionary(py, &self.opened.look(Clone::clone)?)
    }

    /// Returns the bytes of a range, cut off at the end of the file. Does not move the file's position.
    fn read_at<'py>(
        &self,
        py: Python<'py>,
        position: Natural,
        length: Natural,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.opened.read(py, position.get("position")?, length.get("length")?)
    }

    /// Fills a buffer with the bytes from `position` on, up to the file's end. Returns the number of bytes.
    fn readinto_at(&self, py: Python<'_>, position: Natural, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.opened.read_into(py, position.get("position")?, Buffer::writable(buffer)?.bytes_mut())
    }

    /// Returns the bytes of each position and length, cut off at the end of the file. The ranges are planned
    /// together and fetched in parallel.
    fn read_ranges<'py>(&self, py: Python<'py>, spans: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        self.opened.read_ranges(py, &spans::spans(spans)?)
    }

    /// Starts to fetch ranges, without waiting for them.
    fn prefetch(&self, py: Python<'_>, spans: &Bound<'_, PyAny>) -> PyResult<()> {
        let wanted = self.opened.clipped_all(&spans::spans(spans)?)?;
        let file = self.opened.file(py)?;
        // An error is not reported here: a later read of these ranges gets it.
        runtime()?.spawn(async move { file.fetch(&wanted).await });
        Ok(())
    }

    /// `read_at` for `await` in an event loop of asyncio. Held bytes are available immediately.
    fn aread<'py>(&self, py: Python<'py>, position: Natural, length: Natural) -> PyResult<Bound<'py, PyAny>> {
        let span = self.opened.clipped(position.get("position")?, length.get("length")?)?;
        if self.opened.look(|file| span.length == 0 || file.held().has(span.position, span.length))? {
            return future::done(py, self.opened.read(py, span.position, span.length)?.into_any());
        }
        let file = self.opened.file(py)?;
        let work = async move { file.read(span.position, span.length as usize).await };
        future::future(py, work, |py, read| {
            let read = read.map_err(|error| to_py_error(&error))?;
            Ok(PyBytes::new(py, &read).into_any().unbind())
        })
    }

    /// `read_ranges` for `await` in an event loop of asyncio.
    fn aread_ranges<'py>(&self, py: Python<'py>, spans: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let wanted = self.opened.clipped_all(&spans::spans(spans)?)?;
        let file = self.opened.file(py)?;
        future::future(py, async move { file.read_many(&wanted).await }, |py, read| {
            let read = read.map_err(|error| to_py_error(&error))?;
            Ok(PyList::new(py, read.iter().map(|bytes| PyBytes::new(py, bytes)))?.into_any().unbind())
        })
    }

    // The interface of a file object.

    #[pyo3(signature = (size = None, /))]
    fn read<'py>(&self, py: Python<'py>, size: Option<i64>) -> PyResult<Bound<'py, PyBytes>> {
        let position = self.position();
        let read = self.opened.read(py, position, most(size))?;
        self.go_to(position + read.as_bytes().len() as u64);
        Ok(read)
    }

    #[pyo3(signature = (size = None, /))]
    fn read1<'py>(&self, py: Python<'py>, size: Option<i64>) -> PyResult<Bound<'py, PyBytes>> {
        self.read(py, size)
    }

    fn readall<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.read(py, None)
    }

    #[pyo3(signature = (buffer, /))]
    fn readinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let position = self.position();
        let read = self.opened.read_into(py, position, Buffer::writable(buffer)?.bytes_mut())?;
        self.go_to(position + read as u64);
        Ok(read)
    }

    #[pyo3(signature = (buffer, /))]
    fn readinto1(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.readinto(py, buffer)
    }

    #[pyo3(signature = (size = None, /))]
    fn readline<'py>(&self, py: Python<'py>, size: Option<i64>) -> PyResult<Bound<'py, PyBytes>> {
        let position = self.position();
        let line = lines::line(py, &self.opened, position, most(size))?;
        self.go_to(position + line.len() as u64);
        Ok(PyBytes::new(py, &line))
    }

    #[pyo3(signature = (hint = None, /))]
    fn readlines<'py>(&self, py: Python<'py>, hint: Option<i64>) -> PyResult<Bound<'py, PyList>> {
        let most = most(hint.filter(|hint| *hint != 0));
        let (read, mut sum) = (PyList::empty(py), 0);
        while sum < most {
            let line = self.readline(py, None)?;
            if line.as_bytes().is_empty() {
                break;
            }
            sum += line.as_bytes().len() as u64;
            read.append(line)?;
        }
        Ok(read)
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let line = self.readline(py, None)?;
        if line.as_bytes().is_empty() { Err(PyStopIteration::new_err(())) } else { Ok(line) }
    }

    #[pyo3(signature = (offset, whence = 0, /))]
    fn seek(&self, offset: i64, whence: i32) -> PyResult<u64> {
        let size = self.size()?;
        let base = match whence {
            0 => 0,
            1 => self.position(),
            2 => size,
            _ => return Err(PyValueError::new_err(format!("`whence` is {whence}: it must be 0, 1 or 2"))),
        };
        let position = base.checked_add_signed(offset).ok_or_else(|| {
            let what = if offset < 0 { "before the start of the file" } else { "too large" };
            PyValueError::new_err(format!("`offset` is {offset}: the new position would be {what}"))
        })?;
        self.go_to(position);
        Ok(position)
    }

    fn tell(&self) -> PyResult<u64> {
        self.opened.look(|_| self.position())
    }

    fn readable(&self) -> PyResult<bool> {
        self.opened.look(|_| true)
    }

    fn seekable(&self) -> PyResult<bool> {
        self.opened.look(|_| true)
    }

    fn writable(&self) -> PyResult<bool> {
        self.opened.look(|_| false)
    }

    fn isatty(&self) -> PyResult<bool> {
        self.opened.look(|_| false)
    }

    fn flush(&self) -> PyResult<()> {
        self.opened.look(|_| ())
    }

    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        Err(Self::unsupported(py, "fileno"))
    }

    #[pyo3(signature = (data, /))]
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let _ = data;
        Err(Self::unsupported(py, "a remote file is read-only"))
    }

    #[pyo3(signature = (lines, /))]
    fn writelines(&self, py: Python<'_>, lines: &Bound<'_, PyAny>) -> PyResult<()> {
        let _ = lines;
        Err(Self::unsupported(py, "a remote file is read-only"))
    }

    #[pyo3(signature = (size = None, /))]
    fn truncate(&self, py: Python<'_>, size: Option<i64>) -> PyResult<u64> {
        let _ = size;
        Err(Self::unsupported(py, "a remote file is read-only"))
    }

    /// Cancels fetches in flight, and releases the memory.
    fn close(&self, py: Python<'_>) {
        self.opened.close(py);
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        slf.opened.look(|_| ())?;
        Ok(slf)
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyTuple>) {
        self.opened.close(py);
    }

    fn __repr__(&self) -> String {
        self.name().map_or_else(|_| "RemoteFile(closed)".to_owned(), |name| format!("RemoteFile('{name}')"))
    }

    // A pool belongs to one process. In another process, the file uses the default memory.
    fn __getnewargs_ex__(&self) -> ((&str,), &Given) {
        ((self.opened.url(),), &self.given)
    }

    fn __getstate__(&self) -> u64 {
        self.position()
    }

    fn __setstate__(&self, state: u64) {
        self.go_to(state);
    }
}

//! One sparse file.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use thalweg_sparse::{Merge, Overlap, Span};

use super::options::{Named, options, overlap};
use super::{Pin, Pool, spans, trouble};
use crate::buffer::Buffer;
use crate::fresh::{LONG, bytes_with};

/// Those bytes of a file that were written to it, in memory.
///
/// Bytes that touch form one block, however many writes they came by. Threads may share it. A write is seen whole or not at
/// all; one that fails has changed nothing.
#[pyclass(frozen, module = "thalweg", weakref)]
pub struct SparseFile(pub Arc<thalweg_sparse::SparseFile>);

impl SparseFile {
    /// Writes, with the interpreter lock as long as there is little to copy.
    fn put(&self, py: Python<'_>, position: u64, data: &Bound<'_, PyAny>, how: Overlap) -> PyResult<()> {
        let buffer;
        let bytes = match data.cast::<PyBytes>() {
            Ok(bytes) => bytes.as_bytes(),
            Err(_) => {
                buffer = Buffer::readable(data)?;
                buffer.bytes()
            }
        };
        let written = if bytes.len() > LONG {
            py.detach(|| self.0.write_with(position, bytes, how))
        } else {
            self.0.write_with(position, bytes, how)
        };
        written.map_err(|error| trouble(&error))
    }

    fn get<'py>(&self, py: Python<'py>, position: u64, length: u64) -> PyResult<Bound<'py, PyBytes>> {
        // Asked first, so that a wrong length takes no memory.
        if length > LONG as u64 && !self.0.has(position, length) {
            let missing = self.0.need(position, length, 0).first().copied();
            let wanted = Span::new(position, length);
            let error = thalweg_sparse::Error::Missing { wanted, missing: missing.unwrap_or(wanted) };
            return Err(trouble(&error));
        }
        let read = bytes_with(py, usize::try_from(length)?, |bytes| {
            if bytes.len() > LONG {
                py.detach(|| self.0.read(position, bytes))
            } else {
                self.0.read(position, bytes)
            }
        })?;
        read.map_err(|error| trouble(&error))
    }

    /// What is said by a word, or else how this file is kept.
    fn overlap(&self, py: Python<'_>, given: Option<&str>) -> PyResult<Overlap> {
        given.map_or(Ok(self.0.options().overlap), |word| overlap(py, word))
    }
}

#[pymethods]
impl SparseFile {
    #[new]
    #[pyo3(signature = (
        id, modified = 0.0, *, overlap = "agree", wipe = false, clock = "off", pool = None, touches = false
    ))]
    #[allow(clippy::too_many_arguments, reason = "in Python they have names")]
    fn new(
        py: Python<'_>,
        id: &str,
        modified: f64,
        overlap: &str,
        wipe: bool,
        clock: &str,
        pool: Option<&Bound<'_, Pool>>,
        touches: bool,
    ) -> PyResult<Self> {
        let options = options(py, overlap, wipe, clock, pool.map(Bound::get), touches)?;
        Ok(Self(Arc::new(thalweg_sparse::SparseFile::with_options(id, modified, options))))
    }

    /// The name of the origin.
    #[getter]
    fn id(&self) -> &str {
        self.0.id()
    }

    /// When the origin was last changed, as a number that means something to the caller.
    #[getter]
    fn modified(&self) -> f64 {
        self.0.modified()
    }

    /// Writes bytes at a position; `overlap` says what happens where bytes are held already.
    #[pyo3(signature = (position, data, overlap = None))]
    fn write(
        &self,
        py: Python<'_>,
        position: u64,
        data: &Bound<'_, PyAny>,
        overlap: Option<&str>,
    ) -> PyResult<()> {
        self.put(py, position, data, self.overlap(py, overlap)?)
    }

    /// Many writes in one call, each a tuple of position and data, one after the other.
    #[pyo3(signature = (writes, overlap = None))]
    fn write_many(&self, py: Python<'_>, writes: &Bound<'_, PyAny>, overlap: Option<&str>) -> PyResult<()> {
        let how = self.overlap(py, overlap)?;
        let one = |item: Bound<'_, PyAny>| {
            let pair = item.cast::<PyTuple>()?;
            self.put(py, pair.get_borrowed_item(0)?.extract()?, &*pair.get_borrowed_item(1)?, how)
        };
        match writes.cast::<PyList>() {
            Ok(list) => list.iter().try_for_each(one),
            Err(_) => writes.try_iter()?.try_for_each(|item| one(item?)),
        }
    }

    /// The `length` bytes from `position` on. `MissingError` if not all of them are held.
    fn read<'py>(&self, py: Python<'py>, position: u64, length: u64) -> PyResult<Bound<'py, PyBytes>> {
        self.get(py, position, length)
    }

    /// Fills a buffer with the bytes from `position` on.
    fn readinto(&self, py: Python<'_>, position: u64, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut buffer = Buffer::writable(buffer)?;
        let bytes = buffer.bytes_mut();
        let length = bytes.len();
        let read = if length > LONG {
            py.detach(|| self.0.read(position, bytes))
        } else {
            self.0.read(position, bytes)
        };
        read.map(|()| length).map_err(|error| trouble(&error))
    }

    /// Many reads in one call: the bytes of each range.
    fn read_many<'py>(&self, py: Python<'py>, spans: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let read = |item: Bound<'py, PyAny>| {
            let span = spans::span(&item)?;
            self.get(py, span.position, span.length)
        };
        let read: Vec<_> = match spans.cast::<PyList>() {
            Ok(list) => list.iter().map(read).collect::<PyResult<_>>()?,
            Err(_) => spans.try_iter()?.map(|item| read(item?)).collect::<PyResult<_>>()?,
        };
        PyList::new(py, read)
    }

    /// Whether all the `length` bytes from `position` on are held.
    fn has(&self, position: u64, length: u64) -> bool {
        self.0.has(position, length)
    }

    /// What is to be fetched so that a range is held.
    #[pyo3(signature = (position, length, greedy = 0))]
    fn need<'py>(
        &self,
        py: Python<'py>,
        position: u64,
        length: u64,
        greedy: u64,
    ) -> PyResult<Bound<'py, PyList>> {
        spans::list(py, &self.0.need(position, length, greedy))
    }

    /// What is to be fetched so that all of the ranges are held.
    #[pyo3(signature = (spans, greedy = 0))]
    fn need_many<'py>(
        &self,
        py: Python<'py>,
        spans: &Bound<'py, PyAny>,
        greedy: u64,
    ) -> PyResult<Bound<'py, PyList>> {
        let spans = spans::spans(spans)?;
        spans::list(py, &py.detach(|| self.0.need_many(&spans, greedy)))
    }

    /// The requests to make so that all of the ranges are held.
    #[pyo3(signature = (spans, *, gap = 0, longest = u64::MAX))]
    fn plan<'py>(
        &self,
        py: Python<'py>,
        spans: &Bound<'py, PyAny>,
        gap: u64,
        longest: u64,
    ) -> PyResult<Bound<'py, PyList>> {
        let spans = spans::spans(spans)?;
        spans::list(py, &py.detach(|| self.0.plan(&spans, Merge { gap, longest })))
    }

    /// The blocks that are held, in order.
    fn blocks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        spans::list(py, &py.detach(|| self.0.blocks()))
    }

    /// How many blocks are held.
    fn count_blocks(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.0.count_blocks())
    }

    /// The block that the byte at `position` is in, if it is held.
    fn block_at(&self, position: u64) -> Option<(u64, u64)> {
        self.0.block_at(position).as_ref().map(spans::pair)
    }

    /// How many bytes are held.
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// The position after the last byte that is held; 0 if none is.
    fn end(&self) -> u64 {
        self.0.end()
    }

    /// The memory that it takes, in bytes.
    fn heap_bytes(&self, py: Python<'_>) -> usize {
        py.detach(|| self.0.heap_bytes())
    }

    /// Lets go of what is held of a range, and says how many bytes that was.
    fn erase(&self, py: Python<'_>, position: u64, length: u64) -> u64 {
        py.detach(|| self.0.erase(position, length))
    }

    /// Lets go of the block that starts at `position`, and says how long it was. `ValueError` if none starts there.
    fn erase_block(&self, position: u64) -> PyResult<u64> {
        self.0.erase_block(position).map_err(|error| trouble(&error))
    }

    /// Lets go of everything, and counts from zero.
    fn clear(&self, py: Python<'_>) {
        py.detach(|| self.0.clear());
    }

    /// Gives back the memory that is kept for blocks to grow.
    fn compact(&self, py: Python<'_>) {
        py.detach(|| self.0.compact());
    }

    /// Keeps what is held of a range, and what comes to be held there, from being evicted, as long as the pin is there.
    fn pin(&self, position: u64, length: u64) -> Pin {
        Pin(Some(self.0.pin(position, length)).into())
    }

    /// What was done so far, by name.
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        super::counters::dictionary(py, &self.0.counters())
    }

    /// The number that the next use of a block will have, with `touches=True`.
    fn next_touch(&self) -> u64 {
        self.0.next_touch()
    }

    /// For each block the number of its last use and where it starts, with `touches=True`.
    fn touches(&self) -> Vec<(u64, u64)> {
        self.0.touches()
    }

    /// While `bound` bytes or more are held, lets go of the block that was used least recently; with `touches=True`.
    fn evict_blocks(&self, py: Python<'_>, bound: u64) -> u64 {
        py.detach(|| self.0.evict_blocks(bound))
    }

    fn __repr__(&self) -> String {
        format!("SparseFile('{}', {} bytes held)", self.0.id(), self.0.bytes())
    }

    fn __getnewargs_ex__(&self) -> ((&str, f64), Named) {
        ((self.0.id(), self.0.modified()), Named::of(self.0.options()))
    }

    /// The blocks, each with its bytes.
    pub(super) fn __getstate__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let mut blocks = Vec::new();
        for block in self.0.blocks() {
            blocks.push((block.position, self.get(py, block.position, block.length)?));
        }
        PyTuple::new(py, blocks)
    }

    pub(super) fn __setstate__(&self, py: Python<'_>, state: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.write_many(py, state, None)
    }
}

//! One sparse file.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use thalweg_sparse::{Merge, Overlap, Span};

use super::options::{Named, options, overlap};
use super::{Missing, Pin, Pool, spans, to_py_error};
use crate::buffer::Buffer;
use crate::fresh::{LONG, bytes_with};
use crate::natural::Natural;
use crate::pairs;
use crate::quick::{self, Arguments, Made};

/// The parts of a file that were written to it, in memory.
///
/// Adjacent bytes form one *block*, no matter how many writes they came from. Threads may share the file. A
/// write is visible completely or not at all; a failed write changes nothing. Positions and lengths are in
/// bytes and must not be negative.
///
/// `id` names the origin, and `modified` is the time of its last change. `overlap` says what a write does
/// where bytes are already held: `agree` requires the same bytes, `replace` overwrites the held ones, and
/// `keep` keeps them. With `wipe`, memory is zeroed before it is freed. `clock` sets the precision of the
/// recorded times of the last read and write. `pool` is a memory limit that several files share. `touches`
/// records the order in which blocks are used.
#[pyclass(frozen, module = "thalweg", weakref)]
pub struct SparseFile(pub Arc<thalweg_sparse::SparseFile>);

/// Reads or writes `length` bytes. Long transfers release the interpreter lock, short ones keep it.
fn transfer<T: Send>(py: Python<'_>, length: usize, work: impl FnOnce() -> T + Send) -> T {
    if length > LONG { py.detach(work) } else { work() }
}

impl SparseFile {
    /// Writes bytes.
    fn put(&self, py: Python<'_>, position: u64, data: &Bound<'_, PyAny>, how: Overlap) -> PyResult<()> {
        let buffer;
        let bytes = match data.cast::<PyBytes>() {
            Ok(bytes) => bytes.as_bytes(),
            Err(_) => {
                buffer = Buffer::readable(data)?;
                buffer.bytes()
            }
        };
        let written = transfer(py, bytes.len(), || self.0.write_with(position, bytes, how));
        written.map_err(|error| to_py_error(&error))
    }

    fn get<'py>(&self, py: Python<'py>, position: u64, length: u64) -> PyResult<Bound<'py, PyBytes>> {
        // Checked first, so that a wrong length allocates no memory.
        if length > LONG as u64 && !self.0.has(position, length) {
            let missing = self.0.need(position, length, 0).first().copied();
            let wanted = Span::new(position, length);
            let error = thalweg_sparse::Error::Missing { wanted, missing: missing.unwrap_or(wanted) };
            return Err(to_py_error(&error));
        }
        let read = bytes_with(py, usize::try_from(length)?, |bytes| {
            transfer(py, bytes.len(), || self.0.read(position, bytes))
        })?;
        read.map_err(|error| to_py_error(&error))
    }

    /// Returns the policy that a word names, or the file's own without a word.
    fn overlap(&self, py: Python<'_>, given: Option<&str>) -> PyResult<Overlap> {
        given.map_or(Ok(self.0.options().overlap), |word| overlap(py, word))
    }
}

/// The methods without the general conversion of arguments: see [`quick`].
impl SparseFile {
    fn read_quickly(&self, given: &Arguments<'_, '_>) -> Option<Made> {
        let given = given.exactly(2)?;
        let (position, length) = (given.unsigned(0)?, given.unsigned(1)?);
        self.0.look(position, usize::try_from(length).ok()?, |bytes| given.made(bytes))?
    }

    fn write_quickly(&self, given: &Arguments<'_, '_>) -> Option<Made> {
        let given = given.exactly(2)?;
        let (position, data) = (given.unsigned(0)?, given.bytes(1).filter(|data| data.len() <= LONG)?);
        self.0.write(position, data).ok()?;
        Some(given.none())
    }

    fn has_quickly(&self, given: &Arguments<'_, '_>) -> Option<Made> {
        let given = given.exactly(2)?;
        Some(given.truth(self.0.has(given.unsigned(0)?, given.unsigned(1)?)))
    }

    fn need_quickly(&self, given: &Arguments<'_, '_>) -> Option<Made> {
        let given = given.exactly(2)?;
        let missing = Missing::of(&self.0, Span::new(given.unsigned(0)?, given.unsigned(1)?));
        given.list(&missing)
    }
}

/// Replaces the methods of the class that are called most.
///
/// # Errors
/// `MemoryError`.
pub fn quicken(py: Python<'_>) -> PyResult<()> {
    quick::method!(py, SparseFile, c"read", read_quickly)?;
    quick::method!(py, SparseFile, c"write", write_quickly)?;
    quick::method!(py, SparseFile, c"has", has_quickly)?;
    quick::method!(py, SparseFile, c"need", need_quickly)
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

    /// When the origin was last changed, as a number that only the caller interprets.
    #[getter]
    fn modified(&self) -> f64 {
        self.0.modified()
    }

    /// Writes bytes at a position. `overlap` says what happens where bytes are already held. `DiffersError`
    /// if they must be the same and are not.
    #[pyo3(signature = (position, data, overlap = None))]
    fn write(
        &self,
        py: Python<'_>,
        position: Natural,
        data: &Bound<'_, PyAny>,
        overlap: Option<&str>,
    ) -> PyResult<()> {
        self.put(py, position.get("position")?, data, self.overlap(py, overlap)?)
    }

    /// Does many writes in one call, one after the other. Each is a position and data. If one fails, the
    /// writes before it are done.
    #[pyo3(signature = (writes, overlap = None))]
    fn write_many(&self, py: Python<'_>, writes: &Bound<'_, PyAny>, overlap: Option<&str>) -> PyResult<()> {
        let how = self.overlap(py, overlap)?;
        let one = |item: Bound<'_, PyAny>| {
            let pair = item.cast::<PyTuple>()?;
            let position: Natural = pair.get_borrowed_item(0)?.extract()?;
            self.put(py, position.get("position")?, &*pair.get_borrowed_item(1)?, how)
        };
        match writes.cast::<PyList>() {
            Ok(list) => list.iter().try_for_each(one),
            Err(_) => writes.try_iter()?.try_for_each(|item| one(item?)),
        }
    }

    /// Returns `length` bytes from `position` on. `MissingError` if not all of them are held.
    fn read<'py>(
        &self,
        py: Python<'py>,
        position: Natural,
        length: Natural,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.get(py, position.get("position")?, length.get("length")?)
    }

    /// Fills a buffer with the bytes from `position` on, and returns their number, which is the length of the
    /// buffer. `MissingError` if not all of them are held; the content of the buffer is undefined then.
    fn readinto(&self, py: Python<'_>, position: Natural, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let position = position.get("position")?;
        let mut buffer = Buffer::writable(buffer)?;
        let bytes = buffer.bytes_mut();
        let length = bytes.len();
        let read = transfer(py, length, || self.0.read(position, bytes));
        read.map(|()| length).map_err(|error| to_py_error(&error))
    }

    /// Returns the bytes of each position and length: many reads in one call.
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

    /// True if all `length` bytes from `position` on are held. With `length` 0, true if the position is in or
    /// next to a block.
    fn has(&self, position: Natural, length: Natural) -> PyResult<bool> {
        Ok(self.0.has(position.get("position")?, length.get("length")?))
    }

    /// Returns the ranges to fetch so that `length` bytes from `position` on are held: the missing parts, in
    /// order. If `greedy` is more than `length`, each part is extended to at least `greedy` bytes. Parts that
    /// then touch or overlap are merged.
    #[pyo3(signature = (position, length, greedy = Natural::from(0)), text_signature = "($self, position, length, greedy=0)")]
    fn need<'py>(
        &self,
        py: Python<'py>,
        position: Natural,
        length: Natural,
        greedy: Natural,
    ) -> PyResult<Bound<'py, PyList>> {
        let (position, length) = (position.get("position")?, length.get("length")?);
        pairs::list(py, &self.0.need(position, length, greedy.get("greedy")?))
    }

    /// Returns the ranges to fetch so that all of these ranges are held, each at least `greedy` bytes long.
    #[pyo3(signature = (spans, greedy = Natural::from(0)), text_signature = "($self, spans, greedy=0)")]
    fn need_many<'py>(
        &self,
        py: Python<'py>,
        spans: &Bound<'py, PyAny>,
        greedy: Natural,
    ) -> PyResult<Bound<'py, PyList>> {
        let (spans, greedy) = (spans::spans(spans)?, greedy.get("greedy")?);
        pairs::list(py, &py.detach(|| self.0.need_many(&spans, greedy)))
    }

    /// Returns the requests to make so that all of these ranges are held: the missing parts, merged over gaps
    /// of at most `gap` bytes, each at most `longest` bytes long.
    #[pyo3(
        signature = (spans, *, gap = Natural::from(0), longest = Natural::from(u64::MAX)),
        text_signature = "($self, spans, *, gap=0, longest=...)"
    )]
    fn plan<'py>(
        &self,
        py: Python<'py>,
        spans: &Bound<'py, PyAny>,
        gap: Natural,
        longest: Natural,
    ) -> PyResult<Bound<'py, PyList>> {
        let how = Merge { gap: gap.get("gap")?, longest: longest.get("longest")? };
        let spans = spans::spans(spans)?;
        pairs::list(py, &py.detach(|| self.0.plan(&spans, how)))
    }

    /// Returns the position and length of each held block, in order.
    fn blocks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        pairs::list(py, &py.detach(|| self.0.blocks()))
    }

    /// Returns the number of held blocks.
    fn count_blocks(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.0.count_blocks())
    }

    /// Returns the block that contains the byte at `position`, if it is held.
    fn block_at(&self, position: Natural) -> PyResult<Option<(u64, u64)>> {
        Ok(self.0.block_at(position.get("position")?).as_ref().map(spans::pair))
    }

    /// Returns the number of held bytes.
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// Returns the position after the last held byte; 0 if the file is empty.
    fn end(&self) -> u64 {
        self.0.end()
    }

    /// Returns the memory that the file uses, in bytes.
    fn heap_bytes(&self, py: Python<'_>) -> usize {
        py.detach(|| self.0.heap_bytes())
    }

    /// Drops the held bytes of a range, and returns their number.
    fn erase(&self, py: Python<'_>, position: Natural, length: Natural) -> PyResult<u64> {
        let (position, length) = (position.get("position")?, length.get("length")?);
        Ok(py.detach(|| self.0.erase(position, length)))
    }

    /// Drops the block that starts at `position`, and returns its length in bytes. `ValueError` if none
    /// starts there.
    fn erase_block(&self, position: Natural) -> PyResult<u64> {
        self.0.erase_block(position.get("position")?).map_err(|error| to_py_error(&error))
    }

    /// Drops everything and resets the counters.
    fn clear(&self, py: Python<'_>) {
        py.detach(|| self.0.clear());
    }

    /// Releases the memory that is reserved for blocks to grow.
    fn compact(&self, py: Python<'_>) {
        py.detach(|| self.0.compact());
    }

    /// Protects a range from eviction by a pool while the pin exists. This includes bytes that are written
    /// there later. (The other bytes of the same units of 64 KiB are protected as well.)
    fn pin(&self, position: Natural, length: Natural) -> PyResult<Pin> {
        Ok(Pin(Some(self.0.pin(position.get("position")?, length.get("length")?)).into()))
    }

    /// Returns the counters; times in seconds since 1970.
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        super::counters::dictionary(py, &self.0.counters())
    }

    /// Returns the number that the next use of a block gets. Needs `touches=True`.
    fn next_touch(&self) -> u64 {
        self.0.next_touch()
    }

    /// Returns the last use's number and the start of each block, least recent first. Needs `touches=True`.
    fn touches(&self) -> Vec<(u64, u64)> {
        self.0.touches()
    }

    /// Drops the least recently used block while `bound` bytes or more are held. The last block always stays.
    /// Returns the number of bytes dropped. Needs `touches=True`.
    fn evict_blocks(&self, py: Python<'_>, bound: Natural) -> PyResult<u64> {
        let bound = bound.get("bound")?;
        Ok(py.detach(|| self.0.evict_blocks(bound)))
    }

    fn __repr__(&self) -> String {
        format!("SparseFile('{}', {} bytes held)", self.0.id(), self.0.bytes())
    }

    fn __getnewargs_ex__(&self) -> ((&str, f64), Named) {
        ((self.0.id(), self.0.modified()), Named::of(self.0.options()))
    }

    /// The state of a pickle: each block with its bytes.
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

//! The class `cSVF`.

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use thalweg_sparse::Counters;

use super::arguments::{bytes, seek_reads, text, unsigned};
use super::held::{Config, Held, Unread};
use super::{state, times};
use crate::pairs;
use crate::quick::{self, Arguments, Made};

/// A sparse virtual file: fragments of a file in memory.
// While its lock is held, no call into Python may let another thread run: that thread might wait for the
// lock.
#[pyclass(frozen, subclass, name = "cSVF", module = "svfsc")]
#[derive(Default)]
pub struct File(Mutex<Option<Held>>);

impl File {
    #[inline]
    fn held(&self) -> PyResult<MappedMutexGuard<'_, Held>> {
        MutexGuard::try_map(self.0.lock(), Option::as_mut)
            .map_err(|_| PyRuntimeError::new_err("__init__() was not called"))
    }

    fn counters(&self) -> PyResult<Counters> {
        Ok(self.held()?.counters())
    }
}

/// The methods without the general conversion of arguments: see [`quick`].
impl File {
    fn read_quickly(&self, given: &Arguments<'_, '_>) -> Option<Made> {
        let given = given.exactly(2)?;
        let (position, length) = (given.wrapped(0)?, given.wrapped(1)?);
        self.0.lock().as_mut()?.look(position, length, |bytes| given.made(bytes))
    }

    fn write_quickly(&self, given: &Arguments<'_, '_>) -> Option<Made> {
        let given = given.exactly(2)?;
        let (position, data) = (given.wrapped(0)?, given.bytes(1)?);
        self.0.lock().as_mut()?.write(position, data).ok()?;
        Some(given.none())
    }

    fn has_quickly(&self, given: &Arguments<'_, '_>) -> Option<Made> {
        let given = given.exactly(2)?;
        let (position, length) = (given.wrapped(0)?, given.wrapped(1)?);
        Some(given.truth(self.0.lock().as_ref()?.file.has(position, length)))
    }

    fn need_quickly(&self, given: &Arguments<'_, '_>) -> Option<Made> {
        let given = given.exactly(2)?;
        let (position, length) = (given.wrapped(0)?, given.wrapped(1)?);
        // The lock is released before the list is made: that may run the garbage collector.
        let missing = self.0.lock().as_ref()?.usually(position, length)?;
        given.list(&missing)
    }
}

/// Replaces the methods of the class that are called most.
///
/// # Errors
/// `MemoryError`.
pub fn quicken(py: Python<'_>) -> PyResult<()> {
    quick::method!(py, File, c"read", read_quickly)?;
    quick::method!(py, File, c"write", write_quickly)?;
    quick::method!(py, File, c"has_data", has_quickly)?;
    quick::method!(py, File, c"need", need_quickly)
}

#[pymethods]
impl File {
    // Empty, because unpickling creates the object first and then sets its state.
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self::default()
    }

    #[pyo3(signature = (id, mod_time = None, overwrite_on_exit = None, compare_for_diff = None))]
    fn __init__(
        &self,
        id: &Bound<'_, PyAny>,
        mod_time: Option<&Bound<'_, PyAny>>,
        overwrite_on_exit: Option<&Bound<'_, PyAny>>,
        compare_for_diff: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let id = text(id, 1)?;
        let modified = mod_time.map_or(Ok(0.0), PyAnyMethods::extract)?;
        let config = Config::of(overwrite_on_exit, compare_for_diff)?;
        *self.0.lock() = Some(Held::new(id, modified, config));
        Ok(())
    }

    /// Returns the name of the file.
    fn id(&self) -> PyResult<String> {
        Ok(self.held()?.file.id().to_owned())
    }

    /// Returns the modification time that the caller passed.
    fn file_mod_time(&self) -> PyResult<f64> {
        Ok(self.held()?.file.modified())
    }

    /// True if the modification time equals this one exactly.
    fn file_mod_time_matches(&self, file_mod_time: f64) -> PyResult<bool> {
        Ok(self.held()?.file.is_modified_at(file_mod_time))
    }

    /// Returns the options `compare_for_diff` and `overwrite_on_exit`.
    fn config<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let config = self.held()?.config;
        config.dictionary(py)
    }

    /// True if all bytes of a range are held.
    fn has_data(&self, file_position: &Bound<'_, PyAny>, length: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (position, length) = (unsigned(file_position, 1)?, unsigned(length, 2)?);
        Ok(self.held()?.file.has(position, length))
    }

    /// Writes bytes at a position. `OSError` if different bytes are held there.
    fn write(&self, file_position: &Bound<'_, PyAny>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let (position, data) = (unsigned(file_position, 1)?, bytes(data, 2)?);
        self.held()?.write(position, data).map_err(|error| {
            PyOSError::new_err(format!(
                "cp_SparseVirtualFile_write: Can not write to a SVF as the given data is different from what is there. \
                 ERROR: {error}"
            ))
        })
    }

    /// Returns the bytes of a range. `OSError` if not all of them are held.
    fn read<'py>(
        &self,
        py: Python<'py>,
        file_position: &Bound<'py, PyAny>,
        length: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        const WHERE: &str = "private_SparseVirtualFile_svf_read_as_py_bytes()";
        let (position, length) = (unsigned(file_position, 1)?, unsigned(length, 2)?);
        let read = self.held()?.read(py, position, length);
        read.map_err(|error| match error {
            Unread::Memory => PyRuntimeError::new_err(format!("{WHERE}#455: Could not create bytes object.")),
            Unread::Missing(error) => {
                PyOSError::new_err(format!("{WHERE}#462: Can not read from a SVF. ERROR: {error}"))
            }
        })
    }

    /// Does many writes in one call, each a tuple of position and data. (`svfsc` has no such method.)
    fn write_many(&self, writes: &Bound<'_, PyList>) -> PyResult<()> {
        writes.iter().try_for_each(|item| {
            let pair = item.cast::<PyTuple>()?;
            self.write(&*pair.get_borrowed_item(0)?, &*pair.get_borrowed_item(1)?)
        })
    }

    /// Returns the bytes of each tuple of position and length: many reads in one call. (`svfsc` has no such
    /// method.)
    fn read_many<'py>(
        &self,
        py: Python<'py>,
        seek_reads: &Bound<'py, PyList>,
    ) -> PyResult<Bound<'py, PyList>> {
        let read = |item: Bound<'py, PyAny>| {
            let pair = item.cast::<PyTuple>()?;
            self.read(py, &*pair.get_borrowed_item(0)?, &*pair.get_borrowed_item(1)?)
        };
        PyList::new(py, seek_reads.iter().map(read).collect::<PyResult<Vec<_>>>()?)
    }

    /// Returns the ranges to fetch so that a range is held: a list of positions and lengths.
    #[pyo3(
        signature = (file_position, length, greedy_length = None),
        text_signature = "($self, file_position, length, greedy_length=0)"
    )]
    fn need<'py>(
        &self,
        py: Python<'py>,
        file_position: &Bound<'py, PyAny>,
        length: &Bound<'py, PyAny>,
        greedy_length: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let (position, length) = (unsigned(file_position, 1)?, unsigned(length, 2)?);
        let greedy = greedy_length.map_or(Ok(0), |greedy| unsigned(greedy, 3))?;
        let missing = self.held()?.need(position, length, greedy);
        pairs::list(py, &missing)
    }

    /// Returns the ranges to fetch so that all of these ranges are held.
    #[pyo3(
        signature = (seek_reads, greedy_length = None),
        text_signature = "($self, seek_reads, greedy_length=0)"
    )]
    fn need_many<'py>(
        &self,
        py: Python<'py>,
        seek_reads: &Bound<'py, PyAny>,
        greedy_length: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let greedy = greedy_length.map_or(Ok(0), |greedy| unsigned(greedy, 2))?;
        let wanted = self::seek_reads(seek_reads)?;
        let missing = self.held()?.need_many(&wanted, greedy);
        pairs::list(py, &missing)
    }

    /// Returns the blocks, as a tuple of positions and lengths.
    fn blocks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let blocks = self.held()?.file.blocks();
        pairs::tuple(py, &blocks)
    }

    /// Drops the block that starts at a position. `OSError` if none starts there.
    fn erase(&self, file_position: &Bound<'_, PyAny>) -> PyResult<()> {
        let position = unsigned(file_position, 1)?;
        self.held()?.erase(position).map_err(|error| {
            PyOSError::new_err(format!(
                "cp_SparseVirtualFile_erase(): Can not erase from a SVF. ERROR: {error}"
            ))
        })
    }

    /// Drops everything and resets the counters.
    fn clear(&self) -> PyResult<()> {
        self.held()?.clear();
        Ok(())
    }

    /// Returns the number that the next use of a block gets.
    fn block_touch(&self) -> PyResult<u64> {
        Ok(self.held()?.next_touch())
    }

    /// Returns a dictionary from the number of the last use of each block to the position of the block.
    fn block_touches<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let touches = self.held()?.touches();
        state::touches(py, &touches)
    }

    /// Drops the least recently used block while this many bytes or more are held. The last block always
    /// stays.
    fn lru_punt(&self, cache_size_upper_bound: &Bound<'_, PyAny>) -> PyResult<u64> {
        let bound = unsigned(cache_size_upper_bound, 1)?;
        Ok(self.held()?.punt(bound))
    }

    /// Returns the memory that the file uses, in bytes.
    fn size_of(&self) -> PyResult<usize> {
        Ok(self.held()?.heap())
    }

    /// Returns the number of held bytes.
    fn num_bytes(&self) -> PyResult<u64> {
        Ok(self.held()?.file.bytes())
    }

    /// Returns the number of held blocks.
    fn num_blocks(&self) -> PyResult<u64> {
        Ok(self.held()?.file.count_blocks())
    }

    /// Returns the position after the last byte.
    fn last_file_position(&self) -> PyResult<u64> {
        Ok(self.held()?.file.end())
    }

    /// Returns the number of reads.
    fn count_read(&self) -> PyResult<u64> {
        Ok(self.counters()?.reads)
    }

    /// Returns the number of writes.
    fn count_write(&self) -> PyResult<u64> {
        Ok(self.counters()?.writes)
    }

    /// Returns the number of bytes read.
    fn bytes_read(&self) -> PyResult<u64> {
        Ok(self.counters()?.bytes_read)
    }

    /// Returns the number of bytes passed to writes.
    fn bytes_write(&self) -> PyResult<u64> {
        Ok(self.counters()?.bytes_written)
    }

    /// Returns the number of blocks dropped in any way.
    fn blocks_erased(&self) -> PyResult<u64> {
        Ok(self.counters()?.blocks_erased)
    }

    /// Returns the number of bytes dropped in any way.
    fn bytes_erased(&self) -> PyResult<u64> {
        Ok(self.counters()?.bytes_erased)
    }

    /// Returns the number of blocks dropped by `lru_punt`.
    fn blocks_punted(&self) -> PyResult<u64> {
        Ok(self.counters()?.blocks_evicted)
    }

    /// Returns the number of bytes dropped by `lru_punt`.
    fn bytes_punted(&self) -> PyResult<u64> {
        Ok(self.counters()?.bytes_evicted)
    }

    /// Returns the time of the last read, in UTC; None if there was none.
    fn time_read<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let time = self.counters()?.last_read;
        times::naive(py, time)
    }

    /// Returns the time of the last write, in UTC; None if there was none.
    fn time_write<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let time = self.counters()?.last_write;
        times::naive(py, time)
    }

    fn __getstate__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (id, modified, blocks) = {
            let held = self.held()?;
            (held.file.id().to_owned(), held.file.modified(), held.file.blocks())
        };
        let mut read = Vec::with_capacity(blocks.len());
        for block in blocks {
            let bytes = self.held()?.read(py, block.position, block.length);
            let bytes =
                bytes.map_err(|_| PyRuntimeError::new_err("the file changed while it was pickled"))?;
            read.push((block.position, bytes));
        }
        state::get(py, &id, modified, read)
    }

    fn __setstate__(&self, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let made = state::set(state)?;
        *self.0.lock() = Some(made);
        Ok(())
    }

    fn __reduce_ex__<'py>(slf: &Bound<'py, Self>, protocol: u8) -> PyResult<Bound<'py, PyAny>> {
        state::reduce(slf, protocol)
    }
}

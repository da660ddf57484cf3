//! The class `cSVFS`.

use std::collections::HashMap;

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use pyo3::exceptions::{PyIndexError, PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use super::arguments::{bytes, seek_reads, text, unsigned};
use super::held::{Config, Held, Unread};
use super::{state, times};
use crate::pairs;

/// A system of sparse virtual files, by id.
#[pyclass(frozen, subclass, name = "cSVFS", module = "svfsc")]
pub struct FileSystem {
    config: Config,
    files: Mutex<HashMap<String, Held>>,
}

impl FileSystem {
    /// Returns the file with this id. `id` is the first argument of `method`, which error messages name.
    #[inline]
    fn file(&self, id: &Bound<'_, PyAny>, method: &str) -> PyResult<MappedMutexGuard<'_, Held>> {
        let id = text(id, 1)?;
        MutexGuard::try_map(self.files.lock(), |files| files.get_mut(id)).map_err(|_| {
            let what = match method {
                "svf_blocks" | "file_mod_time" => format!("No SVF ID {id}"),
                "svf_time_read" => format!("No Sparse Virtual File ID \"{id}\""),
                _ => format!("No SVF ID \"{id}\""),
            };
            PyIndexError::new_err(format!("cp_SparseVirtualFileSystem_{method}: {what}"))
        })
    }
}

#[pymethods]
impl FileSystem {
    #[new]
    #[pyo3(
        signature = (overwrite_on_exit = None, compare_for_diff = None),
        text_signature = "(overwrite_on_exit=False, compare_for_diff=True)"
    )]
    fn new(
        overwrite_on_exit: Option<&Bound<'_, PyAny>>,
        compare_for_diff: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        Ok(Self { config: Config::of(overwrite_on_exit, compare_for_diff)?, files: Mutex::default() })
    }

    fn __len__(&self) -> usize {
        self.files.lock().len()
    }

    /// Adds an empty file. `RuntimeError` if the id already exists.
    fn insert(&self, id: &Bound<'_, PyAny>, mod_time: f64) -> PyResult<()> {
        let id = text(id, 1)?;
        let mut files = self.files.lock();
        if files.contains_key(id) {
            return Err(PyRuntimeError::new_err(format!(
                "cp_SparseVirtualFileSystem_insert: Can not insert a new Sparse Virtual File ID = \"{id}\". \
                 ERROR: SparseVirtualFileSystem::insert(): can not insert \"{id}\""
            )));
        }
        files.insert(id.to_owned(), Held::new(id, mod_time, self.config));
        Ok(())
    }

    /// Removes a file. `IndexError` if there is none with this id.
    fn remove(&self, id: &Bound<'_, PyAny>) -> PyResult<()> {
        let id = text(id, 1)?;
        let removed = self.files.lock().remove(id);
        removed.map(drop).ok_or_else(|| {
            PyIndexError::new_err(format!(
                "cp_SparseVirtualFileSystem_remove: Can not remove a Sparse Virtual File. \
                 ERROR: SparseVirtualFileSystem::remove(): id \"{id}\" not found."
            ))
        })
    }

    /// True if a file with this id exists.
    fn has(&self, id: &Bound<'_, PyAny>) -> PyResult<bool> {
        let id = text(id, 1)?;
        Ok(self.files.lock().contains_key(id))
    }

    /// Returns all ids, in no particular order.
    fn keys(&self) -> Vec<String> {
        self.files.lock().keys().cloned().collect()
    }

    /// Returns the options of its files: `compare_for_diff` and `overwrite_on_exit`.
    fn config<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.config.dictionary(py)
    }

    /// Returns the memory that all files use, in bytes.
    fn total_size_of(&self) -> usize {
        let files = self.files.lock();
        size_of::<Self>() + files.values().map(|held| held.heap()).sum::<usize>()
    }

    /// Returns the number of bytes that all files hold.
    fn total_bytes(&self) -> u64 {
        self.files.lock().values().map(|held| held.file.bytes()).sum()
    }

    /// Returns the number of blocks that all files hold.
    fn total_blocks(&self) -> u64 {
        self.files.lock().values().map(|held| held.file.count_blocks()).sum()
    }

    /// Calls `lru_punt` on each file. Returns the number of bytes dropped.
    fn lru_punt_all(&self, cache_size_upper_bound: &Bound<'_, PyAny>) -> PyResult<u64> {
        let bound = unsigned(cache_size_upper_bound, 1)?;
        Ok(self.files.lock().values_mut().map(|held| held.punt(bound)).sum())
    }

    /// True if all bytes of a range are held.
    fn has_data(
        &self,
        id: &Bound<'_, PyAny>,
        file_position: &Bound<'_, PyAny>,
        length: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let (position, length) = (unsigned(file_position, 2)?, unsigned(length, 3)?);
        Ok(self.file(id, "svf_has_data")?.file.has(position, length))
    }

    /// Writes bytes at a position. `OSError` if different bytes are held there.
    fn write(
        &self,
        id: &Bound<'_, PyAny>,
        file_position: &Bound<'_, PyAny>,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (position, data) = (unsigned(file_position, 2)?, bytes(data, 3)?);
        let written = self.file(id, "svf_write")?.write(position, data);
        written.map_err(|error| {
            PyOSError::new_err(format!(
                "cp_SparseVirtualFileSystem_svf_write: Can not write to a SVF id = \"{id}\" as the given data is \
                 different from what is there. ERROR: {error}"
            ))
        })
    }

    /// Returns the bytes of a range. `OSError` if not all of them are held.
    fn read<'py>(
        &self,
        py: Python<'py>,
        id: &Bound<'py, PyAny>,
        file_position: &Bound<'py, PyAny>,
        length: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (position, length) = (unsigned(file_position, 2)?, unsigned(length, 3)?);
        let read = {
            let mut held = self.file(id, "svf_read")?;
            match held.read(py, position, length) {
                Err(Unread::Memory) => Err(held.missing(position, length)),
                Err(Unread::Missing(error)) => Err(error),
                Ok(read) => Ok(read),
            }
        };
        read.map_err(|error| {
            PyOSError::new_err(format!(
                "cp_SparseVirtualFileSystem_svf_read: Can not read from a SVF id= \"{id}\". ERROR: {error}"
            ))
        })
    }

    /// Drops the block that starts at a position. `OSError` if none starts there.
    fn erase(&self, id: &Bound<'_, PyAny>, file_position: &Bound<'_, PyAny>) -> PyResult<()> {
        let position = unsigned(file_position, 2)?;
        let erased = self.file(id, "svf_erase")?.erase(position);
        erased.map_err(|error| {
            PyOSError::new_err(format!(
                "cp_SparseVirtualFileSystem_svf_erase: Can not erase block from a SVF id= \"{id}\". ERROR: {error}"
            ))
        })
    }

    /// Returns the ranges to fetch so that a range is held.
    #[pyo3(
        signature = (id, file_position, length, greedy_length = None),
        text_signature = "($self, id, file_position, length, greedy_length=0)"
    )]
    fn need<'py>(
        &self,
        py: Python<'py>,
        id: &Bound<'py, PyAny>,
        file_position: &Bound<'py, PyAny>,
        length: &Bound<'py, PyAny>,
        greedy_length: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let (position, length) = (unsigned(file_position, 2)?, unsigned(length, 3)?);
        let greedy = greedy_length.map_or(Ok(0), |greedy| unsigned(greedy, 4))?;
        let missing = self.file(id, "svf_need")?.need(position, length, greedy);
        pairs::list(py, &missing)
    }

    /// Returns the ranges to fetch so that all of these ranges are held.
    #[pyo3(
        signature = (id, seek_reads, greedy_length = None),
        text_signature = "($self, id, seek_reads, greedy_length=0)"
    )]
    fn need_many<'py>(
        &self,
        py: Python<'py>,
        id: &Bound<'py, PyAny>,
        seek_reads: &Bound<'py, PyAny>,
        greedy_length: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let greedy = greedy_length.map_or(Ok(0), |greedy| unsigned(greedy, 3))?;
        drop(self.file(id, "svf_need_many")?);
        let wanted = self::seek_reads(seek_reads)?;
        let missing = self.file(id, "svf_need_many")?.need_many(&wanted, greedy);
        pairs::list(py, &missing)
    }

    /// Returns the blocks of a file, as a tuple of positions and lengths.
    fn blocks<'py>(&self, py: Python<'py>, id: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
        let blocks = self.file(id, "svf_blocks")?.file.blocks();
        pairs::tuple(py, &blocks)
    }

    /// Returns the memory that a file uses, in bytes.
    fn size_of(&self, id: &Bound<'_, PyAny>) -> PyResult<usize> {
        Ok(self.file(id, "svf_size_of")?.heap())
    }

    /// Returns the number of held bytes of a file.
    fn num_bytes(&self, id: &Bound<'_, PyAny>) -> PyResult<u64> {
        Ok(self.file(id, "svf_num_bytes")?.file.bytes())
    }

    /// Returns the number of held blocks of a file.
    fn num_blocks(&self, id: &Bound<'_, PyAny>) -> PyResult<u64> {
        Ok(self.file(id, "svf_num_blocks")?.file.count_blocks())
    }

    /// Returns the modification time that the caller passed for a file.
    fn file_mod_time(&self, id: &Bound<'_, PyAny>) -> PyResult<f64> {
        Ok(self.file(id, "file_mod_time")?.file.modified())
    }

    /// True if the modification time equals this one exactly.
    fn file_mod_time_matches(&self, id: &Bound<'_, PyAny>, file_mod_time: f64) -> PyResult<bool> {
        Ok(self.file(id, "svf_file_mod_time_matches")?.file.is_modified_at(file_mod_time))
    }

    /// Returns the number of reads of a file.
    fn count_read(&self, id: &Bound<'_, PyAny>) -> PyResult<u64> {
        Ok(self.file(id, "svf_count_read")?.counters().reads)
    }

    /// Returns the number of writes to a file.
    fn count_write(&self, id: &Bound<'_, PyAny>) -> PyResult<u64> {
        Ok(self.file(id, "svf_count_write")?.counters().writes)
    }

    /// Returns the number of bytes read from a file.
    fn bytes_read(&self, id: &Bound<'_, PyAny>) -> PyResult<u64> {
        Ok(self.file(id, "svf_bytes_read")?.counters().bytes_read)
    }

    /// Returns the number of bytes passed to writes to a file.
    fn bytes_write(&self, id: &Bound<'_, PyAny>) -> PyResult<u64> {
        Ok(self.file(id, "svf_bytes_write")?.counters().bytes_written)
    }

    /// Returns the time of the last read of a file, in UTC; None if there was none.
    fn time_read<'py>(&self, py: Python<'py>, id: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let time = self.file(id, "svf_time_read")?.counters().last_read;
        times::naive(py, time)
    }

    /// Returns the time of the last write to a file, in UTC; None if there was none.
    fn time_write<'py>(
        &self,
        py: Python<'py>,
        id: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let time = self.file(id, "svf_time_write")?.counters().last_write;
        times::naive(py, time)
    }

    /// Returns a dictionary from the number of the last use of each block of a file to the position of the
    /// block.
    fn block_touches<'py>(&self, py: Python<'py>, id: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let touches = self.file(id, "svf_block_touches")?.touches();
        state::touches(py, &touches)
    }

    /// Drops the least recently used block while this many bytes or more of a file are held.
    fn lru_punt(&self, id: &Bound<'_, PyAny>, cache_size_upper_bound: &Bound<'_, PyAny>) -> PyResult<u64> {
        let bound = unsigned(cache_size_upper_bound, 2)?;
        Ok(self.file(id, "svf_lru_punt")?.punt(bound))
    }
}

//! Sparse files by id.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use super::file::SparseFile;
use super::options::{Named, options};
use super::{Pool, to_py_error};
use crate::natural::Natural;

/// Sparse files by id, all with the same options: see `SparseFile`. With a pool, one memory limit covers all
/// of them.
#[pyclass(frozen, module = "thalweg", mapping)]
pub struct SparseFileSystem(thalweg_sparse::SparseFileSystem);

#[pymethods]
impl SparseFileSystem {
    #[new]
    #[pyo3(signature = (*, overlap = "agree", wipe = false, clock = "off", pool = None, touches = false))]
    fn new(
        py: Python<'_>,
        overlap: &str,
        wipe: bool,
        clock: &str,
        pool: Option<&Bound<'_, Pool>>,
        touches: bool,
    ) -> PyResult<Self> {
        let options = options(py, overlap, wipe, clock, pool.map(Bound::get), touches)?;
        Ok(Self(thalweg_sparse::SparseFileSystem::new(options)))
    }

    /// Adds an empty file. `ValueError` if the id already exists.
    #[pyo3(signature = (id, modified = 0.0))]
    fn insert(&self, id: &str, modified: f64) -> PyResult<SparseFile> {
        self.0.insert(id, modified).map(SparseFile).map_err(|error| to_py_error(&error))
    }

    /// Returns the file with this id. `KeyError` if there is none.
    fn get(&self, id: &str) -> PyResult<SparseFile> {
        self.0.get(id).map(SparseFile).map_err(|error| to_py_error(&error))
    }

    fn __getitem__(&self, id: &str) -> PyResult<SparseFile> {
        self.get(id)
    }

    /// Removes a file and returns it; it stays valid while referenced. `KeyError` if there is none.
    fn remove(&self, id: &str) -> PyResult<SparseFile> {
        self.0.remove(id).map(SparseFile).map_err(|error| to_py_error(&error))
    }

    /// True if a file with this id exists.
    fn has(&self, id: &str) -> bool {
        self.0.has(id)
    }

    fn __contains__(&self, id: &str) -> bool {
        self.0.has(id)
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// Returns the ids of all files, in no particular order.
    fn ids(&self) -> Vec<String> {
        self.0.ids()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(PyList::new(py, self.0.ids())?.try_iter()?.into_any())
    }

    /// Returns the number of bytes that all files hold.
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// Returns the number of blocks that all files hold.
    fn count_blocks(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.0.count_blocks())
    }

    /// Returns the memory that all files use, in bytes.
    fn heap_bytes(&self, py: Python<'_>) -> usize {
        py.detach(|| self.0.heap_bytes())
    }

    /// Calls `SparseFile.evict_blocks` on each file. Returns the number of bytes dropped.
    fn evict_blocks(&self, py: Python<'_>, bound: Natural) -> PyResult<u64> {
        let bound = bound.get("bound")?;
        Ok(py.detach(|| self.0.evict_blocks(bound)))
    }

    fn __repr__(&self) -> String {
        format!("SparseFileSystem({} files, {} bytes held)", self.0.len(), self.0.bytes())
    }

    fn __getnewargs_ex__(&self) -> ((), Named) {
        ((), Named::of(self.0.options()))
    }

    fn __getstate__(&self) -> HashMap<String, SparseFile> {
        let files = self.0.ids().into_iter().filter_map(|id| Some((id.clone(), self.0.get(&id).ok()?)));
        files.map(|(id, file)| (id, SparseFile(file))).collect()
    }

    fn __setstate__(&self, py: Python<'_>, state: HashMap<String, Py<SparseFile>>) -> PyResult<()> {
        for (id, file) in state {
            let from: &Arc<thalweg_sparse::SparseFile> = &file.get().0;
            let into = self.insert(&id, from.modified())?;
            let blocks: Bound<'_, PyTuple> = file.get().__getstate__(py)?;
            into.__setstate__(py, &blocks)?;
        }
        Ok(())
    }
}

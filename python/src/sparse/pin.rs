//! Ranges of a file that are protected from eviction.

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// Protects a range of a file from eviction until it is released, its `with` block ends, or it is
/// garbage-collected.
#[pyclass(frozen, module = "thalweg")]
pub struct Pin(pub Mutex<Option<thalweg_sparse::Pin>>);

#[pymethods]
impl Pin {
    /// Allows eviction again.
    fn release(&self) {
        self.0.lock().take();
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, _raised: &Bound<'_, PyTuple>) {
        self.release();
    }
}

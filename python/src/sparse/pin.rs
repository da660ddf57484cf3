//! Ranges of a file that are not to be evicted.

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// Keeps a range of a file from being evicted, until it is released, left as a context, or gone.
#[pyclass(frozen, module = "thalweg")]
pub struct Pin(pub Mutex<Option<thalweg_sparse::Pin>>);

#[pymethods]
impl Pin {
    /// From now on it may be evicted again.
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

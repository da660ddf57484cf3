//! A memory limit that several files share.

use pyo3::prelude::*;

use crate::natural::Natural;

/// A limit, in bytes, on the memory of several files together. At the limit, the least recently used ranges
/// are evicted.
///
/// A write needs some working memory: with a limit far below 256 KiB, the limit is exceeded at times.
#[pyclass(frozen, module = "thalweg")]
pub struct Pool(pub thalweg_sparse::Pool);

/// The statistics of a pool.
#[derive(IntoPyObject)]
pub struct Statistics {
    limit: usize,
    used: usize,
    peak: usize,
    ranges: usize,
    evicted_ranges: u64,
    evicted_bytes: u64,
    exceeded: u64,
}

#[pymethods]
impl Pool {
    #[new]
    fn new(py: Python<'_>, limit: Natural) -> PyResult<Self> {
        Ok(Self(thalweg_sparse::Pool::new(limit.option(py, "limit")?)))
    }

    /// Returns the statistics: the limit, the bytes in use and their peak, the number of held ranges,
    /// evictions, and how often the limit was exceeded.
    fn statistics(&self) -> Statistics {
        let now = self.0.statistics();
        Statistics {
            limit: now.limit,
            used: now.used,
            peak: now.peak,
            ranges: now.ranges,
            evicted_ranges: now.evicted_ranges,
            evicted_bytes: now.evicted_bytes,
            exceeded: now.exceeded,
        }
    }

    // A copy in another process, or from a pickle, is an empty pool with the same limit.
    fn __getnewargs__(&self) -> (usize,) {
        (self.0.statistics().limit,)
    }

    fn __repr__(&self) -> String {
        let now = self.0.statistics();
        format!("Pool({}, {} bytes in use)", now.limit, now.used)
    }
}

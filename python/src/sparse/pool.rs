//! A limit on memory that files share.

use pyo3::prelude::*;

/// A limit, in bytes, on the memory that files take together: ranges that were not used for long make room for new ones.
///
/// A write needs some room to work in: with much less than 256 KiB the limit is exceeded at times.
#[pyclass(frozen, module = "thalweg")]
pub struct Pool(pub thalweg_sparse::Pool);

/// How a pool is doing.
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
    fn new(limit: usize) -> Self {
        Self(thalweg_sparse::Pool::new(limit))
    }

    /// The limit, the bytes in use and the most that ever were, the ranges that are held, what was let go to make room,
    /// and how often the limit was exceeded.
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

    fn __repr__(&self) -> String {
        let now = self.0.statistics();
        format!("Pool({}, {} bytes in use)", now.limit, now.used)
    }
}

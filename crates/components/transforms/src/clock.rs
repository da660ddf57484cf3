//! The time, as transforms that wait for it use it.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime};

/// Returns the time in microseconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// As [`now`], by a clock that is never set: spans that a transform measures have the length that they have.
pub(crate) fn steady() -> i64 {
    static START: LazyLock<(Instant, i64)> = LazyLock::new(|| (Instant::now(), now()));
    let (start, begun) = *START;
    begun.saturating_add(i64::try_from(start.elapsed().as_micros()).unwrap_or(i64::MAX))
}

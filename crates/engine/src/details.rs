//! The counters of a component beside messages and bytes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

/// Counters of one component, such as the number of requests it made. The summary of a run shows them by
/// name.
#[derive(Clone, Default)]
pub struct Details(Arc<Mutex<BTreeMap<&'static str, Count>>>);

type Count = Box<dyn Fn() -> u64 + Send + Sync>;

impl fmt::Debug for Details {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.now()).finish()
    }
}

impl Details {
    /// Shows the result of `count` under a name. It replaces an earlier counter of that name: the workers of
    /// a component share one counter.
    pub fn show(&self, name: &'static str, count: impl Fn() -> u64 + Send + Sync + 'static) {
        self.0.lock().insert(name, Box::new(count));
    }

    /// Returns the current values. Counters at zero are left out.
    pub fn now(&self) -> BTreeMap<&'static str, u64> {
        let counts = self.0.lock();
        counts.iter().map(|(name, count)| (*name, count())).filter(|(_, count)| *count > 0).collect()
    }
}

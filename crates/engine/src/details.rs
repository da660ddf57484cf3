//! What a component counts beside messages and bytes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

/// Counters of a component's own, which the summary of a run shows by their names: requests that it made, say.
#[derive(Clone, Default)]
pub struct Details(Arc<Mutex<BTreeMap<&'static str, Count>>>);

type Count = Box<dyn Fn() -> u64 + Send + Sync>;

impl fmt::Debug for Details {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.now()).finish()
    }
}

impl Details {
    /// Shows what `count` gives under a name, in the place of what was shown under it before: copies of a component share what
    /// they count.
    pub fn show(&self, name: &'static str, count: impl Fn() -> u64 + Send + Sync + 'static) {
        self.0.lock().insert(name, Box::new(count));
    }

    /// All of them now; those at nought are left out.
    pub fn now(&self) -> BTreeMap<&'static str, u64> {
        let counts = self.0.lock();
        counts.iter().map(|(name, count)| (*name, count())).filter(|(_, count)| *count > 0).collect()
    }
}

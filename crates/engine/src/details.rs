//! The counters of a component beside messages and bytes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

/// Counters of one component, such as the number of requests it made. The summary of a run shows them by
/// name.
#[derive(Clone, Default)]
pub struct Details(Arc<Mutex<BTreeMap<&'static str, Shown>>>);

struct Shown {
    count: Box<dyn Fn() -> u64 + Send + Sync>,
    /// The help of a gauge. None for a counter.
    gauge: Option<&'static str>,
}

/// A value of a component that rises and falls, such as the lag of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gauge {
    /// The name, after that of the component in metrics.
    pub name: &'static str,
    /// The meaning, as a sentence.
    pub help: &'static str,
    /// The current value.
    pub value: u64,
}

impl fmt::Debug for Details {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.now()).finish()
    }
}

impl Details {
    /// Shows the result of `count` under a name. It replaces an earlier counter of that name: the workers of
    /// a component share one counter.
    pub fn show(&self, name: &'static str, count: impl Fn() -> u64 + Send + Sync + 'static) {
        self.0.lock().insert(name, Shown { count: Box::new(count), gauge: None });
    }

    /// Shows a value that rises and falls, also in `/metrics`, with a sentence that explains it.
    pub fn show_gauge(
        &self,
        name: &'static str,
        help: &'static str,
        value: impl Fn() -> u64 + Send + Sync + 'static,
    ) {
        self.0.lock().insert(name, Shown { count: Box::new(value), gauge: Some(help) });
    }

    /// Returns the current values. Those at zero are left out.
    pub fn now(&self) -> BTreeMap<&'static str, u64> {
        let shown = self.0.lock();
        let counts = shown.iter().map(|(name, shown)| (*name, (shown.count)()));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// Returns the gauges, also those at zero.
    pub fn gauges(&self) -> Vec<Gauge> {
        let shown = self.0.lock();
        let gauge = |(name, shown): (&&'static str, &Shown)| {
            Some(Gauge { name, help: shown.gauge?, value: (shown.count)() })
        };
        shown.iter().filter_map(gauge).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_is_also_a_detail_unless_it_is_zero() {
        let details = Details::default();
        details.show("requests", || 3);
        details.show_gauge("lag", "The lag.", || 0);
        assert_eq!(details.now(), BTreeMap::from([("requests", 3)]));
        assert_eq!(details.gauges(), [Gauge { name: "lag", help: "The lag.", value: 0 }]);
        details.show_gauge("lag", "The lag.", || 2);
        assert_eq!(details.now(), BTreeMap::from([("lag", 2), ("requests", 3)]));
    }
}

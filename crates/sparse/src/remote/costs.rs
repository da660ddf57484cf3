//! The measured cost of a request, which decides which ranges become one request.

use crate::Merge;
use std::time::Duration;

/// The weight of a new measurement beside the former ones.
const WEIGHT: f64 = 0.2;
/// A transfer of fewer bytes says nothing about the bandwidth.
const TELLING: u64 = 32 << 10;

/// The time to the first byte of a reply in seconds, and the bandwidth after it in bytes per second.
#[derive(Debug, Default)]
pub(crate) struct Costs {
    latency: Option<f64>,
    bandwidth: Option<f64>,
}

impl Costs {
    /// Records a reply whose first byte arrived after `first`.
    pub fn note_latency(&mut self, first: Duration) {
        mix(&mut self.latency, first.as_secs_f64());
    }

    /// Records that `bytes` bytes arrived within `time` after the first byte.
    pub fn note_transfer(&mut self, bytes: u64, time: Duration) {
        if bytes >= TELLING && !time.is_zero() {
            mix(&mut self.bandwidth, bytes as f64 / time.as_secs_f64());
        }
    }

    /// Returns the time to the first byte and the bytes per second, as far as they are known.
    pub fn measured(&self) -> (Option<Duration>, Option<f64>) {
        (self.latency.map(Duration::from_secs_f64), self.bandwidth)
    }

    /// Returns the price of a request: the number of bytes that could have arrived in its time. 64 KiB until
    /// something is measured.
    pub fn price(&self) -> u64 {
        match (self.latency, self.bandwidth) {
            (Some(latency), Some(bandwidth)) => (latency * bandwidth) as u64,
            _ => 64 << 10,
        }
    }

    /// Returns how to merge and split requests. A gap that costs less time than another request is fetched as
    /// well, up to `widest_gap`: bytes also cost memory, and often money. A request is split where its price
    /// is an eighth of it, so that the pieces arrive in parallel.
    pub fn merge(&self, widest_gap: u64, longest: u64) -> Merge {
        let price = self.price();
        Merge {
            gap: price.min(widest_gap),
            longest: price.saturating_mul(8).max(1 << 20).min(longest).max(1),
        }
    }
}

fn mix(mean: &mut Option<f64>, measured: f64) {
    *mean = Some(mean.map_or(measured, |mean| mean + WEIGHT * (measured - mean)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gap_is_latency_times_bandwidth_within_its_limit() {
        let mut costs = Costs::default();
        assert_eq!(costs.merge(1 << 20, 8 << 20), Merge { gap: 64 << 10, longest: 1 << 20 });
        costs.note_latency(Duration::from_millis(10));
        costs.note_transfer(10 << 20, Duration::from_secs(1));
        let merge = costs.merge(1 << 20, 8 << 20);
        assert!((100_000..110_000).contains(&merge.gap), "{merge:?}");
        assert_eq!(merge.longest, 1 << 20);
        for _ in 0..100 {
            costs.note_latency(Duration::from_millis(200));
        }
        assert_eq!(costs.merge(1 << 20, 8 << 20), Merge { gap: 1 << 20, longest: 8 << 20 });
    }
}

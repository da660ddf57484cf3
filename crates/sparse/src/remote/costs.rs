//! What a request costs, by measurement: from it follows which ranges are worth being one request.

use crate::Merge;
use std::time::Duration;

/// How much a new measurement counts beside the former ones.
const WEIGHT: f64 = 0.2;
/// What is shorter than this says nothing about the bandwidth.
const TELLING: u64 = 32 << 10;

/// The time to the first byte of a reply, and how fast the bytes then come.
#[derive(Debug, Default)]
pub(crate) struct Costs {
    latency: Option<f64>,
    bandwidth: Option<f64>,
}

impl Costs {
    /// Notes a reply whose first byte came after `first`.
    pub fn note_latency(&mut self, first: Duration) {
        mix(&mut self.latency, first.as_secs_f64());
    }

    /// Notes that `bytes` came within `time` after the first of them.
    pub fn note_transfer(&mut self, bytes: u64, time: Duration) {
        if bytes >= TELLING && !time.is_zero() {
            mix(&mut self.bandwidth, bytes as f64 / time.as_secs_f64());
        }
    }

    /// The time to the first byte, and the bytes a second, as far as they are known.
    pub fn measured(&self) -> (Option<Duration>, Option<f64>) {
        (self.latency.map(Duration::from_secs_f64), self.bandwidth)
    }

    /// The price of a request, in bytes that could have come in its place: as long as nothing was measured, 64 KiB.
    pub fn price(&self) -> u64 {
        match (self.latency, self.bandwidth) {
            (Some(latency), Some(bandwidth)) => (latency * bandwidth) as u64,
            _ => 64 << 10,
        }
    }

    /// A gap as large as a request is dear is not worth another one, within limits, since bytes are not only time: they
    /// are memory, and often money. A request is cut where its price is an eighth of it, so that the pieces can come in
    /// parallel.
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

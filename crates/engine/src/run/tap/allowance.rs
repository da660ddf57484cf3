//! How many messages a tap may copy now.

use std::time::Instant;

/// Grants a number of messages a second, and as many at once after a second without any.
#[derive(Debug)]
pub(super) struct Allowance {
    rate: f64,
    left: f64,
    at: Instant,
}

impl Allowance {
    pub(super) fn new(rate: u32, now: Instant) -> Self {
        let rate = f64::from(rate);
        Self { rate, left: rate, at: now }
    }

    /// Takes one message. Returns false if it is too early for one.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = self.at.max(now);
        self.left = (self.left + passed * self.rate).min(self.rate);
        let is_granted = self.left >= 1.0;
        if is_granted {
            self.left -= 1.0;
        }
        is_granted
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Pauses between messages, in milliseconds.
        #[test]
        fn a_second_has_at_most_twice_the_rate_and_all_seconds_the_rate(
            rate in 1..50_u32,
            pauses in prop::collection::vec(0..300_u64, 1..300),
        ) {
            let begun = Instant::now();
            let mut allowance = Allowance::new(rate, begun);
            let (mut at, mut granted) = (0, Vec::new());
            for pause in pauses {
                at += pause;
                if allowance.take(begun + Duration::from_millis(at)) {
                    granted.push(at);
                }
                let in_second = granted.iter().filter(|then| **then + 1000 > at).count() as u32;
                prop_assert!(in_second <= 2 * rate);
                prop_assert!(granted.len() as f64 <= f64::from(rate) * (1.0 + at as f64 / 1000.0) + 1e-6);
            }
            prop_assert!(!granted.is_empty());
        }
    }
}

//! How often, and after which pauses, an operation is retried.

use std::time::Duration;

/// How temporary failures are retried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retries {
    /// The maximum number of attempts in a row that return no bytes.
    pub attempts: u32,
    /// The first pause. Each later pause is twice as long, and half of it is random.
    pub first: Duration,
    /// The longest pause. If the server asks for a longer one, the operation fails at once.
    pub longest: Duration,
    /// How long a server may send nothing before the attempt counts as failed.
    pub silence: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            attempts: 6,
            first: Duration::from_millis(200),
            longest: Duration::from_secs(30),
            silence: Duration::from_secs(20),
        }
    }
}

impl Retries {
    /// Returns the pause after `failed` attempts in a row, of which the last asked for `asked`. Returns
    /// `None` if there should be no further attempt.
    pub fn pause(&self, failed: u32, asked: Option<Duration>) -> Option<Duration> {
        if failed >= self.attempts || asked.is_some_and(|asked| asked > self.longest) {
            return None;
        }
        let doubled = self.first.saturating_mul(1 << (failed.saturating_sub(1)).min(20)).min(self.longest);
        let jittered = doubled.mul_f64(0.5 + 0.5 * fastrand::f64());
        Some(jittered.max(asked.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_what_the_origin_asks_for_goes_before() {
        let retries = Retries { attempts: 5, first: Duration::from_secs(1), ..Retries::default() };
        for (failed, doubled) in [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0)] {
            let pause = retries.pause(failed, None).unwrap().as_secs_f64();
            assert!(pause >= doubled / 2.0 && pause <= doubled, "{failed}: {pause}");
        }
        assert_eq!(retries.pause(5, None), None);
        assert_eq!(retries.pause(1, Some(Duration::from_secs(29))), Some(Duration::from_secs(29)));
        assert_eq!(retries.pause(1, Some(Duration::from_secs(31))), None);
    }
}

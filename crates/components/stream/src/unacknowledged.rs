//! How long a source with `end_after_idle` waits for a server that delivers more only after acknowledgements.
//!
//! Some messages are settled only when the input has ended. Without a limit, the source would wait for their
//! settlement, and they for the end of the source.

use std::time::Duration;

use thalweg_config::TimeSpan;

/// The shortest wait for a server that has messages without an acknowledgement and sends none.
pub const SHORTEST: Duration = Duration::from_secs(2);

/// The wait for a server that may leave no further message without an acknowledgement, in multiples of
/// `end_after_idle`.
const STALLED: u32 = 5;

/// Returns how long such a server is waited for, counted from the last message.
#[must_use]
pub fn stalled_after(end_after_idle: TimeSpan) -> Duration {
    SHORTEST.max(end_after_idle.duration().saturating_mul(STALLED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_waited_for_in_any_case_and_longer_if_it_is_given_more_time() {
        assert_eq!(stalled_after("100ms".parse().unwrap()), Duration::from_secs(2));
        assert_eq!(stalled_after("1s".parse().unwrap()), Duration::from_secs(5));
    }
}

//! The guard of a loop in which a test waits for something.
//!
//! A test asserts no time: a machine may be ten times slower than another one. A loop without an end is no
//! answer either, as it says nothing. So each such loop asks the guard, which ends the test after a time that
//! no working program needs, with a description of what the test saw last.
//!
//! It is a crate, since the helpers of tests in `engine` and in `testbed` need it, which know nothing of each
//! other. No code that the program needs lives here.

use std::time::{Duration, Instant};

/// How long a test has waited so far.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    begun: Instant,
    limit: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { begun: Instant::now(), limit: Self::LIMIT }
    }
}

impl Patience {
    /// The time after which a test has waited in vain: longer than any run that works needs on a slow machine
    /// with a slow disk. 60 s were not enough for one that keeps 200 MB of unfinished output beside other
    /// tests.
    pub const LIMIT: Duration = Duration::from_secs(300);

    /// Begins to wait.
    pub fn begin() -> Self {
        Self::default()
    }

    /// Waits on. Call it in each round of a loop.
    ///
    /// # Panics
    /// After five minutes, with what `describe` returns. It is called only then.
    #[track_caller]
    pub fn check(&self, describe: impl FnOnce() -> String) {
        assert!(
            self.begun.elapsed() < self.limit,
            "still waiting after {} s: {}",
            self.limit.as_secs(),
            describe()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_is_made_only_when_patience_ends() {
        Patience::begin().check(|| panic!("not called"));
        let ended = Patience { limit: Duration::ZERO, ..Patience::begin() };
        let panic = std::panic::catch_unwind(|| ended.check(|| "7 of 9".to_owned())).unwrap_err();
        let message = panic.downcast_ref::<String>().unwrap();
        assert_eq!(message, "still waiting after 0 s: 7 of 9");
    }
}

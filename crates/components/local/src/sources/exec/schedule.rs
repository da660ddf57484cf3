//! When a program runs.

use std::time::Duration;

use arrow_array::timezone::Tz;
use chrono::Utc;
use thalweg_config::Cron;
use thalweg_engine::SourceOutput;
use tokio::time::Instant;

/// The longest time between two looks at the clock of the machine, which may be set.
const LOOK: Duration = Duration::from_secs(30);

/// When a program runs.
#[derive(Debug, Clone)]
pub(super) enum Schedule {
    /// Once.
    Once,
    /// At the start and after each multiple of a time. A run that is late leaves out those that it missed.
    Every(Duration),
    /// At times of the clock.
    Cron(Cron, Tz),
    /// Again and again, with a pause.
    Restart(Duration),
}

impl Schedule {
    /// Waits until the next run. `runs` is the number of those before, and `first` when the first one began.
    /// Returns false if there is none, or the run was asked to stop.
    pub(super) async fn wait(&self, runs: u64, first: Instant, out: &SourceOutput) -> bool {
        match self {
            _ if out.is_stopping() => false,
            Self::Once => runs == 0,
            Self::Every(_) | Self::Restart(_) if runs == 0 => true,
            Self::Every(every) => !out.sleep(until_next(first.elapsed(), *every)).await,
            Self::Restart(pause) => !out.sleep(*pause).await,
            Self::Cron(cron, zone) => wait_for(cron, *zone, out).await,
        }
    }
}

/// Returns the time until the next multiple of `every`.
fn until_next(elapsed: Duration, every: Duration) -> Duration {
    let over = elapsed.as_nanos() % every.as_nanos().max(1);
    every - Duration::from_nanos(u64::try_from(over).unwrap_or(u64::MAX)).min(every)
}

async fn wait_for(cron: &Cron, zone: Tz, out: &SourceOutput) -> bool {
    // A time beyond the horizon of the calendar does not come.
    let Some(due) = cron.next(&Utc::now().with_timezone(&zone)) else { return false };
    loop {
        let left = (due.with_timezone(&Utc) - Utc::now()).to_std().unwrap_or_default();
        if left.is_zero() {
            return true;
        }
        if out.sleep(left.min(LOOK)).await {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_takes_long_leaves_out_what_it_missed() {
        let seconds = Duration::from_secs;
        for (elapsed, expected) in [(0, 60), (59, 1), (60, 60), (61, 59), (200, 40)] {
            assert_eq!(until_next(seconds(elapsed), seconds(60)), seconds(expected));
        }
    }
}

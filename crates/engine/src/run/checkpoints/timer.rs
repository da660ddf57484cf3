//! When the next checkpoint is due.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior};

use crate::run::saves::Haste;

/// How often checkpoints are saved: see [`save_every`].
const SAVE_EVERY: Duration = Duration::from_millis(500);
/// How soon they are saved if someone waits for it. All who ask meanwhile share the save.
const SAVE_SOON: Duration = Duration::from_millis(5);
/// The time between checkpoints is at least this many times as long as the sources were held back.
const HOLD_SHARE: u32 = 20;
/// But not longer than this.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How often checkpoints are saved. Tests set `THALWEG_CHECKPOINT_MS`, so that a run of moments has several.
fn save_every() -> Duration {
    static EVERY: OnceLock<Duration> = OnceLock::new();
    *EVERY.get_or_init(|| {
        let wanted = std::env::var("THALWEG_CHECKPOINT_MS").ok();
        let wanted = wanted.and_then(|text| text.parse::<u64>().ok()).filter(|ms| *ms > 0);
        wanted.map_or(SAVE_EVERY, Duration::from_millis)
    })
}

/// When the next save is due: by the clock, or soon after someone asked for it.
pub(super) struct SaveTimer {
    timer: Interval,
    asked: Option<Instant>,
    /// No save is due before.
    earliest: Instant,
}

impl SaveTimer {
    pub(super) fn new() -> Self {
        let mut timer = tokio::time::interval_at(Instant::now() + save_every(), save_every());
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { timer, asked: None, earliest: Instant::now() }
    }

    /// Someone waits for a save.
    pub(super) fn ask(&mut self, haste: Haste) {
        self.asked.get_or_insert_with(|| Instant::now() + SAVE_SOON);
        if haste == Haste::AtOnce {
            self.earliest = Instant::now();
        }
    }

    /// A checkpoint held the sources back for this time: the next one is not due soon.
    pub(super) fn rest_after(&mut self, held: Duration) {
        self.earliest = Instant::now() + (held * HOLD_SHARE).min(LONGEST_PAUSE);
    }

    /// Waits until a save is due.
    pub(super) async fn due(&mut self) {
        tokio::time::sleep_until(self.earliest).await;
        match self.asked {
            Some(at) => {
                tokio::time::sleep_until(at).await;
                self.asked = None;
            }
            None => {
                self.timer.tick().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_checkpoint_is_due_twice_a_second_and_later_after_one_that_took_long() {
        let (mut timer, start) = (SaveTimer::new(), Instant::now());
        let mut times = Vec::new();
        for held in [0, 0, 100, 5000, 0] {
            timer.rest_after(Duration::from_millis(held));
            timer.due().await;
            times.push(start.elapsed().as_millis());
        }
        for (held, haste) in [(0, Haste::Soon), (100, Haste::AtOnce), (100, Haste::Soon)] {
            timer.rest_after(Duration::from_millis(held));
            timer.ask(haste);
            timer.due().await;
            times.push(start.elapsed().as_millis());
        }
        assert_eq!(times, [500, 1000, 3000, 13_000, 13_500, 13_505, 13_510, 15_510]);
    }
}

//! Pauses between retries.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_runtime::Stop;

use crate::Error;
use crate::metrics::ComponentMetrics;

/// Pauses between retries after temporary errors: each twice as long as the last, from 100 ms to 10 s.
#[derive(Clone)]
pub(super) struct Retries {
    pub(super) stop: Stop,
    pub(super) log: Arc<Mutex<Vec<String>>>,
}

impl Retries {
    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(10);
    /// The retry from which the error is one that also a quiet run prints, once: after 1.5 s.
    const PERSISTENT: u32 = 4;
    /// While the run drains. Its deadline ends the retries.
    const LONGEST_DRAINING: Duration = Duration::from_secs(1);

    /// Notes the error and waits before the next attempt. A request to stop ends the wait.
    pub(super) async fn pause(&self, metrics: &ComponentMetrics, error: &Error, attempt: u32) {
        let longest = Self::FIRST.saturating_mul(2u32.saturating_pow(attempt)).min(Self::LONGEST);
        let pause = longest.mul_f64(0.75 + fastrand::f64() / 4.0);
        metrics.set_retrying(Some(error.full()));
        let name = &metrics.name;
        let text = format!("`{name}`: {}; trying again in {:.1} s", error.full(), pause.as_secs_f64());
        match attempt {
            Self::PERSISTENT => tracing::error!("{text}"),
            _ => tracing::warn!("{text}"),
        }
        self.log.lock().push(text);
        if self.stop.is_requested() {
            tokio::time::sleep(pause.min(Self::LONGEST_DRAINING)).await;
        } else {
            self.stop.sleep(pause).await;
        }
    }
}

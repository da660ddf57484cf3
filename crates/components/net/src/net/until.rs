//! Waits for a time that there may not be.

use std::future::pending;

use tokio::time::{Instant, sleep_until};

/// Waits until this time; for ever if there is none.
pub async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

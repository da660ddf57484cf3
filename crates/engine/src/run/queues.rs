//! The bytes that wait in the channels of a run.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

/// The content of the channel before a stage.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct QueueCounts {
    /// The component that the stage begins with, or `dead letters`.
    pub to: String,
    /// The bytes that wait.
    pub bytes: u64,
    /// The bytes from which on the stages before it wait.
    pub limit_bytes: u64,
}

/// A channel.
pub(super) struct Queue {
    pub(super) to: Arc<str>,
    pub(super) limit: usize,
    /// Returns the bytes that wait.
    pub(super) waiting: Box<dyn Fn() -> usize + Send + Sync>,
}

/// Looks into channels. The two of the dead letters are one.
pub(super) fn counts<'q>(queues: impl Iterator<Item = &'q Queue>) -> Vec<QueueCounts> {
    let mut found: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for queue in queues {
        let (bytes, limit) = found.entry(&queue.to).or_default();
        *bytes += (queue.waiting)() as u64;
        *limit = limit.saturating_add(queue.limit as u64);
    }
    let counts = found.into_iter();
    counts.map(|(to, (bytes, limit_bytes))| QueueCounts { to: to.to_owned(), bytes, limit_bytes }).collect()
}

//! The counters of a running component.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;
use thalweg_runtime::HandOvers;

use crate::missing::{MissingField, MissingFields};
use crate::{Details, Gauge, Role};

/// The counters of one component, shared by all its workers. Rows are messages; bytes are bytes of payload.
#[derive(Debug)]
pub struct ComponentMetrics {
    /// Its name: `access`, `main.parse_json`, `outside`.
    pub name: Arc<str>,
    /// Its role.
    pub role: Role,
    /// Its key in configurations.
    pub kind: &'static str,
    rows_in: AtomicU64,
    bytes_in: AtomicU64,
    rows_out: AtomicU64,
    bytes_out: AtomicU64,
    errors: AtomicU64,
    busy_ns: AtomicU64,
    expected: AtomicU64,
    progress: AtomicU64,
    /// The temporary error that it retries, if any. `is_retrying` avoids the lock on the usual path.
    retrying: Mutex<Option<String>>,
    is_retrying: AtomicBool,
    /// The component's own counters.
    pub(crate) details: Details,
    /// The fields that it reads, and no message had.
    pub(crate) missing: MissingFields,
    /// How batches reached the stage that begins with it: by a call, or by the channel.
    pub(crate) hand_overs: Arc<HandOvers>,
}

/// A snapshot of the counters.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct ComponentCounts {
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: &'static str,
    /// Its key in configurations.
    pub kind: &'static str,
    /// Messages that it received (a source: read).
    pub rows_in: u64,
    /// Bytes of payload that it received.
    pub bytes_in: u64,
    /// Messages that it sent on (a sink: wrote).
    pub rows_out: u64,
    /// Bytes of payload that it sent on.
    pub bytes_out: u64,
    /// Messages that left by `errors`.
    pub errors: u64,
    /// Time spent in it by all workers, in nanoseconds.
    pub busy_ns: u64,
    /// Bytes that a source expects to read in total, before decompression; 0 if unknown.
    pub expected_bytes: u64,
    /// Bytes of `expected_bytes` that it has read.
    pub progress_bytes: u64,
    /// The temporary error that it retries now, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retrying: Option<String>,
    /// The batches for the stage that begins with it that were processed on the stack of the stage before.
    pub taken_at_once: u64,
    /// The batches for that stage that waited in its channel.
    pub queued: u64,
    /// The component's own counters by name, such as `requests`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub details: BTreeMap<&'static str, u64>,
    /// The component's own values that rise and fall, which `/metrics` shows. `details` has them too.
    #[serde(skip)]
    pub gauges: Vec<Gauge>,
    /// The fields that a transform reads and that no message had, once its workers have ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing_fields: Vec<MissingField>,
}

impl ComponentMetrics {
    /// Returns counters at zero.
    pub fn new(name: Arc<str>, role: Role, kind: &'static str) -> Arc<Self> {
        Arc::new(Self {
            name,
            role,
            kind,
            rows_in: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            rows_out: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            busy_ns: AtomicU64::new(0),
            expected: AtomicU64::new(0),
            progress: AtomicU64::new(0),
            retrying: Mutex::default(),
            is_retrying: AtomicBool::new(false),
            details: Details::default(),
            missing: MissingFields::default(),
            hand_overs: Arc::default(),
        })
    }

    /// Counts messages that came in.
    pub fn add_in(&self, rows: usize, bytes: usize) {
        self.rows_in.fetch_add(rows as u64, Relaxed);
        self.bytes_in.fetch_add(bytes as u64, Relaxed);
    }

    /// Counts messages that went out, and clears the temporary error.
    pub fn add_out(&self, rows: usize, bytes: usize) {
        self.set_retrying(None);
        self.rows_out.fetch_add(rows as u64, Relaxed);
        self.bytes_out.fetch_add(bytes as u64, Relaxed);
    }

    /// Counts messages that left by `errors`.
    pub fn add_errors(&self, rows: usize) {
        self.errors.fetch_add(rows as u64, Relaxed);
    }

    /// Counts the time since `start` as busy.
    pub fn add_busy(&self, start: Instant) {
        self.add_busy_until(start, Instant::now());
    }

    /// Counts the time between two instants as busy.
    pub fn add_busy_until(&self, start: Instant, end: Instant) {
        let spent = u64::try_from(end.saturating_duration_since(start).as_nanos()).unwrap_or(u64::MAX);
        self.busy_ns.fetch_add(spent, Relaxed);
    }

    /// Runs a future, and counts the time of its work as busy, but not the time in which it waits: a sink
    /// that waits for the answer of a server occupies no core.
    pub async fn counted<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        poll_fn(|context| {
            let start = Instant::now();
            let polled = future.as_mut().poll(context);
            self.add_busy(start);
            polled
        })
        .await
    }

    /// Sets or clears the temporary error that the component retries.
    pub fn set_retrying(&self, retrying: Option<String>) {
        if retrying.is_some() || self.is_retrying.load(Relaxed) {
            let mut current = self.retrying.lock();
            self.is_retrying.store(retrying.is_some(), Relaxed);
            *current = retrying;
        }
    }

    /// Counts bytes that the source has found and will read.
    pub fn add_expected(&self, bytes: u64) {
        self.expected.fetch_add(bytes, Relaxed);
    }

    /// Counts bytes that the source has read.
    pub fn add_progress(&self, bytes: u64) {
        self.progress.fetch_add(bytes, Relaxed);
    }

    /// Returns a snapshot of the counters.
    pub fn counts(&self) -> ComponentCounts {
        ComponentCounts {
            name: self.name.to_string(),
            role: self.role.name(),
            kind: self.kind,
            rows_in: self.rows_in.load(Relaxed),
            bytes_in: self.bytes_in.load(Relaxed),
            rows_out: self.rows_out.load(Relaxed),
            bytes_out: self.bytes_out.load(Relaxed),
            errors: self.errors.load(Relaxed),
            busy_ns: self.busy_ns.load(Relaxed),
            expected_bytes: self.expected.load(Relaxed),
            progress_bytes: self.progress.load(Relaxed),
            retrying: self.retrying.lock().clone(),
            taken_at_once: self.hand_overs.at_once(),
            queued: self.hand_overs.queued(),
            details: self.details.now(),
            gauges: self.details.gauges(),
            missing_fields: self.missing.found(),
        }
    }
}

impl ComponentCounts {
    /// Returns the time spent in it by all workers.
    pub fn busy(&self) -> Duration {
        Duration::from_nanos(self.busy_ns)
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn the_time_in_which_a_future_waits_is_not_busy() {
        let metrics = ComponentMetrics::new("out".into(), Role::Sink, "nats");
        let mut waited = false;
        let waiting =
            poll_fn(|_| if std::mem::replace(&mut waited, true) { Poll::Ready(7) } else { Poll::Pending });
        let mut counted = pin!(metrics.counted(waiting));
        let mut context = Context::from_waker(Waker::noop());
        let all = Instant::now();
        assert!(counted.as_mut().poll(&mut context).is_pending());
        let gap = Instant::now();
        std::thread::sleep(Duration::from_millis(20));
        let gap = gap.elapsed();
        assert_eq!(counted.as_mut().poll(&mut context), Poll::Ready(7));
        assert!(metrics.counts().busy() + gap <= all.elapsed());
    }
}

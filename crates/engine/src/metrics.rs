//! What is counted while a run goes on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;
use thalweg_runtime::HandOvers;

use crate::{Details, Role};

/// The counters of one component, shared by all copies of it. Rows are messages; bytes are of payload.
#[derive(Debug)]
pub struct ComponentMetrics {
    /// Its name: `access`, `main.parse_json`, `outside`.
    pub name: Arc<str>,
    /// What it is.
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
    /// What keeps it from working, and whether anything does, so that the lock is seldom looked at.
    trouble: Mutex<Option<String>>,
    is_troubled: AtomicBool,
    /// What it counts itself.
    pub(crate) details: Details,
    /// How batches came to the stage that begins with it.
    pub(crate) hand_overs: Arc<HandOvers>,
}

/// The counters at one moment.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct ComponentCounts {
    /// Its name.
    pub name: String,
    /// What it is.
    pub role: &'static str,
    /// Its key in configurations.
    pub kind: &'static str,
    /// Messages given to it (of a source: read).
    pub rows_in: u64,
    /// Bytes of payload given to it.
    pub bytes_in: u64,
    /// Messages that it gave on (of a sink: written).
    pub rows_out: u64,
    /// Bytes of payload that it gave on.
    pub bytes_out: u64,
    /// Messages that left by `errors`.
    pub errors: u64,
    /// Time spent in it, over all copies, in nanoseconds.
    pub busy_ns: u64,
    /// Bytes that a source expects to read in all, and has read, before decompression; 0 if that is not known.
    pub expected_bytes: u64,
    /// See `expected_bytes`.
    pub progress_bytes: u64,
    /// What keeps it from working now, and is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Of the batches that were handed to the stage that begins with it: how many were worked on in the stack of
    /// the stage before.
    pub taken_at_once: u64,
    /// And how many waited in a channel first.
    pub queued: u64,
    /// What the component counts itself, by name: `requests`, say.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub details: BTreeMap<&'static str, u64>,
}

impl ComponentMetrics {
    /// All at nought.
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
            trouble: Mutex::default(),
            is_troubled: AtomicBool::new(false),
            details: Details::default(),
            hand_overs: Arc::default(),
        })
    }

    /// Messages came in.
    pub fn add_in(&self, rows: usize, bytes: usize) {
        self.rows_in.fetch_add(rows as u64, Relaxed);
        self.bytes_in.fetch_add(bytes as u64, Relaxed);
    }

    /// Messages went out: it works.
    pub fn add_out(&self, rows: usize, bytes: usize) {
        self.set_trouble(None);
        self.rows_out.fetch_add(rows as u64, Relaxed);
        self.bytes_out.fetch_add(bytes as u64, Relaxed);
    }

    /// Messages left by `errors`.
    pub fn add_errors(&self, rows: usize) {
        self.errors.fetch_add(rows as u64, Relaxed);
    }

    /// Time was spent since `start`.
    pub fn add_busy(&self, start: Instant) {
        self.add_busy_until(start, Instant::now());
    }

    /// Time was spent from one moment to another.
    pub fn add_busy_until(&self, start: Instant, end: Instant) {
        let spent = u64::try_from(end.saturating_duration_since(start).as_nanos()).unwrap_or(u64::MAX);
        self.busy_ns.fetch_add(spent, Relaxed);
    }

    /// Something keeps it from working, or does no more.
    pub fn set_trouble(&self, trouble: Option<String>) {
        if trouble.is_some() || self.is_troubled.load(Relaxed) {
            let mut current = self.trouble.lock();
            self.is_troubled.store(trouble.is_some(), Relaxed);
            *current = trouble;
        }
    }

    /// The source found more to read.
    pub fn add_expected(&self, bytes: u64) {
        self.expected.fetch_add(bytes, Relaxed);
    }

    /// The source read on.
    pub fn add_progress(&self, bytes: u64) {
        self.progress.fetch_add(bytes, Relaxed);
    }

    /// The counters now.
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
            trouble: self.trouble.lock().clone(),
            taken_at_once: self.hand_overs.at_once(),
            queued: self.hand_overs.queued(),
            details: self.details.now(),
        }
    }
}

impl ComponentCounts {
    /// Time spent in it, over all copies.
    pub fn busy(&self) -> Duration {
        Duration::from_nanos(self.busy_ns)
    }
}

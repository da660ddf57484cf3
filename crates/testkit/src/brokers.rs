//! Topics of a broker that all cases share: a broker takes seconds to start, and a suite interrupts its cases
//! a hundred times.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use thalweg_testbed::{Kafka, Record};

/// Returns the broker, which lives as long as one of those who asked for it holds it.
///
/// # Errors
/// If it cannot be started.
pub fn broker() -> io::Result<Arc<Kafka>> {
    static BROKER: Mutex<Weak<Kafka>> = Mutex::new(Weak::new());
    let mut known = BROKER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(kafka) = known.upgrade() {
        return Ok(kafka);
    }
    let kafka = Arc::new(Kafka::start(1)?);
    *known = Arc::downgrade(&kafka);
    Ok(kafka)
}

/// A topic of its own, with one partition.
pub struct Topic {
    kafka: Arc<Kafka>,
    /// Its name.
    pub name: String,
}

impl Topic {
    /// Returns a topic without records.
    ///
    /// # Errors
    /// If the broker cannot be started.
    pub fn new() -> io::Result<Self> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        Ok(Self { kafka: broker()?, name: format!("topic-{}", MADE.fetch_add(1, Ordering::Relaxed)) })
    }

    /// Returns the address of the broker.
    pub fn address(&self) -> String {
        self.kafka.address().to_string()
    }

    /// Stores lines, each as a record.
    ///
    /// # Errors
    /// If the broker refuses them.
    pub fn store(&self, lines: impl IntoIterator<Item = String>) -> io::Result<()> {
        self.kafka.store(lines.into_iter().map(|line| Record::new(self.name.as_str(), line)))
    }

    /// Returns all records, each with a line feed.
    ///
    /// # Errors
    /// If the broker does not answer.
    pub fn lines(&self) -> io::Result<Vec<u8>> {
        let mut lines = Vec::new();
        for record in self.kafka.records(&self.name)? {
            lines.extend_from_slice(record.value.as_deref().unwrap_or_default());
            lines.push(b'\n');
        }
        Ok(lines)
    }
}

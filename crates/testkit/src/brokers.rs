//! Topics of a broker that all cases share: a broker takes seconds to start, and a suite interrupts its cases
//! a hundred times.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use thalweg_testbed::{Kafka, Nats, NatsMessage, Record};

/// Returns the broker of Kafka, which lives as long as one of those who asked for it holds it.
///
/// # Errors
/// If it cannot be started.
pub fn broker() -> io::Result<Arc<Kafka>> {
    static BROKER: Mutex<Weak<Kafka>> = Mutex::new(Weak::new());
    shared(&BROKER, || Kafka::start(1))
}

/// Returns the server of NATS, in the same way.
///
/// # Errors
/// If it cannot be started.
pub fn nats() -> io::Result<Arc<Nats>> {
    static SERVER: Mutex<Weak<Nats>> = Mutex::new(Weak::new());
    shared(&SERVER, Nats::start)
}

fn shared<T>(known: &Mutex<Weak<T>>, start: impl FnOnce() -> io::Result<T>) -> io::Result<Arc<T>> {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(server) = known.upgrade() {
        return Ok(server);
    }
    let server = Arc::new(start()?);
    *known = Arc::downgrade(&server);
    Ok(server)
}

/// A topic of its own: of Kafka, with one partition, or a stream of NATS, with one subject of the same name.
pub struct Topic {
    broker: Broker,
    /// Its name.
    pub name: String,
}

enum Broker {
    Kafka(Arc<Kafka>),
    Nats(Arc<Nats>),
}

impl Topic {
    /// Returns a topic of Kafka without records.
    ///
    /// # Errors
    /// If the broker cannot be started.
    pub fn new() -> io::Result<Self> {
        Ok(Self { broker: Broker::Kafka(broker()?), name: name() })
    }

    /// Returns a stream of NATS without messages.
    ///
    /// # Errors
    /// If the server cannot be started.
    pub fn of_nats() -> io::Result<Self> {
        let (nats, name) = (nats()?, name());
        nats.create_stream(&name, &[name.as_str()])?;
        Ok(Self { broker: Broker::Nats(nats), name })
    }

    /// Returns the address of the broker.
    pub fn address(&self) -> String {
        match &self.broker {
            Broker::Kafka(kafka) => kafka.address().to_string(),
            Broker::Nats(nats) => nats.address().to_string(),
        }
    }

    /// Stores lines, each as a record.
    ///
    /// # Errors
    /// If the broker refuses them.
    pub fn store(&self, lines: impl IntoIterator<Item = String>) -> io::Result<()> {
        let (name, lines) = (self.name.as_str(), lines.into_iter());
        match &self.broker {
            Broker::Kafka(kafka) => kafka.store(lines.map(|line| Record::new(name, line))),
            Broker::Nats(nats) => nats.store(lines.map(|line| NatsMessage::new(name, line))),
        }
    }

    /// Returns all records, each with a line feed.
    ///
    /// # Errors
    /// If the broker does not answer.
    pub fn lines(&self) -> io::Result<Vec<u8>> {
        let mut lines = Vec::new();
        let mut add = |payload: &[u8]| {
            lines.extend_from_slice(payload);
            lines.push(b'\n');
        };
        match &self.broker {
            Broker::Kafka(kafka) => {
                let records = kafka.committed_records(&self.name)?;
                records.iter().for_each(|record| add(record.value.as_deref().unwrap_or_default()));
            }
            Broker::Nats(nats) => nats.messages(&self.name)?.iter().for_each(|message| add(&message.payload)),
        }
        Ok(lines)
    }
}

fn name() -> String {
    static MADE: AtomicU64 = AtomicU64::new(0);
    format!("topic-{}", MADE.fetch_add(1, Ordering::Relaxed))
}

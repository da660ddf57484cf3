//! Topics of a broker, or tables of a database, that all cases share: a server takes seconds to start, and a
//! suite interrupts its cases a hundred times.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use thalweg_testbed::{Amqp, Kafka, Mqtt, Nats, NatsMessage, Postgres, Record, Redis};

use crate::amazon::AmazonServer;

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

/// Returns the server of MQTT, in the same way.
///
/// # Errors
/// If it cannot be started.
pub fn mqtt() -> io::Result<Arc<Mqtt>> {
    static SERVER: Mutex<Weak<Mqtt>> = Mutex::new(Weak::new());
    shared(&SERVER, Mqtt::start)
}

/// Returns the server of Amazon's services, in the same way.
///
/// # Errors
/// If it cannot be started.
pub fn amazon() -> io::Result<Arc<AmazonServer>> {
    static SERVER: Mutex<Weak<AmazonServer>> = Mutex::new(Weak::new());
    shared(&SERVER, AmazonServer::start)
}

/// Returns the server of AMQP, in the same way.
///
/// # Errors
/// If it cannot be started.
pub fn amqp() -> io::Result<Arc<Amqp>> {
    Amqp::shared()
}

/// Returns the server of Redis, in the same way.
///
/// # Errors
/// If it cannot be started.
pub fn redis() -> io::Result<Arc<Redis>> {
    static SERVER: Mutex<Weak<Redis>> = Mutex::new(Weak::new());
    shared(&SERVER, Redis::start)
}

/// Returns the server of PostgreSQL, in the same way.
///
/// # Errors
/// If it cannot be started.
pub fn postgres() -> io::Result<Arc<Postgres>> {
    static SERVER: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
    shared(&SERVER, Postgres::start)
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

/// A topic of its own: of Kafka, with one partition; a stream of NATS, with one subject of the same name; a
/// topic of MQTT, with a session of the same name that has its messages; a queue of AMQP, a stream or a list
/// of Redis; a table of PostgreSQL with the columns `id` and `line`; or what a service of Amazon has in place
/// of a topic.
pub struct Topic {
    broker: Broker,
    /// Its name.
    pub name: String,
}

enum Broker {
    Kafka(Arc<Kafka>),
    Nats(Arc<Nats>),
    Mqtt {
        server: Arc<Mqtt>,
        /// The messages that were taken from the session.
        lines: Mutex<Vec<u8>>,
    },
    /// A queue.
    Amqp(Arc<Amqp>),
    /// A stream.
    Redis(Arc<Redis>),
    RedisList(Arc<Redis>),
    Postgres(Arc<Postgres>),
    Amazon(Arc<AmazonServer>, Amazon),
}

/// The counterpart of a topic at a service of Amazon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Amazon {
    /// A queue of SQS, or a topic of SNS with a queue of the same name.
    Queue,
    /// A stream of Kinesis.
    Stream,
    /// A delivery stream of Firehose.
    Delivery,
    /// A log group and a log stream of CloudWatch Logs.
    Logs,
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

    /// Returns a topic of MQTT. Its session has messages that are published from now on.
    ///
    /// # Errors
    /// If the server cannot be started.
    pub fn of_mqtt() -> io::Result<Self> {
        let (server, name) = (mqtt()?, name());
        server.subscribe(&name, &name)?;
        Ok(Self { broker: Broker::Mqtt { server, lines: Mutex::default() }, name })
    }

    /// Returns a queue of AMQP without messages.
    ///
    /// # Errors
    /// If the server cannot be started.
    pub fn of_amqp() -> io::Result<Self> {
        let (amqp, name) = (amqp()?, name());
        amqp.declare(&name, &[])?;
        Ok(Self { broker: Broker::Amqp(amqp), name })
    }

    /// Returns a stream of Redis without entries.
    ///
    /// # Errors
    /// If the server cannot be started.
    pub fn of_redis() -> io::Result<Self> {
        Ok(Self { broker: Broker::Redis(redis()?), name: name() })
    }

    /// Returns a list of Redis without elements.
    ///
    /// # Errors
    /// If the server cannot be started.
    pub fn of_redis_list() -> io::Result<Self> {
        Ok(Self { broker: Broker::RedisList(redis()?), name: name() })
    }

    /// Returns a table of PostgreSQL without rows.
    ///
    /// # Errors
    /// If the server cannot be started.
    pub fn of_postgres() -> io::Result<Self> {
        let (postgres, name) = (postgres()?, name());
        postgres.run(&format!("CREATE TABLE \"{name}\" (id bigserial PRIMARY KEY, line text)"))?;
        Ok(Self { broker: Broker::Postgres(postgres), name })
    }

    /// Returns a queue of SQS without messages.
    ///
    /// # Errors
    /// If the server cannot be started.
    pub fn of_sqs() -> io::Result<Self> {
        Self::of_amazon(Amazon::Queue, |server, name| drop(server.create_queue(name)))
    }

    /// Returns a topic of SNS.
    ///
    /// # Errors
    /// If the server cannot be started.
    pub fn of_sns() -> io::Result<Self> {
        Self::of_amazon(Amazon::Queue, |server, name| drop(server.create_topic(name)))
    }

    /// Returns a stream of Kinesis with one shard.
    ///
    /// # Errors
    /// If the server cannot be started.
    pub fn of_kinesis() -> io::Result<Self> {
        Self::of_amazon(Amazon::Stream, |server, name| server.create_stream(name, 1))
    }

    /// Returns a delivery stream of Firehose.
    ///
    /// # Errors
    /// If the server cannot be started.
    pub fn of_firehose() -> io::Result<Self> {
        Self::of_amazon(Amazon::Delivery, AmazonServer::create_delivery_stream)
    }

    /// Returns the name of a log group and a log stream, which do not exist.
    ///
    /// # Errors
    /// If the server cannot be started.
    pub fn of_logs() -> io::Result<Self> {
        Self::of_amazon(Amazon::Logs, |_, _| {})
    }

    fn of_amazon(service: Amazon, create: impl FnOnce(&AmazonServer, &str)) -> io::Result<Self> {
        let (server, name) = (amazon()?, name());
        create(&server, &name);
        Ok(Self { broker: Broker::Amazon(server, service), name })
    }

    /// Returns the address of the broker.
    pub fn address(&self) -> String {
        match &self.broker {
            Broker::Kafka(kafka) => kafka.address().to_string(),
            Broker::Nats(nats) => nats.address().to_string(),
            Broker::Mqtt { server, .. } => server.address().to_string(),
            Broker::Amqp(amqp) => amqp.address().to_string(),
            Broker::Redis(redis) | Broker::RedisList(redis) => redis.address().to_string(),
            Broker::Postgres(postgres) => postgres.address().to_string(),
            Broker::Amazon(server, _) => server.address().to_string(),
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
            Broker::Mqtt { server, .. } => server.publish(name, lines),
            Broker::Amqp(amqp) => amqp.publish("", name, lines),
            Broker::Redis(redis) => {
                let lines: Vec<String> = lines.collect();
                redis.call_all(lines.iter().map(|line| vec!["XADD", name, "*", "payload", line]))
            }
            Broker::RedisList(redis) => {
                let lines: Vec<String> = lines.collect();
                redis.call_all(lines.iter().map(|line| vec!["RPUSH", name, line]))
            }
            Broker::Postgres(postgres) => {
                let rows: Vec<String> =
                    lines.map(|line| format!("('{}')", line.replace('\'', "''"))).collect();
                rows.chunks(1000).try_for_each(|rows| {
                    postgres.run(&format!("INSERT INTO \"{name}\" (line) VALUES {}", rows.join(", ")))
                })
            }
            Broker::Amazon(server, Amazon::Queue) => {
                server.enqueue(name, lines);
                Ok(())
            }
            Broker::Amazon(server, _) => {
                server.put_records(name, lines.map(|line| ("k", line)));
                Ok(())
            }
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
            Broker::Mqtt { server, lines: taken } => {
                let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
                for message in server.messages(&self.name, &self.name)? {
                    taken.extend_from_slice(message.payload.as_bytes());
                    taken.push(b'\n');
                }
                return Ok(taken.clone());
            }
            Broker::Amqp(amqp) => {
                amqp.messages(&self.name)?.iter().for_each(|message| add(message.payload.as_bytes()));
            }
            Broker::Redis(redis) => {
                redis.payloads(&self.name)?.iter().for_each(|payload| add(payload.as_bytes()));
            }
            Broker::RedisList(redis) => {
                let elements = redis.call(&["LRANGE", &self.name, "0", "-1"])?;
                elements.texts().iter().for_each(|element| add(element.as_bytes()));
            }
            Broker::Postgres(postgres) => {
                let rows = postgres.rows(&format!("SELECT line FROM \"{}\" ORDER BY id", self.name))?;
                rows.iter().for_each(|row| add(row.concat().as_bytes()));
            }
            Broker::Amazon(server, Amazon::Queue) => {
                let sent = server.sent(&self.name);
                let texts = sent.iter().filter_map(|message| message["MessageBody"].as_str());
                texts.for_each(|text| add(text.as_bytes()));
            }
            Broker::Amazon(server, Amazon::Stream) => {
                server.records(&self.name).iter().for_each(|(_, data)| add(data));
            }
            // The sink ends each message with a line feed.
            Broker::Amazon(server, Amazon::Delivery) => return Ok(server.delivered(&self.name)),
            Broker::Amazon(server, Amazon::Logs) => {
                server.events(&self.name, &self.name).iter().for_each(|(_, event)| add(event.as_bytes()));
            }
        }
        Ok(lines)
    }
}

fn name() -> String {
    static MADE: AtomicU64 = AtomicU64::new(0);
    format!("topic-{}", MADE.fetch_add(1, Ordering::Relaxed))
}

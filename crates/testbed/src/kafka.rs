//! A Kafka broker that is its own controller: the JVM program, from the jars of its project.
//!
//! Clients connect to the address that the broker advertises. It therefore has a listener for clients behind
//! a relay that cuts connections, and, if wanted, one with TLS and passwords. Topics are created when they
//! are first used.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use krafka::admin::{DeleteTopicsOptions, ListTopicsOptions};
use krafka::consumer::{AutoOffsetReset, IsolationLevel};
use krafka::{ConsumerRecord, Record};

use crate::relay::Relay;
use crate::server::{Recipe, Server};
use crate::{Patience, Tools};

/// How long the ends of transactions are waited for without a record, before one is taken for open.
const OPEN: Duration = Duration::from_secs(5);

/// A Kafka broker.
pub type Kafka = Server<Ports>;

/// A listener with TLS and passwords, for SASL with PLAIN and SCRAM: the user `alice` with the password
/// `secret`. With OAUTHBEARER it accepts [`TOKEN`](Self::TOKEN).
#[derive(Debug, Clone)]
pub struct Secured {
    /// A PEM file with the private key (PKCS 8) and the certificate of the broker.
    pub key_and_certificate: PathBuf,
}

impl Secured {
    /// A token of the user `alice` without a signature, `{"alg":"none"}`, that is valid until the year 2096.
    pub const TOKEN: &str =
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSIsImlhdCI6MTcwMDAwMDAwMCwiZXhwIjo0MDAwMDAwMDAwfQ.";
}

/// The ports of a broker beside that of its address.
#[derive(Clone, Copy)]
pub struct Ports {
    controller: u16,
    relayed: u16,
    secured: u16,
}

impl Kafka {
    /// Starts a broker whose topics have this number of partitions; this takes about five seconds.
    ///
    /// # Errors
    /// If it is not installed or does not start.
    pub fn start(partitions: u32) -> io::Result<Self> {
        Self::start_with(partitions, None)
    }

    /// As [`start`](Self::start), with a secured listener if its files are given.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(partitions: u32, secured: Option<&Secured>) -> io::Result<Self> {
        Self::start_as(partitions, secured, "")
    }

    /// As [`start`](Self::start). The broker forgets each transactional id within
    /// [`FORGOTTEN`](Self::FORGOTTEN), as others do after a week.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_forgetful(partitions: u32) -> io::Result<Self> {
        let more = "transactional.id.expiration.ms=2000\n\
                    transaction.remove.expired.transaction.cleanup.interval.ms=500\n";
        Self::start_as(partitions, None, more)
    }

    /// The time in which a [forgetful](Self::start_forgetful) broker forgets an id that is not used.
    pub const FORGOTTEN: Duration = Duration::from_millis(3500);

    /// Starts a broker with more settings.
    fn start_as(partitions: u32, secured: Option<&Secured>, more: &str) -> io::Result<Self> {
        let classes = Tools::find().kafka()?;
        let relay = Relay::start()?;
        let free = || Ok::<_, io::Error>(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port());
        let ports = Ports { controller: free()?, relayed: free()?, secured: free()? };
        let relayed = relay.address();
        let for_broker = classes.clone();
        let recipe = Recipe::new("kafka", move |_, data| broker(&for_broker, data));
        let broker = Self::launch(recipe, relay, ports, |address, data| {
            let settings = settings(address, &ports, relayed, partitions, data, secured) + more;
            std::fs::write(data.join("server.properties"), settings)?;
            format(&classes, data)
        })?;
        broker.relay_to(ports.relayed);
        Ok(broker)
    }

    /// Returns the address of the listener with TLS and passwords.
    pub fn secured_address(&self) -> SocketAddr {
        (self.address().ip(), self.kind.secured).into()
    }

    /// Stores records in their topics, in order.
    ///
    /// # Errors
    /// If the broker refuses one.
    pub fn store(&self, records: impl IntoIterator<Item = Record>) -> io::Result<()> {
        self.block_on(async |kafka| {
            let producer = kafka.producer().build().await?;
            let mut handles = Vec::new();
            for record in records {
                handles.push(producer.enqueue(record).await?);
            }
            for handle in handles {
                let _ = handle.await?;
            }
            producer.close().await
        })
    }

    /// Deletes a topic.
    ///
    /// # Errors
    /// If the broker refuses it.
    pub fn delete(&self, topic: &str) -> io::Result<()> {
        self.block_on(async |kafka| {
            let admin = kafka.admin();
            for (_, deleted) in admin.delete_topics([topic], DeleteTopicsOptions::default()).await? {
                deleted?;
            }
            let patience = Patience::begin();
            while admin.list_topics(ListTopicsOptions::default()).await?.iter().any(|known| known == topic) {
                patience.check(|| format!("the topic `{topic}` is still there"));
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(())
        })
    }

    /// Returns all records of a topic, those of each partition in order. None if there is no such topic.
    ///
    /// # Errors
    /// If the broker does not answer.
    pub fn records(&self, topic: &str) -> io::Result<Vec<ConsumerRecord>> {
        self.read(topic, IsolationLevel::ReadUncommitted)
    }

    /// As [`records`](Self::records), without those of transactions that are open or aborted, nor what comes
    /// behind the first open one of a partition. A broker confirms the end of a transaction before it shows
    /// the records, so they are waited for, but not for long: the transaction may be open.
    ///
    /// # Errors
    /// As [`records`](Self::records).
    pub fn committed_records(&self, topic: &str) -> io::Result<Vec<ConsumerRecord>> {
        self.read(topic, IsolationLevel::ReadCommitted)
    }

    fn read(&self, topic: &str, isolation: IsolationLevel) -> io::Result<Vec<ConsumerRecord>> {
        self.block_on(async |kafka| {
            let reader = async |isolation| {
                let reader = kafka.consumer_without_group().auto_offset_reset(AutoOffsetReset::Earliest);
                reader.isolation_level(isolation).build().await
            };
            // Its ends are those of the logs, not of what is committed.
            let all = reader(IsolationLevel::ReadUncommitted).await?;
            let known = all.fetch_metadata(Some(topic)).await?;
            let partitions = known.topics.iter().flat_map(|topic| topic.partitions.keys().copied());
            let partitions: Vec<i32> = partitions.collect();
            let mut ends = Vec::new();
            for partition in &partitions {
                ends.push((*partition, all.fetch_watermarks(topic, *partition).await?.1));
            }
            all.close().await?;
            let reader = reader(isolation).await?;
            reader.assign(topic, partitions).await?;
            let mut records = Vec::new();
            let mut got = Instant::now();
            // Ends of transactions have offsets as well, so records cannot be counted.
            while let Some((partition, end)) = ends.last().copied() {
                match reader.position(topic, partition).await {
                    Some(position) if position >= end => drop(ends.pop()),
                    _ if isolation == IsolationLevel::ReadCommitted && got.elapsed() > OPEN => break,
                    _ => {
                        let read = reader.poll(Duration::from_millis(200)).await?;
                        got = if read.is_empty() { got } else { Instant::now() };
                        records.extend(read);
                    }
                }
            }
            records.sort_by_key(|record| (record.partition, record.offset));
            reader.close().await?;
            Ok(records)
        })
    }

    /// Returns the offset that a group has committed of each partition of a topic, if there is one.
    ///
    /// # Errors
    /// If the broker does not answer.
    pub fn committed(&self, group: &str, topic: &str, partitions: u32) -> io::Result<Vec<Option<i64>>> {
        self.block_on(async |kafka| {
            let reader = kafka.consumer(group).build().await?;
            let asked: Vec<(&str, i32)> =
                (0..partitions.cast_signed()).map(|number| (topic, number)).collect();
            let found = reader.committed(&asked).await?;
            let offset = |(topic, number): &(&str, i32)| {
                found.get(&((*topic).to_owned(), *number)).map(|known| known.offset)
            };
            Ok(asked.iter().map(offset).collect())
        })
    }

    /// Runs a client of the broker on a runtime of its own, so that tests without one can use it.
    fn block_on<T>(&self, client: impl AsyncFnOnce(krafka::Kafka) -> krafka::Result<T>) -> io::Result<T> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let address = self.address().to_string();
        let connected = async {
            let kafka = krafka::Kafka::builder(address).allow_auto_create_topics(true).connect().await?;
            client(kafka).await
        };
        runtime.block_on(connected).map_err(io::Error::other)
    }
}

/// A small JVM that starts fast: the compiler that optimises fully would take a core for seconds.
fn java(classes: &Path) -> Command {
    let mut command = Command::new("java");
    command.args(["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
    command.arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn").arg("-cp").arg(classes);
    command
}

fn broker(classes: &Path, data: &Path) -> Command {
    let mut command = java(classes);
    command.arg("kafka.Kafka").arg(data.join("server.properties"));
    command
}

/// Writes the first records of the cluster: its id, and the passwords of SCRAM.
fn format(classes: &Path, data: &Path) -> io::Result<()> {
    let mut command = java(classes);
    command.args(["kafka.tools.StorageTool", "format", "--cluster-id", "AAAAAAAAQACAAAAAAAAAAQ"]);
    command.arg("--config").arg(data.join("server.properties"));
    for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
        command.arg("--add-scram").arg(format!("{mechanism}=[name=alice,password=secret]"));
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().map(drop)
}

/// Returns the settings of the broker.
///
/// A member that was killed keeps its name and its partitions until its session ends, so sessions are short.
/// Indexes are small: the broker maps those of each new topic into memory, by default 20 MiB of zeros.
fn settings(
    address: SocketAddr,
    ports: &Ports,
    relay: SocketAddr,
    partitions: u32,
    data: &Path,
    secured: Option<&Secured>,
) -> String {
    let Ports { controller, relayed, secured: port } = ports;
    let logs = data.join("logs");
    let (also, advertised, extra) = match secured {
        None => (String::new(), String::new(), String::new()),
        Some(Secured { key_and_certificate }) => {
            let plain = "org.apache.kafka.common.security.plain.PlainLoginModule required \
                         user_alice=\"secret\";";
            let scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;";
            // It accepts tokens without a signature.
            let bearer = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;";
            let listener = "listener.name.secured";
            (
                format!(",SECURED://127.0.0.1:{port}"),
                format!(",SECURED://127.0.0.1:{port}"),
                format!(
                    "{listener}.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER\n\
                     {listener}.plain.sasl.jaas.config={plain}\n\
                     {listener}.scram-sha-256.sasl.jaas.config={scram}\n\
                     {listener}.scram-sha-512.sasl.jaas.config={scram}\n\
                     {listener}.oauthbearer.sasl.jaas.config={bearer}\n\
                     {listener}.ssl.keystore.type=PEM\n\
                     {listener}.ssl.keystore.location={}\n",
                    key_and_certificate.display()
                ),
            )
        }
    };
    format!(
        "process.roles=broker,controller\n\
         node.id=1\n\
         controller.quorum.voters=1@127.0.0.1:{controller}\n\
         listeners=PLAIN://{address},RELAYED://127.0.0.1:{relayed},CONTROLLER://127.0.0.1:{controller}{also}\n\
         advertised.listeners=PLAIN://{address},RELAYED://{relay}{advertised}\n\
         listener.security.protocol.map=PLAIN:PLAINTEXT,RELAYED:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL\n\
         controller.listener.names=CONTROLLER\n\
         inter.broker.listener.name=PLAIN\n\
         log.dirs={}\n\
         num.partitions={partitions}\n\
         offsets.topic.num.partitions=1\n\
         offsets.topic.replication.factor=1\n\
         transaction.state.log.num.partitions=1\n\
         transaction.state.log.replication.factor=1\n\
         transaction.state.log.min.isr=1\n\
         share.coordinator.state.topic.replication.factor=1\n\
         share.coordinator.state.topic.min.isr=1\n\
         group.initial.rebalance.delay.ms=0\n\
         group.min.session.timeout.ms=1000\n\
         group.consumer.min.session.timeout.ms=1000\n\
         group.consumer.min.heartbeat.interval.ms=200\n\
         group.consumer.session.timeout.ms=2000\n\
         group.consumer.heartbeat.interval.ms=400\n\
         message.max.bytes=1048588\n\
         log.index.size.max.bytes=65536\n\
         {extra}",
        logs.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn a_broker_that_is_killed_comes_back_at_its_address() {
        let mut kafka = Kafka::start(1).unwrap();
        let address = kafka.address();
        kafka.kill().unwrap();
        assert!(TcpStream::connect(address).is_err());
        kafka.restart().unwrap();
        assert_eq!(kafka.address(), address);
        assert!(TcpStream::connect(address).is_ok());
    }
}

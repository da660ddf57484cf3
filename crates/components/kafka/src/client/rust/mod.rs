//! The client in pure Rust, the crate `krafka`.

mod transactions;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use krafka::admin::{AdminClient, DescribeTopicsOptions, ListConsumerGroupOffsetsOptions, ListTopicsOptions};
use krafka::auth::{AuthConfig, OAuthBearerToken, TlsConfig};
use krafka::consumer::{ConsumerGroupMetadata, ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition};
use krafka::error::ErrorCode;
use krafka::producer::{DeliveryHandle, ProducerBuilder};
use krafka::{CloseOptions, Kafka, KrafkaError, ProtocolErrorKind, Record};

use super::{
    Changes, Consumer, Failure, Generation, Incoming, Outgoing, Partition, Place, Producer, TopicId,
};
use crate::options::{ClusterOptions, Mechanism, Proof, TlsFiles};

pub(crate) use krafka::Compression;
pub(crate) use krafka::consumer::{AutoOffsetReset, GroupProtocol, IsolationLevel};
pub(crate) use krafka::producer::Acks;
pub(crate) use transactions::RustConnector;

/// The time for a connection, and for a request. A broker that was stopped without its connections being
/// closed is noticed after this time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// How long records stay queued, under the numbers by which the broker knows what it has already. Without an
/// answer for that long, another producer sends them, under new numbers. To wait without end was rejected: a
/// client that is stuck, for any reason, would then never send again.
const DELIVERY_TIMEOUT: Duration = Duration::from_mins(5);

/// The least time in which a cluster must name its brokers and number a producer. While a broker starts, it
/// names none, and the client would wait for a broker without asking again.
const FIRST_ANSWERS: Duration = Duration::from_secs(10);

/// How long a record waits for others of its request, unless a flush comes first.
const LINGER: Duration = Duration::from_millis(100);

/// The time to ask for the ids of topics. The partitions that a member gets wait for them.
const IDS_TIMEOUT: Duration = Duration::from_secs(5);

/// The beginning of the text that is committed with an offset. The id of the topic follows.
const TOPIC_ID: &str = "topic_id=";

/// The time to drop what is queued, or to leave a group.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Opens a connection to a cluster.
async fn connect(
    options: &ClusterOptions,
    creates_topics: bool,
    request_timeout: Duration,
) -> Result<Kafka, Failure> {
    let mut builder = Kafka::builder(options.brokers.join(","))
        .client_id(options.client_id.clone())
        // The client wants a connection to be the shorter of the two.
        .connect_timeout(CONNECT_TIMEOUT.min(request_timeout))
        .request_timeout(request_timeout)
        .allow_auto_create_topics(creates_topics);
    if let Some(security) = security(options)? {
        builder = builder.security(security);
    }
    builder.connect().await.map_err(failure)
}

fn security(options: &ClusterOptions) -> Result<Option<AuthConfig>, Failure> {
    let tls = options.tls().map(|files| tls(&files)).transpose()?;
    let Some(auth) = &options.auth else { return Ok(tls.map(AuthConfig::ssl)) };
    let security = match auth.proof() {
        Some(Proof::Password { user, password, mechanism }) => {
            let with_password = match mechanism {
                Mechanism::Plain => AuthConfig::sasl_plain,
                Mechanism::ScramSha256 => AuthConfig::sasl_scram_sha256,
                Mechanism::ScramSha512 => AuthConfig::sasl_scram_sha512,
            };
            with_password(user.to_owned(), password.to_owned())
        }
        Some(Proof::Token(file)) => {
            let file = file.to_owned();
            AuthConfig::sasl_oauthbearer_provider(move || std::future::ready(token(&file)))
        }
        None => return Err(Failure::Permanent("the user has neither a password nor a token".to_owned())),
    };
    Ok(Some(match tls {
        Some(tls) => security.with_tls(tls),
        None => security,
    }))
}

/// Reads a token. If the file is missing, it may just be written: a retry may succeed.
fn token(file: &Path) -> krafka::Result<OAuthBearerToken> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        let reason = format!("cannot read the token in `{}`: {error}", file.display());
        std::io::Error::new(error.kind(), reason)
    })?;
    Ok(OAuthBearerToken::new(text.trim()))
}

fn tls(files: &TlsFiles) -> Result<TlsConfig, Failure> {
    let mut config = if files.is_insecure { TlsConfig::insecure() } else { TlsConfig::new() };
    if let Some(authorities) = &files.authorities {
        let pem = std::fs::read(authorities).map_err(|error| {
            Failure::Permanent(format!("cannot read the authorities in `{}`: {error}", authorities.display()))
        })?;
        config = config.with_ca_cert_pem(pem);
    }
    if let Some((certificate, key)) = &files.identity {
        config = config.with_client_cert(certificate.display().to_string(), key.display().to_string());
    }
    if let Some(name) = &files.server_name {
        config = config.with_sni_hostname(name.clone());
    }
    Ok(config)
}

/// Returns what an error means for the caller.
fn failure(error: KrafkaError) -> Failure {
    let reason = error.to_string();
    match &error {
        KrafkaError::Broker { code, .. } => match code {
            ErrorCode::InvalidRecord | ErrorCode::InvalidTimestamp | ErrorCode::CorruptMessage => {
                Failure::RefusedTogether(reason)
            }
            ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge | ErrorCode::InvalidTopic => {
                Failure::Refused(reason)
            }
            ErrorCode::TopicAuthorizationFailed | ErrorCode::UnknownTopicOrPartition => {
                Failure::NoTopic(reason)
            }
            // The client does not join again after these. A member that was killed keeps its name until its
            // session ends.
            ErrorCode::UnreleasedInstanceId => Failure::Lost(reason),
            // Another member took the name: they would take it from each other without end.
            ErrorCode::FencedInstanceId => Failure::Permanent(reason),
            ErrorCode::UnsupportedCompressionType
            | ErrorCode::GroupAuthorizationFailed
            | ErrorCode::ClusterAuthorizationFailed
            | ErrorCode::SaslAuthenticationFailed => Failure::Permanent(reason),
            _ => Failure::Temporary(reason),
        },
        KrafkaError::UnknownTopic { .. } => Failure::NoTopic(reason),
        KrafkaError::Auth { .. } => Failure::Permanent(reason),
        // The client checks a record before it queues it.
        KrafkaError::Config { .. } | KrafkaError::Serialization { .. } => Failure::Refused(reason),
        KrafkaError::Protocol { kind, .. } => match kind {
            ProtocolErrorKind::FrameTooLarge | ProtocolErrorKind::InvalidLength => Failure::Refused(reason),
            ProtocolErrorKind::UnknownApiVersion | ProtocolErrorKind::UnsupportedMagic => {
                Failure::Permanent(reason)
            }
            _ => Failure::Temporary(reason),
        },
        KrafkaError::Fenced { .. } | KrafkaError::Closed { .. } => Failure::Lost(reason),
        _ => Failure::Temporary(reason),
    }
}

/// How records are sent.
#[derive(Debug, Clone)]
pub(crate) struct Sending {
    pub(crate) acks: Acks,
    pub(crate) compression: Compression,
    /// The size of a request's records of one partition.
    pub(crate) batch_size: usize,
    /// The largest size of all that is queued.
    pub(crate) queue_size: usize,
    /// How long a record waits for what must be known of its topic.
    pub(crate) timeout: Duration,
}

/// Sends records.
pub(crate) struct RustProducer(krafka::producer::Producer);

impl RustProducer {
    /// Connects to a cluster.
    pub(crate) async fn connect(cluster: &ClusterOptions, sending: &Sending) -> Result<Self, Failure> {
        let within = sending.timeout.max(FIRST_ANSWERS);
        in_time(within, Self::numbered(cluster, sending)).await
    }

    /// Connects, and waits for the number of the producer.
    async fn numbered(cluster: &ClusterOptions, sending: &Sending) -> Result<Self, Failure> {
        let kafka = connect(cluster, true, REQUEST_TIMEOUT).await?;
        sending.builder(&kafka).delivery_timeout(DELIVERY_TIMEOUT).build().await.map(Self).map_err(failure)
    }
}

/// Waits for a connection, but not for longer than this time.
async fn in_time<T>(
    within: Duration,
    connected: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::time::timeout(within, connected).await.unwrap_or_else(|_| {
        Err(Failure::Temporary(format!("no broker was ready within {} s", within.as_secs_f64())))
    })
}

impl Sending {
    /// Returns the builder of a producer.
    fn builder(&self, kafka: &Kafka) -> ProducerBuilder {
        kafka
            .producer()
            .acks(self.acks)
            .idempotent(self.acks == Acks::All)
            .compression(self.compression)
            .batch_size(self.batch_size)
            // A flush follows the last record that is queued together.
            .linger(LINGER)
            .buffer_memory(self.queue_size)
            .max_block(self.timeout)
            .metrics_push(false)
    }
}

/// Makes a record of the client.
fn record(outgoing: Outgoing) -> Record {
    let mut record = Record::new(outgoing.topic, outgoing.value);
    record.partition = outgoing.partition;
    record.key = outgoing.key;
    record.timestamp = outgoing.timestamp;
    record.headers = outgoing.headers;
    record
}

/// The outcome of a record.
pub(crate) struct Delivery(DeliveryHandle);

impl Future for Delivery {
    type Output = Result<(), Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|outcome| outcome.map(drop).map_err(failure))
    }
}

impl Producer for RustProducer {
    type Delivery = Delivery;

    async fn queue(&self, outgoing: Outgoing) -> Result<Delivery, Failure> {
        self.0.enqueue(record(outgoing)).await.map(Delivery).map_err(failure)
    }

    async fn flush(&self) {
        // It fails for no reason of its own: each record has its outcome.
        let _ = self.0.flush().await;
    }

    fn has_retried(&self) -> bool {
        self.0.metrics().producer.retries > 0
    }

    async fn close(&self) {
        let _ = self.0.close_with(CloseOptions::new().timeout(CLOSE_TIMEOUT)).await;
    }
}

/// How records are read.
#[derive(Debug, Clone)]
pub(crate) struct Receiving {
    pub(crate) group: String,
    /// The name of the member, if its membership outlasts a restart.
    pub(crate) instance: Option<String>,
    pub(crate) protocol: GroupProtocol,
    pub(crate) isolation: IsolationLevel,
    pub(crate) reset: AutoOffsetReset,
    /// After this time without a sign of life, the member's partitions go to others.
    pub(crate) session_timeout: Duration,
    /// The time that a member has to give up partitions.
    pub(crate) rebalance_timeout: Duration,
    /// The size of an answer of a broker, unless one record is larger.
    pub(crate) fetch_size: usize,
    /// The number of records that are returned at once.
    pub(crate) records: usize,
}

/// A member of a group: the member, what asks for topics, and the name of the group.
pub(crate) struct RustConsumer(krafka::consumer::Consumer, AdminClient, String);

impl RustConsumer {
    /// Connects to a cluster. `changes` receives the partitions that the member reads.
    pub(crate) async fn connect(
        cluster: &ClusterOptions,
        receiving: &Receiving,
        changes: impl Changes + 'static,
    ) -> Result<Arc<Self>, Failure> {
        let kafka = connect(cluster, false, REQUEST_TIMEOUT).await?;
        let size = |bytes: usize| i32::try_from(bytes).unwrap_or(i32::MAX);
        let listener = Arc::new(Listener { consumer: OnceLock::new(), changes });
        let mut builder = kafka
            .consumer(receiving.group.clone())
            .enable_auto_commit(false)
            .auto_offset_reset(receiving.reset)
            .isolation_level(receiving.isolation)
            .group_protocol(receiving.protocol)
            .max_poll_interval(receiving.rebalance_timeout)
            .fetch_max_bytes(size(receiving.fetch_size))
            .max_partition_fetch_bytes(size(receiving.fetch_size))
            .max_poll_records(size(receiving.records))
            .max_buffered_records(size(receiving.records))
            .metrics_push(false)
            .rebalance_listener(listener.clone());
        if receiving.protocol == GroupProtocol::Classic {
            builder = builder
                .session_timeout(receiving.session_timeout)
                .heartbeat_interval(receiving.session_timeout / 4);
        }
        if let Some(instance) = &receiving.instance {
            builder = builder.group_instance_id(instance.clone());
        }
        let consumer = builder.build().await.map_err(failure)?;
        let consumer = Arc::new(Self(consumer, kafka.admin(), receiving.group.clone()));
        // It is set once, before anything is polled.
        let _ = listener.consumer.set(Arc::downgrade(&consumer));
        Ok(consumer)
    }
}

#[async_trait]
impl Consumer for RustConsumer {
    async fn subscribe(&self, topics: &[String]) -> Result<(), Failure> {
        self.0.subscribe(topics).await.map_err(failure)
    }

    async fn topics(&self) -> Result<Vec<String>, Failure> {
        self.1.list_topics(ListTopicsOptions::default()).await.map_err(failure)
    }

    async fn poll(&self, timeout: Duration) -> Result<Vec<Incoming>, Failure> {
        let records = self.0.poll(timeout).await.map_err(failure)?;
        Ok(records.into_iter().map(incoming).collect())
    }

    async fn pause(&self, is_paused: bool) {
        for (topic, partitions) in self.0.assignment().await {
            match is_paused {
                true => self.0.pause(&topic, &partitions).await,
                false => self.0.resume(&topic, &partitions).await,
            }
        }
    }

    async fn commit(&self, places: &BTreeMap<Partition, Place>) -> Result<(), Failure> {
        let offsets = places.iter().map(|(partition, place)| {
            let offset = match &place.topic {
                Some(id) => OffsetAndMetadata::with_metadata(place.offset, format!("{TOPIC_ID}{id}")),
                None => OffsetAndMetadata::new(place.offset),
            };
            (TopicPartition::new(&*partition.topic, partition.number), offset)
        });
        self.0.commit_offsets(offsets).await.map_err(failure)
    }

    async fn committed(&self, partitions: &[Partition]) -> Result<BTreeMap<Partition, i64>, Failure> {
        let asked: Vec<(&str, i32)> = partitions.iter().map(|known| (&*known.topic, known.number)).collect();
        let found = self.0.committed(&asked).await.map_err(|error| match &error {
            // The group forgot the member, which joins again by its next poll only.
            KrafkaError::Broker {
                code: ErrorCode::UnknownMemberId | ErrorCode::FencedMemberEpoch, ..
            } => Failure::Lost(error.to_string()),
            _ => failure(error),
        })?;
        let found = found.into_iter().filter(|(_, position)| position.offset >= 0);
        let named = |(topic, number): (String, i32)| Partition { topic: topic.into(), number };
        Ok(found.map(|(partition, position)| (named(partition), position.offset)).collect())
    }

    async fn committed_topic(&self, partition: &Partition) -> Result<Option<TopicId>, Failure> {
        let asked = TopicPartition::new(&*partition.topic, partition.number);
        let options =
            ListConsumerGroupOffsetsOptions::default().partitions(vec![asked.clone()]).timeout(IDS_TIMEOUT);
        let found = self.1.list_consumer_group_offsets(self.2.clone(), options).await.map_err(failure)?;
        let known = found.into_iter().find(|(known, _)| *known == asked);
        let Some(committed) = known.map(|(_, committed)| committed) else { return Ok(None) };
        let text = committed.map_err(failure)?.metadata;
        Ok(text.as_deref().and_then(|text| text.strip_prefix(TOPIC_ID)).map(Arc::from))
    }

    async fn topic_ids(&self, topics: &BTreeSet<Arc<str>>) -> Result<BTreeMap<Arc<str>, TopicId>, Failure> {
        let names: Vec<String> = topics.iter().map(ToString::to_string).collect();
        let options = DescribeTopicsOptions::default().timeout(IDS_TIMEOUT);
        let described = self.1.describe_topics(names, options).await.map_err(failure)?;
        let mut ids = BTreeMap::new();
        for (name, topic) in described {
            match topic.map(|topic| u128::from_be_bytes(topic.topic_id)).map_err(failure) {
                // Of a broker without ids.
                Ok(0) | Err(Failure::NoTopic(_)) => {}
                Ok(id) => drop(ids.insert(Arc::from(name), Arc::from(format!("{id:032x}")))),
                Err(failure) => return Err(failure),
            }
        }
        Ok(ids)
    }

    async fn generation(&self) -> Option<Generation> {
        let member = self.0.group_metadata().await.filter(ConsumerGroupMetadata::is_fenceable)?;
        Some(Generation {
            group: member.group_id().to_owned(),
            number: member.generation_id(),
            member: member.member_id().to_owned(),
            instance: member.group_instance_id().map(str::to_owned),
        })
    }

    async fn seek(&self, partition: &Partition, offset: i64) -> Result<(), Failure> {
        self.0.seek(&partition.topic, partition.number, offset).await.map_err(failure)
    }

    async fn seek_to_time(&self, partition: &Partition, timestamp: i64) -> Result<(), Failure> {
        let (topic, number) = (&*partition.topic, partition.number);
        match self.0.seek_to_timestamp(topic, number, timestamp).await {
            Err(KrafkaError::NoOffset { .. }) => self.0.seek_to_end(topic, number).await.map_err(failure),
            sought => sought.map_err(failure),
        }
    }

    async fn bounds(&self, partition: &Partition) -> Result<(i64, i64), Failure> {
        self.0.fetch_watermarks(&partition.topic, partition.number).await.map_err(failure)
    }

    async fn lag(&self) -> Option<u64> {
        self.0.lag().await.values().map(|partition| partition.lag).sum()
    }

    async fn close(&self) {
        let _ = self.0.close_with(CloseOptions::new().timeout(CLOSE_TIMEOUT)).await;
    }
}

fn incoming(record: krafka::ConsumerRecord) -> Incoming {
    Incoming {
        partition: Partition { topic: record.topic, number: record.partition },
        offset: record.offset,
        timestamp: record.timestamp,
        key: record.key,
        value: record.value,
        headers: record.headers,
    }
}

/// Passes the changes of partitions on.
struct Listener<C> {
    consumer: OnceLock<Weak<RustConsumer>>,
    changes: C,
}

fn partitions(partitions: &[TopicPartition]) -> Vec<Partition> {
    let known = |partition: &TopicPartition| Partition {
        topic: partition.topic.as_str().into(),
        number: partition.partition,
    };
    partitions.iter().map(known).collect()
}

impl<C: Changes> ConsumerRebalanceListener for Listener<C> {
    async fn on_partitions_assigned(&self, assigned: &[TopicPartition]) {
        if let Some(consumer) = self.consumer.get().and_then(Weak::upgrade) {
            self.changes.assigned(&*consumer, partitions(assigned)).await;
        }
    }

    async fn on_partitions_revoked(&self, revoked: &[TopicPartition]) {
        if let Some(consumer) = self.consumer.get().and_then(Weak::upgrade) {
            self.changes.revoked(&*consumer, partitions(revoked)).await;
        }
    }

    async fn on_partitions_lost(&self, lost: &[TopicPartition]) {
        self.changes.lost(partitions(lost)).await;
    }
}

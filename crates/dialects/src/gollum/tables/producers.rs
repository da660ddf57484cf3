//! The table of producers.

use super::Takes::{Flag, Groups, List, Map, Number, Plugins, Text};
use super::amazon::AMAZON;
use super::cluster::{CLUSTER, LIBRDKAFKA};
use super::objects::{AWS, FORMER as FORMER_S3};
use super::{OptionRule, PluginKind, Role, idle, refused, used};

const COMMON: &[OptionRule] = &[
    used("Streams", List, "the pipelines of these streams lead to the sink"),
    used("Modulators", Plugins, "transforms, in this order"),
    used("FallbackStream", Text, "`failover: [the sink, the pipeline of that stream]`"),
    idle(
        "ShutdownTimeoutMs",
        Number,
        "messages in flight are always delivered before the end; a second Ctrl-C stops at once",
    ),
];

const BUFFERED: &[OptionRule] = &[
    idle("Channel", Number, "queues are limited in bytes, all together by `memory`"),
    used(
        "ChannelTimeoutMs",
        Number,
        "`failover: { timeout: … }`: messages that get no capacity in time go to the fallback, or are dropped",
    ),
];

const BATCHES: &str = "messages are always sent in batches; a batch is written when it arrives";

const RETRIES: &str = "messages that the server cannot take are sent again for as long as it takes";

const BATCHED: &[OptionRule] = &[
    idle("Batch/MaxCount", Number, BATCHES),
    idle("Batch/FlushCount", Number, BATCHES),
    idle("Batch/TimeoutSec", Number, BATCHES),
];

const fn producer(
    name: &'static str,
    becomes: &'static str,
    options: &'static [OptionRule],
    shared: &'static [&'static [OptionRule]],
) -> PluginKind {
    PluginKind { name, role: Role::Producer, becomes, options, shared, refused: None }
}

const fn without(name: &'static str, why: &'static str) -> PluginKind {
    PluginKind {
        name,
        role: Role::Producer,
        becomes: "nothing yet",
        options: &[],
        shared: &[],
        refused: Some(why),
    }
}

const PARTITIONS: &str =
    "a record with a key goes to the partition of its hash (murmur2), any other one to any";

const KEY_FORMATTER: &str =
    "convert the file, add a transform that makes a field, and name the field as `key` of the sink";

const OF_KEY: &str = "it belongs to `KeyFormatter`";

const PARTITIONER: &str = "`framing: { by: … }` of the answers";

const FIREHOSE: &str = "sink `aws_kinesis_firehose`, one for each stream";

const OF_FIREHOSE: &[OptionRule] = &[
    used("StreamMapping", Map, "`stream`, in a sink for each stream; the name of the stream by default"),
    used("RecordMaxMessages", Number, "with more than 1, `delimiter`; each message is a record of its own"),
    used("RecordMessageDelimiter", Text, "`delimiter`, if `RecordMaxMessages` is more than 1"),
    idle("SendTimeframeMs", Number, AT_ONCE),
];

const KINESIS: &str = "sink `aws_kinesis_streams`, one for each stream";

const OF_KINESIS: &[OptionRule] = &[
    used("StreamMapping", Map, "`stream`, in a sink for each stream; the name of the stream by default"),
    idle("RecordMaxMessages", Number, "each message is a record of its own"),
    idle("RecordMessageDelimiter", Text, "each message is a record of its own"),
    idle("SendTimeframeMs", Number, AT_ONCE),
];

const AT_ONCE: &str = "requests are sent when messages have come, and slower if the service asks for that";

pub(super) const KINDS: &[PluginKind] = &[
    producer(
        "producer.AwsCloudwatchLogs",
        "sink `aws_cloudwatch_logs`",
        &[used("LogGroup", Text, "`log_group`"), used("LogStream", Text, "`log_stream`")],
        &[COMMON, BATCHED, AMAZON],
    ),
    producer("producer.AwsFirehose", FIREHOSE, OF_FIREHOSE, &[COMMON, BATCHED, AMAZON]),
    producer("producer.Firehose", FIREHOSE, OF_FIREHOSE, &[COMMON, BATCHED, AMAZON]),
    producer("producer.AwsKinesis", KINESIS, OF_KINESIS, &[COMMON, BATCHED, AMAZON]),
    producer("producer.Kinesis", KINESIS, OF_KINESIS, &[COMMON, BATCHED, AMAZON]),
    producer("producer.AwsS3", "transform `pack` and sink `objects`", AWS, &[COMMON, AMAZON]),
    producer(
        "producer.S3",
        "transforms `pack` and `hash`, and sink `objects`, for each stream (v0.4)",
        FORMER_S3,
        &[COMMON, BUFFERED, AMAZON],
    ),
    producer(
        "deprecated.producer.S3",
        "transforms `pack` and `hash`, and sink `objects`, for each stream (v0.5 and v0.6)",
        FORMER_S3,
        &[COMMON, BUFFERED, AMAZON],
    ),
    producer("producer.Benchmark", "sink `discard`", &[], &[COMMON, BUFFERED]),
    producer("producer.Null", "sink `discard`", &[], &[COMMON]),
    producer(
        "producer.Console",
        "sink `stdout`",
        &[used("Console", Text, "`target`: `stdout` or `stderr`")],
        &[COMMON, BUFFERED],
    ),
    producer(
        "producer.ElasticSearch",
        "sink `elasticsearch`, one for each stream",
        &[
            used("Servers", List, "`url`: the first of them"),
            used("User", Text, "`auth: { user: … }`"),
            used("Password", Text, "`auth: { password: … }`"),
            used("SetGzip", Flag, "`compression: gzip`"),
            used(
                "StreamProperties",
                Groups,
                "`index`, with the time for `TimeBasedIndex`; `Type`, `Mapping` and `Settings` have no effect",
            ),
            idle("Retry/Count", Number, RETRIES),
            idle("Retry/TimeToWaitSec", Number, RETRIES),
        ],
        &[COMMON, BATCHED],
    ),
    producer(
        "producer.File",
        "sink `file` with `delimiter: \"\"`",
        &[
            used("File", Text, "`path`; with `*`, a sink for each stream"),
            used("FileOverwrite", Flag, "`existing: replace` or `append`"),
            used("Permissions", Text, "`mode`"),
            used("FolderPermissions", Text, "`folder_mode`"),
            idle("Batch/FlushTimeoutSec", Number, BATCHES),
            used("Rotation/Enable", Flag, "enables `rotate`, with a `link`"),
            used("Rotation/TimeoutMin", Number, "`rotate: { every: … }`"),
            used("Rotation/SizeMB", Number, "`rotate: { size: … }`"),
            used("Rotation/At", Text, "`rotate: { at: … }`"),
            used("Rotation/Timestamp", Text, "`rotate: { timestamp: …, numbers: if_taken }`"),
            used("Rotation/ZeroPadding", Number, "`rotate: { digits: … }`"),
            used("Rotation/Compress", Flag, "`rotate: { compression: gzip }`"),
            used("Prune/Count", Number, "`rotate: { keep: … }`, beside the file being written"),
            used("Prune/AfterHours", Number, "`rotate: { keep_age: … }`"),
            used("Prune/TotalSizeMB", Number, "`rotate: { keep_bytes: … }`"),
        ],
        &[COMMON, BATCHED],
    ),
    producer(
        "producer.HTTPRequest",
        "sink `http`, a request for each message",
        &[
            used("Address", Text, "`url`"),
            used("RawData", Flag, "`raw_request`"),
            used("Encoding", Text, "`content_type`"),
        ],
        &[COMMON, BUFFERED],
    ),
    producer(
        "producer.InfluxDB",
        "sink `influxdb` with `precision: ms`",
        &[
            used("Version", Number, "must be more than 90: the line protocol is written"),
            used("Host", Text, "`url`"),
            used("User", Text, "`auth: { user: … }`"),
            used("Password", Text, "`auth: { password: … }`"),
            used("Database", Text, "`database`; without elements of time"),
            used("TimeBasedName", Flag, "decides whether `Database` may have elements of time"),
            used("RetentionPolicy", Text, "`retention_policy`"),
        ],
        &[COMMON, BATCHED],
    ),
    producer(
        "producer.Kafka",
        "sink `kafka`",
        &[
            used("Topics", Map, "`topic`, in a sink for each stream; the name of the stream by default"),
            used("KeyFrom", Text, "`key`"),
            refused("KeyFormatter", Text, KEY_FORMATTER),
            idle("KeyFormatterFirst", Flag, OF_KEY),
            used("Compression", Text, "`compression`: `none`, `gzip` (`zip`) or `snappy`"),
            used("RequiredAcks", Number, "`acks: leader` (0 and 1) or `all`, which is also the default"),
            used("TimeoutMs", Number, "`timeout`"),
            idle("Partitioner", Text, PARTITIONS),
            idle("PartitionHasher", Text, PARTITIONS),
            idle("GracePeriodMs", Number, "messages wait until the broker has them"),
            idle("SendRetries", Number, "messages are sent until the broker has them"),
            idle("SendTimeoutMs", Number, "messages wait until the broker has them"),
            idle("AllowNilValue", Flag, "an empty payload is an empty value, never a tombstone"),
            idle("Batch/MinCount", Number, BATCHES),
            idle("Batch/MaxCount", Number, BATCHES),
            idle("Batch/MinSizeByte", Number, BATCHES),
            idle("Batch/SizeMaxKB", Number, BATCHES),
            idle("Batch/TimeoutMs", Number, BATCHES),
        ],
        &[COMMON, BUFFERED, CLUSTER],
    ),
    producer(
        "native.KafkaProducer",
        "sink `kafka`; empty messages are dropped before it, as in gollum",
        &[
            used(
                "Topic",
                Map,
                "`topic`, in a sink for each stream; `default` by default, as in gollum's program",
            ),
            used("KeyFrom", Text, "`key`"),
            refused("KeyFormatter", Text, KEY_FORMATTER),
            idle("KeyFormatterFirst", Flag, OF_KEY),
            used("Compression", Text, "`compression`: `none`, `gzip` (`zip`) or `snappy`"),
            used("RequiredAcks", Number, "`acks: leader` (0 and 1) or `all`, which is also the default"),
            used("TimeoutMs", Number, "`timeout`"),
            idle("SendRetries", Number, "messages are sent until the broker has them"),
            idle("BatchTimeoutMs", Number, BATCHES),
            idle("Batch/TimeoutMs", Number, BATCHES),
            idle("Batch/MinMessages", Number, BATCHES),
            idle("Batch/MaxMessages", Number, BATCHES),
            idle(
                "Batch/SizeMaxKB",
                Number,
                "the broker decides how large a message may be; it refuses a larger one, which goes to the fallback",
            ),
        ],
        &[COMMON, BUFFERED, LIBRDKAFKA],
    ),
    producer(
        "producer.Proxy",
        "sink `proxy`",
        &[
            used("Address", Text, "`address`"),
            used("TimeoutSec", Number, "`timeout`"),
            used("ConnectionBufferSizeKB", Number, "`send_buffer_size`"),
            used("Partitioner", Text, PARTITIONER),
            used("Delimiter", Text, "`framing: { delimiter: … }`"),
            used("Offset", Number, "`framing: { offset: … }`"),
            used("Size", Number, "`framing: { size: … }`"),
        ],
        &[COMMON, BUFFERED],
    ),
    producer(
        "producer.Redis",
        "sink `redis`",
        &[
            used("Address", Text, "`servers`"),
            used("Database", Number, "`database`"),
            used("Password", Text, "`auth: { password: … }`"),
            used(
                "Storage",
                Text,
                "`command`: `hset` (`hash`), `rpush` (`list`), `sadd` (`set`), `zadd` (`sortedset`), or `set`",
            ),
            used("Key", Text, "`key`, unless there is `KeyFrom`; gollum reads it in 0.4 only"),
            used("KeyFrom", Text, "`key`"),
            used("FieldFrom", Text, "`field` of a hash, `score` of a sorted set"),
            used(
                "FieldFormatter",
                Text,
                "`format.Identifier`, the default of v0.4: transform `add_id`, for `field` or `score` (v0.4)",
            ),
            used("FieldAfterFormat", Flag, "the place of `add_id` among the transforms (v0.4)"),
            used("IdentifierType", Text, "`kind` of `add_id` (v0.4)"),
            idle(
                "IdentifierDataFormatter",
                Text,
                "the identifier in the field is made of the message as it is (v0.4)",
            ),
            refused("KeyFormatter", Text, KEY_FORMATTER),
            idle("KeyAfterFormat", Flag, OF_KEY),
        ],
        &[COMMON, BUFFERED],
    ),
    without(
        "producer.Scribe",
        "thalweg has no sink for Scribe, which is no longer maintained; use the sink `socket` or `http`.",
    ),
    producer(
        "producer.Socket",
        "sink `socket` with `framing: { by: none }`",
        &[
            used("Address", Text, "`address`"),
            used("ConnectionBufferSizeKB", Number, "`send_buffer_size`"),
            used("Acknowledge", Text, "`acknowledge`, with `acknowledge_per: batch`"),
            used("AckTimeoutMs", Number, "`acknowledge_timeout`"),
        ],
        &[COMMON, BUFFERED, BATCHED],
    ),
    producer(
        "producer.Spooling",
        "sink `spool`, and a source `spool` that reads its messages back",
        &[
            used(
                "Path",
                Text,
                "`path`, a folder for each stream in it. Files that gollum spooled are not read",
            ),
            used("MaxFileSizeMB", Number, "`max_file_bytes`"),
            used("MaxFileAgeMin", Number, "`max_file_age`"),
            used("MaxMessagesSec", Number, "`rate` of the source"),
            used("RespoolDelaySec", Number, "`delay` of the source"),
            idle(
                "RevertStreamOnFallback",
                Flag,
                "messages that cannot be spooled go to `FallbackStream` under its own name",
            ),
            idle("BufferSizeByte", Number, "a message is read as a whole, up to `memory`"),
            idle("Batch/MaxCount", Number, BATCHES),
            idle("Batch/TimeoutSec", Number, BATCHES),
        ],
        &[COMMON, BUFFERED],
    ),
    producer(
        "producer.StatsdMetrics",
        "sink `statsd`",
        &[
            used("Server", Text, "`address`"),
            used("Prefix", Text, "`prefix`"),
            used("StreamMapping", Map, "`metric`, in a sink for each stream"),
            used("UseMessage", Flag, "`value: payload`"),
            used("UseGauge", Flag, "`kind: gauge` with `gauge: sum`"),
            idle("Batch/MaxMessages", Number, "sums are sent once a second"),
            idle("Batch/TimeoutSec", Number, "sums are sent once a second"),
        ],
        &[COMMON, BUFFERED],
    ),
    producer(
        "producer.Websocket",
        "sink `websocket`",
        &[
            used("Address", Text, "`address`"),
            used("Path", Text, "`path`"),
            used("ReadTimeoutSec", Number, "`handshake_timeout`"),
            used("IgnoreOrigin", Flag, "`origins: [\"*\"]`"),
        ],
        &[COMMON, BUFFERED],
    ),
];

/// Old and new names of producers' options that were renamed after v0.4.
pub const FORMER: &[(&str, &str)] = &[
    ("BatchMaxCount", "Batch/MaxCount"),
    ("BatchFlushCount", "Batch/FlushCount"),
    ("BatchTimeoutSec", "Batch/TimeoutSec"),
    ("BatchMaxMessages", "Batch/MaxMessages"),
    ("BatchMinMessages", "Batch/MinMessages"),
    ("BatchMinCount", "Batch/MinCount"),
    ("BatchSizeByte", "Batch/MinSizeByte"),
    ("BatchSizeMaxKB", "Batch/SizeMaxKB"),
    ("BatchTimeoutMs", "Batch/TimeoutMs"),
    ("TimoutMs", "TimeoutMs"),
    ("Topic", "Topics"),
    ("FlushTimeoutSec", "Batch/FlushTimeoutSec"),
    ("Rotate", "Rotation/Enable"),
    ("RotateTimeoutMin", "Rotation/TimeoutMin"),
    ("RotateSizeMB", "Rotation/SizeMB"),
    ("RotateAt", "Rotation/At"),
    ("RotateTimestamp", "Rotation/Timestamp"),
    ("RotateZeroPadding", "Rotation/ZeroPadding"),
    ("Compress", "Rotation/Compress"),
    ("RotatePruneCount", "Prune/Count"),
    ("RotatePruneAfterHours", "Prune/AfterHours"),
    ("RotatePruneTotalSizeMB", "Prune/TotalSizeMB"),
    ("RevertStreamOnDrop", "RevertStreamOnFallback"),
    ("DropToStream", "FallbackStream"),
    ("CredentialType", "Credential/Type"),
    ("CredentialId", "Credential/Id"),
    ("CredentialToken", "Credential/Token"),
    ("CredentialSecret", "Credential/Secret"),
    ("CredentialFile", "Credential/File"),
    ("CredentialProfile", "Credential/Profile"),
];

/// Options that exist only in v0.4.
pub const GONE: &[OptionRule] = &[
    idle("Fuse", Text, "a sink that fails makes its sources wait, and nothing is lost"),
    idle("FuseTimeoutSec", Number, "a sink that fails makes its sources wait, and nothing is lost"),
];

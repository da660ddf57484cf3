//! The table of consumers.

use super::Takes::{Flag, List, Number, Plugins, Text};
use super::amazon::AMAZON;
use super::cluster::CLUSTER;
use super::{OptionRule, PluginKind, Role, idle, used};

const COMMON: &[OptionRule] = &[
    used("Streams", List, "where the source's messages lead: the pipelines of these streams"),
    used("Modulators", Plugins, "transforms, in this order"),
    used("ModulatorRoutines", Number, "`concurrency` of the pipeline; the order of messages is kept"),
    idle("ModulatorQueueSize", Number, "queues are limited in bytes, all together by `memory`"),
    idle(
        "ShutdownTimeoutMs",
        Number,
        "messages in flight are always delivered before the end; a second Ctrl-C stops at once",
    ),
];

const fn consumer(name: &'static str, becomes: &'static str, options: &'static [OptionRule]) -> PluginKind {
    PluginKind { name, role: Role::Consumer, becomes, options, shared: &[COMMON], refused: None }
}

const fn without(name: &'static str, why: &'static str) -> PluginKind {
    PluginKind {
        name,
        role: Role::Consumer,
        becomes: "nothing yet",
        options: &[],
        shared: &[],
        refused: Some(why),
    }
}

const OF_KINESIS: &[OptionRule] = &[
    used("KinesisStream", Text, "`stream`"),
    used("DefaultOffset", Text, "`start: latest` (`newest`) or `earliest` (`oldest`)"),
    used(
        "OffsetFile",
        Text,
        "`state`, a folder with this name and `.d`: gollum's is a file, which is not read",
    ),
    used("RecordMessageDelimiter", Text, "the transform `split` with `delimiter`"),
    used("QuerySleepTimeMs", Number, "`poll_interval`"),
    idle("RecordsPerQuery", Number, "as many records are asked for as the memory has room for"),
    idle("RetrySleepTimeSec", Number, "the pauses between attempts grow by themselves"),
    idle("CheckNewShardsSec", Number, "the shards are listed every 10 s, and when one has ended"),
];

const fn kinesis(name: &'static str) -> PluginKind {
    PluginKind {
        name,
        role: Role::Consumer,
        becomes: "source `aws_kinesis_streams`",
        options: OF_KINESIS,
        shared: WITH_AMAZON,
        refused: None,
    }
}

const WITH_AMAZON: &[&[OptionRule]] = &[COMMON, AMAZON];

const PARTITIONER: &str =
    "`framing: { by: … }`: `delimiter`, `ascii`, `binary`, `binary_le`, `binary_be`, `fixed`";

pub(super) const KINDS: &[PluginKind] = &[
    consumer(
        "consumer.Console",
        "source `stdin`, or `pipe` for a named pipe",
        &[
            used("Pipe", Text, "`stdin`, or `path` of the source `pipe`"),
            used("Permissions", Text, "`mode` of a pipe that is created"),
            used(
                "ExitOnEOF",
                Flag,
                "`exit_on_eof` of the source `pipe`. `stdin` always stops at its end; the run ends when all sources have ended",
            ),
            used("SetMetadata", Flag, "a field `pipe`"),
        ],
    ),
    consumer(
        "consumer.File",
        "source `file` with `follow: true`",
        &[
            used("Files", Text, "`path`"),
            used("File", Text, "`path` (v0.4 and v0.5)"),
            used(
                "OffsetFile",
                Text,
                "`state`, a folder with this name and `.d`: gollum's is a file (v0.4 and v0.5)",
            ),
            used("PollingDelay", Number, "`poll_interval` (v0.5)"),
            used(
                "OffsetFilePath",
                Text,
                "`state`: the folder in which positions are kept. Positions that gollum wrote are not read",
            ),
            used("Delimiter", Text, "`framing: { delimiter: … }`"),
            idle(
                "ObserveMode",
                Text,
                "files are checked four times a second, which also finds changes that `watch` missed",
            ),
            used("DefaultOffset", Text, "`read_from: end` (`newest`) or `beginning` (`oldest`)"),
            used("PollingDelayMs", Number, "`poll_interval`"),
            idle("RetryDelaySec", Number, "`scan_interval` decides how often a missing file is looked for"),
            used("DirScanIntervalSec", Number, "`scan_interval`"),
            used("BlackList", Text, "`exclude_regex`"),
            used("WhiteList", Text, "`include_regex`"),
            used("SetMetadata", Flag, "fields `file` and `dir`, from `meta.path`"),
        ],
    ),
    consumer(
        "consumer.HTTP",
        "source `http`",
        &[
            used("Address", Text, "`address`"),
            used("ReadTimeoutSec", Number, "`read_timeout`"),
            used("WithHeaders", Flag, "`payload: request` (the whole request) or `body`"),
            used("Htpasswd", Text, "`htpasswd`"),
            used("BasicRealm", Text, "`realm`"),
            used("Certificate", Text, "`tls: { certificate: … }`"),
            used("PrivateKey", Text, "`tls: { key: … }`"),
        ],
    ),
    PluginKind {
        name: "consumer.Kafka",
        role: Role::Consumer,
        becomes: "source `kafka`",
        options: &[
            used("Topic", Text, "`topics`"),
            used("GroupId", Text, "`group`; without it the group has the name of the client and the topic"),
            used("DefaultOffset", Text, "`start: latest` (`newest`) or `earliest` (`oldest`)"),
            used("DefaultFetchSizeByte", Number, "`fetch_size`"),
            used("SetMetadata", Flag, "`fields: [topic, key]`"),
            idle(
                "OffsetFile",
                Text,
                "the broker keeps the offsets of the group; those in a file are not read",
            ),
            idle("PresistTimoutMs", Number, "offsets are committed each second"),
            idle("FolderPermissions", Text, "the broker keeps the offsets of the group"),
            idle("Ordered", Flag, "the messages of a partition are always in order"),
            idle("MaxFetchSizeByte", Number, "a record that is larger than `fetch_size` is read"),
            idle("MinFetchSizeByte", Number, "a broker answers as soon as it has a record"),
            idle("FetchTimeoutMs", Number, "a broker answers as soon as it has a record"),
        ],
        shared: &[COMMON, CLUSTER],
        refused: None,
    },
    kinesis("consumer.AwsKinesis"),
    kinesis("consumer.Kinesis"),
    consumer(
        "consumer.Profiler",
        "source `generate`",
        &[
            used("Runs", Number, "`count` is `Runs` times `Batches`"),
            used("Batches", Number, "`count` is `Runs` times `Batches`"),
            used("TemplateCount", Number, "`templates`"),
            used("Characters", Text, "`characters`"),
            used("Message", Text, "`message`"),
            used("DelayMs", Number, "`rate`: 1000 divided by it, evenly spread"),
            used(
                "KeepRunning",
                Flag,
                "a run ends when all its sources have ended; with `true` a comment says so. No consumer stops the others",
            ),
        ],
    ),
    consumer(
        "consumer.Proxy",
        "source `proxy`",
        &[
            used("Address", Text, "`address`"),
            used("Partitioner", Text, PARTITIONER),
            used("Delimiter", Text, "`framing: { delimiter: … }`"),
            used("Offset", Number, "`framing: { offset: … }`"),
            used("Size", Number, "`framing: { size: … }`"),
        ],
    ),
    consumer(
        "consumer.Socket",
        "source `socket`",
        &[
            used("Address", Text, "`address`"),
            used("Partitioner", Text, PARTITIONER),
            used("Delimiter", Text, "`framing: { delimiter: … }`"),
            used("Offset", Number, "`framing: { offset: … }`"),
            used("Size", Number, "`framing: { size: … }`"),
            used("Permissions", Text, "`mode` of a unix socket"),
            used("Acknowledge", Text, "`acknowledge`, sent for each message once it is delivered"),
            used("AckTimeoutSec", Number, "`acknowledge_timeout`"),
            idle(
                "ReadTimeoutSec",
                Number,
                "gollum checked this often whether to stop; here a source is notified",
            ),
            idle("ReconnectAfterSec", Number, "an address in use is retried with growing pauses"),
            used("RemoveOldSocket", Flag, "`remove_old_socket`"),
        ],
    ),
    consumer(
        "consumer.Syslogd",
        "source `syslog`",
        &[
            used("Address", Text, "`address`"),
            used("Format", Text, "`format`: `rfc3164` or `rfc5424` (also for RFC6587, which is its framing)"),
            used("Permissions", Text, "`mode` of a unix socket"),
            used("SetMetadata", Flag, "`add_fields`, renamed to gollum's names"),
            used("TimestampFormat", Text, "transform `format_timestamp`"),
        ],
    ),
    without(
        "native.SystemdConsumer",
        "its options are not translated; the source `journald` reads the journal.",
    ),
    without(
        "native.PcapHTTPConsumer",
        "thalweg does not capture packets; send the requests to the source `http`.",
    ),
];

/// Old and new names of consumers' options that were renamed after v0.4.
pub const FORMER: &[(&str, &str)] = &[
    ("Console", "Pipe"),
    ("AckTimoutSec", "AckTimeoutSec"),
    ("ReadTimoutSec", "ReadTimeoutSec"),
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
    idle("UseRelativePath", Flag, "positions are kept for the file itself, not for its path"),
    idle("EOFCheckSpeed", Text, "files are checked four times a second"),
];

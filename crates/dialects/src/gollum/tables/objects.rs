//! The options of the producers of S3.

use super::Takes::{Flag, Map, Number, Text};
use super::{OptionRule, idle, used};

const AT_ONCE: &str = "messages are written to their object at once";

const MADE_WHOLE: &str = "an object is sent when it is whole, from memory or a temporary file";

/// The options of `producer.AwsS3`.
pub(super) const AWS: &[OptionRule] = &[
    used("Bucket", Text, "the bucket of the `url`, and the folder after it"),
    used(
        "File",
        Text,
        "`name` of the files that the transform `pack` makes; with `*`, a sink for each stream",
    ),
    idle("Rotation/Enable", Flag, "an object always has an end, as in gollum"),
    used("Rotation/TimeoutMin", Number, "`pack: { max_age: … }`"),
    used("Rotation/SizeMB", Number, "`pack: { max_file_bytes: … }`"),
    used("Rotation/Timestamp", Text, "the time in `name`, which is when the object was begun, in UTC"),
    idle("Rotation/At", Text, "the age and the size of an object decide when the next one is begun"),
    idle("Rotation/ZeroPadding", Number, "gollum did not number objects"),
    idle("Rotation/Compress", Flag, "gollum did not compress objects"),
    idle("Batch/MaxCount", Number, AT_ONCE),
    idle("Batch/FlushCount", Number, AT_ONCE),
    idle("Batch/TimeoutSec", Number, AT_ONCE),
    idle("Batch/FlushTimeoutSec", Number, AT_ONCE),
];

/// The options of the former producer of S3.
pub(super) const FORMER: &[OptionRule] = &[
    used("StreamMapping", Map, "the bucket of the `url`, and the beginning of the name, for each stream"),
    used("StorageClass", Text, "`default_storage_class` in the `url`"),
    used("ObjectMaxMessages", Number, "`pack: { max_count: … }`"),
    used("ObjectMessageDelimiter", Text, "`pack: { delimiter: … }`, also after the last message"),
    used("TimestampWrite", Text, "the time in the name, which is when the object was begun, in UTC"),
    used(
        "PathFormatter",
        Text,
        "`format.Identifier` is `{id}` in the name; without it, the name has the SHA-1 of the object",
    ),
    used("Compress", Flag, "`pack: { compression: gzip }`, and `.gz` at the end of the name"),
    used("LocalPath", Text, "decides whether the size and the age of an object have limits"),
    used("FileMaxAgeSec", Number, "`pack: { max_age: … }`, with `LocalPath`"),
    used("FileMaxMB", Number, "`pack: { max_file_bytes: … }`, with `LocalPath`; otherwise 1 GiB"),
    idle(
        "UploadOnShutdown",
        Flag,
        "a run that ends or is stopped sends all objects; after a kill, one with `--state` continues them",
    ),
    idle("BatchMaxMessages", Number, AT_ONCE),
    used("BatchTimeoutSec", Number, "`pack: { max_age: … }`, without `LocalPath`"),
    idle("SendTimeframeMs", Number, MADE_WHOLE),
];

//! The option `parquet` of the sink `objects`.

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::ByteSize;

/// How tables are written.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Parquet {
    /// The compression of columns. The default is `zstd`.
    pub(super) compression: Packing,
    /// The size of a row group in memory before it is written, in bytes. The default is 1/8 of the memory,
    /// between 1 MiB and 64 MiB.
    pub(super) row_group: Option<ByteSize>,
}

/// A compression of columns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Packing {
    /// Zstandard: small files at a good speed.
    #[default]
    Zstd,
    /// Snappy: larger files, faster than `zstd`.
    Snappy,
    /// No compression.
    None,
}

//! The option `parquet` of the sink `objects`.

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::columns::FieldType;
use thalweg_codec::ordered::Ordered;
use thalweg_config::ByteSize;

/// How tables are written.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Parquet {
    /// The columns and their types: `text`, `int`, `float`, `bool`, `timestamp` or `json`. Other fields are
    /// left out. The default is the fields of the first messages. A later message with a value in another
    /// field leaves by the `errors` output, and so does one with a value of another type. Give `columns` to
    /// have the same table in every run.
    pub(super) columns: Option<Ordered<FieldType>>,
    /// The compression of columns. The default is `zstd`.
    pub(super) compression: Packing,
    /// The size of a row group in bytes, at most a quarter of `memory`. The default is 1/8 of `memory`,
    /// between 64 KiB and 64 MiB. A row group is written earlier if its columns in progress take a quarter of
    /// `memory`.
    pub(super) row_group_size: Option<ByteSize>,
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

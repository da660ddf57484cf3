//! The options of Parquet tables.

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::ByteSize;

use crate::columns::FieldType;
use crate::ordered::Ordered;

/// How tables are written.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub struct TableOptions {
    /// For `parquet`: the columns and their types: `text`, `int`, `float`, `bool`, `timestamp` or `json`.
    /// Other fields are left out. The default is the fields of the first messages. A later message with a
    /// value in another field leaves by the `errors` output, and so does one with a value of another type.
    /// Give `columns` to have the same table in every file and every run.
    #[serde(default)]
    pub columns: Option<Ordered<FieldType>>,
    /// For `parquet`: the compression of columns: `zstd` (the default), `snappy` or `none`.
    #[serde(default)]
    pub compression: Option<TableCompression>,
    /// For `parquet`: the size of a row group in bytes, at most a quarter of `memory`. The default is 1/8 of
    /// `memory`, between 64 KiB and 64 MiB. A row group is written earlier if its columns in progress take a
    /// quarter of `memory`, those of all tables together.
    #[serde(default)]
    pub row_group_size: Option<ByteSize>,
}

/// A compression of columns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TableCompression {
    /// Zstandard: small files at a good speed.
    #[default]
    Zstd,
    /// Snappy: larger files, faster than `zstd`.
    Snappy,
    /// No compression.
    None,
}

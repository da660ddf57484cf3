//! Stand-in for the transform that is written on branch `json`.

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::BuildTransform;

/// How messages are encoded.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EncodeConfig {
    /// Payload.
    #[default]
    Raw,
    /// With a header.
    Csv,
}

impl EncodeConfig {
    /// Header.
    pub fn header(&self, schema: &arrow_schema::Schema) -> Option<Vec<u8>> {
        let _ = schema;
        matches!(self, Self::Csv).then(|| b"header".to_vec())
    }
    /// Encoder.
    pub fn encoder(&self) -> Option<Box<dyn BuildTransform>> {
        None
    }
}

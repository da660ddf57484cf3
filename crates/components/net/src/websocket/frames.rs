//! The messages of a batch, as frames.

use arrow_array::Array;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_record::Batch;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

/// The type of WebSocket messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// Text.
    #[default]
    Text,
    /// Bytes.
    Binary,
}

/// Returns the WebSocket messages of a batch: slices of one copy of its payloads.
pub(crate) fn frames(batch: &Batch, kind: Kind) -> impl Iterator<Item = Message> + use<> {
    let payload = batch.payload();
    let mut bytes = Vec::with_capacity(batch.payload_bytes());
    let mut ends = Vec::with_capacity(payload.len());
    for row in 0..payload.len() {
        bytes.extend_from_slice(payload.value(row));
        ends.push(bytes.len());
    }
    let bytes = Bytes::from(bytes);
    let mut start = 0;
    ends.into_iter().map(move |end| {
        let message = bytes.slice(start..end);
        start = end;
        match kind {
            Kind::Binary => Message::Binary(message),
            Kind::Text => match Utf8Bytes::try_from(message.clone()) {
                Ok(text) => Message::Text(text),
                Err(_) => Message::Binary(message),
            },
        }
    })
}

//! Drops everything: for measurements, and for messages that are not needed.
//!
//! Dropped messages count as delivered, so sources commit their positions. The engine counts them, as for
//! every sink.

use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{
    Component, Context, Disposition, Error, FileError, FileSink, FileTransform, FileTransformConfig, Rejects,
    Sink, SinkConfig, WriteOutcome,
};
use thalweg_record::{Batch, File};

/// Drops all messages or files.
///
/// They count as delivered. Use it to measure the components before it, or to see errors only.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiscardConfig {}

impl Component for DiscardConfig {
    const NAME: &'static str = "discard";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { message: "%256s", count: 1000000 } }
pipelines:
  main: { from: messages, to: nowhere }
sinks:
  nowhere: { discard: {} }
"#;
}

impl SinkConfig for DiscardConfig {
    fn files(&self) -> Option<FileSink> {
        Some(FileSink(Arc::new(DiscardFiles)))
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Sink>, Error> {
        Ok(Box::new(Discard))
    }
}

struct Discard;

#[async_trait]
impl Sink for Discard {
    async fn write(&mut self, _: &Batch, _: &mut Rejects) -> Result<WriteOutcome, Error> {
        Ok(WriteOutcome::Durable)
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

struct DiscardFiles;

impl FileTransformConfig for DiscardFiles {
    fn build(&self, _: &Context) -> Result<Box<dyn FileTransform>, Error> {
        Ok(Box::new(Discard))
    }
}

#[async_trait]
impl FileTransform for Discard {
    async fn apply(&mut self, _: &mut File) -> Result<Disposition, FileError> {
        Ok(Disposition::Continue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::testing::{batch, sink_conforms, write_all};

    #[tokio::test]
    async fn it_conforms() {
        sink_conforms::<DiscardConfig>("{}").await;
    }

    #[tokio::test]
    async fn nothing_is_rejected() {
        let rejected = write_all::<DiscardConfig>("{}", [batch(["", "\0", "text"])]).await.unwrap();
        assert!(rejected.is_empty());
    }
}

//! Custom writers.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use thalweg_engine::{Component, Context, Error, Mistake, Rejects, Sink, SinkConfig, WriteOutcome};
use thalweg_record::{Batch, PAYLOAD};

/// Writes rows to a target. Each worker has its own instance.
#[async_trait]
pub trait Writer: Sized + Send + 'static {
    /// The key in configurations.
    const NAME: &'static str;

    /// The options in a configuration. `serde_json::Value` accepts anything, `()` nothing.
    type Options: DeserializeOwned + JsonSchema + Send + Sync + 'static;

    /// Creates an instance.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the options.
    fn new(options: &Self::Options) -> Result<Self, String>;

    /// Writes rows. When it returns, the rows must be durable. Messages without fields have one column,
    /// `payload`.
    ///
    /// # Errors
    /// After [`WriteError::Again`] the engine passes the same rows again, after a pause.
    /// [`WriteError::Never`] ends the run.
    async fn write(&mut self, rows: &RecordBatch) -> Result<(), WriteError>;

    /// Called after the last rows.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    async fn finish(&mut self) -> Result<(), WriteError> {
        Ok(())
    }
}

/// Why rows were not written. None of the rows may have been written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteError {
    /// A temporary error: a retry may succeed.
    Again(String),
    /// A permanent error.
    Never(String),
}

impl From<WriteError> for Error {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Again(why) => Error::temporary(why),
            WriteError::Never(why) => Error::permanent(why),
        }
    }
}

/// A configured [`Writer`].
#[derive(Deserialize, JsonSchema)]
#[serde(transparent, bound = "")]
#[schemars(bound = "W::Options: JsonSchema")]
pub struct WithWriter<W: Writer> {
    options: W::Options,
    #[serde(skip)]
    #[schemars(skip)]
    writer: PhantomData<fn() -> W>,
}

impl<W: Writer> Component for WithWriter<W> {
    const NAME: &'static str = W::NAME;
    const EXAMPLE: &'static str = "";

    fn check(&self) -> Vec<Mistake> {
        W::new(&self.options).err().map(|why| Mistake::new("", why)).into_iter().collect()
    }
}

impl<W: Writer> SinkConfig for WithWriter<W> {
    fn build(&self, _: &Context) -> Result<Box<dyn Sink>, Error> {
        Ok(Box::new(Writing(W::new(&self.options).map_err(Error::permanent)?)))
    }
}

struct Writing<W>(W);

#[async_trait]
impl<W: Writer> Sink for Writing<W> {
    async fn write(&mut self, batch: &Batch, _: &mut Rejects) -> Result<WriteOutcome, Error> {
        let fields = batch.fields();
        if fields.num_columns() > 0 {
            self.0.write(fields).await?;
        } else {
            let payload: ArrayRef = Arc::new(batch.payload().clone());
            let rows = RecordBatch::try_from_iter([(PAYLOAD, payload)]);
            self.0.write(&rows.map_err(|error| Error::permanent(error.to_string()))?).await?;
        }
        Ok(WriteOutcome::Durable)
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), Error> {
        Ok(self.0.finish().await?)
    }
}

#[cfg(test)]
mod tests {
    use thalweg_engine::testing::sink_conforms;

    use super::*;

    /// A writer that fails at its first call.
    struct Late(bool);

    #[async_trait]
    impl Writer for Late {
        const NAME: &'static str = "late";
        type Options = serde_json::Value;

        fn new(_: &Self::Options) -> Result<Self, String> {
            Ok(Self(false))
        }

        async fn write(&mut self, rows: &RecordBatch) -> Result<(), WriteError> {
            assert!(rows.num_rows() > 0 && rows.num_columns() > 0);
            match std::mem::replace(&mut self.0, true) {
                true => Ok(()),
                false => Err(WriteError::Again("not yet".to_owned())),
            }
        }
    }

    #[tokio::test]
    async fn what_could_not_be_written_is_given_again() {
        let mut sink = Writing(Late(false));
        let batch = thalweg_engine::testing::batch(["a"]);
        let error = sink.write(&batch, &mut Rejects::default()).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.full()),
            (thalweg_engine::ErrorKind::Temporary, "not yet".to_owned())
        );
        assert_eq!(sink.write(&batch, &mut Rejects::default()).await.unwrap(), WriteOutcome::Durable);
        let _ = sink_conforms::<WithWriter<Late>>;
    }
}

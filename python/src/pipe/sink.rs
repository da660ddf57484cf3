//! Sinks in Python: writers, and streams that are read.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use arrow_array::RecordBatch;
use async_trait::async_trait;
use pyo3::prelude::*;
use serde_json::Value;
use thalweg_engine::{Context, Error, Rejects, Sink, SinkConfig, WriteOutcome};
use thalweg_record::Batch;
use tokio::sync::oneshot;

use super::batches::{self, Shape, rows_of};
use super::objects::{Cause, Object, arguments, bridged};
use super::stream::{Offer, Queue};
use crate::attach::attach;

/// A writer class, or a function that creates writers.
pub struct WriterClass {
    /// The class.
    pub class: Object,
    /// The keyword arguments for the class.
    pub options: Value,
    /// The form of the batches.
    pub shape: Shape,
    /// Records the exceptions that the class raises.
    pub cause: Cause,
}

impl SinkConfig for WriterClass {
    fn build(&self, _: &Context) -> Result<Box<dyn Sink>, Error> {
        let made = attach(|py| {
            self.class.bind(py).call((), Some(&arguments(py, &self.options)?)).map(Bound::unbind)
        });
        let made = made.unwrap_or_else(|| Err(crate::errors::Error::new_err("the interpreter has ended")));
        let writer = Arc::new(made.map_err(|error| self.cause.permanent(error))?);
        Ok(Box::new(Writing { writer, shape: self.shape, cause: self.cause.clone() }))
    }
}

struct Writing {
    writer: Object,
    shape: Shape,
    cause: Cause,
}

impl Writing {
    /// Calls the writer on a thread that may block. Without rows, the writer finishes.
    async fn call(&self, rows: Option<RecordBatch>) -> Result<(), Error> {
        let (writer, cause) = (self.writer.clone(), self.cause.clone());
        let done = tokio::task::spawn_blocking(move || {
            let result = bridged("write", |py, write| {
                let reply = write.call1((writer.bind(py), rows.map(batches::Batch)))?;
                reply.extract::<Option<String>>()
            });
            match result {
                Ok(None) => Ok(()),
                Ok(Some(reason)) => Err(Error::temporary(reason)),
                Err(error) => Err(cause.permanent(error)),
            }
        });
        done.await.map_err(|error| Error::permanent("a call panicked").caused_by(error))?
    }
}

#[async_trait]
impl Sink for Writing {
    async fn write(&mut self, batch: &Batch, _: &mut Rejects) -> Result<WriteOutcome, Error> {
        self.call(Some(rows_of(batch, self.shape)?)).await?;
        Ok(WriteOutcome::Durable)
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), Error> {
        self.call(None).await
    }
}

/// A stream that Python reads.
pub struct Streaming(pub Arc<Queue>);

impl SinkConfig for Streaming {
    fn build(&self, _: &Context) -> Result<Box<dyn Sink>, Error> {
        let to = self
            .0
            .sink()
            .ok_or_else(|| Error::permanent("this stream was already the sink of a run; make another one"))?;
        Ok(Box::new(Offering { to, shape: self.0.shape }))
    }
}

struct Offering {
    to: Sender<Offer>,
    shape: Shape,
}

#[async_trait]
impl Sink for Offering {
    async fn write(&mut self, batch: &Batch, _: &mut Rejects) -> Result<WriteOutcome, Error> {
        let gone = || Error::permanent("the reader of the stream is gone");
        let (asked, wanted) = oneshot::channel();
        self.to.send((rows_of(batch, self.shape)?, asked)).map_err(|_| gone())?;
        wanted.await.map_err(|_| gone())?;
        Ok(WriteOutcome::Durable)
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

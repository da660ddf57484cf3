//! Sinks in Python: writers, and streams that are read.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use arrow_array::RecordBatch;
use async_trait::async_trait;
use pyo3::prelude::*;
use serde_json::Value;
use thalweg_engine::{Context, Error, InFlight, Rejects, Sink, SinkConfig, WriteOutcome};
use thalweg_record::{Batch, Budget};
use tokio::sync::oneshot;

use super::batches::{self, Shape, rows_of};
use super::objects::{Cause, Object, arguments, bridged};
use super::process::{Reply, Worker, encoded};
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

/// The mark of the request to finish, which has no rows.
const FINISH: u64 = 1;

/// A writer class in `count` processes.
pub struct RemoteWriter {
    /// The command line of a process.
    pub command: Vec<String>,
    /// The number of processes.
    pub count: usize,
    /// The keyword arguments for the class.
    pub options: Value,
    /// The form of the batches.
    pub shape: Shape,
}

impl SinkConfig for RemoteWriter {
    fn in_flight(&self) -> InFlight {
        InFlight::Fixed(self.count)
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        Ok(Box::new(RemoteWriting {
            worker: Worker::new(&self.command, &self.options),
            shape: self.shape,
            budget: context.memory.budget().clone(),
        }))
    }
}

struct RemoteWriting {
    worker: Worker,
    shape: Shape,
    budget: Budget,
}

#[async_trait]
impl Sink for RemoteWriting {
    async fn open(&mut self, _: Option<Value>) -> Result<(), Error> {
        self.worker.start().await
    }

    // A process that dies may have written a part of the batch. The batch is written again nevertheless, as
    // after any failure: nothing is lost.
    async fn write(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<WriteOutcome, Error> {
        let request = encoded(&rows_of(batch, self.shape)?)?;
        let _held = self.budget.claim(request.len());
        match self.worker.ask_twice(0, &request).await? {
            Reply::Made(..) => {}
            Reply::Again(why) => return Err(Error::temporary(why)),
            Reply::Failed(why) => return Err(Error::permanent(why)),
            Reply::Died(why) => (0..batch.rows() as u32).for_each(|row| rejects.reject(row, why.clone())),
        }
        Ok(WriteOutcome::Durable)
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), Error> {
        // After a process died, there is no writer that could finish.
        if self.worker.is_running() {
            match self.worker.ask(FINISH, &[]).await? {
                Reply::Made(..) => {}
                Reply::Again(why) => return Err(Error::temporary(why)),
                Reply::Failed(why) => return Err(Error::permanent(why)),
                Reply::Died(how) => {
                    return Err(Error::permanent(format!("the worker process died when it finished: {how}")));
                }
            }
        }
        self.worker.end().await;
        Ok(())
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

//! A Python function over batches, called in worker processes.
//!
//! Each worker of the transform has a process. If it dies twice on a batch, the messages of that batch leave
//! by `errors`, and the run continues.

use async_trait::async_trait;
use serde_json::Value;
use thalweg_engine::{Context, Error, Outputs, WaitingTransform, WaitingTransformConfig};
use thalweg_record::{Batch, Budget};

use super::batches::{Shape, rows_of};
use super::process::{Reply, Worker, encoded};
use super::transform::give;

/// A function in `count` processes.
pub struct Workers {
    /// The command line of a process.
    pub command: Vec<String>,
    /// The number of processes.
    pub count: usize,
    /// The form of the batches.
    pub shape: Shape,
}

impl WaitingTransformConfig for Workers {
    fn parallelism(&self) -> Option<usize> {
        Some(self.count)
    }

    fn build(&self, context: &Context) -> Result<Box<dyn WaitingTransform>, Error> {
        Ok(Box::new(Remote {
            worker: Worker::new(&self.command, &Value::Null),
            shape: self.shape,
            budget: context.memory.budget().clone(),
        }))
    }
}

struct Remote {
    worker: Worker,
    shape: Shape,
    budget: Budget,
}

#[async_trait]
impl WaitingTransform for Remote {
    async fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let request = encoded(&rows_of(&batch, self.shape)?)?;
        let held = self.budget.claim(request.len());
        let reply = self.worker.ask_twice(0, &request).await?;
        drop((request, held));
        match reply {
            Reply::Made(made, _) => give(batch, Ok(made), out),
            Reply::Failed(why) | Reply::Again(why) | Reply::Died(why) => give(batch, Err(why), out),
        }
    }

    async fn finish(&mut self, _: &mut Outputs) -> Result<(), Error> {
        self.worker.end().await;
        Ok(())
    }
}

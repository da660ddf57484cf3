//! A Python function over batches, called in this process.

use arrow_array::RecordBatch;
use async_trait::async_trait;
use pyo3::prelude::*;
use thalweg_engine::{Context, Error, Outputs, WaitingTransform, WaitingTransformConfig};
use thalweg_record::{Batch, Budget, Outcome};

use super::batches::{self, Shape, copied, replaced, rows_of};
use super::capsules;
use super::objects::{Object, bridged};

/// A function. It is called on threads that may block, so that waiting for the interpreter lock does not
/// occupy a core of other segments.
pub struct Function {
    /// The function.
    pub function: Object,
    /// The form of the batches.
    pub shape: Shape,
}

impl WaitingTransformConfig for Function {
    fn build(&self, context: &Context) -> Result<Box<dyn WaitingTransform>, Error> {
        Ok(Box::new(Calling {
            function: self.function.clone(),
            shape: self.shape,
            budget: context.memory.budget().clone(),
        }))
    }
}

struct Calling {
    function: Object,
    shape: Shape,
    budget: Budget,
}

#[async_trait]
impl WaitingTransform for Calling {
    async fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let (function, shape, budget) = (self.function.clone(), self.shape, self.budget.clone());
        let done = tokio::task::spawn_blocking(move || {
            let made = rows_of(&batch, shape).map_err(|error| error.to_string());
            let made = made.and_then(|rows| {
                let _held = budget.claim(copied(&rows, shape));
                call(&function, rows).map_err(|error| error.to_string())
            });
            (batch, made)
        });
        let (batch, made) =
            done.await.map_err(|error| Error::permanent("a call panicked").caused_by(error))?;
        give(batch, made, out)
    }
}

fn call(function: &Object, rows: RecordBatch) -> PyResult<Vec<RecordBatch>> {
    bridged("apply", |py, apply| {
        let made = apply.call1((function.bind(py), batches::Batch(rows)))?;
        made.try_iter()?.map(|made| capsules::batch(&made?)).collect()
    })
}

/// Sends the result for a batch. If the call failed, the batch's messages leave by `errors`.
///
/// # Errors
/// None because of a failed call.
pub fn give(batch: Batch, made: Result<Vec<RecordBatch>, String>, out: &mut Outputs) -> Result<(), Error> {
    match made.and_then(|made| replaced(&batch, &made)) {
        Ok(batches) => {
            batches.into_iter().for_each(|batch| out.send(batch));
            // The messages carry their share of the ack; the rest of the batch represents no message.
            batch.settle(Outcome::Filtered);
        }
        Err(reason) => out.reject_all(batch, &reason)?,
    }
    Ok(())
}

//! Transforms of messages that wait: for another process, or for a lock that is not the engine's.

use async_trait::async_trait;
use thalweg_record::Batch;

use super::Context;
use crate::{Error, Outputs};

/// Changes batches, as a [`Transform`](super::Transform) does, and may wait meanwhile.
///
/// It begins a segment. The transforms after it are called in the same segment with its results. Each worker
/// of the segment has its own instance.
#[async_trait]
pub trait WaitingTransform: Send {
    /// Receives a batch and sends any number of batches to `out`: see
    /// [`Transform::apply`](super::Transform::apply).
    ///
    /// # Errors
    /// Only if the transform itself is broken. This stops the run.
    async fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error>;

    /// Called after the last batch. Sends what was held back, and ends what it started.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    async fn finish(&mut self, out: &mut Outputs) -> Result<(), Error> {
        let _ = out;
        Ok(())
    }
}

/// A configured transform that waits.
pub trait WaitingTransformConfig: Send + Sync {
    /// The number of workers, each of which waits with one batch. None means one per core.
    fn parallelism(&self) -> Option<usize> {
        None
    }

    /// Builds the instance of one worker.
    ///
    /// # Errors
    /// If its surroundings do not allow it.
    fn build(&self, context: &Context) -> Result<Box<dyn WaitingTransform>, Error>;
}

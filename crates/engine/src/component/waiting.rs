//! Transforms of messages that wait: for another process, or for a lock that is not the engine's.

use async_trait::async_trait;
use thalweg_record::Batch;

use super::{Context, Mistake};
use crate::{Error, Outputs};

/// Changes batches, as a [`Transform`](super::Transform) does, and may wait meanwhile. It begins a segment: what follows it is
/// called in the same segment as soon as it has done its part. It is built once for each copy of the segment.
#[async_trait]
pub trait WaitingTransform: Send {
    /// Takes a batch and gives any number to `out`: see [`Transform::apply`](super::Transform::apply).
    ///
    /// # Errors
    /// Only where the transform itself is broken: this stops the run.
    async fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error>;

    /// All input has come: gives what was held back, and ends what it has begun.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    async fn finish(&mut self, out: &mut Outputs) -> Result<(), Error> {
        let _ = out;
        Ok(())
    }
}

/// A configured transform that waits.
pub trait BuildWaiting: Send + Sync {
    /// Its key in configurations.
    fn kind(&self) -> &'static str;

    /// What is wrong with it beyond its schema.
    fn check(&self) -> Vec<Mistake> {
        Vec::new()
    }

    /// How many of it work at once, where it says so: as many batches then wait in it. Otherwise one a core.
    fn copies(&self) -> Option<usize> {
        None
    }

    /// Builds one copy.
    ///
    /// # Errors
    /// If its surroundings do not allow it.
    fn build(&self, context: &Context) -> Result<Box<dyn WaitingTransform>, Error>;
}

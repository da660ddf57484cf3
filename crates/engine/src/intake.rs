//! Where what reads messages out of a file puts them.

use std::sync::Arc;

use arrow_array::Array;
use thalweg_record::{Ack, Arena, Batch, Budget, File, Lease, Meta, Parcel, Share};
use thalweg_runtime::{Receiver, Sender, Stop};

use crate::metrics::ComponentMetrics;
use crate::outlet::{Received, give, made_of};
use crate::outlets::part_rejected;
use crate::{Error, Role};

/// Where an [`Unpack`](crate::Unpack) puts the messages of a file. They owe what the file owes: it is acknowledged when all of
/// them are.
pub struct Intake {
    pub(crate) share: Share,
    pub(crate) batch_bytes: usize,
    pub(crate) stop: Stop,
    pub(crate) metrics: Arc<ComponentMetrics>,
    pub(crate) main: Vec<Sender<Parcel>>,
    pub(crate) errors: Vec<Sender<Parcel>>,
    /// What the file at hand owes.
    pub(crate) ack: Ack,
    /// Where it came from.
    pub(crate) meta: Arc<Meta>,
}

impl Intake {
    /// The component's name in the configuration.
    pub fn name(&self) -> &Arc<str> {
        &self.metrics.name
    }

    /// About how many bytes a batch should have.
    pub fn batch_bytes(&self) -> usize {
        self.batch_bytes
    }

    /// Waits until the budget has room, and gives memory to read into. Ask before reading.
    pub async fn arena(&self, capacity: usize) -> Arena {
        self.share.arena(capacity).await
    }

    /// Waits until the budget has room for memory that is held in another form.
    pub async fn reserve(&self, bytes: usize) -> Lease {
        self.share.reserve(bytes).await
    }

    /// Whether the run was told to stop. A file that was begun is read to its end nevertheless; one that has no end is not.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_requested()
    }

    /// Sends messages on. Waits until there is room for them. Marks mean nothing here.
    ///
    /// # Errors
    /// If the run is ending and nobody takes them; pass it on.
    pub async fn send(&mut self, reading: impl Into<Received>) -> Result<(), Error> {
        let batch = self.batch(reading.into())?;
        self.metrics.add_out(batch.rows(), batch.payload_bytes());
        give(&self.main, batch, self.share.budget(), self.name()).await
    }

    /// Sends messages to the `errors` output: they could be read but not be used.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn reject(&mut self, reading: impl Into<Received>, reason: &str) -> Result<(), Error> {
        let received = reading.into();
        let reasons = vec![reason.to_owned(); received.reading.payload.len()];
        self.reject_each(received, reasons).await
    }

    /// As [`reject`](Self::reject), each message for a reason of its own.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn reject_each(
        &mut self,
        reading: impl Into<Received>,
        reasons: Vec<String>,
    ) -> Result<(), Error> {
        let batch = self.batch(reading.into())?;
        self.metrics.add_errors(batch.rows());
        let failed = (0..).zip(reasons).collect();
        let (rejected, rest) = part_rejected(batch, failed, self.name())?;
        for batch in rejected.into_iter().chain(rest) {
            give(&self.errors, batch, self.share.budget(), self.name()).await?;
        }
        Ok(())
    }

    fn batch(&self, received: Received) -> Result<Batch, Error> {
        made_of(received, self.meta.clone(), self.ack.split())
    }
}

/// An intake of its own, for testing what reads files: what it is given comes out of the two receivers.
pub(crate) fn loose_intake(
    budget: &Budget,
    batch_bytes: usize,
    file: &File,
) -> (Intake, Receiver<Parcel>, Receiver<Parcel>) {
    let (main, main_out) = thalweg_runtime::channel(usize::MAX);
    let (errors, errors_out) = thalweg_runtime::channel(usize::MAX);
    let name: Arc<str> = "test".into();
    let intake = Intake {
        share: budget.share(),
        batch_bytes,
        stop: Stop::default(),
        metrics: ComponentMetrics::new(name.clone(), Role::Transform, "test"),
        main: vec![main],
        errors: vec![errors],
        ack: file.ack().split(),
        meta: Arc::new(Meta { source: name, path: Some(file.to_string().into()), time_us: 0 }),
    };
    (intake, main_out, errors_out)
}

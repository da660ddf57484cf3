//! The messages at the end of a pipeline, for whoever asks for them.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchReader, new_null_array};
use arrow_cast::cast;
use arrow_schema::{ArrowError, Schema, SchemaRef};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use tokio::sync::oneshot;

use super::batches::{Batch, Shape};
use super::capsules;
use super::run::{End, Run};
use crate::attach::attach;

/// How often a thread that waits looks whether the user wants it to end.
const LOOK: Duration = Duration::from_millis(50);

/// A batch, and where to say that the consumer wants the next: only then it is acknowledged.
pub type Offer = (RecordBatch, oneshot::Sender<()>);

/// What stands between a sink and its consumer: one batch. The sink waits for the consumer, and what is before the sink for it.
pub struct Queue {
    give: Mutex<Option<Sender<Offer>>>,
    take: Mutex<Receiver<Offer>>,
    /// What the consumer has in hand.
    held: Mutex<Option<oneshot::Sender<()>>>,
    pub(super) shape: Shape,
}

impl Queue {
    fn new(shape: Shape) -> Arc<Self> {
        let (give, take) = channel();
        Arc::new(Self { give: Mutex::new(Some(give)), take: Mutex::new(take), held: Mutex::default(), shape })
    }

    /// The side of the sink; there is one.
    pub fn sink(&self) -> Option<Sender<Offer>> {
        self.give.lock().take()
    }

    /// The next batch, if it comes in time; none at the end.
    fn next_within(&self, time: Duration) -> Result<Option<RecordBatch>, RecvTimeoutError> {
        if let Some(held) = self.held.lock().take() {
            // The sink may have ended by failing.
            let _ = held.send(());
        }
        match self.take.lock().recv_timeout(time) {
            Ok((rows, asked)) => {
                *self.held.lock() = Some(asked);
                Ok(Some(rows))
            }
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(timeout) => Err(timeout),
        }
    }

    /// The next batch, whenever it comes.
    fn next(&self, py: Python<'_>) -> PyResult<Option<RecordBatch>> {
        loop {
            if let Ok(next) = py.detach(|| self.next_within(LOOK)) {
                return Ok(next);
            }
            py.check_signals()?;
        }
    }
}

/// The end of a pipeline that Python reads.
#[pyclass(module = "thalweg._thalweg", frozen)]
pub struct Stream(Arc<Queue>);

impl Stream {
    /// What the sink gives to.
    pub fn queue(&self) -> Arc<Queue> {
        self.0.clone()
    }
}

#[pymethods]
impl Stream {
    #[new]
    #[pyo3(signature = (*, views = false, payload = false))]
    fn new(views: bool, payload: bool) -> Self {
        Self(Queue::new(Shape { views, payload }))
    }

    /// The next batch; None at the end.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        Ok(self.0.next(py)?.map(Batch))
    }

    /// All batches, as a stream of the schema of the first, which ends with an error if the run fails.
    fn all<'py>(&self, py: Python<'py>, run: &Run) -> PyResult<Bound<'py, PyCapsule>> {
        let first = self.0.next(py)?;
        let schema = first.as_ref().map_or_else(|| Arc::new(Schema::empty()), RecordBatch::schema);
        capsules::stream(py, Box::new(Batches { queue: self.0.clone(), end: run.end(), schema, first }))
    }
}

/// Batches of one schema.
struct Batches {
    queue: Arc<Queue>,
    end: Arc<End>,
    schema: SchemaRef,
    first: Option<RecordBatch>,
}

impl RecordBatchReader for Batches {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        // Whoever asks may hold the interpreter lock or not.
        let next = attach(|py| self.queue.next(py));
        match next {
            Some(Ok(Some(rows))) => Some(fitted(&rows, &self.schema)),
            Some(Ok(None)) => {
                let failure = attach(|py| py.detach(|| self.end.failure())).flatten();
                failure.map(|failure| Err(ArrowError::ExternalError(failure.into())))
            }
            Some(Err(raised)) => Some(Err(ArrowError::ExternalError(Box::new(raised)))),
            None => None,
        }
    }
}

/// Rows with the columns of a schema: those that are missing are NULL, those of other types are converted.
fn fitted(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    if rows.schema() == *schema {
        return Ok(rows.clone());
    }
    let of = rows.schema();
    if let Some(new) = of.fields().iter().find(|field| schema.column_with_name(field.name()).is_none()) {
        return Err(ArrowError::SchemaError(format!(
            "a later batch has a field `{}`, which the first has not; read the batches one by one, or give all messages the \
             same fields before",
            new.name()
        )));
    }
    let columns = schema.fields().iter().map(|field| -> Result<ArrayRef, ArrowError> {
        match rows.column_by_name(field.name()) {
            Some(column) if column.data_type() == field.data_type() => Ok(column.clone()),
            Some(column) => cast(column, field.data_type()),
            None => Ok(new_null_array(field.data_type(), rows.num_rows())),
        }
    });
    // A field that is missing here or is NULL may be one that the first batch had in all its messages.
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let fields = schema.fields().iter().zip(&columns).map(|(field, column)| {
        field.as_ref().clone().with_nullable(field.is_nullable() || column.null_count() > 0)
    });
    RecordBatch::try_new(Arc::new(Schema::new(fields.collect::<Vec<_>>())), columns)
}

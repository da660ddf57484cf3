//! The messages at the end of a pipeline, read by the Python program.

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
use crate::errors::Error;
use crate::runtime::LOOK;

/// A batch, and a channel by which the consumer requests the next. The request acks the batch.
pub type Offer = (RecordBatch, oneshot::Sender<()>);

/// The queue between a sink and its consumer. It holds one batch: the sink, and with it the pipeline, waits
/// for the consumer.
pub struct Queue {
    give: Mutex<Option<Sender<Offer>>>,
    take: Mutex<Receiver<Offer>>,
    /// The request channel of the batch that the consumer holds.
    held: Mutex<Option<oneshot::Sender<()>>>,
    /// The exception of a signal handler that ended a C stream, whose consumer gets only its text.
    raised: Mutex<Option<PyErr>>,
    pub(super) shape: Shape,
    /// The process that made the queue. A forked child never receives anything from it.
    process: u32,
}

impl Queue {
    fn new(shape: Shape) -> Arc<Self> {
        let (give, take) = channel();
        Arc::new(Self {
            give: Mutex::new(Some(give)),
            take: Mutex::new(take),
            held: Mutex::default(),
            raised: Mutex::default(),
            shape,
            process: std::process::id(),
        })
    }

    /// Returns the sending side for the sink. `None` if it was already taken.
    pub fn sink(&self) -> Option<Sender<Offer>> {
        self.give.lock().take()
    }

    /// Ends the stream of a run that failed before it had its sink.
    pub(super) fn end(&self) {
        drop(self.sink());
    }

    /// Returns the next batch if it comes within `time`; `None` at the end.
    fn next_within(&self, time: Duration) -> Result<Option<RecordBatch>, RecvTimeoutError> {
        if let Some(held) = self.held.lock().take() {
            // The receiver is gone if the sink failed.
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

    /// Waits for the next batch.
    fn next(&self, py: Python<'_>) -> PyResult<Option<RecordBatch>> {
        if self.process != std::process::id() {
            return Err(Error::new_err(
                "the stream belongs to the process that started it, not to this forked one",
            ));
        }
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
    /// Returns the queue that the sink fills.
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

    /// Returns the next batch; `None` at the end.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        Ok(self.0.next(py)?.map(Batch))
    }

    /// Takes the exception that ended the stream of `all`, if it was one of Python, such as Ctrl-C.
    fn raised(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let raised = self.0.raised.lock().take();
        raised.map(|error| error.into_value(py).into_any())
    }

    /// Returns all batches as one stream with the schema of the first batch. The stream ends with an error if
    /// the run fails.
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
        // The caller may or may not hold the interpreter lock.
        let next = attach(|py| self.queue.next(py));
        match next {
            Some(Ok(Some(rows))) => Some(fitted(&rows, &self.schema)),
            Some(Ok(None)) => {
                let failure = attach(|py| py.detach(|| self.end.failure())).flatten();
                failure.map(|failure| Err(ArrowError::ExternalError(failure.into())))
            }
            Some(Err(raised)) => {
                let text = raised.to_string();
                *self.queue.raised.lock() = Some(raised);
                Some(Err(ArrowError::ExternalError(text.into())))
            }
            None => None,
        }
    }
}

/// Converts rows to a schema: missing columns become NULL, columns of other types are cast.
fn fitted(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    if rows.schema() == *schema {
        return Ok(rows.clone());
    }
    let of = rows.schema();
    if let Some(new) = of.fields().iter().find(|field| schema.column_with_name(field.name()).is_none()) {
        return Err(ArrowError::SchemaError(format!(
            "a later batch has a field `{}`, which the first batch lacks; read the batches one by one, or give all \
             messages the same fields in the pipeline",
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
    // The first batch may have had a value in each message for a field that is missing or NULL here.
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let fields = schema.fields().iter().zip(&columns).map(|(field, column)| {
        field.as_ref().clone().with_nullable(field.is_nullable() || column.null_count() > 0)
    });
    RecordBatch::try_new(Arc::new(Schema::new(fields.collect::<Vec<_>>())), columns)
}

//! Sources that are Python objects: iterables, and objects with Arrow's C stream interface.

use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_array::ffi_stream::ArrowArrayStreamReader;
use arrow_buffer::Buffer;
use async_trait::async_trait;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyList, PyString, PyTuple};
use thalweg_engine::{Context, Error, Reading, Received, Source, SourceConfig, SourceOutput};
use thalweg_record::{Arena, ViewBuilder};
use thalweg_stream::arenas::Arenas;

use super::batches::{Parts, bytes_of, empty_payload, parts};
use super::capsules;
use super::narrow::narrowed;
use super::objects::{Cause, Object, bridged};
use crate::buffer::Buffer as Bytes;

/// The maximum number of messages in a batch of an iterable.
const MOST_ROWS: usize = 32 << 10;
/// The longest time in which messages of an iterable are collected into a batch.
const LONGEST: Duration = Duration::from_millis(20);
/// An iterable that needs this long for an item is slow. Its messages are sent immediately.
const SLOW: Duration = Duration::from_millis(1);

/// An iterable as a source.
pub struct IterableObject {
    /// The iterable.
    pub object: Object,
    /// Records the exceptions that the iterable raises.
    pub cause: Cause,
}

impl SourceConfig for IterableObject {
    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(Iterating {
            object: self.object.clone(),
            cause: self.cause.clone(),
            iterators: Vec::new(),
            arenas: Arenas::new(context.batch_bytes),
            next: None,
        }))
    }
}

struct Iterating {
    object: Object,
    cause: Cause,
    /// The iterable's iterator, and above it the iterators of the lists that it yielded.
    iterators: Vec<Py<PyIterator>>,
    arenas: Arenas,
    /// An item that was read but did not fit.
    next: Option<Py<PyAny>>,
}

/// The items read from an iterable at once.
enum Taken {
    /// Payloads in the arena; these are the offsets where each ends.
    Payloads(Vec<usize>),
    /// Rows of fields.
    Rows(RecordBatch),
    /// The next payload has this many bytes, which is more than the arena has.
    Large(usize),
    /// The iterable has ended.
    End,
}

#[async_trait]
impl Source for Iterating {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let mut large = 0;
        while !out.is_stopping() {
            let mut arena = self.arenas.take(large, out).await;
            large = 0;
            let taken = bridged("rows", |py, rows| self.take(py, &rows, &mut arena, &|| out.is_stopping()));
            match taken.map_err(|error| self.cause.permanent(error))? {
                Taken::Payloads(ends) => {
                    let buffer = self.arenas.freeze(arena, ends.last().copied().unwrap_or_default());
                    out.send(payloads(buffer, &ends)).await?;
                }
                Taken::Rows(rows) => {
                    // A task that waits for the budget must not hold any of it.
                    drop(arena);
                    send_rows(out, &rows).await?;
                }
                Taken::Large(bytes) => large = bytes,
                Taken::End => break,
            }
        }
        Ok(())
    }
}

fn payloads(buffer: Buffer, ends: &[usize]) -> Reading {
    let mut views = ViewBuilder::over(&[buffer], ends.len());
    let mut start = 0;
    for &end in ends {
        views.push_range(0, start, end - start);
        start = end;
    }
    Reading { payload: views.finish(), path: None, positions: None, checkpoint: None }
}

impl Iterating {
    fn take(
        &mut self,
        py: Python<'_>,
        rows: &Bound<'_, PyAny>,
        arena: &mut Arena,
        is_stopping: &dyn Fn() -> bool,
    ) -> PyResult<Taken> {
        if self.iterators.is_empty() && self.next.is_none() {
            self.iterators.push(self.object.bind(py).try_iter()?.unbind());
        }
        let mut ends = Vec::new();
        let dicts = PyList::empty(py);
        let begin = Instant::now();
        loop {
            let asked = Instant::now();
            let Some(item) = self.item(py)? else { break };
            let is_slow = asked.elapsed() >= SLOW;
            let is_row = item.is_instance_of::<PyDict>();
            if is_row != (dicts.len() > 0) && (!ends.is_empty() || dicts.len() > 0) {
                // A payload follows rows, or the reverse: the earlier messages are sent first.
                self.next = Some(item.unbind());
                break;
            }
            if is_row {
                dicts.append(item)?;
            } else if let Some(length) = self.put(item, arena, &mut ends)? {
                return Ok(if ends.is_empty() { Taken::Large(length) } else { Taken::Payloads(ends) });
            }
            let is_full = ends.len() + dicts.len() >= MOST_ROWS || begin.elapsed() >= LONGEST;
            if is_slow || is_full || is_stopping() {
                break;
            }
        }
        if dicts.len() > 0 {
            return Ok(Taken::Rows(capsules::batch(&rows.call1((dicts,))?)?));
        }
        Ok(if ends.is_empty() { Taken::End } else { Taken::Payloads(ends) })
    }

    /// Copies a payload behind the earlier ones. If it does not fit, keeps it for the next batch, and returns
    /// its number of bytes.
    fn put(
        &mut self,
        item: Bound<'_, PyAny>,
        arena: &mut Arena,
        ends: &mut Vec<usize>,
    ) -> PyResult<Option<usize>> {
        let filled = ends.last().copied().unwrap_or_default();
        Ok(match copy(&item, arena.get_mut(filled..).unwrap_or_default())? {
            Ok(length) => {
                ends.push(filled + length);
                None
            }
            Err(length) => {
                self.next = Some(item.unbind());
                Some(length)
            }
        })
    }

    /// Returns the next item. Lists and tuples are flattened.
    fn item<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if let Some(next) = self.next.take() {
            return Ok(Some(next.into_bound(py)));
        }
        while let Some(iterator) = self.iterators.last() {
            match iterator.bind(py).clone().next().transpose()? {
                Some(list) if list.is_instance_of::<PyList>() || list.is_instance_of::<PyTuple>() => {
                    self.iterators.push(list.try_iter()?.unbind());
                }
                Some(item) => return Ok(Some(item)),
                // The outermost iterator stays, so that the iterable does not restart.
                None if self.iterators.len() == 1 => return Ok(None),
                None => drop(self.iterators.pop()),
            }
        }
        Ok(None)
    }
}

/// Copies the bytes of an item if they fit. Returns their number either way: `Ok` if they were copied.
fn copy(item: &Bound<'_, PyAny>, into: &mut [u8]) -> PyResult<Result<usize, usize>> {
    let mut put = |bytes: &[u8]| match into.get_mut(..bytes.len()) {
        Some(free) => {
            free.copy_from_slice(bytes);
            Ok(bytes.len())
        }
        None => Err(bytes.len()),
    };
    if let Ok(text) = item.cast::<PyString>() {
        return Ok(put(text.encode_utf8()?.as_bytes()));
    }
    match Bytes::readable(item) {
        Ok(buffer) => Ok(put(buffer.bytes())),
        Err(_) => Err(PyTypeError::new_err(format!(
            "a message is bytes, text or a dict of fields, not {}",
            item.get_type().name()?
        ))),
    }
}

/// An object with Arrow's C stream interface: a table, a reader.
pub struct ArrowObject {
    /// The object.
    pub object: Object,
    /// Records the exceptions that the object raises.
    pub cause: Cause,
}

impl SourceConfig for ArrowObject {
    fn build(&self, _: &Context) -> Result<Box<dyn Source>, Error> {
        let stream =
            bridged("stream", |py, stream| capsules::read_stream(&stream.call1((self.object.bind(py),))?));
        Ok(Box::new(Streamed(stream.map_err(|error| self.cause.permanent(error))?)))
    }
}

struct Streamed(ArrowArrayStreamReader);

#[async_trait]
impl Source for Streamed {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        while !out.is_stopping() {
            let Some(rows) = self.0.next() else { break };
            let rows = rows?;
            // The number of rows that is about the size of a batch in bytes.
            let row = bytes_of(&rows).div_ceil(rows.num_rows().max(1)).max(1);
            let most = (out.batch_bytes() / row).max(1);
            let mut from = 0;
            while from < rows.num_rows() && !out.is_stopping() {
                let slice = rows.slice(from, most.min(rows.num_rows() - from));
                from += slice.num_rows();
                send_rows(out, &narrowed(&slice)?).await?;
            }
        }
        Ok(())
    }
}

/// Sends rows when the budget has capacity for them.
async fn send_rows(out: &mut SourceOutput, rows: &RecordBatch) -> Result<(), Error> {
    // Once sent, the batch counts its own buffers. The one byte travels with the payload and marks the source
    // as having data in flight, so that it waits for capacity before it sends more.
    let mut lease = out.reserve(1 + bytes_of(rows)).await;
    let held = lease.split(1).freeze(vec![0]);
    let Parts { payload, fields } = parts(rows).map_err(Error::permanent)?;
    let payload = payload.unwrap_or_else(|| empty_payload(&[held], rows.num_rows()));
    let reading = Reading { payload, path: None, positions: None, checkpoint: None };
    let fields = Some(fields).filter(|fields| fields.num_columns() > 0);
    out.send(Received { reading, fields }).await
}

//! A source that is an object with Arrow's C stream interface.

use arrow_array::RecordBatch;
use arrow_array::ffi_stream::ArrowArrayStreamReader;
use async_trait::async_trait;
use pyo3::prelude::*;
use thalweg_engine::{Context, Error, Reading, Received, Source, SourceConfig, SourceOutput};

use super::batches::{Parts, bytes_of, empty_payload, parts};
use super::capsules;
use super::narrow::narrowed;
use super::objects::{Cause, Object, bridged};

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
pub(super) async fn send_rows(out: &mut SourceOutput, rows: &RecordBatch) -> Result<(), Error> {
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

//! Reads one range: from the rows of a `COPY` to batches.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{BinaryViewArray, BooleanArray, RecordBatch, UInt64Array, cast::AsArray};
use arrow_buffer::Buffer;
use arrow_select::filter::{filter, filter_record_batch};
use bytes::Bytes;
use futures_util::StreamExt;
use serde_json::Value;
use thalweg_engine::{Checkpoint, Error, Reading, Received, SourceOutput};
use thalweg_record::ViewBuilder;
use tokio::time::Instant;
use tokio_postgres::CopyOutStream;

use super::PostgresSource;
use super::ranges::Range;
use super::select::{Place, Select};
use crate::connection::Connection;
use crate::decode::{Decoder, HEADER, Row, TRAILER};
use crate::failure::{Failure, Moment};

/// The most rows in a batch.
const ROWS: usize = 8192;

/// How long rows wait for others before they are sent.
const LINGER: Duration = Duration::from_millis(100);

/// Reads ranges, each with a connection of its own.
pub(super) struct Reader {
    pub(super) config: Arc<PostgresSource>,
    pub(super) select: Arc<Select>,
    pub(super) batch_bytes: usize,
    pub(super) out: SourceOutput,
}

/// The rows of a batch, one behind the other.
#[derive(Default)]
struct Rows {
    bytes: Vec<u8>,
    /// Where each row ends.
    ends: Vec<usize>,
}

impl Rows {
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn push(&mut self, row: &[u8]) {
        self.bytes.extend_from_slice(row);
        self.ends.push(self.bytes.len());
    }
}

/// The incoming rows of a statement.
struct Incoming<'a> {
    connection: &'a Connection,
    stream: Pin<Box<CopyOutStream>>,
    /// False until the header of the data was read.
    has_begun: bool,
    has_ended: bool,
    /// A row that did not fit into the batch before.
    kept: Option<Bytes>,
}

impl Incoming<'_> {
    /// Returns the next row. None at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        if let Some(row) = self.kept.take() {
            return Ok(Some(row));
        }
        while !self.has_ended {
            let Some(bytes) = self.stream.next().await else {
                self.has_ended = true;
                break;
            };
            let mut bytes = bytes.map_err(|error| self.connection.failure(error))?;
            if !self.has_begun {
                if !bytes.starts_with(HEADER) {
                    return Err(Failure::Broken("the server sent data of an unknown format".to_owned()));
                }
                self.has_begun = true;
                bytes = bytes.slice(HEADER.len()..);
            }
            if !bytes.is_empty() && bytes[..] != TRAILER {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}

impl Reader {
    /// Sends the rows of a range that were not sent yet.
    ///
    /// # Errors
    /// If the server cannot be read, or nothing takes the rows.
    pub(super) async fn read(&mut self, range: &mut Range) -> Result<(), Error> {
        if range.sent > 0 && range.partition.is_none() {
            let message = "was interrupted, and cannot be continued without sending rows twice: read a table \
                           with a `key`, or start again";
            return Err(Error::permanent(format!("the reading of `{}` {message}", range.path)));
        }
        self.out.set_sequence(range.partition.clone());
        let moment = if range.sent == 0 { Moment::Start } else { Moment::Running };
        let row = self.config.max_row_bytes.bytes();
        let connection = Connection::open(&self.config.server, row, None, Moment::Running).await?;
        let statement = self.select.copy(range.after.as_ref(), range.until);
        let path = range.path.clone();
        let unreadable = |failure: Failure, moment| failure.error(format!("cannot read `{path}`"), moment);
        let stream = tokio::select! {
            biased;
            stream = connection.copy_out(&statement, self.config.read_timeout.duration()) => stream,
            () = self.out.stopping() => return Ok(()),
        };
        let stream = stream.map_err(|failure| unreadable(failure, moment))?;
        let mut incoming =
            Incoming { connection: &connection, stream, has_begun: false, has_ended: false, kept: None };
        let hidden = self.select.hidden();
        let mut decoder = Decoder::new(self.select.columns.clone(), hidden, self.select.payload);
        while !self.out.is_stopping() {
            let lease = self.out.reserve(self.batch_bytes).await;
            let (rows, broken) = self.gather(&mut incoming).await;
            if rows.len() > 0 {
                let ends = rows.ends;
                self.send(range, &mut decoder, &lease.freeze(rows.bytes), &ends).await?;
                range.sent += ends.len() as u64;
            }
            if let Some(failure) = broken {
                return Err(unreadable(failure, Moment::Running));
            }
            if incoming.has_ended && incoming.kept.is_none() {
                range.sent = 0;
                break;
            }
        }
        Ok(())
    }

    /// Collects the rows of a batch. Returns them, and why there are no more.
    async fn gather(&mut self, incoming: &mut Incoming<'_>) -> (Rows, Option<Failure>) {
        let mut rows = Rows::default();
        let most = ROWS.min(self.out.next_rows());
        let timeout = self.config.read_timeout.duration();
        let mut deadline = Instant::now() + timeout;
        while rows.len() < most {
            let next = tokio::select! {
                biased;
                next = tokio::time::timeout_at(deadline, incoming.next()) => next,
                () = self.out.stopping() => break,
            };
            let row = match next {
                Ok(Ok(Some(row))) => row,
                Ok(Ok(None)) => break,
                Ok(Err(failure)) => return (rows, Some(failure)),
                Err(_) if rows.len() > 0 => break,
                Err(_) => return (rows, Some(Failure::Silent(timeout))),
            };
            if rows.len() == 0 {
                // As much as the batch takes, so that nothing is moved.
                rows.bytes.reserve_exact(self.batch_bytes.max(row.len()));
                deadline = Instant::now() + LINGER;
            } else if rows.bytes.len() + row.len() > self.batch_bytes {
                incoming.kept = Some(row);
                break;
            }
            rows.push(&row);
        }
        (rows, None)
    }

    /// Sends the rows of a batch.
    async fn send(
        &mut self,
        range: &mut Range,
        decoder: &mut Decoder,
        base: &Buffer,
        ends: &[usize],
    ) -> Result<(), Error> {
        decoder.begin(base, ends.len());
        let mut start = 0;
        let mut read = Vec::with_capacity(ends.len());
        for &end in ends {
            let row = decoder.row(start..end).map_err(|malformed| {
                Error::permanent(format!("the server sent {}, in `{}`", malformed.0, range.path))
            })?;
            read.push((start..end, row));
            start = end;
        }
        let batch = Decoded {
            fields: decoder.finish(ends.len())?,
            payload: payload(base, &read, self.select.payload.is_some()),
            positions: if self.select.has_positions() { positions(base, &read) } else { None },
        };
        let before = range.after.clone();
        range.after = read.last().and_then(|(_, row)| place(base, row)).or(before.clone());
        let faults: Vec<Option<&String>> = read.iter().map(|(_, row)| row.fault.as_ref()).collect();
        if faults.iter().all(Option::is_none) {
            return self.out.send(batch.received(range, range.after.as_ref())).await;
        }
        // The position moves when both parts are settled.
        let is_good: BooleanArray = faults.iter().map(|fault| Some(fault.is_none())).collect();
        let is_bad: BooleanArray = faults.iter().map(|fault| Some(fault.is_some())).collect();
        if is_good.true_count() > 0 {
            self.out.send(batch.filtered(&is_good)?.received(range, before.as_ref())).await?;
        }
        let reasons = faults.into_iter().flatten().cloned().collect();
        self.out.reject_each(batch.filtered(&is_bad)?.received(range, range.after.as_ref()), reasons).await
    }
}

/// The rows of a batch as columns.
struct Decoded {
    fields: RecordBatch,
    payload: BinaryViewArray,
    positions: Option<UInt64Array>,
}

impl Decoded {
    fn filtered(&self, keep: &BooleanArray) -> Result<Self, Error> {
        let positions = match &self.positions {
            Some(positions) => Some(filter(positions, keep)?.as_primitive().clone()),
            None => None,
        };
        Ok(Self {
            fields: filter_record_batch(&self.fields, keep)?,
            payload: filter(&self.payload, keep)?.as_binary_view().clone(),
            positions,
        })
    }

    /// Returns the rows as messages, behind which a later run resumes at `place`.
    fn received(self, range: &Range, place: Option<&Place>) -> Received {
        let offset = || serde_json::to_value(place).unwrap_or(Value::Null);
        let checkpoint = range.partition.clone().map(|partition| Checkpoint { partition, offset: offset() });
        Received {
            reading: Reading {
                payload: self.payload,
                path: Some(range.path.clone()),
                positions: self.positions,
                checkpoint,
            },
            fields: Some(self.fields),
        }
    }
}

type Read = (std::ops::Range<usize>, Row);

/// Returns the payloads: the rows, or the values of a column, of which NULL is empty.
fn payload(base: &Buffer, rows: &[Read], is_column: bool) -> BinaryViewArray {
    let mut payload = ViewBuilder::over(std::slice::from_ref(base), rows.len());
    for (whole, row) in rows {
        let range = match is_column {
            true => row.payload.clone().unwrap_or(0..0),
            false => whole.clone(),
        };
        if !payload.push_range(0, range.start, range.len()) {
            payload.push(b"");
        }
    }
    payload.finish()
}

/// Returns the keys, if all are whole numbers that are not negative.
fn positions(base: &Buffer, rows: &[Read]) -> Option<UInt64Array> {
    let key = |row: &Row| {
        let number: i64 = text(base, row.place[0].clone()?)?.parse().ok()?;
        u64::try_from(number).ok()
    };
    rows.iter().map(|(_, row)| key(row)).collect::<Option<Vec<u64>>>().map(UInt64Array::from)
}

/// Returns the place of a row in the order of reading.
fn place(base: &Buffer, row: &Row) -> Option<Place> {
    let [key, cursor] = &row.place;
    let key = text(base, key.clone()?)?.to_owned();
    let cursor = cursor.clone().and_then(|cursor| text(base, cursor)).map(str::to_owned);
    Some(Place { key, cursor })
}

fn text(base: &Buffer, range: std::ops::Range<usize>) -> Option<&str> {
    std::str::from_utf8(base.get(range)?).ok()
}

//! File readers in Python: classes that make rows out of the bytes of files.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, UInt8Array};
use arrow_buffer::{Buffer, ScalarBuffer};
use async_trait::async_trait;
use pyo3::prelude::*;
use serde_json::Value;
use thalweg_components::custom::{ReadError, ReadRows, Rows, unpacking};
use thalweg_engine::{Context, Error, FileReader, FileReaderConfig};

use super::objects::{Cause, Object, arguments, bridged};
use super::process::{Reply, Worker};
use super::{batches, capsules};

/// A reader class, or a function that creates readers.
pub struct ReaderClass {
    /// The class.
    pub class: Object,
    /// The keyword arguments for the class.
    pub options: Value,
    /// Records the exceptions that the class raises.
    pub cause: Cause,
}

impl FileReaderConfig for ReaderClass {
    fn build(&self, context: &Context) -> Result<Box<dyn FileReader>, Error> {
        let made = bridged("reader", |py, reader| {
            let made = self.class.bind(py).call((), Some(&arguments(py, &self.options)?))?;
            Ok((reader.call1((&made,))?.extract::<bool>()?, made.unbind()))
        });
        let (unpacks, reader) = made.map_err(|error| self.cause.permanent(error))?;
        Ok(unpacking(Reading { reader: Arc::new(reader), begins: false }, unpacks, context))
    }
}

struct Reading {
    reader: Object,
    /// True if a file begins. The reader learns this with the first bytes of the file.
    begins: bool,
}

#[async_trait]
impl ReadRows for Reading {
    fn begin(&mut self) {
        self.begins = true;
    }

    async fn read(&mut self, bytes: &Buffer, at_end: bool) -> Result<Rows, ReadError> {
        let begins = std::mem::take(&mut self.begins);
        let read = self.call(bytes, at_end, begins).map_err(ReadError::Rejected)?;
        checked(read, bytes)
    }
}

impl Reading {
    fn call(&self, bytes: &Buffer, at_end: bool, begins: bool) -> Result<Rows, String> {
        let column: ArrayRef =
            Arc::new(UInt8Array::new(ScalarBuffer::new(bytes.clone(), 0, bytes.len()), None));
        let column = RecordBatch::try_from_iter([("bytes", column)]).map_err(|error| error.to_string())?;
        let read = bridged("read", |py, read| {
            let reply = read.call1((self.reader.bind(py), batches::Batch(column), at_end, begins))?;
            let (rows, used): (Option<Bound<'_, PyAny>>, usize) = reply.extract()?;
            Ok(Rows { rows: rows.map(|rows| capsules::batch(&rows)).transpose()?, used })
        });
        read.map_err(|error| error.to_string())
    }
}

fn checked(read: Rows, bytes: &Buffer) -> Result<Rows, ReadError> {
    if read.used <= bytes.len() {
        return Ok(read);
    }
    let (used, got) = (read.used, bytes.len());
    Err(ReadError::Rejected(format!("the reader reports {used} bytes as used, but got only {got}")))
}

/// The marks of requests to a reader in a process, which are added up: the file ends with these bytes, and
/// the file begins with these bytes.
const AT_END: u64 = 1;
const BEGINS: u64 = 2;

/// A reader class in `count` processes.
pub struct RemoteReader {
    /// The command line of a process.
    pub command: Vec<String>,
    /// The number of processes.
    pub count: usize,
    /// The keyword arguments for the class.
    pub options: Value,
    /// True if compressed files are decompressed first.
    pub unpacks: bool,
}

impl FileReaderConfig for RemoteReader {
    fn parallelism(&self) -> Option<usize> {
        Some(self.count)
    }

    fn build(&self, context: &Context) -> Result<Box<dyn FileReader>, Error> {
        let worker = Worker::new(&self.command, &self.options);
        Ok(unpacking(RemoteReading { worker, begins: false }, self.unpacks, context))
    }
}

struct RemoteReading {
    worker: Worker,
    begins: bool,
}

#[async_trait]
impl ReadRows for RemoteReading {
    fn begin(&mut self) {
        self.begins = true;
    }

    async fn read(&mut self, bytes: &Buffer, at_end: bool) -> Result<Rows, ReadError> {
        let begins = std::mem::take(&mut self.begins);
        let mark = if at_end { AT_END } else { 0 } + if begins { BEGINS } else { 0 };
        match self.worker.ask(mark, bytes).await.map_err(ReadError::Failed)? {
            Reply::Made(mut made, used) => {
                // More bytes than an address has are more than the slice, too.
                let used = usize::try_from(used).unwrap_or(usize::MAX);
                checked(Rows { rows: made.pop(), used }, bytes)
            }
            Reply::Failed(why) | Reply::Again(why) => Err(ReadError::Rejected(why)),
            Reply::Died(how) => Err(ReadError::Lost(format!("the worker process died: {how}"))),
        }
    }

    async fn finish(&mut self) {
        self.worker.end().await;
    }
}

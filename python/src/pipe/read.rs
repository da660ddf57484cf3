//! File readers in Python: classes that make rows out of the bytes of files.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, UInt8Array};
use arrow_buffer::{Buffer, ScalarBuffer};
use pyo3::prelude::*;
use serde_json::Value;
use thalweg_components::custom::{ReadRows, Rows, unpacking};
use thalweg_engine::{Context, Error, FileReader, FileReaderConfig};

use super::objects::{Cause, Object, arguments, bridged};
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

impl ReadRows for Reading {
    fn begin(&mut self) {
        self.begins = true;
    }

    fn read(&mut self, bytes: &Buffer, at_end: bool) -> Result<Rows, String> {
        let begins = std::mem::take(&mut self.begins);
        let column: ArrayRef =
            Arc::new(UInt8Array::new(ScalarBuffer::new(bytes.clone(), 0, bytes.len()), None));
        let column = RecordBatch::try_from_iter([("bytes", column)]).map_err(|error| error.to_string())?;
        let read = bridged("read", |py, read| {
            let reply = read.call1((self.reader.bind(py), batches::Batch(column), at_end, begins))?;
            let (rows, used): (Option<Bound<'_, PyAny>>, usize) = reply.extract()?;
            Ok(Rows { rows: rows.map(|rows| capsules::batch(&rows)).transpose()?, used })
        });
        let read = read.map_err(|error| error.to_string())?;
        if read.used > bytes.len() {
            return Err(format!(
                "the reader reports {} bytes as used, but got only {}",
                read.used,
                bytes.len()
            ));
        }
        Ok(read)
    }
}

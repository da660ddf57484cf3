//! Writes messages as Parquet tables.
//!
//! Rows are collected in row groups, and each group is written column by column. The table's metadata is at
//! its end and is kept in memory until then. Another process can therefore not resume a table: it restarts
//! it.

use std::sync::Arc;

use arrow_array::{RecordBatch, new_null_array};
use arrow_schema::{Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use thalweg_config::ByteSize;
use thalweg_engine::{Error, Rejects};
use thalweg_record::{Batch, Budget, Lease};

use super::parquet_options::{Packing, Parquet};

/// A table that is being written.
pub(super) struct Table {
    writer: ArrowWriter<Vec<u8>>,
    schema: SchemaRef,
    /// The maximum size of a row group in memory, in bytes.
    row_group: usize,
    budget: Budget,
    /// Covers the current row group.
    lease: Lease,
}

impl Table {
    /// Creates a table with the columns of a batch. Collected rows count against the budget.
    pub(super) fn new(options: &Parquet, batch: &Batch, budget: &Budget) -> Result<Self, Error> {
        let schema = batch.fields().schema();
        if schema.fields().is_empty() {
            return Err(Error::permanent(
                "the messages have no fields to make columns of; parse them before, for example with `csv` or `parse_json`",
            ));
        }
        // Later messages may lack a value that the first ones have.
        let nullable = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
        let schema: SchemaRef = Arc::new(Schema::new(nullable.collect::<Vec<_>>()));
        let compression = match options.compression {
            Packing::Zstd => Compression::ZSTD(ZstdLevel::default()),
            Packing::Snappy => Compression::SNAPPY,
            Packing::None => Compression::UNCOMPRESSED,
        };
        let properties = WriterProperties::builder()
            .set_compression(compression)
            .set_created_by(concat!("thalweg ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        let writer = ArrowWriter::try_new(Vec::new(), schema.clone(), Some(properties)).map_err(broken)?;
        let row_group =
            options.row_group.map_or((budget.limit() / 8).clamp(1 << 20, 64 << 20), ByteSize::as_usize);
        Ok(Self {
            writer,
            schema,
            row_group: row_group.max(1),
            budget: budget.clone(),
            lease: budget.claim(0),
        })
    }

    /// Adds the messages of a batch, and returns the bytes to write. If the columns do not fit, the messages
    /// are rejected.
    pub(super) fn write(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<Vec<u8>, Error> {
        match self.fitted(batch) {
            Ok(rows) => self.writer.write(&rows).map_err(broken)?,
            Err(why) => (0..batch.rows() as u32).for_each(|row| rejects.reject(row, why.clone())),
        }
        if self.writer.in_progress_size() >= self.row_group {
            self.writer.flush().map_err(broken)?;
        }
        self.lease = self.budget.claim(self.writer.memory_size());
        Ok(std::mem::take(self.writer.inner_mut()))
    }

    /// Returns the rest of the table.
    pub(super) fn finish(mut self) -> Result<Vec<u8>, Error> {
        self.writer.finish().map_err(broken)?;
        Ok(std::mem::take(self.writer.inner_mut()))
    }

    /// Returns the fields of a batch in the order of the columns. A column that the batch lacks is empty.
    fn fitted(&self, batch: &Batch) -> Result<RecordBatch, String> {
        let fields = batch.fields();
        let given = fields.schema();
        if let Some(other) = given.fields().iter().find(|field| self.schema.index_of(field.name()).is_err()) {
            return Err(format!(
                "the table has no column `{}`: the first messages did not have it",
                other.name()
            ));
        }
        let columns = self.schema.fields().iter().map(|column| match fields.column_by_name(column.name()) {
            None => Ok(new_null_array(column.data_type(), batch.rows())),
            Some(values) if values.data_type() == column.data_type() => Ok(values.clone()),
            Some(values) => Err(format!(
                "`{}` is {} here, and {} in the table: `cast` makes it the same in all messages",
                column.name(),
                values.data_type(),
                column.data_type()
            )),
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        RecordBatch::try_new(self.schema.clone(), columns).map_err(|error| error.to_string())
    }
}

fn broken(error: parquet::errors::ParquetError) -> Error {
    Error::permanent("the table cannot be written").caused_by(error)
}

#[cfg(test)]
mod tests {
    use arrow_array::{Array, ArrayRef, Int64Array, StringViewArray};
    use arrow_schema::Field;
    use bytes::Bytes;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use serde_json::json;
    use thalweg_engine::testing::{batch, options, rows};

    use super::*;

    fn with(columns: Vec<(&str, ArrayRef)>) -> Batch {
        let count = columns.first().map_or(0, |(_, column)| column.len());
        let fields = columns
            .into_iter()
            .map(|(name, column)| (Field::new(name, column.data_type().clone(), true), column));
        batch((0..count).map(|_| "")).set_fields(fields).unwrap()
    }

    #[test]
    fn what_is_written_is_read_and_what_does_not_fit_is_rejected() {
        let texts = |texts: [&str; 2]| Arc::new(StringViewArray::from_iter_values(texts)) as ArrayRef;
        let numbers = |numbers: [i64; 2]| Arc::new(Int64Array::from_iter_values(numbers)) as ArrayRef;
        for yaml in ["{}", "{ compression: snappy, row_group: 1B }", "compression: none"] {
            let first = with(vec![("name", texts(["a", "b"])), ("age", numbers([1, 2]))]);
            let mut table = Table::new(&options(yaml), &first, &Budget::new(1 << 20)).unwrap();
            let mut rejects = Rejects::default();
            let mut bytes = table.write(&first, &mut rejects).unwrap();
            bytes.extend(table.write(&with(vec![("age", numbers([3, 4]))]), &mut rejects).unwrap());
            assert!(rejects.take().is_empty());
            for (column, why) in [
                (("age", texts(["x", "y"])), "`age` is Utf8View here"),
                (("more", numbers([5, 6])), "no column `more`"),
            ] {
                bytes.extend(table.write(&with(vec![column]), &mut rejects).unwrap());
                let rejected = rejects.take();
                assert!(rejected.len() == 2 && rejected[0].1.contains(why), "{rejected:?}");
            }
            bytes.extend(table.finish().unwrap());
            let read = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(bytes)).unwrap().build().unwrap();
            let read: Vec<_> = read.flat_map(|batch| rows(&batch.unwrap())).collect();
            let expected = [
                json!({"name": "a", "age": 1}),
                json!({"name": "b", "age": 2}),
                json!({"age": 3}),
                json!({"age": 4}),
            ];
            assert_eq!(read, expected);
        }
    }

    #[test]
    fn messages_without_fields_make_no_table() {
        let bare = batch(["x"]);
        let error = Table::new(&Parquet::default(), &bare, &Budget::new(1 << 20)).err().unwrap();
        assert_eq!(
            error.to_string(),
            "the messages have no fields to make columns of; parse them before, for example with `csv` or `parse_json`"
        );
    }
}

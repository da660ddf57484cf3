//! Writes messages as Parquet tables.
//!
//! Rows are collected in row groups, and each group is written column by column. The table's metadata is at
//! its end and is kept in memory until then. Another process can therefore not resume a table: it restarts
//! it.
//!
//! A table has the columns that `columns` lists, or those of the first batch. As with CSV, a later message
//! with a value for which there is no column, or a value of another type, is rejected, and it alone: whether
//! a message fits does not depend on the batch that it is in. (Rejected: a new table for other columns. A
//! field that comes and goes would make a table of each batch.)
//!
//! Each column of a row group in progress has a writer with buffers and a compressor of its own. For many
//! columns, they are most of the memory of a table, and the library does not count all of it: see
//! `of_columns`.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, new_null_array};
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};
use arrow_select::filter::filter_record_batch;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;
use thalweg_codec::columns::{fit, noun};
use thalweg_codec::encode::{TableCompression, TableOptions};
use thalweg_config::ByteSize;
use thalweg_engine::{Error, Rejects};
use thalweg_record::{Batch, Budget, Lease, all_but};

/// The bounds of the size of a page and of a dictionary, in bytes. After the first page of a row group, the
/// compressor of a column keeps up to half a megabyte: for smaller pages, many times their size.
const PAGE: RangeInclusive<usize> = 256 << 10..=1 << 20;
/// The maximum number of rows of a row group.
const MOST_ROWS: usize = 1 << 20;
/// The memory of the dictionary of a column of numbers before its first row, in bytes.
const OF_DICTIONARY: usize = 72 << 10;
/// The memory of the writer of a column that [`ArrowWriter::memory_size`] lacks, in bytes, and the further
/// memory of its compressor. Measured with 100 tables of 300 columns: 14 KiB more with Zstandard than without
/// a compression, and 2.5 KiB more with Snappy.
const OF_WRITER: usize = 4 << 10;
const OF_ZSTD: usize = 16 << 10;
const OF_SNAPPY: usize = 4 << 10;
/// An estimate of the memory of the metadata of a column, of the table and of each of its row groups, in
/// bytes: statistics, and the places of pages.
const OF_METADATA: usize = 2 << 10;
/// The memory that columns may take in any budget, in bytes: about 100 of them.
const LEAST_OF_COLUMNS: usize = 2 << 20;

/// A table that is being written.
pub struct Table {
    writer: ArrowWriter<Vec<u8>>,
    schema: SchemaRef,
    /// True if the first batch decided the columns. Listed columns are a choice: other fields are left out.
    is_decided: bool,
    /// The size of a row group as it is written, in bytes.
    row_group: usize,
    /// The maximum memory of a row group, in bytes. Dictionaries and pages in progress can take several times
    /// the size as it is written.
    most: usize,
    /// The memory of the columns in progress beside their rows, in bytes.
    of_columns: usize,
    budget: Budget,
    /// Covers the current row group.
    lease: Lease,
}

impl Table {
    /// Creates a table with the listed columns, or those of the first messages. Collected rows count against
    /// the budget.
    ///
    /// # Errors
    /// If there are no columns.
    pub fn new(options: &TableOptions, first: &Schema, budget: &Budget) -> Result<Self, Error> {
        let schema = schema(options, first)?;
        let row_group = row_group(options, budget.limit());
        let properties = properties(options, &schema, budget.limit());
        let writer = ArrowWriter::try_new(Vec::new(), schema.clone(), Some(properties)).map_err(broken)?;
        Ok(Self {
            writer,
            is_decided: options.columns.is_none(),
            row_group,
            most: most(budget.limit()).max(row_group),
            of_columns: of_columns(options, schema.fields().len()),
            schema,
            budget: budget.clone(),
            lease: budget.claim(0),
        })
    }

    /// Adds the messages of a batch, and returns the bytes to write. Messages that do not fit are rejected.
    ///
    /// # Errors
    /// If the table cannot be written.
    pub fn write(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<Vec<u8>, Error> {
        let (rows, misfits) = self.fitted(batch).map_err(Error::from)?;
        if rows.num_rows() > 0 {
            self.writer.write(&rows).map_err(broken)?;
        }
        misfits.into_iter().for_each(|(row, why)| rejects.reject(row, why));
        // Some of it is for rows, however many columns there are.
        let most = self.most.saturating_sub(self.of_columns).max(self.most / 4);
        if self.writer.in_progress_size() >= self.row_group || self.writer.memory_size() >= most {
            self.writer.flush().map_err(broken)?;
        }
        self.count();
        Ok(std::mem::take(self.writer.inner_mut()))
    }

    /// Counts the memory of the current row group against the budget.
    fn count(&mut self) {
        let of_columns = if self.has_rows() { self.of_columns } else { 0 };
        self.lease = self.budget.claim(self.writer.memory_size() + of_columns);
    }

    /// Returns the memory of the metadata, in bytes, which stays until the table is finished. It is not
    /// counted against the budget, because a source that waits for it would wait for ever.
    pub fn metadata(&self) -> usize {
        (1 + self.writer.flushed_row_groups().len()) * self.schema.fields().len() * OF_METADATA
    }

    /// Returns the memory of the current row group, in bytes.
    pub fn memory(&self) -> usize {
        self.lease.bytes()
    }

    /// Returns the estimated size in bytes, as written, of the rows whose bytes were not returned yet.
    pub fn unwritten(&self) -> usize {
        self.writer.in_progress_size()
    }

    /// True if rows are in the current row group.
    pub fn has_rows(&self) -> bool {
        self.writer.in_progress_rows() > 0
    }

    /// Ends the current row group, and returns its bytes.
    ///
    /// # Errors
    /// If the table cannot be written.
    pub fn end_row_group(&mut self) -> Result<Vec<u8>, Error> {
        self.writer.flush().map_err(broken)?;
        self.count();
        Ok(std::mem::take(self.writer.inner_mut()))
    }

    /// Returns the rest of the table.
    ///
    /// # Errors
    /// If the table cannot be written.
    pub fn finish(mut self) -> Result<Vec<u8>, Error> {
        self.writer.finish().map_err(broken)?;
        Ok(std::mem::take(self.writer.inner_mut()))
    }

    /// Returns the messages that fit, with their fields in the order of the columns, and the reasons why the
    /// others do not. A column that the batch lacks is empty.
    fn fitted(&self, batch: &Batch) -> Result<(RecordBatch, BTreeMap<u32, String>), ArrowError> {
        let mut misfits = self.without_column(batch);
        let fields = batch.fields().schema_ref();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        for column in self.schema.fields() {
            let Some((place, field)) = fields.column_with_name(column.name()) else {
                columns.push(new_null_array(column.data_type(), batch.rows()));
                continue;
            };
            let fitted = fit(field, batch.fields().column(place), column)?;
            for row in fitted.misfits {
                misfits.entry(row).or_insert_with(|| {
                    let (name, noun) = (column.name(), noun(column));
                    format!("`{name}` is not {noun}, as the table has it: `cast` makes it the same in all messages")
                });
            }
            columns.push(fitted.column);
        }
        let rows = RecordBatch::try_new(self.schema.clone(), columns)?;
        if misfits.is_empty() {
            return Ok((rows, misfits));
        }
        let keep = all_but(batch.rows(), misfits.keys().copied());
        Ok((filter_record_batch(&rows, &keep)?, misfits))
    }

    /// Returns the messages that have a value in a field for which there is no column.
    fn without_column(&self, batch: &Batch) -> BTreeMap<u32, String> {
        let mut misfits = BTreeMap::new();
        if !self.is_decided {
            return misfits;
        }
        let fields = batch.fields().schema_ref().fields().iter().zip(batch.fields().columns());
        let is_other = |field: &Field| self.schema.column_with_name(field.name()).is_none();
        for (field, values) in fields.filter(|(field, _)| is_other(field)) {
            let nulls = values.logical_nulls();
            let has_value = |row: &usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*row));
            for row in (0..batch.rows()).filter(has_value) {
                misfits.entry(row as u32).or_insert_with(|| {
                    format!(
                        "the table has no column `{}`: the first messages did not have it; list all columns in \
                         `columns` of `encode`",
                        field.name()
                    )
                });
            }
        }
        misfits
    }
}

/// Returns the size of a row group with this budget.
fn row_group(options: &TableOptions, memory: usize) -> usize {
    options.row_group_size.map_or((memory / 8).clamp(64 << 10, 64 << 20), ByteSize::as_usize).max(1)
}

/// Returns the memory that a row group may take of a budget. The sources need the rest to fill it.
fn most(memory: usize) -> usize {
    memory / 4
}

/// Returns how a table with these columns is written.
fn properties(options: &TableOptions, schema: &Schema, memory: usize) -> WriterProperties {
    let compression = match options.compression.unwrap_or_default() {
        TableCompression::Zstd => Compression::ZSTD(ZstdLevel::default()),
        TableCompression::Snappy => Compression::SNAPPY,
        TableCompression::None => Compression::UNCOMPRESSED,
    };
    let columns = schema.fields().len().max(1);
    // Each column has a page and a dictionary in progress.
    let page = (row_group(options, memory) / columns).clamp(*PAGE.start(), *PAGE.end());
    let mut properties = WriterProperties::builder()
        .set_compression(compression)
        .set_data_page_size_limit(page)
        .set_dictionary_page_size_limit(page)
        .set_max_row_group_row_count(Some(MOST_ROWS))
        .set_created_by(concat!("thalweg ", env!("CARGO_PKG_VERSION")).to_owned());
    if columns.saturating_mul(*PAGE.start()) > most(memory) {
        // A page with few bytes needs a compressor as well.
        properties = properties.set_data_page_row_count_limit(MOST_ROWS);
    }
    if columns.saturating_mul(OF_DICTIONARY) > most(memory) / 8 {
        for field in schema.fields().iter().filter(|field| field.data_type().is_primitive()) {
            let path = ColumnPath::new(vec![field.name().clone()]);
            properties = properties.set_column_dictionary_enabled(path, false);
        }
    }
    properties.build()
}

/// Returns the memory of columns in progress that is not that of their rows, in bytes.
fn of_columns(options: &TableOptions, columns: usize) -> usize {
    let compressor = match options.compression.unwrap_or_default() {
        TableCompression::Zstd => OF_ZSTD,
        TableCompression::Snappy => OF_SNAPPY,
        TableCompression::None => 0,
    };
    columns.saturating_mul(OF_WRITER + compressor)
}

/// Returns the reason if a budget is too small for a table with this number of columns.
pub fn too_wide(options: &TableOptions, columns: usize, memory: usize) -> Option<String> {
    let needed = of_columns(options, columns);
    let is_too_wide = needed > most(memory).max(LEAST_OF_COLUMNS);
    is_too_wide.then(|| {
        let (memory, least) = (ByteSize(memory as u64), ByteSize((needed as u64).saturating_mul(4)));
        format!(
            "a table of {columns} columns takes {} beside its rows, and may take a quarter of `memory`, which is \
             {memory}: set `memory` to at least {least}, list fewer `columns` in `encode`, or write \
             `compression: none` there",
            ByteSize(needed as u64)
        )
    })
}

/// Returns the mistake if a budget is too small for the columns or the row groups that the options ask for.
pub fn too_small(options: &TableOptions, memory: usize) -> Option<String> {
    let listed = options.columns.as_ref().map_or(0, |columns| columns.0.len());
    if let Some(why) = too_wide(options, listed, memory) {
        return Some(why);
    }
    let wanted = options.row_group_size.filter(|size| size.as_usize() > most(memory).max(64 << 10))?;
    let (memory, needed) = (ByteSize(memory as u64), ByteSize(wanted.bytes().saturating_mul(4)));
    Some(format!(
        "`row_group_size` is {wanted}, and a row group may take a quarter of `memory`, which is {memory}: set `memory` to at \
         least {needed}, or a smaller `row_group_size`"
    ))
}

/// Returns the columns of a new table. All may be NULL: later messages may lack a value that the first have.
fn schema(options: &TableOptions, first: &Schema) -> Result<SchemaRef, Error> {
    if let Some(columns) = &options.columns {
        let fields = columns.0.iter().map(|(name, kind)| kind.field(name));
        return Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())));
    }
    let fields = first.fields();
    if fields.is_empty() {
        return Err(Error::permanent(
            "the messages have no fields to make columns of; parse them before, for example with `csv` or `parse_json`",
        ));
    }
    let nullable = fields.iter().map(|field| field.as_ref().clone().with_nullable(true));
    Ok(Arc::new(Schema::new(nullable.collect::<Vec<_>>())))
}

fn broken(error: parquet::errors::ParquetError) -> Error {
    Error::permanent("the table cannot be written").caused_by(error)
}

#[cfg(test)]
mod tests {
    use arrow_array::{Array, Int64Array, StringViewArray};
    use bytes::Bytes;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use serde_json::{Value, json};
    use thalweg_codec::json_columns::{JsonColumns, Nulls, Wanted};
    use thalweg_engine::Outputs;
    use thalweg_engine::testing::{batch, options, rows};

    use super::*;

    fn with(columns: Vec<(&str, ArrayRef)>) -> Batch {
        let count = columns.first().map_or(0, |(_, column)| column.len());
        let fields = columns
            .into_iter()
            .map(|(name, column)| (Field::new(name, column.data_type().clone(), true), column));
        batch((0..count).map(|_| "")).set_fields(fields).unwrap()
    }

    /// Writes batches, and returns the table's rows and the reasons for rejecting others.
    fn written(yaml: &str, batches: &[Batch]) -> (Vec<Value>, Vec<(u32, String)>) {
        let mut table =
            Table::new(&options(yaml), &batches[0].fields().schema(), &Budget::new(1 << 20)).unwrap();
        let mut rejects = Rejects::default();
        let mut bytes = Vec::new();
        for batch in batches {
            bytes.extend(table.write(batch, &mut rejects).unwrap());
        }
        bytes.extend(table.finish().unwrap());
        let read = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(bytes)).unwrap().build().unwrap();
        (read.flat_map(|batch| rows(&batch.unwrap())).collect(), rejects.take())
    }

    fn texts<const N: usize>(texts: [Option<&str>; N]) -> ArrayRef {
        Arc::new(StringViewArray::from(texts.to_vec()))
    }

    fn ints<const N: usize>(numbers: [Option<i64>; N]) -> ArrayRef {
        Arc::new(Int64Array::from(numbers.to_vec()))
    }

    #[test]
    fn what_is_written_is_read_and_only_the_rows_that_do_not_fit_are_rejected() {
        for yaml in ["{}", "{ compression: snappy, row_group_size: 1B }", "compression: none"] {
            let first =
                with(vec![("name", texts([Some("a"), Some("b")])), ("age", ints([Some(1), Some(2)]))]);
            let fewer = with(vec![("age", ints([Some(3), Some(4)]))]);
            let other =
                with(vec![("age", texts([Some("x"), None])), ("name", texts([Some("c"), Some("d")]))]);
            let more = with(vec![("more", ints([Some(5), None])), ("age", ints([Some(6), Some(7)]))]);
            let (read, rejected) = written(yaml, &[first, fewer, other, more]);
            let expected = [
                json!({"name": "a", "age": 1}),
                json!({"name": "b", "age": 2}),
                json!({"age": 3}),
                json!({"age": 4}),
                json!({"name": "d"}),
                json!({"age": 7}),
            ];
            assert_eq!(read, expected);
            let reasons = [
                (
                    0,
                    "`age` is not a whole number of 64 bits, as the table has it: `cast` makes it the same in all \
                     messages",
                ),
                (
                    0,
                    "the table has no column `more`: the first messages did not have it; list all columns in \
                     `columns` of `encode`",
                ),
            ];
            assert_eq!(rejected, reasons.map(|(row, why)| (row, why.to_owned())));
        }
    }

    /// Returns the batches that `parse_json` makes of these lines.
    fn parsed(batches: &[&[&str]]) -> Vec<Batch> {
        let wanted = Wanted {
            fields: None,
            types: BTreeMap::new(),
            flatten: false,
            prefix: String::new(),
            nulls: Nulls::Omit,
            max_fields: 1024,
        };
        let mut parser = JsonColumns::new(wanted);
        let mut out = Outputs::new("test".into());
        let parse = |lines: &&[&str]| {
            let batch = batch(lines.iter().copied());
            parser.parse(batch, &mut out, |batch| Some(batch.payload().clone())).unwrap().batch.unwrap()
        };
        batches.iter().map(parse).collect()
    }

    #[test]
    fn whether_a_message_fits_does_not_depend_on_the_batch_that_it_is_in() {
        let lines = [
            r#"{"a":1,"b":"x"}"#,
            r#"{"a":"y"}"#,
            r#"{"a":2,"c":3}"#,
            r#"{"a":2.5,"b":"z"}"#,
            r#"{"a":4,"b":5}"#,
            r#"{"a":null,"b":"\"q\""}"#,
            r#"{"b":{"c":1},"a":7}"#,
            r#"{"a":8}"#,
            r#"{"d":true}"#,
        ];
        for yaml in
            ["{}", "columns: { a: int, b: text }", "columns: { b: json, a: float, d: bool, e: timestamp }"]
        {
            let alone: Vec<&[&str]> = lines.chunks(1).collect();
            let (expected, reasons) = written(yaml, &parsed(&alone));
            assert!(!expected.is_empty() && !reasons.is_empty());
            // The first line by itself decides the columns.
            for size in 1..lines.len() {
                let mut batches: Vec<&[&str]> = vec![&lines[..1]];
                batches.extend(lines[1..].chunks(size));
                let (read, rejected) = written(yaml, &parsed(&batches));
                assert_eq!(read, expected, "{yaml} {size}");
                let texts =
                    |all: &[(u32, String)]| all.iter().map(|(_, why)| why.clone()).collect::<Vec<_>>();
                assert_eq!(texts(&rejected), texts(&reasons), "{yaml} {size}");
            }
            if yaml != "{}" {
                assert_eq!(written(yaml, &parsed(&[&lines])).0, expected, "{yaml}");
            }
        }
    }

    #[test]
    fn listed_columns_are_the_table_and_other_fields_are_left_out() {
        let lines = [r#"{"x":"1","n":1.5,"o":{"p":2}}"#, r#"{"n":2,"other":1}"#, r#"{"n":"2"}"#];
        let (read, rejected) = written("columns: { o: json, n: float, t: text }", &parsed(&[&lines]));
        assert_eq!(read, [json!({"o": "{\"p\":2}", "n": 1.5}), json!({"n": 2.0})]);
        let reason = "`n` is not a number, as the table has it: `cast` makes it the same in all messages";
        assert_eq!(rejected, [(2, reason.to_owned())]);
    }

    #[test]
    fn row_groups_fit_in_the_memory() {
        let too_small = |yaml: &str, memory: usize| too_small(&options(yaml), memory);
        assert_eq!(too_small("{}", 1), None);
        assert_eq!(too_small("row_group_size: 1MiB", 4 << 20), None);
        assert_eq!(
            too_small("row_group_size: 32MiB", 4 << 20).unwrap(),
            "`row_group_size` is 32MiB, and a row group may take a quarter of `memory`, which is 4MiB: set `memory` to at \
             least 128MiB, or a smaller `row_group_size`"
        );
        let budget = Budget::new(1 << 20);
        let names: Vec<String> = (0..1000).map(|n| format!("a text that is not repeated {n}")).collect();
        let rows = with(vec![("n", Arc::new(StringViewArray::from(names)) as ArrayRef)]);
        let mut table = Table::new(&TableOptions::default(), &rows.fields().schema(), &budget).unwrap();
        for _ in 0..200 {
            table.write(&rows, &mut Rejects::default()).unwrap();
            assert!(budget.used() <= most(budget.limit()), "{budget:?}");
        }
    }

    #[test]
    fn columns_in_progress_are_counted_and_too_many_are_refused() {
        let budget = Budget::new(64 << 20);
        let names: Vec<String> = (0..300).map(|n| format!("c{n}")).collect();
        let columns = names.iter().enumerate().map(|(n, name)| {
            let column = if n % 2 == 0 { texts([Some("a")]) } else { ints([Some(1)]) };
            (name.as_str(), column)
        });
        let rows = with(columns.collect());
        let defaults = TableOptions::default();
        let mut table = Table::new(&defaults, &rows.fields().schema(), &budget).unwrap();
        assert_eq!((budget.used(), table.metadata()), (0, 300 * OF_METADATA));
        table.write(&rows, &mut Rejects::default()).unwrap();
        // The dictionaries of the numbers alone would take 10 MiB.
        assert!((of_columns(&defaults, 300)..8 << 20).contains(&budget.used()), "{budget:?}");
        table.end_row_group().unwrap();
        assert_eq!((budget.used(), table.metadata()), (0, 2 * 300 * OF_METADATA));
        assert_eq!(too_wide(&defaults, 300, 64 << 20), None);
        assert_eq!(
            too_wide(&defaults, 4096, 64 << 20).unwrap(),
            "a table of 4096 columns takes 80MiB beside its rows, and may take a quarter of `memory`, which is 64MiB: \
             set `memory` to at least 320MiB, list fewer `columns` in `encode`, or write `compression: none` there"
        );
        assert_eq!(too_small(&options("columns: { a: int }"), 128 << 10), None);
    }

    #[test]
    fn messages_without_fields_make_no_table() {
        let bare = batch(["x"]);
        let error = Table::new(&TableOptions::default(), &bare.fields().schema(), &Budget::new(1 << 20))
            .err()
            .unwrap();
        assert_eq!(
            error.to_string(),
            "the messages have no fields to make columns of; parse them before, for example with `csv` or `parse_json`"
        );
    }
}

//! The rows of Parquet files.
//!
//! A small file may have large columns: a dictionary has a value once that a million rows have, and zeros
//! compress well. So a file is refused by the sizes in its metadata before it is decoded, and texts are read
//! as views of the pages, where a value that is repeated is once. `gathered` counts what it copies of them.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, FieldRef, Schema};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::{Encoding, Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;

use super::unusable::Unusable;

/// The maximum number of rows in a piece.
const ROWS: usize = 4096;
/// The same, if each of them may be large. With fewer, pieces of small rows would cost more than the rows.
const LARGE_ROWS: usize = 16;

/// Reads a file in pieces, with the columns that are needed. They may need at most `most` bytes.
pub(super) fn read(
    path: &Path,
    file: File,
    most: usize,
    is_needed: impl Fn(&str) -> bool,
    each: &mut dyn FnMut(&RecordBatch) -> Result<(), Unusable>,
) -> Result<(), Unusable> {
    // The library panics on some damaged files.
    let read = catch_unwind(AssertUnwindSafe(|| pieces(path, file, most, is_needed, each)));
    read.unwrap_or_else(|_| Err(damaged(path, &"its contents contradict each other")))
}

fn pieces(
    path: &Path,
    file: File,
    most: usize,
    is_needed: impl Fn(&str) -> bool,
    each: &mut dyn FnMut(&RecordBatch) -> Result<(), Unusable>,
) -> Result<(), Unusable> {
    let metadata = with_views(&file).map_err(|error| damaged(path, &error))?;
    let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata);
    let fields = builder.schema().fields().iter().enumerate();
    let needed: Vec<usize> =
        fields.filter(|(_, field)| is_needed(field.name())).map(|(place, _)| place).collect();
    // A table without rows has columns too, and those that are not needed are named in mistakes.
    each(&RecordBatch::new_empty(builder.schema().clone()))?;
    let mask = ProjectionMask::roots(builder.parquet_schema(), needed);
    let chunks = || {
        let groups = builder.metadata().row_groups().iter();
        let chunks = groups.flat_map(|group| group.columns().iter().enumerate());
        chunks.filter(|(leaf, _)| mask.leaf_included(*leaf)).map(|(_, chunk)| chunk)
    };
    let least = chunks().map(least_bytes).fold(0, usize::saturating_add);
    if least > most {
        return Err(Unusable::too_large(path, least, most));
    }
    let longest = chunks().map(longest_copied).max().unwrap_or(0).max(1);
    let rows = (most / longest).clamp(LARGE_ROWS, ROWS);
    let reader = builder.with_projection(mask).with_batch_size(rows).build();
    for rows in reader.map_err(|error| damaged(path, &error))? {
        each(&rows.map_err(|error| damaged(path, &error))?)?;
    }
    Ok(())
}

/// Reads the metadata, for columns of texts and bytes that are views.
fn with_views(file: &File) -> Result<ArrowReaderMetadata, ParquetError> {
    let found = ArrowReaderMetadata::load(file, ArrowReaderOptions::new())?;
    let viewed = |field: &FieldRef| match view_of(field.data_type()) {
        Some(view) => Arc::new(field.as_ref().clone().with_data_type(view)),
        None => field.clone(),
    };
    let fields: Vec<FieldRef> = found.schema().fields().iter().map(viewed).collect();
    let schema = Schema::new_with_metadata(fields, found.schema().metadata().clone());
    let options = ArrowReaderOptions::new().with_schema(Arc::new(schema));
    ArrowReaderMetadata::try_new(found.metadata().clone(), options)
}

fn view_of(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 => Some(DataType::Utf8View),
        DataType::Binary | DataType::LargeBinary => Some(DataType::BinaryView),
        DataType::Dictionary(_, values) => view_of(values),
        _ => None,
    }
}

/// Returns the number of bytes that a column of a row group needs at least: as it is in the file, or as
/// separate values, of which the file may have equal ones once.
fn least_bytes(chunk: &ColumnChunkMetaData) -> usize {
    let each = match chunk.column_type() {
        Type::FIXED_LEN_BYTE_ARRAY => fixed_length(chunk),
        // The values of lists become JSON text.
        _ if is_repeated(chunk) => 2,
        Type::BOOLEAN => 0,
        Type::INT32 | Type::FLOAT => size_of::<u32>(),
        Type::INT64 | Type::DOUBLE | Type::INT96 => size_of::<u64>(),
        Type::BYTE_ARRAY => size_of::<u128>(),
    };
    let values = usize::try_from(chunk.num_values()).unwrap_or(0);
    uncompressed(chunk).max(values.saturating_mul(each))
}

/// Returns the maximum length of a value that is copied for each row. The values of other columns are short,
/// or views.
fn longest_copied(chunk: &ColumnChunkMetaData) -> usize {
    match chunk.column_type() {
        Type::FIXED_LEN_BYTE_ARRAY => fixed_length(chunk),
        Type::BYTE_ARRAY if is_nested(chunk) || chunk.encodings().any(is_by_prefix) => uncompressed(chunk),
        _ => 0,
    }
}

/// True if a value is written as what it adds to the former one.
fn is_by_prefix(encoding: Encoding) -> bool {
    encoding == Encoding::DELTA_BYTE_ARRAY
}

fn is_repeated(chunk: &ColumnChunkMetaData) -> bool {
    chunk.column_descr().max_rep_level() > 0
}

fn is_nested(chunk: &ColumnChunkMetaData) -> bool {
    is_repeated(chunk) || chunk.column_path().parts().len() > 1
}

fn fixed_length(chunk: &ColumnChunkMetaData) -> usize {
    usize::try_from(chunk.column_descr().type_length()).unwrap_or(0)
}

fn uncompressed(chunk: &ColumnChunkMetaData) -> usize {
    usize::try_from(chunk.uncompressed_size()).unwrap_or(0)
}

fn damaged(path: &Path, reason: &dyn std::fmt::Display) -> Unusable {
    Unusable::at(path, "it cannot be read as Parquet", &reason.to_string())
}

#[cfg(test)]
mod tests {
    use arrow_array::{Array, ArrayRef, Float64Array, Int32Array, StringArray, cast::AsArray};
    use parquet::arrow::ArrowWriter;

    use super::*;

    fn read_bytes(bytes: &[u8]) -> Result<Vec<RecordBatch>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        std::fs::write(&path, bytes).unwrap();
        let mut found = Vec::new();
        let mut each = |rows: &RecordBatch| {
            found.push(rows.clone());
            Ok(())
        };
        let file = File::open(&path).unwrap();
        let read = read(Path::new("t.parquet"), file, 1 << 20, |name| name != "unused", &mut each);
        read.map(|()| found).map_err(|error| error.to_string())
    }

    fn written(rows: usize) -> Vec<u8> {
        let ids: ArrayRef = Arc::new(Int32Array::from_iter_values(0..rows as i32));
        let names: ArrayRef = Arc::new(StringArray::from_iter_values((0..rows).map(|n| format!("name {n}"))));
        let unused: ArrayRef = Arc::new(Float64Array::from(vec![0.5; rows]));
        let rows = RecordBatch::try_from_iter([("id", ids), ("unused", unused), ("name", names)]).unwrap();
        let mut writer = ArrowWriter::try_new(Vec::new(), rows.schema(), None).unwrap();
        writer.write(&rows).unwrap();
        writer.into_inner().unwrap()
    }

    #[test]
    fn the_needed_columns_are_read_in_pieces() {
        let pieces = read_bytes(&written(10_000)).unwrap();
        assert_eq!(pieces.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [0, 4096, 4096, 1808]);
        let last = pieces.last().unwrap();
        assert_eq!(
            last.schema().fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>(),
            ["id", "name"]
        );
        let names = last.column(1);
        assert_eq!(names.as_string_view().value(names.len() - 1), "name 9999");
        assert_eq!(read_bytes(&written(0)).unwrap()[0].num_columns(), 3);
    }

    fn of_texts(texts: impl IntoIterator<Item = String>) -> Vec<u8> {
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
        let rows = RecordBatch::try_from_iter([("text", texts)]).unwrap();
        let mut writer = ArrowWriter::try_new(Vec::new(), rows.schema(), None).unwrap();
        writer.write(&rows).unwrap();
        writer.into_inner().unwrap()
    }

    #[test]
    fn a_column_that_is_larger_than_allowed_is_refused_before_it_is_decoded() {
        let error = read_bytes(&of_texts((0..3).map(|n| format!("{n}{}", "x".repeat(1 << 20))))).unwrap_err();
        assert!(error.starts_with("the table `t.parquet` needs 4 MiB or more in memory"), "{error}");
        let error = read_bytes(&of_texts((0..70_000).map(|_| String::new()))).unwrap_err();
        assert!(error.starts_with("the table `t.parquet` needs 2 MiB or more in memory"), "{error}");
    }

    #[test]
    fn a_value_that_many_rows_have_is_in_memory_once() {
        let text = "x".repeat(500_000);
        let pieces = read_bytes(&of_texts((0..100).map(|_| text.clone()))).unwrap();
        let texts = pieces.last().unwrap().column(0).as_string_view();
        assert_eq!((texts.len(), texts.value(99)), (100, text.as_str()));
        let bytes: usize = texts.data_buffers().iter().map(|buffer| buffer.len()).sum();
        assert!(bytes < 2 << 20, "{bytes}");
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let whole = written(100);
        let damaged: Vec<Vec<u8>> = vec![
            Vec::new(),
            b"no Parquet at all".to_vec(),
            whole[..whole.len() - 20].to_vec(),
            [vec![0; whole.len() - 8], whole[whole.len() - 8..].to_vec()].concat(),
        ];
        for bytes in damaged {
            let error = read_bytes(&bytes).unwrap_err();
            assert!(
                error.starts_with("the table `t.parquet` cannot be used: it cannot be read as Parquet: "),
                "{error}"
            );
        }
    }
}

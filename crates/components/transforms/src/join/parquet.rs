//! The rows of Parquet files.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use arrow_array::RecordBatch;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::unusable::Unusable;

/// The maximum number of rows in a piece.
const ROWS: usize = 4096;

/// Reads a file in pieces, with the columns that are needed.
pub(super) fn read(
    path: &Path,
    file: File,
    is_needed: impl Fn(&str) -> bool,
    each: &mut dyn FnMut(&RecordBatch) -> Result<(), Unusable>,
) -> Result<(), Unusable> {
    // The library panics on some damaged files.
    let read = catch_unwind(AssertUnwindSafe(|| pieces(path, file, is_needed, each)));
    read.unwrap_or_else(|_| Err(damaged(path, &"its contents contradict each other")))
}

fn pieces(
    path: &Path,
    file: File,
    is_needed: impl Fn(&str) -> bool,
    each: &mut dyn FnMut(&RecordBatch) -> Result<(), Unusable>,
) -> Result<(), Unusable> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| damaged(path, &error))?;
    let fields = builder.schema().fields().iter().enumerate();
    let needed: Vec<usize> =
        fields.filter(|(_, field)| is_needed(field.name())).map(|(place, _)| place).collect();
    // A table without rows has columns too, and those that are not needed are named in mistakes.
    each(&RecordBatch::new_empty(builder.schema().clone()))?;
    let mask = ProjectionMask::roots(builder.parquet_schema(), needed);
    let reader = builder.with_projection(mask).with_batch_size(ROWS).build();
    for rows in reader.map_err(|error| damaged(path, &error))? {
        each(&rows.map_err(|error| damaged(path, &error))?)?;
    }
    Ok(())
}

fn damaged(path: &Path, reason: &dyn std::fmt::Display) -> Unusable {
    Unusable::at(path, "it cannot be read as Parquet", &reason.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
        let read = read(Path::new("t.parquet"), file, |name| name != "unused", &mut each);
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
        assert_eq!(names.as_string::<i32>().value(names.len() - 1), "name 9999");
        assert_eq!(read_bytes(&written(0)).unwrap()[0].num_columns(), 3);
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

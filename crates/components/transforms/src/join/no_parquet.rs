//! Replaces the reader of Parquet files in a build without the feature `parquet`: the format exists, and
//! reports that it cannot be read.

use std::fs::File;
use std::path::Path;

use arrow_array::RecordBatch;

use super::unusable::Unusable;

/// Returns the error that this build reads no Parquet.
pub(super) fn read(
    path: &Path,
    _: File,
    _: usize,
    _: impl Fn(&str) -> bool,
    _: &mut dyn FnMut(&RecordBatch) -> Result<(), Unusable>,
) -> Result<(), Unusable> {
    let message =
        format!("the table `{}` is a Parquet file, which this build of thalweg cannot read.", path.display());
    Err(Unusable::new("table", message).help("Build it with the feature `parquet`, or use another format."))
}

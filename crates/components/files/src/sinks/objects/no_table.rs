//! Replaces tables in a build without the feature `parquet`: the option exists, and reports that it cannot be
//! used.

use arrow_schema::Schema;
use thalweg_engine::{Error, Rejects};
use thalweg_record::{Batch, Budget};

use super::parquet_options::Parquet;

/// A table that cannot exist.
pub(super) enum Table {}

impl Table {
    /// Returns the error that this build writes no Parquet.
    pub(super) fn new(_: &Parquet, _: &Schema, _: &Budget) -> Result<Self, Error> {
        Err(Error::permanent(
            "this build of thalweg does not write Parquet; build it with the feature `parquet`, or use `encode`",
        ))
    }

    /// Is never called.
    pub(super) fn write(&mut self, _: &Batch, _: &mut Rejects) -> Result<Vec<u8>, Error> {
        match *self {}
    }

    /// Is never called.
    pub(super) fn memory(&self) -> usize {
        match *self {}
    }

    /// Is never called.
    pub(super) fn end_row_group(&mut self) -> Result<Vec<u8>, Error> {
        match *self {}
    }

    /// Is never called.
    pub(super) fn finish(self) -> Result<Vec<u8>, Error> {
        match self {}
    }
}

/// Returns no mistake: [`Table::new`] reports that the option cannot be used.
pub(super) fn too_small(_: &Parquet, _: usize) -> Option<String> {
    None
}

//! Replaces tables in a build without the feature `parquet`: the format exists, and reports that it cannot be
//! used.

use arrow_schema::Schema;
use thalweg_codec::encode::TableOptions;
use thalweg_engine::{Error, Rejects};
use thalweg_record::{Batch, Budget};

/// A table that cannot exist.
pub enum Table {}

impl Table {
    /// Returns the error that this build writes no Parquet.
    ///
    /// # Errors
    /// Always.
    pub fn new(_: &TableOptions, _: &Schema, _: &Budget) -> Result<Self, Error> {
        Err(Error::permanent(
            "this build of thalweg does not write Parquet; build it with the feature `parquet`, or use another format",
        ))
    }

    /// Is never called.
    ///
    /// # Errors
    /// Never.
    pub fn write(&mut self, _: &Batch, _: &mut Rejects) -> Result<Vec<u8>, Error> {
        match *self {}
    }

    /// Is never called.
    pub fn memory(&self) -> usize {
        match *self {}
    }

    /// Is never called.
    pub fn metadata(&self) -> usize {
        match *self {}
    }

    /// Is never called.
    pub fn has_rows(&self) -> bool {
        match *self {}
    }

    /// Is never called.
    pub fn unwritten(&self) -> usize {
        match *self {}
    }

    /// Is never called.
    ///
    /// # Errors
    /// Never.
    pub fn end_row_group(&mut self) -> Result<Vec<u8>, Error> {
        match *self {}
    }

    /// Is never called.
    ///
    /// # Errors
    /// Never.
    pub fn finish(self) -> Result<Vec<u8>, Error> {
        match self {}
    }
}

/// Returns no reason: there is no table.
pub fn too_wide(_: &TableOptions, _: usize, _: usize) -> Option<String> {
    None
}

/// Returns no mistake: [`Table::new`] reports that the option cannot be used.
pub fn too_small(_: &TableOptions, _: usize) -> Option<String> {
    None
}

//! Readers and writers of one's own, in Rust.
//!
//! A [`Reader`] makes rows of the bytes of files, a [`Writer`] puts rows somewhere. Each is a component like those that come with
//! thalweg: it has a name in configurations, options, and an instance for each worker. What is around them is the
//! engine's: files are fetched in slices within the memory budget, a row that an edge cuts is given whole, what is
//! temporary is tried again, and nothing is acknowledged before it was written.
//!
//! They are added to the [`registry`](crate::registry); `examples/own_reader.rs` shows one of each.

mod reader;
mod writer;

pub use reader::{ReadRows, Reader, Rows, WithReader, unpacking};
pub use writer::{WithWriter, WriteError, Writer};

use thalweg_engine::Registry;

/// Adds components of one's own to a registry.
pub trait Custom {
    /// A transform that reads messages out of files.
    #[must_use]
    fn reader<R: Reader>(self) -> Self;

    /// A sink.
    #[must_use]
    fn writer<W: Writer>(self) -> Self;
}

impl Custom for Registry {
    fn reader<R: Reader>(self) -> Self {
        self.file_reader::<WithReader<R>>()
    }

    fn writer<W: Writer>(self) -> Self {
        self.sink::<WithWriter<W>>()
    }
}

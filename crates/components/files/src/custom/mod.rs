//! Custom readers and writers in Rust.
//!
//! A [`Reader`] reads rows from the bytes of files; a [`Writer`] writes rows to a target. Each is a component
//! like those that come with thalweg: it has a name in configurations, options, and an instance for each
//! worker.
//!
//! The engine does the rest. It fetches files in slices within the memory budget, and passes a row whole if a
//! slice edge cuts it. It retries temporary errors, and acknowledges messages only after they are written.
//!
//! Custom components are added to the [`Registry`]; the example `own_reader` of the registry shows one of
//! each.

mod reader;
mod writer;

pub use reader::{ReadError, ReadRows, Reader, Rows, WithReader, unpacking};
pub use writer::{WithWriter, WriteError, Writer};

use thalweg_engine::Registry;

/// Adds custom components to a registry.
pub trait Custom {
    /// Adds a file reader.
    #[must_use]
    fn reader<R: Reader>(self) -> Self;

    /// Adds a sink.
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

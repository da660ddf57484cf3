use crate::Span;

/// The reason why an operation failed. A failed operation changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A read of bytes that are not all held. Fetch what `need` returns, write it, and read again.
    #[error("the {} bytes at {} are not all held: the {} at {} are missing", .wanted.length, .wanted.position, .missing.length, .missing.position)]
    Missing {
        /// The range that should have been read.
        wanted: Span,
        /// The first missing part of that range.
        missing: Span,
    },
    /// A write that differs from the bytes held, with [`Overlap::Agree`](crate::Overlap::Agree): the origin
    /// has changed, or something was fetched from the wrong place.
    #[error(
        "the byte at {position} is held as {held:#04x} and given as {given:#04x}: the file has changed, or this is not what belongs there"
    )]
    Differs {
        /// The position of the first byte that differs.
        position: u64,
        /// The byte that is held there.
        held: u8,
        /// The byte that was to be written there.
        given: u8,
    },
    /// No block starts at the position.
    #[error("no block starts at {position}")]
    NotABlock {
        /// The position that the caller passed.
        position: u64,
    },
    /// The range extends beyond the last position, 2^64 - 1.
    #[error("{length} bytes at {position} would go beyond the last position that there is, 2^64 - 1")]
    TooFar {
        /// The start of the range.
        position: u64,
        /// The length of the range in bytes.
        length: u64,
    },
    /// The file system already has a file of this name.
    #[error("there is a file `{id}` already: remove it first")]
    Exists {
        /// The name.
        id: String,
    },
    /// The file system has no file of this name.
    #[error("there is no file `{id}`")]
    Unknown {
        /// The name.
        id: String,
    },
}

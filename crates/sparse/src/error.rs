use crate::Span;

/// Why something could not be done. Nothing was changed then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A read of bytes that are not all held. Fetch what `need` says, write it, and read again.
    #[error("the {} bytes at {} are not all held: the {} at {} are missing", .wanted.length, .wanted.position, .missing.length, .missing.position)]
    Missing {
        /// What should have been read.
        wanted: Span,
        /// The first part of it that is missing.
        missing: Span,
    },
    /// A write that does not agree with what is held, where the file was told to make sure of that: the
    /// origin has changed, or something was fetched from the wrong place.
    #[error(
        "the byte at {position} is held as {held:#04x} and given as {given:#04x}: the file has changed, or this is not what belongs there"
    )]
    Differs {
        /// Where the first byte is that differs.
        position: u64,
        /// The byte that is held there.
        held: u8,
        /// The byte that was to be written there.
        given: u8,
    },
    /// No block starts at the position.
    #[error("no block starts at {position}")]
    NotABlock {
        /// The position that was named.
        position: u64,
    },
    /// The range goes beyond the last position that there is, 2^64 - 1.
    #[error("{length} bytes at {position} would go beyond the last position that there is, 2^64 - 1")]
    TooFar {
        /// Where the range begins.
        position: u64,
        /// How long it is.
        length: u64,
    },
    /// The file system has a file of this name already.
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

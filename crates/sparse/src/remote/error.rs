use thalweg_store::StoreError;

use crate::Span;

/// The reason why bytes of a remote file could not be read. Cloning is cheap: every reader that waits for a
/// range receives the same error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The origin has no such file.
    #[error("there is no `{name}`")]
    Absent {
        /// The name of the origin.
        name: String,
    },
    /// The origin denies access.
    #[error("`{name}` may not be read: {why}")]
    Denied {
        /// The name of the origin.
        name: String,
        /// The reason that the origin gave.
        why: String,
    },
    /// The origin has changed since the file was opened. Bytes that are held are still of the former state,
    /// and can be read.
    #[error("`{name}` has changed while it was read: it was {was}, and is {is}; open it again")]
    Changed {
        /// The name of the origin.
        name: String,
        /// The former state.
        was: String,
        /// The present state.
        is: String,
    },
    /// The range extends beyond the end of the file.
    #[error("`{name}` ends at {length}: the {} bytes at {} are not all there", .wanted.length, .wanted.position)]
    PastEnd {
        /// The name of the origin.
        name: String,
        /// The range that should have been read.
        wanted: Span,
        /// The length of the file in bytes.
        length: u64,
    },
    /// The origin does not serve ranges, and the file is too large to be fetched as a whole.
    #[error(
        "the server of `{name}` does not support ranges, and its {length} bytes exceed the limit of {limit} for a whole file"
    )]
    NoRanges {
        /// The name of the origin.
        name: String,
        /// The length of the file in bytes.
        length: u64,
        /// The limit: [`RemoteOptions::whole`](crate::RemoteOptions::whole).
        limit: u64,
    },
    /// A request failed, and retries did not help or make no sense.
    #[error("`{name}`: {what} failed{}: {why}", times(*.attempts))]
    Failed {
        /// The name of the origin.
        name: String,
        /// The operation that was requested.
        what: String,
        /// How often it was tried.
        attempts: u32,
        /// The reason of the last failure.
        why: String,
    },
    /// The file was dropped while ranges were still being fetched for it.
    #[error("`{name}` was closed while it was read")]
    Closed {
        /// The name of the origin.
        name: String,
    },
}

impl From<StoreError> for RemoteError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Absent { name } => RemoteError::Absent { name },
            StoreError::Denied { name, why, .. } => RemoteError::Denied { name, why },
            StoreError::Changed { name, was, is } => RemoteError::Changed { name, was, is },
            StoreError::Failed { name, what, attempts, why, .. } => {
                RemoteError::Failed { name, what, attempts, why }
            }
            other => RemoteError::Failed {
                name: String::new(),
                what: "reading it".to_owned(),
                attempts: 1,
                why: other.to_string(),
            },
        }
    }
}

fn times(attempts: u32) -> String {
    if attempts < 2 { String::new() } else { format!(" {attempts} times") }
}

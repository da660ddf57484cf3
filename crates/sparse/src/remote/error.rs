use thalweg_store::StoreError;

use crate::Span;

/// Why something of a remote file could not be had. Cloning is cheap: all who wait for a range get the same.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The origin has no such file.
    #[error("there is no `{name}`")]
    Absent {
        /// The name of the origin.
        name: String,
    },
    /// The origin does not let us read it.
    #[error("`{name}` may not be read: {why}")]
    Denied {
        /// The name of the origin.
        name: String,
        /// What the origin said.
        why: String,
    },
    /// The origin is not what it was when the file was opened. What is held is still of the former state, and can be read.
    #[error("`{name}` has changed while it was read: it was {was}, and is {is}; open it again")]
    Changed {
        /// The name of the origin.
        name: String,
        /// What it was.
        was: String,
        /// What it is now.
        is: String,
    },
    /// The range goes beyond the end of the file.
    #[error("`{name}` ends at {length}: the {} bytes at {} are not all there", .wanted.length, .wanted.position)]
    PastEnd {
        /// The name of the origin.
        name: String,
        /// What should have been read.
        wanted: Span,
        /// How long the file is.
        length: u64,
    },
    /// The origin gives the file as a whole only, and it is larger than what may be fetched as a whole.
    #[error(
        "`{name}` is only given as a whole, not in ranges, and its {length} bytes are more than the {limit} that may be fetched so"
    )]
    NoRanges {
        /// The name of the origin.
        name: String,
        /// How long the file is.
        length: u64,
        /// [`RemoteOptions::whole`](crate::RemoteOptions::whole).
        limit: u64,
    },
    /// A request failed, and trying again did not help or makes no sense.
    #[error("`{name}`: {what} failed{}: {why}", times(*.attempts))]
    Failed {
        /// The name of the origin.
        name: String,
        /// What was asked for.
        what: String,
        /// How often it was tried.
        attempts: u32,
        /// What went wrong the last time.
        why: String,
    },
    /// The file was dropped while something was still being fetched for it.
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

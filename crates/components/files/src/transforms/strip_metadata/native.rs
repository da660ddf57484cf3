//! Removes metadata without an external program. The whole picture is read, so its memory is reserved first.

use std::io::Read;

use thalweg_config::ByteSize;
use thalweg_engine::{Context, FileError};
use thalweg_media::metadata;
use thalweg_record::{File, Lease};

use super::FAILED;
use crate::content::{open, unreadable};

/// The memory needed, as a multiple of the picture's size: the picture, the result, and a part of the result
/// again.
const TIMES: u64 = 3;

/// Returns the picture without its metadata, and the lease for its memory. `None` if there is nothing to
/// remove.
pub async fn strip(file: &File, context: &Context) -> Result<Option<(Vec<u8>, Lease)>, FileError> {
    let size = open(file)?.size().map_err(|error| unreadable(&error))?;
    let (needed, budget) = (size.saturating_mul(TIMES), context.memory.budget().limit());
    let Some(needed) = usize::try_from(needed).ok().filter(|needed| *needed <= budget) else {
        let (size, budget) = (ByteSize(size), ByteSize(budget as u64));
        let reason = format!(
            "the file has {size}, and removing its metadata needs {TIMES} times as much memory, but the budget is {budget}; raise it with `--memory`"
        );
        return Err(FileError::coded(FAILED, reason));
    };
    let lease = context.memory.reserve(needed).await;
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    // Reads no more than was reserved, even if the file grows.
    open(file)?.take(size).read_to_end(&mut bytes).map_err(|error| unreadable(&error))?;
    let stripped = metadata::strip(&bytes).map_err(|error| FileError::coded(FAILED, error.to_string()))?;
    Ok(stripped.map(|stripped| (stripped, lease)))
}

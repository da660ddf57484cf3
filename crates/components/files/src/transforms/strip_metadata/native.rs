//! What is done without another program: the picture is read whole, so it is paid for first.

use std::io::Read;

use thalweg_config::ByteSize;
use thalweg_engine::{Context, FileError};
use thalweg_media::metadata;
use thalweg_record::{File, Lease};

use super::FAILED;
use crate::content::{open, unreadable};

/// The picture, what is kept of it, and a part of that again: so many times its size is in memory at once.
const TIMES: u64 = 3;

/// The picture without its metadata, and what pays for it; none if there is nothing to remove.
pub async fn strip(file: &File, context: &Context) -> Result<Option<(Vec<u8>, Lease)>, FileError> {
    let size = open(file)?.size().map_err(|error| unreadable(&error))?;
    let (needed, budget) = (size.saturating_mul(TIMES), context.memory.budget().limit());
    let Some(needed) = usize::try_from(needed).ok().filter(|needed| *needed <= budget) else {
        let (size, budget) = (ByteSize(size), ByteSize(budget as u64));
        let reason = format!(
            "the file has {size}, and it would take {TIMES} times as much memory to remove its metadata; the budget is {budget}"
        );
        return Err(FileError::coded(FAILED, reason));
    };
    let lease = context.memory.reserve(needed).await;
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    // Not more than was paid for, whatever is added meanwhile.
    open(file)?.take(size).read_to_end(&mut bytes).map_err(|error| unreadable(&error))?;
    let stripped = metadata::strip(&bytes).map_err(|error| FileError::coded(FAILED, error.to_string()))?;
    Ok(stripped.map(|stripped| (stripped, lease)))
}

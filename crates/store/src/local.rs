//! Operations on the file systems of this machine.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use thalweg_beneath::{Beneath, is_link_out};

use crate::attempt::{AttemptError, Receiver, patient};
use crate::walk::state;
use crate::{Fingerprint, Origin, Store, StoreError};

/// How many bytes of a file are read at once.
const PIECE: u64 = 256 << 10;

/// Runs blocking work on a thread of the blocking pool.
pub(crate) async fn working<T: Send + 'static>(
    store: &Store,
    path: &str,
    what: &str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)));
    done.map_err(|error| failed(store, path, what, &error))
}

/// Turns an I/O error into a [`StoreError`].
pub(crate) fn failed(store: &Store, path: &str, what: &str, error: &io::Error) -> StoreError {
    let (name, why) = (store.name(path), error.to_string());
    match error.kind() {
        _ if is_link_out(error) => StoreError::Denied { name, what: "written", why },
        io::ErrorKind::AlreadyExists => StoreError::Refused { name, why: "it exists already".to_owned() },
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            StoreError::Denied { name, what: "written", why }
        }
        // A full disk gets room again.
        kind => {
            let is_temporary = matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
            StoreError::Failed { name, what: what.to_owned(), attempts: 1, why, is_temporary }
        }
    }
}

/// Reads a range of a file once; see [`receive`](crate::attempt::receive). The state is that of the opened
/// file after the last read.
pub(crate) async fn receive(
    origin: &Origin,
    beneath: Beneath,
    range: Range<u64>,
    silence: Duration,
    into: &mut impl Receiver,
) -> Result<(), AttemptError> {
    let what = format!("reading {} bytes at {}", range.end - range.start, range.start);
    let path = Path::new("/").join(origin.path());
    let opening = move || beneath.open(&path).map(Arc::new);
    let file = here(origin, &what, silence, opening).await?;
    into.head(None)?;
    let mut position = range.start;
    while position < range.end {
        let (file, length) = (file.clone(), PIECE.min(range.end - position));
        let bytes = here(origin, &what, silence, move || read(&file, position, length)).await?;
        if bytes.is_empty() {
            break;
        }
        let at = position - range.start;
        position += bytes.len() as u64;
        into.bytes(at, bytes.into())?;
    }
    let metadata = here(origin, &what, silence, move || file.metadata()).await?;
    into.confirmed(state(&metadata))?;
    match position < range.end {
        true => Err(AttemptError::cut(format!("it ends at {}", metadata.len()))),
        false => Ok(()),
    }
}

/// Returns the state of a file.
pub(crate) async fn found(
    origin: &Origin,
    beneath: Beneath,
    silence: Duration,
) -> Result<Fingerprint, AttemptError> {
    let path = Path::new("/").join(origin.path());
    let look = move || {
        let metadata = beneath.metadata(&path)?;
        match (metadata.is_file(), metadata.is_dir()) {
            (true, _) => Ok(state(&metadata)),
            (_, true) => Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder")),
            _ => Err(io::Error::other("it is a pipe or a device, not a file")),
        }
    };
    here(origin, "asking for its state", silence, look).await
}

/// Reads up to `length` bytes, fewer at the end.
fn read(file: &File, mut position: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    let mut filled = 0;
    while let Some(free) = bytes.get_mut(filled..).filter(|free| !free.is_empty()) {
        match file.read_at(free, position) {
            Ok(0) => break,
            Ok(read) => {
                filled += read;
                position += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Runs blocking work for an attempt.
async fn here<T: Send + 'static>(
    origin: &Origin,
    what: &str,
    silence: Duration,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, AttemptError> {
    let Some(done) = patient(silence, tokio::task::spawn_blocking(work)).await else {
        return Err(AttemptError::silent(silence));
    };
    let name = origin.name().to_owned();
    done.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(|error| {
        let why = error.to_string();
        AttemptError::Fatal(match error.kind() {
            io::ErrorKind::NotFound => StoreError::Absent { name },
            _ if is_link_out(&error) => StoreError::Denied { name, what: "read", why },
            io::ErrorKind::PermissionDenied => StoreError::Denied { name, what: "read", why },
            _ => StoreError::Failed { name, what: what.to_owned(), attempts: 1, why, is_temporary: false },
        })
    })
}

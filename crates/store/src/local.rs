//! Operations on the file systems of this machine.

use std::io;

use crate::{Store, StoreError};

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
        io::ErrorKind::AlreadyExists => StoreError::Refused { name, why: "it exists already".to_owned() },
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            StoreError::Denied { name, what: "written", why }
        }
        _ => StoreError::Failed { name, what: what.to_owned(), attempts: 1, why, is_temporary: false },
    }
}

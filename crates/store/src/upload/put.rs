//! Writing an object in one request.

use super::remote::Remote;
use super::{Body, Stored, Writing, blocks, folder, multipart};
use crate::url::Kind;
use crate::{Store, StoreError};

/// How many bytes are read at once when a lookup compares an object with the one just written.
const LOOK: u64 = 4 << 20;

impl Store {
    /// Returns the URL of an object for other programs. `None` in a folder, which has no URL.
    pub fn address(&self, path: &str) -> Option<String> {
        self.remote(path).ok().flatten().map(|remote| remote.url(path, ""))
    }

    /// Writes an object, possibly an empty one, in one request. Temporary failures are retried. No reader
    /// sees it half written.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if a condition of [`Writing`] does not hold, and other errors of the store.
    pub async fn put(
        &self,
        path: &str,
        body: impl Into<Body>,
        options: &Writing,
    ) -> Result<Stored, StoreError> {
        let body = body.into();
        match (self.kind(), self.remote(path)?) {
            (Kind::Folders, _) => folder::put(self, path, body, options).await,
            (Kind::S3(_) | Kind::Gcs(_), Some(remote)) => {
                multipart::put(self, remote, path, body, options).await
            }
            (Kind::Azure(_), Some(remote)) => blocks::put(self, remote, path, body, options).await,
            _ => Err(self.cannot_write(path)),
        }
    }

    /// Returns the access for our own requests.
    pub(super) fn remote(&self, path: &str) -> Result<Option<&Remote>, StoreError> {
        self.made().as_ref().map(Option::as_ref).map_err(|why| StoreError::Failed {
            name: self.name(path),
            what: "reading the options of its store".to_owned(),
            attempts: 1,
            why: why.clone(),
            is_temporary: false,
        })
    }

    pub(super) fn cannot_write(&self, path: &str) -> StoreError {
        StoreError::Impossible { name: self.name(path), what: "writing" }
    }
}

/// Returns the tag of an object if it has this content. Then an earlier attempt, whose reply was lost, has
/// written it, and the condition of the next attempt fails because of that.
pub(super) async fn holds(store: &Store, path: &str, size: u64, crc32c: u32) -> Option<Option<String>> {
    let found = store.stat(path).await.ok().filter(|found| found.size() == size)?;
    let (mut position, mut crc) = (0, 0);
    while position < size {
        let mut buffer = vec![0; usize::try_from(LOOK.min(size - position)).ok()?];
        found.read(position, &mut buffer).await.ok()?;
        crc = crc32c::crc32c_append(crc, &buffer);
        position += buffer.len() as u64;
    }
    (crc == crc32c).then(|| found.state().etag.clone())
}

//! Writing an object in one request.

use bytes::Bytes;

use super::{Stored, Writing, folder};
use crate::url::Kind;
use crate::{Store, StoreError};

impl Store {
    /// Writes an object in one request, also an empty one. What is temporary is tried again; nobody sees a half of it.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if a condition of [`Writing`] does not hold, and what else can go wrong.
    pub async fn put(&self, path: &str, bytes: Bytes, options: &Writing) -> Result<Stored, StoreError> {
        match self.kind() {
            Kind::Folders => folder::put(self, path, bytes, options).await,
            _ => Err(self.cannot_write(path)),
        }
    }
}

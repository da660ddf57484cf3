//! An upload in parts.

use bytes::Bytes;

use super::draft::Draft;
use super::{Begun, Part, Sent, Stored, Writing, folder};
use crate::url::Kind;
use crate::{Store, StoreError};

/// An upload under way. Many parts of it can be sent at once; clones are the same upload. Dropping it leaves at the store what was
/// sent: [`Store::resume`] goes on with it, [`Store::discard`] throws it away.
#[derive(Debug, Clone)]
pub struct Upload {
    store: Store,
    begun: Begun,
    /// Where the store is this machine.
    draft: Option<Draft>,
}

impl Store {
    /// Begins to write an object in parts. Nobody sees it before it is [complete](Upload::complete).
    ///
    /// # Errors
    /// What can go wrong. A condition that does not hold may be told here already, or only when it is complete.
    pub async fn begin(&self, path: &str, options: &Writing) -> Result<Upload, StoreError> {
        let begun = |id| Begun { path: path.to_owned(), id, writing: options.clone(), has_checksums: false };
        match self.kind() {
            Kind::Folders => {
                let (draft, id) = folder::begin(self, path, options).await?;
                Ok(Upload { store: self.clone(), begun: begun(id), draft: Some(draft) })
            }
            _ => Err(self.cannot_write(path)),
        }
    }

    /// Goes on with an upload, also one of another process; none if the store does not know it any more. That a draft is there
    /// does not say that all parts are: who calls knows which are done.
    ///
    /// # Errors
    /// What can go wrong.
    pub async fn resume(&self, saved: &Begun) -> Result<Option<Upload>, StoreError> {
        let upload = |draft| Upload { store: self.clone(), begun: saved.clone(), draft };
        match self.kind() {
            Kind::Folders => Ok(folder::resume(self, saved).await?.map(|draft| upload(Some(draft)))),
            _ => Err(self.cannot_write(&saved.path)),
        }
    }

    /// Throws an upload away that was begun, by this process or a former one. That it is gone is no error.
    ///
    /// # Errors
    /// What can go wrong.
    pub async fn discard(&self, saved: &Begun) -> Result<(), StoreError> {
        match self.kind() {
            Kind::Folders => folder::discard(self, saved).await,
            _ => Err(self.cannot_write(&saved.path)),
        }
    }

    pub(super) fn cannot_write(&self, path: &str) -> StoreError {
        StoreError::Impossible { name: self.name(path), what: "writing" }
    }
}

impl Upload {
    /// What is needed to go on with it in another process.
    pub fn begun(&self) -> &Begun {
        &self.begun
    }

    /// Sends a part: the one of this number (from 1 on), whose bytes begin at `offset` of the object. Parts may be sent in any
    /// order, many at once, and again, which replaces what was sent under the same number. What is temporary is tried again.
    ///
    /// # Errors
    /// What can go wrong.
    pub async fn part(&self, number: u32, offset: u64, bytes: Bytes) -> Result<Sent, StoreError> {
        match &self.draft {
            Some(draft) => folder::part(self, draft, number, offset, bytes).await,
            None => Err(self.store.cannot_write(&self.begun.path)),
        }
    }

    /// Makes an object of all its parts, given in any order: from now on it can be seen. It may be called again when its answer was
    /// lost.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if a condition of [`Writing`] does not hold, and what else can go wrong.
    pub async fn complete(&self, parts: &[Part]) -> Result<Stored, StoreError> {
        let mut parts = parts.to_vec();
        parts.sort_unstable_by_key(|part| part.number);
        match &self.draft {
            Some(draft) => folder::complete(self, draft, parts).await,
            None => Err(self.store.cannot_write(&self.begun.path)),
        }
    }

    /// Throws away what was sent.
    ///
    /// # Errors
    /// What can go wrong.
    pub async fn abort(&self) -> Result<(), StoreError> {
        self.store.discard(&self.begun).await
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }
}

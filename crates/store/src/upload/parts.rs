//! An upload in parts.

use super::draft::Draft;
use super::folder::PartWriter;
use super::{Begun, Body, Sent, Stored, UploadedPart, Writing, blocks, folder, multipart};
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
        let (begun, draft) = match (self.kind(), self.remote(path)?) {
            (Kind::Folders, _) => {
                let (begun, draft) = folder::begin(self, path, options).await?;
                (begun, Some(draft))
            }
            (Kind::S3(_) | Kind::Gcs(_), Some(remote)) => {
                (multipart::begin(self, remote, path, options).await?, None)
            }
            (Kind::Azure(_), Some(_)) => (blocks::begin(path, options), None),
            _ => return Err(self.cannot_write(path)),
        };
        Ok(Upload { store: self.clone(), begun, draft })
    }

    /// Goes on with an upload, also one of another process; none if the store does not know it any more: it is to be begun anew
    /// then. That the store knows it does not say which parts it has: who calls has kept those that are done.
    ///
    /// # Errors
    /// What can go wrong.
    pub async fn resume(&self, saved: &Begun) -> Result<Option<Upload>, StoreError> {
        let (is_known, draft) = match (self.kind(), self.remote(&saved.path)?) {
            (Kind::Folders, _) => {
                let draft = folder::resume(self, saved).await?;
                (draft.is_some(), draft)
            }
            (Kind::S3(_) | Kind::Gcs(_), Some(remote)) => {
                (multipart::is_known(self, remote, saved).await?, None)
            }
            (Kind::Azure(_), Some(remote)) => (blocks::is_known(self, remote, saved).await?, None),
            _ => return Err(self.cannot_write(&saved.path)),
        };
        Ok(is_known.then(|| Upload { store: self.clone(), begun: saved.clone(), draft }))
    }

    /// The object, if an upload that the store does not [know](Self::resume) any more was completed to it: a former run was stopped
    /// before it could note that. None if it was not, or if that cannot be found out; it is to be written anew then.
    ///
    /// # Errors
    /// What can go wrong.
    pub async fn completed(
        &self,
        saved: &Begun,
        parts: &[UploadedPart],
    ) -> Result<Option<Stored>, StoreError> {
        let Some(parts) = in_order(parts) else { return Ok(None) };
        Ok(match (self.kind(), self.remote(&saved.path)?) {
            (Kind::Folders, _) => folder::completed(self, saved, parts).await?,
            (Kind::S3(_) | Kind::Gcs(_), Some(remote)) => {
                multipart::completed(self, remote, saved, &parts).await
            }
            (Kind::Azure(_), Some(remote)) => blocks::completed(self, remote, saved, &parts).await,
            _ => return Err(self.cannot_write(&saved.path)),
        })
    }

    /// Throws an upload away that was begun, by this process or a former one. That it is gone is no error. Microsoft's stores
    /// cannot do this: they remove by themselves, after a week, what never became part of an object.
    ///
    /// # Errors
    /// What can go wrong.
    pub async fn discard(&self, saved: &Begun) -> Result<(), StoreError> {
        match (self.kind(), self.remote(&saved.path)?) {
            (Kind::Folders, _) => folder::discard(self, saved).await,
            (Kind::S3(_) | Kind::Gcs(_), Some(remote)) => multipart::discard(self, remote, saved).await,
            (Kind::Azure(_), _) => Ok(()),
            _ => Err(self.cannot_write(&saved.path)),
        }
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
    pub async fn part(&self, number: u32, offset: u64, body: impl Into<Body>) -> Result<Sent, StoreError> {
        let body = body.into();
        let (store, begun) = (&self.store, &self.begun);
        match (&self.draft, store.kind(), store.remote(&begun.path)?) {
            (Some(draft), ..) => folder::part(store, begun, draft, number, offset, body).await,
            (None, Kind::Azure(_), Some(remote)) => blocks::part(store, remote, begun, number, body).await,
            (None, _, Some(remote)) => multipart::part(store, remote, begun, number, body).await,
            (None, _, None) => Err(store.cannot_write(&begun.path)),
        }
    }

    /// What writes a part of this number and offset as its bytes come; none where parts are sent in requests.
    pub fn writer(&self, number: u32, offset: u64) -> Option<PartWriter> {
        let (store, path, draft) = (self.store.clone(), self.begun.path.clone(), self.draft.clone()?);
        Some(PartWriter { store, path, draft, number, offset, size: 0, crc32c: 0, error: None })
    }

    /// Makes an object of all its parts, given in any order: from now on it can be seen. Their numbers must be those from 1 on
    /// without a gap. It may be called again when its answer was lost; another process
    /// finds out by [`Store::completed`].
    ///
    /// # Errors
    /// [`StoreError::Refused`] if a condition of [`Writing`] does not hold, and what else can go wrong. What was sent stays then,
    /// until it is thrown away.
    pub async fn complete(&self, parts: &[UploadedPart]) -> Result<Stored, StoreError> {
        let (store, begun) = (&self.store, &self.begun);
        let Some(parts) = in_order(parts) else {
            let why = "the parts are not numbered from 1 on without a gap".to_owned();
            let (name, what) = (store.name(&begun.path), "completing its upload".to_owned());
            return Err(StoreError::Failed { name, what, attempts: 1, why, is_temporary: false });
        };
        match (&self.draft, store.kind(), store.remote(&begun.path)?) {
            (Some(draft), ..) => folder::complete(store, begun, draft, parts).await,
            (None, Kind::Azure(_), Some(remote)) => blocks::complete(store, remote, begun, &parts).await,
            (None, _, Some(remote)) => multipart::complete(store, remote, begun, &parts).await,
            (None, _, None) => Err(store.cannot_write(&begun.path)),
        }
    }

    /// Throws away what was sent.
    ///
    /// # Errors
    /// What can go wrong.
    pub async fn abort(&self) -> Result<(), StoreError> {
        self.store.discard(&self.begun).await
    }
}

/// Parts in their order; none if one is missing or there are none.
fn in_order(parts: &[UploadedPart]) -> Option<Vec<UploadedPart>> {
    let mut parts = parts.to_vec();
    parts.sort_unstable_by_key(|part| part.number);
    let is_whole = (1..).zip(&parts).all(|(number, part): (u32, _)| part.number == number);
    (is_whole && !parts.is_empty()).then_some(parts)
}

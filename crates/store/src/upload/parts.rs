//! An upload in parts.

use std::convert::Infallible;

use super::draft::Draft;
use super::folder::PartWriter;
use super::{Begun, Body, Sent, Stored, UploadedPart, Writing, blocks, folder, multipart};
use crate::url::Kind;
use crate::{Store, StoreError};

/// An upload in progress. Many of its parts can be sent at once; clones are the same upload. Dropping it
/// leaves the sent parts at the store: [`Store::resume`] resumes it, [`Store::discard`] discards it.
#[derive(Debug, Clone)]
pub struct Upload {
    store: Store,
    begun: Begun,
    /// Set if the store is the folders of this machine.
    draft: Option<Draft>,
}

impl Store {
    /// Begins to write an object in parts. The object is not visible before it is
    /// [complete](Upload::complete).
    ///
    /// # Errors
    /// [`StoreError`]. A condition that does not hold may be reported here, or only by [`Upload::complete`].
    pub async fn begin(&self, path: &str, options: &Writing) -> Result<Upload, StoreError> {
        let Ok(upload) = self.begin_noted(path, options, |_| Ok::<_, Infallible>(())).await;
        upload
    }

    /// Does the same, and calls `note` to record what a later process needs to resume or discard the upload.
    /// Where the client chooses the id of an upload, as in folders, `note` is called before anything exists:
    /// a process that is killed between the two would otherwise leave a draft that no later process knows.
    ///
    /// # Errors
    /// The error of `note`. The inner result is that of [`begin`](Self::begin).
    pub async fn begin_noted<E>(
        &self,
        path: &str,
        options: &Writing,
        note: impl FnOnce(&Begun) -> Result<(), E>,
    ) -> Result<Result<Upload, StoreError>, E> {
        if matches!(self.kind(), Kind::Folders) && !options.once {
            let begun = match folder::plan(self, path, options).await {
                Ok(begun) => begun,
                Err(error) => return Ok(Err(error)),
            };
            note(&begun)?;
            let draft = folder::create(self, &begun).await;
            return Ok(draft.map(|draft| Upload { store: self.clone(), begun, draft: Some(draft) }));
        }
        let upload = self.begin_at_once(path, options).await;
        if let Ok(upload) = &upload {
            note(upload.begun())?;
        }
        Ok(upload)
    }

    async fn begin_at_once(&self, path: &str, options: &Writing) -> Result<Upload, StoreError> {
        let (begun, draft) = match (self.kind(), self.remote(path)?) {
            (Kind::Folders, _) => {
                let (begun, draft) = folder::begin_whole(self, path, options).await?;
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

    /// Resumes an upload, also one of another process. Returns `None` if the store no longer knows it; it
    /// must be restarted then. The store does not report which parts it has: the caller keeps the finished
    /// parts.
    ///
    /// # Errors
    /// [`StoreError`].
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

    /// Returns the object, if an upload that the store no longer [knows](Self::resume) was completed: a
    /// former run was stopped before it could record that. Returns `None` if it was not, or if that cannot be
    /// determined; the object must be written again then.
    ///
    /// # Errors
    /// [`StoreError`].
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

    /// Discards an upload of this process or a former one. It is no error if the upload is gone. Microsoft's
    /// stores have no such operation: after a week they remove blocks that never became part of an object.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn discard(&self, saved: &Begun) -> Result<(), StoreError> {
        match (self.kind(), self.remote(&saved.path)?) {
            (Kind::Folders, _) => folder::discard(self, saved).await,
            (Kind::S3(_) | Kind::Gcs(_), Some(remote)) => multipart::discard(self, remote, saved).await,
            (Kind::Azure(_), _) => Ok(()),
            _ => Err(self.cannot_write(&saved.path)),
        }
    }

    /// Discards an upload to a folder of this machine, without a runtime. Blocks the thread.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn discard_here(&self, saved: &Begun) -> Result<(), StoreError> {
        match self.kind() {
            Kind::Folders => folder::discard_now(self, saved),
            _ => Err(self.cannot_write(&saved.path)),
        }
    }
}

impl Upload {
    /// Returns the data needed to resume the upload in another process.
    pub fn begun(&self) -> &Begun {
        &self.begun
    }

    /// Sends the part with this number (from 1 on), whose bytes begin at `offset` of the object. Parts may be
    /// sent in any order, many at once, and again; a part replaces an earlier one of the same number.
    /// Temporary failures are retried.
    ///
    /// # Errors
    /// [`StoreError`].
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

    /// Returns a writer for the part with this number and offset, which writes bytes as they arrive. Returns
    /// `None` if parts are sent in requests.
    pub fn writer(&self, number: u32, offset: u64) -> Option<PartWriter> {
        let (store, path, draft) = (self.store.clone(), self.begun.path.clone(), self.draft.clone()?);
        Some(PartWriter { store, path, draft, number, offset, size: 0, crc32c: 0, error: None })
    }

    /// Turns all parts, in any order, into an object, which is visible from then on. Their numbers must be 1
    /// and up without a gap. If the reply was lost, it may be called again. Another process uses
    /// [`Store::completed`].
    ///
    /// # Errors
    /// [`StoreError::Refused`] if a condition of [`Writing`] does not hold, and other errors of the store.
    /// The sent parts stay until they are discarded.
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

    /// Puts the received parts onto the disk, where the store is a folder of this machine. Another store does
    /// that before it confirms a part.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn sync(&self) -> Result<(), StoreError> {
        match &self.draft {
            Some(draft) => folder::sync(&self.store, &self.begun, draft).await,
            None => Ok(()),
        }
    }

    /// Discards the sent parts.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn abort(&self) -> Result<(), StoreError> {
        self.store.discard(&self.begun).await
    }
}

/// Returns the parts in their order; `None` if one is missing or there are none.
fn in_order(parts: &[UploadedPart]) -> Option<Vec<UploadedPart>> {
    let mut parts = parts.to_vec();
    parts.sort_unstable_by_key(|part| part.number);
    let is_whole = (1..).zip(&parts).all(|(number, part): (u32, _)| part.number == number);
    (is_whole && !parts.is_empty()).then_some(parts)
}

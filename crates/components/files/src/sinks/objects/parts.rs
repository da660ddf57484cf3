//! Uploads an object in parts.

use std::path::{self, Path};
use std::sync::Arc;

use arrow_buffer::Buffer;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thalweg_engine::{Error, Journal};
use thalweg_runtime::Failpoint;
use thalweg_store::{Begun, Body, Store, StoreError, Stored, Upload, UploadedPart};

use super::Target;
use crate::stored::failure;

/// Returns a buffer as a piece of a body, without a copy.
pub(super) fn held(buffer: Buffer) -> Bytes {
    struct Held(Buffer);
    impl AsRef<[u8]> for Held {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(Held(buffer))
}

/// Passes a point at which a test can make a step at `name` fail.
pub(super) fn check(point: Failpoint, name: &str) -> Result<(), StoreError> {
    point.check().map_err(|error| StoreError::Failed {
        name: name.to_owned(),
        what: "the next step".to_owned(),
        attempts: 1,
        why: error.to_string(),
        is_temporary: true,
    })
}

/// Turns all parts into an object.
pub(super) async fn complete(upload: &Upload, parts: &[UploadedPart]) -> Result<Stored, StoreError> {
    check(Failpoint::RenameBefore, &upload.begun().path)?;
    let stored = upload.complete(parts).await?;
    Failpoint::RenameAfter.pass();
    Ok(stored)
}

/// Writes an object in one request.
pub(super) async fn put(target: &Target, path: &str, body: impl Into<Body>) -> Result<Stored, StoreError> {
    check(Failpoint::RenameBefore, path)?;
    let stored = target.store.put(path, body, &target.writing).await?;
    Failpoint::RenameAfter.pass();
    Ok(stored)
}

/// Waits until another request is allowed, and sends a part.
pub(super) async fn send(
    target: &Target,
    upload: &Upload,
    number: u32,
    offset: u64,
    body: Body,
) -> Result<UploadedPart, StoreError> {
    let permit = target.limit.acquire(body.len() as u64).await;
    check(Failpoint::PartBefore, &upload.begun().path)?;
    match upload.part(number, offset, body).await {
        Ok(sent) => {
            Failpoint::PartAfter.pass();
            if sent.was_overloaded {
                permit.overloaded();
            } else {
                permit.succeeded();
            }
            target.note(&sent.part, false);
            Ok(sent.part)
        }
        Err(error) => {
            permit.failed();
            Err(error)
        }
    }
}

/// Returns the error for an upload of an earlier run that the store no longer has, with its parts and `more`
/// bytes after them.
pub(super) fn upload_is_gone(target: &Target, begun: &Begun, parts: &[UploadedPart], more: u64) -> Error {
    let (name, size) =
        (target.store.name(&begun.path), parts.iter().map(|part| part.size).sum::<u64>() + more);
    let back = match target.store.is_here() {
        true => "if the folder was moved away, put it back and restart. Otherwise, ",
        false => "",
    };
    Error::permanent(format!(
        "the upload of `{name}` that an earlier run began is gone, and with it {size} bytes that are not read again: \
         {back}to write them again, use another state folder, with which all input is read from its beginning"
    ))
}

/// Returns the error for an object whose folder does not exist any more, with its parts in it.
pub(super) fn moved_away(target: &Target, begun: &Begun) -> Option<Error> {
    let object = Path::new("/").join(&begun.path);
    let folder = object.parent().filter(|folder| target.store.is_here() && !folder.exists())?;
    Some(Error::permanent(format!(
        "`{}` was moved away or removed while the run was writing to it, and with it the beginning of `{}`: put it \
         back, and restart with the same state folder",
        folder.display(),
        object.display()
    )))
}

/// The journal entry of a file's upload, written before its first part.
#[derive(Debug, Serialize, Deserialize)]
struct Beginning {
    begun: Begun,
    /// Identifies the state of the file.
    identity: String,
    /// The size of a part in bytes. It determines the sizes of all parts.
    part_size: u64,
    /// The path of the file, if it is one of this machine.
    #[serde(default)]
    file: Option<String>,
}

/// The name of the entry for the beginning of an upload, below the name of its object.
const BEGUN: &str = "begun";

/// Returns all uploads of a store that the journal contains. `store` is the name of the store.
pub(super) fn unfinished(
    journal: &Journal,
    store: &str,
) -> impl Iterator<Item = Result<Begun, Error>> + use<> {
    journal.each(store).filter_map(|entry| match entry {
        Ok((name, value)) => {
            let value = (name.rsplit('\n').next() == Some(BEGUN)).then_some(value)?;
            Some(Ok(serde_json::from_value::<Beginning>(value).ok()?.begun))
        }
        Err(error) => Some(Err(error)),
    })
}

/// Removes the drafts that earlier runs left in a folder of this machine and that no run resumes: their files
/// are gone or have other names. Blocks the thread.
///
/// # Errors
/// If the journal cannot be read or written, or a draft cannot be removed.
pub(super) fn discard_of_gone_files(journal: &Journal, store: &Store) -> Result<(), Error> {
    for (name, value) in journal.entries(&store.name(""))? {
        let Some(object) = name.strip_suffix(BEGUN) else { continue };
        let Ok(Beginning { begun, file: Some(file), .. }) = serde_json::from_value(value) else { continue };
        if matches!(Path::new(&file).try_exists(), Ok(false)) {
            store.discard_here(&begun).map_err(|error| failure(&error))?;
            journal.forget(object)?;
        }
    }
    Ok(())
}

/// The upload that an earlier run left of an object.
pub(super) enum Former {
    Nothing,
    /// An upload of the same content, and its finished parts.
    Same(Begun, Vec<UploadedPart>),
    /// An upload of other content, to be discarded.
    Other(Begun),
}

/// The journal's record of which parts of an object a store has.
#[derive(Clone)]
pub(super) struct Noted {
    journal: Option<Journal>,
    prefix: Arc<str>,
}

impl Noted {
    /// Returns the record for the object of this name.
    pub(super) fn new(journal: Option<Journal>, name: &str) -> Self {
        Self { journal, prefix: format!("{name}\n").into() }
    }

    /// Returns the upload that an earlier run recorded. This run has a file with this `identity`, in parts of
    /// `size` bytes.
    pub(super) fn found(&self, identity: &str, size: u64) -> Result<Former, Error> {
        let Some(journal) = &self.journal else { return Ok(Former::Nothing) };
        let entries = journal.entries(&self.prefix)?;
        let mut parts = Vec::new();
        let mut beginning = None;
        for (name, value) in entries {
            let name = name.get(self.prefix.len()..).unwrap_or_default().to_owned();
            if name == BEGUN {
                beginning = serde_json::from_value::<Beginning>(value).ok();
            } else {
                parts.extend(serde_json::from_value::<UploadedPart>(value).ok());
            }
        }
        Ok(match beginning {
            Some(known) if known.identity == identity && known.part_size == size => {
                Former::Same(known.begun, parts)
            }
            Some(known) => Former::Other(known.begun),
            None => Former::Nothing,
        })
    }

    pub(super) fn begin(
        &self,
        begun: &Begun,
        identity: &str,
        part_size: u64,
        file: Option<&Path>,
    ) -> Result<(), Error> {
        // A later run may be in another folder.
        let file = file.and_then(|file| path::absolute(file).ok()?.into_os_string().into_string().ok());
        let beginning = Beginning { begun: begun.clone(), identity: identity.to_owned(), part_size, file };
        self.note(BEGUN, serde_json::to_value(beginning))
    }

    pub(super) fn part(&self, part: &UploadedPart) -> Result<(), Error> {
        self.note(&format!("{:05}", part.number), serde_json::to_value(part))
    }

    fn note(&self, name: &str, value: serde_json::Result<Value>) -> Result<(), Error> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let value = value.map_err(|error| Error::permanent(error.to_string()))?;
        journal.note(&format!("{}{name}", self.prefix), &value)
    }

    /// Forgets the upload if it could not begin in a folder of this machine: then nothing exists. A later run
    /// would otherwise have to remove it from a folder that may have been a mistake, and where it may not
    /// write.
    pub(super) fn forget_failed<T>(&self, store: &Store, begun: &Result<T, StoreError>) -> Result<(), Error> {
        match begun {
            Err(_) if store.is_here() => self.forget(),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    pub(super) fn forget(&self) -> Result<(), Error> {
        self.journal.as_ref().map_or(Ok(()), |journal| journal.forget(&self.prefix))
    }

    /// True if a later run can resume from the record.
    pub(super) fn is_kept(&self) -> bool {
        self.journal.is_some()
    }
}

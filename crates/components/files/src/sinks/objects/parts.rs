//! An object on its way in parts.

use std::sync::Arc;

use arrow_buffer::Buffer;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thalweg_engine::{Error, Journal};
use thalweg_store::{Begun, Body, StoreError, Upload, UploadedPart};

use super::Target;

/// A buffer as a piece of a body: nothing is copied.
pub(super) fn held(buffer: Buffer) -> Bytes {
    struct Held(Buffer);
    impl AsRef<[u8]> for Held {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(Held(buffer))
}

/// Sends a part when its turn comes.
pub(super) async fn send(
    target: &Target,
    upload: &Upload,
    number: u32,
    offset: u64,
    body: Body,
) -> Result<UploadedPart, StoreError> {
    let permit = target.limit.acquire(body.len() as u64).await;
    match upload.part(number, offset, body).await {
        Ok(sent) => {
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

/// What is noted of an upload of a file before its first part.
#[derive(Debug, Serialize, Deserialize)]
struct Beginning {
    begun: Begun,
    /// What tells the state of the file from others.
    identity: String,
    /// The sizes of its parts follow from this.
    part_size: u64,
}

/// The name, below that of an object, under which it is noted that it was begun.
const BEGUN: &str = "begun";

/// All uploads that are noted as begun.
pub(super) fn unfinished(journal: &Journal) -> Result<Vec<Begun>, Error> {
    let entries = journal.entries("")?;
    let begun = entries.into_iter().filter(|(name, _)| name.rsplit('\n').next() == Some(BEGUN));
    Ok(begun.filter_map(|(_, value)| Some(serde_json::from_value::<Beginning>(value).ok()?.begun)).collect())
}

/// What a former run left of an object.
pub(super) enum Former {
    Nothing,
    /// An upload of the same, and the parts that are done.
    Same(Begun, Vec<UploadedPart>),
    /// An upload of something else: it is to be thrown away.
    Other(Begun),
}

/// Which parts of an object a store has, noted in the journal.
#[derive(Clone)]
pub(super) struct Noted {
    journal: Option<Journal>,
    prefix: Arc<str>,
}

impl Noted {
    /// Of the object of this name.
    pub(super) fn new(journal: Option<Journal>, name: &str) -> Self {
        Self { journal, prefix: format!("{name}\n").into() }
    }

    /// What a former run noted, where this one has a file of that identity in parts of that size.
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

    pub(super) fn begin(&self, begun: &Begun, identity: &str, part_size: u64) -> Result<(), Error> {
        let beginning = Beginning { begun: begun.clone(), identity: identity.to_owned(), part_size };
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

    pub(super) fn forget(&self) -> Result<(), Error> {
        self.journal.as_ref().map_or(Ok(()), |journal| journal.forget(&self.prefix))
    }

    /// Whether a later run can go on with what is noted.
    pub(super) fn is_kept(&self) -> bool {
        self.journal.is_some()
    }
}

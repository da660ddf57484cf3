//! Objects that have all their messages and wait for a checkpoint.
//!
//! If a run keeps checkpoints, an object is sealed when it is full: the store has all its parts, and the
//! journal how to complete it. It becomes visible when a checkpoint covers its messages. A run that continues
//! completes the sealed objects that its checkpoint covers, and discards the others, whose messages come
//! again. So no message is in two objects, although the objects of the second run may begin elsewhere.
//!
//! See docs/decisions/077-objects-appear-when-a-checkpoint-covers-them.md.

use std::collections::VecDeque;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use thalweg_engine::{Error, Journal};
use thalweg_store::{Begun, Upload, UploadedPart};
use xxhash_rust::xxh3::xxh3_128;

use super::Target;
use super::parts::{Noted, complete, moved_away, put, upload_is_gone};
use super::tail::Tails;
use crate::stored::failure;

/// The number of sealed objects whose uploads stay open. An upload into a folder has an open file. One that
/// was closed is read again when it is completed.
const OPEN: usize = 64;

/// A step that waits for a checkpoint.
#[expect(clippy::large_enum_variant, reason = "most steps are of the larger variant")]
pub(super) enum Step {
    /// An object becomes visible.
    Complete {
        /// Its [id](super::object::Object::id).
        id: u64,
        /// Its path.
        path: String,
        /// Its upload, if it is open.
        upload: Option<Upload>,
    },
    /// A tail is no longer needed.
    Forget {
        /// The [id](super::object::Object::id) of the object.
        id: u64,
        /// The number of the part.
        part: u32,
    },
}

/// A sealed object, as the journal has it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Sealed {
    /// The [id](super::object::Object::id) of the object.
    pub(super) number: u64,
    pub(super) path: String,
    /// `None` if the object is empty. A store has no upload without parts.
    pub(super) begun: Option<Begun>,
    pub(super) parts: Vec<UploadedPart>,
    /// The path that messages decided and the number of the object among those of this path.
    #[serde(default)]
    pub(super) named: Option<(String, u64)>,
}

/// The beginning of the names of the journal's entries for sealed objects, and for objects that are not full,
/// among those for [unfinished output](Journal::UNFINISHED).
const SEALED: &str = "sealed/";
const BEGUN: &str = "begun/";

/// The beginning of the names of the journal's entries for the numbers of the next objects of paths.
const NEXT: &str = "next/";

/// The name of the journal's entry for the upload that is being completed.
const COMPLETING: &str = "completing";

/// The sealed objects of a sink.
pub(super) struct Seals<'a> {
    pub(super) target: &'a Target,
    pub(super) journal: &'a Journal,
}

impl Seals<'_> {
    /// Records that an object has all its messages.
    pub(super) fn seal(&self, sealed: &Sealed) -> Result<(), Error> {
        let value = serde_json::to_value(sealed).map_err(|error| Error::permanent(error.to_string()))?;
        self.journal.note(&entry(sealed.number), &value)
    }

    /// Records that a checkpoint covers messages of an object that is not full.
    pub(super) fn begin(&self, id: u64) -> Result<(), Error> {
        self.journal.note(&begun_entry(id), &id.into())
    }

    /// Forgets such records of a killed run whose checkpoint was not saved: all but those of the objects of
    /// the saved state.
    pub(super) fn forget_begun(&self, is_kept: impl Fn(u64) -> bool) -> Result<(), Error> {
        for entry in self.journal.each(&format!("{}{BEGUN}", Journal::UNFINISHED)) {
            let (name, id) = entry?;
            if !id.as_u64().is_some_and(&is_kept) {
                self.journal.forget(&name)?;
            }
        }
        Ok(())
    }

    /// Takes a step: a checkpoint has what it needs. If it completes an object whose path messages decided,
    /// returns the path and the number of its next object, which the journal has from now on.
    pub(super) async fn take(&self, step: &Step) -> Result<Option<(String, u64)>, Error> {
        let mut named = None;
        match step {
            Step::Forget { id, part } => Tails { journal: self.journal, id: *id }.forget(*part)?,
            Step::Complete { id, upload, .. } => {
                for (_, sealed) in self.journal.entries(&entry(*id))? {
                    let sealed = parsed(sealed)?;
                    named = sealed.named.clone().map(|(path, number)| (path, number + 1));
                    self.complete(sealed, upload.clone()).await?;
                }
            }
        }
        Ok(named)
    }

    /// Completes the objects that an earlier run sealed and a checkpoint covers. Forgets the others. Returns
    /// the ids of the completed ones, in ascending order.
    pub(super) async fn resume(&self, is_covered: impl Fn(u64) -> bool) -> Result<Vec<u64>, Error> {
        let mut completed = Vec::new();
        for entry in self.journal.each(&format!("{}{SEALED}", Journal::UNFINISHED)) {
            let (name, sealed) = entry?;
            let sealed = parsed(sealed)?;
            if is_covered(sealed.number) {
                completed.push(sealed.number);
                self.complete(sealed, None).await?;
            } else {
                self.journal.forget(&name)?;
            }
        }
        Ok(completed)
    }

    async fn complete(&self, sealed: Sealed, open: Option<Upload>) -> Result<(), Error> {
        let Sealed { number, path, begun, parts, named } = sealed;
        match begun {
            None => self.put_empty(&path).await?,
            Some(begun) => {
                self.complete_upload(&begun, open, &parts).await?;
                Noted::new(Some(self.journal.clone()), &self.target.store.name(&path)).forget()?;
            }
        }
        if let Some((name, number)) = named {
            self.journal.note(&number_entry(&name), &(number + 1).into())?;
        }
        self.journal.forget(&begun_entry(number))?;
        self.journal.forget(&entry(number))
    }

    /// Returns the number of the next object of a path that messages decided: after those that are complete.
    pub(super) fn next_number(&self, path: &str) -> Result<u64, Error> {
        let noted = self.journal.entries(&number_entry(path))?;
        Ok(noted.first().and_then(|(_, number)| number.as_u64()).unwrap_or(1))
    }

    async fn put_empty(&self, path: &str) -> Result<(), Error> {
        let is_again = self.was_completing(path)?;
        self.journal.note(COMPLETING, &path.into())?;
        if is_again && self.target.exists(path).await? {
            return Ok(());
        }
        let stored = put(self.target, path, Bytes::new()).await.map_err(|error| failure(&error))?;
        self.target.wrote(stored.crc32c);
        Ok(())
    }

    async fn complete_upload(
        &self,
        begun: &Begun,
        open: Option<Upload>,
        parts: &[UploadedPart],
    ) -> Result<(), Error> {
        let store = &self.target.store;
        let upload = match open {
            Some(upload) => Some(upload),
            None => store.resume(begun).await.map_err(|error| failure(&error))?,
        };
        let Some(upload) = upload else { return self.find_completed(begun, parts).await };
        self.journal.note(COMPLETING, &(&*begun.id).into())?;
        match complete(&upload, parts).await {
            Ok(stored) => self.target.wrote(stored.crc32c),
            Err(error) => {
                if store.is_here() {
                    // An object in a folder is not complete then. The note would tell that it was.
                    self.journal.forget(COMPLETING)?;
                }
                return Err(moved_away(self.target, begun).unwrap_or_else(|| failure(&error)));
            }
        }
        Ok(())
    }

    /// An upload that is gone was completed, or another program discarded it.
    async fn find_completed(&self, begun: &Begun, parts: &[UploadedPart]) -> Result<(), Error> {
        let found = self.target.store.completed(begun, parts).await;
        // A reader may have taken the object away since.
        if found.map_err(|error| failure(&error))?.is_some() || self.was_completing(&begun.id)? {
            return Ok(());
        }
        Err(upload_is_gone(self.target, begun, parts, 0))
    }

    /// True if this upload or path was about to be completed.
    fn was_completing(&self, what: &str) -> Result<bool, Error> {
        let noted = self.journal.entries(COMPLETING)?;
        Ok(noted.iter().any(|(_, completing)| completing.as_str() == Some(what)))
    }
}

/// Closes the upload of the last step, if many are open.
pub(super) fn close_last(steps: &mut VecDeque<Step>) {
    let many = steps.len() > OPEN;
    if let Some(Step::Complete { upload, .. }) = steps.back_mut().filter(|_| many) {
        *upload = None;
    }
}

fn entry(number: u64) -> String {
    format!("{}{SEALED}{number:020}", Journal::UNFINISHED)
}

fn number_entry(path: &str) -> String {
    format!("{NEXT}{:032x}", xxh3_128(path.as_bytes()))
}

fn begun_entry(number: u64) -> String {
    format!("{}{BEGUN}{number:020}", Journal::UNFINISHED)
}

fn parsed(sealed: serde_json::Value) -> Result<Sealed, Error> {
    serde_json::from_value(sealed)
        .map_err(|error| Error::permanent("the state folder is damaged").caused_by(error))
}

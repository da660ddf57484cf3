//! Resumes from the state of an earlier run.

use thalweg_engine::Error;
use thalweg_store::{Begun, Upload};

use super::{Messages, Saved};
use crate::sinks::objects::object::{Object, paid};
use crate::sinks::objects::parts::upload_is_gone;
use crate::sinks::objects::sealed::Seals;
use crate::sinks::objects::tail::{Tails, forget_tails};
use crate::stored::failure;

impl Messages {
    /// Begins an object again whose upload the store no longer knows, although the saved state has it.
    fn begin_again(&mut self, saved: &Saved, begun: &Begun) -> Result<(), Error> {
        if self.rewrites && saved.parts.is_empty() && saved.tail.is_none() {
            // All of its messages come again.
            self.object = Object { id: saved.id, is_claimed: true, ..Object::new(saved.number) };
            return Ok(());
        }
        let tail = saved.tail.map_or(0, |tail| tail.kept.size());
        Err(upload_is_gone(&self.target, begun, &saved.parts, tail))
    }

    /// Returns what a later run needs to continue.
    pub(in crate::sinks::objects) fn saved(&self) -> Saved {
        let whole = self.object.whole();
        Saved {
            number: self.object.number,
            id: self.object.id,
            begun: self.object.upload.as_ref().map(|upload| upload.begun().clone()),
            parts: self.object.done.range(..=whole).map(|(_, part)| part.clone()).collect(),
            tail: self.object.tail.filter(|tail| tail.part > whole),
            is_claimed: self.object.is_claimed,
            is_finished: self.is_finished,
            is_continued: self.resumes,
        }
    }

    /// Continues with the object of a saved state.
    pub(in crate::sinks::objects) async fn resume(&mut self, saved: Saved) -> Result<(), Error> {
        self.object = Object { id: saved.id, ..Object::new(saved.number) };
        let Some(begun) = saved.begun.clone().filter(|_| self.resumes) else {
            return self.continue_with(Saved { parts: Vec::new(), ..saved }, None);
        };
        match self.target.store.resume(&begun).await.map_err(|error| failure(&error))? {
            Some(upload) => self.continue_with(saved, Some(upload)),
            None => self.begin_again(&saved, &begun),
        }
    }

    /// Continues with the object that an earlier run did not finish.
    fn continue_with(&mut self, saved: Saved, upload: Option<Upload>) -> Result<(), Error> {
        saved.parts.iter().for_each(|part| self.target.note(part, true));
        self.object.upload = upload;
        self.object.offset = saved.parts.iter().map(|part| part.size).sum();
        self.object.next = saved.parts.last().map_or(1, |part| part.number + 1);
        self.object.is_new = saved.parts.is_empty() && saved.tail.is_none();
        self.object.done = saved.parts.into_iter().map(|part| (part.number, part)).collect();
        self.object.is_claimed = saved.is_claimed || self.object.upload.is_some();
        if let (Some(tail), Some(journal)) = (saved.tail, &self.journal) {
            let (id, body) = (self.object.id(), self.object.gathered.body());
            // The budget counts each piece before the next one is read: a part may be large.
            let take = |bytes| {
                body.push(paid(&self.budget, bytes));
                Ok(())
            };
            Tails { journal, id }.read(tail, take)?;
            self.object.tail = Some(tail);
        }
        Ok(())
    }

    /// Finishes what earlier runs sealed, and removes what they began after their last checkpoint. Returns
    /// the number of the next object if it is not that of the saved state.
    pub(super) async fn clean_up(&mut self, saved: Option<&Saved>) -> Result<Option<u64>, Error> {
        let Some(journal) = self.journal.clone() else { return Ok(None) };
        let number = saved.map_or(0, |saved| saved.number);
        let seals = Seals { target: &self.target, journal: &journal };
        let rewrites = self.rewrites;
        let completed = seals.resume(|id| !rewrites || id < number).await?;
        let next = completed.last().map_or(0, |last| last + 1);
        seals.forget_begun(|id| id == number)?;
        let begun = saved.and_then(|saved| saved.begun.as_ref()).filter(|_| self.resumes && next <= number);
        self.discard_unsaved(begun.as_slice()).await?;
        forget_tails(&journal, saved.and_then(|saved| Some((number, saved.tail?))))?;
        Ok(Some(next).filter(|next| *next > number))
    }
}

//! Open sessions in a checkpoint.
//!
//! They are in the journal as the groups of windows are ([`crate::open`]), but the sessions of a block end at
//! different times. So a state names the entries of all blocks, those of their sessions that are delivered
//! since, and single sessions of former entries whose results are still on their way.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;
use thalweg_codec::keys::Secret;
use thalweg_engine::{Error, Journal};
use thalweg_record::Ack;

use super::function::Kind;
use super::group::BLOCK;
use super::sessions::{Restored, Sessions};
use super::window::Window;
use crate::entries::{Entries, Fate};
use crate::open::Keeps;
use crate::saved::{Places, Saved, SavedSessions};

/// Keeps open sessions in the journal.
pub(super) struct KeptSessions {
    entries: Entries,
    options: String,
    secret: Secret,
    /// The name of the transform.
    place: Arc<str>,
    /// The state at the last call of [`keep`](Self::keep), or before the first message.
    last: Saved,
    /// The state that was returned last.
    told: Option<Saved>,
    /// Sessions of the last checkpoint whose results have left.
    leaving: Vec<(Places, Fate)>,
}

impl KeptSessions {
    /// Keeps sessions with groups of these options. `watermark` is that before the first message, `secret`
    /// that of the hashes without a state.
    pub(super) fn new(
        journal: Journal,
        options: String,
        secret: Secret,
        watermark: i64,
        place: &str,
    ) -> Self {
        Self {
            entries: Entries::new(journal),
            options: options.clone(),
            secret,
            place: place.into(),
            last: Saved::new(options, secret, watermark),
            told: None,
            leaving: Vec::new(),
        }
    }

    /// The results of sessions leave, with this ack.
    pub(super) fn leaves(&mut self, places: Places, ack: &mut Ack) {
        if !places.is_empty() {
            self.leaving.push((places, Fate::of(ack, &self.place)));
        }
    }

    /// Puts sessions into the journal, and settles their acks.
    pub(super) fn keep(&mut self, sessions: &mut Sessions, watermark: i64) -> Result<(), Error> {
        // The last checkpoint may name sessions of entries that were out of date before it.
        let rest = &self.last.sessions.rest;
        self.entries.forget_old(|entry| rest.0.contains_key(&entry))?;
        // As with windows, these settle before `state`, or a later run sends them again.
        self.leaving.retain(|(_, fate)| !fate.is_safe());
        let mut rest = Places::default();
        self.leaving.iter().for_each(|(places, _)| rest.add(places));
        sessions.save(|block| self.entries.write(block))?;
        self.entries.replaced(sessions.take_replaced());
        self.entries.are_complete();
        let saved = SavedSessions { entries: sessions.entries(), gone: Places::default(), rest };
        let before = Saved::new(self.options.clone(), self.secret, watermark);
        self.last = Saved { next: self.entries.next(), sessions: saved, ..before };
        sessions.settle();
        Ok(())
    }

    /// Reads the sessions of a state. Returns them, its watermark and its secret, or None if the options are
    /// others, and no session was open.
    pub(super) fn restore(
        &mut self,
        saved: Value,
        keys: usize,
        kinds: &[Kind],
    ) -> Result<Option<(Sessions, i64, Secret)>, Error> {
        let Some(saved) = Saved::read::<Window>(saved, &self.options)? else { return Ok(None) };
        let mut sessions = Sessions::default();
        let mut known = HashSet::new();
        if !saved.entries().all(|entry| known.insert(entry)) {
            return Err(crate::unusable_state("a block of sessions is there twice"));
        }
        let SavedSessions { entries, gone, rest } = &saved.sessions;
        for &entry in entries {
            let block = self.block(entry, keys, kinds)?;
            match gone.0.contains_key(&entry) || block.iter().all(Option::is_none) {
                true => sessions.restore_some(entry, block, |slot| !gone.has(entry, slot)),
                false => sessions.restore(entry, block),
            }
        }
        for &entry in rest.0.keys() {
            let block = self.block(entry, keys, kinds)?;
            sessions.restore_some(entry, block, |slot| rest.has(entry, slot));
        }
        self.entries.resume(saved.next, saved.entries())?;
        self.secret = saved.secret;
        let (watermark, secret) = (saved.watermark, saved.secret);
        self.told = Some(saved.clone());
        self.last = saved;
        Ok(Some((sessions, watermark, secret)))
    }

    /// Reads a block.
    fn block(&self, entry: u64, keys: usize, kinds: &[Kind]) -> Result<Vec<Option<Restored>>, Error> {
        let block: Vec<Option<Restored>> = self.entries.read(entry)?;
        let is_valid = |session: &Restored| session.span.is_possible() && session.group.is_valid(keys, kinds);
        match block.len() <= BLOCK && block.iter().flatten().all(is_valid) {
            true => Ok(block),
            false => Err(crate::unusable_state("a session does not fit the options")),
        }
    }
}

impl Keeps for KeptSessions {
    fn has_failed(&self) -> bool {
        self.leaving.iter().any(|(_, fate)| fate.has_failed())
    }

    fn has_news(&self) -> bool {
        !self.leaving.is_empty()
    }

    fn state(&mut self) -> Option<Value> {
        let mut state = self.last.clone();
        for (places, _) in self.leaving.iter().filter(|(_, fate)| fate.is_safe()) {
            state.sessions.leave_out(places);
        }
        if self.told.as_ref() == Some(&state) {
            return None;
        }
        let value = serde_json::to_value(&state).ok();
        self.told = Some(state);
        value
    }
}

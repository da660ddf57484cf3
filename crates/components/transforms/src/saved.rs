//! The state for a later run: which entries of the journal have what is open.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thalweg_codec::keys::Secret;
use thalweg_engine::Error;

use crate::open::Open;

/// The state for a later run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Saved {
    /// The options that determine what is saved.
    pub(crate) options: String,
    /// That of the hashes of keys.
    pub(crate) secret: Secret,
    /// A number that grows: of windows by time the end of time, otherwise the number of the next one.
    pub(crate) watermark: i64,
    /// The number of the next entry.
    pub(crate) next: u64,
    pub(crate) windows: Vec<SavedWindow>,
    #[serde(default, skip_serializing_if = "SavedSessions::is_empty")]
    pub(crate) sessions: SavedSessions,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SavedWindow {
    pub(crate) start: i64,
    pub(crate) count: u64,
    /// The entries of its blocks.
    pub(crate) entries: Vec<u64>,
}

/// Open sessions: windows of which each ends by itself, so that a part of an entry may be delivered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SavedSessions {
    /// The entries of all blocks.
    pub(crate) entries: Vec<u64>,
    /// Of these, the sessions that are delivered.
    pub(crate) gone: Places,
    /// The sessions of other entries whose results were not delivered.
    pub(crate) rest: Places,
}

impl SavedSessions {
    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.rest.is_empty()
    }

    /// Leaves out sessions that are delivered.
    pub(crate) fn leave_out(&mut self, places: &Places) {
        for (entry, mask) in &places.0 {
            match self.rest.0.get_mut(entry) {
                Some(rest) => *rest &= !mask,
                None => *self.gone.0.entry(*entry).or_default() |= mask,
            }
        }
        self.rest.0.retain(|_, mask| *mask != 0);
    }
}

/// Where a checkpoint has a session: the entry of the journal, and the slot.
pub(crate) type Place = (u64, u32);

/// Sessions in entries of the journal: for each entry a bit for each slot of its block.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64, u64)>", into = "Vec<(u64, u64, u64)>")]
pub(crate) struct Places(pub(crate) BTreeMap<u64, u128>);

impl From<Vec<(u64, u64, u64)>> for Places {
    fn from(list: Vec<(u64, u64, u64)>) -> Self {
        let masks = list
            .into_iter()
            .map(|(entry, upper, lower)| (entry, (u128::from(upper) << 64) | u128::from(lower)));
        Self(masks.collect())
    }
}

impl From<Places> for Vec<(u64, u64, u64)> {
    fn from(places: Places) -> Self {
        let masks = places.0.into_iter();
        masks.map(|(entry, mask)| (entry, (mask >> 64) as u64, mask as u64)).collect()
    }
}

impl Places {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (entry, mask) in &other.0 {
            *self.0.entry(*entry).or_default() |= mask;
        }
    }

    pub(crate) fn add_one(&mut self, (entry, slot): Place) {
        *self.0.entry(entry).or_default() |= bit(slot);
    }

    pub(crate) fn has(&self, entry: u64, slot: usize) -> bool {
        self.0.get(&entry).is_some_and(|mask| mask & bit(slot as u32) != 0)
    }
}

/// The bit of a slot. A block has as many slots as a mask has bits.
fn bit(slot: u32) -> u128 {
    1_u128 << (slot % u128::BITS)
}

impl Saved {
    /// The state before the first message.
    pub(crate) fn new(options: String, secret: Secret, watermark: i64) -> Self {
        let sessions = SavedSessions::default();
        Self { options, secret, watermark, next: 0, windows: Vec::new(), sessions }
    }

    fn is_empty(&self) -> bool {
        self.windows.is_empty() && self.sessions.is_empty()
    }

    /// The entries of the journal that it needs.
    pub(crate) fn entries(&self) -> impl Iterator<Item = u64> {
        let windows = self.windows.iter().flat_map(|window| window.entries.iter().copied());
        let sessions = self.sessions.entries.iter().chain(self.sessions.rest.0.keys()).copied();
        windows.chain(sessions)
    }

    /// Reads a state. Returns None if the options are others, and nothing was open.
    pub(crate) fn read<T: Open>(saved: Value, options: &str) -> Result<Option<Self>, Error> {
        let saved: Self = serde_json::from_value(saved).map_err(crate::unusable_state)?;
        if saved.options != options && saved.is_empty() {
            return Ok(None);
        }
        if saved.options != options {
            return Err(Error::permanent(format!(
                "an earlier run left open {} of other options: `{}`. Set the options back until the input ends, or \
                 use another state folder, with which all input is read from its beginning",
                T::PLURAL,
                saved.options
            )));
        }
        let is_possible = |number: i64| number == i64::MIN || T::is_possible(number);
        if !is_possible(saved.watermark)
            || saved.windows.iter().any(|window| !T::is_possible(window.start))
            || saved.next > u64::MAX / 2
            || saved.entries().any(|entry| entry >= saved.next)
        {
            return Err(crate::unusable_state("a number is impossible"));
        }
        Ok(Some(saved))
    }
}

/// Refuses a state with something open that this run cannot continue.
pub(crate) fn unneeded<T: Open>(saved: Value) -> Result<(), Error> {
    let saved: Saved = serde_json::from_value(saved).map_err(crate::unusable_state)?;
    match saved.is_empty() {
        true => Ok(()),
        false => Err(Error::permanent(format!(
            "an earlier run left open {}, but a source of this configuration cannot read its messages again. Set \
             the sources back until their input ends, or use another state folder",
            T::PLURAL
        ))),
    }
}

//! The state for a later run: which entries of the journal have the open windows.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thalweg_codec::keys::Secret;
use thalweg_engine::Error;

use super::sessions::Places;
use super::timing::is_reachable;

/// The state for a later run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Saved {
    /// The options that determine what groups have.
    pub(super) options: String,
    /// That of the hashes of keys.
    pub(super) secret: Secret,
    /// The end of time: messages before it are late.
    pub(super) watermark: i64,
    /// The number of the next entry.
    pub(super) next: u64,
    pub(super) windows: Vec<SavedWindow>,
    #[serde(default, skip_serializing_if = "SavedSessions::is_empty")]
    pub(super) sessions: SavedSessions,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SavedWindow {
    pub(super) start: i64,
    pub(super) count: u64,
    /// The entries of its blocks.
    pub(super) entries: Vec<u64>,
}

/// Open sessions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SavedSessions {
    /// The entries of all blocks.
    pub(super) entries: Vec<u64>,
    /// Of these, the sessions that are delivered.
    pub(super) gone: Places,
    /// The sessions of other entries whose results were not delivered.
    pub(super) rest: Places,
}

impl SavedSessions {
    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.rest.is_empty()
    }

    /// Leaves out sessions that are delivered.
    pub(super) fn leave_out(&mut self, places: &Places) {
        for (entry, mask) in &places.0 {
            match self.rest.0.get_mut(entry) {
                Some(rest) => *rest &= !mask,
                None => *self.gone.0.entry(*entry).or_default() |= mask,
            }
        }
        self.rest.0.retain(|_, mask| *mask != 0);
    }
}

impl Saved {
    /// The state before the first message.
    pub(super) fn new(options: String, secret: Secret, watermark: i64) -> Self {
        Self { options, secret, watermark, next: 0, windows: Vec::new(), sessions: SavedSessions::default() }
    }

    fn is_empty(&self) -> bool {
        self.windows.is_empty() && self.sessions.is_empty()
    }

    /// The entries of the journal that have windows.
    pub(super) fn entries(&self) -> impl Iterator<Item = u64> {
        let windows = self.windows.iter().flat_map(|window| window.entries.iter().copied());
        let sessions = self.sessions.entries.iter().chain(self.sessions.rest.0.keys()).copied();
        windows.chain(sessions)
    }

    /// Reads a state. Returns None if the options are others, and no window was open.
    pub(super) fn read(saved: Value, options: &str) -> Result<Option<Self>, Error> {
        let saved: Self = serde_json::from_value(saved).map_err(crate::unusable_state)?;
        if saved.options != options && saved.is_empty() {
            return Ok(None);
        }
        if saved.options != options {
            return Err(Error::permanent(format!(
                "an earlier run left open windows of other options: `{}`. Set the options back until the input ends, or \
                 use another state folder, with which all input is read from its beginning",
                saved.options
            )));
        }
        let is_possible = |time: i64| time == i64::MIN || is_reachable(time);
        if !is_possible(saved.watermark)
            || saved.windows.iter().any(|window| !is_reachable(window.start))
            || saved.next > u64::MAX / 2
            || saved.entries().any(|entry| entry >= saved.next)
        {
            return Err(crate::unusable_state("a number is impossible"));
        }
        Ok(Some(saved))
    }
}

/// Refuses a state with open windows that this run cannot continue.
pub(super) fn unneeded(saved: Value) -> Result<(), Error> {
    let saved: Saved = serde_json::from_value(saved).map_err(crate::unusable_state)?;
    match saved.is_empty() {
        true => Ok(()),
        false => Err(Error::permanent(
            "an earlier run left open windows, but a source of this configuration cannot read its messages again. Set \
             the sources back until their input ends, or use another state folder",
        )),
    }
}
